//! Decision logs: what a governor of a real kernel answered, row by row, and whether a governor of
//! ours answers the same. `conformance/decisions/README.md` defines the format.
//!
//! ```text
//! row ─► inputs ─► select ─► compare state, stop_tick, sleep_length_calls
//!        feedback ─► reflect, unless refused ─► compare the three dev_ columns
//! ```
//!
//! The feedback is the log's, never ours: a governor that decides differently in one row meets the
//! same next row, and only its own history may lead it astray from there. What governor and loop
//! share ([`Device`]) is ours for the whole log, so an error in it stays visible.
//!
//! A kernel may run off its table: with one state `haltpoll` answers 1. No governor of ours may. So
//! two answers beyond the table count as its deepest state.
//!
//! What this file does not do: open or unpack files, or know governors by name.

use std::fmt;
use std::io::{self, BufRead};

use csv::ByteRecord;
use idlewise_core::{
    Context, Decision, Device, DisabledMask, Governor, IdleState, Outcome, SleepLength, StateIndex,
    StateTable, StateTableError,
};

/// The state tables that logs refer to by name (`tables.csv`), in the file's order.
#[derive(Clone, Debug, Default)]
pub struct DecisionTables {
    tables: Vec<(String, StateTable)>,
}

/// How a governor compares with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionReplay {
    /// Rows read.
    pub row_count: u64,
    /// Rows in which anything differs.
    pub mismatch_count: u64,
    /// The first of those.
    pub first_mismatch: Option<DecisionMismatch>,
}

/// A row in which the answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionMismatch {
    /// The row's number, from 0.
    pub row: u64,
    /// Its line in the file, from 1; the header is line 1.
    pub line: u64,
    /// Every input and feedback column with its value, in our order.
    pub inputs: Vec<(&'static str, i128)>,
    /// What the log says.
    pub logged: DecisionAnswer,
    /// What the governor says.
    pub replayed: DecisionAnswer,
}

/// All that a row lets us compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionAnswer {
    /// The selected state.
    pub state: StateIndex,
    /// Whether the tick should be stopped.
    pub stop_tick: bool,
    /// How often the timers were read.
    pub sleep_length_calls: u32,
    /// [`Device::last_state`] after the row.
    pub last_state: Option<StateIndex>,
    /// [`Device::poll_time_limit`] after the row.
    pub poll_time_limit: bool,
    /// [`Device::poll_limit_ns`] after the row.
    pub poll_limit_ns: u64,
}

impl DecisionAnswer {
    /// Every compared column with its value, under its name in the log.
    pub fn columns(&self) -> [(&'static str, i128); 6] {
        let last_state = self.last_state.map_or(-1, |state| state as i128);
        [
            ("state", self.state as i128),
            ("stop_tick", i128::from(self.stop_tick)),
            ("sleep_length_calls", i128::from(self.sleep_length_calls)),
            ("dev_last_state_idx", last_state),
            ("dev_poll_time_limit", i128::from(self.poll_time_limit)),
            ("dev_poll_limit_ns", i128::from(self.poll_limit_ns)),
        ]
    }
}

/// Why a log or a table file can't be used. Lines count from 1.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecisionLogError {
    /// The file can't be read, or unpacked, from here on.
    Unreadable {
        /// Where reading stood.
        line: u64,
        /// What the reader said.
        error: io::Error,
    },
    /// A line has more or fewer fields than the header.
    FieldCount {
        /// The line.
        line: u64,
        /// How many fields it has.
        found: u64,
        /// How many the header has.
        expected: u64,
    },
    /// The header lacks a column.
    MissingColumn {
        /// The column.
        column: &'static str,
    },
    /// A field is not a whole number.
    NotANumber {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// What is there.
        found: String,
    },
    /// A number is outside of what its column can hold.
    OutOfRange {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// What is there.
        found: i128,
        /// The smallest number that is allowed.
        min: i128,
        /// The largest.
        max: i128,
    },
    /// A state does not exist in the table.
    NoSuchState {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The state's index.
        found: i128,
        /// How many states the table has.
        state_count: usize,
    },
    /// Only row 0 may enable the governor, and it must.
    Enable {
        /// The line.
        line: u64,
    },
    /// There is a header at most.
    Empty,
    /// In a table file, a table's states are not numbered 0, 1, 2, …
    StateOrder {
        /// The line.
        line: u64,
        /// The table.
        table: String,
        /// The index that should stand there.
        expected: usize,
    },
    /// A table in a table file is not valid.
    InvalidTable {
        /// The table.
        table: String,
        /// The rule that it breaks.
        error: StateTableError,
    },
}

