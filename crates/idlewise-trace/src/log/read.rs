//! Reading an idle log, one row group at a time. A file that we did not write is checked as it is
//! read: order, ranges and known names.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::page_index::RowGroupPageIndex;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{ChunkReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedRowGroupReader;
use parquet::file::statistics::Statistics;

use super::{Column, FORMAT_VERSION, LogError, LogMetadata, METADATA_KEY};
use crate::{IdleGap, WakeReason};

/// Row groups larger than this are refused: one must fit in memory.
const GROUP_ROW_COUNT_MAX: i64 = 16 << 20;
/// Gaps longer than this, 104 days, are refused: no recording is that long, and a replay that
/// ticks through one would not end in any patient person's time.
const GAP_MAX_NS: i64 = 1 << 53;

/// An open idle log. Reading needs only `&self`, so that threads can share it.
pub struct IdleLog {
    path: PathBuf,
    data: Data,
    parquet: ParquetMetaData,
    /// Where each of our columns is in the file; the nullable ones may be missing.
    columns: [Option<usize>; Column::ALL.len()],
    /// The metadata.
    pub metadata: LogMetadata,
}

enum Data {
    File(Arc<File>),
    Memory(Bytes),
}

/// A row group: gaps of one CPU, if the log is one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapGroup {
    index: usize,
    /// How many gaps it holds.
    pub gap_count: u64,
    /// The file's row that it begins with.
    pub first_row: u64,
}

