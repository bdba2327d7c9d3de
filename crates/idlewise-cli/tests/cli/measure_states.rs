//! `idlewise measure states`, `measure residency` and `measure power` on captured machines: their plans, what
//! they refuse, and the energy model from end to end. `kernel/tests/states` measures known times in real
//! kernels, and the tests of `idlewise-host` what is counted and what is not.

use std::fs;

use idlewise_host::Root;
use idlewise_host::ipi::{StateWish, Watch};
use idlewise_host::settings::Owner;
use idlewise_host::states::{EnergyPlan, EnergyWishes, Worked, Workers, measure_energy};
use idlewise_report::residency::{Slice, SweptState, residencies};

use crate::captured::{CapturedMachine, More, names, state_file};
use crate::{WIDTH, assert_refused, failure, folder, idlewise, root, schemas, stdout};

/// The arguments of a command on a machine.
fn on<'a>(machine: &'a CapturedMachine, what: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["measure", what, "--sysroot", machine.path().to_str().unwrap()], more].concat()
}

/// All files that a measurement may write, with their contents.
fn disabled(machine: &CapturedMachine) -> Vec<(u16, usize, String)> {
    let mut found = Vec::new();
    for cpu in 0..300 {
        for state in 0..10 {
            let file = state_file(cpu, state, "disable");
            if machine.path().join(&file).exists() {
                found.push((cpu, state, machine.text(&file)));
            }
        }
    }
    found
}

#[test]
fn plans_for_each_captured_machine_are_as_written_down_and_change_nothing() {
    let mut text = String::new();
    let names = names();
    assert!(names.len() >= 12);
    for name in &names {
        let machine = CapturedMachine::unpack(name);
        let before = disabled(&machine);
        text.push_str(&format!("== {name}\n"));
        for what in ["states", "residency"] {
            let output = idlewise(&on(&machine, what, &["--dry-run"]));
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            assert!(
                said.lines().all(|line| line.chars().count() <= WIDTH || !output.status.success())
            );
            text.push_str(&said);
            if output.status.success() {
                let document = idlewise(&on(&machine, what, &["--dry-run", "--json"])).stdout;
                let document = serde_json::from_slice(&document).unwrap();
                schemas::assert_valid(&format!("measure-{what}-plan"), &document);
            }
        }
        assert_eq!(disabled(&machine), before, "{name}");
    }
    let file = root().join("crates/idlewise-cli/tests/golden/measure-states-plans.txt");
    if std::env::var_os("IDLEWISE_GOLDEN").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    assert_eq!(text, expected, "run `make golden` and look at the difference");
}

