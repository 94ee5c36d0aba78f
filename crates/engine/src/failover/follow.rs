//! Watches, after the release of a node, what becomes of its pods and volumes and of the guests that should return.

use std::collections::{BTreeMap, BTreeSet};

use evac_api::call::on_node;
use evac_api::failover::{ATTACHMENTS, Attachment};
use evac_api::kubevirt::wire::{VirtualMachine, VirtualMachineInstance};
use evac_api::wire;
use evac_core::Fact;
use evac_core::failover::AfterRelease;
use evac_core::machines::Kind;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::look;
use crate::guests::INSTANCES;
use crate::http::{Http, HttpError};
use crate::watch::{Feed, Opening, Report, Source, follow};

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Pod(Report<Fact>),
    Instance(Report<Fact>),
    Machine(Report<Fact>),
    Launcher(Report<Fact>),
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
    pub async fn see(&mut self, seen: &mut AfterRelease) -> Result<(), HttpError> {
        let Some(input) = self.inbox.recv().await else { return std::future::pending().await };
        self.take(input, seen)?;
        while let Ok(input) = self.inbox.try_recv() {
            self.take(input, seen)?;
        }
        seen.attachments = self.attachments.values().cloned().collect();
        seen.is_whole = self.missing.is_empty();
        Ok(())
    }

    fn take(&mut self, input: Input, seen: &mut AfterRelease) -> Result<(), HttpError> {
        match input {
            Input::Pod(Report::Listed(pods, at)) => {
                self.missing.remove("pods");
                seen.index.reset_on(&self.node, pods, &at);
            }
            Input::Instance(Report::Listed(list, at)) => {
                self.missing.remove("instances");
                seen.index.reset(Kind::Instance, list, &at);
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
                seen.index.reset(Kind::Machine, list, &at);
            }
            Input::Launcher(Report::Listed(list, at)) => {
                self.missing.remove("launchers");
                seen.index.reset(Kind::Pod, list, &at);
            }
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
            Input::Pod(report)
            | Input::Instance(report)
            | Input::Machine(report)
            | Input::Launcher(report) => {
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
    let all = |path: &'static str, query: String| Source { path: path.into(), query, page: 500 };
    let opening = Opening::Stream;
    let feed = Feed::<wire::Pod, _>::facts(all("/api/v1/pods", on_node(node))).opened(opening);
    tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Pod));
    let version = |object: &Attachment| object.metadata.resource_version.clone();
    let feed = Feed::whole(all(ATTACHMENTS, String::new()), version).opened(opening);
    tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Attachment));
    if guests {
        missing.extend(["instances", "machines", "launchers"]);
        let feed = Feed::<VirtualMachineInstance, _>::facts(all(INSTANCES, String::new())).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Instance));
        // A person may stop or delete a machine while its guest is waited for.
        let feed = Feed::<VirtualMachine, _>::facts(all(look::MACHINES, String::new())).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Machine));
        // And its new pod may find no place.
        let feed =
            Feed::<wire::Pod, _>::facts(all("/api/v1/pods", look::LAUNCHERS.to_owned())).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Launcher));
    }
    missing
}
