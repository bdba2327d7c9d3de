//! Machines as their files describe them, put together from published tables.
//! `tests/sysroot/NAME.tree` contains a machine's files, `NAME.json` what we read from them
//! (rewritten by `make golden`). A new pair is a new test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use idlewise_host::{IdleCounters, Root, note};
use idlewise_trace::MachineNote;
use tempfile::TempDir;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysroot")
}

/// Unpacks a `.tree`. Each file begins with `== PATH`. The content `@le32 N` stands for four bytes.
fn unpack(name: &str) -> (TempDir, Root) {
    let text = fs::read_to_string(folder().join(format!("{name}.tree"))).unwrap();
    let root = tempfile::tempdir().unwrap();
    for file in text.split("== ").skip(1) {
        let (path, content) = file.split_once('\n').unwrap();
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match content.trim_end().strip_prefix("@le32 ") {
            Some(number) => fs::write(path, number.parse::<i32>().unwrap().to_ne_bytes()).unwrap(),
            None => fs::write(path, content).unwrap(),
        }
    }
    let at = Root::at(root.path());
    (root, at)
}

fn names() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let trees = files.filter(|path| path.extension().is_some_and(|ending| ending == "tree"));
    trees.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn reads_each_captured_machine_as_written_down() {
    assert!(names().len() >= 4);
    for name in names() {
        let (_folder, root) = unpack(&name);
        let read = note(&root, "idlewise record".to_owned());
        let expected = folder().join(format!("{name}.json"));
        if std::env::var_os("IDLEWISE_GOLDEN").is_some() {
            fs::write(&expected, serde_json::to_string_pretty(&read).unwrap() + "\n").unwrap();
        }
        let expected: MachineNote =
            serde_json::from_str(&fs::read_to_string(&expected).unwrap()).unwrap();
        assert_eq!(read, expected, "{name}: run `make golden` and look at the difference");
    }
}

#[test]
fn notes_machines_that_can_be_replayed_on() {
    for name in names() {
        let (_folder, root) = unpack(&name);
        for table in note(&root, String::new()).tables {
            assert_eq!(table.machine.check(), Ok(()), "{name}");
            assert!(table.machine.table().is_ok(), "{name}");
        }
    }
}

#[test]
fn keeps_what_a_table_says_of_states() {
    let (_folder, root) = unpack("server-intel");
    let machine = &note(&root, String::new()).tables[0].machine;
    assert!(machine.states[0].idle().is_polling && !machine.states[1].idle().is_polling);
    assert_eq!(machine.states[2].mwait_hint.as_deref(), Some("0x01"));
    let off: Vec<bool> = machine.states.iter().map(|s| s.is_disabled_by_default).collect();
    assert_eq!(off, [false, false, false, true], "C6 was turned off on this machine");
    assert_eq!(machine.states[3].target_residency_ns, 800_000);
}

#[test]
fn tells_kinds_of_cpus_apart() {
    let (_folder, root) = unpack("phone-big-little");
    let note = note(&root, String::new());
    let cpus: Vec<&[u16]> = note.tables.iter().map(|table| table.cpus.as_slice()).collect();
    assert_eq!(cpus, [&[0, 1][..], &[2]]);
    // All CPUs have the machine's limit. `n/a` allows no latency at all.
    assert_eq!(note.latency_limits_ns, [(0, 150_000), (1, 150_000), (2, 0)].into());
}

#[test]
fn counts_idle_entries_of_all_cpus_by_state() {
    let (_folder, root) = unpack("server-intel");
    let counters = IdleCounters::open(&root, &root.online_cpus());
    assert_eq!(counters.names().collect::<Vec<_>>(), ["POLL", "C1", "C1E", "C6"]);
    assert_eq!(counters.entry_counts(), [14; 4]);
    let (_folder, root) = unpack("no-driver");
    assert!(IdleCounters::open(&root, &[0]).entry_counts().is_empty());
}

#[test]
fn a_machine_that_shows_nothing_is_no_error() {
    let empty = tempfile::tempdir().unwrap();
    let note = note(&Root::at(empty.path()), "idlewise record".to_owned());
    let expected = MachineNote {
        note_version: idlewise_trace::NOTE_VERSION,
        command: "idlewise record".to_owned(),
        ..MachineNote::default()
    };
    assert_eq!(note, expected);
}
