//! Admission: what the cluster itself changes or refuses before an object is stored, and the webhooks
//! that others have registered.
//!
//! Mutation runs first (built-in rules, then mutating webhooks), validation last (validating webhooks).
//! A dry run goes through all of it; webhooks that have side effects on dry runs are refused, as
//! kube-apiserver does.

mod pods;
mod rules;
mod webhooks;

use std::sync::Arc;

use serde_json::Value;

use crate::identity::Identity;
use crate::kinds::Kind;
use crate::server::Api;
use crate::status::ApiError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What is about to happen.
pub struct Review<'a> {
    pub kind: &'a Kind,
    pub subresource: &'a str,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    pub identity: &'a Identity,
    pub dry_run: bool,
    pub old: Option<&'a Value>,
    /// The options of the request, as the review shows them to webhooks.
    pub options: Value,
}

/// Lets rules and mutating webhooks change an object; the answer is warnings for the caller.
pub async fn mutate(
    api: &Arc<Api>,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<Vec<String>, ApiError> {
    rules::apply(api, review, object)?;
    webhooks::mutate(api, review, object).await
}

/// Lets validating webhooks refuse; the answer is warnings for the caller.
pub async fn validate(
    api: &Arc<Api>,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    webhooks::validate(api, review, object).await
}
