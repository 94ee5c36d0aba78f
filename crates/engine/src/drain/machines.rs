//! What a drain watches only when it matters: budgets where pods are evicted, and all around virtual machines where there are some.

use evac_api::kubevirt::wire::{Migration, VirtualMachineInstance};
use evac_api::wire::Budget;
use evac_core::machines::Kind;
use evac_core::{Fact, VmVisibility};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{DrainError, Input, Loop};
use crate::guests;
use crate::watch::Report;

impl Loop<'_> {
    /// Starts what has become necessary. True if something is to be waited for before the first decision.
    pub(super) async fn look_further(
        &mut self,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
    ) -> Result<bool, DrainError> {
        let mut waits = false;
        if *self.index.vm_visibility() == VmVisibility::NotYetRead && self.drainer.has_guests(&self.index) {
            if !self.started.machines {
                self.started.machines = true;
                self.watch_machines(tasks, sender);
                waits = true;
            } else if !self.missing.instances && !self.missing.migrations {
                self.read_settings().await?;
            }
        }
        let wanted = self.drainer.machines_to_read(&self.index);
        if !wanted.is_empty() {
            for fact in guests::read_machines(&self.http, &wanted).await {
                self.index.apply(fact);
            }
        }
        if !waits && !self.started.budgets && self.drainer.needs_budgets(&self.index) {
            self.started.budgets = true;
            self.missing.budgets = true;
            let path = "/apis/policy/v1/poddisruptionbudgets";
            self.follow::<Budget>(tasks, sender, path, String::new(), Input::Budget);
            waits = true;
        }
        Ok(waits)
    }

    fn watch_machines(&mut self, tasks: &mut JoinSet<()>, sender: &mpsc::UnboundedSender<Input>) {
        self.missing.instances = true;
        self.missing.migrations = true;
        let query = guests::on_nodes(&self.drainer.request.nodes);
        self.follow::<VirtualMachineInstance>(tasks, sender, guests::INSTANCES, query, Input::Instance);
        self.follow::<Migration>(tasks, sender, guests::MIGRATIONS, String::new(), Input::Migration);
    }

    /// Both lists are there; what is still missing is how the cluster is set up.
    async fn read_settings(&mut self) -> Result<(), DrainError> {
        match guests::settings(&self.http, &self.index).await {
            Ok(config) => {
                self.index.configure(config);
                self.index.set_vm_visibility(VmVisibility::Readable);
            }
            Err(error) if error.is_transient() => {
                return Err(DrainError::Read { what: "the settings of KubeVirt", source: error });
            }
            Err(error) => self.index.set_vm_visibility(VmVisibility::Denied(error.to_string())),
        }
        Ok(())
    }

    pub(super) fn take_instances(&mut self, report: Report<Fact>) -> Result<(), DrainError> {
        match report {
            Report::Listed(list, at) => {
                self.index.reset(Kind::Instance, list, &at);
                self.missing.instances = false;
            }
            Report::Seen(fact) => drop(self.index.apply(fact)),
            Report::Gone(last) => drop(self.index.apply(last.gone())),
            Report::Failed { error, final_ } => {
                if !final_ && self.missing.instances {
                    return Err(DrainError::Read { what: "virtual machine instances", source: error });
                }
                if final_ {
                    self.index.set_vm_visibility(guests::vm_visibility_after(&error));
                    self.missing.instances = false;
                }
            }
        }
        Ok(())
    }

    pub(super) fn take_migrations(&mut self, report: Report<Fact>) -> Result<(), DrainError> {
        match report {
            Report::Listed(list, at) => {
                self.index.reset(Kind::Migration, list, &at);
                self.missing.migrations = false;
            }
            Report::Seen(fact) => drop(self.index.apply(fact)),
            Report::Gone(last) => drop(self.index.apply(last.gone())),
            Report::Failed { error, final_ } => {
                if !final_ && self.missing.migrations {
                    return Err(DrainError::Read { what: "migrations", source: error });
                }
                if final_ {
                    self.index.set_vm_visibility(guests::vm_visibility_after(&error));
                    self.missing.migrations = false;
                }
            }
        }
        Ok(())
    }
}
