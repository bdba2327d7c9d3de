//! What the kernel counts about idle states, for every CPU and state, and what happened between two
//! readings.
//!
//! The files are opened once and read with pread into memory that is used again, so a reading allocates
//! nothing and costs one system call for each number.
//!
//! # What the numbers can and cannot say
//!
//! * `usage`, `time`, `above` and `below` are added to when a stay **ends**. A stay in progress is in none
//!   of them. A CPU that has been idle for ten seconds may count nothing in the first nine and ten seconds
//!   in the last one.
//! * `time` is what the kernel measured from asking for the state to running again. What the hardware did
//!   in that time is not known.
//! * `above` (too deep) counts stays shorter than the state's target residency while a shallower state was
//!   enabled. `below` (too shallow) counts stays that a deeper enabled state would have paid for. Linux has
//!   both since 5.0, and `rejected` since 5.9.
//! * The numbers are read one after another while the machine runs. Two of them may be one stay apart.

use idlewise_core::words;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use idlewise_machine::MachineState;
use idlewise_trace::{Driver, cpus_in_words};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::MachineClock;
use crate::cpuidle::{self, state_folder};
use crate::note::driver;
use crate::root::{small_number as number, small_text};
use crate::{Root, cpu_is_in};

/// Stays that may end between the readings of two files of a state, at both ends of an interval.
const STAYS_BETWEEN_READINGS: u64 = 2;
/// The part of an interval, and the time in µs, by which reading may be late.
const READING_SHARE: u64 = 50;
const READING_US: u64 = 1_000;

/// Files that the process may need besides ours.
const OTHER_FILE_COUNT: u64 = 64;
/// Files for each state: usage, time, above, below, rejected, disable.
const FILES_PER_STATE: u64 = 6;
/// In how many readings again every file has been read.
const TURN_COUNT: usize = 4;
/// Enough for a list of 16,384 CPUs that names every second one, twice what the kernel can be built for.
pub(crate) const LIST_BYTE_COUNT_MAX: usize = 64 << 10;

/// Why the counts of idle states cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountsError {
    /// Nothing counts idle states here.
    #[error(
        "no idle driver is active here ({found}), so the kernel counts no idle states; that is usual in \
         virtual machines: run it on the host, or see `idlewise lab boot` for what idle CPUs do instead"
    )]
    NoDriver {
        /// What `current_driver` says.
        found: String,
    },
    /// There is a driver, but no CPU shows states.
    #[error(
        "{driver} offers no idle states for {cpus}; look at /sys/devices/system/cpu/cpu0/cpuidle and at \
         idle=, max_cstate= on the kernel's command line"
    )]
    NoStates {
        /// The driver.
        driver: String,
        /// The CPUs that were asked for.
        cpus: String,
    },
    /// The machine does not list a CPU.
    #[error("{}: it lists no CPU; if the machine was captured, capture that file too", path.display())]
    NoCpus {
        /// The file.
        path: PathBuf,
    },
    /// There is no such folder as `/sys/devices/system/cpu`.
    #[error("{}: cannot be read: {source}; is /sys mounted?", path.display())]
    NoSysfs {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A counter cannot be opened.
    #[error("cannot read {}: {source}{}", path.display(), advice(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; the kernel lets everybody read it, so a container or a security policy hides it: run \
             outside of it"
        }
        _ if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            "; raise the limit with `ulimit -n`, or name fewer CPUs"
        }
        _ => "",
    }
}

/// Reads the counts of some CPUs again and again.
#[derive(Debug)]
pub struct CountsReader {
    root: Root,
    clock: MachineClock,
    /// `None` if the kernel has no list of them; then every CPU counts as online.
    online: Option<File>,
    /// Memory for that list.
    list: Vec<u8>,
    cpus: Vec<CpuFiles>,
    /// Whose rarely changing files the next reading again is for.
    turn: usize,
}

#[derive(Debug)]
struct CpuFiles {
    cpu: u16,
    /// How often the files were opened. The counts of two generations have nothing to do with each other.
    generation: u32,
    states: Vec<MachineState>,
    files: Vec<StateFiles>,
}

#[derive(Debug)]
struct StateFiles {
    usage: Option<File>,
    time: Option<File>,
    above: Option<File>,
    below: Option<File>,
    rejected: Option<File>,
    disable: Option<File>,
}

