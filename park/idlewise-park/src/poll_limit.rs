//! A governor for waiters that poll at their own expense: how long to poll before sleeping.
//!
//! A waiting thread has one shallow state that uses a whole CPU (polling), perhaps a few that use part of
//! one (UMWAIT, MWAITX, WFE), and one deep state that costs two system calls and a late wake-up. Only the
//! gaps so far tell anything about the next one. So:
//!
//! 1. **Remember** the last hundred waits or so in a histogram with two buckets per doubling, in which
//!    older waits fade. A wait that ended at its deadline does not give a gap's length. It only says that
//!    the gap was longer. Such an observation is called censored.
//! 2. **Estimate** the distribution of gaps (Kaplan and Meier, 1958): of the waits that lasted until a
//!    bucket, which share was woken in it? Censored waits count among those that lasted. What is left at
//!    the end is the probability that nobody comes.
//! 3. **Price** each plan "poll for X, then enter state k" with that distribution. The price is the time
//!    polled, the part of a CPU that k uses for the rest of the gap, k's cost of entering and leaving, and
//!    the exit latency that the waker waits for, at `latency_price` nanoseconds of CPU time per nanosecond.
//!    Nobody waits for a thread that its deadline wakes.
//! 4. **Choose** the cheapest X and k within the budget. The budget limits what polling burns beyond the
//!    cost of the sleep, averaged over the waits.
//! 5. **Without a history**, poll for as long as the sleep's exit latency and CPU time together. If latency
//!    costs the same as CPU time, that is never worse than twice the best choice (the ski-rental bound).
//!
//! A plan is made in steps of at most [`PLAN_STEP`] buckets ([`PollLimit::plan_step`]), so that the waiter
//! can look at its doorbell in between.
//!
//! Assumptions: the distribution of gaps repeats, not their order. A wake-up does not depend on the
//! deadline. A state that is neither the first nor the deepest is left by promotion
//! ([`auto_promotion_delay_ns`]) to the deepest.
//!
//! Known limit: a gap may last only because the poll keeps the waker off this CPU, which the governor
//! cannot see. The crate that waits must detect that itself.

use idlewise_core::{
    Context, Decision, Device, DisabledMask, Governor, Outcome, STATE_COUNT_MAX, StateIndex,
    StateTable, auto_promotion_delay_ns,
};

/// The number of buckets: two per doubling, beginning at 512 ns. The last holds all from 24 ms on.
const BUCKET_COUNT: usize = 32;
/// How much one wait adds to its bucket.
const WEIGHT: u32 = 16;
/// When the sum of weights reaches this, all are halved, so the last 64 to 128 waits count.
const WEIGHT_SUM_MAX: u32 = 128 * WEIGHT;
/// Below this weight there is no history.
const HISTORY_MIN: u32 = 2 * WEIGHT;
/// A new plan is made after this many waits, and after 1, 2 and 4.
const PLAN_EVERY: u32 = 8;
/// The maximum number of buckets that one [`PollLimit::plan_step`] visits.
pub(crate) const PLAN_STEP: usize = 8;
/// The probability 1: probabilities have 20 fractional bits.
const CERTAIN: u64 = 1 << 20;
/// Longer times (over an hour) are cut off, so that a time multiplied by a probability does not overflow.
const TIME_MAX_NS: u64 = 1 << 42;
/// How many depths of sleep are distinguished, by length: below 6 µs, 98 µs, 1.6 ms, and longer.
pub(crate) const SLEEP_DEPTH_COUNT: usize = 4;

/// What waiting in a state costs the waiter, in addition to the state's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitCost {
    /// CPU time to enter and leave, including the waker's share.
    pub transition_ns: u64,
    /// How much of a CPU the state uses, in thousandths: 1000 for polling.
    pub power_permille: u32,
}

/// The measured cost of sleeping in the deepest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SleepCost {
    /// From the ring to the waiter's next instruction, by depth ([`sleep_depth`]). A CPU that was idle for
    /// longer takes longer to wake up.
    pub exit_latency_ns: [u64; SLEEP_DEPTH_COUNT],
    /// CPU time to enter and leave, including the waker's share.
    pub transition_ns: u64,
    /// The sleeper's share of that, which a sleep that ends at its deadline costs too.
    pub own_ns: u64,
}

/// Returns the depth of a sleep of this length, as an index into [`SleepCost::exit_latency_ns`].
pub(crate) fn sleep_depth(gap_ns: u64) -> usize {
    depth_of(bucket_of(gap_ns))
}

