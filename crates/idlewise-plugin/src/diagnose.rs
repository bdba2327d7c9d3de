//! Shortens a compiler's or linker's messages to the few lines that a governor's author needs.

use std::path::Path;

use crate::error::PluginError;
use crate::interfaces;

/// How many lines of a compiler's message are shown.
const LINE_COUNT_MAX: usize = 9;

/// Turns a failed compiler's message into an error. `words` calls the file what the user calls it.
pub(crate) fn diagnose(path: &Path, words: &str, text: &str, flavour: &str) -> PluginError {
    let flavour = flavour.to_owned();
    let shown = path.display().to_string();
    if let Some((_, reason)) = words.split_once("#error idlewise: ") {
        let reason = reason.lines().next().unwrap_or(reason).to_owned();
        return PluginError::WrongKernel { path: path.into(), flavour, reason };
    }
    for line in words.lines() {
        if let Some((place, name)) = find(line, &NOT_READABLE) {
            let place = place.rsplit_once(':').map_or(place, |(place, _)| place).to_owned();
            return PluginError::NotReadable { place, name: name.to_owned() };
        }
        let Some((place, name)) = find(line, &MISSING) else { continue };
        let name = name.trim_matches(['\'', '`', '‘', '’', '"']);
        if name == "idlewise_governor_init" {
            return PluginError::RegistersNothing { path: path.into() };
        }
        if C_HEADERS.contains(&name) {
            return PluginError::NoHeaders { name: name.to_owned() };
        }
        // A name that the file itself declares, or that is in another file, is not explained here.
        if !place.contains(&shown) && !is_linker(line) {
            continue;
        }
        let place = match place.split_once(": ").map_or(place, |(place, _)| place) {
            place if place.starts_with(&shown) => {
                // The column adds nothing to the name.
                let mut parts = place[shown.len()..].split(':').skip(1);
                parts.next().map_or(shown.clone(), |line| format!("{shown}:{line}"))
            }
            _ => line_of(text, name).map_or(shown.clone(), |line| format!("{shown}:{line}")),
        };
        let nearest = nearest(name);
        let name = name.to_owned();
        return PluginError::MissingInterface { place, name, flavour, nearest };
    }
    PluginError::DoesNotCompile { path: path.into(), flavour, message: shorten(words) }
}

/// What precedes one of the phrases, and the name within it.
fn find<'a>(line: &'a str, phrases: &[(&str, &str)]) -> Option<(&'a str, &'a str)> {
    phrases.iter().find_map(|(before, after)| {
        let (place, rest) = line.split_once(before)?;
        Some((place, if after.is_empty() { rest } else { rest.split_once(after)?.0 }))
    })
}

/// How gcc and clang report that an included file is not readable.
const NOT_READABLE: [(&str, &str); 2] = [
    (": fatal error: cannot open file '", "': Permission denied"),
    (": fatal error: ", ": Permission denied"),
];

/// How gcc, clang and linkers report a missing name: the text before it, and after.
const MISSING: [(&str, &str); 8] = [
    ("implicit declaration of function ‘", "’"),
    ("implicit declaration of function '", "'"),
    ("undeclared function '", "'"),
    ("use of undeclared identifier '", "'"),
    ("undefined reference to `", "'"),
    ("undefined symbol: ", ""),
    (": fatal error: ", ": No such file"),
    ("unknown type name ‘", "’"),
];

/// Headers that every C library has. Distributions package them apart from the compiler, and without them no file is to blame.
const C_HEADERS: [&str; 6] =
    ["features.h", "limits.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"];

fn is_linker(line: &str) -> bool {
    line.contains("undefined reference") || line.contains("undefined symbol")
}

/// The first line, beginning at 1, that has `name` as a word.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let index = text.lines().position(|line| line.split(|c| !is_word(c)).any(|w| w == name))?;
    Some(index + 1)
}

/// Up to three names in the headers that are spelt like `name`.
fn nearest(name: &str) -> Vec<&'static str> {
    let common = |known: &str| {
        let parts: Vec<&str> = known.split('_').filter(|part| part.len() > 2).collect();
        name.split('_').filter(|part| parts.contains(part)).count()
    };
    let topics = interfaces();
    let names = topics.iter().flat_map(|(_, names)| names.iter().copied());
    let mut scored: Vec<(usize, &str)> = names.map(|known| (common(known), known)).collect();
    scored.retain(|&(score, _)| score >= 2);
    scored.sort_by_key(|&(score, _)| std::cmp::Reverse(score));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The first errors, with the source lines that the compiler shows.
fn shorten(words: &str) -> String {
    let is_frame = |line: &str| {
        line.contains("In file included from")
            || line.trim_start().starts_with("from ")
            || line.contains(": In function")
            || line.contains("compilation terminated")
    };
    let mut lines = words.lines().filter(|line| !is_frame(line) && !line.trim().is_empty());
    let mut shown: Vec<String> =
        lines.by_ref().take(LINE_COUNT_MAX).map(|line| format!("  {line}")).collect();
    let more_count = lines.filter(|line| line.contains("error:")).count();
    if more_count > 0 {
        shown.push(format!("  ... and {more_count} errors more"));
    }
    if shown.is_empty() {
        shown.push("  the compiler failed and said nothing".to_owned());
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> String {
        let text = "int a;\nint b = foo();\n";
        diagnose(Path::new("my.c"), words, text, "a governor of Linux 6.12").to_string()
    }

    #[test]
    fn names_what_is_missing_and_where() {
        let gcc = "my.c: In function ‘f’:\nmy.c:7:9: error: implicit declaration of function \
                   ‘tick_nohz_get_sleep’ [-Werror=implicit-function-declaration]\n";
        let message = said(gcc);
        assert!(message.starts_with("my.c:7: 'tick_nohz_get_sleep' is not provided"), "{message}");
        assert!(message.contains("tick_nohz_get_sleep_length"), "{message}");
        let ld =
            "/usr/bin/ld: /tmp/ccX.o: in function `f':\nmy.c:2: undefined reference to `foo'\n";
        assert!(said(ld).starts_with("my.c:2: 'foo' is not provided"), "{}", said(ld));
        let header = "my.c:3:10: fatal error: linux/acpi.h: No such file or directory\n";
        assert!(said(header).starts_with("my.c:3: 'linux/acpi.h' is not provided"));
        let library = "/usr/lib/gcc/x86_64-linux-gnu/12/include/limits.h:203:15: fatal error: limits.h: No such file or directory\n";
        let message = said(library);
        assert!(message.contains("('limits.h')") && !message.contains("my.c"), "{message}");
        let secret = "my.c:4:10: fatal error: /etc/shadow: Permission denied\n    4 | #include\n";
        assert!(said(secret).starts_with("my.c:4: the compiler may not read '/etc/shadow'"));
        let none = "/usr/bin/ld: x.o: in function `enable':\nshim.c:(.text+0x1): undefined reference \
                    to `idlewise_governor_init'\n";
        assert!(said(none).contains("no postcore_initcall()"), "{}", said(none));
    }

    #[test]
    fn shows_few_lines_of_many() {
        let error = "my.c:1:1: error: expected ';'\n    1 | int a\n      |      ^\n";
        let message = said(&error.repeat(10));
        assert_eq!(message.lines().count(), 1 + LINE_COUNT_MAX + 1, "{message}");
        assert!(message.ends_with("and 7 errors more"), "{message}");
    }
}
