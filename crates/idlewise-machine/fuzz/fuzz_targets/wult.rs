//! Parses any bytes as a wult result: it gives one line that says what is wrong, or percentiles that a machine file may have.
#![no_main]

use idlewise_machine::{Machine, MachineState, WultResult};
use libfuzzer_sys::fuzz_target;

const INFO: &str = "toolname: wult\nformat_version: 1.3\n";

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = WultResult::read(text, &b"WakeLatency,ReqCState\n1,C6\n"[..]);
    }
    let result = match WultResult::read(INFO, bytes) {
        Ok(result) => result,
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            return;
        }
    };
    for state in &result.states {
        let mut known = MachineState::new("C6", 1, 1);
        known.exit_percentiles_us = state.percentiles_us();
        let is_long = known.exit_percentiles_us.iter().any(|[_, us]| *us > 86_400e6);
        let mut machine = Machine::default();
        machine.id = "m".to_owned();
        machine.states.push(known);
        assert!(is_long || machine.check().is_ok(), "{machine:?}");
        let _ = state.by_silence_us();
    }
});
