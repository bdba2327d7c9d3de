//! `idlewise measure switch`: how fast two threads that pass a token switch.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::{
    Relation, Root, is_virtual_machine, load_average, one_of_each_relation, steal_ticks,
};
use idlewise_probe::{SwitchWay, allowed_cpus, switch_slice};
use idlewise_report::saved::Block;
use idlewise_report::switch::{Absent, SwitchFigures, measure_switch_table};
use idlewise_report::{Notes, counted};
use idlewise_sim::Basis;
use serde_json::{Value, json};

use super::forced::Form;
use super::saving::{Pair, machine_facts, saved};
use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::signals;

const EXAMPLES: &str = "\
Examples:
  # Each way to pass a token, on one CPU, to its SMT sibling, to another core (15 seconds)
  idlewise measure switch

  # What another default idle routine changes: save it before and after, then compare
  idlewise measure switch --way pipe --json > halt.json
  idlewise measure switch --way pipe --json > mwait.json
  idlewise lab compare halt.json mwait.json

  # From CPU 2 to CPU 3, as a quick look
  idlewise measure switch --cpu 2 --other 3 --slices 10

Measure on an idle machine. It needs no rights and changes no settings. The threads belong to one \
process, so the address space stays the same.

Exit status: 0; 2 if nothing could be measured.";

/// Let two threads pass a token, on one CPU or from one to another
///
/// Prints context switches per second and percentiles of the round trip, which is two switches. On one
/// CPU this is the cost of a switch; between two CPUs each pass wakes the other CPU out of idle, so idle
/// states and the idle routine decide. All ways and places take turns, in slices of time.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Switch {
    /// How to pass the token: yield, futex, pipe
    #[arg(long = "way", value_name = "WAY", value_delimiter = ',', value_parser = way, default_value = "yield,futex,pipe")]
    ways: Vec<SwitchWay>,

    /// The CPU of the first thread [default: the first one that this process may run on]
    #[arg(long, value_name = "CPU")]
    cpu: Option<u16>,

    /// The CPUs of the second thread; may be the same as --cpu [default: the same, and the first one of
    /// each relation to it: SMT sibling, shared cache, package, another package]
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    other: Vec<u16>,

    /// Slices of each way and place; `idlewise lab compare` draws them for its intervals
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slices: u32,

    /// Milliseconds of a slice
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slice_ms: u64,

    /// Print JSON instead of text, for `idlewise lab compare`
    #[arg(long)]
    json: bool,

    /// Print the line of each way and place as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

fn way(name: &str) -> Result<SwitchWay, String> {
    SwitchWay::ALL
        .into_iter()
        .find(|way| way.as_str() == name)
        .ok_or_else(|| "give yield, futex or pipe".to_owned())
}

/// A way to pass the token between two CPUs.
struct Case {
    way: SwitchWay,
    place: &'static str,
    cpus: [u16; 2],
}

const SAME_CPU: &str = "same CPU";

