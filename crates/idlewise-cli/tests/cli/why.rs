//! `idlewise why`, on captured machines that are played forward while it watches.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::captured::{CapturedMachine, More, names, state_file};
use crate::{WIDTH, schemas};

/// What a run printed, and its exit status.
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `idlewise why` on a machine. Once it has read the counts, `play` changes them.
pub fn watch(machine: &CapturedMachine, arguments: &[&str], play: impl FnOnce(u32)) -> Run {
    watch_by(Command::new(env!("CARGO_BIN_EXE_idlewise")), machine, arguments, play)
}

/// The same with a command that runs idlewise.
pub fn watch_by(
    mut command: Command,
    machine: &CapturedMachine,
    arguments: &[&str],
    play: impl FnOnce(u32),
) -> Run {
    command.args(["why", "--sysroot"]).arg(machine.path()).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    // It says that it watches after it has read the counts.
    reader.read_line(&mut stderr).unwrap();
    if stderr.starts_with("idlewise: watching") {
        play(child.id());
    }
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    reader.read_to_string(&mut stderr).unwrap();
    let status = child.wait().unwrap().code();
    Run { status, stdout, stderr }
}

/// Returns once `idlewise why` has read the counts.
pub fn wait_until_it_watches(child: &mut std::process::Child) {
    let mut line = String::new();
    let mut byte = [0];
    let stderr = child.stderr.as_mut().unwrap();
    while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    assert!(line.starts_with("idlewise: watching"), "{line}");
}

pub fn good(run: Run) -> String {
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    run.stdout
}

fn document(run: Run) -> Value {
    let document = serde_json::from_str(&good(run)).unwrap();
    schemas::assert_valid("why", &document);
    document
}

/// Ten seconds on CPUs 2 and 3: 1,840 stays a second in the deepest state.
fn play_deep(machine: &CapturedMachine, cpus: &str, state: usize) {
    let more = More { usage: 18_400, time_us: 5_000_000, above: 5_704, below: 0, rejected: 0 };
    machine.count(cpus, state, more);
    machine.pass(10.0);
}

#[test]
fn says_what_waits_where_and_what_another_state_would_change() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let text = good(watch(&machine, &[], |_| play_deep(&machine, "2-3", 3)));
    let expected = "C6 on CPUs 2-3: 31 % too deep, 1,840 wake-ups/s × 170 us = 31 % of wall time \
                    waiting at most; C1E instead: −31 points, about ";
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("W (assumed)"), "{text}");
    assert!(text.contains("Next: `idlewise advise -d 30 --cpus 2-3`"), "{text}");
    assert!(text.contains("Exit latency: the worst case that the driver declares"), "{text}");
}

#[test]
fn cpus_that_hardly_wake_up_are_left_alone() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let document = document(watch(&machine, &["--json"], |_| {
        let more = More { usage: 50, time_us: 9_900_000, above: 48, ..More::default() };
        machine.count("0-3,72-75", 3, more);
        machine.pass(10.0);
    }));
    assert!(document["findings"].as_array().unwrap().is_empty(), "{document}");
    assert_eq!(document["groups"].as_array().unwrap().len(), 1, "{document}");
    assert_eq!(document["groups"][0]["cpus"], "0-3,72-75");
    // A captured machine has no counters of packages that could be opened.
    assert_eq!(document["packages"], Value::Array(Vec::new()));
}

/// A guest's own states say nothing of its host's, so nothing is well because they are.
#[test]
fn a_guest_is_sent_to_its_host() {
    for (name, is_guest) in [("vm-haltpoll", true), ("server-ice-lake", false)] {
        let machine = CapturedMachine::unpack(name);
        let play = |_| {
            machine.count("0-3", 1, More { usage: 50, time_us: 9_900_000, ..More::default() });
            machine.pass(10.0);
        };
        let text = good(watch(&machine, &["--cpus", "0-1"], play));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(if is_guest { "Leave this guest alone" } else { "Leave it alone" }),
            "{text}"
        );
        assert_eq!(text.contains("run `why` on the host, too"), is_guest, "{text}");
    }
}

