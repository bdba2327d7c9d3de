//! Powers, and where they come from.

use serde::Serialize;

use crate::words::words;

words! {
    /// The basis of a figure, strongest first: a later one is a weaker reason to trust it.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Basis {
        /// Measured on the machine in question.
        Measured = "measured",
        /// The result of simulating recorded or generated events.
        Simulated = "simulated",
        /// Based on a published figure.
        Calibrated = "calibrated",
        /// Not published; a documented default is used instead.
        Assumed = "assumed",
    }
}

impl Basis {
    /// Returns the weakest of several bases, which applies to any result based on all. `None` for no bases.
    pub fn weakest(bases: impl IntoIterator<Item = Basis>) -> Option<Basis> {
        bases.into_iter().max()
    }

    /// Returns measured or assumed if a file says so, and assumed if it names no source.
    pub(crate) fn of_figure(kind: Option<&str>, source: Option<&str>) -> Basis {
        match kind {
            Some("measured") => Basis::Measured,
            Some("assumed") => Basis::Assumed,
            _ if source.is_none() => Basis::Assumed,
            _ => Basis::Calibrated,
        }
    }
}

/// The power of one core, and the basis of that figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// Milliwatts.
    pub mw: f64,
    /// The basis of the figure.
    pub basis: Basis,
}

/// A power given in a machine's file, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PowerFigure<'a> {
    /// Milliwatts of one core.
    #[serde(skip)]
    pub mw: f64,
    /// How the source obtained it: measured, published fit, declared, paper or assumed.
    pub kind: Option<&'a str>,
    /// Where to look it up.
    pub source: Option<&'a str>,
    /// The frequency at which it applies, if it depends on that.
    pub at_khz: Option<u64>,
    /// The lowest and highest power over all frequencies.
    pub range_mw: Option<[f64; 2]>,
    /// Whether somebody has checked it in its source; `false` if it is quoted second-hand.
    pub is_checked: bool,
}

impl PowerFigure<'_> {
    /// Returns measured or assumed if the file says so, and assumed if it names no source.
    pub fn basis(&self) -> Basis {
        Basis::of_figure(self.kind, self.source)
    }

    pub(crate) fn power(&self) -> Power {
        Power { mw: self.mw, basis: self.basis() }
    }
}
