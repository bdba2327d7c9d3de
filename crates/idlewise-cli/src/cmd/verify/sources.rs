//! `idlewise lab verify sources`: checks that our ports decide as the kernel's own C files do, decision
//! by decision. The files run in this process, because they are the kernel's.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::builder::PossibleValuesParser;
use idlewise_core::{Governor, StateTable, tick_period_ns};
use idlewise_lab::target::Conditions;
use idlewise_linux::{GOVERNORS, GovernorSpec, PORTS};
use idlewise_plugin::{Compiler, Confinement, GovernorSource, Instance, Kernel, Library};
use idlewise_report::counted;
use idlewise_sim::Machine;
use idlewise_sim::decision_log::DecisionAnswer;
use idlewise_sim::replay::{GovernorLane, GroupReader, Lane, Setting};
use idlewise_trace::read_small_text;
use rayon::prelude::*;

use crate::bundled;
use crate::conformance::{Generator, Pair, Row, first_difference, random_table, shrink};
use crate::error::{Failure, Result};
use crate::governors::port_ids;
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::threads;
use crate::unpack::unnamed_file;

const HZ: [u32; 4] = [100, 250, 300, 1_000];
/// How many rows one table at one HZ gets.
const STREAM_ROW_COUNT: u64 = 1_000;
/// How many random tables are made for each seed.
const RANDOM_TABLE_COUNT: u64 = 32;

const EXAMPLES: &str = "\
Examples:
  # Every governor of a kernel's source that we have a port of
  idlewise lab verify sources ~/linux-6.12

  # Only menu, for longer
  idlewise lab verify sources ~/linux-6.12 --governor menu --decisions 50000000

Exit status: 0; 1 if a decision differs; 2 on bad input.";

/// Compare our ports with a kernel's own C files, decision by decision
///
/// The governors of a kernel's source are compiled unmodified and asked the same as our ports: in
/// replays of the bundled logs on every machine, and in generated rows with every machine's states
/// and more, at 100, 250, 300 and 1000 HZ. A difference is shrunk to the fewest rows that show it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sources {
    /// Top folders of kernel sources
    #[arg(required = true, value_name = "DIR")]
    sources: Vec<PathBuf>,

    /// Only this governor; may be repeated
    #[arg(long = "governor", value_name = "NAME", value_parser = PossibleValuesParser::new(PORTS))]
    governors: Vec<String>,

    /// Generated decisions for each governor, at least
    #[arg(long, value_name = "N", default_value_t = 5_000_000)]
    decisions: u64,

    /// The generator's first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A port and the C file that it must match.
struct Subject {
    release: String,
    spec: &'static GovernorSpec,
    library: Library,
}

/// Where two governors differ.
struct Difference {
    place: String,
    states: StateTable,
    hz: u32,
    rows: Vec<Row>,
}