/// Every captured machine fits on a screen, or says in one line why there is nothing to say.
#[test]
fn every_captured_machine_gets_an_answer() {
    let (mut shown, mut refused) = (0, 0);
    for name in names() {
        let machine = CapturedMachine::unpack(&name);
        let play = |_| {
            for cpu in 0..80 {
                for state in 0..10 {
                    if machine.path().join(state_file(cpu, state, "usage")).exists() {
                        let usage = 100 * u64::from(cpu + 1) + 1_000 * state as u64;
                        let more = More {
                            usage,
                            time_us: 900_000,
                            above: usage / 3,
                            below: 9,
                            rejected: 1,
                        };
                        machine.count(&cpu.to_string(), state, more);
                    }
                }
            }
            machine.pass(10.0);
        };
        let arguments: &[&str] =
            if machine.path().join("proc/uptime").exists() { &[] } else { &["-d", "0.05"] };
        let run = watch(&machine, arguments, play);
        if run.status == Some(2) {
            assert_eq!((run.stderr.lines().count(), run.stdout.as_str()), (1, ""), "{name}");
            refused += 1;
            continue;
        }
        let text = good(run);
        assert!(text.lines().count() <= 40, "{name}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{name}: {text}");
        shown += 1;
    }
    assert!(shown >= 12 && refused >= 4, "{shown} {refused}");
}

#[test]
fn without_an_idle_driver_it_says_so() {
    for (name, found) in [
        ("vm-no-driver", "no idle driver is active here (none)"),
        ("s390-no-cpuidle", "no idle driver is active here (none)"),
        ("container", "no idle driver is active here (none)"),
    ] {
        let run = watch(&CapturedMachine::unpack(name), &[], |_| panic!("it watches nothing"));
        assert_eq!(run.status, Some(2));
        assert!(run.stderr.contains(found), "{name}: {}", run.stderr);
    }
}

#[test]
fn says_that_the_firmware_refuses_a_state() {
    let machine = CapturedMachine::unpack("arm-server-rejecting");
    let text = good(watch(&machine, &[], |_| {
        machine.count("0-3", 0, More { usage: 50, time_us: 9_000_000, ..More::default() });
        machine.count("0-3", 2, More { rejected: 40_000, ..More::default() });
        machine.pass(10.0);
    }));
    assert!(text.contains("cluster-sleep-0 on CPUs 0-3: refused 4,000 times a second"), "{text}");
}

#[test]
fn an_old_kernel_does_not_count_misses() {
    let machine = CapturedMachine::unpack("server-haswell-old-kernel");
    let document = document(watch(&machine, &["--json"], |_| play_deep(&machine, "0-1", 4)));
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["too_deep_ratio"].is_null()), "{document}");
    assert!(document["findings"][0]["text"].as_str().unwrap().starts_with("C6 on CPUs 0-1: 1,840"));
    let limits = document["limits"].to_string();
    assert!(limits.contains("Misses: not counted by this kernel"), "{limits}");
}

#[test]
fn a_disabled_state_is_not_offered_and_limits_make_groups() {
    let machine = CapturedMachine::unpack("laptop-lunar-lake-limited");
    let document = document(watch(&machine, &["--json"], |_| play_deep(&machine, "0-3", 2)));
    let groups: Vec<(&str, Option<u64>)> = document["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["cpus"].as_str().unwrap(), group["latency_limit_ns"].as_u64()))
        .collect();
    assert_eq!(groups, [("0,2-3", Some(200_000)), ("1", Some(50_000))]);
    let machine = CapturedMachine::unpack("server-granite-rapids-c6p-off");
    let document = self::document(watch(&machine, &["--json"], |_| play_deep(&machine, "0-3", 3)));
    let off = document["rows"].as_array().unwrap().iter().filter(|row| row["setting"] == "off");
    assert_eq!(off.map(|row| row["state"].as_str().unwrap()).collect::<Vec<_>>(), ["C6P"]);
}

#[test]
fn a_measured_machine_file_gives_the_latencies() {
    let machine = CapturedMachine::unpack("server-milan");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my-machine.toml");
    let state = |name: &str, latency: u32, residency: u32| {
        format!(
            "[[states]]\nname = \"{name}\"\nexit_latency_us = {latency}\ntarget_residency_us = {residency}\n"
        )
    };
    let head = "id = \"mine\"\ntitle = \"Mine\"\narch = \"x86\"\nsource = \"measured\"\n";
    let states = [state("POLL", 0, 0), state("C1", 1, 2), state("C2", 12, 60)].concat();
    std::fs::write(&file, format!("{head}{states}")).unwrap();
    let arguments = ["--machine", file.to_str().unwrap()];
    let text = good(watch(&machine, &arguments, |_| play_deep(&machine, "0-3", 2)));
    assert!(text.contains("1,840 wake-ups/s × 12 us = 2.2 % of wall time"), "{text}");
    assert!(text.contains("Exit latency: measured on this machine."), "{text}");
    // Another machine's file has no such states.
    let run = watch(&machine, &["--machine", "power9"], |_| machine.pass(10.0));
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("power9 has none of the states POLL, C1, C2"), "{}", run.stderr);
}