fn depth_of(bucket: usize) -> usize {
    bucket * SLEEP_DEPTH_COUNT / BUCKET_COUNT
}

/// Learns a waiter's gaps and chooses the cheapest plan. Sets [`Device::poll_limit_ns`].
#[derive(Clone, Debug)]
pub(crate) struct PollLimit {
    costs: [WaitCost; STATE_COUNT_MAX],
    sleep: Option<SleepCost>,
    latency_price: u32,
    buckets: [Bucket; BUCKET_COUNT],
    weight_sum: u32,
    waits: u32,
    /// How much polling may burn per wait, on average, beyond the cost of the sleep.
    excess_max_ns: u64,
    plan: Option<PollPlan>,
    /// The length of this wait so far, in the states already left.
    waited_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// The weight of waits that a waker ended in this bucket.
    woken: u32,
    /// The weight of waits that ended at their deadline in this bucket.
    censored: u32,
    /// The mean of the woken ones, in which recent ones count most. It prices gaps at their real length
    /// instead of the bucket's.
    mean_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PollPlan {
    poll_limit_ns: u64,
    then: StateIndex,
    /// Bit i: polling pays even if the wait has a deadline in bucket i, before the limit.
    pays_until: u32,
}

/// A plan in progress ([`PollLimit::plan_step`]).
#[derive(Debug)]
pub(crate) struct Planner {
    /// Sums over all buckets below each index; `[BUCKET_COUNT]` is the sum over all.
    woken: [u64; BUCKET_COUNT + 1],
    time: [u64; BUCKET_COUNT + 1],
    /// What sleeping would have cost in those waits.
    sleep: [u64; BUCKET_COUNT + 1],
    /// What polling to their end burns beyond the sleep's CPU time.
    excess: [u64; BUCKET_COUNT + 1],
    at_risk: u32,
    next_bucket: usize,
    next_state: StateIndex,
    next_limit: usize,
    best_cost: u64,
    best: PollPlan,
}

/// What a plan depends on besides the history.
struct Terms<'a> {
    states: &'a StateTable,
    disabled: DisabledMask,
    deepest: StateIndex,
    can_poll: bool,
}

impl<'a> Terms<'a> {
    fn of(context: &Context<'a>) -> Self {
        Terms {
            states: context.states,
            disabled: context.disabled,
            deepest: deepest_allowed(context),
            can_poll: context.states.get(0).is_polling && !context.disabled.contains(0),
        }
    }
}

impl PollLimit {
    /// Creates a governor. A nanosecond of late wake-up is priced at `latency_price` nanoseconds of CPU
    /// time.
    pub(crate) fn new(costs: [WaitCost; STATE_COUNT_MAX], latency_price: u32) -> Self {
        PollLimit {
            costs,
            sleep: None,
            latency_price,
            buckets: [Bucket::default(); BUCKET_COUNT],
            weight_sum: 0,
            waits: 0,
            excess_max_ns: u64::MAX,
            plan: None,
            waited_ns: 0,
        }
    }

    /// Sets the cost of the deepest state, from the next plan on, instead of its row's.
    pub(crate) fn set_sleep_cost(&mut self, cost: SleepCost) {
        self.sleep = Some(cost);
    }

    /// Sets how much CPU time polling may burn per wait, on average, beyond the cost of sleeping at once.
    /// It applies from the next plan on. At first it is unlimited.
    pub(crate) fn set_excess_max_ns(&mut self, excess_max_ns: u64) {
        self.excess_max_ns = excess_max_ns;
    }

    /// Records that a waker ended a wait `gap_ns` after its beginning, in whatever states it was. The next
    /// `select` begins a new wait.
    pub(crate) fn end_wait(&mut self, gap_ns: u64) {
        let gap_ns = gap_ns.min(TIME_MAX_NS);
        let bucket = &mut self.buckets[bucket_of(gap_ns)];
        bucket.mean_ns = if bucket.woken == 0 {
            gap_ns
        } else {
            bucket.mean_ns - bucket.mean_ns / 8 + gap_ns / 8
        };
        bucket.woken += WEIGHT;
        self.count();
    }

    /// Records that a wait ended at its deadline, `waited_ns` after its beginning, and nobody came until
    /// then. The next `select` begins a new wait.
    pub(crate) fn end_wait_unwoken(&mut self, waited_ns: u64) {
        self.buckets[bucket_of(waited_ns)].censored += WEIGHT;
        self.count();
    }

