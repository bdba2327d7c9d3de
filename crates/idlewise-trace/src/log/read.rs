//! Reads an idle log, one row group at a time. Order, ranges and names are checked while reading,
//! because another program may have written the file.

use std::fs::File;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use bytes::Bytes;
use parquet::basic::Type as PhysicalType;
use parquet::data_type::{BoolType, Int32Type, Int64Type};

use super::columns::{Cursor, OpenData, Rows, put};
use super::footer::{Chunk, FooterGroup};
use super::form::Form;
use super::{Column, FORMAT_VERSION, FORMS, LogError, LogMetadata};
use crate::gap::GAP_MAX_NS;
use crate::{FileIdentity, IdleGap, WakeReason};

/// How many rows are read of all columns before the next ones, so that they stay in the L2 cache.
const ROWS_AT_ONCE: usize = 1_024;

/// With fewer rows, starting a thread takes longer than it saves.
const ROWS_FOR_THREADS_MIN: u64 = 1 << 15;

/// How many groups are decoded in parallel when they are wanted in order, and how long they may be:
/// a million gaps take a hundred megabytes.
const LANE_COUNT_MAX: usize = 4;
const ROWS_AHEAD_MAX: u64 = 1 << 16;

/// An open idle log. Reading needs only `&self`, so threads can share it.
pub struct IdleLog {
    path: PathBuf,
    data: Data,
    row_count: u64,
    groups: Vec<FooterGroup>,
    /// The index of each of our columns in the file. Nullable columns may be missing.
    columns: [Option<usize>; FORMS.len()],
    /// Which of them are integers with a sign.
    is_signed: [bool; FORMS.len()],
    /// The metadata.
    pub metadata: LogMetadata,
}

/// Where the bytes are. A file is open only while it is read, so that a thousand logs do not need a
/// thousand descriptors.
enum Data {
    File(FileIdentity),
    /// A file without a name, which stays open.
    Unnamed(Arc<File>, u64),
    Memory(Bytes),
}

impl Data {
    fn open(&self, path: &Path) -> io::Result<OpenData> {
        match self {
            Data::File(identity) => {
                let file = File::open(path)?;
                if FileIdentity::of(&file)? != *identity {
                    return Err(io::Error::other("the file changed while it was in use"));
                }
                Ok(OpenData::File(file.into(), identity.byte_count()))
            }
            Data::Unnamed(file, byte_count) => Ok(OpenData::File(file.clone(), *byte_count)),
            Data::Memory(bytes) => Ok(OpenData::Memory(bytes.clone())),
        }
    }
}

/// The columns to read. In gaps, the others are unknown or false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSet {
    /// All columns.
    All,
    /// The columns that affect a governor's result. Left out is what the recording kernel did
    /// (`tick_stopped`, `recorded_state`, `recorded_idle_ns`).
    WithoutRecorded,
}

impl ColumnSet {
    fn contains(self, column: Column) -> bool {
        let is_recorded =
            matches!(column, Column::TickStopped | Column::RecordedState | Column::RecordedIdle);
        self == ColumnSet::All || !is_recorded
    }
}

/// A row group. In a log that we wrote, its gaps belong to one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapGroup {
    index: usize,
    /// How many gaps it holds.
    pub gap_count: u64,
    /// The index of its first row in the file.
    pub first_row: u64,
}

