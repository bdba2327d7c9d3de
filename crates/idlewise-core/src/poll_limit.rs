//! A governor for waiters that pay for polling themselves: how long to look before sleeping.
//!
//! A thread that waits has one shallow state that burns a whole CPU (polling), perhaps a few that
//! burn part of one (UMWAIT, MWAITX, WFE), and one deep state that costs two system calls and a late
//! wake-up. Whatever is known about the next gap is in the gaps before it, so:
//!
//! 1. **Remember** the last hundred gaps or so, in a histogram with two buckets for each doubling,
//!    older ones fading.
//! 2. **Price** a plan "poll for X, then go to state k": for each past gap g, the time polled,
//!    the part of a CPU that k burns for what is left of g, k's cost of entering and leaving, and the
//!    exit latency that the waker waits for, at `latency_price` nanoseconds of CPU time a
//!    nanosecond.
//! 3. **Choose** the cheapest X and k. For one deep state that is the best of all fixed spins for
//!    the gaps seen: if they are mixed, X lies just beyond the short ones.
//! 4. **Without a history**, stay in each state as long as the next deeper one would have cost:
//!    never worse than twice the best choice (the ski-rental bound).
//!
//! Assumptions: gaps repeat in distribution, not in order; a state that is neither the first nor the
//! deepest is left by promotion ([`crate::auto_promotion_delay_ns`]), and then the deepest follows.
//!
//! Known limits: a gap that a poll would have shortened (a waker that needs this CPU) looks as
//! long as it is; the crate that waits must notice that itself.

use crate::{
    Context, Decision, Device, Governor, Outcome, STATE_COUNT_MAX, StateIndex,
    auto_promotion_delay_ns,
};

/// Buckets: two for each doubling from 512 ns; the last holds all from 24 ms on.
const BUCKET_COUNT: usize = 32;
/// What one gap adds to its bucket.
const WEIGHT: u32 = 16;
/// When the weights reach this sum, all are halved: the last 64 to 128 gaps count.
const WEIGHT_SUM_MAX: u32 = 128 * WEIGHT;
/// A new plan is made after so many waits: it costs a few hundred nanoseconds.
const PLAN_EVERY: u32 = 8;

/// What waiting in a state costs whoever waits, beside its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitCost {
    /// CPU time of entering and leaving, the waker's part included.
    pub transition_ns: u64,
    /// How much of a CPU the state burns, in thousandths: 1000 for polling.
    pub power_permille: u32,
}

/// Learns one waiter's gaps and picks the cheapest plan. Sets [`Device::poll_limit_ns`].
#[derive(Clone, Debug)]
pub struct PollLimit {
    costs: [WaitCost; STATE_COUNT_MAX],
    latency_price: u32,
    buckets: [Bucket; BUCKET_COUNT],
    weight_sum: u32,
    waits: u32,
    plan: Option<Plan>,
    /// What this wait has lasted so far, over the states already left.
    waited_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    weight: u32,
    /// Weighted sum of its gaps, so that a gap is priced as what it was and not as its bucket.
    sum_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    poll_limit_ns: u64,
    then: StateIndex,
}

impl PollLimit {
    /// A governor for waiters to whom a nanosecond of a late wake-up is worth `latency_price`
    /// nanoseconds of CPU time.
    pub fn new(costs: [WaitCost; STATE_COUNT_MAX], latency_price: u32) -> Self {
        PollLimit {
            costs,
            latency_price,
            buckets: [Bucket::default(); BUCKET_COUNT],
            weight_sum: 0,
            waits: 0,
            plan: None,
            waited_ns: 0,
        }
    }

    /// Notes how long a wait was, from its beginning to the wake-up, whatever states it had. Ends
    /// the wait: the next `select` begins a new one.
    pub fn end_wait(&mut self, gap_ns: u64) {
        let bucket = &mut self.buckets[bucket_of(gap_ns)];
        bucket.weight += WEIGHT;
        // A day is more than any wait that still matters, and keeps the sum in 64 bits.
        bucket.sum_ns += gap_ns.min(86_400_000_000_000) * u64::from(WEIGHT);
        self.weight_sum += WEIGHT;
        if self.weight_sum >= WEIGHT_SUM_MAX {
            self.weight_sum = 0;
            for bucket in &mut self.buckets {
                // The mean stays: both are halved exactly or not at all.
                bucket.sum_ns = bucket.sum_ns.checked_div(u64::from(bucket.weight)).unwrap_or(0);
                bucket.weight /= 2;
                bucket.sum_ns *= u64::from(bucket.weight);
                self.weight_sum += bucket.weight;
            }
        }
        self.waits = self.waits.wrapping_add(1);
        self.waited_ns = 0;
    }

