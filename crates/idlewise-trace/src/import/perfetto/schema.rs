//! The published messages that we read, by field number (Perfetto's protos/perfetto/trace).

use crate::tracepoint::FieldName;

/// `TracePacket`.
pub(super) mod packet {
    pub(crate) const FTRACE_EVENTS: u32 = 1;
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const FTRACE_STATS: u32 = 34;
    pub(crate) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(crate) const SYSTEM_INFO: u32 = 45;
    pub(crate) const ZLIB_PACKETS: u32 = 50;
    pub(crate) const MACHINE_ID: u32 = 98;
    pub(crate) const ZSTD_PACKETS: u32 = 133;
}

/// `FtraceEventBundle`, with its compact scheduling events and its descriptions of events.
pub(super) mod bundle {
    pub(crate) const CPU: u32 = 1;
    pub(crate) const EVENT: u32 = 2;
    pub(crate) const LOST_EVENTS: u32 = 3;
    pub(crate) const COMPACT_SCHED: u32 = 4;
    pub(crate) const FTRACE_CLOCK: u32 = 5;
    pub(crate) const FTRACE_TIMESTAMP: u32 = 6;
    pub(crate) const BOOT_TIMESTAMP: u32 = 7;
    pub(crate) const GENERIC_EVENT_DESCRIPTORS: u32 = 11;

    pub(crate) const SWITCH_TIMESTAMP: u32 = 1;
    pub(crate) const SWITCH_PREV_STATE: u32 = 2;
    pub(crate) const SWITCH_NEXT_PID: u32 = 3;
    pub(crate) const NAMES: u32 = 5;
    pub(crate) const SWITCH_NEXT_NAME: u32 = 6;
    pub(crate) const WAKING_TIMESTAMP: u32 = 7;
    pub(crate) const WAKING_PID: u32 = 8;
    pub(crate) const WAKING_FLAGS: u32 = 12;

    pub(crate) const DESCRIPTOR_FIELD_ID: u32 = 1;
    pub(crate) const DESCRIPTOR: u32 = 2;
}

/// `FtraceEvent` and `GenericFtraceEvent`.
pub(super) mod event {
    pub(crate) const TIMESTAMP: u32 = 1;
    pub(crate) const GENERIC: u32 = 327;

    pub(crate) const GENERIC_NAME: u32 = 1;
    pub(crate) const GENERIC_FIELD: u32 = 2;
    pub(crate) const GENERIC_FIELD_NAME: u32 = 1;
    pub(crate) const GENERIC_FIELD_STRING: u32 = 3;
}

/// An event that has its own message type.
pub(super) struct Typed {
    /// Its field in `FtraceEvent`.
    pub(super) number: u32,
    pub(super) name: &'static str,
    /// The integer fields that we read.
    pub(super) fields: &'static [(u32, FieldName)],
    /// The field with an interrupt's name or an IPI's reason.
    pub(super) name_field: Option<u32>,
}

const fn row(number: u32, name: &'static str, fields: &'static [(u32, FieldName)]) -> Typed {
    Typed { number, name, fields, name_field: None }
}

/// Every event with its own message type that we read.
pub(super) const TYPED: &[Typed] = &[
    Typed {
        number: 4,
        name: "sched_switch",
        fields: &[(2, FieldName::PrevPid), (4, FieldName::PrevState), (6, FieldName::NextPid)],
        name_field: Some(5),
    },
    row(11, "cpu_frequency", &[(1, FieldName::State), (2, FieldName::CpuId)]),
    row(13, "cpu_idle", &[(1, FieldName::State), (2, FieldName::CpuId)]),
    row(17, "sched_wakeup", &[(5, FieldName::TargetCpu)]),
    row(20, "sched_waking", &[(2, FieldName::Pid)]),
    Typed { number: 21, name: "ipi_entry", fields: &[], name_field: Some(1) },
    row(24, "softirq_entry", &[(1, FieldName::Vec)]),
    row(25, "softirq_exit", &[]),
    Typed { number: 36, name: "irq_handler_entry", fields: &[], name_field: Some(2) },
    row(37, "irq_handler_exit", &[]),
    row(114, "sched_wakeup_new", &[(2, FieldName::Pid), (5, FieldName::TargetCpu)]),
    row(
        551,
        "hrtimer_start",
        &[
            (1, FieldName::Hrtimer),
            (2, FieldName::Function),
            (3, FieldName::Expires),
            (4, FieldName::SoftExpires),
        ],
    ),
    row(552, "hrtimer_cancel", &[(1, FieldName::Hrtimer)]),
    row(
        553,
        "hrtimer_expire_entry",
        &[(1, FieldName::Hrtimer), (2, FieldName::Now), (3, FieldName::Function)],
    ),
    row(
        555,
        "timer_start",
        &[
            (1, FieldName::Timer),
            (2, FieldName::Function),
            (3, FieldName::Expires),
            (4, FieldName::Now),
            (5, FieldName::Deferrable),
            (6, FieldName::Flags),
            (7, FieldName::BucketExpiry),
        ],
    ),
    row(556, "timer_cancel", &[(1, FieldName::Timer)]),
    row(557, "timer_expire_entry", &[(1, FieldName::Timer), (2, FieldName::Now)]),
    row(559, "local_timer_entry", &[]),
];

/// `ClockSnapshot`, and the clocks in it.
pub(super) mod clock {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const CLOCK_ID: u32 = 1;
    pub(crate) const TIMESTAMP: u32 = 2;
    pub(crate) const MONOTONIC: u64 = 3;
    pub(crate) const BOOTTIME: u64 = 6;
}

/// `FtraceStats` and `FtraceCpuStats`.
pub(super) mod stats {
    pub(crate) const PHASE: u32 = 1;
    pub(crate) const CPU_STATS: u32 = 2;
    pub(crate) const END_OF_TRACE: u64 = 2;
    pub(crate) const CPU: u32 = 1;
    pub(crate) const OVERRUN: u32 = 3;
    pub(crate) const DROPPED_EVENTS: u32 = 8;
}

/// `SystemInfo` and `Utsname`.
pub(super) mod system {
    pub(crate) const UTSNAME: u32 = 1;
    pub(crate) const CPU_COUNT: u32 = 8;
    pub(crate) const RELEASE: u32 = 3;
    pub(crate) const MACHINE: u32 = 4;
}
