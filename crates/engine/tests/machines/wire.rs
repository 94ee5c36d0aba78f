//! A connection that breaks after each write: the server did it, the sender never hears of it.

use std::sync::Arc;

use bytes::Bytes;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::Api;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tokio::sync::Notify;
use tower::ServiceExt;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

#[derive(Clone)]
pub struct Wire {
    service: Service,
    written: Arc<Notify>,
}

impl Wire {
    pub fn new(api: Arc<Api>) -> Self {
        Self { service: Service::trusted(api, Identity::admin()), written: Arc::default() }
    }

    /// Waits until one more write has reached the server.
    pub async fn one_write(&self) {
        self.written.notified().await;
    }

    pub fn client(&self) -> kube::Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let wire = wire.clone();
            async move {
                let is_write = request.method() != Method::GET && !request.uri().path().ends_with("/events");
                let answer = wire.service.oneshot(request).await?;
                if is_write && answer.status().is_success() {
                    wire.written.notify_one();
                    return Err::<Answer, BoxError>("broken pipe".into());
                }
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        });
        kube::Client::new(service, "default")
    }
}
