//! The gap builder turns events into idle gaps. Every importer feeds it.
//!
//! # What a gap consists of
//!
//! ```text
//! entry      tick      entry        interrupt  exit         task
//!   ├──idle───┤▒▒▒▒▒▒▒▒▒├────idle────────┤▒▒▒▒▒▒▒┤▒▒▒▒▒▒▒▒▒▒▒▒▒├──────
//!   │◄──────────────── one gap ─────────►│
//! ```
//!
//! After an idle entry, everything that happens on the CPU is collected as evidence until either a
//! task runs or the CPU goes idle again. The evidence then tells what ended the stay. If that was
//! only the tick, or nothing at all (a polling limit, a promotion timer), and no task ran, the
//! recording kernel's own policy cut the stay short, and the next stay belongs to the same gap.
//!
//! # What may be claimed
//!
//! "No task ran" and "no interrupt came" are concluded from missing events, and a missing event
//! proves nothing if its kind was not recorded. Each claim therefore needs every kind of event that
//! could contradict it (`evidence.rs`). A recording with fewer kinds makes fewer claims: it never
//! joins stays that the full recording keeps apart, and where it gives a wake reason, it gives the
//! same one. `tests/all/prop_evidence.rs` checks this by removing kinds from the bundled recordings.
//!
//! | claim | needs `cpu_idle` and |
//! | --- | --- |
//! | a gap begins | nothing else; every idle entry begins or continues a gap |
//! | woken by `ipi`, `resched` (an interrupt) or `irq` | `sched_switch` and all interrupts, because the first one is the cause |
//! | woken by `timer` | the same, and all events of timers, because the tick is a timer too |
//! | a stay that the tick ended is joined to the next one | the same |
//! | a stay without any interrupt is joined; woken by `resched` (a write) or `softirq` | the same |
//! | `ran_task` | `sched_switch` |
//! | `tick_stopped` | `tick_stop` and `sched_switch`, which restarts the tick |
//! | `sleep_length_ns` | all events of timers; for an overdue wheel timer, also when the tick ran; for one that another CPU may run (`timers.rs`), also `tick_stop` and `sched_switch` |
//! | `next_tick_ns` | a tick that was found (`tick.rs`) |
//!
//! "All events of timers" are the six of `timer:hrtimer_*` and `timer:timer_*`. "All interrupts"
//! are `irq_handler_entry` and
//!
//! * on x86, the vectors `local_timer`, `reschedule`, `call_function`, `call_function_single` and
//!   `irq_work`. The vectors for errors and thermal events are not required: they are rare, and not
//!   every kernel has them.
//! * on POWER, `timer_interrupt_entry` and `doorbell_entry`.
//! * on Arm and RISC-V, the timer and (on Arm since 5.11) IPIs, which are `irq_handler_entry` too:
//!   both must occur among the first events, or `ipi_entry` must be recorded.
//!
//! Texts and Perfetto traces do not list what was recorded, so a kind counts as recorded if it
//! occurs. `call_function` and `irq_work` are so rare that a whole recording may have none of them,
//! and a quiet one may have only one of `reschedule` and `call_function_single`. If the others
//! occur (and, where one of those two is missing, no task ran without an interrupt before it), the
//! first interrupt of a stay counts as its cause. A stay without any interrupt stays undecided.
//!
//! # When the wake event was
//!
//! If a timer woke the CPU, the wake event is its hard expiry; if several fired together, the
//! earliest. For other causes it is the first sign of the wake-up, minus the exit latency of the
//! recorded state if that is known. It is never before the entry: the table's exit latency is a
//! worst case, and would otherwise put the cause before its effect.
//!
//! # Checking the rebuilt timers
//!
//! If a timer ended a gap, the sleep length that was rebuilt for the beginning of the gap must
//! equal that timer's expiry ([`IdleGap::ended_by_known_timer`]; `idlewise info` and `log validate`
//! show the share). In the five bundled recordings this holds in 5105 of 5144 cases. The other 39:
//!
//! * 12 are timer-wheel timers that were armed for the other CPU and run by this one. Since 6.9 the
//!   kernel takes them into account if all other CPUs sleep. In these recordings CPU 1's idle task is
//!   missing, so whether it slept is not known.
//! * 5 are timers that another CPU, which was awake, would have run. But this CPU's tick was not stopped,
//!   and ran them first.
//! * 15 gaps outlasted a known earlier timer. Either the other CPU ran it, or the tick came just before
//!   the jiffies were advanced and the timer ran one tick later.
//! * 5 have no start in the recording.
//! * 2 ran early, within their slack, because a tick happened to come.
//!
//! # What cannot be known
//!
//! * Timers armed before the trace are found when they expire, and are then entered into the gaps
//!   before. That reaches back only as far as the gaps still held: [`HELD_GAP_COUNT`] over all
//!   CPUs.
//! * A deferrable timer armed before the trace looks like any other, unless it is armed again
//!   within the first [`PRELUDE_EVENT_COUNT`] events: only its start event has the flag.
//! * hrtimers on CLOCK_BOOTTIME are treated as monotonic. The two clocks differ only after a
//!   suspend.
//! * Where `ran_task` is unknown, rows say that a task ran, so that a replay restarts the tick. The
//!   column is then listed as unknown.
//! * The expiry of a timer armed before the trace is taken from the interrupt that served it.
//!   Without timer interrupts it is taken from its handler, which runs some microseconds later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::tick::{Tick, TickFinder};
use crate::timers::{
    Armed, AwakeCpus, Expired, Migration, NextLook, NextTimer, TimerId, Timers, WheelFlags,
    WheelLook,
};
use crate::{CpuFacts, Doubt, Event, EventKind, IdleGap, Tracepoints, WakeReason};

