//! `idlewise why`: what idle states cost, from the kernel's own counts.

mod condition;
mod packages;
mod textfile;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use idlewise_host::states::CpuTimes;
use idlewise_host::{
    CoreKinds, Counts, CountsReader, CpuDifference, Difference, Root, StateDifference, Unusable,
    groups, is_virtual_machine, latency_limits_ns, note, parse_cpu_list, show_cpu_list,
};
use idlewise_machine::{Machine, MachineState};
use idlewise_report::why::{Condition, WhyGroup, WhyPackage, WhyReport, WhyState};
use idlewise_report::{Notes, TextStyle, counted};
use idlewise_sim::CostModel;
use idlewise_trace::{MachineNote, cpus_in_words};

use self::condition::condition;
use super::record::seconds;
use super::watch::packages::Packages;
use crate::bundled;
use crate::error::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::signals::Signals;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// So many groups can be read on a screen.
const GROUP_COUNT_MAX: usize = 6;
/// How often to look at the time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same for a captured machine, whose time somebody else moves.
const LOOK_AT_CAPTURED_EVERY: Duration = Duration::from_millis(10);
/// How long its time may stand still.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// A copy that nobody wrote for so long is not played forward. A test or a script that does so begins with a new one.
const COPY_AGE_MAX: Duration = Duration::from_secs(60);
/// The `source` of a machine file whose latencies were measured on the machine.
const MEASURED: &str = "measured";

const EXAMPLES: &str = "\
Examples:
  # Watch this machine for ten seconds: no recording, no root
  idlewise why

  # For a minute, only four CPUs
  idlewise why -d 60 --cpus 4-7

  # With exit latencies and power figures from a machine file
  idlewise why --machine my-machine.toml

  # Every figure of every state, for a program
  idlewise why -d 10 --json

  # For continuous integration: exit status 1 if more than 8 % of the stays were too deep, if CPUs
  # were in C6 for less than 20 % of the time, or if they entered a state that takes more than 50 us
  # to leave
  idlewise why -d 60 --fail-if 'too-deep>8%' --fail-if 'residency:C6<20%' \\
      --fail-if 'wake-latency>50us'

  # For the textfile collector of node_exporter, from a timer; the file's name must end in .prom
  idlewise why -d 60 --textfile /var/lib/prometheus/node-exporter/idlewise.prom

The kernel counts how often and for how long each CPU was in each idle state, and how often the state \
was too deep or too shallow. The total delay of all wake-ups is at most the number of stays times the exit \
latency. \
What another state would change is computed from these counts, not measured. docs/why.md says what \
they can and cannot show.

Conditions of --fail-if are judged over all watched CPUs; each that holds is printed. too-deep and \
too-shallow are shares of all stays, residency:STATE is a share of time, and wake-latency is the \
longest exit latency among the states entered at least once. Quote '>' and '<', or write '=' instead: \
it means '<' after residency:STATE, '>' otherwise (too-deep=8% is 'too-deep>8%').

Exit status: 0, even if something is wrong with the idle states; 1 if a condition of --fail-if holds; \
2 if a condition is invalid, the CPUs were too busy to judge, or the kernel counts no idle states \
here.";

/// Say what this machine's idle states cost, from the kernel's own counts
///
/// Needs no recording, and no root where /sys can be read. Ctrl-c stops it and prints what was seen until then.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Why {
    /// Watch for this many seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,

    /// Only these CPUs, such as 4-7,12 [default: all]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,

    /// Take the states' exit latencies and power from a known machine (`idlewise machines`) or a machine file
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,

    /// Read sys/ and proc/ below this folder, such as where a container mounts the host's; they must be live, not a copy
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    sysroot: Option<PathBuf>,

    /// Exit with status 1 if this is true, such as 'too-deep>8%' or 'residency:C6<20%'; may be repeated
    #[arg(long = "fail-if", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<Condition>,

    /// Also write what was found to this file, for the textfile collector of Prometheus's node_exporter
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// CPUs in order, each once.
#[derive(Clone, Debug)]
pub struct CpuList(pub Vec<u16>);