impl IdleLog {
    /// Opens a log and reads its metadata.
    ///
    /// # Errors
    /// If it is not an idle log, or a newer one.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let file = File::open(path).map_err(|error| LogError::io(path, error))?;
        let byte_count = file.metadata().map_err(|error| LogError::io(path, error))?.len();
        if byte_count == 0 {
            return Err(LogError::Empty { path: path.to_owned() });
        }
        let parquet = ParquetMetaDataReader::new().parse_and_finish(&file);
        Self::with_parquet(path, Data::File(Arc::new(file)), parquet)
    }

    /// Opens a log that is in memory; `name` stands for its path in messages.
    ///
    /// # Errors
    /// As [`IdleLog::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Bytes>) -> Result<Self, LogError> {
        let bytes = bytes.into();
        let parquet = ParquetMetaDataReader::new().parse_and_finish(&bytes);
        Self::with_parquet(Path::new(name), Data::Memory(bytes), parquet)
    }

    /// Offsets of a damaged footer must not reach the Parquet crate, which takes them on trust.
    fn check_ranges(path: &Path, parquet: &ParquetMetaData, end: u64) -> Result<(), LogError> {
        let inside = |start: i64, len: i64| {
            let (Ok(start), Ok(len)) = (u64::try_from(start), u64::try_from(len)) else {
                return false;
            };
            start.checked_add(len).is_some_and(|column_end| column_end <= end)
        };
        for group in parquet.row_groups() {
            let chunks_are_inside = group.columns().iter().all(|column| {
                let first = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                inside(first, column.compressed_size())
                    && inside(column.data_page_offset(), 0)
                    && column.num_values() == group.num_rows()
            });
            if group.num_rows() < 0 || !chunks_are_inside {
                return Err(LogError::damaged(path, "the footer points outside the file"));
            }
        }
        Ok(())
    }

    fn with_parquet(
        path: &Path,
        data: Data,
        parquet: Result<ParquetMetaData, parquet::errors::ParquetError>,
    ) -> Result<Self, LogError> {
        let parquet = parquet.map_err(|_| LogError::NotParquet { path: path.to_owned() })?;
        let end = match &data {
            Data::File(file) => file.metadata().map_err(|error| LogError::io(path, error))?.len(),
            Data::Memory(bytes) => bytes.len() as u64,
        };
        Self::check_ranges(path, &parquet, end)?;
        let not_ours = |missing| LogError::NotIdleLog { path: path.to_owned(), missing };
        let json = parquet
            .file_metadata()
            .key_value_metadata()
            .and_then(|pairs| pairs.iter().find(|pair| pair.key == METADATA_KEY))
            .and_then(|pair| pair.value.as_deref())
            .ok_or_else(|| not_ours("metadata under the key `idlewise`"))?;
        let metadata: LogMetadata = serde_json::from_str(json)
            .map_err(|error| LogError::damaged(path, format_args!("metadata: {error}")))?;
        if metadata.format_version > FORMAT_VERSION {
            let version = metadata.format_version;
            return Err(LogError::Newer { path: path.to_owned(), version });
        }
        let schema = parquet.file_metadata().schema_descr();
        let mut columns = [None; Column::ALL.len()];
        for (slot, column) in columns.iter_mut().zip(Column::ALL) {
            *slot = schema.columns().iter().position(|c| c.name() == column.name());
            match *slot {
                Some(index) => {
                    let wanted = column.schema();
                    let found = schema.column(index);
                    let same = found.physical_type() == wanted.get_physical_type()
                        && found.max_rep_level() == 0
                        && found.max_def_level() == i16::from(column.is_nullable());
                    if !same {
                        let what = format!("column {} has another type", column.name());
                        return Err(LogError::damaged(path, what));
                    }
                }
                None if column.is_nullable() => {}
                None => return Err(not_ours(column.name())),
            }
        }
        Ok(IdleLog { path: path.to_owned(), data, parquet, columns, metadata })
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many gaps the log holds.
    pub fn gap_count(&self) -> u64 {
        self.parquet.file_metadata().num_rows().max(0) as u64
    }

    /// The row groups in order of the file.
    pub fn groups(&self) -> Vec<GapGroup> {
        let mut first_row = 0;
        self.parquet
            .row_groups()
            .iter()
            .enumerate()
            .map(|(index, group)| {
                let gap_count = group.num_rows().max(0) as u64;
                let group = GapGroup { index, gap_count, first_row };
                first_row += gap_count;
                group
            })
            .collect()
    }

    /// The row groups of each CPU, for reading CPUs side by side. `None` if a group mixes CPUs or
    /// lacks statistics: then only reading in order will do.
    pub fn groups_by_cpu(&self) -> Option<Vec<(u16, Vec<GapGroup>)>> {
        let cpu_column = self.columns[Column::Cpu as usize]?;
        let mut cpus: Vec<(u16, Vec<GapGroup>)> = Vec::new();
        for group in self.groups().into_iter().filter(|group| group.gap_count > 0) {
            let statistics = self.parquet.row_group(group.index).column(cpu_column).statistics()?;
            let Statistics::Int32(values) = statistics else { return None };
            let (min, max) = (*values.min_opt()?, *values.max_opt()?);
            let cpu = u16::try_from(min).ok().filter(|_| min == max)?;
            match cpus.last_mut() {
                Some((last, groups)) if *last == cpu => groups.push(group),
                Some((last, _)) if *last > cpu => return None,
                _ => cpus.push((cpu, vec![group])),
            }
        }
        Some(cpus)
    }

    /// Reads one row group into `gaps`, which is cleared first. Order is checked within the group
    /// and against `previous`, the gap before it.
    ///
    /// # Errors
    /// If the file is damaged or out of order.
    pub fn read_group(
        &self,
        group: GapGroup,
        previous: Option<&IdleGap>,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        gaps.clear();
        let metadata = self.parquet.row_group(group.index);
        if metadata.num_rows() > GROUP_ROW_COUNT_MAX {
            return Err(LogError::damaged(&self.path, "a row group is larger than 16 Mi rows"));
        }
        match &self.data {
            Data::File(file) => self.read_rows(Arc::clone(file), group, gaps)?,
            Data::Memory(bytes) => self.read_rows(Arc::new(bytes.clone()), group, gaps)?,
        }
        self.check_order(group, previous, gaps)
    }

    fn check_order<'a>(
        &self,
        group: GapGroup,
        mut previous: Option<&'a IdleGap>,
        gaps: &'a [IdleGap],
    ) -> Result<(), LogError> {
        for (row, gap) in (group.first_row..).zip(gaps) {
            let is_later = previous.is_none_or(|p| {
                p.cpu < gap.cpu || (p.cpu == gap.cpu && p.start_ns <= gap.start_ns)
            });
            if !is_later {
                return Err(LogError::Unsorted { path: self.path.clone(), row });
            }
            previous = Some(gap);
        }
        Ok(())
    }

    fn read_rows<R: ChunkReader + 'static>(
        &self,
        data: Arc<R>,
        group: GapGroup,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        let metadata = self.parquet.row_group(group.index);
        let properties = Arc::new(ReaderProperties::builder().build());
        let page_index = RowGroupPageIndex::new(group.index, None);
        let reader = SerializedRowGroupReader::new(data, metadata, page_index, properties)
            .map_err(|error| LogError::damaged(&self.path, error))?;
        let reader = &reader;
        let row_count = reader.metadata().num_rows().max(0) as usize;
        const EMPTY: IdleGap = IdleGap {
            cpu: 0,
            start_ns: 0,
            gap_ns: 0,
            sleep_length_ns: None,
            next_tick_ns: None,
            tick_stopped: false,
            ran_task: false,
            wake_reason: WakeReason::Unknown,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        };
        gaps.resize(row_count, EMPTY);
        let mut int64 = Values::<Int64Type>::default();
        let mut int32 = Values::<Int32Type>::default();
        let mut bools = Values::<BoolType>::default();
        for column in Column::ALL {
            let Some(index) = self.columns[column as usize] else { continue };
            let cursor = Cursor { log: self, column, index, row_count };
            match column {
                Column::Cpu => {
                    cursor.read(reader, &mut int32, |i, &v| {
                        gaps[i].cpu = u16::try_from(v).ok()?;
                        Some(())
                    })?;
                }
                Column::Start => cursor.read(reader, &mut int64, |i, &v| {
                    gaps[i].start_ns = v;
                    Some(())
                })?,
                Column::Gap => cursor.read(reader, &mut int64, |i, &v| {
                    gaps[i].gap_ns = u64::try_from(v).ok().filter(|_| v <= GAP_MAX_NS)?;
                    Some(())
                })?,
                Column::SleepLength => cursor.read(reader, &mut int64, |i, &v| {
                    gaps[i].sleep_length_ns = Some(v as u64);
                    Some(())
                })?,
                Column::NextTick => cursor.read(reader, &mut int32, |i, &v| {
                    gaps[i].next_tick_ns = Some(v as u32);
                    Some(())
                })?,
                Column::TickStopped => cursor.read(reader, &mut bools, |i, &v| {
                    gaps[i].tick_stopped = v;
                    Some(())
                })?,
                Column::RanTask => cursor.read(reader, &mut bools, |i, &v| {
                    gaps[i].ran_task = v;
                    Some(())
                })?,
                Column::WakeReason => {
                    let mut names = Values::<ByteArrayType>::default();
                    cursor.read(reader, &mut names, |i, name| {
                        gaps[i].wake_reason = WakeReason::from_name(name.data())?;
                        Some(())
                    })?;
                }
                Column::LatencyLimit => cursor.read(reader, &mut int64, |i, &v| {
                    gaps[i].latency_limit_ns = Some(v as u64);
                    Some(())
                })?,
                Column::RecordedState => cursor.read(reader, &mut int32, |i, &v| {
                    gaps[i].recorded_state = Some(u8::try_from(v).ok()?);
                    Some(())
                })?,
                Column::RecordedIdle => cursor.read(reader, &mut int64, |i, &v| {
                    gaps[i].recorded_idle_ns = Some(v as u64);
                    Some(())
                })?,
            }
        }
        Ok(())
    }
}

