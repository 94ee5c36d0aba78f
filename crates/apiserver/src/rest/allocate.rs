//! What the server hands out itself: addresses and ports of services, uids inside claims.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::server::Api;

const FIRST_NODE_PORT: u16 = 30_000;
const LAST_NODE_PORT: u16 = 32_767;

pub fn on_create(api: &Api, kind: &Kind, object: &mut Value) {
    if is_service(kind) {
        allocate_service(api, object);
    }
}

/// An address once given stays as long as the service wants one.
pub fn on_update(api: &Api, kind: &Kind, old: &Value, object: &mut Value) {
    if !is_service(kind) || object["spec"]["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        if object["spec"].get(field).is_none_or(|v| v.is_null() || *v == "") && !old["spec"][field].is_null()
        {
            object["spec"][field] = old["spec"][field].clone();
        }
    }
    let wants_ports = matches!(object["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    let lacks_one = object["spec"]["ports"]
        .as_array()
        .is_some_and(|ports| ports.iter().any(|port| port["nodePort"].as_u64().unwrap_or(0) == 0));
    if wants_ports && lacks_one {
        let others: Vec<Value> =
            api.read_all("services", "").iter().map(crate::store::Object::value).collect();
        allocate_node_ports(&others, object);
    }
}

fn is_service(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}

fn allocate_service(api: &Api, service: &mut Value) {
    let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
    if kind == "ExternalName" {
        return;
    }
    let others: Vec<Value> = api.read_all("services", "").iter().map(crate::store::Object::value).collect();
    if service["spec"]["clusterIP"].as_str().unwrap_or_default().is_empty() {
        let taken: BTreeSet<&str> = others.iter().filter_map(|s| s["spec"]["clusterIP"].as_str()).collect();
        if let Some(address) = free_address(&taken) {
            service["spec"]["clusterIP"] = json!(address);
        }
    }
    let address = service["spec"]["clusterIP"].clone();
    if service["spec"]["clusterIPs"].is_null() && !address.is_null() {
        service["spec"]["clusterIPs"] = json!([address]);
    }
    // A service that is only a name, for endpoints somebody else writes, may have addresses of any family.
    let nameless =
        address == "None" && service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if nameless && service["spec"]["ipFamilies"].is_null() && service["spec"]["ipFamilyPolicy"].is_null() {
        service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
        service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    }
    if service["spec"]["ipFamilies"].is_null() {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    if service["spec"]["ipFamilyPolicy"].is_null() {
        service["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        allocate_node_ports(&others, service);
    }
}

/// The lowest free address of 10.96.0.0/12, leaving the first for the API itself.
fn free_address(taken: &BTreeSet<&str>) -> Option<String> {
    (2u32..1 << 20)
        .map(|n| {
            let [_, b, c, d] = ((10u32 << 24) + (96 << 16) + n).to_be_bytes();
            format!("10.{b}.{c}.{d}")
        })
        .find(|address| !taken.contains(address.as_str()))
}

fn allocate_node_ports(others: &[Value], service: &mut Value) {
    let mut taken: BTreeSet<u64> = others
        .iter()
        .flat_map(|s| s["spec"]["ports"].as_array().cloned().unwrap_or_default())
        .filter_map(|port| port["nodePort"].as_u64())
        .collect();
    for port in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port["nodePort"].as_u64().is_some_and(|n| n > 0) {
            continue;
        }
        let free = (u64::from(FIRST_NODE_PORT)..=u64::from(LAST_NODE_PORT)).find(|n| !taken.contains(n));
        if let Some(free) = free {
            taken.insert(free);
            port["nodePort"] = json!(free);
        }
    }
}
