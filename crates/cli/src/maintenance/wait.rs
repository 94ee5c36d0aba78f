//! Waits until maintenances are where they should be, by watching them, and says on the way what is in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::maintenance::{Object, request};
use evac_core::maintenance::status::{NOT_TAKEN_BACK, PERMISSION_IGNORED};
use evac_core::maintenance::{FINALIZER, Family, Id, Maintenance, Phase};
use evac_engine::Http;
use evac_engine::watch::{Feed, Report, Source, follow};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::show::progress;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Empty,
    Gone,
}

/// After this long without a sign of an operator people should know.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

enum News {
    /// All of one kind.
    All(Family, Vec<Maintenance>),
    Seen(Box<Maintenance>),
    Gone(Id),
    Failed(Failure),
}

struct Waiting {
    goal: Goal,
    left: BTreeSet<Id>,
    said: BTreeMap<Id, String>,
    taken_up: BTreeSet<Id>,
    ends: Vec<Exit>,
}

/// Returns when all are there, cannot get there, or the time is over.
pub async fn wait_for(
    http: &Http,
    wanted: Vec<Id>,
    goal: Goal,
    timeout: Option<Duration>,
) -> Result<Exit, Failure> {
    let clock = http.clock();
    let (sender, mut inbox) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for family in wanted.iter().map(|id| id.family).collect::<BTreeSet<_>>() {
        let source = Source { path: request::collection(family).into(), query: String::new(), page: 500 };
        let wrap = move |report: Report<Object>| match report {
            Report::Listed(list, _) => {
                News::All(family, list.into_iter().map(|object| object.of(family)).collect())
            }
            Report::Seen(object) => News::Seen(Box::new(object.of(family))),
            Report::Gone(object) => News::Gone(object.of(family).id),
            Report::Failed { error, .. } => News::Failed(from_server(&error)),
        };
        let version = |object: &Object| object.metadata.resource_version.clone();
        tasks.spawn(follow(http.clone(), Feed::whole(source, version), sender.clone(), wrap));
    }
    let mut waiting = Waiting {
        goal,
        left: wanted.into_iter().collect(),
        said: BTreeMap::new(),
        taken_up: BTreeSet::new(),
        ends: Vec::new(),
    };
    let limit = async {
        match timeout {
            Some(timeout) => clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let mut limit = std::pin::pin!(limit);
    let mut silence = std::pin::pin!(clock.sleep(SIGN_OF_LIFE));
    let mut warned = false;
    while !waiting.left.is_empty() {
        tokio::select! {
            biased;
            Some(news) = inbox.recv() => waiting.take(news)?,
            () = &mut limit => {
                output::error("timed out; the operator goes on, see `evac maintenance list`");
                return Ok(Exit::TimedOut);
            }
            () = &mut silence, if !warned => {
                warned = true;
                waiting.warn();
            }
        }
    }
    Ok(Exit::worst(waiting.ends))
}

impl Waiting {
    fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::All(family, list) => {
                let there: BTreeSet<Id> = list.iter().map(|object| object.id.clone()).collect();
                let gone: Vec<Id> = self.left.difference(&there).cloned().collect();
                gone.iter().filter(|id| id.family == family).for_each(|id| self.gone(id));
                for object in &list {
                    self.seen(object);
                }
            }
            News::Seen(object) => self.seen(&object),
            News::Gone(id) => self.gone(&id),
            News::Failed(failure) => return Err(failure),
        }
        Ok(())
    }

    fn gone(&mut self, id: &Id) {
        if !self.left.remove(id) {
            return;
        }
        if self.goal == Goal::Gone {
            output::data(&format!("nodemaintenance/{} ended", id.name));
            self.ends.push(Exit::Done);
        } else {
            output::error(&format!("nodemaintenance/{} was deleted, and not by this command", id.name));
            self.ends.push(Exit::Cancelled);
        }
    }

    fn seen(&mut self, object: &Maintenance) {
        if !self.left.contains(&object.id) {
            return;
        }
        if object.held {
            self.taken_up.insert(object.id.clone());
        }
        if self.goal == Goal::Gone {
            if object.status.says(NOT_TAKEN_BACK) {
                self.not_taken_back(object);
            }
            return;
        }
        let (status, node) = (&object.status, &object.node);
        match status.phase {
            Some(Phase::Succeeded) => {
                output::data(&format!("node/{node} in maintenance, empty"));
                self.end(object, Exit::Done);
            }
            Some(Phase::Failed) => {
                output::error(&format!("node {node}: {}", status.last_error));
                self.end(object, Exit::Error);
            }
            _ if status.is_stuck() => {
                self.say(object, &blocked(object));
                output::talk(&format!(
                    "node {node} stays in maintenance, and what can leave later will; end it with `evac maintenance end {node}`"
                ));
                self.end(object, Exit::Blocked);
            }
            Some(Phase::Running) => {
                let pods = match status.pending_pods.len() {
                    1 => "1 pod has to leave".to_owned(),
                    left => format!("{left} pods have to leave"),
                };
                let why = match status.last_error.as_str() {
                    "" => String::new(),
                    why => format!("; {why}"),
                };
                let text = format!("node {node}: {}, {pods}{why}", progress(status));
                self.say(object, &text);
            }
            None => {}
        }
    }

    /// The node is given back, and something about its guests is not as it was.
    fn not_taken_back(&mut self, object: &Maintenance) {
        for left in &object.status.blockers {
            output::error(&output::clean(&format!("{} {}. To do: {}", left.object, left.message, left.fix)));
        }
        output::talk(&format!(
            "nodemaintenance/{} stays until that is done; the operator goes on trying (without its finalizer {FINALIZER} the object goes at once)",
            object.id.name
        ));
        self.end(object, Exit::Error);
    }

    fn end(&mut self, object: &Maintenance, exit: Exit) {
        self.left.remove(&object.id);
        self.ends.push(exit);
    }

    fn say(&mut self, object: &Maintenance, text: &str) {
        if self.said.get(&object.id).map(String::as_str) != Some(text) {
            for line in text.lines() {
                output::talk(line);
            }
            self.said.insert(object.id.clone(), text.to_owned());
        }
    }

    fn warn(&self) {
        for id in self.left.difference(&self.taken_up) {
            output::warning(&format!(
                "no operator has taken up nodemaintenance/{}; is `evac operator` running with the role maintenance?",
                id.name
            ));
        }
    }
}

