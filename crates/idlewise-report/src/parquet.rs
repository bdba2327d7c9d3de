//! A table as a Parquet file, with a row group for all rows. Every column may have absent values.
//!
//! Text is a string; ratios, energies, powers, rates and plain numbers are doubles; counts and times are whole
//! numbers without a sign, unless one of them is not whole.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
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

/// How many rows are read at once.
const READ_ROW_COUNT: usize = 4096;

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
        let written = ParquetWriter::new(Vec::new(), self, note).and_then(|mut writer| {
            writer.add(self)?;
            writer.finish()
        });
        written.expect("a vector takes all bytes, and the schema is that of the columns")
    }

    fn stored_columns(&self) -> Vec<(Heading, Stored)> {
        self.columns
            .iter()
            .copied()
            .enumerate()
            .map(|(index, it)| (it, self.stored(index)))
            .collect()
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

/// Writes a Parquet file table by table, with a row group for each, so that memory holds one of them.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<(Heading, Stored)>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file. `first` will be its first table: its values say how columns are stored.
    ///
    /// # Errors
    /// Fails if nothing can be written.
    pub fn new(to: W, first: &Table, note: Option<(&str, &str)>) -> Result<Self, ParquetError> {
        let is_packed = first.row_count() >= PACKED_ROW_COUNT_MIN;
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
        let columns = first.stored_columns();
        let fields = columns.iter().map(|(heading, stored)| field(heading.id, *stored));
        let schema = Type::group_type_builder("table").with_fields(fields.collect()).build()?;
        let writer = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))?;
        Ok(ParquetWriter { writer, columns })
    }

    /// Writes the rows of a table with the columns of the first. One without rows adds nothing.
    ///
    /// # Errors
    /// Fails if the rows cannot be written, or if a number is not whole although the first table's were.
    pub fn add(&mut self, table: &Table) -> Result<(), ParquetError> {
        if table.row_count() == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (index, (heading, stored)) in self.columns.iter().enumerate() {
            let values = table.rows.iter().map(|row| &row.values[index]);
            match stored {
                Stored::Text => write::<ByteArrayType, W>(&mut group, values.map(text))?,
                Stored::Whole if table.stored(index) == Stored::Real => {
                    let fault = format!("{}: not a whole number", heading.id);
                    return Err(ParquetError::General(fault));
                }
                Stored::Whole => write::<Int64Type, W>(&mut group, values.map(whole))?,
                Stored::Real => write::<DoubleType, W>(&mut group, values.map(Value::number))?,
            }
        }
        group.close().map(drop)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Fails if its end cannot be written.
    pub fn finish(self) -> Result<W, ParquetError> {
        self.writer.into_inner()
    }
}

/// The columns of a Parquet file, by their names: text, whole numbers of 64 bits and doubles. Columns of other types are as if
/// all their values were absent.
pub struct ParquetColumns {
    columns: HashMap<String, Vec<Value>>,
    row_count: usize,
}

