//! [`ParkOutcome`]: how a wait ended.

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkOutcome {
    /// Somebody called [`crate::Unparker::unpark`].
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl ParkOutcome {
    /// Returns whether somebody called [`crate::Unparker::unpark`].
    pub fn is_woken(self) -> bool {
        self == ParkOutcome::Woken
    }
}
