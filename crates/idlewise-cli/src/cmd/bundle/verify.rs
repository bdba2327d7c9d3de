//! Checks a bundle, and runs its command again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use idlewise_lab::bundle::{self, BundlePath, Limits, SUMS, Sums, TOP, Unpacked};
use idlewise_plugin::{Compiler, GovernorSource};
use idlewise_report::{shown_in_line, wrap};
use idlewise_sim::workload::Workload;
use idlewise_trace::{read_small_file, read_small_text};
use serde_json::json;

use crate::bundled;
use crate::cmd::Definition;
use crate::cmd::set::time;
use crate::error::{Failure, Result};
use crate::input;
use crate::names::{RENAMED, Renamed};
use crate::program;
use crate::screen;
use crate::signals::end_without_leftovers;
use crate::unpack::{byte_count, free_byte_count};
use crate::work_folder::work_folder;

use super::line::{BundleRole, Line, MAIL, Promise, shown_words};
use super::manifest::Manifest;
use super::{SCHEMA, outputs};

/// How much of a differing line is shown.
const SHOWN_MAX: usize = 40;

/// How much longer than ours a page or a mail of another version may be.
const MORE_BYTE_COUNT_MAX: u64 = 16 << 20;

/// The width of the text, and of its first column.
const WIDTH: usize = 100;
const ABOUT_WIDTH: usize = 14;

const EXAMPLES: &str = "\
Examples:
  # Run it again and compare
  idlewise log bundle verify evidence.tar.zst

  # Somebody's patch: read it first, then let it be compiled and run, confined
  tar --zstd -xOf evidence.tar.zst evidence/patches | less
  idlewise log bundle verify evidence.tar.zst --allow-code

Exit status: 0 if all that can be compared is the same; 1 if something differs; 2 if the bundle \
can't be read or is not what a bundle may be.";

/// Check a bundle, run its command again, and compare each byte of the outputs
///
/// Unpacks into a private temporary folder, compares SHA-256 sums, and runs the command with this idlewise.
/// Replays, comparisons, simulations and studies must give the same bytes. A measurement is not repeated. A
/// bundle can only run the commands and options that bundles may have, and only on its own files.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Verify {
    /// The bundle
    bundle: PathBuf,

    /// Compile and run the bundle's C files, confined (docs/plugins.md)
    #[arg(long)]
    allow_code: bool,

    /// Unpack at most SIZE bytes, such as 8G [default: 4G]; never more than nine tenths of the free
    /// space in TMPDIR
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    max_unpacked: Option<u64>,

    /// Give up after this time, such as 90s, 30min or 2h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    max_time: Duration,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// How something in a bundle compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Same,
    Differs,
    /// It cannot be compared.
    Unknown,
    /// Something to know, which does not decide.
    Note,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Same => "same",
            Outcome::Differs => "differs",
            Outcome::Unknown => "unknown",
            Outcome::Note => "note",
        }
    }
}

/// One line of the result.
struct Finding {
    about: String,
    outcome: Outcome,
    text: String,
}

/// The findings, in order.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: impl Into<String>, outcome: Outcome, text: impl Into<String>) {
        self.0.push(Finding { about: about.into(), outcome, text: text.into() });
    }

    fn has(&self, outcome: Outcome) -> bool {
        self.0.iter().any(|finding| finding.outcome == outcome)
    }
}

