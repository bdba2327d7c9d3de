//! Measures the cost of calls that do not wait: ours and those of other libraries, alternately.

use std::thread;
use std::time::Instant;

use idlewise_probe::{allowed_cpus, pin};

use crate::random::Random;

/// The cost of a call with one library.
#[derive(Clone, Copy, Debug)]
pub struct CallCost {
    /// The call: one of [`CALLS`].
    pub call: &'static str,
    /// The library.
    pub way: &'static str,
    /// Nanoseconds for each call.
    pub cost_ns: f64,
}

/// An unpark, and the park that consumes its token.
pub const READY_TOKEN: &str = "unpark and park of a ready token";
/// An unpark of a parker that already has a token.
pub const SET_TOKEN: &str = "unpark of a set token";
/// The same by two threads on two CPUs at once.
pub const SET_TOKEN_BY_TWO: &str = "unpark of a set token, two threads at once";
/// An item through a channel of capacity 1024, with one sender and one receiver on two CPUs.
pub const CHANNEL_ITEM: &str = "an item through a channel of 1024";

/// All calls, in the order of the results.
pub const CALLS: [&str; 4] = [READY_TOKEN, SET_TOKEN, SET_TOKEN_BY_TWO, CHANNEL_ITEM];

/// Calls per turn and number of turns. The median turn counts.
const CALL_COUNT: u32 = 100_000;
const ITEM_COUNT: u64 = 200_000;
const TURN_COUNT: usize = 9;

/// Measures all calls.
pub fn call_costs(seed: u64) -> Vec<CallCost> {
    let ours = idlewise_park::Parker::new();
    let theirs = crossbeam_utils::sync::Parker::new();
    let (unpark_ours, unpark_theirs) = (ours.unparker(), theirs.unparker());
    let of = |call, way, cost_ns| CallCost { call, way, cost_ns };
    let [ready_ours, ready_theirs] = medians(
        seed,
        [
            &|| {
                one(|| {
                    unpark_ours.unpark();
                    ours.park();
                })
            },
            &|| {
                one(|| {
                    unpark_theirs.unpark();
                    theirs.park();
                })
            },
        ],
    );
    let [set_ours, set_theirs] =
        medians(seed + 1, [&|| one(|| unpark_ours.unpark()), &|| one(|| unpark_theirs.unpark())]);
    let [two_ours, two_theirs] =
        medians(seed + 2, [&|| two(&|| unpark_ours.unpark()), &|| two(&|| unpark_theirs.unpark())]);
    let [item_ours, item_std] = medians(seed + 3, [&items_ours, &items_std]);
    vec![
        of(READY_TOKEN, "idlewise", ready_ours),
        of(READY_TOKEN, "crossbeam", ready_theirs),
        of(SET_TOKEN, "idlewise", set_ours),
        of(SET_TOKEN, "crossbeam", set_theirs),
        of(SET_TOKEN_BY_TWO, "idlewise", two_ours),
        of(SET_TOKEN_BY_TWO, "crossbeam", two_theirs),
        of(CHANNEL_ITEM, "idlewise", item_ours),
        of(CHANNEL_ITEM, "std sync_channel", item_std),
    ]
}

/// The median of each; they take turns, in a new order each time.
fn medians(seed: u64, timed: [&dyn Fn() -> f64; 2]) -> [f64; 2] {
    let mut random = Random::new(seed);
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..TURN_COUNT {
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for way in order {
            samples[way].push(timed[way]());
        }
    }
    samples.map(|mut samples| {
        samples.sort_unstable_by(f64::total_cmp);
        samples[TURN_COUNT / 2]
    })
}

fn one(call: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALL_COUNT {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALL_COUNT)
}

fn two(call: &(dyn Fn() + Sync)) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for cpu in ends() {
            scope.spawn(move || {
                pin(&[cpu]);
                for _ in 0..CALL_COUNT {
                    call();
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / f64::from(CALL_COUNT)
}

/// The first and the last CPU that this process may use.
fn ends() -> [usize; 2] {
    let cpus = allowed_cpus();
    [cpus[0], cpus[cpus.len() - 1]]
}

/// Sends from the first CPU and receives on the last.
fn items(send: impl FnOnce() + Send, receive: impl FnOnce() -> u64 + Send) -> f64 {
    let [sender_cpu, receiver_cpu] = ends();
    let start = Instant::now();
    let sum = thread::scope(|scope| {
        scope.spawn(move || {
            pin(&[sender_cpu]);
            send();
        });
        let receiver = scope.spawn(move || {
            pin(&[receiver_cpu]);
            receive()
        });
        receiver.join().expect("it only receives")
    });
    assert_eq!(sum, ITEM_COUNT * (ITEM_COUNT - 1) / 2, "an item was lost");
    start.elapsed().as_nanos() as f64 / ITEM_COUNT as f64
}

fn items_ours() -> f64 {
    let (sender, receiver) = idlewise_park::channel::bounded::<u64>(1024);
    let send = move || (0..ITEM_COUNT).for_each(|item| sender.send(item).expect("it is received"));
    let receive = move || {
        let mut sum = 0;
        while let Ok(item) = receiver.recv() {
            sum += item;
        }
        sum
    };
    items(send, receive)
}

fn items_std() -> f64 {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<u64>(1024);
    let send = move || (0..ITEM_COUNT).for_each(|item| sender.send(item).expect("it is received"));
    items(send, move || receiver.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_measured_for_ours_and_for_one_other() {
        let costs = call_costs(1);
        for call in CALLS {
            let ways: Vec<_> = costs.iter().filter(|cost| cost.call == call).collect();
            assert_eq!((ways.len(), ways[0].way), (2, "idlewise"), "{call}");
            assert!(ways.iter().all(|cost| cost.cost_ns > 0.0), "{call}");
        }
    }
}
