//! `idlewise doctor` on captured machines: each row turns where the machine lacks what it needs, and turns back when
//! what the row proposes is done. Nothing is ever changed.

mod lacks;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use self::lacks::{Lack, lacks};
use crate::captured::{self, CapturedMachine};
use crate::{WIDTH, assert_refused, folder, idlewise, json, user};

const CPU: &str = "sys/devices/system/cpu";
const TRACING: &str = "sys/kernel/tracing";
const BENCH: &str = "sys/kernel/debug/idlewise_bench";
const UNIT: &str = "idlewise-settings.service";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants/idlewise-settings.service";
const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";
const ALL_CAPABILITIES: &str = "Cpus_allowed_list:\t0-3\nCapEff:\t000001ffffffffff\n";
const NO_CAPABILITIES: &str = "Cpus_allowed_list:\t0-3\nCapEff:\t0000000000000000\n";

const EVENTS: [&str; 17] = [
    "power/cpu_idle",
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_wakeup",
    "sched/sched_wakeup_new",
    "sched/sched_wake_idle_without_ipi",
    "timer/hrtimer_start",
    "timer/hrtimer_cancel",
    "timer/hrtimer_expire_entry",
    "timer/timer_start",
    "timer/timer_cancel",
    "timer/timer_expire_entry",
    "timer/tick_stop",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
];

/// A machine on which everything works.
struct Healthy(CapturedMachine);

impl Healthy {
    fn new() -> Self {
        let machine = Healthy(CapturedMachine::from_tree(
            "== sys/devices/system/cpu/online\n0-3\n\
             == sys/devices/system/cpu/present\n0-3\n\
             == sys/devices/system/cpu/possible\n0-3\n\
             == sys/devices/system/cpu/cpuidle/current_driver\nintel_idle\n\
             == sys/devices/system/cpu/cpuidle/current_governor\nmenu\n\
             == sys/devices/system/cpu/cpuidle/available_governors\nladder menu teo\n\
             == sys/devices/system/cpu/cpu{0-3}/power/pm_qos_resume_latency_us\n0\n\
             == sys/devices/system/cpu/cpu{0-3}/topology/physical_package_id\n0\n\
             == @cpuidle 0-3\n\
             name | desc | latency | residency | disable | usage | time | above | below | rejected\n\
             POLL | POLL | 0 | 0 | 0 | 1 | 1 | 0 | 0 | 0\n\
             C1 | MWAIT 0x00 | 2 | 2 | 0 | 1 | 1 | 0 | 0 | 0\n\
             C6 | MWAIT 0x20 | 290 | 800 | 0 | 1 | 1 | 0 | 0 | 0\n\
             == dev/cpu_dma_latency\n@le32 2000000000\n\
             == proc/cpuinfo\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\n\
             model name : Xeon\nstepping : 8\nflags : fpu mwait\n\
             == proc/sys/kernel/arch\nx86_64\n\
             == proc/sys/kernel/osrelease\n6.12.1\n\
             == proc/sys/kernel/unprivileged_bpf_disabled\n2\n\
             == proc/sys/kernel/perf_event_paranoid\n2\n\
             == proc/uptime\n1000.00 0.00\n\
             == proc/stat\ncpu0 0 0 0 1 0\ncpu1 0 0 0 1 0\n\
             == etc/os-release\nID=debian\n\
             == proc/filesystems\nnodev\tsysfs\nnodev\ttracefs\n\
             == proc/modules\nidlewise_idle 1 0 - Live 0x0\n\
             == sys/module/idlewise_idle/refcnt\n0\n\
             == sys/module/idlewise_bench/refcnt\n0\n\
             == sys/kernel/debug/idlewise_bench/run\n\n\
             == sys/class/powercap/intel-rapl:0/name\npackage-0\n\
             == sys/class/powercap/intel-rapl:0/energy_uj\n1000\n\
             == sys/class/powercap/intel-rapl:0/max_energy_range_uj\n262143328850\n\
             == sys/bus/event_source/devices/msr/type\n9\n\
             == sys/bus/event_source/devices/msr/events/tsc\nevent=0x00\n\
             == sys/bus/event_source/devices/msr/format/event\nconfig:0-63\n\
             == usr/lib/systemd/system/idlewise-settings.service\n[Unit]\n\
             == etc/idlewise/settings.conf\nC6=off\n",
        ));
        for event in EVENTS {
            machine.put(&format!("{TRACING}/events/{event}/format"), "name:\n");
        }
        machine.put("proc/self/status", ALL_CAPABILITIES);
        machine.put(WANTS, "");
        machine.put_perf();
        for folder in [format!("{TRACING}/instances"), "run/systemd/system".to_owned()] {
            fs::create_dir_all(machine.path(&folder)).unwrap();
        }
        machine
    }

