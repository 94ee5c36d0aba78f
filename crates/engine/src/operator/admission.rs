//! Answers admission reviews of virtual machines and migrations.

use evac_api::Call;
use evac_api::call::escape;
use evac_api::kubevirt::review::{
    self, EVICTION_PATH, INSTANCE_MUTATE_PATH, MACHINE_PATH, MIGRATION_CREATE_PATH, MIGRATION_MUTATE_PATH,
    MIGRATION_UPDATE_PATH,
};
use evac_api::kubevirt::{request, wire};
use evac_api::wire::List;
use evac_core::machines::{Config, Instance, Kind, Migration, names};
use serde_json::Value;
use tokio::sync::watch;

use crate::http::{Http, HttpError};

/// The paths a [`Reviewer`] answers.
pub const PATHS: &[&str] = &[
    MACHINE_PATH,
    MIGRATION_CREATE_PATH,
    MIGRATION_UPDATE_PATH,
    MIGRATION_MUTATE_PATH,
    INSTANCE_MUTATE_PATH,
    EVICTION_PATH,
];

#[derive(Clone)]
pub struct Reviewer {
    http: Http,
    config: watch::Receiver<Config>,
}

impl Reviewer {
    pub fn new(http: Http, config: watch::Receiver<Config>) -> Self {
        Self { http, config }
    }

    /// Every path under which reviews arrive.
    pub fn paths() -> &'static [&'static str] {
        PATHS
    }

    /// The answer to a review; an error means that no decision could be made.
    pub async fn review(&self, path: &str, review: &Value) -> Result<Value, String> {
        match path {
            MACHINE_PATH => Ok(review::machine(review)),
            MIGRATION_UPDATE_PATH => Ok(review::migration_update(review)),
            MIGRATION_MUTATE_PATH => Ok(review::migration_mutate(review)),
            INSTANCE_MUTATE_PATH => {
                let strategy = self.config.borrow().default_strategy().to_owned();
                Ok(review::instance_mutate(review, &strategy))
            }
            MIGRATION_CREATE_PATH => self.migration(review).await.map_err(|error| error.to_string()),
            EVICTION_PATH => self.eviction(review).await.map_err(|error| error.to_string()),
            _ => Err(format!("nothing is reviewed at {path}")),
        }
    }

    /// Reads the pod and its instance from the server: an old view could let a machine be shut down.
    async fn eviction(&self, review: &Value) -> Result<Value, HttpError> {
        let part = |key: &str| escape(review["request"][key].as_str().unwrap_or_default());
        let path = format!("/api/v1/namespaces/{}/pods/{}", part("namespace"), part("name"));
        let launched = match self.http.read::<Value>(&Call::get(path)).await {
            Ok(pod) => review::launched_by(&pod),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let Some(key) = launched else { return Ok(review::allow(review)) };
        let call = Call::get(request::object_path(Kind::Instance, &key));
        let instance = match self.http.read::<wire::VirtualMachineInstance>(&call).await {
            Ok(object) => Some(Instance::from(object)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let strategy = self.config.borrow().default_strategy().to_owned();
        Ok(review::eviction(review, instance.as_ref(), &strategy))
    }

    /// Asks the server itself: an old view would let a second migration through.
    async fn migration(&self, review: &Value) -> Result<Value, HttpError> {
        let Some(new) = review::migration_of(review) else { return Ok(review::allow(review)) };
        if new.instance.name.is_empty() {
            return Ok(review::migration_create(review, None, &[]));
        }
        let call = Call::get(request::object_path(Kind::Instance, &new.instance));
        let instance = match self.http.read::<wire::VirtualMachineInstance>(&call).await {
            Ok(object) => Some(Instance::from(object)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let selector = escape(&format!("{}={}", names::MIGRATION_SELECTOR, new.instance.name));
        let path = request::in_namespace(Kind::Migration, &new.instance.namespace);
        let list: List<wire::Migration> =
            self.http.read(&Call::get(format!("{path}?labelSelector={selector}"))).await?;
        let others: Vec<Migration> = list.items.into_iter().map(Migration::from).collect();
        Ok(review::migration_create(review, instance.as_ref(), &others))
    }
}
