use std::path::Path;

use super::*;

/// A governor's function of our own.
const TEXT: &str = "\
/* A governor for tests. */
static int pick(struct device *dev)
{
\tint state = 0;

\t/*
\t * A short forecast is not believed while nothing will correct it, because
\t * the CPU could stay in a shallow state for a long time. The timer is taken
\t * instead.
\t */
\tif (is_stopped(dev) && forecast < TICK)
\t\tforecast = next_timer;

\t/*
\t * Take the deepest state that fits.
\t */
\tfor (int i = 0; i < dev->count; i++)
\t\tif (dev->states[i].residency <= forecast)
\t\t\tstate = i;

\treturn state;
}
";

/// As `git format-patch` writes it.
const MAIL: &str = "\
From: A Developer <a@example.org>
Subject: [PATCH v2 1/1] Believe the shorter of the two
Content-Type: text/plain

The forecast is dropped - which is wrong.
+ and this line is no change either

Signed-off-by: A Developer <a@example.org>
---
 drivers/own.c | 8 ++++----
 1 file changed, 4 insertions(+), 4 deletions(-)

diff --git a/drivers/own.c b/drivers/own.c
index 64d6f7a1c776..199eac2a1849 100644
--- a/drivers/own.c
+++ b/drivers/own.c
@@ -5,11 +5,11 @@ static int pick(struct device *dev)
 
 \t/*
 \t * A short forecast is not believed while nothing will correct it, because
-\t * the CPU could stay in a shallow state for a long time. The timer is taken
-\t * instead.
+\t * the CPU could stay in a shallow state for a long time. The nearer of
+\t * forecast and timer is taken.
 \t */
 \tif (is_stopped(dev) && forecast < TICK)
-\t\tforecast = next_timer;
+\t\tforecast = min(forecast, next_timer);
 
 \t/*
 \t * Take the deepest state that fits.
-- 
2.52.0
";

fn apply(text: &str, patch: &str, name: &str) -> Result<String, String> {
    let file = |name: &str, text: &str| SourceFile {
        path: Path::new("a").join(name),
        text: text.to_owned(),
        flags: Vec::new(),
    };
    let mut files = [file("another.c", "another"), file(name, text)];
    super::apply(&mut files, patch)?;
    assert_eq!(files[0].text, "another");
    let [_, file] = files;
    Ok(file.text)
}

/// The intact mail's result.
fn expected() -> String {
    let text =
        TEXT.replace("\t\tforecast = next_timer", "\t\tforecast = min(forecast, next_timer)");
    let text = text.replace(
        "The timer is taken\n\t * instead.",
        "The nearer of\n\t * forecast and timer is taken.",
    );
    assert_ne!(text, TEXT);
    text
}

/// Whether a damaged mail changes the same words, and leaves the other lines byte for byte.
fn assert_applies(mail: &str) {
    assert_ne!(mail, MAIL);
    let found = apply(TEXT, mail, "own.c").unwrap_or_else(|error| panic!("{error}\n{mail}"));
    let words = |text: &str| text.lines().map(squeeze).collect::<Vec<_>>();
    assert_eq!(words(&found), words(&expected()), "{mail}");
    let kept = TEXT.lines().filter(|line| expected().lines().any(|known| known == *line));
    for line in kept {
        assert!(found.lines().any(|known| known == line), "{line:?} is not as it was");
    }
}

fn each_line(text: &str, change: impl Fn(&str) -> String) -> String {
    text.lines().map(|line| change(line) + "\n").collect()
}

#[test]
fn applies_an_intact_mail() {
    assert_eq!(apply(TEXT, MAIL, "own.c").unwrap(), expected());
    assert_eq!(apply(TEXT, &MAIL.replace('\n', "\r\n"), "own.c").unwrap(), expected());
}

#[test]
fn applies_a_mail_whose_tabs_are_spaces() {
    assert_applies(&MAIL.replace('\t', "        "));
}

#[test]
fn applies_a_mail_whose_lines_lost_their_indentation() {
    // As web archives do it: the space of context lines is gone as well.
    let bare = each_line(MAIL, |line| match line.as_bytes().first() {
        Some(sign @ (b'+' | b'-')) if !line.starts_with("---") && !line.starts_with("+++") => {
            format!("{}{}", char::from(*sign), line[1..].trim())
        }
        _ => line.trim().to_owned(),
    });
    assert_applies(&bare);
    // And so are empty lines.
    let lines = bare.lines().filter(|line| !line.is_empty());
    assert_applies(&lines.map(|line| line.to_owned() + "\n").collect::<String>());
}

#[test]
fn applies_a_quoted_mail() {
    let quoted =
        |prefix: &str| each_line(MAIL, |line| format!("{prefix}{line}").trim_end().to_owned());
    assert_applies(&quoted("> "));
    assert_applies(&quoted(">> "));
    assert_applies(&quoted("    "));
}

#[test]
fn applies_a_mail_in_quoted_printable() {
    let encoded = MAIL
        .replace('=', "=3D")
        .replace('\t', "=09")
        .replace(" the CPU could", " the CPU =\ncould");
    assert_applies(&encoded);
    let head = "Content-Transfer-Encoding: quoted-printable\n";
    assert_applies(&format!("{head}{encoded}"));
    let error =
        apply(TEXT, &format!("Content-Transfer-Encoding: BASE64\n{MAIL}"), "own.c").unwrap_err();
    assert_eq!(error, "the mail is encoded in base64; save it decoded");
}

#[test]
fn applies_a_mail_whose_long_lines_are_wrapped() {
    let wrapped = MAIL.replace(
        "while nothing will correct it, because",
        "while nothing\nwill correct it, because",
    );
    assert_applies(&wrapped);
    let wrapped = wrapped
        .replace("for a long time. The timer is taken", "for a\nlong time. The timer is taken");
    assert_applies(&wrapped.replace(
        "static int pick(struct device *dev)\n",
        "static int pick(struct\ndevice *dev)\n",
    ));
}

#[test]
fn a_damaged_hunk_finds_its_place_in_a_file_that_has_moved() {
    let bare = MAIL.replace('\t', " ");
    let moved = format!("\n\n\n{TEXT}");
    assert!(apply(&moved, &bare, "own.c").unwrap().contains("min(forecast"));
    // Twice in the file, and neither is where the header says.
    let twice = format!("\n{TEXT}{TEXT}");
    let error = apply(&twice, &bare, "own.c").unwrap_err();
    assert_eq!(error, "hunk 1, line 17 of the patch, can be read in several ways; mend its lines");
    // One of them is there.
    let first = apply(&format!("{TEXT}{TEXT}"), &bare, "own.c").unwrap();
    assert!(first.find("min(forecast").unwrap() < TEXT.len() && first.ends_with(TEXT), "{first}");
}

#[test]
fn a_damaged_patch_with_two_hunks_moves_the_second() {
    let mail = "--- a/own.c\n+++ b/own.c\n@@ -1,2 +1,3 @@\n/* A governor for tests. */\n+/* More. */\n\
                static int pick(struct device *dev)\n@@ -19,3 +20,3 @@\nstate = i;\n\n-return state;\n+return state + 0;\n";
    let found = apply(TEXT, mail, "own.c").unwrap();
    assert!(found.contains("tests. */\n/* More. */\nstatic"), "{found}");
    assert!(found.contains("\nreturn state + 0;\n}"), "{found}");
}

