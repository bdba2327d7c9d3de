//! What a study's model is given: each input once, with its value, its origin and the values that are
//! plausible for it. [`inputs!`] makes the struct that a study computes with, and the list that is printed,
//! set by users, and varied to find out which inputs decide a figure.

use std::ops::RangeInclusive;

/// Where the value of an input is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the claim. The names of the figures that it was fitted to begin so.
    Calibrated(&'static [&'static str]),
    /// Hardware or kernel, as documented elsewhere.
    Documented,
    /// Nobody published it.
    Assumed,
}

impl Origin {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Calibrated(_) => "calibrated",
            Origin::Documented => "documented",
            Origin::Assumed => "assumed",
        }
    }

    /// The beginnings of the names of the figures that the input was fitted to.
    pub fn fitted_to(self) -> &'static [&'static str] {
        match self {
            Origin::Calibrated(names) => names,
            Origin::Documented | Origin::Assumed => &[],
        }
    }
}

/// A number that a study's model is given.
#[derive(Clone, Debug)]
pub struct Input {
    /// The key in `--set KEY=VALUE`.
    pub key: &'static str,
    /// The value that a study runs with unless another is set.
    pub value: f64,
    /// What may be true instead, as far as is known.
    pub plausible: RangeInclusive<f64>,
    /// The unit of the values; empty for a ratio.
    pub unit: &'static str,
    /// Where the value is from.
    pub origin: Origin,
    /// What it is.
    pub meaning: &'static str,
    /// The origin in words, or why it was assumed.
    pub source: &'static str,
}

impl Input {
    /// The values to run a study with again, to see what the input decides: both ends of what is
    /// plausible. None if the input is documented, or if nothing else is plausible.
    pub fn ends(&self) -> Option<[f64; 2]> {
        let (low, high) = (*self.plausible.start(), *self.plausible.end());
        (self.origin != Origin::Documented && low < high).then_some([low, high])
    }

    /// The values that may be set: plausible ones, and those within a factor of 1,000, as far as they mean
    /// something: a share is at most 1, and a count or a multiple is at least 1.
    pub fn allowed(&self) -> RangeInclusive<f64> {
        if self.unit == "Hz" {
            return 10.0..=10_000.0;
        }
        let (low, high) = (*self.plausible.start(), *self.plausible.end());
        let is_share = self.unit.is_empty() && low >= 0.0 && high <= 1.0;
        let low = if low > 0.0 { low / 1e3 } else { low * 1e3 };
        let high = if high > 0.0 { high * 1e3 } else { high / 1e3 };
        let is_multiple = self.unit.is_empty() && *self.plausible.start() >= 1.0;
        match (is_share, is_multiple || self.is_whole()) {
            (true, _) => low..=high.min(1.0),
            (false, true) => low.max(1.0)..=high,
            (false, false) => low..=high,
        }
    }

    /// Whether it counts something, or is 0 or 1, so that a fraction would be cut silently. Then all its listed values are
    /// whole.
    pub fn is_whole(&self) -> bool {
        let (low, high) = (*self.plausible.start(), *self.plausible.end());
        let is_choice = low == 0.0 && high == 1.0 && self.value.fract() == 0.0;
        let is_count = self.unit == "Hz" || self.unit.is_empty() && (high > 1.0 || is_choice);
        is_count && [self.value, low, high].iter().all(|value| value.fract() == 0.0)
    }
}

/// Values that are documented together, one for each of some inputs: a machine has all of them or none.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// By key. Both sides of an alternative name the same inputs.
    pub values: &'static [(&'static str, f64)],
    /// Where they are documented, and of what.
    pub source: &'static str,
}

/// Two documented alternatives, of which one is true of the claim's machine. Nobody published which.
pub type Alternative = [Together; 2];

/// Inputs that differ from their values in the list, by key.
pub type Changes = [(&'static str, f64)];

/// Declares a study's inputs, a line each: `name: value, plausible range, unit, origin, meaning, source;`.
macro_rules! inputs {
    ($(#[$outer:meta])* pub struct $name:ident {
        $($key:ident: $value:expr, $plausible:expr, $unit:literal, $origin:expr, $meaning:literal, $source:literal;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $(#[doc = $meaning] pub $key: f64,)* }

        /// All inputs of the study.
        pub const INPUTS: &[$crate::inputs::Input] = &[$($crate::inputs::Input {
            key: stringify!($key),
            value: $value,
            plausible: $plausible,
            unit: $unit,
            origin: $origin,
            meaning: $meaning,
            source: $source,
        },)*];

        impl $name {
            /// The listed values, but for the changes. Changes of other studies' inputs do nothing.
            pub fn with(changes: &$crate::inputs::Changes) -> Self {
                let mut inputs = $name { $($key: $value,)* };
                for (key, value) in changes {
                    match *key {
                        $(stringify!($key) => inputs.$key = *value,)*
                        _ => {}
                    }
                }
                inputs
            }
        }
    };
}
pub(crate) use inputs;

/// Microseconds as the nanoseconds of a simulation.
pub(crate) fn us_ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Milliseconds as the nanoseconds of a simulation.
pub(crate) fn ms_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::Origin::{Assumed, Documented};

    inputs! {
        /// Invented.
        pub struct Inputs {
            mass: 2.0, 1.0..=4.0, "kg", Assumed, "the mass", "a guess";
            gravity: 9.81, 9.78..=9.83, "m/s2", Documented, "what pulls", "a table";
            count: 1.0, 1.0..=1.0, "", Assumed, "how many", "there is one";
        }
    }

    #[test]
    fn changes_are_made_by_key() {
        let inputs = Inputs::with(&[("mass", 3.0), ("charge", 7.0)]);
        assert_eq!(inputs, Inputs { mass: 3.0, gravity: 9.81, count: 1.0 });
    }

    #[test]
    fn what_is_plausible_may_be_set() {
        let allowed = |low: f64, high: f64| {
            super::Input { plausible: low..=high, ..INPUTS[0].clone() }.allowed()
        };
        assert_eq!(allowed(2.0, 4.0), 0.002..=4_000.0);
        assert_eq!(allowed(0.0, 4.0), 0.0..=4_000.0);
        let of = |low: f64, high: f64, unit| {
            let input = super::Input { plausible: low..=high, unit, ..INPUTS[0].clone() };
            (input.allowed(), input.is_whole())
        };
        assert_eq!(of(0.5, 1.0, ""), (0.0005..=1.0, false), "a share");
        assert_eq!(of(1.0, 4.0, ""), (1.0..=4_000.0, true), "a count");
        assert_eq!(of(1.5, 4.0, ""), (1.0..=4_000.0, false), "a multiple");
        assert_eq!(of(0.5, 4.0, ""), (0.0005..=4_000.0, false), "a ratio");
        assert_eq!(of(100.0, 1_000.0, "Hz"), (10.0..=10_000.0, true));
        assert_eq!(allowed(-19.0, -17.0), -19_000.0..=-0.017);
    }

    #[test]
    fn only_what_nobody_documented_and_may_be_otherwise_is_varied() {
        let ends: Vec<_> = INPUTS.iter().map(super::Input::ends).collect();
        assert_eq!(ends, [Some([1.0, 4.0]), None, None]);
    }
}