/// Buffers for one type of column, reused.
struct Values<T: DataType> {
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Default for Values<T> {
    fn default() -> Self {
        Values { values: Vec::new(), levels: Vec::new() }
    }
}

/// One column of one row group.
struct Cursor<'a> {
    log: &'a IdleLog,
    column: Column,
    index: usize,
    row_count: usize,
}

impl Cursor<'_> {
    /// Calls `set` with each row and its value, nulls left out. `set` answers `None` to a value
    /// that the column can't hold.
    fn read<T: DataType, R: ChunkReader + 'static>(
        &self,
        reader: &SerializedRowGroupReader<'_, R>,
        buffer: &mut Values<T>,
        mut set: impl FnMut(usize, &T::T) -> Option<()>,
    ) -> Result<(), LogError> {
        let name = self.column.name();
        let damaged = |what: String| LogError::damaged(&self.log.path, what);
        let column = reader
            .get_column_reader(self.index)
            .map_err(|error| damaged(format!("column {name}: {error}")))?;
        let mut column = get_typed_column_reader::<T>(column);
        let is_nullable = self.column.is_nullable();
        buffer.values.clear();
        buffer.levels.clear();
        let mut row_count = 0;
        while row_count < self.row_count {
            let levels = is_nullable.then_some(&mut buffer.levels);
            let left = self.row_count - row_count;
            let (records, _, _) = column
                .read_records(left, levels, None, &mut buffer.values)
                .map_err(|error| damaged(format!("column {name}: {error}")))?;
            if records == 0 {
                return Err(damaged(format!(
                    "column {name} has {row_count} rows instead of {}",
                    self.row_count
                )));
            }
            row_count += records;
        }
        let bad_value =
            |row: usize| damaged(format!("column {name}, row {row} of a group: impossible value"));
        if !is_nullable {
            for (row, value) in buffer.values.iter().enumerate().take(self.row_count) {
                set(row, value).ok_or_else(|| bad_value(row))?;
            }
            return Ok(());
        }
        let mut values = buffer.values.iter();
        for (row, &level) in buffer.levels.iter().enumerate().take(self.row_count) {
            if level == 1 {
                let value = values.next().ok_or_else(|| bad_value(row))?;
                set(row, value).ok_or_else(|| bad_value(row))?;
            }
        }
        Ok(())
    }
}

/// The rows that a group covers.
impl GapGroup {
    /// The file's rows in this group.
    pub fn rows(&self) -> Range<u64> {
        self.first_row..self.first_row + self.gap_count
    }
}
