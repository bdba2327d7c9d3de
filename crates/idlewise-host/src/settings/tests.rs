//! Settings of captured machines: applied, given back, and everything that can go wrong with them.

#[path = "../../tests/captured/mod.rs"]
mod captured;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::journal::Journal;
use super::*;
use crate::Root;

const GOVERNOR: &str = "sys/devices/system/cpu/cpuidle/current_governor";

/// A machine with four CPUs of three states, of which CPU 3's C1 is off.
struct Machine(tempfile::TempDir, Root);

impl Machine {
    fn new() -> Self {
        let machine = Self::with(4, &["POLL", "C1", "C6"]);
        machine.put(&disable(3, 1), "1\n");
        machine
    }

    fn with(cpu_count: u16, states: &[&str]) -> Self {
        let folder = captured::folder_in_memory();
        let root = Root::at(folder.path());
        let machine = Machine(folder, root);
        machine.put("proc/sys/kernel/random/boot_id", "one\n");
        machine.put("sys/devices/system/cpu/online", format!("0-{}\n", cpu_count - 1));
        machine.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        machine.put("sys/devices/system/cpu/cpuidle/available_governors", "ladder menu teo\n");
        machine.put(GOVERNOR, "menu\n");
        machine.put("dev/cpu_dma_latency", 2_000_000_000_u32.to_ne_bytes());
        for cpu in 0..cpu_count {
            machine.put(&limit(cpu), "0\n");
            for (index, name) in states.iter().enumerate() {
                let state = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
                machine.put(&format!("{state}/name"), format!("{name}\n"));
                machine.put(&format!("{state}/disable"), "0\n");
            }
        }
        machine
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap().trim().to_owned()
    }

    /// The contents of all files of sysfs.
    fn sysfs(&self) -> Vec<(String, String)> {
        fn add(folder: &Path, files: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    add(&path, files);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    files.push((path.to_str().unwrap().to_owned(), text));
                }
            }
        }
        let mut files = Vec::new();
        add(&self.0.path().join("sys"), &mut files);
        files.sort();
        files
    }

    fn apply(&self, settings: &str) -> Result<Applied, SettingsError> {
        apply(&self.1, &parsed(settings), &Owner::running("a test"))
    }

    fn lasting(&self, settings: &str) {
        let owner = Owner { lasts: Lasts::UntilReverted, ..Owner::running("a test") };
        let _lasts = apply(&self.1, &parsed(settings), &owner).unwrap();
    }

    fn refused(&self, settings: &str) -> String {
        let before = self.sysfs();
        let error = self.apply(settings).unwrap_err().to_string();
        assert_eq!(self.sysfs(), before, "nothing is half applied");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }

    fn journal(&self) -> Journal {
        Journal::read(&self.1).unwrap().0
    }
}

fn parsed(settings: &str) -> Vec<Setting> {
    settings.split(' ').map(|setting| setting.parse().unwrap()).collect()
}

fn limit(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

fn disable(cpu: u16, index: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}/disable")
}

#[test]
fn all_is_given_back() {
    let machine = Machine::new();
    let before = machine.sysfs();
    let applied =
        machine.apply("governor=teo C6=off C1=on@3 latency=10us@1-2 latency=0us@0").unwrap();
    assert_eq!(machine.text(GOVERNOR), "teo");
    assert_eq!([0, 1, 2, 3].map(|cpu| machine.text(&disable(cpu, 2))), ["1"; 4]);
    assert_eq!(machine.text(&disable(3, 1)), "0");
    assert_eq!([0, 1, 2, 3].map(|cpu| machine.text(&limit(cpu))), ["n/a", "10", "10", "0"]);
    assert_eq!(applied.changes().len(), 9);
    let reverted = applied.revert().unwrap();
    assert!(reverted.settled.is_whole());
    assert_eq!(machine.sysfs(), before);
    assert!(!machine.0.path().join("run/idlewise/journal.json").exists());
}

#[test]
fn dropping_gives_back_what_was_to_last_while_running() {
    let machine = Machine::new();
    let before = machine.sysfs();
    drop(machine.apply("C6=off").unwrap());
    assert_eq!(machine.sysfs(), before);
    machine.lasting("C6=off");
    assert_ne!(machine.sysfs(), before);
    let reverted = revert(&machine.1, Which::Lasting).unwrap();
    assert_eq!((reverted.ended.len(), reverted.settled.changes.len()), (1, 4));
    assert_eq!(machine.sysfs(), before);
    assert!(revert(&machine.1, Which::Lasting).unwrap().ended.is_empty(), "twice is no error");
}

