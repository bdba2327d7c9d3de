//! `idlewise predict` of workload logs made here.

use std::path::Path;

use idlewise_sim::Machine;
use idlewise_trace::causes::{
    Cause, Step, StepEnd, StepPlace, StepSink, TaskInfo, WORKLOAD_VERSION, WorkloadLog,
    WorkloadMetadata, WorkloadWriter,
};
use idlewise_trace::{OutputFile, OutputOptions};

use crate::{assert_refused, failure, folder, idlewise, json, root, stdout};

const ROUND_COUNT: i64 = 4_000;

/// Two tasks on two CPUs that wake each other every 15 us, each time from state 1.
fn ping_pong() -> (WorkloadMetadata, Vec<Step>) {
    let step = |task: u32, cause, [due, run, end]: [i64; 3]| Step {
        task,
        cpu: task as u16,
        cause,
        due_at_ns: due,
        run_at_ns: run,
        run_ns: end.abs_diff(run),
        end_at_ns: end,
        end: StepEnd::Waits,
        idle_state: Some(1),
    };
    let first = Step { idle_state: None, ..step(0, Cause::Start, [0, 0, 10_000]) };
    let mut steps = vec![first];
    let mut due_ns = 10_000;
    for round in 0..ROUND_COUNT {
        let task = 1 - (round % 2) as u32;
        let from = StepPlace { task: 1 - task, step: (round / 2) as u64, offset_ns: 10_000 };
        steps.push(step(task, Cause::Task(from), [due_ns, due_ns + 5_000, due_ns + 15_000]));
        due_ns += 15_000;
    }
    let machine = std::fs::read_to_string(root().join("machines/spr.toml")).unwrap();
    let task = |name: &str| TaskInfo { name: name.to_owned(), ..TaskInfo::default() };
    let metadata = WorkloadMetadata {
        workload_version: WORKLOAD_VERSION,
        tasks: vec![task("ping"), task("pong")],
        cpu_count: 2,
        last_at_ns: due_ns,
        hz: Some(250),
        governor: Some("fixed=C1".to_owned()),
        machine: Some(Machine::from_toml(&machine).unwrap()),
        ..WorkloadMetadata::default()
    };
    (metadata, steps)
}

fn write(path: &Path, (metadata, steps): &(WorkloadMetadata, Vec<Step>)) {
    let output = OutputFile::create(path, &OutputOptions::default()).unwrap();
    let mut writer = WorkloadWriter::new(output).unwrap();
    writer.take(steps).unwrap();
    writer.finish(metadata).unwrap();
}

/// The same, recorded under a governor that takes state 3, which takes 290 us to leave.
pub fn write_ping_pong_in(governor: &str, path: &Path) {
    let (mut metadata, mut steps) = ping_pong();
    metadata.governor = Some(governor.to_owned());
    let mut later_ns = 0;
    for step in steps.iter_mut().skip(1) {
        step.idle_state = Some(3);
        step.due_at_ns += later_ns;
        later_ns += 289_000;
        step.run_at_ns += later_ns;
        step.end_at_ns += later_ns;
    }
    metadata.last_at_ns += later_ns;
    write(path, &(metadata, steps));
}

/// Writes a workload log that can be predicted.
pub fn write_ping_pong(path: &Path) {
    write(path, &ping_pong());
}

#[test]
fn a_deeper_state_delays_each_wake_up_of_a_chain() {
    let folder = folder();
    let path = folder.path().join("ping-pong.parquet");
    write_ping_pong(&path);
    let path = path.to_str().unwrap();
    let document = json(&["predict", path, "--governor", "deepest", "--replicates", "2", "--json"]);
    let run = |row: usize, column: &str| document["runs"][row][column].as_f64().unwrap();
    let reproduction = &document["reproduction"];
    for figure in ["latency", "gap"] {
        for ratio in ["p50_ratio", "p99_ratio"] {
            assert_eq!(reproduction[figure][ratio], 1.0, "{document}");
        }
    }
    // spr's deepest state takes 290 us to leave, state 1 takes 1 us.
    let extra_ns = run(1, "latency_mean_ns") - run(0, "latency_mean_ns");
    assert!((280_000.0..=290_000.0).contains(&extra_ns), "{extra_ns}");
    let longer_ns = run(1, "makespan_ns") - run(0, "makespan_ns");
    let expected_ns = extra_ns * ROUND_COUNT as f64;
    assert!((longer_ns / expected_ns - 1.0).abs() < 0.01, "{longer_ns}, not {expected_ns}");
    let tasks = document["tasks"].as_array().unwrap();
    assert!(tasks.iter().any(|row| row["task"] == "pong" && row["governor"] == "deepest"));

    let text = stdout(&["predict", path, "--governor", "deepest", "--task", "pong"]);
    assert!(text.contains("reproduces itself under fixed=C1"), "{text}");
    assert!(text.starts_with("With "), "the answer comes first: {text}");
    assert!(text.contains("pong") && !text.contains("ping "), "{text}");
    let csv = stdout(&["predict", path, "--governor", "deepest", "--csv"]);
    assert!(csv.starts_with("governor,task,wake_count,latency_mean_ns,"), "{csv}");
}

