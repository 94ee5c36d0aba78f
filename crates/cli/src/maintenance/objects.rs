//! Finds NodeMaintenance objects, whichever kinds of them the server knows.

use evac_api::Call;
use evac_api::maintenance::{Object, request};
use evac_api::wire::List;
use evac_core::cluster::natural::natural;
use evac_core::maintenance::{Family, Maintenance};
use evac_engine::{Http, HttpError};

use crate::exit::Failure;
use crate::select::from_server;

async fn of(http: &Http, family: Family) -> Result<Option<Vec<Maintenance>>, HttpError> {
    match http.read::<List<Object>>(&Call::get(request::collection(family))).await {
        Ok(list) => Ok(Some(list.items.into_iter().map(|object| object.of(family)).collect())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn unknown() -> Failure {
    Failure::error(
        "this cluster does not know NodeMaintenance; install the operator, or run `evac operator --install`",
    )
}

/// All objects, ordered by node; `None` where the server knows neither kind.
pub async fn known(http: &Http) -> Result<Option<Vec<Maintenance>>, HttpError> {
    let mut all: Option<Vec<Maintenance>> = None;
    for family in Family::ALL {
        if let Some(found) = of(http, family).await? {
            all.get_or_insert_default().extend(found);
        }
    }
    if let Some(all) = &mut all {
        all.sort_by(|a, b| natural(&a.node, &b.node).then_with(|| a.id.cmp(&b.id)));
    }
    Ok(all)
}

/// The same, where a cluster without them is a mistake.
pub async fn all(http: &Http) -> Result<Vec<Maintenance>, Failure> {
    known(http).await.map_err(|error| from_server(&error))?.ok_or_else(unknown)
}

/// The kind in which new objects are made: today's where there is a choice.
pub async fn family(http: &Http) -> Result<Family, Failure> {
    for family in [Family::Medik8s, Family::KubeVirt] {
        if of(http, family).await.map_err(|error| from_server(&error))?.is_some() {
            return Ok(family);
        }
    }
    Err(unknown())
}
