//! The workload log: steps as a Parquet file, in the order in which they ended.
//!
//! The file has the same outer form as an idle log, and is read by the same code: `log/footer.rs` checks where
//! its columns are, `log/pages.rs` unpacks and checks their pages before the Parquet crate decodes them.
//! Metadata are JSON under the same key.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use super::builder::StepSink;
use super::check::Checker;
use super::{Cause, Step, StepEnd, StepPlace, WORKLOAD_VERSION, WorkloadMetadata};
use crate::OutputFile;
use crate::log::footer::{self, Footer, RawFooter, TAIL_BYTE_COUNT};
use crate::log::pages::Pages;
use crate::log::write::{Group, WriteResult, write_column, write_error};
use crate::log::{Form, LogError, METADATA_KEY};

/// How many rows a row group has. Memory holds one.
const GROUP_ROW_COUNT: usize = 1 << 16;

const TASK: Form = Form::required("task", PhysicalType::INT32);
const CPU: Form = Form::required("cpu", PhysicalType::INT32);
const CAUSE: Form =
    Form { number_of: Some(cause_number), ..Form::required("cause", PhysicalType::BYTE_ARRAY) };
const CAUSE_TASK: Form = Form::nullable("cause_task", PhysicalType::INT32);
const CAUSE_STEP: Form = Form::nullable("cause_step", PhysicalType::INT64);
const CAUSE_OFFSET: Form = Form::nullable("cause_offset_ns", PhysicalType::INT64);
const CAUSE_DELAY: Form = Form::nullable("cause_delay_ns", PhysicalType::INT64);
const DUE_AT: Form = Form::required("due_at_ns", PhysicalType::INT64);
const RUN_AT: Form = Form::required("run_at_ns", PhysicalType::INT64);
const RUN: Form = Form::required("run_ns", PhysicalType::INT64);
const END_AT: Form = Form::required("end_at_ns", PhysicalType::INT64);
const END: Form =
    Form { number_of: Some(end_number), ..Form::required("end", PhysicalType::BYTE_ARRAY) };
const IDLE_STATE: Form = Form::nullable("idle_state", PhysicalType::INT32);

/// The columns, in the order of the file.
const FORMS: [Form; 13] = [
    TASK,
    CPU,
    CAUSE,
    CAUSE_TASK,
    CAUSE_STEP,
    CAUSE_OFFSET,
    CAUSE_DELAY,
    DUE_AT,
    RUN_AT,
    RUN,
    END_AT,
    END,
    IDLE_STATE,
];

fn cause_number(name: &[u8]) -> i32 {
    number(Cause::NAMES.iter().position(|known| known.as_bytes() == name))
}

fn end_number(name: &[u8]) -> i32 {
    number(StepEnd::ALL.iter().position(|end| end.name().as_bytes() == name))
}

fn number(place: Option<usize>) -> i32 {
    place.and_then(|place| i32::try_from(place).ok()).unwrap_or(-1)
}

fn schema() -> TypePtr {
    let field = |form: Form| {
        let logical = match form.physical {
            PhysicalType::BYTE_ARRAY => Some(LogicalType::String),
            _ => None,
        };
        let repetition = if form.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Arc::new(
            Type::primitive_type_builder(form.name, form.physical)
                .with_repetition(repetition)
                .with_converted_type(ConvertedType::NONE)
                .with_logical_type(logical)
                .build()
                .expect("the schema is a constant"),
        )
    };
    let fields = FORMS.into_iter().map(field).collect();
    let schema = Type::group_type_builder("step").with_fields(fields).build();
    Arc::new(schema.expect("the schema is a constant"))
}

fn properties() -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true);
    for form in FORMS {
        builder = match form.name {
            "cause" | "end" | "cpu" | "idle_state" => {
                builder.set_column_dictionary_enabled(form.name.into(), true)
            }
            _ => builder.set_column_encoding(form.name.into(), Encoding::DELTA_BINARY_PACKED),
        };
    }
    builder.build()
}