impl fmt::Display for DecisionLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { line, error } => {
                write!(f, "line {line}: cannot read on: {error}; is the file complete?")
            }
            Self::FieldCount { line, found, expected } => write!(
                f,
                "line {line}: {found} fields where the header has {expected}; is the line cut off?"
            ),
            Self::MissingColumn { column } => write!(
                f,
                "line 1: no column '{column}' in the header; conformance/decisions/README.md lists \
                 the columns"
            ),
            Self::NotANumber { line, column, found } => {
                let found = Shown(found);
                write!(f, "line {line}, column '{column}': '{found}' is not a whole number")
            }
            Self::OutOfRange { line, column, found, min, max } => {
                write!(f, "line {line}, column '{column}': {found} is not in {min} to {max}")
            }
            Self::NoSuchState { line, column, found, state_count } => write!(
                f,
                "line {line}, column '{column}': no state {found} in a table of {state_count} \
                 states; is this the log's table?"
            ),
            Self::Enable { line } => write!(
                f,
                "line {line}, column 'enable': row 0 must have 1 and all others 0; split the log \
                 where the governor starts anew"
            ),
            Self::Empty => write!(f, "line 1: no rows; is the file complete?"),
            Self::StateOrder { line, table, expected } => write!(
                f,
                "line {line}, column 'index': state {expected} of table '{}' should be here; \
                 number a table's states from 0",
                Shown(table)
            ),
            Self::InvalidTable { table, error } => {
                write!(f, "table '{}': {error}", Shown(table))
            }
        }
    }
}

/// A field as a message has it: on one line and short, even if a lost quotation mark made a field
/// of the rest of the file.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHAR_COUNT_MAX: usize = 40;
        let mut rest = self.0.chars();
        for char in rest.by_ref().take(CHAR_COUNT_MAX) {
            // Also the separators of lines and paragraphs, which are no control characters.
            let is_plain = !char.is_control() && !('\u{2028}'..='\u{202e}').contains(&char);
            if is_plain { write!(f, "{char}")? } else { write!(f, "{}", char.escape_unicode())? }
        }
        if rest.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

impl std::error::Error for DecisionLogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            Self::InvalidTable { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl DecisionTables {
    /// Reads `tables.csv`: one line per state, in the order of their indices.
    ///
    /// # Errors
    /// The first thing that is wrong, and where.
    pub fn read(file: impl BufRead) -> Result<Self, DecisionLogError> {
        let mut lines = Lines::new(file)?;
        let table_column = lines.column("table")?;
        let index_column = lines.column("index")?;
        let exit_latency_column = lines.column("exit_latency_ns")?;
        let residency_column = lines.column("target_residency_ns")?;
        let polling_column = lines.column("polling")?;
        let mut states: Vec<(String, Vec<IdleState>)> = Vec::new();
        while lines.advance()? {
            let name = lines.text(table_column);
            let known = states.iter().position(|(known, _)| *known == name);
            let position = known.unwrap_or_else(|| {
                states.push((name, Vec::new()));
                states.len() - 1
            });
            let (table, rows) = &mut states[position];
            let index: u64 = lines.number(index_column)?;
            if index != rows.len() as u64 {
                let (line, table, expected) = (lines.line(), table.clone(), rows.len());
                return Err(DecisionLogError::StateOrder { line, table, expected });
            }
            rows.push(IdleState {
                is_polling: lines.flag(polling_column)?,
                ..IdleState::new(
                    lines.number(exit_latency_column)?,
                    lines.number(residency_column)?,
                )
            });
        }
        let tables = states.into_iter().map(|(table, rows)| match StateTable::new(&rows) {
            Ok(states) => Ok((table, states)),
            Err(error) => Err(DecisionLogError::InvalidTable { table, error }),
        });
        Ok(DecisionTables { tables: tables.collect::<Result<_, _>>()? })
    }