/// Parses an option's list of CPUs.
pub(super) fn cpus(text: &str) -> Result<CpuList, String> {
    parse_cpu_list(text).map(CpuList).map_err(|error| error.to_string())
}

impl Why {
    /// Watches and says what it saw.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let given = self.machine.as_deref().map(bundled::machine).transpose()?;
        let cpus = self.asked_cpus(&root)?;
        let mut reader = CountsReader::open(&root, &cpus).map_err(Failure::new)?;
        if let Some(folder) = &self.sysroot
            && root.copy_age().is_some_and(|age| age > COPY_AGE_MAX)
        {
            return Err(Failure::new(format_args!(
                "{} is a copy that nobody has changed for a minute, so its counts stand still; run why on the \
                 machine itself, or name its mounts of sys and proc",
                screen::name(folder)
            )));
        }
        let machine = note(&root, String::new());
        // Fail before watching, not after.
        let textfile = self.textfile.as_deref().map(textfile::create).transpose()?;
        let mut signals = Signals::catch()?;
        let (mut before, mut after) = (Counts::default(), Counts::default());
        let mut packages = Packages::open(&root);
        packages.lines();
        reader.read(&mut before);
        let times_before = CpuTimes::read(&root);
        let is_cut_short = self.wait(&reader, &before, &mut signals)?;
        reader.read(&mut after);
        let mut difference = after.since(&before);
        let unreadable = leave_unreadable(&reader, &mut difference);
        let limits_ns = latency_limits_ns(&root, &reader.cpus().collect::<Vec<_>>());
        let packages =
            packages::packages(&root, &reader, &difference, &limits_ns, &packages.lines());
        let times = times_before.zip(CpuTimes::read(&root));
        let busy_ratio = times.and_then(|(before, after)| {
            let ratios = reader.cpus().map(|cpu| after.busy_ratio(&before, cpu));
            let ratios: Option<Vec<f64>> = ratios.collect();
            ratios.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64)
        });
        let report = Report {
            reader: &reader,
            cores: CoreKinds::read(&root, &reader.cpus().collect::<Vec<_>>()),
            limits_ns,
            packages,
            machine,
            given,
            difference,
            unreadable,
            busy_ratio,
            is_guest: is_virtual_machine(&root),
        };
        let mut report = report.make(is_cut_short)?;
        // A file of metrics takes what there is.
        let must_judge = !self.conditions.is_empty() || self.textfile.is_none();
        if let (true, Some(busy)) = (must_judge, report.is_busy()) {
            return Err(Failure::new(busy));
        }
        let judged = self.conditions.iter().map(|condition| condition.judge(&report));
        report.conditions = judged.collect::<Result<_, _>>().map_err(Failure::new)?;
        let mut out = textfile.as_ref().map_or(screen::stdout as fn() -> _, output::report_of)();
        if let Some(file) = textfile {
            textfile::write(file, &report)?;
        }
        if self.json {
            out.json(SCHEMA, &report.to_json())?;
        } else {
            out.write_all(report.to_text(&TextStyle::for_stdout()).as_bytes())?;
        }
        let has_failed = report.conditions.iter().any(|condition| condition.failed);
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn asked_cpus(&self, root: &Root) -> Result<Vec<u16>> {
        let present = root.present_cpus();
        let Some(CpuList(asked)) = &self.cpus else { return Ok(present) };
        match asked.iter().find(|cpu| !present.contains(cpu)) {
            Some(cpu) => Err(Failure::new(format_args!(
                "there is no CPU {cpu}; this machine has {}",
                show_cpu_list(&present)
            ))),
            None => Ok(asked.clone()),
        }
    }

    /// Waits for the end of the interval. Returns whether somebody ended it early.
    fn wait(&self, reader: &CountsReader, before: &Counts, signals: &mut Signals) -> Result<bool> {
        let clock = reader.clock();
        say(format_args!(
            "idlewise: watching {} for {} s; ctrl-c ends it early",
            counted(reader.cpus().len(), "CPU"),
            self.duration.as_secs_f64()
        ));
        let spinner = Progress::open_ended();
        let every = if clock.is_captured() { LOOK_AT_CAPTURED_EVERY } else { LOOK_EVERY };
        let (mut last, mut since) = (Duration::ZERO, Instant::now());
        loop {
            let elapsed = clock.now().saturating_sub(before.at);
            if elapsed != last {
                (last, since) = (elapsed, Instant::now());
            } else if clock.is_captured() && since.elapsed() > STANDSTILL_MAX {
                return Err(Failure::new(
                    "the captured machine's proc/uptime stands still; it must go forward with the counts",
                ));
            }
            let left = self.duration.saturating_sub(elapsed);
            if left.is_zero() {
                return Ok(false);
            }
            if signals.has_ended() {
                return Ok(true);
            }
            spinner.say(format!("{} of {} s", elapsed.as_secs(), self.duration.as_secs_f64()));
            signals.wait(left.min(every))?;
        }
    }
}

