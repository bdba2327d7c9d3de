//! Small texts of the machine that say whether what is known of it still holds.

use std::fs::File;

use super::text;
use crate::Root;
use crate::counts::LIST_BYTE_COUNT_MAX;

/// The driver, the governor, and the lists of CPUs.
#[derive(Debug)]
pub struct Marks {
    marks: Vec<Mark>,
    /// Memory for one of them.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Mark {
    file: Option<File>,
    seen: String,
}

impl Marks {
    /// Remembers what they say.
    pub fn open(root: &Root) -> Self {
        let folder = "sys/devices/system/cpu";
        let names = ["cpuidle/current_driver", "cpuidle/current_governor", "present", "online"];
        let mark = |name: &str| {
            let file = root.open(&format!("{folder}/{name}")).ok();
            Mark { file, seen: String::new() }
        };
        let buffer = vec![0; LIST_BYTE_COUNT_MAX];
        let mut marks = Marks { marks: names.map(mark).into(), buffer };
        marks.have_changed();
        marks
    }

    /// Returns whether one says something else than when this was last asked.
    pub fn have_changed(&mut self) -> bool {
        let mut have_changed = false;
        for mark in &mut self.marks {
            let found = mark.file.as_ref().and_then(|file| text(file, &mut self.buffer));
            let found = found.unwrap_or("");
            if found != mark.seen {
                mark.seen.clear();
                mark.seen.push_str(found);
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
        // Of a long list, its end counts too.
        let odd = |last: u16| {
            (0..300).map(|n| format!("{},", 2 * n)).collect::<String>() + &last.to_string()
        };
        std::fs::write(root.path(&online), odd(999)).unwrap();
        assert!(marks.have_changed() && !marks.have_changed());
        std::fs::write(root.path(&online), odd(998)).unwrap();
        assert!(marks.have_changed() && !marks.have_changed());
        assert!(!Marks::open(&machine(&[]).1).have_changed());
    }
}