impl Sources {
    /// Compares, and prints a line for each governor.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        let mut subjects = Vec::new();
        for source in &self.sources {
            self.add_subjects(source, &mut subjects)?;
        }
        let mut out = screen::stdout();
        writeln!(
            out,
            "{:38} {:20} {:>12} {:>12} {:>12}",
            "kernel's file", "our port", "generated", "on traces", "differences"
        )?;
        let mut exit = ExitCode::SUCCESS;
        for subject in &subjects {
            let bar = Progress::gaps(subject.spec.id, self.decisions);
            let (generated, first) = self.generated(subject, &bar)?;
            let (on_traces, second) = on_traces(subject)?;
            let difference = first.or(second);
            drop(bar);
            writeln!(
                out,
                "{:38} {:20} {generated:>12} {on_traces:>12} {:>12}",
                subject.release,
                subject.spec.id,
                if difference.is_some() { "yes" } else { "0" },
            )?;
            out.flush()?;
            if let Some(difference) = difference {
                exit = ExitCode::FAILURE;
                subject.print(difference, &mut out)?;
            }
        }
        Ok(exit)
    }

    fn add_subjects(&self, folder: &Path, subjects: &mut Vec<Subject>) -> Result<()> {
        let kernel = Kernel::of_source(folder)?;
        let release = release(folder)?;
        let specs = || GOVERNORS.iter().filter(|spec| spec.series == kernel.name);
        if specs().next().is_none() {
            return Err(Failure::new(format_args!(
                "{}: there are no ports of Linux {}'s governors to compare with; there are {}",
                folder.display(),
                kernel.name,
                port_ids()
            )));
        }
        let is_wanted = |port: &str| {
            self.governors.is_empty() || self.governors.iter().any(|wanted| wanted == port)
        };
        for port in PORTS.iter().filter(|port| is_wanted(port)) {
            let mut specs = specs().filter(|spec| spec.port == *port).peekable();
            if specs.peek().is_none() {
                say(format_args!("idlewise: {release}: {port}.c is not ported, so not compared"));
            }
            for spec in specs {
                let mut source = GovernorSource {
                    kernel_source: Some(folder.to_owned()),
                    ..GovernorSource::new(format!("{port}.c"))
                };
                // An unnamed file, so that nothing is left behind however we end.
                let mut file = unnamed_file()?;
                if let Some(patch) = spec.patch {
                    file.write_all(patch.as_bytes())?;
                    source.patch = Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into());
                }
                let library =
                    Compiler::system().confined(Confinement::None).library(&source, None)?;
                let release = format!("{release} {port}.c{}", &spec.name[port.len()..]);
                subjects.push(Subject { release, spec, library });
            }
        }
        Ok(())
    }

    /// The number of generated decisions compared, and the first difference.
    fn generated(&self, subject: &Subject, bar: &Progress) -> Result<(u64, Option<Difference>)> {
        let mut tables: Vec<(String, StateTable)> = Vec::new();
        for machine in machines() {
            tables.push((machine.id.clone(), machine.table().map_err(Failure::new)?));
        }
        let mut row_count = 0;
        let mut seed = self.seed;
        while row_count < self.decisions {
            let random = (0..RANDOM_TABLE_COUNT)
                .map(|i| (format!("random table {i}"), random_table(seed * 64 + i)));
            let worlds: Vec<_> = tables.iter().cloned().chain(random).collect();
            // A short run uses every table, with fewer rows for each.
            let stream_count = (worlds.len() * HZ.len()) as u64;
            let rows = self.decisions.div_ceil(stream_count).clamp(1, STREAM_ROW_COUNT);
            let found: Mutex<Option<Difference>> = Mutex::default();
            worlds.par_iter().enumerate().try_for_each(|(index, (name, states))| {
                for hz in HZ {
                    let stream_seed = seed << 32 | (index as u64) << 16 | u64::from(hz);
                    let place = || format!("generated rows, {name}, {hz} HZ, seed {seed}");
                    if let Some(rows) = subject.stream(states, hz, stream_seed, rows)? {
                        let mut found = found.lock().expect("nobody panics with it");
                        *found = Some(Difference { place: place(), states: *states, hz, rows });
                    }
                    bar.add(rows);
                }
                Ok::<(), Failure>(())
            })?;
            row_count += rows * stream_count;
            seed += 1;
            if let Some(found) = found.into_inner().expect("nobody panics with it") {
                return Ok((row_count, Some(found)));
            }
        }
        Ok((row_count, None))
    }
}

impl Subject {
    /// The rows up to the first difference; `None` if there is none.
    fn stream(
        &self,
        states: &StateTable,
        hz: u32,
        seed: u64,
        row_count: u64,
    ) -> Result<Option<Vec<Row>>> {
        let tick_ns = tick_period_ns(hz);
        let mut rows = Vec::with_capacity(row_count as usize);
        let mut leader = self.spec.build(tick_ns);
        Generator::new(seed, *states, tick_ns).run(row_count, &mut leader, &mut |row, _| {
            rows.push(*row);
        });
        let mut theirs = self.theirs(hz)?;
        let first = first_difference(states, &rows, &mut self.spec.build(tick_ns), &mut theirs);
        Ok(first.map(|(index, _)| {
            rows.truncate(index + 1);
            rows
        }))
    }

    fn theirs(&self, hz: u32) -> Result<Instance> {
        Ok(Instance::load(&self.library, tick_period_ns(hz))?)
    }

