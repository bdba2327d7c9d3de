//! Removes from a workload log what identifies its machine, its user or its programs.

use idlewise_machine::Machine;

use super::{Step, TaskInfo, WorkloadMetadata};
use crate::anonymize::{Field, short_release, whole_ticks_ns};

/// A workload log without identifying information. A prediction from it gives the same numbers, with numbers
/// in place of the tasks' names, unless these are kept.
pub struct AnonymousWorkload {
    /// The anonymous metadata.
    pub metadata: WorkloadMetadata,
    /// The fields that the log had and that were dropped.
    pub dropped: Vec<Field>,
    shift_ns: i64,
}

impl AnonymousWorkload {
    /// What remains, and could still identify.
    pub const REMAINS: [&str; 3] = [
        "who wakes whom, when, and how long each task runs: the pattern of a program may be recognised",
        "the idle states' names and figures, and how many CPUs there are",
        "the governor, HZ and the kernel's version",
    ];

    /// Drops the tasks' numbers, and all identifying fields except those in `keep`.
    pub fn new(metadata: &WorkloadMetadata, keep: &[Field]) -> Self {
        let mut anonymous = metadata.clone();
        let mut shift_ns = 0;
        for task in &mut anonymous.tasks {
            task.pid = None;
        }
        let mut dropped = Vec::new();
        for field in Field::ALL.into_iter().filter(|field| !keep.contains(field)) {
            let before = anonymous.clone();
            match field {
                Field::Command => anonymous.command = None,
                Field::Source => anonymous.blake3 = None,
                Field::Kernel => {
                    anonymous.kernel = metadata.kernel.as_deref().and_then(short_release);
                }
                Field::Machine => {
                    anonymous.machine = metadata.machine.as_ref().map(Machine::anonymous);
                }
                Field::Time => {
                    shift_ns = whole_ticks_ns(metadata.first_at_ns, metadata.hz);
                    anonymous.first_at_ns = anonymous.first_at_ns.saturating_sub(shift_ns);
                    anonymous.last_at_ns = anonymous.last_at_ns.saturating_sub(shift_ns);
                }
                Field::Tasks => {
                    for (number, task) in anonymous.tasks.iter_mut().enumerate() {
                        let name = format!("task {number}");
                        *task = TaskInfo { name, pid: None, is_idle: task.is_idle };
                    }
                }
                // A workload log has neither.
                Field::CpuModel | Field::Doubts => {}
            }
            if before != anonymous {
                dropped.push(field);
            }
        }
        AnonymousWorkload { metadata: anonymous, dropped, shift_ns }
    }

    /// Returns the step at its shifted time.
    pub fn step(&self, step: &Step) -> Step {
        let shifted = |at_ns: i64| at_ns.saturating_sub(self.shift_ns);
        Step {
            due_at_ns: shifted(step.due_at_ns),
            run_at_ns: shifted(step.run_at_ns),
            end_at_ns: shifted(step.end_at_ns),
            ..*step
        }
    }
}
