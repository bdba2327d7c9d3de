//! Latency limits as PM QoS combines them (`drivers/cpuidle/governor.c`,
//! `Documentation/power/pm_qos_interface.rst`).

/// The limit when nobody asked for one: 2,000 s, as `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.
pub const NO_LATENCY_LIMIT_NS: i64 = 2_000_000_000_000;

/// The two requests that bound a CPU's exit latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyLimit {
    /// The tightest request on `/dev/cpu_dma_latency`, if any.
    pub system_ns: Option<u64>,
    /// The CPU's own request.
    pub cpu: CpuLatencyLimit,
}

/// A CPU's `power/pm_qos_resume_latency_us` in sysfs, whose spelling is a trap: `0` there means
/// "no limit" and `n/a` means "no latency at all".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLatencyLimit {
    /// `0` in sysfs.
    #[default]
    None,
    /// `n/a` in sysfs: only a state without exit latency will do.
    Zero,
    /// Any other number, here in nanoseconds.
    AtMost(u64),
}

impl LatencyLimit {
    /// The limit a governor sees: the tighter of both.
    pub fn effective_ns(self) -> i64 {
        let cap = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX).min(NO_LATENCY_LIMIT_NS);
        let system_ns = self.system_ns.map_or(NO_LATENCY_LIMIT_NS, cap);
        let cpu_ns = match self.cpu {
            CpuLatencyLimit::None => NO_LATENCY_LIMIT_NS,
            CpuLatencyLimit::Zero => 0,
            CpuLatencyLimit::AtMost(ns) => cap(ns),
        };
        system_ns.min(cpu_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_tighter_of_both_requests() {
        let limit = |system_ns, cpu| LatencyLimit { system_ns, cpu }.effective_ns();
        assert_eq!(limit(None, CpuLatencyLimit::None), NO_LATENCY_LIMIT_NS);
        assert_eq!(limit(Some(30_000), CpuLatencyLimit::AtMost(70_000)), 30_000);
        assert_eq!(limit(Some(30_000), CpuLatencyLimit::AtMost(7_000)), 7_000);
        assert_eq!(limit(Some(u64::MAX), CpuLatencyLimit::None), NO_LATENCY_LIMIT_NS);
    }

    #[test]
    fn tells_no_limit_from_no_latency() {
        let limit = LatencyLimit { system_ns: Some(5_000), cpu: CpuLatencyLimit::Zero };
        assert_eq!(limit.effective_ns(), 0);
    }
}
