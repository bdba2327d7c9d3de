//! The idle loop of one thread: select, enter, be woken, reflect.

use idlewise_core::{
    Context, Device, DisabledMask, Doorbell, FAR_AWAY_NS, Governor, NO_LATENCY_LIMIT_NS, Outcome,
    PollLimit, SleepLength, Stay, Verdict, auto_promotion_delay_ns,
};

use crate::clock::{self, Deadline};
use crate::load::{self, Budget, Preemptions};
use crate::parker::ParkOutcome;
use crate::stats::WaitStats;
use crate::table::WaitTable;
use crate::wait::word::Reach;

/// A polling method looks at least this often; a longer time between two looks was somebody else's.
const LOOK_EVERY_NS: u64 = 2_000;

/// What a wait was like.
pub(crate) struct Wait {
    pub(crate) outcome: ParkOutcome,
    #[cfg(feature = "tracing")]
    pub(crate) gap_ns: u64,
    /// The last state; `None` if it ended before it entered any.
    #[cfg(feature = "tracing")]
    pub(crate) state: Option<crate::wait::Method>,
}

impl Wait {
    fn none(outcome: ParkOutcome) -> Self {
        Wait {
            outcome,
            #[cfg(feature = "tracing")]
            gap_ns: 0,
            #[cfg(feature = "tracing")]
            state: None,
        }
    }
}

/// What belongs to the waiting thread alone.
pub(crate) struct Waiter {
    table: WaitTable,
    governor: PollLimit,
    device: Device,
    latency_limit_ns: i64,
    budget: Option<Budget>,
    preemptions: Preemptions,
    stats: WaitStats,
    /// Where its wakers are.
    reach: Reach,
}

impl Waiter {
    pub(crate) fn new(
        table: WaitTable,
        latency_limit_ns: Option<u64>,
        budget: Option<Budget>,
    ) -> Self {
        Waiter {
            governor: table.governor(),
            table,
            device: Device::default(),
            latency_limit_ns: latency_limit_ns
                .map_or(NO_LATENCY_LIMIT_NS, |ns| i64::try_from(ns).unwrap_or(i64::MAX)),
            budget,
            preemptions: Preemptions::default(),
            stats: WaitStats::default(),
            reach: Reach::Process,
        }
    }

    /// The same waiter, whose wakers are there.
    pub(crate) fn with_reach(self, reach: Reach) -> Self {
        Waiter { reach, ..self }
    }

    pub(crate) fn table(&self) -> &WaitTable {
        &self.table
    }

    pub(crate) fn stats(&self) -> WaitStats {
        WaitStats { preempted: self.preemptions.count, ..self.stats }
    }

    /// States that keep the CPU are disabled when others need it.
    fn disabled(&mut self, now_ns: u64) -> DisabledMask {
        let is_crowded = !load::thread_runs(now_ns);
        let is_spent = self.budget.as_mut().is_some_and(|budget| !budget.may_poll(now_ns));
        let is_penalized = !self.preemptions.may_poll();
        self.stats.oversubscribed += u64::from(is_crowded);
        self.stats.not_polled += u64::from(!is_crowded && (is_spent || is_penalized));
        if is_crowded || is_spent || is_penalized {
            (0..self.table.state_table().deepest()).fold(DisabledMask::NONE, DisabledMask::with)
        } else {
            DisabledMask::NONE
        }
    }

    /// Waits until the doorbell is rung or the deadline comes. Runs no code of the user's.
    #[inline(never)]
    pub(crate) fn wait(&mut self, bell: &Doorbell, mut deadline: Option<Deadline>) -> Wait {
        let start_ns = clock::now_ns();
        if is_over(&mut deadline, start_ns) || !bell.start_polling() {
            return Wait::none(outcome(bell.take()));
        }
        let disabled = self.disabled(start_ns);
        self.stats.waits += 1;
        let (state, entered_at_ns, ended_at_ns) = self.idle(bell, disabled, start_ns, deadline);
        let is_asleep = self.table.states()[state].method.is_sleep();
        let woken = bell.take();
        self.note_end(state, disabled, is_asleep, woken, entered_at_ns, ended_at_ns);
        // The wake-up came before the exit from the state, as the kernel sees it.
        let exit_latency_ns = self.table.state_table().get(state).exit_latency_ns;
        let gap_ns = ended_at_ns.saturating_sub(start_ns);
        let exit_ns = if woken { exit_latency_ns } else { 0 };
        self.governor.end_wait(gap_ns.saturating_sub(exit_ns));
        Wait {
            outcome: outcome(woken),
            #[cfg(feature = "tracing")]
            gap_ns,
            #[cfg(feature = "tracing")]
            state: Some(self.table.states()[state].method),
        }
    }