#[test]
fn the_smallest_latency_limit_counts() {
    let machine = Machine::new();
    machine.put(&limit(1), "100\n");
    let first = machine.apply("latency=50us@1-2").unwrap();
    let second = machine.apply("latency=20us@1").unwrap();
    let third = machine.apply("latency=none@1").unwrap();
    assert_eq!([1, 2].map(|cpu| machine.text(&limit(cpu))), ["20", "50"]);
    drop(second);
    assert_eq!(machine.text(&limit(1)), "50");
    drop(first);
    assert_eq!([1, 2].map(|cpu| machine.text(&limit(cpu))), ["0", "0"]);
    drop(third);
    assert_eq!(machine.text(&limit(1)), "100");
}

#[test]
fn a_contradiction_is_refused_and_agreement_is_not() {
    let machine = Machine::new();
    let first = machine.apply("C6=off@1").unwrap();
    let error = machine.refused("C6=on@1 governor=teo");
    assert!(error.contains("C6=off@1, set by `a test`"), "{error}");
    let second = machine.apply("C6=off@0-1").unwrap();
    drop(first);
    assert_eq!(machine.text(&disable(1, 2)), "1", "somebody still wishes it");
    drop(second);
    assert_eq!(machine.text(&disable(1, 2)), "0");
    assert!(machine.refused("C6=off C6=on@2").contains("another setting of the same command"));
}

#[test]
fn what_somebody_else_changed_is_left_alone() {
    let machine = Machine::new();
    let applied = machine.apply("latency=10us@1-2 governor=teo").unwrap();
    machine.put(&limit(1), "30\n");
    let reverted = applied.revert().unwrap();
    let taken = Taken { file: limit(1), now: "30".to_owned(), wanted: "0".to_owned() };
    assert_eq!(reverted.settled.taken, [taken]);
    assert_eq!([1, 2].map(|cpu| machine.text(&limit(cpu))), ["30", "0"]);
    assert_eq!(machine.text(GOVERNOR), "menu");
    // What they wrote is what the next command finds.
    drop(machine.apply("latency=10us@1").unwrap());
    assert_eq!(machine.text(&limit(1)), "30");
}

#[test]
fn what_a_running_command_has_set_stays_unless_all_is_asked_for() {
    let machine = Machine::new();
    let applied = machine.apply("C6=off@1").unwrap();
    let reverted = revert(&machine.1, Which::Lasting).unwrap();
    assert_eq!((reverted.ended.len(), reverted.running.len()), (0, 1));
    assert_eq!(machine.text(&disable(1, 2)), "1");
    revert(&machine.1, Which::All).unwrap();
    assert_eq!(machine.text(&disable(1, 2)), "0");
    assert!(applied.revert().unwrap().ended.is_empty(), "no error for its owner");
}

#[test]
fn a_command_that_was_killed_is_cleaned_up_by_the_next() {
    let machine = Machine::new();
    let before = machine.sysfs();
    let killed = machine.apply("C6=off@1 latency=3us@1").unwrap();
    // Its process is another one, which has ended.
    let path = machine.0.path().join("run/idlewise/journal.json");
    let text = fs::read_to_string(&path).unwrap();
    let ours = format!("\"pid\": {}", std::process::id());
    assert!(text.contains(&ours));
    fs::write(&path, text.replace(&ours, "\"pid\": 2147483646")).unwrap();
    std::mem::forget(killed);
    assert_eq!(status(&machine.1).unwrap().sessions[0].end, Some("its process has ended"));
    let next = machine.apply("governor=teo").unwrap();
    assert_eq!(machine.text(&disable(1, 2)), "0");
    drop(next);
    assert_eq!(machine.sysfs(), before);
}

#[test]
fn the_journal_of_another_boot_is_discarded() {
    let machine = Machine::new();
    machine.lasting("C6=off");
    machine.put("proc/sys/kernel/random/boot_id", "two\n");
    // The kernel has forgotten our settings, and others have set theirs.
    machine.put(&disable(0, 2), "0\n");
    let reverted = revert(&machine.1, Which::All).unwrap();
    assert!(reverted.was_of_another_boot && reverted.settled.changes.is_empty());
    assert_eq!(machine.text(&disable(1, 2)), "1");
    assert!(machine.journal().is_empty());
}

