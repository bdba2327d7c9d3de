//! A governor that learns when idle periods end, and prices what it could do.
//!
//! Observation
//! -----------
//! An idle period ends at its timer, whose distance is known, or earlier, by something that nobody announced.
//! Only the second has to be learnt. Energy and priced delay are linear in time. So for a state that is
//! entered once, nothing matters but the mean of what is left of the idle period, and for a decision that
//! can be taken again later, nothing but that mean and the probability of getting there.
//!
//! Terms
//! -----
//! - A *gap* is an idle period as the workload made it. It may have several stays: the tick and the limit of a
//!   polling state end a stay, but not the gap. What has passed of it is its *age*.
//! - *Bins* hold lengths of gaps, two per doubling from 512 ns to 25 ms.
//! - A *word* is four bins, and 64 bits: for each bin, the share of the gaps which lasted beyond it, among those
//!   that reached the word's beginning. Eight words are a *belief*. The product of the words' last shares is the
//!   probability of lasting so long.
//! - A gap that its timer ended says that the bins before were survived, and nothing about later ones
//!   (a censored observation). So these shares, unlike a histogram of gaps, are not wrong where timers differ.
//! - λ is the price of delay: at 1, waiting for the CPU costs what polling as long costs.
//!
//! Believing
//! ---------
//! 1. There is a belief for each *size* of the gap before: up to 10 us, 100 us, 1 ms, and beyond. In a steady
//!    workload they agree; in bursts, the size of the last gap tells where in the burst we are.
//! 2. Each gap moves the shares of the words that it reached: towards 1 in the bins that it survived, towards 0
//!    from its last bin on. The first gap moves a word halfway, later ones by a quarter, an eighth and so on, to
//!    a 32nd. A word that is seldom reached keeps its few observations for long. After some thousand short gaps
//!    it still knows what happens to a gap that has become long. That decides what to do at a tick. No share
//!    becomes 0, but at least 1 in 32767: behind a share of 0 nothing would be known.
//! 3. The four lanes of a word move together, in a few operations on 64 bits, and most gaps reach few words.
//! 4. A word that was never reached after a gap of this size has the shares of the size that reached it last.
//!    Without any history each bin loses 15 %: a gap of any order of magnitude is possible. The cheapest plan is
//!    then a shallow state and another look at the tick. (If the first guess is that gaps last until their
//!    timers, as teo's is, the first 60 gaps cost three times as much.)
//!
//! Pricing
//! -------
//! The kernel's table says when a state pays off, not what it draws. The power of a state is assumed from its
//! target residency (`SHAPE`), in shares of polling. The energy of a transition follows: a stay of the target
//! residency costs the same in the state and in the next shallower one. A walk over the words from the gap's age
//! to the timer gives the probability of reaching each word and the mean time until then. With these, every plan
//! has an expected cost:
//!
//! - enter a state and stop the tick;
//! - enter a state, keep the tick, and decide again there, if the gap lasts so long. The tick wakes the CPU, and
//!   that is priced;
//! - poll until the end of a word (1.5, 6, 25 or 98 us), and decide again then, for nothing.
//!
//! Asking for the next timer takes a kernel longer than all of this. If hardly any gap lasts beyond 25 us, it is not
//! asked for: the tick is kept, no timer is assumed, and one that does come counts as an event. The plan for such a
//! gap is worked out once for each outlook.
//!
//! A plan's second decision is priced as if it were the last. The cheapest plan wins; if it makes no difference
//! whether the tick is kept, it is kept, in case the belief is wrong.
//!
//! Beliefs forget *pauses*, gaps beyond the last bin, within a hundred short gaps, and a pause of a second in C1 costs
//! more than a thousand wrong decisions. So the share of pauses and their mean length are remembered apart, over some
//! 256 gaps. Whoever stops the tick in a state sits out a pause in it, and that is priced. At least one gap in 512 is
//! taken for a pause that lasts until its timer, whatever was seen: so no long train of short gaps leads to a shallow
//! stay that only an event can end.
//!
//! All costs carry the same factor, the probability of having reached the gap's age. So nothing is divided by it,
//! and a decision has neither a division nor floating point.
//!
//! When it is wrong
//! ----------------
//! - Where a machine's powers are far from `SHAPE`, choices near a break-even are wrong, by as much as the powers.
//!   Target residencies then also say less about energy than they should.
//! - Gaps that depend on more than the size of the one before (periods of three, say) are mixed up.
//! - Where gaps come in two lengths on either side of a break-even at random, nobody can be right, and it pays
//!   what the mean demands.
//! - After a change it takes some twenty gaps of each size until the old gaps are forgotten.
//! - A pause counts as one of at most 8.6 s.
//! - An event within an exit latency before the timer passes for the timer's.
//! - The exit latency that is taken off a stay is the table's worst case, so real gaps look shorter than they are.
//! - Where pauses never come, fear of them costs ticks, polls and, with the tick stopped, deep states for short gaps.
//! - A tick's handler that takes long passes for a task at the first ticks, and always beyond 512 us. A shorter task after
//!   each tick passes for its handler.
//! - λ is what it is told. It does not know who waits.
//!
//! `kernel/idlewise_hazard.c` is the same algorithm for a kernel, and decides the same.
//!
//! | file | holds |
//! | --- | --- |
//! | `bins.rs` | bins of lengths |
//! | `belief.rs` | words, and how they learn |
//! | `outlook.rs` | the probability of lasting so long, and the mean time until then |
//! | `price.rs` | what states cost, and the price of delay |
//! | `pause.rs` | how often gaps last beyond the last bin, and for how long |
//! | `plan.rs` | the cheapest plan |

