//! The alert rules in docs/watch/alerts.yml and the files of `idlewise why --textfile`. Prometheus is not at hand, so what
//! the rules use of its language is evaluated here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::captured::{CapturedMachine, More};
use crate::root;
use crate::watch::{METRICS, Server};
use crate::why::{good, watch, watch_by};

/// What the clock says when a rule is evaluated.
const NOW_S: f64 = 1_800_000_000.0;

type Labels = BTreeMap<String, String>;
type Vector = Vec<(Labels, f64)>;

/// A sample of a page.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

fn samples(page: &str) -> Vec<Sample> {
    let sample = |line: &str| {
        let (head, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = head.split_once('{').unwrap_or((head, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
        let label = |text: &str| {
            let (name, value) = text.split_once("=\"").unwrap();
            (name.to_owned(), value.trim_end_matches('"').to_owned())
        };
        Sample {
            name: name.to_owned(),
            labels: labels.map(label).collect(),
            value: value.parse().unwrap(),
        }
    };
    page.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// A rule: its name and expression.
fn rules() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("docs/watch/alerts.yml")).unwrap();
    let after = |start: &'static str| {
        let lines = text.lines().filter_map(move |line| line.trim().strip_prefix(start));
        lines.map(|rest| rest.trim().to_owned()).collect::<Vec<_>>()
    };
    let (names, expressions) = (after("- alert:"), after("expr:"));
    assert_eq!(names.len(), expressions.len());
    names.into_iter().zip(expressions).collect()
}

/// Evaluates an expression. Counters grow by their samples' values a second.
struct Evaluation<'a> {
    tokens: Vec<String>,
    at: usize,
    samples: &'a [Sample],
    /// The metrics and labels that were asked for.
    asked: BTreeSet<(String, String)>,
}

impl<'a> Evaluation<'a> {
    fn new(expression: &str, samples: &'a [Sample]) -> Self {
        let mut tokens: Vec<String> = Vec::new();
        let mut is_word = false;
        for symbol in expression.chars() {
            let continues = symbol.is_ascii_alphanumeric() || symbol == '_' || symbol == '.';
            match tokens.last_mut() {
                Some(last) if continues && is_word => last.push(symbol),
                _ if symbol == ' ' => {}
                _ => tokens.push(symbol.to_string()),
            }
            is_word = continues;
        }
        Evaluation { tokens, at: 0, samples, asked: BTreeSet::new() }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens[self.at - 1].clone()
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token, "{:?}", self.tokens);
    }

    /// The samples for which the rule fires.
    fn run(&mut self) -> Vector {
        let left = self.sum();
        let operator = self.next();
        let right = self.sum();
        assert!(self.at == self.tokens.len() && right.len() == 1, "{:?}", self.tokens);
        let limit = right[0].1;
        let fires = |value: f64| match operator.as_str() {
            ">" => value > limit,
            "<" => value < limit,
            _ => panic!("{operator} is not known here"),
        };
        left.into_iter().filter(|(_, value)| fires(*value)).collect()
    }

    fn sum(&mut self) -> Vector {
        let left = self.factor();
        let calculate: fn(f64, f64) -> f64 = match self.peek() {
            "-" => |left, right| left - right,
            "/" => |left, right| left / right,
            _ => return left,
        };
        self.next();
        let right = self.factor();
        // A number goes with every sample, samples with those that have the same labels.
        let pairs = left.iter().flat_map(|one| right.iter().map(move |other| (one, other)));
        let fits = |(one, other): &(&(Labels, f64), &(Labels, f64))| {
            one.0 == other.0 || one.0.is_empty() || other.0.is_empty()
        };
        let result = |(one, other): (&(Labels, f64), &(Labels, f64))| {
            let labels = if one.0.is_empty() { &other.0 } else { &one.0 };
            (labels.clone(), calculate(one.1, other.1))
        };
        pairs.filter(fits).map(result).collect()
    }

    fn factor(&mut self) -> Vector {
        let word = self.next();
        match word.as_str() {
            "time" => {
                self.expect("(");
                self.expect(")");
                vec![(Labels::new(), NOW_S)]
            }
            "rate" => {
                self.expect("(");
                let name = self.next();
                assert!(name.ends_with("_total"), "{name} is no counter");
                self.expect("[");
                self.next();
                self.expect("]");
                self.expect(")");
                self.named(&name)
            }
            "sum" | "min" => {
                self.expect("by");
                self.expect("(");
                let mut kept = Vec::new();
                while self.peek() != ")" {
                    let label = self.next();
                    if label != "," {
                        kept.push(label);
                    }
                }
                self.expect(")");
                self.expect("(");
                let first = self.at;
                let inner = self.sum();
                self.expect(")");
                for metric in
                    self.tokens[first..self.at].iter().filter(|name| name.starts_with("idlewise_"))
                {
                    self.asked.extend(kept.iter().map(|label| (metric.clone(), label.clone())));
                }
                let mut groups: BTreeMap<Labels, f64> = BTreeMap::new();
                for (labels, value) in inner {
                    let labels =
                        labels.into_iter().filter(|(name, _)| kept.contains(name)).collect();
                    let group = groups.entry(labels);
                    let join = |old: &mut f64| {
                        *old = if word == "sum" { *old + value } else { old.min(value) };
                    };
                    group.and_modify(join).or_insert(value);
                }
                groups.into_iter().collect()
            }
            name if name.starts_with("idlewise_") => self.named(name),
            number => vec![(Labels::new(), number.parse().unwrap_or_else(|_| panic!("{number}")))],
        }
    }

    fn named(&mut self, name: &str) -> Vector {
        self.asked.insert((name.to_owned(), String::new()));
        let named = self.samples.iter().filter(|sample| sample.name == name);
        named.map(|sample| (sample.labels.clone(), sample.value)).collect()
    }
}

