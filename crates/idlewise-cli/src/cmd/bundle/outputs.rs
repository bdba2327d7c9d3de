//! The outputs of a bundled command, one file for each form.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use crate::error::Result;
use crate::unpack::unnamed_file;
use crate::work_folder;

use super::line::{Line, MAIL, PAGE, Promise};
use super::shelf::cannot_write;

/// A form of output.
pub struct Form {
    /// The file that holds it.
    pub path: &'static str,
    /// What the command's line calls it.
    pub name: &'static str,
}

const FORMS: [Form; 5] = [
    Form { path: "output.txt", name: "text" },
    Form { path: "output.json", name: "json" },
    Form { path: "output.csv", name: "csv" },
    Form { path: "report.html", name: PAGE },
    Form { path: "mail.txt", name: MAIL },
];

/// The forms that a line has.
pub fn forms_of(line: &Line) -> Vec<&'static Form> {
    let has = |form: &&Form| match (form.name, line.command.promise) {
        // What is measured twice is not the same; and the JSON holds all values.
        ("text", Promise::Measured) => false,
        ("text", Promise::Same) => true,
        (PAGE | MAIL, _) => line.command.name == "replay" && !line.is_only_text(),
        (name, _) => line.forms.contains(&name) && !line.is_only_text(),
    };
    FORMS.iter().filter(has).collect()
}

/// Runs the command in a folder for one form of its output, and writes that to `to`. Returns the exit status.
/// The command's messages are printed if it is the first form, and otherwise only if it fails, because they
/// would be the same.
pub fn make(form: &Form, line: &Line, cwd: &Path, to: &Path, is_first: bool) -> Result<i32> {
    let stdout = match form.name {
        // It writes its file itself, and says so.
        PAGE => unnamed_file()?,
        _ => File::create(to).map_err(|error| cannot_write(to, &error))?,
    };
    let words = line.words_for(form.name);
    let promise = line.command.promise;
    if is_first {
        return work_folder::run(cwd, &words, promise, stdout, Stdio::inherit());
    }
    let messages = unnamed_file()?;
    let kept = messages.try_clone().map_err(|error| cannot_write(to, &error))?;
    let status = work_folder::run(cwd, &words, promise, stdout, kept)?;
    if status != 0 && status != 1 {
        say_all(messages);
    }
    Ok(status)
}

fn say_all(mut messages: File) {
    use std::io::{Read, Seek};
    let mut text = String::new();
    let is_read = messages.rewind().and_then(|()| messages.read_to_string(&mut text));
    if is_read.is_ok() {
        crate::screen::say(text.trim_end());
    }
}