mod belief;
mod bins;
mod outlook;
mod pause;
mod plan;
mod price;

use self::belief::Belief;
use self::outlook::{MASS_SHIFT, Outlook};
use self::pause::Pauses;
use self::plan::{POLL_MAX_NS, Plan};
pub use self::price::Lambda;
use self::price::{LENGTH_MAX_NS, StateCost, TICK_WORK_NS};
use crate::{Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, STATE_COUNT_MAX};

/// What follows from a belief is worked out anew after so many gaps, and always while the belief is new.
const BEHIND_COUNT: u8 = 4;
/// The shortest poll, because the loop looks at its clock only now and then.
const POLL_MIN_NS: u64 = 200;
/// A stay that the tick ended and the next decision belong to one gap if no more passed in between than this, or than
/// this share of the gap's age, or, up to the gap's age, than so many times what the tick's handler is known to take. It
/// takes 2 to 4 us, and some tens or hundreds in a virtual machine.
const RESUME_MAX_NS: u64 = 20_000;
const RESUME_SHARE_SHIFT: u32 = 3;
const HANDLER_SPREAD_SHIFT: u32 = 2;
/// What the handler is known to take is what seven of eight ticks took: it rises by a quarter with a longer one, and
/// falls by a 32nd with a shorter one.
const HANDLER_RISE_SHIFT: u32 = 2;
const HANDLER_FALL_SHIFT: u32 = 5;
const HANDLER_MAX_NS: u64 = 128_000;
/// A gap is expected to be short if less than one in 2^[`SHORT_SHARE_SHIFT`] lasts beyond this many words, 25 us.
const SHORT_WORD_COUNT: usize = 3;
const SHORT_SHARE_SHIFT: u32 = 4;
/// In front of a short gap the timers are not asked for, and the next tick is assumed to be half a period of 250 Hz away.
const TICK_GUESS_NS: u64 = 2_000_000;
/// The sizes of gaps that have beliefs of their own end below these lengths, in nanoseconds.
const SIZE_ENDS_NS: [u64; SIZE_COUNT - 1] = [10_000, 100_000, 1_000_000];
const SIZE_COUNT: usize = 4;

