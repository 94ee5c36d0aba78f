//! Services, endpoints and endpoint slices.

use std::collections::BTreeSet;

use evac_apimachinery::validation::{self, NameRule};
use serde_json::{Map, Value, json};

use super::fields::{self, Unsupported};
use super::meta;
use super::read::{as_map, each, int, list, list_at, obj, obj_mut, set_default, text, text_at};
use super::strategy::{Generation, Strategy};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

pub(super) const SERVICE: Strategy = Strategy {
    default: default_service,
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"loadBalancer": {}}));
    },
    prepare_update: |old, new, _, _| keep_addresses(old, new),
    validate: |object, errors| service(object, errors),
    validate_update: |old, new, _, errors| {
        let (before, now) = (text_at(old, "/spec/clusterIP"), text_at(new, "/spec/clusterIP"));
        let stays =
            text_at(old, "/spec/type") != "ExternalName" && text_at(new, "/spec/type") != "ExternalName";
        if stays && !before.is_empty() && before != now {
            errors.push(FieldError::invalid("spec.clusterIPs[0]", json!([now]), "may not change once set"));
        }
        service(new, errors);
    },
    validate_status: |_, new, errors| load_balancer(new, errors),
    name: NameRule::Label,
    create_on_update: true,
    fields: fields::SERVICE,
    unsupported: Unsupported::Label,
    ..Strategy::STATUS
};

/// The addresses that a load balancer gave a service.
fn load_balancer(object: &Value, errors: &mut Errors) {
    const PATH: &str = "status.loadBalancer.ingress";
    let ingress = list_at(object, "/status/loadBalancer/ingress");
    if text_at(object, "/spec/type") != "LoadBalancer" && !ingress.is_empty() {
        errors.push(FieldError::forbidden(PATH, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    for (i, entry) in ingress.iter().enumerate() {
        let (ip, mode, host) = (text(entry, "ip"), text(entry, "ipMode"), text(entry, "hostname"));
        if !ip.is_empty() {
            valid_ip(ip, &format!("{PATH}[{i}].ip"), errors);
        }
        let path = format!("{PATH}[{i}].ipMode");
        match (mode, ip) {
            ("", "") | ("Proxy" | "VIP", _) if mode.is_empty() || !ip.is_empty() => {}
            ("", _) => errors.push(FieldError::required(path, "must be specified when `ip` is set")),
            (_, "") => {
                errors.push(FieldError::forbidden(path, "may not be specified when `ip` is not set"));
            }
            (other, _) => errors.push(FieldError::not_supported(path, other, &["Proxy", "VIP"])),
        }
        let path = format!("{PATH}[{i}].hostname");
        if !host.is_empty() {
            for complaint in validation::dns1123_subdomain(host) {
                errors.push(FieldError::invalid(path.as_str(), host, complaint));
            }
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
            }
        }
    }
}

fn default_service(object: &mut Value) {
    let balancer = object.pointer_mut("/status/loadBalancer").and_then(Value::as_object_mut);
    for entry in balancer.into_iter().flat_map(|balancer| each(balancer, "ingress")) {
        if entry.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
            set_default(entry, "ipMode", "VIP");
        }
    }
    let spec = obj_mut(object, "spec");
    set_default(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let config = as_map(spec.entry("sessionAffinityConfig").or_insert_with(|| json!({})));
            let client = as_map(config.entry("clientIP").or_insert_with(|| json!({})));
            set_default(client, "timeoutSeconds", 10_800);
        }
        _ => {}
    }
    set_default(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        set_default(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(s)) => s.is_empty(),
            Some(n) => n.as_i64() == Some(0),
        };
        if unset && let Some(number) = port.get("port").cloned() {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    let has_external = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && has_external) {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// What a service still needs from the server: an address of its own?
pub fn wants_cluster_ip(service: &Value) -> bool {
    text_at(service, "/spec/type") != "ExternalName" && text_at(service, "/spec/clusterIP").is_empty()
}

/// Gives a service its address (or `None` for a headless one keeps it) and the fields that go with it.
pub fn set_cluster_ip(service: &mut Value, address: &str) {
    let spec = obj_mut(service, "spec");
    set_default(spec, "clusterIP", address);
    let given = spec.get("clusterIP").cloned().unwrap_or_default();
    set_default(spec, "clusterIPs", json!([given]));
    set_default(spec, "ipFamilies", json!(["IPv4"]));
    set_default(spec, "ipFamilyPolicy", "SingleStack");
}

/// An update that leaves the addresses out means the stored ones.
fn keep_addresses(old: &Value, new: &mut Value) {
    if text_at(new, "/spec/type") == "ExternalName" {
        return;
    }
    let Some(stored) = obj(old, "spec") else { return };
    let spec = obj_mut(new, "spec");
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let absent = spec.get(field).is_none_or(|v| v.is_null() || v.as_str() == Some(""));
        if absent && let Some(value) = stored.get(field) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    keep_node_ports(stored, spec);
}

fn keep_node_ports(stored: &Map<String, Value>, spec: &mut Map<String, Value>) {
    if !matches!(spec.get("type").and_then(Value::as_str), Some("NodePort" | "LoadBalancer")) {
        return;
    }
    let known: Vec<Value> = stored.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in each(spec, "ports") {
        let same =
            |p: &&Value| p.get("port") == port.get("port") && p.get("protocol") == port.get("protocol");
        if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0
            && let Some(number) = known.iter().find(same).and_then(|p| p.get("nodePort"))
        {
            let number = number.clone();
            port.insert("nodePort".into(), number);
        }
    }
}

fn service(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        )),
        "ExternalName" => {
            let name = text(spec, "externalName").trim_end_matches('.');
            if text(spec, "externalName").is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                for complaint in validation::dns1123_subdomain(name) {
                    errors.push(FieldError::invalid("spec.externalName", name, complaint));
                }
            }
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        service_port(port, ports.len() > 1, &mut seen, &format!("spec.ports[{i}]"), errors);
    }
    meta::labels(obj(spec, "selector"), "spec.selector", errors);
    match text(spec, "sessionAffinity") {
        "" => errors.push(FieldError::required("spec.sessionAffinity", "")),
        "ClientIP" | "None" => {}
        other => errors.push(FieldError::not_supported("spec.sessionAffinity", other, &["ClientIP", "None"])),
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", kind, &types));
    }
    let mut pairs = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let key = (text(port, "protocol"), int(port, "port").unwrap_or(0));
        if !pairs.insert(key) {
            let shown = json!({"protocol": key.0, "port": key.1});
            errors.push(FieldError::duplicate(format!("spec.ports[{i}]"), shown));
        }
    }
}

