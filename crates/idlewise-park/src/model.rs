//! The crate under loom (`make loom`): the parker without its governor, and nothing of the machine.
//!
//! Which state a wait chooses depends on the clock and on the waits before, and must not matter to
//! the protocols: here every wait falls asleep at once, on a condition variable as on systems
//! without futexes, and one that has a deadline gives up at once. Loom runs the other threads at
//! every moment, so that is every deadline. All other code is the crate's own.

use std::fmt;
use std::time::Duration;

use idlewise_core::{Doorbell, Ring};

use crate::clock::Deadline;
use crate::condvar;
use crate::outcome::ParkOutcome;
use crate::stats::WaitStats;
use crate::sync::Arc;

/// As the crate's.
pub struct Parker {
    unparker: Unparker,
}

/// As the crate's.
#[derive(Clone)]
pub struct Unparker {
    bell: Arc<Doorbell>,
}

/// As the crate's, without settings.
#[derive(Clone, Debug, Default)]
pub struct ParkerBuilder;

impl ParkerBuilder {
    /// A parker.
    pub fn build(self) -> Parker {
        Parker { unparker: Unparker { bell: Arc::new(Doorbell::new()) } }
    }
}

impl Parker {
    /// A parker.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A parker's builder.
    pub fn builder() -> ParkerBuilder {
        ParkerBuilder
    }

    /// Waits for a token and takes it.
    pub fn park(&self) {
        self.park_until(None);
    }

    /// Takes a token if there is one when it gives up.
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

    /// What wakes it.
    pub fn unparker(&self) -> &Unparker {
        &self.unparker
    }

    /// Nothing: time does not pass in a model.
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
