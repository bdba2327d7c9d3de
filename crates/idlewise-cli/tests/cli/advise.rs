//! `idlewise advise`. The advice is checked by applying it in a simulation.

use std::fs;
use std::io::Write;

use serde_json::Value;

use crate::captured::CapturedMachine;
use crate::{assert_refused, idlewise, json, root, stdout};

/// A small machine, for half a second.
const SMALL: &str =
    "--set package_count=1 --set core_count=4 --set thread_count=1 --duration-ms 500";

/// Simulates a workload under menu and writes its log. Returns what it came to.
fn simulate(workload: &str, options: &str, log: &str) -> Value {
    let line =
        format!("lab simulate spr {workload} {SMALL} {options} --trace {log} --force --json");
    json(&line.split_whitespace().collect::<Vec<_>>())
}

fn span<'a>(run: &'a Value, name: &str) -> &'a Value {
    run["spans"].as_array().unwrap().iter().find(|span| span["span"] == name).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// The same settings in the simulated machine change delay and power as the advice said.
#[test]
fn what_it_says_comes_true_when_it_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("before.parquet");
    let log = log.to_str().unwrap();
    for (workload, late) in [("periodic", "timer_delay"), ("async-calls", "call")] {
        let before = simulate(workload, "--governor menu", log);
        let advice = json(&["advise", log, "--slo", "p99=50us", "--json"]);
        assert_eq!(advice["outcome"], "change", "{advice}");
        assert_eq!(advice["setting"], "latency=2us@0-3");
        let after = simulate(workload, "--governor menu --latency-limit-us 2", log);
        let row = |setting: &Value| {
            let rows = advice["rows"].as_array().unwrap();
            rows.iter().find(|row| row["setting"] == *setting).unwrap()
        };
        let told = row(&advice["setting"]);
        // Power: within 5 % of the change.
        let watts = |run: &Value| number(&run["runs"][0]["power_mw"]);
        let (told_mw, found_mw) =
            (number(&told["power_change_mw"]), watts(&after) - watts(&before));
        assert!((told_mw - found_mw).abs() <= 0.05 * found_mw.abs(), "{told_mw} {found_mw}");
        // Delay: the 99th percentile falls by as much as was told.
        let told_ns =
            number(&row(&"as it is".into())["delay_p99_ns"]) - number(&told["delay_p99_ns"]);
        let p99_ns = |run: &Value| number(&span(run, late)["p99_ns"]);
        assert!((p99_ns(&before) - p99_ns(&after) - told_ns).abs() < 1e3, "{workload}: {told_ns}");
    }
}

