//! Several bells for one waiter, and which of them rang.
//!
//! A waker marks its bell, then rings the waiter's [`crate::Doorbell`]. The waiter is woken, then collects
//! the marks. In this order, a mark without a ring only means that the ring is on its way. The doorbell's
//! release and acquire make the mark visible. The marks are Release and Acquire themselves, because a mark
//! may be collected *before* its ring comes (if another bell woke the waiter), and must still make its
//! waker's work visible. The late ring then finds nothing marked, and a wait that ends without a bell is
//! repeated.

use crate::sync::{AtomicU64, order};

/// The marks of up to 64 bells.
#[derive(Debug)]
pub struct Marks {
    bits: AtomicU64,
}

impl Marks {
    /// The maximum number of bells.
    pub const BELL_COUNT_MAX: usize = 64;

    /// Creates a value without marks.
    pub fn new() -> Self {
        Marks { bits: AtomicU64::new(0) }
    }

    /// Marks a bell. The caller must ring the waiter's doorbell next.
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

    /// Returns the bells marked since the last call, one bit each.
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