#[test]
fn says_which_line_does_not_fit() {
    let other = TEXT.replace("forecast < TICK)", "forecast < 2 * TICK)");
    for mail in [MAIL.to_owned(), MAIL.replace('\t', "  ")] {
        let error = apply(&other, &mail, "own.c").unwrap_err();
        assert_eq!(
            error,
            "hunk 1, line 17 of the patch, does not fit: its line 26, 'if (is_stopped(dev) && forecast < TICK)', is \
             nowhere in the file; is the patch for another version?"
        );
    }
    let swapped = TEXT.replace("\t/*\n\t * A short", "\t * A short");
    let error = apply(&swapped, MAIL, "own.c").unwrap_err();
    let expected = "its line 19 is '/*', and the file has '* A short forecast is not believed while \
                    nothing w…' in line 6; is the patch for another version?";
    assert!(error.ends_with(expected), "{error}");
    assert!(apply(TEXT, "hello\n", "own.c").unwrap_err().contains("no hunk"));
}

#[test]
fn applies_what_a_mail_says_about_one_of_its_files() {
    let text = "one\ntwo\nthree\nfour\n\nfive\n";
    let mail = "From: a\n---\n other.c | 2 +-\n\ndiff --git a/x/other.c b/x/other.c\n\
                --- a/x/other.c\n+++ b/x/other.c\n@@ -1 +1 @@\n-zero\n+null\n\
                --- a/x/own.c\n+++ b/x/own.c\n@@ -2,5 +2,5 @@ one\n two\n-three\n+THREE\n four\n\n five\n\
                -- \n2.39.0\n";
    assert_eq!(apply(text, mail, "own.c").unwrap(), text.replace("three", "THREE"));
    assert_eq!(apply(text, mail, "teo.c").unwrap_err(), "it is about x/other.c, x/own.c");
}

#[test]
fn no_patch_keeps_the_search_busy() {
    // Every line fits every other one, and no reading fits the header.
    let text = "x;\n".repeat(600);
    let hunk = "x;\n".repeat(499);
    let mail = format!("--- a/own.c\n+++ b/own.c\n@@ -1,490 +1,489 @@\n{hunk}");
    apply(&text, &mail, "own.c").unwrap_err();
    let long = "y;\n".repeat(BODY_COUNT_MAX + 1);
    let mail = format!("--- a/own.c\n+++ b/own.c\n@@ -1,9 +1,9 @@\n{long}");
    assert!(apply(&text, &mail, "own.c").unwrap_err().contains("too long to repair"));
}

