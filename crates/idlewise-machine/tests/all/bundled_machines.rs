//! Properties of every file in machines/.

use std::fs;
use std::path::PathBuf;

use idlewise_machine::{Basis, Machine, MachineError, MachineState};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines"))
}

/// The file name without its extension, and the text, of every machine file.
fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder()).expect("machines/ is there") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            files.push((stem, fs::read_to_string(path).unwrap()));
        }
    }
    files.sort();
    files
}

fn machines() -> Vec<Machine> {
    idlewise_machine::bundled_machines().collect()
}

fn machine(id: &str) -> Machine {
    idlewise_machine::bundled(id).unwrap()
}

#[test]
fn every_file_parses_and_is_named_by_its_id_and_source() {
    let files = files();
    assert!(files.len() >= 168, "{} files", files.len());
    for (name, text) in files {
        let machine = Machine::from_toml(&text)
            .unwrap_or_else(|error| panic!("machines/{name}.toml: {error}"));
        assert_eq!(machine.id, name);
        assert!(!machine.title.is_empty(), "{name}");
        let kinds = ["captured", "kernel table", "device tree", "paper"];
        assert!(kinds.contains(&machine.source.as_str()), "{name}: {}", machine.source);
        assert!(machine.source_ref.is_some_and(|source| !source.is_empty()), "{name}");
        assert!(text.starts_with("# "), "{name}: begin with what it is and where from");
    }
}

#[test]
fn the_crate_carries_every_file() {
    let carried: Vec<&str> = idlewise_machine::bundled_ids().collect();
    assert_eq!(carried, files().iter().map(|(name, _)| name).collect::<Vec<_>>());
    assert!(idlewise_machine::bundled("README").is_none());
}

#[test]
fn every_machine_is_the_same_after_writing_and_reading() {
    for machine in machines() {
        let json = serde_json::to_string(&machine).unwrap();
        let read: Machine = serde_json::from_str(&json).unwrap();
        assert_eq!(read, machine);
        assert_eq!(read.check(), Ok(()));
    }
}

#[test]
fn every_machine_but_cwf_has_a_table() {
    for machine in machines() {
        match machine.table() {
            Ok(table) => assert_eq!(table.len(), machine.states.len()),
            Err(error) => {
                assert_eq!(error, MachineError::NoStates { id: "cwf".to_owned() });
            }
        }
    }
}

#[test]
fn every_published_power_has_a_source() {
    for machine in machines() {
        let states = machine.states.iter().filter_map(MachineState::power_figure);
        for figure in states.chain(machine.running_power_figure()) {
            assert!(figure.source.is_some() && figure.kind.is_some(), "{}", machine.id);
        }
    }
}

