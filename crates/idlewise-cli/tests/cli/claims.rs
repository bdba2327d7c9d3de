//! docs/seeds.md names a command for what each message says. `tests/claims.toml` has a baseline for each of them,
//! from which the command must differ in what its row is about, or the test that needs more than this one has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use serde_json::Value;

use crate::{OwnFile, boot, json, root, stdout, study};

#[derive(Deserialize)]
struct Table {
    row: Vec<Row>,
}

/// See the top of `claims.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    says: String,
    command: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    with: String,
    against: Option<String>,
    about: Option<String>,
    than: Option<String>,
    change: Option<Change>,
    tested: Option<String>,
    needs: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Change {
    Less,
    More,
    Other,
}

/// What each row of the page says, with each of its commands.
fn claims() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("docs/seeds.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let claims = rows.flat_map(|(says, rest)| {
        let code = rest.split('`').skip(1).step_by(2);
        let commands = code.filter(|code| code.starts_with("idlewise "));
        commands.map(|command| (says.to_owned(), command.to_owned())).collect::<Vec<_>>()
    });
    claims.collect()
}

/// Outputs by command, so that a baseline runs once.
#[derive(Default)]
struct Outputs(BTreeMap<String, Value>);

impl Outputs {
    fn of(&mut self, command: &str, row: &Row) -> Value {
        let words = command.split_whitespace().skip(1);
        let mut words: Vec<String> = words.map(|word| word.trim_matches('\'').to_owned()).collect();
        if words[1] == "study" {
            // Varying inputs takes long and does not change figures.
            let set = words.iter().filter_map(|word| word.split_once('='));
            let options = study::known(&words[2], &set.collect::<Vec<_>>());
            words = [&words[..3], &options].concat();
        }
        let mut dumps = Vec::new();
        for word in &mut words {
            if let Some(file) = row.files.get(word) {
                *word = match file.strip_prefix("dump of ") {
                    Some(id) => {
                        dumps.push(OwnFile::new("dump.txt", boot::dump(id)));
                        dumps.last().unwrap().path().to_owned()
                    }
                    None => file.clone(),
                };
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let about = row.about.as_deref().unwrap();
        let run = || match about {
            "text" => Value::from(stdout(&words)),
            _ if words.contains(&"--json") => json(&words),
            _ => json(&[&words[..], &["--json"]].concat()),
        };
        self.0.entry(format!("{command} {about:.4} {:?}", row.files)).or_insert_with(run).clone()
    }
}

/// The part of an output that a row is about.
fn part(document: &Value, about: &str) -> Value {
    let is_named = |row: &&Value, column: &str, name: &str| {
        row[column].as_str().is_some_and(|text| text.starts_with(name))
    };
    let named = |list: &Value, column: &str, name: &str, value: &str| {
        let rows = list.as_array().unwrap_or_else(|| panic!("{about}: {document:#}"));
        let row = rows.iter().find(|row| is_named(row, column, name));
        row.unwrap_or_else(|| panic!("{about}: {document:#}"))[value].clone()
    };
    let number = |pointer: &str| document.pointer(pointer).unwrap().as_f64().unwrap();
    match about.split_once(' ') {
        None if about == "text" => document.clone(),
        None => document.pointer(about).unwrap_or_else(|| panic!("{about}: {document:#}")).clone(),
        Some(("figure", name)) => named(&document["studies"][0]["figures"], "figure", name, "ours"),
        Some(("entries", state)) => named(&document["states"], "state", state, "entry_count"),
        Some(("span", name)) => named(&document["spans"], "span", name, "mean_ns"),
        // While a state is left, the clocks that count cycles stand still.
        Some(("cycles", _)) => {
            Value::from(number("/runs/0/busy_ratio") - number("/runs/0/exit_ratio"))
        }
        Some(_) => panic!("{about}: no such part"),
    }
}

/// A smaller difference shows nothing, as a share of the baseline.
const LEAST: f64 = 0.005;

/// Whether a value differs from another as it should.
fn is_so(change: Change, value: &Value, baseline: &Value) -> bool {
    let numbers = value.as_f64().zip(baseline.as_f64());
    match change {
        Change::Other => value != baseline,
        Change::Less => numbers.is_some_and(|(value, baseline)| value < baseline * (1.0 - LEAST)),
        Change::More => numbers.is_some_and(|(value, baseline)| value > baseline * (1.0 + LEAST)),
    }
}

/// Whether a file of the repository has the test, which is not ignored, or the line of a script.
fn is_tested(tested: &str) -> bool {
    let (file, test) = tested.split_once(": ").expect("FILE: TEST");
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    match text.split_once(&format!("\nfn {test}()")) {
        Some((before, _)) => before.ends_with("\n#[test]"),
        None => !file.ends_with(".rs") && text.contains(test),
    }
}

#[test]
fn each_command_on_the_page_of_claims_shows_what_its_row_says() {
    let text = fs::read_to_string(root().join("crates/idlewise-cli/tests/claims.toml")).unwrap();
    let table: Table = toml::from_str(&text).unwrap();
    let mut outputs = Outputs::default();
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (says, command) in claims() {
        let place = format!("{says}: `{command}`");
        let mut rows = table.row.iter().enumerate();
        let found = rows.find(|(_, row)| says.starts_with(&row.says) && row.command == command);
        let Some((index, row)) = found else {
            faults.push(format!("{place}: no row in claims.toml"));
            continue;
        };
        used.insert(index);
        match (&row.against, &row.about, row.change, &row.tested, &row.needs) {
            (Some(against), Some(about), Some(change), None, None) => {
                let value = part(&outputs.of(&format!("{command} {}", row.with), row), about);
                let than = row.than.as_ref().unwrap_or(about);
                let baseline = part(&outputs.of(against, row), than);
                if !is_so(change, &value, &baseline) {
                    faults.push(format!(
                        "{place}: {about} is {value}, with `{against}` {baseline}: not {change:?}"
                    ));
                }
            }
            (None, None, None, Some(tested), Some(_)) if is_tested(tested) => {}
            (None, None, None, Some(tested), Some(_)) => {
                faults.push(format!("{place}: there is no test {tested}"));
            }
            _ => faults.push(format!(
                "{place}: claims.toml needs against, about and change, or tested and needs"
            )),
        }
    }
    let unused = table.row.iter().enumerate().filter(|(index, _)| !used.contains(index));
    faults.extend(unused.map(|(_, row)| format!("not on the page: {}: {}", row.says, row.command)));
    assert!(faults.is_empty(), "{faults:#?}");
}

/// How far C0.2's power is from POLL's to C1's, and the label, are those of the machine's table.
#[test]
fn what_the_page_says_of_c02s_power_is_the_tables() {
    let states = json(&["machines", "spr-c02", "--json"])["states"].clone();
    let state = |name: &str| {
        let mut states = states.as_array().unwrap().iter();
        states.find(|state| state["state"] == name).unwrap()
    };
    let mw = |name| state(name)["power_mw"].as_f64().unwrap();
    let way = (mw("POLL") - mw("C0.2")) / (mw("POLL") - mw("C1"));
    let text = fs::read_to_string(root().join("docs/seeds.md")).unwrap();
    let row =
        text.lines().find(|line| line.contains("power half-way between POLL and C1")).unwrap();
    let label = row.trim_end_matches(" |").rsplit("| ").next().unwrap();
    assert_eq!(state("C0.2")["basis"], label);
    assert!(row.contains(&format!("{:.0} % of the way", way * 100.0)), "{way}: {row}");
}

/// hackbench's row on the power limit: the file's machine draws what it may, and would draw more.
#[test]
fn the_page_of_claims_has_a_hackbench_that_reaches_the_power_limit() {
    let file = fs::read_to_string(root().join("docs/seeds/hackbench.toml")).unwrap();
    let limit_mw = file.parse::<toml::Table>().unwrap()["tdp_mw"].as_integer().unwrap() as f64;
    let command = "lab simulate spr-c02 docs/seeds/hackbench.toml --governor fixed=POLL --duration-ms 20 --json";
    let document = json(&command.split(' ').collect::<Vec<_>>());
    let power_mw = document["runs"][0]["power_mw"].as_f64().unwrap();
    assert!((power_mw / limit_mw - 1.0).abs() < 0.01, "{power_mw} of {limit_mw}");
}
