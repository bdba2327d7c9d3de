//! Counters of perf, opened by their numbers. Which numbers mean what is read elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use perf_event_open_sys as sys;
use sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
    perf_event_attr,
};

/// What to count.
#[derive(Clone, Copy, Debug)]
pub struct PerfEvent {
    /// The number of the unit that counts.
    pub type_number: u32,
    /// The three words of the event.
    pub config: [u64; 3],
}

/// A counter that counts all that happens on a CPU.
#[derive(Debug)]
pub struct PerfCounter(File);

impl PerfCounter {
    /// Opens a counter, which counts from now on.
    ///
    /// # Errors
    /// Fails if the kernel refuses: for lack of rights, or because it has no such event.
    pub fn open(event: PerfEvent, cpu: u16) -> io::Result<Self> {
        let mut attr = perf_event_attr {
            size: size_of::<perf_event_attr>() as u32,
            type_: event.type_number,
            config: event.config[0],
            ..perf_event_attr::default()
        };
        attr.config1 = event.config[1];
        attr.config2 = event.config[2];
        attr.read_format =
            u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
        let (every_process, no_group) = (-1, -1);
        // SAFETY: the attributes outlive the call; a descriptor that is returned is ours.
        unsafe {
            let flags = PERF_FLAG_FD_CLOEXEC.into();
            match sys::perf_event_open(&mut attr, every_process, cpu.into(), no_group, flags) {
                fd if fd >= 0 => Ok(PerfCounter(File::from_raw_fd(fd))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Returns the count since it was opened. If it shared the hardware with other counters, the count
    /// is scaled up to the whole time; `None` if it never had the hardware.
    ///
    /// # Errors
    /// Fails if the CPU is gone.
    pub fn read(&self) -> io::Result<Option<f64>> {
        let mut words = [[0; 8]; 3];
        (&self.0).read_exact(words.as_flattened_mut())?;
        let [count, enabled_ns, running_ns] = words.map(u64::from_ne_bytes);
        Ok(scaled(count, enabled_ns, running_ns))
    }
}

fn scaled(count: u64, enabled_ns: u64, running_ns: u64) -> Option<f64> {
    match running_ns {
        0 => None,
        _ if running_ns >= enabled_ns => Some(count as f64),
        _ => Some(count as f64 * enabled_ns as f64 / running_ns as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_counter_is_scaled_to_the_whole_time() {
        assert_eq!(scaled(10, 100, 100), Some(10.0));
        assert_eq!(scaled(10, 100, 25), Some(40.0));
        assert_eq!(scaled(0, 100, 0), None);
    }

    /// The kernel's own clock of a CPU (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK) is everywhere.
    #[test]
    fn counts_what_the_kernel_counts_itself() {
        let event = PerfEvent { type_number: 1, config: [0; 3] };
        let cpu = crate::thread::allowed_cpus()[0] as u16;
        match PerfCounter::open(event, cpu) {
            Ok(counter) => {
                let first = counter.read().unwrap().unwrap();
                assert!(counter.read().unwrap().unwrap() >= first);
            }
            Err(error) => {
                eprintln!(
                    "SKIPPED: counts_what_the_kernel_counts_itself: perf_event_open: {error}"
                );
            }
        }
        let none = PerfEvent { type_number: u32::MAX - 1, config: [0; 3] };
        assert!(PerfCounter::open(none, cpu).is_err());
    }
}
