//! `idlewise lab study`.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use idlewise_study::STUDIES;
use serde_json::Value;

use crate::{WIDTH, assert_refused, failure, folder, json, root, stdout};

/// The fastest study.
const QUICK: &str = "promotion";

/// What `--inputs` lists of a study.
fn inputs(study: &str) -> Vec<Value> {
    let document = json(&["lab", "study", study, "--inputs", "--json"]);
    document["studies"][0]["inputs"].as_array().unwrap().clone()
}

/// Options that give every input a value and a source, so that nothing is varied: the listed value, or another one.
pub(crate) fn known(study: &str, other: &[(&str, &str)]) -> Vec<String> {
    let options = inputs(study).into_iter().flat_map(|input| {
        let key = input["key"].as_str().unwrap();
        let listed = input["value"].to_string();
        let value =
            other.iter().find(|(other, _)| *other == key).map_or(&*listed, |(_, value)| value);
        [
            "--set".to_owned(),
            format!("{key}={value}"),
            "--source".to_owned(),
            format!("{key}=a test"),
        ]
    });
    options.collect()
}

/// A study with these options, for a program.
fn run(study: &str, options: &[String]) -> Value {
    let options = options.iter().map(String::as_str);
    let arguments: Vec<&str> =
        ["lab", "study", study, "--json"].into_iter().chain(options).collect();
    json(&arguments)["studies"][0].clone()
}

/// `amd-mwait` with the inputs that it lists. Varying them takes long, so it runs once.
fn as_listed() -> &'static Value {
    static STUDY: OnceLock<Value> = OnceLock::new();
    STUDY.get_or_init(|| run("amd-mwait", &[]))
}

/// The figure whose name begins so.
fn figure<'s>(study: &'s Value, name: &str) -> &'s Value {
    let mut figures = study["figures"].as_array().unwrap().iter();
    figures.find(|figure| figure["figure"].as_str().unwrap().starts_with(name)).unwrap()
}

#[test]
fn prints_published_beside_ours_with_role_origin_and_judgement() {
    let text = stdout(&["lab", "study", QUICK]);
    for part in [
        "published",
        "ours",
        "explored",
        "simulated",
        "arithmetic",
        "What went in:",
        "Sensitivity:",
        "Judgement:",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    for line in text.lines().filter(|line| !line.contains("  ")) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

/// A fitted figure is never shown as predicted. Its input is listed as calibrated.
#[test]
fn says_of_every_figure_how_it_came_to_be() {
    let study = as_listed();
    let figures = study["figures"].as_array().unwrap();
    for figure in figures {
        let role = figure["role"].as_str().unwrap();
        assert!(["calibrated", "predicted", "simulated", "arithmetic"].contains(&role), "{figure}");
        let what = figure["figure"].as_str().unwrap();
        if what.starts_with("10K wakes") || what.contains("HALT, median") {
            assert_eq!(role, "calibrated", "{what}");
        }
    }
    let given = || ["inputs", "facts"].into_iter().flat_map(|key| study[key].as_array().unwrap());
    for origin in ["calibrated", "documented", "assumed"] {
        assert!(given().any(|input| input["origin"] == origin), "{origin}");
    }
    assert!(given().any(|input| input["fitted_to"][0] == "10K wakes"));
    let tree = study["tables"].as_array().unwrap().iter();
    let tree = tree.filter(|table| table["title"].as_str().unwrap().contains("decision tree"));
    let rows: Vec<_> = tree.flat_map(|table| table["rows"].as_array().unwrap()).collect();
    assert!(rows.iter().filter(|row| row[1] == "a dump").count() > 20);
    // Claimed, and chosen by 6.12. The dumps of the first Zen list no C1.
    let others = rows.into_iter().filter(|row| row[2] != "-" && row[2] != row[5]);
    let others: Vec<&str> = others.map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(others, ["AMD Ryzen 7 1800X (family 17h model 01h, Zen)"]);
}

/// A label is what other plausible inputs make of a figure: whoever sets them gets the figures that the page lists.
#[test]
fn a_label_follows_from_what_inputs_do() {
    let as_listed = as_listed();
    let figures = as_listed["figures"].as_array().unwrap();
    let is_decided = |figure: &&serde_json::Value| figure["role"] == "simulated";
    let (index, figure) =
        figures.iter().enumerate().find(|(_, figure)| is_decided(figure)).unwrap();
    let decider = &figure["decided_by"][0];
    let inputs = as_listed["inputs"].as_array().unwrap();
    let changes = decider["inputs"].as_array().unwrap().iter().map(|by| {
        let input = inputs.iter().find(|input| input["input"] == by["input"]).unwrap();
        (input["key"].as_str().unwrap(), by["value"].to_string())
    });
    let changes: Vec<(&str, String)> = changes.collect();
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, value)| (*key, &**value)).collect();
    // Who knows all inputs need assume nothing.
    let changed = run("amd-mwait", &known("amd-mwait", &changes));
    assert_eq!(changed["figures"][index]["ours"], decider["ours"], "{changes:?}");
    for figure in changed["figures"].as_array().unwrap() {
        assert_ne!(figure["role"], "simulated", "{figure}");
    }
}

