//! `idlewise machines`, end to end: its output and exit status.

use std::fs;

use crate::{OwnFile, WIDTH, failure, json, root, stdout};

#[test]
fn the_list_has_every_machine_and_fits() {
    let text = stdout(&["machines"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let count = idlewise_machine::bundled_ids().count();
    assert!(
        text.contains(&format!("{count} machines; `idlewise machines NAME` shows one")),
        "{text}"
    );
    assert!(!text.contains("Not shown"), "all columns are there");
    let row = text.lines().find(|line| line.starts_with("spr ")).expect("spr is listed");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        words[words.len() - 8..],
        ["POLL", "C1", "C1E", "C6", "290", "0.800", "assumed", "captured"]
    );
}

/// Two states of POWER9 had 0.1 ms, which are 50 and 100 us.
#[test]
fn declared_times_are_shown_as_they_are() {
    for id in idlewise_machine::bundled_ids() {
        let (text, machine) = (stdout(&["machines", id]), json(&["machines", id, "--json"]));
        let lines: Vec<&str> = text.lines().collect();
        let Some(head) = lines.iter().position(|line| line.starts_with("#  state")) else {
            continue;
        };
        let units: Vec<&str> = lines[head].split_whitespace().skip(2).take(2).collect();
        let states = machine["states"].as_array().unwrap();
        for (line, state) in lines[head + 2..].iter().zip(states) {
            let cells: Vec<&str> = line.split_whitespace().skip(2).take(2).collect();
            for ((cell, unit), id) in
                cells.iter().zip(&units).zip(["exit_latency_ns", "target_residency_ns"])
            {
                let factor = match *unit {
                    "ns" => 1.0,
                    "us" => 1e3,
                    "ms" => 1e6,
                    unit => panic!("{unit}: {text}"),
                };
                let (shown, ns) =
                    (cell.parse::<f64>().unwrap() * factor, state[id].as_f64().unwrap());
                assert!((shown - ns).abs() <= ns / 100.0, "{cell} {unit} is {ns} ns: {text}");
            }
        }
    }
}

#[test]
fn a_machine_without_states_has_dashes() {
    let text = stdout(&["machines", "forest"]);
    let row = text.lines().find(|line| line.starts_with("cwf ")).expect("cwf is listed");
    assert_eq!(row.split_whitespace().filter(|word| *word == "-").count(), 4, "{row}");
}

#[test]
fn an_exact_id_shows_the_machine() {
    assert_eq!(
        stdout(&["machines", "skx"]),
        "\
skx: Skylake, Xeon Platinum 8170M
CPU: Intel, x86, Intel(R) Xeon(R) Platinum 8170M CPU @ 2.10GHz, family 6, model 85, stepping 4
Topology: 2 packages, 4 NUMA nodes, 52 cores, 104 threads
Driver: intel_idle, table skx-table, kernel 6.18.8-200.fc43.x86_64
Source: captured, intel/pepc tests/emul-data/sklep0
Running power: 4000 mW, calibrated, AgileWatts (Yahya et al., 2022), Skylake server core, C0 at base
               frequency
Power figures: C1 from AgileWatts (Yahya et al., 2022), Skylake server core, at the voltage of base
               frequency
Power figures: C1E from AgileWatts (Yahya et al., 2022), Skylake server core, at the voltage of the
               lowest frequency
Power figures: C6 from AgileWatts (Yahya et al., 2022), Skylake server core

             exit     target
          latency  residency  power
#  state       us         us     mW  basis       default  entered by  flags
-  -----  -------  ---------  -----  ----------  -------  ----------  ----------------
0  POLL         0          0   4000  calibrated  on       -           polling
1  C1           2          2   1440  calibrated  on       MWAIT 0x00  irq-enable
2  C1E         10         20    880  calibrated  on       MWAIT 0x01  always-enable
3  C6         133        600    100  calibrated  on       MWAIT 0x20  tlb-flushed ibrs

Doubts:
- power of a running core, C1, C1E, C6 quoted second-hand: read its source before relying on it
"
    );
}

#[test]
fn a_machine_without_a_driver_says_that_it_cannot_be_replayed_on() {
    let text = stdout(&["machines", "cwf"]);
    assert!(text.ends_with("\n\nDoubts:\n- no idle states: it cannot be replayed on\n"), "{text}");
}

#[test]
fn a_part_of_a_title_filters_in_any_case() {
    let text = stdout(&["machines", "SKYLAKE", "--csv"]);
    let ids: Vec<&str> = text.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["skl-client", "skx", "skx-d", "skx-nopc6-table", "skx-table"]);
}

