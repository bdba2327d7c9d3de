//! The kernel's own timers, what CPUs know of their next ones, and ticks, as a run needs them.

use std::collections::BTreeSet;

use idlewise_core::tick_period_ns;
use idlewise_trace::causes::{Cause, Step, WorkloadMetadata};

use super::{of_tasks, since};
use crate::simulate::NextTimer;

/// By CPU: when the kernel's own timers are due, and which timer is next from when on, those of played tasks aside.
pub(super) fn timers(
    metadata: &WorkloadMetadata,
    steps: &[Step],
) -> (Vec<Vec<u64>>, Vec<Vec<NextTimer>>) {
    let cpu_count = metadata.cpu_count as usize;
    let mut kernel_timers_ns = vec![Vec::new(); cpu_count];
    let mut known_timers = vec![Vec::new(); cpu_count];
    // Timers of played tasks are armed in the run.
    let by_timer = of_tasks(metadata, steps)
        .filter(|step| matches!(step.cause, Cause::Timer { .. } | Cause::Absolute));
    let due_for_tasks: BTreeSet<u64> =
        by_timer.map(|step| since(metadata, step.due_at_ns)).collect();
    for step in steps.iter().filter(|step| metadata.tasks[step.task as usize].is_idle) {
        let (cpu, at_ns) = (usize::from(step.cpu), since(metadata, step.due_at_ns));
        match step.cause {
            Cause::NextTimer { delay_ns } => {
                let due_ns = at_ns.saturating_add(delay_ns);
                let is_of_task = due_for_tasks.contains(&due_ns);
                known_timers[cpu].push((NextTimer { from_ns: at_ns, due_ns }, is_of_task));
            }
            _ => kernel_timers_ns[cpu].push(at_ns),
        }
    }
    (kernel_timers_ns, known_timers.into_iter().map(without_tasks).collect())
}

/// The next timers of a CPU but for those of played tasks, which are armed in the run. Where a task's was next, the one
/// behind it is that known before, if it is due later; otherwise it was cancelled, and it is the one known after.
fn without_tasks(known: Vec<(NextTimer, bool)>) -> Vec<NextTimer> {
    let mut kept: Vec<NextTimer> = Vec::with_capacity(known.len());
    let mut after = None;
    // Backwards: what is known after each one of a task.
    let mut behind = vec![None; known.len()];
    for (place, &(timer, is_of_task)) in known.iter().enumerate().rev() {
        match is_of_task {
            true => behind[place] = after.filter(|&due_ns| due_ns >= timer.due_ns),
            false => after = Some(timer.due_ns),
        }
    }
    let mut before = None;
    for ((timer, is_of_task), behind) in known.into_iter().zip(behind) {
        if !is_of_task {
            before = Some(timer.due_ns);
            kept.push(timer);
            continue;
        }
        let Some(due_ns) = before.filter(|&due_ns| due_ns >= timer.due_ns).or(behind) else {
            continue;
        };
        before = Some(due_ns);
        if kept.last().is_none_or(|last| last.due_ns != due_ns) {
            kept.push(NextTimer { due_ns, ..timer });
        }
    }
    kept
}

/// When each CPU ticks first, after the beginning.
pub(super) fn tick_phases_ns(metadata: &WorkloadMetadata) -> Vec<u64> {
    let Some(period_ns) = metadata.hz.map(|hz| i64::from(tick_period_ns(hz))) else {
        return Vec::new();
    };
    let since_ns =
        |phase_ns: &i64| (phase_ns - metadata.first_at_ns % period_ns).rem_euclid(period_ns);
    metadata.tick_phases_ns.iter().map(|phase_ns| since_ns(phase_ns) as u64).collect()
}
