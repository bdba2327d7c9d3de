//! `--machine recorded`, the default: a recording is replayed on the idle states that it holds. And the verdict, which
//! compares with the governor that it names.

use std::collections::BTreeSet;
use std::path::Path;

use idlewise_trace::log::{IdleLog, LogWriter};
use idlewise_trace::{Doubt, GapSink};
use serde_json::Value;

use crate::{assert_refused, folder, idlewise, json, root, stdout};

/// A recording of a machine with five states, under menu of 6.12.
const RECORDED: &str = "traces/q-menu-6.12.trace.dat.xz";
/// A recording of a virtual machine, which has no states.
const WITHOUT: &str = "traces/b-redis.parquet";

fn machines(rows: &Value) -> BTreeSet<String> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["machine"].as_str().unwrap().to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A text with each run of spaces and new lines as one space.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes what a governor decides on a machine, as a log that holds this machine.
fn rewritten(machine: &str, governor: &str, to: &Path) -> String {
    let to = to.to_str().unwrap().to_owned();
    let options = ["--machine", machine, "--governor", governor, "--write-log", &to];
    stdout(&[&["replay", WITHOUT], &options[..]].concat());
    to
}

#[test]
fn a_recording_is_replayed_on_its_own_machine() {
    let two = ["--governor", "menu", "--governor", "teo"];
    let replay = |more: &[&str]| json(&[&["replay", RECORDED, "--json"], more, &two].concat());
    let document = replay(&[]);
    assert_eq!(machines(&document["rows"]), set(&["recorded"]));
    let states = document["states"].as_array().unwrap().iter();
    let states: BTreeSet<&str> = states.map(|state| state["state"].as_str().unwrap()).collect();
    assert_eq!(states, BTreeSet::from(["POLL", "C1", "C1E", "C3", "C6"]));
    assert_eq!(replay(&["--machine", "recorded"]), document);
    // In a list beside others, in whatever form.
    let both = replay(&["--machine", "recorded,spr"]);
    assert_eq!(machines(&both["rows"]), set(&["recorded", "spr"]));
    assert_eq!(replay(&["--machine", "recorded", "--machine", "spr"]), both);
    let rows = |document: &Value| document["rows"].as_array().unwrap().clone();
    assert_eq!(rows(&both)[..2], rows(&document)[..]);
    // Another machine alone, and the figures are others.
    let other = replay(&["--machine", "spr"]);
    assert_eq!(machines(&other["rows"]), set(&["spr"]));
    assert_eq!(rows(&both)[2..], rows(&other)[..]);
    let text = stdout(&[&["replay", RECORDED, "--doubts"], &two[..]].concat());
    assert!(text.contains("\nrecorded (QEMU TCG CPU"), "{text}");
    assert!(
        flat(&text)
            .contains("Assumed: 3000 ns of work for each tick, powers of the recorded machine")
    );
}

#[test]
fn all_commands_take_the_recorded_machine() {
    let governors = ["--governor", "menu", "--governor", "teo"];
    let both = |command: &[&str]| {
        let mut default = json(&[command, &governors].concat());
        let mut asked = json(&[command, &governors, &["--machine", "recorded"]].concat());
        // A page holds its command.
        for document in [&mut default, &mut asked] {
            document["byte_count"] = Value::Null;
        }
        assert_eq!(default, asked, "{command:?}");
        default
    };
    assert_eq!(
        machines(&both(&["replay", "--compare", RECORDED, "--json"])["groups"]),
        set(&["recorded"])
    );
    assert_eq!(
        machines(&both(&["replay", "--rank", RECORDED, "--json"])["cells"]),
        set(&["recorded"])
    );
    let place = folder();
    let page = place.path().join("r.html");
    let page = page.to_str().unwrap();
    let report = both(&["report", RECORDED, "--json", "--force", "-o", page]);
    assert_eq!(machines(&report["verdicts"]), set(&["recorded"]));
    both(&["predict", "traces/c-pingpong.trace.dat.xz", "--json"]);
    let mail = stdout(&[&["report", RECORDED, "--format", "mail"], &governors[..]].concat());
    assert!(flat(&mail).contains("idle states of QEMU TCG CPU version 2.5+ (recorded)"), "{mail}");
    let export = ["log", "export", RECORDED, "--format", "csv", "--governor", "menu", "-o", "-"];
    let exported = |machine: &[&str]| stdout(&[&export[..], machine].concat());
    assert_eq!(exported(&["--machine", "recorded"]), exported(&[]));
    assert_ne!(exported(&["--machine", "spr"]), exported(&[]));
    let why = |more: &[&str]| json(&[&["info", RECORDED, "--why-menu", "--json"], more].concat());
    assert_eq!(why(&["--machine", "recorded"]), why(&[]));
}