#[test]
fn a_cpu_that_goes_away_is_left_out_and_named() {
    let machine = CapturedMachine::unpack("server-milan");
    let document = document(watch(&machine, &["--json"], |_| {
        machine.set_online("0-2");
        play_deep(&machine, "0-3", 2);
    }));
    assert_eq!(document["groups"][0]["cpus"], "0-2");
    assert_eq!(document["left_out"][0]["cpu"], 3);
    assert_eq!(document["left_out"][0]["reason"], "went offline in the meantime");
    let doubts = document["doubts"].to_string();
    assert!(doubts.contains("CPU 3 went offline in the meantime: left out"), "{doubts}");
    // If nothing is left, that is an error.
    let run = watch(&machine, &["--cpus", "1"], |_| {
        machine.set_online("0,2");
        machine.pass(10.0);
    });
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("no CPU can be judged: CPU 1 went offline"), "{}", run.stderr);
}

#[test]
fn settings_that_others_change_meanwhile_are_a_doubt() {
    let machine = CapturedMachine::unpack("server-milan");
    let text = good(watch(&machine, &[], |_| {
        machine.write(&state_file(0, 2, "disable"), "1\n");
        play_deep(&machine, "0-3", 2);
    }));
    assert!(text.contains("somebody enabled or disabled idle states"), "{text}");
}

#[test]
fn ctrl_c_ends_early_with_what_was_seen() {
    let machine = CapturedMachine::unpack("server-milan");
    let text = good(watch(&machine, &["-d", "600"], |process| {
        play_deep(&machine, "0-3", 2);
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(process as i32, libc::SIGINT) };
    }));
    assert!(text.contains("\n10.0 s on 4 CPUs (ended early)"), "{text}");
    assert!(text.contains("C2 on CPUs 0-3: 31 % too deep, 1,840 wake-ups/s × 30 us"), "{text}");
}

#[test]
fn a_clock_that_stands_still_is_no_division_by_zero() {
    let machine = CapturedMachine::unpack("server-milan");
    let run = watch(&machine, &[], |process| {
        machine.pass(-500.0);
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(process as i32, libc::SIGINT) };
    });
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("no time passed between the two readings"), "{}", run.stderr);
}

#[test]
fn counts_that_cannot_be_read_are_an_error_that_names_the_file() {
    let machine = CapturedMachine::unpack("server-milan");
    for cpu in 0..4 {
        std::fs::remove_file(machine.path().join(state_file(cpu, 1, "usage"))).unwrap();
    }
    let run = watch(&machine, &[], |_| panic!("it watches nothing"));
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("cpu0/cpuidle/state1/usage: "), "{}", run.stderr);
}

#[test]
fn wrong_cpus_and_folders_are_refused() {
    let machine = CapturedMachine::unpack("server-milan");
    for (arguments, found) in [
        (&["--cpus", "9"][..], "there is no CPU 9; this machine has 0-3"),
        (&["--cpus", "3-1"], "'3-1' is no CPU and no range of CPUs"),
        (&["-d", "0"], "give seconds from 0.001"),
    ] {
        let run = watch(&machine, arguments, |_| panic!("it watches nothing"));
        assert_eq!(run.status, Some(2));
        assert!(run.stderr.contains(found), "{}", run.stderr);
    }
    let run = crate::idlewise(&["why", "--sysroot", "/nowhere"]);
    assert!(String::from_utf8_lossy(&run.stderr).contains("/nowhere is not a folder"));
}

