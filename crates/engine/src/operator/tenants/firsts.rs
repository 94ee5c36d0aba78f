//! When the eviction of each instance was first seen: kept in a ConfigMap of the operator's own namespace, because whoever may edit an
//! instance may edit its annotations. Of two that claim to be the first the earlier one wins.

use std::collections::BTreeMap;

use evac_api::kubevirt::wire::ConfigMap;
use evac_api::tenants::{FIRSTS, change_firsts, create_firsts, read_firsts};
use evac_core::Uid;
use evac_core::tenants::First;
use serde_json::{Value, json};

use crate::http::{Http, HttpError, parse};

pub(super) type Firsts = BTreeMap<Uid, First>;

/// Everything that is kept. An operator that may not read it goes on with what it sees itself: a deadline that may be edited is better than
/// none.
pub(super) async fn read(http: &Http) -> Result<Firsts, HttpError> {
    match http.read::<ConfigMap>(&read_firsts(http.home())).await {
        Ok(map) => {
            let kept = map.data.into_iter();
            Ok(kept.filter_map(|(uid, text)| Some((Uid(uid), First::read(&text)?))).collect())
        }
        Err(error) if error.is_not_found() => Ok(Firsts::new()),
        Err(error) if error.is_forbidden() => {
            tracing::warn!(%error, "the ConfigMap {FIRSTS} cannot be used; deadlines of tenants can be rolled back while no operator runs");
            Ok(Firsts::new())
        }
        Err(error) => Err(error),
    }
}

/// Keeps a first sight, unless an earlier one is kept already, and removes those of instances that are gone. The answer is what holds.
pub(super) async fn keep(http: &Http, uid: &Uid, first: First, gone: &[Uid]) -> Result<First, HttpError> {
    let known = read(http).await?;
    let first = known.get(uid).map_or(first, |known| known.earlier(first));
    let mut entries = json!({uid.0.as_str(): first.text()});
    for uid in gone.iter().filter(|uid| known.contains_key(uid)) {
        entries[uid.0.as_str()] = Value::Null;
    }
    change(http, &entries).await.map(|()| first)
}

pub(super) async fn forget(http: &Http, uid: &Uid) -> Result<(), HttpError> {
    if !read(http).await?.contains_key(uid) {
        return Ok(());
    }
    change(http, &json!({uid.0.as_str(): null})).await
}

async fn change(http: &Http, entries: &Value) -> Result<(), HttpError> {
    let mut answer = http.send(&change_firsts(http.home(), entries)).await?;
    if answer.status == 404 {
        answer = http.send(&create_firsts(http.home(), entries)).await?;
    }
    match parse::<Value>(&answer) {
        Ok(_) => Ok(()),
        // It was said when it was read.
        Err(error) if error.is_forbidden() => Ok(()),
        Err(error) => Err(error),
    }
}
