//! A client of either server that does not retry, so that every request is counted once.

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
}

pub const MERGE: &str = "application/merge-patch+json";

impl Cluster {
    pub async fn connect(kubeconfig: &str) -> Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig")?;
        let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Self { client: kube::Client::try_from(config)? })
    }

    /// Sends a request and reads the whole answer; anything but success is an error.
    pub async fn send(&self, method: Method, path: &str, content: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let mut request = Request::builder().method(method.clone()).uri(path);
        if !content.is_empty() {
            request = request.header("content-type", content);
        }
        let response = self.client.send(request.body(body.into())?).await?;
        let code = response.status();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes();
        if !code.is_success() {
            bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(bytes.to_vec())
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.send(Method::GET, path, "", Vec::new()).await?)?)
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.send(Method::POST, path, "application/json", object.to_string().into_bytes()).await.map(|_| ())
    }

    /// A namespace in which pods can be created although no controller makes their service account.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.create(&accounts, &json!({"metadata": {"name": "default"}})).await
    }
}
