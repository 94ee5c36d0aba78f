//! Tells the cluster where the operator's HTTPS server is and whom to trust: a Service, the webhook configurations, and an
//! APIService for each version of `subresources.kubevirt.io`. Follows the certificates: a new bundle and new paths are written at once.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evac_api::Call;
use evac_api::call::{FIELD_MANAGER, escape, labelled};
use evac_api::kubevirt::{request, review};
use evac_api::wire::Named;
use evac_api::{failover, maintenance};
use evac_core::machines::{Role, Roles, beside};
use http::Uri;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::certificates::{self, Identity};
use super::feeds::forever;
use super::power;
use crate::http::{Http, HttpError, parse};
use crate::watch::{Report, Source};

const OWNER: (&str, &str) = ("app.kubernetes.io/managed-by", "evac");
const APPLY: &str = "application/apply-patch+yaml";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

#[derive(Debug, Error)]
pub enum PublishError {
    #[error("{}", beside::foreign(kind, name))]
    Foreign { kind: String, name: String },
    #[error("{kind} {name} could not be written: {source}")]
    Refused { kind: String, name: String, source: HttpError },
    #[error("the certificates of the server did not come: {0}")]
    NoCertificates(&'static str),
}

/// How the API server reaches us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advertise {
    /// By a service that selects the operator's pods.
    Service,
    /// At an address outside the cluster: host and port.
    Url { host: String, port: u16 },
}

impl Advertise {
    /// What fits an address one listens on: loopback is reached by address, everything else through a service.
    pub fn for_address(address: SocketAddr) -> Self {
        if address.ip().is_loopback() {
            Self::Url { host: address.ip().to_string(), port: address.port() }
        } else {
            Self::Service
        }
    }

    /// The names and addresses a certificate has to bear.
    pub fn names(&self, service: &str, namespace: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::from([
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]);
        if let Self::Url { host, .. } = self {
            names.insert(host.clone());
        }
        names
    }

    fn port(&self) -> u16 {
        match self {
            Self::Service => 443,
            Self::Url { port, .. } => *port,
        }
    }
}

impl FromStr for Advertise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "service" {
            return Ok(Self::Service);
        }
        let wrong = || format!("'{text}' is neither 'service' nor an address such as https://10.1.2.3:8443");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self::Url { host, port: uri.port_u16().unwrap_or(443) })
    }
}