/// The most gaps held, over all CPUs, so that later events can complete them.
pub const HELD_GAP_COUNT: usize = 1 << 20;
/// The fewest gaps held for one CPU, however many CPUs there are.
const HELD_GAP_COUNT_MIN: usize = 4_096;
/// The most gaps held for one CPU: enough to reach far back, few enough to stay cached.
const HELD_GAP_COUNT_MAX: usize = 65_536;
/// How many events are looked at before the first gap is built, to find the tick, and timers whose
/// deferrable flag shows only when they are armed again. It is a fixed number of events, so that a
/// log does not depend on the size of an importer's batches.
const PRELUDE_EVENT_COUNT: usize = 1 << 18;

/// A timer's handler runs within this time of the interrupt that serves it. A handler that runs
/// later was delayed by others, and then the interrupt says nothing about when the timer was due.
const SERVED_WITHIN_NS: i64 = 100_000;

/// Receives finished gaps, in runs of one CPU each, in order of time.
pub trait GapSink {
    /// Why the sink failed.
    type Error;

    /// Takes gaps of one CPU, all later than those it took for that CPU before.
    ///
    /// # Errors
    /// Returns the sink's own error.
    fn take(&mut self, cpu: u16, gaps: &[IdleGap]) -> Result<(), Self::Error>;
}

impl GapSink for Vec<IdleGap> {
    type Error = std::convert::Infallible;

    fn take(&mut self, _cpu: u16, gaps: &[IdleGap]) -> Result<(), Self::Error> {
        self.extend_from_slice(gaps);
        Ok(())
    }
}

/// What was seen of one CPU. Part of a log's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSummary {
    /// The CPU.
    pub cpu: u16,
    /// Whether the CPU's idle task was recorded at all. If not, it is unknown when the CPU was
    /// idle, and it must count neither as busy nor as idle.
    pub observed: bool,
    /// The time of its first event.
    pub first_at_ns: i64,
    /// The time of its last event.
    pub last_at_ns: i64,
    /// Finished gaps.
    pub gap_count: u64,
    /// Idle entries seen, including those joined into one gap.
    pub idle_entry_count: u64,
    /// Stays that were joined to the next one, ended by the tick or a timeout of the idle state.
    pub joined_wake_count: u64,
    /// Events lost before or within the recording.
    pub lost_event_count: u64,
    /// Gaps dropped because events were lost in them.
    pub broken_gap_count: u64,
    /// Idle exits without an entry, after the first entry.
    pub stray_exit_count: u64,
    /// A boundary of the CPU's tick grid, less than one period from 0 on the trace's clock.
    pub tick_phase_ns: Option<i64>,
}

/// An idle entry into a state that the recorded machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState {
    /// The state's index.
    pub state: u32,
    /// The CPU that entered it.
    pub cpu: u16,
    /// The time of the entry, on the trace's clock.
    pub at_ns: i64,
}

