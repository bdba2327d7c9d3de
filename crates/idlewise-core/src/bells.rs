//! Several bells for one waiter: which of them rang.
//!
//! A waker marks its bell, then rings the waiter's [`crate::Doorbell`]; the waiter is woken, then
//! collects the marks. In this order a mark without a ring is only ever a ring on its way. The
//! doorbell's own release and acquire make the mark visible; the marks are Release and Acquire
//! themselves so that a mark collected *before* its ring comes (another bell's woke the waiter)
//! still brings its waker's work along. The late ring then finds nothing marked: a wait that ends
//! with no bell is waited again.

use crate::sync::{AtomicU64, order};

/// Marks of up to 64 bells.
#[derive(Debug)]
pub struct Marks {
    bits: AtomicU64,
}

impl Marks {
    /// How many bells there can be.
    pub const BELL_COUNT_MAX: usize = 64;

    /// No bell marked.
    pub fn new() -> Self {
        Marks { bits: AtomicU64::new(0) }
    }

    /// Marks a bell; the caller rings the waiter's doorbell next.
    ///
    /// ```
    /// # use idlewise_core::Marks;
    /// let marks = Marks::new();
    /// marks.mark(3);
    /// marks.mark(40);
    /// assert_eq!(marks.collect(), 1 << 3 | 1 << 40);
    /// assert_eq!(marks.collect(), 0);
    /// ```
    #[inline]
    pub fn mark(&self, bell: usize) {
        debug_assert!(bell < Self::BELL_COUNT_MAX);
        // Release: pairs with the Acquire of `collect`. Marks since the last `collect` are
        // read-modify-writes, hence one release sequence.
        self.bits.fetch_or(1 << bell, order!(Release unless MarkRelaxed));
    }

    /// The bells marked since the last time, one bit each.
    #[inline]
    pub fn collect(&self) -> u64 {
        self.bits.swap(0, order!(Acquire unless CollectRelaxed))
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}
