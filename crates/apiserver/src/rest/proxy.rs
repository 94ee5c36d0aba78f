//! `pods/proxy`: a question to what runs in a pod. Pods are simulated, so a function of this process may answer for all that carry a label; nothing
//! listens in the others.

use std::net::IpAddr;

use serde_json::Value;

use crate::kinds::Kind;
use crate::path::ResourcePath;
use crate::reply::Reply;
use crate::server::backend::Asked;
use crate::server::{Api, not_found};
use crate::status::{ApiError, quoted};

pub async fn get(api: &Api, kind: &Kind, path: &ResourcePath) -> Result<Reply, ApiError> {
    let (scheme, name, port) = split(&path.name)
        .ok_or_else(|| ApiError::bad_request(format!("invalid pod request {}", quoted(&path.name))))?;
    let object = api.read("pods", &path.namespace, name).ok_or_else(|| not_found(kind, name))?;
    let pod = object.value();
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let address = address
        .parse::<IpAddr>()
        .ok()
        .filter(is_reachable)
        .ok_or_else(|| ApiError::bad_request("address not allowed"))?;
    let port = if port.is_empty() { first_port(&pod, scheme) } else { port.to_owned() };
    let asked = Asked {
        namespace: path.namespace.clone(),
        pod: name.to_owned(),
        node: pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
        port: port.clone(),
        path: format!("/{}", path.behind),
    };
    let label = |key: &str| pod["metadata"]["labels"][key].as_str().map(str::to_owned);
    let answer = match api.backend(label) {
        Some(backend) => backend(asked).await,
        None => None,
    };
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    answer.ok_or_else(|| {
        let why =
            format!("error trying to reach service: dial tcp {host}:{port}: connect: connection refused");
        ApiError::new(503, "ServiceUnavailable", why)
    })
}

/// `name`, `name:port` or `scheme:name:port`.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = text.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((scheme, name, port))
}

fn first_port(pod: &Value, scheme: &str) -> String {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let ports = containers.filter_map(|container| container["ports"][0]["containerPort"].as_u64());
    let usual = if scheme == "https" { 443 } else { 80 };
    ports.map(|port| port.to_string()).next().unwrap_or_else(|| usual.to_string())
}

/// The server lends nobody its own ways: itself and its nearest neighbours are not asked.
fn is_reachable(address: &IpAddr) -> bool {
    let near = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !near && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_carry_a_scheme_and_a_port() {
        assert_eq!(split("agent"), Some(("", "agent", "")));
        assert_eq!(split("agent:8443"), Some(("", "agent", "8443")));
        assert_eq!(split("https:agent:8443"), Some(("https", "agent", "8443")));
        for wrong in ["ftp:agent:21", "https::8443", "a:b:c:d", ""] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_server_and_its_neighbours_are_not_reached() {
        let reachable = |text: &str| is_reachable(&text.parse().unwrap());
        assert!(reachable("10.244.1.7") && reachable("fd00::7"));
        for near in
            ["127.0.0.1", "169.254.169.254", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::1", "fe80::1"]
        {
            assert!(!reachable(near), "{near}");
        }
    }
}
