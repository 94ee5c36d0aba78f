//! What is asked of simulated pods through the server, and who in this process answers for them.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::reply::Reply;

/// What a pod is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub namespace: String,
    pub pod: String,
    pub node: String,
    pub port: String,
    /// From its first slash on.
    pub path: String,
}

/// Answers for pods; nothing if the pod cannot be reached.
pub type Backend = Arc<dyn Fn(Asked) -> BoxFuture<'static, Option<Reply>> + Send + Sync>;