    /// The table of this name.
    pub fn get(&self, name: &str) -> Option<&StateTable> {
        self.tables.iter().find(|(table, _)| table == name).map(|(_, states)| states)
    }

    /// All names, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|(name, _)| name.as_str())
    }
}

/// Puts `governor`, which must be without history, through a log, line by line; memory does not grow with
/// the log.
///
/// # Errors
/// The first thing that is wrong with the log, and where. A mismatch is a result, not an error.
pub fn replay_decisions<G: Governor + ?Sized>(
    log: impl BufRead,
    states: &StateTable,
    governor: &mut G,
) -> Result<DecisionReplay, DecisionLogError> {
    let mut lines = Lines::new(log)?;
    let columns = Columns::find(&lines)?;
    let mut device = Device::default();
    let mut replay = DecisionReplay { row_count: 0, mismatch_count: 0, first_mismatch: None };
    while lines.advance()? {
        let row = Row::read(&lines, &columns, states)?;
        if row.enable != (replay.row_count == 0) {
            return Err(DecisionLogError::Enable { line: lines.line() });
        }
        let answer = replay_row(&row, states, governor, &mut device);
        if answer.within(states) != row.logged.within(states) {
            replay.mismatch_count += 1;
            replay.first_mismatch.get_or_insert_with(|| DecisionMismatch {
                row: replay.row_count,
                line: lines.line(),
                inputs: row.inputs(),
                logged: row.logged,
                replayed: answer,
            });
        }
        replay.row_count += 1;
    }
    if replay.row_count == 0 {
        return Err(DecisionLogError::Empty);
    }
    Ok(replay)
}

/// One row, in the order that the log's README gives.
fn replay_row<G: Governor + ?Sized>(
    row: &Row,
    states: &StateTable,
    governor: &mut G,
    device: &mut Device,
) -> DecisionAnswer {
    let sleep_length =
        SleepLength { sleep_length_ns: row.sleep_length_ns, next_event_ns: row.delta_next_ns };
    let mut context = Context::new(states, sleep_length);
    context.disabled = row.disabled;
    context.latency_limit_ns = row.latency_req_ns;
    context.tick_stopped = row.tick_stopped;
    context.now_ns = row.clock_select_ns;
    context.iowait_count = row.iowaiters;
    let Decision { state, stop_tick } = governor.select(&context, device);
    // The flag outlives the row: states that don't poll leave it as it is.
    if let Some(poll_time_limit) = row.poll_time_limit {
        device.poll_time_limit = poll_time_limit;
    }
    if device.poll_limit_ns == 0 {
        device.poll_limit_ns = row.poll_limit_init_ns;
    }
    if let Some(entered) = row.entered {
        device.last_residency_ns = row.residency_ns;
        let got_tick = row.got_tick_seen;
        governor.reflect(&Outcome { entered, got_tick, now_ns: row.clock_reflect_ns }, device);
    } else {
        device.last_residency_ns = 0;
    }
    DecisionAnswer {
        state,
        stop_tick,
        sleep_length_calls: context.sleep_length_calls(),
        last_state: device.last_state,
        poll_time_limit: device.poll_time_limit,
        poll_limit_ns: device.poll_limit_ns,
    }
}

impl DecisionAnswer {
    /// The answer with a state beyond the table taken as its deepest.
    fn within(self, states: &StateTable) -> Self {
        DecisionAnswer { state: self.state.min(states.deepest()), ..self }
    }
}

