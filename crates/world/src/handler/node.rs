//! What a node agent tells about its node: that it is alive, that guests may come, and what its processors can do.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use super::draft::stamp;
use crate::actor::Out;
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, annotation, label, later};

pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
const HEARTBEAT_SECONDS: i64 = 60;
/// How many guests can have each device at the same time.
const DEVICE_COUNT: &str = "1k";
const DEVICES: [&str; 3] =
    ["devices.kubevirt.io/kvm", "devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net"];

/// All simulated nodes have the same processor.
const LABELS: [(&str, &str); 11] = [
    (SCHEDULABLE, "true"),
    ("kubevirt.io/cpumanager", "false"),
    ("cpumanager", "false"),
    ("cpu-vendor.node.kubevirt.io/Intel", "true"),
    ("cpu-model.node.kubevirt.io/Cascadelake-Server", "true"),
    ("cpu-model-migration.node.kubevirt.io/Cascadelake-Server", "true"),
    ("host-model-cpu.node.kubevirt.io/Cascadelake-Server", "true"),
    ("machine-type.node.kubevirt.io/q35", "true"),
    ("machine-type.node.kubevirt.io/pc-q35-rhel9.6.0", "true"),
    ("cpu-timer.node.kubevirt.io/tsc-frequency", "2800000000"),
    ("cpu-timer.node.kubevirt.io/tsc-scalable", "true"),
];

/// Beats, and puts right what is missing.
pub fn sync(node: &Node, key: &Key, now: Timestamp, out: &mut Out) {
    let meta = &node.metadata;
    let mut labels = Map::new();
    for (name, value) in LABELS {
        if label(meta, name) != Some(value) {
            labels.insert(name.to_owned(), json!(value));
        }
    }
    let last = annotation(meta, HEARTBEAT).and_then(|text| text.parse::<Timestamp>().ok());
    let due = last.map(|at| later(at, HEARTBEAT_SECONDS));
    let beat = due.is_none_or(|due| due <= now);
    if beat || !labels.is_empty() {
        let mut patch = json!({ "metadata": { "uid": meta.uid, "annotations": { HEARTBEAT: stamp(now) } } });
        if !labels.is_empty() {
            patch["metadata"]["labels"] = Value::Object(labels);
        }
        out.write(Write::merge(Kind::Node, key.clone(), patch));
        out.again_at(later(now, HEARTBEAT_SECONDS));
    } else if let Some(due) = due {
        out.again_at(due);
    }
    if lacks_devices(node) {
        let devices: BTreeMap<&str, &str> = DEVICES.iter().map(|d| (*d, DEVICE_COUNT)).collect();
        let patch = json!({ "metadata": { "uid": meta.uid },
            "status": { "capacity": devices, "allocatable": devices } });
        out.write(Write::patch_status(Kind::Node, key.clone(), patch));
    }
}

fn lacks_devices(node: &Node) -> bool {
    let status = node.status.as_ref();
    let has = |list: Option<&BTreeMap<_, _>>, name: &str| list.is_some_and(|l| l.contains_key(name));
    DEVICES.iter().any(|device| {
        !has(status.and_then(|s| s.capacity.as_ref()), device)
            || !has(status.and_then(|s| s.allocatable.as_ref()), device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{at, node};
    use crate::effects::Verb;

    #[test]
    fn a_new_node_gets_labels_devices_and_its_first_beat() {
        let mut out = Out::default();
        sync(&node("n", "a"), &Key::cluster("n"), at(0), &mut out);
        let [Write { verb: Verb::MergePatch(meta), .. }, Write { verb: Verb::StrategicPatch(status), .. }] =
            out.writes.as_slice()
        else {
            panic!("{:?}", out.writes)
        };
        assert_eq!(meta["metadata"]["labels"][SCHEDULABLE], "true");
        assert_eq!(meta["metadata"]["annotations"][HEARTBEAT], stamp(at(0)));
        assert_eq!(status["status"]["allocatable"]["devices.kubevirt.io/kvm"], "1k");
    }

    #[test]
    fn between_beats_there_is_nothing_to_say_unless_someone_closed_the_node() {
        let mut held = node("n", "a");
        let labels = held.metadata.labels.get_or_insert_default();
        labels.extend(LABELS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let text = stamp(at(0)).as_str().unwrap().to_owned();
        held.metadata.annotations = Some(BTreeMap::from([(HEARTBEAT.to_owned(), text)]));
        let devices = |list: &mut Option<BTreeMap<String, _>>| {
            for device in DEVICES {
                let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity(DEVICE_COUNT.into());
                list.get_or_insert_default().insert(device.to_owned(), amount);
            }
        };
        devices(&mut held.status.as_mut().unwrap().capacity);
        devices(&mut held.status.as_mut().unwrap().allocatable);
        let mut out = Out::default();
        sync(&held, &Key::cluster("n"), at(30), &mut out);
        assert!(out.writes.is_empty());
        assert_eq!(out.again, Some(at(60)));
        held.metadata.labels.as_mut().unwrap().insert(SCHEDULABLE.into(), "false".into());
        sync(&held, &Key::cluster("n"), at(31), &mut out);
        assert_eq!(out.writes.len(), 1);
    }
}
