//! The columns of `idlewise diff`.

use crate::columns::{Column, MACHINE, Priority, Unit};
use crate::replay::LOG;

static A: Column = Column::text("a", "A", "Governor A, named first.").priority(Priority::Key);
static B: Column = Column::text("b", "B", "Governor B, named second.").priority(Priority::Key);
static LAMBDA: Column =
    Column::number("lambda_mw", "λ", Unit::Milliwatts, "The price of delay that costs are at.");
static BY: Column = Column::text(
    "by",
    "by",
    "By what gaps are grouped: `all`, `gap length`, `first states` (A's → B's), `next timer`, \
     `wake reason`, `tick` (whose was stopped before the first decision) or `ran task`.",
)
.priority(Priority::Key);
static GROUP: Column =
    Column::text("group", "group", "Which of these gaps; ranges begin with their first value.")
        .priority(Priority::Key);
static GAP_COUNT: Column = Column::number("gap_count", "gaps", Unit::Count, "Idle gaps.");
static DIFFERING_COUNT: Column = Column::number(
    "differing_count",
    "differ",
    Unit::Count,
    "Those among them that took another course: another first state, number of stays, delay or \
     energy.",
);
static DIFFERING: Column = Column::number(
    "differing_ratio",
    "of these",
    Unit::Ratio,
    "The same as a share of these gaps.",
);
static DIFFERING_SHARE: Column = Column::number(
    "differing_share_ratio",
    "of all that differ",
    Unit::Ratio,
    "The same as a share of all gaps that differ.",
);
static FIRST_STATE_COUNT: Column = Column::number(
    "first_state_count",
    "other first state",
    Unit::Count,
    "Gaps whose first state differs.",
);
static DELAY_A: Column = Column::number(
    "delay_a_ns",
    "delay A",
    Unit::Nanoseconds,
    "Delay of wake events with A in the gaps that differ.",
);
static DELAY_B: Column =
    Column::number("delay_b_ns", "delay B", Unit::Nanoseconds, "The same with B.");
static DELAY_CHANGE: Column =
    Column::number("delay_change_ns", "delay B−A", Unit::Nanoseconds, "B less A.");
static ENERGY_A: Column = Column::number(
    "energy_a_uj",
    "energy A",
    Unit::Microjoules,
    "Energy with A in the gaps that differ: stays, transitions, and running for ticks.",
);
static ENERGY_B: Column =
    Column::number("energy_b_uj", "energy B", Unit::Microjoules, "The same with B.");
static ENERGY_CHANGE: Column =
    Column::number("energy_change_uj", "energy B−A", Unit::Microjoules, "B less A.");
static COST_CHANGE: Column = Column::number(
    "cost_change_uj",
    "cost B−A",
    Unit::Microjoules,
    "Energy and λ × delay, B less A.",
);
static SAVED_COUNT: Column =
    Column::number("saved_count", "gaps saved in", Unit::Count, "Gaps that cost less with B.");
static SAVED: Column = Column::number(
    "saved_uj",
    "B saves",
    Unit::Microjoules,
    "By how much those gaps cost less with B, all together.",
);
static LOST_COUNT: Column =
    Column::number("lost_count", "gaps lost in", Unit::Count, "Gaps that cost more with B.");
static LOST: Column = Column::number(
    "lost_uj",
    "B loses",
    Unit::Microjoules,
    "By how much those gaps cost more with B, all together.",
);

/// The columns of gaps in groups.
pub static GROUPS: [&Column; 23] = [
    &LOG,
    &MACHINE,
    &A,
    &B,
    &LAMBDA,
    &BY,
    &GROUP,
    &GAP_COUNT,
    &DIFFERING_COUNT,
    &DIFFERING,
    &DIFFERING_SHARE,
    &FIRST_STATE_COUNT,
    &DELAY_A,
    &DELAY_B,
    &DELAY_CHANGE,
    &ENERGY_A,
    &ENERGY_B,
    &ENERGY_CHANGE,
    &COST_CHANGE,
    &SAVED_COUNT,
    &SAVED,
    &LOST_COUNT,
    &LOST,
];

static DIRECTION: Column = Column::text(
    "direction",
    "direction",
    "`loses` if the gap cost more with B, `saves` if it cost less.",
)
.priority(Priority::Key);
static RANK: Column =
    Column::number("rank", "#", Unit::Count, "The place among the gaps of its direction, from 1.")
        .priority(Priority::Key);