/// What a report is made of.
struct Report<'a> {
    reader: &'a CountsReader,
    cores: CoreKinds,
    limits_ns: BTreeMap<u16, u64>,
    packages: Vec<WhyPackage>,
    machine: MachineNote,
    given: Option<Machine>,
    difference: Difference,
    /// What could not be read, of CPUs that are left out.
    unreadable: Vec<PathBuf>,
    busy_ratio: Option<f64>,
    is_guest: bool,
}

/// Whether a CPU that can be judged counted nothing.
fn is_silent(cpu: &&CpuDifference) -> bool {
    let has_counted = |state: &StateDifference| state.usage > 0 || state.rejected > Some(0);
    cpu.unusable.is_none() && !cpu.states.iter().any(has_counted)
}

/// Takes CPUs out of which not all states could be read: what is missing would seem to be no idle time.
fn leave_unreadable(reader: &CountsReader, difference: &mut Difference) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (at, cpu) in difference.cpus.iter_mut().enumerate() {
        if matches!(cpu.unusable, None | Some(Unusable::NoStates))
            && let Some(file) = reader.unreadable(at)
        {
            cpu.unusable = Some(Unusable::Unreadable);
            files.push(file);
        }
    }
    files
}

impl Report<'_> {
    fn make(self, is_cut_short: bool) -> Result<WhyReport> {
        if self.difference.elapsed.is_zero() {
            return Err(Failure::new(
                "no time passed between the two readings; watch for longer, and if the machine was \
                 captured, its proc/uptime must go forward",
            ));
        }
        let cpus: Vec<u16> = self.reader.cpus().collect();
        let limit_of = |at: usize| self.limits_ns.get(&cpus[at]).copied();
        let off_of = |at: usize| -> Vec<bool> {
            self.difference.cpus[at].states.iter().map(|state| state.is_disabled).collect()
        };
        let cores = &self.cores;
        // CPUs are of one kind if their cores are, they have the same states, and the same are allowed.
        let mut firsts: Vec<usize> = Vec::new();
        let mut kinds = Vec::with_capacity(cpus.len());
        for at in 0..cpus.len() {
            let same = |&first: &usize| {
                cores.of(cpus[first]) == cores.of(cpus[at])
                    && self.reader.states(first) == self.reader.states(at)
                    && off_of(first) == off_of(at)
                    && limit_of(first) == limit_of(at)
            };
            kinds.push(firsts.iter().position(same).unwrap_or_else(|| {
                firsts.push(at);
                firsts.len() - 1
            }));
        }
        let grouping = groups(&self.difference, &kinds, GROUP_COUNT_MAX);
        let mut notes = Notes::default();
        cores.doubts().iter().for_each(|doubt| notes.doubt(doubt));
        let mut made = Vec::new();
        for group in &grouping.groups {
            let first = group.members[0];
            let core = cores.of(cpus[first]).map(str::to_owned);
            made.push(WhyGroup {
                core,
                ..self.group(&group.members, limit_of(first), &mut notes)?
            });
        }
        let left_out: Vec<(u16, Unusable)> =
            self.difference.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.unusable?))).collect();
        if made.is_empty() {
            let (cpu, why) = left_out.first().copied().unwrap_or((0, Unusable::NoStates));
            if let Some(file) = self.unreadable.first() {
                return Err(Failure::new(format_args!(
                    "no CPU can be judged: {} cannot be read",
                    file.display()
                )));
            }
            return Err(Failure::new(format_args!(
                "no CPU can be judged: CPU {cpu} {}; run it again",
                why.as_str()
            )));
        }
        self.add_doubts(&left_out, grouping.scale, &mut notes);
        let mut report = WhyReport {
            elapsed_ns: nanoseconds(self.difference.elapsed),
            is_cut_short,
            is_guest: self.is_guest,
            cpu_model: self.machine.cpu_model.clone(),
            kernel: self.machine.kernel.clone(),
            driver: self.machine.driver.as_ref().map(ToString::to_string),
            governor: self.machine.governor.clone(),
            groups: made,
            group_scale: grouping.scale,
            left_out: left_out.iter().map(|(cpu, why)| (*cpu, why.as_str().to_owned())).collect(),
            busy_ratio: self.busy_ratio,
            packages: self.packages,
            conditions: Vec::new(),
            notes,
        };
        let silent: Vec<u16> =
            self.difference.cpus.iter().filter(is_silent).map(|it| it.cpu).collect();
        let is_all =
            silent.len() == report.groups.iter().map(|group| group.cpu_count).sum::<usize>();
        // The kernel counts a stay's time with the stay. Time without stays belongs to none.
        if report.is_silent() || is_all {
            if let Some(busy) = report.is_busy() {
                return Err(Failure::new(busy));
            }
            let seconds = self.difference.elapsed.as_secs_f64();
            return Err(Failure::new(match is_all {
                true => format!(
                    "nothing was counted: on {} no idle stay ended in {seconds:.1} s, so they slept or ran all the time, \
                     or their counts stand still; watch for longer: -d 60",
                    cpus_in_words(&silent)
                ),
                false => format!(
                    "too little was counted: idle stays that ended in {seconds:.1} s make up {:.2} % of the time; watch \
                     for longer: -d 60",
                    100.0 * report.counted_ratio()
                ),
            }));
        }
        if !silent.is_empty() {
            report.notes.doubt(format!(
                "on {} no idle stay ended, so nothing is known there; watch for longer: -d 60",
                cpus_in_words(&silent)
            ));
        }
        if let Some(uncounted) = report.uncounted() {
            report.notes.doubt(uncounted);
        }
        Ok(report)
    }

    fn group(
        &self,
        members: &[usize],
        latency_limit_ns: Option<u64>,
        notes: &mut Notes,
    ) -> Result<WhyGroup> {
        let first = members[0];
        let (machine, measured) = self.machine_of(first, notes)?;
        let mut states: Vec<WhyState> = machine
            .states
            .iter()
            .zip(measured)
            .map(|(state, is_measured)| WhyState {
                name: state.name.clone(),
                exit_latency_ns: state.exit_latency_ns,
                is_measured,
                is_polling: state.idle().is_polling,
                ..WhyState::default()
            })
            .collect();
        let mut watched_ns = 0;
        for &member in members {
            let cpu = &self.difference.cpus[member];
            watched_ns += nanoseconds(cpu.elapsed);
            for (sum, state) in states.iter_mut().zip(&cpu.states) {
                sum.is_disabled = state.is_disabled;
                sum.stay_count += state.usage;
                sum.time_ns = sum.time_ns.saturating_add(state.time_us.saturating_mul(1_000));
                for (sum, count) in [
                    (&mut sum.too_deep_count, state.above),
                    (&mut sum.too_shallow_count, state.below),
                    (&mut sum.rejected_count, state.rejected),
                ] {
                    *sum = count.map(|count| sum.unwrap_or(0) + count).or(*sum);
                }
            }
        }
        let cpus: Vec<u16> =
            members.iter().map(|&member| self.difference.cpus[member].cpu).collect();
        let power_basis = machine.power_basis();
        notes.basis(
            power_basis,
            "the power of each state, and that stays would last as long in another one",
        );
        Ok(WhyGroup {
            cpus: show_cpu_list(&cpus),
            cpu_count: cpus.len(),
            core: None,
            watched_ns,
            latency_limit_ns,
            states,
            costs: CostModel::of(&machine).map_err(Failure::new)?,
            power_basis,
        })
    }

    /// The states of a CPU with latencies and powers, and whether each latency was measured here.
    fn machine_of(&self, at: usize, notes: &mut Notes) -> Result<(Machine, Vec<bool>)> {
        let states = self.reader.states(at);
        let cpu = self.difference.cpus[at].cpu;
        let noted = self.machine.tables.iter().find(|table| table.cpus.contains(&cpu));
        let mut machine = match noted {
            Some(table) => table.machine.clone(),
            None => Machine::new("here", "this machine", idlewise_machine::Arch::Other, "captured"),
        };
        machine.states = states.to_vec();
        let mut measured = vec![false; states.len()];
        let Some(given) = &self.given else {
            return Ok((machine, measured));
        };
        let mut missing = Vec::new();
        for (state, is_measured) in machine.states.iter_mut().zip(&mut measured) {
            match given.state_index(&state.name) {
                // A number would be taken for an index.
                Ok(index) if given.states[index].name.eq_ignore_ascii_case(&state.name) => {
                    *is_measured = given.source == MEASURED;
                    replace(state, &given.states[index]);
                }
                _ => missing.push(state.name.clone()),
            }
        }
        if missing.len() == states.len() {
            return Err(Failure::new(format_args!(
                "{} has none of the states {} of CPU {cpu}; name this machine's file, or leave --machine \
                 out",
                given.id,
                missing.join(", ")
            )));
        }
        if !missing.is_empty() {
            notes.doubt(format!(
                "{} has no {}, so the kernel's latencies were taken for it",
                given.id,
                missing.join(", ")
            ));
        }
        machine.running_power_mw = given.running_power_mw.or(machine.running_power_mw);
        machine.running_power_kind = given.running_power_kind.clone();
        machine.running_power_source = given.running_power_source.clone();
        // A measured table may have target residencies that are no table of a kernel's.
        if machine.table().is_err() {
            return Err(Failure::new(format_args!(
                "{}: its target residencies do not fit to this machine's order of states; measure all \
                 states, or leave --machine out",
                given.id
            )));
        }
        Ok((machine, measured))
    }

    fn add_doubts(&self, left_out: &[(u16, Unusable)], scale: f64, notes: &mut Notes) {
        let kinds = left_out.chunk_by(|a, b| a.1 == b.1);
        for kind in kinds {
            let cpus: Vec<u16> = kind.iter().map(|(cpu, _)| *cpu).collect();
            notes.doubt(format!("{} {}: left out", cpus_in_words(&cpus), kind[0].1.as_str()));
        }
        if let Some(file) = self.unreadable.first() {
            let others = match self.unreadable.len() - 1 {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            notes.doubt(format!("{}{others} cannot be read", file.display()));
        }
        let usable = || self.difference.cpus.iter().filter(|cpu| cpu.unusable.is_none());
        let changed = usable().any(|cpu| cpu.states.iter().any(|state| state.disabled_changed));
        if changed {
            notes.doubt("somebody enabled or disabled idle states in the meantime");
        }
        let over_count = usable().filter(|cpu| cpu.is_cut).count();
        if over_count > 0 {
            notes.doubt(format!(
                "{} counted more idle time than passed, because stays began before; watch for \
                 longer: -d 60",
                counted(over_count, "CPU")
            ));
        }
        if scale > 1.0 {
            notes.doubt(format!(
                "CPUs behave in many ways, so groups are coarse: up to {:.0} points of time and {:.0} times \
                 the wake-ups apart; name some CPUs: --cpus",
                (scale * 10.0).min(100.0),
                2_f64.powf(scale)
            ));
        }
    }
}

/// Takes latencies and powers over.
fn replace(state: &mut MachineState, known: &MachineState) {
    state.exit_latency_ns = known.exit_latency_ns;
    state.target_residency_ns = known.target_residency_ns;
    state.power_mw = known.power_mw;
    state.power_kind.clone_from(&known.power_kind);
    state.power_source.clone_from(&known.power_source);
    state.power_at_khz = known.power_at_khz;
    state.power_range_mw = known.power_range_mw;
    state.power_checked = known.power_checked;
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
