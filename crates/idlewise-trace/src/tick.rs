//! Finds the scheduler tick in a trace: the tick's callback, its period, its phase on each CPU, and
//! where the jiffies are on the trace's clock.
//!
//! A trace has addresses instead of symbols, so the tick is recognised by its behaviour. There are
//! two signs. One is a timer without slack that its own expiry re-arms exactly one period of a
//! known HZ later. (A process that sleeps for round times has slack, or its handler does not re-arm
//! the timer.) The other, far stronger, is the timer that a CPU arms right after `tick_stop`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use idlewise_core::tick_period_ns;
use rustc_hash::FxHasher;

use crate::{Event, EventKind};

type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// The values of CONFIG_HZ that kernels are built with on x86, Arm and POWER.
const KNOWN_HZ: &[u32] = &[100, 250, 300, 1000, 1024];
/// How many re-armings a `tick_stop` counts for.
const TICK_STOP_VOTES: u32 = 1_000;
/// A year. Clocks that differ by more are different clocks.
const YEAR_NS: i64 = 31_536_000_000_000_000;

/// What a trace shows about its tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// The tick's callback.
    pub(crate) function: Option<u64>,
    /// CONFIG_HZ of the recording kernel.
    pub hz: Option<u32>,
    /// A tick boundary of each CPU on the trace's clock, less than one period from 0.
    pub(crate) phases_ns: FastMap<u16, i64>,
    /// The boundary that most CPUs share.
    pub(crate) common_phase_ns: i64,
    /// The offset from the kernel's monotonic clock to the trace's; 0 if they are the same.
    pub(crate) clock_offset_ns: i64,
    /// The same for the realtime clock, on which some timers expire.
    pub(crate) realtime_offset_ns: Option<i64>,
    /// The time of jiffy 0 on the trace's clock.
    pub(crate) jiffy_zero_ns: Option<i64>,
}

impl Tick {
    /// The tick's period.
    pub fn period_ns(&self) -> Option<u32> {
        self.hz.map(tick_period_ns)
    }

    /// A tick boundary of `cpu`, less than one period from 0.
    pub fn phase_ns(&self, cpu: u16) -> i64 {
        self.phases_ns.get(&cpu).copied().unwrap_or(self.common_phase_ns)
    }

    /// The time from `at_ns` to the next tick boundary of `cpu`: at least 1 ns, at most one period.
    pub fn next_boundary_ns(&self, cpu: u16, at_ns: i64) -> Option<u32> {
        let period_ns = i64::from(self.period_ns()?);
        Some((period_ns - self.past_boundary_ns(cpu, at_ns, period_ns)) as u32)
    }

    /// The tick boundary of `cpu` at or before `at_ns`.
    pub(crate) fn last_boundary_ns(&self, cpu: u16, at_ns: i64) -> Option<i64> {
        let period_ns = i64::from(self.period_ns()?);
        at_ns.checked_sub(self.past_boundary_ns(cpu, at_ns, period_ns))
    }

    /// The time from the last tick boundary of `cpu` to `at_ns`, for any time.
    fn past_boundary_ns(&self, cpu: u16, at_ns: i64, period_ns: i64) -> i64 {
        (at_ns.rem_euclid(period_ns) - self.phase_ns(cpu)).rem_euclid(period_ns)
    }

    /// The time when `jiffies` begins, on the trace's clock.
    pub(crate) fn jiffies_at_ns(&self, jiffies: u64) -> Option<i64> {
        let since_ns = (jiffies as i64).checked_mul(i64::from(self.period_ns()?))?;
        self.jiffy_zero_ns?.checked_add(since_ns)
    }

    /// A timer's expiry on the trace's clock; `None` if its clock's offset is unknown.
    pub(crate) fn on_trace_clock_ns(&self, expires_at_ns: i64, now_ns: i64) -> Option<i64> {
        let at_ns = expires_at_ns.checked_add(self.clock_offset_ns)?;
        if at_ns.abs_diff(now_ns) < YEAR_NS as u64 {
            return Some(at_ns);
        }
        let at_ns = expires_at_ns.checked_add(self.realtime_offset_ns?)?;
        (at_ns.abs_diff(now_ns) < YEAR_NS as u64).then_some(at_ns)
    }
}

