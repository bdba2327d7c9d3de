//! A table as a Parquet file, with a row group for all rows. Every column may have absent values.
//!
//! Text is a string; ratios, energies, powers, rates and plain numbers are doubles; counts and times are whole
//! numbers without a sign, unless one of them is not whole.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::{Heading, Table, Unit, Value};

/// A table with fewer rows is not compressed, because setting up the compressor would take longer than
/// everything else.
const PACKED_ROW_COUNT_MIN: usize = 256;

/// How a column is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Text,
    Whole,
    Real,
}

impl Table {
    /// Returns all columns as a Parquet file. The same table always gives the same bytes. `note` is a key
    /// and a text for the file's metadata.
    pub fn to_parquet(&self, note: Option<(&str, &str)>) -> Vec<u8> {
        self.parquet(note).expect("a vector takes all bytes, and the schema is that of the columns")
    }

    fn parquet(&self, note: Option<(&str, &str)>) -> Result<Vec<u8>, ParquetError> {
        let is_packed = self.row_count() >= PACKED_ROW_COUNT_MIN;
        let properties = WriterProperties::builder()
            .set_created_by("idlewise".to_owned())
            .set_compression(match is_packed {
                true => Compression::ZSTD(ZstdLevel::default()),
                false => Compression::UNCOMPRESSED,
            })
            .set_dictionary_enabled(is_packed)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(
                note.map(|(key, text)| vec![KeyValue::new(key.to_owned(), text.to_owned())]),
            )
            .build();
        let columns: Vec<(Heading, Stored)> = (0..self.columns.len())
            .map(|index| (self.columns[index], self.stored(index)))
            .collect();
        let fields = columns.iter().map(|(heading, stored)| field(heading.id, *stored));
        let schema = Type::group_type_builder("table").with_fields(fields.collect()).build()?;
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for (index, (_, stored)) in columns.iter().enumerate() {
            let values = self.rows.iter().map(|row| &row.values[index]);
            match stored {
                Stored::Text => write::<ByteArrayType>(&mut group, values.map(text))?,
                Stored::Whole => write::<Int64Type>(&mut group, values.map(whole))?,
                Stored::Real => write::<DoubleType>(&mut group, values.map(Value::number))?,
            }
        }
        group.close()?;
        writer.into_inner()
    }

    pub(crate) fn stored(&self, index: usize) -> Stored {
        match self.columns[index].unit {
            Unit::Text => Stored::Text,
            Unit::Count | Unit::Nanoseconds | Unit::Cycles => {
                let is_real = |value: &Value| matches!(value, Value::Real(_));
                let has_real = self.rows.iter().any(|row| is_real(&row.values[index]));
                if has_real { Stored::Real } else { Stored::Whole }
            }
            Unit::Number | Unit::Ratio | Unit::Microjoules | Unit::Milliwatts | Unit::PerSecond => {
                Stored::Real
            }
        }
    }
}

/// Returns the text that [`Table::to_parquet`] was given under that key. The file must be intact.
pub fn note_of(file: Vec<u8>, key: &str) -> Option<String> {
    let reader = SerializedFileReader::new(Bytes::from(file)).ok()?;
    let notes = reader.metadata().file_metadata().key_value_metadata()?;
    notes.iter().find(|note| note.key == key)?.value.clone()
}

fn field(id: &str, stored: Stored) -> TypePtr {
    let (physical, logical) = match stored {
        Stored::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Stored::Whole => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
        Stored::Real => (PhysicalType::DOUBLE, None),
    };
    let field = Type::primitive_type_builder(id, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build();
    Arc::new(field.expect("each of the three is a valid field"))
}

fn text(value: &Value) -> Option<ByteArray> {
    match value {
        Value::Text(text) => Some(ByteArray::from(text.as_str())),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Count(count) => Some(count.cast_signed()),
        _ => None,
    }
}

/// Writes the next column.
fn write<D: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: impl Iterator<Item = Option<D::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<D::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<D::T> = values.into_iter().flatten().collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<D>().write_batch(&present, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::record::RowAccessor;

    use super::*;
    use crate::Column;

    type Row = (&'static str, Option<u64>, f64);

    fn file(rows: &[Row]) -> Vec<u8> {
        let columns = [
            Column::text("name", "", |row: &Row| row.0.into()).means(""),
            Column::ns("time_ns", "", |row: &Row| row.1.into()).means(""),
            Column::ratio("share_ratio", "", |row: &Row| row.2.into()).means(""),
        ];
        Table::new("", &columns, rows).to_parquet(Some(("key", "a note")))
    }

    #[test]
    fn values_come_back_and_absent_ones_are_null() {
        let bytes = file(&[("a", Some(u64::MAX), 0.5), ("b", None, f64::NAN)]);
        let reader = SerializedFileReader::new(Bytes::from(bytes.clone())).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(0).unwrap(), "a");
        assert_eq!(rows[0].get_ulong(1).unwrap(), u64::MAX);
        assert!((rows[0].get_double(2).unwrap() - 0.5).abs() < 1e-12);
        assert!(rows[1].get_ulong(1).is_err() && rows[1].get_double(2).is_err());
        assert_eq!(note_of(bytes.clone(), "key").as_deref(), Some("a note"));
        assert_eq!(note_of(bytes, "other"), None);
    }

    #[test]
    fn many_rows_are_packed() {
        let rows: Vec<Row> = (0..10_000).map(|i| ("name", Some(i), 0.25)).collect();
        let bytes = file(&rows);
        assert!(bytes.len() < 40_000, "{}", bytes.len());
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        assert_eq!(reader.get_row_iter(None).unwrap().count(), 10_000);
    }
}
