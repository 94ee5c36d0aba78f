//! Waits, by watching, until everyone who returns runs elsewhere and nothing of the old is left on the node. Who will not return is told and
//! let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::call::on_node;
use evac_api::failover::{self as requests, ATTACHMENTS, Attachment};
use evac_api::kubevirt::wire::{VirtualMachine, VirtualMachineInstance};
use evac_api::wire;
use evac_clock::Clock;
use evac_core::failover::guests::outlook;
use evac_core::failover::suspect::out_of_service;
use evac_core::failover::{Aftermath, LetGo, Missing, Outlook, Release, Remains};
use evac_core::machines::Kind;
use evac_core::{Fact, Index, Key};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{End, Event, FailoverError, TRIES, Tell, look, written};
use crate::guests::INSTANCES;
use crate::http::Http;
use crate::watch::{Feed, Opening, Report, Source, follow};

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Pod(Report<Fact>),
    Instance(Report<Fact>),
    Machine(Report<Fact>),
    Launcher(Report<Fact>),
    Attachment(Report<Attachment>),
}

struct Seen {
    node: String,
    index: Index,
    /// By the name of the object.
    attachments: BTreeMap<String, String>,
    missing: BTreeSet<&'static str>,
}

/// How long it is waited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub deadline: Option<Timestamp>,
    /// How long nothing may change.
    pub stall: Option<Duration>,
}

impl Limits {
    /// When the waiting ends at the latest, as things are.
    fn end(self, after: &Aftermath) -> Option<Timestamp> {
        let stall = self.stall.and_then(|limit| SignedDuration::try_from(limit).ok());
        self.deadline.into_iter().chain(stall.map(|limit| after.stalls_at(limit))).min()
    }
}

pub(super) async fn wait(
    http: &Http,
    mut after: Aftermath,
    how: Release,
    limits: Limits,
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
        attachments: BTreeMap::new(),
        missing: watch(http, &after, &sender, &mut tasks),
    };
    let mut story = Story::default();
    loop {
        let now = clock.now();
        let remains = seen.look(&mut after, now);
        if seen.missing.is_empty() {
            story.go_on(&seen, &after, &remains, &mut |event| tell(now, event));
            if remains.is_nothing() {
                break;
            }
        }
        let end = limits.end(&after);
        if end.is_some_and(|end| end <= now) {
            return Ok(End::TimedOut { remains, released: true });
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(End::Stopped { released: true }),
            Some(input) = inbox.recv() => {
                seen.take(input)?;
                while let Ok(input) = inbox.try_recv() {
                    seen.take(input)?;
                }
            }
            () = until(clock, [end, after.look_again(now)]) => {}
        }
    }
    if how == Release::Taint {
        restore(http, &after.node, tell).await?;
    }
    Ok(story.end(&after))
}

/// What was told of the guests so far.
#[derive(Default)]
struct Story {
    back: BTreeSet<Key>,
    let_go: BTreeMap<Key, LetGo>,
    remains: Option<Remains>,
}

impl Story {
    fn go_on(
        &mut self,
        seen: &Seen,
        after: &Aftermath,
        remains: &Remains,
        tell: &mut (dyn FnMut(&Event) + Send),
    ) {
        for guest in after.guests.iter().filter(|guest| guest.fate.returns()) {
            if let Outlook::Returned { on } = outlook(&seen.index, guest)
                && self.back.insert(guest.instance.clone())
            {
                tell(&Event::Returned { instance: guest.instance.clone(), on });
            }
        }
        // Whoever was let go and comes all the same is not let go any more.
        self.let_go.retain(|instance, _| remains.let_go.iter().any(|guest| guest.instance == *instance));
        for guest in &remains.let_go {
            if self.let_go.insert(guest.instance.clone(), guest.clone()).is_none() {
                tell(&Event::LetGo(guest.clone()));
            }
        }
        if !remains.is_nothing() && self.remains.as_ref() != Some(remains) {
            tell(&Event::Waiting { remains: remains.clone() });
            self.remains = Some(remains.clone());
        }
    }

    fn end(self, after: &Aftermath) -> End {
        let returned = self.back.iter().filter(|instance| !self.let_go.contains_key(instance)).count();
        let (guests, unwanted): (Vec<LetGo>, Vec<LetGo>) =
            self.let_go.into_values().partition(|guest| guest.wanted);
        let off = after.stay_off().count() + unwanted.len();
        if guests.is_empty() { End::Done { returned, off } } else { End::Left { returned, off, guests } }
    }
}

fn watch(
    http: &Http,
    after: &Aftermath,
    sender: &mpsc::UnboundedSender<Input>,
    tasks: &mut JoinSet<()>,
) -> BTreeSet<&'static str> {
    let mut missing = BTreeSet::from(["pods", "attachments"]);
    let query = on_node(&after.node);
    let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
    let opening = Opening::Stream;
    let feed = Feed::<wire::Pod, _>::facts(source).opened(opening);
    tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Pod));
    let source = Source { path: ATTACHMENTS.into(), query: String::new(), page: 500 };
    let version = |object: &Attachment| object.metadata.resource_version.clone();
    let feed = Feed::whole(source, version).opened(opening);
    tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Attachment));
    if after.guests.iter().any(|guest| guest.fate.returns()) {
        missing.extend(["instances", "machines", "launchers"]);
        let source = Source { path: INSTANCES.into(), query: String::new(), page: 500 };
        let feed = Feed::<VirtualMachineInstance, _>::facts(source).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Instance));
        // Somebody may stop or delete a machine while its guest is waited for.
        let source = Source { path: look::MACHINES.into(), query: String::new(), page: 500 };
        let feed = Feed::<VirtualMachine, _>::facts(source).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Machine));
        // And its new pod may find no place.
        let query = look::LAUNCHERS.to_owned();
        let source = Source { path: "/api/v1/pods".into(), query, page: 500 };
        let feed = Feed::<wire::Pod, _>::facts(source).opened(opening);
        tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Launcher));
    }
    missing
}

impl Seen {
    fn look(&self, after: &mut Aftermath, now: Timestamp) -> Remains {
        let pods: Vec<_> = self.index.pods_on(&self.node).cloned().collect();
        let attachments = self.attachments.values().cloned().collect();
        if self.missing.is_empty() {
            return after.look(&self.index, &pods, attachments, now);
        }
        // Who is not seen yet is not gone.
        let guests = after.guests.iter().filter(|guest| guest.fate.returns());
        let guests = guests.map(|guest| Missing { instance: guest.instance.clone(), phase: None, why: None });
        Remains { guests: guests.collect(), ..Remains::default() }
    }

    fn take(&mut self, input: Input) -> Result<(), FailoverError> {
        match input {
            Input::Pod(Report::Listed(pods, at)) => {
                self.missing.remove("pods");
                self.index.reset_on(&self.node, pods, &at);
            }
            Input::Instance(Report::Listed(list, at)) => {
                self.missing.remove("instances");
                self.index.reset(Kind::Instance, list, &at);
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
                self.index.reset(Kind::Machine, list, &at);
            }
            Input::Launcher(Report::Listed(list, at)) => {
                self.missing.remove("launchers");
                self.index.reset(Kind::Pod, list, &at);
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
            | Input::Launcher(Report::Failed { error, final_: true }) => return Err(error.into()),
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