/// What the kernel has counted of one state of one CPU since the CPU got its idle states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Entries.
    pub usage: u64,
    /// Time in the state in µs, as the kernel asked for it.
    pub time_us: u64,
    /// Stays that were too short for the state. `None` if the kernel does not count them.
    pub above: Option<u64>,
    /// Stays that a deeper state would have paid for. `None` if the kernel does not count them.
    pub below: Option<u64>,
    /// Entries that the driver or the firmware refused. `None` if the kernel does not count them.
    pub rejected: Option<u64>,
    /// Whether somebody has disabled it.
    pub is_disabled: bool,
}

/// The counts of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// The CPU.
    pub cpu: u16,
    /// Whether the kernel ran it at that moment.
    pub is_online: bool,
    /// When it was read, on the machine's clock.
    pub at: Duration,
    /// The states, shallowest first. Empty if they could not be read.
    pub states: Vec<StateCounts>,
    generation: u32,
}

/// One reading of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// When it began, on the machine's clock.
    pub at: Duration,
    /// In the order in which they were asked for.
    pub cpus: Vec<CpuCounts>,
}

words! {
    /// Why nothing can be said about a CPU between two readings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Unusable {
        /// It was offline at both readings.
        Offline = "stayed offline",
        /// It went offline in between.
        WentOffline = "went offline in the meantime",
        /// It came online in between.
        CameOnline = "came online in the meantime",
        /// It has no idle states, or they cannot be read.
        NoStates = "showed no idle states",
        /// A file of one of its states has nothing that can be read.
        Unreadable = "had an idle state that cannot be read",
        /// Its idle states were set up anew in between, for example by another driver.
        SetUpAnew = "got new idle states in the meantime",
        /// A count went backwards, which the kernel's never do otherwise.
        WentBackwards = "had counts that went backwards",
        /// There were more misses than stays, or more idle time than passed.
        Impossible = "counted more misses than stays, or more idle time than passed",
    }
}

/// What a state of a CPU counted between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateDifference {
    /// Stays that ended.
    pub usage: u64,
    /// Their time in µs, without what a stay may have had before the interval.
    pub time_us: u64,
    /// Too deep. `None` if the kernel does not count them.
    pub above: Option<u64>,
    /// Too shallow. `None` if the kernel does not count them.
    pub below: Option<u64>,
    /// Refused entries. `None` if the kernel does not count them.
    pub rejected: Option<u64>,
    /// Whether it was disabled at the second reading.
    pub is_disabled: bool,
    /// Whether somebody enabled or disabled it in between.
    pub disabled_changed: bool,
}

/// What a CPU counted between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuDifference {
    /// The CPU.
    pub cpu: u16,
    /// The time between its two readings.
    pub elapsed: Duration,
    /// Why there is nothing to say. `states` is empty then.
    pub unusable: Option<Unusable>,
    /// Whether a stay began before the interval, and its time was cut to what passed.
    pub is_cut: bool,
    /// The states, shallowest first.
    pub states: Vec<StateDifference>,
}

impl CpuDifference {
    /// Returns the number of stays in all states.
    pub fn usage(&self) -> u64 {
        self.states.iter().map(|state| state.usage).sum()
    }

    /// Makes the counts fit to each other and to the time that passed, or calls them impossible.
    ///
    /// Files are read one after another, so a stay that ends between two of them may be in one count and not in the
    /// other. At most one stay began before the interval, so at most one state has more time than passed.
    ///
    /// `up` is for how long the machine has run.
    fn limit(&mut self, up: Duration) {
        for state in &mut self.states {
            let missed = state.above.unwrap_or(0).saturating_add(state.below.unwrap_or(0));
            if missed > state.usage.saturating_add(STAYS_BETWEEN_READINGS) {
                self.unusable = Some(Unusable::Impossible);
            }
            state.above = state.above.map(|above| above.min(state.usage));
            let left = state.usage - state.above.unwrap_or(0);
            state.below = state.below.map(|below| below.min(left));
        }
        let elapsed_us = u64::try_from(self.elapsed.as_micros()).unwrap_or(u64::MAX);
        let all_us =
            self.states.iter().fold(0, |sum: u64, state| sum.saturating_add(state.time_us));
        if let Some(longest) = self.states.iter_mut().max_by_key(|state| state.time_us) {
            let others_us = all_us.saturating_sub(longest.time_us);
            let up_us = u64::try_from(up.as_micros()).unwrap_or(u64::MAX);
            let is_longer =
                |us: u64, all_us: u64| us > all_us + all_us / READING_SHARE + READING_US;
            // That one stay began before the interval, but not before the machine did.
            if is_longer(others_us, elapsed_us) || is_longer(longest.time_us, up_us) {
                self.unusable = Some(Unusable::Impossible);
            }
            self.is_cut = all_us > elapsed_us + elapsed_us / READING_SHARE;
            longest.time_us = longest.time_us.min(elapsed_us.saturating_sub(others_us));
        }
    }
}

