//! A node of ours is Ready again: it is given back, or it is said why not.

use evac_api::failover::{self as requests, About};
use evac_api::wire::Named;
use evac_core::failover::Suspect;
use evac_core::ownership::MarkState;

use crate::failover::look_back;
use crate::http::{Http, parse};
use crate::nodes;

/// Ready, and marked by this role.
pub(super) fn is_ours(suspect: &Suspect, owner: &str) -> bool {
    suspect.is_ready() && matches!(&suspect.node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner)
}

/// True if the node is in use again.
pub(super) async fn give_back(http: &Http, suspect: &Suspect) -> bool {
    let node = &suspect.node;
    let about = About::node(&node.name, &node.uid);
    let now = || http.clock().now();
    match look_back(http, &node.name).await {
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not look at a node that came back");
            return false;
        }
        Ok(Some((_, doubts))) if !doubts.is_empty() => {
            for doubt in doubts {
                let words = doubt.words(&node.name);
                tracing::warn!(node = node.name, words);
                let call = requests::event(&about, true, "StaleGuest", &words, now());
                // The doubt stays and is told again.
                let _ = http.send(&call).await;
            }
            return false;
        }
        Ok(Some((found, _))) => {
            let forgotten = http.send(&requests::forget(&node.name, &found.node.uid)).await;
            if forgotten.and_then(|answer| parse::<Named>(&answer)).is_err() {
                return false;
            }
        }
        Ok(None) => {}
    }
    match nodes::undo(http, &node.name, false, false).await {
        Ok(_) => {
            let words = format!("node {} is back and in use again", node.name);
            let _ = http.send(&requests::event(&about, false, "Returned", &words, now())).await;
            true
        }
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not give a node back");
            false
        }
    }
}
