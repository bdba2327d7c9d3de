//! Words as a shell reads them, so that a line that is printed can be pasted. Names of files may be somebody else's.

use std::path::Path;

use crate::shown::shown_in_line;

/// A word of a command.
///
/// ```
/// use idlewise_report::shell_word;
///
/// assert_eq!(shell_word("menu+min"), "menu+min");
/// assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
/// // What would not be seen is written as bytes, as bash, zsh and ksh read them.
/// assert_eq!(shell_word("a\nb"), r"$'a\x0ab'");
/// ```
pub fn shell_word(word: &str) -> String {
    quoted(word.as_bytes(), |_| true)
}

/// The same in ASCII, for mails.
pub(crate) fn shell_word_in_ascii(word: &str) -> String {
    quoted(word.as_bytes(), |c| c.is_ascii())
}

/// A file as an operand of a command: never an option.
///
/// ```
/// use idlewise_report::shell_path;
///
/// assert_eq!(shell_path("-a b".as_ref()), "'./-a b'");
/// ```
pub fn shell_path(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    match bytes.starts_with(b"-") {
        true => quoted(&[b"./", bytes].concat(), |_| true),
        false => quoted(bytes, |_| true),
    }
}

fn quoted(word: &[u8], may_be: fn(char) -> bool) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=,:@%^+".contains(c);
    let text = std::str::from_utf8(word).ok();
    match text.filter(|text| text.chars().all(may_be) && shown_in_line(text) == *text) {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => {
            let escaped = |&byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                b' '..=b'~' => char::from(byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            };
            format!("$'{}'", word.iter().map(escaped).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell makes of the text.
    fn read_by(shell: &str, text: &str) -> Vec<u8> {
        let script = format!("printf %s {text}");
        let output = std::process::Command::new(shell).args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        output.stdout
    }

    #[test]
    fn a_shell_reads_the_word_that_was_meant() {
        let words: [&[u8]; 14] = [
            b"a",
            b"",
            b"a b",
            b"~/x",
            b"$(touch x)",
            b"`id`",
            b"it's",
            b"a\nb",
            b"a\\nb\x01",
            b"!x",
            b"a;b|c&d>e<f*g?[h]#i",
            "gr\u{fc}n \u{202e}txt".as_bytes(),
            b"\xff\xfe0",
            b"'\x7f\\",
        ];
        for word in words {
            let mut texts = vec![quoted(word, |_| true), quoted(word, |c| c.is_ascii())];
            texts.dedup();
            for text in texts {
                assert_eq!(read_by("bash", &text), word, "{text}");
                assert!(!text.contains('\u{202e}') && !text.contains('\n'), "{text}");
                // Any other shell reads what needs no escapes.
                if !text.starts_with('$') {
                    assert_eq!(read_by("sh", &text), word, "{text}");
                }
            }
        }
        assert!(quoted("gr\u{fc}n".as_bytes(), |c| c.is_ascii()).is_ascii());
        assert_eq!(shell_path("gr\u{fc}n.dat".as_ref()), "gr\u{fc}n.dat");
        assert_eq!(shell_path("--help".as_ref()), "./--help");
    }
}