fn blocked(object: &Maintenance) -> String {
    let lines = object.status.blockers.iter().map(|blocker| {
        let fix = if blocker.fix.is_empty() { String::new() } else { format!("; {}", blocker.fix) };
        output::clean(&format!("{}: {}{fix}", blocker.object, blocker.message))
    });
    // Who gave a permission has to know why it made no difference.
    let note = object.status.message(PERMISSION_IGNORED).map(output::clean);
    let lines = lines.chain(note);
    format!("node {}: {}", object.node, lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_guests_are_not_as_before_is_no_success() {
        let object: Object = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]},
            "spec": {"nodeName": "n"},
            "status": {
                "conditions": [{"type": NOT_TAKEN_BACK, "status": "True", "reason": "GuestsNotRestored", "message": "m"}],
                "blockers": [{"code": NOT_TAKEN_BACK, "object": "virtual machine shop/db", "message": "is marked", "fix": "f"}],
            },
        }))
        .unwrap();
        let object = object.of(Family::Medik8s);
        let mut waiting = Waiting {
            goal: Goal::Gone,
            left: BTreeSet::from([object.id.clone()]),
            said: BTreeMap::new(),
            taken_up: BTreeSet::new(),
            ends: Vec::new(),
        };
        waiting.seen(&object);
        assert_eq!(waiting.ends, [Exit::Error]);
        assert!(waiting.left.is_empty());
    }
}
