//! Named numbers that a user may set, each defined once: name, default, meaning. Hardware and
//! workloads declare theirs with [`parameters!`].

use std::fmt;

/// A parameter as a list shows it.
#[derive(Clone, Copy, Debug)]
pub struct ParameterInfo {
    /// The key of `--set KEY=VALUE`; the unit is its last part.
    pub key: &'static str,
    /// What it means, and what the default rests on.
    pub meaning: &'static str,
}

/// Why a parameter can't be set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// Nothing has that key.
    Unknown {
        /// What was asked for.
        key: String,
        /// The key that is spelt most like it, if any is close.
        nearest: Option<&'static str>,
    },
    /// The value does not suit the key.
    Invalid {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What would do.
        expected: &'static str,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and values may be quoted, and then hold line ends.
        match self {
            Self::Unknown { key, nearest: Some(nearest) } => {
                write!(f, "no parameter '{}'; did you mean '{nearest}'?", key.escape_debug())
            }
            Self::Unknown { key, nearest: None } => {
                let key = key.escape_debug();
                write!(f, "no parameter '{key}'; `idlewise simulate --list` shows all")
            }
            Self::Invalid { key, value, expected } => {
                write!(f, "{key} = {}: expected {expected}", value.escape_debug())
            }
        }
    }
}

impl std::error::Error for ParameterError {}

/// A kind of value.
pub(crate) trait ParameterValue: Sized {
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
}

impl ParameterValue for u64 {
    const EXPECTED: &'static str = "a whole number, 0 or more";
    fn parse(text: &str) -> Option<Self> {
        // A year in nanoseconds; sums of a few never overflow.
        text.parse().ok().filter(|number| *number <= 31_536_000_000_000_000)
    }
}

impl ParameterValue for f64 {
    const EXPECTED: &'static str = "a number, 0 or more";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &f64| (0.0..=1e12).contains(number))
    }
}

impl ParameterValue for bool {
    const EXPECTED: &'static str = "true or false";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// The known key that `key` was probably meant to be.
pub(crate) fn nearest_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|known| (strsim::damerau_levenshtein(key, known), known));
    let close = scored.filter(|(edit_count, _)| *edit_count <= key.len().div_ceil(3));
    close.min_by_key(|(edit_count, _)| *edit_count).map(|(_, known)| known)
}

/// Declares a struct of parameters with defaults, a list of them, and a way to set one by name.
macro_rules! parameters {
    ($(#[$outer:meta])* pub struct $name:ident {
        $($key:ident: $kind:ty = $default:expr, $meaning:literal;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $(#[doc = $meaning] pub $key: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                $name { $($key: $default,)* }
            }
        }

        impl $name {
            /// All parameters.
            pub const PARAMETERS: &'static [$crate::simulate::ParameterInfo] = &[
                $($crate::simulate::ParameterInfo { key: stringify!($key), meaning: $meaning },)*
            ];

            /// Sets one from text; false if there is none of that key.
            ///
            /// # Errors
            /// If the value does not suit.
            pub fn set(
                &mut self,
                key: &str,
                value: &str,
            ) -> Result<bool, $crate::simulate::ParameterError> {
                match key {
                    $(stringify!($key) => {
                        use $crate::simulate::parameter::ParameterValue;
                        let parsed = <$kind>::parse(value);
                        self.$key = parsed.ok_or_else(|| {
                            $crate::simulate::ParameterError::Invalid {
                                key: key.to_owned(),
                                value: value.to_owned(),
                                expected: <$kind as ParameterValue>::EXPECTED,
                            }
                        })?;
                        Ok(true)
                    })*
                    _ => Ok(false),
                }
            }

            /// The present values as text, in order.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($key), self.$key.to_string()),)*]
            }
        }
    };
}
pub(crate) use parameters;