/// Writes a workload log. It is a [`StepSink`] for the builder.
pub struct WorkloadWriter {
    path: PathBuf,
    output: OutputFile,
    writer: SerializedFileWriter<File>,
    steps: Vec<Step>,
}

impl WorkloadWriter {
    /// Starts a log in an output file.
    ///
    /// # Errors
    /// Fails if it cannot be written to.
    pub fn new(output: OutputFile) -> Result<Self, LogError> {
        let path = output.path().to_owned();
        let file = output.file().try_clone().map_err(|error| LogError::io(&path, error))?;
        let writer = SerializedFileWriter::new(file, schema(), properties().into())
            .map_err(|error| write_error(&path, error))?;
        Ok(WorkloadWriter { path, output, writer, steps: Vec::new() })
    }

    /// Adds the metadata, checks the result as `idlewise validate` does, and gives the file its name. Returns
    /// its size.
    ///
    /// # Errors
    /// Fails if the log contradicts itself, the disk is full, or a file that may not be replaced has
    /// appeared at its path. Nothing is left behind.
    pub fn finish(self, metadata: &WorkloadMetadata) -> Result<u64, LogError> {
        let path = self.path.clone();
        let output = self.put_together(metadata)?;
        let file = output.file().try_clone().map_err(|error| LogError::io(&path, error))?;
        let log = WorkloadLog::from_file(&path, file)?;
        log.check()?;
        output.finish()
    }

    /// Like [`WorkloadWriter::finish`], but without a check, and the log gets no name. It can be read
    /// from the returned file.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish_unnamed(self, metadata: &WorkloadMetadata) -> Result<File, LogError> {
        Ok(self.put_together(metadata)?.into_file())
    }

    fn put_together(mut self, metadata: &WorkloadMetadata) -> Result<OutputFile, LogError> {
        if !self.steps.is_empty() {
            self.write_group()?;
        }
        let WorkloadWriter { path, output, mut writer, .. } = self;
        let json = serde_json::to_string(metadata).expect("metadata has only string keys");
        writer.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_owned(), json));
        writer.close().map_err(|error| write_error(&path, error))?;
        Ok(output)
    }

    fn write_group(&mut self) -> Result<(), LogError> {
        let steps = std::mem::take(&mut self.steps);
        let result = write_rows(&mut self.writer, &steps);
        self.steps = steps;
        self.steps.clear();
        result.map_err(|error| write_error(&self.path, error))
    }
}

impl StepSink for WorkloadWriter {
    type Error = LogError;

    fn take(&mut self, steps: &[Step]) -> Result<(), LogError> {
        for step in steps {
            self.steps.push(*step);
            if self.steps.len() == GROUP_ROW_COUNT {
                self.write_group()?;
            }
        }
        Ok(())
    }
}

fn write_rows(writer: &mut SerializedFileWriter<File>, steps: &[Step]) -> WriteResult {
    let mut group = writer.next_row_group()?;
    let delay_ns = |step: &Step| step.cause.delay_ns().map(|ns| ns as i64);
    let place = |step: &Step| step.cause.place();
    write::<Int32Type>(&mut group, steps, |step| step.task as i32)?;
    write::<Int32Type>(&mut group, steps, |step| i32::from(step.cpu))?;
    write::<ByteArrayType>(&mut group, steps, |step| ByteArray::from(step.cause.name()))?;
    write_some::<Int32Type>(&mut group, steps, |step| place(step).map(|at| at.task as i32))?;
    write_some::<Int64Type>(&mut group, steps, |step| place(step).map(|at| at.step as i64))?;
    write_some::<Int64Type>(&mut group, steps, |step| place(step).map(|at| at.offset_ns as i64))?;
    write_some::<Int64Type>(&mut group, steps, delay_ns)?;
    write::<Int64Type>(&mut group, steps, |step| step.due_at_ns)?;
    write::<Int64Type>(&mut group, steps, |step| step.run_at_ns)?;
    write::<Int64Type>(&mut group, steps, |step| step.run_ns as i64)?;
    write::<Int64Type>(&mut group, steps, |step| step.end_at_ns)?;
    write::<ByteArrayType>(&mut group, steps, |step| ByteArray::from(step.end.name()))?;
    write_some::<Int32Type>(&mut group, steps, |step| step.idle_state.map(i32::from))?;
    group.close()?;
    Ok(())
}

