//! idlewise-park's parker with the names and results of the crate `parking`.

use std::task::Waker;
use std::time::{Duration, Instant};

/// A parker and an unparker of it.
pub fn pair() -> (Parker, Unparker) {
    let parker = Parker::new();
    let unparker = parker.unparker();
    (parker, unparker)
}

/// Waits for a token.
#[derive(Debug, Default)]
pub struct Parker(idlewise_park::Parker);

/// Leaves one.
#[derive(Clone, Debug)]
pub struct Unparker(idlewise_park::Unparker);

impl Parker {
    /// One without a token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a token and takes it.
    pub fn park(&self) {
        self.0.park();
    }

    /// Whether there was one in time.
    pub fn park_timeout(&self, duration: Duration) -> bool {
        self.0.park_timeout(duration).is_woken()
    }

    /// Whether there was one in time.
    pub fn park_deadline(&self, instant: Instant) -> bool {
        self.0.park_deadline(instant).is_woken()
    }

    /// As [`Unparker::unpark`].
    pub fn unpark(&self) -> bool {
        self.0.unparker().unpark();
        true
    }

    /// An unparker of it.
    pub fn unparker(&self) -> Unparker {
        Unparker(self.0.unparker().clone())
    }
}

impl Unparker {
    /// Leaves a token. Always true, which is right unless there was one: callers take it for a hint.
    pub fn unpark(&self) -> bool {
        self.0.unpark();
        true
    }

    /// Whether it wakes that parker.
    pub fn will_unpark(&self, parker: &Parker) -> bool {
        self.0.will_unpark(&parker.0)
    }

    /// Whether both wake the same.
    pub fn same_parker(&self, other: &Unparker) -> bool {
        self.0.same_parker(&other.0)
    }
}

impl From<Unparker> for Waker {
    fn from(unparker: Unparker) -> Waker {
        unparker.0.into()
    }
}
