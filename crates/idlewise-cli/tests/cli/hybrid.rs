//! Machines with cores of several kinds that have the same idle states.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::captured::{CapturedMachine, More};
use crate::{idlewise, schemas};

/// A laptop with twelve P threads, eight E cores and two low-power E cores, all with the same table.
fn meteor_lake() -> CapturedMachine {
    let machine = CapturedMachine::from_tree(
        "\
== sys/devices/system/cpu/online
0-21
== sys/devices/system/cpu/present
0-21
== sys/devices/system/cpu/cpuidle/current_driver
intel_idle
== sys/devices/system/cpu/cpuidle/current_governor
menu
== proc/uptime
1000.00 0.00
== sys/devices/cpu_core/cpus
0-11
== sys/devices/cpu_atom/cpus
12-19
== sys/devices/cpu_lowpower/cpus
20-21
== @cpuidle 0-21
name | desc       | latency | residency | disable | usage | time | above | below | rejected
POLL | CORE POLL  | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
C1E  | MWAIT 0x01 | 1       | 1         | 0       | 7     | 70   | 0     | 3     | 0
C6   | MWAIT 0x20 | 140     | 420       | 0       | 7     | 70   | 0     | 3     | 0
C10  | MWAIT 0x60 | 310     | 930       | 0       | 9     | 9000 | 1     | 0     | 0
",
    );
    for cpu in 0..12 {
        let siblings = format!("{},{}\n", cpu / 2 * 2, cpu / 2 * 2 + 1);
        machine.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            &siblings,
        );
    }
    machine
}

fn path(machine: &CapturedMachine) -> &str {
    machine.path().to_str().unwrap()
}

/// What `measure WHAT` would do.
pub fn plan(machine: &CapturedMachine, what: &str) -> Value {
    let arguments = ["measure", what, "--sysroot", path(machine), "--dry-run", "--json"];
    let document: Value = serde_json::from_slice(&idlewise(&arguments).stdout).unwrap();
    schemas::assert_valid(&format!("measure-{what}-plan"), &document);
    document["plan"].clone()
}

/// The CPUs that `measure states` would hold, and their kinds.
fn held(machine: &CapturedMachine) -> Vec<(u64, Option<String>)> {
    let plan = plan(machine, "states");
    let targets = plan["targets"].as_array().unwrap();
    let target = |target: &Value| {
        (target["target"].as_u64().unwrap(), target["core"].as_str().map(str::to_owned))
    };
    targets.iter().map(target).collect()
}

#[test]
fn each_kind_of_core_is_measured() {
    let machine = meteor_lake();
    let kind = |name: &str| Some(name.to_owned());
    assert_eq!(
        held(&machine),
        [(2, kind("P core")), (12, kind("E core")), (20, kind("LP-E core"))]
    );
    let text = idlewise(&["measure", "states", "--sysroot", path(&machine), "--dry-run"]).stdout;
    let text = String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("CPU 20, LP-E core"), "{text}");
    assert!(text.contains("2 CPUs have its table and kind of core"), "{text}");
    let alder_lake = CapturedMachine::unpack("laptop-alder-lake");
    assert_eq!(held(&alder_lake), [(1, kind("P core")), (8, kind("E core"))]);
    // Without the files that say so, all are alike.
    std::fs::remove_dir_all(machine.path().join("sys/devices/cpu_core")).unwrap();
    std::fs::remove_dir_all(machine.path().join("sys/devices/cpu_atom")).unwrap();
    std::fs::remove_dir_all(machine.path().join("sys/devices/cpu_lowpower")).unwrap();
    assert_eq!(held(&machine), [(2, None)]);
    assert_eq!(held(&CapturedMachine::unpack("server-genoa")), [(1, None)]);
}

/// The energy is that of all CPUs that have the states, so all are held.
#[test]
fn energy_is_measured_with_all_kinds_held() {
    let machine = meteor_lake();
    let plan = plan(&machine, "power");
    assert_eq!(plan["cpus"].as_array().unwrap().len(), 22, "{plan}");
}

#[test]
fn why_keeps_kinds_apart_even_if_they_behave_alike() {
    let machine = meteor_lake();
    // CPU 11 is in two lists.
    machine.write("sys/devices/cpu_atom/cpus", "11-19\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["why", "--json", "--sysroot", path(&machine)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::why::wait_until_it_watches(&mut child);
    machine.count("0-21", 3, More { usage: 10_000, time_us: 6_000_000, ..More::default() });
    machine.pass(10.0);
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::assert_valid("why", &document);
    let group = |group: &Value| {
        (group["cpus"].as_str().unwrap().to_owned(), group["core"].as_str().unwrap().to_owned())
    };
    let groups: Vec<_> = document["groups"].as_array().unwrap().iter().map(group).collect();
    let expected = [("0-11", "P core"), ("12-19", "E core"), ("20-21", "LP-E core")];
    assert_eq!(groups, expected.map(|(cpus, core)| (cpus.to_owned(), core.to_owned())));
    assert!(document["findings"].to_string().contains("C10 on CPUs 0-11 (P core): "), "{document}");
    assert!(document["doubts"].to_string().contains("CPU 11 is in two lists"), "{document}");
}