/// A value that a reader sets is a guess like the listed one, unless the reader says where it is documented.
#[test]
fn a_guess_gets_no_better_label_and_a_source_is_printed() {
    let guess = ["--set", "quiet_ms=300", "--set", "burst_jitter_us=20"].map(str::to_owned);
    let predicted = |study: &Value| {
        let figures = study["figures"].as_array().unwrap().iter();
        figures.filter(|figure| figure["role"] == "predicted").count()
    };
    assert_eq!(predicted(&run(QUICK, &[])), 0);
    let guessed = run(QUICK, &guess);
    assert_eq!(predicted(&guessed), 0, "{guessed:#}");
    for nothing in ["quiet_ms=", "quiet_ms=-", "quiet_ms=\u{200b}"] {
        let line = ["lab", "study", QUICK, "--set", "quiet_ms=300", "--source", nothing];
        let (status, message) = failure(&line);
        assert!(status == Some(2) && message.contains("expected KEY=TEXT"), "{message}");
    }
    assert!(guessed["set"].as_array().unwrap().iter().all(|set| set["source"].is_null()));
    let sources = ["--source", "quiet_ms=a log", "--source", "burst_jitter_us=a  trace,\npage 3"];
    let known = run(QUICK, &[&guess[..], &sources.map(str::to_owned)].concat());
    assert_eq!(known["set"][0]["source"], "a log");
    assert_eq!(known["set"][1]["source"], "a trace, page 3");
    // It still is not one that the run explored with other values.
    let jitters = known["figures"][0]["effects"].as_array().unwrap().iter();
    let of_jitter =
        jitters.filter(|effect| effect["input"] == "random delay of each interrupt, up to");
    assert_eq!(of_jitter.count(), 0);
    let arguments = ["lab", "study", QUICK, "--set", "quiet_ms=300", "--set", "hz=100"];
    let text = stdout(&[&arguments[..], &["--source", "quiet_ms=a log"]].concat());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("time between two bursts: 300 ms (documented: a log)"), "{text}");
    assert!(text.contains("(guessed: --set without --source)"), "{text}");
}

/// Three inputs that each change little alone turn the gain of a sibling into a loss.
#[test]
fn what_three_inputs_do_together_is_within_what_was_explored() {
    let study = run(QUICK, &[]);
    let name = "one computing sibling";
    let explored = figure(&study, name);
    let ends = |key: &str| explored[key].as_f64().unwrap();
    for changes in [
        [("burst_gap_us", "20"), ("burst_jitter_us", "20"), ("burst_count", "64")],
        [("burst_gap_us", "20"), ("burst_jitter_us", "20"), ("burst_count", "8")],
        [("burst_gap_us", "10"), ("burst_jitter_us", "20"), ("burst_count", "64")],
    ] {
        let ours = figure(&run(QUICK, &known(QUICK, &changes)), name)["ours"].as_f64().unwrap();
        assert!((ends("ours_min")..=ends("ours_max")).contains(&ours), "{changes:?}: {ours}");
    }
    assert!(ends("ours_min") < 0.0, "{explored:#}");
}

