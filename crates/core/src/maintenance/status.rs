//! What an object says about its maintenance. The first fields are those users of the earlier operators know, spelled as there.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::registry::Unread;
use crate::cluster::fact::Key;
use crate::drain::outlook::Foretold;
use crate::drain::run::{Blocker, after};
use crate::drain::step::NAMED_AFTER;
use crate::drain::survey::Survey;
use crate::machines::remains::Remains;
use crate::reasons::Severity;

/// How far a maintenance is, in the words of the earlier operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It has not begun, or the node is being emptied.
    Running,
    /// The node is empty.
    Succeeded,
    /// Nothing goes on until something changes: the node is missing, another object is about it, or its lease is lost.
    Failed,
}

/// One thing in the way, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusBlocker {
    /// The code of the reason, as `evac explain` knows it.
    pub code: String,
    /// What it is about, as `pod namespace/name`, or `cluster`.
    pub object: String,
    /// The end of a sentence that begins with the object.
    pub message: String,
    /// What a person does about it; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// When the drain first saw it, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl From<&Blocker> for StatusBlocker {
    fn from(blocker: &Blocker) -> Self {
        Self {
            code: blocker.reason.code().to_owned(),
            object: format!("pod {}", blocker.pod),
            message: blocker.reason.message(),
            fix: blocker.reason.fix().unwrap_or_default(),
            since: Some(whole_seconds(blocker.since)),
        }
    }
}

/// A condition as Kubernetes writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// One of the names below, such as [`DRAINED`].
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, or `Unknown` while it cannot be read.
    pub status: String,
    /// A word in CamelCase.
    pub reason: String,
    /// A sentence; may be empty.
    #[serde(default)]
    pub message: String,
    /// When the status of the condition last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

/// A pod that still has to leave.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// When the node will be empty, in whole seconds: what its drain foretells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// Missing where only the ends of grace periods are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
    /// Rounded up.
    pub latest: Timestamp,
}

impl From<Foretold> for Estimate {
    fn from(told: Foretold) -> Self {
        // Rounded outwards: cutting the fraction off would promise the end too early.
        let up = |at: Timestamp| whole_seconds(at.checked_add(ALMOST_A_SECOND).unwrap_or(at));
        Self { earliest: told.earliest.map(whole_seconds), latest: up(told.latest) }
    }
}

const ALMOST_A_SECOND: SignedDuration = SignedDuration::from_nanos(999_999_999);

/// A bound that moves by less than this many seconds, or by less than this part of the time left, is not worth a write.
const MOVES: i64 = 3;
const MOVES_BY: i64 = 4;

impl Estimate {
    /// Whether a reader of the one would be misled who should know the other.
    fn is_off(&self, other: &Self, now: Timestamp) -> bool {
        let left = self.latest.duration_since(now).as_secs().max(0);
        let off =
            |a: Timestamp, b: Timestamp| a.duration_since(b).as_secs().abs() > MOVES.max(left / MOVES_BY);
        let earliest = match (self.earliest, other.earliest) {
            (Some(a), Some(b)) => off(a, b),
            (a, b) => a != b,
        };
        earliest || off(self.latest, other.latest)
    }
}

