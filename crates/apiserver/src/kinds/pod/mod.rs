//! Pods, and the pod templates inside workloads.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{self, Unsupported};
use super::meta::seconds;
use super::read::{as_map, list_at, obj_mut, text_at};
use super::strategy::{Part, Strategy};

mod containers;
mod default;
pub mod qos;
mod scheduling;
#[cfg(test)]
mod tests;
mod update;
mod validate;
mod volumes;

pub(super) use default::default_template;
pub(super) use scheduling::label_selector as validate_label_selector;
pub(super) use scheduling::{node_selector as validate_node_selector, taints as validate_taints};
pub(super) use validate::{quantity_value as validate_quantity_value, template as validate_template};

pub(super) const POD: Strategy = Strategy {
    default: default::pod,
    prepare_create,
    prepare_update,
    validate: validate::pod,
    validate_update: update::pod,
    validate_status: update::status,
    fields: fields::POD,
    unsupported: Unsupported::Label,
    ..Strategy::SPEC_AND_STATUS
};

fn prepare_create(pod: &mut Value, now: Timestamp) {
    let mut status = json!({"phase": "Pending"});
    if !list_at(pod, "/spec/schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": seconds(now),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    status["qosClass"] = json!(qos::class(pod));
    as_map(pod).insert("status".into(), status);
}

fn prepare_update(old: &Value, new: &mut Value, part: Part, _: Timestamp) {
    match part {
        Part::Status => {
            // The owner of a pod is not the kubelet's business.
            let owners = old.pointer("/metadata/ownerReferences").cloned();
            let metadata = obj_mut(new, "metadata");
            match owners {
                Some(owners) => metadata.insert("ownerReferences".into(), owners),
                None => metadata.remove("ownerReferences"),
            };
            // A kubelet that does not know the class must not lose it.
            let class = text_at(old, "/status/qosClass").to_owned();
            if !class.is_empty() && text_at(new, "/status/qosClass").is_empty() {
                obj_mut(new, "status").insert("qosClass".into(), json!(class));
            }
        }
        Part::EphemeralContainers => {
            let wanted = new.pointer("/spec/ephemeralContainers").cloned();
            let version = new.pointer("/metadata/resourceVersion").cloned();
            let managed = new.pointer("/metadata/managedFields").cloned();
            *new = old.clone();
            if let Some(wanted) = wanted {
                obj_mut(new, "spec").insert("ephemeralContainers".into(), wanted);
            }
            for (key, value) in [("resourceVersion", version), ("managedFields", managed)] {
                if let Some(value) = value {
                    obj_mut(new, "metadata").insert(key.into(), value);
                }
            }
        }
        Part::Resize => update::keep_all_but_size(old, new),
        Part::Main | Part::Internal | Part::Finalize => {}
    }
}
