//! Makes a bundle.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_lab::bundle::{self, Limits, SUMS, Sums, TOP, Unpacked};
use idlewise_report::{counted, wrap};
use idlewise_trace::anonymize::Field;
use serde_json::json;

use crate::cmd::Definition;
use crate::cmd::anonymize::field;
use crate::error::{Failure, Result};
use crate::output;
use crate::program;
use crate::screen::{self, Screen};

use super::inputs::Inputs;
use super::line::{BundleRole, Line, Promise, shown_words};
use super::list::write_privacy;
use super::manifest::{FORM, MANIFEST, Manifest, OutputNote};
use super::shelf::Shelf;
use super::{Create, SCHEMA, outputs};
use crate::work_folder::work_folder;

/// The file for somebody who has unpacked a bundle.
const README: &str = "README.txt";

impl Create {
    /// Runs the command, and packs what went in and what came out.
    pub fn run(self, definition: Definition) -> Result<ExitCode> {
        let mut line = Line::parse(&self.command, definition)?;
        let keep: Vec<Field> = match self.keep_private {
            true => Field::ALL.into(),
            false => self.keep.iter().map(|name| field(name)).collect::<Result<_, _>>()?,
        };
        self.refuse_private(&line)?;
        // Before minutes of replaying, not after.
        let input_paths: Vec<PathBuf> =
            line.words.iter().filter_map(|word| word.value.as_ref()).map(PathBuf::from).collect();
        let input_paths: Vec<&Path> = input_paths.iter().map(PathBuf::as_path).collect();
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        let output = output::create(path, self.force, &input_paths)?;
        let report = output::report_of(&output);

        let work = work_folder()?;
        let mut shelf = Shelf::new(&work.path().join(TOP))?;
        let mut inputs = Inputs::new(&mut shelf, &keep);
        inputs.place(&mut line)?;
        let remains = inputs.remains(self.keep_private);
        let Inputs { logs, machines, .. } = inputs;
        let mut dropped: Vec<String> = Vec::new();
        for field in Field::ALL {
            let of: Vec<&str> = logs
                .iter()
                .filter(|log| log.dropped.iter().any(|name| name == field.name()))
                .map(|log| log.path.as_str())
                .collect();
            if !of.is_empty() {
                let of = if of.len() == logs.len() { "all logs".to_owned() } else { of.join(", ") };
                dropped.push(format!("{} of {of}: {}", field.name(), field.meaning()));
            }
        }
        let manifest = Manifest {
            form: FORM,
            version: program::VERSION.to_owned(),
            commit: program::COMMIT.map(str::to_owned),
            command: line.words_for(if line.command.promise == Promise::Same {
                "text"
            } else {
                "json"
            }),
            outputs: make_outputs(&line, &mut shelf)?,
            logs,
            machines,
            is_private: self.keep_private,
            dropped,
            remains,
        };
        write_notes(&manifest, &mut shelf)?;
        let fail = |error: std::io::Error| {
            Failure::new(format_args!("{}: {error}", output.path().display()))
        };
        bundle::pack(shelf.folder(), shelf.paths(), BufWriter::new(output.file())).map_err(fail)?;
        let sum = super::verify::sum_of(output.file()).map_err(fail)?;
        let files = unpacked_again(output.file(), path)?;
        let byte_count = output.finish()?;
        self.report(&mut report(), &manifest, &files, byte_count, &sum)?;
        Ok(ExitCode::SUCCESS)
    }

    /// A measurement cannot be made anonymous: which machine it was is what it is about.
    fn refuse_private(&self, line: &Line) -> Result<()> {
        let is_private = line.command.promise == Promise::Measured
            || line.words.iter().any(|word| word.role == BundleRole::Saved);
        if is_private && !self.keep_private {
            return Err(Failure::new(format_args!(
                "a bundle of `{}` names the machine, its CPU, its kernel and its settings; pass \
                 --keep-private if others may know them",
                line.command.name
            )));
        }
        Ok(())
    }

