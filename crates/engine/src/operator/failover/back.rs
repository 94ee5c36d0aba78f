//! A node of ours is Ready again: it is given back, or it is said why not.

use evac_core::action::Event;
use evac_core::drain::give_back::Giver;
use evac_core::failover::{Return, Suspect};

use super::owner;
use crate::events::publish_now;
use crate::failover::forget;
use crate::http::Http;
use crate::nodes;

/// True if the node is in use again. It may have changed hands since it was seen, or do so before this is written.
pub(super) async fn give_back(http: &Http, suspect: &Suspect) -> bool {
    let (node, owner) = (&suspect.node, owner(http));
    match forget(http, &node.name, Giver::Owner(&owner), false).await {
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not look at a node that came back");
            return false;
        }
        Ok(Some(Return::InDoubt(doubts))) => {
            for doubt in doubts {
                let words = doubt.words(&node.name);
                tracing::warn!(node = node.name, words);
                // The doubt stays and is told again.
                publish_now(http, Event::warning(node, "StaleGuest", words)).await;
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
            publish_now(http, Event { warning, ..Event::normal(node, "Returned", words) }).await;
            true
        }
        Err(error) => {
            tracing::debug!(node = node.name, %error, "could not give a node back");
            false
        }
    }
}
