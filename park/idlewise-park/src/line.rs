//! [`Line`]: a first-come, first-served queue of threads and tasks that wait for a condition.
//!
//! Whoever makes the condition true calls as many waiters as can use it. If nobody waits, that costs
//! one load:
//!
//! ```text
//!   waiter                                     caller
//!   1. get in line (count + 1)                 a. change what waiters look at
//!   2.   fence(SeqCst)              ◄─────►    b.   fence(SeqCst)
//!   3. look once more                          c. count > 0: take out the first and wake it
//!   4. wait until called, then from 3.
//! ```
//!
//! At least one of the two sees the other, as in `idlewise_core::IdleSet`. Whichever fence comes second in
//! their common order, the code behind it sees what came before the first.
//!
//! A call is meant for a waiter. One that leaves without having used its call (its look had succeeded, its
//! deadline passed, or its future was dropped) calls the next waiter instead.
//!
//! A thread may stand in several lines at once (`channel/select.rs`). It has one word for all of them,
//! [`Call`]. The first caller writes into it which line called, and callers of other lines then pass the
//! thread over.

use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;
use std::task::Waker;

use crate::clock::Deadline;
use crate::parker::{Parker, Unparker};
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering, breaks, fence, is_model_over};

/// A bit of the line's state: nobody will ever change the condition again.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Waiters in the order of their arrival.
pub(crate) struct Line {
    /// The number of waiters, and [`CLOSED`]. Written under the lock, read without it.
    state: AtomicUsize,
    places: Mutex<Places>,
}

struct Places {
    /// Tickets ascend from front to back.
    queue: VecDeque<Place>,
    next_ticket: u64,
}

struct Place {
    ticket: u64,
    who: Who,
}

enum Who {
    /// A thread, and the name it has for this line.
    Thread(Arc<Call>, usize),
    Task(Waker),
}

impl Line {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        let places = Places { queue: VecDeque::new(), next_ticket: 0 };
        Line { state: AtomicUsize::new(0), places: Mutex::new(places) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let places = Places { queue: VecDeque::new(), next_ticket: 0 };
        Line { state: AtomicUsize::new(0), places: Mutex::new(places) }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // Nothing in here can panic half-way, so poisoned places are still consistent.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the queue's new length. The caller holds the lock.
    fn publish(&self, len: usize) {
        let closed = self.state.load(Ordering::Relaxed) & CLOSED;
        // Release: pairs with the Acquire in `is_closed`, whatever the length is by then.
        self.state.store(closed | len, Ordering::Release);
    }

    /// Whether callers have anything to do: somebody waits, or the line is closed. Call it after changing
    /// the condition and a `fence(SeqCst)`.
    #[inline]
    pub(crate) fn needs_call(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Whether [`Line::close`] was called. If so, everything before that call is visible.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Declares that nobody will ever stand at the other end again. Callers read it together with the
    /// number of waiters, so it costs them nothing.
    pub(crate) fn close(&self) {
        let places = self.lock();
        let len = places.queue.len();
        self.state.store(CLOSED | len, Ordering::Release);
        drop(places);
        fence(Ordering::SeqCst); // with the one before `needs_call`
    }

    fn enter(&self, who: Who) -> u64 {
        let mut places = self.lock();
        let ticket = places.next_ticket;
        places.next_ticket += 1;
        places.queue.push_back(Place { ticket, who });
        self.publish(places.queue.len());
        drop(places);
        if !breaks!(EnterLineWithoutFence) {
            fence(Ordering::SeqCst); // with the one before `needs_call`
        }
        ticket
    }

    /// A thread gets in line, under the name `operation`.
    pub(crate) fn enter_thread(&self, waiting: &Waiting, operation: usize) -> u64 {
        self.enter(Who::Thread(waiting.call.clone(), operation))
    }

    /// A task gets in line, or stays there with a new waker.
    pub(crate) fn enter_task(&self, ticket: Option<u64>, waker: &Waker) -> u64 {
        // Wakers are cloned and dropped without the lock, because their code is not ours.
        let mut waker = waker.clone();
        if let Some(ticket) = ticket {
            let mut places = self.lock();
            if let Some(Place { who: Who::Task(old), .. }) = places.get(ticket) {
                std::mem::swap(old, &mut waker);
                drop(places);
                fence(Ordering::SeqCst); // with the one before `needs_call`
                return ticket;
            }
        }
        self.enter(Who::Task(waker))
    }

    /// Leaves the line. Returns `false` if it was called out of the line before.
    pub(crate) fn leave(&self, ticket: u64) -> bool {
        let mut places = self.lock();
        let Ok(index) = places.index(ticket) else { return false };
        let place = places.queue.remove(index);
        self.publish(places.queue.len());
        drop(places);
        drop(place);
        true
    }

    /// Calls up to `count` of the present waiters. Call it after changing the condition and a
    /// `fence(SeqCst)`.
    #[inline]
    pub(crate) fn call(&self, count: usize) -> usize {
        if self.state.load(Ordering::Relaxed) & !CLOSED == 0 { 0 } else { self.call_now(count) }
    }

    #[cold]
    fn call_now(&self, count: usize) -> usize {
        let mut called = 0;
        let mut end = None;
        while called < count {
            let mut places = self.lock();
            // Skip waiters that came after this call began.
            let end = *end.get_or_insert(places.next_ticket);
            let who = loop {
                match places.queue.front() {
                    Some(place) if place.ticket < end => {}
                    _ => break None,
                }
                match places.queue.pop_front().map(|place| place.who) {
                    // Another line called the thread, or it gave up.
                    Some(Who::Thread(call, operation)) if !call.choose(operation) => {}
                    who => break who,
                }
            };
            self.publish(places.queue.len());
            drop(places);
            match who {
                Some(Who::Thread(call, _)) => call.unparker.unpark(),
                Some(Who::Task(waker)) => waker.wake(),
                None => break,
            }
            called += 1;
        }
        called
    }

    /// The number of waiters, as a hint.
    pub(crate) fn len(&self) -> usize {
        self.state.load(Ordering::Relaxed) & !CLOSED
    }

    /// Waits in line until an attempt succeeds. Each attempt but the first follows a call. Returns `None`
    /// if the deadline passed.
    pub(crate) fn wait_until<R>(
        &self,
        waiting: &Waiting,
        deadline: Option<Deadline>,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        loop {
            waiting.begin();
            let place =
                PlaceOfThread { line: self, waiting, ticket: self.enter_thread(waiting, 0) };
            let first = attempt();
            if first.is_some() {
                return first;
            }
            let was_called = waiting.wait(deadline).is_some();
            if !was_called {
                drop(place);
                return attempt();
            }
            // It is no longer in line, and may use the call.
            std::mem::forget(place);
            let result = attempt_or_call_next(self, &mut attempt);
            if result.is_some() {
                return result;
            }
        }
    }
}

/// The attempt of a waiter that was called. If it panics, the next waiter is called.
fn attempt_or_call_next<R>(line: &Line, attempt: &mut impl FnMut() -> Option<R>) -> Option<R> {
    struct CallsNext<'a>(&'a Line);
    impl Drop for CallsNext<'_> {
        fn drop(&mut self) {
            self.0.call(1);
        }
    }
    let next = CallsNext(line);
    let result = attempt();
    std::mem::forget(next);
    result
}

