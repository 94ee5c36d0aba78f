//! Answers reviews of failover policies.

use evac_api::failover::review::{asked, rights};
use evac_api::kubevirt::review::{allow, deny};
use evac_core::failover::admission;
use serde_json::Value;

use crate::http::{Http, HttpError};
use crate::operator::access;

/// The answer to a review; an error means that no decision could be made.
pub async fn answer(http: &Http, review: &Value) -> Result<Value, HttpError> {
    let asked = asked(review);
    if asked.is_idle {
        return Ok(allow(review));
    }
    if let Some(denial) = admission::content(&asked.policy, http.home()) {
        return Ok(deny(review, &denial));
    }
    let Ok(policy) = &asked.policy else { return Ok(allow(review)) };
    let lacking = access::lacking(http, asked.user, &rights(policy)).await?;
    let user = asked.user["username"].as_str().unwrap_or_default();
    let denial = admission::author(user, &policy.name, lacking.as_deref());
    Ok(denial.map_or_else(|| allow(review), |denial| deny(review, &denial)))
}
