//! Forces a single idle state: the CPUs' other states are disabled in sysfs for a while. The journal of settings
//! knows what was found, so that whatever ends the measurement, it is given back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::IpiError;
use super::error::not_restored;
use crate::Root;
use crate::cpuidle::state_folder;
use crate::settings::{Overlay, Owner, SettingsError};
use crate::show_cpu_list;

/// Returns whether this process may force the states of a CPU.
pub fn can_force(root: &Root, cpu: u16) -> bool {
    root.open_beneath(&disable_file(cpu, 0), OFlags::WRONLY).is_ok()
}

/// The file that disables a state.
pub(crate) fn disable_file(cpu: u16, index: usize) -> String {
    format!("{}/disable", state_folder(cpu, index))
}

/// CPUs with the same states.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    pub cpus: Vec<u16>,
    pub state_count: usize,
}

/// Idle states that are forced. They are given back at the end.
pub(crate) struct ForcedStates<'a> {
    root: &'a Root,
    overlay: Overlay<'a>,
    /// Called if restoring fails during a panic.
    tell: &'a dyn Fn(&str),
    is_over: bool,
}

impl<'a> ForcedStates<'a> {
    /// Forces none yet. Changes nothing.
    pub(crate) fn new(root: &'a Root, owner: &'a Owner, tell: &'a dyn Fn(&str)) -> Self {
        ForcedStates { root, overlay: Overlay::new(root, owner), tell, is_over: false }
    }

    /// Enables the state of these CPUs, and disables all others. Other CPUs get back what was found, and so do these
    /// if there is no state.
    pub(crate) fn force(&mut self, alike: &Alike, state: Option<usize>) -> Result<(), IpiError> {
        let mut files = BTreeMap::new();
        let mut words = "no state forced".to_owned();
        if let Some(state) = state {
            let name = alike
                .cpus
                .first()
                .and_then(|cpu| self.root.text(&format!("{}/name", state_folder(*cpu, state))));
            let name = name.unwrap_or_else(|| format!("state {state}"));
            words = format!("{name}=only@{}", show_cpu_list(&alike.cpus));
            for &cpu in &alike.cpus {
                files.extend(
                    (0..alike.state_count).map(|index| {
                        (disable_file(cpu, index), u8::from(index != state).to_string())
                    }),
                );
            }
        } else if !self.overlay.has_begun() {
            return Ok(());
        }
        self.overlay.set(words, files).map_err(IpiError::from)
    }

    /// Restores what was found. Tries every file, and returns those that failed.
    fn put_back(&mut self) -> Result<Vec<(PathBuf, String)>, SettingsError> {
        self.is_over = true;
        let settled = self.overlay.end()?;
        for taken in &settled.taken {
            (self.tell)(&format!(
                "somebody else wrote {} to {} meanwhile; it was left alone",
                taken.now,
                self.root.path(&taken.file).display()
            ));
        }
        let left = settled.failed.into_iter();
        Ok(left.map(|failed| (self.root.path(&failed.file), failed.wanted)).collect())
    }

    /// Restores what was found, whatever the result of the measurement.
    pub(crate) fn restore<T>(mut self, outcome: Result<T, IpiError>) -> Result<T, IpiError> {
        match (self.put_back(), outcome) {
            (Ok(files), outcome) if files.is_empty() => outcome,
            (Ok(files), outcome) => {
                Err(IpiError::NotRestored { files, cause: outcome.err().map(Box::new) })
            }
            // It says so itself.
            (Err(SettingsError::OverlayEnded), Err(cause)) => Err(cause),
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl Drop for ForcedStates<'_> {
    /// There is something left to restore only during a panic, and nothing else can report it.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        match self.put_back() {
            Ok(left) if left.is_empty() => {}
            Ok(left) => (self.tell)(&not_restored(&left)),
            Err(error) => (self.tell)(&error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Mutex;

    use super::*;
    use crate::settings::{Setting, Which, apply, revert, status};

    /// A machine on which CPU 1 has three states: enabled, disabled, enabled.
    fn machine() -> (tempfile::TempDir, Root) {
        let (folder, root) = crate::root::tests::machine(&[
            ("sys/devices/system/cpu/online", "1\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
        ]);
        for (index, (name, value)) in
            [("POLL", "0"), ("C1", "1"), ("C6", "0")].into_iter().enumerate()
        {
            let state = folder.path().join(state_folder(1, index));
            fs::create_dir_all(&state).unwrap();
            fs::write(state.join("name"), format!("{name}\n")).unwrap();
            fs::write(state.join("disable"), format!("{value}\n")).unwrap();
        }
        (folder, root)
    }

    fn owner() -> Owner {
        Owner::running("idlewise measure ipi")
    }

    fn cpu1() -> Alike {
        Alike { cpus: vec![1], state_count: 3 }
    }

    fn disabled(root: &Root) -> String {
        (0..3).map(|i| root.text(&disable_file(1, i)).unwrap()).collect()
    }

    fn has_journal(root: &Root) -> bool {
        root.path("run/idlewise/journal.json").exists()
    }

    #[test]
    fn one_state_at_a_time_and_then_all_as_it_was() {
        let (_folder, root) = machine();
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &|_| {});
        states.force(&cpu1(), None).unwrap();
        assert!(!has_journal(&root), "nothing is forced, so nobody need be root");
        states.force(&cpu1(), Some(1)).unwrap();
        assert_eq!(disabled(&root), "101");
        states.force(&cpu1(), Some(2)).unwrap();
        assert_eq!(disabled(&root), "110");
        assert_eq!(status(&root).unwrap().sessions[0].settings, ["C6=only@1"]);
        states.force(&cpu1(), None).unwrap();
        assert_eq!(disabled(&root), "010");
        states.force(&cpu1(), Some(0)).unwrap();
        states.restore(Ok(())).unwrap();
        assert_eq!(disabled(&root), "010");
        assert!(!has_journal(&root));
    }

    #[test]
    fn other_sessions_wishes_are_in_force_again_afterwards() {
        let (_folder, root) = machine();
        let off: Setting = "C6=off".parse().unwrap();
        let applied = apply(&root, &[off], &Owner::running("idlewise set apply")).unwrap();
        assert_eq!(disabled(&root), "011");
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &|_| {});
        states.force(&cpu1(), Some(2)).unwrap();
        assert_eq!(disabled(&root), "110", "the overlay's wish comes first");
        states.force(&cpu1(), Some(1)).unwrap();
        states.restore(Ok(())).unwrap();
        assert_eq!(disabled(&root), "011");
        applied.revert().unwrap();
        assert_eq!(disabled(&root), "010");
    }

    #[test]
    fn what_is_reverted_meanwhile_is_not_in_force_afterwards() {
        let (_folder, root) = machine();
        let off: Setting = "C6=off".parse().unwrap();
        let applied = apply(&root, &[off], &Owner::running("idlewise set apply")).unwrap();
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &|_| {});
        states.force(&cpu1(), Some(2)).unwrap();
        applied.revert().unwrap();
        assert_eq!(disabled(&root), "110", "still forced");
        states.restore(Ok(())).unwrap();
        assert_eq!(disabled(&root), "010");
    }

    #[test]
    fn reverting_all_ends_it() {
        let (_folder, root) = machine();
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &|_| {});
        states.force(&cpu1(), Some(2)).unwrap();
        revert(&root, Which::All).unwrap();
        assert_eq!(disabled(&root), "010");
        let error = states.force(&cpu1(), Some(1)).unwrap_err();
        assert!(error.to_string().contains("set revert --all"), "{error}");
        assert_eq!(disabled(&root), "010");
        let error = states.restore(Ok(())).unwrap_err();
        assert!(error.to_string().contains("set revert --all"), "{error}");
    }