impl Places {
    fn index(&self, ticket: u64) -> Result<usize, usize> {
        self.queue.binary_search_by_key(&ticket, |place| place.ticket)
    }

    fn get(&mut self, ticket: u64) -> Option<&mut Place> {
        let index = self.index(ticket).ok()?;
        self.queue.get_mut(index)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("len", &self.len()).finish()
    }
}

/// A thread's place in one line. It is left when the wait ends, in whatever way.
struct PlaceOfThread<'a> {
    line: &'a Line,
    waiting: &'a Waiting,
    ticket: u64,
}

impl Drop for PlaceOfThread<'_> {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        match self.waiting.abandon() {
            None => _ = self.line.leave(self.ticket),
            Some(_) if breaks!(CallKept) => {}
            // The call belongs to another waiter.
            Some(_) => _ = self.line.call(1),
        }
    }
}

/// Nobody has called yet.
const WAITING: usize = usize::MAX;
/// The thread no longer waits.
const ABANDONED: usize = usize::MAX - 1;

/// Who called a thread that waits in one or more lines.
pub(crate) struct Call {
    /// [`WAITING`], [`ABANDONED`], or the thread's name for the line that called it.
    chosen: AtomicUsize,
    unparker: Unparker,
}

impl Call {
    /// Whether the thread was still waiting, and is now this line's.
    fn choose(&self, operation: usize) -> bool {
        // Release pairs with Acquire in `abandon` and `chosen`: the thread sees what the caller did.
        self.chosen
            .compare_exchange(WAITING, operation, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// What a thread needs to wait in lines.
pub(crate) struct Waiting {
    pub(crate) parker: Parker,
    call: Arc<Call>,
}

impl Waiting {
    pub(crate) fn new(parker: Parker) -> Self {
        let unparker = parker.unparker().clone();
        Waiting { parker, call: Arc::new(Call { chosen: AtomicUsize::new(ABANDONED), unparker }) }
    }

    /// Begins a wait. The thread must not be in any line.
    pub(crate) fn begin(&self) {
        // Relaxed: callers learn of it through the line's lock.
        self.call.chosen.store(WAITING, Ordering::Relaxed);
    }

    /// Waits until a line calls, and returns which. `None`: the deadline passed, and no line will call any
    /// more.
    pub(crate) fn wait(&self, deadline: Option<Deadline>) -> Option<usize> {
        loop {
            match self.call.chosen.load(Ordering::Acquire) {
                WAITING => {}
                chosen => return Some(chosen),
            }
            // An earlier wait may have left a token, so only the word counts.
            if !self.parker.park_until(deadline).is_woken() {
                return self.abandon();
            }
        }
    }

    /// Ends the wait. Returns which line called the thread, if any did.
    pub(crate) fn abandon(&self) -> Option<usize> {
        match self.call.chosen.swap(ABANDONED, Ordering::AcqRel) {
            WAITING | ABANDONED => None,
            chosen => Some(chosen),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("parker", &self.parker).finish()
    }
}

type Kept = std::cell::Cell<Option<Box<Waiting>>>;

#[cfg(not(loom))]
thread_local! {
    /// What this thread waits with, unless it is in use. Kept because it is expensive to create.
    static WAITING_OF_THREAD: Kept = const { Kept::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static WAITING_OF_THREAD: Kept = Kept::new(None);
}

/// Calls `wait` with what this thread waits with. Nested calls, and calls of a thread that is ending, get
/// one of their own.
pub(crate) fn with_waiting<R>(wait: impl FnOnce(&Waiting) -> R) -> R {
    let kept = WAITING_OF_THREAD.try_with(Kept::take).ok().flatten();
    let waiting = kept.unwrap_or_else(|| Box::new(Waiting::new(Parker::new())));
    let result = wait(&waiting);
    let _ = WAITING_OF_THREAD.try_with(|kept| kept.set(Some(waiting)));
    result
}
