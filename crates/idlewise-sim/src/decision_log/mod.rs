//! Decision logs record row by row what the governor of a real kernel decided. A replay checks that
//! our governor decides the same. `conformance/decisions/README.md` defines the format.
//!
//! ```text
//! row ─► inputs ─► select ─► compare state, stop_tick, sleep_length_calls
//!        feedback ─► reflect, unless refused ─► compare the three dev_ columns
//! ```
//!
//! The feedback always comes from the log. A governor that decides differently in one row therefore
//! gets the same next row, and only its own history can mislead it from there on. The state that
//! governor and idle loop share ([`Device`]) is ours for the whole log, so an error in it stays
//! visible.
//!
//! A kernel may return a state beyond its table: with one state, `haltpoll` returns 1. Our
//! governors never do. Therefore a result beyond the table counts as the deepest state.
//!
//! This module does not open or decompress files, and does not know governors by name.

mod error;
mod lines;
mod row;
mod tables;

use std::io::BufRead;

use idlewise_core::{
    Context, Decision, Device, Governor, Outcome, SleepLength, StateIndex, StateTable,
};

pub use error::DecisionLogError;
use lines::Lines;
use row::{Columns, Row};
pub use tables::DecisionTables;

/// The result of comparing a governor with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionReplay {
    /// Rows read.
    pub row_count: u64,
    /// Rows with any difference.
    pub mismatch_count: u64,
    /// The first of those.
    pub first_mismatch: Option<DecisionMismatch>,
}

/// A row in which the results differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionMismatch {
    /// The row's number, from 0.
    pub row: u64,
    /// Its line in the file, from 1; the header is line 1.
    pub line: u64,
    /// Every input and feedback column with its value, in a fixed order.
    pub inputs: Vec<(&'static str, i128)>,
    /// What the log contains.
    pub logged: DecisionAnswer,
    /// What our governor returned.
    pub replayed: DecisionAnswer,
}

/// Everything in a row that can be compared.
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
    /// Returns every compared column with its value, under its name in the log.
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

/// Replays a log line by line through a new `governor`. Memory does not grow with the log.
///
/// # Errors
/// Returns the first error in the log and its location. A mismatch is a result, not an error.
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

/// Replays a row, in the order that the log's README gives.
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
    // The flag persists between rows: states that do not poll leave it unchanged.
    if let Some(poll_time_limit) = row.poll_time_limit {
        device.poll_time_limit = poll_time_limit;
    }
    if device.poll_limit_ns == 0 {
        device.poll_limit_ns = row.poll_limit_init_ns;
    }
    if let Some(entered) = row.entered {
        device.last_residency_ns = row.residency_ns;
        let got_tick = row.got_tick_seen;
        let now_ns = row.clock_reflect_ns;
        governor.reflect(&Outcome { entered, is_overruled: false, got_tick, now_ns }, device);
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
    /// The answer, with a state beyond the table replaced by the deepest.
    fn within(self, states: &StateTable) -> Self {
        DecisionAnswer { state: self.state.min(states.deepest()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::IdleState;

    use super::*;

    const HEADER: &str = "enable,clock_select_ns,sleep_length_ns,delta_next_ns,tick_stopped,\
        latency_req_ns,iowaiters,disabled_mask,state,stop_tick,sleep_length_calls,entered,\
        residency_ns,poll_time_limit,poll_limit_init_ns,clock_reflect_ns,got_tick_seen,\
        dev_last_state_idx,dev_poll_time_limit,dev_poll_limit_ns,note";

    /// Selects the deepest state and never reads the timers.
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
        // Refused: the fields keep the values from the last poll.
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