#[test]
fn a_prediction_is_checked_by_a_recording_of_the_changed_setting() {
    let folder = folder();
    let path_of = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [run, deep, shallow] = ["run.parquet", "deep.parquet", "shallow.parquet"].map(path_of);
    write_ping_pong(Path::new(&run));
    write_ping_pong_in("deepest", Path::new(&deep));
    // As if leaving the deepest state took no longer than leaving the first.
    let (metadata, steps) = ping_pong();
    let metadata = WorkloadMetadata { governor: Some("deepest".to_owned()), ..metadata };
    write(Path::new(&shallow), &(metadata, steps));

    let predict = ["predict", &run, "--governor", "deepest", "--check"];
    let document = json(&[&predict[..], &[&deep, "--json"]].concat());
    let figures = document["checked"].as_array().unwrap();
    let names: Vec<&str> = figures.iter().map(|of| of["figure"].as_str().unwrap()).collect();
    assert_eq!(names, ["throughput", "median latency", "p99 latency"]);
    for figure in figures {
        let [low, predicted, high] =
            ["low", "predicted", "high"].map(|of| figure[of].as_f64().unwrap());
        assert!(low < predicted && predicted < high, "{figure}");
        assert_eq!(figure["is_within"], true, "{figure}");
    }
    assert!(figures[0]["measured"].as_f64().unwrap() < -0.9, "{document}");
    assert_eq!(figures[1]["measured"], 294_000.0, "{document}");

    let refuted = idlewise(&[&predict[..], &[&shallow]].concat());
    assert_eq!(refuted.status.code(), Some(1));
    let text = String::from_utf8(refuted.stdout).unwrap();
    let median = text.lines().find(|line| line.starts_with("median latency")).unwrap();
    assert!(median.contains(" 5.0 ") && median.ends_with("outside"), "{text}");

    // A log of another machine, workload or limit, and one that does not say its governor.
    let changed = |name: &str, change: &dyn Fn(&mut WorkloadMetadata)| {
        let (mut metadata, steps) = ping_pong();
        metadata.governor = Some("deepest".to_owned());
        change(&mut metadata);
        let path = path_of(name);
        write(Path::new(&path), &(metadata, steps));
        path
    };
    let large = changed("large.parquet", &|metadata| metadata.cpu_count = 4);
    assert_refused(&[&predict[..], &[&large]].concat(), &["large.parquet", "4 CPUs instead of 2"]);
    let nameless = changed("nameless.parquet", &|metadata| metadata.governor = None);
    assert_refused(&[&predict[..], &[&nameless]].concat(), &["does not say its governor"]);
    let stranger = changed("stranger.parquet", &|metadata| metadata.tasks[1].name = "x".to_owned());
    assert_refused(&[&predict[..], &[&stranger]].concat(), &["pong did not run in it"]);
    let limited = [&predict[..], &[&shallow, "--latency-limit-us", "0"]].concat();
    assert_refused(&limited, &["4000 of its 4001 steps", "predicted as off"]);
    // A governor's options are not the kernel's, so they may differ, but nothing can be run with them.
    let hazard = changed("hazard.parquet", &|metadata| {
        metadata.governor = Some("hazard".to_owned());
    });
    let optional = ["predict", &run, "--governor", "hazard:lambda=2", "--check"];
    let told = json(&[&optional[..], &[&hazard, "--task", "pong", "--json"]].concat());
    assert_eq!(told["checked"].as_array().unwrap().len(), 5, "{told}");
    assert_refused(&[&optional[..], &["new.dat", "--", "true"]].concat(), &["have no options"]);
    let itself = [&predict[..], &[&run, "--force", "--", "true"]].concat();
    assert_refused(&itself, &["run.parquet is the recording that is predicted from"]);
    let other = [&predict[..], &[&run]].concat();
    assert_refused(&other, &["run.parquet", "recorded under fixed=C1, and deepest is predicted"]);
    assert_refused(&[&other[..], &["--governor", "menu"]].concat(), &["exactly one --governor"]);
    // Each of its steps found the CPU in C1.
    let entered = [&predict[..], &[&shallow, "--disable", "C1"]].concat();
    assert_refused(&entered, &["shallow.parquet", "4000 of its 4001 steps", "predicted as off"]);
    let missing = path_of("missing.dat");
    assert_refused(&[&predict[..], &[&missing]].concat(), &["missing.dat"]);
    // With a command, the file is written.
    let onto = [&predict[..], &[&deep, "--", "true"]].concat();
    assert_refused(&onto, &["deep.parquet exists", "--force"]);
    for alone in [&["--", "true"][..], &["--force"]] {
        let said = failure(&[&["predict", &run][..], alone].concat()).1;
        assert!(said.contains("required") && said.contains("--check <FILE>"), "{said}");
    }
}