#[test]
fn json_has_base_units_and_null() {
    let list = json(&["machines", "--json"]);
    let list = list["machines"].as_array().unwrap();
    let machine = |id: &str| list.iter().find(|machine| machine["machine"] == id).unwrap();
    assert_eq!(machine("spr")["deepest_exit_latency_ns"], 290_000);
    assert_eq!(machine("cwf")["deepest_exit_latency_ns"], serde_json::Value::Null);
    assert_eq!(machine("sdm630-perf")["title"], "SDM630/660, Cortex-A53 (performance cluster)");

    let one = json(&["machines", "pixel6-x1", "--json"]);
    assert_eq!(one["running_power_mw"], 613.51);
    assert_eq!(one["states"][0]["power_mw"], 36.01);
    assert_eq!(one["states"][1]["power_mw"], 0.0);
    assert_eq!(one["topology"]["core_count"], 2);
    assert_eq!(one["doubts"].as_array().unwrap().len(), 1);
}

/// It proposed 'recorded' for 'recorded'.
#[test]
fn the_recorded_machine_needs_a_recording() {
    let (status, message) = crate::failure(&["machines", "recorded"]);
    assert!(status == Some(2) && message.contains("no recording says which machine"), "{message}");
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    let (status, error) = failure(&["machines", "skz"]);
    assert_eq!(status, Some(2));
    assert_eq!(
        error,
        "idlewise: no machine 'skz'; did you mean 'skx'? `idlewise machines` lists all, and a \
         file of your own needs a / or .toml in its name\n"
    );
}

#[test]
fn a_file_of_ones_own_is_shown() {
    let spr = include_str!("../../../../machines/spr.toml").replace("\"spr\"", "\"mine\"");
    let file = OwnFile::new("mine.toml", &spr);
    assert!(stdout(&["machines", file.path()]).starts_with("mine: Sapphire Rapids"));
}

#[test]
fn a_wrong_file_is_one_line_with_file_line_and_cause() {
    let spr = include_str!("../../../../machines/spr.toml");
    let file =
        OwnFile::new("typo.toml", spr.replace("exit_latency_us = 290", "exit_latency = 290"));
    let (status, error) = failure(&["machines", file.path()]);
    assert_eq!(status, Some(2));
    let expected = "line 50: unknown field `exit_latency`; did you mean `exit_latency_us`?";
    assert_eq!(error, format!("idlewise: {}: {expected}\n", file.path()));

    let (status, error) = failure(&["machines", "/nowhere/mine.toml"]);
    assert_eq!(status, Some(2));
    assert!(error.starts_with("idlewise: cannot read /nowhere/mine.toml: "), "{error}");
}

