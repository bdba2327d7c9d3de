//! Polling: works everywhere, burns a CPU and slows its sibling.

use idlewise_core::Doorbell;

use super::WaitMethod;

/// Looks with the CPU's hint for such loops between two looks: PAUSE on x86, ISB on Arm.
pub struct Spin;

/// Looks between two readings of the caller's clock: on CPUs with a long PAUSE (140 cycles since
/// Skylake) about half a microsecond, which is also how late a deadline may be noticed.
const LOOK_COUNT: u32 = 12;

impl WaitMethod for Spin {
    #[inline]
    fn wait(&self, bell: &Doorbell, _until_ns: Option<u64>) {
        for _ in 0..LOOK_COUNT {
            if bell.is_rung() {
                return;
            }
            std::hint::spin_loop();
        }
    }
}
