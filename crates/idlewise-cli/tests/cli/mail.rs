//! `idlewise report --format mail`: a text that fits a mailing list, and its place under a commit.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::{assert_refused, folder, json, root, stdout};

const LOG: &str = "traces/s-softirq500.parquet";
const MAIL: [&str; 10] = [
    "report",
    LOG,
    "--machine",
    "spr",
    "--governor",
    "menu",
    "--governor",
    "menu+min",
    "--format",
    "mail",
];

/// A patch as `git format-patch` writes it.
const PATCH: &str = "\
From 1234567890123456789012345678901234567890 Mon Sep 17 00:00:00 2001
From: A Developer <a@example.org>
Date: Sun, 1 Feb 2026 10:00:00 +0000
Subject: [PATCH] cpuidle: menu: Believe short predictions

Because they are right.

Signed-off-by: A Developer <a@example.org>
---
 drivers/cpuidle/governors/menu.c | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/drivers/cpuidle/governors/menu.c b/drivers/cpuidle/governors/menu.c
--- a/drivers/cpuidle/governors/menu.c
+++ b/drivers/cpuidle/governors/menu.c
@@ -1 +1 @@
-old
+new
--\x20
2.39.5
";

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.len() <= 72 && line.is_ascii(), "{line:?}");
        assert_eq!(line, line.trim_end(), "no space at the end");
    }
}

#[test]
fn has_the_table_of_merged_commits() {
    let text = stdout(&MAIL);
    assert_fits(&text);
    for part in [
        "The decisions of menu and menu+min in the idle gaps of a recording",
        "s-softirq500: 10,144 idle gaps of 1 CPU, recorded on Linux",
        "C1 1/1",
        "| Above/Total ",
        "| Total cpuidle miss ",
        "| Delay p99 (us) ",
        "| Energy (mJ) ",
        "| C6 Share ",
        "correlates with ",
        "powers of spr that are assumed.",
        "  idlewise replay traces/s-softirq500.parquet --machine spr \\\n    --governor menu --governor menu+min\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    for word in ["improves", "causes a", "bundle"] {
        assert!(!text.contains(word), "{word:?} is in {text}");
    }
    // The figures are those of the replay.
    let replay = json(&[&["replay"], &MAIL[1..8], &["--json"]].concat());
    let too_deep = replay["rows"][0]["too_deep_ratio"].as_f64().unwrap();
    let row = text.lines().find(|line| line.starts_with("| Above/Total")).unwrap();
    assert!(row.contains(&format!(" {:.2}% |", 100.0 * too_deep)), "{row}");
    let linked = stdout(&[&MAIL[..], &["--bundle", "https://example.org/e.tar.zst"]].concat());
    assert!(linked.contains("\n  https://example.org/e.tar.zst\n"), "{linked}");
    assert!(linked.contains("`idlewise log bundle verify FILE`"), "{linked}");
    // It goes to a public list.
    let url = "https://me:pw1@example.org/e?sig=pw2";
    let secret = stdout(&[&MAIL[..], &["--bundle", url]].concat());
    assert!(secret.contains("me:***@example.org") && !secret.contains("pw"), "{secret}");
}

#[test]
fn fits_whatever_is_compared() {
    // All governors, logs and machines; hostile names; a log of no gaps is another test's.
    assert_fits(&stdout(&["report", "--format", "mail"]));
    let place = folder();
    let log = place
        .path()
        .join(format!("{}\u{1b}[2Jλ</script>\u{202e}.parquet", "long".repeat(40)).replace('/', ""));
    fs::copy(root().join(LOG), &log).unwrap();
    let text = stdout(&[
        "report",
        log.to_str().unwrap(),
        "--machine",
        "spr",
        "--governor",
        "menu",
        "--format",
        "mail",
    ]);
    assert_fits(&text);
    assert!(text.contains("longlong"), "{text}");
}

#[test]
fn goes_under_the_message_of_a_commit() {
    let place = folder();
    let path = place.path().join("0001-cpuidle.patch");
    let patch = PATCH.replace("--\\x20", "-- ");
    fs::write(&path, &patch).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let put = |more: &[&str]| {
        stdout(&[&MAIL[..], &["--commit", path.to_str().unwrap()], more].concat());
        fs::read_to_string(&path).unwrap()
    };
    let made = put(&[]);
    let (message, rest) = made.split_once("\n---\n[idlewise report").unwrap();
    assert!(patch.starts_with(message) && rest.contains("correlates"), "{made}");
    let (_, diff) = rest.split_once("[end of idlewise report]\n\n").unwrap();
    assert!(patch.ends_with(diff) && diff.starts_with(" drivers/"), "{diff}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    // Again: it is replaced, and not there twice.
    let linked = put(&["--bundle", "https://example.org/e"]);
    assert_eq!(linked.matches("[idlewise report").count(), 1);
    assert!(linked.contains("https://example.org/e"));
    assert_eq!(put(&[]), made);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn refuses_what_is_no_commit_and_leaves_it_alone() {
    let place = folder();
    let path = place.path().join("x").to_str().unwrap().to_owned();
    let commit = |more: &[&str], parts: &[&str]| {
        assert_refused(&[&MAIL[..], &["--commit", &path], more].concat(), parts);
    };
    commit(&[], &["--commit", "No such file"]);
    for (text, part) in
        [("hello\n", "git format-patch"), (&[PATCH, PATCH].concat(), "several commits")]
    {
        fs::write(&path, text).unwrap();
        commit(&[], &[part]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_refused(&["report", LOG, "--commit", &path], &["--format mail"]);
    assert_refused(&["report", LOG, "--bundle", "x"], &["--format mail"]);
}

/// A log of one gap has figures that are no division by zero; one of none is refused.
#[test]
fn hardly_any_gaps_are_no_trouble() {
    use idlewise_trace::GapSink;
    use idlewise_trace::log::{IdleLog, LogWriter};
    let from = IdleLog::open(&root().join(LOG)).unwrap();
    let gaps = crate::import::gaps(&from);
    let place = folder();
    for count in [0, 1] {
        let path = place.path().join(format!("few-{count}.parquet"));
        let mut writer = LogWriter::create(&path, false).unwrap();
        if count > 0 {
            writer.take(gaps[0].cpu, &gaps[..count]).unwrap();
        }
        writer.finish_unchecked(&from.metadata).unwrap();
        let command = [&["report", path.to_str().unwrap()], &MAIL[2..]].concat();
        if count == 0 {
            crate::assert_refused(&command, &["nothing to judge"]);
            continue;
        }
        let text = stdout(&command);
        assert_fits(&text);
        assert!(text.contains("few-1: 1 idle gap of 1 CPU, "), "{text}");
        for word in ["NaN", "inf", "another"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
}
