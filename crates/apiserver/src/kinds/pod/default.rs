//! What the server fills into pods and pod templates.

use serde_json::{Map, Value, json};

use crate::kinds::quantities;
use crate::kinds::read::{as_map, child, each, obj_mut, set_default, set_number};

type Fields = Map<String, Value>;

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Files from secrets, config maps and the like: rw-r--r--.
const FILE_MODE: i64 = 0o644;

/// Defaults of a pod; a template gets fewer.
pub(super) fn pod(pod: &mut Value) {
    let spec = obj_mut(pod, "spec");
    pod_spec(spec);
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    for containers in ["containers", "initContainers"] {
        for container in each(spec, containers) {
            requests_follow_limits(container);
        }
    }
    set_default(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for containers in ["containers", "initContainers"] {
            for container in each(spec, containers) {
                for port in each(container, "ports") {
                    let unset = port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0;
                    if unset && let Some(number) = port.get("containerPort").cloned() {
                        port.insert("hostPort".into(), number);
                    }
                }
            }
        }
    }
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        keep_addresses_in_step(status, "podIP", "podIPs");
    }
}

/// `podIP` and `podIPs[0]` say the same; the single one wins.
fn keep_addresses_in_step(status: &mut Fields, single: &str, many: &str) {
    let ip = status.get(single).and_then(Value::as_str).unwrap_or("").to_owned();
    let first =
        status.get(many).and_then(|m| m.pointer("/0/ip")).and_then(Value::as_str).unwrap_or("").to_owned();
    if ip.is_empty() && !first.is_empty() {
        status.insert(single.to_owned(), json!(first));
    } else if ip != first {
        status.insert(many.to_owned(), json!([{"ip": ip}]));
    }
}

/// Defaults of `spec.template` of a workload.
pub(in crate::kinds) fn default_template(template: &mut Value) {
    pod_spec(obj_mut(template, "spec"));
}

fn pod_spec(spec: &mut Fields) {
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .filter_map(|k| spec.get(*k).and_then(Value::as_str))
        .find(|s| !s.is_empty())
        .map(str::to_owned);
    if let Some(account) = account {
        spec.insert("serviceAccountName".into(), json!(account));
        spec.insert("serviceAccount".into(), json!(account));
    }
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    for containers in CONTAINER_LISTS {
        for item in each(spec, containers) {
            container(item);
        }
    }
    for item in each(spec, "volumes") {
        volume(item);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_resource_list(overhead);
    }
    if let Some(resources) = child(spec, "resources") {
        round_resources(resources);
    }
}

fn container(container: &mut Fields) {
    let policy = image_pull_policy(container.get("image").and_then(Value::as_str).unwrap_or(""));
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    round_resources(as_map(resources));
    for port in each(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(reference) = child(variable, "valueFrom").and_then(|v| child(v, "fieldRef")) {
            set_default(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, name) {
            set_number(probe, "timeoutSeconds", 1);
            set_number(probe, "periodSeconds", 10);
            set_number(probe, "successThreshold", 1);
            set_number(probe, "failureThreshold", 3);
            handler(probe);
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(hook) = child(lifecycle, name) {
                handler(hook);
            }
        }
    }
    if let Some(context) = child(container, "securityContext")
        && context.get("procMount").is_some_and(Value::is_null)
    {
        context.remove("procMount");
    }
}

fn handler(handler: &mut Fields) {
    if let Some(http) = child(handler, "httpGet") {
        set_default(http, "path", "/");
        set_default(http, "scheme", "HTTP");
    }
    if let Some(grpc) = child(handler, "grpc")
        && grpc.get("service").is_none_or(Value::is_null)
    {
        grpc.insert("service".into(), json!(""));
    }
}

/// `Always` for `:latest` and for no tag at all, else `IfNotPresent`.
pub(in crate::kinds) fn image_pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    // A colon before the last slash belongs to a registry port.
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        None | Some((_, "latest")) if !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn requests_follow_limits(container: &mut Fields) {
    let Some(resources) = child(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() && !resources.contains_key("requests") {
        return;
    }
    let requests = as_map(resources.entry("requests").or_insert_with(|| json!({})));
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn round_resources(resources: &mut Fields) {
    for field in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(field) {
            round_resource_list(list);
        }
    }
}

/// Resource amounts are kept in thousandths, rounded up.
pub(in crate::kinds) fn round_resource_list(list: &mut Value) {
    for value in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Ok(quantity) = quantities::read(value) {
            let rounded = quantity.rounded_to_milli();
            if rounded != quantity {
                *value = json!(rounded.to_string());
            }
        }
    }
}

fn volume(volume: &mut Fields) {
    if !volume.keys().any(|k| k != "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(volume, source) {
            set_default(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = child(volume, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(host_path) = child(volume, "hostPath") {
        host_path.entry("type").or_insert_with(|| json!(""));
    }
    if let Some(image) = child(volume, "image") {
        let policy = image_pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or(""));
        set_default(image, "pullPolicy", policy);
    }
    if let Some(iscsi) = child(volume, "iscsi") {
        set_default(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = child(volume, "rbd") {
        set_default(rbd, "pool", "rbd");
        set_default(rbd, "user", "admin");
        set_default(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(projected) = child(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = child(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = child(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(template) = child(volume, "ephemeral").and_then(|e| child(e, "volumeClaimTemplate"))
        && let Some(spec) = child(template, "spec")
    {
        set_default(spec, "volumeMode", "Filesystem");
    }
}

fn downward_items(source: &mut Fields) {
    for item in each(source, "items") {
        if let Some(reference) = child(item, "fieldRef") {
            set_default(reference, "apiVersion", "v1");
        }
    }
}
