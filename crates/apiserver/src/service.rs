//! The server as a `tower::Service`, for clients in this process.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::identity::Identity;
use crate::reply::{Body, Reply};
use crate::rest::answer;
use crate::server::Api;
use crate::status::ApiError;

/// Answers requests on behalf of one caller, or, without one, of whoever the token says.
#[derive(Clone)]
pub struct Service {
    api: Arc<Api>,
    trusted: Option<Identity>,
}

impl Service {
    /// For callers that must show a token.
    pub fn guarded(api: Arc<Api>) -> Self {
        Self { api, trusted: None }
    }

    /// For a caller this process vouches for.
    pub fn trusted(api: Arc<Api>, identity: Identity) -> Self {
        Self { api, trusted: Some(identity) }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

impl Service {
    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        // One byte more than allowed is enough to know that it is too much.
        let limited = http_body_util::Limited::new(body, self.api.settings.body_limit + 1);
        let bytes = match limited.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => {
                let error = if error.is::<http_body_util::LengthLimitError>() {
                    ApiError::new(
                        413,
                        "RequestEntityTooLarge",
                        format!("Request entity too large: limit is {}", self.api.settings.body_limit),
                    )
                } else {
                    ApiError::bad_request(format!("the request body could not be read: {error}"))
                };
                return Reply::failure(&error).into();
            }
        };
        answer(&self.api, Request::from_parts(parts, bytes), self.trusted.as_ref()).await
    }
}
