//! A server without a socket, and requests to it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use bytes::Bytes;
use evac_apiserver::identity::Identity;
use evac_apiserver::reply::Body;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::Service as _;

pub struct Server {
    pub api: Arc<Api>,
    service: Service,
}

/// Code and body of an answer.
pub type Answer = (u16, Value);

impl Server {
    pub fn new() -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self::at(Clock::starting_at(start))
    }

    pub fn at(clock: Clock) -> Self {
        let api = Api::new(clock, Settings::default());
        let service = Service::trusted(api.clone(), Identity::admin());
        Self { api, service }
    }

    /// With the default service account that pods need.
    pub async fn with_account() -> Self {
        let server = Self::new();
        server
            .post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}}))
            .await;
        server
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.service.clone().call(request).await.unwrap()
    }

    pub async fn request(&self, method: Method, path: &str, content: &str, body: String) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "test/1");
        if !content.is_empty() {
            request = request.header("content-type", content);
        }
        let response = self.send(request.body(Full::from(body)).unwrap()).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, "", String::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.request(Method::POST, path, "application/json", body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.request(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.request(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub async fn strategic(&self, path: &str, body: Value) -> Answer {
        self.request(Method::PATCH, path, "application/strategic-merge-patch+json", body.to_string()).await
    }

    pub async fn delete(&self, path: &str, options: Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.request(Method::DELETE, path, "application/json", body).await
    }
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
           "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

pub const PODS: &str = "/api/v1/namespaces/default/pods";