/// Exit latency and residency of C6 are documented in two pairs, and a machine has one of them.
#[test]
fn documented_pairs_are_varied_as_pairs() {
    let page = std::fs::read_to_string(root().join("docs/studies/menu-min.md")).unwrap();
    let with = |exit_us, residency_us| {
        let changes = [("exit_us", exit_us), ("residency_us", residency_us)];
        let study = run("menu-min", &known("menu-min", &changes));
        figure(&study, "before (menu), interrupts on another CPU")["ours"].as_f64().unwrap()
    };
    let row =
        page.lines().find(|line| line.starts_with("before (menu), interrupts on another CPU, us"));
    let explored = row.unwrap().split(" | ").nth(3).unwrap();
    let (low, high) = explored.split_once(" to ").unwrap();
    let explored = low.parse::<f64>().unwrap()..=high.parse::<f64>().unwrap();
    for (exit_us, residency_us) in [("190", "600"), ("290", "800")] {
        let ours = with(exit_us, residency_us);
        // The page's numbers are rounded.
        let is_in = explored.contains(&(ours * 0.99)) || explored.contains(&(ours * 1.01));
        assert!(is_in, "{exit_us}/{residency_us}: {ours} in {explored:?}");
    }
}

/// Numbers of a sentence; words with letters are names.
fn numbers(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "()/:;,±=".contains(c));
    let words = words.filter(|word| !word.chars().any(char::is_alphabetic));
    let words = words.map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()));
    words.filter_map(|word| word.parse::<f64>().ok()).map(|number| number.to_string()).collect()
}

/// With other inputs a judgement has other numbers, except for published ones, unchanged inputs and constants.
#[test]
fn no_number_in_a_judgement_is_stale() {
    let text = std::fs::read_to_string(root().join("crates/idlewise-cli/tests/judgements.toml"));
    let constants: toml::Table = text.unwrap().parse().unwrap();
    let listed: BTreeSet<&str> = constants.keys().map(String::as_str).collect();
    assert_eq!(listed, STUDIES.iter().map(|study| study.name).collect(), "a list for each study");
    for (name, constant) in &constants {
        let listed = inputs(name);
        // All that may be otherwise is otherwise.
        let other = listed.iter().filter(|input| input["origin"] != "documented");
        let other: Vec<(String, String)> = other
            .filter_map(|input| {
                let number = |key: &str| input[key].as_f64().unwrap();
                let way = |end: &f64| (end - number("value")).abs();
                let ends = ["plausible_min", "plausible_max"].map(number);
                let end = if way(&ends[0]) > way(&ends[1]) { ends[0] } else { ends[1] };
                (way(&end) > 0.0)
                    .then_some((input["key"].as_str().unwrap().to_owned(), end.to_string()))
            })
            .collect();
        let other: Vec<(&str, &str)> = other.iter().map(|(key, end)| (&**key, &**end)).collect();
        let before = run(name, &known(name, &[]));
        let after = run(name, &known(name, &other));
        let mut fixed: BTreeSet<String> = {
            let numbers = constant.as_array().unwrap().iter();
            numbers.map(|number| number.as_str().unwrap().to_owned()).collect()
        };
        fixed.extend(numbers(before["claim"].as_str().unwrap()));
        let published = before["figures"].as_array().unwrap().iter();
        let published = published
            .flat_map(|figure| ["published_min", "published_max"].map(|end| figure[end].as_f64()));
        fixed.extend(published.flatten().map(|number| number.abs().to_string()));
        fixed.extend(published_texts(&before));
        let is_same = |input: &&Value| !other.iter().any(|(key, _)| input["key"] == *key);
        fixed.extend(
            listed.iter().filter(is_same).map(|input| input["value"].as_f64().unwrap().to_string()),
        );
        let facts = before["facts"].as_array().unwrap().iter();
        fixed.extend(facts.flat_map(|fact| numbers(fact["value"].as_str().unwrap())));
        let sentences = |study: &Value| -> Vec<String> {
            let findings = study["findings"].as_array().unwrap().iter();
            let texts = findings.map(|finding| finding["text"].as_str().unwrap().to_owned());
            texts.filter(|text| !text.contains("cannot be fitted")).collect()
        };
        let (before, after) = (sentences(&before), sentences(&after));
        assert_eq!(before.len(), after.len(), "{name}");
        let mut stale = Vec::new();
        for (before, after) in before.iter().zip(&after) {
            let both: Vec<String> =
                numbers(before).intersection(&numbers(after)).cloned().collect();
            let both: Vec<String> =
                both.into_iter().filter(|number| !fixed.contains(number)).collect();
            if !both.is_empty() {
                stale.push(format!("{both:?} in: {after}\n  before: {before}"));
            }
        }
        assert!(stale.is_empty(), "{name}: {stale:#?}");
    }
}