/// What all CPUs counted between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The time between the beginnings of the readings.
    pub elapsed: Duration,
    /// In the order of the reader.
    pub cpus: Vec<CpuDifference>,
}

impl CountsReader {
    /// Returns how many files a process may have to open that reads the counts of these CPUs.
    pub fn file_count(root: &Root, cpus: &[u16]) -> u64 {
        let states = |cpu: &u16| cpuidle::states(root, *cpu).len() as u64;
        cpus.iter().map(states).sum::<u64>() * FILES_PER_STATE + OTHER_FILE_COUNT
    }

    /// Opens the counters of these CPUs, offline or not. A CPU without states is kept, without states.
    ///
    /// Six files a state stay open. If that needs it, the process's own limit on open files is raised as
    /// far as the system allows.
    ///
    /// # Errors
    /// Fails if none of the CPUs has counters that are all there, or if one that exists cannot be opened.
    pub fn open(root: &Root, cpus: &[u16]) -> Result<Self, CountsError> {
        const FOLDER: &str = "sys/devices/system/cpu";
        root.open(FOLDER)
            .map_err(|source| CountsError::NoSysfs { path: root.path(FOLDER), source })?;
        if cpus.is_empty() {
            return Err(CountsError::NoCpus { path: root.path("sys/devices/system/cpu/present") });
        }
        let mut opened = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            let states = cpuidle::states(root, cpu);
            if opened.is_empty() {
                allow_files(cpus.len() as u64 * states.len() as u64 * FILES_PER_STATE);
            }
            let files = open_states(root, cpu, states.len())?;
            opened.push(CpuFiles { cpu, generation: 0, states, files });
        }
        if opened.iter().all(|cpu| cpu.states.is_empty()) {
            return Err(match driver(root) {
                Some(Driver::Named(driver)) => {
                    CountsError::NoStates { driver, cpus: cpus_in_words(cpus) }
                }
                found => {
                    let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
                    CountsError::NoDriver { found }
                }
            });
        }
        // One such CPU is left out, but not all of them.
        let missing = opened.iter().map(|cpu| missing(root, cpu.cpu, &cpu.files));
        if let Some(path) =
            missing.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next())
        {
            let source = io::ErrorKind::NotFound.into();
            return Err(CountsError::Unreadable { path, source });
        }
        let mut list = vec![0; LIST_BYTE_COUNT_MAX];
        let online = open_list(root, &mut list)?;
        let clock = MachineClock::new(root);
        Ok(CountsReader { root: root.clone(), clock, online, list, cpus: opened, turn: 0 })
    }

    /// Returns the CPUs, in the order in which they were asked for.
    pub fn cpus(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.cpus.iter().map(|cpu| cpu.cpu)
    }

    /// Returns the idle states of the CPU at that place in [`CountsReader::cpus`], shallowest first.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn states(&self, index: usize) -> &[MachineState] {
        &self.cpus[index].states
    }

    /// Returns the file because of which not all states of a CPU are counted, by the CPU's place.
    pub fn unreadable(&self, index: usize) -> Option<PathBuf> {
        let CpuFiles { cpu, states, files, .. } = &self.cpus[index];
        missing(&self.root, *cpu, files)
            .or_else(|| cpuidle::unreadable(&self.root, *cpu, states.len()))
    }

    /// Returns the machine's clock.
    pub fn clock(&self) -> &MachineClock {
        &self.clock
    }

    /// Reads all counts. What `into` held before is lost; its memory is used again.
    pub fn read(&mut self, into: &mut Counts) {
        into.cpus.iter_mut().for_each(|cpu| cpu.states.clear());
        self.read_again(into);
    }

    /// Like [`CountsReader::read`], for those who read every second: leaves out what cannot have changed, or
    /// changes rarely. `into` must hold what this reader read last.
    ///
    /// The kernel adds to `time`, `above` and `below` of a state only with its `usage`, so they are read if that
    /// has changed. `rejected` and `disable` change without it. They are read of one CPU in `TURN_COUNT` each
    /// time, in turns.
    pub fn read_again(&mut self, into: &mut Counts) {
        self.turn = (self.turn + 1) % TURN_COUNT;
        into.at = self.clock.now();
        into.cpus.resize_with(self.cpus.len(), CpuCounts::default);
        let online = self.online.as_ref().and_then(|file| small_text(file, &mut self.list).ok());
        for (index, (cpu, into)) in self.cpus.iter_mut().zip(&mut into.cpus).enumerate() {
            let is_its_turn = index % TURN_COUNT == self.turn;
            into.cpu = cpu.cpu;
            into.is_online = online.is_none_or(|list| cpu_is_in(list, cpu.cpu));
            into.at = self.clock.now();
            if !cpu.read_again(&mut into.states, is_its_turn) {
                // The kernel removed the files, perhaps to make new ones.
                cpu.open_again(&self.root);
                if !cpu.read(&mut into.states) {
                    into.states.clear();
                }
            }
            into.generation = cpu.generation;
        }
    }
}

