//! What a wake-up costs when nobody sleeps, compared with crossbeam's parker.
//!
//! `cargo bench --package idlewise-park --bench token`
//!
//! Both take turns in short rounds, so that other activity on the machine affects both alike, and most
//! rounds not at all. Each row shows the medians in nanoseconds, the median of the rounds' ratios, and the
//! range that contains nine of ten rounds. Nothing is asserted.
#![allow(clippy::print_stdout, reason = "prints what it measured")]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crossbeam_utils::sync as crossbeam;
use idlewise_park as ours;

/// One measurement: nanoseconds per operation, averaged over a round.
type Round<'a> = Box<dyn FnMut() -> f64 + 'a>;

fn per_op(elapsed: Duration, op_count: u32) -> f64 {
    elapsed.as_nanos() as f64 / f64::from(op_count)
}

/// A round of `op_count` calls.
fn timed<'a>(op_count: u32, mut op: impl FnMut() + 'a) -> Round<'a> {
    Box::new(move || {
        let start = Instant::now();
        (0..op_count).for_each(|_| op());
        per_op(start.elapsed(), op_count)
    })
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn compare(what: &str, round_count: usize, mut ours: Round<'_>, mut theirs: Round<'_>) {
    let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..round_count + round_count / 10 {
        // The second one finds warmer caches, so the order alternates.
        let (x, y) = if round % 2 == 0 {
            let x = ours();
            (x, theirs())
        } else {
            let y = theirs();
            (ours(), y)
        };
        // The first tenth is for warming up.
        if round >= round_count / 10 {
            a.push(x);
            b.push(y);
            ratios.push(x / y);
        }
    }
    for figures in [&mut a, &mut b, &mut ratios] {
        figures.sort_by(f64::total_cmp);
    }
    println!(
        "{what:<44} {:>8.1} {:>10.1} {:>8.2}  ({:.2} to {:.2})",
        quantile(&a, 0.5),
        quantile(&b, 0.5),
        quantile(&ratios, 0.5),
        quantile(&ratios, 0.05),
        quantile(&ratios, 0.95),
    );
}

const OPS: u32 = 2_000;
const ROUNDS: usize = 1_000;

/// A round in which two threads make the same call at the same time.
fn by_two<'a, T: Sync>(on: &'a T, op: impl Fn(&T) + Sync + 'a) -> Round<'a> {
    Box::new(move || {
        const OPS: u32 = 100_000;
        let barrier = Barrier::new(2);
        let run = || {
            barrier.wait();
            let start = Instant::now();
            (0..OPS).for_each(|_| op(black_box(on)));
            per_op(start.elapsed(), OPS)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(run);
            let mine = run();
            mine.max(other.join().expect("it only unparks"))
        })
    })
}

fn main() {
    // `cargo test --benches` runs each benchmark with `--test`, which only checks that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let ours = ours::Parker::new();
    let theirs = crossbeam::Parker::new();
    println!("{:<44} {:>8} {:>10} {:>8}", "ns an operation", "idlewise", "crossbeam", "ratio");

    ours.unparker().unpark();
    theirs.unparker().unpark();
    compare(
        "unpark, the token is there",
        ROUNDS,
        timed(OPS, || black_box(ours.unparker()).unpark()),
        timed(OPS, || black_box(theirs.unparker()).unpark()),
    );
    compare(
        "the same, two threads at once",
        ROUNDS / 4,
        by_two(ours.unparker(), |unparker| unparker.unpark()),
        by_two(theirs.unparker(), |unparker| unparker.unpark()),
    );
    compare(
        "unpark, then park that takes the token",
        ROUNDS,
        timed(OPS, || {
            black_box(ours.unparker()).unpark();
            black_box(&ours).park();
        }),
        timed(OPS, || {
            black_box(theirs.unparker()).unpark();
            black_box(&theirs).park();
        }),
    );

    let raw = ours::RawParker::new();
    compare(
        "the same, with a RawParker",
        ROUNDS,
        timed(OPS, || {
            black_box(&raw).unpark();
            black_box(&raw).park();
        }),
        timed(OPS, || {
            black_box(theirs.unparker()).unpark();
            black_box(&theirs).park();
        }),
    );

    // Sixteen of each, so that they share the cost of reading the clock and fit in the first-level cache.
    let many_ours: Vec<_> = (0..16).map(|_| ours::Parker::new()).collect();
    let many_theirs: Vec<_> = (0..16).map(|_| crossbeam::Parker::new()).collect();
    let time_parks = |unpark_all: &dyn Fn(), park_all: &dyn Fn()| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..100 {
            unpark_all();
            let start = Instant::now();
            park_all();
            elapsed += start.elapsed();
        }
        per_op(elapsed, 1_600)
    };
    compare(
        "park, the token is there",
        ROUNDS,
        Box::new(|| {
            time_parks(&|| many_ours.iter().for_each(|parker| parker.unparker().unpark()), &|| {
                many_ours.iter().for_each(|parker| black_box(parker).park())
            })
        }),
        Box::new(|| {
            time_parks(
                &|| many_theirs.iter().for_each(|parker| parker.unparker().unpark()),
                &|| many_theirs.iter().for_each(|parker| black_box(parker).park()),
            )
        }),
    );
    compare(
        "clone and drop an unparker",
        ROUNDS,
        timed(OPS, || drop(black_box(ours.unparker().clone()))),
        timed(OPS, || drop(black_box(theirs.unparker().clone()))),
    );
    compare(
        "make and drop a parker",
        ROUNDS,
        timed(OPS, || drop(black_box(ours::Parker::new()))),
        timed(OPS, || drop(black_box(crossbeam::Parker::new()))),
    );
    println!(
        "{:<44} {:>8} {:>10}",
        "bytes of a parker, without what it points to",
        size_of::<ours::Parker>(),
        size_of::<crossbeam::Parker>(),
    );
}
