//! Waits, by watching, until everyone who returns runs elsewhere and nothing of the old is left on the node.

use std::collections::BTreeSet;
use std::time::Duration;

use evac_api::call::escape;
use evac_api::failover::{self as requests, ATTACHMENTS, Attachment};
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::wire::VirtualMachineInstance;
use evac_api::wire;
use evac_clock::Clock;
use evac_core::failover::guests::returned;
use evac_core::failover::suspect::out_of_service;
use evac_core::failover::{Aftermath, Release, Remains};
use evac_core::machines::{Config, Kind, Machines};
use evac_core::{Index, Key};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{End, Event, FailoverError, TRIES, Tell, look, written};
use crate::guests::INSTANCES;
use crate::http::Http;
use crate::watch::{Opening, Report, Source, follow, follow_opened};

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Pod(Report<wire::Pod>),
    Instance(Report<VirtualMachineInstance>),
    Attachment(Report<Attachment>),
}

struct Seen {
    node: String,
    index: Index,
    machines: Machines,
    /// By the name of the object.
    attachments: std::collections::BTreeMap<String, String>,
    missing: BTreeSet<&'static str>,
}

pub(super) async fn wait(
    http: &Http,
    after: Aftermath,
    how: Release,
    deadline: Option<Timestamp>,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<End, FailoverError> {
    let clock = http.clock();
    for guest in after.stay_off() {
        let event = Event::StaysOff { instance: guest.instance.clone(), why: guest.fate.words() };
        tell(clock.now(), &event);
    }
    let (sender, mut inbox) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let mut seen = Seen {
        node: after.node.clone(),
        index: Index::new(),
        machines: Machines::new(Config::default()),
        attachments: std::collections::BTreeMap::new(),
        missing: watch(http, &after, &sender, &mut tasks),
    };
    let mut back: BTreeSet<Key> = BTreeSet::new();
    let mut told: Option<Remains> = None;
    loop {
        let now = clock.now();
        let remains = seen.remains(&after, now);
        if seen.missing.is_empty() {
            for guest in after.guests.iter().filter(|guest| guest.fate.returns()) {
                if let Some(instance) = returned(&seen.machines, guest, &after.node)
                    && back.insert(guest.instance.clone())
                {
                    let event =
                        Event::Returned { instance: guest.instance.clone(), on: instance.node.clone() };
                    tell(now, &event);
                }
            }
            if remains.is_nothing() {
                break;
            }
            if told.as_ref() != Some(&remains) {
                tell(now, &Event::Waiting { remains: remains.clone() });
                told = Some(remains.clone());
            }
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(End::TimedOut { remains, released: true });
        }
        let patience = Some(after.patience_ends()).filter(|at| *at > now);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(End::Stopped { released: true }),
            Some(input) = inbox.recv() => {
                seen.take(input)?;
                while let Ok(input) = inbox.try_recv() {
                    seen.take(input)?;
                }
            }
            () = until(clock, [deadline, patience]) => {}
        }
    }
    if how == Release::Taint {
        restore(http, &after.node, tell).await?;
    }
    Ok(End::Done { returned: back.len(), off: after.stay_off().count() })
}

fn watch(
    http: &Http,
    after: &Aftermath,
    sender: &mpsc::UnboundedSender<Input>,
    tasks: &mut JoinSet<()>,
) -> BTreeSet<&'static str> {
    let mut missing = BTreeSet::from(["pods", "attachments"]);
    let query = format!("fieldSelector={}", escape(&format!("spec.nodeName={}", after.node)));
    let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
    tasks.spawn(follow(http.clone(), source, Opening::Stream, sender.clone(), Input::Pod));
    let source = Source { path: ATTACHMENTS.into(), query: String::new(), page: 500 };
    let version = |object: &Attachment| object.metadata.resource_version.clone();
    let opening = Opening::Stream;
    tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Attachment, version));
    if after.guests.iter().any(|guest| guest.fate.returns()) {
        missing.insert("instances");
        let source = Source { path: INSTANCES.into(), query: String::new(), page: 500 };
        let version = |object: &VirtualMachineInstance| object.metadata.resource_version.clone();
        tasks.spawn(follow_opened(http.clone(), source, opening, sender.clone(), Input::Instance, version));
    }
    missing
}

impl Seen {
    fn remains(&self, after: &Aftermath, now: Timestamp) -> Remains {
        let pods: Vec<_> = self.index.pods_on(&self.node).cloned().collect();
        let attachments = self.attachments.values().cloned().collect();
        after.remains(&self.machines, &pods, attachments, now)
    }

    fn take(&mut self, input: Input) -> Result<(), FailoverError> {
        match input {
            Input::Pod(Report::Listed(pods)) => {
                self.missing.remove("pods");
                self.index.reset_pods(&self.node, pods.into_iter().map(Into::into).collect());
            }
            Input::Instance(Report::Listed(list)) => {
                self.missing.remove("instances");
                self.machines.reset(Kind::Instance, list.into_iter().map(Follow::seen).collect());
            }
            Input::Attachment(Report::Listed(list)) => {
                self.missing.remove("attachments");
                self.attachments.clear();
                for object in list {
                    self.attach(&object);
                }
            }
            Input::Instance(Report::Seen(object)) => drop(self.machines.apply(object.seen())),
            Input::Instance(Report::Gone(object)) => drop(self.machines.apply(object.gone())),
            Input::Attachment(Report::Seen(object)) => self.attach(&object),
            Input::Attachment(Report::Gone(object)) => drop(self.attachments.remove(&object.metadata.name)),
            // Whoever may not see attachments cannot wait for them.
            Input::Attachment(Report::Failed { final_: true, .. }) => {
                self.missing.remove("attachments");
            }
            Input::Pod(Report::Failed { error, final_: true })
            | Input::Instance(Report::Failed { error, final_: true }) => return Err(error.into()),
            Input::Pod(Report::Failed { .. })
            | Input::Instance(Report::Failed { .. })
            | Input::Attachment(Report::Failed { .. }) => {}
            Input::Pod(report) => {
                if let Some(fact) = report.into_fact() {
                    self.index.apply(fact);
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

/// Takes the taint away again: nothing is left for it to do, and the node may come back.
async fn restore(http: &Http, node: &str, tell: Tell<'_>) -> Result<(), FailoverError> {
    let taint = out_of_service();
    for _ in 0..TRIES {
        let suspect = match look::suspect(http, node).await {
            Ok(suspect) => suspect,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !suspect.node.taints.iter().any(|there| there.same_as(&taint)) {
            return Ok(());
        }
        if written(http, &requests::untaint(&suspect.node, &taint)).await? {
            tell(http.clock().now(), &Event::Restored);
            return Ok(());
        }
    }
    Err(FailoverError::Contended { node: node.to_owned(), tries: TRIES })
}

async fn until(clock: Clock, times: [Option<Timestamp>; 2]) {
    match times.into_iter().flatten().min() {
        Some(at) => {
            clock.sleep_until(at).await;
            // Timers are coarse; without this a wake-up a hair early would spin.
            clock.sleep(Duration::from_millis(1)).await;
        }
        None => std::future::pending().await,
    }
}
