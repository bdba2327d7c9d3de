//! Locks, atomics and cells from `std`, or from loom, which explores every order that the memory model
//! allows (`make loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

/// Has the interface of loom's cell, which detects two threads that access it at once.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to read from.
    #[inline]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to write to.
    #[inline]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Gives the value a pair of cache lines of its own, because hardware fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The numbers of pauses between looks. Together they take about a microsecond, as long as getting in line
/// and being called out of it costs both sides.
#[cfg(not(loom))]
const PAUSE_COUNTS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// After that, how often to yield and look again. If both ends of a channel share a CPU, the other end can
/// then do all its work at once, instead of waking this one for each item.
#[cfg(not(loom))]
const YIELD_COUNT: u32 = 4;

/// Looks repeatedly for a moment. Returns whether `look` succeeded.
#[cfg(not(loom))]
#[inline]
pub(crate) fn seen_soon(mut look: impl FnMut() -> bool) -> bool {
    // With one CPU nobody else can run during a pause.
    let is_seen = crate::load::cpu_count() > 1
        && PAUSE_COUNTS.into_iter().any(|count| {
            (0..count).for_each(|_| std::hint::spin_loop());
            look()
        });
    is_seen
        || (0..YIELD_COUNT).any(|_| {
            std::thread::yield_now();
            look()
        })
}

/// A model explores every moment anyway.
#[cfg(loom)]
pub(crate) fn seen_soon(_look: impl FnMut() -> bool) -> bool {
    false
}

/// Loom's `Arc`, not dropped once the model is over, because loom would panic again.
#[cfg(loom)]
pub(crate) struct Arc<T>(std::mem::ManuallyDrop<loom::sync::Arc<T>>);

#[cfg(loom)]
impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        Arc(std::mem::ManuallyDrop::new(loom::sync::Arc::new(value)))
    }
}

#[cfg(loom)]
impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Arc(self.0.clone())
    }
}

#[cfg(loom)]
impl<T> std::ops::Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(loom)]
impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if !is_model_over() {
            // SAFETY: it is not used again.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// Whether a model that was broken on purpose has failed; it is left as it is, since it cannot go on.
pub(crate) fn is_model_over() -> bool {
    cfg!(loom) && std::thread::panicking()
}

/// `true` only in a model that breaks the protocol in this way.
#[cfg(loom)]
macro_rules! breaks {
    ($how:ident) => {
        idlewise_core::sync::broken::is(idlewise_core::sync::broken::Break::$how)
    };
}

/// `true` only in a model that breaks the protocol in this way.
#[cfg(not(loom))]
macro_rules! breaks {
    ($how:ident) => {
        false
    };
}

pub(crate) use breaks;
