//! [`WaitSet`]: one thread waits for any of several bells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idlewise_core::Marks;

use crate::clock::Deadline;
use crate::parker::{Parker, Unparker};
use crate::stats::WaitStats;

/// Waits for any of up to 64 bells, and tells which rang.
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
#[derive(Debug, Default)]
pub struct WaitSet {
    parker: Parker,
    marks: Arc<Marks>,
    bell_count: usize,
}

/// Rings one bell of a [`WaitSet`]. Clones ring the same one.
#[derive(Clone, Debug)]
pub struct Bell {
    unparker: Unparker,
    marks: Arc<Marks>,
    index: usize,
}

impl WaitSet {
    /// A set without bells.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set whose parker has other settings.
    pub fn with_parker(parker: Parker) -> Self {
        WaitSet { parker, marks: Arc::default(), bell_count: 0 }
    }

    /// A new bell; the first has index 0.
    ///
    /// # Panics
    /// If the set has 64 bells already.
    pub fn bell(&mut self) -> Bell {
        assert!(self.bell_count < Marks::BELL_COUNT_MAX, "a WaitSet has at most 64 bells");
        let index = self.bell_count;
        self.bell_count += 1;
        Bell { unparker: self.parker.unparker().clone(), marks: self.marks.clone(), index }
    }

    /// Waits until some bell rang; the indices of those that did since the last time.
    pub fn wait(&mut self) -> Rung {
        self.wait_until(None)
    }

    /// As [`WaitSet::wait`], but not longer than this: then there is no index.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Rung {
        self.wait_until(Deadline::after(timeout))
    }

    /// As [`WaitSet::wait`], but not beyond this moment: then there is no index.
    pub fn wait_deadline(&mut self, deadline: Instant) -> Rung {
        self.wait_until(Some(Deadline::at(deadline)))
    }

    /// What the set's waits were like.
    pub fn stats(&self) -> WaitStats {
        self.parker.stats()
    }

    fn wait_until(&mut self, deadline: Option<Deadline>) -> Rung {
        loop {
            let is_woken = self.parker.park_until(deadline).is_woken();
            let bits = self.marks.collect();
            // A ring whose mark was collected with an earlier one is no bell of its own.
            if bits != 0 || !is_woken {
                return Rung { bits };
            }
        }
    }
}

impl Bell {
    /// Rings: the set's thread sees all that the caller wrote before.
    #[inline]
    pub fn ring(&self) {
        self.marks.mark(self.index);
        self.unparker.unpark();
    }

    /// Which bell of its set this is.
    pub fn index(&self) -> usize {
        self.index
    }
}

/// The bells that rang, as indices, lowest first.
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

#[cfg(test)]
mod tests {
    use super::*;

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
