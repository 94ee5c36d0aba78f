//! A node of ours is Ready again: it is given back, or it is said why not.

use evac_api::failover::{self as requests, About};
use evac_core::drain::give_back::Giver;
use evac_core::failover::{Return, Suspect};

use super::owner;
use crate::failover::forget;
use crate::http::Http;
use crate::nodes;

/// True if the node is in use again. It may have changed hands since it was seen, or do so before this is written.
pub(super) async fn give_back(http: &Http, suspect: &Suspect) -> bool {
    let (node, owner) = (&suspect.node, owner(http));
    let about = About::node(&node.name, &node.uid);
    let now = || http.clock().calendar();
    match forget(http, &node.name, Giver::Owner(&owner), false).await {
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not look at a node that came back");
            return false;
        }
        Ok(Some(Return::InDoubt(doubts))) => {
            for doubt in doubts {
                let words = doubt.words(&node.name);
                tracing::warn!(node = node.name, words);
                let call = requests::event(&about, true, "StaleGuest", &words, now());
                // The doubt stays and is told again.
                let _ = http.send(&call).await;
            }
            return false;
        }
        Ok(Some(Return::NotTheirs)) => return false,
        Ok(Some(Return::Remembered | Return::Forgotten) | None) => {}
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
