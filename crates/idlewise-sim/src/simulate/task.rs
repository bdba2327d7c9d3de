//! What runs on the simulated machine: tasks, which are small state machines that return their next
//! operation, and sources outside the CPUs, which raise interrupts.

use fastrand::Rng;

use idlewise_core::StateIndex;
use idlewise_trace::IdleGap;

use super::report::Metrics;

/// A task's number.
pub type TaskId = usize;

/// A task's next operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Compute at full speed.
    Run {
        /// Duration in nanoseconds at nominal frequency, alone on the core.
        ns: u64,
    },
    /// Be busy until a point in time, at any speed.
    RunUntil {
        /// The end.
        at_ns: u64,
    },
    /// Put a message into another task's mailbox and wake it.
    Send {
        /// The receiver.
        to: TaskId,
        /// What the receiver finds in [`View::message`]; usually the time of sending.
        stamp_ns: u64,
        /// First wait while the mailbox has this many messages.
        capacity: Option<u32>,
    },
    /// Wait for a message.
    Wait,
    /// Wait for one of these messages, whatever others there are, and go on on this CPU.
    Await {
        /// The first one, and the one after the last.
        stamps: (u64, u64),
        /// The CPU; `None` for the one that the machine chooses when the message comes.
        cpu: Option<usize>,
    },
    /// Let the other tasks of this CPU run first, if they are behind.
    Yield,
    /// Let a timer of this CPU put a message into a task's mailbox and wake it.
    Arm {
        /// When the timer fires.
        at_ns: u64,
        /// The receiver.
        to: TaskId,
        /// The message.
        stamp_ns: u64,
    },
    /// Sleep until a point in time.
    SleepUntil {
        /// The earliest time for the timer to fire. The task's slack allows it to be later.
        at_ns: u64,
        /// How much later it may fire.
        slack_ns: u64,
    },
    /// Call a function on another CPU without waiting for it.
    Call {
        /// The other CPU.
        cpu: usize,
        /// How long the function runs.
        work_ns: u64,
    },
    /// Let a device interrupt a CPU later.
    Device {
        /// How much later.
        delay_ns: u64,
        /// The CPU to interrupt.
        cpu: usize,
        /// The interrupt's effects.
        irq: Irq,
    },
    /// Idle exactly as recorded, from now until the gap's end.
    Gap(Box<IdleGap>),
    /// End the task.
    Exit,
}

/// The effects of a device interrupt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Irq {
    /// How long the handler and softirq run, without the interrupt's entry.
    pub work_ns: u64,
    /// The task that receives a message.
    pub to: Option<TaskId>,
    /// The message.
    pub stamp_ns: u64,
}

/// What a task sees when it is asked for its next operation.
pub struct View<'a> {
    /// The current time.
    pub now_ns: u64,
    /// The CPU that the task runs on.
    pub cpu: usize,
    /// The message that [`Op::Wait`] waited for.
    pub message: Option<u64>,
    /// What the last [`Op::Send`] or [`Op::Call`] cost the task.
    pub sender_cost_ns: u64,
    /// How the last message that the task waited for found it.
    pub found: Found,
    /// Whether it came from a task on another CPU.
    pub is_remote: bool,
    /// Whether the task has woken one that is to take its CPU.
    pub must_yield: bool,
    /// The number of messages in the mailbox.
    pub waiting_count: usize,
    /// The run's random numbers.
    pub rng: &'a mut Rng,
    /// Records latencies and counts.
    pub metrics: &'a mut Metrics,
}

/// How a message found the task that waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// It was there before the task asked for it, so the task did not wait.
    #[default]
    Ready,
    /// The task waited, and its CPU ran another task, behind which it now waits.
    Behind,
    /// The task waited, and its CPU was neither idle nor busy with a task behind which it waits.
    Running,
    /// The task waited, and its CPU was in this idle state.
    Idle(StateIndex),
}

/// Whether a woken task takes the CPU from the one that runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// If it lags.
    #[default]
    Usual,
    /// Always: a real-time task.
    Always,
    /// Never.
    Never,
}

/// A task's program.
pub trait Program: Send {
    /// Returns the next operation. Called again when that is complete.
    fn next(&mut self, view: &mut View<'_>) -> Op;

    /// Returns the message that the task waits for before its first operation, and the CPU where it then runs. Without
    /// one, it runs at once.
    fn awaits(&self) -> Option<(u64, usize)> {
        None
    }

    /// Returns what happens when the task is woken while another one runs ([`crate::simulate::Scheduler::Deadlines`]).
    fn urgency(&self) -> Urgency {
        Urgency::default()
    }
}

/// What a source does when it fires.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fired {
    /// The CPU that it interrupts, and the interrupt's effects.
    pub irq: Option<(usize, Irq)>,
    /// When it fires next.
    pub next_at_ns: Option<u64>,
}

/// Something outside the CPUs that acts by itself.
pub trait EventSource: Send {
    /// Called when the source fires.
    fn fire(&mut self, now_ns: u64, rng: &mut Rng, metrics: &mut Metrics) -> Fired;
}

/// A task to be started.
pub struct Spawn {
    /// Its program.
    pub program: Box<dyn Program>,
    /// The CPU where it starts.
    pub cpu: usize,
    /// Whether it stays there. Otherwise a wake-up may move it to an idle CPU of the package.
    pub is_pinned: bool,
    /// Whether it plays recorded gaps. If so it is not a task in the kernel's sense, and the gaps
    /// say when a task ran.
    pub is_recorded: bool,
}

impl Spawn {
    /// Makes a task that stays on its CPU.
    pub fn pinned(cpu: usize, program: impl Program + 'static) -> Self {
        Spawn { program: Box::new(program), cpu, is_pinned: true, is_recorded: false }
    }
}

/// Draws a random span from the exponential distribution.
pub fn exponential_ns(mean_ns: f64, rng: &mut Rng) -> u64 {
    // 1 - f64() is in (0, 1], so the logarithm is finite.
    (-(1.0 - rng.f64()).ln() * mean_ns).round() as u64
}