/// A machine that had no idle time has nothing that could be left alone.
#[test]
fn a_busy_machine_is_not_judged() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let cpus = [0, 1, 2, 3, 72, 73, 74, 75];
    let ticks = |busy: u64| {
        let line = |cpu| format!("cpu{cpu} {busy} 0 0 1000 0 0 0 0\n");
        machine.write("proc/stat", &cpus.map(line).concat());
    };
    ticks(0);
    let run = watch(&machine, &[], |_| {
        ticks(1_000);
        machine.pass(10.0);
    });
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    let line = run.stderr.lines().last().unwrap();
    let expected = "CPUs 0-3,72-75 were 100 % busy for 10.0 s: nothing to judge";
    assert!(line.contains(expected), "{line}");
    // A few stays are no reason for a condition to pass.
    let run = watch(&machine, &["--fail-if", "too-deep>8%"], |_| {
        ticks(2_000);
        play_deep(&machine, "0-3,72-75", 3);
    });
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.lines().last().unwrap().contains(expected), "{}", run.stderr);
    // Nor are they a table.
    let run = watch(&machine, &[], |_| {
        ticks(3_000);
        play_deep(&machine, "0-3,72-75", 3);
    });
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
}

/// A state that cannot be read is no state that nobody entered.
#[test]
fn a_latency_that_cannot_be_read_is_named() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let file = state_file(2, 3, "latency");
    machine.write(&file, "abc\n");
    let document = document(watch(&machine, &["--json"], |_| play_deep(&machine, "0-3", 3)));
    let doubts = document["doubts"].to_string();
    assert!(doubts.contains("CPU 2 had an idle state that cannot be read: left out"), "{doubts}");
    assert!(doubts.contains(&format!("{file} cannot be read")), "{doubts}");
    assert!(!doubts.contains("CPU 2 no idle stay"), "{doubts}");
    assert_eq!(document["left_out"][0]["cpu"], 2);
    let run = watch(&machine, &["--cpus", "2"], |_| play_deep(&machine, "2", 3));
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    let expected = format!("{file} cannot be read");
    assert!(run.stderr.lines().last().unwrap().ends_with(&expected), "{}", run.stderr);
}

/// One file of one CPU is not there, as where a filter or a broken mount hides it.
#[test]
fn a_count_that_is_missing_takes_out_its_cpu_only() {
    for name in ["usage", "time"] {
        let machine = CapturedMachine::unpack("server-ice-lake");
        let file = state_file(2, 3, name);
        std::fs::remove_file(machine.path().join(file.trim_start_matches("/"))).unwrap();
        let document = document(watch(&machine, &["--json"], |_| play_deep(&machine, "0-1,3", 3)));
        let doubts = document["doubts"].to_string();
        assert!(doubts.contains("CPU 2 had an idle state that cannot be read"), "{doubts}");
        assert!(doubts.contains(&format!("{file} cannot be read")), "{doubts}");
        assert_eq!(document["left_out"][0]["cpu"], 2);
        assert_eq!(document["left_out"][1], serde_json::Value::Null);
    }
}

/// Every fourth of 128 CPUs is online: a list of 100 characters.
#[test]
fn a_long_list_of_cpus_leaves_room_for_figures() {
    let machine = CapturedMachine::grown("server-ice-lake", 128);
    let online: Vec<String> = (0..32).map(|at| (4 * at).to_string()).collect();
    let list = online.join(",");
    machine.set_online(&list);
    let text = good(watch(&machine, &[], |_| play_deep(&machine, &list, 3)));
    let row = text.lines().find(|line| line.starts_with("0,4,8,12,16,… (32 CPUs)")).unwrap();
    assert!(row.contains(" 1.84 ") && row.contains("31.3"), "{text}");
    assert!(!text.contains("Not shown at this width"), "{text}");
    assert!(text.contains("C6 on CPUs 0,4,8,12,16,… (32 CPUs): 31 % too deep"), "{text}");
    assert!(!text.contains(&list) && !text.contains("24,28,32"), "{text}");
    let document = document(watch(&machine, &["--json"], |_| play_deep(&machine, &list, 3)));
    assert_eq!(document["groups"][0]["cpus"], list);
    assert_eq!(document["rows"][3]["cpus"], list);
}

