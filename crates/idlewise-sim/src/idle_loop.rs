//! The idle loop around a governor, shared by replay and the simulated machine. It asks the
//! governor, adapts the decision to the tick and the limits, and reports back how the stay went.
//! The caller decides when a stay ends.

use idlewise_core::{
    Context, Decision, Device, DisabledMask, FAR_AWAY_NS, Governor, IdleState, NO_LATENCY_LIMIT_NS,
    Outcome, STATE_COUNT_MAX, SleepLength, StateIndex, StateTable, Verdict,
    auto_promotion_delay_ns,
};

use crate::tally::{StateTally, Tally};

/// The default duration of the tick's work. From interrupt to idle exit took 2 to 4 µs in our
/// recordings on a virtual machine. Assumed.
pub const DEFAULT_TICK_WORK_NS: u64 = 3_000;
/// The longest duration that can be set: half the period of 1,000 Hz.
pub const TICK_WORK_MAX_NS: u64 = 500_000;
/// The shortest target residency that limits polling, like `CPUIDLE_POLL_MIN` in
/// `drivers/cpuidle/cpuidle.c`.
const POLL_LIMIT_MIN_NS: u64 = 10_000;
/// A CPU polls at most this fraction of a tick, like `CPUIDLE_POLL_MAX`.
const POLL_LIMIT_TICK_PART: u64 = 16;

/// The conditions under which a governor decides.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The machine's states.
    pub states: StateTable,
    /// What leaving each state takes in the mean. The governor sees only the worst case that its table declares.
    pub exits_ns: [u64; STATE_COUNT_MAX],
    /// The disabled states.
    pub disabled: DisabledMask,
    /// The longest allowed exit latency. A tighter limit in the log also applies.
    pub latency_limit_ns: i64,
    /// The tick's period, of the recording or another one.
    pub tick_period_ns: u32,
    /// How long the tick's handler keeps the CPU running.
    pub tick_work_ns: u64,
}

impl Setting {
    /// All states enabled, no latency limit; leaving a state takes as long as the table declares.
    pub fn new(states: StateTable, tick_period_ns: u32) -> Self {
        Setting {
            states,
            exits_ns: declared_exits_ns(&states),
            disabled: DisabledMask::NONE,
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            tick_period_ns,
            tick_work_ns: DEFAULT_TICK_WORK_NS,
        }
    }

    /// The same, but for the disabled states. A closure that names this setting's fields stops rustc 1.95 with an
    /// internal error.
    pub fn with_disabled(self, disabled: DisabledMask) -> Self {
        Setting { disabled, ..self }
    }

    /// How long a polling state spins (`cpuidle_poll_time` in `drivers/cpuidle/cpuidle.c`): up to
    /// the target residency of the shallowest enabled state that is worth the wait.
    fn poll_limit_ns(&self) -> u64 {
        let max_ns = u64::from(self.tick_period_ns) / POLL_LIMIT_TICK_PART;
        (1..self.states.len())
            .filter(|&i| !self.disabled.contains(i))
            .map(|i| self.states.get(i).target_residency_ns)
            .find(|&residency_ns| residency_ns >= POLL_LIMIT_MIN_NS)
            .map_or(max_ns, |residency_ns| residency_ns.min(max_ns))
    }
}

/// What leaving each state takes at most. Entries beyond the table are 0.
pub(crate) fn declared_exits_ns(states: &StateTable) -> [u64; STATE_COUNT_MAX] {
    std::array::from_fn(|i| states.as_slice().get(i).map_or(0, |state| state.exit_latency_ns))
}

/// Figures for a state that follow from the table and the disabled states, computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateRule {
    /// What leaving takes in the mean.
    pub(crate) exit_latency_ns: u64,
    /// A tighter latency limit forbids the state. None does for the shallowest enabled one: a CPU must do something.
    least_limit_ns: i64,
    /// Never for state 0, where the kernel's governors go if nothing else is left.
    is_disabled: bool,
    /// A shorter residency is too deep; 0 if no shallower state is enabled.
    too_deep_below_ns: u64,
    /// A stay of this length or more is too shallow (`core::verdict` on stay plus exit latency, from which the kernel
    /// subtracts the declared one).
    too_shallow_from_ns: u64,
    /// How long after entry the promotion timer ends a stay.
    promotion_ns: u64,
    /// The exit latency of the state that a promotion leads to. No timer starts if the limit forbids that.
    promoted_exit_latency_ns: i64,
    pub(crate) is_polling: bool,
    pub(crate) wakes_on_store: bool,
}

impl StateRule {
    /// The rules of all states. Entries beyond the table repeat the deepest state's rule.
    pub(crate) fn all(setting: &Setting) -> [Self; STATE_COUNT_MAX] {
        std::array::from_fn(|i| StateRule::new(setting, i.min(setting.states.deepest())))
    }

