//! Counters whose sums may be shown: they never fall.
//!
//! The counters of a CPU vanish while it is offline, and begin anew with another driver. A sum over CPUs would fall by
//! them, and Prometheus takes a counter that fell for one that began at 0: it would add all that is left once more. So
//! what a CPU counted before stays in the sum.

use std::collections::HashMap;

use super::reading::unique_name;
use super::{Layout, Reading, StateReading};

/// What CPUs have counted so far.
#[derive(Debug, Default)]
pub struct Steady {
    states: HashMap<(u16, String), [Held; 5]>,
    idle: HashMap<u16, Held>,
}

/// A counter that may begin anew.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// What it last said; `None` as long as it said nothing.
    last: Option<u64>,
    /// What it said before it began anew.
    before: u64,
}

impl Held {
    fn follow(&mut self, now: Option<u64>) -> Option<u64> {
        if let Some(now) = now {
            let last = self.last.filter(|last| now < *last);
            self.before = self.before.saturating_add(last.unwrap_or(0));
            self.last = Some(now);
        }
        self.last.map(|last| self.before.saturating_add(last))
    }
}

impl Steady {
    /// Replaces the counters of a reading by those that never fall. Of a CPU that cannot be read, they are what they
    /// last were.
    pub fn follow(&mut self, layout: &Layout, reading: &mut Reading) {
        let mut states = reading.states.iter_mut();
        for (place, cpu) in layout.cpus.iter().zip(&mut reading.cpus) {
            cpu.idle_ns = self.idle.entry(place.cpu).or_default().follow(cpu.idle_ns);
            for index in 0..place.states.len() {
                let Some(state) = states.next() else { return };
                let held = self.states.entry((place.cpu, unique_name(place, index))).or_default();
                let read = |count: Option<u64>| count.filter(|_| cpu.is_readable);
                *state = StateReading {
                    entry_count: held[0].follow(read(Some(state.entry_count))).unwrap_or(0),
                    residency_ns: held[1].follow(read(Some(state.residency_ns))).unwrap_or(0),
                    too_deep_count: held[2].follow(read(state.too_deep_count)),
                    too_shallow_count: held[3].follow(read(state.too_shallow_count)),
                    rejected_count: held[4].follow(read(state.rejected_count)),
                    is_disabled: state.is_disabled,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CpuPlace, CpuReading, StateInfo};
    use super::*;

    #[test]
    fn a_sum_never_falls() {
        let state = StateInfo { name: "C6".to_owned(), exit_latency_ns: 1, target_residency_ns: 1 };
        let place = |cpu| CpuPlace { cpu, states: vec![state.clone()], ..CpuPlace::default() };
        let layout = Layout::new(vec![place(0), place(1)]);
        let mut steady = Steady::default();
        // CPU 1 is read, goes offline, comes back as it was, and then begins anew.
        let mut sums = Vec::new();
        for of_cpu_1 in [None, Some(50), None, Some(50), Some(20), Some(30), None, Some(10)] {
            let counts = |count| StateReading {
                entry_count: count,
                too_deep_count: Some(count / 10),
                ..StateReading::default()
            };
            let cpu = |idle_ns| CpuReading { is_readable: true, idle_ns, limit_ns: None };
            let of_cpu_1 = of_cpu_1.map(|count| (cpu(Some(count)), counts(count)));
            let (gone, was) = of_cpu_1.unwrap_or_default();
            let mut reading = Reading {
                cpus: vec![cpu(Some(1)), gone],
                states: vec![counts(100), was],
                ..Reading::default()
            };
            steady.follow(&layout, &mut reading);
            let sum: u64 = reading.states.iter().map(|state| state.entry_count).sum();
            let deep: u64 = reading.states.iter().filter_map(|state| state.too_deep_count).sum();
            let idle: u64 = reading.cpus.iter().filter_map(|cpu| cpu.idle_ns).sum();
            assert_eq!((idle - 1, deep - 10), (sum - 100, (sum - 100) / 10));
            sums.push(sum - 100);
        }
        assert_eq!(sums, [0, 50, 50, 50, 70, 80, 80, 90]);
    }
}
