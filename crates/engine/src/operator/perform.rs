//! Carries out the actions of one subject, one after the other, and says what was learned. What people are told about it is sent
//! afterwards: nothing waits for that.

use std::collections::BTreeSet;

use evac_api::Project;
use evac_api::kubevirt::launcher::{self, Target};
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::{render, request, wire};
use evac_api::wire::{Budget, Pod};
use evac_api::{Answer, Call};
use evac_core::machines::action::Job;
use evac_core::machines::slots::{Ledger, Room, Slot};
use evac_core::machines::{Action, Config, Kind, Migration, MigrationPhase, Phase, Subject, Trouble};
use evac_core::{Fact, Key, Uid};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;

use super::work_queue::Ending;
use crate::http::{Http, HttpError, parse};

pub(super) struct Done {
    pub subject: Subject,
    pub learned: Vec<Fact>,
    pub ledger: Option<Ledger>,
    pub ending: Ending,
    pub trouble: Option<Trouble>,
    /// Something may have changed by it; telling people changes nothing.
    pub effective: bool,
    events: Vec<Call>,
}

/// What is needed to take a slot: who is known to be over or under way, and the limits.
pub(super) struct Slots {
    pub over: BTreeSet<Uid>,
    pub under_way: Vec<Slot>,
    pub config: Config,
    /// The ledger as the watch showed it.
    pub ledger: Ledger,
    /// How often that went back to an earlier version.
    pub rewinds: u64,
}

pub(super) struct Performer {
    http: Http,
    /// The ledger as this process last wrote it, and how often it had been rewound by then. Slots are taken one after the other: contenders in one process would only make each
    /// other repeat.
    ledger: Mutex<(u64, Ledger)>,
}

enum Stop {
    Conflict,
    Failed(Option<Trouble>),
}

impl From<HttpError> for Stop {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Status { status: 404 | 409 | 410, .. } => Self::Conflict,
            _ => Self::Failed(None),
        }
    }
}

impl Performer {
    pub fn new(http: Http) -> Self {
        Self { http, ledger: Mutex::default() }
    }

    /// What came of it, and the events that are to be sent once that is reported.
    pub async fn carry_out(
        &self,
        subject: Subject,
        actions: Vec<Action>,
        slots: &Slots,
    ) -> (Done, Vec<Call>) {
        let effective = actions.iter().any(|action| !matches!(action, Action::Event { .. }));
        let mut done = Done {
            subject,
            learned: Vec::new(),
            ledger: None,
            ending: Ending::Done,
            trouble: None,
            effective,
            events: Vec::new(),
        };
        for action in actions {
            let result = self.perform(&action, slots, &mut done).await;
            let outcome = match &result {
                Ok(()) => "done",
                Err(Stop::Conflict) => "conflict",
                Err(Stop::Failed(_)) => "failed",
            };
            self.http.metrics().action(word(&action), outcome);
            match result {
                Ok(()) => {}
                Err(Stop::Conflict) => {
                    // What follows was decided on the same old view.
                    done.ending = Ending::Conflict;
                    break;
                }
                Err(Stop::Failed(trouble)) => {
                    tracing::debug!(?action, ?trouble, "not carried out");
                    done.ending = Ending::Failed;
                    done.trouble = done.trouble.or(trouble);
                }
            }
        }
        let events = std::mem::take(&mut done.events);
        (done, events)
    }

    async fn perform(&self, action: &Action, slots: &Slots, done: &mut Done) -> Result<(), Stop> {
        match action {
            Action::CreateLauncher { instance, uid, name, job } => {
                self.create_launcher(instance, uid, name, job.as_ref(), slots, done).await
            }
            Action::CreateInstance { machine, uid, paused } => {
                let object = self.template(Kind::Machine, machine, uid).await?;
                let instance = render::instance(&object, *paused);
                let path = request::in_namespace(Kind::Instance, &machine.namespace);
                let about = (Kind::Machine, machine, uid);
                self.create::<wire::VirtualMachineInstance>(&path, &instance, about, done).await
            }
            Action::CreateReplica { set, uid, name } => {
                let object = self.template(Kind::ReplicaSet, set, uid).await?;
                let instance = render::replica(&object, name);
                let path = request::in_namespace(Kind::Instance, &set.namespace);
                let about = (Kind::ReplicaSet, set, uid);
                self.create::<wire::VirtualMachineInstance>(&path, &instance, about, done).await
            }
            Action::CreateMigration { instance, uid, name, node, priority } => {
                let object = render::evacuation(instance, name, node, priority);
                let path = request::in_namespace(Kind::Migration, &instance.namespace);
                let about = (Kind::Instance, instance, uid);
                self.create::<wire::Migration>(&path, &object, about, done).await
            }
            Action::CreateBudget { instance, uid, name } => {
                let object = render::budget(instance, uid, name);
                let path = request::in_namespace(Kind::Budget, &instance.namespace);
                let about = (Kind::Instance, instance, uid);
                self.create::<Budget>(&path, &object, about, done).await
            }
            Action::Event { kind, key, uid, warning, reason, message } => {
                done.events.push(self.event((*kind, key, uid), *warning, reason, message));
                Ok(())
            }
            Action::Delete { kind, key, uid, .. } | Action::Patch { kind, key, uid, .. } => {
                let Some(call) = request::call_for(action) else { return Ok(()) };
                let answer = self.http.send(&call).await?;
                if answer.status == 404 {
                    done.learned.push(gone(*kind, key, uid));
                    return Ok(());
                }
                if !answer.is_success() {
                    return Err(refused(&answer, "FailedDelete", matches!(action, Action::Delete { .. })));
                }
                done.learned.extend(learned(*kind, key, uid, &answer));
                Ok(())
            }
        }
    }