fn write<T: DataType>(
    group: &mut Group<'_>,
    steps: &[Step],
    get: impl Fn(&Step) -> T::T,
) -> WriteResult {
    let values: Vec<T::T> = steps.iter().map(get).collect();
    write_column::<T>(group, &values, None)
}

fn write_some<T: DataType>(
    group: &mut Group<'_>,
    steps: &[Step],
    get: impl Fn(&Step) -> Option<T::T>,
) -> WriteResult {
    let values: Vec<T::T> = steps.iter().filter_map(&get).collect();
    let levels: Vec<i16> = steps.iter().map(|step| i16::from(get(step).is_some())).collect();
    write_column::<T>(group, &values, Some(&levels))
}

/// An open workload log.
pub struct WorkloadLog {
    path: PathBuf,
    data: Data,
    footer: Footer,
    /// The index of each of our columns in the file.
    columns: [usize; FORMS.len()],
    /// The metadata.
    pub metadata: WorkloadMetadata,
}

enum Data {
    File(File),
    Memory(Bytes),
}

impl Data {
    fn read(&self, path: &Path, range: &std::ops::Range<u64>) -> Result<Bytes, LogError> {
        match self {
            Data::File(file) => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, range.start)
                    .map_err(|error| LogError::io(path, error))?;
                Ok(bytes.into())
            }
            Data::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
        }
    }
}