    /// What it costs to end a wait in `state`, beside the time spent there.
    fn fixed_cost_ns(&self, context: &Context<'_>, state: StateIndex) -> u64 {
        let latency_ns = context.states.get(state).exit_latency_ns;
        self.costs[state].transition_ns + latency_ns * u64::from(self.latency_price)
    }

    /// What is burnt by `rest_ns` of waiting in `state`, promoted to the deepest if that is late.
    fn rest_cost_ns(&self, context: &Context<'_>, state: StateIndex, rest_ns: u64) -> u64 {
        let power = u64::from(self.costs[state].power_permille);
        let promotion_ns = auto_promotion_delay_ns(context.states, context.disabled, state);
        match promotion_ns {
            Some(delay_ns) if rest_ns > delay_ns => {
                let deepest = deepest_allowed(context);
                delay_ns * power / 1000
                    + self.costs[state].transition_ns
                    + self.fixed_cost_ns(context, deepest)
            }
            _ => rest_ns * power / 1000 + self.fixed_cost_ns(context, state),
        }
    }

    /// The cheapest plan for the gaps seen, or the ski-rental one if there are too few.
    fn make_plan(&self, context: &Context<'_>) -> Plan {
        let deepest = deepest_allowed(context);
        let can_poll = context.states.get(0).is_polling && !context.disabled.contains(0);
        if self.weight_sum < 8 * WEIGHT {
            let first = usize::from(context.states.get(0).is_polling);
            let then = (first..=deepest).find(|&state| is_allowed(context, state));
            let then = then.unwrap_or(deepest);
            let rental_ns = self.fixed_cost_ns(context, then);
            return Plan { poll_limit_ns: if can_poll { rental_ns } else { 0 }, then };
        }
        let mut best = (u64::MAX, Plan { poll_limit_ns: 0, then: deepest });
        for then in usize::from(context.states.get(0).is_polling)..=deepest {
            if !is_allowed(context, then) {
                continue;
            }
            // What was polled to the end by gaps not longer than the limit.
            let mut polled_ns = 0;
            for limit in 0..BUCKET_COUNT {
                let poll_limit_ns = if limit == 0 { 0 } else { bucket_end_ns(limit - 1) };
                if limit > 0 {
                    polled_ns += self.buckets[limit - 1].sum_ns;
                }
                if polled_ns >= best.0 || (limit > 0 && !can_poll) {
                    break;
                }
                let mut cost_ns = polled_ns;
                for bucket in &self.buckets[limit..] {
                    if bucket.weight > 0 {
                        let mean_ns = bucket.sum_ns / u64::from(bucket.weight);
                        let rest_ns = mean_ns.saturating_sub(poll_limit_ns);
                        let rest_cost_ns = self.rest_cost_ns(context, then, rest_ns);
                        cost_ns = cost_ns.saturating_add(
                            u64::from(bucket.weight).saturating_mul(poll_limit_ns + rest_cost_ns),
                        );
                    }
                }
                if cost_ns < best.0 {
                    best = (cost_ns, Plan { poll_limit_ns, then });
                }
            }
        }
        best.1
    }
}

