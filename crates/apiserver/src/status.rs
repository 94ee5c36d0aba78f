//! Failure answers: the `Status` object with the code, reason and details that Kubernetes clients test for.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

/// A refused or failed request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    pub reason: Cow<'static, str>,
    pub message: String,
    /// Boxed, because most results carry no error and should be small.
    pub details: Box<Details>,
    /// Where a list may go on although it is no longer consistent.
    pub continue_token: Option<String>,
    /// The answer has `details` although there is nothing in them: refusals that come from the routing of
    /// requests, before any resource is involved.
    pub from_routing: bool,
    /// The answer is a line of text and not a `Status`: nobody is in charge of the path.
    pub plain: bool,
    /// What was noticed about the request before it was refused.
    pub warnings: Vec<String>,
}

/// `Status.details`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// One entry of `Status.details.causes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What is wrong with one field, in the words kube-apiserver uses for it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// Path such as `spec.containers[0].name`.
    pub field: String,
    /// The offending value as it is shown to the user; `None` where the message has no place for it.
    pub value: Option<Value>,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
}

impl FieldErrorKind {
    /// The machine-readable cause (`FieldValueRequired`, …).
    pub const fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// With such a mistake in an object, the rules of its definition are not evaluated.
    pub const fn hides_rules(self) -> bool {
        matches!(
            self,
            Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid
        )
    }

    const fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
        }
    }
}

impl FieldError {
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value, detail: detail.into() }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// A value outside a closed list, with the list.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, valid: &[&str]) -> Self {
        let list = valid.iter().map(|v| format!("\"{v}\"")).collect::<Vec<_>>().join(", ");
        Self::new(
            FieldErrorKind::NotSupported,
            field,
            Some(value.into()),
            format!("supported values: {list}"),
        )
    }

    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} bytes"))
    }

    /// The message without the field in front, as it stands in a cause.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&match value {
                Value::String(s) => quoted(s),
                other => other.to_string(),
            });
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// A text in quotes, with what cannot be printed written as Go writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            // Writing to a string does not fail.
            c if c.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Which resource an error speaks of.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub group: &'a str,
    /// The plural resource name for most errors, the kind for `Invalid`.
    pub kind: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    /// `deployments.apps`, or `pods` in the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.kind.to_owned(),
            ..Details::default()
        }
    }
}

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: Box::default(),
            continue_token: None,
            from_routing: false,
            plain: false,
            warnings: Vec::new(),
        }
    }

    /// A refusal by the routing of requests.
    pub fn routing(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { from_routing: true, ..Self::new(code, reason, message) }
    }

    /// A failure without a reason that clients could act on, as of an error nobody translated.
    pub fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    fn about(code: u16, reason: &'static str, message: String, about: About<'_>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message,
            details: Box::new(about.details()),
            continue_token: None,
            from_routing: false,
            plain: false,
            warnings: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details.causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.retry_after_seconds = seconds;
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn not_found(about: About<'_>) -> Self {
        Self::about(404, "NotFound", format!("{} \"{}\" not found", about.qualified(), about.name), about)
    }

    /// The path itself leads nowhere.
    pub fn no_such_path() -> Self {
        Self::routing(404, "NotFound", "the server could not find the requested resource")
    }

    /// The path is in nobody's charge.
    pub fn no_such_page() -> Self {
        Self { plain: true, ..Self::new(404, "NotFound", "404 page not found\n") }
    }

    pub fn method_not_allowed() -> Self {
        Self::routing(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub fn already_exists(about: About<'_>) -> Self {
        Self::about(
            409,
            "AlreadyExists",
            format!("{} \"{}\" already exists", about.qualified(), about.name),
            about,
        )
    }

    pub fn conflict(about: About<'_>, why: &str) -> Self {
        Self::about(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.qualified(), about.name),
            about,
        )
    }

    /// The object was changed since the caller read it.
    pub fn modified(about: About<'_>) -> Self {
        Self::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(about: About<'_>, why: &str) -> Self {
        let message = if about.name.is_empty() {
            format!("{} is forbidden: {why}", about.qualified())
        } else {
            format!("{} \"{}\" is forbidden: {why}", about.qualified(), about.name)
        };
        Self::about(403, "Forbidden", message, about)
    }

    /// Validation failed; `about.kind` is the kind, not the resource.
    pub fn invalid(about: About<'_>, errors: &[FieldError]) -> Self {
        let list = match errors {
            [one] => one.to_string(),
            many => {
                let joined = many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("[{joined}]")
            }
        };
        let mut error = Self::about(
            422,
            "Invalid",
            format!("{} \"{}\" is invalid: {list}", about.qualified(), about.name),
            about,
        );
        for e in errors {
            error = error.with_cause(e.kind.cause(), e.body(), &e.field);
        }
        error
    }

    /// The wanted resource version is compacted away; list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(retry_after)
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = message.to_string();
        Self::new(500, "InternalError", format!("Internal error occurred: {text}")).with_cause("", text, "")
    }

    pub fn timeout(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {}", message.into())).retry_after(retry_after)
    }

    /// Outside the profile of this server.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(501, "NotImplemented", message)
    }

    /// The `Status` object.
    pub fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.continue_token {
            status["metadata"] = json!({"continue": token});
        }
        if self.from_routing || *self.details != Details::default() {
            status["details"] = serde_json::to_value(&self.details).unwrap_or_default();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validation_failure_names_each_field_once_in_the_message_and_once_as_a_cause() {
        let about = About { group: "apps", kind: "Deployment", name: "web" };
        let error = ApiError::invalid(
            about,
            &[
                FieldError::required("spec.selector", ""),
                FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            ],
        );
        assert_eq!(
            error.message,
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, \
             spec.replicas: Invalid value: -1: must be greater than or equal to 0]"
        );
        assert_eq!(error.details.causes[1].reason, "FieldValueInvalid");
        assert_eq!(error.body()["details"]["causes"][0]["field"], "spec.selector");
    }
}
