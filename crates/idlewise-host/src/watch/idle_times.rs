//! The idle time of each CPU by /proc/stat. The kernel counts it on during a stay, in hundredths of a second.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::Root;

/// USER_HZ, in which /proc/stat counts on every architecture that has cpuidle.
const TICK_NS: u64 = 10_000_000;
/// Enough for the lines of 500 CPUs.
const BYTE_COUNT: usize = 64 << 10;
/// More than the lines of any machine's CPUs need.
const BYTE_COUNT_MAX: usize = 4 << 20;

/// Reads the idle time of CPUs again and again.
#[derive(Debug)]
pub struct IdleTimes {
    file: File,
    text: Vec<u8>,
}

impl IdleTimes {
    /// Opens /proc/stat. `None` if there is none.
    pub fn open(root: &Root) -> Option<Self> {
        let file = root.open("proc/stat").ok()?;
        Some(IdleTimes { file, text: vec![0; BYTE_COUNT] })
    }

    /// Calls `of_cpu` with each CPU that is online, in order, and its idle time since boot in nanoseconds.
    pub fn read(&mut self, mut of_cpu: impl FnMut(u16, u64)) {
        let Some(byte_count) = self.fill() else { return };
        let lines = self.text[..byte_count].split(|byte| *byte == b'\n');
        let lines = lines.map(|line| std::str::from_utf8(line).unwrap_or_default());
        // The lines of CPUs come first, after the one of all together.
        for line in lines.take_while(|line| line.starts_with("cpu")) {
            let mut words = line.split_ascii_whitespace();
            let Some(cpu) = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok())
            else {
                continue;
            };
            // user, nice, system, idle, iowait, ...
            let mut ticks = words.skip(3).map_while(|word| word.parse::<u64>().ok());
            let (Some(idle), iowait) = (ticks.next(), ticks.next()) else { continue };
            of_cpu(cpu, idle.saturating_add(iowait.unwrap_or(0)).saturating_mul(TICK_NS));
        }
    }

    /// Reads as much as has the lines of all CPUs.
    fn fill(&mut self) -> Option<usize> {
        let mut byte_count = 0;
        loop {
            if byte_count == self.text.len() {
                if byte_count >= BYTE_COUNT_MAX {
                    return has_all_cpus(&self.text).then_some(byte_count);
                }
                self.text.resize(2 * byte_count, 0);
            }
            match self.file.read_at(&mut self.text[byte_count..], byte_count as u64).ok()? {
                0 => return Some(byte_count),
                more => byte_count += more,
            }
        }
    }
}

/// Returns whether the lines of CPUs, which come first, end before the text does.
fn has_all_cpus(text: &[u8]) -> bool {
    // The last line may be cut within its first word.
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| !line.starts_with(b"cpu") && !b"cpu".starts_with(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    fn read(times: &mut IdleTimes) -> Vec<(u16, u64)> {
        let mut found = Vec::new();
        times.read(|cpu, idle_ns| found.push((cpu, idle_ns)));
        found
    }

    #[test]
    fn idle_and_waiting_for_disks_are_idle() {
        let stat = "cpu  5 0 5 500 0 0 0 0 0 0\ncpu0 1 0 1 100 20 0 0 0 0 0\ncpu12 1 0 1 300 0\n\
                    intr 5 0 7\nctxt 1\ncpu3 1 1 1 1\n";
        let (_folder, root) = machine(&[("proc/stat", stat)]);
        let mut times = IdleTimes::open(&root).unwrap();
        assert_eq!(read(&mut times), [(0, 1_200_000_000), (12, 3_000_000_000)]);
        std::fs::write(root.path("proc/stat"), "cpu  5\ncpu0 1 0 1 101 20\ncpux 1\ncpu1 1 1\n")
            .unwrap();
        assert_eq!(read(&mut times), [(0, 1_210_000_000)]);
        assert!(IdleTimes::open(&machine(&[]).1).is_none());
    }

    #[test]
    fn a_list_longer_than_the_memory_is_read_whole() {
        let line = |cpu: u16| format!("cpu{cpu} 1 0 1 {cpu} 0 {}\n", "0 ".repeat(30));
        let stat: String = (0..2_000).map(line).collect();
        assert!(stat.len() > BYTE_COUNT);
        let (_folder, root) = machine(&[("proc/stat", &stat)]);
        assert_eq!(read(&mut IdleTimes::open(&root).unwrap()).len(), 2_000);
        // What follows the CPUs may be cut; a CPU may not.
        let interrupts = format!("{stat}intr {}", "7 ".repeat(BYTE_COUNT_MAX));
        let (_folder, root) = machine(&[("proc/stat", &interrupts)]);
        assert_eq!(read(&mut IdleTimes::open(&root).unwrap()).len(), 2_000);
        let too_long = stat.repeat(1 + BYTE_COUNT_MAX / stat.len());
        let (_folder, root) = machine(&[("proc/stat", &too_long)]);
        assert!(read(&mut IdleTimes::open(&root).unwrap()).is_empty());
    }
}
