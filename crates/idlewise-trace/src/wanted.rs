//! Which events a recorder should ask the kernel for, and which of them it can leave to the kernel
//! to drop: what the gap builder would not look at.
//!
//! Between two idle entries of a CPU the builder wants the first interrupt, the timers that fired,
//! and whether a task ran. While it looks for them the idle task is running, so an interrupt in a
//! task tells it nothing; nor does a switch between tasks, or to the idle task, which goes idle
//! next and says so itself. Timers are armed and cancelled anywhere.

/// An event to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedEvent {
    /// Its system, as in tracefs.
    pub system: &'static str,
    /// Its name; with a star in front, the end of its name.
    pub name: &'static str,
    /// The filter, in the kernel's language, under which no gap changes.
    pub filter: Option<&'static str>,
}

impl WantedEvent {
    /// Whether this row means the event of that name.
    pub fn matches(&self, name: &str) -> bool {
        match self.name.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix),
            None => name == self.name,
        }
    }
}

/// Every event that the gap builder looks at. A kernel has some of them: interrupts' events differ
/// from architecture to architecture.
pub const WANTED_EVENTS: &[WantedEvent] = &[
    wanted("power", "cpu_idle", None),
    wanted("sched", "sched_switch", Some("prev_pid == 0")),
    wanted("timer", "hrtimer_start", None),
    wanted("timer", "hrtimer_cancel", None),
    wanted("timer", "hrtimer_expire_entry", None),
    wanted("timer", "timer_start", None),
    wanted("timer", "timer_cancel", None),
    wanted("timer", "timer_expire_entry", None),
    wanted("timer", "tick_stop", Some("success != 0")),
    wanted("irq_vectors", "*_entry", IN_IDLE_TASK),
    wanted("ipi", "ipi_entry", IN_IDLE_TASK),
    wanted("powerpc", "timer_interrupt_entry", IN_IDLE_TASK),
    wanted("powerpc", "doorbell_entry", IN_IDLE_TASK),
    wanted("irq", "irq_handler_entry", IN_IDLE_TASK),
];

const IN_IDLE_TASK: Option<&str> = Some("common_pid == 0");

const fn wanted(
    system: &'static str,
    name: &'static str,
    filter: Option<&'static str>,
) -> WantedEvent {
    WantedEvent { system, name, filter }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;
    use crate::tracepoint::{Decoder, EventFormat};

    #[test]
    fn wants_nothing_that_can_not_be_decoded() {
        for wanted in WANTED_EVENTS {
            let name = wanted.name.replace('*', "reschedule");
            assert!(wanted.matches(&name));
            // One that is known is either read or said to lack a field, which this one does.
            let format = EventFormat { name, id: 1, fields: Vec::new() };
            let compiled = Decoder::compile(wanted.system, &format, ByteOrder::Little);
            assert!(!matches!(compiled, Ok(None)), "{wanted:?}");
        }
    }
}
