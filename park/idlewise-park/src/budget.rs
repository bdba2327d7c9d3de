//! How much CPU time waiting may burn beyond what sleeping would have cost.
//!
//! A poll that takes less CPU time than the sleep it saved is free. Anything beyond that is charged. By
//! default a thread may spend **a quarter of a CPU** that way ([`CPU_BUDGET_DEFAULT_PERMILLE`]). A server
//! with short gaps then keeps the median latency that polling gives it. A process whose gaps last 50 µs
//! uses a quarter of a CPU more than one that sleeps, not a whole one. Under a cgroup quota (`cpu.max`)
//! polling takes time from the work, and the process is stopped when the quota is used up. The budget is
//! then **a tenth** of a CPU, or a tenth of the quota if that is below one CPU.
//!
//! The share is one thread's, of elapsed time. No more threads poll at once than there are CPUs
//! (`load.rs`), so the process uses no larger share of its CPUs.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that sets the default budget, in thousandths of a CPU.
/// `IDLEWISE_PARK_BUDGET=1000` lets threads poll as long as that pays, 0 makes them sleep.
pub const CPU_BUDGET_VARIABLE: &str = "IDLEWISE_PARK_BUDGET";
/// A thread's default budget, in thousandths of a CPU.
pub const CPU_BUDGET_DEFAULT_PERMILLE: u32 = 250;
/// The default budget where a quota limits the process's CPU time.
pub const CPU_BUDGET_QUOTA_PERMILLE: u32 = 100;

/// No budget was set.
const UNSET: u32 = u32::MAX;
static SET_PERMILLE: AtomicU32 = AtomicU32::new(UNSET);

/// Sets the default budget, in thousandths of a CPU, of threads that have not waited yet. Parkers with a
/// budget of their own ([`crate::ParkerBuilder::cpu_budget_permille`]) are not affected. This takes
/// precedence over [`CPU_BUDGET_VARIABLE`].
pub fn set_cpu_budget_permille(share_permille: u32) {
    SET_PERMILLE.store(share_permille.min(UNSET - 1), Ordering::Relaxed);
}

/// Returns the budget, in thousandths of a CPU, that a thread gets when it first waits: that of
/// [`set_cpu_budget_permille`], else of [`CPU_BUDGET_VARIABLE`], else [`CPU_BUDGET_DEFAULT_PERMILLE`], or
/// less where a quota limits the process.
pub fn cpu_budget_permille() -> u32 {
    static FROM_OUTSIDE: OnceLock<u32> = OnceLock::new();
    match SET_PERMILLE.load(Ordering::Relaxed) {
        UNSET => *FROM_OUTSIDE.get_or_init(|| {
            let named = std::env::var(CPU_BUDGET_VARIABLE).ok();
            named.and_then(|text| text.parse().ok()).unwrap_or(share_permille(quota_permille()))
        }),
        share_permille => share_permille,
    }
}

/// The default budget under this quota.
fn share_permille(quota_permille: Option<u64>) -> u32 {
    match quota_permille {
        None => CPU_BUDGET_DEFAULT_PERMILLE,
        Some(quota) => CPU_BUDGET_QUOTA_PERMILLE * quota.min(1000) as u32 / 1000,
    }
}

/// The process's quota in thousandths of a CPU, read once; `None` if it has none.
pub(crate) fn quota_permille() -> Option<u64> {
    static QUOTA: OnceLock<Option<u64>> = OnceLock::new();
    *QUOTA.get_or_init(|| if cfg!(miri) { None } else { read_quota_permille(Path::new("/")) })
}

/// The tightest quota of the process's cgroup and its ancestors, in cgroups of either version.
fn read_quota_permille(root: &Path) -> Option<u64> {
    let cgroups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut quotas = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|controller| controller == "cpu") {
            continue;
        }
        let mounts: &[&str] = if is_v2 { &["", "unified"] } else { &["cpu", "cpu,cpuacct"] };
        for mount in mounts {
            let top = root.join("sys/fs/cgroup").join(mount);
            // A container may see its own group as the root, whatever the path says.
            let mut group = top.join(path.trim_start_matches('/'));
            while group.starts_with(&top) {
                quotas.extend(if is_v2 { quota_v2(&group) } else { quota_v1(&group) });
                if !group.pop() {
                    break;
                }
            }
        }
    }
    quotas.into_iter().min()
}

fn quota_v2(group: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    // "max" means no quota.
    let quota_us = words.next()?.parse::<u64>().ok()?;
    let period_us = words.next()?.parse::<u64>().ok()?;
    quota_us.checked_mul(1000)?.checked_div(period_us)
}

fn quota_v1(group: &Path) -> Option<u64> {
    let read = |name| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<i64>().ok();
    // -1 means no quota.
    let quota_us = u64::try_from(read("cpu.cfs_quota_us")?).ok()?;
    let period_us = u64::try_from(read("cpu.cfs_period_us")?).ok()?;
    quota_us.checked_mul(1000)?.checked_div(period_us)
}

