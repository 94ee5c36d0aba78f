//! Nodes, namespaces, storage, access and configuration.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::cells::{self, list, map, number, or, str_at, truth, with_more};
use super::{AGE, Column, Layout, NAME, of_type, shown, wide};

pub(super) fn layout(group: &str, plural: &str) -> Option<&'static Layout> {
    Some(match (group, plural) {
        ("", "namespaces") => &NAMESPACES,
        ("", "nodes") => &NODES,
        ("", "services") => &SERVICES,
        ("", "endpoints") => &ENDPOINTS,
        ("", "configmaps") => &CONFIG_MAPS,
        ("", "secrets") => &SECRETS,
        ("", "serviceaccounts") => &SERVICE_ACCOUNTS,
        ("", "persistentvolumes") => &VOLUMES,
        ("", "persistentvolumeclaims") => &CLAIMS,
        ("", "resourcequotas") => &QUOTAS,
        ("coordination.k8s.io", "leases") => &LEASES,
        ("discovery.k8s.io", "endpointslices") => &ENDPOINT_SLICES,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &ROLE_BINDINGS,
        ("scheduling.k8s.io", "priorityclasses") => &PRIORITY_CLASSES,
        ("storage.k8s.io", "storageclasses") => &STORAGE_CLASSES,
        ("storage.k8s.io", "volumeattachments") => &VOLUME_ATTACHMENTS,
        ("storage.k8s.io", "csinodes") => &CSI_NODES,
        ("storage.k8s.io", "csidrivers") => &CSI_DRIVERS,
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations",
        ) => &WEBHOOKS,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => &POLICIES,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => &POLICY_BINDINGS,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &DEFINITIONS,
        ("apiregistration.k8s.io", "apiservices") => &API_SERVICES,
        _ => return None,
    })
}

const STATUS: Column = shown("Status", "State of the object.");

fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null())
}

static NAMESPACES: Layout = Layout {
    columns: &[NAME, STATUS, AGE],
    cells: |object, now| {
        vec![cells::name(object), cells::text(object, "/status/phase"), cells::age(object, now)]
    },
};

