//! Counts idle stays inside the kernel, for machines where a recording would be too much: a histogram for each CPU,
//! idle state and half-octave of the stay's length, apart for stays that a timer ended.
//!
//! Two small BPF programs do it (`program.rs`). Loading them needs system calls that this crate does not
//! make; the caller passes what it read. A hist trigger of tracefs could count as well, but needs a synthetic
//! event for the length of a stay, which costs several times as much, and many kernels lack
//! them (CONFIG_HIST_TRIGGERS).

mod program;

use idlewise_trace::histogram::{BIN_COUNT, Bin, CpuHistogram, StateHistogram};

use crate::Root;
use crate::cpuidle;

pub use program::Tracepoint;

/// What the programs remember of the present stay, before the counts.
const HEADER_BYTE_COUNT: usize = 64;
/// A count and a sum.
const SLOT_BYTE_COUNT: usize = 16;
/// Where the count of states beyond the table is.
const BEYOND_AT: usize = 48;

/// What the kernel's memory for a CPU looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    state_count: usize,
}

impl Layout {
    /// Makes room for the states of this machine. Without a driver, the kernel reports state 1 for its own routine.
    pub fn of(root: &Root) -> Self {
        let state_counts =
            root.online_cpus().into_iter().map(|cpu| cpuidle::states(root, cpu).len());
        Layout { state_count: state_counts.max().unwrap_or(0).max(2) }
    }

    /// Returns how many bytes the kernel keeps for each CPU.
    pub fn byte_count(self) -> usize {
        HEADER_BYTE_COUNT + self.state_count * 2 * BIN_COUNT * SLOT_BYTE_COUNT
    }

    /// Returns the programs, for a map with one value of this layout for each CPU.
    pub fn programs(self, map_fd: i32) -> [(Tracepoint, Vec<u64>); 2] {
        program::programs(self, map_fd)
    }

    /// Reads what the programs counted: the values of all possible CPUs, one after the other.
    pub fn histograms(self, root: &Root, values: &[u8]) -> Vec<CpuHistogram> {
        let possible = root.cpus_in("sys/devices/system/cpu/possible").unwrap_or_default();
        let online = root.online_cpus();
        let values = possible.into_iter().zip(values.chunks_exact(self.byte_count()));
        let found = values.map(|(cpu, value)| (online.contains(&cpu), self.histogram(cpu, value)));
        found
            .filter(|(is_online, one)| *is_online || one.stay_count() > 0)
            .map(|(_, one)| one)
            .collect()
    }

    fn histogram(self, cpu: u16, value: &[u8]) -> CpuHistogram {
        let number = |at: usize| {
            let bytes = value[at..].first_chunk().copied();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        let mut states = Vec::new();
        for state in 0..self.state_count {
            for is_timer in [false, true] {
                let first = slot_at(state, is_timer, 0);
                let bins = (0..BIN_COUNT).map(|place| {
                    let at = first + place * SLOT_BYTE_COUNT;
                    Bin { place: place as u8, stay_count: number(at), stay_sum_ns: number(at + 8) }
                });
                let bins: Vec<Bin> = bins.filter(|bin| bin.stay_count > 0).collect();
                if !bins.is_empty() {
                    states.push(StateHistogram { state: state as u8, is_timer, bins });
                }
            }
        }
        CpuHistogram { cpu, states, beyond_count: number(BEYOND_AT) }
    }
}

/// The highest number of CPUs that the kernel may have, in the sense of its maps.
pub fn possible_cpu_count(root: &Root) -> usize {
    root.possible_cpu_count()
}

fn slot_at(state: usize, is_timer: bool, place: usize) -> usize {
    let row = state * 2 + usize::from(is_timer);
    HEADER_BYTE_COUNT + (row * BIN_COUNT + place) * SLOT_BYTE_COUNT
}