#[test]
fn a_requests_latency_is_predicted() {
    let folder = folder();
    let path = folder.path().join("ping-pong.parquet");
    write_ping_pong(&path);
    let path = path.to_str().unwrap();
    let arguments = ["predict", path, "--governor", "deepest", "--replicates", "2", "--json"];
    let document = json(&[&arguments[..], &["--request", "ping->pong"]].concat());
    let rows: Vec<_> = document["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["task"] == "ping→pong")
        .collect();
    let p50_ns = |row: usize| rows[row]["latency_p50_ns"].as_f64().unwrap();
    // Two wake-ups of 5 us and two runs of 10 us. In the deepest state, each wake-up takes 289 us more.
    assert_eq!(p50_ns(0), 30_000.0, "{document}");
    assert_eq!(p50_ns(1), 30_000.0 + 2.0 * 289_000.0, "{document}");
    // The other form of the arrow; and nothing else but all tasks is shown.
    let text = stdout(&["predict", path, "--governor", "deepest", "--request", "pong→ping"]);
    assert!(text.contains("pong→ping") && !text.contains("pong  "), "{text}");
    let refused = |request: &str, why: &str| {
        assert_refused(&["predict", path, "--request", request], &[why]);
    };
    refused("ping->pang", "nothing that pang does follows from ping");
    for (request, why) in [
        ("ping->ping", "from one task's name to another's"),
        ("ping", "give the names of two tasks"),
    ] {
        let (status, message) = failure(&["predict", path, "--request", request]);
        assert!(status == Some(2) && message.contains(why), "{message}");
    }
}

#[test]
fn what_would_have_happened_is_written_as_a_log_and_a_trace() {
    let folder = folder();
    let path = folder.path().join("ping-pong.parquet");
    write_ping_pong(&path);
    let (path, log) = (path.to_str().unwrap(), folder.path().join("then.parquet"));
    let log = log.to_str().unwrap();
    let arguments = ["predict", path, "--governor", "deepest", "--write-log", log];
    let text = stdout(&arguments);
    assert!(text.contains("then.parquet: ") && text.contains("then.pftrace"), "{text}");
    let checked = json(&["log", "validate", log, "--json"]);
    assert_eq!(checked["is_wrong"], false, "{checked}");
    // Nearly every wake-up ends a gap: of 4,000 a few find a CPU that has a tick.
    let gap_count = checked["gap_count"].as_u64().unwrap();
    assert!((3_900..=4_300).contains(&gap_count), "{gap_count}");
    // The gaps are those of the run, so a replay by the same governor decides as the run did.
    let text = stdout(&["replay", log, "--check-recorded"]);
    assert!(text.contains("(100.00 %)"), "{text}");
    let trace = std::fs::read(folder.path().join("then.pftrace")).unwrap();
    crate::export::decoded_by_protoc(trace);
    assert_refused(&arguments, &["then.parquet", "exists"]);
    let two = ["predict", path, "--governor", "menu", "--governor", "teo", "--write-log", "x"];
    assert_refused(&two, &["exactly one --governor"]);
}

#[test]
fn what_can_not_be_predicted_is_refused_in_one_line() {
    let folder = folder();
    let refused =
        |name: &str, change: &dyn Fn(&mut WorkloadMetadata, &mut Vec<Step>), why: &str| {
            let path = folder.path().join(format!("{name}.parquet"));
            let (mut metadata, mut steps) = ping_pong();
            change(&mut metadata, &mut steps);
            write(&path, &(metadata, steps));
            assert_refused(&["predict", path.to_str().unwrap(), "--governor", "menu"], &[why]);
        };
    refused("lost", &|metadata, _| metadata.lost_event_count = 9, "9 events were lost");
    refused("unseen", &|metadata, _| metadata.unseen_cpus = vec![1], "CPU 1");
    refused("empty", &|_, steps| steps.clear(), "no step");
    refused("busy", &|_, steps| steps.truncate(1), "never idle between two steps");
    refused("machine", &|metadata, _| metadata.machine = None, "--recorded-machine");
    refused("governor", &|metadata, _| metadata.governor = None, "--recorded-governor");
    // Under this governor it would have been another recording.
    let deepest = |metadata: &mut WorkloadMetadata, _: &mut Vec<Step>| {
        metadata.governor = Some("deepest".to_owned());
    };
    refused("other", &deepest, "does not reproduce itself under deepest");
    let gaps = root().join("traces/s-softirq500.parquet");
    assert_refused(&["predict", gaps.to_str().unwrap()], &["not a workload log"]);
    let path = folder.path().join("task.parquet");
    write_ping_pong(&path);
    assert_refused(&["predict", path.to_str().unwrap(), "--task", "pang"], &["ping, pong"]);
}

/// It was silent, and a prediction for the wrong governor looked like any other.
#[test]
fn what_the_options_override_is_said() {
    let folder = folder();
    let path = folder.path().join("run.parquet");
    write_ping_pong(&path);
    let said = |options: &[&str]| {
        let arguments = [&["predict", path.to_str().unwrap(), "--json"], options].concat();
        let run = idlewise(&arguments);
        // Either as a doubt, or in the error that the recording does not reproduce itself.
        String::from_utf8([run.stdout, run.stderr].concat()).unwrap()
    };
    let own = ping_pong().0.governor.unwrap();
    for other in ["teo", "deepest"].into_iter().filter(|other| *other != own) {
        let expected =
            format!("--recorded-governor {other} overrides {own}, which the recording names");
        let text = said(&["--recorded-governor", other]);
        assert!(text.contains(&expected), "{text}");
    }
    let text = said(&["--recorded-machine", "milan"]);
    assert!(
        text.contains("--recorded-machine milan overrides the recording's idle states: "),
        "{text}"
    );
    for agreeing in [&["--recorded-governor", &own][..], &[]] {
        let text = said(agreeing);
        assert!(!text.contains("overrides"), "{text}");
    }
}

/// `predict` said to try the other arrivals, which then said to try these.
#[test]
fn whether_other_arrivals_reproduce_is_tried() {
    for load in ["chain", "hackbench", "pingpong"] {
        let path = format!("conformance/prediction/pinned/{load}.parquet");
        let run = |arrivals| {
            let run = idlewise(&["predict", &path, "--replicates", "1", "--arrivals", arrivals]);
            (run.status.code(), String::from_utf8(run.stderr).unwrap())
        };
        let (open, closed) = (run("open"), run("closed"));
        for ((status, text), other) in [(&open, &closed), (&closed, &open)] {
            assert_eq!(*status == Some(2), text.contains("does not reproduce itself"), "{text}");
            if *status == Some(2) {
                assert_eq!(
                    other.0 == Some(0),
                    text.contains("with --arrivals") && !text.contains("nor does"),
                    "{text}"
                );
                assert!(text.contains("with --arrivals"), "{text}");
            }
        }
    }
    let why = "no idle periods to replay";
    let advise = ["advise", "conformance/prediction/pinned/chain.parquet"];
    assert_refused(&advise, &[why, "name the recording"]);
    assert_refused(&[&advise[..], &["--cpus", "0"]].concat(), &[why, "leave out --cpus"]);
    assert_refused(&[&advise[..], &["--hz", "100"]].concat(), &[why, "leave out --hz"]);
}

/// A recording of 337 steps had good medians, and was refused for its p99.
#[test]
fn what_does_not_reproduce_itself_is_left_out_and_named() {
    let path = "recordings/causes/made-with/copy.parquet";
    let arguments = ["predict", path, "--governor", "teo"];
    let text = stdout(&arguments);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("With teo: throughput"), "{first}");
    assert!(first.contains(", energy ") && !first.contains("latency"), "{first}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Not predicted"), "{text}");
    assert!(words.contains("mean, p99 and p99.9 of latencies (wake-to-run latency p99"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    let told = json(&[&arguments[..], &["--json"]].concat());
    assert!(told["not_predicted"].as_str().unwrap().contains("p99.9"), "{told}");
    for row in told["runs"].as_array().unwrap() {
        assert!(row["latency_mean_ns"].is_null() && row["energy_uj"].is_number(), "{row}");
    }
    // Rows of single tasks stand on what is reproduced of them.
    let off = told["tasks_not_reproduced"].as_array().unwrap();
    for row in told["tasks"].as_array().unwrap() {
        let misses = off.iter().find(|of| of["task"] == row["task"]);
        let misses = misses.map_or("", |of| of["misses"].as_str().unwrap());
        let lacks_all = misses.contains("p50") || misses.contains("KS");
        for key in ["latency_mean_ns", "latency_p99_ns", "latency_p999_ns"] {
            assert!(row[key].is_null(), "{key} of {row}");
        }
        assert_eq!(row["latency_p50_ns"].is_null(), lacks_all, "{row}: {misses}");
    }
    assert!(!off.is_empty(), "{told}");
    assert!(words.contains("Left out of single rows"), "{text}");
    // All of it for a recording that reproduces itself.
    let whole =
        json(&["predict", "traces/c-pingpong.trace.dat.xz", "--governor", "menu", "--json"]);
    assert!(whole["not_predicted"].is_null() && whole["tasks"][0]["latency_p99_ns"].is_number());
    // There, some tasks of a few wake-ups are not.
    let nginx = json(&["predict", NGINX, "--governor", "menu", "--replicates", "2", "--json"]);
    assert!(nginx["not_predicted"].is_null(), "{nginx}");
    let off = nginx["tasks_not_reproduced"].as_array().unwrap();
    let is_off = |task: &serde_json::Value| off.iter().any(|of| of["task"] == *task);
    let rows = nginx["tasks"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["latency_p50_ns"].is_null() == is_off(&row["task"])),
        "{nginx}"
    );
    assert!(
        !off.is_empty() && rows.iter().any(|row| row["task"] == "wrk" && !is_off(&row["task"]))
    );
    // What compares all figures needs all of them.
    assert_refused(&["advise", path], &["not all figures can be predicted", "latency p99"]);
}