/// What the builder learned in addition to the gaps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GapSummary {
    /// The tick.
    pub tick: Tick,
    /// CPUs that had at least one event, in order.
    pub cpus: Vec<CpuSummary>,
    /// Timers that expired on another CPU than the one they were armed on.
    pub migrated_timer_count: u64,
    /// Timers that were due but show neither expiry nor cancellation.
    pub vanished_timer_count: u64,
    /// Timers that expired without a start in the trace, although the trace has starts of others.
    pub unknown_timer_count: u64,
    /// All expiries except the tick's.
    pub timer_expiry_count: u64,
    /// Columns that are empty because the events they need are not in the trace.
    pub unknown_columns: Vec<&'static str>,
    /// What was not recorded, and which claims are not made for that reason.
    pub evidence_doubts: Vec<Doubt>,
    /// Gaps dropped because no log can hold them, since the clock jumped by months.
    pub impossible_gap_count: u64,
    /// The first idle entry into a state that the recorded machine does not have.
    pub unknown_state: Option<UnknownState>,
    /// Events that came with an earlier time than the event before them.
    pub out_of_order_count: u64,
}

/// Turns a time-ordered stream of events into gaps.
pub struct GapBuilder<S> {
    sink: S,
    tracepoints: Tracepoints,
    /// Meaningless until the prelude has been examined.
    evidence: Evidence,
    facts: CpuFacts,
    /// `None` once it has been examined.
    prelude: Option<Vec<Event>>,
    tick: Tick,
    timers: Timers,
    awake: AwakeCpus,
    cpus: Cpus,
    last_at_ns: i64,
    unknown_timer_count: u64,
    timer_expiry_count: u64,
    unjoined_stay_count: u64,
    unknown_state: Option<UnknownState>,
    out_of_order_count: u64,
}

/// The CPUs by number. The numbers may be sparse.
struct Cpus {
    by_id: Vec<Option<Box<Cpu>>>,
    count: usize,
    /// How many gaps each CPU may hold.
    held_max: usize,
}

#[derive(Default)]
struct Cpu {
    summary: CpuSummary,
    /// Finished gaps in order, kept so that timers from before the trace can be added.
    held: Vec<IdleGap>,
    /// Indexes into `held` of gaps whose sleep length is unknown.
    held_without_timers: Vec<usize>,
    /// Expiries of timers that were armed before the trace.
    armed_before_ns: Vec<i64>,
    open: Option<OpenGap>,
    signs: Signs,
    /// The last timer interrupt.
    timer_interrupt_at_ns: Option<i64>,
    is_tick_stopped: bool,
    /// The tick was stopped since the last idle entry. The decision that the next entry carries out
    /// stopped it, so the tick still ran when that decision was made.
    stops_tick: bool,
    ran_task: bool,
    /// Gaps dropped because no log can hold them.
    impossible_gap_count: u64,
}

struct OpenGap {
    gap: IdleGap,
    /// The exit latency of the state that was entered first.
    exit_latency_ns: u64,
    /// Whether the sleep length is known, including the case that no timer was armed.
    tells_timers: bool,
    /// Entry of the current stay, or of the last one if it has ended.
    entered_at_ns: i64,
    is_idle: bool,
}

/// What happened since the last idle entry.
#[derive(Clone, Copy, Default)]
struct Signs {
    exit_at_ns: Option<i64>,
    /// The time and kind of the first interrupt.
    interrupt: Option<(i64, WakeReason)>,
    /// The earliest expiry among the timers that fired, not counting the tick.
    timer_at_ns: Option<i64>,
}

/// Whether a stay's end was an event of the workload.
enum End {
    Event {
        at_ns: i64,
        reason: WakeReason,
    },
    /// Only the tick, or nothing, so it was the recording kernel's policy.
    Policy,
    /// Either policy, or an event of a kind that was not recorded.
    Open {
        at_ns: i64,
    },
}

