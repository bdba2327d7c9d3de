//! Unparkers as wakers of tasks, and [`block_on`].
//!
//! A waker is a pointer to what the parker and its unparkers share, with the table of functions below:
//! nothing is allocated for it. [`block_on`] and [`Parker::block_on`] do not even count a reference,
//! because the parker outlives the future's polls; a future that keeps its waker clones it.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::parker::{Parker, Unparker};

/// The data pointer is one of [`Unparker::into_raw`].
static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

/// # Safety
/// As for all four: `data` came from [`Unparker::into_raw`], and the reference that it counts was
/// not given back.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the reference stays with the waker that is cloned.
    let unparker = ManuallyDrop::new(unsafe { Unparker::from_raw(data) });
    RawWaker::new(Unparker::into_raw(Unparker::clone(&unparker)), &VTABLE)
}

/// # Safety
/// As [`clone()`].
unsafe fn wake(data: *const ()) {
    // SAFETY: a waker that is used up gives its reference back.
    unsafe { Unparker::from_raw(data) }.unpark();
}

/// # Safety
/// As [`clone()`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the reference stays with the waker.
    ManuallyDrop::new(unsafe { Unparker::from_raw(data) }).unpark();
}

/// # Safety
/// As [`clone()`].
unsafe fn release(data: *const ()) {
    // SAFETY: a waker that goes gives its reference back.
    drop(unsafe { Unparker::from_raw(data) });
}

/// A waker that unparks. It costs what the unparker costs: cloning counts a reference, waking is one
/// swap unless the thread sleeps.
///
/// ```
/// use std::task::Waker;
/// use idlewise_park::Parker;
///
/// let parker = Parker::new();
/// let waker = Waker::from(parker.unparker().clone());
/// waker.wake_by_ref();
/// parker.park();
/// ```
impl From<Unparker> for Waker {
    fn from(unparker: Unparker) -> Waker {
        // SAFETY: `VTABLE`'s functions treat the pointer as the one reference that it is, and an
        // unparker can be sent and shared.
        unsafe { Waker::from_raw(RawWaker::new(Unparker::into_raw(unparker), &VTABLE)) }
    }
}

impl Parker {
    /// Runs a future on this thread: polls it, and parks until its waker was called. A token that
    /// somebody else left causes a poll more.
    ///
    /// ```
    /// let parker = idlewise_park::Parker::new();
    /// assert_eq!(parker.block_on(async { 6 * 7 }), 42);
    /// ```
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let data: *const () = self.unparker().as_raw();
        // SAFETY: as in `From`; the reference is `self`'s, which lives on and does not move
        // meanwhile, and this waker does not give it back.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) });
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.park();
        }
    }
}

thread_local! {
    /// What a thread blocks on futures with, unless it does so already.
    static PARKER: std::cell::RefCell<Parker> = std::cell::RefCell::new(Parker::new());
}

/// Runs a future on this thread, which waits in the state that fits its waits. A thread keeps one
/// parker for that and what it learnt; blocking within a future that is blocked on makes another.
///
/// ```
/// assert_eq!(idlewise_park::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = Some(future);
    let ran = PARKER.try_with(|parker| {
        let parker = parker.try_borrow_mut().ok()?;
        future.take().map(|future| parker.block_on(future))
    });
    // A thread that ends blocks on futures from its last destructors too.
    ran.ok()
        .flatten()
        .unwrap_or_else(|| Parker::new().block_on(future.take().expect("it ran nowhere yet")))
}
