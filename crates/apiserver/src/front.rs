//! The TCP front: TLS on loopback with an authority of its own, and the kubeconfig that fits it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evac_listen::Listening;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::server::Api;
use crate::service::Service;

/// Why the front could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    #[error("cannot listen on 127.0.0.1:{port}: {source}; choose another port or 0 for any")]
    Listen { port: u16, source: io::Error },
    #[error("cannot make certificates: {0}")]
    Certificates(String),
    #[error("cannot make an access token: {0}")]
    Token(String),
}

/// An open front.
pub struct Front {
    pub address: SocketAddr,
    pub kubeconfig: String,
    listening: Listening,
}

impl Front {
    /// Opens the front on a loopback port (0 for any) and starts to answer.
    pub async fn open(api: Arc<Api>, port: u16) -> Result<Self, FrontError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| FrontError::Listen { port, source })?;
        let address = listener.local_addr().map_err(|source| FrontError::Listen { port, source })?;
        let chain = certificates().map_err(FrontError::Certificates)?;
        let token = api.credentials.grant(Identity::admin()).map_err(FrontError::Token)?;
        let kubeconfig = kubeconfig(address, &chain.authority_pem, &token);
        let acceptor = TlsAcceptor::from(Arc::new(chain.server));
        let (clock, service) = (api.clock, Service::guarded(api));
        let listening = Listening::start(listener, clock, move |stream, stop| {
            Some(converse(stream, acceptor.clone(), service.clone(), stop))
        });
        Ok(Self { address, kubeconfig, listening })
    }

    /// Closes all connections and stops listening.
    pub async fn close(self) {
        self.listening.close().await;
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, service: Service, stop: CancellationToken) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().max_concurrent_streams(1000);
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        result = connection => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            }
        }
    }
}

struct Chain {
    authority_pem: String,
    server: rustls::ServerConfig,
}

fn certificates() -> Result<Chain, String> {
    let text = |error: rcgen::Error| error.to_string();
    let authority_key = KeyPair::generate().map_err(text)?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "evac sandbox authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_certificate = authority.self_signed(&authority_key).map_err(text)?;
    let issuer = Issuer::from_params(&authority, &authority_key);
    let server_key = KeyPair::generate().map_err(text)?;
    let mut server = CertificateParams::new(vec![
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        "kubernetes.default.svc".to_owned(),
    ])
    .map_err(text)?;
    server.distinguished_name.push(DnType::CommonName, "evac sandbox");
    let certificate = server.signed_by(&server_key, &issuer).map_err(text)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der())),
        )
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Chain { authority_pem: authority_certificate.pem(), server: config })
}

/// A kubeconfig for the owner of the server. It holds the token: keep it private.
fn kubeconfig(address: SocketAddr, authority_pem: &str, token: &str) -> String {
    let authority = STANDARD.encode(authority_pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: evac-sandbox\n\
         clusters:\n\
         - name: evac-sandbox\n\
         \x20 cluster:\n\
         \x20   server: https://{address}\n\
         \x20   certificate-authority-data: {authority}\n\
         contexts:\n\
         - name: evac-sandbox\n\
         \x20 context:\n\
         \x20   cluster: evac-sandbox\n\
         \x20   user: evac-sandbox\n\
         users:\n\
         - name: evac-sandbox\n\
         \x20 user:\n\
         \x20   token: {token}\n"
    )
}