impl fmt::Display for Advertise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => f.write_str("service"),
            Self::Url { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Url { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

/// Where the operator is found.
#[derive(Debug, Clone)]
pub struct Place {
    pub advertise: Advertise,
    /// The namespace of the Service and of the pods it leads to.
    pub namespace: String,
    pub service: String,
    /// The port the operator listens on.
    pub port: u16,
    pub reviews: Reviews,
}

/// What the operator is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reviews {
    /// Virtual machines, their API included.
    pub machines: bool,
    pub maintenance: bool,
    /// Failover policies.
    pub failover: bool,
}

impl Reviews {
    pub fn of(roles: &Roles) -> Self {
        Self {
            machines: roles.has(Role::Machines),
            maintenance: roles.has(Role::Maintenance),
            failover: roles.has(Role::Failover),
        }
    }

    pub fn any(self) -> bool {
        self.machines || self.maintenance || self.failover
    }

    /// The configurations by which a server asks.
    pub fn configurations(self) -> Vec<Value> {
        let machines = self.machines.then(review::configurations).into_iter().flatten();
        let policies = self.failover.then(failover::review::configuration);
        machines.chain(self.maintenance.then(maintenance::review::configuration)).chain(policies).collect()
    }
}

/// What was there before the operator started.
pub(super) struct Before {
    paths: BTreeSet<String>,
}

/// Looks whether everything can be ours, before the first of it is written.
pub async fn look(http: &Http, place: &Place) -> Result<(), PublishError> {
    before(http, place).await.map(drop)
}

pub(super) async fn before(http: &Http, place: &Place) -> Result<Before, PublishError> {
    let mut paths = BTreeSet::new();
    for object in objects(place, "", str::to_owned) {
        if let Some(path) = ours(http, &object).await? {
            paths.insert(path);
        }
    }
    if certificates::find(http).await.map_err(|error| certificates::refused(http, error))?.is_some() {
        paths.insert(certificates::path(http.home()));
    }
    Ok(Before { paths })
}

/// Removes what a start that failed has written; says what could not be removed.
pub(super) async fn take_back(http: &Http, place: &Place, before: &Before) -> Vec<String> {
    let mut left = Vec::new();
    let mut written = Vec::new();
    for object in objects(place, "", str::to_owned) {
        let path = format!("{}/{}", object.0, word(&object.1["metadata"]["name"]));
        if !before.paths.contains(&path)
            && let Ok(there) = http.read::<Named>(&Call::get(&path)).await
            && is_ours(&there)
        {
            written.push((format!("{} {}", word(&object.1["kind"]), there.metadata.name), path, there));
        }
    }
    let secret = certificates::path(http.home());
    if !before.paths.contains(&secret)
        && let Ok(Some(there)) = certificates::find(http).await
    {
        written.push((format!("Secret {}", certificates::SECRET), secret, there));
    }
    for (name, path, there) in written {
        let same = json!({"uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version});
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": same});
        let answer = http.send(&request::send("DELETE", path, "application/json", &body)).await;
        // Another replica that has changed it since uses it.
        if !answer.is_ok_and(|answer| answer.is_success() || matches!(answer.status, 404 | 409)) {
            left.push(name);
        }
    }
    left
}

/// Waits for certificates, then writes everything once.
pub async fn publish(
    http: &Http,
    place: &Place,
    identity: &mut watch::Receiver<Option<Identity>>,
) -> Result<(), PublishError> {
    let (clock, coming) = (http.clock(), identity.wait_for(Option::is_some));
    let shown = tokio::select! {
        biased;
        come = coming => match come {
            Ok(identity) => identity.clone(),
            Err(_) => return Err(PublishError::NoCertificates("the server was closed")),
        },
        () = clock.sleep(Duration::from_secs(30)) => {
            return Err(PublishError::NoCertificates("nothing could be written within 30 s"));
        }
    };
    let Some(Identity { bundle, pass, .. }) = shown else { return Ok(()) };
    for object in objects(place, &bundle, |path| pass.published(path)) {
        write(http, &object).await?;
    }
    Ok(())
}

/// Writes everything again whenever the certificates change or somebody removes what was written; ends with the server.
///
/// What others edit stays: two replicas at different addresses would never agree.
pub async fn keep(http: Http, place: Place, mut identity: watch::Receiver<Option<Identity>>) {
    let (sender, mut removed) = mpsc::unbounded_channel::<bool>();
    let mut watching = JoinSet::new();
    let watched = [services(&place), VALIDATING.to_owned(), MUTATING.to_owned(), API_SERVICES.to_owned()];
    let wanted = objects(&place, "", str::to_owned);
    for path in watched {
        let count = wanted.iter().filter(|(collection, _)| *collection == path).count();
        if count == 0 {
            continue;
        }
        let query = labelled(&format!("{}={}", OWNER.0, OWNER.1));
        let source = Source { path: path.into(), query, page: 0 };
        let is_removal = move |report: Report<Named>| match report {
            Report::Gone(_) => true,
            Report::Listed(list, _) => list.len() < count,
            Report::Seen(_) | Report::Failed { .. } => false,
        };
        let version = |object: &Named| object.metadata.resource_version.clone();
        watching.spawn(forever(http.clone(), source, sender.clone(), is_removal, version));
    }
    loop {
        tokio::select! {
            changed = identity.changed() => if changed.is_err() { return },
            Some(removal) = removed.recv() => if !removal { continue },
        }
        while let Err(error) = publish(&http, &place, &mut identity).await {
            tracing::warn!(%error, "the cluster is not told yet where the operator is");
            http.clock().sleep(Duration::from_secs(5)).await;
        }
    }
}

fn services(place: &Place) -> String {
    format!("/api/v1/namespaces/{}/services", escape(&place.namespace))
}

/// What the cluster has to hold, with the address of the collection of each.
fn objects(place: &Place, bundle: &str, published: impl Fn(&str) -> String) -> Vec<(String, Value)> {
    let bundle = STANDARD.encode(bundle);
    let mut all = vec![(services(place), service(place))];
    for mut configuration in place.reviews.configurations() {
        let collection = match configuration["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => MUTATING,
            _ => VALIDATING,
        };
        for hook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            point(hook, place, &bundle, &published);
        }
        all.push((collection.to_owned(), configuration));
    }
    let versions: &[&str] = if place.reviews.machines { power::VERSIONS } else { &[] };
    for (at, version) in versions.iter().enumerate() {
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": format!("{version}.{}", power::GROUP)},
            "spec": {
                "group": power::GROUP,
                "version": version,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15 - at,
                "caBundle": bundle,
                "service": {"namespace": place.namespace, "name": place.service, "port": place.advertise.port()},
            },
        });
        all.push((API_SERVICES.to_owned(), object));
    }
    for (_, object) in &mut all {
        object["metadata"]["labels"][OWNER.0] = json!(OWNER.1);
    }
    all
}

