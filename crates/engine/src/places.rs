//! What other nodes have to offer to guests, for those who foretell a drain.

use evac_api::places::{self, Node, Pod};
use evac_core::{Fate, Index, Policy, assess};

use crate::http::{Http, HttpError};
use crate::watch::{Source, list};

/// Reads all nodes and what pods take of them, if one of these nodes has a guest that is to be moved. A drain does not: it asks the scheduler.
pub async fn look(
    http: &Http,
    index: &mut Index,
    policy: &Policy,
    nodes: &[String],
) -> Result<(), HttpError> {
    let now = http.clock().now();
    let moves = |node: &String| assess(index, policy, node, now).of_fate(Fate::Migrate).next().is_some();
    if !nodes.iter().any(moves) {
        return Ok(());
    }
    let source = |path: &'static str| Source { path: path.into(), query: String::new(), page: 500 };
    let (all, _) = list::<Node>(http, &source("/api/v1/nodes")).await?;
    let (pods, _) = list::<Pod>(http, &source("/api/v1/pods")).await?;
    let mut found = places::places(all, &pods, nodes);
    for node in nodes {
        let labels = found.nodes.get(node).map(|place| place.labels.clone()).unwrap_or_default();
        for pod in index.pods_on(node) {
            let like_host = index.instance_of(pod).is_some_and(|instance| instance.cpu_model == "host-model");
            if let Some(wants) = found.wants.get_mut(&pod.key).filter(|_| like_host) {
                wants.keep_host_model(&labels);
            }
        }
    }
    index.set_places(found);
    Ok(())
}
