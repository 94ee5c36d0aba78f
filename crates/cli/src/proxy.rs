//! Which servers are reached without the proxy of the environment.
//!
//! The kube client takes `HTTPS_PROXY` for every server. As with kubectl, this machine and whatever `NO_PROXY` names is reached directly:
//! addresses, networks, `name` with all below it, `.name` for those below it alone, each with an optional port, or `*` for all.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

pub fn is_direct(server: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = server.port_u16().unwrap_or(443);
    no_proxy.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let (Ok(network), Some(address)) = (entry.parse::<IpNet>(), address) {
            return network.contains(&address);
        }
        let narrowed = entry.rsplit_once(':').filter(|(name, _)| !name.contains(':'));
        let narrowed = narrowed.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
        let (name, only) = narrowed.map_or((entry, None), |(name, port)| (name, Some(port)));
        only.is_none_or(|only| only == port) && covers(name, &host, address)
    })
}

fn covers(name: &str, host: &str, address: Option<IpAddr>) -> bool {
    if let Some(address) = address {
        return name.trim_matches(['[', ']']).parse() == Ok(address);
    }
    let name = name.trim_start_matches('*').to_ascii_lowercase();
    let below = name.trim_start_matches('.');
    let is_below = host.strip_suffix(below).is_some_and(|rest| rest.ends_with('.'));
    is_below || host == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(server: &str, no_proxy: &str) -> bool {
        is_direct(&server.parse().unwrap(), no_proxy)
    }

    #[test]
    fn this_machine_is_never_behind_a_proxy() {
        for server in ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"] {
            assert!(direct(server, ""), "{server}");
        }
        assert!(!direct("https://10.0.0.1:6443", ""));
    }

    #[test]
    fn addresses_and_networks_are_those_of_the_server() {
        assert!(direct("https://10.1.2.3:6443", "192.168.0.0/16, 10.0.0.0/8"));
        assert!(direct("https://10.1.2.3:6443", "10.1.2.3"));
        assert!(direct("https://[fd00::1]:6443", "fd00::/8"));
        assert!(direct("https://[fd00::1]:6443", "fd00::1"));
        assert!(!direct("https://10.1.2.3:6443", "10.1.2.8/29,10.1.2.30"));
    }

    #[test]
    fn names_cover_what_is_below_them() {
        assert!(direct("https://api.example.org:6443", "example.org"));
        assert!(direct("https://example.org:6443", "EXAMPLE.org"));
        assert!(
            direct("https://api.example.org", ".example.org")
                && direct("https://api.example.org", "*.example.org")
        );
        assert!(!direct("https://example.org", ".example.org"));
        assert!(!direct("https://badexample.org", "example.org"));
        assert!(direct("https://anything.at.all", "*"));
    }

    #[test]
    fn a_port_narrows_an_entry() {
        assert!(direct("https://example.org:6443", "example.org:6443"));
        assert!(!direct("https://example.org:6443", "example.org:443"));
        assert!(direct("https://10.0.0.1", "10.0.0.1:443"));
    }
}