#[test]
fn expiry_does_not_depend_on_the_clock_that_people_set() {
    let machine = Machine::new();
    machine.lasting("C6=off@1");
    let mut journal = machine.journal();
    // A time since boot: of a session that is over, and of one that began later than now.
    assert_eq!(journal.sessions[0].end(u64::MAX), None, "it has no end");
    journal.sessions[0].until_ns = Some(1);
    assert_eq!(journal.sessions[0].end(2), Some("its time is over"));
    journal.sessions[0].since_ns = u64::MAX;
    let text = serde_json::to_string(&journal).unwrap();
    machine.put("run/idlewise/journal.json", text);
    assert_eq!(status(&machine.1).unwrap().sessions[0].age_ns, 0);
    drop(machine.apply("governor=teo").unwrap());
    assert_eq!(machine.text(&disable(1, 2)), "0", "its time was over");
}

#[test]
fn machines_without_the_setting_are_told_apart() {
    let machine = Machine::new();
    assert!(machine.refused("C7=off").contains("the states are POLL, C1, C6"));
    assert!(machine.refused("C7=off@1-2").contains("CPUs 1-2 have no idle state C7"));
    assert!(machine.refused("C6=off@9").contains("CPU 9 is not online (0-3 are)"));
    assert!(machine.refused("governor=hazard").contains("it has ladder menu teo"));
    assert!(machine.refused("latency=none").contains("latency=none@4-7"));
    fs::remove_file(machine.0.path().join(limit(2))).unwrap();
    assert!(machine.refused("latency=5us@1-3").contains("PM QoS"));
    machine.put("sys/devices/system/cpu/online", "0,2-3\n");
    assert!(machine.refused("C6=off@1").contains("CPU 1 is not online (0,2-3 are)"));
    machine.put("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    assert!(machine.refused("C6=off").contains("no cpuidle driver"));
    let one = Machine::new();
    for cpu in 0..4 {
        for index in [1, 2] {
            let state = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
            fs::remove_dir_all(one.0.path().join(state)).unwrap();
        }
    }
    assert!(one.refused("POLL=off").contains("a single idle state (POLL)"));
}

#[test]
fn the_setting_of_a_cpu_that_goes_offline_stays_in_the_journal() {
    let machine = Machine::new();
    let applied = machine.apply("C6=off@1-2").unwrap();
    let cpuidle = machine.0.path().join("sys/devices/system/cpu/cpu1/cpuidle");
    fs::remove_dir_all(cpuidle).unwrap();
    let reverted = applied.revert().unwrap();
    assert_eq!(reverted.settled.gone, [disable(1, 2)]);
    assert_eq!(machine.text(&disable(2, 2)), "0");
    assert_eq!(machine.journal().slots.len(), 1);
}

#[test]
fn a_link_in_a_captured_machine_is_not_followed() {
    let machine = Machine::new();
    machine.put("elsewhere", "0\n");
    let file = machine.0.path().join(disable(2, 2));
    fs::remove_file(&file).unwrap();
    symlink(machine.0.path().join("elsewhere"), &file).unwrap();
    let error = machine.refused("C6=off governor=teo");
    assert!(error.contains("links are not followed"), "{error}");
    assert!(machine.journal().is_empty());
}

#[test]
fn a_file_that_cannot_be_given_back_stays_in_the_journal() {
    let machine = Machine::new();
    let applied = machine.apply("C6=off@1-2").unwrap();
    let file = machine.0.path().join(disable(1, 2));
    fs::remove_file(&file).unwrap();
    symlink(machine.0.path().join(disable(0, 2)), &file).unwrap();
    let reverted = applied.revert().unwrap();
    assert_eq!(reverted.settled.failed[0].file, disable(1, 2));
    assert_eq!(machine.text(&disable(0, 2)), "0", "the link is not followed");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "1\n").unwrap();
    let again = revert(&machine.1, Which::Lasting).unwrap();
    assert_eq!(again.settled.changes.len(), 1);
    assert_eq!(machine.text(&disable(1, 2)), "0");
    assert!(machine.journal().is_empty());
}