impl Verify {
    pub fn run(self, definition: Definition) -> Result<ExitCode> {
        let work = work_folder()?;
        let time = Time::start(&self.bundle, self.max_time)?;
        let bundle = input::open(&self.bundle)?;
        let within = |failure: Failure| failure.within(&self.bundle);
        let folder = work.path().join(TOP);
        let files = self.unpack(&bundle, &folder)?;
        let sum = sum_of(&bundle).map_err(|error| within(Failure::new(error)))?;
        let manifest = Manifest::read(&folder, &files).map_err(within)?;
        let mut findings = Findings::default();
        let are_right = compare_sums(&folder, &files, &mut findings).map_err(within)?;
        let words: Vec<OsString> = manifest.command.iter().map(OsString::from).collect();
        let line = Line::parse(&words, definition).map_err(within)?;
        let uses_code = check_values(&line, &folder, &files).map_err(within)?;
        note_versions(&manifest, &mut findings);
        note_machines(&manifest, &folder, &files, &mut findings);
        match line.command.promise {
            // Whoever changed a file could have changed the command.
            _ if !are_right => {}
            Promise::Measured => findings.add(
                "output.json",
                Outcome::Unknown,
                "was measured once, on another machine or at another time, and cannot be repeated",
            ),
            Promise::Same if uses_code && !self.allow_code => {
                return Err(within(Failure::new(
                    "its command compiles and runs C files that came with it; read them (`tar --zstd \
                     -xf` unpacks it), then pass --allow-code",
                )));
            }
            Promise::Same if uses_code && !Compiler::system().is_confinable() => {
                return Err(within(Failure::new(
                    "its command compiles C files that came with it, and this kernel has no Landlock (Linux \
                     5.13 and later) to keep the compiler from your files; verify it on another kernel",
                )));
            }
            Promise::Same => {
                run_again(&line, &manifest, work.path(), &files, &mut findings).map_err(within)?;
            }
        }
        time.end();
        self.report(&manifest, &findings, &sum)?;
        Ok(if findings.has(Outcome::Differs) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Unpacks into a new folder that nobody else can enter. It never contains a link, so no path leads out.
    fn unpack(&self, bundle: &File, folder: &Path) -> Result<Vec<Unpacked>> {
        let fail = |error: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {error}", self.bundle.display()))
        };
        let make_folder = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make_folder(folder).map_err(|error| fail(&error))?;
        let room = File::open(folder).map_or(u64::MAX, |folder| free_byte_count(&folder)) / 10 * 9;
        let wanted = self.max_unpacked.unwrap_or(Limits::USUAL.byte_count);
        let limits = Limits { byte_count: wanted.min(room), ..Limits::USUAL };
        let mut take = |path: &BundlePath, _: u64, content: &mut dyn Read| {
            let to = folder.join(path.as_str());
            make_folder(to.parent().unwrap_or(folder))?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to)?;
            io::copy(content, &mut file).map(drop)
        };
        bundle::unpack(BufReader::new(bundle), limits, &mut take).map_err(|error| fail(&error))
    }

