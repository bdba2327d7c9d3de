//! What each CPU knows of its next timer when it goes idle. Governors look at it, and most timers never expire: they are
//! armed anew or cancelled before.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::{GapSink, IdleGap};

/// A CPU goes idle, and its next timer is another one than when it last did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextTimer {
    pub(super) cpu: u16,
    pub(super) at_ns: i64,
    /// How much later it is due.
    pub(super) delay_ns: u64,
}

/// Takes them from the gaps of a recording.
#[derive(Default)]
pub(super) struct NextTimers {
    found: Vec<NextTimer>,
    /// When each CPU's last one was due.
    due_at_ns: BTreeMap<u16, i64>,
}

impl NextTimers {
    /// Those found since the last call, in order of time for each CPU.
    pub(super) fn take_found(&mut self) -> Vec<NextTimer> {
        std::mem::take(&mut self.found)
    }
}

impl GapSink for NextTimers {
    type Error = Infallible;

    fn take(&mut self, cpu: u16, gaps: &[IdleGap]) -> Result<(), Infallible> {
        for gap in gaps {
            let Some(delay_ns) = gap.sleep_length_ns else { continue };
            let due_at_ns = gap.start_ns.saturating_add_unsigned(delay_ns);
            if self.due_at_ns.insert(cpu, due_at_ns) != Some(due_at_ns) {
                self.found.push(NextTimer { cpu, at_ns: gap.start_ns, delay_ns });
            }
        }
        Ok(())
    }
}