#[test]
fn only_root_may_own_the_folder_of_the_journal() {
    let machine = Machine::new();
    let folder = machine.0.path().join("run/idlewise");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(machine.refused("C6=off").contains("others than root can write"));
    fs::remove_dir(&folder).unwrap();
    let elsewhere = machine.0.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    assert!(machine.refused("C6=off").contains("links are not followed"));
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn a_damaged_journal_is_not_guessed_at() {
    let machine = Machine::new();
    machine.lasting("C6=off");
    let path = machine.0.path().join("run/idlewise/journal.json");
    let good = fs::read_to_string(&path).unwrap();
    for damaged in [
        String::new(),
        "{}".to_owned(),
        good[..good.len() / 2].to_owned(),
        good.replace("\"version\": 1", "\"version\": 2"),
        good.replace("sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "etc/shadow"),
        good.replace("cpu1/cpuidle/state2/disable", "cpu1/online"),
        good.replace("cpu1/cpuidle/state2/disable", "cpu01/cpuidle/state2/disable"),
        good.replace("cpu1/cpuidle/state2/disable", "cpu1/../../../../../etc/shadow"),
        good.replace("cpu1/cpuidle/state2/disable", "cpu1/cpuidle/state2/name"),
        good.replace("cpu1/cpuidle/state2/disable", "cpu2/cpuidle/state2/disable"),
        good.replace("\"next_id\": 1", "\"next_id\": 18446744073709551615"),
        good.replace("\"next_id\": 1", "\"next_id\": 0"),
        good.replace("\"start_ticks\"", "\"start\""),
    ] {
        assert_ne!(damaged, good);
        fs::write(&path, damaged).unwrap();
        let error = revert(&machine.1, Which::All).unwrap_err();
        assert!(matches!(error, SettingsError::DamagedJournal { .. }), "{error}");
    }
    fs::write(&path, good).unwrap();
    revert(&machine.1, Which::All).unwrap();
    assert_eq!(machine.text(&disable(1, 2)), "0");
}

/// A tree that was copied has the numbers of another machine's processes.
#[test]
fn a_process_that_is_no_holder_is_let_be() {
    let machine = Machine::new();
    machine.lasting("C6=off");
    let path = machine.0.path().join("run/idlewise/journal.json");
    let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let process = super::process::Process::with(other.id().cast_signed());
    let holder = format!("\"holder\": {}", serde_json::to_string(&process).unwrap());
    let good = fs::read_to_string(&path).unwrap();
    assert!(good.contains("\"holder\": null"), "{good}");
    fs::write(&path, good.replace("\"holder\": null", &holder)).unwrap();
    let reverted = revert(&machine.1, Which::All);
    let ended = other.try_wait().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    reverted.unwrap();
    assert_eq!((machine.text(&disable(1, 2)).as_str(), ended), ("0", None));
}

#[test]
fn four_thousand_cpus_are_given_back() {
    let machine = Machine::with(4_096, &["POLL", "C1", "C1E", "C6"]);
    let before = machine.sysfs();
    machine.lasting("POLL=off C1=off C1E=off C6=off latency=9us@0-4095 governor=teo");
    machine.lasting("C6=off latency=5us@0-4095");
    let set = machine.sysfs();
    assert_eq!(before.iter().zip(&set).filter(|(a, b)| a != b).count(), 5 * 4_096 + 1);
    assert_eq!(machine.text(&limit(4_095)), "5");
    let status = status(&machine.1).unwrap();
    assert_eq!(status.sessions.iter().map(|s| s.found.len()).collect::<Vec<_>>(), [20_481, 8_192]);
    assert!(status.unusual.is_empty() && status.taken.is_empty());
    let reverted = revert(&machine.1, Which::All).unwrap();
    assert!(reverted.settled.is_whole());
    assert_eq!((reverted.ended.len(), reverted.settled.changes.len()), (2, 20_481));
    assert!(machine.sysfs() == before && machine.journal().is_empty());
}

#[test]
fn what_would_not_fit_in_the_journal_is_refused_before_anything_is_changed() {
    let machine = Machine::new();
    machine.lasting("C6=off@1");
    let mut journal = machine.journal();
    journal.check_room(&machine.1).unwrap();
    // A user's reason may be long.
    journal.sessions[0].reason = Some("x".repeat(journal::BYTE_COUNT_MAX as usize / 2));
    machine.put("run/idlewise/journal.json", serde_json::to_string(&journal).unwrap());
    let error = machine.refused("C6=off@2");
    assert!(error.contains("are allowed; nothing is changed"), "{error}");
    assert!(error.contains("journal.json"), "{error}");
    // There is always room to give back.
    revert(&machine.1, Which::All).unwrap();
    assert_eq!(machine.text(&disable(1, 2)), "0");
}

/// A folder in the place of the next journal stands for a full disk.
#[test]
fn what_a_full_disk_refuses_leaves_nothing_to_undo() {
    let machine = Machine::new();
    let before = machine.sysfs();
    machine.lasting("C6=off@1");
    fs::create_dir(machine.0.path().join("run/idlewise/journal.new")).unwrap();
    let error = machine.refused("C1=off@2");
    assert!(!error.contains("undone"), "{error}");
    fs::remove_dir(machine.0.path().join("run/idlewise/journal.new")).unwrap();
    assert_eq!(machine.journal().sessions.len(), 1);
    revert(&machine.1, Which::All).unwrap();
    assert_eq!(machine.sysfs(), before);
}

#[test]
fn a_journal_that_is_too_long_is_damaged_and_is_not_cut() {
    let machine = Machine::new();
    machine.lasting("C6=off@1");
    let path = machine.0.path().join("run/idlewise/journal.json");
    let good = fs::read_to_string(&path).unwrap();
    // Up to its end it is as good as before.
    fs::write(&path, good + &" ".repeat(journal::BYTE_COUNT_MAX as usize)).unwrap();
    let error = revert(&machine.1, Which::All).unwrap_err();
    assert!(matches!(error, SettingsError::DamagedJournal { .. }), "{error}");
    assert!(error.to_string().contains("it has more than"), "{error}");
}

#[test]
fn two_at_once_wait_for_each_other() {
    let machine = Machine::new();
    let before = machine.sysfs();
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let machine = &machine;
            scope.spawn(move || {
                for _ in 0..10 {
                    drop(
                        machine.apply(&format!("latency={}us@0-3 C6=off@{cpu}", cpu + 1)).unwrap(),
                    );
                }
            });
        }
    });
    assert_eq!(machine.sysfs(), before);
    assert!(machine.journal().is_empty());
}

