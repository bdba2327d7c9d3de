//! Unparkers as wakers and raw pointers, and threads that block on futures.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use idlewise_park::{Parker, Unparker, WaitTable, block_on};

fn parker() -> Parker {
    Parker::builder().table(WaitTable::assumed("spin,condvar").unwrap()).build()
}

#[test]
fn tells_its_parker_from_others() {
    let (a, b) = (parker(), parker());
    let of_a = a.unparker().clone();
    assert!(of_a.will_unpark(&a) && !of_a.will_unpark(&b));
    assert!(of_a.same_parker(a.unparker()) && !of_a.same_parker(b.unparker()));
}

#[test]
fn survives_being_a_pointer() {
    let parker = parker();
    let raw = AtomicPtr::new(Unparker::into_raw(parker.unparker().clone()).cast_mut());
    let waker = thread::spawn(move || {
        // SAFETY: it comes from `into_raw` and is used once.
        let unparker = unsafe { Unparker::from_raw(raw.into_inner()) };
        unparker.unpark();
        unparker
    });
    parker.park();
    assert!(waker.join().unwrap().will_unpark(&parker));
}

/// The parker and all unparkers may be gone.
#[test]
fn a_waker_keeps_what_it_wakes() {
    let parker = parker();
    let waker = Waker::from(parker.unparker().clone());
    let other = waker.clone();
    assert!(waker.will_wake(&other) && !waker.will_wake(Waker::noop()));
    waker.wake_by_ref();
    parker.park();
    waker.wake();
    parker.park();
    drop(parker);
    other.wake_by_ref();
    other.wake();
}

/// A future that another thread makes ready. That thread wakes whoever polled last.
#[derive(Clone, Default)]
struct Flag(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Flag {
    fn raise(&self) {
        let (is_raised, waker) = &*self.0;
        is_raised.store(true, Ordering::Release);
        if let Some(waker) = waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    fn raised_by_another(&self) -> thread::JoinHandle<()> {
        let flag = self.clone();
        thread::spawn(move || flag.raise())
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (is_raised, waker) = &*self.0;
        *waker.lock().unwrap() = Some(context.waker().clone());
        if is_raised.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn blocks_until_another_thread_wakes_the_future() {
    for _ in 0..if cfg!(miri) { 10 } else { 1_000 } {
        let flag = Flag::default();
        let waker = flag.raised_by_another();
        block_on(flag);
        waker.join().unwrap();
    }
}

/// It is woken while being polled: the next poll is not missed.
#[test]
fn a_future_may_wake_itself() {
    let polls = AtomicU32::new(0);
    let yields = poll_fn(|context| {
        context.waker().wake_by_ref();
        if polls.fetch_add(1, Ordering::Relaxed) == 100 { Poll::Ready(7) } else { Poll::Pending }
    });
    assert_eq!(parker().block_on(yields), 7);
    assert_eq!(polls.load(Ordering::Relaxed), 101);
}

/// A waker kept by a future is called late, while the thread blocks on another future.
#[test]
fn a_late_waker_costs_a_poll_and_no_more() {
    let mut kept = None;
    block_on(poll_fn(|context| {
        kept = Some(context.waker().clone());
        Poll::Ready(())
    }));
    kept.unwrap().wake();
    let flag = Flag::default();
    let waker = flag.raised_by_another();
    block_on(flag);
    waker.join().unwrap();
}

#[test]
fn blocks_within_a_future_that_is_blocked_on() {
    let outer = Flag::default();
    let waker = outer.raised_by_another();
    assert_eq!(
        block_on(async {
            block_on(async {
                outer.await;
                1
            }) + block_on(async { 1 })
        }),
        2
    );
    waker.join().unwrap();
}

#[test]
fn blocks_again_after_a_future_that_panicked() {
    std::panic::catch_unwind(|| {
        block_on(async { std::panic::resume_unwind(Box::new("on purpose")) })
    })
    .unwrap_err();
    assert_eq!(block_on(async { 3 }), 3);
}

#[test]
fn blocks_in_the_destructors_of_a_thread_that_ends() {
    struct Last(Arc<AtomicU32>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.store(block_on(async { 5 }), Ordering::Release);
        }
    }
    thread_local! {
        static FIRST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let seen = Arc::new(AtomicU32::new(0));
    let last = Last(seen.clone());
    thread::spawn(move || {
        // Registered first, so it may be destroyed before or after the thread's own parker. Both must work.
        FIRST.set(Some(last));
        block_on(async {});
    })
    .join()
    .unwrap();
    assert_eq!(seen.load(Ordering::Acquire), 5);
}