/// The CPUs of the package that has a counter, and the files; and that there is no counter at all.
#[test]
fn a_plan_of_energy_has_cpus_files_and_what_is_not_counted() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let _ = fs::remove_dir_all(machine.path().join("sys/class/powercap"));
    let plan = |what: &str| {
        let text = stdout(&on(&machine, what, &["--dry-run"]));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for what in ["residency", "power"] {
        let text = plan(what);
        assert!(
            text.starts_with("Would hold CPUs 0-3,72-75 in POLL, C1, C1E, C6 in turn"),
            "{text}"
        );
        assert!(text.contains("- this machine shows no energy counter: no RAPL"), "{text}");
    }
    for cpu in [0, 1, 2, 3, 72, 73, 74, 75] {
        let package = u8::from(cpu % 2 == 1);
        machine.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
            &format!("{package}\n"),
        );
    }
    machine.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "12345\n");
    let text = plan("power");
    assert!(text.starts_with("Would hold CPUs 0,2,72,74 in POLL"), "{text}");
    let files = format!(
        "Would write and put back: 16 files, /{} to /{}",
        state_file(0, 0, "disable"),
        state_file(74, 3, "disable")
    );
    assert!(text.contains(&files), "{text}");
    let doubt = "- package 1 has no energy counter: CPUs 1,3,73,75 were left alone, and no figure is theirs";
    assert!(text.contains(doubt), "{text}");
    let document = stdout(&on(&machine, "power", &["--dry-run", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    schemas::assert_valid("measure-power-plan", &document);
    assert_eq!(document["plan"]["files"][15], state_file(74, 3, "disable"));
}

#[test]
fn what_cannot_be_measured_is_one_line_that_says_what_to_do() {
    let guest = CapturedMachine::unpack("vm-no-driver");
    for what in ["states", "residency", "power"] {
        assert_refused(
            &on(&guest, what, &[]),
            &["this virtual machine has no cpuidle driver", "measure ipi --by user-space"],
        );
    }
    let machine = CapturedMachine::unpack("server-ice-lake");
    assert_refused(&on(&machine, "states", &["--target", "999"]), &["CPU 999 is not online"]);
    assert_refused(&on(&machine, "states", &["--source", "1", "--target", "1"]), &["both CPU 1"]);
    assert_refused(&on(&machine, "states", &["--state", "C9"]), &["no idle state C9", "POLL"]);
    assert_refused(&on(&machine, "states", &["--state", "POLL"]), &["only POLL"]);
    assert_refused(&on(&machine, "states", &["--state", "configured"]), &["in no state"]);
    assert_refused(&on(&machine, "states", &["-o", "/nowhere/m.toml"]), &["/nowhere"]);
    assert_refused(&on(&machine, "residency", &["--interval-us", "100"]), &["one interval"]);
    assert_refused(&on(&machine, "power", &["--state", "configured"]), &["in no state"]);
    assert_refused(
        &on(&machine, "power", &["--machine", "pixel6-x1", "-o", "m.toml"]),
        &["pixel6-x1: its states are", "leave out --machine"],
    );
    // One thing that cannot be written, and nothing is.
    fs::remove_file(machine.path().join(state_file(1, 0, "disable"))).unwrap();
    let before = disabled(&machine);
    let refused = failure(&on(&machine, "states", &["--source", "0", "--target", "1"]));
    assert_eq!(refused.0, Some(2));
    assert!(refused.1.contains("nothing was changed"), "{}", refused.1);
    assert_eq!(disabled(&machine), before);
}

#[test]
fn energy_that_cannot_be_counted_is_one_line_that_says_what_to_do() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let zone = "sys/class/powercap/intel-rapl:0";
    let _ = fs::remove_dir_all(machine.path().join("sys/class/powercap"));
    let before = disabled(&machine);
    for what in ["residency", "power"] {
        assert_refused(&on(&machine, what, &[]), &["no RAPL", "no battery"]);
    }
    machine.write(&format!("{zone}/name"), "package-0\n");
    machine.write(&format!("{zone}/energy_uj"), "12345\n");
    machine.write(&format!("{zone}/max_energy_range_uj"), "262143328850\n");
    let short = ["--rounds", "1", "--slice-ms", "50", "--state", "C1,C6"];
    assert_refused(&on(&machine, "power", &short), &["did not move"]);
    machine.write(&format!("{zone}/energy_uj"), "-5\n");
    assert_refused(
        &on(&machine, "power", &short),
        &["energy_uj: expected a whole number, found '-5'"],
    );
    assert_eq!(disabled(&machine), before);
}

/// The files say that CPU 0 is busy, whatever this machine's does.
#[test]
fn a_busy_machine_is_refused() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    // A reader finds either the whole file or the next one.
    let ticks = |busy: u64| {
        machine.write("proc/stat.new", &format!("cpu0 {busy} 0 0 1000 0 0 0 0\n"));
        fs::rename(machine.path().join("proc/stat.new"), machine.path().join("proc/stat")).unwrap();
    };
    ticks(0);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(on(&machine, "states", &["--source", "0"]));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut busy = 0;
    while child.try_wait().unwrap().is_none() {
        busy += 1;
        ticks(busy);
        std::thread::yield_now();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("CPU 0 was busy for 100 %") && said.contains("--busy"), "{said}");
}

/// This machine's CPUs are woken, and the files never count a stay: so no wake out of a state counts.
#[test]
fn states_that_are_not_entered_are_given_up_and_the_rest_is_printed() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: states_that_are_not_entered_are_given_up: it needs two CPUs");
        return;
    }
    let machine = CapturedMachine::unpack("server-ice-lake");
    let _ = fs::remove_file(machine.path().join("proc/stat"));
    let before = disabled(&machine);
    let folder = folder();
    let file = folder.path().join("m.toml");
    let arguments = on(&machine, "states", &["--source", "0", "--target", "1", "--count", "10"]);
    let more = ["-o", file.to_str().unwrap(), "--json"];
    let output = idlewise(&[&arguments[..], &more].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("no wake can be used"), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let drops = document["drops"].as_array().unwrap();
    let given_up = |one: &&serde_json::Value| one["is_given_up"] == true;
    assert!(drops.iter().filter(given_up).count() >= drops.len() - 1, "{drops:#?}");
    assert!(document["doubts"].to_string().contains("was given up after 0 wakes and"));
    assert_eq!(disabled(&machine), before);
    // What was not measured stays the kernel's, and the file says so.
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("source = \"measured\"") && text.contains("not measured"), "{text}");
    let shown = crate::stdout(&["machines", file.to_str().unwrap()]);
    assert!(shown.contains("C6"), "{shown}");
}

