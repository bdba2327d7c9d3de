//! Polling: works everywhere, but burns a CPU and slows its sibling.

use idlewise_core::Doorbell;

use super::WaitMethod;

/// Looks repeatedly, with the CPU's hint for such loops in between: PAUSE on x86, ISB on Arm.
pub struct Spin;

/// The number of looks between two readings of the caller's clock. On CPUs with a long PAUSE (140 cycles
/// since Skylake) they take about half a microsecond, which is also how late a deadline may be noticed.
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
