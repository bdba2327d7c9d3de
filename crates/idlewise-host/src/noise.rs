//! What disturbs CPUs: how often they wake from idle, and how busy they are.

use std::time::{Duration, Instant};

use crate::settings::CpuSet;
use crate::{IdleCounters, Root};

/// Counts of some CPUs at one time.
pub struct Noise {
    at: Instant,
    wake_count: u64,
    busy_ticks: u64,
    ticks: u64,
}

/// What happened between two of them.
#[derive(Clone, Copy, Debug)]
pub struct NoiseBetween {
    /// The time between.
    pub elapsed: Duration,
    /// How often these CPUs woke from idle, all together.
    pub wake_count: u64,
    /// The share of time that they were not idle, 0 to 1. `None` if the time is too short for the kernel's count.
    pub busy_ratio: Option<f64>,
}

impl Noise {
    /// Reads the counts of these CPUs. What the machine does not count is 0.
    pub fn read(root: &Root, cpus: &CpuSet) -> Self {
        let (mut busy_ticks, mut ticks) = (0, 0);
        let stat = root.text("proc/stat").unwrap_or_default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            if !cpu.is_some_and(|cpu| cpus.contains(cpu)) {
                continue;
            }
            // user, nice, system, idle, iowait, irq, softirq, steal. Guest time is already in user.
            let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let all: u64 = times.iter().sum();
            ticks += all;
            busy_ticks += all - times.iter().skip(3).take(2).sum::<u64>();
        }
        let counters = IdleCounters::open(root, &cpus.iter().collect::<Vec<_>>());
        let wake_count = counters.entry_counts().iter().sum();
        Noise { at: Instant::now(), wake_count, busy_ticks, ticks }
    }

    /// Returns what happened since an earlier reading. A count that went backwards did not grow.
    pub fn since(&self, before: &Noise) -> NoiseBetween {
        let ticks = self.ticks.saturating_sub(before.ticks);
        let busy_ticks = self.busy_ticks.saturating_sub(before.busy_ticks);
        NoiseBetween {
            elapsed: self.at.saturating_duration_since(before.at),
            wake_count: self.wake_count.saturating_sub(before.wake_count),
            busy_ratio: (ticks > 0).then(|| busy_ticks as f64 / ticks as f64),
        }
    }
}

/// Returns the online CPUs that this process, and what it starts, may run on: its affinity, within its cpuset.
pub fn allowed_cpus(root: &Root) -> CpuSet {
    let status = root.text("proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed: Option<CpuSet> = allowed.and_then(|list| list.trim().parse().ok());
    let is_allowed = |cpu: &u16| allowed.as_ref().is_none_or(|cpus| cpus.contains(*cpu));
    root.online_cpus().into_iter().filter(is_allowed).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn counts_only_the_cpus_asked_for() {
        let usage = "sys/devices/system/cpu/cpu1/cpuidle/state0";
        let (folder, root) = machine(&[
            (
                "proc/stat",
                "cpu  9 9 9 9 9 9 9 9\ncpu0 9 0 0 9\ncpu1 10 0 10 70 10 0 0 0 5 0\ncpu10 1 1 1\n",
            ),
            (&format!("{usage}/name"), "POLL\n"),
            (&format!("{usage}/usage"), "100\n"),
        ]);
        let cpus = "1".parse().unwrap();
        let before = Noise::read(&root, &cpus);
        assert!(before.since(&before).busy_ratio.is_none());
        fs::write(folder.path().join("proc/stat"), "cpu1 20 0 15 75 15 0 0 0 5 0\n").unwrap();
        fs::write(folder.path().join(usage).join("usage"), "142\n").unwrap();
        let between = Noise::read(&root, &cpus).since(&before);
        assert_eq!((between.wake_count, between.busy_ratio), (42, Some(0.6)));
    }

    #[test]
    fn a_cpuset_narrows_the_cpus() {
        let online = ("sys/devices/system/cpu/online", "0-3\n");
        let (_folder, root) =
            machine(&[online, ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t2-9\n")]);
        assert_eq!(allowed_cpus(&root).to_string(), "2-3");
        let (_folder, root) = machine(&[online]);
        assert_eq!(allowed_cpus(&root).to_string(), "0-3");
    }
}