/// One row of a log, checked.
struct Row {
    enable: bool,
    clock_select_ns: u64,
    sleep_length_ns: i64,
    delta_next_ns: i64,
    tick_stopped: bool,
    latency_req_ns: i64,
    iowaiters: u32,
    disabled: DisabledMask,
    /// `None`: the driver refused.
    entered: Option<StateIndex>,
    /// What the log has for `entered`; an error number if negative.
    entered_or_error: i64,
    residency_ns: u64,
    /// `None`: left as it was.
    poll_time_limit: Option<bool>,
    poll_limit_init_ns: u64,
    clock_reflect_ns: u64,
    /// What the governor was told about the tick; not always what the row's own `got_tick` says.
    got_tick_seen: bool,
    logged: DecisionAnswer,
}

impl Row {
    fn read<R: BufRead>(
        lines: &Lines<R>,
        columns: &Columns,
        states: &StateTable,
    ) -> Result<Self, DecisionLogError> {
        let logged = DecisionAnswer {
            state: lines.state(columns.state, states)?,
            stop_tick: lines.flag(columns.stop_tick)?,
            sleep_length_calls: lines.number(columns.sleep_length_calls)?,
            last_state: lines.state_or_negative(columns.dev_last_state_idx, states)?,
            poll_time_limit: lines.flag(columns.dev_poll_time_limit)?,
            poll_limit_ns: lines.number(columns.dev_poll_limit_ns)?,
        };
        let poll_time_limit: i8 = lines.number_in(columns.poll_time_limit, -1, 1)?;
        let got_tick_seen: i8 = lines.number_in(columns.got_tick_seen, -1, 1)?;
        let disabled_bits: u64 = lines.number(columns.disabled_mask)?;
        Ok(Row {
            enable: lines.flag(columns.enable)?,
            clock_select_ns: lines.number(columns.clock_select_ns)?,
            sleep_length_ns: lines.number(columns.sleep_length_ns)?,
            delta_next_ns: lines.number(columns.delta_next_ns)?,
            tick_stopped: lines.flag(columns.tick_stopped)?,
            latency_req_ns: lines.number(columns.latency_req_ns)?,
            iowaiters: lines.number(columns.iowaiters)?,
            // Bits beyond the table mean nothing.
            disabled: DisabledMask::from_bits(disabled_bits as u16),
            entered: lines.state_or_negative(columns.entered, states)?,
            entered_or_error: lines.number(columns.entered)?,
            residency_ns: lines.number(columns.residency_ns)?,
            poll_time_limit: (poll_time_limit >= 0).then_some(poll_time_limit == 1),
            poll_limit_init_ns: lines.number(columns.poll_limit_init_ns)?,
            clock_reflect_ns: lines.number(columns.clock_reflect_ns)?,
            got_tick_seen: got_tick_seen == 1,
            logged,
        })
    }

    /// The inputs and the feedback under their names in the log.
    fn inputs(&self) -> Vec<(&'static str, i128)> {
        vec![
            ("clock_select_ns", self.clock_select_ns.into()),
            ("sleep_length_ns", self.sleep_length_ns.into()),
            ("delta_next_ns", self.delta_next_ns.into()),
            ("tick_stopped", self.tick_stopped.into()),
            ("latency_req_ns", self.latency_req_ns.into()),
            ("iowaiters", self.iowaiters.into()),
            ("disabled_mask", self.disabled.bits().into()),
            ("entered", self.entered_or_error.into()),
            ("residency_ns", self.residency_ns.into()),
            ("poll_time_limit", self.poll_time_limit.map_or(-1, i128::from)),
            ("poll_limit_init_ns", self.poll_limit_init_ns.into()),
            ("clock_reflect_ns", self.clock_reflect_ns.into()),
            ("got_tick_seen", self.got_tick_seen.into()),
        ]
    }
}

