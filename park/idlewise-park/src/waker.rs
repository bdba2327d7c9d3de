//! [`block_on`], and unparkers as [`Waker`]s of tasks.
//!
//! A waker is a pointer to the state that a parker shares with its unparkers, and the table of functions
//! below. It needs no allocation. [`block_on`] and [`Parker::block_on`] do not even count a reference,
//! because the parker outlives the future's polls. A future that keeps its waker clones it.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::parker::{Parker, Unparker};

/// The data pointer comes from [`Unparker::into_raw`].
static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

/// # Safety
/// For all four functions: `data` must come from [`Unparker::into_raw`], and its reference must not have
/// been given back.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the reference stays with the waker that is cloned.
    let unparker = ManuallyDrop::new(unsafe { Unparker::from_raw(data) });
    RawWaker::new(Unparker::into_raw(Unparker::clone(&unparker)), &VTABLE)
}

/// # Safety
/// As for [`clone()`].
unsafe fn wake(data: *const ()) {
    // SAFETY: waking by value consumes the waker, so its reference is given back.
    unsafe { Unparker::from_raw(data) }.unpark();
}

/// # Safety
/// As for [`clone()`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the reference stays with the waker.
    ManuallyDrop::new(unsafe { Unparker::from_raw(data) }).unpark();
}

/// # Safety
/// As for [`clone()`].
unsafe fn release(data: *const ()) {
    // SAFETY: a waker that is dropped gives its reference back.
    drop(unsafe { Unparker::from_raw(data) });
}

/// A waker that unparks. It costs what the unparker costs: cloning adds a reference, and waking is one swap
/// unless the thread sleeps.
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
        // SAFETY: the pointer owns one reference, and `VTABLE`'s functions treat it that way. An unparker
        // can be sent and shared.
        unsafe { Waker::from_raw(RawWaker::new(Unparker::into_raw(unparker), &VTABLE)) }
    }
}

impl Parker {
    /// Runs a future on this thread: polls it, and parks until its waker is called. A token left by
    /// somebody else causes an extra poll.
    ///
    /// ```
    /// let parker = idlewise_park::Parker::new();
    /// assert_eq!(parker.block_on(async { 6 * 7 }), 42);
    /// ```
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let data: *const () = self.unparker().as_raw();
        // SAFETY: as in `From`. The reference is `self`'s, which stays alive and in place meanwhile, and
        // this waker does not give it back.
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
    /// The parker that a thread blocks on futures with, unless it is in use.
    static PARKER: std::cell::RefCell<Parker> = std::cell::RefCell::new(Parker::new());
}

/// Runs a future on this thread, waiting in the state that suits the thread's waits. Each thread keeps one
/// parker for that, with what it has learnt. A nested `block_on` creates another.
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
    // A thread that is ending may still block on futures in its last destructors.
    ran.ok()
        .flatten()
        .unwrap_or_else(|| Parker::new().block_on(future.take().expect("it ran nowhere yet")))
}
