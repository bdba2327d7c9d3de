//! Applies a patch to a governor's files, also one that mailers and archives have damaged.
//!
//! A patch whose white space is intact is [`diffy`]'s. What does not fit is tried again as a mail may have left it:
//! quoted (`> `), quoted-printable, with tabs turned into spaces, lines without their indentation and without the
//! space of a context line, empty lines removed, or long lines wrapped. Lines are then compared
//! without regard to white space, and those that the patch leaves alone keep the file's.
//!
//! A hunk whose end is cut is refused, whatever the file has there: nobody knows whether changes were cut off.
//!
//! Each repair that is not about white space alone costs one. The cheapest reading that fits the file wins. If
//! several different ones are equally cheap, the patch is refused: nothing here guesses.

use crate::file::SourceFile;

/// The most repairs of one hunk.
const REPAIR_COUNT_MAX: usize = 8;
/// The most lines into which a mailer has wrapped one.
const WRAPPED_COUNT_MAX: usize = 3;
/// How many steps the search for a reading may take, so that no patch keeps it busy.
const STEP_COUNT_MAX: usize = 300_000;
/// Readings that are kept before the search ends: one is wanted, and two at the place that the header names are too many.
const READING_COUNT_MAX: usize = 64;
/// Longer hunks are taken only if they are intact, because the search is as deep as they are long.
const BODY_COUNT_MAX: usize = 500;

/// Applies the parts of a patch for files with these names, of which there must be one.
pub(crate) fn apply(files: &mut [SourceFile], mail: &str) -> Result<(), String> {
    let readings = [mail.replace("\r\n", "\n"), quoted_printable(mail)];
    let is_encoded = transfer_encoding_is(mail, "quoted-printable");
    let is_maybe_encoded = ["=3D", "=20\n", "=09"].iter().any(|mark| readings[0].contains(mark));
    if transfer_encoding_is(mail, "base64") {
        return Err("the mail is encoded in base64; save it decoded".to_owned());
    }
    let readings = match (is_encoded, is_maybe_encoded) {
        (true, _) => &readings[1..],
        (false, true) => &readings[..],
        (false, false) => &readings[..1],
    };
    let mut first_reason = None;
    for text in readings {
        match apply_text(files, text) {
            Ok(()) => return Ok(()),
            Err(reason) => {
                first_reason.get_or_insert(reason);
            }
        }
    }
    Err(first_reason.unwrap_or_default())
}

fn apply_text(files: &mut [SourceFile], text: &str) -> Result<(), String> {
    let text = unquoted(text);
    let parts = file_parts(&text);
    if parts.is_empty() {
        return Err(
            "it has no hunk ('--- ', '+++ ', '@@ ' lines); is it a unified diff?".to_owned()
        );
    }
    let mut changed = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let name = file.path.file_name().unwrap_or_default();
        let is_its = |path: &str| path.rsplit('/').next().is_some_and(|base| name == base);
        // A series may change it several times.
        let mut its = parts.iter().filter(|part| is_its(&part.path)).peekable();
        if its.peek().is_some() {
            let text = its.try_fold(file.text.clone(), |text, part| part.apply(&text))?;
            changed.push((index, text));
        }
    }
    if changed.is_empty() {
        let paths: Vec<&str> = parts.iter().map(|part| part.path.as_str()).collect();
        return Err(format!("it is about {}", paths.join(", ")));
    }
    if changed.iter().all(|(index, text)| files[*index].text == *text) {
        let names = changed.iter().filter_map(|(index, _)| files[*index].path.file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        return Err(format!("it changes nothing in {}", names.join(", ")));
    }
    for (index, text) in changed {
        files[index].text = text;
    }
    Ok(())
}

/// Whether the head of a mail names this encoding.
fn transfer_encoding_is(mail: &str, wanted: &str) -> bool {
    let head = mail.lines().take_while(|line| !line.starts_with("--- "));
    let mut values = head.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-transfer-encoding").then_some(value)
    });
    values.any(|value| value.trim().eq_ignore_ascii_case(wanted))
}

/// Decodes quoted-printable. What is none stays as it is.
fn quoted_printable(mail: &str) -> String {
    let mail = mail.replace("\r\n", "\n").replace("=\n", "");
    let mut bytes = Vec::with_capacity(mail.len());
    let mut rest = mail.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| first == b'=').and_then(|code| {
            let is_code = code.iter().all(u8::is_ascii_hexdigit);
            u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok().filter(|_| is_code)
        });
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes from each line what a reply or a paste has put before the patch's lines.
fn unquoted(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let prefix = lines.windows(2).find_map(|pair| {
        let bare = pair[0].trim_start_matches(['>', ' ', '\t', '|']);
        let prefix = &pair[0][..pair[0].len() - bare.len()];
        let is_head = bare.starts_with("--- ")
            && pair[1].strip_prefix(prefix).is_some_and(|next| next.starts_with("+++ "));
        is_head.then_some(prefix)
    });
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return text.to_owned() };
    let without = lines.iter().map(|line| {
        let short = || line.strip_prefix(prefix.trim_end());
        line.strip_prefix(prefix).or_else(short).unwrap_or(line)
    });
    without.collect::<Vec<_>>().join("\n")
}

