//! The loops around the marks, the idle set and the event bell's doorbell.

use std::sync::Arc;
use std::time::Duration;

use idlewise_core::model::{explore, explore_within, must_fail};
use idlewise_core::sync::broken::Break;
use idlewise_park::{EventBell, Idle, WaitSet};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// Two bells ring once each. The set reports each of them, together with its work.
#[test]
fn two_bells_race_with_waits() {
    explore_within("wait set: two bells", 3, || {
        let mut set = WaitSet::new();
        let work = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let threads = [set.bell(), set.bell()].map(|bell| {
            let work = work.clone();
            thread::spawn(move || {
                work[bell.index()].store(1, Ordering::Relaxed);
                bell.ring();
            })
        });
        let mut told = [false; 2];
        // The first look gives up, the waits after it don't.
        let mut rung = set.wait_timeout(Duration::ZERO);
        loop {
            for index in rung {
                assert!(!told[index], "told twice");
                assert_eq!(work[index].load(Ordering::Relaxed), 1, "bell {index} without its work");
                told[index] = true;
            }
            if told == [true; 2] {
                break;
            }
            rung = set.wait();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A bell rings and is dropped while the set makes another. The ring must count as the old bell's.
#[test]
fn a_bell_that_goes_races_with_one_that_comes() {
    explore("wait set: a bell goes, another comes", || {
        let mut set = WaitSet::new();
        let first = set.bell();
        let thread = thread::spawn(move || first.ring());
        let second = set.bell();
        assert_eq!(second.index(), 1, "the index of one that rings and was not told");
        let rung: Vec<_> = set.wait().collect();
        assert_eq!(rung, [0]);
        thread.join().unwrap();
    });
}

/// Work that is only a count, like a scheduler's own queue.
struct Queue(AtomicU32);

impl Queue {
    fn push(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn has_work(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn take(&self) -> bool {
        let take = |count: u32| count.checked_sub(1);
        self.has_work() && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// A worker is about to wait when it finds work that only it can see, and is busy from then on. If it was
/// chosen for the submitter's task, that wake-up goes to the other worker.
fn hand_on() {
    let idle = Idle::new(2);
    let queue = Arc::new(Queue(AtomicU32::new(0)));
    let thread = {
        let idle = idle.clone();
        thread::spawn(move || {
            let worker = idle.worker(0);
            worker.wait(|| true);
            worker
        })
    };
    let submitter = {
        let (idle, queue) = (idle.clone(), queue.clone());
        thread::spawn(move || {
            queue.push();
            idle.wake_one();
        })
    };
    let worker = idle.worker(1);
    while !queue.take() {
        worker.wait(|| queue.has_work());
    }
    let _busy = thread.join().unwrap();
    submitter.join().unwrap();
}

#[test]
fn wake_ups_race_with_looks() {
    explore_within("idle workers: one is chosen and finds work by itself", 2, hand_on);
}

#[test]
fn broken_a_wake_up_that_is_not_handed_on() {
    must_fail(Break::HandOnKept, hand_on);
}

/// A searching worker goes to wait, while a submitter wakes nobody because it searches.
fn searcher_gives_up() {
    let idle = Idle::new(1);
    let queue = Arc::new(Queue(AtomicU32::new(0)));
    let submitter = {
        let (idle, queue) = (idle.clone(), queue.clone());
        thread::spawn(move || {
            queue.push();
            idle.wake_searcher();
        })
    };
    let worker = idle.worker(0);
    worker.start_search();
    while !queue.take() {
        worker.wait(|| queue.has_work());
    }
    worker.found_work();
    submitter.join().unwrap();
}

#[test]
fn a_push_races_with_the_end_of_a_search() {
    explore_within("idle workers: the searcher gives up", 4, searcher_gives_up);
}

#[test]
fn broken_a_search_that_ends_after_the_look() {
    must_fail(Break::SearchEndsAfterLook, searcher_gives_up);
}

/// Two wakers of an event bell, with one piece of work each.
struct TwoWakers {
    work: Arc<[AtomicU32; 2]>,
    threads: [thread::JoinHandle<()>; 2],
}

impl TwoWakers {
    /// The second one leaves an event before its work, if it is given a place for it.
    fn of(bell: &EventBell, event: Option<&Arc<AtomicU32>>) -> TwoWakers {
        let work = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let threads = [0, 1].map(|waker| {
            let (unparker, work) = (bell.unparker(), work.clone());
            let event = event.filter(|_| waker == 1).cloned();
            thread::spawn(move || {
                if let Some(event) = event {
                    event.store(1, Ordering::Relaxed);
                }
                work[waker].store(1, Ordering::Relaxed);
                unparker.unpark().unwrap();
            })
        });
        TwoWakers { work, threads }
    }

    fn have_work_left(&self) -> bool {
        self.work.iter().any(|work| work.load(Ordering::Relaxed) == 0)
    }

    /// At the end every write has been read; otherwise the bell's poll would return at once for ever.
    fn end(self, bell: &EventBell) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        if bell.is_readable() {
            bell.fall_asleep();
            bell.wake_up();
            assert!(!bell.is_readable(), "a write that nobody reads");
        }
    }
}

/// The thread waits until it has seen both pieces of work, and leaves epoll once by itself.
fn owed_writes() {
    let bell = EventBell::new().unwrap();
    let wakers = TwoWakers::of(&bell, None);
    // Another event ended this wait.
    bell.fall_asleep();
    bell.wake_up();
    let mut for_nothing = 0;
    while wakers.have_work_left() {
        if bell.fall_asleep() {
            bell.wait_readable();
        }
        for_nothing += u32::from(!bell.wake_up());
        assert!(for_nothing <= 2, "a write that nobody reads");
    }
    wakers.end(&bell);
}

#[test]
fn writes_race_with_other_events() {
    explore_within("event bell: two wakers, another event", 3, owed_writes);
}

#[test]
fn broken_an_owed_write_that_is_forgotten() {
    must_fail(Break::WriteForgotten, owed_writes);
}

/// Like `owed_writes`, with a bell that looks for events before it sleeps.
fn polls_then_sleeps() {
    let mut bell = EventBell::new().unwrap();
    let event = Arc::new(AtomicU32::new(0));
    let wakers = TwoWakers::of(&bell, Some(&event));
    let mut for_nothing = 0;
    while wakers.have_work_left() {
        if bell.poll(|| event.swap(0, Ordering::Relaxed) == 1).is_asleep() {
            bell.wait_readable();
        }
        // Two late writes and an event.
        for_nothing += u32::from(!bell.wake_up());
        assert!(for_nothing <= 3, "a write that nobody reads");
    }
    wakers.end(&bell);
}

#[test]
fn rings_race_with_polls() {
    explore_within("event bell: two wakers, looks before the sleep", 3, polls_then_sleeps);
}

#[test]
fn broken_a_block_that_no_waker_knows_of() {
    must_fail(Break::PollWithoutSleep, polls_then_sleeps);
}

#[test]
fn broken_a_ring_between_the_look_and_the_sleep() {
    must_fail(Break::FallAsleepBlindly, polls_then_sleeps);
}