/// The part of elapsed time that polling may burn.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    share_permille: u64,
    /// Negative after a poll that outlasted the balance.
    saved_ns: i64,
    at_ns: u64,
}

/// The most that can be saved up: enough for a burst of polling, not for a minute of it.
const SAVED_MAX_NS: i64 = 10_000_000;
/// The initial balance.
const SAVED_FIRST_NS: i64 = SAVED_MAX_NS / 10;

impl Budget {
    pub(crate) fn new(share_permille: u32, now_ns: u64) -> Self {
        Budget { share_permille: share_permille.into(), saved_ns: SAVED_FIRST_NS, at_ns: now_ns }
    }

    /// How much of a time span may be burnt, on average.
    pub(crate) fn share_of_ns(&self, span_ns: u64) -> u64 {
        if self.share_permille >= 1000 {
            return u64::MAX;
        }
        span_ns.saturating_mul(self.share_permille) / 1000
    }

    /// Whether the balance allows polling.
    pub(crate) fn may_poll(&mut self, now_ns: u64) -> bool {
        // Fractions of a nanosecond are left for the next call.
        let earned_ns =
            now_ns.saturating_sub(self.at_ns).saturating_mul(self.share_permille) / 1000;
        if earned_ns > 0 || now_ns < self.at_ns {
            self.at_ns = now_ns;
        }
        let earned_ns = i64::try_from(earned_ns).unwrap_or(i64::MAX);
        self.saved_ns = self.saved_ns.saturating_add(earned_ns).min(SAVED_MAX_NS);
        self.saved_ns > 0 && self.share_permille > 0
    }

    /// Charges burnt time.
    pub(crate) fn burnt(&mut self, burnt_ns: u64) {
        let burnt_ns = i64::try_from(burnt_ns).unwrap_or(i64::MAX);
        self.saved_ns = self.saved_ns.saturating_sub(burnt_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_share_of_time() {
        // Waits of 100 µs. Each is polled to its end if it polls at all.
        let wait_count = if cfg!(miri) { 1_000 } else { 100_000 };
        for share_permille in [0, 1, 10, 100, 500] {
            let mut budget = Budget::new(share_permille, 0);
            let (mut now_ns, mut polled_ns) = (0, 0);
            for _ in 0..wait_count {
                let does_poll = budget.may_poll(now_ns);
                now_ns += 100_000;
                if does_poll {
                    polled_ns += 100_000;
                    budget.burnt(100_000);
                }
            }
            let share_ns = now_ns / 1000 * u64::from(share_permille);
            let most_ns = share_ns + SAVED_FIRST_NS as u64 + 100_000;
            assert!((share_ns..=most_ns).contains(&polled_ns), "{share_permille}: {polled_ns}");
        }
        // An hour asleep saves up one burst and no more.
        let mut budget = Budget::new(1000, 0);
        assert!(budget.may_poll(3_600_000_000_000));
        assert_eq!(budget.saved_ns, SAVED_MAX_NS);
        assert!(!Budget::new(0, 0).may_poll(u64::MAX), "none is none");
        assert_eq!(budget.share_of_ns(5), u64::MAX, "all is as much as pays");
        assert_eq!(Budget::new(250, 0).share_of_ns(40_000), 10_000);
    }

    #[test]
    fn a_quota_is_not_polled_away() {
        assert_eq!(share_permille(None), 250);
        assert_eq!(share_permille(Some(8_000)), 100);
        assert_eq!(share_permille(Some(500)), 50);
        assert_eq!(share_permille(Some(0)), 0);
    }

    #[test]
    fn reads_the_tightest_quota() {
        let root = std::env::temp_dir().join(format!("idlewise-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(read_quota_permille(&root), None, "no such files");
        write("proc/self/cgroup", "0::/pods/pod7/web\n");
        write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
        write("sys/fs/cgroup/pods/pod7/web/cpu.max", "max 100000\n");
        assert_eq!(read_quota_permille(&root), None);
        write("sys/fs/cgroup/pods/pod7/cpu.max", "250000 100000\n");
        assert_eq!(read_quota_permille(&root), Some(2_500));
        write("sys/fs/cgroup/pods/cpu.max", "50000 100000\n");
        assert_eq!(read_quota_permille(&root), Some(500), "the one above");
        // Version 1, in a container that sees its own group as the root.
        write("proc/self/cgroup", "5:cpu,cpuacct:/docker/0123\n2:memory:/docker/0123\n");
        assert_eq!(read_quota_permille(&root), None);
        write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(read_quota_permille(&root), None);
        write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
        assert_eq!(read_quota_permille(&root), Some(1_500));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