/// What a sentence says follows from the figures beside it, wherever the inputs are moved to.
#[test]
fn a_judgement_says_what_its_figures_say() {
    let judgement = |study: &str, set: &str| -> String {
        // Varying inputs takes long and does not change figures.
        let study = run(study, &known(study, &[set.split_once('=').unwrap()]));
        let findings = study["findings"].as_array().unwrap().iter();
        let texts: Vec<&str> = findings.map(|finding| finding["text"].as_str().unwrap()).collect();
        texts.join(" ")
    };
    for (study, set, said, not_said) in [
        ("menu-min", "hz=100", "min() makes no difference", "each message pays for PC6's exit"),
        (
            "menu-min",
            "think_us=500",
            "it is the pause of all these figures",
            "no less than without it",
        ),
        (
            "promotion",
            "burst_gap_us=24",
            "do not catch the CPU in stop0_lite",
            "until its next event",
        ),
        ("promotion", "burst_jitter_us=20", "not stuck after all bursts", "and nothing else"),
        ("promotion", "burst_count=1", "do not catch the CPU in stop0_lite", "SMT folding gives"),
        (
            "promotion",
            "stop2_residency_us=500",
            "4160 us and 8 rounds by",
            "960 us and 8 rounds by",
        ),
        ("amd-mwait", "mwait_by_store=1", "that stores caused", "that IPIs caused"),
    ] {
        let text = judgement(study, set);
        assert!(text.contains(said) && !text.contains(not_said), "{study} {set}: {text}");
        assert!(!text.contains(" - "), "{study} {set}, a figure that is none: {text}");
    }
}

/// Figures of a model that does not reproduce what it was fitted to say nothing about the claim.
#[test]
fn a_fit_that_fails_is_said_first_and_takes_the_label() {
    // The input that is set need not be the one that was fitted.
    let study = run("amd-mwait", &["--set".to_owned(), "ipi_send_ns=100000".to_owned()]);
    let first = study["findings"][0]["text"].as_str().unwrap();
    assert!(first.contains("cannot be fitted to halt_per_s = 190184 1/s"), "{first}");
    assert_eq!(figure(&study, "context_switch2, HALT, median")["role"], "simulated");
    let slower = "smt4_speed=0.75";
    let study = ["lab", "study", "promotion", "--set", slower];
    assert_refused(&study, &["smt4_speed", "smt2_speed"]);
}

/// "+11.64 % by exit latency alone" holds only if IPIs woke MWAIT: stores, which is as likely, leave a quarter of it.
#[test]
fn what_woke_mwait_decides_what_its_exit_alone_gains() {
    let name = "context_switch2, improvement: exit latency alone";
    let gain_percent = |by_store: &str| {
        let study = run("amd-mwait", &known("amd-mwait", &[("mwait_by_store", by_store)]));
        figure(&study, name)["ours"].as_f64().unwrap()
    };
    let (by_ipi, by_store) = (gain_percent("0"), gain_percent("1"));
    assert!(
        (11.0..12.5).contains(&by_ipi) && (2.5..4.0).contains(&by_store),
        "{by_ipi} {by_store}"
    );
    assert_eq!(figure(as_listed(), name)["role"], "simulated");
}

/// The claim's own example, a packet after 500 us, gains far less than the benchmark.
#[test]
fn a_pause_takes_most_of_what_min_gains() {
    let gain = |think_us: &str| {
        let study = run("menu-min", &known("menu-min", &[("think_us", think_us)]));
        figure(&study, "improvement, interrupts on another CPU")["ours"].as_f64().unwrap()
    };
    let (at_once, after_a_pause) = (gain("0"), gain("500"));
    assert!(at_once > 6.0 && (1.1..2.0).contains(&after_a_pause), "{at_once} {after_a_pause}");
}

/// Arithmetic figures follow from published numbers.
fn published_texts(study: &Value) -> Vec<String> {
    let figures = study["figures"].as_array().unwrap().iter();
    let arithmetic = figures.filter(|figure| figure["role"] == "arithmetic");
    let arithmetic = arithmetic.filter_map(|figure| figure["ours"].as_f64());
    arithmetic.flat_map(|ours| [format!("{ours:.0}"), format!("{ours:.1}")]).collect()
}

