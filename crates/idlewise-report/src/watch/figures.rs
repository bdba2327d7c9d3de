//! What CPUs did between two readings.

use super::{Layout, Reading, StateReading};

/// Whether something can be said of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Its counters were read twice.
    #[default]
    Usable,
    /// It is offline, or its counters cannot be read.
    Offline,
    /// It came online, its counters began anew, or no time passed. The next interval may be usable.
    Changed,
}

/// What a CPU did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuFigures {
    /// Whether the rest means something.
    pub condition: Condition,
    /// Time in states, at most the interval.
    pub counted_ns: u64,
    /// Idle time that no state is charged with: a stay that is not over, or a CPU without states. `None` if nothing
    /// says how long the CPU was idle: then the time that is in no state may be running or such a stay.
    pub open_ns: Option<u64>,
    /// Its own limit of the exit latency.
    pub limit_ns: Option<u64>,
}

/// What a CPU did in one of its states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateFigures {
    /// The place of its name in the layout.
    pub slot: usize,
    /// Time in it. That of all states of a CPU is at most the interval.
    pub residency_ns: f64,
    /// The counters' growth, and whether it is disabled.
    pub grown: StateReading,
}

/// What all CPUs did in an interval. Its memory is used again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// How long the interval was.
    pub interval_ns: u64,
    /// One for each CPU of the layout.
    pub cpus: Vec<CpuFigures>,
    /// One for each state of each CPU, one after another.
    pub states: Vec<StateFigures>,
    /// The limit for the whole machine, at the end.
    pub machine_limit_ns: Option<u64>,
    /// Power by domain.
    pub power_mw: Vec<(String, f64)>,
}

/// /proc/stat counts in hundredths of a second, so less than two of them proves nothing.
const TICKS_NS: u64 = 20_000_000;
/// Stays that may end between the readings of two files of a state, at both ends of an interval.
const STAYS_BETWEEN_READINGS: u64 = 2;

impl StateFigures {
    /// The most that wake-ups can have waited for exits from the state: entries times its exit latency, but no more than
    /// the time in it, which the kernel counts until the CPU runs again.
    pub(crate) fn waited_ns(&self, exit_latency_ns: u64) -> f64 {
        (self.grown.entry_count as f64 * exit_latency_ns as f64).min(self.residency_ns)
    }
}

impl Figures {
    /// Computes what happened between two readings of a layout.
    ///
    /// # Panics
    /// Panics if the readings are of another layout.
    pub fn update(&mut self, layout: &Layout, before: &Reading, after: &Reading) {
        // Without time, there is no rate. A captured machine's clock may stand still.
        let has_passed = after.at_ns > before.at_ns;
        let interval_ns = after.at_ns.saturating_sub(before.at_ns).max(1);
        self.interval_ns = interval_ns;
        self.machine_limit_ns = after.machine_limit_ns;
        self.cpus.clear();
        self.states.clear();
        let mut first = 0;
        for (index, place) in layout.cpus.iter().enumerate() {
            let states = first..first + place.states.len();
            first = states.end;
            let (was, is) = (before.cpus[index], after.cpus[index]);
            let pairs = || before.states[states.clone()].iter().zip(&after.states[states.clone()]);
            let condition = match (was.is_readable, is.is_readable) {
                (_, false) => Condition::Offline,
                (false, true) => Condition::Changed,
                (true, true)
                    if !has_passed || pairs().any(|(was, is)| grown(was, is).is_none()) =>
                {
                    Condition::Changed
                }
                (true, true) => Condition::Usable,
            };
            let is_usable = condition == Condition::Usable;
            let all_ns: u64 = match is_usable {
                true => pairs().map(|(was, is)| is.residency_ns - was.residency_ns).sum(),
                false => 0,
            };
            // A stay that began in an earlier interval is counted in this one as a whole.
            let scale = interval_ns as f64 / all_ns.max(interval_ns) as f64;
            for ((was, is), slot) in pairs().zip(&layout.slot_of_state()[states.clone()]) {
                let grown = match is_usable {
                    true => possible(grown(was, is).unwrap_or_default()),
                    false => {
                        StateReading { is_disabled: is.is_disabled, ..StateReading::default() }
                    }
                };
                let residency_ns = grown.residency_ns as f64 * scale;
                self.states.push(StateFigures { slot: *slot, residency_ns, grown });
            }
            let counted_ns = all_ns.min(interval_ns);
            let idle_ns = was.idle_ns.zip(is.idle_ns).map(|(was, is)| is.saturating_sub(was));
            let open_ns = match idle_ns {
                _ if !is_usable || counted_ns == interval_ns => Some(0),
                None => None,
                Some(idle_ns) => {
                    let open_ns = idle_ns.min(interval_ns).saturating_sub(counted_ns);
                    let is_open = open_ns > TICKS_NS || place.states.is_empty();
                    Some(if is_open { open_ns } else { 0 })
                }
            };
            self.cpus.push(CpuFigures { condition, counted_ns, open_ns, limit_ns: is.limit_ns });
        }
        let domains = before.energy_uj.iter().zip(&after.energy_uj);
        let known = domains.filter(|((_, was), (_, is))| is >= was);
        let mut count = 0;
        for ((name, was), (_, is)) in known {
            // A microjoule in a nanosecond is a kilowatt.
            let mw = (is - was) / interval_ns as f64 * 1e6;
            match self.power_mw.get_mut(count) {
                Some((domain, power)) if domain == name => *power = mw,
                _ => {
                    self.power_mw.truncate(count);
                    self.power_mw.push((name.clone(), mw));
                }
            }
            count += 1;
        }
        self.power_mw.truncate(count);
    }
}