impl<S: GapSink> GapBuilder<S> {
    /// Makes a builder for a trace with these tracepoints and a machine with these facts.
    pub fn new(sink: S, tracepoints: Tracepoints, facts: impl Into<CpuFacts>) -> Self {
        GapBuilder {
            sink,
            tracepoints,
            evidence: Evidence::default(),
            facts: facts.into(),
            prelude: Some(Vec::new()),
            tick: Tick::default(),
            timers: Timers::default(),
            awake: AwakeCpus::default(),
            cpus: Cpus { by_id: Vec::new(), count: 0, held_max: HELD_GAP_COUNT_MAX },
            last_at_ns: i64::MIN,
            unknown_timer_count: 0,
            timer_expiry_count: 0,
            unjoined_stay_count: 0,
            unknown_state: None,
            out_of_order_count: 0,
        }
    }

    /// Takes the next events, in batches of any size. They must be in order of time. An event that
    /// is not is counted, and treated as simultaneous with the one before it.
    ///
    /// # Errors
    /// Returns the sink's error.
    pub fn push(&mut self, events: &[Event]) -> Result<(), S::Error> {
        let Some(prelude) = &mut self.prelude else { return self.build(events) };
        let room = PRELUDE_EVENT_COUNT - prelude.len();
        let (events, later) = events.split_at(room.min(events.len()));
        prelude.extend_from_slice(events);
        if prelude.len() < PRELUDE_EVENT_COUNT {
            return Ok(());
        }
        self.end_prelude()?;
        self.build(later)
    }

    /// The sink, between two calls of [`GapBuilder::push`].
    pub(crate) fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Ends the trace. Gaps that are still open are dropped, because their end is unknown.
    ///
    /// # Errors
    /// Returns the sink's error.
    pub fn finish(mut self) -> Result<(S, GapSummary), S::Error> {
        self.end_prelude()?;
        let mut cpus = Vec::new();
        let mut impossible_gap_count = 0;
        for (id, cpu) in self.cpus.by_id.iter_mut().enumerate() {
            if let Some(cpu) = cpu {
                cpu.flush(id as u16, &mut self.sink)?;
                impossible_gap_count += cpu.impossible_gap_count;
                cpu.summary.tick_phase_ns = self.tick.hz.map(|_| self.tick.phase_ns(id as u16));
                cpus.push(cpu.summary.clone());
            }
        }
        let unknown_columns = self.unknown_columns();
        let summary = GapSummary {
            tick: self.tick,
            cpus,
            migrated_timer_count: self.timers.migrated_count,
            vanished_timer_count: self.timers.vanished_count,
            unknown_timer_count: self.unknown_timer_count,
            timer_expiry_count: self.timer_expiry_count,
            unknown_columns,
            evidence_doubts: self.evidence.doubts(self.unjoined_stay_count),
            impossible_gap_count,
            unknown_state: self.unknown_state,
            out_of_order_count: self.out_of_order_count,
        };
        Ok((self.sink, summary))
    }

