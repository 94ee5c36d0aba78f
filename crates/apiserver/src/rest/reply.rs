//! Answers before they become HTTP.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;

use super::body::Body;
use crate::status::ApiError;

/// A finished answer.
pub struct Reply {
    pub code: u16,
    pub body: Body,
    pub content_type: &'static str,
    /// Sentences for the person at the other end, sent as `Warning` headers.
    pub warnings: Vec<String>,
    /// When to try again, in seconds; 0 for nothing to say.
    pub retry_after: u32,
}

impl Reply {
    pub fn json(code: u16, value: &Value) -> Self {
        Self::text(code, serde_json::to_vec(value).unwrap_or_default())
    }

    /// An answer whose JSON text is there already.
    pub fn text(code: u16, json: impl Into<Bytes>) -> Self {
        Self {
            code,
            body: Body::whole(json),
            content_type: "application/json",
            warnings: Vec::new(),
            retry_after: 0,
        }
    }

    pub fn plain(text: &'static str) -> Self {
        Self {
            code: 200,
            body: Body::whole(text),
            content_type: "text/plain; charset=utf-8",
            warnings: Vec::new(),
            retry_after: 0,
        }
    }

    /// The answer to a refused request.
    pub fn failure(error: &ApiError) -> Self {
        if error.plain {
            let body = Body::whole(error.message.clone());
            return Self { code: error.code, body, ..Self::plain("") };
        }
        Self {
            retry_after: error.details.retry_after_seconds,
            warnings: error.warnings.clone(),
            ..Self::json(error.code, &error.body())
        }
    }

    /// The same answer as YAML, for clients that asked for it. Watches stay as they are.
    #[must_use]
    pub fn into_yaml(mut self) -> Self {
        if self.content_type == "application/json"
            && let Body::Whole(Some(json)) = &self.body
            && let Ok(value) = serde_json::from_slice::<Value>(json)
            && let Ok(yaml) = serde_saphyr::to_string(&value)
        {
            self.body = Body::whole(yaml);
            self.content_type = "application/yaml";
        }
        self
    }

    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

impl From<Reply> for Response<Body> {
    fn from(reply: Reply) -> Self {
        let mut response = Response::new(reply.body);
        *response.status_mut() =
            StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
        headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
        for warning in reply.warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(WARNING, value);
            }
        }
        if reply.retry_after > 0 {
            headers.insert(RETRY_AFTER, HeaderValue::from(reply.retry_after));
        }
        response
    }
}
