//! The time on a machine: the kernel's, or that of a captured machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Root;

/// The time since some moment in the past. It does not go on while the machine is suspended, as the
/// kernel's counts of idle time don't.
///
/// This machine's is `CLOCK_MONOTONIC`, which nobody can set. A captured machine's is its `proc/uptime`,
/// so a machine that is played forward has counts and a time that belong together; without that file it is
/// this machine's.
#[derive(Debug)]
pub struct MachineClock {
    uptime: Option<File>,
}

impl MachineClock {
    /// Returns the clock of the machine under `root`.
    pub fn new(root: &Root) -> Self {
        let captured = || root.open("proc/uptime").ok();
        MachineClock { uptime: if root.is_live() { None } else { captured() } }
    }

    /// Returns the time.
    pub fn now(&self) -> Duration {
        self.uptime.as_ref().and_then(uptime).unwrap_or_else(|| {
            let now = clock_gettime(ClockId::Monotonic);
            // Both are positive on a monotonic clock.
            Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
        })
    }

    /// Whether time passes only as somebody plays a captured machine forward.
    pub fn is_captured(&self) -> bool {
        self.uptime.is_some()
    }
}

/// The first number in a file like `12345.67 9876.54`.
fn uptime(file: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let byte_count = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..byte_count]).ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
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
    fn without_one_it_is_this_machines() {
        let (_folder, root) = machine(&[("proc/cmdline", "quiet\n")]);
        let clock = MachineClock::new(&root);
        assert!(!clock.is_captured());
        assert!(clock.now() <= clock.now());
    }
}
