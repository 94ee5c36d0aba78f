//! Answers before they become HTTP.

mod body;

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, VARY, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;

pub use self::body::Body;
use crate::protobuf;
use crate::status::ApiError;

/// The encoding of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Media {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    pub(crate) fn of(text: &str) -> Option<Self> {
        match text {
            "application/json" | "*/*" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            protobuf::MEDIA_TYPE => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// A finished answer.
pub struct Reply {
    pub code: u16,
    pub body: Body,
    pub content_type: &'static str,
    /// Sentences for the person at the other end, sent as `Warning` headers.
    pub warnings: Vec<String>,
    /// When to try again, in seconds; 0 for nothing to say.
    pub retry_after: u32,
    /// The encoding the client chose; the body is JSON until it is sent.
    pub media: Media,
    /// What caches may know about a document.
    pub caching: Option<Caching>,
}

/// What caches between a client and a document go by.
#[derive(Debug, Clone)]
pub struct Caching {
    /// Changes with the content.
    pub etag: String,
    /// The request headers on which the answer depends.
    pub vary: &'static str,
    pub control: &'static str,
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
            media: Media::Json,
            caching: None,
        }
    }

    pub fn plain(text: &'static str) -> Self {
        Self {
            code: 200,
            body: Body::whole(text),
            content_type: "text/plain; charset=utf-8",
            warnings: Vec::new(),
            retry_after: 0,
            media: Media::Json,
            caching: None,
        }
    }

    /// The words of somebody else.
    pub fn words(code: u16, text: impl Into<Bytes>) -> Self {
        Self { code, body: Body::whole(text), ..Self::plain("") }
    }

    /// A code and nothing else.
    pub fn empty(code: u16) -> Self {
        Self { code, content_type: "", ..Self::plain("") }
    }

    /// The answer to a refused request.
    pub fn failure(error: &ApiError) -> Self {
        if error.plain {
            return Self::words(error.code, error.message.clone());
        }
        Self {
            retry_after: error.details.retry_after_seconds,
            warnings: error.warnings.clone(),
            ..Self::json(error.code, &error.body())
        }
    }

    /// The same answer in the encoding that the client chose. What has no such form stays JSON.
    #[must_use]
    pub fn encoded(mut self) -> Self {
        if self.media == Media::Json || self.content_type != "application/json" {
            return self;
        }
        self.body = match (self.media, self.body) {
            (Media::Protobuf, Body::Stream(lines)) => {
                self.content_type = protobuf::WATCH_MEDIA_TYPE;
                Body::Stream(Box::pin(lines.map(|lines| protobuf::watch_frames(&lines))))
            }
            (media, Body::Whole(Some(json))) => match encode(media, &json) {
                Some((bytes, content_type)) => {
                    self.content_type = content_type;
                    Body::whole(bytes)
                }
                None => Body::Whole(Some(json)),
            },
            (_, body) => body,
        };
        self
    }

    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

fn encode(media: Media, json: &[u8]) -> Option<(Vec<u8>, &'static str)> {
    let value: Value = serde_json::from_slice(json).ok()?;
    match media {
        Media::Json => None,
        Media::Yaml => Some((serde_saphyr::to_string(&value).ok()?.into_bytes(), "application/yaml")),
        Media::Protobuf => Some((protobuf::from_json(&value)?, protobuf::MEDIA_TYPE)),
    }
}

impl From<Reply> for Response<Body> {
    fn from(reply: Reply) -> Self {
        let mut response = Response::new(reply.body);
        *response.status_mut() =
            StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if !reply.content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
        }
        let control = reply.caching.as_ref().map_or("no-cache, private", |caching| caching.control);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
        if let Some(caching) = &reply.caching {
            for name in caching.vary.split(", ") {
                headers.append(VARY, HeaderValue::from_static(name));
            }
            if !caching.etag.is_empty()
                && let Ok(etag) = HeaderValue::from_str(&caching.etag)
            {
                headers.insert(ETAG, etag);
            }
        }
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
