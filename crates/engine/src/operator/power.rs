//! The API `subresources.kubevirt.io`: start, stop, restart, pause, unpause, migrate, cancel an evacuation.
//!
//! Each request reads the objects it is about, lets the core decide, and writes on the versions it read; if somebody wrote in
//! between it starts over. Codes and words are KubeVirt's.

use evac_api::call::{FIELD_MANAGER, MERGE_PATCH, escape};
use evac_api::kubevirt::{render, request, wire};
use evac_api::{Answer, Call};
use evac_core::Key;
use evac_core::cluster::version::Version;
use evac_core::machines::machine::requests_tree;
use evac_core::machines::power::{self, Change, Refusal};
use evac_core::machines::{Config, Instance, Kind, Machine, Power, names};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Http, HttpError, parse};

pub const GROUP: &str = "subresources.kubevirt.io";
pub const VERSIONS: &[&str] = &["v1", "v1alpha3"];

/// How often a request starts over when others write at the same time.
const ATTEMPTS: usize = 5;

/// A finished answer: a code and, where there is something to say, a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub code: u16,
    pub body: Option<Value>,
}

impl Reply {
    fn accepted() -> Self {
        Self { code: 202, body: None }
    }

    fn ok() -> Self {
        Self { code: 200, body: None }
    }
}

/// A refusal on its way to become a `Status`.
#[derive(Debug)]
enum Failure {
    NotFound {
        resource: &'static str,
        name: String,
    },
    Refused {
        resource: &'static str,
        name: String,
        refusal: Refusal,
    },
    /// Read again and decide again.
    Conflict(String),
    NoSuchPath,
    Method,
}

impl Failure {
    fn internal(text: impl Into<String>) -> Self {
        Self::Refused { resource: "", name: String::new(), refusal: Refusal::Internal(text.into()) }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self::Refused { resource: "", name: String::new(), refusal: Refusal::BadRequest(text.into()) }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    paused: bool,
    grace_period: Option<i64>,
    grace_period_seconds: Option<i64>,
    dry_run: Vec<String>,
    added_node_selector: Option<Value>,
    evacuation_node_name: Option<String>,
}

impl Options {
    fn is_trial(&self) -> bool {
        self.dry_run.first().is_some_and(|word| word == "All")
    }

    fn query(&self) -> &'static str {
        if self.is_trial() { "&dryRun=All" } else { "" }
    }
}

/// The resources of the group, for discovery.
pub fn resources() -> Value {
    let entry = |resource: &str, sub: &str, kind: &str| {
        json!({
            "name": format!("{resource}/{sub}"),
            "singularName": "",
            "namespaced": true,
            "kind": kind,
            "verbs": [],
        })
    };
    let machine = ["start", "stop", "restart", "migrate", "evacuate/cancel"];
    let instance = ["pause", "unpause", "evacuate/cancel"];
    let mut list: Vec<Value> =
        machine.iter().map(|sub| entry("virtualmachines", sub, "VirtualMachine")).collect();
    list.extend(instance.iter().map(|sub| entry("virtualmachineinstances", sub, "VirtualMachineInstance")));
    Value::Array(list)
}

/// Answers one request under `/apis/subresources.kubevirt.io/{version}/`.
pub async fn answer(http: &Http, config: &Config, method: &str, path: &str, body: &[u8]) -> Reply {
    match route(http, config, method, path, body).await {
        Ok(reply) => reply,
        Err(failure) => refusal(&failure),
    }
}

