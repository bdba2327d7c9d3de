//! [`WaitSet`]: one thread waits for any of several bells.
//!
//! A bell's index becomes free when its last clone is dropped. It goes to another bell only after the set
//! has reported the old bell's ring, so that the two cannot be confused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idlewise_core::Marks;

use crate::clock::Deadline;
use crate::parker::{Parker, Unparker};
use crate::stats::WaitStats;
use crate::sync::{AtomicU64, Ordering, is_model_over};

/// Waits for any of up to 64 bells, and reports which ones rang.
///
/// ```
/// use idlewise_park::WaitSet;
///
/// let mut set = WaitSet::new();
/// let (reload, shutdown) = (set.bell(), set.bell());
/// std::thread::spawn(move || shutdown.ring());
/// let rung: Vec<_> = set.wait().collect();
/// assert_eq!(rung, [1]);
/// # drop(reload);
/// ```
#[derive(Debug)]
pub struct WaitSet {
    parker: Parker,
    shared: Arc<Shared>,
    /// Indices in use.
    given: u64,
    /// Rings collected, but not reported yet.
    untold: u64,
}

#[derive(Debug)]
struct Shared {
    marks: Marks,
    /// Indices of bells that were dropped.
    free: AtomicU64,
}

/// Rings one bell of a [`WaitSet`]. All clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Bell {
    unparker: Unparker,
    place: Arc<Place>,
}

/// The state that clones of a bell share.
#[derive(Debug)]
struct Place {
    set: Arc<Shared>,
    index: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        // Release: pairs with the Acquire in `WaitSet::try_bell`, which then sees this bell's last mark.
        self.set.free.fetch_or(1 << self.index, Ordering::Release);
    }
}

impl WaitSet {
    /// Creates a set without bells.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// assert_eq!(set.bell().index(), 0);
    /// ```
    pub fn new() -> Self {
        Self::with_parker(Parker::new())
    }

    /// Creates a set that waits with this parker.
    ///
    /// ```
    /// use idlewise_park::{Parker, WaitSet};
    ///
    /// let set = WaitSet::with_parker(Parker::builder().cpu_budget_permille(0).build());
    /// assert_eq!(set.stats().waits, 0);
    /// ```
    pub fn with_parker(parker: Parker) -> Self {
        let shared = Arc::new(Shared { marks: Marks::new(), free: AtomicU64::new(0) });
        WaitSet { parker, shared, given: 0, untold: 0 }
    }

    /// Adds a bell with the lowest free index, beginning at 0. An index becomes free when all clones of its
    /// bell are dropped and its last ring was reported.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// (0..1000).for_each(|_| drop(set.bell()));
    /// ```
    ///
    /// # Panics
    /// If the set has 64 bells already.
    pub fn bell(&mut self) -> Bell {
        self.try_bell().expect("a WaitSet has at most 64 bells")
    }

    /// Like [`WaitSet::bell`], but returns `None` if the set has 64 bells already.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// let bells: Vec<_> = (0..64).map(|_| set.bell()).collect();
    /// assert!(set.try_bell().is_none());
    /// # drop(bells);
    /// ```
    pub fn try_bell(&mut self) -> Option<Bell> {
        // Acquire: see `Place::drop`. Marks are read after it, because a bell marks before it is dropped.
        let free = self.shared.free.load(Ordering::Acquire);
        self.untold |= self.shared.marks.collect();
        let usable = !self.given | (free & !self.untold);
        let index = usable.trailing_zeros() as usize;
        if index == Marks::BELL_COUNT_MAX {
            return None;
        }
        self.given |= 1 << index;
        self.shared.free.fetch_and(!(1 << index), Ordering::Relaxed);
        let place = Arc::new(Place { set: self.shared.clone(), index });
        Some(Bell { unparker: self.parker.unparker().clone(), place })
    }

    /// Waits until a bell rings. Returns the indices of all bells that rang since the last call.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// let bell = set.bell();
    /// bell.ring();
    /// assert_eq!(set.wait().collect::<Vec<_>>(), [bell.index()]);
    /// ```
    pub fn wait(&mut self) -> Rung {
        self.wait_until(None)
    }

    /// Like [`WaitSet::wait`], but gives up after `timeout`; the result is then empty.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// assert_eq!(set.wait_timeout(std::time::Duration::from_micros(10)).next(), None);
    /// ```
    pub fn wait_timeout(&mut self, timeout: Duration) -> Rung {
        self.wait_until(Deadline::after(timeout))
    }

