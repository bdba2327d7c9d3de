//! Replay: the idle loop in virtual time, over recorded gaps.
//!
//! A [`Lane`] is one governor on one machine's states, fed the gaps of one CPU in order. Lanes
//! share nothing, so CPUs and governors can be replayed in parallel, and the same gaps and
//! settings give the same tally.
//!
//! # One gap
//!
//! ```text
//! start                    tick                              wake event    start + gap
//!   ├─ select ── stay ──────┤ exit latency, tick's work │ select ── stay ──┤
//!                           └──── at running power ────►│                  └► delayed by the
//!                                                                            state's exit latency
//! ```
//!
//! 1. If a task ran before the gap the tick runs; else it is as the last gap left it. Ticks lie on
//!    the recorded grid of the CPU.
//! 2. The governor is asked. "Stop the tick" counts only if the next timer is more than a tick
//!    away.
//! 3. The stay ends with the first of: the wake event, the tick, the polling limit, the promotion
//!    timer. Its length and the state's exit latency together are the residency that the governor
//!    reflects on and that the verdict is about.
//! 4. After a tick, the exit latency and the tick's work pass at running power, and the governor is
//!    asked again with what is left. If nothing is left, the event was delayed by the overrun.
//! 5. The event is delayed by the exit latency of the state that it finds.
//!
//! The timeline is the trace's: a late wake-up does not shift what follows. The exit latency is
//! always the table's worst case.
//!
//! # What the log doesn't hold
//!
//! * Whether the tick's handler ran for a timer. It did if a timer ended the gap exactly on the
//!   tick grid: that is where timer-wheel timers expire, and next to no others.
//! * Tasks waiting for I/O (menu 6.1 asks): taken as none.
//! * A timer that should have fired within the gap but didn't was cancelled by somebody else; from
//!   then on the next one is taken to be far away.

mod run;
mod tally;

use idlewise_core::{
    Context, Decision, Device, DisabledMask, FAR_AWAY_NS, Governor, IdleState, NO_LATENCY_LIMIT_NS,
    Outcome, STATE_COUNT_MAX, SleepLength, StateIndex, StateTable, Verdict,
    auto_promotion_delay_ns,
};
use idlewise_trace::{IdleGap, WakeReason};

pub use run::{GroupReader, MakeLane, replay_log};
pub use tally::{Delays, StateTally, Tally};

/// How long the tick's work takes if nothing else is said: interrupt to idle exit took 2 to 4 µs
/// in our recordings on a virtual machine. Assumed.
pub const DEFAULT_TICK_WORK_NS: u64 = 3_000;
/// The shortest target residency that bounds polling, as `CPUIDLE_POLL_MIN` in
/// `drivers/cpuidle/cpuidle.c`.
const POLL_LIMIT_MIN_NS: u64 = 10_000;
/// A CPU polls at most this part of a tick, as `CPUIDLE_POLL_MAX`.
const POLL_LIMIT_TICK_PART: u64 = 16;

/// The world that a governor is replayed in.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The machine's states.
    pub states: StateTable,
    /// Those that are switched off.
    pub disabled: DisabledMask,
    /// Longest exit latency allowed; a tighter limit in the log counts too.
    pub latency_limit_ns: i64,
    /// The tick's period, that of the recording or another.
    pub tick_period_ns: u32,
    /// How long the tick's handler keeps the CPU running.
    pub tick_work_ns: u64,
}

impl Setting {
    /// All states enabled, no latency limit.
    pub fn new(states: StateTable, tick_period_ns: u32) -> Self {
        Setting {
            states,
            disabled: DisabledMask::NONE,
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            tick_period_ns,
            tick_work_ns: DEFAULT_TICK_WORK_NS,
        }
    }

    /// How long a polling state spins (`cpuidle_poll_time` in `drivers/cpuidle/cpuidle.c`): to the
    /// target residency of the shallowest enabled state that is worth the wait.
    fn poll_limit_ns(&self) -> u64 {
        let max_ns = u64::from(self.tick_period_ns) / POLL_LIMIT_TICK_PART;
        (1..self.states.len())
            .filter(|&i| !self.disabled.contains(i))
            .map(|i| self.states.get(i).target_residency_ns)
            .find(|&residency_ns| residency_ns >= POLL_LIMIT_MIN_NS)
            .map_or(max_ns, |residency_ns| residency_ns.min(max_ns))
    }
}