/// This one misses gaps, too.
#[test]
fn without_gaps_there_is_no_energy_and_no_log() {
    let arguments =
        ["predict", "conformance/prediction/pinned/hackbench.parquet", "--governor", "teo"];
    let text = stdout(&[&arguments[..], &["--doubts"]].concat());
    assert!(text.contains("Not predicted") && text.contains("energy, and mean"), "{text}");
    assert!(!text.contains("power"), "nothing rests on powers: {text}");
    let told = json(&[&arguments[..], &["--json"]].concat());
    assert!(told["runs"][1]["energy_uj"].is_null(), "{told}");
    assert!(told["runs"][1]["throughput_change_ratio"].is_number(), "{told}");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("teo.parquet");
    let write = ["--write-log", log.to_str().unwrap()];
    assert_refused(&[&arguments[..], &write].concat(), &["--write-log", "gap p50"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// One replicate under menu gets stuck there, which once hid what another governor would do.
#[test]
fn a_setting_that_cannot_be_played_is_left_out_and_named() {
    let arguments = |governors: &'static [&'static str]| {
        let some = ["predict", "traces/c-pingpong.trace.dat.xz", "--machine", "sdm630-pwr"];
        [&some[..], &["--replicates", "2"], governors].concat()
    };
    let run = idlewise(&arguments(&["--governor", "menu", "--governor", "hazard"]));
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("with menu on sdm630-pwr; it is left out"), "{said}");
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.starts_with("With hazard on sdm630-pwr: throughput"), "{text}");
    assert_refused(&arguments(&["--governor", "menu"]), &["with menu on sdm630-pwr"]);
}