fn point(hook: &mut Value, place: &Place, bundle: &str, published: impl Fn(&str) -> String) {
    let path = published(hook["clientConfig"]["service"]["path"].as_str().unwrap_or_default());
    hook["clientConfig"] = match &place.advertise {
        Advertise::Service => json!({
            "caBundle": bundle,
            "service": {"namespace": place.namespace, "name": place.service, "path": path, "port": 443},
        }),
        url @ Advertise::Url { .. } => json!({"caBundle": bundle, "url": format!("{url}{path}")}),
    };
}

fn service(place: &Place) -> Value {
    let spec = match &place.advertise {
        Advertise::Service => json!({
            "type": "ClusterIP",
            "selector": {"app.kubernetes.io/name": "evac-operator"},
            "ports": [{"name": "https", "port": 443, "targetPort": place.port, "protocol": "TCP"}],
        }),
        // The API server takes the host from here and the port from the APIService.
        Advertise::Url { host, .. } => json!({"type": "ExternalName", "externalName": host}),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": place.service, "namespace": place.namespace},
        "spec": spec,
    })
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn is_ours(object: &Named) -> bool {
    object.metadata.labels.get(OWNER.0).is_some_and(|owner| owner == OWNER.1)
}

/// The path of an object that is there and ours; `None` if it is not there.
async fn ours(http: &Http, (collection, object): &(String, Value)) -> Result<Option<String>, PublishError> {
    let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
    let path = format!("{collection}/{name}");
    match http.read::<Named>(&Call::get(&path)).await {
        Ok(there) if is_ours(&there) => Ok(Some(path)),
        Ok(_) => Err(PublishError::Foreign { kind, name }),
        Err(error) if error.is_not_found() => Ok(None),
        Err(source) => Err(PublishError::Refused { kind, name, source }),
    }
}

async fn write(http: &Http, wanted: &(String, Value)) -> Result<(), PublishError> {
    ours(http, wanted).await?;
    let (collection, object) = wanted;
    let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
    let path = format!("{collection}/{name}");
    let refused = |source| PublishError::Refused { kind: kind.clone(), name: name.clone(), source };
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    let answer = http.send(&request::send("PATCH", path, APPLY, object)).await.map_err(&refused)?;
    parse::<Value>(&answer).map(drop).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(advertise: &str) -> Place {
        Place {
            advertise: advertise.parse().unwrap(),
            namespace: "evac".into(),
            service: "virt-api".into(),
            port: 8443,
            reviews: Reviews { machines: true, maintenance: true, failover: true },
        }
    }

    #[test]
    fn an_address_is_https_without_a_path_or_the_word_service() {
        assert_eq!(place("service").advertise, Advertise::Service);
        assert_eq!(place("https://[::1]:8443/").advertise.to_string(), "https://[::1]:8443");
        for wrong in ["http://a:1", "https://a/b", "https://a?b", "somewhere", "", "https://"] {
            assert!(wrong.parse::<Advertise>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_that_is_called_trusts_the_bundle_and_names_one_place() {
        for (advertise, called) in [("service", "service"), ("https://127.0.0.1:9", "url")] {
            let all = objects(&place(advertise), "PEM", |path| format!("/review/tag{path}"));
            let bundle = STANDARD.encode("PEM");
            let mut hooks = 0;
            for (_, object) in &all {
                for hook in object["webhooks"].as_array().into_iter().flatten() {
                    assert_eq!(hook["clientConfig"]["caBundle"], bundle.as_str());
                    assert!(!hook["clientConfig"][called].is_null(), "{hook}");
                    assert_eq!(hook["clientConfig"].as_object().unwrap().len(), 2);
                    assert!(hook["clientConfig"].to_string().contains("/review/tag/"), "{hook}");
                    hooks += 1;
                }
                if object["kind"] == "APIService" {
                    assert_eq!(object["spec"]["caBundle"], bundle.as_str());
                }
            }
            assert!(hooks >= super::super::Reviewer::paths().len());
        }
    }

    #[test]
    fn without_us_only_evictions_of_machines_stop() {
        let all = objects(&place("service"), "PEM", str::to_owned);
        let hooks = all.iter().flat_map(|(_, object)| object["webhooks"].as_array().into_iter().flatten());
        let evictions: Vec<&Value> =
            hooks.filter(|hook| hook["rules"][0]["resources"][0] == "pods/eviction").collect();
        assert!(!evictions.is_empty());
        for hook in evictions {
            assert_eq!(hook["failurePolicy"], "Fail");
            let condition = hook["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(condition.contains("'virt-launcher") || condition.contains("'hp-volume-"), "{condition}");
        }
    }
}