/// Counts that stand still are no reason to leave things alone.
#[test]
fn where_nothing_was_counted_it_says_so() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let run = watch(&machine, &[], |_| machine.pass(10.0));
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    let line = run.stderr.lines().last().unwrap();
    assert!(
        line.contains("nothing was counted: on CPUs 0-3,72-75 no idle stay ended in 10.0 s"),
        "{line}"
    );
    assert!(line.contains("-d 60"), "{line}");
    // Time without a stay that it belongs to.
    let run = watch(&machine, &[], |_| {
        let more = More { usage: 0, time_us: 9_500_000, above: 0, below: 0, rejected: 0 };
        machine.count("0-3,72-75", 3, more);
        machine.pass(10.0);
    });
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("nothing was counted: on CPUs 0-3,72-75"), "{}", run.stderr);
    // Of some CPUs nothing was counted.
    let text = good(watch(&machine, &[], |_| play_deep(&machine, "2-3", 3)));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("on CPUs 0-1,72-75 no idle stay ended, so nothing is known there"),
        "{text}"
    );
}

/// One stay of 100 us on one of eight CPUs was a verdict on all, and CPUs that count nothing hid behind one that does if it
/// was grouped with them.
#[test]
fn where_hardly_anything_was_counted_it_says_so() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let short = More { usage: 1, time_us: 100, ..More::default() };
    for cpus in ["0", "0-3,72-75"] {
        let run = watch(&machine, &[], |_| {
            machine.count(cpus, 3, short);
            machine.pass(10.0);
        });
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{cpus}");
        assert!(run.stderr.contains("too little was counted: "), "{cpus}: {}", run.stderr);
    }
    // Entries whose time stands still.
    let run = watch(&machine, &[], |_| {
        machine.count("0-3,72-75", 3, More { usage: 9_000, time_us: 0, ..More::default() });
        machine.pass(10.0);
    });
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
    let long = More { usage: 10, time_us: 900_000, ..More::default() };
    let text = good(watch(&machine, &[], |_| {
        machine.count("0-3", 3, long);
        machine.pass(10.0);
    }));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("on CPUs 72-75 no idle stay ended"), "{text}");
}

#[test]
fn no_share_is_more_than_all_of_the_time() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    // One stay began a minute before; the exits of the others would take twice the interval.
    let more = More { usage: 123_000, time_us: 70_000_000, above: 5, below: 0, rejected: 0 };
    let play = |_| {
        machine.count("0-3,72-75", 3, more);
        machine.pass(10.0);
    };
    let document = document(watch(&machine, &["--json"], play));
    let ratio = |value: &Value| value.as_f64().unwrap();
    for row in document["rows"].as_array().unwrap() {
        assert!(ratio(&row["waiting_ratio"]) <= 1.0 && ratio(&row["time_ratio"]) <= 1.0, "{row}");
    }
    let finding = &document["findings"][0];
    assert_eq!(finding["waiting_ratio"], 1.0);
    assert!(ratio(&finding["instead"]["waiting_change_ratio"]) >= -1.0, "{finding}");
    assert!(
        document["doubts"].to_string().contains("counted more idle time than passed"),
        "{document}"
    );
}

/// Five states cannot each have taken all of the time, and three misses are no two stays. A count that ended between
/// two readings is.
#[test]
fn impossible_counts_are_left_out() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let run = watch(&machine, &[], |_| {
        for state in 1..=3 {
            let more = More { usage: 100, time_us: 10_000_000, ..More::default() };
            machine.count("0-3", state, more);
        }
        machine.count("72-75", 3, More { usage: 2, time_us: 90, above: 3, below: 2, rejected: 0 });
        machine.pass(10.0);
    });
    assert_eq!(run.status, Some(2), "{}", run.stdout);
    let part = "CPU 0 counted more misses than stays, or more idle time than passed";
    assert!(run.stderr.contains(part), "{}", run.stderr);
    let machine = CapturedMachine::unpack("server-ice-lake");
    let play = |_| {
        machine.count(
            "0-3,72-75",
            3,
            More { usage: 1, time_us: 900_000, above: 2, below: 1, rejected: 0 },
        );
        machine.pass(10.0);
    };
    let document = document(watch(&machine, &["--json"], play));
    let row = document["rows"].as_array().unwrap().last().unwrap();
    assert_eq!(row["too_deep_ratio"], 1.0, "{row}");
    assert_eq!(row["too_shallow_ratio"], 0.0, "{row}");
    // A stay that began before the machine did.
    let run = watch(&machine, &[], |_| {
        play_deep(&machine, "1-3", 3);
        machine.count("0", 3, More { usage: 1, time_us: 1 << 60, ..More::default() });
    });
    let text = good(run).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("CPU 0 counted more misses than stays, or more idle time"), "{text}");
}

