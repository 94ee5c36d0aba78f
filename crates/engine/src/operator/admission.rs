//! Answers admission reviews of virtual machines and migrations.

use evac_api::Call;
use evac_api::call::{FIELD_MANAGER, MERGE_PATCH, labelled};
use evac_api::failover::review::PATH as POLICY_PATH;
use evac_api::kubevirt::review::{
    self, EVICTION_PATH, INSTANCE_MUTATE_PATH, INSTANCE_PATH, MACHINE_PATH, MIGRATION_CREATE_PATH,
    MIGRATION_MUTATE_PATH, MIGRATION_UPDATE_PATH, SETTINGS_PATH,
};
use evac_api::kubevirt::{request, wire};
use evac_api::maintenance::review::PATH as MAINTENANCE_PATH;
use evac_api::wire::List;
use evac_core::Key;
use evac_core::machines::eviction::{self, Answer, Asked, Question};
use evac_core::machines::{Instance, Kind, Migration, names};
use serde_json::{Value, json};

use super::bounds::Who;
use super::index_reader::IndexReader;
use super::{failover, maintenance};
use crate::http::{Http, HttpError};

/// The paths a [`Reviewer`] answers.
pub const PATHS: &[&str] = &[
    MACHINE_PATH,
    INSTANCE_PATH,
    SETTINGS_PATH,
    MIGRATION_CREATE_PATH,
    MIGRATION_UPDATE_PATH,
    MIGRATION_MUTATE_PATH,
    INSTANCE_MUTATE_PATH,
    EVICTION_PATH,
    MAINTENANCE_PATH,
    POLICY_PATH,
];

/// What a review is answered with that did not come from the API server.
pub(super) const STRANGER: &str = "this review did not come by the path in the operator's webhook configuration, so the API server did not send it; if it did, the configuration is being renewed: try again";

#[derive(Clone)]
pub struct Reviewer {
    http: Http,
    view: IndexReader,
}

impl Reviewer {
    pub fn new(http: Http, view: IndexReader) -> Self {
        Self { http, view }
    }

