//! Idle histograms: how often each CPU stayed in each idle state, by the length of the stay. `idlewise record
//! --histogram` writes them. A histogram has no order of stays, so no governor can be replayed on it.
//!
//! # The file
//!
//! JSON, with `"kind": "idle histogram"`. `note` describes the machine like the note in a trace.dat. `cpus` has the
//! CPUs; `states` of each, the stays of one idle state which a timer ended, or which something else ended;
//! and `bins` of those, triples of place, count, and sum in nanoseconds. Places without stays are left out.
//!
//! Place p holds stays from 2^((18 + p) / 2) ns on, up to where the next begins: half-octaves from 512 ns on. The
//! first also holds shorter stays, and the last, from 24.3 s on, longer ones. Sums are exact, so times and costs
//! that are linear in the length do not suffer from the coarse lengths.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use idlewise_machine::Machine;
use serde::{Deserialize, Serialize};

use crate::MachineNote;

/// How many half-octaves there are.
pub const BIN_COUNT: usize = 52;

/// The half-octave of the first place: twice the logarithm to base 2 of 512.
pub const FIRST_HALF_OCTAVE: u8 = 18;

/// What a file begins with that is one.
const KIND: &str = "idle histogram";

/// The version of the format.
const VERSION: u32 = 1;

/// A file of 8192 CPUs with ten states each is smaller.
const BYTE_COUNT_MAX: u64 = 256 << 20;

/// A machine's histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleHistogram {
    /// Always `idle histogram`.
    kind: String,
    /// The version of the format.
    schema: u32,
    /// The machine when the recording began.
    pub note: MachineNote,
    /// How long it was counted.
    pub recorded_ns: u64,
    /// The CPUs.
    pub cpus: Vec<CpuHistogram>,
}

/// A CPU's histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuHistogram {
    /// The CPU.
    pub cpu: u16,
    /// Its stays by state and by what ended them; those without any are left out.
    pub states: Vec<StateHistogram>,
    /// Stays in states that the machine did not have when the recording began.
    pub beyond_count: u64,
}

/// The stays in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHistogram {
    /// The state's index.
    pub state: u8,
    /// Whether a timer ended them, the tick included.
    pub is_timer: bool,
    /// The stays by length, shortest first.
    pub bins: Vec<Bin>,
}

/// Stays of about the same length. In JSON: place, count, sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u8, u64, u64)", into = "(u8, u64, u64)")]
pub struct Bin {
    /// The half-octave.
    pub place: u8,
    /// How many.
    pub stay_count: u64,
    /// How long all of them together.
    pub stay_sum_ns: u64,
}

impl From<(u8, u64, u64)> for Bin {
    fn from((place, stay_count, stay_sum_ns): (u8, u64, u64)) -> Self {
        Bin { place, stay_count, stay_sum_ns }
    }
}

impl From<Bin> for (u8, u64, u64) {
    fn from(bin: Bin) -> Self {
        (bin.place, bin.stay_count, bin.stay_sum_ns)
    }
}

impl Bin {
    /// Returns the shortest length in this place.
    pub fn from_ns(self) -> u64 {
        if self.place == 0 { 0 } else { start_ns(self.place) }
    }

    /// Returns the length at which the next place begins; `None` for the last place.
    pub fn to_ns(self) -> Option<u64> {
        (usize::from(self.place) + 1 < BIN_COUNT).then(|| start_ns(self.place + 1))
    }
}

/// Where a place begins, rounded up to whole nanoseconds.
fn start_ns(place: u8) -> u64 {
    2_f64.powf(f64::from(FIRST_HALF_OCTAVE + place) / 2.0).ceil() as u64
}

/// Returns the place of a stay, as the kernel's program computes it: with the highest 16 bits of its length.
pub fn place_of(stay_ns: u64) -> u8 {
    let exponent = stay_ns.checked_ilog2().unwrap_or(0);
    let high = (stay_ns << (63 - exponent)) >> 48;
    let half_octave = 2 * i64::from(exponent) + i64::from(((high * high) >> 31) as u8);
    (half_octave - i64::from(FIRST_HALF_OCTAVE)).clamp(0, BIN_COUNT as i64 - 1) as u8
}

