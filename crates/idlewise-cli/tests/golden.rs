//! Expected output, byte for byte, and documents made by the program. `make golden` rewrites them;
//! the diff is for review.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use idlewise_report::{columns, columns_markdown, export, info, replay, validate};

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
    let softirq = "traces/s-softirq500.parquet";
    assert_golden(&folder.join("info-s-softirq500.txt"), &idlewise(&["info", softirq]));
}

#[test]
fn the_list_of_columns_is_in_the_documentation() {
    let text = columns_markdown(&[
        ("`idlewise replay`", &replay::REPLAY),
        ("`idlewise replay` of several logs, log by log", &replay::BY_LOG),
        ("`idlewise info`", &info::INFO),
        ("`idlewise export`", &export::EXPORT),
        ("`idlewise validate`", &validate::VALIDATE),
        ("`idlewise machines`", &columns::MACHINE_LIST),
        ("`idlewise machines NAME`", &columns::STATE_LIST),
    ]);
    assert_golden(&root().join("docs/columns.md"), &text);
}

/// The headers define what the document lists.
#[test]
fn the_list_of_kernel_interfaces_is_in_the_documentation() {
    let path = root().join("docs/plugins.md");
    let text = fs::read_to_string(&path).unwrap();
    let marker = "<!-- generated: `make golden` -->\n";
    let (before, _) = text.split_once(marker).expect("the marker is there");
    let topics: Vec<String> = idlewise_plugin::interfaces()
        .into_iter()
        .map(|(topic, names)| {
            let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
            format!("\n**{topic}:** {}\n", names.join(", "))
        })
        .collect();
    assert_golden(&path, &format!("{before}{marker}{}", topics.concat()));
}