impl ParquetColumns {
    /// Reads all columns.
    ///
    /// # Errors
    /// Fails if the file is damaged, or packed in another way than Zstandard.
    pub fn of(file: Vec<u8>) -> Result<Self, ParquetError> {
        let reader = SerializedFileReader::new(Bytes::from(file))?;
        let mut columns: HashMap<String, Vec<Value>> = HashMap::new();
        let mut row_count = 0;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            row_count += usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            for index in 0..group.num_columns() {
                let about = group.metadata().column(index).column_descr_ptr();
                // Lists and the like.
                if about.max_def_level() > 1 || about.max_rep_level() > 0 {
                    continue;
                }
                let to = columns.entry(about.name().to_owned()).or_default();
                let is_nullable = about.max_def_level() > 0;
                match group.get_column_reader(index)? {
                    ColumnReader::ByteArrayColumnReader(column) => {
                        let text = |bytes: &ByteArray| {
                            String::from_utf8_lossy(bytes.data()).into_owned().into()
                        };
                        read(column, is_nullable, text, to)?;
                    }
                    ColumnReader::Int64ColumnReader(column) => {
                        read(column, is_nullable, |whole| Value::Count(whole.cast_unsigned()), to)?;
                    }
                    ColumnReader::DoubleColumnReader(column) => {
                        read(column, is_nullable, |real| Value::Real(*real), to)?;
                    }
                    _ => to.extend((0..group.metadata().num_rows()).map(|_| Value::Absent)),
                }
            }
        }
        match columns.values().all(|values| values.len() == row_count) {
            true => Ok(ParquetColumns { columns, row_count }),
            false => Err(ParquetError::General("columns of different lengths".to_owned())),
        }
    }

    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Whether there is such a column.
    pub fn has(&self, id: &str) -> bool {
        self.columns.contains_key(id)
    }

    fn value(&self, id: &str, row: usize) -> &Value {
        self.columns.get(id).and_then(|values| values.get(row)).unwrap_or(&Value::Absent)
    }

    /// The text of a column in a row; `None` if it is absent or there is no such column of text.
    pub fn text(&self, id: &str, row: usize) -> Option<&str> {
        match self.value(id, row) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number of a column in a row.
    pub fn count(&self, id: &str, row: usize) -> Option<u64> {
        match self.value(id, row) {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// The number of a column in a row.
    pub fn real(&self, id: &str, row: usize) -> Option<f64> {
        match self.value(id, row) {
            Value::Real(real) => Some(*real),
            _ => None,
        }
    }
}

/// Appends all values of a column.
fn read<D: DataType>(
    mut column: ColumnReaderImpl<D>,
    is_nullable: bool,
    value: impl Fn(&D::T) -> Value,
    to: &mut Vec<Value>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    loop {
        let (record_count, _, _) = column.read_records(
            READ_ROW_COUNT,
            is_nullable.then_some(&mut levels),
            None,
            &mut values,
        )?;
        if record_count == 0 {
            break;
        }
    }
    if levels.is_empty() {
        to.extend(values.iter().map(value));
        return Ok(());
    }
    let mut present = values.iter();
    to.extend(levels.iter().map(|level| match level {
        0 => Value::Absent,
        _ => present.next().map_or(Value::Absent, &value),
    }));
    Ok(())
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
fn write<D: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
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
        let notes = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert_eq!((notes[0].key.as_str(), notes[0].value.as_deref()), ("key", Some("a note")));
        let columns = ParquetColumns::of(bytes).unwrap();
        assert_eq!((columns.row_count(), columns.text("name", 1)), (2, Some("b")));
        assert_eq!(
            (columns.count("time_ns", 0), columns.count("time_ns", 1)),
            (Some(u64::MAX), None)
        );
        assert_eq!(
            (columns.real("share_ratio", 0), columns.real("share_ratio", 1)),
            (Some(0.5), None)
        );
        assert_eq!((columns.text("time_ns", 0), columns.text("none", 0)), (None, None));
    }

    /// In several tables it is the same table.
    #[test]
    fn a_file_is_written_table_by_table() {
        let columns = [
            Column::text("name", "", |row: &Row| row.0.into()).means(""),
            Column::ns("time_ns", "", |row: &Row| row.1.into()).means(""),
        ];
        let table = |rows: &[Row]| Table::new("", &columns, rows);
        let rows: Vec<Row> = (0..1000).map(|i| ("name", (i % 3 > 0).then_some(i), 0.0)).collect();
        let mut writer = ParquetWriter::new(Vec::new(), &table(&rows[..300]), None).unwrap();
        for part in [&rows[..300], &rows[300..300], &rows[300..]] {
            writer.add(&table(part)).unwrap();
        }
        let found = ParquetColumns::of(writer.finish().unwrap()).unwrap();
        assert_eq!(found.row_count(), rows.len());
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(
                (found.text("name", index), found.count("time_ns", index)),
                (Some("name"), row.1)
            );
        }
        let real = [Column::ns("time_ns", "", |row: &Row| row.2.into()).means("")];
        let mut writer = ParquetWriter::new(Vec::new(), &table(&rows), None).unwrap();
        let other = Table::new("", &[columns[0], real[0]], &rows);
        assert!(
            writer.add(&other).unwrap_err().to_string().contains("time_ns: not a whole number")
        );
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
