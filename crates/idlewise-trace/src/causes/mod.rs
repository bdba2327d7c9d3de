//! What makes tasks run: turns the events of a recording into a workload log, in which causes are kept and
//! times are not needed.
//!
//! A recording says *when* everything happened. A workload log says *why*: this task ran for 12 µs and then
//! waited; it ran because that task woke it, 9 µs into its own third step. With the reasons, a simulated machine
//! can run the same workload on other idle states or under another governor, and everything that depends
//! on a wake-up that comes later comes later too.
//!
//! # A step
//!
//! ```text
//!  task a   ──── step 3 ─────────┐ waits
//!               │ wakes b, 9 µs into its run
//!               ▼
//!  task b   ····├── wake-to-run ──┤▒▒▒▒ step 8 ▒▒▒▒┤ waits
//!             due                run              end
//! ```
//!
//! A **step** of a task is what it does from a wake-up until it waits again. Its **cause** is what woke it:
//!
//! | cause | the step is due | known |
//! | --- | --- | --- |
//! | `task` | when another task's step has run for the offset | task, step, offset |
//! | `timer` | a delay after a task's step armed the timer at the offset | task, step, offset, delay |
//! | `absolute` | at a point in time that a task asked for | |
//! | `interrupt` | when something outside the CPUs interrupts | |
//! | `start` | when the recording begins to see the task | |
//! | `next_timer` | when a CPU goes idle whose next timer is due a delay later; only of its idle task | delay |
//!
//! The offset and the length of a step are **net**: time on a CPU without interrupts, without softirqs that
//! interrupts left behind, and without the time in which another task had the CPU. So they are what the task
//! itself needs, on whatever machine.
//!
//! A wake-up is written at the step that it causes, not at the step that causes it. So each is written once, and
//! a wake-up whose task never runs again needs no row.
//!
//! # What causes are taken from
//!
//! * **Who wakes.** `sched_waking` happens where the wake-up is made. If its common flags say that this is neither
//!   an interrupt nor a softirq, the task that runs on that CPU wakes. A trace without these flags
//!   says it by what begins and ends around the event.
//! * **A softirq** belongs to an interrupt if it begins within [`AFTER_INTERRUPT_NS`] of one's end. Otherwise the
//!   task itself raised it, as in a send over loopback, and what it does counts as done by the task. So does what a
//!   network softirq does after an interrupt of the timer, which came while the task sent.
//! * **A timer** wakes if the waking follows its expiry within the same interrupt or softirq. It is
//!   relative to where it was armed, unless three expiries in a row of a task's timers are a whole number of
//!   microseconds apart: nobody but a task that asks for points in time makes that happen, since a relative
//!   timer is armed at an arbitrary nanosecond.
//! * **A deadline**: an event loop waits until its next deadline or an event, and after the event until the same deadline. If
//!   the delays of a task's timers shrink as time passes between them, the timer counts as armed by the step that
//!   armed the first one due within a millisecond of it, as `epoll_wait` and `poll` take whole milliseconds.
//! * **An interrupt** is what remains. It is due at the first sign that the CPU left its idle state,
//!   minus that state's exit latency, as a gap's end is ([`crate::GapBuilder`]).
//!
//! # What cannot be known
//!
//! * A task that finds its data ready does not wait, and nothing shows that it would have waited had the
//!   data come later. So a dependency that never made a task wait is not in the log.
//! * A timeout that was cancelled in time is not in the log either, though it might expire where things are slower.
//! * What an interrupt from outside answers is not recorded.
//!
//! # Memory
//!
//! The builder holds one state for each task that lives, and each timer that is armed, and no more of either
//! than [`TASK_COUNT_MAX`] and [`TIMER_COUNT_MAX`]. Steps leave as soon as they end.
//!
//! | file | holds |
//! | --- | --- |
//! | `anonymous.rs` | [`AnonymousWorkload`]: without what identifies a machine or its user |
//! | `builder.rs` | [`StepBuilder`]: events in, steps out |
//! | `next_timer.rs` | what CPUs know of their next timers |
//! | `convert.rs` | [`convert_causes`]: a whole recording, with metadata |
//! | `check.rs` | [`Checker`]: what a workload log must satisfy |
//! | `log.rs` | [`WorkloadLog`], [`WorkloadWriter`]: the Parquet file |

#[cfg(feature = "log")]
mod anonymous;
mod builder;
mod check;
#[cfg(feature = "import")]
mod convert;
#[cfg(feature = "log")]
mod log;
mod next_timer;

use idlewise_core::words;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::log_error::WORKLOAD_VERSION;
#[cfg(feature = "log")]
pub use anonymous::AnonymousWorkload;
pub use builder::{CauseError, StepBuilder, StepSink};
pub use check::{Checker, Contradiction};
#[cfg(feature = "import")]
pub use convert::{CausesError, convert_causes};
#[cfg(feature = "log")]
pub use log::{WorkloadLog, WorkloadWriter};

/// A softirq that begins so soon after an interrupt's end was left behind by it.
pub const AFTER_INTERRUPT_NS: i64 = 2_000;
/// The most tasks that may live at once. In a recording with more, further ones are left out.
pub const TASK_COUNT_MAX: usize = 1 << 20;
/// The most timers that may be armed at once. Further ones count as interrupts.
pub const TIMER_COUNT_MAX: usize = 1 << 20;