/// What was decided in front of a short gap, and for which states; 0: nothing.
#[derive(Clone, Copy, Debug)]
struct ShortPlan {
    poll_ns: u32,
    allowed: u16,
    state: u8,
}

impl ShortPlan {
    const NONE: ShortPlan = ShortPlan { poll_ns: 0, allowed: 0, state: 0 };
}

/// A time, not longer than the longest that counts.
#[inline(always)]
fn positive(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0).min(LENGTH_MAX_NS)
}

/// One CPU's governor of expected costs. See the top of `hazard/mod.rs`.
#[derive(Clone, Debug)]
pub struct Hazard {
    lambda: Lambda,
    costs: [StateCost; STATE_COUNT_MAX],
    /// 0 until the states are priced.
    state_count: u8,
    /// By the size of the gap before.
    beliefs: [Belief; SIZE_COUNT],
    /// A bit for each size that has occurred.
    known_sizes: u8,
    /// What follows from each belief.
    outlooks: [Outlook; SIZE_COUNT],
    /// By how many gaps each outlook is behind its belief.
    behind: [u8; SIZE_COUNT],
    /// The polling plan worth considering after each size, as the number of words to poll; 0: none.
    polls: [u8; SIZE_COUNT],
    /// After each size.
    short_plans: [ShortPlan; SIZE_COUNT],
    /// The states that could be entered when something was last selected, without the one that polls.
    asleep: u32,
    last_size: u8,
    /// The gap goes on: the tick or a polling limit ended the last stay.
    is_open: bool,
    /// What has passed of the gap, up to the last reflection or selection.
    age_ns: u64,
    timer_left_ns: u64,
    reflected_at_ns: u64,
    pauses: Pauses,
    /// What the tick's handler is known to take.
    handler_ns: u32,
    /// The tick ended the last stay.
    got_tick: bool,
}

impl Hazard {
    /// Creates a governor without history for this price of delay.
    pub const fn new(lambda: Lambda) -> Self {
        Hazard {
            lambda,
            costs: [StateCost::NONE; STATE_COUNT_MAX],
            state_count: 0,
            beliefs: [Belief::NEW; SIZE_COUNT],
            known_sizes: 1,
            outlooks: [Outlook::PRIOR; SIZE_COUNT],
            behind: [0; SIZE_COUNT],
            polls: [0; SIZE_COUNT],
            short_plans: [ShortPlan::NONE; SIZE_COUNT],
            asleep: 0,
            last_size: 0,
            is_open: false,
            age_ns: 0,
            timer_left_ns: 0,
            reflected_at_ns: 0,
            pauses: Pauses::NEW,
            handler_ns: TICK_WORK_NS as u32,
            got_tick: false,
        }
    }

    /// Whether the gap goes on after so much time awake: no more than the tick's handler ran.
    #[inline(always)]
    fn goes_on(&mut self, passed_ns: u64) -> bool {
        let known_ns = u64::from(self.handler_ns);
        let longest_ns = RESUME_MAX_NS.max(self.age_ns);
        if self.got_tick && passed_ns <= longest_ns {
            let shorter_ns = known_ns - (known_ns >> HANDLER_FALL_SHIFT);
            let longer_ns = known_ns + (known_ns >> HANDLER_RISE_SHIFT);
            let now_ns = passed_ns.clamp(shorter_ns, longer_ns);
            self.handler_ns = now_ns.clamp(TICK_WORK_NS, HANDLER_MAX_NS) as u32;
        }
        let handler_max_ns = longest_ns.min(known_ns << HANDLER_SPREAD_SHIFT);
        passed_ns <= RESUME_MAX_NS.max(self.age_ns >> RESUME_SHARE_SHIFT).max(handler_max_ns)
    }

    /// Whether a gap that begins now hardly ever lasts beyond 25 us, so that no timer matters.
    #[inline(always)]
    fn is_short(&self) -> bool {
        let outlook = &self.outlooks[usize::from(self.last_size) % SIZE_COUNT];
        self.age_ns == 0
            && outlook.masses[SHORT_WORD_COUNT - 1] < 1 << (MASS_SHIFT - SHORT_SHARE_SHIFT)
    }

