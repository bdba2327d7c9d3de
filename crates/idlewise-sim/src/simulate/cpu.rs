//! The state of a CPU: what it does, runs and waits for; and the accounting of its time.

use std::collections::VecDeque;

use idlewise_core::{Doorbell, StateIndex};
use idlewise_trace::{IdleGap, WakeReason};

use super::Simulation;
use super::place::RecentLoad;
use super::run_queue::{RunQueue, Scheduler};
use super::task::TaskId;
use crate::idle_loop::{Boxed, Entry, IdleLoop, StayEnd};

/// A stay in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleStay {
    pub entry: Entry,
    pub(super) since_ns: u64,
    /// When the entry is complete. It cannot be aborted.
    pub(super) entered_at_ns: u64,
}

/// An exit in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub entry: Entry,
    pub(super) stay_ns: u64,
    pub(super) exit_ns: u64,
    /// The part of it that is spent waiting for shared states to be left.
    pub(super) wait_ns: u64,
    pub(super) end: StayEnd,
    pub(super) tick_ran: bool,
    pub(super) reason: WakeReason,
    pub(super) left_at_ns: u64,
}

/// What a CPU is doing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Running,
    Idle(IdleStay),
    Exiting(Exit),
}

/// A gap that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenGap {
    pub(super) start_ns: u64,
    pub(super) sleep_length_ns: Option<u64>,
    pub(super) next_tick_ns: u64,
    pub(super) latency_limit_ns: i64,
    pub(super) tick_stopped: bool,
    pub(super) ran_task: bool,
    pub(super) first_state: usize,
    pub(super) idle_ns: u64,
    /// Since when the CPU has been in the shallowest non-polling state, and for how many stays.
    pub(super) shallow_since_ns: u64,
    pub(super) shallow_count: u64,
    /// The time and reason of an event that came while the CPU was awake within the gap.
    pub(super) event: Option<(u64, WakeReason)>,
}

/// A pending interrupt, or work that is done in the same way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub work_ns: u64,
    pub effect: Effect,
}

/// What happens at the end of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Message {
        to: TaskId,
        stamp_ns: u64,
        /// When the interrupt came.
        at_ns: u64,
    },
    Timers,
    Ipi,
    Tick,
    /// The tick's work within a gap. Nothing else runs then.
    TickInGap,
    /// A moment that must pass within a gap.
    Pause,
    /// A recorded wake event.
    Recorded,
}

/// Work in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The remaining work at nominal speed, as of `started_ns`.
    pub(super) left_ns: u64,
    /// If set, the CPU is busy until then instead.
    pub(super) until_ns: Option<u64>,
    pub(super) started_ns: u64,
    pub(super) rate: f64,
    /// An interrupt's effect; `None` for a task's own work.
    pub(super) effect: Option<Effect>,
}

/// A timer of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) soft_at_ns: u64,
    pub(super) hard_at_ns: u64,
    pub(super) armed_at_ns: u64,
    pub(super) use_: TimerUse,
}

/// What a timer does when it fires.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerUse {
    /// The kernel's own, which repeats.
    Housekeeping,
    /// The kernel's own: the one of this number in the setup's list.
    Kernel(u64),
    /// It wakes a task that sleeps.
    Wake(TaskId),
    /// It sends a message.
    Message { to: TaskId, stamp_ns: u64 },
}

/// What interrupts a CPU and wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptCause {
    Device,
    /// A timer that this task armed when it went to sleep, so much earlier.
    Timer {
        delay_ns: u64,
    },
}