/// What a task does from a wake-up until it waits again: a row of the workload log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The task: an index into [`WorkloadMetadata::tasks`].
    pub task: u32,
    /// The CPU where it first ran.
    pub cpu: u16,
    /// What made it run.
    pub cause: Cause,
    /// When that happened, on the recording's clock.
    pub due_at_ns: i64,
    /// When the task got a CPU.
    pub run_at_ns: i64,
    /// How long it ran, net.
    pub run_ns: u64,
    /// When it left the CPU to wait.
    pub end_at_ns: i64,
    /// How it ended.
    pub end: StepEnd,
    /// The idle state that the CPU was in when the step was due, in the machine's order; `None` if it was not idle.
    pub idle_state: Option<u8>,
}

/// What makes a step run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The recording begins to see the task here.
    Start,
    /// Another task's step.
    Task(StepPlace),
    /// A timer.
    Timer {
        /// Where it was armed.
        armed: StepPlace,
        /// How much later it is due.
        delay_ns: u64,
    },
    /// A point in time.
    Absolute,
    /// Something outside the CPUs.
    Interrupt,
    /// No step, but what a CPU knows when it goes idle: its next timer. Only of a task that stands for the CPU's idle
    /// task ([`TaskInfo::is_idle`]), where it changes.
    NextTimer {
        /// How much later the timer is due.
        delay_ns: u64,
    },
}

/// A place within a task's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlace {
    /// The task.
    pub task: u32,
    /// The step: how many steps of this task are before it.
    pub step: u64,
    /// How long the step had run there, net.
    pub offset_ns: u64,
}

words! {
    name;
    /// How a step ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StepEnd {
        /// The task waits.
        Waits = "waits",
        /// The task is over.
        Ends = "ends",
        /// The recording is over.
        Cut = "cut",
    }
}

impl Cause {
    /// The names of all causes in the log, in the order of the enum.
    pub const NAMES: [&'static str; 6] =
        ["start", "task", "timer", "absolute", "interrupt", "next_timer"];

    fn index(&self) -> usize {
        match self {
            Cause::Start => 0,
            Cause::Task(_) => 1,
            Cause::Timer { .. } => 2,
            Cause::Absolute => 3,
            Cause::Interrupt => 4,
            Cause::NextTimer { .. } => 5,
        }
    }

    /// Its name in the log.
    pub fn name(&self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// The place in another step that it is at, if it is in one.
    pub fn place(&self) -> Option<StepPlace> {
        match *self {
            Cause::Task(place) | Cause::Timer { armed: place, .. } => Some(place),
            Cause::Start | Cause::Absolute | Cause::Interrupt | Cause::NextTimer { .. } => None,
        }
    }

    /// How much later than the place, or than the step's own time, a timer is due.
    pub fn delay_ns(&self) -> Option<u64> {
        match *self {
            Cause::Timer { delay_ns, .. } | Cause::NextTimer { delay_ns } => Some(delay_ns),
            Cause::Start | Cause::Task(_) | Cause::Absolute | Cause::Interrupt => None,
        }
    }
}

impl Step {
    /// How long the task waited for a CPU.
    pub fn wake_to_run_ns(&self) -> u64 {
        u64::try_from(self.run_at_ns - self.due_at_ns).unwrap_or(0)
    }
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Its name when it was last seen.
    pub name: String,
    /// Its number in the recording, unless the log is anonymous.
    pub pid: Option<u32>,
    /// It stands for a CPU's idle task. Its steps are timers of the kernel that expire and wake nobody, or, of another
    /// such task of the CPU, tell the next timer ([`Cause::NextTimer`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_idle: bool,
}

/// What a workload log says about itself in addition to its steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadMetadata {
    /// See [`WORKLOAD_VERSION`].
    pub workload_version: u32,
    /// The program that wrote the log.
    pub created_by: String,
    /// The tasks. A step names one by its index.
    pub tasks: Vec<TaskInfo>,
    /// How many CPUs the machine needs: the highest number and one.
    pub cpu_count: u32,
    /// When the recording begins, on its clock.
    pub first_at_ns: i64,
    /// When it ends.
    pub last_at_ns: i64,
    /// CONFIG_HZ.
    #[serde(default, deserialize_with = "crate::machine_note::hz")]
    pub hz: Option<u32>,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The cpuidle governor that was in use.
    pub governor: Option<String>,
    /// The machine, with the recorded idle states.
    #[serde(default, deserialize_with = "crate::machine_note::machine")]
    pub machine: Option<idlewise_machine::Machine>,
    /// BLAKE3 of the recording, in hex.
    pub blake3: Option<String>,
    /// The recorder's command line.
    pub command: Option<String>,
    /// Events that were lost. A workload with any cannot be played.
    pub lost_event_count: u64,
    /// Steps of known tasks of which nothing says why they ran. They count as [`Cause::Start`].
    pub causeless_count: u64,
    /// Tasks that were woken but never ran.
    pub never_ran_count: u64,
    /// CPUs that were idle but have no idle events, so that their states are unknown.
    #[serde(default)]
    pub unseen_cpus: Vec<u16>,
    /// From when a CPU has nothing to run until it enters an idle state: the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_entry_ns: Option<u64>,
    /// From a wake-up by a task on another CPU until the idle CPU has left its state, by state: medians. More than the
    /// state's exit latency, because the CPU is told first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_after_ns: BTreeMap<u8, u64>,
    /// A tick of each CPU on the recording's clock, less than one period from 0; empty if unknown.
    #[serde(default)]
    pub tick_phases_ns: Vec<i64>,
}