/// C6 of spr declares 290 us, and here half of its exits take 100 us.
#[test]
fn percentiles_of_exits_are_shown_and_used() {
    let spr = include_str!("../../../../machines/spr.toml").replace("\"spr\"", "\"mine\"");
    let with = |exits: &str| {
        let latency = "exit_latency_us = 290\n";
        assert!(spr.contains(latency));
        OwnFile::new("exits.toml", spr.replace(latency, &format!("{latency}{exits}\n")))
    };
    let measured = "exit_percentiles_us = [[50, 100], [99, 160.5]]\nexit_kind = \"measured\"\nexit_source = \"wult\"";
    let (plain, file) = (with(""), with(measured));
    let text = stdout(&["machines", file.path()]);
    assert!(text.contains("Exit latency: C6: p50 100, p99 160.5 us, mean "), "{text}");
    assert!(text.contains(" us, measured, wult\n"), "{text}");
    let figure = &json(&["machines", file.path(), "--json"])["exit_figures"][3];
    assert_eq!(figure["percentiles_us"], serde_json::json!([[50.0, 100.0], [99.0, 160.5]]));

    let log = root().join("traces/b-redis.parquet");
    let replay = |file: &OwnFile| {
        let document = json(&["replay", log.to_str().unwrap(), "--machine", file.path(), "--json"]);
        let row = document["rows"].as_array().unwrap().iter();
        let teo = row.clone().find(|row| row["governor"] == "teo").unwrap().clone();
        (teo, document["findings"].to_string())
    };
    let ((worst, worst_said), (teo, said)) = (replay(&plain), replay(&file));
    assert_eq!(worst["delay_p99_ns"], 290_000);
    let p99_ns = teo["delay_p99_ns"].as_u64().unwrap();
    assert!((150_000..=160_500).contains(&p99_ns), "{teo}");
    // What the kernel would count depends on the declared times. Shorter exits change little of it.
    let shares = [&worst, &teo].map(|row| row["too_deep_ratio"].as_f64().unwrap());
    assert!((shares[0] - shares[1]).abs() < 0.01, "{shares:?}");
    assert!(
        said.contains("Exit latencies from mine's file: C6 takes 115 µs in the mean and"),
        "{said}"
    );
    assert!(said.contains("at the 99th percentile (declared: 290 µs)."), "{said}");
    assert!(!worst_said.contains("Exit latencies from"), "{worst_said}");

    for (exits, message) in [
        (
            "exit_kind = \"measured\"",
            "`exit_kind` without `exit_percentiles_us`: give both or neither",
        ),
        (
            "exit_percentiles_us = [[90, 5], [50, 3]]",
            "`exit_percentiles_us` has 50 % behind 90 %: sort them",
        ),
        (
            "exit_percentiles_us = [[50, 5], [90, 3]]",
            "`exit_percentiles_us` has 3 us at 90 %, below 5 us at 50 %",
        ),
    ] {
        let file = with(exits);
        let (status, error) = failure(&["machines", file.path()]);
        assert_eq!(status, Some(2));
        assert_eq!(error, format!("idlewise: {}: line 49: {message}\n", file.path()));
    }
    for (exits, message) in [
        ("[[50, 5, 6]]", "3 numbers, where a pair is expected"),
        ("[]", "no percentiles: give pairs"),
    ] {
        let file = with(&format!("exit_percentiles_us = {exits}"));
        let (_, error) = failure(&["machines", file.path()]);
        assert!(error.contains(message) && error.contains(": line 51: "), "{error}");
    }
}

const WULT_INFO: &str = "cpu: 0\ndevdescr: TSC deadline timer\nformat_version: '1.3'\nreportid: mine\n\
                         toolname: wult\ntoolver: 1.12.0\n";

/// A wult result with so many samples of C6 (100 us, and as many ns more as the sample's number) and one in ten that stayed in C1.
pub fn write_wult_result(folder: &std::path::Path, count: usize) {
    let mut text =
        "SilentTime,WakeLatency,IntrLatency,LDist,ReqCState,CC0%,CC1%,CC6%,SMICnt,NMICnt\n"
            .to_owned();
    for i in 0..count {
        let us = 100.0 + i as f64 / 1e3;
        text += &format!("{},{us},{us},1000,C6,0.1,1.0,90.5,0,0\n", 200 + i);
        if i % 10 == 0 {
            text += "500,2,3,1000,C6,0.1,99.0,0.00,0,0\n";
        }
    }
    fs::write(folder.join("info.yml"), WULT_INFO).unwrap();
    fs::write(folder.join("datapoints.csv"), text).unwrap();
}

#[test]
fn a_wult_result_becomes_a_machine_file_and_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    write_wult_result(folder.path(), 2_000);
    let (result, file) = (folder.path().to_str().unwrap(), folder.path().join("m.toml"));
    let file = file.to_str().unwrap();
    let text = stdout(&["machines", "import", result, "--machine", "spr", "-o", file]);
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("C6 ")).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["C6", "2000", "200", "0", "101", "102"], "{text}");
    assert!(text.contains("mine, measured by wult 1.12.0 with TSC deadline timer"), "{text}");
    let document = json(&["machines", "import", result, "--machine", "spr", "--json"]);
    assert_eq!(document["rows"][0]["exit_p50_ns"], 101_000);
    // numpy.percentile: 100 + 0.99 · 1.999
    assert_eq!(document["rows"][0]["exit_p99_ns"], 101_979);
    assert_eq!(document["rows"][0]["exit_max_ns"], 101_999);
    let states = &json(&["machines", file, "--json"])["exit_figures"];
    assert_eq!(states[3]["kind"], "measured");
    assert_eq!(states[3]["source"], "wult 1.12.0, TSC deadline timer, mine");
    let log = root().join("traces/b-redis.parquet");
    let rows = json(&["replay", log.to_str().unwrap(), "--machine", file, "--json"]);
    let teo = rows["rows"].as_array().unwrap().iter().find(|row| row["governor"] == "teo").unwrap();
    let p99_ns = teo["delay_p99_ns"].as_u64().unwrap();
    assert!((100_000..=102_000).contains(&p99_ns), "{teo}");

    // It is not replaced, and other machines have other states.
    let again = ["machines", "import", result, "--machine", "spr", "-o", file];
    assert!(failure(&again).1.contains("use --force to replace it"));
    assert!(stdout(&[&again[..], &["--force"]].concat()).contains("Next: idlewise replay LOG"));
    let (status, error) = failure(&["machines", "import", result, "--machine", "milan"]);
    assert_eq!(status, Some(2));
    assert!(
        error.contains("milan has no state")
            && error.contains("name the machine that was measured"),
        "{error}"
    );
    // What was measured is not replaced.
    let points = folder.path().join("datapoints.csv");
    let over = [
        "machines",
        "import",
        result,
        "--machine",
        "spr",
        "--force",
        "-o",
        points.to_str().unwrap(),
    ];
    assert!(failure(&over).1.contains("is also read by this command"));
    // A machine file that was measured is measured again.
    let text = stdout(&["machines", "import", result, "--machine", file, "-o", "-"]);
    assert!(text.contains("id = \"spr-measured\"\n") && !text.contains("Next:"), "{text}");
    // A few samples say so.
    write_wult_result(folder.path(), 20);
    let text = stdout(&["machines", "import", result, "--machine", "spr"]);
    assert!(
        text.contains("C6: 20 samples that may be used, too few for the slowest exits"),
        "{text}"
    );
}