/// A machine with latency limits, and with a state that somebody disabled.
fn limited_machine() -> CapturedMachine {
    let machine = CapturedMachine::unpack("laptop-lunar-lake-limited");
    machine.write(&crate::captured::state_file(2, 2, "disable"), "1\n");
    machine
}

/// What `why --textfile` writes after ten seconds with so many stays that were too deep, of a thousand.
fn textfile(machine: &CapturedMachine, too_deep: u64) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idlewise.prom");
    let run = watch(machine, &["--textfile", file.to_str().unwrap()], |_| {
        let more = More { usage: 1_000, time_us: 5_000_000, above: too_deep, ..More::default() };
        machine.count("0-3", 2, more);
        machine.pass(10.0);
    });
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    fs::read_to_string(file).unwrap()
}

/// All samples that the two sources of the rules really have.
fn all_samples() -> Vec<Sample> {
    let machine = limited_machine();
    let (_, page) = Server::start(&machine).ask(METRICS);
    [samples(&page), samples(&textfile(&machine, 500))].concat()
}

#[test]
fn rules_ask_for_metrics_and_labels_that_exist() {
    let samples = all_samples();
    let mut asked = BTreeSet::new();
    for (_, expression) in rules() {
        let mut evaluation = Evaluation::new(&expression, &samples);
        evaluation.run();
        asked.extend(evaluation.asked);
    }
    assert!(asked.len() >= 10, "{asked:?}");
    for (metric, label) in asked {
        let named: Vec<&Sample> = samples.iter().filter(|sample| sample.name == metric).collect();
        assert!(!named.is_empty(), "nothing exposes {metric}");
        // Prometheus adds the first two.
        let is_known = ["", "instance", "job"].contains(&label.as_str())
            || named.iter().all(|sample| sample.labels.contains_key(&label));
        assert!(is_known, "{metric} has no label {label}");
    }
}

/// Values that a metric can have.
fn possible(name: &str) -> Vec<f64> {
    let all = [0.0, 1e-6, 0.001, 0.1, 0.3, 0.6, 1.0, 5.0, 1e3, 1e5, NOW_S - 60.0, NOW_S];
    let most = if name.ends_with("_ratio") { 1.0 } else { f64::MAX };
    all.into_iter().filter(|value| *value <= most).collect()
}

/// Whether a rule fires if all samples of these metrics have these values, on a machine with one state and one CPU.
fn fires(expression: &str, samples: &[Sample], values: &BTreeMap<&str, f64>) -> bool {
    let mut seen = BTreeSet::new();
    let samples: Vec<Sample> = samples
        .iter()
        .filter(|sample| seen.insert(sample.name.clone()))
        .map(|sample| Sample {
            labels: sample.labels.keys().map(|name| (name.clone(), "0".to_owned())).collect(),
            value: values.get(sample.name.as_str()).copied().unwrap_or(sample.value),
            ..sample.clone()
        })
        .collect();
    !Evaluation::new(expression, &samples).run().is_empty()
}

#[test]
fn every_rule_can_fire_and_can_be_silent() {
    let samples = all_samples();
    let mut count = 0;
    for (rule, expression) in rules() {
        let mut evaluation = Evaluation::new(&expression, &samples);
        evaluation.run();
        let metrics: BTreeSet<String> =
            evaluation.asked.into_iter().map(|(name, _)| name).collect();
        let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
        let mut outcomes = BTreeSet::new();
        let first = possible(metrics[0]);
        let second = metrics.get(1).map_or(vec![0.0], |name| possible(name));
        for one in first {
            for other in &second {
                let mut values = BTreeMap::from([(metrics[0], one)]);
                values.extend(metrics.get(1).map(|name| (*name, *other)));
                // No more stays can be misses than there are.
                let entries = values.get("idlewise_state_entries_total").copied();
                let is_possible =
                    values.values().all(|value| entries.is_none_or(|all| *value <= all));
                if is_possible {
                    outcomes.insert(fires(&expression, &samples, &values));
                }
            }
        }
        assert_eq!(outcomes.len(), 2, "{rule} always says {outcomes:?}: {expression}");
        count += 1;
    }
    assert!(count >= 10);
    // The check itself finds what cannot fire.
    let never = possible("idlewise_why_too_deep_ratio").into_iter().any(|value| {
        let values = BTreeMap::from([("idlewise_why_too_deep_ratio", value)]);
        fires("idlewise_why_too_deep_ratio > 8", &samples, &values)
    });
    assert!(!never);
}

