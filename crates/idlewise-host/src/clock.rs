//! The time on a machine: the kernel's, or that of a captured machine.

use std::cell::Cell;
use std::fs::File;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Root;
use crate::root::small_text;

/// The time since some moment in the past. It does not go on while the machine is suspended, as the
/// kernel's counts of idle time don't.
///
/// This machine's is `CLOCK_MONOTONIC`, which nobody can set. A captured machine's is its `proc/uptime`,
/// so a machine that is played forward has counts and a time that belong together; without that file, or
/// if it holds no time, it is this machine's. It is one of them from the first reading to the last: between two
/// readings of different clocks lie hours that never passed.
#[derive(Debug)]
pub struct MachineClock {
    captured: Option<Captured>,
}

#[derive(Debug)]
struct Captured {
    uptime: File,
    /// The time while the file is empty, as it is for a moment when somebody writes it anew.
    last: Cell<Duration>,
}

impl MachineClock {
    /// Returns the clock of the machine under `root`.
    pub fn new(root: &Root) -> Self {
        let captured = || {
            let uptime = root.open("proc/uptime").ok()?;
            let last = Cell::new(first_number(&uptime)?);
            Some(Captured { uptime, last })
        };
        MachineClock { captured: if root.is_live() { None } else { captured() } }
    }

    /// Returns the time.
    pub fn now(&self) -> Duration {
        if let Some(Captured { uptime, last }) = &self.captured {
            last.set(first_number(uptime).unwrap_or(last.get()));
            return last.get();
        }
        let now = clock_gettime(ClockId::Monotonic);
        // Both are positive on a monotonic clock.
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// Whether time passes only as somebody plays a captured machine forward.
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }
}

/// The first number in a file like `12345.67 9876.54`, in seconds.
fn first_number(file: &File) -> Option<Duration> {
    let mut buffer = [0; 64];
    let seconds: f64 =
        small_text(file, &mut buffer).ok()?.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn a_captured_machine_has_its_own_time() {
        let (_folder, root) = machine(&[("proc/uptime", "12.50 99.00\n")]);
        let clock = MachineClock::new(&root);
        assert!(clock.is_captured());
        assert_eq!(clock.now(), Duration::from_millis(12_500));
        std::fs::write(root.path("proc/uptime"), "72.50 99.00\n").unwrap();
        assert_eq!(clock.now(), Duration::from_millis(72_500));
    }

    #[test]
    fn it_stands_still_while_its_file_is_written() {
        let (_folder, root) = machine(&[("proc/uptime", "12.50 99.00\n")]);
        let clock = MachineClock::new(&root);
        std::fs::write(root.path("proc/uptime"), "").unwrap();
        assert_eq!(clock.now(), Duration::from_millis(12_500));
        std::fs::write(root.path("proc/uptime"), "72.50 99.00\n").unwrap();
        std::fs::write(root.path("proc/uptime"), "").unwrap();
        assert_eq!(clock.now(), Duration::from_millis(12_500));
        std::fs::write(root.path("proc/uptime"), "72.50 99.00\n").unwrap();
        assert_eq!(clock.now(), Duration::from_millis(72_500));
    }

    #[test]
    fn a_file_without_a_time_is_no_clock() {
        let (_folder, root) = machine(&[("proc/uptime", "soon\n")]);
        assert!(!MachineClock::new(&root).is_captured());
    }

    #[test]
    fn without_one_it_is_this_machines() {
        let (_folder, root) = machine(&[("proc/cmdline", "quiet\n")]);
        let clock = MachineClock::new(&root);
        assert!(!clock.is_captured());
        assert!(clock.now() <= clock.now());
    }
}
