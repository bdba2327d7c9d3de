//! CPUs or groups of them as rows: what they did, sorted, filtered and as columns.

use idlewise_core::words;
use std::cmp::Ordering;

use super::{Condition, Figures, Layout};
use crate::{Column, Value};

words! {
    /// What a line is about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Grouping {
        /// Each CPU.
        #[default]
        Cpu = "cpu",
        /// The CPUs that share a last-level cache.
        Cache = "cache",
        /// The CPUs of a package.
        Package = "package",
        /// All CPUs.
        Machine = "machine",
    }
}

impl Grouping {
    /// Returns the next one; the first after the last.
    #[must_use]
    pub fn next(self) -> Self {
        next_of(&Grouping::ALL, self)
    }
}

words! {
    /// What lines are sorted by. Numbers begin with the greatest, CPUs with the first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SortKey {
        /// The number of the CPU.
        #[default]
        Cpu = "cpu",
        /// Time outside of idle states.
        Running = "running",
        /// Entries of idle states.
        Entries = "entries",
        /// Stays that were too short for their state.
        TooDeep = "too-deep",
        /// Stays that were long enough for a deeper state.
        TooShallow = "too-shallow",
        /// Time spent leaving states.
        Waiting = "waiting",
        /// The lowest limit of the exit latency first.
        Limit = "limit",
    }
}

impl SortKey {
    /// Returns the next one; the first after the last.
    #[must_use]
    pub fn next(self) -> Self {
        next_of(&SortKey::ALL, self)
    }
}

fn next_of<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let place = all.iter().position(|one| *one == now).unwrap_or(0);
    all[(place + 1) % all.len()]
}

/// Which CPUs are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    cpus: Vec<(u16, u16)>,
    is_limited: bool,
}

impl Matching {
    /// Parses what a user typed: a list of CPUs such as `0-3,8`, or `limited` for CPUs with a latency limit of
    /// their own. Nothing shows all.
    ///
    /// # Errors
    /// Says in a few words what is expected.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "give CPUs such as 0-3,8, or `limited`";
        let text = text.trim();
        if text.is_empty() {
            return Ok(Matching::default());
        }
        if text == "limited" {
            return Ok(Matching { cpus: Vec::new(), is_limited: true });
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (range.0 <= range.1).then_some(range)
        };
        let cpus: Option<Vec<(u16, u16)>> = text.split(',').map(range).collect();
        Ok(Matching { cpus: cpus.ok_or(EXPECTED)?, is_limited: false })
    }

    fn shows(&self, cpu: u16, limit_ns: Option<u64>) -> bool {
        let is_listed = self.cpus.iter().any(|(first, last)| (*first..=*last).contains(&cpu));
        (self.cpus.is_empty() || is_listed) && (!self.is_limited || limit_ns.is_some())
    }
}

/// What a CPU or a group of CPUs did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// `7`, `package 0`, `cache of CPU 8` or `all`.
    pub name: String,
    /// The first of its CPUs.
    pub first_cpu: u16,
    /// How many CPUs it has.
    pub cpu_count: u64,
    /// The condition of the CPU; of a group: usable if one of its CPUs is.
    pub condition: Condition,
    /// The share of time in each state of [`Layout::slots`].
    pub shares: Vec<f64>,
    /// The share of time in stays that are not over, or that no driver counts; 0 if that is not known.
    pub open_ratio: f64,
    /// The rest of the time; `None` if nothing says how long the CPUs were idle.
    pub running_ratio: Option<f64>,
    /// Entries of idle states each second. As many wake-ups follow.
    pub entries_per_s: Option<f64>,
    /// The share of entries that were too deep by the kernel's count.
    pub too_deep_ratio: Option<f64>,
    /// The share of entries that were too shallow by the kernel's count.
    pub too_shallow_ratio: Option<f64>,
    /// Requests each second that were refused.
    pub rejected_per_s: Option<f64>,
    /// The share of time spent leaving states: entries times the declared exit latency.
    pub waiting_ratio: Option<f64>,
    /// The lowest limit of the exit latency of its CPUs, or that of the machine if it is lower.
    pub latency_limit_ns: Option<u64>,
    /// How many of its CPUs have a limit of their own.
    pub limited_count: u64,
    /// How many states are disabled, over all its CPUs.
    pub disabled_count: u64,
}

