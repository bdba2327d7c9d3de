//! Times and powers as a machine's file has them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};

/// Far beyond the day that a state table allows, and small enough to be exact in nanoseconds.
const MICROSECONDS_MAX: f64 = 1e12;
/// A megawatt per core. The mean of two powers of 1e200 would be infinite.
const MILLIWATTS_MAX: f64 = 1e9;

/// Whether a field is omitted when a machine is written.
pub(crate) fn is_absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Times in microseconds in the file and nanoseconds in memory.
pub(crate) mod microseconds {
    use serde::Serializer;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match ns % 1_000 {
            0 => serializer.serialize_u64(ns / 1_000),
            _ => serializer.serialize_f64(*ns as f64 / 1e3),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(de: D) -> Result<u64, D::Error> {
        let us =
            de.deserialize_any(Number("microseconds as a number, at least 0, such as 290 or 0.5"))?;
        if us > MICROSECONDS_MAX {
            return Err(D::Error::custom(format_args!("{us} us is too long: check the unit")));
        }
        // Exact, since it is at most 1e15; a fraction is rounded to the nearest nanosecond.
        Ok((us * 1000.0).round() as u64)
    }
}

/// A non-negative power.
struct Milliwatts(f64);

impl<'de> Deserialize<'de> for Milliwatts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "milliwatts as a number, at least 0, such as 1440 or 1.92";
        let mw = deserializer.deserialize_any(Number(expected))?;
        if mw > MILLIWATTS_MAX {
            return Err(D::Error::custom(format_args!("{mw} mW is too much: check the unit")));
        }
        Ok(Milliwatts(mw))
    }
}

pub(crate) fn milliwatts<'de, D: Deserializer<'de>>(de: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<Milliwatts>::deserialize(de)?.map(|mw| mw.0))
}

pub(crate) fn milliwatts_range<'de, D: Deserializer<'de>>(
    de: D,
) -> Result<Option<[f64; 2]>, D::Error> {
    Ok(Option::<Pair<Milliwatts>>::deserialize(de)?.map(|Pair(range)| range.map(|mw| mw.0)))
}

/// Pairs of percent and microseconds, at least one. The rest is checked with the whole machine.
pub(crate) fn percentiles<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<[f64; 2]>, D::Error> {
    let pairs = Vec::<Pair<f64>>::deserialize(de)?;
    if pairs.is_empty() {
        return Err(D::Error::custom(
            "no percentiles: give pairs such as [[50, 151], [99, 190.5]]",
        ));
    }
    Ok(pairs.into_iter().map(|Pair(pair)| pair).collect())
}

/// Two of something. For an array of two, TOML's reader does not mind a third.
struct Pair<T>([T; 2]);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pair<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<T>::deserialize(deserializer)?;
        let count = all.len();
        let pair = all.try_into().map_err(|_| {
            D::Error::custom(format_args!("{count} numbers, where a pair is expected"))
        })?;
        Ok(Pair(pair))
    }
}

/// Accepts integers and floats; the string says what was expected.
struct Number(&'static str);

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        if value < 0 {
            return Err(E::invalid_value(Unexpected::Signed(value), &self));
        }
        Ok(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        // Also false for NaN.
        if value >= 0.0 && value.is_finite() {
            return Ok(value);
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }
}
