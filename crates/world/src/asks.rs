//! Answers to what an actor asked and the mirror does not hold.

use crate::actor::{Ask, Reply};
use crate::discovery::Discovery;
use crate::effects::{Api, EffectError};
use crate::kinds::Resource;
use crate::objects::Key;

pub async fn answer(api: &Api, known: &Discovery, ask: &Ask) -> Reply {
    let (Ask::Object { api_version, kind, .. } | Ask::Scale { api_version, kind, .. }) = ask;
    let mut fresh = None;
    if known.resource(api_version, kind).is_none() {
        // The kind may be younger than what we know.
        fresh = Discovery::ask(api).await.ok();
    }
    let discovery = fresh.as_ref().unwrap_or(known);
    let Some(resource) = discovery.resource(api_version, kind) else {
        return Reply::Failed(format!("no matches for kind \"{kind}\" in version \"{api_version}\""));
    };
    match ask {
        Ask::Object { key, .. } => read(api, &resource, key, "").await,
        Ask::Scale { key, .. } => match read(api, &resource, key, "scale").await {
            Reply::NotFound if !discovery.scales(&resource) => Reply::NoScale(group_resource(&resource)),
            reply => reply,
        },
    }
}

async fn read(api: &Api, resource: &Resource, key: &Key, subresource: &str) -> Reply {
    let key = if resource.namespaced { key.clone() } else { Key::cluster(key.name.clone()) };
    match api.get(&resource.object(&key, subresource)).await {
        Ok(value) => Reply::Found(value),
        Err(error) if error.not_found() => Reply::NotFound,
        Err(EffectError::Api { source: kube::Error::Api(status), .. }) => Reply::Failed(status.message),
        Err(error) => Reply::Failed(error.to_string()),
    }
}

fn group_resource(resource: &Resource) -> String {
    if resource.group.is_empty() {
        resource.plural.to_string()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}
