//! What could be done, and what it costs: the cheapest plan.

use super::Hazard;
use super::SIZE_COUNT;
use super::bins::{LANE_COUNT, TAIL_NS, WORD_COUNT, bin_start_ns};
use super::outlook::{MASS_SHIFT, Outlook};
use super::pause::{PAUSE_NS, feared_time};
use super::price::ONE;
use crate::{STATE_COUNT_MAX, StateIndex};

/// How many bits of a mass remain when it is priced. Times are shifted down as far.
const PRICED_MASS_BITS: u32 = 13;
/// A plan is compared as its cost and, in the lowest bits, what it is: twice the state, plus 1 if the tick stops. So
/// the cheaper of two is a minimum, without a branch to mispredict.
const CODE_BITS: u32 = 5;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;
/// More than any cost.
const COST_MAX: u64 = u64::MAX >> (CODE_BITS + 1);
/// The last polling plan ends with this word.
const POLL_WORD_COUNT: usize = 4;
/// How long to poll if the gap is expected to end soon, or nothing else is allowed.
pub(super) const POLL_MAX_NS: u64 = bin_start_ns(POLL_WORD_COUNT * LANE_COUNT);
/// What is left of a gap of unheard-of age, at least.
const UNKNOWN_REST_MIN_NS: u64 = 1_000;

/// What is ahead at a decision. Masses and times carry the same factor.
#[derive(Clone, Copy)]
struct Ahead {
    mass: u64,
    /// The mean time until the end of the gap.
    time: u64,
    /// Mass and time at the next tick, if the gap can last so long.
    tick: Option<(u64, u64)>,
    /// The mean time in pauses besides, which only a stay without the tick has to sit out.
    pause_time: u64,
}

/// What to do.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) state: StateIndex,
    pub(super) stop_tick: bool,
    pub(super) poll_ns: u64,
}

impl Hazard {
    /// The polling plan worth considering with this outlook, as a number of words; 0: none.
    #[inline(always)]
    pub(super) fn best_poll(&self, outlook: &Outlook) -> u8 {
        let shift = MASS_SHIFT + 1 - PRICED_MASS_BITS;
        let (mass, time) = outlook.after(WORD_COUNT);
        let time = (time + mass * TAIL_NS) >> shift;
        let mut best = self.rest_cost(self.asleep, (1 << MASS_SHIFT) >> shift, time) << CODE_BITS;
        for words in 1..=POLL_WORD_COUNT {
            let (mass, polled) = outlook.after(words);
            let (mass, polled) = (mass >> shift, polled >> shift);
            let cost = ONE * polled + self.rest_cost(self.asleep, mass, time - polled);
            best = best.min((cost << CODE_BITS) | words as u64);
        }
        (best & CODE_MASK) as u8
    }

    /// The cost of the best state for the rest of the gap, if there is no further decision.
    #[inline(always)]
    fn rest_cost(&self, allowed: u32, mass: u64, time: u64) -> u64 {
        let mut best = COST_MAX;
        for (index, cost) in self.costs[..self.state_count()].iter().enumerate() {
            let all = u64::from(cost.power) * time + cost.once * mass;
            best = if (allowed >> index) & 1 != 0 { best.min(all) } else { best };
        }
        best
    }

    #[inline(always)]
    fn state_count(&self) -> usize {
        usize::from(self.state_count).min(STATE_COUNT_MAX)
    }

    /// The cheapest way to sleep, as a cost and a code. `allowed` has a bit for each state that may be entered, and
    /// is not 0.
    #[inline(always)]
    fn plan_sleep(&self, allowed: u32, ahead: Ahead) -> u64 {
        let tick = ahead.tick.map(|(mass, time)| {
            let work = ONE * u64::from(self.handler_ns) * mass;
            (mass as i64, time, self.rest_cost(allowed, mass, ahead.time - time) + work)
        });
        let deepest = (u32::BITS - 1 - allowed.leading_zeros()) as usize % STATE_COUNT_MAX;
        let least_power = u64::from(self.costs[deepest].power);
        let mut best = u64::MAX;
        for (state, cost) in self.costs[..self.state_count()].iter().enumerate() {
            let power = u64::from(cost.power);
            let once = cost.once * ahead.mass;
            // Every other plan looks again, and ends in the deepest state.
            let in_pauses = power.saturating_sub(least_power) * ahead.pause_time;
            let mut cheaper = ((once + power * ahead.time + in_pauses) << CODE_BITS) | 1;
            if let Some((mass, time, rest)) = tick {
                let kept = (once + power * time + rest).wrapping_add_signed(cost.tick * mass);
                cheaper = cheaper.min(kept << CODE_BITS);
            }
            cheaper |= 2 * state as u64;
            best = if (allowed >> state) & 1 != 0 { best.min(cheaper) } else { best };
        }
        best
    }

