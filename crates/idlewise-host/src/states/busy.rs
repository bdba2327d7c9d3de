//! How busy CPUs are, by the kernel's own account (`/proc/stat`).

use crate::Root;

/// Time that each CPU has been busy and in all, since boot.
#[derive(Clone, Debug)]
pub struct CpuTimes(Vec<(u16, Ticks)>);

#[derive(Clone, Copy, Debug)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl CpuTimes {
    /// Reads all CPUs; `None` if the machine does not show them.
    pub fn read(root: &Root) -> Option<Self> {
        let text = root.text("proc/stat")?;
        let cpus: Vec<_> = text.lines().filter_map(line).collect();
        (!cpus.is_empty()).then_some(CpuTimes(cpus))
    }

    /// Returns the share of time since `before` in which a CPU was busy; `None` if no time passed.
    pub fn busy_ratio(&self, before: &CpuTimes, cpu: u16) -> Option<f64> {
        let of = |times: &CpuTimes| {
            times.0.iter().find(|(known, _)| *known == cpu).map(|(_, ticks)| *ticks)
        };
        let (now, before) = (of(self)?, of(before)?);
        let all = now.all.checked_sub(before.all).filter(|&all| all > 0)?;
        Some(now.busy.saturating_sub(before.busy) as f64 / all as f64)
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal …`: all but idle and iowait is busy.
fn line(line: &str) -> Option<(u16, Ticks)> {
    let (name, rest) = line.split_once(' ')?;
    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
    // Guests' time is in user time too.
    let ticks: Vec<u64> =
        rest.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Some((cpu, Ticks { busy: all - idle, all }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn busy_is_all_but_idle_and_waiting_for_disks() {
        let times = |stat: &str| CpuTimes::read(&machine(&[("proc/stat", stat)]).1);
        let before = times(
            "cpu  9 9\ncpu0 100 0 50 1000 10 5 5 0 100 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n",
        )
        .unwrap();
        let after =
            times("cpu  9 9\ncpu0 120 0 60 1060 20 5 5 0 120 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n")
                .unwrap();
        assert_eq!(after.busy_ratio(&before, 0), Some(0.3));
        assert_eq!(after.busy_ratio(&before, 1), None);
        assert_eq!(after.busy_ratio(&before, 2), None);
        assert!(times("intr 5\n").is_none());
    }
}
