//! A reading of nodes, their pods and budgets at one moment, for the verbs that only look.

use evac_api::call::escape;
use evac_api::wire;
use evac_core::{Index, Node};
use evac_engine::watch::{Source, list};
use evac_engine::{Http, HttpError};

use crate::exit::Failure;
use crate::select::from_server;

/// Reads the pods of these nodes and all budgets into an index.
pub async fn look(http: &Http, nodes: Vec<Node>) -> Result<Index, Failure> {
    let mut index = Index::new();
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    index.reset_nodes(nodes);
    for name in names {
        let query = format!("fieldSelector={}", escape(&format!("spec.nodeName={name}")));
        let source = Source { path: "/api/v1/pods", query, page: 500 };
        let (pods, _) = list::<wire::Pod>(http, &source).await.map_err(|error| from_server(&error))?;
        index.reset_pods(&name, pods.into_iter().map(Into::into).collect());
    }
    let source = Source { path: "/apis/policy/v1/poddisruptionbudgets", query: String::new(), page: 500 };
    match list::<wire::Budget>(http, &source).await {
        Ok((budgets, _)) => index.reset_budgets(budgets.into_iter().map(Into::into).collect()),
        // Someone who may not read budgets still gets the rest of the answer.
        Err(HttpError::Status { status: 401 | 403, .. }) => {}
        Err(error) => return Err(from_server(&error)),
    }
    Ok(index)
}