/// A column that the header has: its name and its place.
#[derive(Clone, Copy)]
struct Column {
    name: &'static str,
    place: usize,
}

/// Where each column of a log stands. Unknown columns, and those that only label rows, are ignored.
struct Columns {
    enable: Column,
    clock_select_ns: Column,
    sleep_length_ns: Column,
    delta_next_ns: Column,
    tick_stopped: Column,
    latency_req_ns: Column,
    iowaiters: Column,
    disabled_mask: Column,
    state: Column,
    stop_tick: Column,
    sleep_length_calls: Column,
    entered: Column,
    residency_ns: Column,
    poll_time_limit: Column,
    poll_limit_init_ns: Column,
    clock_reflect_ns: Column,
    got_tick_seen: Column,
    dev_last_state_idx: Column,
    dev_poll_time_limit: Column,
    dev_poll_limit_ns: Column,
}

impl Columns {
    fn find<R: BufRead>(lines: &Lines<R>) -> Result<Self, DecisionLogError> {
        Ok(Columns {
            enable: lines.column("enable")?,
            clock_select_ns: lines.column("clock_select_ns")?,
            sleep_length_ns: lines.column("sleep_length_ns")?,
            delta_next_ns: lines.column("delta_next_ns")?,
            tick_stopped: lines.column("tick_stopped")?,
            latency_req_ns: lines.column("latency_req_ns")?,
            iowaiters: lines.column("iowaiters")?,
            disabled_mask: lines.column("disabled_mask")?,
            state: lines.column("state")?,
            stop_tick: lines.column("stop_tick")?,
            sleep_length_calls: lines.column("sleep_length_calls")?,
            entered: lines.column("entered")?,
            residency_ns: lines.column("residency_ns")?,
            poll_time_limit: lines.column("poll_time_limit")?,
            poll_limit_init_ns: lines.column("poll_limit_init_ns")?,
            clock_reflect_ns: lines.column("clock_reflect_ns")?,
            got_tick_seen: lines.column("got_tick_seen")?,
            dev_last_state_idx: lines.column("dev_last_state_idx")?,
            dev_poll_time_limit: lines.column("dev_poll_time_limit")?,
            dev_poll_limit_ns: lines.column("dev_poll_limit_ns")?,
        })
    }
}

/// A CSV file with a header, one line at a time, whose errors know where they are.
struct Lines<R> {
    reader: csv::Reader<R>,
    header: ByteRecord,
    record: ByteRecord,
}

impl<R: BufRead> Lines<R> {
    fn new(file: R) -> Result<Self, DecisionLogError> {
        let mut reader = csv::ReaderBuilder::new().from_reader(file);
        let header = reader.byte_headers().map_err(|error| located(error, 0))?.clone();
        Ok(Lines { reader, header, record: ByteRecord::new() })
    }

    fn column(&self, name: &'static str) -> Result<Column, DecisionLogError> {
        let place = self.header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let missing = DecisionLogError::MissingColumn { column: name };
        place.map(|place| Column { name, place }).ok_or(missing)
    }

    /// Reads the next line; false at the end of the file.
    fn advance(&mut self) -> Result<bool, DecisionLogError> {
        let line = self.reader.position().line();
        self.reader.read_byte_record(&mut self.record).map_err(|error| located(error, line))
    }

    fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    fn text(&self, column: Column) -> String {
        String::from_utf8_lossy(self.record.get(column.place).unwrap_or_default()).into_owned()
    }

    /// A number that may have any value of its type.
    fn number<T: Whole>(&self, column: Column) -> Result<T, DecisionLogError> {
        self.number_in(column, T::MIN, T::MAX)
    }

