//! What commands were called before, and what they are called now. A command line is put into today's words before
//! it is parsed, also one that a bundle stores.

use std::ffi::OsString;

/// A command's old name, and the words that stand for it now.
pub type Renamed = (&'static str, &'static str);

/// The old names. They work until 0.2.0, for scripts.
pub const RENAMED: &[Renamed] = &[
    ("diff", "replay --compare"),
    ("arena", "replay --rank"),
    ("sweep", "lab sweep"),
    ("simulate", "lab simulate"),
    ("study", "lab study"),
    ("verify", "lab verify"),
    ("boot", "lab boot"),
    ("compare", "lab compare"),
    ("import", "log import"),
    ("export", "log export"),
    ("anonymize", "log anonymize"),
    ("bundle", "log bundle"),
    ("validate", "log validate"),
    ("settings", "set"),
    ("quiet", "set quiet"),
];

/// The forms of `replay` that are commands of their own.
const FORMS: [&str; 2] = ["--compare", "--rank"];

/// Puts a command line, without the program's name, into the words that the parser knows. Also returns the old name
/// that it had, if any.
pub fn in_new_words(mut words: Vec<OsString>) -> (Vec<OsString>, Option<&'static Renamed>) {
    let is = |words: &[OsString], name: &str| words.first().is_some_and(|word| word == name);
    if is(&words, "help") {
        words.remove(0);
        words.push("--help".into());
    }
    let renamed = RENAMED.iter().find(|(old, _)| is(&words, old));
    if let Some((_, new)) = renamed {
        words.splice(..1, new.split(' ').map(OsString::from));
    }
    if is(&words, "replay") {
        // A user may name the form after other options; the parser wants it first.
        let mut own = words.iter().take_while(|word| *word != "--");
        if let Some(place) = own.position(|word| FORMS.iter().any(|form| word == form)) {
            words[1..=place].rotate_right(1);
        }
    }
    (words, renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_replay_may_stand_anywhere_before_two_dashes() {
        let new = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let (words, renamed) = in_new_words(words);
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            (words.join(" "), renamed.map(|(old, _)| *old))
        };
        for (line, expected) in [
            ("replay a --hz 100 --compare b", "replay --compare a --hz 100 b"),
            ("replay --rank", "replay --rank"),
            ("help replay", "replay --help"),
            ("replay -- --compare", "replay -- --compare"),
            ("try -- diff --compare", "try -- diff --compare"),
            ("record settings", "record settings"),
            ("", ""),
        ] {
            assert_eq!(new(line), (expected.to_owned(), None));
        }
        for (line, expected, old) in [
            ("diff a -- b", "replay --compare a -- b", "diff"),
            ("help quiet", "set quiet --help", "quiet"),
            ("bundle verify x", "log bundle verify x", "bundle"),
        ] {
            assert_eq!(new(line), (expected.to_owned(), Some(old)));
        }
    }
}
