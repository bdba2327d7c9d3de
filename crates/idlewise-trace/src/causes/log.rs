//! The workload log: steps as a Parquet file, in the order in which they ended.
//!
//! The file has the same outer form as an idle log, and is written and read by the same code in `log/`.
//! Metadata are JSON under the same key.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::basic::{Compression, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use super::builder::StepSink;
use super::check::Checker;
use super::{Cause, Step, StepEnd, StepPlace, WORKLOAD_VERSION, WorkloadMetadata};
use crate::OutputFile;
use crate::log::columns::{OpenData, Rows, WriteResult, bad_value, put, write, write_some};
use crate::log::footer::Footer;
use crate::log::form::{Form, properties, schema};
use crate::log::write::write_error;
use crate::log::{LogError, METADATA_KEY};

/// How many rows a row group has. Memory holds one.
const GROUP_ROW_COUNT: usize = 1 << 16;

/// The columns, in the order of the file.
const FORMS: [Form; 13] = [
    Form::required("task", PhysicalType::INT32),
    Form::required("cpu", PhysicalType::INT32).repetitive(),
    Form::names("cause", cause_number),
    Form::nullable("cause_task", PhysicalType::INT32),
    Form::nullable("cause_step", PhysicalType::INT64),
    Form::nullable("cause_offset_ns", PhysicalType::INT64),
    Form::nullable("cause_delay_ns", PhysicalType::INT64),
    Form::required("due_at_ns", PhysicalType::INT64),
    Form::required("run_at_ns", PhysicalType::INT64),
    Form::required("run_ns", PhysicalType::INT64),
    Form::required("end_at_ns", PhysicalType::INT64),
    Form::names("end", end_number),
    Form::nullable("idle_state", PhysicalType::INT32).repetitive(),
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

/// Writes a workload log. It is a [`StepSink`] for the builder.
pub struct WorkloadWriter {
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
        let file = output.file().try_clone().map_err(|error| output.fail(error))?;
        let properties = properties(&FORMS, Compression::ZSTD(ZstdLevel::default())).build();
        let writer = SerializedFileWriter::new(file, schema("step", &FORMS), properties.into())
            .map_err(|error| write_error(&output, error))?;
        Ok(WorkloadWriter { output, writer, steps: Vec::new() })
    }

    /// Adds the metadata, checks the result as `idlewise log validate` does, and gives the file its name. Returns
    /// its size.
    ///
    /// # Errors
    /// Fails if the log contradicts itself, the disk is full, or a file that may not be replaced has
    /// appeared at its path. Nothing is left behind.
    pub fn finish(self, metadata: &WorkloadMetadata) -> Result<u64, LogError> {
        let path = self.output.path().to_owned();
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
        let WorkloadWriter { output, mut writer, .. } = self;
        let json = serde_json::to_string(metadata).expect("metadata has only string keys");
        writer.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_owned(), json));
        writer.close().map_err(|error| write_error(&output, error))?;
        Ok(output)
    }

    fn write_group(&mut self) -> Result<(), LogError> {
        let steps = std::mem::take(&mut self.steps);
        let result = write_rows(&mut self.writer, &steps);
        self.steps = steps;
        self.steps.clear();
        result.map_err(|error| write_error(&self.output, error))
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
    write::<Int32Type, _>(&mut group, steps, |step| step.task as i32)?;
    write::<Int32Type, _>(&mut group, steps, |step| i32::from(step.cpu))?;
    write::<ByteArrayType, _>(&mut group, steps, |step| ByteArray::from(step.cause.name()))?;
    write_some::<Int32Type, _>(&mut group, steps, |step| place(step).map(|at| at.task as i32))?;
    write_some::<Int64Type, _>(&mut group, steps, |step| place(step).map(|at| at.step as i64))?;
    write_some::<Int64Type, _>(&mut group, steps, |step| {
        place(step).map(|at| at.offset_ns as i64)
    })?;
    write_some::<Int64Type, _>(&mut group, steps, delay_ns)?;
    write::<Int64Type, _>(&mut group, steps, |step| step.due_at_ns)?;
    write::<Int64Type, _>(&mut group, steps, |step| step.run_at_ns)?;
    write::<Int64Type, _>(&mut group, steps, |step| step.run_ns as i64)?;
    write::<Int64Type, _>(&mut group, steps, |step| step.end_at_ns)?;
    write::<ByteArrayType, _>(&mut group, steps, |step| ByteArray::from(step.end.name()))?;
    write_some::<Int32Type, _>(&mut group, steps, |step| step.idle_state.map(i32::from))?;
    group.close()?;
    Ok(())
}

