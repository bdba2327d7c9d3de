//! The columns of `idlewise export`, which are those of the idle log. They are written by
//! `idlewise_trace::export`; here they are explained.

use crate::columns::{Column, Unit};

static CPU: Column = Column::number("cpu", "", Unit::Count, "The CPU.");
static START: Column = Column::number(
    "start_ns",
    "",
    Unit::Nanoseconds,
    "When the CPU went idle, on the trace's clock; may be negative.",
);
static GAP: Column = Column::number(
    "gap_ns",
    "",
    Unit::Nanoseconds,
    "From there to the event that would have ended the gap whatever the governor had done.",
);
static SLEEP_LENGTH: Column = Column::number(
    "sleep_length_ns",
    "",
    Unit::Nanoseconds,
    "From the start to the next timer known at that moment, the tick excluded.",
);
static NEXT_TICK: Column = Column::number(
    "next_tick_ns",
    "",
    Unit::Nanoseconds,
    "From the start to the next boundary of the CPU's tick grid.",
);
static TICK_STOPPED: Column = Column::text(
    "tick_stopped",
    "",
    "true or false: the recording kernel had stopped the tick before it decided; nothing if unknown.",
);
static RAN_TASK: Column = Column::text(
    "ran_task",
    "",
    "true or false: something ran since the previous gap; nothing if unknown.",
);
static WAKE_REASON: Column = Column::text(
    "wake_reason",
    "",
    "What ended the gap: timer, ipi, resched, irq, softirq or unknown.",
);
static LATENCY_LIMIT: Column = Column::number(
    "latency_limit_ns",
    "",
    Unit::Nanoseconds,
    "The PM QoS limit in force; absent if unknown or unlimited.",
);
static RECORDED_STATE: Column = Column::number(
    "recorded_state",
    "",
    Unit::Count,
    "Index of the state that the recording kernel entered first.",
);
static RECORDED_IDLE: Column = Column::number(
    "recorded_idle_ns",
    "",
    Unit::Nanoseconds,
    "How long it says it stayed idle, all stays of the gap together.",
);
static GOVERNOR_STATE: Column = Column::number(
    "GOVERNOR_state",
    "",
    Unit::Count,
    "For each --governor, named as it: index of the state that it selects first in the gap.",
);
static GOVERNOR_VERDICT: Column =
    Column::text("GOVERNOR_verdict", "", "Whether that stay was fit, too_deep or too_shallow.");

/// The columns of `idlewise export --format csv` and `arrow`; the last two for each governor.
pub static EXPORT: [&Column; 13] = [
    &CPU,
    &START,
    &GAP,
    &SLEEP_LENGTH,
    &NEXT_TICK,
    &TICK_STOPPED,
    &RAN_TASK,
    &WAKE_REASON,
    &LATENCY_LIMIT,
    &RECORDED_STATE,
    &RECORDED_IDLE,
    &GOVERNOR_STATE,
    &GOVERNOR_VERDICT,
];
