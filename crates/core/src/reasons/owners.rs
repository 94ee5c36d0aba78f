//! Who holds a node, and from whom a drain takes it over.

use jiff::Timestamp;

use super::Severity::{Never, Note};
use super::example_time;
use super::table::family;
use crate::cluster::fact::Key;

family! {
    /// What another drain, an earlier one, or another program has to do with the node.
    OwnerReason in Reason::Owner {
        title: "Owners of a node",
        told: "Those that are `never` in `reason` of the ends `failed` and `refused`, the others with the \
               event `noted`.",
        subject: Node,
    }

    /// The node carries the mark of another owner.
    OwnedByEvac {
        /// The owner in the mark.
        owner: String = "ann".into(),
        /// When the mark was made.
        since: Timestamp = example_time(0),
        /// The run that holds the node, if it holds a lease.
        instance: Option<String> = Some("laptop:4711".into()),
        /// The last sign of life of that run.
        seen: Option<Timestamp> = Some(example_time(60)),
        /// A NodeMaintenance holds the node, and that ends in another way than a drain.
        #[serde(skip)]
        by_maintenance: bool = false,
    } => {
        severity: Never,
        sentence: ("{}", match (instance, seen) {
            (Some(run), Some(seen)) => {
                format!("is being drained by {owner} ({run}) since {since}, last sign of life at {seen}")
            }
            _ => format!("was taken out of service by {owner} at {since}"),
        }),
        remedy: ("{}", if *by_maintenance {
            "end that maintenance first: `evac maintenance end` with the name of the node; if there is no \
             such maintenance any more, `evac cancel --force`"
        } else {
            "wait for that drain, `evac cancel` the node, or use --take-over"
        }),
    }

    /// A remediation operator holds its lease on the node.
    OwnedByLease {
        /// The lease.
        lease: Key = Key::new("medik8s-leases", "node-worker-1"),
        /// The holder in it.
        holder: String = "self-node-remediation".into(),
    } => {
        severity: Never,
        sentence: ("is held by {holder} (lease {lease})"),
        remedy: ("end that maintenance first, or use --take-over"),
    }

    /// The node carries a drain annotation that no evac wrote.
    MarkUnreadable {
        /// Its beginning.
        text: String = "{\"version\": 7".into(),
    } => {
        severity: Never,
        sentence: ("carries a drain annotation that cannot be read: {text}"),
        remedy: ("use --take-over to replace it"),
    }

    /// The node is taken from another owner, as was asked for (`--take-over`).
    TakenOver {
        /// The owner until now.
        owner: String = "ann".into(),
    } => {
        severity: Note,
        sentence: ("is taken over from {owner}"),
    }

    /// The mark of this drain is gone, or another one is in its place.
    CancelledElsewhere => {
        severity: Never,
        sentence: ("is no longer ours: the drain was cancelled or taken over elsewhere"),
        remedy: ("agree on who drains the node, then run again"),
    }

    /// The drain that left its mark gives no signs of life any more.
    Abandoned {
        /// The owner in the mark.
        owner: String = "ann".into(),
        /// The run that held the node.
        instance: String = "laptop:4711".into(),
        /// The last sign of life of that run.
        seen: Timestamp = example_time(60),
    } => {
        severity: Note,
        sentence: ("is taken over from {owner} ({instance}), whose drain gave its last sign of life at \
                    {seen}"),
    }

    /// The drain that left its mark was asked whether it is still at work, and is silent so far.
    Unanswered {
        /// The owner in the mark.
        owner: String = "ann".into(),
        /// The run that holds the node.
        instance: String = "laptop:4711".into(),
        /// How long its answer is waited for.
        until: Timestamp = example_time(75),
    } => {
        severity: Note,
        sentence: ("is being drained by {owner} ({instance}), who does not answer; waiting until {until}"),
    }

    /// Another run of the same owner was at it.
    Continued {
        /// The earlier run.
        instance: String = "laptop:4711".into(),
        /// Its last sign of life.
        seen: Timestamp = example_time(60),
    } => {
        severity: Note,
        sentence: ("goes on where your run {instance} left off at {seen}; if that still runs, it will end"),
    }

    /// Another run of the same owner took over from this one.
    ContinuedElsewhere {
        /// The later run.
        instance: String = "laptop:4711".into(),
    } => {
        severity: Never,
        sentence: ("is drained on by your run {instance}"),
        remedy: ("nothing, that run goes on; `evac status` shows how far it is"),
    }

    /// The lease that shows other drains that this one is alive could not be written.
    LeaseUnavailable {
        /// The answer of the server.
        message: String = "User \"kim\" cannot create resource \"leases\"".into(),
    } => {
        severity: Note,
        sentence: ("is drained without a lease, so others cannot see whether this drain is alive: {message}"),
    }
}
