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
    for part in ["Record:\n  record ", "Judge governors:\n  replay ", "Check:\n  validate "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("plugin-worker"), "it is not for users");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn no_line_of_a_list_is_longer_than_a_hundred_columns() {
    for list in [&["simulate", "--list"][..], &["machines"], &["study", "menu-min", "--inputs"]] {
        let text = stdout(list);
        let long = text.lines().find(|line| line.chars().count() > crate::WIDTH);
        assert_eq!(long, None, "{list:?}");
    }
}

#[test]
fn a_misspelt_command_gets_a_hint() {
    let (status, message) = failure(&["reply"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("'replay'"), "{message}");
}
