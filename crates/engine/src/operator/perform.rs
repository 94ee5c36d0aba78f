//! Carries out the actions of one subject, one after the other, and says what was learned. What people are told about it is sent
//! afterwards: nothing waits for that.

use std::collections::BTreeSet;

use evac_api::kubevirt::launcher::{self, Target};
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::{render, request, wire};
use evac_api::wire::{Budget, Pod};
use evac_api::{Answer, Call, classify};
use evac_core::action::Event;
use evac_core::cluster::subject::ObjectRef;
use evac_core::machines::action::Job;
use evac_core::machines::slots::{Ledger, Room, Slot};
use evac_core::machines::{
    Action, Config, Decision, Kind, Migration, MigrationPhase, Own, Phase, Subject, Trouble,
};
use evac_core::{Fact, Key, Uid};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;

use super::agenda::Ending;
use crate::act;
use crate::http::{Http, HttpError, parse};

pub(super) struct Done {
    pub subject: Subject,
    pub learned: Vec<Fact>,
    pub ledger: Option<Ledger>,
    pub ending: Ending,
    pub trouble: Option<Trouble>,
    /// Something may have changed by it; telling people changes nothing.
    pub effective: bool,
    events: Vec<Event>,
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
    pub http: Http,
    /// The ledger as this process last wrote it, and how often it had been rewound by then. Slots are taken one after the other: contenders in one process would only make each
    /// other repeat.
    ledger: Mutex<(u64, Ledger)>,
}

