//! The watches of the role: objects of both kinds, nodes, the leases by which nodes are claimed, and the configuration that has objects reviewed.

use evac_api::Project;
use evac_api::call::named;
use evac_api::maintenance::{Object, request, review};
use evac_api::wire::{Lease, Node};
use evac_clock::Clock;
use evac_core::Fact;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::maintenance::vouched::{self, Reviewing};
use evac_core::maintenance::{Family, Maintenance, Seen};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::perform::{Done, measured};
use crate::http::Http;
use crate::operator::feeds::forever;
use crate::watch::{Report, Source};

/// What one watch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Objects(Family),
    Nodes,
    Leases,
    Reviews,
}

impl What {
    pub const ALL: [Self; 5] = [
        Self::Objects(Family::KubeVirt),
        Self::Objects(Family::Medik8s),
        Self::Nodes,
        Self::Leases,
        Self::Reviews,
    ];

    /// For people.
    pub fn words(self) -> String {
        match self {
            Self::Objects(family) => format!("the list of nodemaintenances.{}", family.group()),
            Self::Nodes => "the list of nodes".to_owned(),
            Self::Leases => format!("the list of leases in {LEASE_NAMESPACE}"),
            Self::Reviews => format!("the webhook configuration {}", vouched::CONFIGURATION),
        }
    }

    /// Of webhook configurations only one concerns us.
    fn query(self) -> String {
        match self {
            Self::Reviews => named(vouched::CONFIGURATION),
            _ => String::new(),
        }
    }
}

/// One observation of a watch: of the cluster, or of what only this role looks at.
pub(super) enum Word {
    Fact(Fact),
    Seen(Seen),
}

pub(super) enum Input {
    Listed(What, Vec<Word>, ListedAt),
    Seen(What, Word),
    /// It cannot be read now, and why.
    Unread(What, String),
    Done(Done),
}

type Sender = mpsc::UnboundedSender<Input>;

pub(super) fn start(http: &Http, sender: &Sender, tasks: &mut JoinSet<()>) {
    let clock = http.clock();
    for family in Family::ALL {
        let gone = move |object: Object| {
            let seen = object.of(family);
            Word::Seen(Seen::ObjectGone(seen.id, seen.uid))
        };
        follow(
            http,
            sender,
            tasks,
            (What::Objects(family), request::collection(family)),
            |object: &Object| object.metadata.resource_version.clone(),
            move |object: Object| Word::Seen(Seen::Object(Box::new(observed(object, family, clock)))),
            gone,
        );
    }
    follow(
        http,
        sender,
        tasks,
        (What::Nodes, "/api/v1/nodes".into()),
        |node: &Node| node.metadata.resource_version.clone(),
        |node: Node| Word::Fact(node.seen()),
        |node: Node| Word::Fact(node.gone()),
    );
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases");
    follow(
        http,
        sender,
        tasks,
        (What::Leases, leases),
        |lease: &Lease| lease.metadata.resource_version.clone(),
        move |lease: Lease| Word::Fact(Fact::Lease(measured(lease, clock))),
        |lease: Lease| Word::Fact(lease.gone()),
    );
    follow(
        http,
        sender,
        tasks,
        (What::Reviews, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".into()),
        |configuration: &review::Written| configuration.metadata.resource_version.clone(),
        |configuration: review::Written| reviewing(Reviewing::By(configuration.into())),
        |_: review::Written| reviewing(Reviewing::Absent),
    );
}

fn follow<T>(
    http: &Http,
    sender: &Sender,
    tasks: &mut JoinSet<()>,
    (what, path): (What, String),
    version: impl Fn(&T) -> String + Send + Sync + 'static,
    seen: impl Fn(T) -> Word + Send + Sync + 'static,
    gone: impl Fn(T) -> Word + Send + Sync + 'static,
) where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let source = Source { path: path.into(), query: what.query(), page: 500 };
    let wrap = move |report: Report<T>| match report {
        Report::Listed(list, at) => Some(Input::Listed(what, list.into_iter().map(&seen).collect(), at)),
        Report::Seen(object) => Some(Input::Seen(what, seen(object))),
        Report::Gone(object) => Some(Input::Seen(what, gone(object))),
        // A kind the server does not know has no objects; it is asked again.
        Report::Failed { error, .. } if error.is_not_found() => {
            Some(Input::Listed(what, Vec::new(), ListedAt::default()))
        }
        // Without the right to read it the role goes on, and believes no permission.
        Report::Failed { error, .. } if what == What::Reviews && error.is_forbidden() => {
            Some(Input::Listed(what, vec![reviewing(Reviewing::Unread)], ListedAt::default()))
        }
        Report::Failed { error, .. } => {
            tracing::warn!(what = what.words(), %error, "cannot be read");
            Some(Input::Unread(what, error.to_string()))
        }
    };
    let (reports, mut inbox) = mpsc::unbounded_channel();
    tasks.spawn(forever(http.clone(), source, reports, wrap, version));
    let sender = sender.clone();
    tasks.spawn(async move {
        while let Some(input) = inbox.recv().await {
            if let Some(input) = input
                && sender.send(input).is_err()
            {
                return;
            }
        }
    });
}

/// The object in an answer, as it is known then.
pub(super) fn object(family: Family, body: &[u8], clock: Clock) -> Option<Seen> {
    let object = serde_json::from_slice::<Object>(body).ok()?;
    Some(Seen::Object(Box::new(observed(object, family, clock))))
}

/// An object with the times of its status on the clock by which it is judged. They were written by the calendar, for others to read.
fn observed(object: Object, family: Family, clock: Clock) -> Maintenance {
    let mut seen = object.of(family);
    seen.status = seen.status.shifted(-clock.ahead());
    seen
}

fn reviewing(how: Reviewing) -> Word {
    Word::Seen(Seen::Reviewing(how))
}
