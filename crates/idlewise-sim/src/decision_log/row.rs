//! The columns of a log, and the contents of a row.

use std::io::BufRead;

use idlewise_core::{DisabledMask, StateIndex, StateTable};

use super::lines::{Column, Lines};
use super::{DecisionAnswer, DecisionLogError};

/// One validated row of a log.
pub(super) struct Row {
    pub(super) enable: bool,
    pub(super) clock_select_ns: u64,
    pub(super) sleep_length_ns: i64,
    pub(super) delta_next_ns: i64,
    pub(super) tick_stopped: bool,
    pub(super) latency_req_ns: i64,
    pub(super) iowaiters: u32,
    pub(super) disabled: DisabledMask,
    /// `None` if the driver refused.
    pub(super) entered: Option<StateIndex>,
    /// The log's value for `entered`. A negative value is an error number.
    pub(super) entered_or_error: i64,
    pub(super) residency_ns: u64,
    /// `None` if it was left unchanged.
    pub(super) poll_time_limit: Option<bool>,
    pub(super) poll_limit_init_ns: u64,
    pub(super) clock_reflect_ns: u64,
    /// What the governor was told about the tick. Not always the row's own `got_tick`.
    pub(super) got_tick_seen: bool,
    pub(super) logged: DecisionAnswer,
}

impl Row {
    pub(super) fn read<R: BufRead>(
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
            // Bits beyond the table have no meaning.
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

    /// The inputs and the feedback, under their names in the log.
    pub(super) fn inputs(&self) -> Vec<(&'static str, i128)> {
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

/// Columns of the same names as its fields.
macro_rules! columns {
    [$($name:ident),+ $(,)?] => {
        /// The place of each column. Unknown columns, and those that only label rows, are ignored.
        pub(super) struct Columns {
            $(pub(super) $name: Column,)+
        }

        impl Columns {
            pub(super) fn find<R: BufRead>(lines: &Lines<R>) -> Result<Self, DecisionLogError> {
                Ok(Columns { $($name: lines.column(stringify!($name))?,)+ })
            }
        }
    };
}

columns![
    enable,
    clock_select_ns,
    sleep_length_ns,
    delta_next_ns,
    tick_stopped,
    latency_req_ns,
    iowaiters,
    disabled_mask,
    state,
    stop_tick,
    sleep_length_calls,
    entered,
    residency_ns,
    poll_time_limit,
    poll_limit_init_ns,
    clock_reflect_ns,
    got_tick_seen,
    dev_last_state_idx,
    dev_poll_time_limit,
    dev_poll_limit_ns,
];
