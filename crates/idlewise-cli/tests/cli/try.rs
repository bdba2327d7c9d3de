//! `idlewise try` on captured machines: the command reads whether C6 is off there, and prints a number that
//! depends on it, with noise that a seed determines.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::settings::wait_until;
use crate::{idlewise, schemas};

const C6: &str = "sys/devices/system/cpu/cpu0/cpuidle/state2/disable";

/// A machine with one CPU of three states.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.put("proc/sys/kernel/random/boot_id", "one\n");
        machine.put("sys/devices/system/cpu/online", "0\n");
        machine.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        machine.put("sys/devices/system/cpu/cpuidle/available_governors", "menu teo\n");
        machine.put("sys/devices/system/cpu/cpuidle/current_governor", "menu\n");
        for (index, name) in ["POLL", "C1", "C6"].into_iter().enumerate() {
            let state = format!("sys/devices/system/cpu/cpu0/cpuidle/state{index}");
            machine.put(&format!("{state}/name"), &format!("{name}\n"));
            machine.put(&format!("{state}/disable"), "0\n");
            machine.put(&format!("{state}/latency"), "1\n");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A benchmark: prints about 10000, and with C6 off this much more. The noise is at most `noise`.
    fn bench(&self, more: i32, noise: i32, seed: u32) -> String {
        self.put("noise", &format!("{seed}\n"));
        self.script(&format!(
            "cd {folder}\n\
             read n < noise\n\
             n=$(( (n * 1103515245 + 12345) % 2147483648 ))\n\
             echo $n > noise\n\
             read off < {C6}\n\
             echo \"warming: 1 ops\"\n\
             echo \"result: $(( 10000 + n / 65536 % {steps} - {noise} + off * {more} )) ops\"\n",
            folder = self.0.path().display(),
            steps = 2 * noise + 1,
        ))
    }

    fn script(&self, text: &str) -> String {
        let path = self.path("bench");
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let root = self.0.path().to_str().unwrap();
        let fixed = ["try", "--sysroot", root, "--settle", "0"];
        idlewise(&[&fixed, options, &["--"], command].concat())
    }

    /// Tries C6=off, judged by the number. Returns the exit status and the result.
    fn judged(&self, bench: &str, options: &[&str]) -> (Option<i32>, Value) {
        let fixed = ["--set", "C6=off", "--metric", "[a-z]+: ([0-9.]+) ops", "--json"];
        let output = self.run(&[&fixed, options].concat(), &[bench]);
        let text = String::from_utf8_lossy(&output.stderr);
        let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
        schemas::assert_valid("try", &document);
        assert!(self.is_restored());
        (output.status.code(), document)
    }

    fn is_restored(&self) -> bool {
        let journal =
            fs::read_to_string(self.path("run/idlewise/journal.json")).unwrap_or_default();
        let is_empty = !journal.contains("C6=off");
        fs::read_to_string(self.path(C6)).unwrap().trim() == "0" && is_empty
    }

    /// Asserts one line and status 2, and that nothing is changed.
    fn refused(&self, options: &[&str], command: &[&str], parts: &[&str]) {
        let output = self.run(options, command);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(output.stdout.is_empty());
        assert_eq!(text.lines().count(), 1, "{text}");
        for part in parts {
            assert!(text.contains(part), "{text:?} has no {part:?}");
        }
        assert!(self.is_restored());
    }
}

/// Beyond twelve blocks the outcomes of chance are drawn: anew each time, by a seed that is printed.
#[test]
fn the_seed_is_drawn_and_said() {
    let machine = Machine::new();
    let bench = machine.bench(0, 100, 1);
    let seed = |_| machine.judged(&bench, &["--rounds", "28"]).1["seed"].as_u64().unwrap();
    let seeds: std::collections::BTreeSet<u64> = (0..2).map(seed).collect();
    assert_eq!(seeds.len(), 2, "48 bits are not drawn twice");
}

