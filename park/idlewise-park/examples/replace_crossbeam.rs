//! Replaces crossbeam's `Parker` by changing one line.
//!
//! `cargo run --release --package idlewise-park --example replace_crossbeam`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

// use crossbeam_utils::sync::Parker;
use idlewise_park::Parker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let parker = Parker::new();
    let unparker = parker.unparker().clone();
    let work = Arc::new(AtomicU32::new(0));

    let worker = {
        let work = work.clone();
        std::thread::spawn(move || {
            work.store(42, Ordering::Relaxed);
            unparker.unpark();
        })
    };
    parker.park();
    assert_eq!(work.load(Ordering::Relaxed), 42);

    // crossbeam's methods return nothing; these return how the wait ended, which may be ignored.
    parker.park_timeout(Duration::from_micros(100));
    assert!(!parker.park_deadline(Instant::now()).is_woken());
    worker.join().unwrap();
    println!("woken with the work: {}", work.load(Ordering::Relaxed));
}