#[test]
fn time_that_stands_still_is_not_waited_for() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let run = watch(&machine, &["-d", "0.05"], |_| {});
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
    assert!(run.stderr.contains("proc/uptime stands still"), "{}", run.stderr);
}

#[test]
fn an_old_copy_is_refused_at_once() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    for file in ["proc/uptime", "sys/devices/system/cpu/cpu0/cpuidle/state0/usage"] {
        let file = File::options().write(true).open(machine.path().join(file)).unwrap();
        file.set_modified(yesterday).unwrap();
    }
    let run = watch(&machine, &[], |_| panic!("it watches nothing"));
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    let expected = "is a copy that nobody has changed for a minute, so its counts stand still";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn odd_machines_get_one_line_or_an_answer() {
    let folder = "sys/devices/system/cpu";
    let refused = |machine: &CapturedMachine, part: &str| {
        let run = watch(machine, &["-d", "0.05"], |_| {});
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
        assert!(run.stderr.contains(part), "{}", run.stderr);
    };
    let machine = CapturedMachine::unpack("server-ice-lake");
    for list in ["online", "present", "possible"] {
        machine.write(&format!("{folder}/{list}"), "\n");
    }
    refused(&machine, "cpu/present: it lists no CPU");
    // A state's name with spaces, one that is no UTF-8, and numbers at the end of what a number can be.
    let machine = CapturedMachine::unpack("server-genoa");
    machine.write(&state_file(0, 1, "name"), "C1 \"of the ACPI\"\n");
    std::fs::write(machine.path().join(state_file(0, 1, "desc")), b"\xff\xfe\n").unwrap();
    machine.write(&state_file(1, 2, "latency"), "4294967295\n");
    machine.write(&state_file(1, 2, "residency"), "4294967295\n");
    machine.write(&state_file(1, 2, "time"), "18446744073709000000\n");
    let play = |_| {
        machine.count("0-3", 2, More { usage: 1_000, time_us: 500_000, ..More::default() });
        machine.count("0", 1, More { usage: 9_000, time_us: 5_000_000, ..More::default() });
        machine.pass(10.0);
    };
    let document = document(watch(&machine, &["--json"], play));
    let groups = document["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3, "the tables of CPUs 0 and 1 are others: {document}");
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["state"] == "C1-\"of-the-ACPI\""), "{document}");
    for row in document["rows"].as_array().unwrap() {
        assert!(row["waiting_ratio"].as_f64().unwrap() <= 1.0, "{row}");
    }
    // One CPU is offline, and the counts of another go backwards.
    let machine = CapturedMachine::unpack("server-genoa");
    machine.set_online("0-2");
    let play = |_| {
        machine.count("0-1", 2, More { usage: 1_000, time_us: 500_000, ..More::default() });
        machine.write(&state_file(2, 2, "usage"), "1\n");
        machine.pass(10.0);
    };
    let document = self::document(watch(&machine, &["--json"], play));
    let left_out: Vec<_> =
        document["left_out"].as_array().unwrap().iter().map(|one| one["cpu"].as_u64()).collect();
    assert_eq!(left_out, [Some(2), Some(3)], "{document}");
}

/// Ten seconds in which CPUs 2 and 3 are in C6 half of the time, and the others in C1E all of it.
fn play_two_kinds(machine: &CapturedMachine) {
    let more = More { usage: 1_000, time_us: 9_900_000, ..More::default() };
    machine.count("0-1,72-75", 2, more);
    play_deep(machine, "2-3", 3);
}