static CPU: Column = Column::number("cpu", "CPU", Unit::Count, "The CPU.");
static START_NS: Column = Column::number(
    "start_ns",
    "start",
    Unit::Nanoseconds,
    "When the gap began, on the trace's clock.",
);
static START: Column =
    Column::text("start", "start s", "The same in seconds, as `perf script` prints it.");
static GAP: Column = Column::number("gap_ns", "gap", Unit::Nanoseconds, "The gap's length.");
static SLEEP_LENGTH: Column = Column::number(
    "sleep_length_ns",
    "sleep length",
    Unit::Nanoseconds,
    "From its start to the next timer that was known then.",
);
static NEXT_TICK: Column = Column::number(
    "next_tick_ns",
    "next tick",
    Unit::Nanoseconds,
    "From its start to the next boundary of the tick grid.",
);
static TICK: Column = Column::text(
    "tick",
    "tick",
    "The tick before the first decisions: `runs`, `stopped`, `A stopped` (only A's) or `B stopped`.",
);
static RAN_TASK: Column = Column::text(
    "ran_task",
    "ran task",
    "Whether a task ran since the gap before: `yes` or `no`; `yes or unknown` if a log does not say.",
);
static WAKE_REASON: Column = Column::text("wake_reason", "wake reason", "What ended the gap.");
static LATENCY_LIMIT: Column = Column::number(
    "latency_limit_ns",
    "latency limit",
    Unit::Nanoseconds,
    "The log's latency limit.",
)
.priority(Priority::Detail);
static STATES: Column = Column::text("states", "A → B", "First states.").priority(Priority::Key);
static STATE_A: Column = Column::text("state_a", "state A", "A's first state.");
static STATE_B: Column = Column::text("state_b", "state B", "B's first state.");
static STAYS_A: Column =
    Column::number("stays_a_count", "stays A", Unit::Count, "A's stays in the gap.");
static STAYS_B: Column =
    Column::number("stays_b_count", "stays B", Unit::Count, "B's stays in the gap.");
static GAP_DELAY_A: Column = Column::number(
    "delay_a_ns",
    "delay A",
    Unit::Nanoseconds,
    "By how much the wake event was delayed with A.",
);
static GAP_ENERGY_A: Column =
    Column::number("energy_a_uj", "energy A", Unit::Microjoules, "Energy of the gap with A.");
static BEFORE: Column = Column::text(
    "before",
    "gaps before it, newest first, us",
    "Lengths of the up to eight gaps before it on this CPU.",
);

/// The columns of the dearest gaps.
pub static COSTLY: [&Column; 25] = [
    &LOG,
    &MACHINE,
    &A,
    &B,
    &LAMBDA,
    &DIRECTION,
    &RANK,
    &CPU,
    &START_NS,
    &GAP,
    &SLEEP_LENGTH,
    &NEXT_TICK,
    &TICK,
    &RAN_TASK,
    &WAKE_REASON,
    &LATENCY_LIMIT,
    &STATE_A,
    &STATE_B,
    &STAYS_A,
    &STAYS_B,
    &GAP_DELAY_A,
    &DELAY_B,
    &GAP_ENERGY_A,
    &ENERGY_B,
    &COST_CHANGE,
];

/// What text shows of gaps in groups; the title says the rest.
pub(super) static GROUPS_SHOWN: [&Column; 9] = [
    &GROUP,
    &GAP_COUNT,
    &DIFFERING_COUNT,
    &DIFFERING,
    &DELAY_CHANGE,
    &ENERGY_CHANGE,
    &COST_CHANGE,
    &SAVED,
    &LOST,
];

/// What text shows of the dearest gaps: what they cost.
pub(super) static COSTLY_SHOWN: [&Column; 11] = [
    &RANK,
    &LOG,
    &CPU,
    &START,
    &GAP,
    &STATES,
    &GAP_DELAY_A,
    &DELAY_B,
    &GAP_ENERGY_A,
    &ENERGY_B,
    &COST_CHANGE,
];

/// And what led to them.
pub(super) static BEFORE_SHOWN: [&Column; 10] = [
    &RANK,
    &SLEEP_LENGTH,
    &NEXT_TICK,
    &TICK,
    &RAN_TASK,
    &WAKE_REASON,
    &LATENCY_LIMIT,
    &STAYS_A,
    &STAYS_B,
    &BEFORE,
];