/// Cuts, joins and changes the mail anywhere: nothing panics, and what is applied keeps the file's other lines.
#[test]
fn any_damage_is_either_repaired_or_refused() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut applied_count = 0;
    for _ in 0..300 {
        let mut lines: Vec<String> = MAIL.lines().map(str::to_owned).collect();
        for _ in 0..=random(3) {
            let at = random(lines.len());
            match random(4) {
                0 => drop(lines.remove(at)),
                1 => lines[at] = lines[at].trim_start().to_owned(),
                2 => {
                    let line = lines[at].clone();
                    let cut = line.find(' ').unwrap_or(0);
                    lines[at] = line[..cut].to_owned();
                    lines.insert(at + 1, line[cut..].trim_start().to_owned());
                }
                _ => lines[at].push(' '),
            }
        }
        let Ok(found) = apply(TEXT, &lines.join("\n"), "own.c") else { continue };
        applied_count += 1;
        assert!(
            found.starts_with("/* A governor") && found.ends_with("\treturn state;\n}\n"),
            "{found}"
        );
    }
    assert!(applied_count > 50, "{applied_count}");
}

/// `diff -u`'s, with a second hunk.
const TWO_HUNKS: &str = "\
--- a/own.c\t2026-11-26 02:41:07.267339606 +0000
+++ b/own.c\t2026-11-26 02:41:25.445414892 +0000
@@ -2,6 +2,6 @@
 static int pick(struct device *dev)
 {
-\tint state = 0;
+\tint state = 1;
 
 \t/*
 \t * A short forecast is not believed while nothing will correct it, because
@@ -17,5 +17,5 @@
 \tfor (int i = 0; i < dev->count; i++)
-\t\tif (dev->states[i].residency <= forecast)
-\t\t\tstate = i;
+\t\tif (dev->states[i].residency < forecast)
+\t\t\tstate = i + 1;
 
 \treturn state;
";

#[test]
fn a_cut_patch_is_never_half_applied() {
    let whole = apply(TEXT, TWO_HUNKS, "own.c").unwrap();
    let first = TWO_HUNKS.find("@@ -17").unwrap();
    for end in first + 1..TWO_HUNKS.len() - "return state;\n".len() {
        let error = apply(TEXT, &TWO_HUNKS[..end], "own.c");
        assert!(error.is_err(), "{}\n{}", &TWO_HUNKS[..end], error.unwrap());
    }
    // What is missing at its end is the file's, but could as well have been changes.
    let cut = MAIL.replace(" \n \t/*\n \t * Take the deepest state that fits.\n", "");
    let error = apply(TEXT, &cut, "own.c").unwrap_err();
    let missing = "counts 11 old and 11 new lines, and some are missing at its end";
    assert!(error.contains(missing), "{error}");
    // Empty lines at the end are lost more often than anything else.
    let text = TEXT.replace("\n\treturn state;\n", "\n\n\treturn state;\n");
    let patch = TWO_HUNKS.replace(" \n \treturn state;\n", " \n \n");
    let short = patch.trim_end().to_owned() + "\n";
    assert!(apply(&text, &short, "own.c").unwrap().contains("state = i + 1;\n\n\n\treturn"));
    assert!(whole.contains("state = i + 1;\n\n\treturn"));
}

#[test]
fn a_patch_that_changes_nothing_is_refused() {
    let patch =
        "--- a/own.c\n+++ b/own.c\n@@ -2,2 +2,2 @@\n static int pick(struct device *dev)\n {\n";
    for patch in [patch.to_owned(), patch.replace(" {\n", "-{\n+{\n")] {
        assert_eq!(apply(TEXT, &patch, "own.c").unwrap_err(), "it changes nothing in own.c");
    }
}

#[test]
fn a_series_changes_a_file_more_than_once() {
    let second =
        "--- a/own.c\n+++ b/own.c\n@@ -4,1 +4,1 @@\n-\tint state = 1;\n+\tint state = 2;\n";
    let found = apply(TEXT, &format!("{TWO_HUNKS}{second}"), "own.c").unwrap();
    assert!(found.contains("int state = 2;") && found.contains("state = i + 1;"), "{found}");
}

#[test]
fn a_time_stamp_is_not_a_part_of_the_name() {
    let patch = TWO_HUNKS.replace('\t', "        ");
    assert!(apply(TEXT, &patch, "own.c").unwrap().contains("state = i + 1;"));
    assert_eq!(apply(TEXT, &patch, "teo.c").unwrap_err(), "it is about own.c");
    for stamp in [" Thu Nov 26 02:41:07 2026 +0000", "   (working copy)", "\t(revision 5)", "\t"] {
        let patch = TWO_HUNKS
            .replace("own.c\t2026-11-26 02:41:25.445414892 +0000", &format!("own.c{stamp}"));
        assert!(apply(TEXT, &patch, "own.c").is_ok(), "{stamp}");
    }
    let patch = TWO_HUNKS.replace("own.c", "my own.c");
    assert!(apply(TEXT, &patch, "my own.c").is_ok());
}

#[test]
fn changes_beyond_what_the_header_counts_are_not_dropped() {
    let longer = TWO_HUNKS.replace(" \n \treturn state;\n", " \n \treturn state;\n+\t/* End */\n");
    apply(TEXT, &longer, "own.c").unwrap_err();
    let signed = format!("{TWO_HUNKS}-- \n2.40\n- a remark\n");
    apply(TEXT, &signed, "own.c").unwrap();
}