#[test]
fn a_recording_without_states_says_in_the_first_line_on_what_it_is_replayed() {
    let said = "b-redis has no idle states of its own, so it is replayed on spr and milan; choose others with \
                --machine (`idlewise machines` lists them).";
    let place = folder();
    let page = place.path().join("r.html");
    let page = page.to_str().unwrap();
    for command in [
        &["replay", WITHOUT][..],
        &["replay", "--compare", WITHOUT],
        &["report", WITHOUT, "--force", "-o", page],
    ] {
        let governors = ["--governor", "menu", "--governor", "teo"];
        let text = stdout(&[command, &governors].concat());
        assert!(flat(&text).starts_with(said), "{text}");
        // Who names a machine knows it.
        let named = stdout(&[command, &governors, &["--machine", "spr"]].concat());
        assert!(!named.contains("no idle states of its own"), "{named}");
    }
    let arena = stdout(&["replay", "--rank", WITHOUT, "--governor", "menu"]);
    assert!(
        flat(&arena).contains("replayed on spr, icx, milan, genoa, skx and skl-client;"),
        "{arena}"
    );
    // Programs find it among the doubts, and a table beside it.
    let document = json(&["replay", WITHOUT, "--json", "--governor", "menu"]);
    assert_eq!(machines(&document["rows"]), set(&["spr", "milan"]));
    let doubts = document["doubts"].as_array().unwrap();
    assert!(doubts.iter().any(|doubt| doubt["doubt"] == said), "{doubts:?}");
    let output = idlewise(&["replay", WITHOUT, "--csv", "--governor", "menu"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("log,machine,"));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("idlewise: {said}\n"));
    let mail = stdout(&["report", WITHOUT, "--format", "mail", "--governor", "menu"]);
    assert!(flat(&mail).contains("b-redis has no idle states of its own"), "{mail}");
    let bundled = stdout(&["replay", "--governor", "menu"]);
    assert!(bundled.starts_with("The 5 recordings have no idle states of their own"), "{bundled}");
}

#[test]
fn where_there_is_none_it_is_refused() {
    let parts = [
        "b-redis does not say which idle states its machine has",
        "`idlewise machines`",
        "`idlewise record`",
    ];
    for command in [
        &["replay", WITHOUT][..],
        &["replay", RECORDED, WITHOUT],
        &["replay", WITHOUT, "--check-recorded"],
        &["replay", "--compare", WITHOUT],
        &["replay", "--rank", WITHOUT],
        &["report", WITHOUT, "-o", "/dev/null", "--force"],
        &["log", "export", WITHOUT, "--format", "csv", "--governor", "menu", "-o", "-"],
        &["info", WITHOUT, "--why-menu"],
    ] {
        assert_refused(&[command, &["--machine", "recorded"]].concat(), &parts);
    }
    assert_refused(&["replay", WITHOUT, "--machine", "spr,recorded"], &parts);
    // And where there is no recording.
    assert_refused(
        &["lab", "simulate", "recorded", "tcp-lat"],
        &["no recording says which machine"],
    );
    let place = folder();
    let manifest = place.path().join("sweep.toml");
    std::fs::write(&manifest, "machines = [\"recorded\"]\n").unwrap();
    assert_refused(
        &["lab", "sweep", manifest.to_str().unwrap()],
        &["no recording says which machine"],
    );
}

