//! The output of `--json` conforms to docs/schemas. The helper `json` validates every document that
//! it reads. This module has an output of each command, and tests that changed ones are rejected.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::sync::{LazyLock, Mutex};

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;

use super::{json, root};

/// A folder's files by name, as they refer to each other.
struct Folder;

impl Retrieve for Folder {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let name = uri.path().as_str().rsplit('/').next().unwrap_or_default();
        Ok(serde_json::from_str(&fs::read_to_string(root().join("docs/schemas").join(name))?)?)
    }
}

fn validator(name: &str) -> Validator {
    let text = fs::read_to_string(root().join(format!("docs/schemas/{name}.json")));
    let schema: Value =
        serde_json::from_str(&text.unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap();
    let options = jsonschema::options().with_retriever(Folder);
    options.with_base_uri(format!("schema:///{name}.json")).build(&schema).expect("a valid schema")
}

/// Asserts that a document conforms to docs/schemas/NAME.json.
pub fn assert_valid(name: &str, document: &Value) {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);
    let mut validators = VALIDATORS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let validator = validators.entry(name.to_owned()).or_insert_with(|| validator(name));
    let errors = validator.iter_errors(document);
    let errors: Vec<String> =
        errors.map(|error| format!("{}: {error:.300}", error.instance_path())).collect();
    drop(validators);
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

/// The schema of a command line's output.
pub fn name(arguments: &[&str], document: &Value) -> String {
    let arguments = match arguments {
        ["replay", "--compare", ..] => &["diff"],
        ["replay", "--rank", "--played", ..] => &["arena-played"],
        ["replay", "--rank", ..] => &["arena"],
        ["lab" | "log", rest @ ..] => rest,
        other => other,
    };
    match arguments {
        ["machines", "import", ..] => "machines-import".to_owned(),
        ["machines", ..] if document.get("machines").is_none() => "machine".to_owned(),
        ["measure" | "verify", what, ..] => format!("{}-{what}", arguments[0]),
        ["set", what, ..] => format!("settings-{what}"),
        ["sweep", what @ ("collect" | "plan"), ..] => format!("sweep-{what}"),
        ["validate", ..] if document.get("step_count").is_some() => "validate-workload".to_owned(),
        ["bundle", what @ ("verify" | "list"), ..] => format!("bundle-{what}"),
        [command, ..] => (*command).to_owned(),
        [] => panic!("a command"),
    }
}

/// A command line for each schema whose command runs anywhere. The others need a kernel or a
/// prepared folder, so the tests of `record` and `measure` validate theirs.
const COMMANDS: [&str; 30] = [
    "doctor",
    "governors",
    "advise traces/h-pingpong.parquet --machine spr --cpus 0 --slo p99=50us",
    "predict FOLDER/ping-pong.parquet --governor menu",
    "replay traces/s-softirq500.parquet --machine spr --governor menu --governor oracle",
    "replay --compare traces/s-softirq500.parquet --machine spr --governor menu --governor teo",
    "replay --rank traces/a-idle.parquet --machine milan --governor menu --governor teo --governor hazard",
    "replay --rank --played poisson --machine spr --governor menu --governor teo --duration-ms 50",
    "lab sweep crates/idlewise-cli/tests/saved/sweep.toml --store FOLDER/cells",
    "lab sweep plan crates/idlewise-cli/tests/saved/sweep.toml -o FOLDER/logs.parquet",
    "lab simulate spr tcp-lat --duration-ms 20",
    "lab study promotion",
    "info traces/s-softirq500.parquet",
    "log validate traces/s-softirq500.parquet",
    "log validate FOLDER/ping-pong.parquet",
    "log import traces/a-idle.perf.data.xz -o FOLDER/log.parquet",
    "log export traces/s-softirq500.parquet --format csv -o FOLDER/log.csv",
    "report traces/s-softirq500.parquet --machine spr -o FOLDER/report.html",
    "log anonymize traces/s-softirq500.parquet -o FOLDER/anonymous.parquet",
    "log bundle -o FOLDER/bundle -- replay traces/s-softirq500.parquet --machine spr --governor menu",
    "log bundle verify FOLDER/bundle",
    "log bundle list FOLDER/bundle",
    "machines",
    "machines spr",
    "machines import FOLDER/wult --machine spr",
    "lab boot --cpuid crates/idlewise-study/boot-machines/machines.txt",
    "measure wakes --from traces/q-menu-6.12.trace.dat.xz",
    "measure switch --way futex --slices 2 --slice-ms 1",
    "lab compare crates/idlewise-cli/tests/saved/halt.json crates/idlewise-cli/tests/saved/mwait.json",
    "lab verify decisions conformance/decisions/6.12-teo-spr-hz250.csv.xz",
];
const ELSEWHERE: [&str; 26] = [
    "advise-profile",
    "advise-histogram",
    "histogram",
    "info-histogram",
    "record-histogram",
    "measure-states",
    "measure-states-plan",
    "measure-residency",
    "measure-residency-plan",
    "measure-power",
    "measure-power-plan",
    "why",
    "watch",
    "sweep-collect",
    "record",
    "measure-ipi",
    "measure-ipi-proxy",
    "measure-timer",
    "measure-timer-proxy",
    "measure-counters",
    "measure-counters-ab",
    "measure-counters-list",
    "try",
    "settings-apply",
    "settings-revert",
    "settings-status",
];

/// Objects whose keys are not fixed by us.
const OPEN: [&str; 3] = ["hardware", "parameters", "machine"];

#[test]
fn a_missing_or_renamed_field_of_any_output_is_found() {
    let folder = tempfile::tempdir().unwrap();
    crate::predict::write_ping_pong(&folder.path().join("ping-pong.parquet"));
    fs::create_dir(folder.path().join("wult")).unwrap();
    crate::machines::write_wult_result(&folder.path().join("wult"), 20);
    let mut names: Vec<String> = ELSEWHERE.map(str::to_owned).into();
    names.extend(["common".to_owned(), "columns".to_owned()]);
    for line in COMMANDS {
        let line = line.replace("FOLDER", folder.path().to_str().unwrap());
        let mut arguments: Vec<&str> = line.split(' ').collect();
        // What follows `--` is another command.
        let end = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        arguments.insert(end, "--json");
        let mut document = json(&arguments);
        let name = name(&arguments, &document);
        shorten(&mut document);
        let validator = validator(&name);
        assert!(validator.is_valid(&document), "{line}");
        // Which number it is, the schema says.
        assert!(document["schema"].is_u64(), "{line}");
        let mut pointers = Vec::new();
        fields(&document, String::new(), &mut pointers);
        assert!(pointers.len() > 3, "{line}: {pointers:?}");
        for (object, field) in pointers {
            let changed = |renamed: Option<&str>| {
                let mut changed = document.clone();
                let object = changed.pointer_mut(&object).and_then(Value::as_object_mut).unwrap();
                let value = object.remove(&field).unwrap();
                renamed.map(|renamed| object.insert(renamed.to_owned(), value));
                changed
            };
            assert!(!validator.is_valid(&changed(None)), "{line}: without {object}/{field}");
            assert!(!validator.is_valid(&changed(Some("renamed"))), "{line}: {object}/{field}");
            let mut added = document.clone();
            added.pointer_mut(&object).unwrap()["added"] = Value::Null;
            assert!(!validator.is_valid(&added), "{line}: more than {object}");
        }
        names.push(name);
    }
    let files = fs::read_dir(root().join("docs/schemas")).unwrap();
    let mut files: Vec<String> = files
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    names.sort();
    assert_eq!(files, names, "each shape is tried, and each has a file");
}

/// Keeps one item of each array. The others have the same form.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.truncate(1);
            items.iter_mut().for_each(shorten);
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// Each field of each object, as the object's path and the field's name.
fn fields(value: &Value, place: String, found: &mut Vec<(String, String)>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                fields(item, format!("{place}/{index}"), found);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                found.push((place.clone(), name.clone()));
                if !OPEN.contains(&name.as_str()) || value.is_array() {
                    fields(value, format!("{place}/{name}"), found);
                }
            }
        }
        _ => {}
    }
}