impl Switch {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        signals::clean_up_first()?;
        let root = Root::live();
        let (cases, absent) = self.cases(&root)?;
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "round trips and switches");
        let ticks = steal_ticks(&root);
        self.doubt(&root, &mut notes);
        let figures = self.measure(&cases)?;
        doubt_steal(ticks.zip(steal_ticks(&root)), &mut notes);
        let table = |title: &str| measure_switch_table(title, &figures);
        let form = Form { json: self.json, csv: self.csv };
        form.print(
            &notes,
            &table,
            || self.document(&root, &figures, &absent, &notes),
            |out, style| {
                let title = format!(
                    "Two threads pass a token, {} of {} ms, measured",
                    counted(self.slices, "slice"),
                    self.slice_ms
                );
                write!(out, "{}", table(&title).to_text(style))?;
                absent.iter().try_for_each(|one| {
                    writeln!(out, "{}", idlewise_report::wrap(&one.to_line(), style.width, 2))
                })
            },
        )?;
        Ok(ExitCode::SUCCESS)
    }

    /// What to measure, and what this machine does not have.
    fn cases(&self, root: &Root) -> Result<(Vec<Case>, Vec<Absent>)> {
        let allowed: Vec<u16> = allowed_cpus().into_iter().map(|cpu| cpu as u16).collect();
        let online = root.online_cpus();
        let check = |cpu: u16| match allowed.contains(&cpu) {
            true => Ok(cpu),
            false if online.contains(&cpu) => Err(Failure::new(format_args!(
                "this process may not run on CPU {cpu}; name another, or change its affinity (taskset)"
            ))),
            false => Err(Failure::new(format_args!("CPU {cpu} is not online; name another"))),
        };
        let first = check(self.cpu.unwrap_or(allowed[0]))?;
        let mut absent = Vec::new();
        let others: Vec<(&'static str, u16)> = if self.other.is_empty() {
            let mut near = one_of_each_relation(root, first);
            near.retain(|(_, cpu)| allowed.contains(cpu));
            say_absent(first, &near, &mut absent);
            let near = near.into_iter().map(|(relation, cpu)| (name(relation), cpu));
            std::iter::once((SAME_CPU, first)).chain(near).collect()
        } else {
            let place = |&cpu: &u16| match check(cpu)? {
                cpu if cpu == first => Ok((SAME_CPU, cpu)),
                cpu => Ok((name(Relation::of(root, first, cpu)), cpu)),
            };
            self.other.iter().map(place).collect::<Result<_>>()?
        };
        let mut cases = Vec::new();
        for &way in &self.ways {
            for &(place, cpu) in &others {
                if way == SwitchWay::Yield && cpu != first {
                    absent.push(Absent {
                        what: format!("yield, {place}"),
                        reason: "sched_yield lets others run on its own CPU and wakes no other"
                            .to_owned(),
                    });
                    continue;
                }
                cases.push(Case { way, place, cpus: [first, cpu] });
            }
        }
        match cases.is_empty() {
            true => Err(Failure::new(
                "yield switches on one CPU only: name the same one by --other, or take --way futex,pipe",
            )),
            false => Ok((cases, absent)),
        }
    }

    /// Measures all cases alternately, so that what happens on the machine meets all of them.
    fn measure(&self, cases: &[Case]) -> Result<Vec<SwitchFigures>> {
        let mut figures: Vec<SwitchFigures> = cases
            .iter()
            .map(|case| SwitchFigures {
                way: case.way.as_str(),
                place: case.place,
                cpus: case.cpus,
                round_trips: Vec::new(),
                switches_per_s: Vec::new(),
            })
            .collect();
        let time_ms = u64::from(self.slices) * self.slice_ms * cases.len() as u64;
        let bar = Progress::time("measuring", time_ms);
        for slice in 0..self.slices as usize {
            for turn in 0..cases.len() {
                // Forwards, then backwards: no case always follows the same one.
                let index = if slice % 2 == 0 { turn } else { cases.len() - 1 - turn };
                let Case { way, cpus, .. } = &cases[index];
                let cpus = cpus.map(usize::from);
                let measured = switch_slice(*way, cpus, Duration::from_millis(self.slice_ms));
                let mut measured = measured
                    .map_err(|error| Failure::new(format_args!("{}: {error}", way.as_str())))?;
                figures[index].switches_per_s.push(measured.switches_per_s());
                figures[index].round_trips.push(Block::of_times(&mut measured.round_trips_ns));
                bar.add(self.slice_ms);
            }
        }
        bar.finish();
        Ok(figures)
    }

    fn doubt(&self, root: &Root, notes: &mut Notes) {
        if is_virtual_machine(root) {
            notes.doubt(
                "this is a virtual machine: between CPUs the figures are a guest's, with its \
                 hypervisor in them",
            );
        }
        if let Some(load) = load_average(root).filter(|load| *load >= 0.5) {
            notes.doubt(format!(
                "other programs were running (load average {load}): measure on an idle machine"
            ));
        }
        if cfg!(debug_assertions) {
            notes.doubt("a build without optimization: measure with a release build");
        }
    }

    fn document(
        &self,
        root: &Root,
        figures: &[SwitchFigures],
        absent: &[Absent],
        notes: &Notes,
    ) -> Value {
        let [waker_cpu, waiter_cpu] = figures.last().map_or([0, 0], |last| last.cpus);
        let machine = machine_facts(root, Pair { waker_cpu, waiter_cpu });
        let series = figures.iter().flat_map(SwitchFigures::series);
        let document = json!({
            "slice_ms": self.slice_ms,
            "is_virtual_machine": is_virtual_machine(root),
            "all": measure_switch_table("", figures),
            "absent": absent,
        });
        saved("switch", &machine, series, notes, document)
    }
}

fn name(relation: Option<Relation>) -> &'static str {
    relation.map_or("another CPU", Relation::as_str)
}

/// Says which distances the machine does not have, as far as the user cannot know them.
fn say_absent(first: u16, near: &[(Option<Relation>, u16)], absent: &mut Vec<Absent>) {
    let mut lacks = |what: &str, reason: String| {
        absent.push(Absent { what: what.to_owned(), reason });
    };
    if near.is_empty() {
        let reason = format!("CPU {first} is the only one that this process may run on");
        return lacks("from one CPU to another", reason);
    }
    let relations: Vec<Relation> = near.iter().filter_map(|(relation, _)| *relation).collect();
    if relations.is_empty() {
        let reason = "the kernel shows no topology, so nobody knows how far apart the CPUs are";
        return lacks("SMT sibling, another core", reason.to_owned());
    }
    if !relations.contains(&Relation::SmtSibling) {
        lacks("SMT sibling", format!("CPU {first} has none online"));
    }
    if relations.iter().all(|one| *one == Relation::SmtSibling) {
        lacks("another core", "the only other CPUs are SMT siblings".to_owned());
    }
}

/// Doubts a measurement during which the hypervisor ran others.
fn doubt_steal(ticks: Option<((u64, u64), (u64, u64))>, notes: &mut Notes) {
    let Some((before, after)) = ticks else { return };
    let [all, stolen] = [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
    let ratio = stolen as f64 / all.max(1) as f64;
    if ratio > 0.01 {
        notes.doubt(format!(
            "the hypervisor gave {:.0} % of the CPU time to other guests",
            100.0 * ratio
        ));
    }
}
