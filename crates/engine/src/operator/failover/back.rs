//! A node of ours is Ready again: it is given back, or it is said why not.

use evac_api::failover::{self as requests, About};
use evac_api::wire::Named;
use evac_core::drain::ownership::MarkState;
use evac_core::failover::Suspect;

use super::owner;
use crate::failover::look_back;
use crate::http::{Http, parse};
use crate::nodes;

/// Ready, and marked by this role.
pub(super) fn is_ours(suspect: &Suspect, owner: &str) -> bool {
    suspect.is_ready() && matches!(&suspect.node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner)
}

fn wrong_machine(suspect: &Suspect) -> bool {
    suspect.record().is_some_and(|record| record.wrong_machine(suspect).is_some())
}

/// True if the node is in use again.
pub(super) async fn give_back(http: &Http, suspect: &Suspect) -> bool {
    let (node, owner) = (&suspect.node, owner(http));
    let about = About::node(&node.name, &node.uid);
    let now = || http.clock().calendar();
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
        // The memory that its agent switches off another machine. It goes when the policy is corrected and by a person's hand.
        Ok(Some((found, _))) if wrong_machine(&found) => {}
        Ok(Some((found, _))) => {
            // It may have changed hands since it was seen, or do so before this is written.
            if !is_ours(&found, &owner) {
                return false;
            }
            let forgotten = http.send(&requests::forget(&found.node)).await;
            if forgotten.and_then(|answer| parse::<Named>(&answer)).is_err() {
                return false;
            }
        }
        Ok(None) => {}
    }
    match nodes::undo_of(http, &node.name, &owner, false).await {
        Ok(None) => false,
        Ok(Some(undone)) => {
            let name = &node.name;
            let (warning, words) = match undone.left {
                None => (false, format!("node {name} is back and in use again")),
                Some(left) => (true, format!("node {name} is back, and {left}")),
            };
            let _ = http.send(&requests::event(&about, warning, "Returned", &words, now())).await;
            true
        }
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not give a node back");
            false
        }
    }
}