/// Examines the first part of a trace.
#[derive(Default)]
pub(crate) struct TickFinder {
    timers: FastMap<u64, Arming>,
    votes: FastMap<u64, u32>,
    periods: FastMap<(u64, u32), u32>,
    /// CPUs that had a `tick_stop` and have not armed a timer since.
    stopping: FastMap<u16, ()>,
    phases: FastMap<(u16, u64), i64>,
    clock_offsets_ns: Vec<i64>,
    realtime_offset_ns: Option<i64>,
    jiffies: Vec<(i64, u64)>,
}

#[derive(Clone, Copy)]
struct Arming {
    expires_at_ns: i64,
    has_expired: bool,
}

impl TickFinder {
    pub(crate) fn push(&mut self, event: &Event) {
        match event.kind {
            EventKind::TickStop => {
                self.stopping.insert(event.cpu, ());
            }
            EventKind::HrtimerExpire { timer, now_ns, .. } => {
                if let Some(arming) = self.timers.get_mut(&timer) {
                    arming.has_expired = true;
                }
                let offset_ns = event.at_ns.wrapping_sub(now_ns);
                if offset_ns.unsigned_abs() < YEAR_NS as u64 {
                    self.clock_offsets_ns.push(offset_ns);
                } else {
                    self.realtime_offset_ns.get_or_insert(offset_ns);
                }
            }
            EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack } => {
                self.see_start(event.cpu, timer, function, expires_at_ns, has_slack);
            }
            EventKind::WheelStart { bucket_jiffies, ahead_jiffies, .. } => {
                let now_jiffies = bucket_jiffies.wrapping_sub(ahead_jiffies as u64);
                self.jiffies.push((event.at_ns, now_jiffies));
            }
            _ => {}
        }
    }

    fn see_start(
        &mut self,
        cpu: u16,
        timer: u64,
        function: u64,
        expires_at_ns: i64,
        has_slack: bool,
    ) {
        let previous = self.timers.insert(timer, Arming { expires_at_ns, has_expired: false });
        if has_slack {
            return;
        }
        if self.stopping.remove(&cpu).is_some() {
            *self.votes.entry(function).or_default() += TICK_STOP_VOTES;
        }
        let Some(previous) = previous.filter(|p| p.has_expired) else { return };
        let step_ns = expires_at_ns.wrapping_sub(previous.expires_at_ns);
        let Some(hz) =
            KNOWN_HZ.iter().copied().find(|&hz| i64::from(tick_period_ns(hz)) == step_ns)
        else {
            return;
        };
        *self.votes.entry(function).or_default() += 1;
        *self.periods.entry((function, hz)).or_default() += 1;
        self.phases.insert((cpu, function), expires_at_ns);
    }

    pub(crate) fn finish(&self) -> Tick {
        // On a tie the smallest key wins, so that the result does not depend on the hash order.
        let most = |counts: &mut dyn Iterator<Item = (u64, u32)>| {
            counts.max_by_key(|&(key, count)| (count, std::cmp::Reverse(key))).map(|(key, _)| key)
        };
        let function = most(&mut self.votes.iter().map(|(&f, &n)| (f, n)));
        let hz = most(
            &mut self
                .periods
                .iter()
                .filter(|((f, _), _)| Some(*f) == function)
                .map(|(&(_, hz), &n)| (u64::from(hz), n)),
        )
        .map(|hz| hz as u32);
        let clock_offset_ns = self.clock_offset_ns();
        let mut tick = Tick {
            function,
            hz,
            clock_offset_ns,
            realtime_offset_ns: self.realtime_offset_ns,
            ..Tick::default()
        };
        let Some(period_ns) = tick.period_ns().map(i64::from) else { return tick };
        let phase_ns =
            |expires_at_ns: i64| expires_at_ns.wrapping_add(clock_offset_ns).rem_euclid(period_ns);
        tick.phases_ns = self
            .phases
            .iter()
            .filter(|((_, f), _)| Some(*f) == function)
            .map(|(&(cpu, _), &expires_at_ns)| (cpu, phase_ns(expires_at_ns)))
            .collect();
        let mut shared: FastMap<u64, u32> = FastMap::default();
        for &phase_ns in tick.phases_ns.values() {
            *shared.entry(phase_ns as u64).or_default() += 1;
        }
        tick.common_phase_ns = most(&mut shared.into_iter()).unwrap_or(0) as i64;
        // Jiffies advance at tick boundaries. Stale readings are rare, so the majority is right.
        let mut zeros: FastMap<u64, u32> = FastMap::default();
        for &(at_ns, jiffies) in &self.jiffies {
            let into_ns = at_ns.wrapping_sub(tick.common_phase_ns).rem_euclid(period_ns);
            let begin_ns = at_ns.wrapping_sub(into_ns);
            let zero_ns = begin_ns.wrapping_sub((jiffies as i64).wrapping_mul(period_ns));
            *zeros.entry(zero_ns as u64).or_default() += 1;
        }
        tick.jiffy_zero_ns = most(&mut zeros.into_iter()).map(|zero| zero as i64);
        tick
    }

    /// On the monotonic clock, an expiry event comes a few microseconds after the clock reading
    /// that it contains. On any other clock the difference is a large constant. The smallest
    /// difference is the one with the least delay.
    fn clock_offset_ns(&self) -> i64 {
        const SAME_CLOCK_NS: i64 = 1_000_000;
        match self.clock_offsets_ns.iter().copied().min() {
            Some(offset_ns) if offset_ns.abs() > SAME_CLOCK_NS => offset_ns,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(at_ns: i64, cpu: u16, timer: u64, function: u64, expires_at_ns: i64) -> Event {
        let kind = EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack: false };
        Event { at_ns, cpu, kind }
    }

    fn expire(at_ns: i64, cpu: u16, timer: u64, function: u64) -> Event {
        let kind = EventKind::HrtimerExpire { timer, function, now_ns: at_ns - 900 };
        Event { at_ns, cpu, kind }
    }

    #[test]
    fn tells_the_tick_from_a_timer_with_the_same_period() {
        const TICK: u64 = 0xf1;
        const OTHER: u64 = 0xf2;
        let mut finder = TickFinder::default();
        for i in 0..50 {
            let at_ns = 8_000_000 + 4_000_000 * i;
            finder.push(&expire(at_ns + 1_000, 0, 0xa0, TICK));
            finder.push(&start(at_ns + 2_000, 0, 0xa0, TICK, at_ns + 4_000_000));
            // Another kernel timer with the same period, but off the grid, and armed more often.
            for j in 0..4 {
                let other_ns = at_ns + 100_000 + j * 1_000_000;
                finder.push(&expire(other_ns, 0, 0xb0, OTHER));
                finder.push(&start(other_ns + 500, 0, 0xb0, OTHER, other_ns + 1_000_000));
            }
        }
        finder.push(&Event { at_ns: 300_000_000, cpu: 0, kind: EventKind::TickStop });
        finder.push(&start(300_000_100, 0, 0xa0, TICK, 900_000_000));
        let tick = finder.finish();
        assert_eq!((tick.function, tick.hz), (Some(TICK), Some(250)));
        assert_eq!(tick.next_boundary_ns(0, 300_000_001), Some(3_999_999));
        assert_eq!(tick.next_boundary_ns(0, 304_000_000), Some(4_000_000));
    }

    #[test]
    fn finds_the_offset_of_another_clock() {
        let mut finder = TickFinder::default();
        for i in 0..3 {
            let kind = EventKind::HrtimerExpire { timer: 1, function: 2, now_ns: 1_000_000 * i };
            finder.push(&Event { at_ns: 5_000_000_000 + 1_000_000 * i + i, cpu: 0, kind });
        }
        assert_eq!(finder.finish().clock_offset_ns, 5_000_000_000);
    }

    #[test]
    fn places_jiffies_on_the_grid() {
        let mut finder = TickFinder::default();
        for i in 0..4 {
            let at_ns = 4_000_000 * i;
            finder.push(&expire(at_ns + 1_000, 0, 0xa0, 0xf1));
            finder.push(&start(at_ns + 2_000, 0, 0xa0, 0xf1, at_ns + 4_000_000));
            let kind = EventKind::WheelStart {
                timer: 7,
                bucket_jiffies: 100 + i as u64 + 5,
                ahead_jiffies: 5,
                flags: 0,
            };
            finder.push(&Event { at_ns: at_ns + 3_000_000, cpu: 0, kind });
        }
        let tick = finder.finish();
        assert_eq!(tick.jiffies_at_ns(100), Some(0));
        assert_eq!(tick.jiffies_at_ns(105), Some(20_000_000));
    }
}
