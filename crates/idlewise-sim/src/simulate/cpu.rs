//! The state of a CPU, and the accounting of its time.

use std::collections::VecDeque;

use idlewise_core::{Doorbell, StateIndex};
use idlewise_trace::IdleGap;

use super::Simulation;
use super::idle::{Mode, OpenGap};
use super::task::TaskId;
use super::timers::Timer;
use super::work::{Pending, Segment};
use crate::idle_loop::{Boxed, IdleLoop};

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
    pub(super) run_queue: VecDeque<TaskId>,
    /// How many of the first tasks in it have been woken and have not run since.
    pub(super) woken_count: usize,
    /// One of them is to take the CPU from the task that runs.
    pub(super) is_wanted: bool,
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
    pub(super) fn new(idle: IdleLoop<Boxed>) -> Self {
        Cpu {
            idle,
            mode: Mode::Running,
            generation: 0,
            tick_generation: 0,
            tick_at_ns: 0,
            tick_phase_ns: 0,
            current: None,
            run_queue: VecDeque::new(),
            woken_count: 0,
            is_wanted: false,
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