fn service_port<'a>(
    port: &'a Value,
    needs_name: bool,
    seen: &mut BTreeSet<&'a str>,
    path: &str,
    errors: &mut Errors,
) {
    let at = |field: &str| format!("{path}.{field}");
    let name = text(port, "name");
    if name.is_empty() {
        if needs_name {
            errors.push(FieldError::required(at("name"), ""));
        }
    } else {
        for complaint in validation::dns1123_label(name) {
            errors.push(FieldError::invalid(at("name"), name, complaint));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at("name"), name));
        }
    }
    let number = int(port, "port").unwrap_or(0);
    for complaint in validation::port_number(number) {
        errors.push(FieldError::invalid(at("port"), number, complaint));
    }
    match text(port, "protocol") {
        "" => errors.push(FieldError::required(at("protocol"), "")),
        "TCP" | "UDP" | "SCTP" => {}
        other => errors.push(FieldError::not_supported(at("protocol"), other, &["SCTP", "TCP", "UDP"])),
    }
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            for complaint in validation::port_name(name) {
                errors.push(FieldError::invalid(at("targetPort"), name.as_str(), complaint));
            }
        }
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            for complaint in validation::port_number(number) {
                errors.push(FieldError::invalid(at("targetPort"), number, complaint));
            }
        }
    }
}

pub(super) const ENDPOINTS: Strategy = Strategy {
    default: |object| {
        for subset in each(as_map(object), "subsets") {
            for port in each(subset, "ports") {
                set_default(port, "protocol", "TCP");
            }
        }
    },
    validate: endpoints,
    validate_update: |_, new, _, errors| endpoints(new, errors),
    create_on_update: true,
    ..Strategy::PLAIN
};

fn endpoints(object: &Value, errors: &mut Errors) {
    for (i, subset) in list(object, "subsets").iter().enumerate() {
        let path = format!("subsets[{i}]");
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(&path[..], "must specify `addresses` or `notReadyAddresses`"));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (j, address) in list(subset, field).iter().enumerate() {
                valid_ip(text(address, "ip"), &format!("{path}.{field}[{j}].ip"), errors);
            }
        }
        for (j, port) in list(subset, "ports").iter().enumerate() {
            let number = int(port, "port").unwrap_or(0);
            for complaint in validation::port_number(number) {
                errors.push(FieldError::invalid(format!("{path}.ports[{j}].port"), number, complaint));
            }
        }
    }
}

fn valid_ip(text: &str, path: &str, errors: &mut Errors) {
    if text.parse::<std::net::IpAddr>().is_err() {
        errors.push(FieldError::invalid(
            path,
            text,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
    }
}

pub(super) const ENDPOINT_SLICE: Strategy = Strategy {
    default: |object| {
        for port in each(as_map(object), "ports") {
            if port.get("name").is_none_or(Value::is_null) {
                port.insert("name".into(), json!(""));
            }
            set_default(port, "protocol", "TCP");
        }
    },
    generation: Generation::AllButMetadata,
    validate: endpoint_slice,
    validate_update: |old, new, _, errors| {
        endpoint_slice(new, errors);
        meta::immutable(old, new, "/addressType", "addressType", errors);
    },
    ..Strategy::PLAIN
};

fn endpoint_slice(object: &Value, errors: &mut Errors) {
    match text(object, "addressType") {
        "" => errors.push(FieldError::required("addressType", "")),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.push(FieldError::not_supported("addressType", other, &["FQDN", "IPv4", "IPv6"])),
    }
    for (i, endpoint) in list(object, "endpoints").iter().enumerate() {
        let addresses = list_at(endpoint, "/addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(format!("endpoints[{i}].addresses"), ""));
        }
        if text(object, "addressType") != "FQDN" {
            for (j, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
                valid_ip(address, &format!("endpoints[{i}].addresses[{j}]"), errors);
            }
        }
    }
}