/// How often a third CPU rides free is the chance of a window that somebody chose, and the page says so.
#[test]
fn free_rides_follow_from_the_window_that_is_chosen() {
    let free_ratio = |window_us: &str| {
        let study = run("ipi-less", &known("ipi-less", &[("window_us", window_us)]));
        let name = "free rides of a third CPU that calls within the chosen window";
        figure(&study, name)["ours"].as_f64().unwrap()
    };
    assert!(free_ratio("20") > 99.0);
    assert!(free_ratio("1000") < 15.0);
}

#[test]
fn lists_what_may_be_set_and_refuses_the_rest() {
    let text = stdout(&["lab", "study", "amd-mwait", "--inputs"]);
    assert!(text.contains("ipi_send_ns") && text.contains("plausible"), "{text}");
    assert_eq!(
        json(&["lab", "study", "amd-mwait", "--inputs", "--json"])["studies"][0]["study"],
        "amd-mwait"
    );
    for (set, reasons) in [
        ("ipi_sned_ns=1", ["no input 'ipi_sned_ns'", "did you mean 'ipi_send_ns'?"]),
        ("ipi_send_ns", ["expected KEY=VALUE", "--inputs"]),
        ("ipi_send_ns=much", ["expected a number", "ns"]),
        ("ipi_send_ns=-1", ["expected a number", "ns"]),
        ("ipi_send_ns=1e30", ["expected a number", "ns"]),
    ] {
        assert_refused(&["lab", "study", "amd-mwait", "--set", set], &reasons);
    }
    // Neither half an interrupt nor a share of more than the whole was simulated as it was asked for.
    for (study, set, expected) in [
        ("promotion", "burst_count=1.5", "a whole number from 1 to 64000"),
        ("menu-min", "hz=250.9", "a whole number from 10 to 10000 Hz"),
        ("menu-min", "hz=3", "a whole number from 10 to 10000 Hz"),
        ("menu-min", "hz=0", "a whole number from 10 to 10000 Hz"),
        ("promotion", "smt2_speed=2", "a number from 0.0006 to 1"),
        ("c02", "latency_spread=0.99", "a number from 1 to 4000"),
        ("amd-mwait", "mwait_by_store=0.4", "a whole number from 0 to 1"),
    ] {
        assert_refused(&["lab", "study", study, "--set", set], &[&format!("expected {expected}")]);
    }
    let set = ["lab", "study", "amd-mwait", "--set", "ipi_send_ns=1", "--source"];
    for (source, reasons) in [
        ("ipi_send_ns", ["expected KEY=TEXT", "such as"]),
        ("ipi_send_ns= ", ["expected KEY=TEXT", "such as"]),
        ("ipi_sned_ns=a page", ["no --set ipi_sned_ns=VALUE", "did you mean 'ipi_send_ns'?"]),
        ("hz=a page", ["no --set hz=VALUE", "--set gives a value"]),
    ] {
        assert_refused(&[&set[..], &[source]].concat(), &reasons);
    }
    let twice = [&set[..], &["ipi_send_ns=a page", "--source", "ipi_send_ns=another"]].concat();
    assert_refused(&twice, &["ipi_send_ns", "twice"]);
    let (status, message) = failure(&["lab", "study", "--set", "ipi_send_ns=1"]);
    assert!(status == Some(2) && message.contains("<NAME>"), "{message}");
}

#[test]
fn writes_pages_whole_and_only_where_it_may() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    stdout(&["lab", "study", QUICK, "--pages", path]);
    let svg = std::fs::read_to_string(folder.path().join("promotion.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_refused(&["lab", "study", QUICK, "--pages", path], &["exists", "--force"]);
    assert_refused(&["lab", "study", "--pages", "no/such/folder"], &["does not exist"]);
}

#[test]
fn the_help_and_the_overview_name_every_study() {
    let help = stdout(&["lab", "study", "--help"]);
    let (_, help) = help.split_once("The studies are ").unwrap();
    let (sentence, _) = help.split_once('.').unwrap();
    let overview = std::fs::read_to_string(root().join("docs/studies/README.md")).unwrap();
    for name in STUDIES.iter().map(|study| study.name) {
        assert!(sentence.contains(name), "{name}: {sentence}");
        assert!(overview.contains(&format!("| [{name}]({name}.md) |")), "{name} has no row");
    }
}

#[test]
fn refuses_a_study_that_is_not_there() {
    assert_refused(
        &["lab", "study", "menu-mni"],
        &["no study 'menu-mni'", "did you mean 'menu-min'?"],
    );
}
