//! Errors for which std's channels have no stable type. The other errors are std's own.

use std::fmt;

/// An item could not be sent in time. The error contains the item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room in time.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
}

impl<T> SendTimeoutError<T> {
    /// Returns the item.
    ///
    /// ```
    /// use idlewise_park::channel::SendTimeoutError;
    ///
    /// assert_eq!(SendTimeoutError::Timeout(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            Self::Timeout(item) | Self::Disconnected(item) => item,
        }
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout(_) => "Timeout(..)",
            Self::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout(_) => "the channel was full until the deadline",
            Self::Disconnected(_) => "all receivers are gone",
        })
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}
