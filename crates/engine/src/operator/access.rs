//! Whether a user has the rights that the operator would use for them.

use evac_api::access::Right;
use evac_api::kubevirt::request::send;
use serde_json::Value;

use crate::http::{Http, HttpError};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The first right that a user lacks, in words. `user` is the `userInfo` of an admission review.
pub(super) async fn lacking(
    http: &Http,
    user: &Value,
    rights: &[Right<'_>],
) -> Result<Option<String>, HttpError> {
    for right in rights {
        let call = send("POST", REVIEWS.to_owned(), "application/json", &right.review(user));
        let answer: Value = http.read(&call).await?;
        if answer["status"]["allowed"] != true {
            return Ok(Some(right.words()));
        }
    }
    Ok(None)
}
