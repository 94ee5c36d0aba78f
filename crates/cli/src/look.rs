//! A reading of nodes, their pods, DaemonSets and budgets at one moment, for the verbs that only look.

use std::collections::BTreeSet;
use std::time::Duration;

use evac_api::call::on_node;
use evac_api::wire;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::claim::ANSWER_WITHIN;
use evac_core::machines::Kind;
use evac_core::{Fact, Index, Key, Node};
use evac_engine::watch::{Source, facts, list};
use evac_engine::{Http, HttpError, guests, life, nodes};
use futures::future::join_all;

use crate::exit::Failure;
use crate::output;
use crate::select::from_server;

/// Asks the drain of a node whether it is still at work; a person who has to wait for that is told.
pub async fn ask(http: &Http, node: &str) -> Option<Fact> {
    let clock = http.clock();
    let answer = life::ask(http, node);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        fact = &mut answer => return fact,
        () = clock.sleep(TELL_AFTER) => {}
    }
    output::talk(&format!(
        "node {node}: its drain does not answer; waiting for it up to {} s",
        ANSWER_WITHIN.as_secs()
    ));
    answer.await
}

/// How long to wait before saying so.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Reads the pods of these nodes, what they belong to, who drains them, and all budgets into an index.
pub async fn look(http: &Http, chosen: Vec<Node>) -> Result<Index, Failure> {
    let mut index = Index::new();
    let marked: Vec<String> =
        chosen.iter().filter(|node| node.mark.is_some()).map(|node| node.name.clone()).collect();
    let names: Vec<String> = chosen.iter().map(|node| node.name.clone()).collect();
    index.reset_nodes(chosen, &ListedAt::default());
    let claims = marked.iter().map(|name| ask(http, name));
    for fact in join_all(claims).await.into_iter().flatten() {
        index.apply(fact);
    }
    for name in &names {
        let query = on_node(name);
        let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
        let (pods, version) =
            list(http, &source, facts::<wire::Pod>()).await.map_err(|error| from_server(&error))?;
        let at = ListedAt { version, rewound: false };
        index.reset_on(name, pods, &at);
    }
    let daemon_sets: BTreeSet<Key> = index.pods().filter_map(evac_core::Pod::daemon_set).collect();
    for key in daemon_sets {
        let existence = nodes::daemon_set(http, &key).await;
        index.apply(Fact::DaemonSet(key, existence));
    }
    guests::look(http, &mut index, &names).await.map_err(|error| from_server(&error))?;
    let source =
        Source { path: "/apis/policy/v1/poddisruptionbudgets".into(), query: String::new(), page: 500 };
    match list(http, &source, facts::<wire::Budget>()).await {
        Ok((budgets, version)) => {
            let at = ListedAt { version, rewound: false };
            index.reset(Kind::Budget, budgets, &at);
        }
        // A user who may not read budgets still gets the rest of the answer.
        Err(HttpError::Status { status: 401 | 403, .. }) => {}
        Err(error) => return Err(from_server(&error)),
    }
    Ok(index)
}
