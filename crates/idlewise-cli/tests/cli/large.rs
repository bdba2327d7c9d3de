//! Machines with hundreds of CPUs: an AMD server with 256, Intel servers with 224 and 576, made of the few CPUs of captured
//! ones.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use idlewise_host::Root;
use idlewise_host::ipi::StateWish;
use idlewise_host::settings::Owner;
use idlewise_host::states::{EnergyPlan, EnergyWishes, Worked, Workers, measure_energy};

use crate::captured::{CapturedMachine, More, state_file};
use crate::measure_states::Silent;
use crate::settings::files_below;
use crate::{folder, idlewise, json, stdout};

fn path(machine: &CapturedMachine) -> &str {
    machine.path().to_str().unwrap()
}

/// The contents of all files of sysfs.
fn sysfs(machine: &CapturedMachine) -> Vec<(PathBuf, String)> {
    files_below(&machine.path().join("sys"))
}

fn settings(machine: &CapturedMachine, line: &str) -> (Option<i32>, String) {
    let mut arguments = vec!["set"];
    arguments.extend(line.split_whitespace());
    arguments.extend(["--sysroot", path(machine)]);
    let output = idlewise(&arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// A server, and its deepest state.
fn serves(machine: &CapturedMachine, cpu_count: u16, deepest: &str) {
    settings_are_given_back(machine, cpu_count, deepest);
    measurements_are_planned(machine, cpu_count, deepest);
    why_and_watch_have_all_cpus(machine, cpu_count, deepest);
}

#[test]
fn an_amd_server_with_256_cpus() {
    serves(&CapturedMachine::grown("server-genoa", 256), 256, "C2");
}

#[test]
fn an_intel_server_with_576_cpus() {
    serves(&CapturedMachine::grown("server-ice-lake", 576), 576, "C6");
}

fn settings_are_given_back(machine: &CapturedMachine, cpu_count: u16, deepest: &str) {
    let before = sysfs(machine);
    let limits = format!("latency=9us@0-{}", cpu_count - 1);
    let applied =
        settings(machine, &format!("apply --set {deepest}=off --set C1=off --set {limits}"));
    assert_eq!(applied.0, Some(0), "{}", applied.1);
    let count = 3 * usize::from(cpu_count);
    assert!(applied.1.contains(&format!("{count} files changed")), "{}", applied.1);
    let status = settings(machine, "status");
    assert!(status.1.contains(&format!("disable 0 ({} files)", count / 3 * 2)), "{}", status.1);
    let reverted = settings(machine, "revert");
    assert_eq!(reverted.0, Some(0), "{}", reverted.1);
    assert!(sysfs(machine) == before, "{cpu_count} CPUs are not as they were");
    assert!(!machine.path().join("run/idlewise/journal.json").exists());
}

fn measurements_are_planned(machine: &CapturedMachine, cpu_count: u16, deepest: &str) {
    for what in ["power", "residency"] {
        let arguments = ["measure", what, "--sysroot", path(machine), "--dry-run"];
        let text = stdout(&arguments).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("Would hold CPUs 0-{} in ", cpu_count - 1)), "{text}");
        assert!(text.contains(deepest), "{text}");
    }
    let plan = crate::hybrid::plan(machine, "states");
    let alike = &plan["targets"][0]["alike"];
    assert_eq!(alike.as_array().unwrap().len(), usize::from(cpu_count), "{plan}");
}

fn why_and_watch_have_all_cpus(machine: &CapturedMachine, cpu_count: u16, deepest: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["why", "--json", "--sysroot", path(machine)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::why::wait_until_it_watches(&mut child);
    let last = if deepest == "C2" { 2 } else { 3 };
    let busy = More { usage: 18_400, time_us: 5_000_000, above: 5_704, ..More::default() };
    machine.count(&format!("0-{}", cpu_count - 1), last, busy);
    machine.pass(10.0);
    let output = child.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups = document["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1, "{document}");
    assert_eq!(groups[0]["cpu_count"], cpu_count);
    assert_eq!(document["findings"][0]["state"], deepest);
    let arguments = ["watch", "--once", "--interval", "0.05", "--group", "package", "--sysroot"];
    let text = stdout(&[&arguments[..], &[path(machine)]].concat());
    assert!(text.contains(&format!("{cpu_count} CPUs")), "{text}");
    assert!(text.contains("package 0") && text.contains("package 1"), "{text}");
}

/// A limit on open files is raised by whoever may, and is said to the others.
#[test]
fn a_limit_on_open_files_is_no_wall_for_root() {
    let machine = CapturedMachine::grown("server-ice-lake", 64);
    let limited = |script: &str| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n 256 && {script}");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_idlewise"), path(&machine)]);
        shell.output().unwrap()
    };
    let may_raise = limited("ulimit -n 4096").status.success();
    let output = limited("exec \"$0\" why --duration 0.1 --sysroot \"$1\"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), may_raise, "{said}");
    assert!(may_raise || said.contains("raise the limit with `ulimit -n`"), "{said}");
}

