//! Stays that repeat.
//!
//! A CPU that polls or keeps its tick is asked again and again within one gap: in a gap of a day,
//! more than a hundred million times. Nothing new happens in most of them. So after a number of
//! stays in one gap, a lane notes everything that the next stays depend on, and compares it after
//! each stay. Where all of it comes back, the stays in between will come again in the same order, and
//! with the same lengths, as long as neither the wake event nor a timer is near. The lane then adds
//! what was counted in between as many times as there is room for, and replays the rest.
//!
//! What the next stays depend on:
//!
//! * the governor's memory and the idle loop's ([`idlewise_core::Governor::memory`]);
//! * how far the next tick is, while it runs. A stopped tick does not come back within a gap;
//! * how far the next timer is, if the governor looks at it. A timer that is set comes nearer with each
//!   stay. So stays repeat only where there is no timer, or where nobody read it since.
//!
//! Which moment to compare with is Brent's rule for finding cycles: each moment is kept for twice as
//! many stays as the one before, so that stays which repeat only after a while are found too.

use idlewise_core::Governor;

use super::Tally;
use crate::idle_loop::IdleLoop;

/// So many stays of a gap are replayed without looking.
pub(super) const FIRST_STAY_COUNT: u64 = 256;

/// Where in a gap a lane is, between two stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// From the gap's start.
    pub at_ns: u64,
    /// From the gap's start to the next line of the tick grid.
    pub next_tick_at_ns: u64,
    /// All stays of the gap up to here, with their exit latencies.
    pub idle_ns: u64,
}

/// What bounds a repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The gap's length.
    pub gap_ns: u64,
    /// From the gap's start to the timer that was known there.
    pub timer_at_ns: Option<u64>,
    pub tick_period_ns: u64,
}

/// Stays that come again, in the same order.
#[derive(Clone, Debug)]
pub struct Repetition {
    /// From the gap's start to where they come again.
    pub at_ns: u64,
    /// How long they take once.
    pub span_ns: u64,
    /// How many times they come again.
    pub count: u64,
    /// What is counted once: stays, verdicts, ticks.
    pub once: Tally,
    /// All of them once, with their exit latencies.
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

/// Looks for repetitions within one gap.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_on: bool,
    moment: Moment,
    /// For how many stays this moment is kept, and for how many still.
    kept_count: u64,
    left_count: u64,
}

impl Watch {
    /// A gap has had [`FIRST_STAY_COUNT`] stays.
    pub(super) fn start(&mut self) {
        self.is_on = true;
        (self.kept_count, self.left_count) = (1, 0);
    }

    /// Looks whether the stays since the moment repeat; if so, adds them up.
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
        // What is left is shorter than that, or comes after the timer.
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

/// Until where what happened since the moment may happen again; `None` if a timer would change it.
fn last_end_ns(moment: &Moment, tally: &Tally, place: Place, bounds: Bounds) -> Option<u64> {
    // The last stay must end before the event does it.
    let event_ns = bounds.gap_ns - 1;
    match bounds.timer_at_ns {
        None => Some(event_ns),
        Some(timer_at_ns) if timer_at_ns < moment.at_ns => Some(event_ns),
        // It came in between.
        Some(timer_at_ns) if timer_at_ns < place.at_ns => None,
        Some(timer_at_ns) => {
            let was_read = tally.timer_read_count != moment.counts.timer_read_count;
            // A tick that serves a timer is not stopped, so the tick before it is the last alike.
            let tick_before_ns = timer_at_ns.saturating_sub(bounds.tick_period_ns + 1);
            (!was_read).then_some(tick_before_ns.min(event_ns))
        }
    }
}