    fn unknown_columns(&self) -> Vec<&'static str> {
        let known = [
            ("sleep_length_ns", self.evidence.tells_timers()),
            ("next_tick_ns", self.tick.hz.is_some()),
            ("tick_stopped", self.evidence.tells_tick_stops()),
            ("ran_task", self.evidence.tells_tasks()),
            ("wake_reason", self.evidence.tells_interrupts()),
            ("latency_limit_ns", self.facts.latency_limits_ns.is_some()),
        ];
        known.into_iter().filter(|(_, is_known)| !is_known).map(|(name, _)| name).collect()
    }

    fn end_prelude(&mut self) -> Result<(), S::Error> {
        let Some(prelude) = self.prelude.take() else { return Ok(()) };
        self.evidence = Evidence::new(self.tracepoints, self.facts.arch, &prelude);
        let mut finder = TickFinder::default();
        // Whether each CPU's idle task is recorded.
        let mut idles: BTreeMap<u16, bool> = BTreeMap::new();
        for event in &prelude {
            finder.push(event);
            *idles.entry(event.cpu).or_default() |=
                matches!(event.kind, EventKind::IdleEntry { .. });
            if let EventKind::WheelStart { timer, flags, .. } = event.kind
                && !WheelFlags::from(flags).wakes
            {
                self.timers.know_deferrable(TimerId::Wheel(timer));
            }
        }
        self.tick = finder.finish();
        for (cpu, _) in idles.into_iter().filter(|&(_, idles)| !idles) {
            self.awake.go_out_of_sight(cpu);
        }
        self.build(&prelude)
    }

    fn build(&mut self, events: &[Event]) -> Result<(), S::Error> {
        for event in events {
            let mut event = *event;
            if event.at_ns < self.last_at_ns {
                self.out_of_order_count += 1;
                event.at_ns = self.last_at_ns;
            }
            self.last_at_ns = event.at_ns;
            self.step(event)?;
        }
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<(), S::Error> {
        let Event { at_ns, cpu: id, kind } = event;
        self.note_timer(event);
        let cpu = self.cpus.seen(id, at_ns);
        cpu.summary.last_at_ns = at_ns;
        match kind {
            EventKind::IdleEntry { state } => return self.enter_idle(id, at_ns, state),
            EventKind::IdleExit => cpu.exit_idle(at_ns),
            EventKind::Switch { next: 0, .. } | EventKind::SwitchToIdle
                if !cpu.summary.observed =>
            {
                self.awake.go_out_of_sight(id);
            }
            EventKind::Switch { next: 0, .. } | EventKind::SwitchToIdle => {}
            EventKind::Switch { .. } | EventKind::SwitchToTask => self.run_task(id, at_ns),
            EventKind::TickStop => {
                cpu.stops_tick = true;
                self.awake.sleep(id);
            }
            EventKind::TimerInterrupt => {
                cpu.timer_interrupt_at_ns = Some(at_ns);
                cpu.signs.interrupt(at_ns, WakeReason::Timer);
            }
            EventKind::RescheduleInterrupt => cpu.signs.interrupt(at_ns, WakeReason::Resched),
            EventKind::IpiInterrupt => cpu.signs.interrupt(at_ns, WakeReason::Ipi),
            EventKind::DeviceInterrupt => cpu.signs.interrupt(at_ns, WakeReason::Irq),
            EventKind::Lost { event_count } => {
                cpu.lose(event_count);
                self.timers.forget_cpu(id);
            }
            _ => {}
        }
        Ok(())
    }

    /// A CPU goes idle. If only policy ended the last stay, the gap continues.
    fn enter_idle(&mut self, id: u16, at_ns: i64, state: u32) -> Result<(), S::Error> {
        self.check_state(id, at_ns, state);
        let held_max = self.cpus.held_max;
        let cpu = self.cpus.seen(id, at_ns);
        cpu.summary.observed = true;
        cpu.summary.idle_entry_count += 1;
        let end = cpu.signs.end(&self.evidence, cpu.open.as_ref());
        cpu.signs = Signs::default();
        let tick_was_stopped = cpu.is_tick_stopped;
        cpu.is_tick_stopped |= std::mem::take(&mut cpu.stops_tick);
        match (&mut cpu.open, end) {
            (Some(open), End::Policy) => {
                cpu.summary.joined_wake_count += 1;
                open.entered_at_ns = at_ns;
                open.is_idle = true;
                return Ok(());
            }
            (Some(_), End::Event { at_ns, reason }) => {
                cpu.close(at_ns, reason);
            }
            (Some(_), End::Open { at_ns }) => {
                self.unjoined_stay_count += 1;
                cpu.close(at_ns, WakeReason::Unknown);
            }
            (None, _) => {}
        }
        let next_tick_ns = self.tick.next_boundary_ns(id, at_ns);
        let next_look = match (next_tick_ns, self.tick.period_ns()) {
            (Some(_), Some(period_ns)) if !self.evidence.tells_ticks() => {
                NextLook::Unknown { period_ns }
            }
            (Some(next_tick_ns), Some(period_ns)) if !cpu.is_tick_stopped => {
                let last_at_ns = cpu.timer_interrupt_at_ns;
                let at_ns = at_ns.saturating_add(next_tick_ns.into());
                NextLook::Tick(WheelLook { at_ns, period_ns, last_at_ns })
            }
            _ => NextLook::None,
        };
        let migration = if self.evidence.tells_tick_stops() {
            self.awake.migration(id, tick_was_stopped)
        } else {
            Migration::Unknown
        };
        let jiffy_ns = self.tick.period_ns().unwrap_or(0).into();
        let next_timer = self.timers.next_at_ns(id, at_ns, next_look, migration, jiffy_ns);
        let gap = IdleGap {
            cpu: id,
            start_ns: at_ns,
            gap_ns: 0,
            sleep_length_ns: match next_timer {
                NextTimer::At(timer_at_ns) => Some(timer_at_ns.saturating_sub(at_ns).max(0) as u64),
                NextTimer::None | NextTimer::Unknown => None,
            },
            next_tick_ns,
            tick_stopped: tick_was_stopped && self.evidence.tells_tick_stops(),
            ran_task: cpu.ran_task || !self.evidence.tells_tasks(),
            wake_reason: WakeReason::Unknown,
            latency_limit_ns: self.facts.latency_limit_ns(id),
            recorded_state: u8::try_from(state)
                .ok()
                .filter(|&state| usize::from(state) < self.facts.state_count(id)),
            recorded_idle_ns: Some(0),
        };
        let exit_latencies_ns = self.facts.exit_latencies_ns(id);
        let exit_latency_ns = exit_latencies_ns.get(state as usize).copied().unwrap_or(0);
        cpu.open = Some(OpenGap {
            gap,
            exit_latency_ns,
            tells_timers: self.evidence.tells_timers() && next_timer != NextTimer::Unknown,
            entered_at_ns: at_ns,
            is_idle: true,
        });
        cpu.ran_task = false;
        if cpu.held.len() >= held_max {
            cpu.flush(id, &mut self.sink)?;
        }
        Ok(())
    }

    /// A task runs, so the gap is over. At a switch between two tasks it is closed already.
    fn run_task(&mut self, id: u16, at_ns: i64) {
        let cpu = self.cpus.seen(id, at_ns);
        if cpu.open.is_some() {
            cpu.exit_idle_silently(at_ns);
            let (at_ns, reason) = match cpu.signs.end(&self.evidence, cpu.open.as_ref()) {
                End::Event { at_ns, reason } => (at_ns, reason),
                End::Open { at_ns } => (at_ns, WakeReason::Unknown),
                End::Policy => cpu.signs.task_without_event(at_ns),
            };
            cpu.close(at_ns, reason);
            cpu.signs = Signs::default();
        }
        cpu.ran_task = true;
        cpu.is_tick_stopped = false;
        cpu.stops_tick = false;
        self.awake.wake(id);
    }

    /// Remembers the first entry into a state that the machine does not have or no log can hold.
    fn check_state(&mut self, cpu: u16, at_ns: i64, state: u32) {
        if state as usize >= self.facts.state_count(cpu) {
            self.unknown_state.get_or_insert(UnknownState { state, cpu, at_ns });
        }
    }

    /// Updates the set of armed timers, and records expiries as evidence.
    fn note_timer(&mut self, event: Event) {
        let Event { at_ns, cpu, kind } = event;
        match kind {
            EventKind::HrtimerStart { timer, function, expires_at_ns, .. } => {
                let id = TimerId::Hrtimer(timer);
                if Some(function) == self.tick.function {
                    return;
                }
                let wakes_at_ns = self.tick.on_trace_clock_ns(expires_at_ns, at_ns);
                self.timers.start(id, Armed::new(cpu, wakes_at_ns));
            }
            EventKind::HrtimerCancel { timer } => self.timers.cancel(TimerId::Hrtimer(timer), cpu),
            EventKind::HrtimerExpire { function, .. } if Some(function) == self.tick.function => {}
            EventKind::HrtimerExpire { timer, .. } => {
                self.expire(TimerId::Hrtimer(timer), cpu, at_ns, None);
            }
            EventKind::WheelStart { timer, bucket_jiffies, flags, .. } => {
                let flags = WheelFlags::from(flags);
                let at_ns = self.tick.jiffies_at_ns(bucket_jiffies).filter(|_| flags.wakes);
                let armed = if self.facts.keeps_timers || flags.is_pinned {
                    Armed::new(flags.cpu, at_ns)
                } else {
                    Armed::migrating(flags.cpu, at_ns)
                };
                self.timers.start(TimerId::Wheel(timer), armed);
            }
            EventKind::WheelCancel { timer } => self.timers.cancel(TimerId::Wheel(timer), cpu),
            EventKind::WheelExpire { timer, now_jiffies } => {
                let due_at_ns = self.tick.jiffies_at_ns(now_jiffies);
                self.expire(TimerId::Wheel(timer), cpu, at_ns, due_at_ns);
            }
            _ => {}
        }
    }

    /// Records what a timer's expiry says about the end of the stay. `due_at_ns` is when it was
    /// due, if the expiry event itself tells.
    fn expire(&mut self, id: TimerId, cpu_id: u16, at_ns: i64, due_at_ns: Option<i64>) {
        let expired = self.timers.expire(id, cpu_id);
        self.timer_expiry_count += 1;
        let cpu = self.cpus.seen(cpu_id, at_ns);
        // The timer was due no later than the interrupt that served it.
        let served_at_ns = cpu
            .timer_interrupt_at_ns
            .filter(|&ns| at_ns.saturating_sub(ns) < SERVED_WITHIN_NS)
            .unwrap_or(at_ns);
        let guess_ns = due_at_ns.filter(|&due_ns| due_ns <= at_ns).unwrap_or(served_at_ns);
        let expires_at_ns = match expired {
            Expired::At { expires_at_ns } => expires_at_ns,
            Expired::WithAnother => return,
            Expired::ArmedBeforeTrace => {
                cpu.armed_before_ns.push(guess_ns);
                guess_ns
            }
            Expired::Unknown => {
                self.unknown_timer_count += 1;
                guess_ns
            }
        };
        // The timer was already overdue when the CPU went idle. A wheel timer had to wait for the
        // next tick; an hrtimer's interrupt had not been noticed yet.
        let expires_at_ns = match (id, &mut cpu.open) {
            (TimerId::Wheel(_), Some(open)) if expires_at_ns < open.gap.start_ns => {
                self.tick.last_boundary_ns(cpu_id, served_at_ns).unwrap_or(served_at_ns)
            }
            (TimerId::Hrtimer(_), Some(open)) if expires_at_ns < open.gap.start_ns => {
                open.gap.sleep_length_ns = Some(0);
                expires_at_ns
            }
            _ => expires_at_ns,
        };
        // Within its slack a timer can fire with an earlier one. It did not cause the interrupt.
        let signs = &mut cpu.signs;
        let earliest_ns = signs.timer_at_ns.unwrap_or(i64::MAX).min(expires_at_ns.min(at_ns));
        signs.timer_at_ns = Some(earliest_ns);
    }
}