async fn route(
    http: &Http,
    config: &Config,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Reply, Failure> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let Some(rest) = parts.strip_prefix(&["apis", GROUP]).and_then(|rest| rest.split_first()) else {
        return Err(Failure::NoSuchPath);
    };
    let (key, resource, sub) = match rest.1 {
        ["version"] => return Ok(version()),
        ["healthz"] => {
            return Ok(Reply { code: 200, body: Some(json!({"apiserver": {"connectivity": "ok"}})) });
        }
        ["namespaces", namespace, resource, name, sub @ ..] if !sub.is_empty() => {
            (Key::new(*namespace, *name), *resource, sub.join("/"))
        }
        _ => return Err(Failure::NoSuchPath),
    };
    let is_machine = resource == "virtualmachines";
    let known = matches!(
        (resource, sub.as_str()),
        ("virtualmachines", "start" | "stop" | "restart" | "migrate" | "evacuate/cancel")
            | ("virtualmachineinstances", "pause" | "unpause" | "evacuate/cancel")
    );
    if !known {
        return Err(Failure::NoSuchPath);
    }
    if method != "PUT" {
        return Err(Failure::Method);
    }
    let options = read_options(body)?;
    match sub.as_str() {
        "migrate" => migrate(http, &key, &options).await,
        "pause" | "unpause" => pause(http, &key, sub == "pause", &options).await,
        "evacuate/cancel" => {
            if is_machine {
                must_be_created(http, &key).await?;
            }
            cancel_evacuation(http, config, &key, body, &options).await
        }
        verb => power_request(http, &key, verb, &options).await,
    }
}

fn version() -> Reply {
    let body = json!({
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION"), "+evac"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "",
    });
    Reply { code: 200, body: Some(body) }
}

fn read_options(body: &[u8]) -> Result<Options, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Options::default());
    }
    serde_json::from_slice::<Option<Options>>(body)
        .map(Option::unwrap_or_default)
        .map_err(|error| Failure::bad(format!("Can not unmarshal Request body to struct, error: {error}")))
}

async fn read<T, O>(http: &Http, kind: Kind, key: &Key) -> Result<Option<(T, String)>, Failure>
where
    O: DeserializeOwned + Into<T>,
{
    let answer = http.send(&Call::get(request::object_path(kind, key))).await;
    match answer.and_then(|answer| parse::<Value>(&answer)) {
        Ok(value) => {
            let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let object: O =
                serde_json::from_value(value).map_err(|error| Failure::internal(error.to_string()))?;
            Ok(Some((object.into(), version)))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(Failure::internal(error.to_string())),
    }
}

async fn read_machine(http: &Http, key: &Key) -> Result<Machine, Failure> {
    let found = read::<Machine, wire::VirtualMachine>(http, Kind::Machine, key).await?;
    found
        .map(|(machine, _)| machine)
        .ok_or_else(|| Failure::NotFound { resource: "virtualmachine", name: key.name.to_string() })
}

async fn read_instance(http: &Http, key: &Key) -> Result<Option<Instance>, Failure> {
    let found = read::<Instance, wire::VirtualMachineInstance>(http, Kind::Instance, key).await?;
    Ok(found.map(|(instance, _)| instance))
}

async fn must_have_instance(http: &Http, key: &Key) -> Result<Instance, Failure> {
    read_instance(http, key)
        .await?
        .ok_or_else(|| Failure::NotFound { resource: "virtualmachineinstance", name: key.name.to_string() })
}

fn refused(resource: &'static str, key: &Key) -> impl Fn(Refusal) -> Failure + use<> {
    let name = key.name.to_string();
    move |refusal| Failure::Refused { resource, name: name.clone(), refusal }
}

/// Start, stop and restart.
async fn power_request(http: &Http, key: &Key, verb: &str, options: &Options) -> Result<Reply, Failure> {
    let refuse = refused("virtualmachine", key);
    if verb == "restart" {
        power::check_restart_grace(options.grace_period_seconds).map_err(&refuse)?;
    }
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let machine = read_machine(http, key).await?;
        let instance = read_instance(http, key).await?;
        let changes = match verb {
            "start" => power::start(&machine, instance.as_ref(), options.paused),
            "stop" => power::stop(&machine, instance.as_ref(), options.grace_period),
            _ => power::restart(&machine, instance.as_ref(), options.grace_period_seconds),
        }
        .map_err(&refuse)?;
        match write(http, &machine, instance.as_ref(), &changes, options).await {
            Ok(()) => return Ok(Reply::accepted()),
            Err(Failure::Conflict(text)) => last = text,
            Err(other) => return Err(other),
        }
    }
    Err(refuse(Refusal::Conflict(last)))
}