/// Opens the list of online CPUs, if there is one. A list that cannot be read would make CPUs of it that are offline.
fn open_list(root: &Root, memory: &mut [u8]) -> Result<Option<File>, CountsError> {
    const LIST: &str = "sys/devices/system/cpu/online";
    let Ok(file) = root.open(LIST) else { return Ok(None) };
    match small_text(&file, memory) {
        Ok(_) => Ok(Some(file)),
        Err(source) => Err(CountsError::Unreadable { path: root.path(LIST), source }),
    }
}

impl CpuFiles {
    /// Returns whether everything could be read.
    fn read(&self, into: &mut Vec<StateCounts>) -> bool {
        into.clear();
        for files in &self.files {
            let Some(counts) = files.read() else { return false };
            into.push(counts);
        }
        !into.is_empty()
    }

    /// Like [`CpuFiles::read`], where the last reading is known. All is read if there is none.
    fn read_again(&self, into: &mut Vec<StateCounts>, is_its_turn: bool) -> bool {
        if into.len() != self.files.len() {
            return self.read(into);
        }
        for (files, counts) in self.files.iter().zip(into.iter_mut()) {
            match files.read_again(counts, is_its_turn) {
                Some(now) => *counts = now,
                None => return false,
            }
        }
        !into.is_empty()
    }

    fn open_again(&mut self, root: &Root) {
        let states = cpuidle::states(root, self.cpu);
        match open_states(root, self.cpu, states.len()) {
            Ok(files) if !files.is_empty() => {
                (self.files, self.states) = (files, states);
                self.generation += 1;
            }
            // They may come back. Until then, the names of the states are still of use.
            _ => {}
        }
    }
}

impl StateFiles {
    fn open(root: &Root, folder: &str) -> Result<Self, CountsError> {
        // Without its stays or their time a state cannot be counted, and its CPU is left out.
        let file = |name: &str| {
            let name = format!("{folder}/{name}");
            match root.open(&name) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(CountsError::Unreadable { path: root.path(&name), source }),
            }
        };
        Ok(StateFiles {
            usage: file("usage")?,
            time: file("time")?,
            above: file("above")?,
            below: file("below")?,
            rejected: file("rejected")?,
            disable: file("disable")?,
        })
    }

    fn read_again(&self, known: &StateCounts, is_its_turn: bool) -> Option<StateCounts> {
        let mut counts = StateCounts { usage: number(self.usage.as_ref()?)?, ..*known };
        if counts.usage != known.usage {
            counts.time_us = number(self.time.as_ref()?)?;
            counts.above = optional(&self.above)?;
            counts.below = optional(&self.below)?;
        }
        if is_its_turn {
            counts.rejected = optional(&self.rejected)?;
            counts.is_disabled = optional(&self.disable)?.is_some_and(|disabled| disabled != 0);
        }
        Some(counts)
    }

    fn read(&self) -> Option<StateCounts> {
        Some(StateCounts {
            usage: number(self.usage.as_ref()?)?,
            time_us: number(self.time.as_ref()?)?,
            above: optional(&self.above)?,
            below: optional(&self.below)?,
            rejected: optional(&self.rejected)?,
            is_disabled: optional(&self.disable)?.is_some_and(|disabled| disabled != 0),
        })
    }
}

