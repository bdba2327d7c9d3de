//! Writes an idle log. The gaps of each CPU arrive in order, but the CPUs are interleaved. Full row
//! groups therefore go to an unnamed scratch file, and are copied, still compressed, into the final
//! order at the end. Memory holds one row group. The output gets its name only when it is complete.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::footer::GROUP_ROW_COUNT_MAX;
use super::validate::{CheckResult, Finding, validate};
use super::{Column, IdleLog, LogError, LogMetadata, METADATA_KEY, schema};
use crate::{GapSink, IdleGap, OutputFile, OutputOptions};

/// Groups of fewer rows are not compressed. Setting up the compressor for each column would take
/// longer than everything else, and a recording of thousands of CPUs has a short group for each.
const PACKED_ROW_COUNT_MIN: usize = 256;

/// Writes an idle log. It is a [`GapSink`] for the gap builder.
pub struct LogWriter {
    path: PathBuf,
    packed: Scratch,
    plain: Scratch,
    output: OutputFile,
    /// The row groups, in the order in which they were written.
    groups: Vec<ScratchGroup>,
    buffers: Buffers,
}

/// A file of row groups that have not been copied to the output yet.
struct Scratch {
    writer: SerializedFileWriter<File>,
    file: File,
    group_count: usize,
}

struct ScratchGroup {
    cpu: u16,
    is_packed: bool,
    /// Its index in its scratch file.
    index: usize,
}

impl Scratch {
    fn new(output: &OutputFile, compression: Compression) -> Result<Self, LogError> {
        let file = output.scratch()?;
        let copy = file.try_clone().map_err(|error| LogError::io(output.path(), error))?;
        let writer =
            SerializedFileWriter::new(copy, schema(), properties(compression, None).into())
                .map_err(|error| write_error(output.path(), error))?;
        Ok(Scratch { writer, file, group_count: 0 })
    }

    fn finish(self) -> Result<(File, Arc<ParquetMetaData>), ParquetError> {
        Ok((self.file, self.writer.close()?.into()))
    }
}

/// Buffers for the values of a column, reused for every group.
#[derive(Default)]
struct Buffers {
    int64: Vec<i64>,
    int32: Vec<i32>,
    bools: Vec<bool>,
    names: Vec<ByteArray>,
    levels: Vec<i16>,
}

fn properties(compression: Compression, metadata: Option<String>) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(
            metadata.map(|json| vec![KeyValue::new(METADATA_KEY.to_owned(), json)]),
        );
    for column in Column::ALL {
        let name = column.name();
        builder = match column {
            Column::WakeReason | Column::RecordedState | Column::Cpu | Column::LatencyLimit => {
                builder.set_column_dictionary_enabled(name.into(), true)
            }
            Column::TickStopped | Column::RanTask => {
                builder.set_column_encoding(name.into(), Encoding::RLE)
            }
            _ => builder.set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED),
        };
    }
    builder
        .set_column_statistics_enabled(Column::Cpu.name().into(), EnabledStatistics::Chunk)
        .set_column_statistics_enabled(Column::Start.name().into(), EnabledStatistics::Chunk)
        .build()
}

impl LogWriter {
    /// Starts a log that will appear at `path`.
    ///
    /// # Errors
    /// Fails if `path` exists and `replace` is false, or if its folder cannot be written to.
    pub fn create(path: &Path, replace: bool) -> Result<Self, LogError> {
        let options = OutputOptions { replace, ..OutputOptions::default() };
        Self::new(OutputFile::create(path, &options)?)
    }

    /// Starts a log in an output file.
    ///
    /// # Errors
    /// Fails if its folder cannot be written to.
    pub fn new(output: OutputFile) -> Result<Self, LogError> {
        let path = output.path().to_owned();
        Ok(LogWriter {
            path,
            packed: Scratch::new(&output, Compression::ZSTD(ZstdLevel::default()))?,
            plain: Scratch::new(&output, Compression::UNCOMPRESSED)?,
            output,
            groups: Vec::new(),
            buffers: Buffers::default(),
        })
    }

