//! The crate under loom (`make loom`): the parker without its governor and without the machine.
//!
//! Which state a wait chooses depends on the clock and on earlier waits, and the protocols must not depend
//! on it. So here every wait falls asleep at once, on a condition variable as on systems without futexes. A
//! wait with a deadline gives up at once. Loom runs the other threads at every possible moment, so that
//! covers every deadline. All other code is the crate's own.

use std::fmt;
use std::time::Duration;

use idlewise_core::{Doorbell, Ring};

use crate::clock::Deadline;
use crate::condvar;
use crate::outcome::ParkOutcome;
use crate::stats::WaitStats;
use crate::sync::Arc;

/// Stands in for the crate's `Parker`.
pub struct Parker {
    unparker: Unparker,
}

/// Stands in for the crate's `Unparker`.
#[derive(Clone)]
pub struct Unparker {
    bell: Arc<Doorbell>,
}

/// Stands in for the crate's `ParkerBuilder`, without settings.
#[derive(Clone, Debug, Default)]
pub struct ParkerBuilder;

impl ParkerBuilder {
    /// Creates a parker.
    pub fn build(self) -> Parker {
        Parker { unparker: Unparker { bell: Arc::new(Doorbell::new()) } }
    }
}

impl Parker {
    /// Creates a parker.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a parker's builder.
    pub fn builder() -> ParkerBuilder {
        ParkerBuilder
    }

    /// Blocks until there is a token, and takes it.
    pub fn park(&self) {
        self.park_until(None);
    }

    /// Gives up at once, but takes a token if there is one by then.
    pub fn park_timeout(&self, timeout: Duration) -> ParkOutcome {
        self.park_until(Deadline::after(timeout))
    }

    pub(crate) fn park_until(&self, deadline: Option<Deadline>) -> ParkOutcome {
        let bell = &*self.unparker.bell;
        if bell.take() {
            return ParkOutcome::Woken;
        }
        if bell.start_polling() && bell.fall_asleep() {
            while deadline.is_none() && !bell.is_rung() {
                condvar::sleep(bell.word(), Doorbell::SLEEPING_WORD, None);
            }
        }
        if bell.take() { ParkOutcome::Woken } else { ParkOutcome::TimedOut }
    }

    /// Returns the parker's unparker.
    pub fn unparker(&self) -> &Unparker {
        &self.unparker
    }

    /// Returns zeros, because no time passes in a model.
    pub fn stats(&self) -> WaitStats {
        WaitStats::default()
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Unparker {
    /// Leaves a token and wakes the waiter.
    pub fn unpark(&self) {
        if self.bell.ring() == Ring::MustWake {
            condvar::wake(self.bell.word());
        }
    }

    pub(crate) fn is_polling(&self) -> bool {
        false
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").field("state", &self.unparker.bell.state()).finish()
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unparker").field("state", &self.bell.state()).finish()
    }
}