    fn count(&mut self) {
        self.weight_sum += WEIGHT;
        if self.weight_sum >= WEIGHT_SUM_MAX {
            self.weight_sum = 0;
            for bucket in &mut self.buckets {
                bucket.woken /= 2;
                bucket.censored /= 2;
                self.weight_sum += bucket.woken + bucket.censored;
            }
        }
        self.waits = self.waits.wrapping_add(1);
        self.waited_ns = 0;
    }

    /// Returns whether a new plan is due. If so, call [`PollLimit::plan_step`] before `select`.
    #[inline]
    pub(crate) fn wants_plan(&self) -> bool {
        let is_time = self.waits % PLAN_EVERY == 0 || self.waits.is_power_of_two();
        self.waited_ns == 0 && (self.plan.is_none() || is_time)
    }

    /// Begins a plan. If it is abandoned, the next wait begins another one.
    #[inline]
    pub(crate) fn planner(&self) -> Planner {
        Planner {
            woken: [0; BUCKET_COUNT + 1],
            time: [0; BUCKET_COUNT + 1],
            sleep: [0; BUCKET_COUNT + 1],
            excess: [0; BUCKET_COUNT + 1],
            at_risk: self.weight_sum,
            next_bucket: 0,
            next_state: 0,
            next_limit: 0,
            best_cost: u64::MAX,
            best: PollPlan { poll_limit_ns: 0, then: 0, pays_until: 0 },
        }
    }

    /// Advances a plan by at most [`PLAN_STEP`] buckets. Returns `true` when it is complete and in use.
    pub(crate) fn plan_step(&mut self, planner: &mut Planner, context: &Context<'_>) -> bool {
        let terms = Terms::of(context);
        if self.weight_sum < HISTORY_MIN {
            self.plan = Some(self.rental(context, &terms));
            return true;
        }
        if planner.next_bucket < BUCKET_COUNT {
            self.add_up(planner, &terms);
            planner.best.then = terms.deepest;
            return false;
        }
        // If state 0 polls, it is what comes before.
        let first = usize::from(context.states.get(0).is_polling);
        let mut state = planner.next_state.max(first);
        while state < terms.deepest && !is_allowed(context, state) {
            state += 1;
        }
        planner.next_state = state;
        if state <= terms.deepest {
            self.price(planner, &terms);
        }
        if planner.next_state > terms.deepest {
            self.plan = Some(planner.best);
            return true;
        }
        false
    }

    /// The ski-rental plan, for use without a history.
    fn rental(&self, context: &Context<'_>, terms: &Terms<'_>) -> PollPlan {
        let first = usize::from(context.states.get(0).is_polling);
        let then = (first..=terms.deepest).find(|&state| is_allowed(context, state));
        let then = then.unwrap_or(terms.deepest);
        let rental_ns = if then == terms.deepest {
            let (transition_ns, _) = self.sleep_times_ns(then);
            transition_ns + self.sleep_latency_ns(terms, 1)
        } else {
            self.fixed_cost_ns(terms, then)
        };
        let poll_limit_ns = if terms.can_poll { rental_ns } else { 0 };
        PollPlan { poll_limit_ns, then, pays_until: u32::MAX }
    }

    /// The CPU time of the deepest state: that of both sides, and the sleeper's share.
    fn sleep_times_ns(&self, deepest: StateIndex) -> (u64, u64) {
        match self.sleep {
            Some(cost) => (cost.transition_ns, cost.own_ns),
            None => (self.costs[deepest].transition_ns, self.costs[deepest].transition_ns / 2),
        }
    }

    fn sleep_latency_ns(&self, terms: &Terms<'_>, depth: usize) -> u64 {
        match self.sleep {
            Some(cost) => cost.exit_latency_ns[depth],
            None => terms.states.get(terms.deepest).exit_latency_ns,
        }
    }

    /// The cost of being woken from the deepest state, including the priced latency.
    fn sleep_cost_ns(&self, terms: &Terms<'_>, depth: usize) -> u64 {
        let latency_ns = self.sleep_latency_ns(terms, depth);
        let price = u64::from(self.latency_price);
        let (transition_ns, _) = self.sleep_times_ns(terms.deepest);
        transition_ns.saturating_add(latency_ns.saturating_mul(price)).min(TIME_MAX_NS)
    }

    /// The cost of ending a wait in a state other than the deepest, apart from the time in it.
    fn fixed_cost_ns(&self, terms: &Terms<'_>, state: StateIndex) -> u64 {
        let latency_ns = terms.states.get(state).exit_latency_ns;
        let latency_cost_ns = latency_ns.saturating_mul(u64::from(self.latency_price));
        self.costs[state].transition_ns.saturating_add(latency_cost_ns).min(TIME_MAX_NS)
    }