    /// Sorts the row groups, adds the metadata, checks the result as `idlewise validate` does, and
    /// gives the file its name. Returns its size.
    ///
    /// # Errors
    /// Fails if the log contradicts itself, the disk is full, or a file that may not be replaced
    /// has appeared at `path`. Nothing is left behind.
    pub fn finish(self, metadata: &LogMetadata) -> Result<u64, LogError> {
        let path = self.path.clone();
        let output = self.put_together(metadata)?;
        let file = output.file().try_clone().map_err(|error| LogError::io(&path, error))?;
        let findings = validate(&IdleLog::from_file(&path, file)?, &|_| {})?;
        match findings.iter().find(|finding| finding.result() == CheckResult::Wrong) {
            Some(Finding { check, first, .. }) => {
                let row = first.and_then(|place| place.row);
                Err(LogError::Invalid { path, rule: check.rule(), row })
            }
            None => output.finish(),
        }
    }

    /// Like [`LogWriter::finish`] without the check, for tests of programs that read logs.
    ///
    /// # Errors
    /// Fails like [`LogWriter::finish`], except for the contents.
    #[doc(hidden)]
    pub fn finish_unchecked(self, metadata: &LogMetadata) -> Result<u64, LogError> {
        self.put_together(metadata)?.finish()
    }

    /// Like [`LogWriter::finish_unchecked`], but the log gets no name. It can be read from the
    /// returned file for as long as the process runs.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish_unnamed(self, metadata: &LogMetadata) -> Result<File, LogError> {
        Ok(self.put_together(metadata)?.into_file())
    }

    fn put_together(self, metadata: &LogMetadata) -> Result<OutputFile, LogError> {
        let LogWriter { path, packed, plain, output, mut groups, .. } = self;
        let fail = |error| write_error(&path, error);
        let (packed, plain) = (packed.finish().map_err(fail)?, plain.finish().map_err(fail)?);
        let json = serde_json::to_string(metadata).expect("metadata has only string keys");
        let file = output.file().try_clone().map_err(|error| LogError::io(&path, error))?;
        let properties = properties(Compression::UNCOMPRESSED, Some(json));
        let mut writer =
            SerializedFileWriter::new(file, schema(), properties.into()).map_err(fail)?;
        // The sort is stable, so the groups of a CPU stay in order of time.
        groups.sort_by_key(|group| group.cpu);
        for ScratchGroup { is_packed, index, .. } in groups {
            let (scratch_file, scratch) = if is_packed { &packed } else { &plain };
            let group = scratch.row_group(index);
            let mut out = writer.next_row_group().map_err(fail)?;
            for column in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                out.append_column(scratch_file, close).map_err(fail)?;
            }
            out.close().map_err(fail)?;
        }
        writer.close().map_err(fail)?;
        Ok(output)
    }

    fn write_group(&mut self, cpu: u16, gaps: &[IdleGap]) -> WriteResult {
        let LogWriter { packed, plain, groups, buffers, .. } = self;
        let is_packed = gaps.len() >= PACKED_ROW_COUNT_MIN;
        let scratch = if is_packed { packed } else { plain };
        groups.push(ScratchGroup { cpu, is_packed, index: scratch.group_count });
        scratch.group_count += 1;
        let mut group = scratch.writer.next_row_group()?;
        for column in Column::ALL {
            match column {
                Column::Cpu => buffers.int32(&mut group, gaps, |g| i32::from(g.cpu))?,
                Column::Start => buffers.int64(&mut group, gaps, |g| g.start_ns)?,
                Column::Gap => buffers.int64(&mut group, gaps, |g| g.gap_ns as i64)?,
                Column::SleepLength => {
                    buffers.optional_int64(&mut group, gaps, |g| g.sleep_length_ns)?;
                }
                Column::NextTick => {
                    buffers.optional_int32(&mut group, gaps, |g| g.next_tick_ns)?;
                }
                Column::TickStopped => buffers.bool(&mut group, gaps, |g| g.tick_stopped)?,
                Column::RanTask => buffers.bool(&mut group, gaps, |g| g.ran_task)?,
                Column::WakeReason => buffers.wake_reason(&mut group, gaps)?,
                Column::LatencyLimit => {
                    buffers.optional_int64(&mut group, gaps, |g| g.latency_limit_ns)?;
                }
                Column::RecordedState => {
                    buffers
                        .optional_int32(&mut group, gaps, |g| g.recorded_state.map(u32::from))?;
                }
                Column::RecordedIdle => {
                    buffers.optional_int64(&mut group, gaps, |g| g.recorded_idle_ns)?;
                }
            }
        }
        group.close()?;
        Ok(())
    }
}