impl IdleLog {
    /// Opens a log and reads its metadata.
    ///
    /// # Errors
    /// Fails if the file is not an idle log, or if its format version is newer than ours.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let io = |error| LogError::io(path, error);
        let file = File::open(path).map_err(io)?;
        let identity = FileIdentity::of(&file).map_err(io)?;
        let opened = OpenData::File(file.into(), identity.byte_count());
        Self::from_data(path, Data::File(identity), &opened)
    }

    /// Opens a log in a file without a name, which stays open. Messages show `path` instead.
    ///
    /// # Errors
    /// Fails like [`IdleLog::open`].
    pub fn from_file(path: &Path, file: File) -> Result<Self, LogError> {
        let byte_count = file.metadata().map_err(|error| LogError::io(path, error))?.len();
        let file = Arc::new(file);
        let opened = OpenData::File(file.clone(), byte_count);
        Self::from_data(path, Data::Unnamed(file, byte_count), &opened)
    }

    /// Opens a log in memory. Messages show `name` as its path.
    ///
    /// # Errors
    /// Fails like [`IdleLog::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Bytes>) -> Result<Self, LogError> {
        let bytes = bytes.into();
        let opened = OpenData::Memory(bytes.clone());
        Self::from_data(Path::new(name), Data::Memory(bytes), &opened)
    }

    fn from_data(path: &Path, data: Data, opened: &OpenData) -> Result<Self, LogError> {
        let not_ours = |missing| LogError::NotIdleLog { path: path.to_owned(), missing };
        let (footer, footer_at) = opened.footer(path)?;
        let Some(json) = footer.json.as_deref() else {
            let missing = "metadata under the key `idlewise`";
            return Err(match footer.has_columns(FORMS.into_iter()) {
                true => LogError::rewritten(path, format_args!("it has no {missing}")),
                false => not_ours(missing),
            });
        };
        if footer.has_columns([Form::required("run_ns", PhysicalType::INT64)].into_iter()) {
            return Err(LogError::Workload { path: path.to_owned() });
        }
        let metadata: LogMetadata =
            serde_json::from_str(json).map_err(|error| LogError::metadata(path, &error))?;
        if metadata.format_version > FORMAT_VERSION {
            let version = metadata.format_version;
            return Err(LogError::Newer { path: path.to_owned(), version });
        }
        let footer = footer.check(footer_at).map_err(|refused| LogError::refused(path, refused))?;
        let mut columns = [None; FORMS.len()];
        for (slot, form) in columns.iter_mut().zip(FORMS) {
            *slot = footer.columns.iter().position(|leaf| leaf.is(form.name));
            match *slot {
                Some(index) if footer.columns[index].has_form(&form) => {}
                Some(_) => {
                    let nulls = if form.is_nullable { "no nulls" } else { "may have nulls" };
                    let what = format!("column {} has another type, or {nulls}", form.name);
                    return Err(LogError::rewritten(path, what));
                }
                None if form.is_nullable => {}
                None => return Err(not_ours(form.name)),
            }
        }
        let is_signed = columns.map(|at| !at.is_some_and(|at| footer.columns[at].is_unsigned));
        let (row_count, groups) = (footer.row_count, footer.groups);
        Ok(IdleLog { path: path.to_owned(), data, row_count, groups, columns, is_signed, metadata })
    }

    /// The log's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many gaps the log holds.
    pub fn gap_count(&self) -> u64 {
        self.row_count
    }

    /// The row groups, in the file's order.
    pub fn groups(&self) -> Vec<GapGroup> {
        let mut first_row = 0;
        self.groups
            .iter()
            .enumerate()
            .map(|(index, group)| {
                let group = GapGroup { index, gap_count: group.row_count, first_row };
                first_row += group.gap_count;
                group
            })
            .collect()
    }

    /// The row groups of each CPU, for reading CPUs in parallel. `None` if a group mixes CPUs or
    /// has no statistics; then the log must be read in order.
    pub fn groups_by_cpu(&self) -> Option<Vec<(u16, Vec<GapGroup>)>> {
        let mut cpus: Vec<(u16, Vec<GapGroup>)> = Vec::new();
        for group in self.groups().into_iter().filter(|group| group.gap_count > 0) {
            let range = self.chunk(group, Column::Cpu)?.int32_range.as_ref()?;
            let cpu =
                u16::try_from(*range.start()).ok().filter(|_| range.start() == range.end())?;
            match cpus.last_mut() {
                Some((last, groups)) if *last == cpu => groups.push(group),
                Some((last, _)) if *last > cpu => return None,
                _ => cpus.push((cpu, vec![group])),
            }
        }
        Some(cpus)
    }

    /// A column of a row group; `None` if the file lacks it.
    fn chunk(&self, group: GapGroup, column: Column) -> Option<&Chunk> {
        Some(&self.groups[group.index].chunks[self.columns[column as usize]?])
    }

    /// Reads one row group into `gaps`, which is cleared first. Checks the order within the group,
    /// and against `previous`, the gap before it.
    ///
    /// # Errors
    /// Fails if the file is damaged or out of order.
    pub fn read_group(
        &self,
        group: GapGroup,
        previous: Option<&IdleGap>,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        self.read_group_columns(group, ColumnSet::All, previous, gaps)
    }

    /// Like [`IdleLog::read_group`], but reads only some columns. Damage in the others goes
    /// unnoticed.
    ///
    /// # Errors
    /// Fails if the columns read are damaged or out of order.
    pub fn read_group_columns(
        &self,
        group: GapGroup,
        columns: ColumnSet,
        previous: Option<&IdleGap>,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        gaps.clear();
        self.read_rows(group, columns, gaps)?;
        self.check_order(group.first_row, previous, gaps)
    }

    /// Reads some columns of a row group a part at a time, for callers that hold many groups at once. The group's
    /// bytes are read from the file here.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn rows(&self, group: GapGroup, columns: ColumnSet) -> Result<GroupRows<'_>, LogError> {
        let row_count = self.groups[group.index].row_count as usize;
        let data = self.data.open(&self.path).map_err(|error| LogError::io(&self.path, error))?;
        let rows = Rows::new(&self.path, &data, &FORMS, row_count);
        let chunk = |column| self.chunk(group, column).filter(|_| columns.contains(column));
        Ok(GroupRows {
            log: self,
            first_row: group.first_row,
            row: 0,
            row_count,
            cpu_range: self.chunk(group, Column::Cpu).and_then(|it| it.int32_range.as_ref()),
            cpu: rows.cursor(Column::Cpu as usize, chunk(Column::Cpu))?,
            start: rows.cursor(Column::Start as usize, chunk(Column::Start))?,
            length: rows.cursor(Column::Gap as usize, chunk(Column::Gap))?,
            sleep_length: rows.cursor(Column::SleepLength as usize, chunk(Column::SleepLength))?,
            next_tick: rows.cursor(Column::NextTick as usize, chunk(Column::NextTick))?,
            tick_stopped: rows.cursor(Column::TickStopped as usize, chunk(Column::TickStopped))?,
            ran_task: rows.cursor(Column::RanTask as usize, chunk(Column::RanTask))?,
            wake_reason: rows.cursor(Column::WakeReason as usize, chunk(Column::WakeReason))?,
            latency_limit: rows
                .cursor(Column::LatencyLimit as usize, chunk(Column::LatencyLimit))?,
            recorded_state: rows
                .cursor(Column::RecordedState as usize, chunk(Column::RecordedState))?,
            recorded_idle: rows
                .cursor(Column::RecordedIdle as usize, chunk(Column::RecordedIdle))?,
        })
    }

    /// Like [`IdleLog::read_group`], for callers that check the order themselves.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    pub fn read_group_unordered(
        &self,
        group: GapGroup,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        gaps.clear();
        self.read_rows(group, ColumnSet::All, gaps)
    }

    /// Passes all groups in the file's order to `take`, which checks the order of the gaps itself.
    /// If the log is long enough, other threads decode ahead.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    pub fn each_group_unordered(
        &self,
        take: &mut dyn FnMut(GapGroup, &[IdleGap]),
    ) -> Result<(), LogError> {
        let groups = self.groups();
        let is_long = self.row_count >= ROWS_FOR_THREADS_MIN;
        let is_held_easily = groups.iter().all(|group| group.gap_count <= ROWS_AHEAD_MAX);
        let cpu_count = thread::available_parallelism().map_or(1, usize::from);
        let lane_count = cpu_count.min(groups.len()).min(LANE_COUNT_MAX);
        if is_long && is_held_easily && lane_count > 1 {
            let decoded = thread::scope(|scope| {
                let lanes: io::Result<Vec<_>> = (0..lane_count)
                    .map(|lane| {
                        self.decode_ahead(scope, groups.iter().skip(lane).step_by(lane_count))
                    })
                    .collect();
                // If threads cannot be started, we do without.
                let lanes = lanes.ok()?;
                Some(groups.iter().zip(lanes.iter().cycle()).try_for_each(|(&group, lane)| {
                    let gaps = lane.recv().unwrap_or_else(|_| {
                        Err(LogError::damaged(&self.path, "a group was not decoded"))
                    })?;
                    take(group, &gaps);
                    Ok(())
                }))
            });
            if let Some(outcome) = decoded {
                return outcome;
            }
        }
        let mut gaps = Vec::new();
        for group in groups {
            self.read_group_unordered(group, &mut gaps)?;
            take(group, &gaps);
        }
        Ok(())
    }

    /// Decodes groups on a thread, each after the previous one was taken.
    fn decode_ahead<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        groups: impl Iterator<Item = &'scope GapGroup> + Send + 'scope,
    ) -> io::Result<Receiver<Result<Vec<IdleGap>, LogError>>> {
        let (sender, receiver) = sync_channel(0);
        thread::Builder::new().name("idlewise-log".to_owned()).spawn_scoped(scope, move || {
            for &group in groups {
                let mut gaps = Vec::new();
                let decoded = self.read_group_unordered(group, &mut gaps).map(|()| gaps);
                // After damage the receiver has gone.
                if sender.send(decoded).is_err() {
                    return;
                }
            }
        })?;
        Ok(receiver)
    }

    /// The names of columns that the file lacks. They are read as unknown.
    pub fn missing_columns(&self) -> Vec<&'static str> {
        let missing = FORMS.into_iter().zip(self.columns).filter(|(_, at)| at.is_none());
        missing.map(|(form, _)| form.name).collect()
    }

    fn check_order<'a>(
        &self,
        first_row: u64,
        mut previous: Option<&'a IdleGap>,
        gaps: &'a [IdleGap],
    ) -> Result<(), LogError> {
        for (row, gap) in (first_row..).zip(gaps) {
            let is_later = previous.is_none_or(|p| {
                p.cpu < gap.cpu || (p.cpu == gap.cpu && p.start_ns <= gap.start_ns)
            });
            if !is_later {
                return Err(LogError::Unsorted { path: self.path.clone(), row });
            }
            let end_ns = |gap: &IdleGap| gap.start_ns.saturating_add_unsigned(gap.gap_ns);
            if previous.is_some_and(|p| p.cpu == gap.cpu && end_ns(p) > gap.start_ns) {
                let what = format!("row {row}: the gap begins before the CPU's last one ends");
                return Err(LogError::Damaged { path: self.path.clone(), what });
            }
            previous = Some(gap);
        }
        Ok(())
    }

    fn read_rows(
        &self,
        group: GapGroup,
        columns: ColumnSet,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        let mut rows = self.rows(group, columns)?;
        gaps.reserve(rows.left_count());
        while rows.left_count() > 0 {
            rows.read(gaps)?;
        }
        Ok(())
    }
}