    /// Adds up the history, for the next few buckets.
    fn add_up(&self, planner: &mut Planner, terms: &Terms<'_>) {
        let (free_ns, _) = self.sleep_times_ns(terms.deepest);
        let first = planner.next_bucket;
        for index in first..first + PLAN_STEP {
            let bucket = &self.buckets[index];
            let left = CERTAIN - planner.woken[index];
            // The share of the waits that lasted until here which were woken here.
            let chance = (left as u32 * bucket.woken).checked_div(planner.at_risk).unwrap_or(0);
            planner.at_risk -= bucket.woken + bucket.censored;
            let chance = u64::from(chance);
            let sleep_cost_ns = self.sleep_cost_ns(terms, depth_of(index));
            planner.woken[index + 1] = planner.woken[index] + chance;
            planner.time[index + 1] = planner.time[index] + chance * bucket.mean_ns;
            planner.sleep[index + 1] = planner.sleep[index] + chance * sleep_cost_ns;
            planner.excess[index + 1] =
                planner.excess[index] + chance * bucket.mean_ns.saturating_sub(free_ns);
        }
        planner.next_bucket += PLAN_STEP;
    }

    /// Prices the plans that poll up to each of the next few buckets and then enter one state.
    fn price(&self, planner: &mut Planner, terms: &Terms<'_>) {
        let state = planner.next_state;
        let (transition_ns, own_ns) = self.sleep_times_ns(terms.deepest);
        let excess_max = self.excess_max_ns.saturating_mul(CERTAIN);
        let Planner { woken, time, sleep, excess, .. } = planner;
        let power = u64::from(self.costs[state].power_permille);
        let delay_ns = auto_promotion_delay_ns(terms.states, terms.disabled, state);
        let fixed_ns = self.fixed_cost_ns(terms, state);
        let last = (planner.next_limit + PLAN_STEP).min(BUCKET_COUNT);
        for limit in planner.next_limit..last {
            if limit > 0 && !terms.can_poll {
                break;
            }
            let poll_limit_ns = if limit == 0 { 0 } else { bucket_end_ns(limit - 1) };
            let left = CERTAIN - woken[limit];
            let polled = time[limit] + poll_limit_ns * left;
            let mut burnt = excess[limit] + poll_limit_ns * left;
            if state == terms.deepest && limit > 0 {
                // Polling until a deadline here, which then needs no sleep.
                let pays = polled < sleep[limit] + left * own_ns;
                planner.best.pays_until |= u32::from(pays && burnt <= excess_max) << limit;
            }
            // If nobody wakes the waiter, nobody waits for its exit latency.
            let never = (CERTAIN - woken[BUCKET_COUNT]) * transition_ns;
            let (stays_until, promoted) = match delay_ns {
                _ if state == terms.deepest => (BUCKET_COUNT, 0),
                Some(delay_ns) => {
                    let promotion_ns = poll_limit_ns.saturating_add(delay_ns);
                    let bucket = bucket_of(promotion_ns);
                    let does_stay = self.buckets[bucket].mean_ns <= promotion_ns;
                    let end = (bucket + usize::from(does_stay)).max(limit);
                    let moved = CERTAIN - woken[end];
                    let spent_ns = delay_ns * power / 1000 + self.costs[state].transition_ns;
                    burnt += moved * delay_ns;
                    (end, moved * spent_ns + sleep[BUCKET_COUNT] - sleep[end] + never)
                }
                None => (BUCKET_COUNT, never),
            };
            let stayed = woken[stays_until] - woken[limit];
            let stayed_time =
                (time[stays_until] - time[limit]).saturating_sub(poll_limit_ns * stayed);
            let cost = if state == terms.deepest {
                stayed_time / 1000 * power + sleep[BUCKET_COUNT] - sleep[limit] + never
            } else {
                burnt += stayed_time;
                stayed_time / 1000 * power + stayed * fixed_ns + promoted
            };
            let cost = cost.saturating_add(polled);
            if cost < planner.best_cost
                && (burnt <= excess_max || limit == 0 && state == terms.deepest)
            {
                planner.best_cost = cost;
                planner.best = PollPlan { poll_limit_ns, then: state, ..planner.best };
            }
        }
        planner.next_limit = last;
        if last == BUCKET_COUNT {
            planner.next_limit = 0;
            planner.next_state += 1;
        }
    }
}

