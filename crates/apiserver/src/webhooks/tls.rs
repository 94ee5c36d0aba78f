//! Calling a webhook over HTTPS, trusting exactly the authority its configuration names.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

/// Posts a review and reads the answer.
pub async fn post(url: &str, ca_bundle: &str, review: Value) -> Result<Value, String> {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(trust(ca_bundle)?)
        .https_only()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let body = serde_json::to_vec(&review).map_err(|e| e.to_string())?;
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())?;
    let response = client.request(request).await.map_err(|e| format!("Post \"{url}\": {}", chain(&e)))?;
    let code = response.status();
    let bytes = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    if !code.is_success() {
        return Err(format!("the server answered {code}"));
    }
    serde_json::from_slice(&bytes).map_err(|e| format!("the answer is not an AdmissionReview: {e}"))
}

fn trust(ca_bundle: &str) -> Result<rustls::ClientConfig, String> {
    let pem = STANDARD.decode(ca_bundle).map_err(|e| format!("caBundle: {e}"))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| format!("caBundle: {e}"))?;
        roots.add(certificate).map_err(|e| format!("caBundle: {e}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// An error with its causes, because the outermost one rarely says what happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
