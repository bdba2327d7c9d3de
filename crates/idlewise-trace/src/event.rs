//! Kernel events as importers pass them to the gap builder, independent of the trace format.

use std::fmt;
use std::num::NonZeroU32;

/// One event of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the event, on the trace's clock.
    pub at_ns: i64,
    /// The CPU it happened on.
    pub cpu: u16,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. A `timer` is the address of the kernel's object and serves only to identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// `power:cpu_idle` with a state: the CPU goes idle.
    IdleEntry {
        /// The state's index as the trace gives it, unchecked.
        state: u32,
    },
    /// `power:cpu_idle` with state 4294967295: the CPU runs again.
    IdleExit,
    /// `timer:hrtimer_start`.
    HrtimerStart {
        /// The timer.
        timer: u64,
        /// Its callback's address, or a hash of the callback's name if the trace has only names.
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
        /// The monotonic clock as the interrupt read it.
        now_ns: i64,
    },
    /// `timer:timer_start`: a timer-wheel timer.
    WheelStart {
        /// The timer.
        timer: u64,
        /// When its bucket expires, in jiffies.
        bucket_jiffies: u64,
        /// How many jiffies the expiry is after the event's own `now`; negative if overdue.
        ahead_jiffies: i32,
        /// The timer's flags, including the CPU it is queued on (`include/linux/timer.h`). Where the
        /// event shows that no timer migrates (Linux before 6.8), all are pinned.
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
        /// The kernel's jiffies at that moment.
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
    /// `irq:irq_handler_entry`, and vectors not listed above.
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
    /// `sched:sched_switch` with both tasks. It takes the place of the two kinds above where an event is read
    /// for causes or for what ran ([`crate::tracepoint::Purpose`]).
    Switch {
        /// The task that leaves; `None` if the trace names only the next one.
        prev: Option<NonZeroTask>,
        /// The task that runs from now on; 0 is the CPU's idle task.
        next: u32,
        /// Why it leaves.
        leaves: Leaving,
        /// The next task's name.
        next_name: TaskName,
    },
    /// `sched:sched_waking`: a task that waits will be made runnable.
    Waking {
        /// The task.
        task: u32,
        /// What woke it.
        context: WakeContext,
    },
    /// `sched:sched_wakeup_new`: a task begins to exist, and is made runnable.
    Fork {
        /// The task.
        task: u32,
    },
    /// `power:cpu_frequency`: the CPU's frequency is set.
    Frequency {
        /// The frequency.
        khz: u32,
    },
    /// The end of what `TimerInterrupt`, `RescheduleInterrupt`, `IpiInterrupt` or `DeviceInterrupt` began.
    InterruptExit,
    /// `irq:softirq_exit`.
    SoftirqExit,
    /// `sched:sched_wakeup`: a task was made runnable.
    Wakeup {
        /// The CPU it was queued on.
        target_cpu: u16,
    },
    /// `sched:sched_wake_idle_without_ipi`: this CPU stored to the word that another one polls or monitors.
    StoreSent {
        /// The other CPU.
        target_cpu: u16,
    },
    /// `ipi:ipi_send_cpu`: this CPU interrupts another one.
    IpiSent {
        /// The other CPU.
        target_cpu: u16,
    },
    /// `ipi:ipi_send_cpumask`: this CPU interrupts several others.
    IpiSentToMany {
        /// A bit for each of the first 64 CPUs.
        targets: u64,
        /// Whether there are more, or the trace does not say which.
        is_cut: bool,
    },
    /// `idlewise:idlewise_wake` of our cpuidle driver: what ended the CPU's stay.
    DriverWake {
        /// `enum idlewise_wake` in `kernel/wakes.h`.
        reason: u8,
    },
    /// The kernel or the recorder dropped events of this CPU before this point.
    Lost {
        /// How many were lost.
        event_count: u64,
    },
}

/// A task's number and one, so that "unknown" takes no further byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonZeroTask(NonZeroU32);

impl NonZeroTask {
    /// Makes one of a task's number (its pid), which has at most 31 bits.
    pub fn new(task: u32) -> Option<Self> {
        NonZeroU32::new(task.checked_add(1)?).map(Self)
    }

    /// Returns the task's number.
    pub fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// Why a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Another one takes its place. It can go on.
    Runnable,
    /// It waits for something.
    Waits,
    /// It has ended.
    Ends,
}

/// Where on a CPU something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeContext {
    /// By the task that runs.
    Task,
    /// In a softirq.
    Softirq,
    /// In an interrupt's handler.
    Interrupt,
    /// The trace does not say. The interrupts around it do.
    Unknown,
}

/// A task's name as the kernel keeps it: up to 15 bytes, then zeros.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskName([u8; 16]);