#[test]
fn leaves_alone_what_nothing_surely_improves() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.parquet");
    let log = log.to_str().unwrap();
    simulate("periodic", "--governor menu --latency-limit-us 2", log);
    let text = stdout(&["advise", log]);
    assert!(text.contains("Leave it alone: nothing that was tried is sure to help"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    // So few events say nothing for sure.
    let few = json(&["advise", "traces/a-idle.parquet", "--machine", "milan", "--json"]);
    assert!(few["slice_count"].as_u64().unwrap() < 16, "{few}");
}

#[test]
fn limits_that_nothing_keeps_are_said_with_what_comes_nearest() {
    let arguments = ["advise", "traces/h-pingpong.parquet", "--machine", "spr", "--slo"];
    let run = idlewise(&[&arguments[..], &["p99=50us", "--max-watts", "0.01"]].concat());
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(1), "{text}");
    assert!(
        text.contains("Nothing that was tried clearly keeps all limits. latency=2us@0 comes"),
        "{text}"
    );
    // What it says would be kept is kept.
    for asked in ["--slo p99=50us --max-watts 0.01", "--slo p99.9=1us"] {
        let arguments = ["advise", "traces/h-pingpong.parquet", "--machine", "spr"];
        let asked: Vec<&str> = asked.split(' ').collect();
        let run = idlewise(&[&arguments[..], &asked].concat());
        let text = String::from_utf8(run.stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(run.status.code(), Some(1), "{text}");
        let (before, _) = text.split_once(", it would keep them.").expect(&text);
        let (_, wider) = before.rsplit_once("With ").unwrap();
        let wider: Vec<&str> = wider.split(' ').collect();
        stdout(&[&arguments[..], &wider].concat());
    }
}

#[test]
fn settings_are_for_the_asked_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.parquet");
    let log = log.to_str().unwrap();
    simulate("periodic", "--governor menu", log);
    let advice = json(&["advise", log, "--cpus", "1-2", "--slo", "p99=50us", "--json"]);
    assert_eq!((&advice["setting"], &advice["cpus"]), (&"latency=2us@1-2".into(), &"1-2".into()));
    // Half of the CPUs change half of the power.
    let change = |advice: &Value| {
        let rows = advice["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["setting"] == advice["setting"]).unwrap();
        number(&row["power_change_mw"])
    };
    let all = json(&["advise", log, "--slo", "p99=50us", "--json"]);
    let ratio = change(&advice) / change(&all);
    assert!((0.4..0.6).contains(&ratio), "{ratio}");
    let arguments = ["advise", log, "--cpus", "9"];
    assert_refused(&arguments, &["has no idle periods of CPU 9, only of 0-3"]);
}

#[test]
fn the_change_is_written_in_each_form() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("advice");
    let path = file.to_str().unwrap();
    let limited = ["advise", "traces/h-pingpong.parquet", "--machine", "spr", "--slo", "p99=50us"];
    let arguments = [&limited[..], &["--emit"]].concat();
    for (form, found) in [
        ("commands", "idlewise set apply --set 'latency=2us@0'\n"),
        ("tuned", "[sysfs]\n/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us=2\n"),
        (
            "systemd",
            "ExecStart=/usr/bin/idlewise set apply --on-exit restore --set latency=2us@0\n",
        ),
        ("dropin", "\nlatency=2us@0\n"),
    ] {
        let report = stdout(&[&arguments[..], &[form, "-o", path, "--force"]].concat());
        assert!(report.contains("Recommended: latency=2us@0."), "{report}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# idlewise advise on h-pingpong\n# Recommended: "), "{text}");
        assert!(text.contains(found), "{text}");
        // On standard output, there is nothing else.
        let run = idlewise(&[&arguments[..], &[form]].concat());
        assert_eq!(String::from_utf8(run.stdout).unwrap(), text);
        assert!(String::from_utf8_lossy(&run.stderr).contains("Recommended: latency=2us@0."));
    }
    assert_refused(&[&arguments[..], &["dropin", "-o", path]].concat(), &["exists"]);
}

/// An empty container has no /tmp.
#[test]
fn without_a_folder_for_its_recording_it_asks_for_one() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"));
    let output = command.env("TMPDIR", "/nowhere").args(["advise", "-d", "1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("set TMPDIR to a folder that exists") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn wrong_input_is_refused_in_a_line() {
    let log = "traces/h-pingpong.parquet";
    for (arguments, found) in [
        (&["advise", log][..], "does not say which idle states the machine has"),
        (&["advise", "/nowhere.dat"], "cannot read /nowhere.dat"),
        (&["advise", log, "--machine", "cwf"], "cwf"),
    ] {
        assert_refused(arguments, &[found]);
    }
    for (arguments, found) in [
        (&["advise"][..], "name a recording, or record this machine first"),
        (&["advise", log, "-d", "3"], "cannot be used with"),
        (&["advise", log, "--slo", "p99"], "'p99' is not a limit of delay"),
        (&["advise", log, "--slo", "p0=3us"], "'p0=3us' is not a limit of delay"),
        (&["advise", log, "--slo", "p99=3"], "is no latency"),
        (&["advise", log, "--max-watts=-1"], "give watts of 0 or more"),
        (&["advise", log, "--max-watts", "3"], "--slo"),
        (&["advise", log, "-o", "x"], "--emit"),
    ] {
        let run = idlewise(arguments);
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(found), "{arguments:?}: {stderr}");
    }
}