#[test]
fn a_workload_log_is_validated_and_anonymized() {
    let folder = folder();
    let path = folder.path().join("named.parquet");
    write_ping_pong(&path);
    let path = path.to_str().unwrap();
    let text = stdout(&["log", "validate", path]);
    assert!(text.contains("4001 steps of 2 tasks: nothing is wrong"), "{text}");
    let anonymous = folder.path().join("anonymous.parquet");
    let anonymous = anonymous.to_str().unwrap();
    let text = stdout(&["log", "anonymize", path, "-o", anonymous]);
    assert!(text.contains("- tasks: the tasks' names"), "{text}");
    let csv = |path| stdout(&["predict", path, "--governor", "deepest", "--csv"]);
    let renamed = csv(path).replace("ping", "task 0").replace("pong", "task 1");
    assert_eq!(csv(anonymous), renamed);
    assert_refused(&["replay", path], &["a workload log, which has no gaps"]);
    let named = folder.path().join("kept.parquet");
    let named = named.to_str().unwrap();
    stdout(&["log", "anonymize", path, "--keep", "tasks", "-o", named]);
    assert_eq!(csv(named), csv(path));
    let checked = json(&["log", "validate", path, "--json"]);
    assert_eq!((&checked["step_count"], &checked["task_count"]), (&4001.into(), &2.into()));
    assert_eq!((&checked["is_wrong"], &checked["contradiction"]), (&false.into(), &().into()));
}

