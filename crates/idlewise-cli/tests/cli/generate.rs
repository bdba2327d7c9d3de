//! `idlewise generate`.

use std::fs;

use crate::{assert_refused, folder, stdout};

#[test]
fn writes_a_manual_page_for_each_command() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    stdout(&["generate", "man", path]);
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in [
        "idlewise.1",
        "idlewise-replay.1",
        "idlewise-lab-verify-decisions.1",
        "idlewise-replay-rank.1",
    ] {
        assert!(names.iter().any(|present| present == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("help") || name.contains("worker")));
    let page = fs::read_to_string(folder.path().join("idlewise-replay.1")).unwrap();
    for part in [
        ".TH IDLEWISE",
        "idlewise\\-replay",
        "\\-\\-governor",
        "\\-replay\\-compare(1)",
        ".SH EXAMPLES",
        // The version is the source, behind a date that is not there.
        ".TH IDLEWISE-REPLAY 1 \"\" \"idlewise ",
    ] {
        assert!(page.contains(part), "{part:?} is not in {page}");
    }
    // Options that only --help has are explained here too: below each is a text.
    for name in &names {
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        for option in page.split(".TP\n").skip(1) {
            let mut lines = option.lines();
            let (header, text) = (lines.next().unwrap(), lines.next().unwrap_or_default());
            assert!(!text.is_empty() && !text.starts_with('.'), "{name}: {header}: {text:?}");
        }
    }
    // An example can be pasted: its lines are those of `--help`, and none is filled with the next.
    let help = stdout(&["replay", "--help"]);
    let example = help.lines().find(|line| line.ends_with('\\')).unwrap();
    let example = example.replace('\\', "\\e").replace('-', "\\-");
    let (_, examples) = page.split_once(".SH EXAMPLES\n").unwrap();
    let mut parts = examples.split(".nf\n").skip(1).map(|part| part.split_once(".fi\n").unwrap().0);
    assert!(
        parts.any(|part| part.contains(&format!("\\&{example}\n"))),
        "{example} is not in {examples}"
    );
    assert_refused(&["generate", "man", path], &["idlewise.1", "--force"]);
    stdout(&["generate", "man", path, "--force"]);
}

#[test]
fn completes_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = stdout(&["generate", "completions", shell]);
        assert!(text.contains("anonymize") && text.contains("lambda-mw"), "{shell}");
        assert!(!text.contains("idlewise-cli"), "{shell}");
    }
}
