//! What stands in a cell of a table.

use serde::ser::{Serialize, Serializer};

use crate::shown::shown_in_line;

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unknown value, which is not zero.
    Absent,
    /// Text.
    Text(String),
    /// A whole number in the column's base unit.
    Count(u64),
    /// Any number in the column's base unit. A number that is not finite counts as absent.
    Real(f64),
}

impl Value {
    /// The number; `None` for text and absent values.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Value::Count(count) => Some(*count as f64),
            Value::Real(real) => Some(*real).filter(|real| real.is_finite()),
            Value::Absent | Value::Text(_) => None,
        }
    }

    /// The value as a CSV field.
    pub fn to_field(&self) -> String {
        match self {
            Value::Text(text) => shown_in_line(text).into_owned(),
            Value::Count(count) => count.to_string(),
            Value::Real(real) if real.is_finite() => real.to_string(),
            Value::Real(_) | Value::Absent => String::new(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Count(count)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Value::Real(real)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Absent, Into::into)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Text(text) => serializer.serialize_str(text),
            Value::Count(count) => serializer.serialize_u64(*count),
            Value::Real(real) if real.is_finite() => serializer.serialize_f64(*real),
            Value::Real(_) | Value::Absent => serializer.serialize_none(),
        }
    }
}