    /// Goes through states until the wait is over. Returns the last one, when it was entered and
    /// when it was left.
    fn idle(
        &mut self,
        bell: &Doorbell,
        disabled: DisabledMask,
        start_ns: u64,
        mut deadline: Option<Deadline>,
    ) -> (usize, u64, u64) {
        let mut now_ns = start_ns;
        // Promotion leads only to states that are fast enough.
        let states = self.table.state_table();
        let is_slow = |state: &usize| {
            i64::try_from(states.get(*state).exit_latency_ns)
                .is_ok_and(|ns| ns > self.latency_limit_ns)
        };
        let not_promoted_to = (0..states.len()).filter(is_slow).fold(disabled, DisabledMask::with);
        loop {
            let left_ns = deadline.map_or(FAR_AWAY_NS, |deadline| {
                i64::try_from(deadline.at_ns.saturating_sub(now_ns)).unwrap_or(FAR_AWAY_NS)
            });
            let sleep_length = SleepLength { sleep_length_ns: left_ns, next_event_ns: left_ns };
            let mut context = Context::new(self.table.state_table(), sleep_length);
            context.disabled = disabled;
            context.latency_limit_ns = self.latency_limit_ns;
            context.now_ns = now_ns;
            let state = self.governor.select(&context, &mut self.device).state;
            let stay_ns = if self.table.state_table().get(state).is_polling {
                Some(self.device.poll_limit_ns)
            } else {
                auto_promotion_delay_ns(self.table.state_table(), not_promoted_to, state)
            };
            let method = self.table.states()[state].method;
            self.stats.entered[state] += 1;
            let mut entered_at_ns = now_ns;

            if method.is_sleep() {
                let is_asleep = bell.fall_asleep();
                if is_asleep {
                    load::thread_sleeps();
                    let sleep = match self.reach {
                        Reach::Process => method.imp(),
                        // The only one that others can end.
                        reach => reach.sleep(),
                    };
                    while !bell.is_rung() {
                        sleep.wait(bell, deadline.map(|deadline| deadline.at_ns));
                        // Our clock may have stopped or begun again meanwhile, with the machine.
                        if deadline.as_mut().is_some_and(Deadline::is_reached) {
                            break;
                        }
                    }
                }
                now_ns = clock::now_ns();
                if is_asleep {
                    load::thread_runs(now_ns);
                }
                self.stats.residency_ns[state] += now_ns.saturating_sub(entered_at_ns);
                return (state, entered_at_ns, now_ns);
            }

            let end_of = |entered_at_ns: u64, deadline: Option<Deadline>| {
                let stay_end_ns = stay_ns.map(|stay_ns| entered_at_ns.saturating_add(stay_ns));
                [deadline.map(|deadline| deadline.at_ns), stay_end_ns].into_iter().flatten().min()
            };
            let mut end_ns = end_of(entered_at_ns, deadline);
            while !bell.is_rung() && end_ns.is_none_or(|end_ns| now_ns < end_ns) {
                // Bounded, so that a look that comes late tells of a preemption.
                let look_ns = now_ns.saturating_add(LOOK_EVERY_NS.max(self.quantum_ns(state)));
                let look_ns = end_ns.map_or(look_ns, |end_ns| end_ns.min(look_ns));
                method.imp().wait(bell, Some(look_ns));
                let before_ns = std::mem::replace(&mut now_ns, clock::now_ns());
                self.preemptions
                    .looked(now_ns.saturating_sub(before_ns), look_ns.saturating_sub(before_ns));
                if now_ns < before_ns {
                    // The counter went back: the stay begins anew.
                    if deadline.as_mut().is_some_and(Deadline::is_reached) {
                        break;
                    }
                    entered_at_ns = now_ns;
                    end_ns = end_of(entered_at_ns, deadline);
                }
            }
            self.preemptions.polled();
            let polled_ns = now_ns.saturating_sub(entered_at_ns);
            self.stats.residency_ns[state] += polled_ns;
            if let Some(budget) = &mut self.budget {
                budget.polled(polled_ns);
            }
            if bell.is_rung() || is_over(&mut deadline, now_ns) {
                return (state, entered_at_ns, now_ns);
            }
            self.stats.promotions += 1;
            self.device.last_residency_ns = polled_ns;
            let left = Outcome { entered: state, got_tick: true, now_ns };
            self.governor.reflect(&left, &mut self.device);
        }
    }

    /// How long one look may take: a monitored line is left alone until promotion, so a wake-up
    /// from it costs no look at all.
    fn quantum_ns(&self, state: usize) -> u64 {
        if self.table.state_table().get(state).is_polling { 0 } else { 100_000 }
    }

    fn note_end(
        &mut self,
        state: usize,
        disabled: DisabledMask,
        is_asleep: bool,
        woken: bool,
        entered_at_ns: u64,
        ended_at_ns: u64,
    ) {
        self.stats.timeouts += u64::from(!woken);
        self.stats.store_wakes += u64::from(woken && !is_asleep);
        let idle_duration_ns = ended_at_ns.saturating_sub(entered_at_ns);
        match (Stay { state, idle_duration_ns }).verdict(self.table.state_table(), disabled) {
            Verdict::TooDeep => self.stats.too_deep += 1,
            Verdict::TooShallow => self.stats.too_shallow += 1,
            Verdict::Fit => {}
        }
    }
}

/// Whether the deadline is reached. Where our clock does not say so, the OS's is not asked.
fn is_over(deadline: &mut Option<Deadline>, now_ns: u64) -> bool {
    deadline.as_mut().is_some_and(|deadline| now_ns >= deadline.at_ns && deadline.is_reached())
}

fn outcome(woken: bool) -> ParkOutcome {
    if woken { ParkOutcome::Woken } else { ParkOutcome::TimedOut }
}
