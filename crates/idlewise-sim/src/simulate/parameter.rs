//! Named numbers that a user may set. Each is defined once, with name, default, range and meaning.
//! Hardware and workloads declare theirs with [`parameters!`]. Ranges are checked only here.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The most CPUs in a machine.
pub(crate) const CPU_COUNT_MAX: u64 = 8_192;
/// The most threads in a core. Speeds are known only up to this number.
pub(crate) const THREAD_COUNT_MAX: u64 = 4;
/// A year. Sums of a few years in nanoseconds do not overflow.
pub(crate) const YEAR_NS: u64 = 31_536_000_000_000_000;
/// The range of most time spans.
pub(crate) const SPAN_NS: RangeInclusive<u64> = 0..=YEAR_NS;
/// The range of times between events that come by themselves. With shorter ones simulating takes much longer than
/// what is simulated, and no CPU serves so many.
pub(crate) const INTERVAL_NS: RangeInclusive<u64> = 100..=YEAR_NS;
/// The same for the kernel's own timers. No tick is more frequent.
pub(crate) const TIMER_NS: RangeInclusive<u64> = 100_000..=YEAR_NS;
/// The range of CPU numbers, and of the number of other CPUs.
pub(crate) const CPUS: RangeInclusive<u64> = 0..=CPU_COUNT_MAX - 1;
/// The range of a flag.
pub(crate) const FLAG: RangeInclusive<bool> = false..=true;

/// The description of a parameter in a list.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// The key in `--set KEY=VALUE`. Its last part is the unit.
    pub key: &'static str,
    /// The meaning, and the source of the default.
    pub meaning: &'static str,
    /// The allowed values.
    pub range: ParameterRange,
}

/// The allowed values of a parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParameterRange {
    /// A whole number.
    Whole(RangeInclusive<u64>),
    /// Any number.
    Real(RangeInclusive<f64>),
    /// True or false.
    Flag,
}

impl ParameterRange {
    fn kind(&self) -> &'static str {
        match self {
            ParameterRange::Whole(_) => "a whole number, ",
            ParameterRange::Real(_) => "a number, ",
            ParameterRange::Flag => "",
        }
    }

    /// Returns whether it is the range of most time spans.
    pub fn is_any_span(&self) -> bool {
        *self == ParameterRange::Whole(SPAN_NS)
    }
}

impl fmt::Display for ParameterRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(range) if *range.end() == YEAR_NS => {
                write!(f, "{} to {YEAR_NS} (a year)", range.start())
            }
            Self::Whole(range) => write!(f, "{} to {}", range.start(), range.end()),
            Self::Real(range) => write!(f, "{} to {}", range.start(), range.end()),
            Self::Flag => f.write_str("true or false"),
        }
    }
}

/// Why a parameter cannot be set.
// Keys and values may be quoted and then contain line breaks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// No parameter has that key.
    #[error(
        "no parameter '{}'; {}",
        key.escape_debug(),
        nearest.map_or("`idlewise lab simulate --list` shows all".to_owned(), |nearest| {
            format!("did you mean '{nearest}'?")
        })
    )]
    Unknown {
        /// What was asked for.
        key: String,
        /// The most similar key, if any is close.
        nearest: Option<&'static str>,
    },
    /// The value does not fit the key.
    #[error("{key} = {}: expected {}{range}", value.escape_debug(), range.kind())]
    Invalid {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The allowed values.
        range: ParameterRange,
    },
}

/// A type of parameter values.
pub(crate) trait ParameterValue: Sized {
    /// The type of a range's bounds.
    type Number: PartialOrd + FromStr + Display;

    fn range(range: RangeInclusive<Self::Number>) -> ParameterRange;
    fn new(number: Self::Number) -> Self;
    fn text(&self) -> String;

    /// Parses a value. If it is outside the range, the error contains the range.
    fn read(
        key: &str,
        text: &str,
        range: RangeInclusive<Self::Number>,
    ) -> Result<Self, ParameterError> {
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Self::new(number)),
            _ => Err(ParameterError::Invalid {
                key: key.to_owned(),
                value: text.to_owned(),
                range: Self::range(range),
            }),
        }
    }
}

macro_rules! numbers {
    ($($kind:ty: $range:expr;)*) => {$(
        impl ParameterValue for $kind {
            type Number = $kind;

            fn range(range: RangeInclusive<$kind>) -> ParameterRange {
                $range(range)
            }

            fn new(number: $kind) -> Self {
                number
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers! {
    u64: ParameterRange::Whole;
    f64: ParameterRange::Real;
    bool: |_| ParameterRange::Flag;
}

/// An optional parameter. Users write 0 for none.
impl<T> ParameterValue for Option<T>
where
    T: ParameterValue<Number = T> + Default + PartialOrd + FromStr + Display,
{
    type Number = T;

    fn range(range: RangeInclusive<T>) -> ParameterRange {
        T::range(range)
    }

    fn new(number: T) -> Self {
        Some(number).filter(|number| *number != T::default())
    }

    /// None is allowed whatever the range is.
    fn read(key: &str, text: &str, range: RangeInclusive<T>) -> Result<Self, ParameterError> {
        match text.parse::<T>() {
            Ok(number) if number == T::default() => Ok(None),
            _ => <T as ParameterValue>::read(key, text, range).map(Self::new),
        }
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| T::default().text(), T::text)
    }
}

/// Declares a struct of parameters with defaults, a list of them, and a setter by name.
macro_rules! parameters {
    ($(#[$outer:meta])* pub struct $name:ident {
        $($key:ident: $kind:ty = $default:expr, $range:expr, $meaning:literal;)*
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
            /// Returns all parameters.
            pub fn parameters() -> Vec<$crate::simulate::ParameterInfo> {
                use $crate::simulate::parameter::ParameterValue;
                vec![$($crate::simulate::ParameterInfo {
                    key: stringify!($key),
                    meaning: $meaning,
                    range: <$kind>::range($range),
                },)*]
            }

            /// Sets a parameter from text. Returns false if no parameter has that key.
            ///
            /// # Errors
            /// Fails if the value is outside the parameter's range.
            pub fn set(
                &mut self,
                key: &str,
                value: &str,
            ) -> Result<bool, $crate::simulate::ParameterError> {
                use $crate::simulate::parameter::ParameterValue;
                match key {
                    $(stringify!($key) => self.$key = <$kind>::read(key, value, $range)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Returns the current values as text, in order.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                use $crate::simulate::parameter::ParameterValue;
                vec![$((stringify!($key), self.$key.text()),)*]
            }
        }
    };
}
pub(crate) use parameters;