    /// The plan in front of a short gap, if it keeps the tick. Worked out anew when the outlook is, or when other states
    /// are allowed.
    #[inline(always)]
    fn short_plan(&mut self, allowed: u32, can_poll: bool) -> Option<Plan> {
        let size = usize::from(self.last_size) % SIZE_COUNT;
        self.timer_left_ns = LENGTH_MAX_NS;
        if u32::from(self.short_plans[size].allowed) != allowed {
            let plan = self.plan(self.asleep, can_poll, Some(TICK_GUESS_NS));
            if plan.stop_tick {
                return None;
            }
            self.short_plans[size] = ShortPlan {
                poll_ns: plan.poll_ns as u32,
                allowed: allowed as u16,
                state: plan.state as u8,
            };
        }
        let ShortPlan { poll_ns, state, .. } = self.short_plans[size];
        Some(Plan { state: state.into(), stop_tick: false, poll_ns: poll_ns.into() })
    }

    /// Learns from a gap that has ended, by its timer or by an event.
    #[inline(always)]
    fn end_gap(&mut self, gap_ns: u64, survived_ns: u64, is_event: bool) {
        self.is_open = false;
        self.age_ns = 0;
        let size = usize::from(self.last_size) % SIZE_COUNT;
        let belief_is_new = self.beliefs[size].is_new();
        self.beliefs[size].learn(survived_ns, is_event);
        self.pauses.learn(survived_ns, is_event);
        self.behind[size] += 1;
        if self.behind[size] >= BEHIND_COUNT || belief_is_new {
            self.look_ahead(size);
        }
        self.last_size = SIZE_ENDS_NS.iter().map(|&end_ns| u8::from(gap_ns >= end_ns)).sum();
        if (self.known_sizes >> self.last_size) & 1 == 0 {
            self.begin(usize::from(self.last_size), size);
        }
    }

    /// Begins the belief after a size that has not occurred yet as a copy of another.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, size: usize, teacher: usize) {
        self.known_sizes |= 1 << size;
        self.beliefs[size] = Belief { counts: Belief::NEW.counts, ..self.beliefs[teacher] };
        self.look_ahead(size);
    }

    /// Brings what follows from a belief up to date.
    #[inline(always)]
    fn look_ahead(&mut self, size: usize) {
        let outlook = Outlook::of(&self.beliefs[size].words);
        self.outlooks[size] = outlook;
        self.behind[size] = 0;
        self.polls[size] = self.best_poll(&outlook);
        self.short_plans[size] = ShortPlan::NONE;
    }
}

/// A bit for each state that is enabled and within the latency limit; if there is none, for the shallowest
/// enabled one, or the first.
#[inline(always)]
fn allowed_states(context: &Context<'_>) -> u32 {
    let enabled = !u32::from(context.disabled.bits()) & ((1 << context.states.len()) - 1);
    let limit_ns = u64::try_from(context.latency_limit_ns).unwrap_or(0);
    let mut allowed = 0;
    for (index, state) in context.states.as_slice().iter().enumerate() {
        allowed |= u32::from(state.exit_latency_ns <= limit_ns) << index;
    }
    match (allowed & enabled, enabled) {
        (0, 0) => 1,
        (0, enabled) => enabled & enabled.wrapping_neg(),
        (allowed, _) => allowed,
    }
}