/// Something that is fed the gaps of one CPU, in order of time.
pub trait Lane: Send {
    /// Takes the next gaps.
    fn replay(&mut self, gaps: &[IdleGap]);

    /// What happened.
    fn tally(&self) -> &Tally;
}

/// Sees each gap's replay as it happens; for comparing with the recording or writing a new log.
pub trait Observer: Send {
    /// `first_state` is the governor's first decision in the gap, `idle_ns` all its stays together
    /// with their exit latencies.
    fn gap(&mut self, gap: &IdleGap, first: FirstDecision, idle_ns: u64);

    /// Sees each stay of a gap before [`Observer::gap`] sees all of it.
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, _stay: ReplayedStay) {}
}

/// One stay of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedStay {
    /// The state.
    pub state: StateIndex,
    /// From the gap's start to the entry.
    pub at_ns: u64,
    /// From the entry to what ended the stay; the exit latency follows.
    pub stay_ns: u64,
    /// The state's.
    pub exit_latency_ns: u64,
    /// What the kernel would count it as.
    pub verdict: Verdict,
    /// What ended it.
    pub end: StayEnd,
}

impl ReplayedStay {
    /// How long the gap's wake event was delayed by the exit latency; `None` if the stay did not
    /// last until then.
    pub fn delay_ns(&self) -> Option<u64> {
        (self.end == StayEnd::Event).then_some(self.exit_latency_ns)
    }
}

/// The governor's first decision in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDecision {
    /// The state.
    pub state: StateIndex,
    /// Whether the tick was stopped before it.
    pub tick_stopped: bool,
}

impl Observer for () {
    #[inline]
    fn gap(&mut self, _gap: &IdleGap, _first: FirstDecision, _idle_ns: u64) {}
}

/// A governor in a [`Setting`].
pub struct GovernorLane<G, O = ()> {
    governor: G,
    observer: O,
    setting: Setting,
    device: Device,
    tick_stopped: bool,
    poll_limit_ns: u64,
    rules: [StateRule; STATE_COUNT_MAX],
    tally: Tally,
}

/// What follows from the table and the disabled states for one state, worked out once.
#[derive(Clone, Copy, Debug)]
struct StateRule {
    exit_latency_ns: u64,
    /// A shorter residency is too deep; 0 if nothing shallower is enabled.
    too_deep_below_ns: u64,
    /// A stay this long is too shallow (`core::verdict` on the stay plus the exit latency).
    too_shallow_from_ns: u64,
    /// When the promotion timer ends a stay.
    promotion_ns: u64,
    is_polling: bool,
    wakes_on_store: bool,
}

impl StateRule {
    fn new(setting: &Setting, index: StateIndex) -> Self {
        let Setting { states, disabled, .. } = setting;
        let state: &IdleState = states.get(index);
        let shallower_is_enabled = (0..index).any(|i| !disabled.contains(i));
        let deeper = (index + 1..states.len()).find(|&i| !disabled.contains(i));
        StateRule {
            exit_latency_ns: state.exit_latency_ns,
            too_deep_below_ns: if shallower_is_enabled { state.target_residency_ns } else { 0 },
            // The stay must also be longer than nothing, and the residency reach the state's own.
            too_shallow_from_ns: deeper.map_or(u64::MAX, |i| {
                let own_ns = state.target_residency_ns.saturating_sub(state.exit_latency_ns);
                states.get(i).target_residency_ns.max(own_ns).max(1)
            }),
            promotion_ns: auto_promotion_delay_ns(states, *disabled, index).unwrap_or(u64::MAX),
            is_polling: state.is_polling,
            wakes_on_store: state.wakes_on_store,
        }
    }

    #[inline]
    fn is_too_deep(&self, residency_ns: u64) -> bool {
        residency_ns < self.too_deep_below_ns
    }

    #[inline]
    fn is_too_shallow(&self, stay_ns: u64) -> bool {
        stay_ns >= self.too_shallow_from_ns
    }

    #[inline]
    fn verdict(&self, stay_ns: u64, residency_ns: u64) -> Verdict {
        if self.is_too_deep(residency_ns) {
            Verdict::TooDeep
        } else if self.is_too_shallow(stay_ns) {
            Verdict::TooShallow
        } else {
            Verdict::Fit
        }
    }
}