#[test]
fn finds_a_planted_3_percent_in_at_most_40_rounds() {
    let machine = Machine::new();
    for seed in 1..=3 {
        let bench = machine.bench(300, 200, seed);
        let (status, document) =
            machine.judged(&bench, &["--seed", &seed.to_string(), "--higher-is-better"]);
        let result = &document["result"];
        assert_eq!((status, &result["verdict"]), (Some(0), &"different".into()), "{result}");
        assert!(result["round_count"].as_u64() <= Some(40));
        let ratio = result["ratio"].as_f64().unwrap();
        assert!((1.02..1.04).contains(&ratio), "{result}");
        assert!(result["ratio_interval"][0].as_f64() > Some(1.0), "{result}");
        assert!(result["mann_whitney_p"].as_f64() < Some(0.01), "{result}");
        assert!(result["finding"].as_str().unwrap().contains("B is better"), "{result}");
        // Each block is A B B A or B A A B, and B's rounds were under the setting.
        let rounds = document["rounds"].as_array().unwrap();
        for block in rounds.chunks(4) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| block[i]["setting"].as_str().unwrap());
            assert!(a == d && b == c && a != b);
        }
        let is_b = |round: &&Value| round["setting"] == "B";
        assert!(rounds.iter().filter(is_b).all(|round| round["metric"].as_f64() >= Some(10_100.0)));
    }
}

#[test]
fn does_not_find_a_difference_that_is_not_there_in_20_tries() {
    let machine = Machine::new();
    let mut denied_count = 0;
    for seed in 1..=20 {
        let bench = machine.bench(0, 100, 1_000 + seed);
        let (_, document) = machine.judged(&bench, &["--seed", &seed.to_string()]);
        let verdict = document["result"]["verdict"].as_str().unwrap();
        assert_ne!(verdict, "different", "seed {seed}: {}", document["result"]);
        denied_count += usize::from(verdict == "no_difference");
    }
    assert!(denied_count >= 10, "{denied_count} of 20");
}

