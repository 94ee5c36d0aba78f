//! Answers reviews of NodeMaintenance objects, from the server itself: an old view would let two pass for one node.

use evac_api::Call;
use evac_api::kubevirt::request::send;
use evac_api::kubevirt::review::{allow, deny};
use evac_api::maintenance::review::{self, Asked};
use evac_api::maintenance::{Object, request};
use evac_api::wire::List;
use evac_core::maintenance::admission::{Request, create, update};
use evac_core::maintenance::queue::is_control_plane;
use evac_core::maintenance::{Family, Id};
use serde_json::Value;

use super::quorum;
use crate::http::{Http, HttpError};
use crate::nodes;

/// The answer to a review; an error means that no decision could be made.
pub async fn answer(http: &Http, review: &Value) -> Result<Value, HttpError> {
    let asked = review::asked(review);
    let denial = if asked.is_leaving {
        None
    } else if asked.is_update {
        update(asked.old_node, asked.node, asked.on_uncordon, asked.allow_shutdown)
    } else {
        judge_new(http, &asked).await?
    };
    Ok(denial.map_or_else(|| allow(review), |denial| deny(review, &denial)))
}

async fn judge_new(
    http: &Http,
    asked: &Asked<'_>,
) -> Result<Option<evac_core::machines::admission::Denial>, HttpError> {
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
    let mut etcd = None;
    if let Some(node) = &node {
        others = others_for(http, asked.node).await?;
        lacking = lacking_right(http, asked).await?;
        if is_control_plane(node) {
            // What cannot be found out is not known, which is an answer too.
            etcd = quorum::look(http, asked.node).await.ok();
        }
    }
    Ok(create(&Request {
        node_name: asked.node,
        node: node.as_ref(),
        others: &others,
        etcd: etcd.as_ref(),
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

/// Whoever has a node drained must be allowed to drain it.
async fn lacking_right(http: &Http, asked: &Asked<'_>) -> Result<Option<String>, HttpError> {
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for right in review::rights(asked.node) {
        let body = review::access_review(asked.user, &right);
        let answer: Value = http.read(&send("POST", REVIEWS.to_owned(), "application/json", &body)).await?;
        if answer["status"]["allowed"] != true {
            return Ok(Some(review::words(&right)));
        }
    }
    Ok(None)
}