    /// The object something is made from, if it is still the one that was decided about.
    async fn template(&self, kind: Kind, key: &Key, uid: &Uid) -> Result<Value, Stop> {
        let object: Value = self.http.read(&Call::get(request::object_path(kind, key))).await?;
        let meta = &object["metadata"];
        if meta["uid"] != uid.0.as_str() || meta["deletionTimestamp"].is_string() {
            return Err(Stop::Conflict);
        }
        Ok(object)
    }

    async fn create_launcher(
        &self,
        instance: &Key,
        uid: &Uid,
        name: &str,
        job: Option<&Job>,
        slots: &Slots,
        done: &mut Done,
    ) -> Result<(), Stop> {
        let asker = job.map(|job| (Key::new(instance.namespace.clone(), job.name.clone()), &job.uid));
        // All at once: a slot lies idle meanwhile.
        let (object, migration, ledger) = tokio::join!(
            self.template(Kind::Instance, instance, uid),
            async {
                match &asker {
                    Some((key, uid)) => self.template(Kind::Migration, key, uid).await.map(Some),
                    None => Ok(None),
                }
            },
            async {
                match job.and_then(|job| job.slot.as_ref()) {
                    Some(slot) => self.take_slot(slot, slots).await.map(Some),
                    None => Ok(None),
                }
            },
        );
        if let Some(ledger) = ledger? {
            let granted = job.is_none_or(|job| ledger.holds(&job.uid));
            done.ledger = Some(ledger);
            if !granted {
                return Ok(());
            }
        }
        let (object, migration) = (object?, migration?);
        let phase = |object: &Value| object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let of_migration = migration.as_ref().map(|migration| MigrationPhase::of(&phase(migration)));
        if !Job::is_open(Phase::of(&phase(&object)), of_migration) {
            return Err(Stop::Conflict);
        }
        let added =
            migration.as_ref().and_then(|migration| migration["spec"]["addedNodeSelector"].as_object());
        let target = job.map(|job| Target { job, added_selector: added });
        let pod = launcher::render(&object, name, target);
        let path = request::in_namespace(Kind::Pod, &instance.namespace);
        let about = match &asker {
            Some((key, uid)) => (Kind::Migration, key, *uid),
            None => (Kind::Instance, instance, uid),
        };
        self.create::<Pod>(&path, &pod, about, done).await
    }