static NODES: Layout = Layout {
    columns: &[
        NAME,
        STATUS,
        shown("Roles", "What the node is for."),
        AGE,
        shown("Version", "Version of the kubelet."),
        wide("Internal-IP", "Address inside the cluster."),
        wide("External-IP", "Address outside the cluster."),
        wide("OS-Image", "Operating system."),
        wide("Kernel-Version", "Kernel and processor."),
        wide("Container-Runtime", "What runs the containers."),
    ],
    cells: node,
};

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(node, "/status/conditions").iter().rev().find(|c| str_at(c, "/type") == "Ready");
    let mut status = match ready.map(|c| str_at(c, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if truth(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: BTreeSet<&str> = BTreeSet::new();
    for (key, value) in map(node, "/metadata/labels").into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role);
        } else if key == "kubernetes.io/role" {
            roles.insert(value.as_str().unwrap_or(""));
        }
    }
    roles.remove("");
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    let address = |kind: &str| {
        let found = list(node, "/status/addresses").iter().find(|a| str_at(a, "/type") == kind);
        json!(found.map_or("<none>", |a| str_at(a, "/address")))
    };
    let info = |field: &str| or(str_at(node, &format!("/status/nodeInfo/{field}")), "<unknown>").to_owned();
    let mut kernel = info("kernelVersion");
    let processor = str_at(node, "/status/nodeInfo/architecture");
    if !processor.is_empty() {
        kernel = format!("{kernel} ({processor})");
    }
    vec![
        cells::name(node),
        json!(status),
        json!(or(&roles, "<none>")),
        cells::age(node, now),
        cells::text(node, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

static SERVICES: Layout = Layout {
    columns: &[
        NAME,
        shown("Type", "How the service is reached."),
        shown("Cluster-IP", "Address inside the cluster."),
        shown("External-IP", "Addresses outside the cluster."),
        shown("Port(s)", "Ports and protocols."),
        AGE,
        wide("Selector", "Which pods are behind it."),
    ],
    cells: |object, now| {
        let ports = list(object, "/spec/ports")
            .iter()
            .map(|p| {
                let (port, protocol) = (number(p, "/port"), str_at(p, "/protocol"));
                match number(p, "/nodePort") {
                    0 => format!("{port}/{protocol}"),
                    node => format!("{port}:{node}/{protocol}"),
                }
            })
            .collect::<Vec<_>>()
            .join(",");
        let address = or(str_at(object, "/spec/clusterIPs/0"), str_at(object, "/spec/clusterIP"));
        vec![
            cells::name(object),
            cells::text(object, "/spec/type"),
            json!(or(address, "<none>")),
            json!(external_address(object)),
            json!(or(&ports, "<none>")),
            cells::age(object, now),
            cells::labels(map(object, "/spec/selector")),
        ]
    },
};

fn external_address(service: &Value) -> String {
    let given: Vec<&str> = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match str_at(service, "/spec/type") {
        "ClusterIP" | "NodePort" => or(&given.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let mut all: Vec<&str> = list(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|i| or(str_at(i, "/ip"), str_at(i, "/hostname")))
                .filter(|a| !a.is_empty())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            all.extend(given);
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => str_at(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

static ENDPOINTS: Layout = Layout {
    columns: &[NAME, shown("Endpoints", "Addresses and ports."), AGE],
    cells: |object, now| {
        let mut shown = Vec::new();
        for subset in list(object, "/subsets") {
            let addresses = list(subset, "/addresses").iter().map(|a| str_at(a, "/ip"));
            let ports = list(subset, "/ports");
            if ports.is_empty() {
                shown.extend(addresses.map(str::to_owned));
                continue;
            }
            for port in ports {
                let number = number(port, "/port");
                shown.extend(addresses.clone().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
                }));
            }
        }
        let count = shown.len();
        shown.truncate(3);
        let text = if list(object, "/subsets").is_empty() {
            "<none>".to_owned()
        } else if count == 0 {
            String::new()
        } else {
            with_more(&shown, count, 3)
        };
        vec![cells::name(object), json!(text), cells::age(object, now)]
    },
};

fn size(object: &Value, pointer: &str) -> usize {
    map(object, pointer).map_or(0, Map::len)
}

static CONFIG_MAPS: Layout = Layout {
    columns: &[NAME, shown("Data", "How many entries it has."), AGE],
    cells: |object, now| {
        let entries = size(object, "/data") + size(object, "/binaryData");
        vec![cells::name(object), json!(entries), cells::age(object, now)]
    },
};

static SECRETS: Layout = Layout {
    columns: &[NAME, shown("Type", "What it is for."), shown("Data", "How many entries it has."), AGE],
    cells: |object, now| {
        vec![
            cells::name(object),
            cells::text(object, "/type"),
            json!(size(object, "/data")),
            cells::age(object, now),
        ]
    },
};

static SERVICE_ACCOUNTS: Layout =
    Layout { columns: &[NAME, AGE], cells: |object, now| vec![cells::name(object), cells::age(object, now)] };

fn access_modes(object: &Value, pointer: &str) -> Value {
    let modes: Vec<&str> = list(object, pointer).iter().filter_map(Value::as_str).collect();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    json!(short.iter().filter(|(m, _)| modes.contains(m)).map(|(_, s)| *s).collect::<Vec<_>>().join(","))
}

const CAPACITY: Column = shown("Capacity", "How large it is.");
const ACCESS_MODES: Column = shown("Access Modes", "How it may be mounted.");
const STORAGE_CLASS: Column = shown("StorageClass", "Class it comes from.");
const ATTRIBUTES_CLASS: Column = shown("VolumeAttributesClass", "Class of its attributes.");
const VOLUME_MODE: Column = wide("VolumeMode", "File system or block device.");

/// The class as a field, or as the annotation it once was.
fn class(object: &Value) -> Value {
    let annotations = map(object, "/metadata/annotations");
    let old = annotations.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
    old.cloned().unwrap_or_else(|| cells::text(object, "/spec/storageClassName"))
}

fn or_unset(object: &Value, pointer: &str) -> Value {
    json!(or(str_at(object, pointer), "<unset>"))
}

fn phase(object: &Value) -> Value {
    if deleting(object) { json!("Terminating") } else { cells::text(object, "/status/phase") }
}

static VOLUMES: Layout = Layout {
    columns: &[
        NAME,
        CAPACITY,
        ACCESS_MODES,
        shown("Reclaim Policy", "What becomes of it when its claim goes."),
        STATUS,
        shown("Claim", "Claim it is bound to."),
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        shown("Reason", "Why it is in this state."),
        AGE,
        VOLUME_MODE,
    ],
    cells: |object, now| {
        let claim = object.pointer("/spec/claimRef").filter(|c| c.is_object());
        let claim =
            claim.map_or(String::new(), |c| format!("{}/{}", str_at(c, "/namespace"), str_at(c, "/name")));
        vec![
            cells::name(object),
            object.pointer("/spec/capacity/storage").cloned().unwrap_or_else(|| json!("0")),
            access_modes(object, "/spec/accessModes"),
            cells::text(object, "/spec/persistentVolumeReclaimPolicy"),
            phase(object),
            json!(claim),
            class(object),
            or_unset(object, "/spec/volumeAttributesClassName"),
            cells::text(object, "/status/reason"),
            cells::age(object, now),
            or_unset(object, "/spec/volumeMode"),
        ]
    },
};

static CLAIMS: Layout = Layout {
    columns: &[
        NAME,
        STATUS,
        shown("Volume", "Volume it is bound to."),
        CAPACITY,
        ACCESS_MODES,
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        AGE,
        VOLUME_MODE,
    ],
    cells: |object, now| {
        let bound = !str_at(object, "/spec/volumeName").is_empty();
        let capacity = object.pointer("/status/capacity/storage").cloned().unwrap_or_else(|| json!("0"));
        vec![
            cells::name(object),
            phase(object),
            cells::text(object, "/spec/volumeName"),
            if bound { capacity } else { json!("") },
            if bound { access_modes(object, "/status/accessModes") } else { json!("") },
            class(object),
            or_unset(object, "/spec/volumeAttributesClassName"),
            cells::age(object, now),
            or_unset(object, "/spec/volumeMode"),
        ]
    },
};

static QUOTAS: Layout = Layout {
    columns: &[
        NAME,
        shown("Request", "Requests used, of those allowed."),
        shown("Limit", "Limits used, of those allowed."),
        AGE,
    ],
    cells: |object, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in map(object, "/status/hard").into_iter().flatten() {
            let used = map(object, "/status/used").and_then(|u| u.get(name)).and_then(Value::as_str);
            let text = format!("{name}: {}/{}", used.unwrap_or("0"), hard.as_str().unwrap_or("0"));
            if name.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
        }
        vec![
            cells::name(object),
            json!(requests.join(", ")),
            json!(limits.join(", ")),
            cells::age(object, now),
        ]
    },
};

static LEASES: Layout = Layout {
    columns: &[NAME, shown("Holder", "Who holds it."), AGE],
    cells: |object, now| {
        vec![cells::name(object), cells::text(object, "/spec/holderIdentity"), cells::age(object, now)]
    },
};

static ENDPOINT_SLICES: Layout = Layout {
    columns: &[
        NAME,
        shown("AddressType", "Kind of address."),
        shown("Ports", "Ports of every endpoint."),
        shown("Endpoints", "Addresses."),
        AGE,
    ],
    cells: |object, now| {
        let ports = list(object, "/ports");
        let shown: Vec<String> = ports
            .iter()
            .take(3)
            .map(|p| match p.pointer("/port").and_then(Value::as_i64) {
                Some(number) => number.to_string(),
                None => or(str_at(p, "/name"), "*").to_owned(),
            })
            .collect();
        let addresses: Vec<String> = list(object, "/endpoints")
            .iter()
            .flat_map(|e| list(e, "/addresses"))
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let first = &addresses[..addresses.len().min(3)];
        vec![
            cells::name(object),
            cells::text(object, "/addressType"),
            json!(with_more(&shown, ports.len(), 3)),
            json!(with_more(first, addresses.len(), 3)),
            cells::age(object, now),
        ]
    },
};

static ROLE_BINDINGS: Layout = Layout {
    columns: &[
        NAME,
        shown("Role", "Role that is given."),
        AGE,
        wide("Users", "Users that get it."),
        wide("Groups", "Groups that get it."),
        wide("ServiceAccounts", "Service accounts that get it."),
    ],
    cells: |object, now| {
        let subjects = |kind: &str| {
            let names: Vec<String> = list(object, "/subjects")
                .iter()
                .filter(|s| str_at(s, "/kind") == kind)
                .map(|s| match (kind, str_at(s, "/namespace")) {
                    ("ServiceAccount", namespace) => format!("{namespace}/{}", str_at(s, "/name")),
                    _ => str_at(s, "/name").to_owned(),
                })
                .collect();
            json!(names.join(", "))
        };
        vec![
            cells::name(object),
            json!(format!("{}/{}", str_at(object, "/roleRef/kind"), str_at(object, "/roleRef/name"))),
            cells::age(object, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

static PRIORITY_CLASSES: Layout = Layout {
    columns: &[
        NAME,
        of_type("integer", shown("Value", "The priority.")),
        of_type("boolean", shown("Global-Default", "Used where no class is given.")),
        AGE,
        shown("PreemptionPolicy", "Whether others are pushed aside."),
    ],
    cells: |object, now| {
        vec![
            cells::name(object),
            json!(number(object, "/value")),
            json!(truth(object, "/globalDefault")),
            cells::age(object, now),
            cells::text(object, "/preemptionPolicy"),
        ]
    },
};

static STORAGE_CLASSES: Layout = Layout {
    columns: &[
        NAME,
        shown("Provisioner", "Who makes the volumes."),
        shown("ReclaimPolicy", "What becomes of a volume when its claim goes."),
        shown("VolumeBindingMode", "When volumes are made."),
        shown("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |object, now| {
        let annotations = map(object, "/metadata/annotations");
        let is_default = annotations
            .and_then(|a| a.get("storageclass.kubernetes.io/is-default-class"))
            .is_some_and(|v| v == "true");
        let name = str_at(object, "/metadata/name");
        vec![
            json!(if is_default { format!("{name} (default)") } else { name.to_owned() }),
            cells::text(object, "/provisioner"),
            json!(or(str_at(object, "/reclaimPolicy"), "Delete")),
            json!(or(str_at(object, "/volumeBindingMode"), "Immediate")),
            json!(truth(object, "/allowVolumeExpansion")),
            cells::age(object, now),
        ]
    },
};

static VOLUME_ATTACHMENTS: Layout = Layout {
    columns: &[
        NAME,
        Column { format: "name", ..shown("Attacher", "Who attaches it.") },
        shown("PV", "The volume."),
        shown("Node", "The node."),
        of_type("boolean", shown("Attached", "Whether it is attached.")),
        AGE,
    ],
    cells: |object, now| {
        vec![
            cells::name(object),
            cells::text(object, "/spec/attacher"),
            cells::text(object, "/spec/source/persistentVolumeName"),
            cells::text(object, "/spec/nodeName"),
            json!(truth(object, "/status/attached")),
            cells::age(object, now),
        ]
    },
};

static CSI_NODES: Layout = Layout {
    columns: &[NAME, of_type("integer", shown("Drivers", "How many drivers the node has.")), AGE],
    cells: |object, now| {
        vec![cells::name(object), json!(list(object, "/spec/drivers").len()), cells::age(object, now)]
    },
};

static CSI_DRIVERS: Layout = Layout {
    columns: &[
        NAME,
        of_type("boolean", shown("AttachRequired", "Volumes must be attached first.")),
        of_type("boolean", shown("PodInfoOnMount", "The driver is told about the pod.")),
        of_type("boolean", shown("StorageCapacity", "The driver publishes free space.")),
        shown("TokenRequests", "Tokens the driver gets."),
        of_type("boolean", shown("RequiresRepublish", "The driver is called again and again.")),
        shown("Modes", "Kinds of volume it serves."),
        AGE,
    ],
    cells: |object, now| {
        let flag = |field: &str, absent: bool| {
            json!(object.pointer(&format!("/spec/{field}")).and_then(Value::as_bool).unwrap_or(absent))
        };
        let joined = |pointer: &str, field: Option<&str>| {
            list(object, pointer)
                .iter()
                .map(|v| field.map_or_else(|| v.as_str().unwrap_or(""), |f| str_at(v, f)))
                .collect::<Vec<_>>()
                .join(",")
        };
        let tokens = match object.pointer("/spec/tokenRequests") {
            Some(Value::Array(_)) => joined("/spec/tokenRequests", Some("/audience")),
            _ => "<unset>".to_owned(),
        };
        vec![
            cells::name(object),
            flag("attachRequired", true),
            flag("podInfoOnMount", false),
            flag("storageCapacity", false),
            json!(tokens),
            flag("requiresRepublish", false),
            json!(or(&joined("/spec/volumeLifecycleModes", None), "<none>")),
            cells::age(object, now),
        ]
    },
};

static WEBHOOKS: Layout = Layout {
    columns: &[NAME, of_type("integer", shown("Webhooks", "How many webhooks it has.")), AGE],
    cells: |object, now| {
        vec![cells::name(object), json!(list(object, "/webhooks").len()), cells::age(object, now)]
    },
};

static POLICIES: Layout = Layout {
    columns: &[
        NAME,
        of_type("integer", shown("Validations", "How many checks it has.")),
        shown("ParamKind", "Kind of its parameters."),
        AGE,
    ],
    cells: |object, now| {
        let kind = object.pointer("/spec/paramKind").filter(|k| k.is_object());
        let kind = kind
            .map_or("<unset>".to_owned(), |k| format!("{}/{}", str_at(k, "/apiVersion"), str_at(k, "/kind")));
        vec![
            cells::name(object),
            json!(list(object, "/spec/validations").len()),
            json!(kind),
            cells::age(object, now),
        ]
    },
};

static POLICY_BINDINGS: Layout = Layout {
    columns: &[
        NAME,
        shown("PolicyName", "Policy that is bound."),
        shown("ParamRef", "Parameters it is given."),
        AGE,
    ],
    cells: |object, now| {
        let name = str_at(object, "/spec/paramRef/name");
        let reference = if name.is_empty() {
            "<unset>".to_owned()
        } else {
            format!("{}/{name}", or(str_at(object, "/spec/paramRef/namespace"), "*"))
        };
        vec![
            cells::name(object),
            cells::text(object, "/spec/policyName"),
            json!(reference),
            cells::age(object, now),
        ]
    },
};

static DEFINITIONS: Layout = Layout {
    columns: &[
        NAME,
        shown("Scope", "Namespaced or Cluster."),
        shown("Versions", "Versions that are served."),
        of_type("date", shown("Created At", "When the object was created.")),
        wide("Group", "API group."),
        wide("Kind", "Kind of the objects."),
        wide("ShortNames", "Short names."),
        of_type("boolean", wide("Established", "Whether it is served.")),
    ],
    cells: |object, _| {
        let mut versions: Vec<String> = list(object, "/spec/versions")
            .iter()
            .filter(|v| truth(v, "/served"))
            .map(|v| {
                let mark = if truth(v, "/storage") { "(storage)" } else { "" };
                format!("{}{mark}", str_at(v, "/name"))
            })
            .collect();
        versions.sort_unstable();
        let short = list(object, "/spec/names/shortNames").iter().filter_map(Value::as_str);
        vec![
            cells::name(object),
            cells::text(object, "/spec/scope"),
            json!(versions.join(",")),
            cells::text(object, "/metadata/creationTimestamp"),
            cells::text(object, "/spec/group"),
            cells::text(object, "/spec/names/kind"),
            json!(short.collect::<Vec<_>>().join(",")),
            json!(cells::has_condition(object, "Established")),
        ]
    },
};

static API_SERVICES: Layout = Layout {
    columns: &[
        NAME,
        shown("Service", "Service behind it, or Local."),
        shown("Available", "Whether it answers."),
        AGE,
    ],
    cells: |object, now| {
        let service = object.pointer("/spec/service").filter(|s| s.is_object());
        let service = service
            .map_or("Local".to_owned(), |s| format!("{}/{}", str_at(s, "/namespace"), str_at(s, "/name")));
        let condition = list(object, "/status/conditions").iter().find(|c| str_at(c, "/type") == "Available");
        let available =
            condition.map_or("Unknown".to_owned(), |c| match (str_at(c, "/status"), str_at(c, "/reason")) {
                ("True", _) => "True".to_owned(),
                (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            });
        vec![cells::name(object), json!(service), json!(available), cells::age(object, now)]
    },
};
