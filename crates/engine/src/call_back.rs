//! Takes back what a drain asked for about virtual machines: its migrations are aborted and marks on instances cleared.

use std::time::Duration;

use evac_api::call::{self, escape};
use evac_api::kubevirt::{request, wire};
use evac_api::{Answer, Call};
use evac_core::Key;
use evac_core::machines::{Instance, Kind, Migration, names};
use serde_json::json;

use crate::guests;
use crate::http::{Http, HttpError};
use crate::watch::{Source, list};

/// What was taken back, and what could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CalledBack {
    /// Instances whose migration was aborted.
    pub aborted: Vec<Key>,
    /// Instances whose mark was cleared.
    pub unmarked: Vec<Key>,
    /// Sentences about what is left.
    pub left: Vec<String>,
}

/// Whose migrations are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of one drainer.
    Owner(&'a str),
    /// Those of any drain.
    Drains,
    /// Also those that the control plane made because of a taint or an eviction.
    Everybody,
}

/// Clears the marks of the instances on a node, and aborts the unfinished migrations by which these wanted to empty it. A
/// cluster without virtual machines has nothing to take back.
pub async fn call_back(
    http: &Http,
    node: &str,
    whose: Whose<'_>,
    dry_run: bool,
) -> Result<CalledBack, HttpError> {
    let mut done = CalledBack::default();
    // First the marks: a migration that is aborted while its instance is still marked is followed by another one.
    clear_marks(http, node, dry_run, &mut done).await?;
    let query = match whose {
        Whose::Owner(_) | Whose::Drains => format!("labelSelector={}", escape(names::DRAIN)),
        Whose::Everybody => String::new(),
    };
    let ours =
        match list::<wire::Migration>(http, &Source { path: guests::MIGRATIONS.into(), query, page: 500 })
            .await
        {
            Ok((ours, _)) => ours,
            Err(error) if error.is_not_found() => return Ok(done),
            Err(error) if error.is_forbidden() => {
                done.left.push(format!("migrations could not be looked for: {error}"));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
    for migration in ours.into_iter().map(Migration::from).filter(|one| !one.phase.is_final()) {
        let says = |name: &str| migration.annotations.get(name).map(String::as_str);
        let same_owner = match whose {
            Whose::Owner(owner) => says(names::DRAIN) == Some(owner),
            Whose::Drains | Whose::Everybody => true,
        };
        if says(names::EVACUATION_MIGRATION) != Some(node) || !same_owner || migration.deleting {
            continue;
        }
        let answer = http.send(&call::abort(&migration.key, &migration.uid, dry_run)).await?;
        // One that is over or gone meanwhile needs no abort.
        if answer.is_success() {
            done.aborted.push(migration.instance);
        } else if !matches!(answer.status, 404 | 409) {
            done.left.push(format!("migration {}: {}", migration.key, answer.failure().message));
        }
    }
    Ok(done)
}

async fn clear_marks(http: &Http, node: &str, dry_run: bool, done: &mut CalledBack) -> Result<(), HttpError> {
    let here =
        Source { path: guests::INSTANCES.into(), query: guests::on_nodes(&[node.to_owned()]), page: 500 };
    let instances = match list::<wire::VirtualMachineInstance>(http, &here).await {
        Ok((instances, _)) => instances,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) if error.is_forbidden() => {
            done.left.push(format!("marked instances could not be looked for: {error}"));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for instance in instances.into_iter().map(Instance::from) {
        if instance.evacuation_node.as_deref() != Some(node) {
            continue;
        }
        let answer = patiently(http, &unmark(&instance.key, node, dry_run)).await?;
        if answer.is_success() {
            done.unmarked.push(instance.key);
        } else {
            done.left.push(format!("instance {} keeps its mark: {}", instance.key, why(&answer)));
        }
    }
    Ok(())
}

/// Whoever answers this reads and writes; that somebody else wrote in between is told as a conflict or as a failure of its own.
async fn patiently(http: &Http, call: &Call) -> Result<Answer, HttpError> {
    for number in 1..TRIES {
        let answer = http.send(call).await?;
        if !matches!(answer.status, 409 | 500) {
            return Ok(answer);
        }
        http.clock().sleep(PAUSE * number).await;
    }
    http.send(call).await
}

const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

fn why(answer: &Answer) -> String {
    match answer.status {
        404 | 405 | 501 => "this server cannot clear it, which KubeVirt can since v1.8".into(),
        _ => answer.failure().message,
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