/// A line of the patch, and its number in the text.
type Numbered<'a> = (&'a str, usize);

/// One file's part of a patch.
struct Part<'a> {
    path: String,
    /// The `--- ` and the `+++ ` line.
    head: [&'a str; 2],
    hunks: Vec<Hunk<'a>>,
}

/// A hunk as it stands in the mail: whatever follows its header until the next one.
struct Hunk<'a> {
    header: Numbered<'a>,
    /// Where the old lines begin, counted from 0, and how many old and new lines there are.
    start: usize,
    old_count: usize,
    new_count: usize,
    body: Vec<Numbered<'a>>,
}

/// The files in a patch. Mail headers, signatures and git's lines are left out.
fn file_parts(patch: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut lines = patch.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let mut ahead = lines.clone().map(|(line, _)| line);
        let new = ahead.next().filter(|_| ahead.next().is_some_and(|at| at.starts_with("@@ -")));
        let new = new.and_then(|line| Some((line, line.strip_prefix("+++ ")?)));
        if let (Some(old), Some((new_line, new))) = (line.strip_prefix("--- "), new) {
            let path = if new.starts_with("/dev/null") { old } else { new };
            let path = without_stamp(path).trim_start_matches("b/").to_owned();
            parts.push(Part { path, head: [line, new_line], hunks: Vec::new() });
            lines.next();
        } else if let Some(part) = parts.last_mut() {
            match (Hunk::new((line, number)), part.hunks.last_mut()) {
                (Some(hunk), _) => part.hunks.push(hunk),
                (None, Some(hunk)) => hunk.body.push((line, number)),
                (None, None) => {}
            }
        }
    }
    parts.retain(|part| !part.hunks.is_empty());
    parts
}

/// The path in a `--- ` or `+++ ` line, without the time or revision that may follow it. Before that is a tab, or what a
/// mailer made of it.
fn without_stamp(path: &str) -> &str {
    if let Some((path, _)) = path.split_once('\t') {
        return path.trim_end();
    }
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let end = path[name..].find(' ').map(|space| name + space);
    // A name may have spaces, but hardly a colon after one.
    let end = end.filter(|&end| path[end..].contains([':', '(']));
    path[..end.unwrap_or(path.len())].trim_end()
}

impl<'a> Hunk<'a> {
    /// Parses `@@ -5,7 +5,8 @@`.
    fn new((header, number): Numbered<'a>) -> Option<Self> {
        let (old, rest) = header.strip_prefix("@@ -")?.split_once(" +")?;
        let new = rest.split_once(" @@").map_or(rest, |(new, _)| new);
        let range = |text: &str| -> Option<(usize, usize)> {
            match text.trim().split_once(',') {
                Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
                None => Some((text.trim().parse().ok()?, 1)),
            }
        };
        let ((start, old_count), (_, new_count)) = (range(old)?, range(new)?);
        let header = (header, number);
        // Without old lines, the header names the line before the new ones.
        let start = if old_count == 0 { start } else { start.saturating_sub(1) };
        Some(Hunk { header, start, old_count, new_count, body: Vec::new() })
    }

    /// The hunk's lines as many as its header says, unless its changes go on after them.
    fn intact(&self) -> Option<String> {
        let mut text = format!("{}\n", self.header.0);
        let mut left = (self.old_count, self.new_count);
        for (line, _) in &self.body {
            match line.as_bytes().first() {
                Some(b'\\') => {}
                Some(b'+' | b'-') if left == (0, 0) && !is_end(line) => return None,
                _ if left == (0, 0) => break,
                Some(b'-') => left.0 = left.0.saturating_sub(1),
                Some(b'+') => left.1 = left.1.saturating_sub(1),
                _ => left = (left.0.saturating_sub(1), left.1.saturating_sub(1)),
            }
            // Mailers remove the space of an empty line.
            text.push_str(if line.is_empty() { " " } else { line });
            text.push('\n');
        }
        Some(text)
    }
}

/// Whether this line ends a hunk: a signature, or git's next file.
fn is_end(line: &str) -> bool {
    line.trim_end() == "--" || line.starts_with("diff --git ")
}

