//! What a sleep on a word and its wake-up must say to the system.

/// Which wakers a sleeper can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of its own process.
    Process,
    /// Those of any process that has mapped the word's memory. Only Linux's futex supports that here.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "elsewhere nobody asks"))]
    Processes,
}

/// Which sleepers to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    One,
    All,
}
