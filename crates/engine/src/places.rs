//! What other nodes have to offer to guests that are to be moved.

use evac_api::call::on_node;
use evac_api::places::{Node, PlacesReader, Pod, keep_host_models};
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
    let mut reader = PlacesReader::new(Some(nodes));
    let (all, _) = list::<Node, _>(http, &source("/api/v1/nodes", String::new()), Some).await?;
    for node in all {
        reader.node(node);
    }
    let queries: Vec<String> = match depth {
        Depth::Room => vec![String::new()],
        Depth::Nodes => nodes.iter().filter(|node| moves(node)).map(|node| on_node(node)).collect(),
    };
    for query in queries {
        let (pods, _) = list::<Pod, _>(http, &source("/api/v1/pods", query), Some).await?;
        for pod in pods {
            reader.pod(pod);
        }
    }
    let mut found = match depth {
        Depth::Room => reader.finish(),
        Depth::Nodes => reader.finish_without_company(),
    };
    keep_host_models(&mut found, index, nodes.iter().flat_map(|node| index.pods_on(node)));
    index.set_places(found);
    Ok(())
}