    #[test]
    fn what_somebody_else_writes_meanwhile_ends_it_and_is_left_alone() {
        let (_folder, root) = machine();
        let told = Mutex::new(String::new());
        let tell = |message: &str| told.lock().unwrap().push_str(message);
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &tell);
        states.force(&cpu1(), Some(2)).unwrap();
        fs::write(root.path(&disable_file(1, 1)), "2\n").unwrap();
        let error = states.force(&cpu1(), Some(1)).unwrap_err();
        assert!(error.to_string().contains("state1/disable"), "{error}");
        let error = states.restore(Err::<(), _>(error)).unwrap_err();
        assert!(error.to_string().contains("state1/disable"), "{error}");
        assert_eq!(disabled(&root), "020");
        assert!(told.into_inner().unwrap().contains("somebody else wrote 2"));
    }

    #[test]
    fn a_panic_restores_too() {
        let (_folder, root) = machine();
        let panic = std::panic::catch_unwind(|| {
            let owner = owner();
            let mut states = ForcedStates::new(&root, &owner, &|_| {});
            states.force(&cpu1(), Some(1)).unwrap();
            assert_eq!(disabled(&root), "101");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panic.is_err());
        assert_eq!(disabled(&root), "010");
    }

    /// No link is followed, so this cannot be written even by root.
    fn spoil(root: &Root) -> String {
        let file = root.path(&disable_file(1, 2));
        fs::remove_file(&file).unwrap();
        symlink("/dev/full", &file).unwrap();
        format!("as root: idlewise set revert, or echo 0 > {}", file.display())
    }

    #[test]
    fn a_panic_that_can_not_restore_tells_what_to_write_where() {
        let (_folder, root) = machine();
        let told = Mutex::new(String::new());
        let panic = std::panic::catch_unwind(|| {
            let tell = |message: &str| told.lock().unwrap().push_str(message);
            let owner = owner();
            let mut states = ForcedStates::new(&root, &owner, &tell);
            states.force(&cpu1(), Some(1)).unwrap();
            spoil(&root);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panic.is_err());
        let told = told.into_inner().unwrap();
        assert!(told.contains("as root: idlewise set revert, or echo 0 > "), "{told}");
    }

    #[test]
    fn says_what_to_write_where_it_could_not_restore() {
        let (_folder, root) = machine();
        let owner = owner();
        let mut states = ForcedStates::new(&root, &owner, &|_| {});
        states.force(&cpu1(), Some(1)).unwrap();
        let expected = spoil(&root);
        let error = states.restore(Err::<(), _>(IpiError::Stopped)).unwrap_err().to_string();
        assert!(error.starts_with("stopped before") && error.ends_with(&expected), "{error}");
        let first = root.text(&disable_file(1, 0));
        assert_eq!(first.as_deref(), Some("0"), "the others are restored");
        // The journal knows what is left, and `set revert` tries again.
        fs::remove_file(root.path(&disable_file(1, 2))).unwrap();
        fs::write(root.path(&disable_file(1, 2)), "1\n").unwrap();
        revert(&root, Which::Ended).unwrap();
        assert_eq!(disabled(&root), "010");
        assert!(!has_journal(&root));
    }
}
