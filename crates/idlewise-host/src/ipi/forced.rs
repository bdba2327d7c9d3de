//! Forces a single idle state: the CPU's other states are disabled in sysfs for a while.

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;

use super::IpiError;
use super::error::not_restored;
use crate::Root;
use crate::cpuidle::state_folder;

/// Returns whether this process may force the states of a CPU.
pub fn can_force(root: &Root, cpu: u16) -> bool {
    let file = root.path(&format!("{}/disable", state_folder(cpu, 0)));
    OpenOptions::new().write(true).open(file).is_ok()
}

/// The `disable` files of a CPU's states with their original contents, which are restored on drop.
pub(super) struct ForcedStates<'a> {
    root: &'a Root,
    /// For each state: the file, its original content, and its current content.
    files: Vec<(String, String, String)>,
    /// Called if restoring fails during a panic.
    tell: &'a dyn Fn(&str),
}

impl<'a> ForcedStates<'a> {
    /// Remembers which of the first `state_count` states are disabled. Changes nothing.
    pub(super) fn remember(
        root: &'a Root,
        cpu: u16,
        state_count: usize,
        tell: &'a dyn Fn(&str),
    ) -> Result<Self, IpiError> {
        let file = |index| {
            let name = format!("{}/disable", state_folder(cpu, index));
            let found = root.text(&name).ok_or_else(|| {
                let source = io::Error::other("it does not say what is disabled");
                IpiError::Force { path: root.path(&name), source }
            })?;
            Ok((name, found.clone(), found))
        };
        let files = (0..state_count).map(file).collect::<Result<_, _>>()?;
        Ok(ForcedStates { root, files, tell })
    }

    /// Enables the state and disables all others. `None` restores the original settings.
    pub(super) fn force(&mut self, state: Option<usize>) -> Result<(), IpiError> {
        let wanted = |index: usize, found: &str| match state {
            None => found.to_owned(),
            Some(state) => u8::from(index != state).to_string(),
        };
        let wishes: Vec<_> =
            self.files.iter().enumerate().map(|(i, (_, found, _))| wanted(i, found)).collect();
        // Enable first, so that at least one state is enabled at any time.
        for value in ["0", "1"] {
            for ((name, _, now), wish) in self.files.iter_mut().zip(&wishes) {
                if wish == now || (wish == "0") != (value == "0") {
                    continue;
                }
                let written = self.root.write(name, wish);
                // If writing failed, it may have changed all the same.
                *now = match written {
                    Ok(()) => wish.clone(),
                    Err(_) => self.root.text(name).unwrap_or_default(),
                };
                let path = || self.root.path(name);
                written.map_err(|source| IpiError::Force { path: path(), source })?;
            }
        }
        Ok(())
    }

    /// Restores the original contents. Tries every file, and returns those that failed.
    fn put_back(&mut self) -> Vec<(PathBuf, String)> {
        let mut left = Vec::new();
        for (name, found, now) in &mut self.files {
            if now != found {
                match self.root.write(name, found) {
                    Ok(()) => now.clone_from(found),
                    Err(_) => left.push((self.root.path(name), found.clone())),
                }
            }
        }
        left
    }

    /// Restores the original contents, whatever the result of the measurement.
    pub(super) fn restore<T>(mut self, outcome: Result<T, IpiError>) -> Result<T, IpiError> {
        let files = self.put_back();
        // It has been reported. Another attempt would add nothing.
        self.files.clear();
        match files.is_empty() {
            true => outcome,
            false => Err(IpiError::NotRestored { files, cause: outcome.err().map(Box::new) }),
        }
    }
}

impl Drop for ForcedStates<'_> {
    /// There is something left to restore only during a panic, and nothing else can report it.
    fn drop(&mut self) {
        let left = self.put_back();
        if !left.is_empty() {
            (self.tell)(&not_restored(&left));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Mutex;

    use super::*;

    /// A machine on which CPU 1 has three states: enabled, disabled, enabled.
    fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (index, value) in ["0", "1", "0"].into_iter().enumerate() {
            let state = folder.path().join(state_folder(1, index));
            fs::create_dir_all(&state).unwrap();
            fs::write(state.join("disable"), format!("{value}\n")).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    fn disabled(root: &Root) -> String {
        (0..3).map(|i| root.text(&format!("{}/disable", state_folder(1, i))).unwrap()).collect()
    }

    #[test]
    fn one_state_at_a_time_and_then_all_as_it_was() {
        let (_folder, root) = machine();
        let mut states = ForcedStates::remember(&root, 1, 3, &|_| {}).unwrap();
        states.force(Some(1)).unwrap();
        assert_eq!(disabled(&root), "101");
        states.force(Some(2)).unwrap();
        assert_eq!(disabled(&root), "110");
        states.force(None).unwrap();
        assert_eq!(disabled(&root), "010");
        states.force(Some(0)).unwrap();
        states.restore(Ok(())).unwrap();
        assert_eq!(disabled(&root), "010");
    }

    #[test]
    fn a_panic_restores_too() {
        let (_folder, root) = machine();
        let panic = std::panic::catch_unwind(|| {
            let mut states = ForcedStates::remember(&root, 1, 3, &|_| {}).unwrap();
            states.force(Some(1)).unwrap();
            assert_eq!(disabled(&root), "101");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panic.is_err());
        assert_eq!(disabled(&root), "010");
    }

    #[test]
    fn a_panic_that_can_not_restore_tells_what_to_write_where() {
        let (_folder, root) = machine();
        let told = Mutex::new(String::new());
        let file = root.path(&format!("{}/disable", state_folder(1, 2)));
        let panic = std::panic::catch_unwind(|| {
            let tell = |message: &str| told.lock().unwrap().push_str(message);
            let mut states = ForcedStates::remember(&root, 1, 3, &tell).unwrap();
            states.force(Some(1)).unwrap();
            fs::remove_file(&file).unwrap();
            symlink("/dev/full", &file).unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panic.is_err());
        let told = told.into_inner().unwrap();
        assert!(told.ends_with(&format!("as root: echo 0 > {}", file.display())), "{told}");
    }

    #[test]
    fn says_what_to_write_where_it_could_not_restore() {
        let (_folder, root) = machine();
        let mut states = ForcedStates::remember(&root, 1, 3, &|_| {}).unwrap();
        states.force(Some(1)).unwrap();
        // A write that fails even for root.
        let file = root.path(&format!("{}/disable", state_folder(1, 2)));
        fs::remove_file(&file).unwrap();
        symlink("/dev/full", &file).unwrap();
        let error = states.restore(Err::<(), _>(IpiError::Stopped)).unwrap_err().to_string();
        let expected = format!("as root: echo 0 > {}", file.display());
        assert!(error.starts_with("stopped before") && error.ends_with(&expected), "{error}");
        let first = root.text(&format!("{}/disable", state_folder(1, 0)));
        assert_eq!(first.as_deref(), Some("0"), "the others are restored");
    }
}
