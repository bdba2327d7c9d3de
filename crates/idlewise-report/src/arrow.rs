//! A table in Arrow's memory, with the types of its Parquet file (`parquet.rs`).

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use crate::parquet::Stored;
use crate::{Table, Value};

impl Table {
    /// Returns all columns and rows as one batch.
    pub fn to_arrow(&self) -> RecordBatch {
        let columns = (0..self.columns.len()).map(|index| {
            let values = self.rows.iter().map(|row| &row.values[index]);
            let column: (DataType, ArrayRef) = match self.stored(index) {
                Stored::Text => {
                    (DataType::Utf8, Arc::new(values.map(text).collect::<StringArray>()))
                }
                Stored::Whole => {
                    (DataType::UInt64, Arc::new(values.map(whole).collect::<UInt64Array>()))
                }
                Stored::Real => {
                    let values = values.map(Value::number).collect::<Float64Array>();
                    (DataType::Float64, Arc::new(values))
                }
            };
            column
        });
        let (types, arrays): (Vec<DataType>, Vec<ArrayRef>) = columns.unzip();
        let fields = self.columns.iter().zip(types);
        let fields = fields.map(|(column, kind)| Field::new(column.id, kind, true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), arrays).expect("equal lengths, and their own types")
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Count(count) => Some(*count),
        _ => None,
    }
}