async fn write(
    http: &Http,
    machine: &Machine,
    instance: Option<&Instance>,
    changes: &[Change],
    options: &Options,
) -> Result<(), Failure> {
    let mut shortened = None;
    for change in changes {
        let result = match change {
            Change::Grace { was, becomes } => {
                let Some(instance) = instance else { continue };
                shortened = Some((instance, *was));
                set_grace(http, instance, Some(*becomes), options).await
            }
            Change::Power(power) => {
                let spec = match power {
                    Power::Running(running) => json!({"running": running}),
                    Power::Strategy(strategy) => json!({"runStrategy": strategy.to_string()}),
                    Power::Unclear => continue,
                };
                let body = json!({"metadata": {"resourceVersion": machine.version}, "spec": spec});
                patch(http, Kind::Machine, &machine.key, "", body, options).await
            }
            Change::Requests(requests) => {
                let requests = serde_json::to_value(requests_tree(requests)).unwrap_or_default();
                let body = json!({
                    "metadata": {"resourceVersion": machine.version},
                    "status": {"stateChangeRequests": requests, "startFailure": null},
                });
                patch(http, Kind::Machine, &machine.key, "/status", body, options).await
            }
        };
        if let Err(failure) = result {
            if let Some((instance, was)) = shortened
                && !matches!(change, Change::Grace { .. })
            {
                // The guest keeps the time it had if the request is not accepted.
                let mut again = instance.clone();
                again.version = Version::default();
                set_grace(http, &again, was, options).await?;
            }
            return Err(failure);
        }
    }
    Ok(())
}

async fn set_grace(
    http: &Http,
    instance: &Instance,
    seconds: Option<i64>,
    options: &Options,
) -> Result<(), Failure> {
    let mut body = json!({
        "metadata": {"uid": instance.uid},
        "spec": {"terminationGracePeriodSeconds": seconds},
    });
    if !instance.version.is_empty() {
        body["metadata"]["resourceVersion"] = json!(instance.version);
    }
    patch(http, Kind::Instance, &instance.key, "", body, options).await
}

async fn patch(
    http: &Http,
    kind: Kind,
    key: &Key,
    face: &str,
    body: Value,
    options: &Options,
) -> Result<(), Failure> {
    let path =
        format!("{}{face}?fieldManager={FIELD_MANAGER}{}", request::object_path(kind, key), options.query());
    let answer = http.send(&request::send("PATCH", path, MERGE_PATCH, &body)).await;
    outcome(answer)
}

fn outcome(answer: Result<Answer, HttpError>) -> Result<(), Failure> {
    match answer {
        Ok(answer) if answer.is_success() => Ok(()),
        Ok(answer) if answer.status == 409 => Err(Failure::Conflict(answer.failure().message)),
        Ok(answer) => Err(Failure::internal(answer.failure().message)),
        Err(error) => Err(Failure::internal(error.to_string())),
    }
}

async fn migrate(http: &Http, key: &Key, options: &Options) -> Result<Reply, Failure> {
    read_machine(http, key).await?;
    let instance = must_have_instance(http, key).await?;
    power::migrate(&instance).map_err(refused("virtualmachine", key))?;
    let object = render::migration(&key.namespace, &key.name, options.added_node_selector.as_ref());
    let mut call = request::create(&request::in_namespace(Kind::Migration, &key.namespace), &object);
    call.path.push_str(options.query());
    match outcome(http.send(&call).await) {
        Err(Failure::Conflict(text)) => Err(Failure::internal(text)),
        other => other.map(|()| Reply::accepted()),
    }
}

