//! A progress bar on standard error for long work, shown only if somebody is watching.

use idlewise_lab::progress::{Bar, Watcher, watched_by};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::screen::{is_watched, say};

/// A progress bar that is drawn only if standard error is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// For reading a file.
    pub fn bytes(what: &'static str, byte_count: u64) -> Self {
        Progress::new(
            what,
            byte_count,
            "{msg} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
        )
    }

    /// For replaying.
    pub fn gaps(what: &'static str, gap_count: u64) -> Self {
        Progress::new(what, gap_count, "{msg} {bar:32} {human_pos}/{human_len} gaps {eta} left")
    }

    /// For reading many logs.
    pub fn logs(what: &'static str, log_count: u64) -> Self {
        Progress::new(what, log_count, "{msg} {bar:32} {human_pos}/{human_len} logs {eta} left")
    }

    /// For a sweep.
    pub fn cells(what: &'static str, cell_count: u64) -> Self {
        Progress::new(what, cell_count, "{msg} {bar:32} {human_pos}/{human_len} cells {eta} left")
    }

    /// For measuring, by wakes.
    pub fn wakes(what: &'static str, wake_count: u64) -> Self {
        Progress::new(what, wake_count, "{msg} {bar:32} {human_pos}/{human_len} wakes {eta} left")
    }

    /// For measuring, by slices of time.
    pub fn slices(what: &'static str, slice_count: u64) -> Self {
        Progress::new(what, slice_count, "{msg} {bar:32} {human_pos}/{human_len} slices {eta} left")
    }

    /// For measuring, by milliseconds.
    pub fn time(what: &'static str, time_ms: u64) -> Self {
        Progress::new(what, time_ms, "{msg} {bar:32} {percent} % {eta} left")
    }

    /// For rounds of a command.
    pub fn rounds(what: &'static str, round_count: u64) -> Self {
        Progress::new(
            what,
            round_count,
            "{msg} {bar:32} {pos} of at most {len}, {eta} left at most",
        )
    }

    /// For work of unknown length. Shows the last text from [`Progress::say`].
    pub fn open_ended() -> Self {
        Progress::new("", 0, "{spinner} {msg}")
    }

    /// Shows a text about the progress.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }

    fn new(what: &'static str, length: u64, template: &str) -> Self {
        let target = match is_watched() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
        bar.set_style(ProgressStyle::with_template(template).expect("templates are constants"));
        Progress(bar)
    }

    /// Sets the total.
    pub fn set_length(&self, length: u64) {
        self.0.set_length(length);
    }

    /// Sets how much is done.
    pub fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Adds to how much is done.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Shows the laboratory's work and messages.
pub fn watch() {
    watched_by(Box::new(Screen));
}

struct Screen;

impl Watcher for Screen {
    fn bar(&self, what: &'static str, byte_count: u64) -> Box<dyn Bar> {
        Box::new(Progress::bytes(what, byte_count))
    }

    fn say(&self, line: &str) {
        say(line);
    }
}

impl Bar for Progress {
    fn set(&self, position: u64) {
        Progress::set(self, position);
    }

    fn add(&self, count: u64) {
        Progress::add(self, count);
    }
}
