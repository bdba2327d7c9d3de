//! The thread pool of replays and simulations.

use std::env;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, available_parallelism};

use rayon::ThreadPoolBuilder;

/// No machine benefits from more, and each takes memory.
const THREAD_COUNT_MAX: usize = 1_024;

/// Starts the pool in advance, with one thread for each CPU or as many as `RAYON_NUM_THREADS` says.
/// By default the pool panics if a system limit (`ulimit -u`, a container's) does not allow that
/// many threads. Here it then starts with fewer, at worst with only the current thread.
pub fn start() {
    let cpu_count = available_parallelism().map_or(1, usize::from);
    let wish = env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let wish = wish.filter(|&count: &usize| count > 0).unwrap_or(cpu_count);
    let thread_count = allowed_count(wish.min(THREAD_COUNT_MAX));
    let pool = ThreadPoolBuilder::new().num_threads(thread_count);
    let pool = if thread_count == 1 { pool.use_current_thread() } else { pool };
    // It fails if there already is a pool, which then serves as well.
    let _ = pool.build_global();
}

/// How many of `wish` threads the system allows. The pool cannot find out, because its first failed
/// attempt is final.
fn allowed_count(wish: usize) -> usize {
    let (end, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let mut threads = Vec::new();
    for _ in 0..wish {
        let wait = Arc::clone(&wait);
        // Each thread lives until all are counted.
        let body = move || drop(wait.lock().map(|wait| wait.recv()));
        match thread::Builder::new().spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    drop(end);
    let count = threads.len();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    // At the limit, leave room for others.
    if count == wish { count } else { (count / 2).max(1) }
}