/// The node agent carries it out; this leaves the wish where it looks.
async fn pause(http: &Http, key: &Key, pause: bool, options: &Options) -> Result<Reply, Failure> {
    let instance = must_have_instance(http, key).await?;
    let check = if pause { power::pause(&instance) } else { power::unpause(&instance) };
    check.map_err(refused("virtualmachineinstance", key))?;
    let state = if pause { "Paused" } else { "Running" };
    let body = json!({
        "metadata": {"uid": instance.uid, "annotations": {names::WANTED_GUEST_STATE: state}},
    });
    patch(http, Kind::Instance, key, "", body, options).await?;
    Ok(Reply::ok())
}

async fn must_be_created(http: &Http, key: &Key) -> Result<(), Failure> {
    if read_machine(http, key).await?.status.created {
        return Ok(());
    }
    let text = format!("VMI for VM {} does not exist", key.name);
    Err(refused("virtualmachine", key)(Refusal::Conflict(text)))
}

async fn cancel_evacuation(
    http: &Http,
    config: &Config,
    key: &Key,
    body: &[u8],
    options: &Options,
) -> Result<Reply, Failure> {
    let instance = must_have_instance(http, key).await?;
    let node = instance.evacuation_node.clone().unwrap_or_else(|| instance.node.clone());
    if !node.is_empty() {
        let path = format!("/api/v1/nodes/{}", escape(&node));
        let object: Value =
            http.read(&Call::get(path)).await.map_err(|error| Failure::internal(error.to_string()))?;
        let tainted = object["spec"]["taints"].as_array().is_some_and(|taints| {
            taints.iter().any(|taint| {
                taint["key"] == config.drain_taint_key.as_str() && taint["effect"] == "NoSchedule"
            })
        });
        if tainted {
            return Err(Failure::bad(format!(
                "node {node} has the drain taint {}; remove it before cancelling an evacuation",
                config.drain_taint_key
            )));
        }
    }
    let Some(marked) = &instance.evacuation_node else { return Ok(Reply::ok()) };
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::bad("Request with no body, a new name is expected as the request body"));
    }
    let expected = options.evacuation_node_name.as_deref().unwrap_or_default();
    if expected != marked {
        return Err(Failure::internal(format!(
            "the server rejected our request due to an error in our request: the VMI is marked for {marked}, not for {expected:?}"
        )));
    }
    let body = json!({
        "metadata": {"uid": instance.uid, "resourceVersion": instance.version},
        "status": {"evacuationNodeName": null},
    });
    match patch(http, Kind::Instance, key, "", body, options).await {
        Err(Failure::Conflict(text)) => Err(Failure::internal(text)),
        other => other.map(|()| Reply::ok()),
    }
}

fn refusal(failure: &Failure) -> Reply {
    let status = |code: u16, reason: &str, message: String, details: Value| Reply {
        code,
        body: Some(json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        })),
    };
    let about = |resource: &str, name: &str| json!({"name": name, "group": "kubevirt.io", "kind": resource});
    match failure {
        Failure::NotFound { resource, name } => status(
            404,
            "NotFound",
            format!("{resource}.kubevirt.io \"{name}\" not found"),
            about(resource, name),
        ),
        Failure::Refused { resource, name, refusal } => match refusal {
            Refusal::Conflict(text) => status(
                409,
                "Conflict",
                format!("Operation cannot be fulfilled on {resource}.kubevirt.io \"{name}\": {text}"),
                about(resource, name),
            ),
            Refusal::Forbidden(text) => status(
                403,
                "Forbidden",
                format!("{resource}.kubevirt.io \"{name}\" is forbidden: {text}"),
                about(resource, name),
            ),
            Refusal::BadRequest(text) => status(400, "BadRequest", text.clone(), json!({})),
            Refusal::Internal(text) => status(
                500,
                "InternalError",
                format!("Internal error occurred: {text}"),
                json!({"causes": [{"message": text}]}),
            ),
        },
        Failure::Conflict(text) => status(409, "Conflict", text.clone(), json!({})),
        Failure::NoSuchPath => {
            status(404, "NotFound", "the server could not find the requested resource".into(), json!({}))
        }
        Failure::Method => status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".into(),
            json!({}),
        ),
    }
}