impl Governor for PollLimit {
    /// Picks where the wait goes on, given what it lasted already.
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let plan = match self.plan {
            Some(plan) if !self.waits.is_multiple_of(PLAN_EVERY) || self.waited_ns > 0 => plan,
            _ => *self.plan.insert(self.make_plan(context)),
        };
        // Whatever the plan was made for, limits and disabled states hold now.
        let then = (plan.then..=deepest_allowed(context))
            .find(|&state| is_allowed(context, state))
            .unwrap_or(deepest_allowed(context));
        let can_poll = context.states.get(0).is_polling && !context.disabled.contains(0);
        // A wait that ends by its own deadline wakes nobody late, so polling buys nothing; but one
        // that is over before a sleep begins is not worth sleeping for.
        let to_deadline_ns = u64::try_from(context.sleep_length().sleep_length_ns).unwrap_or(0);
        let is_short = to_deadline_ns <= self.costs[then].transition_ns;
        let poll_limit_ns = if is_short { to_deadline_ns.max(1) } else { plan.poll_limit_ns };
        let state = if can_poll && (then == 0 || self.waited_ns < poll_limit_ns) {
            0
        } else if self.waited_ns <= plan.poll_limit_ns {
            then
        } else {
            deepest_allowed(context)
        };
        if context.states.get(state).is_polling {
            // Polling that nothing can follow has no limit, be it for all states' being disabled.
            device.poll_limit_ns =
                if then == 0 { u64::MAX } else { poll_limit_ns - self.waited_ns };
        }
        device.last_state = Some(state);
        Decision { state, stop_tick: true }
    }

    /// Notes that a state was left and the wait goes on ([`PollLimit::end_wait`] ends it).
    fn reflect(&mut self, _outcome: &Outcome, device: &mut Device) {
        self.waited_ns = self.waited_ns.saturating_add(device.last_residency_ns).max(1);
    }
}

fn is_allowed(context: &Context<'_>, state: StateIndex) -> bool {
    let latency_ns = context.states.get(state).exit_latency_ns;
    !context.disabled.contains(state)
        && i64::try_from(latency_ns).is_ok_and(|ns| ns <= context.latency_limit_ns)
}

/// The deepest state that is enabled and within the limit; 0 if there is none.
fn deepest_allowed(context: &Context<'_>) -> StateIndex {
    (0..context.states.len()).rev().find(|&state| is_allowed(context, state)).unwrap_or(0)
}

/// The bucket of a gap: two for each doubling from 512 ns.
fn bucket_of(gap_ns: u64) -> usize {
    let scaled = gap_ns >> 8;
    if scaled < 2 {
        return 0;
    }
    let doublings = 63 - scaled.leading_zeros() as usize;
    let half = (scaled >> (doublings - 1)) as usize & 1;
    (2 * (doublings - 1) + half + 1).min(BUCKET_COUNT - 1)
}

/// Where a bucket ends: the shortest gap of the next.
fn bucket_end_ns(bucket: usize) -> u64 {
    let doublings = bucket / 2 + 1;
    let half = bucket as u64 & 1;
    ((1 << doublings) + (half << (doublings - 1))) << 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DisabledMask, FAR_AWAY_NS, IdleState, SleepLength, StateTable};

    const FAR: SleepLength =
        SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: FAR_AWAY_NS };

    /// Polling, a state that burns half a CPU, and a sleep of 4 µs.
    fn table() -> StateTable {
        let half = IdleState { is_auto_promoted: true, ..IdleState::new(500, 2_000) };
        StateTable::new(&[IdleState::POLL, half, IdleState::new(4_000, 50_000)]).unwrap()
    }

    /// As [`table`], with the middle state switched off.
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

    /// The states of one wait of `gap_ns`, and how long it polled at most.
    fn wait(governor: &mut PollLimit, context: &Context<'_>, gap_ns: u64) -> (StateIndex, u64) {
        let mut device = Device::default();
        let decision = governor.select(context, &mut device);
        governor.end_wait(gap_ns);
        (decision.state, device.poll_limit_ns)
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
        assert_eq!(wait(&mut governor(), &context, 1), (0, 44_000));
    }

    /// A first wait when polling is switched off and no sleep is fast enough.
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
        // 30 µs of half a CPU and 0.5 µs late against 30 µs of a whole one, or 4 µs late.
        assert_eq!(wait(&mut governor, &context, 30_000).0, 1);
    }

    #[test]
    fn goes_deeper_each_time_a_state_was_not_enough() {
        let table = table();
        let context = Context::new(&table, FAR);
        let mut governor = governor();
        let mut device = Device::default();
        for state in 0..3 {
            assert_eq!(governor.select(&context, &mut device).state, state);
            device.last_residency_ns = device.poll_limit_ns;
            governor.reflect(&Outcome { entered: state, got_tick: true, now_ns: 0 }, &mut device);
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
        context.latency_limit_ns = crate::NO_LATENCY_LIMIT_NS;
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
}