impl Part<'_> {
    fn apply(&self, text: &str) -> Result<String, String> {
        let is_header =
            |line: &str| line.starts_with("@@ -") || (!line.is_empty() && "@@ -".starts_with(line));
        let mut lines = self.hunks.iter().flat_map(|hunk| &hunk.body);
        if let Some((_, number)) = lines.find(|(line, _)| is_header(line)) {
            return Err(format!("line {number} of the patch is a hunk's header that is cut"));
        }
        self.apply_intact(text).map_or_else(|| self.apply_damaged(text), Ok)
    }

    fn apply_intact(&self, text: &str) -> Option<String> {
        let [old, new] = self.head;
        let hunks = self.hunks.iter().map(Hunk::intact).collect::<Option<String>>()?;
        let intact = format!("{old}\n{new}\n{hunks}");
        diffy::apply(text, &diffy::Patch::from_str(&intact).ok()?).ok()
    }

    fn apply_damaged(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // By how much the hunks so far have moved the ones after them.
        let mut moved = 0_isize;
        for (hunk, number) in self.hunks.iter().zip(1..) {
            let wanted = hunk.start.saturating_add_signed(moved);
            let reading = Search::new(hunk, &lines).run(wanted).map_err(|reason| {
                format!("hunk {number}, line {} of the patch, {reason}", hunk.header.1)
            })?;
            moved += reading.new.len() as isize - hunk.old_count as isize;
            lines.splice(reading.start..reading.start + hunk.old_count, reading.new);
        }
        let mut text = lines.join("\n");
        text.push('\n');
        Ok(text)
    }
}

/// Looks for the cheapest reading of a hunk that fits a file.
struct Search<'a> {
    hunk: &'a Hunk<'a>,
    body: &'a [Numbered<'a>],
    lines: &'a [String],
    /// The file's lines with single spaces.
    squeezed: Vec<String>,
    /// The new lines of the reading that is being tried.
    new: Vec<String>,
    found: Vec<Reading>,
    step_count: usize,
    /// How far into the hunk a reading came, and the file's line that did not fit there.
    furthest: (usize, usize),
}

/// A hunk that fits.
struct Reading {
    /// The file's line at which it begins.
    start: usize,
    new: Vec<String>,
}

impl Reading {
    /// Where an empty line stands makes no difference.
    fn is_like(&self, start: usize, new: &[String]) -> bool {
        let words = |lines: &[String]| lines.iter().map(|line| squeeze(line)).collect::<String>();
        self.start == start && words(&self.new) == words(new)
    }
}

/// Where a reading of a hunk is.
#[derive(Clone, Copy)]
struct Place {
    /// The next line of the hunk.
    body: usize,
    /// The file's line at which the hunk begins.
    start: usize,
    /// How many old and new lines there were.
    old: usize,
    new: usize,
    /// How many repairs are left. All must be used up, because cheaper readings were tried before.
    repairs: usize,
}

impl Place {
    fn context(self) -> Self {
        Place { old: self.old + 1, new: self.new + 1, ..self }
    }
}

impl<'a> Search<'a> {
    fn new(hunk: &'a Hunk<'a>, lines: &'a [String]) -> Self {
        let end = hunk.body.iter().position(|(line, _)| is_end(line));
        Search {
            hunk,
            body: &hunk.body[..end.unwrap_or(hunk.body.len())],
            lines,
            squeezed: lines.iter().map(|line| squeeze(line)).collect(),
            new: Vec::new(),
            found: Vec::new(),
            step_count: 0,
            furthest: (0, hunk.start),
        }
    }

    /// Returns where the hunk begins in the file and its new lines there.
    fn run(mut self, wanted: usize) -> Result<Reading, String> {
        if self.body.len().max(self.hunk.old_count) > BODY_COUNT_MAX {
            return Err("has other lines around it, and is too long to repair".to_owned());
        }
        let last_start = self.lines.len().saturating_sub(self.hunk.old_count);
        for repairs in 0..=REPAIR_COUNT_MAX {
            for start in 0..=last_start {
                let place = Place { body: 0, start, old: 0, new: 0, repairs };
                self.read(place);
                // What a mailer wrapped off the header.
                if repairs > 0 && self.is_continuation(0) {
                    self.read(Place { body: 1, repairs: repairs - 1, ..place });
                }
            }
            if self.step_count > STEP_COUNT_MAX {
                return Err("is too damaged to find out what it says".to_owned());
            }
            if self.found.iter().filter(|reading| reading.start == wanted).count() == 1 {
                self.found.retain(|reading| reading.start == wanted);
            }
            match (self.found.pop(), self.found.is_empty()) {
                (None, _) => {}
                (Some(reading), true) => return Ok(reading),
                _ => return Err("can be read in several ways; mend its lines".to_owned()),
            }
        }
        Err(self.reason())
    }

