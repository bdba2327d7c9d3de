//! Messages, wake-ups, and how one CPU gets another's attention.

use idlewise_core::Ring;
use idlewise_trace::WakeReason;

use super::cpu::{Effect, Mode, Pending};
use super::task::{Found, TaskId};
use super::{Event, Simulation, TaskState};

/// Whether a message is one of those from the first to the one before the end.
pub(super) fn is_among(stamp_ns: u64, (first, end): (u64, u64)) -> bool {
    (first..end).contains(&stamp_ns)
}

/// The kind of queue on the other CPU that received an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The run queue.
    Task,
    /// The queue of functions to call.
    Call,
}

impl Simulation<'_> {
    /// Puts a message into a mailbox and wakes its receiver. Returns the sender's cost.
    pub(super) fn send(&mut self, from: usize, to: TaskId, stamp_ns: u64) -> u64 {
        self.report.tasks.sent_count += 1;
        self.tasks[to].mailbox.push_back(stamp_ns);
        self.bound_queue("messages", self.tasks[to].mailbox.len(), super::MAILBOX_MAX);
        let task = &self.tasks[to];
        let is_awaited = match task.retried {
            Some(super::Op::Wait) => true,
            Some(super::Op::Await { stamps, .. }) => is_among(stamp_ns, stamps),
            _ => false,
        };
        if task.state == TaskState::Waiting && is_awaited {
            return self.make_runnable(from, to);
        }
        0
    }

    /// Adds a task to a run queue, from CPU `from`. Returns the cost on that CPU.
    pub(super) fn make_runnable(&mut self, from: usize, id: TaskId) -> u64 {
        let target = self.choose_cpu(from, id);
        self.note_waking(from, id);
        let found = match (&self.cpus[target].mode, self.cpus[target].left_state) {
            (Mode::Idle(stay), _) => Found::Idle(stay.entry.state),
            (Mode::Exiting(exit), _) => Found::Idle(exit.entry.state),
            // An interrupt ended the stay, and wakes the task.
            (Mode::Running, Some(state)) if target == from => Found::Idle(state),
            (Mode::Running, _) => Found::Running,
        };
        let this = &self.cpus[target];
        let is_busy = this.current.is_some() || !this.run_queue.is_empty();
        let is_by_task = self.cause.is_none() && self.cpus[from].current.is_some();
        let preempts = self.enqueue(target, id);
        let task = &mut self.tasks[id];
        task.found = if is_busy && !preempts { Found::Behind } else { found };
        task.is_woken_remotely = is_by_task && target != from;
        task.state = TaskState::Runnable;
        // A second task needs the tick for its turn.
        if self.hardware.nohz_full && self.cpus[target].current.is_some() {
            self.restart_tick(target);
        }
        // A busy CPU finds the task by itself, unless its task is to make room.
        let is_busy = matches!(self.cpus[target].mode, Mode::Running);
        let has_room = self.cpus[target].current.is_none() || !preempts;
        if target == from || is_busy && has_room {
            return 0;
        }
        self.ask(from, target, Purpose::Task)
    }

    /// Queues a function for another CPU. Returns the sender's cost.
    pub(super) fn call(&mut self, from: usize, target: usize, work_ns: u64) -> u64 {
        if target == from {
            return work_ns;
        }
        self.cpus[target].calls.push((work_ns, self.now_ns));
        self.ask(from, target, Purpose::Call)
    }

    fn ask(&mut self, from: usize, target: usize, purpose: Purpose) -> u64 {
        let hardware = self.hardware;
        let is_remote = self.shape.package_of(from) != self.shape.package_of(target);
        let store_ns = if is_remote { hardware.store_remote_ns } else { hardware.store_ns };
        let send_ns = if is_remote { hardware.ipi_send_remote_ns } else { hardware.ipi_send_ns };
        let cpu = &mut self.cpus[target];
        let monitors = match &cpu.mode {
            Mode::Idle(stay) => cpu.idle.rule(stay.entry.state).wakes_on_store,
            Mode::Exiting(exit) => cpu.idle.rule(exit.entry.state).wakes_on_store,
            Mode::Running => false,
        };
        let is_pending = match purpose {
            Purpose::Task => cpu.wake_ipi_pending,
            Purpose::Call => cpu.call_ipi_pending,
        };
        let rings = hardware.ipi_less && monitors && !is_pending;
        let ring = rings.then(|| cpu.doorbell.ring());
        let counts = &mut self.report.ipis;
        counts.requested_count += 1;
        let cost_ns = match ring {
            _ if is_pending => {
                counts.batched_count += 1;
                store_ns
            }
            Some(Ring::FreeRide) => {
                counts.free_ride_count += 1;
                store_ns
            }
            Some(Ring::StoreWakes) => {
                counts.stored_count += 1;
                let at_ns = self.now_ns + store_ns + hardware.store_delivery_ns;
                self.queue.push(at_ns, Event::Store { cpu: target as u32 });
                store_ns
            }
            Some(Ring::Deposited | Ring::MustWake) | None => {
                counts.sent_count += 1;
                match purpose {
                    Purpose::Task => cpu.wake_ipi_pending = true,
                    Purpose::Call => cpu.call_ipi_pending = true,
                }
                let at_ns = self.now_ns + send_ns + hardware.ipi_delivery_ns;
                self.queue.push(at_ns, Event::Ipi { cpu: target as u32 });
                send_ns + if hardware.ipi_less { hardware.ring_check_ns } else { 0 }
            }
        };
        self.report.ipis.sender_ns += cost_ns;
        cost_ns
    }

    pub(super) fn receive_ipi(&mut self, cpu: usize) {
        self.report.ipis.received_count += 1;
        let pending = Pending { work_ns: self.hardware.ipi_receive_ns, effect: Effect::Ipi };
        let reason =
            if self.cpus[cpu].calls.is_empty() { WakeReason::Resched } else { WakeReason::Ipi };
        self.interrupt(cpu, pending, reason);
    }

    /// The monitored line was written. A CPU that already left its state checks its queues anyway.
    pub(super) fn see_store(&mut self, cpu: usize) {
        if !matches!(self.cpus[cpu].mode, Mode::Running) {
            self.notice(cpu, WakeReason::Resched);
        }
    }
}
