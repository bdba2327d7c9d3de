//! The kernel's timer wheel: the jiffy in which it fires a timer.

use super::format::Width;
use crate::event::EventKind;

/// `TIMER_DEFERRABLE` of include/linux/timer.h since Linux 4.8. From 4.2 to 4.7 the bits are one
/// place higher, which the description does not show; we read them as if they were not.
pub(crate) const TIMER_DEFERRABLE: u32 = 1 << 19;

/// `TIMER_PINNED` of include/linux/timer.h.
pub(crate) const TIMER_PINNED: u32 = 1 << 20;

/// The flags of a timer whose event does not give the CPU it is queued on. It is assumed to be the
/// one that started the timer.
pub(crate) fn wheel_flags_without_cpu(is_deferrable: bool, cpu: u16) -> u32 {
    if is_deferrable { TIMER_DEFERRABLE | u32::from(cpu) } else { cpu.into() }
}

/// The start of a timer-wheel timer. Times are jiffies in the kernel's `long`.
pub(crate) fn wheel_start(
    timer: u64,
    now: u64,
    expires: u64,
    bucket_expiry: Option<u64>,
    flags: u32,
    width: Width,
) -> EventKind {
    // Timers migrate since 6.9, and events have the bucket since 6.8.
    let flags = if bucket_expiry.is_some() { flags } else { flags | TIMER_PINNED };
    let bucket_jiffies = bucket_expiry.unwrap_or_else(|| wheel_bucket(expires, now, width));
    let ahead = jiffies_between(now, bucket_jiffies, width);
    let ahead_jiffies = ahead.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies, flags }
}

/// How many buckets each level of the timer wheel has.
const WHEEL_LEVEL_BUCKET_COUNT: u64 = 64;
/// The binary logarithm of how much wider each level's buckets are than those of the level below.
const WHEEL_LEVEL_SHIFT: u32 = 3;
/// How many levels the wheel has if HZ is above 100. HZ=100 has one fewer, which affects only
/// timers that are fifteen days away.
const WHEEL_LEVEL_COUNT: u32 = 9;

/// When the timer wheel fires a timer that was set at `now` for `expires`, in jiffies.
///
/// The wheel does not keep exact expiries. Its level n has 64 buckets of 8^n jiffies. A timer goes
/// to the lowest level that reaches that far, into the first bucket that begins after its expiry,
/// so that it is never early (not even if the jiffy in which it was set was nearly over). Beyond
/// the last level it waits in the last bucket. This is how Linux works since 4.8
/// (kernel/time/timer.c); since 6.8 the event contains the bucket. Linux counts from the wheel's
/// own clock, which can lag behind `now`; we only have `now`.
fn wheel_bucket(expires: u64, now: u64, width: Width) -> u64 {
    let ahead = jiffies_between(now, expires, width);
    let Ok(ahead) = u64::try_from(ahead) else { return now };
    let reach = |level: u32| (WHEEL_LEVEL_BUCKET_COUNT - 1) << (level * WHEEL_LEVEL_SHIFT);
    let last = WHEEL_LEVEL_COUNT - 1;
    let level = (0..last).find(|&level| ahead < reach(level)).unwrap_or(last);
    let furthest = reach(last) - (1 << (last * WHEEL_LEVEL_SHIFT));
    let ahead = if ahead < reach(last) { ahead } else { furthest };
    let shift = level * WHEEL_LEVEL_SHIFT;
    let bucket = ((now.wrapping_add(ahead) >> shift).wrapping_add(1)) << shift;
    match width {
        Width::Eight => bucket,
        _ => bucket & u64::from(u32::MAX),
    }
}

/// The distance from `now` to `later`. Jiffies wrap around in the kernel's `long`.
fn jiffies_between(now: u64, later: u64, width: Width) -> i64 {
    let distance = later.wrapping_sub(now);
    match width {
        Width::Eight => distance as i64,
        _ => i64::from(distance as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `timer_start` events of Linux 6.18, which contain the bucket: traces/a-idle and b-redis.
    #[test]
    fn wheel_bucket_is_the_kernels() {
        for (expires, now, bucket) in [
            (4_295_416_609, 4_295_416_608, 4_295_416_610),
            (4_295_416_618, 4_295_416_608, 4_295_416_619),
            (4_295_416_845, 4_295_416_720, 4_295_416_848),
            (4_295_416_853, 4_295_416_728, 4_295_416_856),
            (4_295_418_750, 4_295_417_536, 4_295_418_752),
            (4_295_418_850, 4_295_417_600, 4_295_418_880),
            (4_295_442_233, 4_295_440_983, 4_295_442_240),
            (4_295_842_407, 4_295_827_407, 4_295_842_816),
            (4_295_517_432, 4_295_442_432, 4_295_520_256),
        ] {
            assert_eq!(wheel_bucket(expires, now, Width::Eight), bucket);
            assert_eq!(wheel_bucket(expires, now, Width::Four), bucket & 0xffff_ffff);
        }
        // Overdue: fires at once. Beyond the last level: in its last bucket, 48 days at 250 Hz.
        assert_eq!(wheel_bucket(900, 1_000, Width::Eight), 1_000);
        assert_eq!(wheel_bucket(1 << 40, 0, Width::Eight), 63 << 24);
    }
}
