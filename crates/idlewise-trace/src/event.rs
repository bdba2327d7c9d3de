//! What importers hand to the gap builder: kernel events, stripped of the format they came in.

/// One event of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the trace's clock.
    pub at_ns: i64,
    /// The CPU it happened on.
    pub cpu: u16,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. A `timer` is the address of the kernel's object: an identity, nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `power:cpu_idle` with a state: the CPU goes idle.
    IdleEntry {
        /// The state's index as the trace gives it; unchecked.
        state: u32,
    },
    /// `power:cpu_idle` with state 4294967295: the CPU runs again.
    IdleExit,
    /// `timer:hrtimer_start`.
    HrtimerStart {
        /// The timer.
        timer: u64,
        /// Its callback's address (or a hash of its name where the trace has only names).
        function: u64,
        /// The hard expiry, on the kernel's monotonic clock.
        expires_at_ns: i64,
        /// Whether the soft expiry is earlier than the hard one.
        has_slack: bool,
    },
    /// `timer:hrtimer_cancel`.
    HrtimerCancel {
        /// The timer.
        timer: u64,
    },
    /// `timer:hrtimer_expire_entry`.
    HrtimerExpire {
        /// The timer.
        timer: u64,
        /// Its callback's address.
        function: u64,
        /// The clock as the interrupt read it, monotonic.
        now_ns: i64,
    },
    /// `timer:timer_start`: a timer-wheel timer.
    WheelStart {
        /// The timer.
        timer: u64,
        /// When its bucket expires, in jiffies.
        bucket_jiffies: u64,
        /// How many jiffies that lies ahead of the event's own `now`; negative if overdue.
        ahead_jiffies: i32,
        /// The timer's flags with the CPU it is queued on (`include/linux/timer.h`).
        flags: u32,
    },
    /// `timer:timer_cancel`.
    WheelCancel {
        /// The timer.
        timer: u64,
    },
    /// `timer:timer_expire_entry`.
    WheelExpire {
        /// The timer.
        timer: u64,
        /// The kernel's jiffies.
        now_jiffies: u64,
    },
    /// `timer:tick_stop` with success.
    TickStop,
    /// `irq_vectors:local_timer_entry` (x86) or another architecture's timer interrupt.
    TimerInterrupt,
    /// `irq_vectors:reschedule_entry` or another architecture's.
    RescheduleInterrupt,
    /// `irq_vectors:call_function*_entry`, `irq_work_entry` or another architecture's IPI.
    IpiInterrupt,
    /// `irq:irq_handler_entry`, and vectors that are none of the above.
    DeviceInterrupt,
    /// `irq:softirq_entry`.
    Softirq {
        /// The softirq's number; 1 is the timer wheel's.
        vector: u8,
    },
    /// `sched:sched_switch` to a task.
    SwitchToTask,
    /// `sched:sched_switch` to the idle task.
    SwitchToIdle,
    /// `sched:sched_wake_idle_without_ipi` or `sched:sched_wakeup`: some task was made runnable.
    Wakeup {
        /// The CPU it was queued on.
        target_cpu: u16,
    },
    /// The kernel or the recorder dropped events of this CPU before this point.
    Lost {
        /// How many.
        event_count: u64,
    },
}

/// The tracepoints that matter, as bits: which of them a trace was recorded with. What may be
/// claimed from which of them is in `evidence.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracepoints(u32);