#[test]
fn a_measurement_in_progress_is_not_disturbed() {
    let machine = Machine::new();
    let folder = fs::File::open(machine.0.path().join("sys/devices/system/cpu")).unwrap();
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(machine.refused("C6=off").contains("measuring"));
}

#[test]
fn what_needs_a_process_is_refused_without_one() {
    let machine = Machine::new();
    let owner = Owner { lasts: Lasts::UntilReverted, ..Owner::running("a test") };
    let error = apply(&machine.1, &parsed("latency=10us"), &owner).unwrap_err().to_string();
    assert!(error.contains("a latency limit of the whole machine lasts only"), "{error}");
    let expires_in = Some(Duration::from_secs(1));
    let owner = Owner { expires_in, ..Owner::running("a test") };
    let error = apply(&machine.1, &parsed("C6=off"), &owner).unwrap_err().to_string();
    assert!(error.contains("a setting with an end lasts only"), "{error}");
    let holder = Some("/nonexistent/idlewise".into());
    let owner = Owner { holder, ..Owner::running("a test") };
    let before = machine.sysfs();
    let error = apply(&machine.1, &parsed("C6=off"), &owner).unwrap_err().to_string();
    assert!(error.contains("did not start"), "{error}");
    assert_eq!(machine.sysfs(), before);
}

#[test]
fn status_says_what_is_set_by_whom_and_what_is_not_from_us() {
    let machine = Machine::new();
    machine.put(&limit(2), "7\n");
    machine.put("sys/devices/system/cpu/cpu0/cpuidle/state2/default_status", "disabled\n");
    let applied = machine.apply("C6=off@1 latency=3us@1").unwrap();
    let status = status(&machine.1).unwrap();
    assert_eq!(status.sessions[0].settings, ["C6=off@1", "latency=3us@1"]);
    assert_eq!(status.sessions[0].found[&limit(1)], "0");
    let unusual: Vec<_> = status
        .unusual
        .iter()
        .map(|u| (u.setting.as_str(), u.cpus.to_string(), u.default))
        .collect();
    assert_eq!(
        unusual,
        [
            ("C6=on", "0".to_owned(), "off"),
            ("latency=7us", "2".to_owned(), "none"),
            ("C1=off", "3".to_owned(), "on")
        ]
    );
    assert_eq!((status.governor.as_deref(), status.machine_limit_us), (Some("menu"), None));
    drop(applied);
}

/// `advise` writes names as machine files have them, and `set` refused them.
#[test]
fn a_state_whose_name_has_a_space_can_be_written_with_a_hyphen() {
    let machine = Machine::with(1, &["POLL", "haltpoll idle"]);
    let _applied = machine.apply("haltpoll-idle=off").unwrap();
    assert_eq!(machine.text(&disable(0, 1)), "1");
}
