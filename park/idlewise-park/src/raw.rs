//! [`RawParker`] and [`ProcessParker`]: parkers of one word, to embed in other structures.
//!
//! They store no history. Each thread keeps one history for all of them, and uses it to decide whether to
//! poll and for how long.

use std::cell::RefCell;
use std::fmt;
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use idlewise_core::{Doorbell, Ring};

use crate::clock::Deadline;
use crate::learn;
use crate::load;
use crate::outcome::ParkOutcome;
use crate::parker::tell;
use crate::table::WaitTable;
use crate::wait::word::Reach;
use crate::waiter::Waiter;

type History = RefCell<Option<Box<Waiter>>>;

thread_local! {
    /// The history of this thread's waits on words.
    static HISTORY: History = const { RefCell::new(None) };
    #[cfg(target_os = "linux")]
    static HISTORY_WITH_OTHERS: History = const { RefCell::new(None) };
}

fn new_waiter(reach: Reach) -> Waiter {
    load::prepare();
    Waiter::new(WaitTable::host().clone(), None, None).with_reach(reach)
}

#[cold]
fn wait(
    history: &'static LocalKey<History>,
    reach: Reach,
    bell: &Doorbell,
    deadline: Option<Deadline>,
) -> ParkOutcome {
    let wait = history.try_with(|history| {
        let mut history = history.borrow_mut();
        history.get_or_insert_with(|| Box::new(new_waiter(reach))).wait(bell, deadline)
    });
    // A thread that is ending still waits in its last destructors.
    tell(wait.unwrap_or_else(|_| new_waiter(reach).wait(bell, deadline)))
}

/// A parker of four bytes that needs no allocation, for a node in a list, a task's header or a `static`.
///
/// Like [`Parker`](crate::Parker), it holds at most one token. Only one thread at a time may wait on it,
/// and whoever embeds it must ensure that. With two, either may take the other's token or return without
/// one. Zeroed memory is a valid parker without a token.
///
/// ```
/// use idlewise_park::RawParker;
///
/// static DONE: RawParker = RawParker::new();
/// let worker = std::thread::spawn(|| DONE.unpark());
/// DONE.park();
/// worker.join().unwrap();
/// ```
#[derive(Default)]
#[repr(transparent)]
pub struct RawParker {
    bell: Doorbell,
}

impl RawParker {
    /// Creates a parker without a token.
    ///
    /// ```
    /// # use idlewise_park::RawParker;
    /// static PARKER: RawParker = RawParker::new();
    /// ```
    pub const fn new() -> Self {
        RawParker { bell: Doorbell::new() }
    }

    /// Blocks until there is a token, and takes it.
    ///
    /// ```
    /// # use idlewise_park::RawParker;
    /// static PARKER: RawParker = RawParker::new();
    /// std::thread::spawn(|| PARKER.unpark());
    /// PARKER.park();
    /// ```
    #[inline]
    pub fn park(&self) {
        self.park_until(|| None);
    }

    /// Blocks until there is a token, but no longer than `timeout`.
    ///
    /// ```
    /// # use idlewise_park::{ParkOutcome, RawParker};
    /// # use std::time::Duration;
    /// let parker = RawParker::new();
    /// assert_eq!(parker.park_timeout(Duration::from_millis(1)), ParkOutcome::TimedOut);
    /// ```
    #[inline]
    pub fn park_timeout(&self, timeout: Duration) -> ParkOutcome {
        self.park_until(|| Deadline::after(timeout))
    }

    /// Blocks until there is a token or `deadline` passes. A token that is there is taken even after that.
    ///
    /// ```
    /// # use idlewise_park::{ParkOutcome, RawParker};
    /// # use std::time::{Duration, Instant};
    /// let parker = RawParker::new();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(parker.park_deadline(deadline), ParkOutcome::TimedOut);
    /// ```
    #[inline]
    pub fn park_deadline(&self, deadline: Instant) -> ParkOutcome {
        self.park_until(|| Some(Deadline::at(deadline)))
    }

    #[inline]
    fn park_until(&self, deadline: impl FnOnce() -> Option<Deadline>) -> ParkOutcome {
        if self.bell.take() {
            return ParkOutcome::Woken;
        }
        wait(&HISTORY, Reach::Process, &self.bell, deadline())
    }

    /// Leaves a token and wakes the waiter, with a system call only if it sleeps and nobody else is waking
    /// it. What the caller wrote before is visible after the `park` that takes the token.
    ///
    /// ```
    /// # use idlewise_park::RawParker;
    /// let parker = RawParker::new();
    /// parker.unpark();
    /// parker.park();
    /// ```
    #[inline]
    pub fn unpark(&self) {
        // SAFETY: a reference is alive.
        unsafe { Self::unpark_raw(self) }
    }

