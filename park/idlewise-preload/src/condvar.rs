//! `pthread_cond_*`: a queue of waiters, each with a one-word parker on its stack.
//!
//! The queue is stored in the program's `pthread_cond_t`. If that is all zero (a static initialiser), the
//! queue is empty. The word with glibc's flags stays glibc's. Condition variables shared between processes
//! are passed on to glibc, and so is everything if glibc's layout is not the expected one.
//!
//! ```text
//!            1 enqueue            2 signal (unlinks)
//!   waiter ────────────► QUEUED ────────────────────► SIGNALLED ─► its parker is rung
//!                          │ 3 deadline            4 pthread_cancel
//!                          ├───────────► LEAVING
//!                          └───────────► CANCELLED ─► its parker is rung
//! ```
//!
//! Whoever takes edge 2 or 4 rings once, and the waiter waits for that ring before its place is gone. After
//! edges 3 and 4 the waiter unlinks itself.
//!
//! A signalled waiter never touches the condition variable again, so it may be destroyed as soon as nobody
//! waits. A waiter that leaves by itself does touch it, under the lock, and `destroy` waits for that. A
//! signal wakes exactly one thread: the one that has waited longest. The only spurious wake-up comes from a
//! cancellation that the thread has disabled.
//!
//! **fork.** The child has copies of the queues but not the threads in them, whose stacks are reused. The
//! lock's word counts the forks in this process's ancestry. A queue from before a fork is dropped.

use std::ffi::c_int;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use idlewise_park::{RawParker, word};
use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};

use crate::cancel;
use crate::next::{IS_MONOTONIC, IS_SHARED, cond_clockwait, flags, next};
use crate::node::{CANCELLED, LEAVING, Node, QUEUED, SIGNALLED};

unsafe extern "C" {
    // libc declares it for other systems only.
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// The contents of a private `pthread_cond_t`: 24 of its 48 bytes, not including glibc's flags.
#[repr(C)]
struct Queue {
    /// Bits 1 and 0: [`FREE`], [`LOCKED`], [`CONTENDED`]. The higher bits count forks.
    lock: AtomicU32,
    unused: u32,
    first: AtomicPtr<Node>,
    last: AtomicPtr<Node>,
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;
const LOCK_MASK: u32 = 3;

/// The number of forks between the first process and this one.
static FORK_COUNT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn after_fork() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    cancel::forget_after_fork();
}

/// Starts counting forks, before anything is queued.
fn count_forks() {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: the handler only writes words. If there is no memory for it, forks are not counted.
        unsafe { pthread_atfork(None, None, Some(after_fork)) };
    });
}

impl Queue {
    /// The program's condition variable, unless glibc must handle it.
    unsafe fn of<'a>(cond: *mut pthread_cond_t) -> Option<&'a Queue> {
        // SAFETY: it is initialised, as POSIX requires.
        if !next().takes_over || unsafe { flags(cond) } & IS_SHARED != 0 {
            return None;
        }
        // SAFETY: 48 bytes, aligned to 8, and always used as a Queue.
        Some(unsafe { &*cond.cast::<Queue>() })
    }

    fn forks() -> u32 {
        FORK_COUNT.load(Ordering::Relaxed) << 2
    }

    fn lock(&self) {
        let free = Self::forks();
        let locked =
            self.lock.compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if locked.is_err() {
            self.lock_contended(free);
        }
    }

