//! Makes foreign text safe to show: names in recordings, doubts of shared logs, titles of machines,
//! file names, compiler output. Control characters can control a terminal, and characters that set
//! the writing direction can make a line read differently.
//!
//! Each such character is replaced by one visible character, so that widths stay the same: a
//! control character by its picture (`␛`), others by `�`. JSON has its own, lossless escapes.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// Replaces everything in a text that could control a terminal. Newlines and tabs stay.
///
/// ```
/// use idlewise_report::shown;
///
/// assert_eq!(shown("a\u{1b}[2Jb\n"), "a␛[2Jb\n");
/// assert_eq!(shown("abc\u{202e}fed"), "abc�fed");
/// ```
pub fn shown(text: &str) -> Cow<'_, str> {
    replaced(text, |c| !matches!(c, '\n' | '\t') && is_hidden(c))
}

/// Like [`shown`], for one line: a newline in a name must not look like a second line of ours.
pub fn shown_in_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden)
}

/// Counts things in words: `1 log`, `2 logs`.
///
/// ```
/// use idlewise_report::counted;
///
/// assert_eq!([counted(1, "log"), counted(0, "log")], ["1 log", "0 logs"]);
/// ```
pub fn counted(count: impl Display, thing: &str) -> String {
    let count = count.to_string();
    let s = if count == "1" { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// A time in a sentence, in the largest unit in which it is at least 1, with three digits. A column of a table chooses
/// its unit likewise, for its greatest time.
///
/// ```
/// use idlewise_report::time_words;
///
/// assert_eq!([0.0, 290e3, 1.5e6].map(time_words), ["0 ns", "290 µs", "1.5 ms"]);
/// assert_eq!([999.6, 3_360.0, 2.745e9].map(time_words), ["1 µs", "3.36 µs", "2.75 s"]);
/// ```
pub fn time_words(ns: f64) -> String {
    // Rounded first, so that no 1000 is left of a unit.
    let step = 10_f64.powi(ns.abs().max(1.0).log10().floor() as i32 - 2);
    let ns = (ns / step).round() * step;
    let (unit, number) = match ns.abs() {
        ..1e3 => ("ns", ns),
        ..1e6 => ("µs", ns / 1e3),
        ..1e9 => ("ms", ns / 1e6),
        _ => ("s", ns / 1e9),
    };
    format!("{} {unit}", (number * 100.0).round() / 100.0)
}

/// Escapes in a JSON document everything that [`shown`] would replace. Such characters occur only
/// in strings, so the meaning does not change.
///
/// ```
/// use idlewise_report::json_shown;
///
/// assert_eq!(json_shown("[\"a\u{9b}2J\"]"), r#"["a\u009b2J"]"#);
/// ```
pub fn json_shown(document: &str) -> Cow<'_, str> {
    // The document's own newlines are control characters too; those in strings are already escaped.
    let is_raw = |c| c != '\n' && is_hidden(c);
    if !may_be_hidden(document) || !document.contains(is_raw) {
        return Cow::Borrowed(document);
    }
    let mut escaped = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        match is_raw(c) {
            false => escaped.push(c),
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }),
        }
    }
    Cow::Owned(escaped)
}

fn replaced(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !may_be_hidden(text) || !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_replaced(c) { picture(c) } else { c }).collect())
}

/// Whether a text needs a closer look. Nearly all text is ASCII without control characters.
fn may_be_hidden(text: &str) -> bool {
    text.bytes().any(|byte| !matches!(byte, b' '..=b'~'))
}

/// Whether a terminal interprets a character or shows nothing for it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' // soft hyphen
            | '\u{61c}' | '\u{200b}'..='\u{200f}' // marks of direction and width
            | '\u{180e}'
            | '\u{2028}'..='\u{202e}' // separators of lines; embeddings and overrides of direction
            | '\u{2060}'..='\u{206f}' // isolates of direction
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}' // tags
        )
}

fn picture(c: char) -> char {
    match c {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        _ => '\u{fffd}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_that_is_hidden_comes_through() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let (lines, line, json) = (shown(&text), shown_in_line(&text), json_shown(&text));
            assert_eq!(lines.chars().count(), 3, "{c:?}");
            assert!(!line.contains(is_hidden), "{c:?}");
            assert!(!lines.replace(['\n', '\t'], "").contains(is_hidden), "{c:?}");
            assert!(!json.replace('\n', "").contains(is_hidden), "{c:?}");
            if !is_hidden(c) {
                assert_eq!([&lines, &line, &json], [text.as_str(); 3], "{c:?}");
            }
        }
    }

    #[test]
    fn json_means_the_same() {
        let hostile = "\u{7f}\u{9b}2J\u{202e}\u{e0041}é\u{1b}\n";
        let document = serde_json::to_string_pretty(&[hostile]).unwrap();
        let escaped = json_shown(&document);
        assert!(escaped.contains(r"\u007f\u009b2J\u202e\udb40\udc41é\u001b\n"), "{escaped}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [hostile]);
    }
}