#[test]
fn conditions_for_continuous_integration_decide_the_exit_status() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let judged = |conditions: &[&str]| {
        let options: Vec<&str> = conditions.iter().flat_map(|one| ["--fail-if", one]).collect();
        watch(&machine, &options, |_| play_two_kinds(&machine))
    };
    // By hand: 2 · 5,704 of 2 · 18,400 + 6 · 1,000 stays are 26.7 %, and C6 took 2 · 5 of 8 · 10 seconds.
    for (condition, found) in [
        ("too-deep=8%", "too-deep=8% holds (27 % over all CPUs, 31 % on CPUs 2-3)"),
        ("too-deep>26.6%", "too-deep>26.6% holds (27 % over all CPUs, 31 % on CPUs 2-3)"),
        (
            "residency:C6<13%",
            "residency:C6<13% holds (12 % over all CPUs, 0.0 % on CPUs 0-1,72-75)",
        ),
        (
            "residency:c6=20%",
            "residency:c6=20% holds (12 % over all CPUs, 0.0 % on CPUs 0-1,72-75)",
        ),
        ("residency:C6>12%", "residency:C6>12% holds (12 % over all CPUs, 50 % on CPUs 2-3)"),
        ("wake-latency>50us", "170 us, C6 was entered 1,840 times a second on CPUs 2-3"),
        ("wake-latency<1ms", "170 us, C6 was entered 1,840 times a second on CPUs 2-3"),
    ] {
        // One that passes is not named.
        let run = judged(&["too-shallow>5%", condition]);
        assert_eq!(run.status, Some(1), "{condition}: {}", run.stderr);
        let failed: Vec<&str> =
            run.stdout.lines().filter(|line| line.starts_with("FAILED: ")).collect();
        assert_eq!(failed.len(), 1, "{}", run.stdout);
        assert!(failed[0].contains(found), "{condition}: {}", failed[0]);
    }
    for condition in
        ["too-deep>26.8%", "residency:C6<12%", "residency:C1E<70%", "wake-latency>170us"]
    {
        assert!(!good(judged(&[condition])).contains("FAILED"), "{condition}");
    }
    let run =
        watch(&machine, &["--json", "--fail-if", "too-deep>8%"], |_| play_two_kinds(&machine));
    assert_eq!(run.status, Some(1));
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    schemas::assert_valid("why", &document);
    let condition = &document["conditions"][0];
    assert_eq!((&condition["failed"], &condition["cpus"]), (&true.into(), &"2-3".into()));
    assert!((condition["value"].as_f64().unwrap() - 11_408.0 / 42_800.0).abs() < 1e-12);
}

#[test]
fn conditions_that_cannot_be_judged_are_no_pass() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    for (condition, found) in [
        ("too-deep", "'too-deep' has no limit"),
        ("too-deep>8", "'8' is no share"),
        ("too-deep>101%", "'101%' is no share"),
        ("depth>8%", "'depth' is not known"),
        ("residency:<8%", "'residency:' is not known"),
        ("wake-latency>8%", "no latency"),
        ("wake-latency>none", "give a latency"),
    ] {
        let run = watch(&machine, &["--fail-if", condition], |_| panic!("it watches nothing"));
        assert_eq!(run.status, Some(2), "{condition}");
        assert!(run.stderr.contains(found), "{condition}: {}", run.stderr);
    }
    let last = |run: Run| {
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
        run.stderr.lines().last().unwrap().to_owned()
    };
    let line =
        last(watch(&machine, &["--fail-if", "residency:C7<8%"], |_| play_two_kinds(&machine)));
    assert!(line.contains("no CPU has a state C7; there are POLL, C1, C1E, C6"), "{line}");
    // Nothing was counted.
    let line = last(watch(&machine, &["--fail-if", "too-deep>8%"], |_| machine.pass(10.0)));
    assert!(line.contains("nothing was counted"), "{line}");
    // CPUs on which no stay ended may have been in C6 all the time.
    let silent =
        watch(&machine, &["--fail-if", "residency:C6<40%"], |_| play_deep(&machine, "2-3", 3));
    assert!(!good(silent).contains("FAILED"));
    let old = CapturedMachine::unpack("server-haswell-old-kernel");
    let line = last(watch(&old, &["--fail-if", "too-deep>8%"], |_| play_deep(&old, "0-1", 4)));
    assert!(line.contains("--fail-if too-deep>8%: this kernel does not count misses"), "{line}");
}