    /// What is ahead of a gap about whose age no belief says anything. It may last as long again; a pause, as long as
    /// pauses do.
    #[inline(always)]
    fn ahead_of_old(&self, tick_left_ns: Option<u64>) -> Ahead {
        let known_ns = if self.age_ns < PAUSE_NS { 0 } else { self.pauses.mean_ns };
        let rest_ns = self.age_ns.max(UNKNOWN_REST_MIN_NS).max(known_ns).min(self.timer_left_ns);
        let mass = 1 << (PRICED_MASS_BITS - 1);
        let tick = tick_left_ns.map(|left_ns| (mass, mass * left_ns.min(rest_ns)));
        let pause_time = feared_time(mass, self.timer_left_ns);
        Ahead { mass, time: mass * rest_ns, tick, pause_time }
    }

    /// The cheapest plan. `asleep` has a bit for each state that may be entered and does not poll, and is not 0.
    #[inline(always)]
    pub(super) fn plan(&self, asleep: u32, can_poll: bool, tick_left_ns: Option<u64>) -> Plan {
        let (age_ns, timer_left_ns) = (self.age_ns, self.timer_left_ns);
        let until_ns = age_ns + timer_left_ns;
        let size = usize::from(self.last_size) % SIZE_COUNT;
        let (words, outlook) = (&self.beliefs[size].words, &self.outlooks[size]);
        let (age_mass, age_time) = match age_ns {
            0 => outlook.after(0),
            PAUSE_NS.. => (0, 0),
            _ => outlook.at(words, age_ns),
        };
        if age_mass == 0 {
            return sleeping(self.plan_sleep(asleep, self.ahead_of_old(tick_left_ns)));
        }
        let shift = (u64::BITS - age_mass.leading_zeros()).saturating_sub(PRICED_MASS_BITS);
        let time = outlook.at(words, until_ns).1.saturating_sub(age_time) >> shift;
        let tick = tick_left_ns.map(|left_ns| {
            let (mass, at) = outlook.at(words, age_ns + left_ns);
            (mass >> shift, (at.saturating_sub(age_time) >> shift).min(time))
        });
        let end_mass = outlook.after(WORD_COUNT).0;
        let pause_time = self.pauses.time_left_out(age_mass, end_mass, timer_left_ns, shift);
        let mass = age_mass >> shift;
        let best = self.plan_sleep(asleep, Ahead { mass, time, tick, pause_time });
        if can_poll && ONE * time <= best >> CODE_BITS {
            return Plan { state: 0, stop_tick: false, poll_ns: POLL_MAX_NS };
        }
        let poll_words = usize::from(self.polls[size]) % (POLL_WORD_COUNT + 1);
        let end_ns = bin_start_ns(poll_words * LANE_COUNT);
        if can_poll && end_ns > age_ns && end_ns <= until_ns {
            let (mass, at) = outlook.after(poll_words);
            let polled = (at.saturating_sub(age_time) >> shift).min(time);
            let cost = ONE * polled + self.rest_cost(asleep, mass >> shift, time - polled);
            if cost < best >> CODE_BITS {
                return Plan { state: 0, stop_tick: false, poll_ns: end_ns - age_ns };
            }
        }
        sleeping(best)
    }
}

/// The plan that a code stands for.
#[inline(always)]
fn sleeping(best: u64) -> Plan {
    let code = best & CODE_MASK;
    Plan { state: (code / 2) as StateIndex, stop_tick: code & 1 != 0, poll_ns: 0 }
}