impl Governor for PollLimit {
    /// Selects where the wait continues, given how long it has lasted. Without a plan
    /// ([`PollLimit::plan_step`]) it sleeps.
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let deepest = deepest_allowed(context);
        let plan = self.plan.unwrap_or(PollPlan { poll_limit_ns: 0, then: deepest, pays_until: 0 });
        // The limits and disabled states of this moment apply, whatever the plan was made for.
        let then =
            (plan.then..=deepest).find(|&state| is_allowed(context, state)).unwrap_or(deepest);
        let can_poll = context.states.get(0).is_polling && !context.disabled.contains(0);
        let to_deadline_ns = u64::try_from(context.sleep_length().sleep_length_ns).unwrap_or(0);
        let deadline_ns = self.waited_ns.saturating_add(to_deadline_ns);
        // A deadline that passes before a sleep would begin is not worth sleeping for.
        let (_, own_ns) = self.sleep_times_ns(deepest);
        let poll_limit_ns = if deadline_ns <= own_ns {
            deadline_ns.max(1)
        } else if deadline_ns < plan.poll_limit_ns
            && plan.pays_until >> (bucket_of(deadline_ns) + 1).min(31) & 1 == 0
        {
            0
        } else {
            plan.poll_limit_ns
        };
        let state = if can_poll && (then == 0 || self.waited_ns < poll_limit_ns) {
            0
        } else if self.waited_ns <= plan.poll_limit_ns {
            then
        } else {
            deepest
        };
        if context.states.get(state).is_polling {
            // If nothing can follow polling, for instance because all states are disabled, it has no limit.
            device.poll_limit_ns =
                if then == 0 { u64::MAX } else { poll_limit_ns.saturating_sub(self.waited_ns) };
        }
        device.last_state = Some(state);
        Decision { state, stop_tick: true }
    }

    /// Records that a state was left and the wait goes on. ([`PollLimit::end_wait`] ends it.)
    fn reflect(&mut self, _outcome: &Outcome, device: &mut Device) {
        self.waited_ns = self.waited_ns.saturating_add(device.last_residency_ns).max(1);
    }
}

fn is_allowed(context: &Context<'_>, state: StateIndex) -> bool {
    let latency_ns = context.states.get(state).exit_latency_ns;
    !context.disabled.contains(state)
        && i64::try_from(latency_ns).is_ok_and(|ns| ns <= context.latency_limit_ns)
}

/// The deepest state that is enabled and within the latency limit; 0 if there is none.
fn deepest_allowed(context: &Context<'_>) -> StateIndex {
    (0..context.states.len()).rev().find(|&state| is_allowed(context, state)).unwrap_or(0)
}

/// The bucket of a gap: two per doubling, beginning at 512 ns.
fn bucket_of(gap_ns: u64) -> usize {
    let scaled = gap_ns >> 8;
    if scaled < 2 {
        return 0;
    }
    let doublings = 63 - scaled.leading_zeros() as usize;
    let half = (scaled >> (doublings - 1)) as usize & 1;
    (2 * (doublings - 1) + half + 1).min(BUCKET_COUNT - 1)
}

