//! How much time a worker may use, for those who watch it and those who say what it did.

use std::time::Duration;

/// The CPU time allowed for loading, and for one gap. A decision takes nanoseconds and the linker milliseconds; but
/// what a hypervisor gives to other guests counts as the worker's time, and that can be more than a second.
pub(crate) const CPU_LIMIT: Duration = Duration::from_secs(5);
/// The CPU time that a worker may use in all before it is given anything. More than [`CPU_LIMIT`], because it also starts.
pub(crate) const CPU_TIME_AT_FIRST: Duration = Duration::from_secs(6);
/// What each gap, or each question about a single decision, adds. A replay takes less than a microsecond.
pub(crate) const CPU_TIME_OF_GAP: Duration = Duration::from_millis(1);
/// The length of the gaps adds this part. A governor that always polls decides every 10 µs.
pub(crate) const CPU_TIME_PART_OF_GAPS: u32 = 10;
/// How long a worker may make no progress, in time during which idlewise itself ran.
pub(crate) const WALL_LIMIT: Duration = Duration::from_secs(10);
