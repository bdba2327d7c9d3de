//! Captured machines for tests: unpacks `tests/sysroot/NAME.tree` into a folder, and plays it forward, so
//! that its counters change as on a machine that runs.
//!
//! Tests of other crates include this file with `#[path]`.
//!
//! # Trees
//!
//! Each file begins with `== PATH`. The content `@le32 N` stands for four bytes. `{0-3,8}` in a path stands
//! for each of these numbers. `== @cpuidle LIST` stands for the cpuidle files of these CPUs:
//!
//! ```text
//! == @cpuidle 0-3
//! name | desc       | latency | residency | disable | usage | time | above | below | rejected
//! POLL | CPUIDLE .. | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
//! ```
//!
//! The first line names the files in the order of the columns; `-` stands for no such file.
#![allow(dead_code, reason = "each test binary uses another part of it")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// What a state of a CPU counts more.
#[derive(Clone, Copy, Default)]
pub struct More {
    pub usage: u64,
    pub time_us: u64,
    pub above: u64,
    pub below: u64,
    pub rejected: u64,
}

/// A captured machine in a folder of its own.
pub struct CapturedMachine(TempDir);

/// The folder of the trees.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../idlewise-host/tests/sysroot")
}

/// The names of all trees, in order.
pub fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let trees = files.filter(|path| path.extension().is_some_and(|ending| ending == "tree"));
    let mut names: Vec<String> =
        trees.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

impl CapturedMachine {
    /// Unpacks a tree.
    pub fn unpack(name: &str) -> Self {
        let text = fs::read_to_string(folder().join(format!("{name}.tree"))).unwrap();
        Self::from_tree(&text)
    }

    /// Unpacks the text of a tree.
    pub fn from_tree(text: &str) -> Self {
        let machine = CapturedMachine(folder_in_memory());
        for file in text.split("== ").skip(1) {
            let (path, content) = file.split_once('\n').unwrap();
            if let Some(cpus) = path.strip_prefix("@cpuidle ") {
                machine.unpack_states(&numbers(cpus), content);
                continue;
            }
            for path in expanded(path) {
                match content.trim_end().strip_prefix("@le32 ") {
                    Some(number) => {
                        machine.write_bytes(&path, &number.parse::<i32>().unwrap().to_ne_bytes());
                    }
                    None => machine.write(&path, content),
                }
            }
        }
        machine
    }

    /// Unpacks a tree, and gives it so many CPUs like those that it has: a large server from a few of its CPUs. They are
    /// in two packages, with two threads a core: CPU N and CPU N + half.
    pub fn grown(name: &str, cpu_count: u16) -> Self {
        let text = fs::read_to_string(folder().join(format!("{name}.tree"))).unwrap();
        let online = "== sys/devices/system/cpu/online\n";
        let list = text.split_once(online).unwrap().1.lines().next().unwrap();
        let all = format!("0-{}", cpu_count - 1);
        // Topology is written below.
        let machine = Self::from_tree(&text.replace(list, &all));
        let (core_count, package_core_count) = (cpu_count / 2, cpu_count / 4);
        for cpu in 0..cpu_count {
            let core = cpu % core_count;
            let package = core / package_core_count;
            let first = package * package_core_count;
            let last = first + package_core_count - 1;
            let siblings = format!("{first}-{last},{}-{}", first + core_count, last + core_count);
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            for (file, value) in [
                ("topology/physical_package_id", package.to_string()),
                ("topology/core_id", (core - first).to_string()),
                ("topology/thread_siblings_list", format!("{core},{}", core + core_count)),
                ("topology/core_siblings_list", siblings.clone()),
                ("cache/index3/level", "3".to_owned()),
                ("cache/index3/shared_cpu_list", siblings.clone()),
            ] {
                machine.write(&format!("{folder}/{file}"), &format!("{value}\n"));
            }
        }
        machine
    }

    fn unpack_states(&self, cpus: &[u16], table: &str) {
        let mut rows = table.lines().map(|line| line.split('|').map(str::trim));
        let names: Vec<&str> = rows.next().unwrap().collect();
        for (index, row) in rows.enumerate() {
            let row: Vec<&str> = row.collect();
            assert_eq!(row.len(), names.len(), "{row:?}");
            for cpu in cpus {
                let values = names.iter().zip(&row).filter(|(_, value)| **value != "-");
                for (name, value) in values {
                    self.write(&state_file(*cpu, index, name), &format!("{value}\n"));
                }
            }
        }
    }

    /// The machine's root folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // In place, as a kernel's file stays the same file. Open descriptors see the new content.
        fs::write(path, bytes).unwrap();
    }

    /// Reads a file.
    pub fn text(&self, path: &str) -> String {
        let text = fs::read_to_string(self.path().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    }

    /// Adds to the counters of a state. Those that the machine does not have are left out.
    pub fn count(&self, cpus: &str, state: usize, more: More) {
        for cpu in numbers(cpus) {
            let counters = [
                ("usage", more.usage),
                ("time", more.time_us),
                ("above", more.above),
                ("below", more.below),
                ("rejected", more.rejected),
            ];
            for (name, more) in counters {
                let file = state_file(cpu, state, name);
                if self.path().join(&file).exists() {
                    let now: u64 = self.text(&file).parse().unwrap();
                    self.write(&file, &format!("{}\n", now + more));
                }
            }
        }
    }

    /// Lets time pass. Do it after counting: a reader takes the end of its interval from it.
    pub fn pass(&self, seconds: f64) {
        let file = "proc/uptime";
        let now = if self.path().join(file).exists() { self.text(file) } else { String::new() };
        let now: f64 = now.split_whitespace().next().map_or(1_000.0, |now| now.parse().unwrap());
        self.write(file, &format!("{:.2} 0.00\n", now + seconds));
    }

    /// Says which CPUs are online.
    pub fn set_online(&self, cpus: &str) {
        self.write("sys/devices/system/cpu/online", &format!("{cpus}\n"));
    }

    /// Removes a CPU's idle states and makes them anew, with counts of zero, as another driver does.
    pub fn set_up_states_anew(&self, cpu: u16) {
        for state in 0..10 {
            let folder = self.path().join(state_file(cpu, state, ""));
            if !folder.exists() {
                break;
            }
            for name in ["usage", "time", "above", "below", "rejected"] {
                let file = folder.join(name);
                if file.exists() {
                    fs::remove_file(&file).unwrap();
                    fs::write(&file, "0\n").unwrap();
                }
            }
        }
    }
}

/// A folder for a machine's thousands of files: in memory if there is room, because a disk's file system takes long to
/// make them where others were just removed.
pub fn folder_in_memory() -> TempDir {
    const BYTE_COUNT_MIN: u64 = 1 << 30;
    let has_room = rustix::fs::statvfs("/dev/shm")
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= BYTE_COUNT_MIN);
    let in_memory = has_room.then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten();
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// The path of a state's file.
pub fn state_file(cpu: u16, state: usize, name: &str) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{name}")
}

/// The paths that a path with a list in braces stands for.
fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (list, after))) => {
            numbers(list).into_iter().map(|number| format!("{before}{number}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

fn numbers(list: &str) -> Vec<u16> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.trim().parse().unwrap()..=last.trim().parse().unwrap()
    };
    list.trim().split(',').flat_map(part).collect()
}
