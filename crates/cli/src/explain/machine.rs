//! `evac explain vm/NAME`: how one virtual machine would leave its node.

use evac_api::Call;
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::{request, wire};
use evac_core::guest::outlook;
use evac_core::machines::strategy::effective;
use evac_core::machines::{Instance, Kind, condition};
use evac_core::{Fact, Fate, Index, Key, Policy, Severity};
use evac_engine::watch::{Source, list};
use evac_engine::{Http, guests};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

pub async fn explain_machine(http: &Http, policy: &Policy, key: &Key) -> Result<Exit, Failure> {
    let call = Call::get(request::object_path(Kind::Machine, key));
    let machine: wire::VirtualMachine = http.read(&call).await.map_err(|error| from_server(&error))?;
    let mut index = Index::new();
    index.apply(Fact::Machine(machine.seen()));
    let call = Call::get(request::object_path(Kind::Instance, key));
    match http.read::<wire::VirtualMachineInstance>(&call).await {
        Ok(instance) => judge(http, policy, index, instance).await,
        Err(error) if error.is_not_found() => {
            let strategy = index.machines().machine(key).and_then(|machine| machine.power.strategy());
            let strategy = strategy.map_or("unclear".into(), |strategy| strategy.to_string());
            output::data(&format!(
                "vm {key} does not run (run strategy {strategy}); a drain has nothing to move"
            ));
            Ok(Exit::Done)
        }
        Err(error) => Err(from_server(&error)),
    }
}

pub async fn explain_instance(http: &Http, policy: &Policy, key: &Key) -> Result<Exit, Failure> {
    let call = Call::get(request::object_path(Kind::Instance, key));
    let instance: wire::VirtualMachineInstance =
        http.read(&call).await.map_err(|error| from_server(&error))?;
    judge(http, policy, Index::new(), instance).await
}

async fn judge(
    http: &Http,
    policy: &Policy,
    mut index: Index,
    instance: wire::VirtualMachineInstance,
) -> Result<Exit, Failure> {
    let key = Key::new(instance.metadata.namespace.clone(), instance.metadata.name.clone());
    index.apply(Fact::Machine(instance.seen()));
    let migrations = Source { path: guests::MIGRATIONS.into(), query: String::new(), page: 500 };
    let (migrations, _) =
        list::<wire::Migration>(http, &migrations).await.map_err(|error| from_server(&error))?;
    index.reset_machines(Kind::Migration, migrations.into_iter().map(Follow::seen).collect());
    let config = guests::settings(http, &index).await.map_err(|error| from_server(&error))?;
    index.configure(config);
    let node = index.machines().instance(&key).map(|vmi| vmi.node.clone()).unwrap_or_default();
    let wanted = guests::machines_that_matter(&index, &[node]);
    for fact in guests::read_machines(http, &wanted).await {
        index.apply(fact);
    }
    let Some(instance) = index.machines().instance(&key) else {
        output::data(&format!("vmi {key} has just ended"));
        return Ok(Exit::Done);
    };
    let (lines, blocked) = lines(&index, policy, instance);
    for line in &lines {
        output::data(line);
    }
    Ok(if blocked { Exit::Blocked } else { Exit::Done })
}

/// What there is to say about an instance, and whether something is in the way.
fn lines(index: &Index, policy: &Policy, instance: &Instance) -> (Vec<String>, bool) {
    let machines = index.machines();
    let owner = instance.owner.as_ref().map_or("no machine owns it".into(), |owner| format!("of {owner}"));
    let place =
        if instance.node.is_empty() { "is on no node".into() } else { format!("is on {}", instance.node) };
    let strategy = effective(instance, &machines.config);
    let movable = match condition::find(&instance.conditions, "LiveMigratable") {
        None => "not known yet".into(),
        Some(found) if found.status == "True" => "yes".into(),
        Some(found) => {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("no ({}: {})", part(&found.reason), part(&found.message))
        }
    };
    let (reason, fate) = outlook(index, policy, instance);
    let does = match fate {
        Fate::Migrate => "would live-migrate it",
        Fate::Evict => "would evict it",
        Fate::Follow => "would wait for it",
        Fate::Leave => "would leave it",
        Fate::Blocked => "would not touch it, and not end",
    };
    let mut all = vec![
        format!("vmi {} {place} ({}, {owner})", instance.key, instance.phase.text()),
        format!("eviction strategy: {} ({})", strategy.strategy, strategy.origin.words()),
        format!("can be live-migrated: {movable}"),
        format!("a drain {does}: its pod {}", reason.message()),
    ];
    if let Some(running) = machines.migrations_of(&instance.key).into_iter().find(|one| !one.phase.is_final())
    {
        all.push(format!("migration {} is in phase {}", running.key.name, running.phase.text()));
    }
    if let Some(fix) = reason.fix() {
        all.push(format!("to do: {fix}"));
    }
    (all, reason.severity() >= Severity::Slow)
}
