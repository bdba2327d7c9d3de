//! The idle gap: one row of the idle log.

use idlewise_core::words;
use std::fmt;

/// The time from when a CPU went idle until the first event that would have ended the idle period
/// whatever the governor had done. Wake-ups by the tick alone are inside a gap, not its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleGap {
    /// The CPU.
    pub cpu: u16,
    /// When the CPU went idle, on the trace's clock.
    pub start_ns: i64,
    /// From the start to the wake event, a timer's expiry or an interrupt's arrival, without the
    /// exit.
    pub gap_ns: u64,
    /// From the start to the next timer that was armed at that moment, not counting the tick.
    /// `None` if no timer was known.
    pub sleep_length_ns: Option<u64>,
    /// From the start to the next boundary of the CPU's tick grid, whether or not the tick ran.
    pub next_tick_ns: Option<u32>,
    /// Whether the recording kernel had stopped the tick before it decided.
    pub tick_stopped: bool,
    /// Whether something other than the idle task ran since the previous gap. Only then does the
    /// kernel restart the tick.
    pub ran_task: bool,
    /// What ended the gap.
    pub wake_reason: WakeReason,
    /// The PM QoS limit in force; `None` if unknown or unlimited.
    pub latency_limit_ns: Option<u64>,
    /// The state that the recording kernel entered first.
    pub recorded_state: Option<u8>,
    /// How long the kernel stayed idle, all stays of the gap together. Exit latencies are included
    /// where the recording includes them.
    pub recorded_idle_ns: Option<u64>,
}

/// The longest possible gap: 2^53 ns, which is 104 days. No recording is that long; a longer gap
/// means that the clock jumped.
pub(crate) const GAP_MAX_NS: u64 = 1 << 53;

impl IdleGap {
    /// Returns the first column with a value that is impossible for a gap. The builder drops such
    /// gaps, the log's reader rejects a length that is too long, and `log validate` checks all columns.
    pub fn impossible_column(&self) -> Option<&'static str> {
        let is_time = |ns: Option<u64>| ns.is_none_or(|ns| i64::try_from(ns).is_ok());
        let ends_in_range = self.start_ns.checked_add_unsigned(self.gap_ns).is_some();
        [
            ("gap_ns", self.gap_ns <= GAP_MAX_NS && ends_in_range),
            ("sleep_length_ns", is_time(self.sleep_length_ns)),
            ("next_tick_ns", self.next_tick_ns != Some(0)),
            ("latency_limit_ns", is_time(self.latency_limit_ns)),
            ("recorded_idle_ns", is_time(self.recorded_idle_ns)),
        ]
        .into_iter()
        .find_map(|(column, is_possible)| (!is_possible).then_some(column))
    }

    /// Returns whether a timer that was known at the beginning ended the gap. This confirms that
    /// the timer was rebuilt correctly. Otherwise, if a timer ended the gap, it was armed within
    /// the gap, by an interrupt or by another CPU, or the trace does not show its start.
    pub fn ended_by_known_timer(&self) -> bool {
        self.wake_reason == WakeReason::Timer && self.sleep_length_ns == Some(self.gap_ns)
    }
}

words! {
    name;
    /// What ended a gap.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum WakeReason {
        /// A timer other than the tick. The gap ends exactly at its expiry.
        Timer = "timer",
        /// An inter-processor interrupt with work (function call, irq_work).
        Ipi = "ipi",
        /// A request to reschedule, by interrupt or by a write that the idle CPU was polling for.
        Resched = "resched",
        /// A device interrupt.
        Irq = "irq",
        /// Deferred work, such as a task that the tick's softirq made runnable.
        Softirq = "softirq",
        /// The trace does not tell.
        #[default]
        Unknown = "unknown",
    }
}

impl WakeReason {
    /// The index of the reason with that name in [`WakeReason::ALL`], or -1 if there is none.
    pub(crate) fn number_of(name: &[u8]) -> i32 {
        let place = Self::ALL.iter().position(|reason| reason.name().as_bytes() == name);
        place.map_or(-1, |place| place as i32)
    }

    /// Returns the reason at that index.
    #[inline]
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for WakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
