//! A client of either server that does not retry, so that every request is counted once.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt};
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

    /// The events of a collection.
    pub async fn events(
        &self,
        path: &str,
    ) -> Result<impl futures::Stream<Item = Result<Value>> + Unpin + use<>> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let request = Request::get(format!("{path}{joint}watch=1")).body(Vec::new())?;
        let lines = self.client.request_stream(request).await?.lines();
        Ok(Box::pin(lines.map(|line| {
            let event: Value = serde_json::from_str(&line?)?;
            if event["type"] == "ERROR" {
                bail!("the watch broke: {}", event["object"]["message"]);
            }
            Ok(event)
        })))
    }

    /// Waits by watch until a collection is as it should be. A server cuts off watchers that are too slow for it; then the next watch begins
    /// with what there is.
    pub async fn until(&self, path: &str, wanted: impl Fn(&BTreeMap<String, Value>) -> bool) -> Result<()> {
        loop {
            let mut all = BTreeMap::new();
            let mut events = self.events(path).await?;
            while let Some(event) = events.next().await {
                let mut event = event?;
                let object = event["object"].take();
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if event["type"] == "DELETED" {
                    all.remove(&name);
                } else {
                    all.insert(name, object);
                }
                if wanted(&all) {
                    return Ok(());
                }
            }
        }
    }

    pub async fn cordon(&self, node: &str, wanted: bool) -> Result<()> {
        let patch = json!({"spec": {"unschedulable": wanted}}).to_string().into_bytes();
        self.send(Method::PATCH, &format!("/api/v1/nodes/{node}"), MERGE, patch).await.map(|_| ())
    }

    pub async fn evict(&self, pod: &str) -> Result<()> {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
        self.create(&format!("/api/v1/namespaces/default/pods/{pod}/eviction"), &body).await
    }

    /// A namespace in which pods can be created although no controller makes their service account.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.create(&accounts, &json!({"metadata": {"name": "default"}})).await
    }
}