    fn reason(&self) -> String {
        let (body, line) = self.furthest;
        let quoted = |line: &str| {
            let line = squeeze(line);
            let mut short: String = line.chars().take(50).collect();
            if short.len() < line.len() {
                short.push('…');
            }
            format!("'{short}'")
        };
        let is_nowhere = |(line, _): &&Numbered<'_>| {
            let old = line.strip_prefix(['-', ' ']).unwrap_or(line);
            !line.starts_with(['+', '\\']) && !self.squeezed.contains(&squeeze(old))
        };
        if let Some((text, number)) = self.body.iter().find(is_nowhere) {
            let text = quoted(text.trim_start_matches('-'));
            return format!(
                "does not fit: its line {number}, {text}, is nowhere in the file; is the patch for another version?"
            );
        }
        let there = self.lines.get(line).map_or("its end".to_owned(), |line| quoted(line));
        match self.body.get(body) {
            Some((text, number)) => format!(
                "does not fit: its line {number} is {}, and the file has {there} in line {}; is the patch for \
                 another version?",
                quoted(text),
                line + 1
            ),
            None => format!(
                "is cut: its header counts {} old and {} new lines, and some are missing at its end",
                self.hunk.old_count, self.hunk.new_count
            ),
        }
    }

    /// Reads on from a place.
    fn read(&mut self, at: Place) {
        self.step_count += 1;
        if self.step_count > STEP_COUNT_MAX || self.found.len() > READING_COUNT_MAX {
            return;
        }
        let line = at.start + at.old;
        let left = (self.hunk.old_count - at.old, self.hunk.new_count - at.new);
        if left == (0, 0) {
            let is_change = |(line, _): &Numbered<'_>| line.starts_with(['+', '-']);
            if at.repairs == 0 && !self.body[at.body..].iter().any(is_change) {
                self.add(at.start, self.new.clone());
            }
            return;
        }
        match self.body.get(at.body) {
            Some((text, _)) => self.read_line(text, at),
            None => self.furthest = (at.body, line),
        }
        // An empty line was lost. Tried last, so that added lines stay with what they replace.
        let is_empty = self.squeezed.get(line).is_some_and(String::is_empty);
        if at.repairs > 0 && left.0.min(left.1) > 0 && is_empty {
            let next = Place { repairs: at.repairs - 1, ..at.context() };
            self.read_with(String::new(), next);
        }
    }

    /// Reads on with the hunk's next line, and with those into which it may have been wrapped.
    fn read_line(&mut self, text: &str, at: Place) {
        let line = at.start + at.old;
        let (has_old, has_new) = (at.old < self.hunk.old_count, at.new < self.hunk.new_count);
        let (sign, mut text) = match text.as_bytes().first() {
            Some(b'\\') => return self.read(Place { body: at.body + 1, ..at }),
            Some(sign @ (b'+' | b'-')) => (*sign, text[1..].to_owned()),
            _ => (b' ', text.to_owned()),
        };
        for wrapped in 0..=at.repairs.min(WRAPPED_COUNT_MAX) {
            if wrapped > 0 {
                if !self.is_continuation(at.body + wrapped) {
                    break;
                }
                text = format!("{} {}", text.trim_end(), self.body[at.body + wrapped].0);
            }
            let next = Place { body: at.body + wrapped + 1, repairs: at.repairs - wrapped, ..at };
            let is_there = self.squeezed.get(line) == Some(&squeeze(&text));
            match sign {
                b'+' if has_new => self.read_with(text.clone(), Place { new: at.new + 1, ..next }),
                b'-' if has_old && is_there => self.read(Place { old: at.old + 1, ..next }),
                b' ' if has_old && has_new && is_there => {
                    self.read_with(self.lines[line].clone(), next.context());
                }
                _ if at.body > self.furthest.0 => self.furthest = (at.body, line),
                _ => {}
            }
        }
    }

    /// Reads on with one more new line.
    fn read_with(&mut self, line: String, next: Place) {
        self.new.push(line);
        self.read(next);
        self.new.pop();
    }

    fn add(&mut self, start: usize, new: Vec<String>) {
        if !self.found.iter().any(|known| known.is_like(start, &new)) {
            self.found.push(Reading { start, new });
        }
    }

    /// Whether a line can be the rest of a wrapped one.
    fn is_continuation(&self, body: usize) -> bool {
        let first = self.body.get(body).and_then(|(line, _)| line.bytes().next());
        first.is_some_and(|first| !matches!(first, b'+' | b'-' | b' ' | b'\t' | b'\\'))
    }
}

/// The words of a line, with single spaces.
fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
