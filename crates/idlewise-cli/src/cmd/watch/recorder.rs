//! The key that records ten seconds: `idlewise record`, running beside the screen.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use crate::program;
use crate::screen;

const SECONDS: &str = "10";
/// More names than anybody records in one folder.
const NAME_COUNT_MAX: u32 = 10_000;
/// More than the recorder has to say.
const MESSAGE_BYTE_COUNT_MAX: u64 = 4096;

/// A recording that is running.
pub struct Recorder {
    child: Child,
    path: PathBuf,
}

impl Recorder {
    /// Starts recording into a new file in the current folder.
    ///
    /// # Errors
    /// Says in a line why that is impossible.
    pub fn start() -> Result<Self, String> {
        let names = (1..NAME_COUNT_MAX).map(|number| PathBuf::from(format!("watch-{number}.dat")));
        let path = names.into_iter().find(|name| !name.exists());
        let path = path.ok_or_else(|| "this folder is full of recordings".to_owned())?;
        let mut command = program::command().map_err(|error| format!("cannot record: {error}"))?;
        let child = command
            .args(["record", "--duration", SECONDS, "--output"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot record: {error}"))?;
        Ok(Recorder { child, path })
    }

    /// Returns what to say while it runs.
    pub fn message(&self) -> String {
        format!("recording {SECONDS} s into {}", screen::name(&self.path))
    }

    /// Returns what to say if it has ended.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(self.summary(status))
    }

    /// Stops it early, and returns what to say.
    pub fn stop(mut self) -> String {
        let process = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        match self.child.wait() {
            Ok(status) => format!("idlewise: {}", self.summary(status)),
            Err(error) => format!("idlewise: the recording: {error}"),
        }
    }

    fn summary(&mut self, status: ExitStatus) -> String {
        if status.success() {
            let (name, operand) = (screen::name(&self.path), screen::operand(&self.path));
            return format!("recorded into {name}; next: idlewise info {operand}");
        }
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(MESSAGE_BYTE_COUNT_MAX).read_to_string(&mut text);
        }
        let said =
            text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it says nothing");
        let said = said.strip_prefix("idlewise: ").unwrap_or(said);
        remove_if_empty(&self.path);
        format!("not recorded: {}", idlewise_report::shown_in_line(said))
    }
}

/// A recorder that failed leaves nothing of use.
fn remove_if_empty(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        let _ = std::fs::remove_file(path);
    }
}