impl WorkloadLog {
    /// Opens a log and reads its metadata.
    ///
    /// # Errors
    /// Fails if the file is not a workload log, or of a newer version than ours.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let file = File::open(path).map_err(|error| LogError::io(path, error))?;
        Self::from_file(path, file)
    }

    /// Opens a log in an open file. Messages show `path`.
    ///
    /// # Errors
    /// Fails like [`WorkloadLog::open`].
    pub fn from_file(path: &Path, file: File) -> Result<Self, LogError> {
        let byte_count = file.metadata().map_err(|error| LogError::io(path, error))?.len();
        Self::from_data(path, Data::File(file), byte_count)
    }

    /// Opens a log in memory. Messages show `name` as its path.
    ///
    /// # Errors
    /// Fails like [`WorkloadLog::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Bytes>) -> Result<Self, LogError> {
        let bytes = bytes.into();
        let byte_count = bytes.len() as u64;
        Self::from_data(Path::new(name), Data::Memory(bytes), byte_count)
    }

    fn from_data(path: &Path, data: Data, byte_count: u64) -> Result<Self, LogError> {
        if byte_count == 0 {
            return Err(LogError::Empty { path: path.to_owned() });
        }
        let not_parquet = || LogError::NotParquet { path: path.to_owned() };
        let not_ours = |missing| LogError::NotWorkload { path: path.to_owned(), missing };
        let tail_at = byte_count.checked_sub(TAIL_BYTE_COUNT).ok_or_else(not_parquet)?;
        let tail = data.read(path, &(tail_at..byte_count))?;
        let place = footer::place(&tail, byte_count).ok_or_else(not_parquet)?;
        let footer = RawFooter::decode(&data.read(path, &place)?)
            .ok_or_else(|| LogError::damaged(path, "the footer can't be decoded"))?;
        let mut required = FORMS.into_iter().filter(|form| !form.is_nullable);
        if let Some(form) = required.find(|form| !footer.has_columns([*form].into_iter())) {
            return Err(not_ours(form.name));
        }
        let json = footer.json.as_deref();
        let json = json.ok_or_else(|| not_ours("metadata under the key `idlewise`"))?;
        let metadata: WorkloadMetadata = serde_json::from_str(json)
            .map_err(|error| LogError::damaged(path, format_args!("metadata: {error}")))?;
        if metadata.workload_version > WORKLOAD_VERSION {
            let version = metadata.workload_version;
            return Err(LogError::NewerWorkload { path: path.to_owned(), version });
        }
        let footer =
            footer.check(place.start).map_err(|refused| LogError::refused(path, refused))?;
        let mut columns = [0; FORMS.len()];
        for (slot, form) in columns.iter_mut().zip(FORMS) {
            let index = footer.columns.iter().position(|leaf| leaf.is(form.name));
            *slot = index.ok_or_else(|| not_ours(form.name))?;
            if !footer.columns[*slot].has_form(&form) {
                let what = format!("column {} has another type, or other nulls", form.name);
                return Err(LogError::rewritten(path, what));
            }
        }
        Ok(WorkloadLog { path: path.to_owned(), data, footer, columns, metadata })
    }

    /// The log's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many steps it holds.
    pub fn step_count(&self) -> u64 {
        self.footer.row_count
    }

    /// Returns a checker for this log's steps.
    pub fn checker(&self) -> Checker {
        let WorkloadMetadata { tasks, cpu_count, first_at_ns, last_at_ns, .. } = &self.metadata;
        Checker::new(tasks.len(), *cpu_count, *first_at_ns, *last_at_ns)
    }

    /// Checks every step.
    ///
    /// # Errors
    /// Fails if the file is damaged, or breaks a rule.
    pub fn check(&self) -> Result<(), LogError> {
        self.each_group(&mut |_| {})
    }

    /// Passes all steps to `take`, in the order in which they ended, row group by row group. They are checked.
    ///
    /// # Errors
    /// Fails if the file is damaged, or breaks a rule.
    pub fn each_group(&self, take: &mut dyn FnMut(&[Step])) -> Result<(), LogError> {
        let mut checker = self.checker();
        let wrong = |contradiction| LogError::damaged(&self.path, format_args!("{contradiction}"));
        let mut steps = Vec::new();
        for index in 0..self.footer.groups.len() {
            self.read_group(index, &mut steps)?;
            for step in &steps {
                checker.push(step).map_err(wrong)?;
            }
            take(&steps);
        }
        checker.finish().map_err(wrong)
    }

    fn read_group(&self, index: usize, steps: &mut Vec<Step>) -> Result<(), LogError> {
        const EMPTY: Step = Step {
            task: 0,
            cpu: 0,
            cause: Cause::Start,
            due_at_ns: 0,
            run_at_ns: 0,
            run_ns: 0,
            end_at_ns: 0,
            end: StepEnd::Waits,
            idle_state: None,
        };
        let row_count = self.footer.groups[index].row_count as usize;
        steps.clear();
        steps.resize(row_count, EMPTY);
        let group = Rows { log: self, index, row_count };
        let causes = group.numbers(2)?;
        let cause_tasks = group.values::<Int32Type>(3)?;
        let cause_steps = group.values::<Int64Type>(4)?;
        let offsets = group.values::<Int64Type>(5)?;
        let delays = group.values::<Int64Type>(6)?;
        let rows = group.values::<Int32Type>(0)?.into_iter().zip(group.values::<Int32Type>(1)?);
        for (row, (step, (task, cpu))) in steps.iter_mut().zip(rows).enumerate() {
            step.task =
                task.and_then(|task| u32::try_from(task).ok()).ok_or_else(|| group.bad(row, 0))?;
            step.cpu =
                cpu.and_then(|cpu| u16::try_from(cpu).ok()).ok_or_else(|| group.bad(row, 1))?;
            let place = || {
                Some(StepPlace {
                    task: u32::try_from(cause_tasks[row]?).ok()?,
                    step: u64::try_from(cause_steps[row]?).ok()?,
                    offset_ns: u64::try_from(offsets[row]?).ok()?,
                })
            };
            let delay_ns = delays[row].and_then(|ns| u64::try_from(ns).ok());
            let cause = match causes[row] {
                0 => Some(Cause::Start),
                1 => place().map(Cause::Task),
                2 => {
                    delay_ns.zip(place()).map(|(delay_ns, armed)| Cause::Timer { armed, delay_ns })
                }
                3 => Some(Cause::Absolute),
                4 => Some(Cause::Interrupt),
                5 => delay_ns.map(|delay_ns| Cause::NextTimer { delay_ns }),
                _ => None,
            };
            step.cause = cause.ok_or_else(|| group.bad(row, 2))?;
        }
        group.set::<Int64Type>(steps, 7, |step, ns| step.due_at_ns = ns)?;
        group.set::<Int64Type>(steps, 8, |step, ns| step.run_at_ns = ns)?;
        let runs = group.values::<Int64Type>(9)?;
        for (row, (step, ns)) in steps.iter_mut().zip(runs).enumerate() {
            step.run_ns =
                ns.and_then(|ns| u64::try_from(ns).ok()).ok_or_else(|| group.bad(row, 9))?;
        }
        group.set::<Int64Type>(steps, 10, |step, ns| step.end_at_ns = ns)?;
        for (row, (step, end)) in steps.iter_mut().zip(group.numbers(11)?).enumerate() {
            let end = usize::try_from(end).ok().and_then(|end| StepEnd::ALL.get(end));
            step.end = *end.ok_or_else(|| group.bad(row, 11))?;
        }
        for (row, (step, state)) in steps.iter_mut().zip(group.values::<Int32Type>(12)?).enumerate()
        {
            step.idle_state = match state {
                Some(state) => Some(u8::try_from(state).map_err(|_| group.bad(row, 12))?),
                None => None,
            };
        }
        Ok(())
    }
}