    /// Creates an object and learns it. That it exists already is as good: its name says what it is for.
    async fn create<T: Follow + DeserializeOwned>(
        &self,
        path: &str,
        object: &Value,
        (kind, key, uid): (Kind, &Key, &Uid),
        done: &mut Done,
    ) -> Result<(), Stop> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let answer = self.http.send(&request::create(path, object)).await?;
        if answer.status == 409 {
            let existing: T = self.http.read(&Call::get(format!("{path}/{name}"))).await?;
            done.learned.push(existing.seen());
            return Err(Stop::Conflict);
        }
        if !answer.is_success() {
            let message = answer.failure().message;
            let what = match T::KIND {
                Kind::Pod => "pod",
                Kind::Migration => "migration",
                Kind::Budget => "PodDisruptionBudget",
                _ => "virtual machine instance",
            };
            let said = format!("Error creating {what}: {message}");
            done.events.push(self.event((kind, key, uid), true, "FailedCreate", &said));
            return Err(refused(&answer, "FailedCreate", true));
        }
        let created: T = parse(&answer)?;
        done.learned.push(created.seen());
        let message = match kind {
            Kind::Machine => {
                format!("Started the virtual machine by creating the new virtual machine instance {name}")
            }
            Kind::ReplicaSet => format!("Started the virtual machine instance {name}"),
            Kind::Migration => format!("Created migration target pod {name}"),
            _ if T::KIND == Kind::Migration => format!("Created Migration {name}"),
            _ if T::KIND == Kind::Budget => format!("Created PodDisruptionBudget {name}"),
            _ => format!("Created virtual machine pod {name}"),
        };
        done.events.push(self.event((kind, key, uid), false, "SuccessfulCreate", &message));
        Ok(())
    }

    fn event(&self, about: (Kind, &Key, &Uid), warning: bool, reason: &str, message: &str) -> Call {
        let (kind, key, uid) = about;
        request::event(kind, key, uid, warning, reason, message, self.http.clock().calendar())
    }

    /// Events are for people; losing one changes nothing.
    pub async fn tell(&self, events: Vec<Call>) {
        for call in events {
            if let Err(error) = self.http.send(&call).await {
                tracing::debug!(%error, "event was lost");
            }
        }
    }

    /// Enters a migration into the ledger. What was last seen of it will do: a write on an old view is refused, and then it is read.
    async fn take_slot(&self, slot: &Slot, slots: &Slots) -> Result<Ledger, Stop> {
        let mut mine = self.ledger.lock().await;
        let (rewinds, written) = &*mine;
        let newest = if *rewinds == slots.rewinds { slots.ledger.newer_of(written) } else { &slots.ledger };
        let known = if newest.version.is_empty() { self.read_ledger().await? } else { newest.clone() };
        let written = match self.enter(slot, &known, slots).await {
            Err(Stop::Conflict) => {
                let fresh = self.read_ledger().await?;
                self.enter(slot, &fresh, slots).await?
            }
            other => other?,
        };
        *mine = (slots.rewinds, written.clone());
        Ok(written)
    }

    async fn read_ledger(&self) -> Result<Ledger, Stop> {
        match self.http.read::<wire::ConfigMap>(&request::read_ledger()).await {
            Ok(map) => Ok(render::read_ledger(&map)),
            Err(error) if error.is_not_found() => Ok(Ledger::default()),
            Err(error) => Err(error.into()),
        }
    }

    async fn enter(&self, slot: &Slot, known: &Ledger, slots: &Slots) -> Result<Ledger, Stop> {
        let mut over = BTreeSet::new();
        for entry in &known.slots {
            if slots.over.contains(&entry.uid) || self.is_over(entry, slots).await? {
                over.insert(entry.uid.clone());
            }
        }
        let mut next = known.without(|entry| over.contains(&entry.uid));
        next.acknowledge(slots.under_way.iter().cloned());
        if next.enter(slot.clone(), &slots.config) != Room::Free {
            return Ok(known.clone());
        }
        let answer = self.http.send(&request::write_ledger(&next)).await?;
        if !answer.is_success() {
            return Err(refused(&answer, "FailedUpdate", false));
        }
        let map: wire::ConfigMap = parse(&answer)?;
        Ok(render::read_ledger(&map))
    }

    /// Only the server can say that a migration is gone; a view may just not have it yet.
    async fn is_over(&self, slot: &Slot, slots: &Slots) -> Result<bool, Stop> {
        // One that is seen to be under way is not over, or will be seen to be later.
        if slots.under_way.iter().any(|running| running.uid == slot.uid) {
            return Ok(false);
        }
        let call = Call::get(request::object_path(Kind::Migration, &slot.migration));
        match self.http.read::<wire::Migration>(&call).await {
            Ok(object) => {
                let migration = Migration::from(object);
                Ok(migration.uid != slot.uid || migration.phase.is_final())
            }
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// What an action is called where actions are counted.
fn word(action: &Action) -> &'static str {
    match action {
        Action::CreateLauncher { .. } => "create_launcher",
        Action::CreateInstance { .. } => "create_instance",
        Action::CreateReplica { .. } => "create_replica",
        Action::CreateMigration { .. } => "create_migration",
        Action::CreateBudget { .. } => "create_budget",
        Action::Event { .. } => "event",
        Action::Delete { .. } => "delete",
        Action::Patch { .. } => "patch",
    }
}

fn refused(answer: &Answer, reason: &'static str, tell: bool) -> Stop {
    match answer.status {
        404 | 409 | 410 => Stop::Conflict,
        _ => Stop::Failed(tell.then(|| Trouble { reason, message: answer.failure().message })),
    }
}

fn gone(kind: Kind, key: &Key, uid: &Uid) -> Fact {
    let (key, uid) = (key.clone(), uid.clone());
    match kind {
        Kind::Machine => Fact::MachineGone(key, uid),
        Kind::Instance => Fact::InstanceGone(key, uid),
        Kind::ReplicaSet => Fact::ReplicaSetGone(key, uid),
        Kind::Migration => Fact::MigrationGone(key, uid),
        Kind::Budget => Fact::BudgetGone(key, uid),
        Kind::Lease => Fact::LeaseGone(key, uid),
        Kind::Pod | Kind::Node => Fact::PodGone(key, uid),
    }
}

fn seen<T: Follow + DeserializeOwned>(object: Value) -> Option<Fact> {
    serde_json::from_value::<T>(object).ok().map(Project::seen)
}

/// The object in an answer; a deletion that is complete answers with a status instead.
fn learned(kind: Kind, key: &Key, uid: &Uid, answer: &Answer) -> Option<Fact> {
    let object: Value = serde_json::from_slice(&answer.body).ok()?;
    if object["kind"] == "Status" {
        return Some(gone(kind, key, uid));
    }
    match kind {
        Kind::Machine => seen::<wire::VirtualMachine>(object),
        Kind::Instance => seen::<wire::VirtualMachineInstance>(object),
        Kind::ReplicaSet => seen::<wire::ReplicaSet>(object),
        Kind::Migration => seen::<wire::Migration>(object),
        Kind::Pod => seen::<Pod>(object),
        Kind::Budget => seen::<Budget>(object),
        Kind::Node | Kind::Lease => None,
    }
}