pub(super) struct Cpu {
    pub(super) idle: IdleLoop<Boxed>,
    pub(super) mode: Mode,
    /// The generation of the latest Awake, Done or IdleLimit event. Older ones are ignored.
    pub(super) generation: u32,
    pub(super) tick_generation: u32,
    /// The next boundary of the tick grid, if the tick runs.
    pub(super) tick_at_ns: u64,
    pub(super) tick_phase_ns: u64,
    pub(super) current: Option<TaskId>,
    pub(super) run_queue: RunQueue,
    /// A woken task is to take the CPU from the one that runs.
    pub(super) is_wanted: bool,
    /// How busy it has been lately.
    pub(super) load: RecentLoad,
    pub(super) irqs: VecDeque<Pending>,
    pub(super) segment: Option<Segment>,
    pub(super) suspended: Option<Segment>,
    pub(super) timers: Vec<Timer>,
    pub(super) timer_irq_pending: bool,
    /// Functions that other CPUs called: the work, and the time of the call.
    pub(super) calls: Vec<(u64, u64)>,
    pub(super) call_ipi_pending: bool,
    pub(super) wake_ipi_pending: bool,
    /// Checked by wakers. It says "polling" while the CPU is in a state that monitors memory.
    pub(super) doorbell: Doorbell,
    pub(super) ran_task: bool,
    /// The idle state that it left last, if no task has run since.
    pub(super) left_state: Option<StateIndex>,
    /// Whether the idle loop's own work before the stay is done.
    pub(super) is_prepared: bool,
    pub(super) gap: Option<OpenGap>,
    pub(super) recorded: Option<Box<IdleGap>>,
    pub(super) recorded_task: Option<TaskId>,
    pub(super) since_ns: u64,
}

impl Cpu {
    pub(super) fn new(idle: IdleLoop<Boxed>, scheduler: Scheduler) -> Self {
        Cpu {
            idle,
            mode: Mode::Running,
            generation: 0,
            tick_generation: 0,
            tick_at_ns: 0,
            tick_phase_ns: 0,
            current: None,
            run_queue: RunQueue::new(scheduler),
            is_wanted: false,
            load: RecentLoad::default(),
            irqs: VecDeque::new(),
            segment: None,
            suspended: None,
            timers: Vec::new(),
            timer_irq_pending: false,
            calls: Vec::new(),
            call_ipi_pending: false,
            wake_ipi_pending: false,
            doorbell: Doorbell::new(),
            ran_task: true,
            left_state: None,
            is_prepared: false,
            gap: None,
            recorded: None,
            recorded_task: None,
            since_ns: 0,
        }
    }

    /// The state of an idle CPU.
    pub(super) fn idle_state(&self) -> Option<usize> {
        match &self.mode {
            Mode::Idle(stay) => Some(stay.entry.state),
            _ => None,
        }
    }

    /// The next boundary of the tick grid after `now_ns`.
    pub(super) fn next_tick_at_ns(&self, now_ns: u64, period_ns: u64) -> u64 {
        let phase_ns = self.tick_phase_ns % period_ns;
        now_ns + period_ns - (now_ns % period_ns + period_ns - phase_ns) % period_ns
    }
}

impl Simulation<'_> {
    /// Charges the time since the last call to what the CPU was doing.
    pub(super) fn account_cpu(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        let this = &mut self.cpus[cpu];
        let span_ns = now_ns - this.since_ns;
        this.since_ns = now_ns;
        match this.mode {
            Mode::Idle(_) => self.report.idle_ns += span_ns,
            Mode::Exiting(_) => {
                self.report.busy_ns += span_ns;
                self.report.exit_ns += span_ns;
            }
            Mode::Running => self.report.busy_ns += span_ns,
        }
    }

    #[inline]
    pub(super) fn set_mode(&mut self, cpu: usize, mode: Mode) {
        self.account_cpu(cpu);
        let bit = 1 << (cpu % 64);
        match mode {
            Mode::Idle(_) => self.idle_cpus[cpu / 64] |= bit,
            _ => self.idle_cpus[cpu / 64] &= !bit,
        }
        self.cpus[cpu].mode = mode;
        self.cpus[cpu].generation = self.cpus[cpu].generation.wrapping_add(1);
        self.update_core(cpu);
    }
}