/// The end of a bucket, which is the shortest gap of the next.
fn bucket_end_ns(bucket: usize) -> u64 {
    let doublings = bucket / 2 + 1;
    let half = bucket as u64 & 1;
    ((1 << doublings) + (half << (doublings - 1))) << 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use idlewise_core::{DisabledMask, FAR_AWAY_NS, IdleState, SleepLength, StateTable};

    const FAR: SleepLength =
        SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: FAR_AWAY_NS };

    /// Polling, a state that uses half a CPU, and a sleep of 4 µs.
    fn table() -> StateTable {
        let half = IdleState { is_auto_promoted: true, ..IdleState::new(500, 2_000) };
        StateTable::new(&[IdleState::POLL, half, IdleState::new(4_000, 50_000)]).unwrap()
    }

    /// [`table`] with the middle state disabled.
    fn without_half(table: &StateTable) -> Context<'_> {
        let mut context = Context::new(table, FAR);
        context.disabled = DisabledMask::NONE.with(1);
        context
    }

    fn governor() -> PollLimit {
        let mut costs = [WaitCost { transition_ns: 0, power_permille: 1000 }; STATE_COUNT_MAX];
        costs[1] = WaitCost { transition_ns: 100, power_permille: 500 };
        costs[2] = WaitCost { transition_ns: 4_000, power_permille: 0 };
        PollLimit::new(costs, 10)
    }

    fn plan(governor: &mut PollLimit, context: &Context<'_>) {
        if governor.wants_plan() {
            let mut planner = governor.planner();
            while !governor.plan_step(&mut planner, context) {}
        }
    }

    /// The state that a wait begins with, and the longest that it polls.
    fn begin(governor: &mut PollLimit, context: &Context<'_>) -> (StateIndex, u64) {
        plan(governor, context);
        let mut device = Device::default();
        let decision = governor.select(context, &mut device);
        (decision.state, device.poll_limit_ns)
    }

    /// Runs a wait of `gap_ns`, and returns the same as [`begin`].
    fn wait(governor: &mut PollLimit, context: &Context<'_>, gap_ns: u64) -> (StateIndex, u64) {
        let begun = begin(governor, context);
        governor.end_wait(gap_ns);
        begun
    }

    #[test]
    fn buckets_end_where_the_next_begins() {
        for bucket in 0..BUCKET_COUNT - 1 {
            let end_ns = bucket_end_ns(bucket);
            assert_eq!((bucket_of(end_ns - 1), bucket_of(end_ns)), (bucket, bucket + 1));
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKET_COUNT - 1));
    }

    #[test]
    fn polls_as_long_as_a_sleep_costs_when_it_knows_nothing() {
        let table = table();
        let context = without_half(&table);
        assert_eq!(wait(&mut governor(), &context, 1), (0, 8_000));
    }

    /// Polling is disabled and no sleep meets the latency limit.
    #[test]
    fn polls_without_a_limit_if_nothing_else_is_allowed() {
        let table = table();
        let mut context = Context::new(&table, FAR);
        context.disabled = DisabledMask::NONE.with(0).with(1);
        context.latency_limit_ns = 1_000;
        assert_eq!(wait(&mut governor(), &context, 1), (0, u64::MAX));
    }

    #[test]
    fn sleeps_at_once_when_gaps_are_long() {
        let table = table();
        let context = Context::new(&table, FAR);
        let mut governor = governor();
        for _ in 0..40 {
            wait(&mut governor, &context, 1_000_000);
        }
        assert_eq!(wait(&mut governor, &context, 1_000_000).0, 2);
    }

    #[test]
    fn polls_just_beyond_the_short_gaps_of_a_mixture() {
        let table = table();
        let context = without_half(&table);
        let mut governor = governor();
        for turn in 0..160 {
            wait(&mut governor, &context, if turn % 4 == 0 { 2_000_000 } else { 5_000 });
        }
        let (state, poll_limit_ns) = wait(&mut governor, &context, 5_000);
        assert_eq!(state, 0);
        assert!((5_000..10_000).contains(&poll_limit_ns), "{poll_limit_ns}");
    }

    #[test]
    fn takes_the_half_way_state_where_it_is_cheaper() {
        let table = table();
        let context = Context::new(&table, FAR);
        let mut governor = governor();
        for _ in 0..40 {
            wait(&mut governor, &context, 30_000);
        }
        // 30 µs of half a CPU and 0.5 µs late, against 30 µs of a whole CPU, or 4 µs late.
        assert_eq!(wait(&mut governor, &context, 30_000).0, 1);
    }

    #[test]
    fn goes_deeper_each_time_a_state_was_not_enough() {
        let table = table();
        let context = Context::new(&table, FAR);
        let mut governor = governor();
        let mut device = Device::default();
        plan(&mut governor, &context);
        for state in 0..3 {
            assert_eq!(governor.select(&context, &mut device).state, state);
            device.last_residency_ns = device.poll_limit_ns;
            let outcome =
                Outcome { entered: state, is_overruled: false, got_tick: true, now_ns: 0 };
            governor.reflect(&outcome, &mut device);
        }
    }

    #[test]
    fn obeys_limits_and_disabled_states() {
        let table = table();
        let mut context = Context::new(&table, FAR);
        context.latency_limit_ns = 1_000;
        let mut governor = governor();
        for _ in 0..40 {
            wait(&mut governor, &context, 1_000_000);
        }
        assert_eq!(wait(&mut governor, &context, 1_000_000).0, 1, "the sleep is too late");
        context.latency_limit_ns = 0;
        assert_eq!(wait(&mut governor, &context, 1_000_000), (0, u64::MAX), "only polling is left");
        context.latency_limit_ns = idlewise_core::NO_LATENCY_LIMIT_NS;
        context.disabled = DisabledMask::NONE.with(0).with(1);
        assert_eq!(wait(&mut governor, &context, 5_000).0, 2);
    }

    #[test]
    fn polls_to_a_deadline_that_is_nearer_than_a_sleep() {
        let table = table();
        let near = SleepLength { sleep_length_ns: 1_500, next_event_ns: 1_500 };
        let context = Context::new(&table, near);
        let mut governor = governor();
        for _ in 0..40 {
            governor.end_wait(1_000_000);
        }
        assert_eq!(wait(&mut governor, &context, 1_500), (0, 1_500));
    }

    #[test]
    fn forgets_gaps_that_do_not_come_back() {
        let table = table();
        let context = without_half(&table);
        let mut governor = governor();
        for _ in 0..1000 {
            wait(&mut governor, &context, 1_000_000);
        }
        for _ in 0..300 {
            wait(&mut governor, &context, 3_000);
        }
        assert_eq!(wait(&mut governor, &context, 3_000).0, 0);
    }

    /// Like [`without_half`], with a deadline.
    fn until(table: &StateTable, deadline_ns: i64) -> Context<'_> {
        let soon = SleepLength { sleep_length_ns: deadline_ns, next_event_ns: deadline_ns };
        let mut context = Context::new(table, soon);
        context.disabled = DisabledMask::NONE.with(1);
        context
    }

    #[test]
    fn does_not_poll_for_deadlines_that_nobody_beats() {
        let table = table();
        for timeout_ns in [8_000, 20_000, 50_000, 100_000, 300_000, 1_000_000] {
            let context = until(&table, timeout_ns);
            let mut governor = governor();
            for _ in 0..20 {
                plan(&mut governor, &context);
                governor.end_wait_unwoken(timeout_ns as u64);
            }
            assert_eq!(begin(&mut governor, &context).0, 2, "{timeout_ns}");
        }
    }

    /// A timer of 150 µs in a loop, and a waker every 20 ms: one wait in 133 is woken.
    #[test]
    fn a_rare_wake_is_not_polled_for() {
        let table = table();
        let context = until(&table, 150_000);
        let mut governor = governor();
        let mut polled_ns = 0;
        for turn in 0..2_000u64 {
            let (state, poll_limit_ns) = begin(&mut governor, &context);
            polled_ns += if state == 0 { poll_limit_ns.min(150_000) } else { 0 };
            match turn % 133 {
                1 => governor.end_wait(turn * 7_919 % 150_000),
                _ => governor.end_wait_unwoken(150_000),
            }
        }
        // Allows for the first waits, without a history, and for a few gaps that happen to be this short.
        assert!(polled_ns < 2_000 * 150_000 / 200, "{polled_ns} ns");
    }

    /// Gaps of 30 µs, and sometimes a deadline before them. The deadlines say nothing about the gaps, and
    /// are not polled for.
    #[test]
    fn a_deadline_is_no_gap() {
        let table = table();
        let (far, near) = (without_half(&table), until(&table, 20_000));
        let mut governor = governor();
        for turn in 0..400 {
            if turn % 4 == 0 {
                wait(&mut governor, &far, 30_000);
            } else {
                begin(&mut governor, &near);
                governor.end_wait_unwoken(20_000);
            }
        }
        let (state, poll_limit_ns) = begin(&mut governor, &far);
        assert_eq!(state, 0);
        assert!((30_000..60_000).contains(&poll_limit_ns), "{poll_limit_ns}");
        assert_eq!(begin(&mut governor, &near).0, 2);
        assert_eq!(begin(&mut governor, &until(&table, 35_000)).0, 0, "somebody comes before it");
    }

    #[test]
    fn keeps_the_budget() {
        let table = table();
        let context = without_half(&table);
        let mut governor = governor();
        // Sleeping costs 44 µs including the priced latency, and 4 µs of CPU time.
        for _ in 0..160 {
            wait(&mut governor, &context, 20_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 0);
        governor.set_excess_max_ns(10_000);
        for _ in 0..8 {
            wait(&mut governor, &context, 20_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 2, "16 µs more than the sleep");
        governor.set_excess_max_ns(3_000);
        for turn in 0..400 {
            wait(&mut governor, &context, if turn % 4 == 0 { 20_000 } else { 2_000 });
        }
        let (state, poll_limit_ns) = begin(&mut governor, &context);
        assert_eq!(state, 0);
        assert!((2_000..10_000).contains(&poll_limit_ns), "the short ones: {poll_limit_ns}");
        governor.set_excess_max_ns(0);
        for _ in 0..1_000 {
            wait(&mut governor, &context, 2_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 0, "polling is cheaper than sleeping");
    }

    #[test]
    fn learns_what_sleeping_costs() {
        let table = table();
        let context = without_half(&table);
        let mut governor = governor();
        // 80 µs of polling against a sleep of 44 µs, and then one of 800.
        for _ in 0..40 {
            wait(&mut governor, &context, 80_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 2);
        let exit_latency_ns = [4_000, 80_000, 4_000, 4_000];
        governor.set_sleep_cost(SleepCost { exit_latency_ns, transition_ns: 4_000, own_ns: 2_000 });
        for _ in 0..40 {
            wait(&mut governor, &context, 80_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 0, "as deep as sleeps of 80 µs get");
        for _ in 0..400 {
            wait(&mut governor, &context, 400_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 2);
    }

    /// A waiter ignores its doorbell for at most one step.
    #[test]
    fn a_plan_is_made_in_small_steps() {
        let table = table();
        let context = Context::new(&table, FAR);
        let mut governor = governor();
        for turn in 0..64u32 {
            governor.end_wait(600 << (turn % 16));
        }
        let mut planner = governor.planner();
        let mut steps = 0;
        loop {
            let place = |planner: &Planner| {
                let Planner { next_bucket, next_state, next_limit, .. } = *planner;
                next_bucket + next_state.saturating_sub(1) * BUCKET_COUNT + next_limit
            };
            let before = place(&planner);
            let is_made = governor.plan_step(&mut planner, &context);
            assert!(place(&planner) - before <= PLAN_STEP);
            steps += 1;
            if is_made {
                break;
            }
        }
        // The sums, and then two states.
        assert_eq!(steps, 3 * BUCKET_COUNT / PLAN_STEP);
    }

    /// Only the sleep keeps to the budget.
    #[test]
    fn a_plan_is_made_whatever_the_budget() {
        let table = table();
        let mut context = Context::new(&table, FAR);
        context.disabled = DisabledMask::NONE.with(0);
        let mut governor = governor();
        governor.set_excess_max_ns(0);
        for _ in 0..40 {
            wait(&mut governor, &context, 30_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 2);
        governor.set_excess_max_ns(u64::MAX);
        for _ in 0..8 {
            wait(&mut governor, &context, 30_000);
        }
        assert_eq!(begin(&mut governor, &context).0, 1);
    }

    /// Finds the cheapest plan by trying all, gap by gap, in floating point.
    mod naive {
        use super::*;

        pub(crate) fn cost_ns(poll_limit_ns: u64, then: StateIndex, gaps_ns: &[u64]) -> f64 {
            let cost_ns = |&gap_ns: &u64| {
                if gap_ns < poll_limit_ns {
                    return gap_ns as f64;
                }
                let rest_ns = (gap_ns - poll_limit_ns) as f64;
                // As in `governor` and `table`. The middle state is promoted after 58 µs.
                poll_limit_ns as f64
                    + match then {
                        2 => 44_000.0,
                        _ if rest_ns > 58_000.0 => 29_000.0 + 100.0 + 44_000.0,
                        _ => rest_ns / 2.0 + 5_100.0,
                    }
            };
            gaps_ns.iter().map(cost_ns).sum::<f64>() / gaps_ns.len() as f64
        }

        pub(crate) fn best_ns(gaps_ns: &[u64]) -> f64 {
            let limits_ns = std::iter::once(0).chain((0..BUCKET_COUNT - 1).map(bucket_end_ns));
            limits_ns
                .flat_map(|limit_ns| [1, 2].map(|then| cost_ns(limit_ns, then, gaps_ns)))
                .fold(f64::MAX, f64::min)
        }
    }

    #[test]
    fn plans_as_well_as_trying_all_plans() {
        let table = table();
        assert_eq!(auto_promotion_delay_ns(&table, DisabledMask::NONE, 1), Some(58_000));
        let context = Context::new(&table, FAR);
        let mut random = 88_172_645_463_325_252u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for round in 0..300 {
            // Up to four kinds of gaps, each in its own bucket.
            let kinds: Vec<_> = (0..=next() % 4)
                .map(|kind| (512 + next() % 512) << (4 * kind + next() % 4))
                .collect();
            let gaps_ns: Vec<_> =
                (0..96).map(|_| kinds[(next() % kinds.len() as u64) as usize]).collect();
            let mut governor = governor();
            gaps_ns.iter().for_each(|&gap_ns| governor.end_wait(gap_ns));
            plan(&mut governor, &context);
            let PollPlan { poll_limit_ns, then, .. } = governor.plan.unwrap();
            let (cost_ns, best_ns) =
                (naive::cost_ns(poll_limit_ns, then, &gaps_ns), naive::best_ns(&gaps_ns));
            assert!(cost_ns <= 1.01 * best_ns, "{round} {kinds:?}: {cost_ns} {best_ns}");
        }
    }
}