#[test]
fn a_rule_fires_for_what_a_machine_did() {
    let fired = |too_deep| -> Vec<String> {
        let machine = CapturedMachine::unpack("laptop-lunar-lake-limited");
        let mut samples = samples(&textfile(&machine, too_deep));
        let is_time = |sample: &&mut Sample| sample.name == "idlewise_why_timestamp_seconds";
        samples.iter_mut().find(is_time).unwrap().value = NOW_S - 60.0;
        let fires = |expression: &str| !Evaluation::new(expression, &samples).run().is_empty();
        rules().into_iter().filter(|(_, rule)| fires(rule)).map(|(name, _)| name).collect()
    };
    assert_eq!(fired(240), Vec::<String>::new());
    assert_eq!(fired(260), ["IdlewiseTooDeep"]);
}

#[test]
fn a_textfile_has_the_figures_by_kind_of_core() {
    let machine = CapturedMachine::unpack("laptop-alder-lake");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idlewise.prom");
    // There is an older one that others may not read, and new files may not be read by others either.
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_idlewise")]);
    let arguments = ["--textfile", file.to_str().unwrap()];
    good(watch_by(command, &machine, &arguments, |_| {
        let count = |cpus, usage, above| {
            let more = More { usage, time_us: 2_000_000, above, below: 10, ..More::default() };
            machine.count(cpus, 2, more);
        };
        count("0-1", 1_000, 100);
        count("2-3", 3_000, 500);
        count("8-11", 500, 0);
        machine.pass(10.0);
    }));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    let text = fs::read_to_string(&file).unwrap();
    let samples = samples(&text);
    let name = machine.text(&crate::captured::state_file(0, 2, "name"));
    let value = |metric: &str, labels: &[(&str, &str)]| {
        let fits = |sample: &&Sample| {
            let has = |(label, value): &(&str, &str)| {
                sample.labels.get(*label).is_some_and(|is| is == value)
            };
            sample.name == format!("idlewise_why_{metric}") && labels.iter().all(has)
        };
        samples.iter().find(fits).unwrap_or_else(|| panic!("{metric} {labels:?}: {text}")).value
    };
    let of = |kind, metric: &str| value(metric, &[("core_kind", kind), ("state", &name)]);
    // Four P cores and four E cores for ten seconds.
    for (kind, metric, expected) in [
        ("P core", "state_residency_ratio", 0.2),
        ("P core", "state_stays_per_second", 200.0),
        ("P core", "state_too_deep_ratio", 1_200.0 / 8_000.0),
        ("P core", "state_too_shallow_ratio", 40.0 / 8_000.0),
        ("E core", "state_stays_per_second", 50.0),
        ("E core", "state_too_deep_ratio", 0.0),
    ] {
        assert!((of(kind, metric) - expected).abs() < 1e-9, "{kind} {metric}: {text}");
    }
    let latency_us: f64 =
        machine.text(&crate::captured::state_file(0, 2, "latency")).parse().unwrap();
    assert!((of("P core", "state_exit_latency_seconds") - latency_us / 1e6).abs() < 1e-12);
    assert_eq!(of("P core", "state_waiting_ratio"), (200.0 * latency_us / 1e6).min(0.2));
    assert_eq!(value("too_deep_ratio", &[("core_kind", "P core")]), 0.15);
    assert_eq!(value("cpus", &[("core_kind", "E core")]), 4.0);
    assert_eq!(value("watched_seconds", &[]), 10.0);
    // Each family has its two lines of metadata before its first sample.
    let lines: Vec<&str> = text.lines().collect();
    let names: BTreeSet<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
    for name in &names {
        let first =
            lines.iter().position(|line| line.starts_with(&format!("# HELP {name} "))).unwrap();
        assert_eq!(lines[first + 1], format!("# TYPE {name} gauge"));
        assert!(lines[first + 2].starts_with(name), "{}", lines[first + 2]);
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("# HELP")).count(), names.len());
}

#[test]
fn without_figures_the_old_textfile_stays() {
    let machine = CapturedMachine::unpack("laptop-alder-lake");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idlewise.prom");
    fs::write(&file, "old").unwrap();
    let run = watch(&machine, &["--textfile", file.to_str().unwrap()], |_| machine.pass(10.0));
    assert_eq!((run.status, fs::read_to_string(&file).unwrap().as_str()), (Some(2), "old"));
    let nowhere = ["--textfile", "/nowhere/idlewise.prom"];
    let run = watch(&machine, &nowhere, |_| panic!("it watches nothing"));
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("/nowhere"), "{}", run.stderr);
}