/// How much counters grew. `None` if one went backwards, as after a CPU was offline or the driver changed.
fn grown(was: &StateReading, is: &StateReading) -> Option<StateReading> {
    let of = |count: fn(&StateReading) -> Option<u64>| match (count(was), count(is)) {
        (Some(was), Some(is)) => is.checked_sub(was).map(Some),
        _ => Some(None),
    };
    Some(StateReading {
        entry_count: is.entry_count.checked_sub(was.entry_count)?,
        residency_ns: is.residency_ns.checked_sub(was.residency_ns)?,
        too_deep_count: of(|state| state.too_deep_count)?,
        too_shallow_count: of(|state| state.too_shallow_count)?,
        rejected_count: of(|state| state.rejected_count)?,
        is_disabled: is.is_disabled,
    })
}

/// Without misses that exceed the entries. Files are read one after another, so a stay that ends between two of them may be
/// in one count and not in the other; counts that differ by more say nothing.
fn possible(grown: StateReading) -> StateReading {
    let StateReading { entry_count, too_deep_count, too_shallow_count, .. } = grown;
    let missed = too_deep_count.unwrap_or(0).saturating_add(too_shallow_count.unwrap_or(0));
    if missed > entry_count.saturating_add(STAYS_BETWEEN_READINGS) {
        return StateReading { too_deep_count: None, too_shallow_count: None, ..grown };
    }
    let too_deep_count = too_deep_count.map(|count| count.min(entry_count));
    let left = entry_count - too_deep_count.unwrap_or(0);
    let too_shallow_count = too_shallow_count.map(|count| count.min(left));
    StateReading { too_deep_count, too_shallow_count, ..grown }
}

#[cfg(test)]
mod tests {
    use super::super::reading::{CpuPlace, CpuReading, StateInfo};
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn layout(names: &[&str]) -> Layout {
        let state = |name: &&str| StateInfo {
            name: (*name).to_owned(),
            exit_latency_ns: 100_000,
            target_residency_ns: 300_000,
        };
        let states = names.iter().map(state).collect();
        Layout::new(vec![CpuPlace { cpu: 0, states, ..CpuPlace::default() }])
    }

    /// A reading of one CPU: when, its idle time, and entries and time of its states.
    fn reading(at_ns: u64, idle_ns: Option<u64>, states: &[(u64, u64)]) -> Reading {
        let state = |&(entry_count, residency_ns): &(u64, u64)| StateReading {
            entry_count,
            residency_ns,
            too_deep_count: Some(entry_count / 2),
            ..StateReading::default()
        };
        Reading {
            at_ns,
            cpus: vec![CpuReading { is_readable: true, idle_ns, limit_ns: None }],
            states: states.iter().map(state).collect(),
            ..Reading::default()
        }
    }

    fn figures(layout: &Layout, before: &Reading, after: &Reading) -> Figures {
        let mut figures = Figures::default();
        figures.update(layout, before, after);
        figures
    }

    #[test]
    fn counters_grow_by_their_difference() {
        let layout = layout(&["C1", "C6"]);
        let before = reading(SECOND_NS, None, &[(10, 100), (20, 200)]);
        let after = reading(3 * SECOND_NS, None, &[(110, SECOND_NS + 100), (20, 200)]);
        let found = figures(&layout, &before, &after);
        assert_eq!(found.interval_ns, 2 * SECOND_NS);
        assert_eq!(found.states[0].grown.entry_count, 100);
        assert_eq!(found.states[0].grown.too_deep_count, Some(50));
        assert_eq!(found.states[0].grown.too_shallow_count, None);
        assert_eq!(found.states[0].residency_ns, SECOND_NS as f64);
        assert_eq!(found.cpus[0].counted_ns, SECOND_NS);
    }