impl Governor for Hazard {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        if self.state_count == 0 {
            self.costs = StateCost::of_states(context.states, self.lambda);
            self.state_count = context.states.len() as u8;
        }
        if self.is_open {
            let passed_ns = context.now_ns.wrapping_sub(self.reflected_at_ns);
            if self.goes_on(passed_ns) {
                self.age_ns = (self.age_ns + passed_ns).min(LENGTH_MAX_NS);
            } else {
                // A task ran. Nothing unannounced was seen until then.
                self.end_gap(self.age_ns, self.age_ns, false);
            }
        }
        let allowed = allowed_states(context);
        let polls = u32::from(context.states.get(0).is_polling);
        self.asleep = allowed & !polls;
        let can_poll = allowed & polls != 0;
        let is_short = !context.tick_stopped && self.asleep != 0 && self.is_short();
        let short_plan = if is_short { self.short_plan(allowed, can_poll) } else { None };
        let plan = short_plan.unwrap_or_else(|| {
            let timers = context.sleep_length();
            self.timer_left_ns = positive(timers.sleep_length_ns);
            // The tick matters only if it comes before the timer.
            let is_ticking = !context.tick_stopped && timers.next_event_ns < timers.sleep_length_ns;
            let tick_left_ns = is_ticking.then(|| positive(timers.next_event_ns));
            let plan = match self.asleep {
                0 => Plan { state: 0, stop_tick: false, poll_ns: POLL_MAX_NS },
                asleep => self.plan(asleep, can_poll, tick_left_ns),
            };
            // Stopping the tick takes time, and in front of a timer it changes nothing.
            let is_needless = !context.tick_stopped
                && timers.next_event_ns != FAR_AWAY_NS
                && timers.next_event_ns >= timers.sleep_length_ns;
            Plan { stop_tick: plan.stop_tick && !is_needless, ..plan }
        });
        if context.states.get(plan.state).is_polling {
            device.poll_limit_ns = plan.poll_ns.max(POLL_MIN_NS);
        }
        Decision { state: plan.state, stop_tick: plan.stop_tick }
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let entered = &self.costs[outcome.entered.min(STATE_COUNT_MAX - 1)];
        let residency_ns = device.last_residency_ns.min(LENGTH_MAX_NS);
        let stay_ns = residency_ns.saturating_sub(u64::from(entered.exit_latency_ns));
        self.reflected_at_ns = outcome.now_ns;
        let hit_limit = core::mem::take(&mut device.poll_time_limit);
        let gap_ns = self.age_ns + stay_ns;
        if residency_ns >= self.timer_left_ns {
            self.end_gap(gap_ns, self.age_ns + self.timer_left_ns, false);
        } else if outcome.got_tick || hit_limit {
            self.age_ns = (self.age_ns + residency_ns).min(LENGTH_MAX_NS);
            self.is_open = true;
            self.got_tick = outcome.got_tick;
        } else {
            self.end_gap(gap_ns, gap_ns, true);
        }
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(u64::from(self.last_size));
        note(u64::from(self.is_open));
        note(self.age_ns);
        note(self.pauses.mass.into());
        note(self.pauses.mean_ns);
        note(self.handler_ns.into());
        note(u64::from(self.got_tick));
        note(u64::from(self.known_sizes));
        note(u64::from(self.asleep));
        self.polls.iter().chain(&self.behind).for_each(|&number| note(number.into()));
        for plan in &self.short_plans {
            note(
                u64::from(plan.poll_ns) << 24
                    | u64::from(plan.allowed) << 8
                    | u64::from(plan.state),
            );
        }
        for outlook in &self.outlooks {
            outlook.masses.iter().for_each(|&mass| note(mass.into()));
            outlook.times.iter().for_each(|&time| note(time));
        }
        for belief in &self.beliefs {
            belief.words.iter().for_each(|&word| note(word));
            note(u64::from_le_bytes(belief.counts));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DisabledMask, IdleState, SleepLength, StateTable};

    #[test]
    fn is_at_most_a_kibibyte() {
        assert!(size_of::<Hazard>() <= 1_024, "{}", size_of::<Hazard>());
    }

    fn spr() -> StateTable {
        let states = [(1_000, 1_000), (2_000, 4_000), (290_000, 800_000)];
        let [c1, c1e, c6] = states.map(|(exit_ns, target_ns)| IdleState::new(exit_ns, target_ns));
        StateTable::new(&[IdleState::POLL, c1, c1e, c6]).unwrap()
    }