    /// Every path under which reviews arrive.
    pub fn paths() -> &'static [&'static str] {
        PATHS
    }

    /// The answer to a review; an error means that no decision could be made. Only for the API server is anything looked up or written.
    pub async fn review(&self, who: Who, path: &str, review: &Value) -> Result<Value, String> {
        if who == Who::Stranger && !review::is_advice(path) {
            return Err(STRANGER.into());
        }
        match path {
            MACHINE_PATH => Ok(review::machine(review)),
            INSTANCE_PATH => Ok(review::instance(review)),
            SETTINGS_PATH => Ok(review::settings(review)),
            MIGRATION_UPDATE_PATH => Ok(review::migration_update(review)),
            MIGRATION_MUTATE_PATH => Ok(review::migration_mutate(review)),
            INSTANCE_MUTATE_PATH => {
                let strategy = self.view.config.borrow().default_strategy().to_owned();
                Ok(review::instance_mutate(review, &strategy, self.http.clock().calendar()))
            }
            MIGRATION_CREATE_PATH => self.migration(review).await.map_err(|error| error.to_string()),
            EVICTION_PATH => Ok(self.eviction(review).await),
            MAINTENANCE_PATH => {
                maintenance::review::answer(&self.http, review).await.map_err(|error| error.to_string())
            }
            POLICY_PATH => {
                failover::review::answer(&self.http, review).await.map_err(|error| error.to_string())
            }
            _ => Err(format!("nothing is reviewed at {path}")),
        }
    }

    /// Drains ask again and again while a guest is on its way, so refusals come from what is known. Everything else is read from the server: an
    /// old view could let a machine be shut down.
    async fn eviction(&self, review: &Value) -> Value {
        let (key, uid) = match review::evicted(review) {
            Ok(evicted) => evicted,
            Err(why) => return review::deny(review, &eviction::malformed(why)),
        };
        if let Some(denial) = self.view.refusal(key.clone()).await {
            return review::deny(review, &denial);
        }
        let pod = match self.pod(&key.namespace, &key.name).await {
            Ok(Some(pod)) if !eviction::is_meant(&pod, uid) => return review::allow(review),
            Ok(Some(pod)) => pod,
            Ok(None) => return review::allow(review),
            Err(error) => return review::deny(review, &eviction::unreadable(&error.to_string())),
        };
        let answer = match eviction::question(&pod) {
            Question::Allowed => Answer::Allow,
            Question::Launcher { instance } => self.launcher_eviction(&pod, &instance, review).await,
            Question::Hotplug { launcher } => self.hotplug_eviction(&pod, &launcher).await,
        };
        match answer {
            Answer::Allow => review::allow(review),
            Answer::Deny(denial) | Answer::Mark { denial, .. } => review::deny(review, &denial),
        }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Asked>, HttpError> {
        let path = request::object_path(Kind::Pod, &Key::new(namespace, name));
        found(self.http.read::<Value>(&Call::get(path)).await.map(|pod| review::asked(&pod)))
    }

    async fn instance(&self, key: &Key) -> Result<Option<Instance>, HttpError> {
        let call = Call::get(request::object_path(Kind::Instance, key));
        found(self.http.read::<wire::VirtualMachineInstance>(&call).await.map(Instance::from))
    }

    async fn launcher_eviction(&self, pod: &Asked, instance: &str, review: &Value) -> Answer {
        let key = Key::new(pod.namespace.clone(), instance);
        let instance = match self.instance(&key).await {
            Ok(Some(instance)) => instance,
            Ok(None) => {
                let missing = format!("virtualmachineinstances.kubevirt.io \"{}\" not found", key.name);
                return Answer::Deny(eviction::unreadable(&missing));
            }
            Err(error) => return Answer::Deny(eviction::unreadable(&error.to_string())),
        };
        let answer = eviction::launcher(&pod.node, &instance, &self.view.config.borrow().clone());
        if let Answer::Mark { node, .. } = &answer
            && let Err(error) = self.mark(&instance, node, review).await
        {
            return Answer::Deny(eviction::not_marked(&error.to_string()));
        }
        answer
    }

    /// Writes the mark on exactly this incarnation; two who write the same do not disturb each other.
    async fn mark(&self, instance: &Instance, node: &str, review: &Value) -> Result<(), HttpError> {
        let source = eviction::source_of(review::requested_by(review));
        let body = json!({
            "metadata": {"uid": instance.uid, "annotations": {names::EVICTION_SOURCE: source}},
            "status": {"evacuationNodeName": node},
        });
        let mut path =
            format!("{}?fieldManager={FIELD_MANAGER}", request::object_path(Kind::Instance, &instance.key));
        if review::is_trial(review) {
            path.push_str("&dryRun=All");
        }
        self.http.read::<Value>(&request::send("PATCH", path, MERGE_PATCH, &body)).await.map(|_| ())
    }

    async fn hotplug_eviction(&self, pod: &Asked, launcher: &str) -> Answer {
        let launcher = match self.pod(&pod.namespace, launcher).await {
            Ok(launcher) => launcher,
            Err(error) => return Answer::Deny(eviction::owner_unreadable(&error.to_string())),
        };
        let guest = match launcher.as_ref().map(eviction::question) {
            Some(Question::Launcher { instance }) => {
                self.instance(&Key::new(pod.namespace.clone(), instance)).await
            }
            _ => Ok(None),
        };
        match guest {
            Ok(guest) => eviction::hotplug(pod, launcher.as_ref(), guest.is_some()),
            Err(error) => Answer::Deny(eviction::unreadable(&error.to_string())),
        }
    }

    /// Others are read from the server: an old view would let a second migration through. How the instance is gets looked at again before
    /// anything begins, so it is read only to be sure of a refusal.
    async fn migration(&self, review: &Value) -> Result<Value, HttpError> {
        let Some(new) = review::migration_of(review) else { return Ok(review::allow(review)) };
        if new.instance.name.is_empty() {
            return Ok(review::migration_create(review, self.http.home(), None, &[]));
        }
        let query = labelled(&format!("{}={}", names::MIGRATION_SELECTOR, new.instance.name));
        let path = request::in_namespace(Kind::Migration, &new.instance.namespace);
        let call = Call::get(format!("{path}?{query}"));
        let list: List<wire::Migration> = self.http.read(&call).await?;
        let others: Vec<Migration> = list.items.into_iter().map(Migration::from).collect();
        let decide = |instance: Option<&Instance>| {
            review::migration_create(review, self.http.home(), instance, &others)
        };
        if let Some(known) = self.view.instance(new.instance.clone()).await {
            let answer = decide(Some(&known));
            if review::is_allowed(&answer) {
                return Ok(answer);
            }
        }
        Ok(decide(self.instance(&new.instance).await?.as_ref()))
    }
}

/// What is not there is an answer too.
fn found<T>(read: Result<T, HttpError>) -> Result<Option<T>, HttpError> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