    #[cold]
    fn lock_contended(&self, free: u32) {
        let mut wanted = LOCKED;
        loop {
            let found = self.lock.load(Ordering::Relaxed);
            let is_old = found & !LOCK_MASK != free;
            if is_old || found & LOCK_MASK == FREE {
                let locked = self.lock.compare_exchange_weak(
                    found,
                    free | wanted,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if locked.is_ok() {
                    if is_old {
                        // It belongs to a process before a fork, whose threads are not here.
                        self.first.store(ptr::null_mut(), Ordering::Relaxed);
                        self.last.store(ptr::null_mut(), Ordering::Relaxed);
                    }
                    return;
                }
            } else if found & LOCK_MASK == CONTENDED
                || self
                    .lock
                    .compare_exchange(found, free | CONTENDED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                word::wait(&self.lock, free | CONTENDED);
                // There may be other sleepers.
                wanted = CONTENDED;
            }
        }
    }

    fn unlock(&self) {
        let address = ptr::from_ref(&self.lock);
        let before = self.lock.swap(Self::forks(), Ordering::Release);
        if before & LOCK_MASK == CONTENDED {
            // The memory may be gone: the address is not read.
            word::wake_one(address);
        }
    }

    /// The caller holds the lock.
    fn push(&self, node: &Node) {
        let place = ptr::from_ref(node).cast_mut();
        let last = self.last.swap(place, Ordering::Relaxed);
        node.before.store(last, Ordering::Relaxed);
        // SAFETY: a linked node's waiter still exists, because waiters leave under the lock.
        match unsafe { last.as_ref() } {
            Some(last) => last.after.store(place, Ordering::Relaxed),
            None => self.first.store(place, Ordering::Relaxed),
        }
    }

    /// The caller holds the lock.
    fn unlink(&self, node: &Node) {
        let before = node.before.load(Ordering::Relaxed);
        let after = node.after.load(Ordering::Relaxed);
        // SAFETY: as in `push`.
        let (found_before, found_after) = unsafe { (before.as_ref(), after.as_ref()) };
        match found_before {
            Some(node) => node.after.store(after, Ordering::Relaxed),
            None => self.first.store(after, Ordering::Relaxed),
        }
        match found_after {
            Some(node) => node.before.store(before, Ordering::Relaxed),
            None => self.last.store(before, Ordering::Relaxed),
        }
    }

    /// Takes the waiter that has waited longest and is not leaving, if there is one, out of the queue and
    /// marks it signalled. The caller holds the lock, and must ring it.
    fn take_first(&self) -> Option<&Node> {
        let mut place = self.first.load(Ordering::Relaxed);
        // SAFETY: as in `push`.
        while let Some(node) = unsafe { place.as_ref() } {
            // Edge 2. The waiter stays until it is rung.
            if node.take_edge(SIGNALLED) {
                self.unlink(node);
                return Some(node);
            }
            place = node.after.load(Ordering::Relaxed);
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.first.load(Ordering::Relaxed).is_null()
    }
}

/// The deadline of a wait.
#[derive(Clone, Copy)]
struct Until {
    clock: clockid_t,
    at: timespec,
}

/// The wall clock may be set during a sleep, so a wait that uses it checks it at this interval.
const WALL_CLOCK_LOOK: Duration = Duration::from_secs(1);

impl Until {
    /// The time that is left; `None` if it has passed.
    fn left(self) -> Option<Duration> {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `now`.
        unsafe { libc::clock_gettime(self.clock, &mut now) };
        let ns =
            |time: timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        let left = ns(self.at) - ns(now);
        (left > 0).then(|| {
            let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
            if self.clock == libc::CLOCK_REALTIME { left.min(WALL_CLOCK_LOOK) } else { left }
        })
    }
}

/// Waits with the mutex held, as in POSIX. A cancellation can unwind it: it has no destructors.
unsafe fn wait(queue: &Queue, mutex: *mut pthread_mutex_t, until: Option<Until>) -> c_int {
    count_forks();
    cancel::enlist();
    // SAFETY: a cancellation point, with the mutex held and nothing queued yet.
    unsafe { cancel::test() };
    let node = Node {
        state: AtomicU32::new(QUEUED),
        parker: RawParker::new(),
        before: AtomicPtr::new(ptr::null_mut()),
        after: AtomicPtr::new(ptr::null_mut()),
    };
    if !cancel::publish(&node) {
        cancel::withdraw();
        // SAFETY: a cancellation point, with the mutex held and nothing queued. If it returns, the thread
        // has disabled cancellation, and this wait can't be cancelled.
        unsafe { cancel::test() };
    }
    queue.lock();
    queue.push(&node);
    queue.unlock();
    // SAFETY: the program's mutex.
    let unlocked = unsafe { libc::pthread_mutex_unlock(mutex) };
    if unlocked != 0 {
        // The thread does not hold the mutex, so there is nothing to lock again.
        leave(queue, &node);
        cancel::withdraw();
        return unlocked;
    }
    let ended = sleep(queue, &node, until);
    cancel::withdraw();
    // SAFETY: as above.
    let locked = unsafe { libc::pthread_mutex_lock(mutex) };
    if ended == CANCELLED {
        // SAFETY: a cancellation point, with the mutex held, and out of the queue. If it returns, the
        // thread has disabled cancellation, and this is a spurious wake-up.
        unsafe { cancel::test() };
    }
    if locked == 0 && ended == LEAVING { libc::ETIMEDOUT } else { locked }
}

/// Sleeps until one of the edges is taken, and returns which.
fn sleep(queue: &Queue, node: &Node, until: Option<Until>) -> u32 {
    loop {
        match until.map(Until::left) {
            None => node.parker.park(),
            Some(Some(left)) => {
                if !node.parker.park_timeout(left).is_woken() {
                    continue;
                }
            }
            Some(None) => return leave(queue, node),
        }
        // It was rung, so edge 2 or 4 was taken.
        let state = node.state.load(Ordering::Acquire);
        if state == CANCELLED {
            queue.lock();
            queue.unlink(node);
            queue.unlock();
        }
        return state;
    }
}

/// Takes edge 3, unless another was taken before, and returns which. The waiter is then out of the queue.
fn leave(queue: &Queue, node: &Node) -> u32 {
    if !node.take_edge(LEAVING) {
        // The ring is on its way.
        node.parker.park();
    }
    let state = node.state.load(Ordering::Acquire);
    if state != SIGNALLED {
        queue.lock();
        queue.unlink(node);
        queue.unlock();
    }
    state
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_init(
    cond: *mut pthread_cond_t,
    attributes: *const pthread_condattr_t,
) -> c_int {
    // glibc writes the flags, and zeros everywhere else.
    // SAFETY: the program's arguments.
    unsafe { (next().cond_init)(cond, attributes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the program's condition variable.
    let Some(queue) = (unsafe { Queue::of(cond) }) else {
        // SAFETY: the same.
        return unsafe { (next().cond_destroy)(cond) };
    };
    loop {
        queue.lock();
        let is_empty = queue.is_empty();
        // A waiter that leaves will soon be gone. POSIX allows no other waiters; glibc would hang here.
        let mut place = queue.first.load(Ordering::Relaxed);
        let mut waits = false;
        // SAFETY: as in `push`.
        while let Some(node) = unsafe { place.as_ref() } {
            waits |= node.state.load(Ordering::Relaxed) == QUEUED;
            place = node.after.load(Ordering::Relaxed);
        }
        queue.unlock();
        if is_empty {
            return 0;
        }
        if waits {
            return libc::EBUSY;
        }
        std::thread::yield_now();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        match Queue::of(cond) {
            Some(queue) => wait(queue, mutex, None),
            None => (next().cond_wait)(cond, mutex),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: *const timespec,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        let Some(queue) = Queue::of(cond) else {
            return (next().cond_timedwait)(cond, mutex, deadline);
        };
        let clock = match flags(cond) & IS_MONOTONIC {
            0 => libc::CLOCK_REALTIME,
            _ => libc::CLOCK_MONOTONIC,
        };
        wait_until(queue, mutex, clock, *deadline)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        match (Queue::of(cond), cond_clockwait()) {
            (Some(queue), _) if clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC => {
                wait_until(queue, mutex, clock, *deadline)
            }
            (None, Some(clockwait)) => clockwait(cond, mutex, clock, deadline),
            _ => libc::EINVAL,
        }
    }
}

unsafe fn wait_until(
    queue: &Queue,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    at: timespec,
) -> c_int {
    if !(0..1_000_000_000).contains(&at.tv_nsec) {
        return libc::EINVAL;
    }
    // SAFETY: the program's mutex.
    unsafe { wait(queue, mutex, Some(Until { clock, at })) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the program's condition variable.
    let Some(queue) = (unsafe { Queue::of(cond) }) else {
        // SAFETY: the same.
        return unsafe { (next().cond_signal)(cond) };
    };
    if queue.is_empty() {
        // A thread that began to wait with the mutex that the caller holds or held is visible here, because
        // it was queued before it released the mutex.
        return 0;
    }
    queue.lock();
    let parker = queue.take_first().map(|node| ptr::from_ref(&node.parker));
    queue.unlock();
    if let Some(parker) = parker {
        // SAFETY: its waiter waits for this ring before its place is gone.
        unsafe { RawParker::unpark_raw(parker) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the program's condition variable.
    let Some(queue) = (unsafe { Queue::of(cond) }) else {
        // SAFETY: the same.
        return unsafe { (next().cond_broadcast)(cond) };
    };
    if queue.is_empty() {
        return 0;
    }
    queue.lock();
    let mut chain: *const Node = ptr::null();
    while let Some(node) = queue.take_first() {
        // It is out of the queue, so its links are free to use. POSIX does not specify a broadcast's order.
        node.after.store(chain.cast_mut(), Ordering::Relaxed);
        chain = node;
    }
    queue.unlock();
    // SAFETY: each waiter waits for its ring before its place is gone.
    while let Some(node) = unsafe { chain.as_ref() } {
        let parker = ptr::from_ref(&node.parker);
        chain = node.after.load(Ordering::Relaxed);
        // SAFETY: the same.
        unsafe { RawParker::unpark_raw(parker) };
    }
    0
}