/// Sums of counters that a kernel may lack.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    is_known: bool,
}

impl Sum {
    fn add(&mut self, count: Option<u64>) {
        if let Some(count) = count {
            self.count += count;
            self.is_known = true;
        }
    }

    fn of(self, all: u64) -> Option<f64> {
        (self.is_known && all > 0).then(|| self.count as f64 / all as f64)
    }

    fn per_s(self, interval_ns: f64) -> Option<f64> {
        self.is_known.then(|| self.count as f64 / interval_ns * 1e9)
    }
}

/// Returns a line for each CPU or group that has a CPU to show, in the order of their first CPUs.
pub fn lines(
    layout: &Layout,
    figures: &Figures,
    grouping: Grouping,
    matching: &Matching,
) -> Vec<Line> {
    groups(layout, figures, grouping, matching)
        .into_iter()
        .map(|(name, members)| line(layout, figures, name, &members))
        .collect()
}

/// The members of a group: for each CPU its place in the layout, and the place of its first state.
type Members = Vec<(usize, usize)>;

fn groups(
    layout: &Layout,
    figures: &Figures,
    grouping: Grouping,
    matching: &Matching,
) -> Vec<(String, Members)> {
    let mut groups: Vec<(String, Members)> = Vec::new();
    let mut keys: Vec<Option<u64>> = Vec::new();
    let mut first_state = 0;
    for (index, place) in layout.cpus.iter().enumerate() {
        let member = (index, first_state);
        first_state += place.states.len();
        if !matching.shows(place.cpu, figures.cpus[index].limit_ns) {
            continue;
        }
        let key = match grouping {
            Grouping::Cpu => Some(u64::from(place.cpu)),
            Grouping::Cache => place.cache.map(u64::from),
            Grouping::Package => place.package,
            Grouping::Machine => Some(0),
        };
        match keys.iter().position(|known| *known == key) {
            Some(known) => groups[known].1.push(member),
            None => {
                let name = match (grouping, key) {
                    (Grouping::Cpu, _) => place.cpu.to_string(),
                    (Grouping::Cache, Some(cpu)) => format!("cache of CPU {cpu}"),
                    (Grouping::Package, Some(package)) => format!("package {package}"),
                    (Grouping::Cache | Grouping::Package, None) => "unknown".to_owned(),
                    (Grouping::Machine, _) => "all".to_owned(),
                };
                keys.push(key);
                groups.push((name, vec![member]));
            }
        }
    }
    groups
}

