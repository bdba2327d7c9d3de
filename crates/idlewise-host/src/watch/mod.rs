//! What `idlewise watch` reads besides the counts of idle states: idle times, latency limits, and where CPUs are.
//!
//! | file | holds |
//! | --- | --- |
//! | `idle_times.rs` | [`IdleTimes`]: the idle time of each CPU by /proc/stat |
//! | `limits.rs` | [`LatencyLimits`]: the limits of exit latencies, of each CPU and of the machine |
//! | `places.rs` | [`CpuPosition`]: package and last-level cache of a CPU |
//! | `marks.rs` | [`Marks`]: whether the driver, the governor or the online CPUs changed |
//!
//! Files are opened once and read into memory that is used again: a reading allocates nothing.

mod idle_times;
mod limits;
mod marks;
mod places;

pub use idle_times::IdleTimes;
pub use limits::{Lack, LatencyLimits};
pub use marks::Marks;
pub use places::{CpuPosition, cpu_position};

use std::fs::File;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::root::small_text;

/// Reads a small file from its beginning and trims it. `None` if it cannot be read, does not fit or is empty.
fn text<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    small_text(file, buffer).ok().filter(|text| !text.is_empty())
}

/// Raises this process's limit on open files as far as the system allows. Watching keeps some thirty files of
/// each CPU open.
pub fn allow_many_files() {
    let mut limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        limits.current = limits.maximum;
        // If it fails, opening the files says what to do.
        let _ = setrlimit(Resource::Nofile, limits);
    }
}