/// Whether or not this user may record: an answer or a line, and nothing is left behind.
#[test]
fn recording_first_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["advise", "-d", "0.2", "--machine", "spr"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    match run.status.code() {
        Some(0) => assert!(String::from_utf8_lossy(&run.stdout).contains("as it is")),
        code => assert!(code == Some(2) && stderr.lines().count() <= 2, "{stderr}"),
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A recording that says what makes tasks run is judged by playing them, unless asked otherwise.
#[test]
fn a_recording_with_causes_is_judged_on_its_workload() {
    let recording = "traces/c-nginx.trace.dat.xz";
    let advice = json(&["advise", recording, "--slo", "p50=50us", "--json"]);
    assert_eq!((&advice["judged_by"], &advice["outcome"]), (&"predict".into(), &"change".into()));
    assert_eq!(advice["setting"], "latency=2us@0-1");
    let row = |advice: &Value, setting: &str| {
        let rows = advice["rows"].as_array().unwrap();
        rows.iter().find(|row| row["setting"] == setting).unwrap().clone()
    };
    let p50_ns = |setting: &str| number(&row(&advice, setting)["delay_p50_ns"]);
    // The same as `predict` says of it: the delay is that of the workload's wake-ups.
    let told = json(&[
        "predict",
        recording,
        "--governor",
        "menu",
        "--latency-limit-us",
        "2",
        "--json",
        "--replicates",
        "1",
    ]);
    let of_all: Vec<&Value> =
        told["tasks"].as_array().unwrap().iter().filter(|row| row["task"] == "all").collect();
    for (setting, row) in [("as it is", of_all[0]), ("latency=2us@0-1", of_all[1])] {
        let ratio = p50_ns(setting) / number(&row["latency_p50_ns"]);
        assert!((0.99..=1.01).contains(&ratio), "{setting}: {ratio}");
    }
    // A replay knows only the exits.
    let replayed = json(&["advise", recording, "--slo", "p50=50us", "--judge", "replay", "--json"]);
    assert_eq!(replayed["judged_by"], "replay");
    assert_eq!(number(&row(&replayed, "as it is")["delay_p50_ns"]), 100_000.0);
    assert!(p50_ns("as it is") > 110_000.0, "{advice}");
    let text = stdout(&["advise", recording, "--doubts"]);
    assert!(text.contains("; judged by predict"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    // Both decide on the same replicates whether it reproduces itself.
    let figures = |text: &str| -> String {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = &words[words.find("; wake-ups ").expect("how closely it reproduces itself")..];
        let end = told.rmatch_indices(", KS ").next().expect("to its gaps").0;
        told[..end + ", KS 0.00".len()].to_owned()
    };
    assert_eq!(figures(&text), figures(&stdout(&["predict", recording])));
}

/// An option or an input that cannot be played is named, and changes the judge.
#[test]
fn what_cannot_be_played_is_judged_by_replay_and_says_so() {
    let recording = "traces/c-nginx.trace.dat.xz";
    let judged = json(&["advise", recording, "--hz", "100", "--json"]);
    assert_eq!(judged["judged_by"], "replay");
    assert!(judged["doubts"].to_string().contains("leave out --hz"), "{}", judged["doubts"]);
    let asked = ["advise", recording, "--judge", "predict", "--hz", "100"];
    assert_refused(&asked, &["ticks of the recording; leave out --hz"]);
    let piped = |judge: &[&str]| {
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["advise", "/dev/stdin", "--json"])
            .args(judge)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = run.stdin.take().unwrap();
        let bytes = fs::read(root().join(recording)).unwrap();
        let writer = std::thread::spawn(move || _ = pipe.write_all(&bytes));
        let output = run.wait_with_output().unwrap();
        writer.join().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let [text, _] = piped(&[]);
    assert!(text.contains("\"replay\"") && text.contains("save it to a file first"), "{text}");
    let [_, refusal] = piped(&["--judge", "predict"]);
    assert!(refusal.contains("a pipe can be read only once"), "{refusal}");
}

/// Where tasks find their data ready, waiting behind their own work is no delay of a wake-up, in `advise` as in
/// `predict`.
#[test]
fn advise_and_predict_name_the_same_delays() {
    let path = root().join("recordings/causes/made-with/redis.parquet");
    let recording = path.to_str().unwrap();
    let advice = json(&["advise", recording, "--json"]);
    let no_c6 = ["predict", recording, "--replicates", "1", "--json", "--disable", "C6"];
    let told = json(&[&no_c6[..], &["--governor", "menu"]].concat());
    let of_all: Vec<&Value> =
        told["tasks"].as_array().unwrap().iter().filter(|row| row["task"] == "all").collect();
    let steps = told["runs"][0]["step_count"].as_u64().unwrap();
    for (setting, predicted) in [("as it is", of_all[0]), ("C6=off", of_all[1])] {
        assert!(predicted["wake_count"].as_u64().unwrap() < steps, "none finds its data ready");
        let rows = advice["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["setting"] == setting).unwrap();
        for (advised_ns, predicted_ns) in
            [("delay_p50_ns", "latency_p50_ns"), ("delay_p99_ns", "latency_p99_ns")]
        {
            let ratio = number(&row[advised_ns]) / number(&predicted[predicted_ns]);
            assert!((0.99..=1.01).contains(&ratio), "{setting}: {advised_ns} {ratio}");
        }
    }
}

#[test]
fn advice_on_a_simulated_workload_comes_true_in_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ping-pong.parquet");
    crate::predict::write_ping_pong_in("deepest", &path);
    let path = path.to_str().unwrap();
    let advice = json(&["advise", path, "--slo", "p50=50us", "--json"]);
    assert_eq!((&advice["judged_by"], &advice["outcome"]), (&"predict".into(), &"change".into()));
    // Every wake-up of the chain waits 290 us for the deepest state. A limit of 2 us forbids it.
    let rows = advice["rows"].as_array().unwrap();
    let p50_ns = |setting: &str| {
        let row = rows.iter().find(|row| row["setting"] == setting).unwrap();
        number(&row["delay_p50_ns"])
    };
    let saved_ns = p50_ns("as it is") - p50_ns("latency=2us@0-1");
    assert_eq!(saved_ns, 288_000.0);
    assert_eq!(advice["slice_count"], 32);
}

#[test]
fn a_judge_that_cannot_judge_is_refused_or_replaced() {
    let gaps = "traces/h-pingpong.parquet";
    let predict = ["advise", gaps, "--machine", "spr", "--judge", "predict"];
    assert_refused(&predict, &["it does not say what makes tasks run"]);
    let some = ["advise", "traces/c-nginx.trace.dat.xz", "--cpus", "0"];
    let advice = json(&[&some[..], &["--json"]].concat());
    assert_eq!(advice["judged_by"], "replay");
    assert!(
        advice["doubts"].to_string().contains("judged by replay: a played workload"),
        "{advice}"
    );
    assert_refused(&[&some[..], &["--judge", "predict"]].concat(), &["leave out --cpus"]);
}

/// A log that does not say which idle states the machine has, and the captured files of that machine.
#[test]
fn takes_the_states_of_a_captured_machine() {
    let log = "traces/h-pingpong.parquet";
    let slo = ["--slo", "p99=50us"];
    assert_refused(&[&["advise", log], &slo[..]].concat(), &["--machine", "--sysroot"]);
    let machine = CapturedMachine::unpack("server-ice-lake");
    let sysroot = ["--sysroot", machine.path().to_str().unwrap(), "--json"];
    let advice = json(&[&["advise", log], &slo[..], &sysroot[..]].concat());
    assert_eq!(advice["machine"], "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz", "{advice}");
    // A machine that is named comes first.
    let named = json(&[&["advise", log, "--machine", "spr"], &slo[..], &sysroot[..]].concat());
    let alone = json(&[&["advise", log, "--machine", "spr", "--json"], &slo[..]].concat());
    assert_eq!(named, alone);
    // A captured machine without states says none.
    let guest = CapturedMachine::unpack("vm-no-driver");
    let sysroot = ["--sysroot", guest.path().to_str().unwrap()];
    assert_refused(&[&["advise", log], &sysroot[..]].concat(), &["does not say which idle states"]);
    assert_refused(&["advise", log, "--sysroot", "/nowhere"], &["/nowhere"]);
}

/// Without a limit of delay: 288 us less at the 99th percentile cost power here, so that is a choice, and what is written
/// changes nothing.
#[test]
fn a_trade_that_nobody_asked_for_is_a_choice() {
    let arguments = ["advise", "traces/h-pingpong.parquet", "--machine", "spr"];
    let text = stdout(&arguments);
    assert!(!text.contains("Recommended") && !text.contains("Refuted by"), "{text}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Leave it alone: nothing that was tried is sure to help without more power or longer tail delays.",
        "- latency=2us@0: delay p99 290 µs → 2 µs",
        ", but power +80 mW (",
        "What would change this verdict: - a limit on delay",
    ] {
        assert!(joined.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    for price in ["0", "4000", "1000000"] {
        let advice = json(&[&arguments[..], &["--lambda-mw", price, "--json"]].concat());
        assert_eq!((&advice["outcome"], &advice["setting"]), (&"leave-alone".into(), &Value::Null));
        assert!(
            advice["choices"].as_array().unwrap().contains(&"latency=2us@0".into()),
            "{advice}"
        );
    }
    let written = stdout(&[&arguments[..], &["--emit", "dropin"]].concat());
    assert!(written.lines().all(|line| line.is_empty() || line.starts_with('#')), "{written}");
    // Every trade has a row that says so, and no other row says it.
    let advice = json(&[&arguments[..], &["--json"]].concat());
    for row in advice["rows"].as_array().unwrap() {
        let is_choice = advice["choices"].as_array().unwrap().contains(&row["setting"]);
        assert_eq!(is_choice, row["verdict"] == "trade", "{row}");
    }
    // C6=off has the same delays for the same power, and a limit is milder.
    assert!(text.contains("trade, another is better"), "{text}");
}

/// A longest delay that may get longer was a trade without a price: "power -88 mW (...), but".
#[test]
fn a_choice_names_both_prices() {
    for machine in ["milan", "spr", "skx"] {
        for log in ["traces/e-hackbench.parquet", "traces/b-redis.parquet"] {
            let text = stdout(&["advise", log, "--machine", machine]);
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                !joined.contains("but - ")
                    && !joined.contains("but e-")
                    && !joined.contains("but b-"),
                "{text}"
            );
        }
    }
}

/// Rows were trades where the sentence said that there is too little to judge, and what is perhaps no loss was a price.
#[test]
fn what_is_not_judged_is_no_trade_and_what_may_be_less_is_no_price() {
    let few = ["advise", "traces/a-idle.parquet", "--machine", "icx"];
    let text = stdout(&few);
    assert!(text.contains("too few events to judge") && !text.contains("trade"), "{text}");
    let text = stdout(&["advise", "traces/q-menu-6.12.trace.dat.xz"]);
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("but power perhaps higher (−"), "{text}");
    assert!(!joined.contains("but power −"), "{text}");
}

/// p99.9 was there twice, because 99.9 / 100 is not 0.999, and p100 not at all where it stays as it is.
#[test]
fn each_limit_is_in_the_sentence_once_and_decided_by_its_interval() {
    for (slo, log, machine, name) in [
        ("p99.9=100us", "traces/h-pingpong.parquet", "spr", "p99.9 "),
        ("p100=300us", "traces/e-hackbench.parquet", "spr", "worst "),
        ("p90=50us", "traces/h-pingpong.parquet", "spr", "p90 "),
        // The worst delay stays as it is, but may get longer.
        ("p100=900us", "traces/e-hackbench.parquet", "milan", "worst "),
    ] {
        let advice = json(&["advise", log, "--machine", machine, "--slo", slo, "--json"]);
        let sentence = advice["sentence"].as_str().unwrap();
        assert_eq!(sentence.matches(name).count(), 1, "{sentence}");
        for row in advice["rows"].as_array().unwrap() {
            let delays = advice["limited_delays"].as_array().unwrap();
            let delay = delays.iter().find(|delay| delay["setting"] == row["setting"]).unwrap();
            let keeps = delay["high_ns"].as_f64().unwrap() <= delay["limit_ns"].as_f64().unwrap();
            let verdict = row["verdict"].as_str().unwrap_or("");
            assert_eq!(keeps, !verdict.contains("exceed"), "{row} {delay}");
        }
    }
}

/// One candidate under which the workload stands still cost the whole advice, with a false cause.
#[test]
fn a_candidate_that_cannot_be_played_is_left_out_and_named() {
    let arguments = ["advise", "conformance/prediction/pinned/rpc.parquet", "--machine", "imx93"];
    let document = json(&[&arguments[..], &["--json"]].concat());
    let doubts = document["doubts"].to_string();
    let (_, unplayed) = doubts.split_once("cannot be played under it: ").expect(&doubts);
    let named = unplayed.split(['"', ',']).next().unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.len() > 2, "{document}");
    assert!(rows.iter().all(|row| row["setting"] != named), "{named}: {document}");
}
