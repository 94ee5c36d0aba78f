//! Answers reviews of NodeMaintenance objects, from the server itself: an old view would let two pass for one node.

use evac_api::Call;
use evac_api::kubevirt::review::{allow, deny};
use evac_api::maintenance::review::{self, Asked};
use evac_api::maintenance::{Object, request};
use evac_api::wire::List;
use evac_core::drain::quorum::is_control_plane;
use evac_core::machines::admission::Denial;
use evac_core::maintenance::admission::{Change, Request, create, update};
use evac_core::maintenance::{Family, Id};
use serde_json::Value;

use super::quorum;
use crate::http::{Http, HttpError};
use crate::nodes;
use crate::operator::access;

/// The answer to a review; an error means that no decision could be made.
pub async fn answer(http: &Http, review: &Value) -> Result<Value, HttpError> {
    let asked = review::asked(review);
    let denial = if asked.is_leaving {
        None
    } else if asked.is_update {
        judge_change(http, &asked).await?
    } else {
        judge_new(http, &asked).await?
    };
    Ok(denial.map_or_else(|| allow(review), |denial| deny(review, &denial)))
}

async fn judge_change(http: &Http, asked: &Asked<'_>) -> Result<Option<Denial>, HttpError> {
    let lacking = match asked.gained.as_slice() {
        [] => None,
        _ => access::lacking(http, asked.user, &review::rights(asked.node)).await?,
    };
    Ok(update(&Change {
        old_node: asked.old_node,
        new_node: asked.node,
        on_uncordon: asked.on_uncordon,
        allow_shutdown: asked.allow_shutdown,
        gained: &asked.gained,
        lacking: lacking.as_deref(),
        user: asked.user["username"].as_str().unwrap_or_default(),
    }))
}

async fn judge_new(http: &Http, asked: &Asked<'_>) -> Result<Option<Denial>, HttpError> {
    let node = match asked.node {
        "" => None,
        name => match nodes::get(http, name).await {
            Ok(node) => Some(node),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        },
    };
    let mut others = Vec::new();
    let mut lacking = None;
    let mut verdict = None;
    if let Some(node) = &node {
        others = others_for(http, asked.node).await?;
        lacking = access::lacking(http, asked.user, &review::rights(asked.node)).await?;
        if is_control_plane(node) {
            // What cannot be found out is not known, which is an answer too.
            verdict = Some(quorum::ask(http, asked.node).await);
        }
    }
    Ok(create(&Request {
        node_name: asked.node,
        node: node.as_ref(),
        others: &others,
        quorum: verdict.as_ref(),
        may_touch_control_plane: asked.may_touch_control_plane,
        lacking: lacking.as_deref(),
        user: asked.user["username"].as_str().unwrap_or_default(),
        on_uncordon: asked.on_uncordon,
        allow_shutdown: asked.allow_shutdown,
    }))
}

pub(super) async fn others_for(http: &Http, node: &str) -> Result<Vec<Id>, HttpError> {
    let mut others = Vec::new();
    for family in Family::ALL {
        match http.read::<List<Object>>(&Call::get(request::collection(family))).await {
            Ok(list) => others.extend(
                list.items
                    .into_iter()
                    .filter(|object| object.spec.node_name == node)
                    .map(|object| Id { family, name: object.metadata.name }),
            ),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(others)
}
