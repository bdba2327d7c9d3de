//! Expected output, byte for byte, and documents made by the program. `make golden` rewrites them;
//! the diff is for review.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use idlewise_linux::GOVERNORS;
use idlewise_report::{columns_markdown, columns_schema, park};
use idlewise_sim::BOUNDS;
use idlewise_sim::workload::WORKLOADS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rewrites() -> bool {
    std::env::var("IDLEWISE_GOLDEN").is_ok_and(|value| value == "rewrite")
}

fn assert_golden(path: &Path, found: &str) {
    if rewrites() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert!(
        expected == found,
        "{} is not what the program makes; `make golden` rewrites it\n--- expected\n{expected}\n\
         --- found\n{found}",
        path.display()
    );
}

fn idlewise(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    let output = command.current_dir(root()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One test, because the logs that are rewritten are part of the binary that the others run: after
/// a change of the importer, `make golden` is needed twice.
#[test]
fn outputs_are_as_expected() {
    if rewrites() {
        let text = fs::read_to_string(root().join("traces/MANIFEST.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        for row in manifest["recording"].as_array().unwrap() {
            let path = |name: &str| Some(format!("traces/{}", row.get(name)?.as_str()?));
            if let (Some(recording), Some(log)) = (path("file"), path("log")) {
                idlewise(&["import", &recording, "-o", &log, "--force"]);
            }
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    assert_golden(&folder.join("replay.txt"), &idlewise(&["replay"]));
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, shown) = readme.split_once("```text\n").unwrap();
    let (shown, _) = shown.split_once("```\n").unwrap();
    let demo = fs::read_to_string(folder.join("replay.txt")).unwrap();
    for line in shown.lines().filter(|line| *line != "...") {
        assert!(demo.lines().any(|found| found == line), "README shows {line:?}, not so the demo");
    }
    assert_golden(&folder.join("replay-by-log.csv"), &idlewise(&["replay", "--csv"]));
    assert_golden(&folder.join("diff.txt"), &idlewise(&["diff", "--machine", "spr"]));
    let softirq = "traces/s-softirq500.parquet";
    assert_golden(&folder.join("info-s-softirq500.txt"), &idlewise(&["info", softirq]));
}

#[test]
fn the_list_of_columns_is_in_the_documentation() {
    assert_golden(&root().join("docs/columns.md"), &columns_markdown());
    assert_golden(&root().join("docs/schemas/columns.json"), &columns_schema());
}

/// A page says what its figures say: of a fixed measurement, and of the one in the documentation, whose
/// text nobody may edit.
#[test]
fn pages_of_bench_park_follow_from_their_figures() {
    let page = |figures: &Path, stem: &str| {
        let saved = fs::read_to_string(figures).unwrap();
        let result = park::ParkResult::from_json(&saved).unwrap();
        park::to_markdown(&result, stem)
    };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    assert_golden(
        &golden.join("park-page.md"),
        &page(&golden.join("park-result.json"), "park-page"),
    );
    let docs = root().join("docs/park");
    assert_golden(&docs.join("measured.md"), &page(&docs.join("measured.json"), "measured"));
}

/// What is below this line of a page is made by its test.
const GENERATED: &str = "<!-- generated: `make golden` -->\n";

/// What of a page's middle is made ends with this line.
const GENERATED_END: &str = "<!-- generated until here -->\n";

fn assert_golden_section(page: &str, found: &str) {
    let path = root().join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(GENERATED).expect("the marker is there");
    let (_, after) = rest.split_once(GENERATED_END).expect("the other marker is there");
    assert_golden(&path, &format!("{before}{GENERATED}\n{found}\n{GENERATED_END}{after}"));
}

#[test]
fn the_list_of_governors_is_in_the_documentation() {
    let mut table = String::from("| name | what it does |\n| --- | --- |\n");
    let ports = GOVERNORS.iter().map(|spec| (spec.id, spec.meaning));
    for (name, meaning) in ports.chain(BOUNDS) {
        table += &format!("| `{name}` | {meaning} |\n");
    }
    assert_golden_section("docs/replay.md", &table);
}

#[test]
fn the_list_of_workloads_is_in_the_documentation() {
    let mut table = String::from("| workload | what it does |\n| --- | --- |\n");
    for spec in WORKLOADS {
        table += &format!("| `{}` | {} |\n", spec.name, spec.meaning);
    }
    assert_golden_section("docs/simulation.md", &table);
}

/// The headers define what the document lists.
#[test]
fn the_list_of_kernel_interfaces_is_in_the_documentation() {
    let path = root().join("docs/plugins.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once(GENERATED).expect("the marker is there");
    let topics: Vec<String> = idlewise_plugin::interfaces()
        .into_iter()
        .map(|(topic, names)| {
            let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
            format!("\n**{topic}:** {}\n", names.join(", "))
        })
        .collect();
    assert_golden(&path, &format!("{before}{GENERATED}{}", topics.concat()));
}

/// The three rules that menu may follow with the tick stopped, on every bundled log and three
/// servers, as a table for people.
#[test]
fn the_menu_rules_are_compared_in_the_documentation() {
    const COLUMNS: [(&str, &str, f64); 9] = [
        ("log", "log", 0.0),
        ("machine", "machine", 0.0),
        ("governor", "rule", 0.0),
        ("too_deep_ratio", "too deep, %", 100.0),
        ("too_shallow_ratio", "too shallow, %", 100.0),
        ("delay_sum_ns", "delay, ms", 1e-6),
        ("energy_uj", "energy, J", 1e-6),
        ("regret_quarter_ratio", "regret at λ=¼, %", 100.0),
        ("tick_wake_count", "ticks", 1.0),
    ];
    let arguments = "replay --machine spr --machine milan --machine icx --governor menu --governor \
                     menu+min --governor menu+safe-range";
    let mut words: Vec<&str> = arguments.split_whitespace().collect();
    words.push("--csv");
    let csv = idlewise(&words);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let places = COLUMNS.map(|(name, ..)| header.iter().position(|c| *c == name).expect(name));
    let mut table = format!("| {} |\n", COLUMNS.map(|(_, title, _)| title).join(" | "));
    table += &format!("|{}\n", " --- |".repeat(3) + &" ---: |".repeat(6));
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let cells = COLUMNS.iter().zip(places).map(|(&(name, _, scale), place)| {
            let field = fields[place];
            match (name, field.parse::<f64>()) {
                ("tick_wake_count", _) | (_, Err(_)) => field.to_owned(),
                ("energy_uj", Ok(number)) => format!("{:.2}", number * scale),
                (_, Ok(number)) => format!("{:.1}", number * scale),
            }
        });
        table += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    let path = root().join("docs/menu-rules.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once(GENERATED).expect("the marker is there");
    assert_golden(&path, &format!("{before}{GENERATED}\n{table}"));
}

/// `make studies` rewrites them; so does `make golden`.
#[test]
fn pages_of_studies_are_what_the_command_makes() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    idlewise(&["study", "--pages", folder.path().to_str().unwrap()]);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 10, "a page and a plot for each of five studies");
    for name in names {
        let found = fs::read_to_string(folder.path().join(&name)).unwrap();
        assert_golden(&root().join("docs/studies").join(&name), &found);
    }
}
