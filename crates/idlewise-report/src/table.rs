//! A table of values under defined columns, and its two complete forms: CSV and JSON, with column
//! ids as names and base units. `text.rs` has the form for people.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::shown::shown_in_line;
use crate::{Column, TextStyle};

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing is known; not zero.
    Absent,
    /// Words.
    Text(String),
    /// A whole number in the column's base unit.
    Count(u64),
    /// Any number in the column's base unit. One that is not finite counts as absent.
    Real(f64),
}

impl Value {
    /// The number, none for words and for what is absent.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Value::Count(count) => Some(*count as f64),
            Value::Real(real) => Some(*real).filter(|real| real.is_finite()),
            Value::Absent | Value::Text(_) => None,
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

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub(crate) values: Vec<Value>,
    pub(crate) is_ranked: bool,
}

impl Row {
    /// A row that takes part in the search for the best of a column.
    pub fn new(values: impl IntoIterator<Item = Value>) -> Self {
        Row { values: values.into_iter().collect(), is_ranked: true }
    }

    /// A row that stands beside the others and is never the best, such as an oracle's.
    pub fn unranked(values: impl IntoIterator<Item = Value>) -> Self {
        Row { is_ranked: false, ..Row::new(values) }
    }
}

/// Rows of values under defined columns.
///
/// ```
/// use idlewise_report::{Row, Table, TextStyle, columns};
///
/// let mut table = Table::new("", &[&columns::STATE, &columns::EXIT_LATENCY]);
/// table.push(Row::new(["C1".into(), 1_000_u64.into()]));
/// table.push(Row::new(["C6".into(), 290_000_u64.into()]));
/// assert_eq!(table.to_csv(), "state,exit_latency_ns\nC1,1000\nC6,290000\n");
/// assert_eq!(
///     table.to_text(&TextStyle::default()),
///     "          exit\n       latency\nstate       us\n-----  -------\n\
///      C1           1\nC6         290\n"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static Column>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// A table without rows. The title is a line above the text form; it may be empty.
    pub fn new(title: impl Into<String>, columns: &[&'static Column]) -> Self {
        Table { title: title.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the row does not have one value for each column.
    pub fn push(&mut self, row: Row) {
        assert_eq!(row.values.len(), self.columns.len(), "one value for each column");
        self.rows.push(row);
    }

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The form for people; see [`TextStyle`]. Every line ends in a newline.
    pub fn to_text(&self, style: &TextStyle) -> String {
        crate::text::table_text(self, style)
    }

    /// All columns as CSV: ids in the first line, base units, an empty field for what is absent. A
    /// row is a line, and words are as they are shown: what names a row may be foreign, and CSV has
    /// no escapes. JSON has them, and the words as they are.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let ids = self.columns.iter().map(|column| column.id.to_owned());
        let rows = self.rows.iter().map(|row| row.values.iter().map(csv_field).collect());
        for record in std::iter::once(ids.collect::<Vec<String>>()).chain(rows) {
            writer.write_record(record).expect("a vector takes any record of the table's width");
        }
        let bytes = writer.into_inner().expect("a vector takes all bytes");
        String::from_utf8(bytes).expect("strings were written")
    }

    /// All columns as JSON: an array of objects, ids as keys in column order, base units, `null`
    /// for what is absent. `Table` is also `Serialize`, to stand inside another document.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("keys are strings");
        text.push('\n');
        text
    }
}

fn csv_field(value: &Value) -> String {
    match value {
        Value::Text(text) => shown_in_line(text).into_owned(),
        Value::Count(count) => count.to_string(),
        Value::Real(real) if real.is_finite() => real.to_string(),
        Value::Real(_) | Value::Absent => String::new(),
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Object<'a>(&'a [&'static Column], &'a [Value]);
        impl Serialize for Object<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.len()))?;
                for (column, value) in self.0.iter().zip(self.1) {
                    map.serialize_entry(column.id, value)?;
                }
                map.end()
            }
        }
        let mut array = serializer.serialize_seq(Some(self.rows.len()))?;
        for row in &self.rows {
            array.serialize_element(&Object(&self.columns, &row.values))?;
        }
        array.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{MACHINE, POWER, STATES};

    fn table() -> Table {
        let mut table = Table::new("ignored", &[&MACHINE, &STATES, &POWER]);
        table.push(Row::new(["a".into(), "POLL, \"C1\"".into(), 1.5.into()]));
        table.push(Row::new(["b".into(), Value::Absent, 0_u64.into()]));
        table.push(Row::new(["c".into(), "".into(), f64::NAN.into()]));
        table
    }

    #[test]
    fn csv_has_ids_base_units_and_empty_fields() {
        assert_eq!(
            table().to_csv(),
            "machine,states,power_mw\na,\"POLL, \"\"C1\"\"\",1.5\nb,,0\nc,,\n"
        );
    }

    #[test]
    fn json_has_ids_in_column_order_and_null() {
        let text = serde_json::to_string(&table()).unwrap();
        assert_eq!(
            text,
            r#"[{"machine":"a","states":"POLL, \"C1\"","power_mw":1.5},{"machine":"b","states":null,"power_mw":0},{"machine":"c","states":"","power_mw":null}]"#
        );
        assert!(table().to_json().ends_with("]\n"));
    }

    #[test]
    #[should_panic(expected = "one value for each column")]
    fn a_row_of_the_wrong_width_is_a_mistake() {
        table().push(Row::new([Value::Absent]));
    }
}