#[test]
fn says_what_it_found_and_how_sure_it_is() {
    let machine = Machine::new();
    let bench = machine.bench(300, 100, 1);
    let output =
        machine.run(&["--set", "C6=off", "--metric", "result: (.*) ops", "--seed", "7"], &[&bench]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "blocks of four (A B B A or B A A B, chosen at random with seed 7):",
        "as they are",
        "C6=off",
        "95 % interval +",
        "Decided after 28 rounds",
        "Mann-Whitney p",
        "Measured: wall times",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn too_much_noise_is_undecided_and_status_1() {
    let machine = Machine::new();
    let bench = machine.bench(0, 4_000, 1);
    let (status, document) = machine.judged(&bench, &["--seed", "1", "--rounds", "28"]);
    let result = &document["result"];
    assert_eq!((status, &result["verdict"]), (Some(1), &"undecided".into()));
    assert_eq!(result["ended_by"], "rounds");
    assert!(result["finding"].as_str().unwrap().contains("--rounds"), "{result}");
}

/// The saved wall times are what `idlewise lab compare` reads.
#[test]
fn compare_reads_what_it_saved() {
    let machine = Machine::new();
    let bench = machine.bench(300, 100, 1);
    let (_, document) = machine.judged(&bench, &["--seed", "1"]);
    let path = machine.path("try.json");
    fs::write(&path, document.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let text =
        crate::stdout(&["lab", "compare", path, path, "--a", "as they are", "--b", "C6=off"]);
    assert!(text.contains("median"), "{text}");
}

#[test]
fn csv_has_a_line_for_each_round() {
    let machine = Machine::new();
    let bench = machine.bench(300, 100, 1);
    let output = machine.run(
        &["--set", "C6=off", "--metric", "result: (.*) ops", "--csv", "--seed", "1"],
        &[&bench],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "round,block,setting,wall_ns,metric,energy_uj");
    assert_eq!(lines.len(), 29, "{text}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("B's number is"));
}

#[test]
fn a_failing_command_is_named_and_nothing_stays_changed() {
    let machine = Machine::new();
    let bench = machine.script("echo first >&2; echo 'no such table' >&2; exit 3\n");
    let parts =
        ["warm-up round 1 (A: as they are)", "ended with status 3: no such table", "as they were"];
    machine.refused(&["--set", "C6=off"], &[&bench], &parts);
    // Only under B, and later.
    let bench = machine.script(&format!(
        "read off < {}\n[ $off = 0 ] || kill -KILL $$\n",
        machine.path(C6).display()
    ));
    let parts = ["round 1 (B: C6=off)", "was ended by signal 9: it said nothing"];
    machine.refused(&["--set", "C6=off"], &[&bench], &parts);
    machine.refused(
        &["--set", "C6=off"],
        &["/no/such/program"],
        &["cannot start /no/such/program", "as they were"],
    );
}

#[test]
fn a_number_that_cannot_be_compared_is_named() {
    let machine = Machine::new();
    let refused = |said: &str, metric: &str, part: &str| {
        let bench = machine.script(&format!("echo '{said}'\n"));
        machine.refused(&["--set", "C6=off", "--metric", metric], &[&bench], &[part]);
    };
    refused("nothing", "ops: ([0-9]+)", "printed nothing that --metric 'ops: ([0-9]+)' finds");
    refused("ops: none", "ops: (.*)", "found 'none', which is no number");
    let cut = format!("found '{}...', which is no number", "x".repeat(60));
    refused(&"x".repeat(5_000), "(.*)", &cut);
    refused("", "(.*)", "printed nothing that --metric '(.*)' finds");
    refused("ops: 0", "ops: (.*)", "only numbers above 0 have ratios");
    for number in ["inf", "-1", "9e-101", "1.1e100", "NaN"] {
        let found =
            format!("found {number}, and only numbers above 0 have ratios (1e-100 to 1e100)");
        refused(&format!("ops: {number}"), "ops: (.*)", &found);
    }
    machine.refused(
        &["--set", "C6=off", "--rounds", "12"],
        &["true"],
        &["fewer than 28 rounds", "95 %"],
    );
}

/// `.*` matches once more, nothing, at the end of each line.
#[test]
fn the_last_match_that_is_not_empty_is_the_number() {
    let machine = Machine::new();
    let bench = machine.script("echo 7; echo 100; echo\n");
    let output =
        machine.run(&["--set", "C6=off", "--metric", "(.*)", "--csv", "--rounds", "28"], &[&bench]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with(",100,")).count(), 28, "{text}");
}

/// The bound is what the settling alone takes, so it holds on a busy machine too.
#[test]
fn the_time_for_more_rounds_counts_whole_rounds() {
    let machine = Machine::new();
    let bench = machine.bench(0, 4_000, 1);
    let root = machine.0.path().to_str().unwrap();
    let options = ["try", "--sysroot", root, "--settle", "0.04", "--set", "C6=off", "--seed", "1"];
    let metric = ["--rounds", "28", "--metric", "result: (.*) ops", "--", bench.as_str()];
    let output = idlewise(&[&options[..], &metric].concat());
    let text = String::from_utf8(output.stdout).unwrap().replace('\n', " ");
    let said = text.split("differ, about ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = said.split_whitespace().collect();
    let rounds: f64 = words[0].parse().unwrap();
    let about = words.iter().skip(1).position(|word| *word == "about").unwrap() + 2;
    let unit_s = match words[about + 1].trim_end_matches(':') {
        "s" => 1.0,
        "minutes" => 60.0,
        "hours" => 3_600.0,
        unit => panic!("{unit}: {text}"),
    };
    let time_s = (words[about].parse::<f64>().unwrap() + 0.5) * unit_s;
    assert!(time_s >= 0.04 * rounds, "{text}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let machine = Machine::new();
    let refused = |options: &[&str], part: &str| {
        let output = machine.run(options, &["true"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(part), "{text:?} has no {part:?}");
    };
    refused(&["--set", "C6=maybe"], "neither on nor off");
    refused(&["--set", "C9=off"], "no idle state C9");
    refused(&["--set", "governor=ladder"], "no governor ladder");
    refused(&["--set", "C6=off@3"], "CPU 3 is not online");
    refused(&["--set", "C6=off", "--metric", "ops"], "it has 0 groups");
    refused(&["--set", "C6=off", "--metric", "ops: ("], "unclosed group");
    refused(&["--set", "C6=off", "--least", "1"], "such as 1% or 0.5%");
    refused(&["--set", "C6=off", "--confidence", "100%"], "50 to 99.9 %");
    refused(&["--set", "C6=on"], "are the same on this machine, so there is nothing to compare");
    refused(&["--set", "C6=off", "--against", "C6=off"], "are the same on this machine");
    refused(&["--set", "C6=off", "--lower-is-better"], "--metric");
    fs::remove_file(machine.path("sys/devices/system/cpu/cpuidle/current_driver")).unwrap();
    refused(&["--set", "C6=off"], "no cpuidle driver");
}

/// The round was not under the setting, so it says nothing.
#[test]
fn a_setting_that_somebody_else_changes_meanwhile_ends_the_try() {
    let machine = Machine::new();
    let c6 = machine.path(C6);
    let bench = machine
        .script(&format!("read off < {c6}\n[ $off = 0 ] || echo 0 > {c6}\n", c6 = c6.display()));
    machine.refused(
        &["--set", "C6=off"],
        &[&bench],
        &["(B: C6=off): somebody else wrote 0 to", "disable"],
    );
    // The governor, too, by the whole path: /sys/... on a machine that is not a copy.
    let governor = machine.path("sys/devices/system/cpu/cpuidle/current_governor");
    let bench = machine.script(&format!("echo menu > {}\n", governor.display()));
    let said = format!("somebody else wrote menu to {} meanwhile", governor.display());
    machine.refused(&["--set", "governor=teo"], &[&bench], &["(B: governor=teo)", &said]);
    // A's rounds are under no other setting either.
    let bench = machine.script(&format!("echo 1 > {}\n", c6.display()));
    let output = machine.run(&["--set", "C6=off"], &[&bench]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("(A: as they are): somebody else wrote 1 to"), "{text}");
    machine.put(C6, "0\n");
    // A CPU that goes offline takes its settings along.
    let folder = c6.parent().unwrap().display().to_string();
    let bench = machine.script(&format!(
        "read off < {folder}/disable\n[ $off = 0 ] || mv {folder} {folder}.gone\n"
    ));
    let output = machine.run(&["--set", "C6=off"], &[&bench]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("is gone, as when a CPU is put offline"), "{text}");
}

#[test]
fn when_the_time_is_over_the_command_is_ended_and_the_settings_are_restored() {
    let machine = Machine::new();
    let bench = machine.script("echo 'result: 1 ops'; exec sleep 1000\n");
    let (status, document) = machine.judged(&bench, &["--max-minutes", "0.005"]);
    assert_eq!((status, &document["result"]["ended_by"]), (Some(1), &"time".into()));
    assert_eq!(document["result"]["finding"], "Undecided: no block of 4 rounds was finished");
}

/// Runs a try until its command runs under B. Returns the try, and the command's process.
fn running_under_b(machine: &Machine) -> (Child, String) {
    let is_set = machine.path("is_set");
    let bench = machine.script(&format!(
        "read off < {}; [ $off = 0 ] || {{ echo $$ > {}; exec sleep 1000; }}\n",
        machine.path(C6).display(),
        is_set.display()
    ));
    assert!(Command::new("mkfifo").arg(&is_set).status().unwrap().success());
    let root = machine.0.path().to_str().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["try", "--sysroot", root, "--settle", "0", "--set", "C6=off", "--", &bench])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Opening the pipe waits for the command.
    let pid = fs::read_to_string(&is_set).unwrap().trim().to_owned();
    assert_eq!(fs::read_to_string(machine.path(C6)).unwrap().trim(), "1");
    (child, pid)
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

#[test]
fn ctrl_c_restores_and_prints_what_there_is() {
    let machine = Machine::new();
    let (child, _) = running_under_b(&machine);
    kill("-INT", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Undecided"));
    assert!(machine.is_restored());
}

#[test]
fn a_try_that_is_killed_is_restored_by_its_holder() {
    for signal in ["-QUIT", "-KILL"] {
        let machine = Machine::new();
        let (child, command) = running_under_b(&machine);
        kill(signal, &child.id().to_string());
        child.wait_with_output().unwrap();
        wait_until("the holder restores", || machine.is_restored());
        kill("-KILL", &command);
    }
}
