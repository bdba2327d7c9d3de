//! What an item costs, compared with std's and crossbeam's channels in one run, in turns.
//!
//! `cargo bench --package idlewise-park --bench channel [rounds]`
//!
//! Prints the median of the rounds in nanoseconds per item, and the median of each round's ratio to std.
//! CPU time is that of both threads. If other programs run too, it is more reliable than wall time.
#![allow(clippy::print_stdout, reason = "a benchmark says what it measured")]

use std::time::{Duration, Instant};

const CAPACITY: usize = 1024;
const ITEM_COUNT: u64 = 1_000_000;

/// Measures one contender.
type Costs = fn() -> [f64; 3];

/// std comes first, because the others are compared with it.
const CONTENDERS: [(&str, Costs); 3] = [
    ("std", || {
        costs(|| {
            let (sender, receiver) = std::sync::mpsc::sync_channel(CAPACITY);
            (move |n| sender.send(n).unwrap(), move || receiver.recv().ok())
        })
    }),
    ("crossbeam", || {
        costs(|| {
            let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
            (move |n| sender.send(n).unwrap(), move || receiver.recv().ok())
        })
    }),
    ("idlewise", || {
        costs(|| {
            let (sender, receiver) = idlewise_park::channel::bounded(CAPACITY);
            (move |n| sender.send(n).unwrap(), move || receiver.recv().ok())
        })
    }),
];

const COLUMNS: [&str; 3] = ["two threads, wall", "two threads, CPU", "one thread, CPU"];

/// The cost of an item in each of the columns.
fn costs<S: Fn(u64) + Send, R: Fn() -> Option<u64>>(make: impl Fn() -> (S, R)) -> [f64; 3] {
    let (send, recv) = make();
    let (start, cpu) = (Instant::now(), cpu_time());
    let sum: u64 = std::thread::scope(|scope| {
        scope.spawn(move || (0..ITEM_COUNT).for_each(send));
        std::iter::from_fn(recv).sum()
    });
    let two_threads = [start.elapsed(), cpu_time() - cpu];
    assert_eq!(sum, ITEM_COUNT * (ITEM_COUNT - 1) / 2);

    // Fills the channel and empties it, so that nobody waits.
    let (send, recv) = make();
    let cpu = cpu_time();
    for _ in 0..ITEM_COUNT / CAPACITY as u64 {
        (0..CAPACITY as u64).for_each(&send);
        (0..CAPACITY).for_each(|_| assert!(std::hint::black_box(recv()).is_some()));
    }
    let one_thread = cpu_time() - cpu;
    [two_threads[0], two_threads[1], one_thread].map(per_item)
}

fn per_item(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / ITEM_COUNT as f64
}

/// CPU time of the whole process, or wall time where the OS is not asked.
fn cpu_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `time`.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(unix))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // Cargo passes `--bench`.
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(15);
    let mut costs = vec![[[0.0; COLUMNS.len()]; CONTENDERS.len()]; rounds];
    for (round, costs) in costs.iter_mut().enumerate() {
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            costs[index] = CONTENDERS[index].1();
        }
    }
    println!(
        "capacity {CAPACITY}, {rounds} rounds of {ITEM_COUNT} items; ns per item, ratio to std"
    );
    for (index, (name, _)) in CONTENDERS.iter().enumerate() {
        print!("{name:10}");
        for (column, title) in COLUMNS.iter().enumerate() {
            let cost = median(costs.iter().map(|costs| costs[index][column]));
            let ratio = median(costs.iter().map(|costs| costs[index][column] / costs[0][column]));
            print!("  {title}: {cost:6.1} ({ratio:.2})");
        }
        println!();
    }
}