/// A row group that is being read.
struct Rows<'a> {
    log: &'a WorkloadLog,
    index: usize,
    row_count: usize,
}

impl Rows<'_> {
    fn bad(&self, row: usize, column: usize) -> LogError {
        let what = format!("column {}, row {row} of a group: impossible value", FORMS[column].name);
        LogError::damaged(&self.log.path, what)
    }

    /// A column of names, as their numbers.
    fn numbers(&self, column: usize) -> Result<Vec<i32>, LogError> {
        let values = self.values::<Int32Type>(column)?;
        Ok(values.into_iter().map(|value| value.unwrap_or(-1)).collect())
    }

    fn set<T: DataType>(
        &self,
        steps: &mut [Step],
        column: usize,
        set: impl Fn(&mut Step, T::T),
    ) -> Result<(), LogError> {
        for (row, (step, value)) in steps.iter_mut().zip(self.values::<T>(column)?).enumerate() {
            set(step, value.ok_or_else(|| self.bad(row, column))?);
        }
        Ok(())
    }

    /// The values of a column, with nulls.
    fn values<T: DataType>(&self, column: usize) -> Result<Vec<Option<T::T>>, LogError> {
        let form = FORMS[column];
        let path = &self.log.path;
        let chunk = &self.log.footer.groups[self.index].chunks[self.log.columns[column]];
        let bytes = self.log.data.read(path, &chunk.bytes)?;
        let pages = Pages::new(form, bytes, chunk.is_compressed, self.row_count as u64);
        let schema = SchemaDescriptor::new(schema());
        // The names were replaced by numbers.
        let place = if form.number_of.is_some() { 0 } else { column };
        let mut reader = ColumnReaderImpl::<T>::new(schema.column(place), Box::new(pages));
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut count = 0;
        while count < self.row_count {
            let levels = form.is_nullable.then_some(&mut levels);
            let (records, _, _) = reader
                .read_records(self.row_count - count, levels, None, &mut values)
                .map_err(|error| match error {
                    ParquetError::NYI(what) => {
                        LogError::rewritten(path, format_args!("column {}: {what}", form.name))
                    }
                    error => LogError::damaged(path, format_args!("column {}: {error}", form.name)),
                })?;
            if records == 0 {
                let what =
                    format!("column {} has {count} rows instead of {}", form.name, self.row_count);
                return Err(LogError::damaged(path, what));
            }
            count += records;
        }
        if !form.is_nullable {
            let wrong = values.len() != self.row_count;
            return match wrong {
                true => Err(LogError::damaged(path, format_args!("column {} is cut", form.name))),
                false => Ok(values.into_iter().map(Some).collect()),
            };
        }
        let mut values = values.into_iter();
        Ok(levels.iter().map(|&level| if level == 1 { values.next() } else { None }).collect())
    }
}