/// As wult's own tests have them, and more.
#[test]
fn results_that_are_none_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap().to_owned();
    let import = || {
        let (status, error) = failure(&["machines", "import", &place, "--machine", "spr"]);
        assert_eq!((status, error.lines().count()), (Some(2), 1), "{error}");
        error
    };
    let (info, points) = (folder.path().join("info.yml"), folder.path().join("datapoints.csv"));
    assert!(import().contains("info.yml: No such file"));
    fs::write(&info, WULT_INFO).unwrap();
    assert!(import().contains("datapoints.csv: No such file"));
    let head = "SilentTime,WakeLatency,ReqCState,CC6%\n";
    for (text, said) in [
        (String::new(), "datapoints.csv: line 1: it is empty"),
        (head.to_owned(), "datapoints.csv: line 2: no samples"),
        (format!("{head}1,2,C6,90\n1,2,C6\n"), "line 3: 3 values, where the first line names 4"),
        (format!("{head}1,2,C6,90,7\n"), "line 2: 5 values"),
        (format!("{head}1,2,C6,0\n"), "no sample may be used"),
        ("\u{0}\u{1}\u{2}".repeat(90_000), "no line of text"),
    ] {
        fs::write(&points, text).unwrap();
        let error = import();
        assert!(error.contains(said), "{error}");
    }
    fs::remove_file(&points).unwrap();
    fs::create_dir(&points).unwrap();
    assert!(import().contains("datapoints.csv: it is no regular file"));
    fs::remove_dir(&points).unwrap();
    for device in ["/dev/null", "/dev/urandom"] {
        std::os::unix::fs::symlink(device, &points).unwrap();
        assert!(import().contains("datapoints.csv: it is no regular file"));
        fs::remove_file(&points).unwrap();
    }
    fs::write(&info, WULT_INFO.replace("toolname: wult", "toolname: ndl")).unwrap();
    fs::write(&points, head).unwrap();
    assert!(import().contains("info.yml: a result of \"ndl\"; only those of wult are read"));
    fs::remove_file(&info).unwrap();
    std::os::unix::fs::symlink("/dev/urandom", &info).unwrap();
    import();
}

/// Also exits that take longer than the table says. Simulations cut these.
#[test]
fn a_simulation_takes_the_same_exits() {
    let spr = include_str!("../../../../machines/spr.toml").replace("\"spr\"", "\"mine\"");
    let latency = "exit_latency_us = 290\n";
    let at = |exits: &str| {
        let file = OwnFile::new("exits.toml", spr.replace(latency, &format!("{latency}{exits}\n")));
        let set =
            ["sleeper_cpu=4", "interval_ns=2000000", "wake_count=100"].map(|it| ["--set", it]);
        let words = ["lab", "simulate", file.path(), "wakes", "--governor", "deepest", "--json"];
        json(&[&words, set.as_flattened()].concat())["spans"][0]["p50_ns"].as_u64().unwrap()
    };
    let (declared, slow, fast) =
        (at(""), at("exit_percentiles_us = [[50, 435]]"), at("exit_percentiles_us = [[50, 90]]"));
    assert_eq!((slow - declared, declared - fast), (145_000, 200_000));
}