    fn report(&self, manifest: &Manifest, findings: &Findings, sum: &str) -> Result<()> {
        let made_by = program::described(&manifest.version, manifest.commit.as_deref());
        let this = program::described(program::VERSION, program::COMMIT);
        let mut out = screen::stdout();
        if self.json {
            let rows = findings.0.iter().map(|finding| {
                json!({
                    "about": finding.about,
                    "outcome": finding.outcome.as_str(),
                    "text": finding.text,
                })
            });
            let document = json!({
                "bundle": self.bundle.to_string_lossy(),
                "sha256": sum,
                "made_by": made_by,
                "this_program": this,
                "command": manifest.command,
                "is_same": !findings.has(Outcome::Differs),
                "findings": rows.collect::<Vec<_>>(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let made_by = shown_in_line(&made_by);
        writeln!(out, "{}: made by idlewise {made_by}", screen::name(&self.bundle))?;
        writeln!(out, "SHA-256 {sum}")?;
        let command = format!("Command: {}", shown_words(&manifest.command));
        writeln!(out, "{}\n", wrap(&command, 100, 4))?;
        for Finding { about, text, .. } in &findings.0 {
            // `wrap` would take the spaces of the first column away.
            let text = wrap(&shown_in_line(text), WIDTH - ABOUT_WIDTH, 0);
            let text = text.replace('\n', &format!("\n{:ABOUT_WIDTH$}", ""));
            writeln!(out, "{:ABOUT_WIDTH$}{text}", format!("{} ", shown_in_line(about)))?;
        }
        Ok(())
    }
}

/// The time that verifying may take. Then this process stops what it runs, removes its folder, and ends.
struct Time(Sender<()>);

impl Time {
    fn start(bundle: &Path, at_most: Duration) -> Result<Self> {
        let (sender, ended) = mpsc::channel();
        let name = screen::name(bundle).to_string();
        let wait = move || {
            // Nothing is ever sent; the channel closes when there is nothing left to do.
            if ended.recv_timeout(at_most) == Err(RecvTimeoutError::Timeout) {
                end_without_leftovers(|| {
                    let seconds = at_most.as_secs();
                    screen::say(format_args!(
                        "idlewise: {name}: verifying it took more than {seconds} s and was stopped; allow more \
                         with --max-time"
                    ));
                    std::process::exit(2);
                });
            }
        };
        let thread = thread::Builder::new().name("time limit".to_owned()).spawn(wait);
        thread.map_err(|error| Failure::new(format_args!("cannot start a thread: {error}")))?;
        Ok(Time(sender))
    }

    /// What is left to do is short, and should not end in the middle.
    fn end(self) {
        drop(self.0);
    }
}

/// Compares each file with the bundle's own sums. Returns whether all are right.
fn compare_sums(folder: &Path, files: &[Unpacked], findings: &mut Findings) -> Result<bool> {
    if !files.iter().any(|file| file.path.as_str() == SUMS) {
        return Err(Failure::new(format_args!("it has no {SUMS}")));
    }
    let fail = |error: &dyn std::fmt::Display| Failure::new(format_args!("{SUMS}: {error}"));
    let text = read_small_text(&folder.join(SUMS)).map_err(|error| fail(&error))?;
    let sums = Sums::parse(&text).map_err(|error| fail(&error))?;
    let differences = sums.differences(files);
    if differences.is_empty() {
        let text = format!("right for all {} files", files.len() - 1);
        findings.add(SUMS, Outcome::Same, text);
        return Ok(true);
    }
    for difference in differences {
        findings.add(SUMS, Outcome::Differs, format!("differs: {difference}; nothing was run"));
    }
    Ok(false)
}

/// Refuses a command that reads anything but the bundle's files. Returns whether it compiles C files.
fn check_values(line: &Line, folder: &Path, files: &[Unpacked]) -> Result<bool> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let refusal = |value: &str, what: &str| {
        Failure::new(format_args!("its command names {value}, which is {what}"))
    };
    let mut uses_code = false;
    for word in &line.words {
        let Some(value) = word.value.as_deref() else { continue };
        let is_inside = paths.contains(value);
        let need = |is_ok: bool| match is_ok {
            true => Ok(()),
            false => Err(refusal(value, "no file in it")),
        };
        match word.role {
            BundleRole::Log | BundleRole::Causes => {
                need(is_inside)?;
                check_log(&folder.join(value), value)?;
            }
            BundleRole::Saved => need(is_inside)?,
            BundleRole::Machine => need(is_inside || !bundled::is_path(value))?,
            BundleRole::Workload if is_inside && !value.ends_with(".toml") => {
                check_log(&folder.join(value), value)?;
            }
            BundleRole::Workload => need(is_inside || Workload::named(value).is_ok())?,
            BundleRole::Governor if GovernorSource::is_path(value) => {
                need(is_inside)?;
                if !value.ends_with(".c") {
                    return Err(refusal(value, "no C file"));
                }
                uses_code = true;
            }
            BundleRole::Patch => need(is_inside)?,
            BundleRole::KernelSource => {
                let is_folder = BundlePath::new(value).is_ok()
                    && files.iter().any(|file| file.path.folders().any(|folder| folder == value));
                need(is_folder)?;
            }
            _ => {}
        }
    }
    Ok(uses_code)
}

/// A bundle has logs only, not recordings, which are much more to read.
fn check_log(at: &Path, name: &str) -> Result<()> {
    let mut first = [0; 4];
    let is_log = File::open(at).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && first == *b"PAR1";
    match is_log {
        true => Ok(()),
        false => Err(Failure::new(format_args!("{name} in it is not an idle log"))),
    }
}

fn note_versions(manifest: &Manifest, findings: &mut Findings) {
    let theirs = program::described(&manifest.version, manifest.commit.as_deref());
    let ours = program::described(program::VERSION, program::COMMIT);
    if theirs != ours {
        let text =
            format!("made by {theirs}, verified with {ours}: figures may differ for that reason");
        findings.add("version", Outcome::Note, text);
    } else if manifest.commit.as_deref().is_none_or(|commit| commit.ends_with("-dirty")) {
        let text = format!(
            "{ours} on both sides, which does not say exactly from which sources it was built"
        );
        findings.add("version", Outcome::Note, text);
    }
}

/// A command names bundled machines by their ids, and versions may have other tables.
fn note_machines(manifest: &Manifest, folder: &Path, files: &[Unpacked], findings: &mut Findings) {
    for machine in &manifest.machines {
        let is_there = files.iter().any(|file| file.path.as_str() == machine.path);
        let text = is_there.then(|| read_small_text(&folder.join(&machine.path)).ok()).flatten();
        let ours = idlewise_machine::bundled_text(&machine.name);
        if !bundled::is_path(&machine.name) && text.as_deref() != ours {
            let text = "this idlewise has another table for this machine: figures may differ for that reason";
            findings.add(machine.path.as_str(), Outcome::Note, text);
        }
    }
}

/// Makes each output again, and compares.
fn run_again(
    line: &Line,
    manifest: &Manifest,
    work: &Path,
    files: &[Unpacked],
    findings: &mut Findings,
) -> Result<()> {
    let folder = work.join(TOP);
    let expected = work.join("expected");
    fs::create_dir(&expected).map_err(Failure::new)?;
    let forms = outputs::forms_of(line);
    let theirs = program::described(&manifest.version, manifest.commit.as_deref());
    let ours = program::described(program::VERSION, program::COMMIT);
    let is_there = |path: &str| files.iter().any(|file| file.path.as_str() == path);
    // The command must not see its own outputs.
    for form in forms.iter().filter(|form| is_there(form.path)) {
        fs::rename(folder.join(form.path), expected.join(form.path)).map_err(Failure::new)?;
    }
    for (index, form) in forms.iter().enumerate() {
        if !is_there(form.path) {
            findings.add(form.path, Outcome::Note, "is not in the bundle, so it was not compared");
            continue;
        }
        let again = folder.join(form.path);
        let status = outputs::make(form, line, &folder, &again, index == 0)?;
        let path = BundlePath::new(form.path).map_err(Failure::new)?;
        let stated = manifest.status_of(&path).unwrap_or(0);
        if status != stated {
            let text = format!("differs: the exit status was {stated}, and is {status} here");
            findings.add(form.path, Outcome::Differs, text);
            continue;
        }
        let difference = difference(&expected.join(form.path), &again);
        match difference.map_err(|error| Failure::new(format_args!("{path}: {error}")))? {
            None => findings.add(form.path, Outcome::Same, "the same, byte for byte"),
            // A page contains its program, and a mail names it. Hints name commands.
            Some(_)
                if theirs != ours
                    && has_same_figures(
                        form,
                        [&expected, &folder],
                        [&[&theirs, &manifest.version], &[&ours, program::VERSION]],
                    )? =>
            {
                let text =
                    "the same figures; what differs is the program's version, or names of commands";
                findings.add(form.path, Outcome::Same, text);
            }
            Some(text) => findings.add(form.path, Outcome::Differs, text),
        }
    }
    Ok(())
}

/// Returns whether two outputs say the same, except which program made them and what commands were called. A mail
/// names a program by version and commit, a page by its version.
fn has_same_figures(
    form: &outputs::Form,
    [theirs, ours]: [&Path; 2],
    [their_names, our_names]: [&[&str; 2]; 2],
) -> Result<bool> {
    let ours_at = ours.join(form.path);
    // The program in a page has not become that much smaller.
    let byte_count_max = ours_at.metadata().map_err(Failure::new)?.len() + MORE_BYTE_COUNT_MAX;
    let theirs = figures(form, &theirs.join(form.path), their_names, byte_count_max)?;
    let ours = figures(form, &ours_at, our_names, byte_count_max)?;
    Ok(theirs.is_some_and(|theirs| ours.is_some_and(|ours| with_new_names(theirs) == ours)))
}

/// Replaces the old names of commands in hints.
fn with_new_names(parts: Vec<String>) -> Vec<String> {
    let replaced = |part: String, (old, new): &Renamed| {
        let name = |name: &str, end: char| format!("`idlewise {name}{end}");
        let part = part.replace(&name(old, ' '), &name(new, ' '));
        part.replace(&name(old, '`'), &name(new, '`'))
    };
    parts.into_iter().map(|part| RENAMED.iter().fold(part, replaced)).collect()
}

/// What an output says, without the program in a page or a mail; `None` if it is too long.
fn figures(
    form: &outputs::Form,
    path: &Path,
    names: &[&str; 2],
    byte_count_max: u64,
) -> Result<Option<Vec<String>>> {
    let text = match read_small_file(path, byte_count_max) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(None),
        read => String::from_utf8_lossy(&read.map_err(Failure::new)?).into_owned(),
    };
    let parts: Vec<String> = match form.name {
        // A longer name moves words to the next line.
        MAIL | "text" => vec![text.split_whitespace().collect::<Vec<_>>().join(" ")],
        "json" | "csv" => vec![text],
        _ => {
            let begins = ["<title>", "<main", "<script type=\"application/"];
            let ends = ["</title>", "</main>", "</script>"];
            let mut parts = Vec::new();
            for (begin, end) in begins.into_iter().zip(ends) {
                for (at, _) in text.match_indices(begin) {
                    let length = text[at..].find(end).unwrap_or(text.len() - at);
                    parts.push(text[at..at + length].to_owned());
                }
            }
            parts
        }
    };
    let unnamed = |part: String| {
        names.iter().fold(part, |part, name| part.replace(&format!("idlewise {name}"), "PROGRAM"))
    };
    Ok(Some(parts.into_iter().map(unnamed).collect()))
}

/// The first line in which two files differ, in words; `None` if they are the same. A line may be as long as a
/// file.
fn difference(theirs: &Path, ours: &Path) -> io::Result<Option<String>> {
    let open = |path: &Path| File::open(path).map(BufReader::new);
    let (mut theirs, mut ours) = (open(theirs)?, open(ours)?);
    let mut same = Same { number: 1, end: Vec::new(), is_cut: false };
    loop {
        let (a, b) = (theirs.fill_buf()?, ours.fill_buf()?);
        if a.is_empty() && b.is_empty() {
            return Ok(None);
        }
        let count = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        if count == 0 {
            break;
        }
        same.add(&a[..count]);
        theirs.consume(count);
        ours.consume(count);
    }
    Ok(Some(format!(
        "differs from line {} on: {} there, {} here",
        same.number,
        same.shown(theirs)?,
        same.shown(ours)?
    )))
}

/// What two files have in common from the beginning.
struct Same {
    /// The number of its last line.
    number: u64,
    /// The end of that line, and whether it has a beginning that was dropped.
    end: Vec<u8>,
    is_cut: bool,
}

impl Same {
    fn add(&mut self, bytes: &[u8]) {
        let line_count = bytes.iter().filter(|&&byte| byte == b'\n').count();
        self.number += line_count as u64;
        if line_count > 0 {
            self.end.clear();
            self.is_cut = false;
        }
        let line = bytes.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        self.end.extend(&line[line.len().saturating_sub(SHOWN_MAX / 2)..]);
        let more = self.end.len().saturating_sub(SHOWN_MAX / 2);
        self.is_cut |= line.len() > self.end.len() || more > 0;
        self.end.drain(..more);
    }

    /// The line in one of the files, around the place where it differs.
    fn shown(&self, rest: impl BufRead) -> io::Result<String> {
        let mut part = self.end.clone();
        // A character has at most four bytes.
        rest.take(4 * SHOWN_MAX as u64).read_until(b'\n', &mut part)?;
        if part.is_empty() {
            return Ok("nothing".to_owned());
        }
        let part = String::from_utf8_lossy(&part);
        let part: String = part.trim_end().chars().take(SHOWN_MAX).collect();
        Ok(format!("\"{}{part}\"", if self.is_cut { "…" } else { "" }))
    }
}

/// The SHA-256 of a file, from its beginning, where it then is again.
pub fn sum_of(mut file: &File) -> io::Result<String> {
    file.rewind()?;
    let sum = bundle::sum_of(file)?;
    file.rewind()?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown_in_short() {
        let folder = tempfile::tempdir().unwrap();
        let shown = |theirs: &str, ours: &str| {
            let path = |name: &str| folder.path().join(name);
            fs::write(path("theirs"), theirs).unwrap();
            fs::write(path("ours"), ours).unwrap();
            difference(&path("theirs"), &path("ours")).unwrap()
        };
        assert_eq!(shown("x\nmenu,1\n", "x\nmenu,1\n"), None);
        let of = |number: u64, theirs: &str, ours: &str| {
            Some(format!("differs from line {number} on: {theirs} there, {ours} here"))
        };
        assert_eq!(shown("x\nmenu,1\n", "x\nmenu,2\n"), of(2, "\"menu,1\"", "\"menu,2\""));
        assert_eq!(shown("", "x"), of(1, "nothing", "\"x\""));
        assert_eq!(shown("x\ny\n", "x\n"), of(2, "\"y\"", "nothing"));
        assert_eq!(shown("x\nab", "x\na"), of(2, "\"ab\"", "\"a\""));
        // Longer than a buffer, and many lines.
        for length in [20, 21, 100, 8_191, 8_192, 8_193, 100_000] {
            let long = "y\n".repeat(length) + &"x".repeat(length);
            let cut = if length > 20 { "…" } else { "" };
            let line = |last: &str| format!("\"{cut}{}{last}\"", "x".repeat(20));
            assert_eq!(
                shown(&format!("{long}a\n"), &format!("{long}b\n")),
                of(length as u64 + 1, &line("a"), &line("b")),
                "{length}"
            );
        }
    }
}
