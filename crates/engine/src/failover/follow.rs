//! Watches, after the release of a node, what becomes of its pods and volumes and of the guests that should return.

use std::collections::{BTreeMap, BTreeSet};

use evac_api::Project;
use evac_api::call::on_node;
use evac_api::failover::{ATTACHMENTS, Attachment};
use evac_api::kubevirt::wire::{VirtualMachine, VirtualMachineInstance};
use evac_api::wire;
use evac_core::failover::Seen;
use evac_core::machines::Kind;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::look;
use crate::guests::INSTANCES;
use crate::http::{Http, HttpError};
use crate::watch::{Opening, Report, Source, follow, follow_opened};

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Pod(Report<wire::Pod>),
    Instance(Report<VirtualMachineInstance>),
    Machine(Report<VirtualMachine>),
    Launcher(Report<wire::Pod>),
    Attachment(Report<Attachment>),
}

/// The watches of one failover. They end with it.
pub(super) struct Follower {
    node: String,
    inbox: mpsc::UnboundedReceiver<Input>,
    _tasks: JoinSet<()>,
    /// By the name of the object.
    attachments: BTreeMap<String, String>,
    missing: BTreeSet<&'static str>,
}

impl Follower {
    pub fn begin(http: &Http, node: &str, guests: bool) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let missing = watch(http, node, guests, &sender, &mut tasks);
        let attachments = BTreeMap::new();
        Self { node: node.to_owned(), inbox, _tasks: tasks, attachments, missing }
    }

    /// Waits for news and takes in all there are.
    pub async fn see(&mut self, seen: &mut Seen) -> Result<(), HttpError> {
        let Some(input) = self.inbox.recv().await else { return std::future::pending().await };
        self.take(input, seen)?;
        while let Ok(input) = self.inbox.try_recv() {
            self.take(input, seen)?;
        }
        seen.attachments = self.attachments.values().cloned().collect();
        seen.is_whole = self.missing.is_empty();
        Ok(())
    }

    fn take(&mut self, input: Input, seen: &mut Seen) -> Result<(), HttpError> {
        match input {
            Input::Pod(Report::Listed(pods, at)) => {
                self.missing.remove("pods");
                seen.index.reset_pods(&self.node, pods.into_iter().map(Into::into).collect(), &at);
            }
            Input::Instance(Report::Listed(list, at)) => {
                self.missing.remove("instances");
                seen.index.reset(Kind::Instance, list.into_iter().map(Project::seen).collect(), &at);
            }
            Input::Attachment(Report::Listed(list, _)) => {
                self.missing.remove("attachments");
                self.attachments.clear();
                for object in list {
                    self.attach(&object);
                }
            }
            Input::Machine(Report::Listed(list, at)) => {
                self.missing.remove("machines");
                seen.index.reset(Kind::Machine, list.into_iter().map(Project::seen).collect(), &at);
            }
            Input::Launcher(Report::Listed(list, at)) => {
                self.missing.remove("launchers");
                seen.index.reset(Kind::Pod, list.into_iter().map(Project::seen).collect(), &at);
            }
            Input::Machine(Report::Seen(object)) => drop(seen.index.apply(object.seen())),
            Input::Machine(Report::Gone(object)) => drop(seen.index.apply(object.gone())),
            Input::Launcher(Report::Seen(object)) => drop(seen.index.apply(object.seen())),
            Input::Launcher(Report::Gone(object)) => drop(seen.index.apply(object.gone())),
            Input::Instance(Report::Seen(object)) => drop(seen.index.apply(object.seen())),
            Input::Instance(Report::Gone(object)) => drop(seen.index.apply(object.gone())),
            Input::Attachment(Report::Seen(object)) => self.attach(&object),
            Input::Attachment(Report::Gone(object)) => drop(self.attachments.remove(&object.metadata.name)),
            // Whoever may not see attachments cannot wait for them.
            Input::Attachment(Report::Failed { final_: true, .. }) => {
                self.missing.remove("attachments");
            }
            Input::Pod(Report::Failed { error, final_: true })
            | Input::Instance(Report::Failed { error, final_: true })
            | Input::Machine(Report::Failed { error, final_: true })
            | Input::Launcher(Report::Failed { error, final_: true }) => return Err(error),
            Input::Pod(Report::Failed { .. })
            | Input::Instance(Report::Failed { .. })
            | Input::Machine(Report::Failed { .. })
            | Input::Launcher(Report::Failed { .. })
            | Input::Attachment(Report::Failed { .. }) => {}
            Input::Pod(report) => {
                if let Some(fact) = report.into_fact() {
                    seen.index.apply(fact);
                }
            }
        }
        Ok(())
    }

    fn attach(&mut self, object: &Attachment) {
        if object.spec.node_name == self.node {
            self.attachments.insert(object.metadata.name.clone(), object.volume().to_owned());
        }
    }
}

fn watch(
    http: &Http,
    node: &str,
    guests: bool,
    sender: &mpsc::UnboundedSender<Input>,
    tasks: &mut JoinSet<()>,
) -> BTreeSet<&'static str> {
    let mut missing = BTreeSet::from(["pods", "attachments"]);
    let query = on_node(node);
    let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
    tasks.spawn(follow(http.clone(), source, Opening::Stream, sender.clone(), Input::Pod));
    let source = Source { path: ATTACHMENTS.into(), query: String::new(), page: 500 };
    let version = |object: &Attachment| object.metadata.resource_version.clone();
    let opening = Opening::Stream;
    tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Attachment, version));
    if guests {
        missing.extend(["instances", "machines", "launchers"]);
        let source = Source { path: INSTANCES.into(), query: String::new(), page: 500 };
        let version = |object: &VirtualMachineInstance| object.metadata.resource_version.clone();
        tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Instance, version));
        // Somebody may stop or delete a machine while its guest is waited for.
        let source = Source { path: look::MACHINES.into(), query: String::new(), page: 500 };
        let version = |object: &VirtualMachine| object.metadata.resource_version.clone();
        tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Machine, version));
        // And its new pod may find no place.
        let query = look::LAUNCHERS.to_owned();
        let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
        let version = |object: &wire::Pod| object.metadata.resource_version.clone();
        tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Launcher, version));
    }
    missing
}