fn line(layout: &Layout, figures: &Figures, name: String, members: &[(usize, usize)]) -> Line {
    let mut line = Line {
        name,
        first_cpu: members.first().map_or(0, |(index, _)| layout.cpus[*index].cpu),
        cpu_count: members.len() as u64,
        condition: Condition::Offline,
        shares: vec![0.0; layout.slots().len()],
        ..Line::default()
    };
    let interval_ns = figures.interval_ns as f64;
    let (mut usable_count, mut counted_ns, mut open_ns) = (0_u64, 0_u64, Some(0_u64));
    let (mut entry_count, mut waiting_ns) = (0_u64, 0_f64);
    let [mut too_deep, mut too_shallow, mut rejected] = [Sum::default(); 3];
    let mut has_states = false;
    for &(index, first_state) in members {
        let (place, cpu) = (&layout.cpus[index], &figures.cpus[index]);
        line.latency_limit_ns = min_of(line.latency_limit_ns, cpu.limit_ns);
        line.limited_count += u64::from(cpu.limit_ns.is_some());
        let states = &figures.states[first_state..first_state + place.states.len()];
        line.disabled_count += states.iter().filter(|state| state.grown.is_disabled).count() as u64;
        match cpu.condition {
            Condition::Usable => line.condition = Condition::Usable,
            Condition::Changed if line.condition == Condition::Offline => {
                line.condition = Condition::Changed;
                continue;
            }
            Condition::Changed | Condition::Offline => continue,
        }
        usable_count += 1;
        counted_ns += cpu.counted_ns;
        open_ns = open_ns.zip(cpu.open_ns).map(|(sum, more)| sum + more);
        for (state, info) in states.iter().zip(&place.states) {
            has_states = true;
            line.shares[state.slot] += state.residency_ns;
            entry_count += state.grown.entry_count;
            waiting_ns += state.waited_ns(info.exit_latency_ns);
            too_deep.add(state.grown.too_deep_count);
            too_shallow.add(state.grown.too_shallow_count);
            rejected.add(state.grown.rejected_count);
        }
    }
    line.latency_limit_ns = min_of(line.latency_limit_ns, figures.machine_limit_ns);
    if usable_count == 0 {
        return line;
    }
    let all_ns = interval_ns * usable_count as f64;
    line.shares.iter_mut().for_each(|share| *share /= all_ns);
    line.open_ratio = open_ns.unwrap_or(0) as f64 / all_ns;
    line.running_ratio =
        open_ns.map(|open_ns| (1.0 - (counted_ns + open_ns) as f64 / all_ns).max(0.0));
    if has_states {
        line.entries_per_s = Some(entry_count as f64 / interval_ns * 1e9);
        line.too_deep_ratio = too_deep.of(entry_count);
        line.too_shallow_ratio = too_shallow.of(entry_count);
        line.rejected_per_s = rejected.per_s(interval_ns);
        line.waiting_ratio = Some((waiting_ns / all_ns).min(1.0));
    }
    line
}

fn min_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    [one, other].into_iter().flatten().min()
}

