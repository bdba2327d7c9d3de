//! Describes the columns of `idlewise log export`, which are those of the idle log.
//! `idlewise_trace::export` writes them.

use crate::columns::{Heading, Unit};

/// Returns the columns of `csv` and `arrow` exports. The last two exist for each governor.
pub fn headings() -> Vec<Heading> {
    vec![
        Heading::number("cpu", "", Unit::Count, "The CPU."),
        Heading::number(
            "start_ns",
            "",
            Unit::Nanoseconds,
            "When the CPU went idle, on the trace's clock; may be negative.",
        ),
        Heading::number(
            "gap_ns",
            "",
            Unit::Nanoseconds,
            "From there to the first event that would have ended the gap whatever the governor \
             did.",
        ),
        Heading::number(
            "sleep_length_ns",
            "",
            Unit::Nanoseconds,
            "From the start to the next timer known at that moment that would wake this CPU, the tick excluded.",
        ),
        Heading::number(
            "next_tick_ns",
            "",
            Unit::Nanoseconds,
            "From the start to the next boundary of the CPU's tick grid.",
        ),
        Heading::text(
            "tick_stopped",
            "",
            "true or false: the recording kernel had stopped the tick before it decided; nothing \
             if unknown.",
        ),
        Heading::text(
            "ran_task",
            "",
            "true or false: something ran since the previous gap; nothing if unknown.",
        ),
        Heading::text(
            "wake_reason",
            "",
            "What ended the gap: timer, ipi, resched, irq, softirq or unknown.",
        ),
        Heading::number(
            "latency_limit_ns",
            "",
            Unit::Nanoseconds,
            "The PM QoS limit in force; absent if unknown or unlimited.",
        ),
        Heading::number(
            "recorded_state",
            "",
            Unit::Count,
            "Index of the state that the recording kernel entered first.",
        ),
        Heading::number(
            "recorded_idle_ns",
            "",
            Unit::Nanoseconds,
            "How long the recording kernel says it stayed idle, all stays of the gap together.",
        ),
        Heading::number(
            "GOVERNOR_state",
            "",
            Unit::Count,
            "One column for each --governor: index of the state that it selects first in the gap.",
        ),
        Heading::text(
            "GOVERNOR_verdict",
            "",
            "Whether that stay was fit, too_deep or too_shallow.",
        ),
    ]
}
