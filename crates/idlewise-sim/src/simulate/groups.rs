//! The CPUs that share states, by the machine's shape.

use idlewise_core::StateIndex;
use idlewise_machine::Scope;

use super::{Hardware, Shape};
use crate::SharedStates;
use crate::shared::{Group, SharedRule};

/// Groups of CPUs.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// Each CPU's groups with its number there, the widest scope first.
    pub(super) slots: Vec<Vec<(usize, usize)>>,
    /// The scope of each group.
    pub(super) scopes: Vec<Scope>,
}

impl Groups {
    pub(super) fn of(shared: SharedStates, shape: Shape, hardware: &Hardware) -> Self {
        let cpu_count = shape.cpu_count();
        let mut all = Groups { groups: Vec::new(), slots: Vec::new(), scopes: Vec::new() };
        if shared.is_empty() {
            return all;
        }
        all.slots.resize(cpu_count, Vec::new());
        let package_cpu_count = shape.core_count * shape.thread_count;
        for scope in shared.scopes().into_iter().rev() {
            let member_count = match scope {
                Scope::Core => shape.thread_count,
                Scope::Package => package_cpu_count,
                _ => match hardware.cluster_cpu_count as usize {
                    0 => package_cpu_count,
                    count => count.min(package_cpu_count),
                },
            };
            for package in 0..shape.package_count {
                let first = package * package_cpu_count;
                for begin in (0..package_cpu_count).step_by(member_count) {
                    // The last cluster may be smaller.
                    let end = (begin + member_count).min(package_cpu_count);
                    for cpu in begin..end {
                        all.slots[first + cpu].push((all.groups.len(), cpu - begin));
                    }
                    all.groups.push(Group::new(&shared, scope, end - begin));
                    all.scopes.push(scope);
                }
            }
        }
        all
    }
}

impl Hardware {
    /// The package state of a machine whose file has no shared states.
    pub(super) fn package_state(&self, deepest: StateIndex) -> SharedStates {
        if self.package_exit_ns == 0 && self.package_idle_mw == 0.0 {
            return SharedStates::NONE;
        }
        SharedStates::one(SharedRule {
            scope: Scope::Package,
            exit_latency_ns: self.package_exit_ns,
            target_residency_ns: 0,
            is_os_initiated: false,
            required: deepest,
            after_ns: self.package_after_ns,
            entry_ns: self.package_entry_ns,
            is_disabled: false,
        })
    }
}