/// Sorts lines. Equal ones, and those of which nothing is known, stay in the order of their CPUs; the latter
/// come last.
pub fn sort(lines: &mut [Line], key: SortKey, is_reversed: bool) {
    let number = |line: &Line| match key {
        SortKey::Cpu => Some(-f64::from(line.first_cpu)),
        SortKey::Running => line.running_ratio,
        SortKey::Entries => line.entries_per_s,
        SortKey::TooDeep => line.too_deep_ratio,
        SortKey::TooShallow => line.too_shallow_ratio,
        SortKey::Waiting => line.waiting_ratio,
        SortKey::Limit => line.latency_limit_ns.map(|limit_ns| -(limit_ns as f64)),
    };
    lines.sort_by(|one, other| match (number(one), number(other)) {
        (Some(one), Some(other)) if is_reversed => one.total_cmp(&other),
        (Some(one), Some(other)) => other.total_cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
}

/// What CPUs did in one of their states.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateLine {
    /// The CPU or group.
    pub name: String,
    /// The state.
    pub state: String,
    /// The declared exit latency; `None` if CPUs differ, as P and E cores do.
    pub exit_latency_ns: Option<u64>,
    /// The declared target residency; `None` if CPUs differ.
    pub target_residency_ns: Option<u64>,
    /// The share of time in it.
    pub residency_ratio: Option<f64>,
    /// Entries each second.
    pub entries_per_s: Option<f64>,
    /// The share of its entries that were too deep.
    pub too_deep_ratio: Option<f64>,
    /// The share of its entries that were too shallow.
    pub too_shallow_ratio: Option<f64>,
    /// Requests each second that were refused.
    pub rejected_per_s: Option<f64>,
    /// Entries times the declared exit latency, as a share of time.
    pub waiting_ratio: Option<f64>,
    /// On how many CPUs it is disabled.
    pub disabled_count: u64,
}

/// Returns a line for each state of each CPU or group.
pub fn state_lines(
    layout: &Layout,
    figures: &Figures,
    grouping: Grouping,
    matching: &Matching,
) -> Vec<StateLine> {
    let mut all = Vec::new();
    for (name, members) in groups(layout, figures, grouping, matching) {
        for (slot, state) in layout.slots().iter().enumerate() {
            let line = state_line(layout, figures, &members, slot);
            all.extend(line.map(|line| StateLine {
                name: name.clone(),
                state: state.clone(),
                ..line
            }));
        }
    }
    all
}

/// `None` if none of the CPUs has the state.
fn state_line(
    layout: &Layout,
    figures: &Figures,
    members: &[(usize, usize)],
    slot: usize,
) -> Option<StateLine> {
    let mut found: Option<StateLine> = None;
    let (mut usable_count, mut residency_ns, mut entry_count, mut waiting_ns) =
        (0_u64, 0.0, 0, 0.0);
    let [mut too_deep, mut too_shallow, mut rejected] = [Sum::default(); 3];
    for &(index, first_state) in members {
        let (place, cpu) = (&layout.cpus[index], &figures.cpus[index]);
        let is_usable = cpu.condition == Condition::Usable;
        usable_count += u64::from(is_usable);
        let states = &figures.states[first_state..first_state + place.states.len()];
        for (state, info) in
            states.iter().zip(&place.states).filter(|(state, _)| state.slot == slot)
        {
            let line = found.get_or_insert_with(|| StateLine {
                exit_latency_ns: Some(info.exit_latency_ns),
                target_residency_ns: Some(info.target_residency_ns),
                ..StateLine::default()
            });
            line.exit_latency_ns.take_if(|ns| *ns != info.exit_latency_ns);
            line.target_residency_ns.take_if(|ns| *ns != info.target_residency_ns);
            line.disabled_count += u64::from(state.grown.is_disabled);
            if is_usable {
                residency_ns += state.residency_ns;
                entry_count += state.grown.entry_count;
                waiting_ns += state.waited_ns(info.exit_latency_ns);
                too_deep.add(state.grown.too_deep_count);
                too_shallow.add(state.grown.too_shallow_count);
                rejected.add(state.grown.rejected_count);
            }
        }
    }
    let mut line = found?;
    if usable_count > 0 {
        let interval_ns = figures.interval_ns as f64;
        let all_ns = interval_ns * usable_count as f64;
        line.residency_ratio = Some(residency_ns / all_ns);
        line.entries_per_s = Some(entry_count as f64 / interval_ns * 1e9);
        line.waiting_ratio = Some((waiting_ns / all_ns).min(1.0));
        line.too_deep_ratio = too_deep.of(entry_count);
        line.too_shallow_ratio = too_shallow.of(entry_count);
        line.rejected_per_s = rejected.per_s(interval_ns);
    }
    Some(line)
}

/// The character of running time in a bar.
const RUNNING: char = '#';
/// The character of idle time that no state is charged with yet.
const OPEN: char = '.';
/// The character of time that may be either.
const UNKNOWN: char = '?';

/// Returns the character that stands for a state in a bar: its number in the legend.
pub fn symbol(slot: usize) -> char {
    let digit = u32::try_from(slot).ok().and_then(|slot| char::from_digit(slot, 36));
    digit.unwrap_or('+')
}

/// Returns how a line's time divides into running, states and stays that are not over, as a bar of so many
/// characters. Empty if nothing is known.
pub fn bar(line: &Line, width: usize) -> String {
    if line.condition != Condition::Usable {
        return String::new();
    }
    let last = match line.running_ratio {
        Some(_) => (OPEN, line.open_ratio),
        None => (UNKNOWN, 1.0),
    };
    let parts = std::iter::once((RUNNING, line.running_ratio.unwrap_or(0.0)))
        .chain(line.shares.iter().enumerate().map(|(slot, share)| (symbol(slot), *share)))
        .chain([last]);
    let mut bar = String::with_capacity(width);
    let (mut sum, mut filled) = (0.0, 0);
    for (character, share) in parts {
        sum += share;
        let until = ((sum * width as f64).round() as usize).min(width);
        bar.extend(std::iter::repeat_n(character, until.saturating_sub(filled)));
        filled = filled.max(until);
    }
    bar
}

/// Returns a latency in a few characters: `10us`, `1.5ms`, `0`.
pub fn latency(latency_ns: u64) -> String {
    match latency_ns {
        0 => "0".to_owned(),
        ns if ns < 1_000 => format!("{ns}ns"),
        ns if ns < 10_000 && ns % 1_000 != 0 => format!("{:.1}us", ns as f64 / 1e3),
        ns if ns < 1_000_000 => format!("{:.0}us", ns as f64 / 1e3),
        ns if ns < 10_000_000 => format!("{:.1}ms", ns as f64 / 1e6),
        ns if ns < 1_000_000_000 => format!("{:.0}ms", ns as f64 / 1e6),
        ns => format!("{:.0}s", ns as f64 / 1e9),
    }
}

/// Returns the columns of [`Line`].
pub fn line_columns() -> Vec<Column<Line>> {
    type C = Column<Line>;
    vec![
        C::text("cpus", "CPUs", |line| line.name.as_str().into())
            .means("The CPU, or the group of CPUs.")
            .key(),
        C::count("cpu_count", "number of CPUs", |line| line.cpu_count.into())
            .means("How many CPUs it has.")
            .detail(),
        C::ratio("running_ratio", "running", |line| line.running_ratio.into()).means(
            "Share of time outside idle states; absent if /proc/stat has no idle times.",
        ),
        C::ratio("open_ratio", "in progress", |line| {
            line.running_ratio.map(|_| line.open_ratio).into()
        })
        .means(
            "Share of time in stays still in progress, by /proc/stat; without a cpuidle driver, all \
             idle time.",
        )
        .detail(),
        C::per_s("entries_per_s", "wake-ups", |line| line.entries_per_s.into())
            .means("Entries of idle states, and so wake-ups, each second."),
        C::ratio("too_deep_ratio", "too deep", |line| line.too_deep_ratio.into()).means(
            "Share of entries that were too deep (the kernel's `above`).",
        ),
        C::ratio("too_shallow_ratio", "too shallow", |line| line.too_shallow_ratio.into()).means(
            "Share of entries that were too shallow (the kernel's `below`).",
        ),
        C::per_s("rejected_per_s", "refused", |line| line.rejected_per_s.into())
            .means(
                "Refused requests each second.",
            )
            .detail(),
        C::ratio("waiting_ratio", "waiting", |line| line.waiting_ratio.into()).means(
            "Entries × the declared exit latency, as a share of time; at most the time in the state.",
        ),
        C::ns("latency_limit_ns", "latency limit", |line| line.latency_limit_ns.into()).means(
            "The lowest latency limit of these CPUs, their own or the machine's; absent if there \
             is none.",
        ),
        C::count("disabled_count", "disabled states", |line| line.disabled_count.into())
            .means("How many states are disabled in sysfs, summed over these CPUs.")
            .detail(),
    ]
}

/// The bar of a line in text, of so many characters.
const BAR_WIDTH: usize = 25;

/// Returns the column that shows a line's time as a bar.
pub fn bar_column() -> Column<Line> {
    Column::text("bar", "time by state", |line: &Line| match line.condition {
        Condition::Usable => bar(line, BAR_WIDTH).into(),
        Condition::Offline => "offline".into(),
        Condition::Changed => "changed; no figures yet".into(),
    })
    .means(
        "The time as a bar of 25 characters: # running, a digit for each state, . in a stay that \
         is in progress, ? not known.",
    )
    // A shortened bar would say something else.
    .key()
}

/// Returns the columns of [`StateLine`].
pub fn state_columns() -> Vec<Column<StateLine>> {
    type C = Column<StateLine>;
    vec![
        C::text("cpus", "CPUs", |line| line.name.as_str().into())
            .means("The CPU, or the group of CPUs.")
            .key(),
        C::text("state", "state", |line| line.state.as_str().into())
            .means("The idle state's name.")
            .key(),
        C::ns("exit_latency_ns", "exit latency", |line| line.exit_latency_ns.into())
            .means("As the driver declares it; absent where CPUs differ."),
        C::ns("target_residency_ns", "target residency", |line| line.target_residency_ns.into())
            .means("As the driver declares it; absent where CPUs differ.")
            .detail(),
        C::ratio("residency_ratio", "time", |line| line.residency_ratio.into()).means(
            "Share of time for which the state was requested; a stay counts when it ends.",
        ),
        C::per_s("entries_per_s", "stays", |line| line.entries_per_s.into())
            .means("Entries each second."),
        C::ratio("too_deep_ratio", "too deep", |line| line.too_deep_ratio.into())
            .means("Share of entries that were too deep (the kernel's `above`)."),
        C::ratio("too_shallow_ratio", "too shallow", |line| line.too_shallow_ratio.into()).means(
            "Share of entries that were too shallow (the kernel's `below`).",
        ),
        C::per_s("rejected_per_s", "refused", |line| line.rejected_per_s.into())
            .means("Refused requests each second.")
            .detail(),
        C::ratio("waiting_ratio", "waiting", |line| line.waiting_ratio.into()).means(
            "Entries × the declared exit latency, as a share of time; at most the time in the state.",
        ),
        C::count("disabled_count", "disabled on CPUs", |line| line.disabled_count.into())
            .means("On how many CPUs it is disabled."),
    ]
}

/// What a package or another domain did, by counters of the processor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackageLine {
    /// `package 0`, or the name of a domain of energy.
    pub place: String,
    /// What is counted: a state of packages, or power.
    pub counter: String,
    /// The share of time in the state.
    pub residency_ratio: Option<f64>,
    /// The power.
    pub power_mw: Option<f64>,
}