impl Cpus {
    /// The record of a CPU that has an event. A new CPU lowers the number of gaps each may hold.
    fn seen(&mut self, id: u16, at_ns: i64) -> &mut Cpu {
        let index = usize::from(id);
        if self.by_id.len() <= index {
            self.by_id.resize_with(index + 1, || None);
        }
        self.by_id[index].get_or_insert_with(|| {
            self.count += 1;
            self.held_max =
                (HELD_GAP_COUNT / self.count).clamp(HELD_GAP_COUNT_MIN, HELD_GAP_COUNT_MAX);
            let summary = CpuSummary { cpu: id, first_at_ns: at_ns, ..CpuSummary::default() };
            // A task may have run just before the trace began. On a CPU whose first event is an
            // idle entry, one did.
            Box::new(Cpu { summary, ran_task: true, ..Cpu::default() })
        })
    }
}

impl Cpu {
    fn exit_idle(&mut self, at_ns: i64) {
        match &mut self.open {
            Some(open) if open.is_idle => {
                open.is_idle = false;
                let stay_ns = at_ns.saturating_sub(open.entered_at_ns) as u64;
                let idle_ns = open.gap.recorded_idle_ns.get_or_insert(0);
                *idle_ns = idle_ns.saturating_add(stay_ns);
                self.signs.exit_at_ns = Some(at_ns);
            }
            _ if self.summary.idle_entry_count > 0 => self.summary.stray_exit_count += 1,
            _ => {}
        }
    }

