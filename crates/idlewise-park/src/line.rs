//! [`Line`]: threads and tasks that wait for a condition, called one by one, first come first called.
//!
//! Whoever makes the condition true calls as many as can use it, which is one load if nobody
//! waits:
//!
//! ```text
//!   waiter                                     caller
//!   1. get in line (count + 1)                 a. change what waiters look at
//!   2.   fence(SeqCst)              ◄─────►    b.   fence(SeqCst)
//!   3. look once more                          c. count > 0: take out the first and wake it
//!   4. wait until called, then from 3.
//! ```
//!
//! At least one of the two sees the other, as in `idlewise_core::IdleSet`: whichever fence is second
//! in their common order, what follows it sees what came before the first.
//!
//! A call is meant for somebody who waits. One that leaves without having used it (its look
//! succeeded before, its deadline came, its future was dropped) calls the next in its place.
//!
//! A thread may stand in several lines at once (`channel/select.rs`). It has one word for all of
//! them, [`Call`], in which the first caller writes which line called; another line's caller then
//! passes it over.

use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;
use std::task::Waker;

use crate::clock::Deadline;
use crate::parker::{Parker, Unparker};
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering, breaks, fence, is_model_over};

/// In a line's state: nobody will ever change the condition again.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Waiters in the order in which they came.
pub(crate) struct Line {
    /// How many there are, and [`CLOSED`]: written under the lock, read without it.
    state: AtomicUsize,
    places: Mutex<Places>,
}

struct Places {
    /// Tickets ascend from the front.
    queue: VecDeque<Place>,
    next_ticket: u64,
}

struct Place {
    ticket: u64,
    who: Who,
}

enum Who {
    /// A thread, and what it calls this line.
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
        // Nothing in here panics half-way, so poisoned places are whole.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call it under the lock, with the queue's new length.
    fn publish(&self, len: usize) {
        let closed = self.state.load(Ordering::Relaxed) & CLOSED;
        // Release: pairs with the Acquire in `is_closed`, whatever the length is by then.
        self.state.store(closed | len, Ordering::Release);
    }

    /// Whether callers have anything to do: somebody waits, or the line is closed. Call it after
    /// the condition was changed and a `fence(SeqCst)`.
    #[inline]
    pub(crate) fn needs_call(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Whether [`Line::close`] was called. If so, what came before it is seen.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Says for ever that nobody stands at the other end. Callers look at it with the count of
    /// waiters, so it costs them nothing.
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
        // Wakers are made and dropped without the lock: theirs is code of others.
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

    /// Leaves the line. `false`: it was called out of it.
    pub(crate) fn leave(&self, ticket: u64) -> bool {
        let mut places = self.lock();
        let Ok(index) = places.index(ticket) else { return false };
        let place = places.queue.remove(index);
        self.publish(places.queue.len());
        drop(places);
        drop(place);
        true
    }

    /// Calls up to `count` of those who wait now. Call it after the condition was changed and a
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
            // Those who come after this call began are not its business.
            let end = *end.get_or_insert(places.next_ticket);
            let who = loop {
                match places.queue.front() {
                    Some(place) if place.ticket < end => {}
                    _ => break None,
                }
                match places.queue.pop_front().map(|place| place.who) {
                    // Another line called it, or it gave up.
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

    /// How many wait, as a hint.
    pub(crate) fn len(&self) -> usize {
        self.state.load(Ordering::Relaxed) & !CLOSED
    }

    /// Waits until an attempt succeeds: in line, and called out of it for each attempt but the first.
    /// `None`: the deadline came.
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
            // Out of line, and free to use the call.
            std::mem::forget(place);
            let result = attempt_or_call_next(self, &mut attempt);
            if result.is_some() {
                return result;
            }
        }
    }
}

/// An attempt of one that was called: if it panics, the next is called.
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

/// A thread's place in one line, left when the wait is over, however it ends.
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
            // The call is another's.
            Some(_) => _ = self.line.call(1),
        }
    }
}

/// Nobody called yet.
const WAITING: usize = usize::MAX;
/// The thread does not wait any more.
const ABANDONED: usize = usize::MAX - 1;

/// Who called a thread that waits in one or several lines.
pub(crate) struct Call {
    /// [`WAITING`], [`ABANDONED`], or what the thread calls the line that called it.
    chosen: AtomicUsize,
    unparker: Unparker,
}

impl Call {
    /// Whether the thread waited still, and is this line's.
    fn choose(&self, operation: usize) -> bool {
        // Release, and Acquire in `abandon` and `chosen`: what the caller did is seen.
        self.chosen
            .compare_exchange(WAITING, operation, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// What a thread waits in lines with.
pub(crate) struct Waiting {
    pub(crate) parker: Parker,
    call: Arc<Call>,
}

impl Waiting {
    pub(crate) fn new(parker: Parker) -> Self {
        let unparker = parker.unparker().clone();
        Waiting { parker, call: Arc::new(Call { chosen: AtomicUsize::new(ABANDONED), unparker }) }
    }

    /// Begins a wait. The thread must stand in no line.
    pub(crate) fn begin(&self) {
        // Relaxed: callers learn of it by the line's lock.
        self.call.chosen.store(WAITING, Ordering::Relaxed);
    }

    /// Waits until some line calls, and returns which; or until the deadline: then no line will.
    pub(crate) fn wait(&self, deadline: Option<Deadline>) -> Option<usize> {
        loop {
            match self.call.chosen.load(Ordering::Acquire) {
                WAITING => {}
                chosen => return Some(chosen),
            }
            // A token may be left of an earlier wait: only the word counts.
            if !self.parker.park_until(deadline).is_woken() {
                return self.abandon();
            }
        }
    }

    /// Ends the wait. What called the thread, if anything did.
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
    /// What this thread waits with, unless it does. Kept, because making one costs.
    static WAITING_OF_THREAD: Kept = const { Kept::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static WAITING_OF_THREAD: Kept = Kept::new(None);
}

/// Calls with what this thread waits with. Nested calls, and those of a thread that ends, get
/// one of their own.
pub(crate) fn with_waiting<R>(wait: impl FnOnce(&Waiting) -> R) -> R {
    let kept = WAITING_OF_THREAD.try_with(Kept::take).ok().flatten();
    let waiting = kept.unwrap_or_else(|| Box::new(Waiting::new(Parker::new())));
    let result = wait(&waiting);
    let _ = WAITING_OF_THREAD.try_with(|kept| kept.set(Some(waiting)));
    result
}
