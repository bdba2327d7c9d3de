//! Old names of commands: they work, and say what they are called now.

#[path = "../../src/names.rs"]
mod table;

use std::fs;

use crate::{docs, folder, idlewise, root};
use table::RENAMED;

const LOG: &str = "traces/a-idle.parquet";

/// Runs the same with the old name and with the new one. Only a line of standard error may differ.
fn assert_same((old, new): &table::Renamed, arguments: &[&str]) {
    let new_words: Vec<&str> = new.split(' ').collect();
    let now = idlewise(&[&new_words[..], arguments].concat());
    let before = idlewise(&[&[*old], arguments].concat());
    assert_eq!(before.stdout, now.stdout, "{old} {arguments:?}");
    assert_eq!(before.status, now.status, "{old} {arguments:?}");
    let said = String::from_utf8(before.stderr).unwrap();
    let expected = format!("idlewise: `{old}` is now `{new}`; the old name works until 0.2.0\n");
    assert_eq!(said, expected + &String::from_utf8(now.stderr).unwrap(), "{old} {arguments:?}");
}

#[test]
fn every_old_name_works_and_says_the_new_one() {
    for renamed in RENAMED {
        assert_same(renamed, &["--help"]);
        assert_same(renamed, &["-h"]);
        assert_same(renamed, &["--no-such-option"]);
        assert!(!idlewise(&[renamed.0, "--help"]).stdout.is_empty(), "{renamed:?}");
    }
}

#[test]
fn old_names_compute_the_same() {
    let folder = folder();
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    for (old, arguments) in [
        ("diff", &[LOG, "--machine", "spr", "--json"][..]),
        ("arena", &[LOG, "--machine", "spr", "--governor", "menu", "--csv"]),
        ("simulate", &["spr", "wakes", "--duration-ms", "1", "--csv"]),
        ("study", &["amd-mwait", "--inputs"]),
        ("boot", &["--cpuid", nowhere]),
        ("export", &[LOG, "--format", "csv", "-o", "-"]),
        ("validate", &[LOG]),
        ("validate", &["no-such-file"]),
        ("settings", &["apply", "--set", "C6=of"]),
        ("quiet", &["--latency", "x", "--", "true"]),
        ("bundle", &["list", LOG]),
    ] {
        let renamed = RENAMED.iter().find(|(name, _)| *name == old).unwrap();
        assert_same(renamed, arguments);
    }
}

#[test]
fn a_form_of_replay_may_follow_its_options() {
    let run = |words: &[&str]| {
        let output = idlewise(&[&["replay"], words].concat());
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
        output.stdout
    };
    for form in ["--compare", "--rank"] {
        let first =
            run(&[form, LOG, "--machine", "spr", "--governor", "menu", "--governor", "teo"]);
        let last = run(&[LOG, "--machine", "spr", "--governor", "menu", "--governor", "teo", form]);
        assert_eq!(first, last);
    }
    let both = idlewise(&["replay", LOG, "--rank", "--compare"]);
    assert_eq!(both.status.code(), Some(2));
    assert_eq!(idlewise(&["replay", "--", "--rank"]).status.code(), Some(2), "a file's name");
}

/// Command lines with an old name.
fn old_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A string may go on in the next line.
    for line in text.replace("\\\n", "").lines() {
        for (at, _) in line.match_indices("idlewise ") {
            let is_word =
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "-_/.".contains(c));
            let rest = line[at..].trim_start_matches("idlewise").trim_start();
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || "-_=".contains(*c)).collect();
            if is_word && RENAMED.iter().any(|(old, _)| *old == name) {
                found.push(line.trim().to_owned());
            }
        }
    }
    found
}

/// Words in code that begin with an old name, except those that are something else.
fn old_spans(text: &str) -> Vec<String> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let first = |span: &str| span.split(' ').next().unwrap_or_default().to_owned();
    let is_old = |span: &&str| RENAMED.iter().any(|(old, _)| *old == first(span));
    spans.filter(is_old).filter(|span| *span != "import idlewise").map(str::to_owned).collect()
}

#[test]
fn no_page_has_an_old_name() {
    for page in docs::pages() {
        let text = fs::read_to_string(&page).unwrap();
        // What changed since earlier commits is told in the names that it had then.
        let text = text.split("### If you built").next().unwrap_or_default();
        let name = page.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        assert_eq!(old_lines(text), [""; 0], "{name}");
        let allowed: &[&str] = match name.as_str() {
            // A bundle's own command.
            "docs/sharing.md" => &["verify"],
            // A column.
            "docs/columns.md" => &["settings"],
            _ => &[],
        };
        let spans = old_spans(text);
        let odd = spans.iter().find(|span| !allowed.contains(&span.as_str()));
        assert_eq!(odd, None, "{name}");
    }
}

/// Helps, hints and messages: everything in the sources that a user could read.
#[test]
fn nothing_that_is_printed_has_an_old_name() {
    let folder = folder();
    crate::stdout(&["generate", "man", folder.path().to_str().unwrap()]);
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap().replace("\\-", "-");
        let spans = old_spans(&text);
        let odd = spans.iter().find(|span| *span != "verify");
        assert_eq!((old_lines(&text), odd), (Vec::new(), None), "{}", page.display());
    }
    let mut files = Vec::new();
    for place in ["crates", "python/idlewise", "python/src", "kernel", "scripts", "Makefile"] {
        docs::files(&root().join(place), &mut files);
    }
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if !file.ends_with("src/names.rs") && !file.ends_with("cli/names.rs") {
            assert_eq!(old_lines(&text), [""; 0], "{}", file.display());
        }
    }
}