    fn print(&self, difference: Difference, out: &mut impl Write) -> Result<()> {
        let Difference { place, states, hz, rows } = difference;
        let row_count = rows.len();
        let compare = |rows: &[Row]| -> Option<(usize, [DecisionAnswer; 2])> {
            let mut theirs = self.theirs(hz).ok()?;
            first_difference(&states, rows, &mut self.spec.build(tick_period_ns(hz)), &mut theirs)
        };
        let rows = shrink(rows, &mut |rows| compare(rows).map(|(index, _)| index));
        writeln!(
            out,
            "\n{}: {place}: a difference in {}, shrunk to these {}",
            self.spec.id,
            counted(row_count, "row"),
            rows.len()
        )?;
        for state in states.as_slice() {
            writeln!(out, "  {state:?}")?;
        }
        for row in &rows {
            writeln!(out, "  {row:?}")?;
        }
        if let Some((_, [ours, theirs])) = compare(&rows) {
            writeln!(out, "  {:20} {:>20} {:>20}", "answers", "our port", "the kernel's C")?;
            for ((name, ours), (_, theirs)) in ours.columns().into_iter().zip(theirs.columns()) {
                let mark = if ours == theirs { "" } else { "  differs" };
                writeln!(out, "  {name:20} {ours:>20} {theirs:>20}{mark}")?;
            }
        }
        Ok(())
    }
}

/// The bundled machines that have idle states.
fn machines() -> Vec<Machine> {
    idlewise_machine::bundled_machines().filter(|machine| !machine.states.is_empty()).collect()
}

/// Replays the bundled logs on every machine with both governors.
fn on_traces(subject: &Subject) -> Result<(u64, Option<Difference>)> {
    let logs = bundled::logs()?;
    let mut streams = Vec::new();
    for named in &logs {
        for (cpu, groups) in named.log.groups_by_cpu().into_iter().flatten() {
            let mut reader = GroupReader::new(&named.log);
            let mut gaps = Vec::new();
            for group in groups {
                gaps.extend_from_slice(reader.read(group)?);
            }
            let hz = Conditions::default().hz_of(&named.log.metadata);
            streams.push((format!("{}, CPU {cpu}", named.name), hz, gaps));
        }
    }
    let machines = machines();
    let compared: Vec<(u64, Option<Difference>)> = machines
        .par_iter()
        .map(|machine| {
            let states = machine.table().map_err(Failure::new)?;
            let mut count = 0;
            for (name, hz, gaps) in &streams {
                let mut ours = subject.spec.build(tick_period_ns(*hz));
                let mut theirs = subject.theirs(*hz)?;
                let ours: &mut dyn Governor = &mut ours;
                let mut pair = Pair::new(ours, &mut theirs);
                let setting = Setting {
                    disabled: machine.disabled_by_default(),
                    ..Setting::new(states, tick_period_ns(*hz))
                };
                GovernorLane::new(&mut pair, setting).replay(gaps);
                count += pair.decision_count;
                if pair.differs {
                    let place = format!("{name} on {}", machine.id);
                    let rows = std::mem::take(&mut pair.rows);
                    return Ok((count, Some(Difference { place, states, hz: *hz, rows })));
                }
            }
            Ok((count, None))
        })
        .collect::<Result<_>>()?;
    let count = compared.iter().map(|(count, _)| count).sum();
    Ok((count, compared.into_iter().find_map(|(_, difference)| difference)))
}

/// The exact release: the contents of the file `release`, which `scripts/kernel-sources` writes, or
/// else from the Makefile.
fn release(folder: &Path) -> Result<String> {
    if let Ok(text) = read_small_text(&folder.join("release")) {
        return Ok(text.trim().to_owned());
    }
    let path = folder.join("Makefile");
    let text = read_small_text(&path)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))?;
    let value = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let parts = ["VERSION", "PATCHLEVEL", "SUBLEVEL"].map(|name| value(name).unwrap_or_default());
    Ok(parts.join(".") + &value("EXTRAVERSION").unwrap_or_default())
}
