//! Takes back what a drain asked for about virtual machines: marks on instances are cleared and its migrations aborted. Which of them, and in
//! which order, is decided in [`evac_core::drain::give_back`].

use std::time::Duration;

use evac_api::call::{self, escape, labelled};
use evac_api::kubevirt::{request, wire};
use evac_api::{Answer, Call};
use evac_apimachinery::backoff::Backoff;
use evac_core::Key;
use evac_core::component;
use evac_core::drain::give_back::{Whose, is_marked, is_taken_back};
use evac_core::machines::remains::Remains;
use evac_core::machines::{Instance, Kind, Migration, names};
use serde_json::json;

use crate::guests;
use crate::http::{Http, HttpError, Patience};
use crate::watch::{Source, list};

/// What was taken back, and what could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CalledBack {
    /// Instances whose migration was aborted.
    pub aborted: Vec<Key>,
    /// Instances whose mark was cleared.
    pub unmarked: Vec<Key>,
    pub left: Vec<Remains>,
}

/// Aborts migrations; `done` is what was taken back before. A cluster without virtual machines has nothing to take back.
pub(crate) async fn abort_migrations(
    http: &Http,
    node: &str,
    whose: Whose<'_>,
    dry_run: bool,
    mut done: CalledBack,
) -> Result<CalledBack, HttpError> {
    let query = match whose {
        Whose::Owner(_) | Whose::Drains => labelled(names::DRAIN),
        Whose::Everybody => String::new(),
    };
    let ours =
        |one: wire::Migration| Some(Migration::from(one)).filter(|one| is_taken_back(one, node, whose));
    let source = Source { path: guests::MIGRATIONS.into(), query, page: 500 };
    let found = match list(http, &source, ours).await {
        Ok((found, _)) => found,
        Err(error) if error.is_not_found() => return Ok(done),
        Err(error) if error.is_forbidden() => {
            done.left.push(Remains::Unread { what: "migrations", why: error.to_string() });
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    for migration in found {
        let why = match http.send(&call::delete(&(&migration).into(), None, dry_run)).await {
            Ok(answer) if answer.is_success() => {
                done.aborted.push(migration.instance);
                continue;
            }
            // One that is over or gone meanwhile needs no abort.
            Ok(answer) if matches!(answer.status, 404 | 409) => continue,
            Ok(answer) => answer.failure().message,
            Err(error) => error.to_string(),
        };
        done.left.push(Remains::Migration { migration: migration.key, why });
    }
    Ok(done)
}

/// Clears the marks of the instances on a node.
pub(crate) async fn clear_marks(http: &Http, node: &str, dry_run: bool) -> Result<CalledBack, HttpError> {
    let mut done = CalledBack::default();
    let here =
        Source { path: guests::INSTANCES.into(), query: guests::on_nodes(&[node.to_owned()]), page: 500 };
    let marked =
        |one: wire::VirtualMachineInstance| Some(Instance::from(one)).filter(|one| is_marked(one, node));
    let instances = match list(http, &here, marked).await {
        Ok((instances, _)) => instances,
        Err(error) if error.is_not_found() => return Ok(done),
        Err(error) if error.is_forbidden() => {
            done.left.push(Remains::Unread { what: "marked virtual machines", why: error.to_string() });
            return Ok(done);
        }
        Err(error) => return Err(error),
    };
    for instance in instances {
        let why = match patiently(http, &unmark(&instance.key, node, dry_run)).await {
            Ok(answer) if answer.is_success() => {
                done.unmarked.push(instance.key);
                continue;
            }
            Ok(answer) => why(&answer),
            Err(error) => error.to_string(),
        };
        if is_still_marked(http, &instance.key, node).await {
            done.left.push(Remains::Mark { instance: instance.key, node: node.to_owned(), why });
        }
    }
    Ok(done)
}

/// Whether it still is: it may have arrived or ended meanwhile. What cannot be read is taken to be as it was.
async fn is_still_marked(http: &Http, instance: &Key, node: &str) -> bool {
    let path = request::object_path(Kind::Instance, instance);
    match http.read::<wire::VirtualMachineInstance>(&Call::get(path)).await {
        Ok(found) => is_marked(&Instance::from(found), node),
        Err(error) => !error.is_not_found(),
    }
}

/// Whoever answers this reads and writes; that somebody else wrote in between is told as a conflict or as a failure of its own.
async fn patiently(http: &Http, call: &Call) -> Result<Answer, HttpError> {
    let passes = |sent: &Result<Answer, HttpError>| {
        sent.as_ref().is_ok_and(|answer| matches!(answer.status, 409 | 500))
    };
    http.try_again(PATIENCE, || http.send(call), passes).await
}

const PATIENCE: Patience =
    Patience { tries: 5, backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)) };

fn why(answer: &Answer) -> String {
    let message = answer.failure().message;
    match answer.status {
        404 | 405 | 501 => "this virt-api cannot clear it, which KubeVirt's can since v1.8".into(),
        status if component::is_strange(status, &message) => {
            component::strange_words(component::VIRT_API, status, &message)
        }
        status => format!("virt-api, or the API server before it, answered {status}: {message}"),
    }
}

fn unmark(instance: &Key, node: &str, dry_run: bool) -> Call {
    let mut body = json!({"evacuationNodeName": node});
    if dry_run {
        body["dryRun"] = json!(["All"]);
    }
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/{}/{}/evacuate/cancel",
        escape(&instance.namespace),
        request::plural(Kind::Instance),
        escape(&instance.name)
    );
    request::send("PUT", path, "application/json", &body)
}