/// Two recordings of one machine make one table, and those of others their own.
#[test]
fn each_recording_is_replayed_on_its_own_machine() {
    let place = folder();
    let at = |name: &str| place.path().join(format!("{name}.parquet"));
    let skx = rewritten("skx", "menu", &at("skx-menu"));
    let again = rewritten("skx", "ladder", &at("skx-ladder"));
    let milan = rewritten("milan", "menu", &at("milan"));
    let governors = ["--governor", "menu", "--governor", "teo"];
    let replay = |logs: &[&str], more: &[&str]| {
        json(&[&["replay", "--json"], logs, more, &governors].concat())["rows"].clone()
    };
    let all = replay(&[&skx, &milan, &again, WITHOUT], &[]);
    let place_of =
        |row: &Value| ["log", "machine"].map(|key| row[key].as_str().unwrap().to_owned());
    let places: BTreeSet<[String; 2]> = all.as_array().unwrap().iter().map(place_of).collect();
    let expected = [
        ["skx-menu", "recorded:skx-menu"],
        ["skx-ladder", "recorded:skx-menu"],
        ["milan", "recorded:milan"],
        ["b-redis", "spr"],
        ["b-redis", "milan"],
    ];
    assert_eq!(places, expected.map(|place| place.map(str::to_owned)).into());
    // The figures are those of the machines that were written into them.
    for (log, machine, named) in
        [(&skx, "skx", "recorded:skx-menu"), (&milan, "milan", "recorded:milan")]
    {
        let alone = replay(&[log], &["--machine", machine]);
        for row in alone.as_array().unwrap() {
            let mut row = row.clone();
            row["machine"] = named.into();
            assert!(all.as_array().unwrap().contains(&row), "{row}");
        }
    }
    let text = stdout(&[&["replay", &skx, &milan, &again], &governors[..]].concat());
    assert!(text.contains("): 2 logs together, 9332 gaps"), "{text}");
    assert!(text.contains("): milan, 4666 gaps"), "{text}");
    assert!(
        flat(&text)
            .contains("On the machine of skx-menu, teo instead of menu (the kernel's default):"),
        "{text}"
    );
    assert!(
        flat(&text).contains("On the machine of milan, teo instead of menu (in use):"),
        "{text}"
    );
    for (form, rows) in [("--compare", "groups"), ("--rank", "cells")] {
        let document = json(&[&["replay", form, "--json", &skx, &milan], &governors[..]].concat());
        let rows = document[rows].as_array().unwrap().iter();
        let places: BTreeSet<[String; 2]> = rows.map(place_of).collect();
        let expected = [["skx-menu", "recorded:skx-menu"], ["milan", "recorded:milan"]];
        assert_eq!(places, expected.map(|place| place.map(str::to_owned)).into(), "{form}");
    }
    // A page has each log on its machine only.
    let page = at("page");
    let options = ["--json", "--force", "-o", page.to_str().unwrap()];
    let report = json(&[&["report", &skx, &milan], &options[..], &governors].concat());
    assert_eq!(machines(&report["verdicts"]), set(&["recorded:milan", "recorded:skx-menu"]));
    let alone =
        json(&[&["report", &milan, "--machine", "milan"], &options[..], &governors].concat());
    let [of_two, of_one] = [&report["verdicts"][1], &alone["verdicts"][0]].map(|verdict| {
        let sentence = verdict["sentence"].as_str().unwrap();
        sentence.split_once(',').unwrap().1.to_owned()
    });
    assert_eq!(of_two, of_one);
}

#[test]
fn an_anonymized_log_still_has_its_machine() {
    let place = folder();
    let to = place.path().join("a.parquet");
    let to = to.to_str().unwrap();
    stdout(&["log", "anonymize", RECORDED, "-o", to]);
    let energies = |log: &str| {
        let document = json(&["replay", log, "--json", "--governor", "menu"]);
        assert_eq!(machines(&document["rows"]), set(&["recorded"]));
        document["rows"][0]["energy_uj"].clone()
    };
    assert_eq!(energies(to), energies(RECORDED));
}