    /// A task runs although no exit was recorded, so the stay ended here at the latest.
    fn exit_idle_silently(&mut self, at_ns: i64) {
        if self.open.as_ref().is_some_and(|open| open.is_idle) {
            self.exit_idle(at_ns);
        }
    }

    /// Events were lost, so whatever is open cannot be trusted any more.
    fn lose(&mut self, event_count: u64) {
        self.summary.lost_event_count = self.summary.lost_event_count.saturating_add(event_count);
        if self.open.take().is_some() {
            self.summary.broken_gap_count += 1;
        }
        self.signs = Signs::default();
    }

    fn close(&mut self, at_ns: i64, reason: WakeReason) {
        let Some(open) = self.open.take() else { return };
        let OpenGap { mut gap, exit_latency_ns, tells_timers, entered_at_ns, .. } = open;
        let wake_at_ns = match reason {
            // The timer was overdue at entry: the gap is empty, not negative.
            WakeReason::Timer => at_ns.max(gap.start_ns),
            _ => at_ns.saturating_sub_unsigned(exit_latency_ns).max(entered_at_ns),
        };
        gap.gap_ns = wake_at_ns.saturating_sub(gap.start_ns) as u64;
        gap.wake_reason = reason;
        if gap.impossible_column().is_some() {
            self.impossible_gap_count += 1;
            self.summary.broken_gap_count += 1;
            return;
        }
        if !tells_timers {
            self.held_without_timers.push(self.held.len());
        }
        self.held.push(gap);
        self.summary.gap_count += 1;
    }