/// The status of a NodeMaintenance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// None before the operator has taken note of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Percent of the pods that had to leave; 100 only when the node is proven to be empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub drain_progress: i64,
    /// When any of this last changed, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Timestamp>,
    /// What is in the way first, or why it failed; empty if all goes well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// The names of pods that still have to leave, 200 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_pods: Vec<String>,
    /// The same pods with their namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_pods_refs: Vec<PodRef>,
    /// All pods that were on the node when its drain began.
    #[serde(rename = "totalpods", skip_serializing_if = "is_zero")]
    pub total_pods: i64,
    /// How many pods had to leave, the most that there ever were.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_pods: i64,
    /// How often in a row the lease was found with another holder after the maintenance had begun.
    #[serde(skip_serializing_if = "is_zero")]
    pub error_on_lease_count: i64,
    /// What is in the way of pods, 200 at most, and what cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<StatusBlocker>,
    /// None while nothing is foretold, and when the node is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<Estimate>,
    /// Only those that hold, or held once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl Status {
    /// The same with all its times so much later: as it is written, by a calendar that is so far ahead of the time by which we decide.
    #[must_use]
    pub fn shifted(mut self, by: SignedDuration) -> Self {
        let shift = |at: &mut Timestamp| *at = at.checked_add(by).unwrap_or(*at);
        self.last_update.iter_mut().for_each(shift);
        self.blockers.iter_mut().filter_map(|blocker| blocker.since.as_mut()).for_each(shift);
        self.conditions.iter_mut().filter_map(|one| one.last_transition_time.as_mut()).for_each(shift);
        if let Some(Estimate { earliest, latest }) = &mut self.estimated_end {
            earliest.iter_mut().for_each(shift);
            shift(latest);
        }
        self
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The API writes times without fractions.
pub(super) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// When a blocker is worth naming: what may clear by itself is given a moment.
pub(super) fn named_at(blocker: &Blocker) -> Option<Timestamp> {
    match blocker.reason.severity() {
        Severity::Never => Some(blocker.since),
        Severity::Slow => Some(after(blocker.since, NAMED_AFTER)),
        Severity::Note | Severity::Warning | Severity::Progress => None,
    }
}

/// Whether a blocker is named now. What never goes by itself is, whatever the drain's clock said when it was seen: it counts as stuck from then on, and what counts is named.
fn is_named(blocker: &Blocker, now: Timestamp) -> bool {
    blocker.reason.severity() == Severity::Never || named_at(blocker).is_some_and(|at| at <= now)
}

/// The node is empty.
pub const DRAINED: &str = "Drained";
/// Something is in the way that will not go by itself.
pub const BLOCKED: &str = "Blocked";
/// It has not begun, and says why.
pub const WAITING: &str = "Waiting";
/// Another client uncordoned the node and this maintenance gave way.
pub const YIELDED: &str = "Yielded";

/// A permission on the object does not count, because no review can have seen who gave it.
pub const PERMISSION_IGNORED: &str = "PermissionIgnored";
/// What the status rests on cannot be read: what it says of the drain is from before.
pub const UNREAD: &str = "Unread";
/// The code of the blocker that goes with it.
const CANNOT_READ: &str = "CannotRead";

/// The node is given back, but something about its guests could not be undone. Also the code of the blockers that say what.
pub const NOT_TAKEN_BACK: &str = "NotTakenBack";

/// The reason of [`BLOCKED`] when nothing that is left can leave.
const STUCK: &str = "NothingMoves";

/// At most this many names are listed; the counts are complete.
const NAMES: usize = 200;

impl Status {
    /// Whether a condition of this type is True.
    pub fn says(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }

    /// Nothing that is left can leave, so waiting alone does not help.
    pub fn is_stuck(&self) -> bool {
        self.says(BLOCKED) && self.conditions.iter().any(|one| one.kind == BLOCKED && one.reason == STUCK)
    }

    /// The message of a condition that holds.
    pub fn message(&self, kind: &str) -> Option<&str> {
        let mut holding = self.conditions.iter().filter(|one| one.kind == kind && one.status == "True");
        holding.next().map(|one| one.message.as_str())
    }

    /// Sets a condition; its time stays unless its truth changes.
    pub fn state(
        &mut self,
        kind: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
        now: Timestamp,
    ) {
        let status = if holds { "True" } else { "False" };
        let condition = Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: Some(whole_seconds(now)),
        };
        match self.conditions.iter_mut().find(|known| known.kind == kind) {
            Some(known) => {
                let since = known.last_transition_time.filter(|_| known.status == status);
                *known = condition;
                known.last_transition_time = since.or(known.last_transition_time);
            }
            // That something does not hold is worth saying only after it did.
            None if holds => self.conditions.push(condition),
            None => {}
        }
    }

    /// Says what cannot be read. Where it is not known how far the drain is, nothing is shown as if it were known: no share, no forecast, and
    /// not that the node is empty.
    pub fn cannot_read(&mut self, unread: &Unread, now: Timestamp) {
        let since = whole_seconds(unread.since);
        let message = format!("{} cannot be read since {since}: {}", unread.what, unread.why);
        if unread.blind {
            self.nothing_is_known(&message, now);
        }
        self.blockers.retain(|blocker| blocker.code != CANNOT_READ);
        self.blockers.insert(
            0,
            StatusBlocker {
                code: CANNOT_READ.to_owned(),
                object: "cluster".to_owned(),
                message: message.clone(),
                fix: "see the operator's log, its rights and its way to the API server".to_owned(),
                since: Some(since),
            },
        );
        self.last_error.clone_from(&message);
        self.state(UNREAD, true, CANNOT_READ, message, now);
    }

    fn nothing_is_known(&mut self, message: &str, now: Timestamp) {
        if self.phase == Some(Phase::Succeeded) {
            self.phase = Some(Phase::Running);
        }
        self.drain_progress = 0;
        self.estimated_end = None;
        let drained = self.conditions.iter_mut().find(|condition| condition.kind == DRAINED);
        if let Some(drained) = drained.filter(|drained| drained.status != "Unknown") {
            "Unknown".clone_into(&mut drained.status);
            CANNOT_READ.clone_into(&mut drained.reason);
            message.clone_into(&mut drained.message);
            drained.last_transition_time = Some(whole_seconds(now));
        }
    }

    /// It can be read; what was said about that is taken back.
    pub fn can_read(&mut self, now: Timestamp) {
        if !self.says(UNREAD) {
            return;
        }
        self.blockers.retain(|blocker| blocker.code != CANNOT_READ);
        if self.phase != Some(Phase::Failed) {
            let first = self.blockers.first();
            self.last_error =
                first.map(|first| format!("{}: {}", first.object, first.message)).unwrap_or_default();
        }
        self.state(UNREAD, false, "Read", "", now);
    }

    /// Says what giving the node back could not undo.
    pub fn not_taken_back(&mut self, left: &[Remains], now: Timestamp) {
        let blocker = |left: &Remains| StatusBlocker {
            code: NOT_TAKEN_BACK.to_owned(),
            object: left.object(),
            message: left.message(),
            fix: left.fix(),
            since: None,
        };
        self.blockers = left.iter().take(NAMES).map(blocker).collect();
        let first = left.first().map(|first| format!("{} {}", first.object(), first.message()));
        let first = first.unwrap_or_default();
        self.fail(first.clone());
        self.state(NOT_TAKEN_BACK, true, "GuestsNotRestored", first, now);
    }

    /// Fails for a reason that this operator cannot remove.
    pub fn fail(&mut self, error: impl Into<String>) {
        self.phase = Some(Phase::Failed);
        self.last_error = error.into();
        self.estimated_end = None;
    }

    /// Not begun, or held up before the drain.
    pub fn wait(&mut self, reason: &str, message: &str, now: Timestamp) {
        self.phase = Some(Phase::Running);
        self.estimated_end = None;
        message.clone_into(&mut self.last_error);
        self.state(WAITING, true, reason, message, now);
    }

    /// Takes in where the drain stands. Progress never runs backwards.
    pub fn take(&mut self, survey: &Survey, empty: bool, now: Timestamp) {
        self.state(WAITING, false, "Begun", "", now);
        let pending = i64::try_from(survey.pending.len()).unwrap_or(i64::MAX);
        if self.phase.is_none() || self.eviction_pods == 0 {
            self.total_pods = i64::try_from(survey.total).unwrap_or(i64::MAX);
        }
        // More may have come since; then there is more to do, not less done.
        self.eviction_pods = self.eviction_pods.max(pending);
        self.phase = Some(if empty { Phase::Succeeded } else { Phase::Running });
        let done = match self.eviction_pods {
            0 => 0,
            all => (all - pending) * 100 / all,
        };
        // Only a proof makes a hundred.
        self.drain_progress = if empty { 100 } else { self.drain_progress.min(99).max(done.min(99)) };
        self.name_pending(&survey.pending);
        self.blockers = survey
            .blockers
            .iter()
            .filter(|blocker| is_named(blocker, now))
            .take(NAMES)
            .map(StatusBlocker::from)
            .collect();
        let first = self.blockers.first();
        self.last_error =
            first.map(|first| format!("{}: {}", first.object, first.message)).unwrap_or_default();
        self.estimated_end = survey.end.filter(|_| !empty).map(Estimate::from);
        let never =
            survey.blockers.iter().filter(|blocker| blocker.reason.severity() == Severity::Never).count();
        let said = format!("{never} of {pending} pods cannot leave");
        let reason = match i64::try_from(never).unwrap_or(i64::MAX) {
            0 => "NothingInTheWay",
            all if all == pending => STUCK,
            _ => "CannotLeave",
        };
        self.state(BLOCKED, never > 0, reason, if never > 0 { said } else { String::new() }, now);
        let (reason, message) = if empty {
            ("Empty", "everything that has to leave has left".to_owned())
        } else {
            ("Draining", format!("{pending} pods have to leave"))
        };
        self.state(DRAINED, empty, reason, message, now);
    }

    fn name_pending(&mut self, pending: &[Key]) {
        self.pending_pods = pending.iter().take(NAMES).map(|key| key.name.to_string()).collect();
        self.pending_pods_refs = pending
            .iter()
            .take(NAMES)
            .map(|key| PodRef { namespace: key.namespace.to_string(), name: key.name.to_string() })
            .collect();
    }

    /// Whether this says something else than before, apart from when.
    pub fn differs(&self, before: &Self, now: Timestamp) -> bool {
        let bare = |status: &Self| Self { last_update: None, estimated_end: None, ..status.clone() };
        let ends = match (&before.estimated_end, &self.estimated_end) {
            (Some(before), Some(end)) => before.is_off(end, now),
            (before, end) => before.is_some() != end.is_some(),
        };
        ends || bare(self) != bare(before)
    }

    /// Whether it can wait a moment to be told: only numbers moved.
    pub fn is_urgent(&self, before: &Self) -> bool {
        let kinds = |status: &Self| {
            let truths = status.conditions.iter().map(|one| (one.kind.clone(), one.status.clone()));
            let codes = status.blockers.iter().map(|one| (one.code.clone(), one.object.clone()));
            let counts = (status.total_pods, status.eviction_pods, status.error_on_lease_count);
            (status.phase, counts, truths.collect::<Vec<_>>(), codes.collect::<Vec<_>>())
        };
        kinds(self) != kinds(before)
    }
}
