use std::sync::Arc;

use idlewise_core::sync::broken::Break;
use idlewise_core::{Doorbell, Marks, Ring};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::{Kernel, explore, must_fail};

struct Shared {
    marks: Marks,
    bell: Doorbell,
    kernel: Kernel,
    work: [AtomicU32; 2],
}

/// Two wakers with one bell each. The waiter waits until it has collected both, and sees the work of each
/// bell that it collects.
fn two_bells(ring_first: bool) {
    let shared = Arc::new(Shared {
        marks: Marks::new(),
        bell: Doorbell::new(),
        kernel: Kernel::new(),
        work: Default::default(),
    });
    let threads: Vec<_> = (0..2)
        .map(|bell| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.work[bell].store(1, Ordering::Relaxed);
                if !ring_first {
                    shared.marks.mark(bell);
                }
                if shared.bell.ring() == Ring::MustWake {
                    shared.kernel.wake();
                }
                if ring_first {
                    shared.marks.mark(bell);
                }
            })
        })
        .collect();
    let mut collected = 0;
    while collected != 0b11 {
        let Shared { bell, kernel, .. } = &*shared;
        if bell.start_polling() && bell.fall_asleep() {
            kernel.wait();
        }
        bell.take();
        let marks = shared.marks.collect();
        for (bell, work) in shared.work.iter().enumerate() {
            if marks & (1 << bell) != 0 {
                assert_eq!(work.load(Ordering::Relaxed), 1, "bell {bell} without its work");
            }
        }
        collected |= marks;
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn two_marks_race_with_collecting() {
    explore("two bells, one waiter", || two_bells(false));
}

#[test]
fn broken_marking_relaxed() {
    must_fail(Break::MarkRelaxed, || two_bells(false));
}

#[test]
fn broken_collecting_relaxed() {
    must_fail(Break::CollectRelaxed, || two_bells(false));
}

#[test]
fn broken_ringing_before_marking() {
    must_fail(Break::RingBeforeMark, || two_bells(true));
}
