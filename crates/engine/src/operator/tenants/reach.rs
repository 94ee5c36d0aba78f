//! The way into a tenant's cluster: from the name of a Secret to a client that talks to one address and nobody else.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evac_api::tenants::{Secret, read_secret};
use evac_core::tenants::member::serves;
use evac_core::tenants::quota::Usage;
use evac_core::tenants::{Member, TIMEOUT, Trouble};
use futures::StreamExt as _;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::kubeconfig::{self, Access};
use crate::http::{Http, HttpError, connect};
use crate::meter::Meter;

/// A tenant that does not answer within this time is asked again later.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one of several addresses is tried.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(2);

async fn secret(host: &Http, member: &Member) -> Result<Secret, Trouble> {
    host.read::<Secret>(&read_secret(&member.secret)).await.map_err(|error| match error {
        HttpError::Status { status: 404, .. } => Trouble::SecretMissing(member.secret.clone()),
        // What was read may stand in the error.
        HttpError::Body(_) => Trouble::SecretWithoutValue(member.secret.clone()),
        error => Trouble::SecretUnreadable { secret: member.secret.clone(), why: error.to_string() },
    })
}

/// What the Secret of a cluster says about the time its nodes get.
pub(super) async fn timeout(host: &Http, member: &Member, namespace: &str) -> Option<String> {
    let secret = secret(host, member).await.ok()?;
    let annotations = &secret.metadata.annotations;
    annotations.get(TIMEOUT).filter(|_| serves(&member.secret, annotations, namespace)).cloned()
}

/// A client for the cluster of a machine in `namespace`. It writes only while `host` may, and reads as much as `meter` lets it.
pub async fn tenant(
    host: &Http,
    member: &Member,
    namespace: &str,
    loopback: bool,
    meter: Arc<Meter>,
) -> Result<Http, Trouble> {
    let secret = secret(host, member).await?;
    let name = member.secret.clone();
    if !serves(&member.secret, &secret.metadata.annotations, namespace) {
        return Err(Trouble::SecretNotShared { secret: name, namespace: namespace.to_owned() });
    }
    let value = secret.data.value.ok_or_else(|| Trouble::SecretWithoutValue(name.clone()))?;
    let refused = |why: String| Trouble::KubeconfigRefused { secret: name.clone(), why };
    let bytes = STANDARD.decode(value).map_err(|_| refused("it is not base64".into()))?;
    let access = kubeconfig::read(&bytes).map_err(|refusal| refused(refusal.to_string()))?;
    let address = resolve(host, &access, loopback).await.map_err(|why| match why {
        NoAddress::Forbidden(why) => refused(why),
        NoAddress::Unknown(why) => Trouble::Unreachable { cluster: member.cluster.clone(), why },
    })?;
    let client = client(access, address, meter.clone());
    let client = client.ok_or_else(|| refused("no client can be made of it".into()))?;
    Ok(Http::new(client, host.clock(), ANSWER).behind(host.gate().clone()).metered(meter))
}

enum NoAddress {
    Forbidden(String),
    Unknown(String),
}

/// The one address that is talked to. A name is looked up once, so that it cannot mean something else afterwards.
async fn resolve(host: &Http, access: &Access, loopback: bool) -> Result<SocketAddr, NoAddress> {
    let found = match access.host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, access.port)],
        Err(_) => look_up(host, access).await?,
    };
    if let Some(bad) = found.iter().find(|address| !is_allowed(address.ip(), loopback)) {
        return Err(NoAddress::Forbidden(format!(
            "the server's address {} is not one of a cluster",
            bad.ip()
        )));
    }
    match found.as_slice() {
        [] => Err(NoAddress::Unknown(format!("{} has no address", access.host))),
        [only] => Ok(*only),
        several => Ok(answering(host, several).await),
    }
}

/// The first of several addresses where somebody answers, as there may be one for each kind of network; the first if nobody does.
async fn answering(host: &Http, several: &[SocketAddr]) -> SocketAddr {
    let clock = host.clock();
    for address in several {
        let answered = tokio::select! {
            stream = tokio::net::TcpStream::connect(address) => stream.is_ok(),
            () = clock.sleep(ONE_OF_SEVERAL) => false,
        };
        if answered {
            return *address;
        }
    }
    several[0]
}

async fn look_up(host: &Http, access: &Access) -> Result<Vec<SocketAddr>, NoAddress> {
    let clock = host.clock();
    let found = tokio::select! {
        found = tokio::net::lookup_host((access.host.as_str(), access.port)) => found,
        () = clock.sleep(ANSWER) => {
            return Err(NoAddress::Unknown(format!("no address was found for {} in time", access.host)));
        }
    };
    Ok(found.map_err(|error| NoAddress::Unknown(format!("{}: {error}", access.host)))?.collect())
}

/// A tenant is not this machine, unless the host's own API server is, and not one of the services that clouds offer to machines.
fn is_allowed(address: IpAddr, loopback: bool) -> bool {
    match address.to_canonical() {
        ip if ip.is_loopback() => loopback,
        ip if ip.is_unspecified() || ip.is_multicast() => false,
        IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}

fn client(access: Access, address: SocketAddr, meter: Arc<Meter>) -> Option<kube::Client> {
    let uri = format!("https://{address}{}", access.path).parse().ok()?;
    // Nothing of the environment is asked: no proxy, no files.
    let mut config = kube::Config::new(uri);
    config.root_cert = Some(access.authorities);
    config.auth_info = access.who;
    config.connect_timeout = Some(ANSWER);
    let name = access.host.parse::<IpAddr>().is_err().then_some(access.host);
    config.tls_server_name = access.server_name.or(name);
    let client = connect(config).ok()?;
    let limited = service_fn(move |request: Request<Body>| {
        let (client, meter) = (client.clone(), meter.clone());
        async move {
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| metered(body, meter)))
        }
    });
    Some(kube::Client::new(limited, "default"))
}

/// A body that breaks off when it is too much: a server that never stops must not fill our memory.
fn metered(body: Body, meter: Arc<Meter>) -> UnsyncBoxBody<Bytes, BoxError> {
    let pieces = body.into_data_stream().map(move |piece| {
        let piece = piece.map_err(BoxError::from)?;
        let taken = Usage { bytes: piece.len(), ..Usage::default() };
        match meter.take(taken) {
            Ok(()) => Ok(Frame::data(piece)),
            Err(excess) => Err(BoxError::from(format!("the server sends {excess}"))),
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_its_cloud_are_no_clusters() {
        let allowed = |text: &str| is_allowed(text.parse().unwrap(), false);
        for no in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "::ffff:169.254.169.254",
        ] {
            assert!(!allowed(no), "{no}");
        }
        for yes in ["10.0.0.7", "192.168.1.4", "172.20.0.1", "203.0.113.9", "fd00::7", "2001:db8::1"] {
            assert!(allowed(yes), "{yes}");
        }
        assert!(is_allowed("127.0.0.1".parse().unwrap(), true));
        assert!(!is_allowed("169.254.169.254".parse().unwrap(), true));
    }
}