/// The rows of a group, decoded a part at a time. It holds the group's compressed bytes, and one unpacked page of
/// each column.
pub struct GroupRows<'a> {
    log: &'a IdleLog,
    first_row: u64,
    /// How many rows are read, of how many.
    row: usize,
    row_count: usize,
    cpu_range: Option<&'a RangeInclusive<i32>>,
    cpu: Cursor<'a, Int32Type>,
    start: Cursor<'a, Int64Type>,
    length: Cursor<'a, Int64Type>,
    sleep_length: Cursor<'a, Int64Type>,
    next_tick: Cursor<'a, Int32Type>,
    tick_stopped: Cursor<'a, BoolType>,
    ran_task: Cursor<'a, BoolType>,
    wake_reason: Cursor<'a, Int32Type>,
    latency_limit: Cursor<'a, Int64Type>,
    recorded_state: Cursor<'a, Int32Type>,
    recorded_idle: Cursor<'a, Int64Type>,
}

impl GroupRows<'_> {
    /// How many rows are left.
    pub fn left_count(&self) -> usize {
        self.row_count - self.row
    }

    /// Appends the next gaps, about a thousand, and checks their order. `previous` is the gap before them.
    ///
    /// # Errors
    /// Fails if the columns read are damaged or out of order.
    pub fn read_in_order(
        &mut self,
        previous: Option<&IdleGap>,
        gaps: &mut Vec<IdleGap>,
    ) -> Result<(), LogError> {
        let (first, first_row) = (gaps.len(), self.first_row + self.row as u64);
        self.read(gaps)?;
        self.log.check_order(first_row, previous, &gaps[first..])
    }

    fn read(&mut self, all: &mut Vec<IdleGap>) -> Result<(), LogError> {
        let (first, count) = (all.len(), self.left_count().min(ROWS_AT_ONCE));
        all.resize(first + count, IdleGap::default());
        self.row += count;
        let gaps = &mut all[first..];
        self.cpu.read(gaps, |gap, &v| {
            // Otherwise `groups_by_cpu` would assign gaps to the wrong CPU.
            self.cpu_range.is_none_or(|range| range.contains(&v)).then_some(())?;
            put(&mut gap.cpu, u16::try_from(v).ok())
        })?;
        self.start.read(gaps, |gap, &v| put(&mut gap.start_ns, Some(v)))?;
        self.length.read(gaps, |gap, &v| {
            put(&mut gap.gap_ns, u64::try_from(v).ok().filter(|&ns| ns <= GAP_MAX_NS))
        })?;
        // Columns that another program wrote may have a sign.
        let is_signed = &self.log.is_signed;
        let some = |column: Column, v: i64| {
            (v >= 0 || !is_signed[column as usize]).then_some(Some(v as u64))
        };
        self.sleep_length
            .read(gaps, |gap, &v| put(&mut gap.sleep_length_ns, some(Column::SleepLength, v)))?;
        self.next_tick.read(gaps, |gap, &v| {
            put(
                &mut gap.next_tick_ns,
                some(Column::NextTick, v.into()).map(|ns| ns.map(|ns| ns as u32)),
            )
        })?;
        self.tick_stopped.read(gaps, |gap, &v| put(&mut gap.tick_stopped, Some(v)))?;
        self.ran_task.read(gaps, |gap, &v| put(&mut gap.ran_task, Some(v)))?;
        self.wake_reason
            .read(gaps, |gap, &v| put(&mut gap.wake_reason, WakeReason::of_number(v)))?;
        self.latency_limit
            .read(gaps, |gap, &v| put(&mut gap.latency_limit_ns, some(Column::LatencyLimit, v)))?;
        self.recorded_state
            .read(gaps, |gap, &v| put(&mut gap.recorded_state, u8::try_from(v).ok().map(Some)))?;
        self.recorded_idle
            .read(gaps, |gap, &v| put(&mut gap.recorded_idle_ns, some(Column::RecordedIdle, v)))
    }
}

/// The rows in a group.
impl GapGroup {
    /// The range of the file's rows in this group.
    pub fn rows(&self) -> Range<u64> {
        self.first_row..self.first_row + self.gap_count
    }
}
