//! Shows what a bundle holds.

use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_lab::bundle::{self, Limits, SUMS, Sums, Unpacked};
use idlewise_report::{shown_in_line, wrap};
use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::input;
use crate::program;
use crate::screen;
use crate::unpack::byte_count;

use super::SCHEMA;
use super::line::shown_words;
use super::manifest::{BYTE_COUNT_MAX, MANIFEST, Manifest};

/// Show what a bundle holds
///
/// Prints the command, the files with their sizes, and whether the SHA-256 sums are right. Nothing is
/// unpacked to disk, and nothing is run.
#[derive(clap::Args)]
pub struct List {
    /// The bundle
    bundle: PathBuf,

    /// Unpack at most SIZE bytes, such as 8G [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    max_unpacked: Option<u64>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(self) -> Result<ExitCode> {
        let fail = |error: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {error}", self.bundle.display()))
        };
        let file = BufReader::new(input::open(&self.bundle)?);
        let byte_count = self.max_unpacked.unwrap_or(Limits::USUAL.byte_count);
        let limits = Limits { byte_count, ..Limits::USUAL };
        let (mut manifest, mut sums) = (None, None);
        let files = bundle::unpack(file, limits, &mut |path, byte_count, content| {
            let to = match path.as_str() {
                MANIFEST => &mut manifest,
                SUMS => &mut sums,
                _ => return Ok(()),
            };
            if byte_count > BYTE_COUNT_MAX {
                return Err(std::io::Error::other("it is too long"));
            }
            let mut text = String::new();
            content.read_to_string(&mut text)?;
            *to = Some(text);
            Ok(())
        });
        let files = files.map_err(|error| fail(&error))?;
        let manifest = manifest.ok_or_else(|| fail(&format_args!("it has no {MANIFEST}")))?;
        let sums = sums.ok_or_else(|| fail(&format_args!("it has no {SUMS}")))?;
        let manifest =
            Manifest::parse(&manifest).map_err(|failure| failure.within(&self.bundle))?;
        let sums = Sums::parse(&sums).map_err(|error| fail(&format_args!("{SUMS}: {error}")))?;
        let differences = sums.differences(&files);
        let program = program::described(&manifest.version, manifest.commit.as_deref());
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "bundle": self.bundle.to_string_lossy(),
                "program": program,
                "command": manifest.command,
                "files": files_json(&files),
                "differences": differences,
                "is_private": manifest.is_private,
                "dropped": manifest.dropped,
                "remains": manifest.remains,
            });
            out.json(SCHEMA, &document)?;
        } else {
            writeln!(
                out,
                "{}: made by idlewise {}",
                screen::name(&self.bundle),
                shown_in_line(&program)
            )?;
            let command = format!("Command: {}", shown_words(&manifest.command));
            writeln!(out, "{}", wrap(&command, 100, 4))?;
            writeln!(out, "\n     bytes  file")?;
            for Unpacked { path, byte_count, .. } in &files {
                writeln!(out, "{byte_count:10}  {path}")?;
            }
            writeln!(out)?;
            match differences.is_empty() {
                true => writeln!(out, "All files are those that {SUMS} is about.")?,
                false => differences.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            }
            write_privacy(&mut out, &manifest)?;
        }
        Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The files, for `--json`.
pub fn files_json(files: &[Unpacked]) -> Vec<Value> {
    let file = |Unpacked { path, byte_count, sha256 }: &Unpacked| json!({ "path": path.as_str(), "byte_count": byte_count, "sha256": sha256 });
    files.iter().map(file).collect()
}

/// Prints what was dropped, and what remains.
pub fn write_privacy(out: &mut impl Write, manifest: &Manifest) -> std::io::Result<()> {
    let lists = [
        ("Dropped from logs", &manifest.dropped, "nothing"),
        ("Remains, and could still identify", &manifest.remains, "nothing that is known"),
    ];
    for (title, lines, none) in lists {
        match lines.is_empty() {
            true => writeln!(out, "{title}: {none}")?,
            false => writeln!(out, "{title}:")?,
        }
        for line in lines {
            writeln!(out, "{}", wrap(&format!("- {}", shown_in_line(line)), 100, 2))?;
        }
    }
    Ok(())
}