    fn number_in<T: Whole>(
        &self,
        column: Column,
        min: i128,
        max: i128,
    ) -> Result<T, DecisionLogError> {
        let field = self.record.get(column.place).unwrap_or_default().trim_ascii();
        let number = std::str::from_utf8(field).ok().and_then(|text| text.parse::<i128>().ok());
        let (line, name) = (self.line(), column.name);
        let found = number.ok_or_else(|| DecisionLogError::NotANumber {
            line,
            column: name,
            found: self.text(column),
        })?;
        let in_range = (min..=max).contains(&found).then(|| T::try_from(found).ok()).flatten();
        in_range.ok_or(DecisionLogError::OutOfRange { line, column: name, found, min, max })
    }

    fn flag(&self, column: Column) -> Result<bool, DecisionLogError> {
        Ok(self.number_in::<u8>(column, 0, 1)? == 1)
    }

    /// A state of the table. State 1 is let through even if there is only one state: `ladder` and
    /// `haltpoll` really answer it.
    fn state(&self, column: Column, states: &StateTable) -> Result<StateIndex, DecisionLogError> {
        let found: i64 = self.number(column)?;
        let state_count = states.len();
        let (line, column) = (self.line(), column.name);
        let no_such_state =
            DecisionLogError::NoSuchState { line, column, found: found.into(), state_count };
        let state = usize::try_from(found).ok().filter(|&state| state < state_count.max(2));
        state.ok_or(no_such_state)
    }

    /// A state of the table, or `None` for any negative number.
    fn state_or_negative(
        &self,
        column: Column,
        states: &StateTable,
    ) -> Result<Option<StateIndex>, DecisionLogError> {
        let number: i64 = self.number(column)?;
        if number < 0 { Ok(None) } else { self.state(column, states).map(Some) }
    }
}

/// The integer types that columns have.
trait Whole: TryFrom<i128> {
    const MIN: i128;
    const MAX: i128;
}

macro_rules! whole {
    ($($integer:ty),*) => {$(
        impl Whole for $integer {
            const MIN: i128 = <$integer>::MIN as i128;
            const MAX: i128 = <$integer>::MAX as i128;
        }
    )*};
}

whole!(u8, i8, u32, u64, i64);