    fn report(
        &self,
        out: &mut Screen,
        manifest: &Manifest,
        files: &[Unpacked],
        byte_count: u64,
        sum: &str,
    ) -> Result<()> {
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        if self.json {
            let document = json!({
                "bundle": path.to_string_lossy(),
                "byte_count": byte_count,
                "sha256": sum,
                "command": manifest.command,
                "files": super::list::files_json(files),
                "dropped": manifest.dropped,
                "remains": manifest.remains,
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let shown = screen::name(path);
        writeln!(
            out,
            "{shown}: {byte_count} bytes, {}\nSHA-256 {sum}",
            counted(files.len(), "file")
        )?;
        writeln!(out, "{}", wrap(&format!("Command: {}", shown_words(&manifest.command)), 100, 4))?;
        write_privacy(out, manifest)?;
        writeln!(
            out,
            "Others verify it with: idlewise log bundle verify {}",
            screen::operand(path)
        )?;
        Ok(())
    }
}

/// Runs the command once for each form of its output.
fn make_outputs(line: &Line, shelf: &mut Shelf) -> Result<Vec<OutputNote>> {
    // A measurement reads this machine and nothing of the bundle.
    let cwd = match line.command.promise {
        Promise::Same => shelf.folder().to_owned(),
        Promise::Measured => PathBuf::from("."),
    };
    let mut notes = Vec::new();
    for form in outputs::forms_of(line) {
        let path = shelf.path(form.path)?;
        let status = outputs::make(form, line, &cwd, &shelf.at(&path), notes.is_empty())?;
        // 1 means that it worked and found something; that can be proved too.
        if status != 0 && status != 1 {
            return Err(Failure::new(format_args!(
                "no bundle was written, because the command failed: {}",
                shown_words(&line.words_for(form.name))
            )));
        }
        notes.push(OutputNote { path: path.to_string(), status });
    }
    Ok(notes)
}

/// Writes the files about the bundle itself. The sums are of all others.
fn write_notes(manifest: &Manifest, shelf: &mut Shelf) -> Result<()> {
    let path = shelf.path(MANIFEST)?;
    let text = serde_json::to_string_pretty(manifest)
        .map_err(|error| Failure::new(format_args!("{MANIFEST}: {error}")))?;
    shelf.put(&path, text + "\n")?;
    let path = shelf.path(README)?;
    shelf.put(&path, readme(manifest, shelf)?)?;
    let mut sums = Sums::default();
    for path in shelf.paths() {
        let sum = File::open(shelf.at(path)).and_then(|file| super::verify::sum_of(&file));
        sums.add(path.clone(), sum.map_err(|error| Failure::new(format_args!("{path}: {error}")))?);
    }
    let path = shelf.path(SUMS)?;
    shelf.put(&path, sums.to_string())
}

fn readme(manifest: &Manifest, shelf: &Shelf) -> Result<String> {
    let mut text = Vec::new();
    let command = shown_words(&manifest.command);
    let program = program::described(&manifest.version, manifest.commit.as_deref());
    writeln!(
        text,
        "Evidence made by idlewise {program}, which runs it again and compares the outputs:\n\n    \
         idlewise log bundle verify FILE\n\nBy hand, in this folder:\n\n    sha256sum --check {SUMS}\n    \
         {command}\n"
    )?;
    for (path, about) in [
        ("output.*", "what the command printed, as text, JSON and CSV"),
        ("report.html", "the same to look at, in a browser"),
        ("mail.txt", "the same as text for a mailing list"),
        (MANIFEST, "the command, versions, logs and machines, for programs"),
        ("logs/", "idle logs (Parquet), one row for each gap"),
        ("machines/", "idle states with powers and sources"),
        ("workloads/", "workloads of simulations"),
        ("measurements/", "saved measurements"),
        ("code-*/", "C files of governors and what they include"),
        ("kernel-*/", "the files of a kernel source tree that were read"),
        ("patches/", "patches for C files"),
    ] {
        let begin = path.trim_end_matches(['*', '/']);
        if shelf.paths().iter().any(|path| path.as_str().starts_with(begin)) || path == MANIFEST {
            writeln!(text, "{path:14} {about}")?;
        }
    }
    writeln!(text)?;
    write_privacy(&mut text, manifest)?;
    String::from_utf8(text).map_err(|error| Failure::new(format_args!("{README}: {error}")))
}

/// Reads the bundle as a receiver will, before it gets its name.
fn unpacked_again(bundle: &File, path: &Path) -> Result<Vec<Unpacked>> {
    use std::io::Seek;
    let mut bundle = bundle;
    bundle
        .rewind()
        .map_err(bundle::BundleError::Read)
        .and_then(|()| {
            let limits = Limits { byte_count: u64::MAX, ..Limits::USUAL };
            bundle::unpack(BufReader::new(bundle), limits, &mut |_, _, _| Ok(()))
        })
        .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}
