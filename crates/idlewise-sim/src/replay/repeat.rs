//! Detects stays that repeat.
//!
//! A CPU that polls or keeps its tick is asked again and again within one gap: in a gap of a day,
//! more than a hundred million times. In most of these stays nothing new happens. After a number of
//! stays in a gap, a lane therefore saves everything that the next stays depend on, and compares it
//! after each stay. If it is the same again, the stays in between will repeat in the same order and
//! with the same lengths, as long as neither the wake event nor a timer is near. The lane then adds
//! their counts as many times as they fit, and replays the rest.
//!
//! The next stays depend on:
//!
//! * the state of the governor and the idle loop ([`idlewise_core::Governor::memory`]);
//! * the distance to the next tick, while the tick runs. A stopped tick is not restarted within a
//!   gap;
//! * the distance to the next timer, if the governor reads it. An armed timer comes nearer with
//!   each stay, so stays repeat only if there is no timer, or if it was not read since.
//!
//! The moment to compare with is chosen by Brent's algorithm for finding cycles: each moment is
//! kept for twice as many stays as the one before, so that longer cycles are found too.

use idlewise_core::Governor;

use super::Tally;
use crate::idle_loop::IdleLoop;

/// This many stays of a gap are replayed before looking for repetitions.
pub(super) const FIRST_STAY_COUNT: u64 = 256;

/// A lane's position in a gap, between two stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Time since the gap's start.
    pub at_ns: u64,
    /// Time from the gap's start to the next boundary of the tick grid.
    pub next_tick_at_ns: u64,
    /// The sum of all stays so far, with their exit latencies.
    pub idle_ns: u64,
}

/// The limits of a repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The gap's length.
    pub gap_ns: u64,
    /// Time from the gap's start to the timer that was known there.
    pub timer_at_ns: Option<u64>,
    pub tick_period_ns: u64,
}

/// A sequence of stays that repeats.
#[derive(Clone, Debug)]
pub struct Repetition {
    /// Time from the gap's start to where the sequence begins to repeat.
    pub at_ns: u64,
    /// The duration of one sequence.
    pub span_ns: u64,
    /// How many times it repeats.
    pub count: u64,
    /// The counts of one sequence: stays, verdicts, ticks.
    pub once: Tally,
    /// The sum of one sequence's stays, with their exit latencies.
    pub idle_ns: u64,
}

/// A moment to compare with.
#[derive(Debug, Default)]
struct Moment {
    at_ns: u64,
    tick_left_ns: u64,
    idle_ns: u64,
    counts: Tally,
    memory: Vec<u64>,
}

/// Looks for repetitions in a gap.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_on: bool,
    moment: Moment,
    /// For how many stays this moment is kept, and how many of them are left.
    kept_count: u64,
    left_count: u64,
}

impl Watch {
    /// The gap has had [`FIRST_STAY_COUNT`] stays.
    pub(super) fn start(&mut self) {
        self.is_on = true;
        (self.kept_count, self.left_count) = (1, 0);
    }

    /// Checks whether the stays since the moment repeat. If they do, adds them up.
    pub(super) fn look<G: Governor>(
        &mut self,
        idle: &IdleLoop<G>,
        tally: &Tally,
        place: Place,
        bounds: Bounds,
    ) -> Option<Repetition> {
        if !self.is_on {
            return None;
        }
        let tick_left_ns =
            if idle.tick_stopped { u64::MAX } else { place.next_tick_at_ns - place.at_ns };
        if self.left_count == 0 {
            self.keep(idle, tally, place, tick_left_ns);
            return None;
        }
        self.left_count -= 1;
        let moment = &self.moment;
        if moment.tick_left_ns != tick_left_ns {
            return None;
        }
        let last_end_ns = last_end_ns(moment, tally, place, bounds)?;
        if !moment.has_memory_of(idle) {
            return None;
        }
        let span_ns = place.at_ns - moment.at_ns;
        let count = last_end_ns.saturating_sub(place.at_ns) / span_ns;
        let once = tally.since(&moment.counts);
        let idle_ns = place.idle_ns - moment.idle_ns;
        // The rest is shorter than a sequence, or comes after the timer.
        self.left_count = 0;
        (count > 0).then_some(Repetition { at_ns: place.at_ns, span_ns, count, once, idle_ns })
    }

    fn keep<G: Governor>(
        &mut self,
        idle: &IdleLoop<G>,
        tally: &Tally,
        place: Place,
        tick_left_ns: u64,
    ) {
        self.kept_count = self.kept_count.saturating_mul(2);
        self.left_count = self.kept_count;
        let moment = &mut self.moment;
        moment.at_ns = place.at_ns;
        moment.tick_left_ns = tick_left_ns;
        moment.idle_ns = place.idle_ns;
        moment.counts = tally.counts();
        moment.memory.clear();
        self.is_on = idle.memory(&mut |number| moment.memory.push(number));
    }
}

impl Moment {
    fn has_memory_of<G: Governor>(&self, idle: &IdleLoop<G>) -> bool {
        let mut known = self.memory.iter();
        let mut is_same = true;
        let is_told = idle.memory(&mut |number| is_same &= known.next() == Some(&number));
        is_told && is_same && known.next().is_none()
    }
}

/// The latest end of another repetition; `None` if a timer would change what happens.
fn last_end_ns(moment: &Moment, tally: &Tally, place: Place, bounds: Bounds) -> Option<u64> {
    // The last stay must end before the event.
    let event_ns = bounds.gap_ns - 1;
    match bounds.timer_at_ns {
        None => Some(event_ns),
        Some(timer_at_ns) if timer_at_ns < moment.at_ns => Some(event_ns),
        // The timer was due in between.
        Some(timer_at_ns) if timer_at_ns < place.at_ns => None,
        Some(timer_at_ns) => {
            let was_read = tally.timer_read_count != moment.counts.timer_read_count;
            // A tick that serves a timer is not stopped, so the one before is the last to repeat.
            let tick_before_ns = timer_at_ns.saturating_sub(bounds.tick_period_ns + 1);
            (!was_read).then_some(tick_before_ns.min(event_ns))
        }
    }
}
