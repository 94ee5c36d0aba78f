//! What other nodes have to offer to guests that are to be moved.

use evac_api::call::on_node;
use evac_api::places::{self, Node, Pod};
use evac_core::machines::Instance;
use evac_core::{Fate, Index, Key, Policy, assess};

use crate::http::{Http, HttpError};
use crate::watch::{Source, list};

/// How closely other nodes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Their labels and sizes, if a guest asks for certain nodes: enough to know who can never find a place. Costs one list, and one of pods for each node.
    Nodes,
    /// What pods take of them, too. Costs a list of all pods.
    Room,
}

/// Reads all nodes, if one of these nodes has a guest that is to be moved.
pub async fn look(
    http: &Http,
    index: &mut Index,
    policy: &Policy,
    nodes: &[String],
    depth: Depth,
) -> Result<(), HttpError> {
    let now = http.clock().now();
    let matters =
        |instance: &Key| depth == Depth::Room || index.instance(instance).is_some_and(Instance::is_choosy);
    let moves = |node: &String| {
        let assessment = assess(index, policy, node, now);
        assessment.of_fate(Fate::Migrate).any(|verdict| verdict.instance.as_ref().is_some_and(matters))
    };
    if !nodes.iter().any(moves) {
        return Ok(());
    }
    let source = |path: &'static str, query: String| Source { path: path.into(), query, page: 500 };
    let (all, _) = list::<Node, _>(http, &source("/api/v1/nodes", String::new()), Some).await?;
    let queries: Vec<String> = match depth {
        Depth::Room => vec![String::new()],
        Depth::Nodes => nodes.iter().filter(|node| moves(node)).map(|node| on_node(node)).collect(),
    };
    let mut pods: Vec<Pod> = Vec::new();
    for query in queries {
        pods.extend(list::<Pod, _>(http, &source("/api/v1/pods", query), Some).await?.0);
    }
    let found = places::around(index, all, &pods, nodes);
    index.set_places(found);
    Ok(())
}