    fn new(setting: &Setting, index: StateIndex) -> Self {
        let Setting { states, disabled, .. } = setting;
        let state: &IdleState = states.get(index);
        let shallower_is_enabled = (0..index).any(|i| !disabled.contains(i));
        let deeper = (index + 1..states.len()).find(|&i| !disabled.contains(i));
        let exit_latency_ns = setting.exits_ns[index];
        StateRule {
            exit_latency_ns,
            least_limit_ns: match shallower_is_enabled {
                true => i64::try_from(state.exit_latency_ns).unwrap_or(i64::MAX),
                false => i64::MIN,
            },
            is_disabled: index > 0 && disabled.contains(index),
            too_deep_below_ns: if shallower_is_enabled { state.target_residency_ns } else { 0 },
            // The stay must also be longer than 0, and the residency reach the state's own target.
            too_shallow_from_ns: deeper.map_or(u64::MAX, |i| {
                let deeper_ns = states.get(i).target_residency_ns + state.exit_latency_ns;
                let least_ns =
                    deeper_ns.max(state.target_residency_ns).max(state.exit_latency_ns + 1);
                least_ns.saturating_sub(exit_latency_ns)
            }),
            promotion_ns: auto_promotion_delay_ns(states, *disabled, index).unwrap_or(u64::MAX),
            promoted_exit_latency_ns: deeper.map_or(0, |i| states.get(i).exit_latency_ns as i64),
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
    pub(crate) fn verdict(&self, stay_ns: u64, residency_ns: u64) -> Verdict {
        if self.is_too_deep(residency_ns) {
            Verdict::TooDeep
        } else if self.is_too_shallow(stay_ns) {
            Verdict::TooShallow
        } else {
            Verdict::Fit
        }
    }
}

/// What ended a stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StayEnd {
    /// The gap's wake event.
    Event,
    /// The scheduler tick.
    Tick,
    /// The limit of a polling state.
    PollLimit,
    /// The promotion timer.
    Promotion,
    /// UMWAIT's deadline (`umwait_control/max_time`), which a replay does not have.
    Deadline,
}

/// The timers and requests of a CPU when the governor is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// The CPU's clock.
    pub now_ns: u64,
    /// The time to the next timer, [`FAR_AWAY_NS`] if there is none.
    pub timer_left_ns: i64,
    /// The time to the next boundary of the tick grid, whether or not the tick runs.
    pub tick_left_ns: u64,
    /// The tightest latency request.
    pub latency_limit_ns: i64,
}

/// A decision as the loop carries it out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub state: StateIndex,
    /// The state comes from the recording instead of the governor's decision.
    pub is_overruled: bool,
    /// The time to the next tick; `u64::MAX` if the tick is stopped.
    pub tick_left_ns: u64,
    /// When the polling limit or the promotion timer ends the stay; `u64::MAX` if neither does.
    pub own_limit_ns: u64,
}

/// How a stay went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stayed {
    pub stay_ns: u64,
    /// How long leaving the state took.
    pub exit_ns: u64,
    pub end: StayEnd,
    /// The tick's handler ran at the end of the stay.
    pub tick_ran: bool,
    /// The CPU's clock after leaving.
    pub now_ns: u64,
}

/// A governor that is not known at compile time. `idlewise-core` does not allocate, so it does not
/// implement `Governor` for boxes.
pub struct Boxed(pub Box<dyn Governor>);

impl Governor for Boxed {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        self.0.select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        self.0.memory(note)
    }

    fn forecast_ns(&self) -> Option<u64> {
        self.0.forecast_ns()
    }
}

/// One CPU's idle loop.
pub(crate) struct IdleLoop<G> {
    governor: G,
    pub(crate) setting: Setting,
    device: Device,
    pub(crate) tick_stopped: bool,
    poll_limit_ns: u64,
    rules: [StateRule; STATE_COUNT_MAX],
    /// How far the governor's clock is ahead of the caller's.
    clock_ahead_ns: u64,
}

impl<G: Governor> IdleLoop<G> {
    pub(crate) fn new(governor: G, setting: Setting) -> Self {
        IdleLoop {
            governor,
            setting,
            device: Device::default(),
            tick_stopped: false,
            poll_limit_ns: setting.poll_limit_ns(),
            rules: StateRule::all(&setting),
            clock_ahead_ns: 0,
        }
    }

    /// The same loop in a run that begins at 0 again, `past_ns` after the last one did. The governor keeps what it
    /// learnt, and its clock goes on.
    pub(crate) fn restarted(self, past_ns: u64) -> Self {
        let clock_ahead_ns = self.clock_ahead_ns.wrapping_add(past_ns);
        IdleLoop { tick_stopped: false, clock_ahead_ns, ..self }
    }

