//! Writes an idle log. The gaps of each CPU arrive in order, but the CPUs are interleaved. Full row
//! groups therefore go to an unnamed scratch file, and are copied, still compressed, into the final
//! order at the end. Memory holds one row group. The output gets its name only when it is complete.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;

use super::columns::{WriteResult, write, write_some};
use super::footer::GROUP_ROW_COUNT_MAX;
use super::form::{self, schema};
use super::validate::{CheckResult, Finding, validate};
use super::{Column, FORMS, IdleLog, LogError, LogMetadata, METADATA_KEY};
use crate::{GapSink, IdleGap, OutputFile, OutputOptions};

/// What a row is called in the schema.
const ROW: &str = "idle_gap";

/// Groups of fewer rows are not compressed. Setting up the compressor for each column would take
/// longer than everything else, and a recording of thousands of CPUs has a short group for each.
const PACKED_ROW_COUNT_MIN: usize = 256;

/// Writes an idle log. It is a [`GapSink`] for the gap builder.
pub struct LogWriter {
    packed: Scratch,
    plain: Scratch,
    output: OutputFile,
    /// The row groups, in the order in which they were written.
    groups: Vec<ScratchGroup>,
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
        let properties = properties(compression, None);
        let writer = SerializedFileWriter::new(copy, schema(ROW, &FORMS), properties.into())
            .map_err(|error| write_error(output, error))?;
        Ok(Scratch { writer, file, group_count: 0 })
    }

    fn finish(self) -> Result<(File, Arc<ParquetMetaData>), ParquetError> {
        Ok((self.file, self.writer.close()?.into()))
    }
}

fn properties(compression: Compression, metadata: Option<String>) -> WriterProperties {
    let metadata = metadata.map(|json| vec![KeyValue::new(METADATA_KEY.to_owned(), json)]);
    let name = |column: Column| FORMS[column as usize].name.into();
    form::properties(&FORMS, compression)
        .set_key_value_metadata(metadata)
        .set_column_statistics_enabled(name(Column::Cpu), EnabledStatistics::Chunk)
        .set_column_statistics_enabled(name(Column::Start), EnabledStatistics::Chunk)
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
        Ok(LogWriter {
            packed: Scratch::new(&output, Compression::ZSTD(ZstdLevel::default()))?,
            plain: Scratch::new(&output, Compression::UNCOMPRESSED)?,
            output,
            groups: Vec::new(),
        })
    }

    /// Sorts the row groups, adds the metadata, checks the result as `idlewise log validate` does, and
    /// gives the file its name. Returns its size.
    ///
    /// # Errors
    /// Fails if the log contradicts itself, the disk is full, or a file that may not be replaced
    /// has appeared at `path`. Nothing is left behind.
    pub fn finish(self, metadata: &LogMetadata) -> Result<u64, LogError> {
        let path = self.output.path().to_owned();
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

    /// Like [`LogWriter::finish`], but the log is not checked and gets no name. It can be read from the
    /// returned file for as long as the process runs.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish_unnamed(self, metadata: &LogMetadata) -> Result<File, LogError> {
        Ok(self.put_together(metadata)?.into_file())
    }

    fn put_together(self, metadata: &LogMetadata) -> Result<OutputFile, LogError> {
        let LogWriter { packed, plain, output, mut groups } = self;
        let fail = |error| write_error(&output, error);
        let (packed, plain) = (packed.finish().map_err(fail)?, plain.finish().map_err(fail)?);
        let json = serde_json::to_string(metadata).expect("metadata has only string keys");
        let file = output.file().try_clone().map_err(|error| output.fail(error))?;
        let properties = properties(Compression::UNCOMPRESSED, Some(json));
        let mut writer = SerializedFileWriter::new(file, schema(ROW, &FORMS), properties.into())
            .map_err(fail)?;
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
        let LogWriter { packed, plain, groups, .. } = self;
        let is_packed = gaps.len() >= PACKED_ROW_COUNT_MIN;
        let scratch = if is_packed { packed } else { plain };
        groups.push(ScratchGroup { cpu, is_packed, index: scratch.group_count });
        scratch.group_count += 1;
        let mut group = scratch.writer.next_row_group()?;
        write::<Int32Type, _>(&mut group, gaps, |gap| gap.cpu.into())?;
        write::<Int64Type, _>(&mut group, gaps, |gap| gap.start_ns)?;
        write::<Int64Type, _>(&mut group, gaps, |gap| gap.gap_ns as i64)?;
        let some = |ns: Option<u64>| ns.map(|ns| ns as i64);
        write_some::<Int64Type, _>(&mut group, gaps, |gap| some(gap.sleep_length_ns))?;
        write_some::<Int32Type, _>(&mut group, gaps, |gap| gap.next_tick_ns.map(|ns| ns as i32))?;
        write::<BoolType, _>(&mut group, gaps, |gap| gap.tick_stopped)?;
        write::<BoolType, _>(&mut group, gaps, |gap| gap.ran_task)?;
        write::<ByteArrayType, _>(&mut group, gaps, |gap| ByteArray::from(gap.wake_reason.name()))?;
        write_some::<Int64Type, _>(&mut group, gaps, |gap| some(gap.latency_limit_ns))?;
        write_some::<Int32Type, _>(&mut group, gaps, |gap| gap.recorded_state.map(i32::from))?;
        write_some::<Int64Type, _>(&mut group, gaps, |gap| some(gap.recorded_idle_ns))?;
        group.close()?;
        Ok(())
    }
}

impl GapSink for LogWriter {
    type Error = LogError;

    fn take(&mut self, cpu: u16, gaps: &[IdleGap]) -> Result<(), LogError> {
        // Larger groups would be rejected when the log is read.
        for gaps in gaps.chunks(GROUP_ROW_COUNT_MAX as usize) {
            self.write_group(cpu, gaps).map_err(|error| write_error(&self.output, error))?;
        }
        Ok(())
    }
}

pub(crate) fn write_error(output: &OutputFile, error: ParquetError) -> LogError {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(inner) => std::io::Error::other(inner),
        },
        other => std::io::Error::other(other),
    };
    output.fail(error)
}