impl GapSink for LogWriter {
    type Error = LogError;

    fn take(&mut self, cpu: u16, gaps: &[IdleGap]) -> Result<(), LogError> {
        // Larger groups would be rejected when the log is read.
        for gaps in gaps.chunks(GROUP_ROW_COUNT_MAX as usize) {
            self.write_group(cpu, gaps).map_err(|error| write_error(&self.path, error))?;
        }
        Ok(())
    }
}

pub(crate) type WriteResult = Result<(), ParquetError>;
pub(crate) type Group<'a> = SerializedRowGroupWriter<'a, File>;

impl Buffers {
    fn int64(
        &mut self,
        group: &mut Group<'_>,
        gaps: &[IdleGap],
        get: impl Fn(&IdleGap) -> i64,
    ) -> WriteResult {
        self.int64.clear();
        self.int64.extend(gaps.iter().map(get));
        write_column::<Int64Type>(group, &self.int64, None)
    }

    fn int32(
        &mut self,
        group: &mut Group<'_>,
        gaps: &[IdleGap],
        get: impl Fn(&IdleGap) -> i32,
    ) -> WriteResult {
        self.int32.clear();
        self.int32.extend(gaps.iter().map(get));
        write_column::<Int32Type>(group, &self.int32, None)
    }

    fn bool(
        &mut self,
        group: &mut Group<'_>,
        gaps: &[IdleGap],
        get: impl Fn(&IdleGap) -> bool,
    ) -> WriteResult {
        self.bools.clear();
        self.bools.extend(gaps.iter().map(get));
        write_column::<BoolType>(group, &self.bools, None)
    }

    fn wake_reason(&mut self, group: &mut Group<'_>, gaps: &[IdleGap]) -> WriteResult {
        self.names.clear();
        self.names.extend(gaps.iter().map(|g| ByteArray::from(g.wake_reason.name())));
        write_column::<ByteArrayType>(group, &self.names, None)
    }

    fn optional_int64(
        &mut self,
        group: &mut Group<'_>,
        gaps: &[IdleGap],
        get: impl Fn(&IdleGap) -> Option<u64>,
    ) -> WriteResult {
        self.int64.clear();
        self.int64.extend(gaps.iter().filter_map(|gap| get(gap).map(|value| value as i64)));
        self.levels.clear();
        self.levels.extend(gaps.iter().map(|gap| i16::from(get(gap).is_some())));
        write_column::<Int64Type>(group, &self.int64, Some(&self.levels))
    }

    fn optional_int32(
        &mut self,
        group: &mut Group<'_>,
        gaps: &[IdleGap],
        get: impl Fn(&IdleGap) -> Option<u32>,
    ) -> WriteResult {
        self.int32.clear();
        self.int32.extend(gaps.iter().filter_map(|gap| get(gap).map(|value| value as i32)));
        self.levels.clear();
        self.levels.extend(gaps.iter().map(|gap| i16::from(get(gap).is_some())));
        write_column::<Int32Type>(group, &self.int32, Some(&self.levels))
    }
}

pub(crate) fn write_column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> WriteResult {
    let mut column = group.next_column()?.expect("one call for each column of the schema");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

pub(crate) fn write_error(path: &Path, error: ParquetError) -> LogError {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(inner) => std::io::Error::other(inner),
        },
        other => std::io::Error::other(other),
    };
    LogError::io(path, error)
}
