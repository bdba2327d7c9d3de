//! Names of tracepoints, as doubts have them.

use std::fmt;
use std::str::FromStr;

use super::{TRACEPOINTS, Tracepoint};
use crate::event::Tracepoints;

/// The name of a tracepoint that a claim needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointName {
    tracepoint: &'static Tracepoint,
    /// Only its timer events are meant, as on Arm.
    is_of_timer: bool,
}

impl TracepointName {
    pub(crate) fn all_of(wanted: Tracepoints) -> Vec<Self> {
        let rows = TRACEPOINTS.iter().filter(|row| wanted.intersects(row.provides));
        rows.map(|tracepoint| Self { tracepoint, is_of_timer: false }).collect()
    }

    pub(crate) fn of_the_timer(self) -> Self {
        Self { is_of_timer: true, ..self }
    }
}

impl fmt::Display for TracepointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timer = if self.is_of_timer { "the timer's " } else { "" };
        write!(f, "{timer}{}:{}", self.tracepoint.system, self.tracepoint.name)
    }
}

impl FromStr for TracepointName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let names = TRACEPOINTS.iter().map(|tracepoint| Self { tracepoint, is_of_timer: false });
        names
            .flat_map(|name| [name, name.of_the_timer()])
            .find(|name| name.to_string() == text)
            .ok_or(())
    }
}