#[test]
fn every_power_of_a_shared_state_has_a_source() {
    let mut count = 0;
    for machine in machines() {
        for state in machine.shared_states() {
            count += 1;
            let figure = state.power_figure();
            assert!(
                figure.is_none_or(|f| f.source.is_some() && f.kind.is_some()),
                "{}",
                machine.id
            );
        }
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn powers_fall_from_state_to_state() {
    for machine in machines() {
        let id = &machine.id;
        let mut shallower_mw = machine.running_power().mw;
        for (state, mw) in machine.states.iter().zip(powers_mw(&machine)) {
            if state.idle().is_polling {
                assert_eq!(mw, shallower_mw, "{id} {}", state.name);
            } else if shallower_mw > 0.0 {
                assert!(mw < shallower_mw, "{id} {}: {mw} mW after {shallower_mw} mW", state.name);
            } else {
                assert_eq!(mw, 0.0, "{id} {}", state.name);
            }
            shallower_mw = mw;
        }
    }
}

/// `e[i] = e[i-1] + (p[i-1] - p[i]) T[i]`, `e[0] = 0`: the energy of one transition in the cost model.
#[test]
fn transition_energies_are_never_negative() {
    for machine in machines() {
        let mut energy_uj = 0.0;
        let powers_mw = powers_mw(&machine);
        for (deeper, pair) in machine.states.iter().skip(1).zip(powers_mw.windows(2)) {
            let target_residency_s = deeper.target_residency_ns as f64 * 1e-9;
            energy_uj += (pair[0] - pair[1]) * 1e3 * target_residency_s;
            assert!(energy_uj >= 0.0, "{} {}: {energy_uj} uJ", machine.id, deeper.name);
        }
    }
}

#[test]
fn the_manuals_example_is_a_machine() {
    let manual = fs::read_to_string(folder().join("README.md")).unwrap();
    let (_, rest) = manual.split_once("```toml\n").expect("the manual has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let machine = Machine::from_toml(example).unwrap_or_else(|error| panic!("README.md: {error}"));
    assert_eq!(machine.powers()[3].basis, Basis::Measured);
}

fn powers_mw(machine: &Machine) -> Vec<f64> {
    machine.powers().iter().map(|power| power.mw).collect()
}

/// The name, exit latency and target residency of every state, in microseconds.
fn times_us(machine: &Machine) -> Vec<(&str, f64, f64)> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let states = machine.states.iter();
    states.map(|s| (&*s.name, us(s.exit_latency_ns), us(s.target_residency_ns))).collect()
}

#[test]
fn key_figures_survive_the_way_from_their_source() {
    assert_eq!(
        times_us(&machine("spr")),
        [("POLL", 0.0, 0.0), ("C1", 1.0, 1.0), ("C1E", 2.0, 4.0), ("C6", 290.0, 800.0)]
    );
    let milan = machine("milan");
    assert_eq!(times_us(&milan)[2], ("C2", 30.0, 60.0));
    assert_eq!(milan.states[2].io_port.as_deref(), Some("0x414"));
    assert_eq!(milan.topology.thread_count, Some(128));
    assert_eq!(times_us(&machine("spr-c02"))[1], ("C0.2", 0.2, 0.2));

    let power9 = machine("power9");
    assert_eq!(times_us(&power9)[8], ("stop11", 10_000.0, 100_000.0));
    assert_eq!(power9.disabled_by_default().bits(), 0b1_1000_0000);
    assert!(power9.states.iter().all(|state| !state.idle().is_auto_promoted));

    let promoted = machine("power9-stop0lite");
    let promoted: Vec<bool> = promoted.states.iter().map(|s| s.idle().is_auto_promoted).collect();
    assert_eq!(promoted, [false, true, false, false]);
}

#[test]
fn published_powers_are_taken_as_they_are() {
    for (id, running_mw, wfi_mw) in
        [("pixel6-a55", 127.65, 1.92), ("pixel6-a76", 146.82, 9.6), ("pixel6-x1", 613.51, 36.01)]
    {
        let machine = machine(id);
        assert_eq!(machine.running_power().mw, running_mw, "{id}");
        assert_eq!(machine.running_power().basis, Basis::Calibrated, "{id}");
        assert_eq!(powers_mw(&machine), [wfi_mw, 0.0], "{id}");
        assert_eq!(machine.power_basis(), Basis::Calibrated, "{id}");
    }
    for id in ["skx", "skx-table"] {
        let machine = machine(id);
        assert_eq!(powers_mw(&machine), [4000.0, 1440.0, 880.0, 100.0], "{id}");
        assert!(
            machine.doubts().iter().any(|doubt| doubt.to_string().contains("second-hand")),
            "{id}"
        );
    }
    assert_eq!(powers_mw(&machine("calxeda-highbank"))[1], 50.0);
    assert_eq!(machine("spr").power_basis(), Basis::Assumed);
}

#[test]
fn an_anonymous_machine_has_the_same_states_and_no_names() {
    for machine in machines() {
        let anonymous = machine.anonymous();
        let text = serde_json::to_string(&anonymous).unwrap();
        assert_eq!(anonymous.check(), Ok(()));
        assert_eq!(anonymous.running_power(), machine.running_power(), "{}", machine.id);
        assert_eq!(anonymous.powers(), machine.powers(), "{}", machine.id);
        assert_eq!(anonymous.states.len(), machine.states.len());
        for (a, b) in anonymous.states.iter().zip(&machine.states) {
            let what = |state: &MachineState| {
                (state.name.clone(), state.idle(), state.is_disabled_by_default)
            };
            assert_eq!(what(a), what(b), "{}", machine.id);
        }
        for name in [Some(&machine.id), Some(&machine.title), machine.model_name.as_ref()] {
            assert!(name.is_none_or(|name| !text.contains(name)), "{text}");
        }
        let figures = machine.states.iter().filter_map(MachineState::power_figure);
        for source in figures.filter_map(|figure| figure.source) {
            assert!(!text.contains(source), "{text}");
        }
    }
}
