//! Decision logs and files of tables that cannot be used. Each is
//! `tests/malformed/decision_log/<reason>.csv` and must fail with its one-line message. Fuzz finds
//! are among them.

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_core::{IdleState, StateTable, TimerOnly};
use idlewise_sim::decision_log::{DecisionTables, replay_decisions};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/decision_log")
}

fn replay(file: &str) -> String {
    let states = StateTable::new(&[
        IdleState::POLL,
        IdleState::new(1_000, 1_000),
        IdleState::new(2_000, 4_000),
        IdleState::new(290_000, 800_000),
    ])
    .unwrap();
    let log = fs::read(folder().join(file)).unwrap();
    let replay = replay_decisions(log.as_slice(), &states, &mut TimerOnly::new(4_000_000));
    replay.expect_err(file).to_string()
}

fn tables(file: &str) -> String {
    let tables = fs::read(folder().join(file)).unwrap();
    DecisionTables::read(tables.as_slice()).expect_err(file).to_string()
}

#[test]
fn a_field_of_several_lines_is_shown_on_one() {
    assert_eq!(
        replay("number_of_four_lines.csv"),
        "line 3, column 'clock_select_ns': '1279928803,61789172,71197,0,200000000000…' is not a \
         whole number"
    );
    assert_eq!(
        tables("tables_name_of_two_lines.csv"),
        "line 2, column 'index': state 0 of table 'spr\\u{a}fast' should be here; number a table's \
         states from 0"
    );
    let message = tables("tables_polling_late.csv");
    assert!(message.starts_with("table 'spr\\u{d}\\u{a}fast': state 1 "), "{message}");
}
