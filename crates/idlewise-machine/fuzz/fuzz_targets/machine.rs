//! Parses any text as a machine: it gives one line that says what is wrong, or a machine that a replay can
//! run on.
#![no_main]

use idlewise_machine::{Machine, MachineError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let machine = match Machine::from_toml(text) {
        Ok(machine) => machine,
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            return;
        }
    };
    match machine.table() {
        Ok(table) => assert_eq!(table.len(), machine.states.len()),
        Err(error) => assert!(matches!(error, MachineError::NoStates { .. })),
    }
    let is_power = |mw: f64| mw.is_finite() && mw >= 0.0;
    assert!(is_power(machine.running_power().mw));
    assert!(machine.powers().iter().all(|power| is_power(power.mw)));
    let _ = (machine.disabled_by_default(), machine.power_basis(), machine.doubts());
    for (index, state) in machine.states.iter().enumerate() {
        match machine.state_index(&state.name) {
            Ok(found) => assert_eq!(found, index),
            Err(error) => assert!(matches!(error, MachineError::AmbiguousState { .. })),
        }
        assert!(!machine.state_label(index).is_empty());
    }
});