/// Why a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayEnd {
    /// The gap's wake event.
    Event,
    /// The scheduler tick.
    Tick,
    /// The limit of a polling state.
    PollLimit,
    /// The promotion timer.
    Promotion,
}

impl<G: Governor> GovernorLane<G> {
    /// A lane that only counts.
    pub fn new(governor: G, setting: Setting) -> Self {
        GovernorLane::with_observer(governor, setting, ())
    }
}

impl<G: Governor, O: Observer> GovernorLane<G, O> {
    /// A lane that shows each gap to `observer`.
    pub fn with_observer(governor: G, setting: Setting, observer: O) -> Self {
        let rules =
            std::array::from_fn(|i| StateRule::new(&setting, i.min(setting.states.deepest())));
        GovernorLane {
            governor,
            observer,
            setting,
            device: Device::default(),
            tick_stopped: false,
            poll_limit_ns: setting.poll_limit_ns(),
            rules,
            tally: Tally::default(),
        }
    }

    /// The observer.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    #[inline]
    fn gap(&mut self, gap: &IdleGap) {
        let period_ns = u64::from(self.setting.tick_period_ns);
        if gap.ran_task {
            self.tick_stopped = false;
        }
        let first_tick_ns = match gap.next_tick_ns {
            // A division takes as long as a simple governor's decision, and most need none.
            Some(next_tick_ns) => match u64::from(next_tick_ns).max(1) {
                next_ns if next_ns <= period_ns => next_ns,
                next_ns => (next_ns - 1) % period_ns + 1,
            },
            None => period_ns - gap.start_ns.rem_euclid(period_ns as i64) as u64,
        };
        let log_limit_ns = gap.latency_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let latency_limit_ns = log_limit_ns
            .map_or(self.setting.latency_limit_ns, |ns| ns.min(self.setting.latency_limit_ns));
        let start_ns = gap.start_ns as u64;
        let mut first = None;
        let mut idle_ns = 0;
        // How far into the gap we are, and the next line of the tick grid after that.
        let mut at_ns = 0_u64;
        let mut next_tick_at_ns = first_tick_ns;
        loop {
            let tick_left_ns = if self.tick_stopped { u64::MAX } else { next_tick_at_ns - at_ns };
            let timer_left_ns = match gap.sleep_length_ns {
                Some(length_ns) if length_ns >= at_ns => {
                    i64::try_from(length_ns - at_ns).unwrap_or(FAR_AWAY_NS)
                }
                _ => FAR_AWAY_NS,
            };
            let next_event_ns =
                timer_left_ns.min(i64::try_from(tick_left_ns).unwrap_or(FAR_AWAY_NS));
            let timers = SleepLength { sleep_length_ns: timer_left_ns, next_event_ns };
            let mut context = Context::new(&self.setting.states, timers);
            context.disabled = self.setting.disabled;
            context.latency_limit_ns = latency_limit_ns;
            context.tick_stopped = self.tick_stopped;
            context.now_ns = start_ns.wrapping_add(at_ns);
            // With a single state the kernel asks nobody (`cpuidle_idle_call` in
            // `kernel/sched/idle.c`).
            let mut decision = match self.setting.states.len() {
                1 => Decision { state: 0, stop_tick: true },
                _ => self.governor.select(&context, &mut self.device),
            };
            self.tally.timer_read_count += u64::from(context.sleep_length_calls());
            let deepest = self.setting.states.deepest();
            if decision.state > deepest {
                self.tally.invalid_count += 1;
                decision.state = deepest;
            }
            first.get_or_insert(FirstDecision {
                state: decision.state,
                tick_stopped: self.tick_stopped,
            });
            let stops = decision.stop_tick && timer_left_ns > period_ns as i64;
            self.tick_stopped |= stops;
            let tick_left_ns = if self.tick_stopped { u64::MAX } else { tick_left_ns };

            let rule = self.rules[decision.state];
            let event_left_ns = gap.gap_ns - at_ns;
            let poll_limit_ns = match self.device.poll_limit_ns {
                0 => self.poll_limit_ns,
                limit_ns => limit_ns,
            };
            let own_limit_ns = if rule.is_polling { poll_limit_ns } else { rule.promotion_ns };
            let others_ns = event_left_ns.min(tick_left_ns);
            let stay_ns = others_ns.min(own_limit_ns);
            let device = &mut self.device;
            device.poll_limit_ns =
                if rule.is_polling { poll_limit_ns } else { device.poll_limit_ns };
            device.poll_time_limit =
                if rule.is_polling { own_limit_ns < others_ns } else { device.poll_time_limit };
            // At the same time, the event comes before the tick, and the tick before our timers.
            let end = match stay_ns {
                _ if stay_ns == event_left_ns => StayEnd::Event,
                _ if stay_ns == tick_left_ns => StayEnd::Tick,
                _ if rule.is_polling => StayEnd::PollLimit,
                _ => StayEnd::Promotion,
            };
            let residency_ns = stay_ns + rule.exit_latency_ns;
            idle_ns += residency_ns;
            let state = &mut self.tally.states[decision.state];
            state.entry_count += 1;
            state.stay_ns += stay_ns;
            state.too_deep_count += u64::from(rule.is_too_deep(residency_ns));
            state.too_shallow_count += u64::from(rule.is_too_shallow(stay_ns));
            let stay = ReplayedStay {
                state: decision.state,
                at_ns,
                stay_ns,
                exit_latency_ns: rule.exit_latency_ns,
                verdict: rule.verdict(stay_ns, residency_ns),
                end,
            };
            self.observer.stay(gap, stay);

            let tick_ran = match end {
                StayEnd::Tick => true,
                StayEnd::Event => tick_left_ns == stay_ns || self.is_on_grid(gap, first_tick_ns),
                StayEnd::PollLimit | StayEnd::Promotion => false,
            };
            self.device.last_residency_ns = residency_ns;
            let outcome = Outcome {
                entered: decision.state,
                got_tick: tick_ran,
                now_ns: start_ns.wrapping_add(at_ns).wrapping_add(residency_ns),
            };
            if self.setting.states.len() > 1 {
                self.governor.reflect(&outcome, &mut self.device);
            }
            match end {
                StayEnd::Event => {
                    let state = &mut self.tally.states[decision.state];
                    state.wake_count += 1;
                    let is_ipi = matches!(gap.wake_reason, WakeReason::Ipi | WakeReason::Resched);
                    state.free_ipi_count += u64::from(is_ipi && rule.wakes_on_store);
                    self.observer.gap(gap, first.expect("set above"), idle_ns);
                    return;
                }
                StayEnd::Tick => {
                    let work_ns = rule.exit_latency_ns + self.setting.tick_work_ns;
                    self.tally.tick_wake_count += 1;
                    self.tally.work_ns += work_ns;
                    at_ns += stay_ns + work_ns;
                }
                // A limit of 0 must not stop the clock.
                StayEnd::PollLimit => at_ns += stay_ns.max(1),
                StayEnd::Promotion => {
                    self.tally.auto_promotion_count += 1;
                    self.tally.work_ns += rule.exit_latency_ns;
                    at_ns += residency_ns.max(1);
                }
            }
            if at_ns >= gap.gap_ns {
                break;
            }
            if let Some(passed_ns) = at_ns.checked_sub(next_tick_at_ns) {
                let passed_count = if passed_ns < period_ns { 0 } else { passed_ns / period_ns };
                next_tick_at_ns += (passed_count + 1) * period_ns;
            }
        }
        let overrun_ns = at_ns - gap.gap_ns;
        self.tally.overruns.record(overrun_ns);
        self.observer.gap(gap, first.expect("the loop runs at least once"), idle_ns);
    }

    /// Whether a timer ended the gap just where the tick grid has a line.
    #[inline]
    fn is_on_grid(&self, gap: &IdleGap, first_tick_ns: u64) -> bool {
        let period_ns = u64::from(self.setting.tick_period_ns);
        gap.wake_reason == WakeReason::Timer
            && match gap.gap_ns.checked_sub(first_tick_ns) {
                None => false,
                Some(rest_ns) if rest_ns < period_ns => rest_ns == 0,
                Some(rest_ns) => rest_ns.is_multiple_of(period_ns),
            }
    }
}

impl<G: Governor, O: Observer> Lane for GovernorLane<G, O> {
    fn replay(&mut self, gaps: &[IdleGap]) {
        self.tally.gap_count += gaps.len() as u64;
        for gap in gaps {
            self.tally.gap_ns += gap.gap_ns;
            self.tally.timerless_gap_count += u64::from(gap.sleep_length_ns.is_none());
            self.gap(gap);
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
