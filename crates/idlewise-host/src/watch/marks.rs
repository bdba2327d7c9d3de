//! Small texts of the machine that say whether what is known of it still holds.

use std::fs::File;

use super::text;
use crate::Root;

/// Long enough for a name. Of a longer list, the beginning is compared.
const BYTE_COUNT: usize = 256;

/// The driver, the governor, and the lists of CPUs.
#[derive(Debug)]
pub struct Marks(Vec<Mark>);

#[derive(Debug)]
struct Mark {
    file: Option<File>,
    seen: [u8; BYTE_COUNT],
    byte_count: usize,
}

impl Marks {
    /// Remembers what they say.
    pub fn open(root: &Root) -> Self {
        let folder = "sys/devices/system/cpu";
        let names = ["cpuidle/current_driver", "cpuidle/current_governor", "present", "online"];
        let mark = |name: &str| {
            let file = root.open(&format!("{folder}/{name}")).ok();
            Mark { file, seen: [0; BYTE_COUNT], byte_count: 0 }
        };
        let mut marks = Marks(names.map(mark).into());
        marks.have_changed();
        marks
    }

    /// Returns whether one says something else than when this was last asked.
    pub fn have_changed(&mut self) -> bool {
        let mut have_changed = false;
        for mark in &mut self.0 {
            let mut buffer = [0; BYTE_COUNT];
            let found = mark.file.as_ref().and_then(|file| text(file, &mut buffer)).unwrap_or("");
            if found.as_bytes() != &mark.seen[..mark.byte_count] {
                mark.byte_count = found.len();
                mark.seen[..found.len()].copy_from_slice(found.as_bytes());
                have_changed = true;
            }
        }
        have_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn a_new_driver_or_a_cpu_that_goes_is_a_change() {
        let folder = "sys/devices/system/cpu";
        let driver = format!("{folder}/cpuidle/current_driver");
        let online = format!("{folder}/online");
        let (_folder, root) = machine(&[(&driver, "intel_idle\n"), (&online, "0-3\n")]);
        let mut marks = Marks::open(&root);
        assert!(!marks.have_changed());
        std::fs::write(root.path(&driver), "acpi_idle\n").unwrap();
        assert!(marks.have_changed() && !marks.have_changed());
        std::fs::write(root.path(&online), "0-2\n").unwrap();
        assert!(marks.have_changed() && !marks.have_changed());
        assert!(!Marks::open(&machine(&[]).1).have_changed());
    }
}