impl CpuHistogram {
    /// Returns how many stays it has.
    pub fn stay_count(&self) -> u64 {
        self.bins().map(|(_, bin)| bin.stay_count).fold(0, u64::saturating_add)
    }

    /// Returns all bins, each with its state's histogram.
    pub fn bins(&self) -> impl Iterator<Item = (&StateHistogram, Bin)> {
        self.states.iter().flat_map(|state| state.bins.iter().map(move |bin| (state, *bin)))
    }
}

impl IdleHistogram {
    /// Makes a histogram.
    pub fn new(note: MachineNote, recorded_ns: u64, cpus: Vec<CpuHistogram>) -> Self {
        IdleHistogram { kind: KIND.to_owned(), schema: VERSION, note, recorded_ns, cpus }
    }

    /// Returns the file's text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("keys are strings");
        text.push('\n');
        text
    }

    /// Parses a file's text.
    ///
    /// # Errors
    /// Returns a sentence that says what is wrong.
    pub fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if head.schema != VERSION {
            return Err(format!(
                "an idle histogram of format {}, and this program knows {VERSION}: use the idlewise that wrote it",
                head.schema
            ));
        }
        let histogram: IdleHistogram =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        histogram.check()?;
        Ok(histogram)
    }

    /// Reads a file; `None` if it is something else, which others may know how to read.
    pub fn read(path: &Path) -> Option<Result<Self, String>> {
        // A pipe can be read only once, by who knows what is in it.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let mut head = [0; 64];
        let count = file.read(&mut head).ok()?;
        let head: String = String::from_utf8_lossy(&head[..count])
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let is_one = head.strip_prefix('{').map(str::trim_start).is_some_and(|head| {
            head.strip_prefix("\"kind\"")
                .and_then(|rest| rest.trim_start().strip_prefix(':'))
                .is_some_and(|rest| rest.trim_start().starts_with("\"idle histogram\""))
        });
        is_one.then(|| {
            let bytes = crate::read_small_file(path, BYTE_COUNT_MAX);
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
            Self::from_json(&text.map_err(|error| error.to_string())?)
        })
    }

    /// What no machine counts.
    fn check(&self) -> Result<(), String> {
        if self.kind != KIND {
            return Err(format!("not an idle histogram but '{}'", self.kind));
        }
        if !self.cpus.is_sorted_by(|one, other| one.cpu < other.cpu) {
            return Err("its CPUs are not in order".to_owned());
        }
        for cpu in &self.cpus {
            let mut sum_ns = 0_u64;
            for (state, bin) in cpu.bins() {
                let fail = |what: &str| {
                    Err(format!(
                        "CPU {}, state {}, place {}: {what}",
                        cpu.cpu, state.state, bin.place
                    ))
                };
                if usize::from(bin.place) >= BIN_COUNT {
                    return fail("there are no more than 52 places");
                }
                if bin.stay_count == 0 {
                    return fail("no stays, which should be left out");
                }
                let least = bin.stay_count.checked_mul(bin.from_ns());
                let most = bin.to_ns().map(|to| bin.stay_count.saturating_mul(to));
                // Both ends are rounded, each stay by less than a nanosecond and a part of 2^15.
                let slack = bin.stay_count.saturating_add(bin.stay_sum_ns >> 14);
                let is_less =
                    least.is_none_or(|least| bin.stay_sum_ns.saturating_add(slack) < least);
                let is_more = most.is_some_and(|most| bin.stay_sum_ns > most.saturating_add(slack));
                if is_less || is_more {
                    return fail("the sum does not fit the count and the length");
                }
                sum_ns = sum_ns.saturating_add(bin.stay_sum_ns);
            }
            // A stay that began before the recording is not counted, so no CPU was idle for longer.
            if sum_ns / 2 > self.recorded_ns {
                return Err(format!("CPU {} was idle for longer than was recorded", cpu.cpu));
            }
        }
        Ok(())
    }

    /// Returns the machine with a CPU's states, if it had any.
    pub fn machine(&self, cpu: u16) -> Option<&Machine> {
        let table = self.note.tables.iter().find(|table| table.cpus.contains(&cpu))?;
        Some(&table.machine)
    }

    /// Returns a state's name on a CPU.
    pub fn state_name(&self, cpu: u16, state: u8) -> String {
        let name = |machine: &Machine| Some(machine.states.get(usize::from(state))?.name.clone());
        self.machine(cpu).and_then(name).unwrap_or_else(|| format!("state {state}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> IdleHistogram {
        let bin = |stay_ns: u64, stay_count: u64| {
            let stay_sum_ns = stay_ns * stay_count;
            Bin { place: place_of(stay_ns), stay_count, stay_sum_ns }
        };
        let of = |state, is_timer, bins| StateHistogram { state, is_timer, bins };
        let states = vec![
            of(0, false, vec![bin(300, 5), bin(2_000, 1)]),
            of(1, true, vec![bin(4_000_000, 100)]),
        ];
        let cpus = vec![CpuHistogram { cpu: 0, states, beyond_count: 0 }];
        IdleHistogram::new(MachineNote::default(), 1_000_000_000, cpus)
    }

    #[test]
    fn reads_what_it_writes() {
        let histogram = histogram();
        assert_eq!(IdleHistogram::from_json(&histogram.to_json()), Ok(histogram.clone()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("histogram.json");
        std::fs::write(&path, histogram.to_json()).unwrap();
        assert_eq!(IdleHistogram::read(&path), Some(Ok(histogram)));
        for other in ["", "PAR1", "{}", "{\"kind\": \"else\"}", "{\"schema\": 1}"] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(IdleHistogram::read(&path), None, "{other}");
        }
        assert_eq!(IdleHistogram::read(folder.path()), None);
        assert_eq!(IdleHistogram::read(Path::new("/no/such/file")), None);
    }

    #[test]
    fn what_no_machine_counts_is_refused_by_name() {
        let refused = |from: &str, to: &str, part: &str| {
            let text = histogram().to_json();
            let changed = text.replacen(from, to, 1);
            assert_ne!(text, changed, "{from}");
            let error = IdleHistogram::from_json(&changed).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused("\"schema\":1", "\"schema\":2", "format 2, and this program knows 1");
        refused("[0,5,1500]", "[0,5,15000]", "CPU 0, state 0, place 0: the sum does not fit");
        refused("[0,5,1500]", "[0,0,0]", "no stays");
        refused("[0,5,1500]", "[52,5,1500]", "no more than 52 places");
        refused("[0,5,1500]", "[51,18446744073709551615,18446744073709551615]", "does not fit");
        refused("[0,5,1500]", "[300,5,1500]", "300");
        refused("[0,5,1500]", "[0,5]", "invalid length");
        refused("\"recorded_ns\":1000000000", "\"recorded_ns\":10", "idle for longer");
        refused("\"recorded_ns\":1000000000", "\"recorded_ns\":-1", "-1");
        refused("\"cpu\":0", "\"cpu\":70000", "70000");
    }

    #[test]
    fn places_are_half_octaves() {
        for place in 1..BIN_COUNT as u8 {
            let bin = Bin { place, stay_count: 1, stay_sum_ns: 0 };
            let from_ns = bin.from_ns();
            // The program compares 16 bits, which is less than a part in 2^15.
            assert_eq!(place_of(from_ns + (from_ns >> 14)), place, "{from_ns}");
            assert_eq!(place_of(from_ns - 1 - (from_ns >> 14)), place - 1, "{from_ns}");
        }
        assert_eq!([0, 1, 511, 512, u64::MAX].map(place_of), [0, 0, 0, 0, 51]);
        assert_eq!([724, 725, 1_023, 1_024].map(place_of), [0, 1, 1, 2]);
    }
}
