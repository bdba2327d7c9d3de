//! The threads that replays and simulations share.

use std::env;
use std::thread::available_parallelism;

use rayon::ThreadPoolBuilder;

/// No machine gains from more, and each takes memory.
const THREAD_COUNT_MAX: usize = 1_024;

/// Starts the pool before anybody needs it: as many threads as there are CPUs, or as
/// `RAYON_NUM_THREADS` says. Left to itself, the pool panics where a limit of the system does not
/// allow so many (`ulimit -u`, a container's); here it starts with fewer then, at last with none
/// besides this thread.
pub fn start() {
    let cpu_count = available_parallelism().map_or(1, usize::from);
    let wish = env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let wish = wish.filter(|&count: &usize| count > 0).unwrap_or(cpu_count);
    let mut thread_count = wish.min(THREAD_COUNT_MAX);
    while thread_count > 1 {
        // The second call in one process fails too; then there is a pool.
        if ThreadPoolBuilder::new().num_threads(thread_count).build_global().is_ok() {
            return;
        }
        thread_count /= 2;
    }
    // Ignored for the same reason.
    let _ = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
}