/// Returns the columns of [`PackageLine`].
pub fn package_columns() -> Vec<Column<PackageLine>> {
    type C = Column<PackageLine>;
    vec![
        C::text("place", "place", |line| line.place.as_str().into())
            .means("The package, or the energy domain.")
            .key(),
        C::text("counter", "counter", |line| line.counter.as_str().into())
            .means("The package's state, or `power`.")
            .key(),
        C::ratio("residency_ratio", "time", |line| {
            line.residency_ratio.map_or(Value::Absent, Value::Real)
        })
        .means("Share of time that the package was in the state; counted by the processor."),
        C::mw("power_mw", "power", |line| line.power_mw.map_or(Value::Absent, Value::Real))
            .means("Power by the processor's energy counters (RAPL)."),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{CpuPlace, CpuReading, Reading, StateInfo, StateReading};
    use super::*;
    use crate::{Table, TextStyle};

    const SECOND_NS: u64 = 1_000_000_000;

    /// Four CPUs on two packages, and what they did in a second. CPU 3 is offline; CPU 2 has a limit.
    fn watched() -> (Layout, Figures) {
        let state = |name: &str, exit_latency_ns, target_residency_ns| StateInfo {
            name: name.to_owned(),
            exit_latency_ns,
            target_residency_ns,
        };
        let place = |cpu| CpuPlace {
            cpu,
            package: Some(u64::from(cpu / 2)),
            core: Some(u64::from(cpu % 2)),
            cache: Some(cpu / 2 * 2),
            states: vec![state("C1", 1_000, 1_000), state("C6", 190_000, 600_000)],
        };
        let layout = Layout::new((0..4).map(place).collect());
        let counts = |entry_count, residency_ns, too_deep_count, too_shallow_count| StateReading {
            entry_count,
            residency_ns,
            too_deep_count: Some(too_deep_count),
            too_shallow_count: Some(too_shallow_count),
            ..StateReading::default()
        };
        let before = Reading {
            cpus: vec![CpuReading { is_readable: true, idle_ns: Some(0), limit_ns: None }; 4],
            states: vec![counts(0, 0, 0, 0); 8],
            ..Reading::default()
        };
        let mut after = before.clone();
        after.at_ns = SECOND_NS;
        after.states[0] = counts(100, SECOND_NS / 4, 0, 50);
        after.states[1] = counts(100, SECOND_NS / 2, 30, 0);
        after.states[5] = counts(1, SECOND_NS, 0, 0);
        after.states[4].is_disabled = true;
        after.cpus[2].limit_ns = Some(10_000);
        after.cpus[3].is_readable = false;
        let mut figures = Figures::default();
        figures.update(&layout, &before, &after);
        (layout, figures)
    }

    fn all(grouping: Grouping) -> Vec<Line> {
        let (layout, figures) = watched();
        lines(&layout, &figures, grouping, &Matching::default())
    }

    #[test]
    fn a_cpus_shares_and_rates() {
        let lines = all(Grouping::Cpu);
        let cpu = &lines[0];
        assert_eq!((cpu.name.as_str(), cpu.condition), ("0", Condition::Usable));
        assert_eq!((cpu.shares.as_slice(), cpu.running_ratio), (&[0.25, 0.5][..], Some(0.25)));
        assert_eq!(cpu.entries_per_s, Some(200.0));
        assert_eq!((cpu.too_deep_ratio, cpu.too_shallow_ratio), (Some(0.15), Some(0.25)));
        // A hundred times 1 µs and a hundred times 190 µs in a second.
        assert!((cpu.waiting_ratio.unwrap() - 0.0191).abs() < 1e-9);
        assert_eq!(lines[1].too_deep_ratio, None, "nothing was entered");
        assert_eq!((lines[2].latency_limit_ns, lines[2].disabled_count), (Some(10_000), 1));
        assert_eq!((lines[3].condition, lines[3].running_ratio), (Condition::Offline, None));
    }

    #[test]
    fn waiting_is_no_longer_than_the_stays_were() {
        let (layout, mut figures) = watched();
        // A million exits of 190 µs in half a second: the table's exit latency is too long.
        figures.states[1].grown.entry_count = 1_000_000;
        let cpu = &lines(&layout, &figures, Grouping::Cpu, &Matching::default())[0];
        assert!((cpu.waiting_ratio.unwrap() - 0.5001).abs() < 1e-9, "{cpu:?}");
        let states = state_lines(&layout, &figures, Grouping::Cpu, &Matching::default());
        assert_eq!(states[1].waiting_ratio, Some(0.5));
    }

    #[test]
    fn what_is_neither_counted_nor_known_to_be_idle_is_not_running() {
        let (layout, mut figures) = watched();
        figures.cpus[0].open_ns = None;
        let found = lines(&layout, &figures, Grouping::Cpu, &Matching::default());
        assert_eq!((found[0].running_ratio, found[0].shares.as_slice()), (None, &[0.25, 0.5][..]));
        assert_eq!(bar(&found[0], 8), "001111??");
        assert_eq!(found[2].running_ratio, Some(0.0));
        let all = &lines(&layout, &figures, Grouping::Machine, &Matching::default())[0];
        assert_eq!(all.running_ratio, None);
    }

    #[test]
    fn groups_have_the_mean_of_their_usable_cpus() {
        let packages = all(Grouping::Package);
        let names: Vec<&str> = packages.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["package 0", "package 1"]);
        assert_eq!(packages[0].running_ratio, Some(0.625));
        assert_eq!(packages[1].shares, [0.0, 1.0], "its other CPU is offline");
        assert_eq!((packages[1].cpu_count, packages[1].limited_count), (2, 1));
        assert_eq!(all(Grouping::Cache)[1].name, "cache of CPU 2");
        let machine = &all(Grouping::Machine)[0];
        assert_eq!((machine.name.as_str(), machine.entries_per_s), ("all", Some(201.0)));
        assert_eq!(Grouping::Machine.next(), Grouping::Cpu);
    }

    #[test]
    fn sorts_by_any_figure_and_keeps_the_unknown_last() {
        let order = |key, is_reversed| {
            let mut lines = all(Grouping::Cpu);
            sort(&mut lines, key, is_reversed);
            lines.into_iter().map(|line| line.first_cpu).collect::<Vec<_>>()
        };
        assert_eq!(order(SortKey::Cpu, false), [0, 1, 2, 3]);
        assert_eq!(order(SortKey::Cpu, true), [3, 2, 1, 0]);
        assert_eq!(order(SortKey::Entries, false), [0, 2, 1, 3]);
        assert_eq!(order(SortKey::Entries, true), [1, 2, 0, 3]);
        assert_eq!(order(SortKey::Limit, false), [2, 0, 1, 3]);
        assert_eq!(order(SortKey::Running, false), [1, 0, 2, 3]);
    }

    #[test]
    fn filters_by_list_and_by_limit() {
        let (layout, figures) = watched();
        let shown = |text: &str| {
            let matching = Matching::parse(text).unwrap();
            let lines = lines(&layout, &figures, Grouping::Cpu, &matching);
            lines.into_iter().map(|line| line.first_cpu).collect::<Vec<_>>()
        };
        assert_eq!(shown(""), [0, 1, 2, 3]);
        assert_eq!(shown("1-2, 0"), [0, 1, 2]);
        assert_eq!(shown("limited"), [2]);
        assert_eq!(shown("9"), [0_u16; 0]);
        for bad in ["x", "3-1", "1-", "-", "1,,2", "99999"] {
            assert!(Matching::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bars_are_full_and_in_proportion() {
        let lines = all(Grouping::Cpu);
        assert_eq!(bar(&lines[0], 8), "##001111");
        assert_eq!(bar(&lines[2], 5), "11111");
        assert_eq!(bar(&lines[3], 8), "");
        assert_eq!(bar(&lines[0], 0), "");
        let line = Line { running_ratio: Some(0.5), open_ratio: 0.5, ..Line::default() };
        assert_eq!(bar(&line, 4), "##..");
        let line = Line { shares: vec![0.25], ..Line::default() };
        assert_eq!(bar(&line, 4), "0???");
        assert_eq!((symbol(0), symbol(10), symbol(99)), ('0', 'a', '+'));
    }

    #[test]
    fn states_of_a_group() {
        let (layout, figures) = watched();
        let found = state_lines(&layout, &figures, Grouping::Machine, &Matching::default());
        assert_eq!(found.len(), 2);
        let c6 = &found[1];
        assert_eq!((c6.state.as_str(), c6.entries_per_s), ("C6", Some(101.0)));
        assert_eq!(c6.residency_ratio, Some(0.5), "of three usable CPUs");
        assert_eq!(found[0].disabled_count, 1);
    }

    #[test]
    fn tables_fit_a_narrow_screen() {
        let (layout, figures) = watched();
        let mut columns = line_columns();
        columns.insert(1, bar_column());
        let lines = all(Grouping::Cpu);
        let table = Table::new("", &columns, &lines);
        for (width, expected) in [(100, true), (80, true)] {
            let text = table.to_text(&TextStyle::of_width(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.contains("######"), expected, "{text}");
        }
        let states = state_lines(&layout, &figures, Grouping::Cpu, &Matching::default());
        assert_eq!(Table::new("", &state_columns(), &states).row_count(), 8);
    }

    #[test]
    fn latencies_are_short() {
        let texts =
            [0, 500, 1_500, 10_000, 290_000, 1_500_000, 20_000_000, 2_000_000_000].map(latency);
        assert_eq!(texts, ["0", "500ns", "1.5us", "10us", "290us", "1.5ms", "20ms", "2s"]);
    }
}
