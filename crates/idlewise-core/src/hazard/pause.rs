//! Pauses: gaps that last beyond the last bin. A belief forgets them within a hundred short gaps, so how often they
//! occur and how long they take is remembered for longer.

use super::bins::{BIN_COUNT, TAIL_NS, bin_start_ns};
use super::outlook::MASS_SHIFT;
use super::price::LENGTH_MAX_NS;

/// A gap that has become so old is a pause.
pub(super) const PAUSE_NS: u64 = bin_start_ns(BIN_COUNT);
/// Each gap moves the share of pauses by 2^-[`MEMORY_SHIFT`].
const MEMORY_SHIFT: u32 = 8;
/// Before any observation one gap in 2^[`FIRST_SHARE_SHIFT`] is a pause.
const FIRST_SHARE_SHIFT: u32 = 7;
/// At least one gap in 2^[`FEAR_SHIFT`] is taken for a pause that lasts until its timer, whatever was seen.
const FEAR_SHIFT: u32 = 9;

/// What is known of pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// The share of the gaps that are pauses, times 2^[`MASS_SHIFT`].
    pub(super) mass: u32,
    /// Their mean length.
    pub(super) mean_ns: u64,
}

impl Pauses {
    /// Without any observation.
    pub(super) const NEW: Pauses =
        Pauses { mass: 1 << (MASS_SHIFT - FIRST_SHARE_SHIFT), mean_ns: LENGTH_MAX_NS };

    /// Learns from a gap that survived so long, and then was ended by an event or by its timer. A timer that came early
    /// says nothing, and one that ended a pause says only that it may be longer.
    #[inline(always)]
    pub(super) fn learn(&mut self, survived_ns: u64, is_event: bool) {
        if survived_ns < PAUSE_NS {
            self.mass -= if is_event { self.mass >> MEMORY_SHIFT } else { 0 };
            return;
        }
        self.mass += ((1 << MASS_SHIFT) - self.mass) >> MEMORY_SHIFT;
        if is_event || survived_ns > self.mean_ns {
            self.mean_ns = self.mean_ns.midpoint(survived_ns.min(LENGTH_MAX_NS));
        }
    }

    /// The mean time in pauses that a belief leaves out, until the timer, for a gap that has survived with `age_mass`.
    /// `end_mass` is what the belief expects beyond its last bin. The result has `shift` bits less.
    #[inline(always)]
    pub(super) fn time_left_out(
        self,
        age_mass: u64,
        end_mass: u64,
        timer_left_ns: u64,
        shift: u32,
    ) -> u64 {
        let mass = u64::from(self.mass).max(end_mass).min(age_mass) >> shift;
        let believed = (end_mass >> shift) * timer_left_ns.min(TAIL_NS);
        let known = (mass * timer_left_ns.min(self.mean_ns)).saturating_sub(believed);
        known.max(feared_time(age_mass >> shift, timer_left_ns))
    }
}

/// The mean time in pauses that is feared, whatever was seen.
#[inline(always)]
pub(super) fn feared_time(mass: u64, timer_left_ns: u64) -> u64 {
    (mass * timer_left_ns) >> FEAR_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// One pause in a hundred gaps is remembered over the hundred, and its length too.
    #[test]
    fn the_share_of_pauses_outlives_a_hundred_gaps() {
        let mut pauses = Pauses::NEW;
        for turn in 1..=10_000_u64 {
            let is_pause = turn % 100 == 0;
            pauses.learn(if is_pause { SECOND_NS } else { 30_000 }, true);
        }
        for _ in 0..99 {
            pauses.learn(30_000, true);
        }
        let share = f64::from(pauses.mass) / f64::from(1_u32 << MASS_SHIFT);
        assert!((0.006..0.01).contains(&share), "{share}");
        assert!(pauses.mean_ns.abs_diff(SECOND_NS) < 100, "{}", pauses.mean_ns);
    }

    #[test]
    fn timers_say_little_of_pauses() {
        let mut pauses = Pauses::NEW;
        pauses.learn(SECOND_NS, true);
        let before = pauses;
        pauses.learn(3_000_000, false);
        assert_eq!((pauses.mass, pauses.mean_ns), (before.mass, before.mean_ns));
        pauses.learn(PAUSE_NS, false);
        assert!(pauses.mass > before.mass);
        assert_eq!(pauses.mean_ns, before.mean_ns, "it might have lasted longer");
    }

    /// What a belief expects beyond its last bin is not counted twice.
    #[test]
    fn known_pauses_are_counted_once() {
        let half = 1_u64 << (MASS_SHIFT - 1);
        let pauses = Pauses { mass: half as u32, mean_ns: TAIL_NS };
        let all = 1 << MASS_SHIFT;
        let feared = feared_time(all >> 19, SECOND_NS);
        assert_eq!(pauses.time_left_out(all, half, SECOND_NS, 19), feared);
        assert_eq!(pauses.time_left_out(all, 0, SECOND_NS, 19), (half >> 19) * TAIL_NS);
        assert_eq!(pauses.time_left_out(all, 0, 1_000, 19), (half >> 19) * 1_000);
        let longer = Pauses { mean_ns: 4 * TAIL_NS, ..pauses };
        assert_eq!(longer.time_left_out(all, half, SECOND_NS, 19), (half >> 19) * 3 * TAIL_NS);
    }
}
