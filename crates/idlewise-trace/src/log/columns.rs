//! The columns of a file, of an idle log or a workload log: how they are written and read.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::SchemaDescriptor;

use super::LogError;
use super::footer::{self, Chunk, RawFooter, TAIL_BYTE_COUNT};
use super::form::{Form, schema};
use super::pages::Pages;

pub(crate) type WriteResult = Result<(), ParquetError>;
pub(crate) type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// Writes the next column of a row group.
pub(crate) fn write<T: DataType, Row>(
    group: &mut Group<'_>,
    rows: &[Row],
    get: impl Fn(&Row) -> T::T,
) -> WriteResult {
    let values: Vec<T::T> = rows.iter().map(get).collect();
    write_column::<T>(group, &values, None)
}

/// Writes the next column of a row group, which has nulls.
pub(crate) fn write_some<T: DataType, Row>(
    group: &mut Group<'_>,
    rows: &[Row],
    get: impl Fn(&Row) -> Option<T::T>,
) -> WriteResult {
    let values: Vec<T::T> = rows.iter().filter_map(&get).collect();
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(get(row).is_some())).collect();
    write_column::<T>(group, &values, Some(&levels))
}

fn write_column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> WriteResult {
    let mut column = group.next_column()?.expect("one call for each column of the schema");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// A file that is ready for reading, with its length when it was opened, or its bytes in memory.
pub(crate) enum OpenData {
    File(Arc<File>, u64),
    Memory(Bytes),
}

impl OpenData {
    fn byte_count(&self) -> u64 {
        match self {
            OpenData::File(_, byte_count) => *byte_count,
            OpenData::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn read(&self, path: &Path, range: &Range<u64>) -> Result<Bytes, LogError> {
        match self {
            OpenData::File(file, _) => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, range.start)
                    .map_err(|error| LogError::io(path, error))?;
                Ok(bytes.into())
            }
            OpenData::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
        }
    }

    /// The file's footer, which is not checked yet, and where it begins.
    pub(crate) fn footer(&self, path: &Path) -> Result<(RawFooter, u64), LogError> {
        let byte_count = self.byte_count();
        if byte_count == 0 {
            return Err(LogError::Empty { path: path.to_owned() });
        }
        let not_parquet = || LogError::NotParquet { path: path.to_owned() };
        let tail_at = byte_count.checked_sub(TAIL_BYTE_COUNT).ok_or_else(not_parquet)?;
        let tail = self.read(path, &(tail_at..byte_count))?;
        let place = footer::place(&tail, byte_count).ok_or_else(not_parquet)?;
        let footer = RawFooter::decode(&self.read(path, &place)?)
            .ok_or_else(|| LogError::damaged(path, "the footer can't be decoded"))?;
        Ok((footer, place.start))
    }
}

/// A row group that is being read.
pub(crate) struct Rows<'a, 'b> {
    path: &'a Path,
    data: &'b OpenData,
    schema: SchemaDescriptor,
    forms: &'static [Form],
    row_count: usize,
}

impl<'a, 'b> Rows<'a, 'b> {
    pub(crate) fn new(
        path: &'a Path,
        data: &'b OpenData,
        forms: &'static [Form],
        row_count: usize,
    ) -> Self {
        let schema = SchemaDescriptor::new(schema("row", forms));
        Rows { path, data, schema, forms, row_count }
    }

    /// A cursor at the first row of a column.
    pub(crate) fn cursor<T: DataType>(
        &self,
        column: usize,
        chunk: Option<&Chunk>,
    ) -> Result<Cursor<'a, T>, LogError> {
        let form = self.forms[column];
        let reader = match chunk {
            Some(Chunk { bytes, is_compressed, .. }) => {
                let bytes = self.data.read(self.path, bytes)?;
                let pages = Pages::new(form, bytes, *is_compressed, self.row_count as u64);
                // Names were replaced by numbers, as the first column has.
                let descriptor = if form.number_of.is_some() { 0 } else { column };
                let descriptor = self.schema.column(descriptor);
                Some(ColumnReaderImpl::<T>::new(descriptor, Box::new(pages)))
            }
            None => None,
        };
        let (values, levels) = (Vec::new(), Vec::new());
        let (path, row_count) = (self.path, self.row_count);
        Ok(Cursor { path, form, reader, row_count, row: 0, values, levels })
    }
}

/// A position in a column of a row group. The column may be missing or not wanted.
pub(crate) struct Cursor<'a, T: DataType> {
    path: &'a Path,
    form: Form,
    reader: Option<ColumnReaderImpl<T>>,
    /// The rows of the whole group.
    row_count: usize,
    /// How many of them are read.
    row: usize,
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Cursor<'_, T> {
    /// Calls `set` with each of the next rows and its value, skipping nulls. `set` returns `None`
    /// for a value that the column cannot hold.
    #[inline]
    pub(crate) fn read<Row>(
        &mut self,
        rows: &mut [Row],
        mut set: impl FnMut(&mut Row, &T::T) -> Option<()>,
    ) -> Result<(), LogError> {
        if self.reader.is_none() {
            return Ok(());
        }
        self.fetch(rows.len())?;
        let first_row = self.row;
        self.row += rows.len();
        let bad_value = |index: usize| bad_value(self.path, self.form, first_row + index);
        if !self.form.is_nullable {
            for (index, (row, value)) in rows.iter_mut().zip(&self.values).enumerate() {
                set(row, value).ok_or_else(|| bad_value(index))?;
            }
            return Ok(());
        }
        let mut values = self.values.iter();
        for (index, (row, &level)) in rows.iter_mut().zip(&self.levels).enumerate() {
            if level == 1 {
                let value = values.next().ok_or_else(|| bad_value(index))?;
                set(row, value).ok_or_else(|| bad_value(index))?;
            }
        }
        Ok(())
    }

    /// Decodes the values of the next rows.
    fn fetch(&mut self, wanted_count: usize) -> Result<(), LogError> {
        self.values.clear();
        self.levels.clear();
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let (path, name) = (self.path, self.form.name);
        let damaged = |what: String| LogError::damaged(path, what);
        let mut fetched_count = 0;
        while fetched_count < wanted_count {
            let levels = self.form.is_nullable.then_some(&mut self.levels);
            let left = wanted_count - fetched_count;
            let (records, _, _) = reader
                .read_records(left, levels, None, &mut self.values)
                .map_err(|error| match error {
                    ParquetError::NYI(what) => {
                        LogError::rewritten(path, format_args!("column {name}: {what}"))
                    }
                    error => damaged(format!("column {name}: {error}")),
                })?;
            if records == 0 {
                return Err(damaged(format!(
                    "column {name} has {} rows instead of {}",
                    self.row + fetched_count,
                    self.row_count
                )));
            }
            fetched_count += records;
        }
        Ok(())
    }
}

/// Sets a field to a column's value, or returns `None` for a value that it cannot hold.
#[inline]
pub(crate) fn put<T>(field: &mut T, value: Option<T>) -> Option<()> {
    *field = value?;
    Some(())
}

/// The error of a value that a column cannot hold.
pub(crate) fn bad_value(path: &Path, form: Form, row: usize) -> LogError {
    let name = form.name;
    LogError::damaged(path, format!("column {name}, row {row} of a group: impossible value"))
}