/// An open workload log.
pub struct WorkloadLog {
    path: PathBuf,
    data: OpenData,
    footer: Footer,
    /// The index of each of our columns in the file.
    columns: [usize; FORMS.len()],
    /// The metadata.
    pub metadata: WorkloadMetadata,
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
        Self::from_data(path, OpenData::File(file.into(), byte_count))
            .map_err(LogError::of_workload)
    }

    /// Opens a log in memory. Messages show `name` as its path.
    ///
    /// # Errors
    /// Fails like [`WorkloadLog::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Bytes>) -> Result<Self, LogError> {
        Self::from_data(Path::new(name), OpenData::Memory(bytes.into()))
            .map_err(LogError::of_workload)
    }

    fn from_data(path: &Path, data: OpenData) -> Result<Self, LogError> {
        let not_ours = |missing| LogError::NotWorkload { path: path.to_owned(), missing };
        let (footer, footer_at) = data.footer(path)?;
        let mut required = FORMS.into_iter().filter(|form| !form.is_nullable);
        if let Some(form) = required.find(|form| !footer.has_columns([*form].into_iter())) {
            return Err(not_ours(form.name));
        }
        let json = footer.json.as_deref();
        let json = json.ok_or_else(|| not_ours("metadata under the key `idlewise`"))?;
        let metadata: WorkloadMetadata =
            serde_json::from_str(json).map_err(|error| LogError::metadata(path, &error))?;
        if metadata.workload_version > WORKLOAD_VERSION {
            let version = metadata.workload_version;
            return Err(LogError::NewerWorkload { path: path.to_owned(), version });
        }
        let footer = footer.check(footer_at).map_err(|refused| LogError::refused(path, refused))?;
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
        self.groups(take).map_err(LogError::of_workload)
    }

    fn groups(&self, take: &mut dyn FnMut(&[Step])) -> Result<(), LogError> {
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
        let rows = Rows::new(&self.path, &self.data, &FORMS, row_count);
        let chunks = &self.footer.groups[index].chunks;
        let chunk = |column: usize| Some(&chunks[self.columns[column]]);
        let numbers = |column| rows.cursor::<Int32Type>(column, chunk(column));
        let times = |column| rows.cursor::<Int64Type>(column, chunk(column));
        numbers(0)?.read(steps, |step, &v| put(&mut step.task, u32::try_from(v).ok()))?;
        numbers(1)?.read(steps, |step, &v| put(&mut step.cpu, u16::try_from(v).ok()))?;
        let mut causes = vec![RawCause::default(); row_count];
        let known = |v: i64| Some(u64::try_from(v).ok());
        numbers(2)?.read(&mut causes, |cause, &v| put(&mut cause.number, Some(v)))?;
        numbers(3)?.read(&mut causes, |cause, &v| put(&mut cause.task, Some(v.try_into().ok())))?;
        times(4)?.read(&mut causes, |cause, &v| put(&mut cause.step, known(v)))?;
        times(5)?.read(&mut causes, |cause, &v| put(&mut cause.offset_ns, known(v)))?;
        times(6)?.read(&mut causes, |cause, &v| put(&mut cause.delay_ns, known(v)))?;
        for (row, (step, cause)) in steps.iter_mut().zip(causes).enumerate() {
            step.cause = cause.cause().ok_or_else(|| bad_value(&self.path, FORMS[2], row))?;
        }
        times(7)?.read(steps, |step, &v| put(&mut step.due_at_ns, Some(v)))?;
        times(8)?.read(steps, |step, &v| put(&mut step.run_at_ns, Some(v)))?;
        times(9)?.read(steps, |step, &v| put(&mut step.run_ns, u64::try_from(v).ok()))?;
        times(10)?.read(steps, |step, &v| put(&mut step.end_at_ns, Some(v)))?;
        numbers(11)?.read(steps, |step, &v| {
            let end = usize::try_from(v).ok().and_then(|end| StepEnd::ALL.get(end));
            put(&mut step.end, end.copied())
        })?;
        numbers(12)?
            .read(steps, |step, &v| put(&mut step.idle_state, u8::try_from(v).ok().map(Some)))
    }
}

/// The columns of a cause. What a kind of cause does not have is absent.
#[derive(Clone, Copy, Default)]
struct RawCause {
    number: i32,
    task: Option<u32>,
    step: Option<u64>,
    offset_ns: Option<u64>,
    delay_ns: Option<u64>,
}

impl RawCause {
    fn cause(self) -> Option<Cause> {
        let place = || {
            let RawCause { task, step, offset_ns, .. } = self;
            Some(StepPlace { task: task?, step: step?, offset_ns: offset_ns? })
        };
        match self.number {
            0 => Some(Cause::Start),
            1 => place().map(Cause::Task),
            2 => Some(Cause::Timer { armed: place()?, delay_ns: self.delay_ns? }),
            3 => Some(Cause::Absolute),
            4 => Some(Cause::Interrupt),
            5 => self.delay_ns.map(|delay_ns| Cause::NextTimer { delay_ns }),
            _ => None,
        }
    }
}