    /// Like [`RawParker::unpark`], for a parker that may be gone as soon as its waiter has the token, such
    /// as one on the waiter's stack.
    ///
    /// ```
    /// use idlewise_park::RawParker;
    ///
    /// struct Place(*const RawParker);
    /// // SAFETY: its parker lives until it is woken.
    /// unsafe impl Send for Place {}
    ///
    /// let parker = RawParker::new();
    /// let place = Place(&parker);
    /// let waker = std::thread::spawn(move || {
    ///     let place = place;
    ///     // SAFETY: the parker lives until it is woken, and it is woken once.
    ///     unsafe { RawParker::unpark_raw(place.0) }
    /// });
    /// parker.park();
    /// drop(parker);
    /// # waker.join().unwrap();
    /// ```
    ///
    /// # Safety
    /// `this` must stay alive until its waiter has a token that this call, or a later one, left.
    #[inline]
    pub unsafe fn unpark_raw(this: *const RawParker) {
        // SAFETY: the caller guarantees that it is alive until this ring can be seen. The reference is to
        // an atomic word, so the compiler reads nothing through it after the ring.
        if unsafe { (*this).bell.ring() } == Ring::MustWake {
            wake_sleeper(this.cast());
        }
    }

    /// Returns a waker for a parker in a `static`. It counts no references.
    ///
    /// ```
    /// # use idlewise_park::RawParker;
    /// static PARKER: RawParker = RawParker::new();
    /// PARKER.waker().wake();
    /// PARKER.park();
    /// ```
    pub fn waker(&'static self) -> Waker {
        static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| {});
        unsafe fn clone(data: *const ()) -> RawWaker {
            RawWaker::new(data, &VTABLE)
        }
        unsafe fn wake(data: *const ()) {
            // SAFETY: `data` was a `&'static RawParker`.
            unsafe { &*data.cast::<RawParker>() }.unpark();
        }
        let data: *const RawParker = self;
        // SAFETY: the functions only ring, which any thread may do at any time.
        unsafe { Waker::from_raw(RawWaker::new(data.cast(), &VTABLE)) }
    }
}

/// The system call, for a word that was SLEEPING before the ring.
#[cold]
fn wake_sleeper(bell: *const Doorbell) {
    let sleep = WaitTable::host().states().last().expect("a table ends with a sleep").method;
    learn::wake(sleep, bell);
}

impl fmt::Debug for RawParker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawParker").field("state", &self.bell.state()).finish()
    }
}

/// A parker of four bytes for memory that several processes share, such as the head of a ring buffer
/// (Linux).
///
/// It uses the protocol of [`RawParker`], but sleeps and wake-ups work across processes. Zeroed memory is a
/// valid parker without a token. Whatever another process writes there, the worst that can happen is that a
/// wait ends early or late.
///
/// A process may be killed at any moment. If it was the waiter, the next one takes over and waits as if
/// nobody had before. If it was a waker, killed between its store and its system call, nobody makes that
/// call. Use [`ProcessParker::park_timeout`] where a wait must not last for ever.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use idlewise_park::ProcessParker;
///
/// # let mut mapping = [0u32; 1024];
/// # let memory = mapping.as_mut_ptr();
/// // `memory` is where this process has mapped what it shares.
/// // SAFETY: it stays mapped, and others use this word as a `ProcessParker` too.
/// let parker = unsafe { ProcessParker::from_ptr(memory) };
/// parker.unpark();
/// parker.park();
/// # }
/// ```
#[cfg(target_os = "linux")]
#[derive(Default)]
#[repr(transparent)]
pub struct ProcessParker {
    bell: Doorbell,
}

#[cfg(target_os = "linux")]
impl ProcessParker {
    /// Creates a parker without a token, to be written into shared memory.
    pub const fn new() -> Self {
        ProcessParker { bell: Doorbell::new() }
    }

    /// Returns the parker at this address.
    ///
    /// # Safety
    /// `word` must be aligned to 4 bytes, stay mapped for `'a`, and be written only atomically.
    pub unsafe fn from_ptr<'a>(word: *mut u32) -> &'a ProcessParker {
        // SAFETY: a ProcessParker is one word, and the caller guarantees the rest.
        unsafe { &*word.cast::<ProcessParker>() }
    }

    /// Blocks until there is a token, and takes it.
    #[inline]
    pub fn park(&self) {
        // It returns without a token if the word comes from a process that died asleep, or from one that
        // does not know the protocol.
        while self.park_until(None) == ParkOutcome::TimedOut {}
    }

    /// Blocks until there is a token, but no longer than `timeout`.
    #[inline]
    pub fn park_timeout(&self, timeout: Duration) -> ParkOutcome {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.park_deadline(deadline),
            None => {
                self.park();
                ParkOutcome::Woken
            }
        }
    }

    /// Blocks until there is a token or `deadline` passes. A token that is there is taken even after that.
    pub fn park_deadline(&self, deadline: Instant) -> ParkOutcome {
        loop {
            let outcome = self.park_until(Some(deadline));
            // As in `park`.
            if outcome.is_woken() || Instant::now() >= deadline {
                return outcome;
            }
        }
    }

    #[inline]
    fn park_until(&self, deadline: Option<Instant>) -> ParkOutcome {
        if self.bell.take() {
            return ParkOutcome::Woken;
        }
        let deadline = deadline.map(Deadline::at);
        wait(&HISTORY_WITH_OTHERS, Reach::Processes, &self.bell, deadline)
    }

    /// Leaves a token and wakes the waiter, with a system call only if it sleeps and nobody else is waking
    /// it. What the caller wrote before is visible after the `park` that takes the token.
    #[inline]
    pub fn unpark(&self) {
        if self.bell.ring() == Ring::MustWake {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        Reach::Processes.sleep().wake(&self.bell);
    }
}

#[cfg(target_os = "linux")]
impl fmt::Debug for ProcessParker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessParker").field("state", &self.bell.state()).finish()
    }
}