/// A launcher that is to be created.
struct Launcher<'a> {
    instance: &'a Key,
    uid: &'a Uid,
    name: &'a str,
    job: Option<&'a Job>,
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

    /// What came of it, and the events that are to be published once that is reported.
    pub async fn carry_out(&self, subject: Subject, decision: Decision, slots: &Slots) -> (Done, Vec<Event>) {
        let Decision { actions, events, .. } = decision;
        let mut done = Done {
            subject,
            learned: Vec::new(),
            ledger: None,
            ending: Ending::Done,
            trouble: None,
            effective: !actions.is_empty(),
            events: Vec::new(),
        };
        let mut carried_out = 0;
        for action in &actions {
            let result = self.perform(action, slots, &mut done).await;
            let outcome = match &result {
                Ok(()) => "done",
                Err(Stop::Conflict) => "conflict",
                Err(Stop::Failed(_)) => "failed",
            };
            self.http.metrics().action(word(action), outcome);
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
            carried_out += 1;
        }
        let mut all = std::mem::take(&mut done.events);
        for event in events.into_iter().filter(|event| event.after <= carried_out) {
            self.http.metrics().action("event", "done");
            all.push(event);
        }
        (done, all)
    }

    async fn perform(&self, action: &Action, slots: &Slots, done: &mut Done) -> Result<(), Stop> {
        match action {
            Action::Own(Own::CreateLauncher { instance, uid, name, job }) => {
                let wanted = Launcher { instance, uid, name, job: job.as_ref() };
                self.create_launcher(wanted, slots, done).await
            }
            Action::Own(Own::CreateInstance { machine, uid, paused }) => {
                let from = ObjectRef::new(Kind::Machine, machine.clone(), uid.clone());
                let object = render::instance(&self.template(&from).await?, *paused);
                self.create::<wire::VirtualMachineInstance>(&object, from, done).await
            }
            Action::Own(Own::CreateReplica { set, uid, name }) => {
                let from = ObjectRef::new(Kind::ReplicaSet, set.clone(), uid.clone());
                let object = render::replica(&self.template(&from).await?, name);
                self.create::<wire::VirtualMachineInstance>(&object, from, done).await
            }
            Action::Own(Own::CreateBudget { instance, uid, name }) => {
                let object = render::budget(instance, uid, name);
                let about = ObjectRef::new(Kind::Instance, instance.clone(), uid.clone());
                self.create::<Budget>(&object, about, done).await
            }
            Action::Migrate { instance, uid, name, .. } => {
                let answer = act::send(&self.http, action).await?;
                let about = ObjectRef::new(Kind::Instance, instance.clone(), uid.clone());
                let key = Key::new(instance.namespace.clone(), name.as_str());
                self.created::<wire::Migration>(&answer, &key, about, done).await
            }
            action => {
                let answer = act::send(&self.http, action).await?;
                let outcome = classify(&answer);
                done.learned.extend(act::learned(action, &outcome, &answer));
                if answer.status == 404 || answer.is_success() {
                    return Ok(());
                }
                Err(refused(&answer, "FailedDelete", matches!(action, Action::Delete { .. })))
            }
        }
    }

    /// The object something is made from, if it is still the one that was decided about.
    async fn template(&self, from: &ObjectRef) -> Result<Value, Stop> {
        let object: Value = self.http.read(&Call::get(request::object_path(from.kind, &from.key))).await?;
        let meta = &object["metadata"];
        if meta["uid"] != from.uid.0.as_str() || meta["deletionTimestamp"].is_string() {
            return Err(Stop::Conflict);
        }
        Ok(object)
    }

    async fn create_launcher(
        &self,
        wanted: Launcher<'_>,
        slots: &Slots,
        done: &mut Done,
    ) -> Result<(), Stop> {
        let Launcher { instance, uid, name, job } = wanted;
        let asker = job.map(|job| {
            let key = Key::new(instance.namespace.clone(), job.name.clone());
            ObjectRef::new(Kind::Migration, key, job.uid.clone())
        });
        let instance = ObjectRef::new(Kind::Instance, instance.clone(), uid.clone());
        // All at once: a slot lies idle meanwhile.
        let (object, migration, ledger) = tokio::join!(
            self.template(&instance),
            async {
                match &asker {
                    Some(migration) => self.template(migration).await.map(Some),
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
        self.create::<Pod>(&pod, asker.unwrap_or(instance), done).await
    }

    /// Creates an object and learns it.
    async fn create<T: Follow + DeserializeOwned>(
        &self,
        object: &Value,
        about: ObjectRef,
        done: &mut Done,
    ) -> Result<(), Stop> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = Key::new(about.key.namespace.clone(), name);
        let path = request::in_namespace(T::KIND, &key.namespace);
        let answer = self.http.send(&request::create(&path, object)).await?;
        self.created::<T>(&answer, &key, about, done).await
    }

    /// Learns an object that was to be created, and tells about it. That it exists already is as good: its name says what it is for.
    async fn created<T: Follow + DeserializeOwned>(
        &self,
        answer: &Answer,
        key: &Key,
        about: ObjectRef,
        done: &mut Done,
    ) -> Result<(), Stop> {
        if answer.status == 409 {
            let existing: T = self.http.read(&Call::get(request::object_path(T::KIND, key))).await?;
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
            done.events.push(Event::warning(about, "FailedCreate", said));
            return Err(refused(answer, "FailedCreate", true));
        }
        let created: T = parse(answer)?;
        done.learned.push(created.seen());
        let name = &key.name;
        let message = match about.kind {
            Kind::Machine => {
                format!("Started the virtual machine by creating the new virtual machine instance {name}")
            }
            Kind::ReplicaSet => format!("Started the virtual machine instance {name}"),
            Kind::Migration => format!("Created migration target pod {name}"),
            _ if T::KIND == Kind::Migration => format!("Created Migration {name}"),
            _ if T::KIND == Kind::Budget => format!("Created PodDisruptionBudget {name}"),
            _ => format!("Created virtual machine pod {name}"),
        };
        done.events.push(Event::normal(about, "SuccessfulCreate", message));
        Ok(())
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
        Action::Own(Own::CreateLauncher { .. }) => "create_launcher",
        Action::Own(Own::CreateInstance { .. }) => "create_instance",
        Action::Own(Own::CreateReplica { .. }) => "create_replica",
        Action::Own(Own::CreateBudget { .. }) => "create_budget",
        Action::Migrate { .. } => "create_migration",
        Action::Delete { .. } => "delete",
        _ => "patch",
    }
}

fn refused(answer: &Answer, reason: &'static str, tell: bool) -> Stop {
    match answer.status {
        404 | 409 | 410 => Stop::Conflict,
        _ => Stop::Failed(tell.then(|| Trouble { reason, message: answer.failure().message })),
    }
}