    /// Completes the held gaps with the timers from before the trace, and passes them to the sink.
    fn flush<S: GapSink>(&mut self, id: u16, sink: &mut S) -> Result<(), S::Error> {
        self.armed_before_ns.sort_unstable();
        let mut later = self.armed_before_ns.iter().rev().peekable();
        let mut next_at_ns = None;
        for gap in self.held.iter_mut().rev() {
            while let Some(&&at_ns) = later.peek() {
                if at_ns < gap.start_ns {
                    break;
                }
                next_at_ns = Some(at_ns);
                later.next();
            }
            if let Some(at_ns) = next_at_ns {
                let ahead_ns = at_ns.saturating_sub(gap.start_ns) as u64;
                gap.sleep_length_ns = Some(gap.sleep_length_ns.unwrap_or(u64::MAX).min(ahead_ns));
            }
        }
        self.armed_before_ns.clear();
        for index in self.held_without_timers.drain(..) {
            self.held[index].sleep_length_ns = None;
        }
        sink.take(id, &self.held)?;
        self.held.clear();
        Ok(())
    }
}

impl Signs {
    fn interrupt(&mut self, at_ns: i64, reason: WakeReason) {
        self.interrupt.get_or_insert((at_ns, reason));
    }

    /// Judges how a stay ended after which no task ran.
    fn end(&self, evidence: &Evidence, open: Option<&OpenGap>) -> End {
        let entered_at_ns = open.map_or(i64::MIN, |open| open.entered_at_ns);
        // The first event is the cause: a timer that expired while an IPI was being served did not
        // end the stay.
        let first_sign_ns = match (self.interrupt, self.exit_at_ns) {
            (Some((at_ns, _)), Some(exit_at_ns)) => at_ns.min(exit_at_ns),
            (Some((at_ns, _)), None) => at_ns,
            (None, exit_at_ns) => exit_at_ns.unwrap_or(entered_at_ns),
        };
        let other_reason =
            self.interrupt.map(|(_, reason)| reason).filter(|&reason| reason != WakeReason::Timer);
        if let Some(reason) = other_reason {
            let reason = if evidence.tells_interrupts() { reason } else { WakeReason::Unknown };
            return End::Event { at_ns: first_sign_ns, reason };
        }
        let is_told = evidence.tells_interrupts() && evidence.tells_timers();
        match self.timer_at_ns {
            Some(at_ns) if is_told => End::Event { at_ns, reason: WakeReason::Timer },
            Some(_) => End::Event { at_ns: first_sign_ns, reason: WakeReason::Unknown },
            None if is_told && (self.interrupt.is_some() || evidence.tells_silence()) => {
                End::Policy
            }
            None => End::Open { at_ns: first_sign_ns },
        }
    }

    /// A task ran, but the trace shows no event that would have ended the stay.
    fn task_without_event(&self, at_ns: i64) -> (i64, WakeReason) {
        match self.interrupt {
            // The tick's own work made it runnable: load balancing, RCU.
            Some((interrupt_at_ns, _)) => (interrupt_at_ns, WakeReason::Softirq),
            // Somebody set the flag that a polling idle loop watches.
            None => (self.exit_at_ns.unwrap_or(at_ns), WakeReason::Resched),
        }
    }
}