    /// Like [`WaitSet::wait`], but gives up at `deadline`; the result is then empty.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// assert_eq!(set.wait_deadline(std::time::Instant::now()).next(), None);
    /// ```
    pub fn wait_deadline(&mut self, deadline: Instant) -> Rung {
        self.wait_until(Some(Deadline::at(deadline)))
    }

    /// Returns statistics of the set's waits.
    ///
    /// ```
    /// assert_eq!(idlewise_park::WaitSet::new().stats().waits, 0);
    /// ```
    pub fn stats(&self) -> WaitStats {
        self.parker.stats()
    }

    fn wait_until(&mut self, deadline: Option<Deadline>) -> Rung {
        loop {
            // Unreported rings need no wake-up. If their token ends a later wait early, that waits again.
            let is_woken = self.untold != 0 || self.parker.park_until(deadline).is_woken();
            let bits = std::mem::take(&mut self.untold) | self.shared.marks.collect();
            // The mark of this ring was collected with an earlier one, so there is nothing to report.
            if bits != 0 || !is_woken {
                return Rung { bits };
            }
        }
    }
}

impl Default for WaitSet {
    fn default() -> Self {
        Self::new()
    }
}

impl Bell {
    /// Rings the bell. The set's thread sees everything that the caller wrote before.
    ///
    /// ```
    /// let mut set = idlewise_park::WaitSet::new();
    /// let bell = set.bell();
    /// std::thread::spawn(move || bell.ring());
    /// assert_eq!(set.wait().next(), Some(0));
    /// ```
    #[inline]
    pub fn ring(&self) {
        self.place.set.marks.mark(self.place.index);
        self.unparker.unpark();
    }

    /// Returns the index of this bell in its set.
    ///
    /// ```
    /// assert_eq!(idlewise_park::WaitSet::new().bell().index(), 0);
    /// ```
    pub fn index(&self) -> usize {
        self.place.index
    }
}

/// The indices of the bells that rang, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    bits: u64,
}

impl Iterator for Rung {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let index = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits.wrapping_sub(1);
        (index < 64).then_some(index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// (65 bells made and dropped one after another used to be too many.)
    #[test]
    fn bells_come_and_go() {
        let mut set = WaitSet::new();
        for _ in 0..200 {
            let bell = set.bell();
            let clone = bell.clone();
            drop(bell);
            assert_eq!((clone.index(), set.bell().index()), (0, 1), "one of 0 is left");
        }
    }

    /// A dropped bell's ring is reported before another bell gets its index.
    #[test]
    fn an_index_is_not_reused_before_its_ring_is_told() {
        let mut set = WaitSet::new();
        let first = set.bell();
        first.ring();
        drop(first);
        let second = set.bell();
        assert_eq!(second.index(), 1);
        assert_eq!(set.wait().collect::<Vec<_>>(), [0]);
        assert_eq!(set.bell().index(), 0);
        second.ring();
        assert_eq!(set.wait().collect::<Vec<_>>(), [1], "the late token is no bell");
        let bells: Vec<_> = std::iter::from_fn(|| set.try_bell()).collect();
        assert_eq!(bells.len(), 63);
        bells.iter().for_each(Bell::ring);
        drop(bells);
        assert!(set.try_bell().is_none(), "all rang and wait to be told");
        assert_eq!(set.wait_timeout(Duration::ZERO).count(), 63);
        assert!(set.try_bell().is_some());
    }

    #[test]
    fn tells_all_bells_that_rang() {
        let mut set = WaitSet::new();
        let bells: Vec<_> = (0..64).map(|_| set.bell()).collect();
        for bell in [63, 0, 5, 0] {
            bells[bell].ring();
        }
        assert_eq!(set.wait().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(set.wait_timeout(Duration::ZERO).next(), None);
        bells[7].ring();
        assert_eq!(set.wait_timeout(Duration::from_secs(3600)).collect::<Vec<_>>(), [7]);
        bells[8].ring();
        assert_eq!(set.wait_deadline(Instant::now()).collect::<Vec<_>>(), [8]);
        assert_eq!(set.wait_deadline(Instant::now()).next(), None);
        assert_eq!(set.stats().timeouts, set.stats().waits, "no other wait found no bell");
    }
}