/// Watches a measurement to its end, which has no warnings.
pub struct Silent;

impl Watch for Silent {
    fn wakes(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        false
    }

    fn warn(&self, message: &str) {
        panic!("{message}");
    }
}

/// A machine whose CPUs draw and spend what only this model knows, in the model's own time. Its counter
/// wraps after 40 J.
struct HiddenModel<'a> {
    machine: &'a CapturedMachine,
    energy_uj: f64,
    slice: u64,
}

const RANGE_UJ: u64 = 40_000_000;
const POWER_MW: [f64; 4] = [3_900.0, 1_400.0, 900.0, 100.0];
const WAKE_UJ: [f64; 4] = [5.0, 8.0, 23.0, 455.0];

impl Workers for HiddenModel<'_> {
    fn work(&mut self, cpus: &[u16], interval_ns: Option<u64>, slice_ns: u64) -> Worked {
        let is_enabled =
            |state: &usize| self.machine.text(&state_file(cpus[0], *state, "disable")) == "0";
        let enabled: Vec<usize> = (0..4).filter(is_enabled).collect();
        let [state] = enabled[..] else { panic!("one state is enabled, not {enabled:?}") };
        let wake_count = slice_ns / interval_ns.unwrap_or(slice_ns);
        for cpu in cpus {
            let time_us = slice_ns / 1_000;
            self.machine.count(
                &cpu.to_string(),
                state,
                More { usage: wake_count, time_us, ..More::default() },
            );
        }
        self.slice += 1;
        let noise = 1.0 + ((self.slice * 37) % 21) as f64 * 1e-4 - 1e-3;
        let per_cpu = POWER_MW[state] * 1e-6 * slice_ns as f64 + WAKE_UJ[state] * wake_count as f64;
        // The rest of the package draws 6 W whatever the CPUs do.
        self.energy_uj += (per_cpu * cpus.len() as f64 + 6e-3 * slice_ns as f64) * noise;
        let counter = self.energy_uj as u64 % (RANGE_UJ + 1);
        self.machine.write("sys/class/powercap/intel-rapl:0/energy_uj", &format!("{counter}\n"));
        Worked { elapsed_ns: slice_ns, wake_count: wake_count * cpus.len() as u64 }
    }
}

#[test]
fn a_hidden_models_break_evens_are_found_again() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    machine.set_online("0-1");
    machine.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "0\n");
    machine.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", &format!("{RANGE_UJ}\n"));
    let root = Root::at(machine.path());
    let intervals_ns = [50_000, 200_000, 800_000, 3_000_000].map(Some).to_vec();
    let wishes = EnergyWishes {
        states: StateWish::Named(["POLL", "C1", "C1E", "C6"].map(str::to_owned).to_vec()),
        intervals_ns: intervals_ns.clone(),
        slice_ns: 600_000_000,
        round_count: 9,
    };
    let plan = EnergyPlan::new(&root, &wishes).unwrap();
    let owner = Owner::running("idlewise measure residency");
    let mut model = HiddenModel { machine: &machine, energy_uj: 0.0, slice: 0 };
    let (_, slices) = measure_energy(&root, &plan, &owner, &mut model, &Silent).unwrap();
    assert!(model.energy_uj > 10.0 * RANGE_UJ as f64, "the counter has wrapped often");
    let slices: Vec<Slice> = slices
        .iter()
        .map(|slice| Slice {
            round: slice.round,
            state: slice.state,
            interval: intervals_ns.iter().position(|one| *one == slice.interval_ns).unwrap(),
            elapsed_ns: slice.worked.elapsed_ns,
            energy_uj: slice.energy_uj[0],
            wake_count: slice.worked.wake_count,
            entry_count: slice.entry_count,
            other_count: slice.other_count,
            in_state_ns: slice.in_state_ns,
        })
        .collect();
    let swept: Vec<SweptState> = plan
        .table
        .iter()
        .map(|state| SweptState { name: state.name.clone(), target_residency_ns: 0 })
        .collect();
    let found = residencies(&swept, &slices);
    for deep in 1..4 {
        let truth =
            (WAKE_UJ[deep] - WAKE_UJ[deep - 1]) / (POWER_MW[deep - 1] - POWER_MW[deep]) * 1e6;
        let figure = found[deep].break_even_ns;
        let (value, [low, high]) = (figure.value.unwrap(), figure.interval.unwrap());
        let (name, error) = (&found[deep].state, (value / truth - 1.0).abs());
        assert!(error < 0.05, "{name}: {value} where the model has {truth}");
        assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
    }
}
