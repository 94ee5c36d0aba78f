//! Event objects, as clients read them with `kubectl describe`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::effects::{Verb, Write, as_value};
use crate::kinds::{EVENTS, Kind};
use crate::objects::{Key, name, time, uid};
use crate::random::stable_hash;

/// What an event says, and which component says it.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    pub component: &'a str,
    pub warning: bool,
    pub reason: &'a str,
    pub message: &'a str,
}

impl<'a> Notice<'a> {
    pub fn normal(component: &'a str, reason: &'a str, message: &'a str) -> Self {
        Self { component, warning: false, reason, message }
    }

    pub fn warning(component: &'a str, reason: &'a str, message: &'a str) -> Self {
        Self { component, warning: true, reason, message }
    }
}

/// An event about `about`. Its name follows from its content and second, so a repetition within one
/// second is the same event and not a second one.
pub fn event(kind: Kind, about: &ObjectMeta, notice: Notice<'_>, now: Timestamp) -> Write {
    let Notice { component, warning, reason, message } = notice;
    let resource = kind.resource();
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let second = now.as_second().to_string();
    let hash = stable_hash(&[&resource.kind, uid(about), component, reason, message, &second]);
    let event_name = format!("{}.{hash:016x}", name(about));
    let body = Event {
        metadata: ObjectMeta {
            name: Some(event_name.clone()),
            namespace: Some(namespace.clone()),
            ..Default::default()
        },
        involved_object: ObjectReference {
            api_version: Some(resource.api_version()),
            kind: Some(resource.kind.to_string()),
            name: about.name.clone(),
            namespace: about.namespace.clone(),
            uid: about.uid.clone(),
            resource_version: about.resource_version.clone(),
            ..Default::default()
        },
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        first_timestamp: Some(time(now)),
        last_timestamp: Some(time(now)),
        count: Some(1),
        ..Default::default()
    };
    Write {
        resource: EVENTS,
        key: Key::new(namespace, event_name),
        subresource: "",
        verb: Verb::Create(as_value(&body)),
        optional: true,
    }
}
