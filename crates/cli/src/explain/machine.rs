//! `evac explain vm/NAME`: how one virtual machine would leave its node.

use evac_api::Call;
use evac_api::kubevirt::{request, wire};
use evac_core::drain::forecast::{PodForecast, Prospect};
use evac_core::drain::guest::instance_fate;
use evac_core::machines::strategy::{effective, provenance};
use evac_core::machines::{Instance, Kind, Machine, condition};
use evac_core::{Fact, Fate, Index, Key, Policy, Reason, Severity};
use evac_engine::{Http, guests};
use jiff::Timestamp;
use serde_json::json;

use super::{foretell, read_node, say};
use crate::drain::Format;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

pub async fn explain_machine(
    http: &Http,
    policy: &Policy,
    key: &Key,
    format: Format,
) -> Result<Exit, Failure> {
    let call = Call::get(request::object_path(Kind::Machine, key));
    let machine: wire::VirtualMachine = http.read(&call).await.map_err(|error| from_server(&error))?;
    let machine = Machine::from(machine);
    let call = Call::get(request::object_path(Kind::Instance, key));
    match http.read::<wire::VirtualMachineInstance>(&call).await {
        Ok(instance) => judge(http, policy, Some(machine), instance, format).await,
        Err(error) if error.is_not_found() => {
            let strategy = machine.power.strategy().map_or("unclear".into(), |strategy| strategy.to_string());
            let line =
                format!("vm {key} does not run (run strategy {strategy}); a drain has nothing to move");
            say(format, &[line], None);
            Ok(Exit::Done)
        }
        Err(error) => Err(from_server(&error)),
    }
}

pub async fn explain_instance(
    http: &Http,
    policy: &Policy,
    key: &Key,
    format: Format,
) -> Result<Exit, Failure> {
    let call = Call::get(request::object_path(Kind::Instance, key));
    let instance: wire::VirtualMachineInstance =
        http.read(&call).await.map_err(|error| from_server(&error))?;
    judge(http, policy, None, instance, format).await
}

async fn judge(
    http: &Http,
    policy: &Policy,
    machine: Option<Machine>,
    instance: wire::VirtualMachineInstance,
    format: Format,
) -> Result<Exit, Failure> {
    let key = Key::new(instance.metadata.namespace.clone(), instance.metadata.name.clone());
    let instance = Instance::from(instance);
    let node = instance.node.clone();
    // Without a node there are no pods to look at.
    let mut index = if node.is_empty() { Index::new() } else { read_node(http, policy, &node).await? };
    if index.instance(&key).is_none() {
        index.apply(Fact::Instance(Box::new(instance.clone())));
    }
    let machine = match machine {
        Some(machine) => Some(machine),
        None => owner_of(http, &instance).await,
    };
    if let Some(machine) = &machine {
        index.apply(Fact::Machine(Box::new(machine.clone())));
    }
    match guests::settings_with_origin(http).await {
        Ok(config) => drop(index.configure(config)),
        Err(error) => {
            output::warning(&format!(
                "where the cluster's default strategy comes from is not known: {error}"
            ));
        }
    }
    let now = http.clock().now();
    let foretold = foretell(&index, policy, &node, now);
    let pod = foretold
        .pods
        .into_iter()
        .find(|pod| pod.instance.as_ref() == Some(&key) && pod.prospect != Prospect::Stays);
    let Some(instance) = index.instance(&key) else {
        say(format, &[format!("vmi {key} has just ended")], None);
        return Ok(Exit::Done);
    };
    let (lines, blocked) = lines(&index, policy, instance, machine.as_ref(), pod.as_ref(), now);
    say(format, &lines, Some(json!({"node": node, "pods": pod.as_slice()})));
    Ok(if blocked { Exit::Blocked } else { Exit::Done })
}

/// The machine behind an instance, if it has one that can be read.
async fn owner_of(http: &Http, instance: &Instance) -> Option<Machine> {
    let owner = instance.owner.as_ref().filter(|owner| owner.kind == "VirtualMachine")?;
    let key = Key::new(instance.key.namespace.clone(), owner.name.clone());
    let call = Call::get(request::object_path(Kind::Machine, &key));
    http.read::<wire::VirtualMachine>(&call).await.ok().map(Machine::from)
}

/// What there is to say about an instance, and whether something is in the way.
fn lines(
    index: &Index,
    policy: &Policy,
    instance: &Instance,
    machine: Option<&Machine>,
    pod: Option<&PodForecast>,
    now: Timestamp,
) -> (Vec<String>, bool) {
    let owner = instance.owner.as_ref().map_or("no machine owns it".into(), |owner| format!("of {owner}"));
    let place =
        if instance.node.is_empty() { "is on no node".into() } else { format!("is on {}", instance.node) };
    let strategy = effective(instance, &index.config).strategy;
    let movable = match condition::find(&instance.conditions, "LiveMigratable") {
        None => "not known yet".into(),
        Some(found) if found.status == "True" => "yes".into(),
        Some(found) => {
            let (reason, message) = (found.reason.as_deref(), found.message.as_deref());
            format!("no ({}: {})", reason.unwrap_or_default(), message.unwrap_or_default())
        }
    };
    let (mut reason, fate) = instance_fate(index, policy, instance);
    let mut unknown = None;
    let mut does = match fate {
        Fate::Migrate => "would live-migrate it",
        Fate::Evict => "would evict it",
        Fate::Follow => "would wait for it",
        Fate::Leave => "would leave it",
        Fate::Blocked => "would not touch it, and not begin",
    };
    match pod.map(|pod| &pod.prospect) {
        Some(Prospect::Waits { reason: held }) if fate == Fate::Migrate => {
            does = "would try to live-migrate it, and wait";
            reason = held.clone();
        }
        Some(Prospect::Never { reason: held }) if fate == Fate::Migrate => {
            does = "would try once to live-migrate it, and leave it here";
            reason = held.clone();
        }
        Some(Prospect::Waits { reason: held } | Prospect::Never { reason: held }) if fate == Fate::Evict => {
            does = "would not evict it, and wait";
            reason = held.clone();
        }
        Some(Prospect::Turn { .. }) => unknown = pod.map(|pod| pod.sentence(now)),
        Some(Prospect::Unknown { why }) => unknown = Some(format!("not known: {why}")),
        _ => {}
    }
    let mut all = vec![
        format!("vmi {} {place} ({}, {owner})", instance.key, instance.phase.text()),
        format!("eviction strategy: {strategy} ({})", provenance(instance, machine, &index.config)),
        format!("can be live-migrated: {movable}"),
        format!("a drain {does}: its pod {}", reason.message()),
    ];
    all.extend(unknown);
    if let Some(running) = index.migrations_of(&instance.key).into_iter().find(|one| !one.phase.is_final()) {
        all.push(format!("migration {} is in phase {}", running.key.name, running.phase.text()));
    }
    if let Some(fix) = Reason::fix(&reason) {
        all.push(format!("to do: {fix}"));
    }
    (all, reason.severity() >= Severity::Slow)
}
