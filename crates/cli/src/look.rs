//! A reading of nodes, their pods, DaemonSets and budgets at one moment, for the verbs that only look.

use std::collections::BTreeSet;

use evac_api::call::escape;
use evac_api::wire;
use evac_core::{Fact, Index, Key, Node};
use evac_engine::watch::{Source, list};
use evac_engine::{Http, HttpError, guests, nodes};

use crate::exit::Failure;
use crate::select::from_server;

/// Reads the pods of these nodes, what they belong to, who drains them, and all budgets into an index.
pub async fn look(http: &Http, chosen: Vec<Node>) -> Result<Index, Failure> {
    let mut index = Index::new();
    let marked: Vec<String> =
        chosen.iter().filter(|node| node.mark.is_some()).map(|node| node.name.clone()).collect();
    let names: Vec<String> = chosen.iter().map(|node| node.name.clone()).collect();
    index.reset_nodes(chosen);
    for name in marked {
        if let Some(fact) = nodes::claim(http, &name).await {
            index.apply(fact);
        }
    }
    for name in &names {
        let query = format!("fieldSelector={}", escape(&format!("spec.nodeName={name}")));
        let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
        let (pods, _) = list::<wire::Pod>(http, &source).await.map_err(|error| from_server(&error))?;
        index.reset_pods(name, pods.into_iter().map(Into::into).collect());
    }
    let daemon_sets: BTreeSet<Key> = index.pods().filter_map(evac_core::Pod::daemon_set).collect();
    for key in daemon_sets {
        let existence = nodes::daemon_set(http, &key).await;
        index.apply(Fact::DaemonSet(key, existence));
    }
    guests::look(http, &mut index, &names).await.map_err(|error| from_server(&error))?;
    let source =
        Source { path: "/apis/policy/v1/poddisruptionbudgets".into(), query: String::new(), page: 500 };
    match list::<wire::Budget>(http, &source).await {
        Ok((budgets, _)) => index.reset_budgets(budgets.into_iter().map(Into::into).collect()),
        // Someone who may not read budgets still gets the rest of the answer.
        Err(HttpError::Status { status: 401 | 403, .. }) => {}
        Err(error) => return Err(from_server(&error)),
    }
    Ok(index)
}