/// Gives the CSV reader's errors our words; `line` is where reading stood.
fn located(error: csv::Error, line: u64) -> DecisionLogError {
    let place = error.position().map_or(line, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => DecisionLogError::Unreadable { line, error },
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            DecisionLogError::FieldCount { line: place, found: len, expected: expected_len }
        }
        kind => DecisionLogError::Unreadable {
            line: place,
            error: io::Error::other(format!("{kind:?}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "enable,clock_select_ns,sleep_length_ns,delta_next_ns,tick_stopped,\
        latency_req_ns,iowaiters,disabled_mask,state,stop_tick,sleep_length_calls,entered,\
        residency_ns,poll_time_limit,poll_limit_init_ns,clock_reflect_ns,got_tick_seen,\
        dev_last_state_idx,dev_poll_time_limit,dev_poll_limit_ns,note";

    /// Answers the deepest state and never looks at the timers.
    struct Deepest;

    impl Governor for Deepest {
        fn select(&mut self, context: &Context<'_>, _: &mut Device) -> Decision {
            Decision { state: context.states.deepest(), stop_tick: true }
        }

        fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
            device.last_state = Some(outcome.entered);
        }
    }

    fn replay(rows: &[&str]) -> Result<DecisionReplay, DecisionLogError> {
        let states = StateTable::new(&[IdleState::POLL, IdleState::new(1_000, 2_000)]).unwrap();
        let text = format!("{HEADER}\n{}\n", rows.join("\n"));
        replay_decisions(text.as_bytes(), &states, &mut Deepest)
    }

    const GOOD: [&str; 3] = [
        "1,5,9,9,0,7,0,0,1,1,0,0,30,1,25,40,0,0,1,25,x",
        // Refused: the fields that a poll left behind stay.
        "0,5,9,9,0,7,0,0,1,1,0,-22,30,-1,99,40,-1,0,1,25,x",
        "0,5,-9,-9,1,7,0,3,1,1,0,1,30,-1,0,40,1,1,1,25,x",
    ];

    #[test]
    fn keeps_poll_fields_over_rows_that_do_not_poll() {
        let expected = DecisionReplay { row_count: 3, mismatch_count: 0, first_mismatch: None };
        assert_eq!(replay(&GOOD).unwrap(), expected);
    }

    #[test]
    fn reports_the_first_of_several_mismatches() {
        let rows = [GOOD[0], &GOOD[1].replace("0,0,1,1,0,-22", "0,0,0,1,2,-22"), GOOD[1]];
        let rows = [rows[0], rows[1], &rows[2].replace("25,x", "26,x")];
        let replay = replay(&rows).unwrap();
        assert_eq!(replay.mismatch_count, 2);
        let first = replay.first_mismatch.unwrap();
        assert_eq!((first.row, first.line), (1, 3));
        assert_eq!((first.logged.state, first.logged.sleep_length_calls), (0, 2));
        assert_eq!((first.replayed.state, first.replayed.sleep_length_calls), (1, 0));
        assert!(first.inputs.contains(&("entered", -22)));
    }

    fn message(rows: &[&str]) -> String {
        replay(rows).unwrap_err().to_string()
    }

    #[test]
    fn says_where_a_log_is_broken_and_how() {
        let bad = GOOD[0].replace("40,0,0", "4O,0,0");
        assert_eq!(
            message(&[&bad]),
            "line 2, column 'clock_reflect_ns': '4O' is not a whole number"
        );
        let deep = GOOD[2].replace("0,3,1,1", "0,3,2,1");
        assert_eq!(
            message(&[GOOD[0], &deep]),
            "line 3, column 'state': no state 2 in a table of 2 states; is this the log's table?"
        );
        let flag = GOOD[0].replace("9,9,0,", "9,9,2,");
        assert_eq!(message(&[&flag]), "line 2, column 'tick_stopped': 2 is not in 0 to 1");
        assert!(message(&[GOOD[0], "1,2"]).starts_with("line 3: 2 fields where the header has 21"));
        assert!(message(&[GOOD[0], GOOD[0]]).starts_with("line 3, column 'enable': row 0 must"));
        assert!(message(&[]).starts_with("line 1: no rows"));
        let states = StateTable::new(&[IdleState::POLL]).unwrap();
        let error = replay_decisions(&b"enable,row\n"[..], &states, &mut Deepest).unwrap_err();
        assert!(error.to_string().starts_with("line 1: no column 'clock_select_ns'"));
    }

    #[test]
    fn takes_an_answer_beyond_the_table_for_the_deepest_state() {
        let states = StateTable::new(&[IdleState::POLL]).unwrap();
        let text = format!("{HEADER}\n{}\n", GOOD[0]);
        let replay = replay_decisions(text.as_bytes(), &states, &mut Deepest).unwrap();
        assert_eq!(replay.mismatch_count, 0);
    }

    #[test]
    fn reads_tables_and_names_what_is_wrong_with_them() {
        let read = |rows: &str| {
            let text =
                format!("polling,table,index,name,exit_latency_ns,target_residency_ns\n{rows}");
            DecisionTables::read(text.as_bytes())
        };
        let tables = read("1,a,0,POLL,0,0\n0,b-c,0,C1,1,2\n0,a,1,C1,1000,2000\n").unwrap();
        assert!(tables.names().eq(["a", "b-c"]));
        assert!(tables.get("a").unwrap().get(0).is_polling);
        assert_eq!(tables.get("a").unwrap().get(1).target_residency_ns, 2_000);
        let message = |rows| read(rows).unwrap_err().to_string();
        assert!(message("0,a,1,C1,1,2\n").starts_with("line 2, column 'index': state 0 of"));
        assert!(message("0,a,0,C1,-1,2\n").contains("column 'exit_latency_ns': -1 is not in 0 to"));
        assert!(message("0,a,0,C1,1,9\n0,a,1,C2,1,8\n").starts_with("table 'a': state 1 has"));
    }
}
