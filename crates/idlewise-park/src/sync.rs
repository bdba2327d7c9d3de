//! Locks, atomics and cells from `std`, or loom's, which explore every order that the memory model
//! allows (`make loom`).

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
};

/// As loom's, whose cells tell when two threads meet in one.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls with a pointer to read from.
    #[inline]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls with a pointer to write to.
    #[inline]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// The value with a pair of cache lines of its own, because hardware fetches lines in pairs.
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

/// One more look after each of these many pauses: about a microsecond in all, which is what
/// getting in line and being called out of it costs both sides.
const PAUSE_COUNTS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Looks for a moment. Whether it was seen.
#[inline]
pub(crate) fn seen_soon(mut look: impl FnMut() -> bool) -> bool {
    // In a model every moment is explored anyhow; on one CPU nobody else runs meanwhile.
    if cfg!(loom) || crate::load::cpu_count() == 1 {
        return false;
    }
    PAUSE_COUNTS.into_iter().any(|count| {
        (0..count).for_each(|_| std::hint::spin_loop());
        look()
    })
}