/// Recordings of real kernels in QEMU, where leaving C6 took 100 us.
const NGINX: &str = "traces/c-nginx.trace.dat.xz";
const PING_PONG: &str = "traces/c-pingpong.trace.dat.xz";

#[test]
fn the_bundled_recordings_reproduce_themselves() {
    for (recording, arrivals) in [(NGINX, "open"), (NGINX, "closed"), (PING_PONG, "open")] {
        let line = ["predict", recording, "--governor", "menu", "--json"];
        let document = json(&[&line[..], &["--arrivals", arrivals]].concat());
        let reproduction = &document["reproduction"];
        let figure = |pointer: &str| reproduction.pointer(pointer).unwrap().as_f64().unwrap();
        // Nearer than what is required, so that a change of the model is seen before users see it.
        assert!((figure("/throughput_ratio") - 1.0).abs() < 0.01, "{recording}: {reproduction}");
        for of in ["latency", "gap"] {
            let near = |name: &str, error_max: f64| {
                let ratio = figure(&format!("/{of}/{name}"));
                assert!((ratio - 1.0).abs() < error_max, "{recording} {arrivals}: {reproduction}");
            };
            near("p50_ratio", 0.02);
            near("p99_ratio", 0.2);
            let distance = figure(&format!("/{of}/distance_ratio"));
            assert!(distance < 0.05, "{recording} {arrivals}: {reproduction}");
        }
    }
}

