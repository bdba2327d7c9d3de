//! `idlewise` without arguments, and `idlewise --help`.

use crate::{failure, idlewise, stdout};

#[test]
fn without_arguments_says_how_to_begin() {
    let output = idlewise(&[]);
    assert_eq!(output.status.code(), Some(2), "a script that names no command has made a mistake");
    let text = String::from_utf8(output.stdout).unwrap();
    let commands: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    assert!(text.contains("idlewise --help"));
}

#[test]
fn lists_commands_by_purpose() {
    let text = stdout(&["--help"]);
    for part in ["This machine:\n  why ", "Recordings:\n  record ", "More:\n  lab "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let (groups, more) = text.split_once("More:\n").unwrap();
    let commands = |text: &str| {
        text.lines().filter(|line| line.starts_with("  ") && !line.contains("--")).count()
    };
    assert_eq!(commands(groups), 12, "{groups}");
    assert!(text.lines().count() <= 45 && more.contains("  log "), "{text}");
    assert!(!text.contains("plugin-worker"), "it is not for users");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn no_line_of_a_list_is_longer_than_a_hundred_columns() {
    for list in [
        &["lab", "simulate", "--list"][..],
        &["machines"],
        &["lab", "study", "menu-min", "--inputs"],
    ] {
        let text = stdout(list);
        let long = text.lines().find(|line| line.chars().count() > crate::WIDTH);
        assert_eq!(long, None, "{list:?}");
    }
}

/// clap took them for options, and proposed `-- -3`.
#[test]
fn a_negative_number_is_a_value() {
    for (arguments, expected) in [
        (&["replay", "--lambda-mw", "-3"][..], "from 0 to"),
        (&["record", "--duration", "-5"], "'-5' for '--duration"),
        (&["advise", "x.dat", "--max-watts", "-1.5"], "'-1.5' for '--max-watts"),
    ] {
        let (status, message) = failure(arguments);
        assert!(status == Some(2) && message.contains(expected), "{message}");
        assert!(!message.contains("-- -"), "{message}");
    }
}

#[test]
fn a_misspelt_command_gets_a_hint() {
    for (line, meant) in [
        ("reply", "replay"),
        ("wy", "why"),
        ("WHY", "why"),
        ("seting", "set"),
        ("lab swep", "lab sweep"),
        ("log exprot", "log export"),
        ("set aply", "set apply"),
        ("generate mna", "generate man"),
        // The old names are no hints: they will go.
        ("exprot", "log export"),
        ("swep", "lab sweep"),
        ("dif", "replay --compare"),
        // The right name in the wrong place.
        ("lab why", "why"),
        ("log swep", "lab sweep"),
    ] {
        let (status, message) = failure(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(status, Some(2));
        let tip = format!("tip: a similar subcommand exists: 'idlewise {meant}'\n");
        assert!(message.contains(&tip), "{line}: {message}");
    }
    for line in ["xyzzy", "plugin-workr"] {
        assert!(!failure(&[line]).1.contains("tip:"), "{line}");
    }
}

/// What one looks up has two screens, and the summary one.
#[test]
fn the_help_of_replay_fits_two_screens() {
    for form in [&["replay"][..], &["replay", "--compare"], &["replay", "--rank"]] {
        let long = stdout(&[form, &["--help"]].concat());
        let short = stdout(&[form, &["-h"]].concat());
        assert!(long.lines().count() <= 100, "{form:?} has {} lines", long.lines().count());
        assert!(short.lines().count() <= 50, "{form:?} has {} lines", short.lines().count());
        assert!(
            long.contains("Examples:")
                && long.contains("--tick-work-ns") == (form != ["replay", "--rank"])
        );
    }
    let long = stdout(&["replay", "--help"]);
    assert!(long.contains("  --compare ") && long.contains("  --rank "), "{long}");
}