/// The number in a file that the kernel may not have: `Some(None)` if it has none, `None` if it cannot be read.
fn optional(file: &Option<File>) -> Option<Option<u64>> {
    match file {
        None => Some(None),
        Some(file) => number(file).map(Some),
    }
}

/// The file without which one of these states cannot be counted.
fn missing(root: &Root, cpu: u16, files: &[StateFiles]) -> Option<PathBuf> {
    files.iter().enumerate().find_map(|(state, files)| {
        let name = match (&files.usage, &files.time) {
            (None, _) => "usage",
            (_, None) => "time",
            _ => return None,
        };
        Some(root.path(&format!("{}/{name}", state_folder(cpu, state))))
    })
}

fn open_states(root: &Root, cpu: u16, count: usize) -> Result<Vec<StateFiles>, CountsError> {
    (0..count).map(|index| StateFiles::open(root, &state_folder(cpu, index))).collect()
}

impl Counts {
    /// Returns what was counted since `before`, which the same reader must have read.
    pub fn since(&self, before: &Counts) -> Difference {
        let mut difference = Difference::default();
        self.since_into(before, &mut difference);
        difference
    }

    /// Like [`Counts::since`], using the memory of `into` again.
    pub fn since_into(&self, before: &Counts, into: &mut Difference) {
        into.elapsed = self.at.saturating_sub(before.at);
        into.cpus.resize_with(self.cpus.len().min(before.cpus.len()), CpuDifference::default);
        let pairs = self.cpus.iter().zip(&before.cpus);
        for ((after, before), into) in pairs.zip(&mut into.cpus) {
            into.cpu = after.cpu;
            into.elapsed = after.at.saturating_sub(before.at);
            into.unusable = after.states_since(before, &mut into.states);
            into.is_cut = false;
            if into.unusable.is_none() {
                into.limit(after.at);
            }
            if into.unusable.is_some() {
                into.states.clear();
            }
        }
    }
}

impl CpuCounts {
    fn states_since(
        &self,
        before: &CpuCounts,
        into: &mut Vec<StateDifference>,
    ) -> Option<Unusable> {
        into.clear();
        match (before.is_online, self.is_online) {
            (false, false) => return Some(Unusable::Offline),
            (true, false) => return Some(Unusable::WentOffline),
            (false, true) => return Some(Unusable::CameOnline),
            (true, true) => {}
        }
        if self.states.is_empty() || before.states.is_empty() {
            return Some(Unusable::NoStates);
        }
        if self.generation != before.generation || self.states.len() != before.states.len() {
            return Some(Unusable::SetUpAnew);
        }
        for (after, before) in self.states.iter().zip(&before.states) {
            match after.since(before) {
                Some(state) => into.push(state),
                None => return Some(Unusable::WentBackwards),
            }
        }
        None
    }
}

impl StateCounts {
    /// `None` if a count went backwards.
    fn since(&self, before: &StateCounts) -> Option<StateDifference> {
        let optional = |after: Option<u64>, before: Option<u64>| match (after, before) {
            (Some(after), Some(before)) => after.checked_sub(before).map(Some),
            _ => Some(None),
        };
        Some(StateDifference {
            usage: self.usage.checked_sub(before.usage)?,
            time_us: self.time_us.checked_sub(before.time_us)?,
            above: optional(self.above, before.above)?,
            below: optional(self.below, before.below)?,
            rejected: optional(self.rejected, before.rejected)?,
            is_disabled: self.is_disabled,
            disabled_changed: self.is_disabled != before.is_disabled,
        })
    }
}

/// Raises the limit on open files if that many more would exceed it. Only root may go beyond the hard limit.
fn allow_files(count: u64) {
    let limits = getrlimit(Resource::Nofile);
    let wanted = count.saturating_add(OTHER_FILE_COUNT);
    if limits.current.is_some_and(|current| current < wanted) {
        let maximum = limits.maximum.map(|maximum| maximum.max(wanted));
        let raised = Rlimit { current: Some(wanted), maximum };
        if setrlimit(Resource::Nofile, raised).is_err() {
            // If this fails too, opening the files says what to do.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
        }
    }
}