    fn put(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }

    fn put_perf(&self) {
        self.put("bin/perf", "");
        fs::set_permissions(self.path("bin/perf"), Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Removes a file or a folder.
    fn remove(&self, name: &str) {
        let path = self.path(name);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    /// `doctor`, with a program `perf` in the machine's folder `bin`.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["doctor", "--sysroot", self.root()]).args(more).current_dir("/");
        command.env("PATH", self.path("bin"));
        command
    }

    fn document(&self) -> Value {
        document_of(&mut self.command(&["--json"]))
    }

    fn text(&self) -> String {
        let output = self.command(&[]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn row(&self, id: &str) -> Value {
        row(&self.document(), id).clone()
    }
}

fn document_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("doctor", &document);
    document
}

fn row<'a>(document: &'a Value, id: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}"))
}

/// The rows with this verdict.
fn with_verdict(document: &Value, verdict: &str) -> Vec<String> {
    let rows = document["rows"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["verdict"] == verdict);
    // This one is about the process that runs.
    let rows = rows.filter(|row| row["id"] != "c_governors");
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

fn text_of(machine: &Path) -> String {
    crate::stdout(&["doctor", "--sysroot", machine.to_str().unwrap()])
}

/// Turns all states but POLL on (0) or off (1).
fn turn_states(machine: &Healthy, value: &str) {
    for (cpu, state) in (0..4).flat_map(|cpu| [1, 2].map(|state| (cpu, state))) {
        machine.put(&format!("{CPU}/cpu{cpu}/cpuidle/state{state}/disable"), value);
    }
}

/// Takes the driver and all idle states away.
fn without_driver(machine: &Healthy) {
    machine.put("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    for cpu in 0..4 {
        let states = machine.path(&format!("{CPU}/cpu{cpu}/cpuidle"));
        fs::rename(states, machine.path(&format!("aside{cpu}"))).unwrap();
    }
}

#[test]
fn every_row_turns_with_the_machine_and_back_when_mended() {
    let healthy = Healthy::new().document();
    let ids: Vec<&str> =
        healthy["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let lacks = lacks();
    for id in ids.iter().filter(|id| **id != "c_governors") {
        assert!(lacks.iter().any(|lack| lack.id == *id), "nothing turns the row {id}");
    }
    assert!(with_verdict(&healthy, "yes").len() == ids.len() - 1, "{healthy:#}");
    for Lack { id, take, verdict, why, mend, give } in lacks {
        let machine = Healthy::new();
        take(&machine);
        let found = machine.row(id);
        assert_eq!(found["verdict"], verdict, "{id}: {found:#}");
        for (field, part) in [("why", why), ("mend", mend)] {
            let text = found[field].as_str().unwrap_or_default();
            assert!(text.contains(part), "{id}: {field} {text:?} has no {part:?}");
        }
        give(&machine);
        let mended = machine.row(id);
        assert_eq!(mended["verdict"], "yes", "{id} after {mend:?}: {mended:#}");
        assert_eq!(mended["mend"], Value::Null);
    }
}

#[test]
fn a_compiler_that_is_missing_is_named() {
    let machine = Healthy::new();
    let run = |compiler: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["doctor", "--json", "--sysroot", machine.root()]).env("CC", compiler);
        let document: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        row(&document, "c_governors").clone()
    };
    let found = run("no-such-compiler -O2");
    assert_eq!(found["verdict"], "no", "{found:#}");
    assert!(found["why"].as_str().unwrap().contains("'no-such-compiler -O2'"), "{found:#}");
    assert!(found["mend"].as_str().unwrap().contains("or name yours with CC"));
    assert_eq!(run("/")["verdict"], "no", "a folder is no compiler");
    let mut command = machine.command(&["--json"]);
    command.env("CC", env!("CARGO_BIN_EXE_idlewise")).env("TMPDIR", "/nowhere");
    let found = row(&document_of(&mut command), "c_governors").clone();
    assert_eq!(found["verdict"], "no", "{found:#}");
    assert_eq!(found["why"], "no file can be made in /nowhere");
    // It is asked for the C library's headers, which are packed apart from it.
    let found = run(env!("CARGO_BIN_EXE_idlewise"));
    assert_eq!(found["verdict"], "no", "{found:#}");
    assert!(found["why"].as_str().unwrap().contains("no headers of the C library"), "{found:#}");
    assert_ne!(run("cc -O2")["verdict"], "no");
    assert_eq!(run("cc -nostdinc")["verdict"], "no");
}

/// What doctor says and what the command says are the same.
#[test]
fn a_row_has_the_message_of_the_command() {
    let machine = Healthy::new();
    without_driver(&machine);
    let document = machine.document();
    for (id, line) in [
        ("counts", &["why", "-d", "1"][..]),
        ("states", &["set", "apply", "--set", "C6=off"]),
        ("governor", &["set", "apply", "--set", "governor=teo"]),
    ] {
        let message = row(&document, id)["message"].as_str().unwrap().to_owned();
        let line = [line, &["--sysroot", machine.root()]].concat();
        assert_refused(&line, &[&message]);
    }
}

/// The first two lines of the text.
fn beginning(text: &str) -> String {
    text.split("\n\n").next().unwrap().replace('\n', " ")
}

#[test]
fn the_answer_comes_first_and_names_what_is_missing() {
    let machine = Healthy::new();
    let text = || machine.text();
    let user = if user() == 0 { "" } else { " as this user" };
    // Whether C files can be compiled depends on the machine that runs this.
    let document = machine.document();
    let is_whole = row(&document, "c_governors")["verdict"] == "yes";
    if is_whole {
        let all = format!("All 18 things below work on this machine{user}.");
        assert_eq!(beginning(&text()), all);
    }
    assert!(text().lines().count() <= 40, "{}", text());
    fs::rename(machine.path(TRACING), machine.path("aside")).unwrap();
    let missing = "3 do not: record, advise, measure wakes; record --causes; perf record, to import \
                   (tracefs is not mounted).";
    let count = if is_whole { 15 } else { 14 };
    let some = format!("{count} of the 18 things below work on this machine{user}; ");
    let said = beginning(&text());
    assert!(said.starts_with(&some), "{said}");
    assert!(!is_whole || said.ends_with(missing), "{said}");
    // The same advice is given once.
    assert_eq!(text().matches("mount -t tracefs").count(), 1, "{}", text());
    without_driver(&machine);
    let said = beginning(&text());
    assert!(said.contains("of them for one reason: no cpuidle driver"), "{said}");
    assert!(text().lines().count() <= 50, "{}", text());
}

/// All trees that other commands are tested with, among them containers, virtual machines without a driver, hybrid and
/// AArch64 machines, POWER and s390.
#[test]
fn every_captured_machine_gets_an_answer_that_fits_the_screen() {
    for name in captured::names() {
        let machine = CapturedMachine::unpack(&name);
        let text = text_of(machine.path());
        let long = text.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(long, None, "{name}");
        assert!(text.lines().count() <= 64, "{name}: {text}");
        let document = json(&["doctor", "--json", "--sysroot", machine.path().to_str().unwrap()]);
        for row in document["rows"].as_array().unwrap() {
            let is_whole = row["verdict"] == "yes";
            assert_eq!(row["mend"].is_null(), is_whole, "{name}: {row:#}");
            assert!(!row["why"].as_str().unwrap().is_empty(), "{name}: {row:#}");
        }
        let counts = row(&document, "counts");
        let has_states = !document["machine"]["tables"].as_array().unwrap().is_empty();
        // An old kernel's copy lacks a count, and `why` refuses it too.
        let is_cut = counts["why"].as_str().unwrap().ends_with("cannot be read");
        assert_eq!(counts["verdict"] == "no", !has_states || is_cut, "{name}: {counts:#}");
    }
}

#[test]
fn machines_of_each_kind_are_described() {
    let document = |name: &str| {
        let machine = CapturedMachine::unpack(name);
        let text = text_of(machine.path());
        (json(&["doctor", "--json", "--sysroot", machine.path().to_str().unwrap()]), text)
    };
    let (hybrid, text) = document("laptop-alder-lake");
    assert_eq!(hybrid["machine"]["tables"].as_array().unwrap().len(), 1);
    assert!(text.contains("C10"), "{text}");
    let (arm, text) = document("arm-server-rejecting");
    assert_eq!(row(&arm, "counts")["verdict"], "yes");
    assert!(row(&arm, "modules")["why"].as_str().unwrap().contains("x86-64 only"), "{text}");
    assert_eq!(row(&arm, "boot")["verdict"], "no");
    let (guest, text) = document("vm-no-driver");
    for id in ["counts", "states", "latency", "exit_latency"] {
        let row = row(&guest, id);
        assert_eq!(row["why"], "no cpuidle driver is active", "{row:#}");
    }
    assert!(text.contains("no cpuidle driver, so no idle states"), "{text}");
    let (container, _) = document("container");
    assert_eq!(container["machine"]["driver"], Value::Null);
    assert!(with_verdict(&container, "no").contains(&"record".to_owned()));
}

/// A machine that only root may look at, in part.
#[test]
fn a_user_is_told_what_works_as_root() {
    let machine = Healthy::new();
    machine.put("proc/self/status", NO_CAPABILITIES);
    let modes = |folder: u32, file: u32| {
        set_modes(machine.0.path(), 0o755, file);
        for closed in [TRACING, "sys/kernel/debug"] {
            fs::set_permissions(machine.path(closed), Permissions::from_mode(folder)).unwrap();
        }
        let energy = machine.path("sys/class/powercap/intel-rapl:0/energy_uj");
        fs::set_permissions(energy, Permissions::from_mode(folder)).unwrap();
    };
    modes(0o000, 0o444);
    let output = as_user(&machine);
    modes(0o755, 0o644);
    let output = match output {
        Ok(output) if output.status.success() => output,
        // The program or the tree is where nobody else may look.
        Ok(output) => return println!("no other user may look here: {output:?}"),
        Err(error) => return println!("no other user may execute the program here: {error}"),
    };
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("doctor", &document);
    assert_eq!(document["is_root"], false);
    let as_root = with_verdict(&document, "as_root");
    for id in [
        "record",
        "causes",
        "histogram",
        "perf",
        "states",
        "latency",
        "machine_latency",
        "governor",
        "exit_latency",
        "energy",
        "wake_latency",
    ] {
        assert!(as_root.iter().any(|known| known == id), "{id}: {document:#}");
        assert!(row(&document, id)["mend"].as_str().unwrap().starts_with("sudo "));
    }
    let yes = ["counts", "watch", "boot_settings", "modules", "boot"];
    assert_eq!(with_verdict(&document, "yes"), yes);
    assert_eq!(with_verdict(&document, "partly"), ["counters"]);
    // As root, which these permissions do not stop, all of it works.
    machine.put("proc/self/status", ALL_CAPABILITIES);
    machine.put_perf();
    assert_eq!(with_verdict(&machine.document(), "yes").len(), 17);
}

/// Who may write the files and is not root still needs root: only root may note what it changed.
#[test]
fn a_user_who_may_write_the_files_is_not_told_to_remove_the_journal() {
    let machine = Healthy::new();
    fs::create_dir_all(machine.path("run/idlewise")).unwrap();
    if user() != 0 {
        return println!("SKIPPED: as this user, no folder of root's can be made; it needs root");
    }
    set_modes(machine.0.path(), 0o755, 0o666);
    let output = as_user(&machine).unwrap();
    if !output.status.success() {
        return println!("no other user may look here: {output:?}");
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for id in ["states", "latency", "machine_latency", "governor", "exit_latency"] {
        assert_eq!(row(&document, id)["verdict"], "as_root", "{:#}", row(&document, id));
    }
}

#[test]
fn root_of_a_user_namespace_does_not_count_as_root() {
    let machine = Healthy::new();
    machine.put("proc/self/uid_map", "0 1000 1\n");
    let document = machine.document();
    for id in ["histogram", "perf", "counters"] {
        let row = row(&document, id);
        let words = if user() == 0 { "root in a user namespace is refused" } else { "" };
        assert_ne!(row["verdict"], "yes");
        assert!(row["why"].as_str().unwrap().contains(words), "{row:#}");
        assert!(row["mend"].as_str().unwrap().starts_with("on the host: "), "{row:#}");
    }
}

#[test]
fn examples_are_of_this_machine() {
    let machine = Healthy::new();
    for cpu in 0..4 {
        machine.put(&format!("{CPU}/cpu{cpu}/cpuidle/state2/name"), "MWAIT7\n");
    }
    machine.put(&format!("{CPU}/cpuidle/available_governors"), "menu ladder\n");
    machine.remove("etc/idlewise/settings.conf");
    let text = machine.text();
    for part in ["MWAIT7=off ", "governor=ladder ", "such as MWAIT7=off"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("C6") && !text.contains("teo"), "{text}");
    let board = CapturedMachine::unpack("board-one-state");
    let text = text_of(board.path());
    assert!(
        text.contains("set, try: a state") && text.contains("is the only idle state"),
        "{text}"
    );
}

#[test]
fn a_limit_on_open_files_is_named() {
    let machine = Healthy::new();
    set_modes(machine.0.path(), 0o755, 0o644);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 20; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_idlewise")]);
    command.args(["doctor", "--json", "--sysroot", machine.root()]).current_dir("/");
    // Root may raise its limit.
    let output = for_user(&mut command).output().unwrap();
    if !output.status.success() {
        return println!("no other user may look here: {output:?}");
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for id in ["counts", "watch"] {
        let found = row(&document, id);
        assert_eq!(
            (&found["why"], &found["mend"]),
            (&"too many open files".into(), &"ulimit -n 136".into())
        );
    }
}

#[test]
fn only_cpus_that_are_online_are_counted() {
    let machine = Healthy::new();
    machine.0.set_online("0,2");
    assert_eq!(machine.row("counts")["why"], "the kernel's counters for 2 CPUs");
}

#[test]
fn names_of_any_length_fit_the_screen() {
    let machine = Healthy::new();
    let long = "N".repeat(200);
    for cpu in 0..4 {
        machine.put(&format!("{CPU}/cpu{cpu}/cpuidle/state2/name"), &long);
    }
    machine.put(&format!("{CPU}/cpuidle/current_driver"), &long);
    machine.put(&format!("{CPU}/cpuidle/available_governors"), &format!("menu {long}"));
    let text = machine.text();
    let wide = text.lines().find(|line| line.chars().count() > WIDTH);
    assert_eq!(wide, None, "{text}");
    assert!(text.contains('…') && text.contains("set, try: a state"), "{text}");
}

/// No file of a copy may keep us busy.
#[test]
fn files_without_an_end_are_not_read_to_the_end() {
    let machine = Healthy::new();
    for name in ["current_driver", "current_governor", "available_governors"] {
        let file = fs::File::create(machine.path(&format!("{CPU}/cpuidle/{name}"))).unwrap();
        file.set_len(8 << 30).unwrap();
    }
    check_hostile(&machine, "sparse");
}

fn as_user(machine: &Healthy) -> std::io::Result<Output> {
    machine.put_perf();
    for_user(&mut machine.command(&["--json"])).output()
}

/// Makes root run a command as somebody else.
fn for_user(command: &mut Command) -> &mut Command {
    match user() {
        0 => command.uid(65534).gid(65534),
        _ => command,
    }
}

fn set_modes(path: &Path, folder: u32, file: u32) {
    let is_folder = path.is_dir();
    let mode = if is_folder { folder } else { file };
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if is_folder {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| set_modes(&entry.unwrap().path(), folder, file));
    }
}

/// Each file and folder, with everything that writing, creating or removing would change.
fn state(path: &Path) -> Vec<(PathBuf, [i64; 5])> {
    let found = path.symlink_metadata().unwrap();
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let mut all =
        vec![(path.to_owned(), [times[0], times[1], times[2], times[3], found.len() as i64])];
    if found.is_dir() {
        all.extend(fs::read_dir(path).unwrap().flat_map(|entry| state(&entry.unwrap().path())));
    }
    all.sort();
    all
}

#[test]
fn nothing_is_changed() {
    let machine = Healthy::new();
    for take in [(|_| ()) as fn(&Healthy), |m| m.remove(BENCH), |m| m.remove(TRACING)] {
        take(&machine);
        let before = state(machine.0.path());
        text_of(machine.0.path());
        machine.document();
        assert_eq!(state(machine.0.path()), before);
    }
    // On the machine that runs this: no mount.
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let before = mounts();
    let child = Command::new(env!("CARGO_BIN_EXE_idlewise")).args(["doctor", "--json"]).output();
    let output = child.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("doctor", &document);
    assert_eq!(mounts(), before);
}

#[test]
fn a_place_without_a_machine_is_refused() {
    let empty = folder();
    let path = empty.path().to_str().unwrap();
    assert_refused(&["doctor", "--sysroot", path], &["neither proc nor sys is there"]);
    assert_refused(&["doctor", "--sysroot", "/nowhere"], &["is not a folder"]);
}

/// A machine that answers anything is still answered in a few lines.
fn check_hostile(machine: &Healthy, what: &str) {
    let output = idlewise(&["doctor", "--sysroot", machine.root()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{what}: {said}");
    assert!(!said.contains("panicked") && said.lines().count() <= 1, "{what}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{what}");
    assert!(text.len() < 20_000, "{what}: {} bytes", text.len());
}

fn files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn rubbish_in_any_file_is_no_panic() {
    let rubbish: Vec<u8> = (0..8_192).map(|at: u32| (at * 7 % 256) as u8).collect();
    let machine = Healthy::new();
    for file in files(machine.0.path()) {
        // The other CPUs are like the first, and events are only opened.
        if ["cpu1/", "cpu2/", "cpu3/", "tracing/events/"]
            .iter()
            .any(|cpu| file.to_str().unwrap().contains(cpu))
        {
            continue;
        }
        let good = fs::read(&file).unwrap();
        fs::write(&file, &rubbish).unwrap();
        check_hostile(&machine, file.to_str().unwrap());
        fs::write(&file, good).unwrap();
    }
}

#[test]
fn files_that_are_none_stop_nothing() {
    type Replace = fn(&Path);
    let kinds: [(&str, Replace); 6] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("loop", |path| symlink(path, path).unwrap()),
        ("endless", |path| symlink("/dev/zero", path).unwrap()),
        ("escape", |path| symlink("/proc/self/environ", path).unwrap()),
        ("pipe", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
    ];
    for (what, replace) in kinds {
        let machine = Healthy::new();
        for file in files(machine.0.path()) {
            fs::remove_file(&file).unwrap();
            replace(&file);
        }
        check_hostile(&machine, what);
    }
}

#[test]
fn huge_files_and_lists_are_no_burden() {
    let machine = Healthy::new();
    // As long as any file may be; it takes no room on the disk.
    let file = fs::File::create(machine.path("proc/mounts")).unwrap();
    file.set_len(300 << 20).unwrap();
    machine.put("proc/cpuinfo", &"flags : fpu\n".repeat(100_000));
    machine.put("proc/modules", &"x".repeat(1 << 20));
    check_hostile(&machine, "huge");
    // 8,192 CPUs, each a hundred times.
    for list in ["online", "present", "possible"] {
        machine.put(&format!("{CPU}/{list}"), &"0-8191,".repeat(100));
    }
    check_hostile(&machine, "lists");
    machine.put(&format!("{CPU}/cpuidle/current_driver"), &"\u{1b}[31m🦀".repeat(10_000));
    machine.put(&format!("{CPU}/cpu0/cpuidle/state1/name"), &"C\u{1b}]0;x\u{7}".repeat(1_000));
    machine.put(".dockerenv", "");
    machine.put("run/systemd/container", &"a b ".repeat(100_000));
    check_hostile(&machine, "names");
}
