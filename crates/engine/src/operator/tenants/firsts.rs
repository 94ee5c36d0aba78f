//! When the eviction of each instance was first seen: kept in a ConfigMap of the operator's own namespace, because whoever may edit an
//! instance may edit its annotations. Of two that claim to be the first the earlier one wins.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_api::kubevirt::wire::ConfigMap;
use evac_api::tenants::{FIRSTS, change_firsts, create_firsts, read_firsts};
use evac_apimachinery::backoff::Backoff;
use evac_core::Uid;
use evac_core::tenants::First;
use serde_json::{Value, json};

use crate::http::{Http, HttpError, Patience, parse};

pub(in crate::operator) type Firsts = BTreeMap<Uid, First>;

/// How often the server is asked before the operator goes on without.
const PATIENCE: Patience =
    Patience { tries: 4, backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(1)) };

fn passes<T>(result: &Result<T, HttpError>) -> bool {
    result.as_ref().is_err_and(HttpError::is_transient)
}

/// Everything that is kept; nothing if it cannot be read. A deadline that may be edited is better than none: no tenant may hold the host because
/// this is missing.
pub(super) async fn read_all(http: &Http) -> Firsts {
    http.try_again(PATIENCE, || read(http), passes).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the ConfigMap {FIRSTS} cannot be read: deadlines of tenants may be rolled back");
        Firsts::new()
    })
}

async fn read(http: &Http) -> Result<Firsts, HttpError> {
    match http.read::<ConfigMap>(&read_firsts(http.home())).await {
        Ok(map) => {
            let kept = map.data.into_iter();
            Ok(kept.filter_map(|(uid, text)| Some((Uid::from(uid), First::read(&text)?))).collect())
        }
        Err(error) if error.is_not_found() => Ok(Firsts::new()),
        Err(error) => Err(error),
    }
}

/// Keeps a first sight, unless an earlier one is kept already, and removes those of instances that are gone. The answer is what holds; where
/// it cannot be written it holds as long as this process leads.
pub(super) async fn keep(http: &Http, uid: &Uid, first: First, gone: &[Uid]) -> First {
    http.try_again(PATIENCE, || try_keep(http, uid, first, gone), passes).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the ConfigMap {FIRSTS} cannot be written: deadlines of tenants may be rolled back");
        first
    })
}

async fn try_keep(http: &Http, uid: &Uid, first: First, gone: &[Uid]) -> Result<First, HttpError> {
    let known = read(http).await?;
    let first = known.get(uid).map_or(first, |known| known.earlier(first));
    let mut entries = json!({uid.text().as_str(): first.text()});
    for uid in gone.iter().filter(|uid| known.contains_key(uid)) {
        entries[uid.text().as_str()] = Value::Null;
    }
    change(http, &entries).await.map(|()| first)
}

/// An entry that stayed would be taken for the next eviction's, so this is tried until it is gone.
pub(super) async fn forget(http: &Http, uid: &Uid) -> Result<(), HttpError> {
    let known = match read(http).await {
        // What may not be read is not read next time either.
        Err(error) if error.is_forbidden() => return Ok(()),
        known => known?,
    };
    if !known.contains_key(uid) {
        return Ok(());
    }
    change(http, &json!({uid.text().as_str(): null})).await
}

async fn change(http: &Http, entries: &Value) -> Result<(), HttpError> {
    let mut answer = http.send(&change_firsts(http.home(), entries)).await?;
    if answer.status == 404 {
        answer = http.send(&create_firsts(http.home(), entries)).await?;
    }
    parse::<Value>(&answer).map(|_| ())
}
