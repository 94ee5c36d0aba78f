//! Takes back what a drain asked for about virtual machines: its migrations are aborted and marks on instances cleared.

use std::time::Duration;

use evac_api::call::{self, escape, labelled};
use evac_api::kubevirt::{request, wire};
use evac_api::{Answer, Call};
use evac_apimachinery::backoff::Backoff;
use evac_core::Key;
use evac_core::component;
use evac_core::machines::remains::Remains;
use evac_core::machines::{Instance, Kind, Migration, names};
use serde_json::json;

use crate::guests;
use crate::http::{Http, HttpError, Patience};
use crate::watch::{Source, list};

/// What was taken back, and what could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CalledBack {
    /// Instances whose migration was aborted.
    pub aborted: Vec<Key>,
    /// Instances whose mark was cleared.
    pub unmarked: Vec<Key>,
    pub left: Vec<Remains>,
}

/// Whose migrations are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of one drainer.
    Owner(&'a str),
    /// Those of any drain.
    Drains,
    /// Also those that the control plane made because of a taint or an eviction.
    Everybody,
}

/// Clears the marks of the instances on a node, and aborts the unfinished migrations by which these wanted to empty it. A
/// cluster without virtual machines has nothing to take back.
pub async fn call_back(
    http: &Http,
    node: &str,
    whose: Whose<'_>,
    dry_run: bool,
) -> Result<CalledBack, HttpError> {
    let mut done = CalledBack::default();
    // First the marks: a migration that is aborted while its instance is still marked is followed by another one.
    clear_marks(http, node, dry_run, &mut done).await?;
    let query = match whose {
        Whose::Owner(_) | Whose::Drains => labelled(names::DRAIN),
        Whose::Everybody => String::new(),
    };
    let unfinished = |one: wire::Migration| Some(Migration::from(one)).filter(|one| !one.phase.is_final());
    let ours =
        match list(http, &Source { path: guests::MIGRATIONS.into(), query, page: 500 }, unfinished).await {
            Ok((ours, _)) => ours,
            Err(error) if error.is_not_found() => return Ok(done),
            Err(error) if error.is_forbidden() => {
                done.left.push(Remains::Unread { what: "migrations", why: error.to_string() });
                Vec::new()
            }
            Err(error) => return Err(error),
        };
    for migration in ours {
        let says = |name: &str| migration.annotations.get(name).map(String::as_str);
        let same_owner = match whose {
            Whose::Owner(owner) => says(names::DRAIN) == Some(owner),
            Whose::Drains | Whose::Everybody => true,
        };
        if says(names::EVACUATION_MIGRATION) != Some(node) || !same_owner || migration.deleting {
            continue;
        }
        let why = match http.send(&call::abort(&migration.key, &migration.uid, dry_run)).await {
            Ok(answer) if answer.is_success() => {
                done.aborted.push(migration.instance);
                continue;
            }
            // One that is over or gone meanwhile needs no abort.
            Ok(answer) if matches!(answer.status, 404 | 409) => continue,
            Ok(answer) => answer.failure().message,
            Err(error) => error.to_string(),
        };
        done.left.push(Remains::Migration { migration: migration.key, why });
    }
    Ok(done)
}

async fn clear_marks(http: &Http, node: &str, dry_run: bool, done: &mut CalledBack) -> Result<(), HttpError> {
    let here =
        Source { path: guests::INSTANCES.into(), query: guests::on_nodes(&[node.to_owned()]), page: 500 };
    let marked = |one: wire::VirtualMachineInstance| {
        Some(Instance::from(one)).filter(|one| one.evacuation_node.as_deref() == Some(node))
    };
    let instances = match list(http, &here, marked).await {
        Ok((instances, _)) => instances,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) if error.is_forbidden() => {
            done.left.push(Remains::Unread { what: "marked virtual machines", why: error.to_string() });
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for instance in instances {
        let why = match patiently(http, &unmark(&instance.key, node, dry_run)).await {
            Ok(answer) if answer.is_success() => {
                done.unmarked.push(instance.key);
                continue;
            }
            Ok(answer) => why(&answer),
            Err(error) => error.to_string(),
        };
        if is_marked(http, &instance.key, node).await {
            done.left.push(Remains::Mark { instance: instance.key, node: node.to_owned(), why });
        }
    }
    Ok(())
}

/// Whether it still is: it may have arrived or ended meanwhile. What cannot be read is taken to be as it was.
async fn is_marked(http: &Http, instance: &Key, node: &str) -> bool {
    let path = request::object_path(Kind::Instance, instance);
    match http.read::<wire::VirtualMachineInstance>(&Call::get(path)).await {
        Ok(found) => Instance::from(found).evacuation_node.as_deref() == Some(node),
        Err(error) => !error.is_not_found(),
    }
}

/// Whoever answers this reads and writes; that somebody else wrote in between is told as a conflict or as a failure of its own.
async fn patiently(http: &Http, call: &Call) -> Result<Answer, HttpError> {
    let passes = |sent: &Result<Answer, HttpError>| {
        sent.as_ref().is_ok_and(|answer| matches!(answer.status, 409 | 500))
    };
    http.try_again(PATIENCE, || http.send(call), passes).await
}

const PATIENCE: Patience =
    Patience { tries: 5, backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)) };

fn why(answer: &Answer) -> String {
    let message = answer.failure().message;
    match answer.status {
        404 | 405 | 501 => "this virt-api cannot clear it, which KubeVirt's can since v1.8".into(),
        status if component::is_strange(status, &message) => {
            component::strange_words(component::VIRT_API, status, &message)
        }
        status => format!("virt-api, or the API server before it, answered {status}: {message}"),
    }
}

fn unmark(instance: &Key, node: &str, dry_run: bool) -> Call {
    let mut body = json!({"evacuationNodeName": node});
    if dry_run {
        body["dryRun"] = json!(["All"]);
    }
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/{}/{}/evacuate/cancel",
        escape(&instance.namespace),
        request::plural(Kind::Instance),
        escape(&instance.name)
    );
    request::send("PUT", path, "application/json", &body)
}
