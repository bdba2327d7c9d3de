//! `pthread_cancel`: wakes a thread that waits on a parker, so that it can act on the cancellation.
//!
//! glibc cancels its own waits with a flag and, while the thread sleeps, a signal. Waits here sleep in a
//! plain futex call. So the canceller checks whether the thread waits here, takes it out of its wait as a
//! signal would ([`Node::cancel`]), and rings. The waiter then locks its mutex again and calls
//! `pthread_testcancel`.
//!
//! A waiter publishes its place, then checks whether it was cancelled. A canceller sets the flag, then
//! looks for the place. Both orders are SeqCst, so at least one sees the other.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use idlewise_park::word;
use libc::pthread_t;

use crate::next::next;
use crate::node::Node;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// A cancellation point.
///
/// # Safety
/// No frame between the thread's start and here may have a destructor that must run, except C and C++ ones.
pub(crate) unsafe fn test() {
    // SAFETY: the caller guarantees this.
    unsafe { pthread_testcancel() };
}

/// A thread that has waited here.
struct Record {
    thread: Cell<pthread_t>,
    /// Its place in a queue, or [`BUSY`] while somebody cancels it.
    node: AtomicPtr<Node>,
    is_cancelled: AtomicBool,
    /// The process whose list it is in, as a number of forks; `None` before it was listed.
    listed: Cell<Option<u32>>,
    // Protected by the list's lock.
    before: Cell<*const Record>,
    after: Cell<*const Record>,
}

const BUSY: *mut Node = ptr::without_provenance_mut(1);

/// All records of the process.
struct List {
    lock: AtomicU32,
    first: Cell<*const Record>,
    /// The number of forks. Records listed before the last one belong to threads of another process.
    fork_count: Cell<u32>,
}

// SAFETY: the lock protects the cells.
unsafe impl Sync for List {}

static LIST: List =
    List { lock: AtomicU32::new(0), first: Cell::new(ptr::null()), fork_count: Cell::new(0) };

impl List {
    /// Calls `call` with the lock held. The lock is 0 free, 1 locked, 2 locked with possible sleepers.
    fn locked<R>(&self, call: impl FnOnce(&List) -> R) -> R {
        let mut found = self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        while found.is_err() {
            if self.lock.swap(2, Ordering::Acquire) == 0 {
                break;
            }
            word::wait(&self.lock, 2);
            found = Err(2);
        }
        let result = call(self);
        if self.lock.swap(0, Ordering::Release) == 2 {
            word::wake_one(&self.lock);
        }
        result
    }
}

impl Record {
    const fn new() -> Self {
        Record {
            thread: Cell::new(0),
            node: AtomicPtr::new(ptr::null_mut()),
            is_cancelled: AtomicBool::new(false),
            listed: Cell::new(None),
            before: Cell::new(ptr::null()),
            after: Cell::new(ptr::null()),
        }
    }

    /// Adds it to the process's list, where cancellers find it.
    #[cold]
    fn enlist(&self) {
        // SAFETY: no arguments.
        self.thread.set(unsafe { libc::pthread_self() });
        LIST.locked(|list| {
            let after = list.first.replace(self);
            self.before.set(ptr::null());
            self.after.set(after);
            // SAFETY: a listed record exists until it unlists itself, or was dropped with its process.
            if let Some(after) = unsafe { after.as_ref() } {
                after.before.set(self);
            }
            self.listed.set(Some(list.fork_count.get()));
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.listed.get() != Some(LIST.fork_count.get()) {
            return;
        }
        LIST.locked(|list| {
            // SAFETY: as in `enlist`.
            let (before, after) =
                unsafe { (self.before.get().as_ref(), self.after.get().as_ref()) };
            match before {
                Some(before) => before.after.set(self.after.get()),
                None => list.first.set(self.after.get()),
            }
            if let Some(after) = after {
                after.before.set(self.before.get());
            }
        });
    }
}

thread_local! {
    static RECORD: Record = const { Record::new() };
}

/// In a forked child only one thread runs. The records of the others are gone.
pub(crate) fn forget_after_fork() {
    LIST.lock.store(0, Ordering::Relaxed);
    LIST.first.set(ptr::null());
    LIST.fork_count.set(LIST.fork_count.get() + 1);
}

/// Lets cancellers find this thread's record. Test afterwards: earlier cancellers did not find it.
pub(crate) fn enlist() {
    // A thread that runs its last destructors can't be cancelled any more.
    let _ = RECORD.try_with(|record| {
        if record.listed.get() != Some(LIST.fork_count.get()) {
            record.enlist();
        }
    });
}

/// Lets cancellers find `node`. Returns `false` if the thread was cancelled before. A test is then due as
/// soon as `node` is withdrawn.
pub(crate) fn publish(node: &Node) -> bool {
    RECORD
        .try_with(|record| {
            record.node.store(ptr::from_ref(node).cast_mut(), Ordering::SeqCst);
            !record.is_cancelled.load(Ordering::SeqCst)
        })
        .unwrap_or(true)
}

/// Hides this thread's node again, and waits until no canceller uses it.
pub(crate) fn withdraw() {
    let _ = RECORD.try_with(|record| {
        loop {
            let found = record.node.load(Ordering::Relaxed);
            let nobody = ptr::null_mut();
            if found.is_null() {
                return;
            }
            let is_free = found != BUSY
                && record
                    .node
                    .compare_exchange(found, nobody, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if is_free {
                return;
            }
            std::thread::yield_now();
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the program's argument.
    let result = unsafe { (next().cancel)(thread) };
    if result != 0 {
        return result;
    }
    LIST.locked(|list| {
        let mut place = list.first.get();
        // SAFETY: as in `enlist`.
        while let Some(record) = unsafe { place.as_ref() } {
            if record.thread.get() == thread {
                record.is_cancelled.store(true, Ordering::SeqCst);
                // One canceller at a time, because the list is locked.
                let node = record.node.load(Ordering::SeqCst);
                let is_held = !node.is_null()
                    && record
                        .node
                        .compare_exchange(node, BUSY, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok();
                if is_held {
                    // SAFETY: its thread waits in `withdraw` until the next line but one.
                    unsafe { &*node }.cancel();
                    record.node.store(node, Ordering::Release);
                }
                break;
            }
            place = record.after.get();
        }
    });
    0
}