/// Six commands at once, each with its holder.
#[test]
fn six_at_once_are_given_back() {
    let machine = CapturedMachine::grown("server-ice-lake", 64);
    let before = sysfs(&machine);
    std::thread::scope(|scope| {
        for us in 1..=6 {
            let machine = &machine;
            scope.spawn(move || {
                let line = format!(
                    "apply --set C6=off --set C1E=off --set latency={us}us@0-63 --expires 1h"
                );
                let (status, text) = settings(machine, &line);
                assert_eq!(status, Some(0), "{text}");
            });
        }
    });
    let status = json(&["set", "status", "--sysroot", path(&machine), "--json"]);
    assert_eq!(status["sessions"].as_array().unwrap().len(), 6, "{status}");
    assert!(status["sessions"].as_array().unwrap().iter().all(|one| one["is_held"] == true));
    assert_eq!(machine.text("sys/devices/system/cpu/cpu63/power/pm_qos_resume_latency_us"), "1");
    let (status, text) = settings(&machine, "revert --all");
    assert_eq!(status, Some(0), "{text}");
    assert!(sysfs(&machine) == before, "not as it was");
}

#[test]
fn quiet_runs_on_all_cpus_and_gives_them_back() {
    let machine = CapturedMachine::grown("server-ice-lake", 384);
    machine.write("proc/self/status", "Cpus_allowed_list:\t0-383\n");
    let before = sysfs(&machine);
    let output = idlewise(&[
        "set",
        "quiet",
        "--look",
        "0",
        "--sysroot",
        path(&machine),
        "--cpus",
        "0-383",
        "--",
        "true",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(sysfs(&machine) == before, "{said}");
}

/// CPUs that enter the one state that is enabled, and draw 1 W each.
struct Model<'a> {
    machine: &'a CapturedMachine,
    energy_uj: u64,
}

impl Workers for Model<'_> {
    fn work(&mut self, cpus: &[u16], _: Option<u64>, slice_ns: u64) -> Worked {
        for cpu in cpus {
            let is_enabled =
                |state: &usize| self.machine.text(&state_file(*cpu, *state, "disable")) == "0";
            let enabled: Vec<usize> = (0..3).filter(is_enabled).collect();
            let [state] = enabled[..] else {
                panic!("CPU {cpu}: one state is enabled, not {enabled:?}")
            };
            let more = More { usage: 1, time_us: slice_ns / 1_000, ..More::default() };
            self.machine.count(&cpu.to_string(), state, more);
        }
        self.energy_uj += cpus.len() as u64 * slice_ns / 1_000;
        let counter = format!("{}\n", self.energy_uj / 2);
        for package in 0..2 {
            let file = format!("sys/class/powercap/intel-rapl:{package}/energy_uj");
            self.machine.write(&file, &counter);
        }
        Worked { elapsed_ns: slice_ns, wake_count: cpus.len() as u64 }
    }
}

/// States are forced on all of 256 CPUs, and given back.
#[test]
fn power_is_measured_on_256_cpus() {
    let machine = CapturedMachine::grown("server-genoa", 256);
    for package in 0..2 {
        let file = |name: &str| format!("sys/class/powercap/intel-rapl:{package}/{name}");
        machine.write(&file("name"), &format!("package-{package}\n"));
        machine.write(&file("energy_uj"), "0\n");
        machine.write(&file("max_energy_range_uj"), "65532610987\n");
    }
    let disabled = |machine: &CapturedMachine| -> Vec<String> {
        let of = |cpu: u16| (0..3).map(move |state| state_file(cpu, state, "disable"));
        (0..256).flat_map(of).map(|file| machine.text(&file)).collect()
    };
    let before = disabled(&machine);
    let root = Root::at(machine.path());
    let wishes = EnergyWishes {
        states: StateWish::Named(["C1", "C2"].map(str::to_owned).to_vec()),
        intervals_ns: vec![None],
        slice_ns: 50_000_000,
        round_count: 1,
    };
    let plan = EnergyPlan::new(&root, &wishes).unwrap();
    assert_eq!(plan.cpus.len(), 256);
    let mut model = Model { machine: &machine, energy_uj: 0 };
    let owner = Owner::running("idlewise measure power");
    let (_, slices) = measure_energy(&root, &plan, &owner, &mut model, &Silent).unwrap();
    assert_eq!(slices.len(), 2);
    assert!(
        slices.iter().all(|slice| slice.other_count == 0 && slice.entry_count == 256),
        "{slices:?}"
    );
    assert_eq!(disabled(&machine), before);
}

/// A recording of 256 CPUs, by a simulated server.
#[test]
fn advise_judges_a_recording_of_256_cpus() {
    let folder = folder();
    let log = folder.path().join("run.parquet");
    let log = log.to_str().unwrap();
    let line = format!(
        "lab simulate spr periodic --set package_count=2 --set core_count=64 --set thread_count=2 --duration-ms 30 \
         --governor menu --trace {log} --json"
    );
    json(&line.split_whitespace().collect::<Vec<_>>());
    let advice = json(&["advise", log, "--slo", "p99=50us", "--json"]);
    assert_eq!(advice["cpus"], "0-255", "{advice}");
}
