//! Who watches long work. This library has no terminal: the program that uses it says what shows progress and
//! messages. Without that, nothing does.

use std::sync::OnceLock;

/// What shows how far work has come.
pub trait Bar: Send + Sync {
    /// Sets how much is done.
    fn set(&self, position: u64);

    /// Adds to how much is done.
    fn add(&self, count: u64);
}

/// Somebody who watches.
pub trait Watcher: Send + Sync {
    /// Begins to show some work on so many bytes.
    fn bar(&self, what: &'static str, byte_count: u64) -> Box<dyn Bar>;

    /// Shows a line.
    fn say(&self, line: &str);
}

static WATCHER: OnceLock<Box<dyn Watcher>> = OnceLock::new();

/// Says who watches this process. It counts once.
pub fn watched_by(watcher: Box<dyn Watcher>) {
    let _ = WATCHER.set(watcher);
}

/// Shows a line to whoever watches.
pub(crate) fn say(line: &str) {
    if let Some(watcher) = WATCHER.get() {
        watcher.say(line);
    }
}

/// Some work. It is no longer shown when this is dropped.
pub struct Progress(Option<Box<dyn Bar>>);

impl Progress {
    /// For reading a file.
    pub fn bytes(what: &'static str, byte_count: u64) -> Self {
        Progress(WATCHER.get().map(|watcher| watcher.bar(what, byte_count)))
    }

    /// Sets how much is done.
    pub fn set(&self, position: u64) {
        if let Some(bar) = &self.0 {
            bar.set(position);
        }
    }

    /// Adds to how much is done.
    pub fn add(&self, count: u64) {
        if let Some(bar) = &self.0 {
            bar.add(count);
        }
    }
}