#[test]
fn two_machines_of_one_name_are_refused() {
    let place = folder();
    let file = |name: &str, latency: &str| {
        let path = place.path().join(name);
        let text = std::fs::read_to_string(root().join("machines/milan.toml")).unwrap();
        std::fs::write(&path, text.replace("exit_latency_us = 1\n", latency)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) =
        (file("a.toml", "exit_latency_us = 1\n"), file("b.toml", "exit_latency_us = 0.9\n"));
    let both = format!("{a},{b}");
    assert_refused(
        &["replay", WITHOUT, "--machine", &both],
        &["two different machines are called milan"],
    );
    // The same machine twice is one.
    let twice = json(&["replay", WITHOUT, "--json", "--machine", &a, "--machine", "milan,milan"]);
    assert_eq!(twice["rows"].as_array().unwrap().len(), 10);
}

/// `--write-log` needs no name of a machine that the recording holds.
#[test]
fn a_replay_is_written_on_the_recorded_machine() {
    let place = folder();
    let made = place.path().join("made.parquet");
    let made = made.to_str().unwrap();
    stdout(&["replay", RECORDED, "--governor", "teo", "--write-log", made]);
    let text = stdout(&["replay", made, "--check-recorded"]);
    assert!(text.contains("teo-6.12 on recorded: ") && text.contains("(100.00 %)"), "{text}");
    let other = place.path().join("other.parquet");
    assert_refused(
        &["replay", WITHOUT, "--governor", "teo", "--write-log", other.to_str().unwrap()],
        &["exactly one log, one --machine"],
    );
}

/// What the verdict of a replay says.
fn verdict(arguments: &[&str]) -> String {
    let document = json(&[&["replay", "--json"], arguments].concat());
    let text = stdout(&[&["replay"], arguments].concat());
    let verdict = document["findings"][0]["text"].as_str().unwrap().to_owned();
    // It is the first thing that one reads.
    assert!(flat(&text).starts_with(&verdict), "{text}");
    verdict
}

#[test]
fn the_verdict_compares_with_the_governor_in_use() {
    let of = |governors: &[&str]| {
        let named = governors.iter().flat_map(|name| ["--governor", name]);
        verdict(&[&[RECORDED], &named.collect::<Vec<_>>()[..]].concat())
    };
    let machine = "On the recorded machine, ";
    let expected = format!(
        "{machine}teo instead of menu (in use): same p99, mean delay -12.9 %, energy +1.6 % (assumed power). Which one uses \
         less energy depends on C1's power, which `idlewise measure power` finds: -51 % to +22 % is plausible."
    );
    assert_eq!(of(&["menu", "teo"]), expected);
    // The same, for programs.
    let document = json(&["replay", RECORDED, "--governor", "menu", "--governor", "teo", "--json"]);
    let [range] = &document["energy_ranges"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!((&range["governor"], &range["instead_of"]), (&"teo".into(), &"menu".into()));
    assert_eq!(range["decisive_state"], "C1");
    let percent = |end: &str| (range[end].as_f64().unwrap() * 100.0).round();
    let ends = ["energy_change_low_ratio", "energy_change_high_ratio"].map(percent);
    assert_eq!(ends, [-51.0, 22.0]);
    // In whatever order, and beside whichever others.
    assert_eq!(of(&["teo", "menu"]), expected);
    assert_eq!(of(&["ladder", "teo", "menu", "deepest"]), expected);
    assert!(
        of(&["menu-6.1", "teo"])
            .starts_with(&format!("{machine}teo instead of menu-6.1 (menu-6.12 was in use): "))
    );
    // The exact version, where it is there.
    let exact = of(&["menu-7.2", "menu-6.12"]);
    assert!(exact.contains(" menu-6.12 (in use) costs least. With menu-7.2 instead: "), "{exact}");
    assert_eq!(
        of(&["menu", "menu+min"]),
        format!(
            "{machine}nothing is better than menu (in use). With menu+min instead: same delays, same energy."
        )
    );
    assert_eq!(
        of(&["menu"]),
        format!(
            "{machine}menu (in use): p99 800 µs, mean delay 207 µs, energy 2.8 J (assumed power). There is no \
             other governor to compare it with."
        )
    );
    // Named twice it is one governor.
    assert_eq!(of(&["menu", "menu"]), of(&["menu"]));
    let without = of(&["teo", "ladder"]);
    assert!(without.contains("teo costs least. With ladder instead: same p99, "), "{without}");
    assert!(
        without.contains("menu was in use, but was not replayed: add --governor menu."),
        "{without}"
    );
    let bounds = json(&["replay", RECORDED, "--governor", "deepest", "--json"]);
    assert!(!bounds["findings"].to_string().contains("instead of"), "{bounds}");
    let of_teo =
        ["traces/q-ladder-6.12.trace.dat.xz", "--governor", "menu", "--governor", "ladder"];
    assert!(verdict(&of_teo).contains(" instead of ladder (in use): "));
}

#[test]
fn the_verdict_says_what_it_takes_for_the_governor_in_use() {
    let some = [WITHOUT, "--machine", "spr", "--governor", "menu", "--governor", "teo"];
    assert_eq!(
        verdict(&some),
        "On spr, teo instead of menu (the kernel's default): same p99, mean delay +3.5 %, energy -0.7 % (assumed power). \
         Which one uses less energy depends on the power of a running core, which is assumed: -7.9 % to +0.3 % is \
         plausible."
    );
    // Regret follows, in figures that differ.
    let text = flat(&stdout(&[&["replay"], &some[..]].concat()));
    assert!(text.contains("at λ=¼ × polling power: teo 20.7 %, menu 20.9 %."), "{text}");
    // Nobody says which of two files is in use.
    let files =
        verdict(&[WITHOUT, "--machine", "spr", "--governor", "ladder", "--governor", "haltpoll"]);
    assert!(!files.contains("in use") && !files.contains("default"), "{files}");
    // Where nothing is better, or costs less, it says so.
    let least =
        ["traces/a-idle.parquet", "--machine", "spr", "--governor", "menu", "--governor", "teo"];
    let expected = "On spr, menu (the kernel's default) costs least. With teo instead: ";
    assert!(verdict(&least).starts_with(expected), "{}", verdict(&least));
    let log = "traces/h-pingpong.parquet";
    let worse = verdict(&[log, "--machine", "spr", "--governor", "teo", "--governor", "ladder"]);
    assert!(
        worse.starts_with("On spr, nothing is better than teo. The nearest is ladder: "),
        "{worse}"
    );
}

#[test]
fn a_page_and_a_comparison_have_the_same_verdict() {
    let place = folder();
    let page = place.path().join("r.html");
    let some = [WITHOUT, "--machine", "spr", "--governor", "menu", "--governor", "teo"];
    let expected = verdict(&some);
    let options = ["report", "--json", "-o", page.to_str().unwrap()];
    let report = json(&[&options[..], &some].concat());
    // Where powers are assumed, what holds under all is among the page's limits.
    let (sentence, powers) = expected.split_once(" Which one uses").unwrap();
    assert_eq!(report["verdicts"][0]["sentence"], sentence);
    assert!(report["verdicts"][0]["limits"].to_string().contains(powers), "{report}");
    let facts = report["verdicts"][0]["facts"].to_string();
    assert!(
        facts.contains("regret (cost above the best possible)") && !facts.contains("ladder"),
        "{facts}"
    );
    let diff = json(&[&["replay", "--compare", "--json"], &some[..]].concat());
    let sentence = diff["findings"][0]["text"].as_str().unwrap();
    assert_eq!(
        expected,
        format!("On spr, {}", sentence.replace("menu:", "menu (the kernel's default):"))
    );
}

/// The machine of a recording with several kinds of cores is that of the first; it says so.
#[test]
fn a_machine_with_several_tables_says_whose_it_is() {
    let place = folder();
    let [imported, path] = ["one.parquet", "hybrid.parquet"].map(|name| place.path().join(name));
    stdout(&["log", "import", RECORDED, "-o", imported.to_str().unwrap()]);
    let mut log = IdleLog::open(&imported).unwrap();
    log.metadata.doubts.push(Doubt::SeveralTables { count: 2, cpu_count: 1, cpu: 0 });
    let mut writer = LogWriter::create(&path, false).unwrap();
    let gaps = crate::import::gaps(&log);
    for cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
        writer.take(cpu[0].cpu, cpu).unwrap();
    }
    writer.finish_unchecked(&log.metadata).unwrap();
    let text = flat(&stdout(&["replay", path.to_str().unwrap(), "--doubts"]));
    assert!(text.contains("the machine's CPUs have 2 kinds of idle states"), "{text}");
}