/// What the kernel did without C6: wrk itself counted 736 requests in a second instead of 721.
#[test]
fn the_example_of_nginx_is_near_what_the_kernel_did() {
    let line =
        ["predict", NGINX, "--governor", "menu", "--disable", "C6", "--request", "wrk->nginx"];
    let check = ["--check", "traces/c-nginx-no-C6.trace.dat.xz"];
    let run = idlewise(&[&line[..], &check, &["--json"]].concat());
    // The median of all wake-ups is outside.
    assert_eq!(run.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let figures = document["checked"].as_array().unwrap();
    let of = |figure: &str| figures.iter().find(|of| of["figure"] == figure).unwrap();
    let near = |figure: &str, off_max: f64| {
        let [predicted, measured] =
            ["predicted", "measured"].map(|key| of(figure)[key].as_f64().unwrap());
        let off = match figure {
            "throughput" => measured - predicted,
            _ => measured / predicted - 1.0,
        };
        assert!(off.abs() < off_max, "{figure}: {predicted}, {measured}");
        predicted
    };
    let predicted = near("throughput", 0.05);
    assert!((predicted - 0.02).abs() < 0.05, "{predicted}");
    near("p99 latency", 0.1);
    near("median latency of wrk→nginx", 0.15);
    // It merges steps, and polls when less than a millisecond is left.
    assert_eq!(document["tasks_without_throughput"], serde_json::json!(["wrk"]));
    let text = String::from_utf8(idlewise(&[&line[..], &check].concat()).stdout).unwrap();
    assert!(text.contains("The steps of wrk run so much longer or shorter"), "{text}");
}

#[test]
fn energy_is_given_under_all_powers_where_they_are_assumed() {
    let line = ["predict", NGINX, "--governor", "menu", "--disable", "C6"];
    let ends = |more: &[&str]| {
        let document = json(&[&line[..], more, &["--json"]].concat());
        let run = &document["runs"][1];
        ["energy_change_least_ratio", "energy_change_ratio", "energy_change_most_ratio"]
            .map(|key| run[key].as_f64())
    };
    let [least, as_assumed, most] = ends(&[]).map(Option::unwrap);
    assert!(least < as_assumed && as_assumed < most, "{least}, {as_assumed}, {most}");
    // Two machines, or CPUs of many speeds, have no common powers.
    for more in [["--machine", "skx"], ["--power-limit-w", "15"]] {
        assert!(matches!(ends(&more), [None, Some(_), None]), "{more:?}");
    }
    let text = stdout(&line).split_whitespace().collect::<Vec<_>>().join(" ");
    let verdict = match least > 0.0 {
        true => "That takes more energy under all plausible powers (+",
        false => "Whether that takes less energy depends on the powers: -",
    };
    assert!(text.contains(verdict), "{text}");
}

/// Each defect is one that a recording may have and that causes do not show.
#[test]
fn a_planted_defect_is_refused() {
    let folder = folder();
    let whole = folder.path().join("whole.parquet");
    stdout(&["log", "import", "--causes", NGINX, "-o", whole.to_str().unwrap()]);
    let log = WorkloadLog::open(&whole).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    log.each_group(&mut |group| steps.extend_from_slice(group)).unwrap();
    let refused =
        |name: &str, change: &dyn Fn(&mut WorkloadMetadata, &mut Vec<Step>), why: &str| {
            let path = folder.path().join(format!("{name}.parquet"));
            let (mut metadata, mut steps) = (log.metadata.clone(), steps.clone());
            change(&mut metadata, &mut steps);
            write(&path, &(metadata, steps));
            assert_refused(&["predict", path.to_str().unwrap(), "--governor", "menu"], &[why]);
        };
    let not_itself = "does not reproduce itself under menu";
    // The states that the machine had are forgotten.
    let no_state = |_: &mut WorkloadMetadata, steps: &mut Vec<Step>| {
        steps.iter_mut().for_each(|step| step.idle_state = None);
    };
    refused("no-state", &no_state, not_itself);
    // It was another governor, which stays shallow.
    let other = |metadata: &mut WorkloadMetadata, _: &mut Vec<Step>| {
        metadata.governor = Some("fixed=C1".to_owned());
    };
    refused("other", &other, "does not reproduce itself under fixed=C1");
    // One CPU was not seen.
    refused("unseen", &|metadata, _| metadata.unseen_cpus = vec![1], "CPU 1");
}

#[test]
fn switching_c6_off_on_the_bundled_nginx_is_predicted() {
    let line = ["predict", NGINX, "--governor", "menu", "--replicates", "2", "--request"];
    let off = json(&[&line[..], &["wrk->nginx", "--disable", "C6", "--json"]].concat());
    let row = |task: &str, place: usize| {
        let rows = off["tasks"].as_array().unwrap().iter();
        rows.filter(|row| row["task"] == task).nth(place).unwrap().clone()
    };
    let ns = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
    // Most wake-ups found C6, whose exit takes 100 us, and then find C1, which takes 2 us. The rest of such wake-ups was
    // some 15 us longer in the recording.
    let (before, after) = (row("all", 0), row("all", 1));
    let saved_ns = ns(&before, "latency_p50_ns") - ns(&after, "latency_p50_ns");
    assert!((75_000.0..=101_000.0).contains(&saved_ns), "{saved_ns}");
    // A request waits for nginx's wake-up and for wrk's own.
    let (before, after) = (row("wrk→nginx", 0), row("wrk→nginx", 1));
    let saved_ns = ns(&before, "latency_p50_ns") - ns(&after, "latency_p50_ns");
    assert!((150_000.0..=205_000.0).contains(&saved_ns), "{saved_ns}");
    let energy = &off["runs"][1]["energy_change_ratio"];
    assert!(energy.as_f64().unwrap() > 0.3, "{energy}");
}

/// Two tasks that compute for 2 ms at a time, each on its CPU, and take turns. `menu` finds the other CPU in C1.
fn write_turns(path: &Path) {
    let (mut metadata, mut steps) = ping_pong();
    steps.truncate(400);
    let (mut at_ns, long_ns) = (0, 2_000_000);
    for step in &mut steps {
        step.due_at_ns = at_ns;
        step.run_at_ns = at_ns + if step.idle_state.is_some() { 5_000 } else { 0 };
        step.end_at_ns = step.run_at_ns + long_ns;
        step.run_ns = long_ns as u64;
        if let Cause::Task(from) = &mut step.cause {
            from.offset_ns = long_ns as u64;
        }
        at_ns = step.end_at_ns;
    }
    metadata.last_at_ns = at_ns;
    write(path, &(metadata, steps));
}

#[test]
fn with_a_power_limit_what_idle_cpus_draw_is_missing_elsewhere() {
    let folder = folder();
    let path = folder.path().join("turns.parquet");
    write_turns(&path);
    let line = ["predict", path.to_str().unwrap(), "--governor", "fixed=POLL", "--json"];
    let told = |more: &[&str]| json(&[&line[..], more].concat());
    let change = |told: &serde_json::Value, of: &str| told["runs"][1][of].as_f64();
    let free = told(&[]);
    assert!(change(&free, "throughput_change_ratio").unwrap() > 0.0, "{free}");
    assert_eq!(change(&free, "frequency_change_ratio"), None);
    // One CPU runs and one idles: polling takes as much as running, and the limit is what one CPU takes.
    let limited = told(&["--power-limit-w", "8"]);
    let frequency = change(&limited, "frequency_change_ratio").unwrap();
    assert!((-0.5..-0.1).contains(&frequency), "{limited}");
    let throughput = change(&limited, "throughput_change_ratio").unwrap();
    assert!((throughput - frequency).abs() < 0.02, "they compute all the time: {limited}");
    // Under the recorded setting they are as fast as recorded.
    let itself = limited["reproduction"]["throughput_ratio"].as_f64().unwrap();
    assert!((itself - 1.0).abs() < 0.01, "{limited}");
    // With power for all, both settings get as fast as CPUs can be.
    let rich = told(&["--power-limit-w", "1000"]);
    assert!(change(&rich, "frequency_change_ratio").unwrap().abs() < 0.005, "{rich}");
    for refused in [["--power-limit-w", "0"], ["--power-limit-w", "nan"], ["--turbo-ratio", "2"]] {
        assert_eq!(failure(&[&line[..], &refused].concat()).0, Some(2), "{refused:?}");
    }
}

#[test]
fn a_gain_that_turbo_could_take_away_is_doubted() {
    let text = |more: &[&str]| {
        let line = ["predict", NGINX, "--governor", "menu", "--replicates", "2", "--doubts"];
        stdout(&[&line[..], more].concat()).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let off = text(&["--disable", "C6"]);
    assert!(
        off.contains("less frequency to others, the gain of throughput with menu, C6 off is lost"),
        "{off}"
    );
    assert!(!text(&[]).contains("less frequency"));
    let limited = text(&["--disable", "C6", "--power-limit-w", "5"]);
    assert!(limited.contains(", frequency -") && !limited.contains("less frequency"), "{limited}");
}

/// The same governor on another machine read as if it were worse than itself.
#[test]
fn another_machine_is_named_in_the_sentence() {
    let first = |more: &[&str]| {
        let arguments =
            ["predict", "conformance/prediction/pinned/periodic.parquet", "--governor", "menu"];
        let text = stdout(&[&arguments[..], &["--replicates", "1"], more].concat());
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(first(&[]), "With menu: no change.");
    // What changes something comes first.
    assert!(first(&["--governor", "teo"]).starts_with("With teo: throughput"));
    let elsewhere = first(&["--machine", "spr"]);
    assert!(elsewhere.starts_with("With menu on spr: throughput"), "{elsewhere}");
}