    /// Selects, stays `gap_ns`, and reflects; the tick is far away.
    fn stay(
        governor: &mut Hazard,
        context: &Context<'_>,
        now_ns: &mut u64,
        gap_ns: u64,
    ) -> Decision {
        let mut device = Device::default();
        let mut context = Context::new(context.states, context.timers());
        context.tick_stopped = true;
        context.now_ns = *now_ns;
        let decision = governor.select(&context, &mut device);
        let entered = decision.state;
        let residency_ns = gap_ns + context.states.get(entered).exit_latency_ns;
        device.last_residency_ns = residency_ns;
        *now_ns += residency_ns;
        let outcome = Outcome { entered, is_overruled: false, got_tick: false, now_ns: *now_ns };
        governor.reflect(&outcome, &mut device);
        *now_ns += 50_000;
        decision
    }

    /// The age of a gap after these times awake at ticks 1 ms apart.
    fn age_after_ticks(awake_ns: impl Iterator<Item = u64>) -> u64 {
        let states = spr();
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 1_000_000 };
        let mut context = Context::new(&states, timers);
        let (mut governor, mut device) = (Hazard::new(Lambda::QUARTER), Device::default());
        for ns in awake_ns {
            let entered = governor.select(&context, &mut device).state;
            device.last_residency_ns = 1_000_000;
            context.now_ns += 1_000_000;
            let outcome =
                Outcome { entered, is_overruled: false, got_tick: true, now_ns: context.now_ns };
            governor.reflect(&outcome, &mut device);
            context.now_ns += ns;
        }
        governor.age_ns
    }

    /// A pause goes on over ticks whose handler takes long, always or at every second tick. Longer tasks end it.
    #[test]
    fn the_handler_of_the_tick_is_no_task() {
        for us in [3, 25, 150, 400] {
            let steady = age_after_ticks((0..40).map(|_| us * 1_000));
            assert!(steady > 20_000_000, "{us} us: {steady}");
            let varying =
                age_after_ticks((0..80).map(|tick| if tick % 2 == 0 { us * 1_000 } else { 3_000 }));
            assert!(varying > 20_000_000, "{us} us: {varying}");
        }
        assert_eq!(age_after_ticks((0..40).map(|_| 1_500_000)), 1_000_000);
        assert_eq!(age_after_ticks((0..40).map(|tick| [3_000, 900_000][tick % 2])), 2_003_000);
    }

    fn timer(ns: i64) -> SleepLength {
        SleepLength { sleep_length_ns: ns, next_event_ns: ns }
    }

    #[test]
    fn keeps_the_tick_without_a_history() {
        let states = spr();
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 1_000_000 };
        let context = Context::new(&states, timers);
        let decision = Hazard::new(Lambda::QUARTER).select(&context, &mut Device::default());
        assert_eq!(decision, Decision { state: 2, stop_tick: false });
    }

    #[test]
    fn learns_what_interrupts_do_and_not_what_timers_do() {
        let states = spr();
        let mut now_ns = 0;
        let far = Context::new(&states, timer(20_000_000));
        let near = Context::new(&states, timer(3_000_000));
        let mut governor = Hazard::new(Lambda::QUARTER);
        for _ in 0..100 {
            stay(&mut governor, &near, &mut now_ns, 3_000_000);
        }
        assert_eq!(
            stay(&mut governor, &far, &mut now_ns, 3_000_000).state,
            3,
            "only timers so far"
        );
        for _ in 0..200 {
            stay(&mut governor, &far, &mut now_ns, 50_000);
        }
        assert_eq!(stay(&mut governor, &far, &mut now_ns, 50_000).state, 2, "events since then");
    }

    #[test]
    fn the_price_of_delay_moves_the_break_even() {
        let states = spr();
        let at = |parts| {
            let context = Context::new(&states, timer(1_500_000));
            let (mut governor, mut now_ns) = (Hazard::new(Lambda::from_1024ths(parts)), 0);
            for _ in 0..100 {
                stay(&mut governor, &context, &mut now_ns, 1_500_000);
            }
            stay(&mut governor, &context, &mut now_ns, 1_500_000).state
        };
        assert_eq!((at(0), at(1_024)), (3, 2));
    }

    /// Short gaps, and a long one after each fourth. The tick is kept for a second decision.
    #[test]
    fn keeps_the_tick_where_it_does_not_know() {
        let states = spr();
        let mut now_ns = 0;
        let far = Context::new(&states, timer(FAR_AWAY_NS));
        let mut governor = Hazard::new(Lambda::QUARTER);
        for turn in 0..400 {
            let gap_ns = if turn * 7_919 % 16 == 0 { 60_000_000 } else { 40_000 };
            stay(&mut governor, &far, &mut now_ns, gap_ns);
        }
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 200_000 };
        let mut context = Context::new(&states, timers);
        context.now_ns = now_ns;
        let decision = governor.select(&context, &mut Device::default());
        assert_eq!(decision, Decision { state: 2, stop_tick: false });
    }

    /// Gaps of 2 us, and a long one now and then. However many short ones come between, a gap that outlasts them is not
    /// left in a shallow state without the tick.
    #[test]
    fn short_gaps_do_not_hide_what_is_known_of_long_ones() {
        let states = spr();
        let mut now_ns = 0;
        let far = Context::new(&states, timer(FAR_AWAY_NS));
        let mut governor = Hazard::new(Lambda::QUARTER);
        for turn in 0..20_000 {
            let gap_ns = if turn % 1_000 == 0 { 300_000_000 } else { 2_000 };
            stay(&mut governor, &far, &mut now_ns, gap_ns);
        }
        // The tick comes soon, and the CPU is idle again at once.
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 100_000 };
        let mut device = Device::default();
        let mut context = Context::new(&states, timers);
        context.now_ns = now_ns;
        let Decision { state: entered, stop_tick } = governor.select(&context, &mut device);
        assert_eq!((entered, stop_tick), (1, false));
        device.last_residency_ns = 100_000;
        context.now_ns += device.last_residency_ns;
        let now_ns = context.now_ns;
        let outcome = Outcome { entered, is_overruled: false, got_tick: true, now_ns };
        governor.reflect(&outcome, &mut device);
        let decision = governor.select(&context, &mut device);
        assert_eq!(decision, Decision { state: 3, stop_tick: true });
    }

    /// Gaps of these lengths, with the tick on. Returns how often the timer was asked for, and the last decision.
    fn ticking(governor: &mut Hazard, now_ns: &mut u64, gaps_ns: &[u64]) -> (u32, Decision) {
        let states = spr();
        let mut device = Device::default();
        let mut calls = 0;
        let mut decision = Decision { state: 0, stop_tick: false };
        for gap_ns in gaps_ns {
            let mut context = Context::new(
                &states,
                SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 1_000_000 },
            );
            context.now_ns = *now_ns;
            decision = governor.select(&context, &mut device);
            calls += context.sleep_length_calls();
            let entered = decision.state;
            device.last_residency_ns = gap_ns + states.get(entered).exit_latency_ns;
            *now_ns += device.last_residency_ns;
            let outcome =
                Outcome { entered, is_overruled: false, got_tick: false, now_ns: *now_ns };
            governor.reflect(&outcome, &mut device);
            *now_ns += 50_000;
        }
        (calls, decision)
    }

    #[test]
    fn asks_for_no_timer_in_front_of_short_gaps() {
        let (mut governor, mut now_ns) = (Hazard::new(Lambda::QUARTER), 0);
        let (calls, _) = ticking(&mut governor, &mut now_ns, &[12_000; 64]);
        assert!(calls > 0, "without a history it asks");
        let (calls, decision) = ticking(&mut governor, &mut now_ns, &[12_000; 64]);
        assert_eq!((calls, decision), (0, Decision { state: 2, stop_tick: false }));
        // The gaps become long: soon it asks, and sleeps deeply.
        let (calls, decision) = ticking(&mut governor, &mut now_ns, &[20_000_000; 64]);
        assert!(calls >= 56, "{calls}");
        assert_eq!(decision, Decision { state: 3, stop_tick: true });
    }

    /// What it knows of short gaps follows the states that may be entered.
    #[test]
    fn a_short_plan_obeys_what_is_allowed_now() {
        let states = spr();
        let (mut governor, mut now_ns) = (Hazard::new(Lambda::QUARTER), 0);
        ticking(&mut governor, &mut now_ns, &[12_000; 128]);
        let mut context = Context::new(
            &states,
            SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 1_000_000 },
        );
        context.now_ns = now_ns;
        context.disabled = DisabledMask::NONE.with(2);
        assert_eq!(governor.select(&context, &mut Device::default()).state, 1);
        assert_eq!(context.sleep_length_calls(), 0);
        context.disabled = DisabledMask::NONE;
        assert_eq!(governor.select(&context, &mut Device::default()).state, 2);
        context.tick_stopped = true;
        governor.select(&context, &mut Device::default());
        assert_eq!(context.sleep_length_calls(), 1, "nothing would end a stay that lasts");
    }

    #[test]
    fn obeys_limits_and_disabled_states() {
        let states = spr();
        let mut context = Context::new(&states, timer(FAR_AWAY_NS));
        let select = |context: &Context<'_>| {
            Hazard::new(Lambda::QUARTER).select(context, &mut Device::default()).state
        };
        context.disabled = DisabledMask::NONE.with(3);
        assert_eq!(select(&context), 2);
        context.latency_limit_ns = 1_000;
        assert_eq!(select(&context), 1);
        context.latency_limit_ns = -1;
        assert_eq!(select(&context), 0);
        context.disabled = DisabledMask::NONE.with(0).with(1);
        assert_eq!(select(&context), 2, "something has to be entered");
    }

    /// Every sum fits, whatever the table, the history and the price: debug builds panic if one does not.
    #[test]
    fn bears_extreme_tables_and_times() {
        let day_ns = 86_400 * 1_000_000_000;
        let tables = [
            StateTable::new(&[IdleState::POLL]).unwrap(),
            StateTable::new(&[IdleState::new(day_ns, 0)]).unwrap(),
            StateTable::new(&[IdleState::new(day_ns, day_ns); STATE_COUNT_MAX]).unwrap(),
            StateTable::new(&[IdleState::POLL, IdleState::new(0, 0), IdleState::new(0, day_ns)])
                .unwrap(),
            spr(),
        ];
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for table in &tables {
            for parts in [0, 256, u32::MAX] {
                let mut governor = Hazard::new(Lambda::from_1024ths(parts));
                let mut device = Device::default();
                for _ in 0..2_000 {
                    let mut any_ns = || next() >> (next() % 64);
                    let sleep_length_ns = any_ns() as i64;
                    let next_event_ns = sleep_length_ns.min(any_ns() as i64);
                    let timers = SleepLength { sleep_length_ns, next_event_ns };
                    let mut context = Context::new(table, timers);
                    context.now_ns = any_ns();
                    context.tick_stopped = any_ns() % 2 == 0;
                    context.latency_limit_ns = any_ns() as i64;
                    context.disabled = DisabledMask::from_bits(any_ns() as u16);
                    let decision = governor.select(&context, &mut device);
                    assert!(decision.state < table.len());
                    device.last_residency_ns = any_ns();
                    device.poll_time_limit = any_ns() % 4 == 0;
                    let got_tick = any_ns() % 2 == 0;
                    let entered = decision.state;
                    let now_ns = context.now_ns.wrapping_add(any_ns());
                    let outcome = Outcome { entered, is_overruled: false, got_tick, now_ns };
                    governor.reflect(&outcome, &mut device);
                }
            }
        }
    }
}
