//! The clocks of the kernel's tracer (Documentation/trace/ftrace.rst, `trace_clock`), and how well
//! each suits idle times.

use crate::byte_order::ByteOrder;

/// How to convert a clock's values to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CycleScale {
    multiplier: u32,
    shift: u32,
}

impl CycleScale {
    /// Parses the recorder's option: factor, shift, and an offset to perf's clock (not used).
    pub(super) fn parse(option: &[u8], order: ByteOrder) -> Option<Self> {
        let scale = Self { multiplier: order.u32_at(option, 0)?, shift: order.u32_at(option, 4)? };
        (scale.multiplier != 0 && scale.shift < u64::BITS).then_some(scale)
    }

    /// Returns `None` on overflow.
    pub(super) fn to_ns(self, cycles: u64) -> Option<u64> {
        u64::try_from((u128::from(cycles) * u128::from(self.multiplier)) >> self.shift).ok()
    }
}

/// How usable a recording with some clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Fully usable.
    Good,
    /// Usable, with this doubt.
    Doubtful(&'static str),
    /// Counts cycles. Usable if the recorder noted how long a cycle is, with this doubt.
    Cycles(&'static str),
    /// Unusable, for this reason.
    None(&'static str),
}

/// The clock in brackets in a kernel's list of clocks. A text without a list is returned whole.
pub(super) fn chosen(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let name = match text.split_once('[') {
        Some((_, rest)) => rest.split_once(']')?.0,
        None if text.contains(char::is_whitespace) => return None,
        None => text,
    };
    (!name.is_empty()).then(|| name.to_owned())
}

/// How usable a clock is. `None` stands for the clock of a file that does not name it.
pub(super) fn worth(clock: Option<&str>) -> Use {
    match clock {
        Some("mono") => Use::Good,
        Some("mono_raw" | "boot" | "tai") => {
            Use::Doubtful("not the timers' own, so that where their expiries are is estimated")
        }
        Some("global" | "perf") => Use::Doubtful(
            "the scheduler's, which does not run at the timers' rate, so that next timers drift",
        ),
        None | Some("local") => Use::Doubtful(
            "each CPU's own and the scheduler's, so that CPUs differ by some microseconds and next \
             timers drift",
        ),
        Some("x86-tsc" | "tsc2nsec") => Use::Cycles(
            "the processor's, which does not run at the timers' rate, so that next timers drift",
        ),
        Some("counter") => Use::None("counts events, not time"),
        Some("uptime") => Use::None("is as coarse as the tick"),
        Some("ppc-tb" | "s390-tod") => Use::None("does not count nanoseconds"),
        Some(_) => Use::Doubtful("one that we don't know, and taken to count nanoseconds"),
    }
}

/// The name of a clock in the log: the POSIX name if there is one.
pub(super) fn log_name(clock: &str) -> String {
    let posix = match clock {
        "mono" => "CLOCK_MONOTONIC",
        "mono_raw" => "CLOCK_MONOTONIC_RAW",
        "boot" => "CLOCK_BOOTTIME",
        "tai" => "CLOCK_TAI",
        other => other,
    };
    posix.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_in_brackets_is_the_one() {
        assert_eq!(chosen(b"local global [mono] boot\n\0").as_deref(), Some("mono"));
        assert_eq!(chosen(b"[x86-tsc]").as_deref(), Some("x86-tsc"));
        assert_eq!(chosen(b"mono").as_deref(), Some("mono"));
        for none in [&b""[..], b"\0", b"local global", b"local [mono"] {
            assert_eq!(chosen(none), None);
        }
    }

    #[test]
    fn cycles_are_scaled_without_overflow() {
        let option = |multiplier: u32, shift: u32| {
            let words = [multiplier.to_le_bytes(), shift.to_le_bytes()].concat();
            CycleScale::parse(&[words, vec![0; 8]].concat(), ByteOrder::Little)
        };
        // 2.5 GHz: four nanoseconds are ten cycles.
        let scale = option(429_496_730, 30).unwrap();
        assert_eq!(scale.to_ns(10_000_000_000_000), Some(4_000_000_003_725));
        assert_eq!(option(u32::MAX, 0).unwrap().to_ns(u64::MAX), None);
        assert_eq!(option(0, 1), None);
        assert_eq!(option(1, 64), None);
    }
}
