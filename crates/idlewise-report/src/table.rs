//! A table of values under defined columns, and its complete forms: CSV and JSON, with column ids
//! and base units. `text.rs` has the form for people.

use std::borrow::Borrow;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::columns::{Column, Heading, headings};
use crate::value::Value;

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) values: Vec<Value>,
    pub(crate) is_ranked: bool,
}

impl Row {
    /// The row of an item.
    pub(crate) fn of<Item>(columns: &[Column<Item>], item: &Item) -> Self {
        let values = columns.iter().map(|column| (column.value)(item)).collect();
        Row { values, is_ranked: true }
    }
}

/// Rows of values under defined columns.
///
/// ```
/// use idlewise_report::{Column, Table, TextStyle};
///
/// type State = (&'static str, u64);
/// let columns = [
///     Column::text("state", "state", |state: &State| state.0.into())
///         .means("The state's name.")
///         .key(),
///     Column::ns("exit_latency_ns", "exit latency", |state: &State| state.1.into())
///         .means("As declared."),
/// ];
/// let table = Table::new("", &columns, [("C1", 1_000), ("C6", 290_000)]);
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
    pub(crate) columns: Vec<Heading>,
    pub(crate) rows: Vec<Row>,
    /// Columns that text prints in one unit.
    pub(crate) alike: Vec<&'static str>,
}

impl Table {
    /// Makes a table with a row for each item. The title, which may be empty, is for the text form.
    pub fn new<Item, Held: Borrow<Item>>(
        title: impl Into<String>,
        columns: &[Column<Item>],
        items: impl IntoIterator<Item = Held>,
    ) -> Self {
        let rows = items.into_iter().map(|item| Row::of(columns, item.borrow()));
        Table::of_rows(title, columns, rows)
    }

    /// Makes a table from rows with these columns.
    pub(crate) fn of_rows<Item>(
        title: impl Into<String>,
        columns: &[Column<Item>],
        rows: impl Iterator<Item = Row>,
    ) -> Self {
        Table {
            title: title.into(),
            columns: headings(columns),
            rows: rows.collect(),
            alike: Vec::new(),
        }
    }

    /// Marks no best values, for rows that should not be compared.
    #[must_use]
    pub fn unranked(self) -> Self {
        self.ranked_if(|_| false)
    }

    /// Ranks only rows whose index `is_ranked` accepts. Others are never marked as the best.
    #[must_use]
    pub fn ranked_if(mut self, is_ranked: impl Fn(usize) -> bool) -> Self {
        for (index, row) in self.rows.iter_mut().enumerate() {
            row.is_ranked = is_ranked(index);
        }
        self
    }

    /// Keeps only these columns, in this order.
    ///
    /// # Panics
    /// Panics if there is no column with such an id.
    #[must_use]
    pub fn select(mut self, ids: &[&str]) -> Self {
        let place = |id: &&str| self.columns.iter().position(|column| column.id == *id);
        let places: Vec<usize> = ids.iter().map(|id| place(id).expect("a column's id")).collect();
        for row in &mut self.rows {
            row.values = places.iter().map(|&place| row.values[place].clone()).collect();
        }
        self.columns = places.iter().map(|&place| self.columns[place]).collect();
        self
    }

    /// Prints these columns in one unit, those that have a unit of the same kind.
    #[must_use]
    pub fn one_unit(mut self, ids: &[&'static str]) -> Self {
        self.alike = ids.to_vec();
        self
    }

    /// Leaves out these columns, for a title that says the same of all rows.
    ///
    /// # Panics
    /// Panics if there is no column with such an id.
    #[must_use]
    pub fn without(self, ids: &[&str]) -> Self {
        let known: Vec<&str> = self.columns.iter().map(|column| column.id).collect();
        assert!(ids.iter().all(|id| known.contains(id)), "a column's id");
        let kept: Vec<&str> = known.into_iter().filter(|id| !ids.contains(id)).collect();
        self.select(&kept)
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns all columns as CSV: ids in the first line, base units, empty fields for absent
    /// values. Each row is one line. Text may be foreign and CSV has no escapes, so it is made safe
    /// as on screen. JSON has escapes and keeps the text unchanged.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let ids = self.columns.iter().map(|column| column.id.to_owned());
        let rows = self.rows.iter().map(|row| row.values.iter().map(Value::to_field).collect());
        for record in std::iter::once(ids.collect::<Vec<String>>()).chain(rows) {
            writer.write_record(record).expect("a vector takes any record of the table's width");
        }
        let bytes = writer.into_inner().expect("a vector takes all bytes");
        String::from_utf8(bytes).expect("strings were written")
    }

    /// Returns all columns as JSON: an array of objects with ids as keys in column order, base
    /// units, and `null` for absent values. `Table` is also `Serialize`, to be part of a document.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("keys are strings");
        text.push('\n');
        text
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Object<'a>(&'a [Heading], &'a [Value]);
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

    fn table() -> Table {
        type C = Column<[Value; 3]>;
        let columns = [
            C::text("machine", "machine", |row| row[0].clone()).means("Its id."),
            C::text("states", "states", |row| row[1].clone()).means("Their names."),
            C::mw("power_mw", "power", |row| row[2].clone()).means("Its power."),
        ];
        let rows = [
            ["a".into(), "POLL, \"C1\"".into(), 1.5.into()],
            ["b".into(), Value::Absent, 0_u64.into()],
            ["c".into(), "".into(), f64::NAN.into()],
        ];
        Table::new("ignored", &columns, rows)
    }

    #[test]
    fn csv_has_ids_base_units_and_empty_fields() {
        assert_eq!(
            table().to_csv(),
            "machine,states,power_mw\na,\"POLL, \"\"C1\"\"\",1.5\nb,,0\nc,,\n"
        );
        assert_eq!(
            table().select(&["power_mw", "machine"]).to_csv(),
            "power_mw,machine\n1.5,a\n0,b\n,c\n"
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
}