impl Tracepoints {
    /// None of them.
    pub const EMPTY: Self = Self(0);
    /// `power:cpu_idle`.
    pub const CPU_IDLE: Self = Self(1);
    /// `timer:hrtimer_start`.
    pub const HRTIMER_START: Self = Self(1 << 1);
    /// `timer:hrtimer_cancel`.
    pub const HRTIMER_CANCEL: Self = Self(1 << 2);
    /// `timer:hrtimer_expire_entry`.
    pub const HRTIMER_EXPIRE: Self = Self(1 << 3);
    /// `timer:timer_start`.
    pub const WHEEL_START: Self = Self(1 << 4);
    /// `timer:timer_cancel`.
    pub const WHEEL_CANCEL: Self = Self(1 << 5);
    /// `timer:timer_expire_entry`.
    pub const WHEEL_EXPIRE: Self = Self(1 << 6);
    /// `timer:tick_stop`.
    pub const TICK_STOP: Self = Self(1 << 7);
    /// `irq_vectors:local_timer_entry` of x86.
    pub const LOCAL_TIMER: Self = Self(1 << 8);
    /// `irq:softirq_entry`.
    pub const SOFTIRQ: Self = Self(1 << 9);
    /// `sched:sched_switch`.
    pub const SCHED_SWITCH: Self = Self(1 << 10);
    /// `sched:sched_wakeup`.
    pub const WAKEUP: Self = Self(1 << 11);
    /// `irq_vectors:reschedule_entry` of x86.
    pub const RESCHEDULE: Self = Self(1 << 12);
    /// `irq_vectors:call_function_entry` of x86.
    pub const CALL_FUNCTION: Self = Self(1 << 13);
    /// `irq_vectors:call_function_single_entry` of x86.
    pub const CALL_FUNCTION_SINGLE: Self = Self(1 << 14);
    /// `irq_vectors:irq_work_entry` of x86.
    pub const IRQ_WORK: Self = Self(1 << 15);
    /// Any other `irq_vectors:*_entry` of x86: errors, heat.
    pub const OTHER_VECTOR: Self = Self(1 << 16);
    /// `irq:irq_handler_entry`: devices; on Arm and RISC-V the timer and, on newer kernels, IPIs too.
    pub const IRQ_HANDLER: Self = Self(1 << 17);
    /// `ipi:ipi_entry` of Arm.
    pub const IPI_ENTRY: Self = Self(1 << 18);
    /// `powerpc:timer_interrupt_entry`.
    pub const POWER_TIMER: Self = Self(1 << 19);
    /// `powerpc:doorbell_entry`: IPIs within a core.
    pub const POWER_DOORBELL: Self = Self(1 << 20);
    /// Not a tracepoint: the trace has no list of what was recorded, so this set is of those that
    /// occur in it. A kind that is not in it may have been recorded and never have happened.
    pub const ONLY_SEEN: Self = Self(1 << 31);

    /// All that the gap builder needs of an x86 kernel.
    pub const COMPLETE: Self = Self::CPU_IDLE
        .union(Self::TIMERS)
        .union(Self::TICK_STOP)
        .union(Self::SCHED_SWITCH)
        .union(Self::X86_INTERRUPTS);
    /// Every event of timers.
    pub(crate) const TIMERS: Self = Self::HRTIMER_START
        .union(Self::HRTIMER_CANCEL)
        .union(Self::HRTIMER_EXPIRE)
        .union(Self::WHEEL_START)
        .union(Self::WHEEL_CANCEL)
        .union(Self::WHEEL_EXPIRE);
    /// The vectors of x86 that show which architecture it is.
    pub(crate) const X86_VECTORS: Self = Self::LOCAL_TIMER
        .union(Self::RESCHEDULE)
        .union(Self::CALL_FUNCTION)
        .union(Self::CALL_FUNCTION_SINGLE)
        .union(Self::IRQ_WORK)
        .union(Self::OTHER_VECTOR);
    /// The interrupts of x86 that a CPU gets by itself on every machine.
    pub(crate) const X86_LOCAL: Self = Self::LOCAL_TIMER.union(Self::IRQ_HANDLER);
    /// The vectors of x86 by which CPUs wake each other, but for the rarest.
    pub(crate) const X86_IPIS: Self = Self::RESCHEDULE.union(Self::CALL_FUNCTION_SINGLE);
    /// Every interrupt of x86 that ends idle; the other vectors report faults.
    pub(crate) const X86_INTERRUPTS: Self =
        Self::X86_LOCAL.union(Self::X86_IPIS).union(Self::CALL_FUNCTION).union(Self::IRQ_WORK);

    /// Whether all of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in this set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
