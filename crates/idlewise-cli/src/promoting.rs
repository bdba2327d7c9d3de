//! `--promote`: the option of every command that replays or simulates on a machine.

use crate::role::{BundleRole, Roles};

#[derive(clap::Args, Clone, Default)]
pub struct Promoting {
    /// Promote these states: a timer, started on entry, ends the stay in favour of a deeper state.
    ///
    /// The timer expires after the next enabled state's target residency plus twice its exit latency,
    /// as with the `promote=` parameter of our kernel module. STATE is a name or an index.
    /// `auto-promote` in a machine file does the same.
    #[arg(
        long = "promote",
        hide_short_help = true,
        value_name = "STATE[,STATE]",
        value_delimiter = ','
    )]
    states: Vec<String>,
}

impl Promoting {
    /// Its role in a bundle.
    pub const ROLES: Roles = &[(BundleRole::Plain, &["states"])];

    /// Returns whether any state was named.
    pub fn is_asked(&self) -> bool {
        !self.states.is_empty()
    }

    /// Returns the names or indices.
    pub fn states(&self) -> &[String] {
        &self.states
    }
}
