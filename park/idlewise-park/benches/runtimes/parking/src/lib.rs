//! idlewise-park's parker with the names and return values of the crate `parking`.

use std::task::Waker;
use std::time::{Duration, Instant};

/// Creates a parker and its unparker.
pub fn pair() -> (Parker, Unparker) {
    let parker = Parker::new();
    let unparker = parker.unparker();
    (parker, unparker)
}

/// Waits for a token.
#[derive(Debug, Default)]
pub struct Parker(idlewise_park::Parker);

/// Leaves a token.
#[derive(Clone, Debug)]
pub struct Unparker(idlewise_park::Unparker);

impl Parker {
    /// Creates a parker without a token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a token and takes it.
    pub fn park(&self) {
        self.0.park();
    }

    /// Waits with a timeout. Returns whether there was a token in time.
    pub fn park_timeout(&self, duration: Duration) -> bool {
        self.0.park_timeout(duration).is_woken()
    }

    /// Waits with a deadline. Returns whether there was a token in time.
    pub fn park_deadline(&self, instant: Instant) -> bool {
        self.0.park_deadline(instant).is_woken()
    }

    /// Like [`Unparker::unpark`].
    pub fn unpark(&self) -> bool {
        self.0.unparker().unpark();
        true
    }

    /// Returns an unparker of this parker.
    pub fn unparker(&self) -> Unparker {
        Unparker(self.0.unparker().clone())
    }
}

impl Unparker {
    /// Leaves a token. Returns `true` even if there was one; callers use the result as a hint.
    pub fn unpark(&self) -> bool {
        self.0.unpark();
        true
    }

    /// Returns whether it wakes that parker.
    pub fn will_unpark(&self, parker: &Parker) -> bool {
        self.0.will_unpark(&parker.0)
    }

    /// Returns whether both wake the same parker.
    pub fn same_parker(&self, other: &Unparker) -> bool {
        self.0.same_parker(&other.0)
    }
}

impl From<Unparker> for Waker {
    fn from(unparker: Unparker) -> Waker {
        unparker.0.into()
    }
}
