//! Reads any bytes as a decision log and as a file of tables: a valid result or a one-line error.
#![no_main]

use idlewise_core::{IdleState, StateTable, TimerOnly};
use idlewise_sim::decision_log::{DecisionTables, replay_decisions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match DecisionTables::read(bytes) {
        Ok(tables) => {
            for name in tables.names() {
                assert!(tables.get(name).is_some_and(|states| states.len() > 0));
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
    let poll_alone = StateTable::new(&[IdleState::POLL]).unwrap();
    // `spr` of conformance/decisions/tables.csv, which the seeds were recorded with.
    let spr = StateTable::new(&[
        IdleState::POLL,
        IdleState::new(1_000, 1_000),
        IdleState::new(2_000, 4_000),
        IdleState::new(290_000, 800_000),
    ])
    .unwrap();
    for states in [&poll_alone, &spr] {
        match replay_decisions(bytes, states, &mut TimerOnly::new(4_000_000)) {
            Ok(replay) => {
                assert!(replay.mismatch_count <= replay.row_count && replay.row_count > 0);
                assert_eq!(replay.first_mismatch.is_some(), replay.mismatch_count > 0);
                if let Some(first) = replay.first_mismatch {
                    assert!(first.row < replay.row_count && first.line > first.row);
                    assert_ne!(first.logged, first.replayed);
                }
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1),
        }
    }
});