impl TaskName {
    /// Takes the bytes before the first zero, at most 15 of them.
    pub fn new(bytes: &[u8]) -> Self {
        let mut name = [0; 16];
        let bytes = bytes.iter().take(15).take_while(|&&byte| byte != 0);
        name.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self(name)
    }

    /// Returns the name as text. What is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(self.0.get(..end).unwrap_or_default()).into_owned()
    }

    /// Returns whether the trace does not say the name.
    pub fn is_empty(&self) -> bool {
        self.0.first() == Some(&0)
    }
}

impl fmt::Debug for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

/// A set of tracepoints, as bits: those a trace was recorded with. `evidence.rs` says which claims
/// need which of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracepoints(u32);

impl Tracepoints {
    /// The empty set.
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
    /// Any other `irq_vectors:*_entry` of x86: errors, thermal events.
    pub const OTHER_VECTOR: Self = Self(1 << 16);
    /// `irq:irq_handler_entry`: devices; on Arm and RISC-V the timer and, on newer kernels, IPIs too.
    pub const IRQ_HANDLER: Self = Self(1 << 17);
    /// `ipi:ipi_entry` of Arm.
    pub const IPI_ENTRY: Self = Self(1 << 18);
    /// `powerpc:timer_interrupt_entry`.
    pub const POWER_TIMER: Self = Self(1 << 19);
    /// `powerpc:doorbell_entry`: IPIs within a core.
    pub const POWER_DOORBELL: Self = Self(1 << 20);
    /// `sched:sched_wake_idle_without_ipi`.
    pub const STORE_SENT: Self = Self(1 << 21);
    /// `ipi:ipi_send_cpu`, since Linux 6.4.
    pub const IPI_SENT: Self = Self(1 << 22);
    /// `ipi:ipi_send_cpumask`, since Linux 6.4.
    pub const IPI_SENT_TO_MANY: Self = Self(1 << 23);
    /// `idlewise:idlewise_wake` of our cpuidle driver.
    pub const DRIVER_WAKE: Self = Self(1 << 24);
    /// `sched:sched_waking`.
    pub const WAKING: Self = Self(1 << 25);
    /// `irq:irq_handler_exit`.
    pub const IRQ_HANDLER_EXIT: Self = Self(1 << 26);
    /// `irq_vectors:*_exit` of x86.
    pub const VECTOR_EXIT: Self = Self(1 << 27);
    /// `irq:softirq_exit`.
    pub const SOFTIRQ_EXIT: Self = Self(1 << 28);
    /// `sched:sched_wakeup_new`, where it is read for causes.
    pub const FORK: Self = Self(1 << 29);
    /// `power:cpu_frequency`, where it is read for what ran.
    pub const CPU_FREQUENCY: Self = Self(1 << 30);
    /// Not a tracepoint. It marks a set from a trace that does not list what was recorded, so the
    /// set has only the kinds that occur. Others may have been recorded without ever occurring.
    pub const ONLY_SEEN: Self = Self(1 << 31);

    /// All tracepoints that the gap builder needs of an x86 kernel.
    pub const COMPLETE: Self = Self::CPU_IDLE
        .union(Self::TIMERS)
        .union(Self::TICK_STOP)
        .union(Self::SCHED_SWITCH)
        .union(Self::X86_INTERRUPTS);
    /// All tracepoints of timers.
    pub(crate) const TIMERS: Self = Self::HRTIMER_START
        .union(Self::HRTIMER_CANCEL)
        .union(Self::HRTIMER_EXPIRE)
        .union(Self::WHEEL_START)
        .union(Self::WHEEL_CANCEL)
        .union(Self::WHEEL_EXPIRE);
    /// The x86 vectors that identify the architecture.
    pub(crate) const X86_VECTORS: Self = Self::LOCAL_TIMER
        .union(Self::RESCHEDULE)
        .union(Self::CALL_FUNCTION)
        .union(Self::CALL_FUNCTION_SINGLE)
        .union(Self::IRQ_WORK)
        .union(Self::OTHER_VECTOR);
    /// The x86 interrupts that a CPU gets on every machine without another CPU's doing.
    pub(crate) const X86_LOCAL: Self = Self::LOCAL_TIMER.union(Self::IRQ_HANDLER);
    /// The x86 vectors by which CPUs wake each other, except the rarest.
    pub(crate) const X86_IPIS: Self = Self::RESCHEDULE.union(Self::CALL_FUNCTION_SINGLE);
    /// All x86 interrupts that end idle. The other vectors report faults.
    pub(crate) const X86_INTERRUPTS: Self =
        Self::X86_LOCAL.union(Self::X86_IPIS).union(Self::CALL_FUNCTION).union(Self::IRQ_WORK);

    /// Returns whether this set contains all of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether this set contains any of `other`.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set without the members of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