    /// The kernel charges a stay when it ends, so the interval of its end gets more than it is long.
    #[test]
    fn a_stay_longer_than_the_interval_fills_it() {
        let layout = layout(&["C1", "C6"]);
        let before = reading(0, Some(0), &[(0, 0), (0, 0)]);
        let after = reading(SECOND_NS, Some(SECOND_NS), &[(1, SECOND_NS), (1, 3 * SECOND_NS)]);
        let found = figures(&layout, &before, &after);
        let times: Vec<f64> = found.states.iter().map(|state| state.residency_ns / 1e9).collect();
        assert_eq!(times, [0.25, 0.75]);
        assert_eq!((found.cpus[0].counted_ns, found.cpus[0].open_ns), (SECOND_NS, Some(0)));
    }

    #[test]
    fn a_stay_that_is_not_over_is_no_running_time() {
        let layout = layout(&["C6"]);
        let before = reading(0, Some(0), &[(5, 50)]);
        let sleeping = reading(SECOND_NS, Some(SECOND_NS), &[(5, 50)]);
        assert_eq!(figures(&layout, &before, &sleeping).cpus[0].open_ns, Some(SECOND_NS));
        let running = reading(SECOND_NS, Some(10_000_000), &[(5, 50)]);
        assert_eq!(
            figures(&layout, &before, &running).cpus[0].open_ns,
            Some(0),
            "within the clock's steps"
        );
        let unknown = reading(SECOND_NS, None, &[(5, 50)]);
        assert_eq!(figures(&layout, &before, &unknown).cpus[0].open_ns, None);
        let full = reading(SECOND_NS, None, &[(6, SECOND_NS + 50)]);
        assert_eq!(figures(&layout, &before, &full).cpus[0].open_ns, Some(0));
    }

    #[test]
    fn a_cpu_without_states_has_the_idle_time_of_proc_stat() {
        let layout = layout(&[]);
        let after = reading(SECOND_NS, Some(10_000_000), &[]);
        let found = figures(&layout, &reading(0, Some(0), &[]), &after);
        assert_eq!(found.cpus[0].open_ns, Some(10_000_000));
    }

    #[test]
    fn counters_that_go_backwards_or_vanish_make_the_interval_unusable() {
        let layout = layout(&["C1"]);
        let mut gone = reading(2 * SECOND_NS, None, &[(9, 90)]);
        let before = reading(SECOND_NS, None, &[(10, 100)]);
        let found = figures(&layout, &before, &gone);
        assert_eq!(found.cpus[0].condition, Condition::Changed);
        assert_eq!(found.states[0].grown.entry_count, 0);
        gone.cpus[0].is_readable = false;
        assert_eq!(figures(&layout, &before, &gone).cpus[0].condition, Condition::Offline);
        let back = reading(3 * SECOND_NS, None, &[(1, 1)]);
        assert_eq!(figures(&layout, &gone, &back).cpus[0].condition, Condition::Changed);
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_back_divides_by_nothing() {
        let layout = layout(&["C1"]);
        let (before, after) = (reading(9, None, &[(1, 1)]), reading(7, None, &[(1, 1)]));
        let found = figures(&layout, &before, &after);
        assert_eq!((found.interval_ns, found.cpus[0].condition), (1, Condition::Changed));
    }

    /// `watch` printed 110 % and 10000 %, where `why` refused the counts.
    #[test]
    fn more_misses_than_entries_are_no_share() {
        let layout = layout(&["C6"]);
        let found = |deep, shallow| {
            let mut after = reading(2 * SECOND_NS, None, &[(10, 1_000)]);
            after.states[0].too_deep_count = Some(deep);
            after.states[0].too_shallow_count = Some(shallow);
            let mut before = reading(SECOND_NS, None, &[(0, 0)]);
            before.states[0].too_shallow_count = Some(0);
            let grown = figures(&layout, &before, &after).states[0].grown;
            (grown.too_deep_count, grown.too_shallow_count)
        };
        assert_eq!(found(11, 0), (Some(10), Some(0)), "read a moment later");
        assert_eq!(found(9, 3), (Some(9), Some(1)));
        assert_eq!(found(10, 3), (None, None));
        assert_eq!(found(1_000, 0), (None, None));
    }

    #[test]
    fn energy_becomes_power_and_a_counter_that_began_anew_is_left_out() {
        let layout = layout(&["C1"]);
        let mut before = reading(0, None, &[(0, 0)]);
        let mut after = reading(2 * SECOND_NS, None, &[(0, 0)]);
        before.energy_uj = vec![("package-0".to_owned(), 5e6), ("dram".to_owned(), 9.0)];
        after.energy_uj = vec![("package-0".to_owned(), 25e6), ("dram".to_owned(), 1.0)];
        assert_eq!(
            figures(&layout, &before, &after).power_mw,
            [("package-0".to_owned(), 10_000.0)]
        );
    }
}
