//! Machines as their files describe them, put together from published tables.
//! `tests/sysroot/NAME.tree` contains a machine's files, `NAME.json` what we read from them
//! (rewritten by `make golden`). A new pair is a new test. `MANIFEST.toml` has the source of each.

use crate::captured;

use std::fs;

use captured::{CapturedMachine, folder, names};
use idlewise_host::{IdleCounters, Root, note};
use idlewise_trace::MachineNote;

/// Unpacks a `.tree`.
fn unpack(name: &str) -> (CapturedMachine, Root) {
    let machine = CapturedMachine::unpack(name);
    let root = Root::at(machine.path());
    (machine, root)
}

#[test]
fn reads_each_captured_machine_as_written_down() {
    assert!(names().len() >= 12);
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

/// Without a source, nobody could say what a tree is worth.
#[test]
fn every_tree_has_a_row_that_names_its_source() {
    let text = fs::read_to_string(folder().join("MANIFEST.toml")).unwrap();
    let mut listed = Vec::new();
    for row in text.split("[[tree]]").skip(1) {
        let field = |name: &str| {
            let line = row.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
            line.and_then(|line| line.strip_suffix('"')).unwrap_or_else(|| panic!("{name}: {row}"))
        };
        assert!(["kind", "source", "how"].iter().all(|name| !field(name).is_empty()), "{row}");
        listed.push(field("name").to_owned());
    }
    listed.sort();
    assert_eq!(listed, names());
}

/// Two packages of two cores with two threads, and CPU 7 offline. Old names of files are read as well.
#[test]
fn notes_which_cpus_form_cores_clusters_and_packages() {
    let root = |files: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&cpus).unwrap();
        fs::write(cpus.join("online"), "0-6\n").unwrap();
        for cpu in 0..7 {
            let topology = cpus.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            for (file, pattern) in files {
                let (core, package) = (cpu % 4 / 2 * 2 + cpu / 4 * 4, cpu / 4 * 4);
                let list = match *pattern {
                    "core" => format!("{core}-{}", core + 1),
                    _ => format!("{package}-{}", package + 3),
                };
                fs::write(topology.join(file), list + "\n").unwrap();
            }
        }
        let root = Root::at(folder.path());
        (folder, root)
    };
    let groups = |files: &[(&str, &str)]| {
        let (_folder, root) = root(files);
        note(&root, String::new()).topology.map(|groups| groups.to_string())
    };
    let expected = Some("core=0-1/2-3/4-5/6;package=0-3/4-6".to_owned());
    let new = [("core_cpus_list", "core"), ("package_cpus_list", "package")];
    assert_eq!(groups(&new), expected);
    let old = [("thread_siblings_list", "core"), ("core_siblings_list", "package")];
    assert_eq!(groups(&old), expected);
    let clusters = [("cluster_cpus_list", "core"), ("package_cpus_list", "package")];
    assert_eq!(groups(&clusters), Some("cluster=0-1/2-3/4-5/6;package=0-3/4-6".to_owned()));
    assert_eq!(groups(&[]), None);
}