    /// Asks the governor and applies the tick decision.
    #[inline]
    pub(crate) fn select(&mut self, outlook: Outlook, tally: &mut Tally) -> Entry {
        let Outlook { timer_left_ns, tick_left_ns, .. } = outlook;
        // It is a timer-wheel timer. hrtimers do not keep the tick.
        let next_tick_serves_timer = i64::try_from(tick_left_ns) == Ok(timer_left_ns);
        let tick_left_ns = if self.tick_stopped { u64::MAX } else { tick_left_ns };
        let next_event_ns = timer_left_ns.min(i64::try_from(tick_left_ns).unwrap_or(FAR_AWAY_NS));
        let timers = SleepLength { sleep_length_ns: timer_left_ns, next_event_ns };
        let mut context = Context::new(&self.setting.states, timers);
        context.disabled = self.setting.disabled;
        context.latency_limit_ns = outlook.latency_limit_ns;
        context.tick_stopped = self.tick_stopped;
        context.now_ns = outlook.now_ns.wrapping_add(self.clock_ahead_ns);
        // With a single state the kernel does not call a governor (`cpuidle_idle_call` in
        // `kernel/sched/idle.c`).
        let mut decision = match self.setting.states.len() {
            1 => Decision { state: 0, stop_tick: true },
            _ => self.governor.select(&context, &mut self.device),
        };
        tally.timer_read_count += u64::from(context.sleep_length_calls());
        let deepest = self.setting.states.deepest();
        if decision.state > deepest {
            tally.invalid_count += 1;
            decision.state = deepest;
        }
        let rule = &self.rules[decision.state];
        let is_forbidden = rule.is_disabled | (outlook.latency_limit_ns < rule.least_limit_ns);
        tally.forbidden_count += u64::from(is_forbidden);
        self.tick_stopped |= decision.stop_tick && !next_tick_serves_timer;
        let tick_left_ns = if self.tick_stopped { u64::MAX } else { tick_left_ns };
        self.enter(decision.state, false, tick_left_ns, outlook.latency_limit_ns)
    }

    #[inline]
    fn enter(
        &mut self,
        state: StateIndex,
        is_overruled: bool,
        tick_left_ns: u64,
        latency_limit_ns: i64,
    ) -> Entry {
        let rule = &self.rules[state];
        let own_limit_ns = match (rule.is_polling, self.device.poll_limit_ns) {
            (false, _) if latency_limit_ns < rule.promoted_exit_latency_ns => u64::MAX,
            (false, _) => rule.promotion_ns,
            (true, 0) => {
                self.device.poll_limit_ns = self.poll_limit_ns;
                self.poll_limit_ns
            }
            (true, limit_ns) => limit_ns,
        };
        Entry { state, is_overruled, tick_left_ns, own_limit_ns }
    }

    /// The rule of a state.
    #[inline]
    pub(crate) fn rule(&self, state: StateIndex) -> &StateRule {
        &self.rules[state]
    }

    /// The governor.
    pub(crate) fn governor(&self) -> &G {
        &self.governor
    }

    /// The governor, to change it.
    pub(crate) fn governor_mut(&mut self) -> &mut G {
        &mut self.governor
    }

    /// What the governor expected when it last selected a state.
    pub(crate) fn forecast_ns(&self) -> Option<u64> {
        self.governor.forecast_ns()
    }

    /// Replaces the state of an entry with the recorded one, whatever the governor decided.
    #[inline]
    pub(crate) fn enter_instead(
        &mut self,
        entry: Entry,
        state: StateIndex,
        latency_limit_ns: i64,
    ) -> Entry {
        let state = state.min(self.setting.states.deepest());
        self.enter(state, state != entry.state, entry.tick_left_ns, latency_limit_ns)
    }

    /// Notes everything inside the loop that the next stays depend on, like [`Governor::memory`].
    pub(crate) fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        let Device { last_residency_ns, poll_limit_ns, poll_time_limit, last_state } = self.device;
        note(u64::from(self.tick_stopped));
        note(last_residency_ns);
        note(poll_limit_ns);
        note(u64::from(poll_time_limit));
        note(last_state.map_or(0, |state| 1 + state as u64));
        // With a single state no governor is asked.
        self.setting.states.len() == 1 || self.governor.memory(note)
    }

    /// Judges the stay and informs the governor. Returns the residency, including the exit.
    #[inline]
    pub(crate) fn reflect(&mut self, entry: &Entry, stayed: Stayed, tally: &mut Tally) -> u64 {
        let Stayed { stay_ns, exit_ns, end, tick_ran, now_ns } = stayed;
        let rule = &self.rules[entry.state];
        let residency_ns = stay_ns + exit_ns;
        let state: &mut StateTally = &mut tally.states[entry.state];
        state.entry_count += 1;
        state.stay_ns += stay_ns;
        state.too_deep_count += u64::from(rule.is_too_deep(residency_ns));
        state.too_shallow_count += u64::from(rule.is_too_shallow(stay_ns));
        if rule.is_polling {
            self.device.poll_time_limit = end == StayEnd::PollLimit;
        }
        self.device.last_residency_ns = residency_ns;
        let Entry { state: entered, is_overruled, .. } = *entry;
        let now_ns = now_ns.wrapping_add(self.clock_ahead_ns);
        let outcome = Outcome { entered, is_overruled, got_tick: tick_ran, now_ns };
        if self.setting.states.len() > 1 {
            self.governor.reflect(&outcome, &mut self.device);
        }
        residency_ns
    }
}
