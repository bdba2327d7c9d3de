//! What the user's own governors printed and did wrong.

pub use idlewise_lab::roster::*;

use crate::screen::say;

/// The most lines of a governor's output that are shown.
const PRINTED_LINE_COUNT_MAX: usize = 20;

/// Reports what the user's governors printed and did wrong, and the consequence. Returns whether
/// any of them failed.
pub fn say_failures(choices: &[Choice], consequence: &str) -> bool {
    for choice in choices {
        let printed = choice.printed().unwrap_or_default();
        for line in printed.lines().take(PRINTED_LINE_COUNT_MAX) {
            say(format_args!("idlewise: {} printed: {line}", choice.name()));
        }
    }
    let failures: Vec<String> = choices.iter().filter_map(Choice::failure).collect();
    for failure in &failures {
        say(format_args!("idlewise: {failure}; {consequence}"));
    }
    !failures.is_empty()
}

/// Returns each governor once, by its name in results. Twice, its sums would be double.
pub fn distinct(choices: Vec<Choice>) -> Vec<Choice> {
    let mut distinct: Vec<Choice> = Vec::new();
    for choice in choices {
        if !distinct.iter().any(|known| known.name() == choice.name()) {
            distinct.push(choice);
        }
    }
    distinct
}
