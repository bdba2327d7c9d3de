//! `idlewise advise`: what to change on a machine, judged on a recording of it.

mod candidates;
mod emit;
mod judged;
mod predicted;
mod profile;
mod replayed;

use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use idlewise_host::settings::CpuSet;
use idlewise_host::{Recording, Root, note};
use idlewise_lab::notes::{add_governors, add_machine};
use idlewise_lab::target::{Conditions, HZ_DEFAULT, is_own_machine, named_machine};
use idlewise_report::advise::{Advice, Candidate, JudgedBy, Outcome, Slices, Slo, Wishes};
use idlewise_report::predict::reproduction_text;
use idlewise_report::{Notes, TextStyle, counted};
use idlewise_sim::contest::Price;
use idlewise_sim::{Basis, Machine};
use idlewise_trace::wanted_events;

use self::candidates::{Candidates, Change, Variant};
use self::emit::Format;
use self::judged::{AskedJudge, Judged, Unplayable};
use self::predicted::Predicted;
use self::replayed::Replayed;
use super::info::histogram::{self, Form};
use super::record::seconds;
use super::why::{CpuList, cpus};
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result};
use crate::governors::Choice;
use crate::input::{NamedLog, no_gaps};
use crate::output;
use crate::progress::Progress;
use crate::replay_arguments::ReplayTarget;
use crate::screen::{self, say};
use crate::signals::{self, Signals};
use crate::sysroot::root;
use crate::threads;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 2;

/// A replay that agrees less often with the recording is doubtful.
const AGREED_MIN: f64 = 0.95;
/// As is one that says nothing of so much CPU time.
const EDGE_MAX: f64 = 0.05;

const EXAMPLES: &str = "\
Examples:
  # Record this machine for half a minute and say what to change, if anything
  sudo idlewise advise -d 30

  # The same for a recording you have
  idlewise advise trace.dat

  # Judged on what the workload would do, not only on its idle periods
  sudo idlewise record --causes -o run.dat -- ./workload
  idlewise advise run.dat

  # At most 50 us of delay for 99 % of the wake-ups of four CPUs, for at most 3 W more
  idlewise advise trace.dat --cpus 4-7 --slo p99=50us --max-watts 3

  # The recommended change as a tuned profile, as a systemd unit, as a file for `set apply`
  idlewise advise trace.dat --emit tuned -o tuned.conf
  idlewise advise trace.dat --emit systemd -o idlewise-advice.service
  idlewise advise trace.dat --emit dropin -o advice.conf

  # Does the tuned profile, or the kernel command line, work as intended, and is it in force?
  sudo idlewise advise --check-profile tuned:latency-performance
  idlewise advise --check-profile cmdline

advise considers latency limits, another governor, a disabled state and the boot parameter max_cstate, the least \
drastic first. It judges each by replaying the recorded idle periods. If the recording says what makes \
tasks run (record --causes), and a simulation of these tasks matches the recording, it judges by the \
simulation instead, but not with -d, --cpus or --hz. With --slo, it recommends a \
change that clearly stays within the limits; of several, the one that uses the least power. Without --slo, it \
recommends a change only if it clearly reduces cost (energy, plus delay at a price), and neither power nor the \
longest delays rise. *Clearly* means everywhere in the 95 % confidence interval, which is computed from slices of the recording. \
A change that saves power at the price of longer delays, or the reverse, is shown for you to decide.

Exit status: 0, even if nothing should change; 1 if no setting meets the limits; 2 on bad input, or \
if nothing could be recorded. With --check-profile: 0 if every idle-state setting in it works as intended and is in force, or if it \
has none; 1 if one does not work or is not in force, or if that could not be determined; 2 if a file cannot be read.";

/// Say what to change about this machine's idle states, judged on a recording
///
/// Changes nothing. The answer may be to leave it alone.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Advise {
    /// A recording (perf.data, trace.dat), an idle log (.parquet, made by `log import`), `record --histogram` output, or a
    /// workload log (made by `log import --causes`)
    #[arg(conflicts_with = "duration")]
    log: Option<PathBuf>,

    /// Record this machine for this many seconds first (root)
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Judge delay on these CPUs only, and limit the settings to them; for example 4-7,12 [default: all]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,

    /// Limit for a percentile of wake-up delays; separate several with commas, such as p50=5us,p99=50us
    #[arg(long = "slo", value_name = "pN=TIME", value_delimiter = ',', value_parser = slo, conflicts_with = "lambda_mw")]
    slos: Vec<Slo>,

    /// With --slo, allow at most this many watts more than now, all CPUs together
    #[arg(long, value_name = "W", value_parser = watts, requires = "slos")]
    max_watts: Option<f64>,

    /// The machine to judge for [default: the recorded one]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,

    /// Read the machine's /proc and /sys files from this folder. If the recording has no idle states, those found here
    /// are used
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    sysroot: Option<PathBuf>,

    /// Simulate a kernel with this CONFIG_HZ [default: the recording's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000))]
    hz: Option<u32>,

    /// Without --slo, the price of delay in mW: a second of delay costs this many mJ [default: ¼ of the power of
    /// busy-waiting]
    #[arg(long, value_name = "P", value_parser = Price::parse_milliwatts)]
    lambda_mw: Option<Price>,

    /// How to judge [default: predict if LOG was made by `record --causes` or `log import --causes`, a simulation
    /// matches it, and -d, --cpus and --hz are absent; else replay]
    #[arg(long, value_name = "JUDGE", value_enum)]
    judge: Option<AskedJudge>,

    /// Say whether a tuned profile, a TLP configuration or a kernel command line has its intended effect on this
    /// machine. Name a file, tuned:NAME, or `cmdline` for the running kernel's command line
    #[arg(long, value_name = "FILE|tuned:NAME|cmdline", conflicts_with_all =
          ["log", "duration", "cpus", "slos", "max_watts", "machine", "hz", "lambda_mw", "judge", "emit"])]
    check_profile: Option<String>,

    /// Write the recommended change in this form
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    emit: Option<Format>,

    /// With --emit, the file to write; if it is `-`, the change goes to standard output and the report to standard error
    #[arg(short, long, value_name = "FILE", default_value = "-", requires = "emit")]
    output: PathBuf,

    /// Replace that file if it exists
    #[arg(long, requires = "emit")]
    force: bool,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

fn slo(text: &str) -> Result<Slo, String> {
    let wrong =
        || format!("'{text}' is not a limit of delay; give a percentile and a time, as p99=50us");
    let (percent, limit) = text.split_once('=').ok_or_else(wrong)?;
    let percent: f64 = percent
        .strip_prefix('p')
        .and_then(|percent| percent.parse().ok())
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(wrong)?;
    let limit = idlewise_host::settings::parse_limit(limit)?.ok_or_else(wrong)?;
    let limit_ns = u64::try_from(limit.as_nanos()).map_err(|_| wrong())?;
    // 0.999 rather than 0.9990000000000001.
    Ok(Slo { ratio: (percent * 1e6).round() / 1e8, limit_ns })
}

fn watts(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(watts) if watts.is_finite() && watts >= 0.0 => Ok(watts),
        _ => Err("give watts of 0 or more, such as 3 or 0.5".to_owned()),
    }
}

impl Advise {
    /// Judges the candidates and prints the advice.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(profile) = &self.check_profile {
            return profile::check(&root(self.sysroot.as_deref())?, profile, self.json);
        }
        threads::start();
        // Fail before half a minute of recording, not after.
        let machine = named_machine(self.machine.as_deref())?;
        let root = root(self.sysroot.as_deref())?;
        if let Some(status) = self.advise_of_histogram(machine.as_ref())? {
            return Ok(status);
        }
        let output = match self.emit {
            Some(_) => {
                let inputs: Vec<&Path> = self.log.as_deref().into_iter().collect();
                Some(output::create(&self.output, self.force, &inputs)?)
            }
            None => None,
        };
        let named = match (&self.log, self.duration) {
            (None, None) => {
                return Err(Failure::new(
                    "name a recording, or record this machine first, as root: -d 30",
                ));
            }
            (Some(path), _) => {
                signals::clean_up_first()?;
                Judged::open(path, self.unpacking, self.judge, self.unplayable())?
            }
            (None, Some(duration)) => {
                let named = record(&root, duration, self.unpacking)?;
                // The recording is gone, so from here on ctrl-c may end it.
                signals::clean_up_first()?;
                Judged::replayed(named)
            }
        };
        let metadata = &named.metadata;
        let captured = || captured_machine(self.sysroot.as_ref().map(|_| &root));
        let Some(machine) = machine.or_else(|| metadata.machine.clone()).or_else(captured) else {
            return Err(Failure::new(format_args!(
                "{} does not say which idle states the machine has; name the machine: --machine \
                 (`idlewise machines` lists some), or its captured files: --sysroot",
                named.name
            )));
        };
        let target = ReplayTarget::new(machine, &[], &[])?;
        let (advice, changes) = self.judge(&named, &target)?;
        self.print(&advice, &changes, output)
    }

    /// An option that holds only for a replay.
    fn unplayable(&self) -> Option<Unplayable> {
        let cpus = Unplayable {
            why: "a played workload cannot have a setting for some CPUs only",
            remedy: "leave out --cpus",
        };
        let hz = Unplayable {
            why: "a played workload has the ticks of the recording",
            remedy: "leave out --hz",
        };
        (self.cpus.is_some().then_some(cpus)).or_else(|| self.hz.is_some().then_some(hz))
    }

    /// What a histogram can tell; `None` if the file is a log or a recording.
    fn advise_of_histogram(&self, machine: Option<&Machine>) -> Result<Option<ExitCode>> {
        let Some(path) = &self.log else { return Ok(None) };
        let Some(histogram) = histogram::read(path)? else { return Ok(None) };
        if !self.slos.is_empty()
            || self.emit.is_some()
            || self.cpus.is_some()
            || self.max_watts.is_some()
        {
            return Err(Failure::new(format_args!(
                "{}: a histogram has no order of stays, so no candidate can be judged by replay: leave out --slo, \
                 --cpus, --max-watts and --emit, or record without --histogram",
                screen::name(path)
            )));
        }
        let form = if self.json { Form::Json } else { Form::Text };
        histogram::advise(path, &histogram, machine, form).map(Some)
    }

    /// Returns the advice, and what each candidate changes.
    fn judge(&self, named: &Judged, target: &ReplayTarget) -> Result<(Advice, Vec<Change>)> {
        let metadata = &named.metadata;
        let observed = metadata.cpus.iter().filter(|cpu| cpu.observed && cpu.gap_count > 0);
        let all: CpuSet = observed.clone().map(|cpu| cpu.cpu).collect();
        if all.iter().next().is_none() {
            return Err(Failure::new(no_gaps(&named.name, metadata)));
        }
        let asked: Option<CpuSet> =
            self.cpus.as_ref().map(|CpuList(cpus)| cpus.iter().copied().collect());
        if let Some(cpu) = asked.iter().flat_map(CpuSet::iter).find(|cpu| !all.contains(*cpu)) {
            return Err(Failure::new(format_args!(
                "{} has no idle periods of CPU {cpu}, only of {all}",
                named.name
            )));
        }
        let span_ns = [
            observed.clone().map(|cpu| cpu.first_at_ns).min().unwrap_or_default(),
            observed.map(|cpu| cpu.last_at_ns).max().unwrap_or_default(),
        ];
        let length_ns = span_ns[1].saturating_sub(span_ns[0]);
        if length_ns <= 0 {
            return Err(Failure::new(format_args!(
                "{} does not say how long it lasted; record it anew, or import it with idlewise",
                named.name
            )));
        }
        let candidates = Candidates { target, metadata, asked: asked.as_ref(), all: all.clone() };
        let mut variants = vec![candidates.as_it_is()?];
        variants.extend(candidates.all()?);
        let is_own = is_own_machine(self.machine.as_deref());
        let (outcome, slices) = match (&named.log, &named.predicted) {
            (_, Some(predicted)) => (None, predicted.run(&target.machine, is_own, &variants)?),
            (Some(log), None) => {
                let replayed = Replayed {
                    log: &log.log,
                    target,
                    hz: Conditions { hz: self.hz, ..Conditions::default() }.hz_of(metadata),
                    variants: &variants,
                    asked: asked.as_ref(),
                    span_ns,
                };
                let mut outcome = replayed.run()?;
                let slices = std::mem::take(&mut outcome.slices);
                (Some(outcome), slices.into_iter().map(Some).collect())
            }
            (None, None) => (None, Vec::new()),
        };
        let mut unplayed = Vec::new();
        let played = variants.into_iter().zip(slices).filter_map(|(variant, slices)| {
            if slices.is_none() {
                unplayed.push(variant.change.text());
            }
            Some((variant, slices?))
        });
        let (variants, slices): (Vec<Variant>, Vec<Slices>) = played.unzip();
        let mut slices = slices.into_iter();
        let before = slices.next().unwrap_or_default();
        let tried: Vec<Candidate> = variants[1..]
            .iter()
            .zip(slices)
            .map(|(variant, slices)| Candidate {
                setting: variant.change.text(),
                step: variant.step,
                slices,
            })
            .collect();
        let wishes = Wishes {
            slos: self.slos.clone(),
            power_max_mw: self.max_watts.map(|watts| watts * 1e3),
            lambda_mw: match self.slos.is_empty() {
                true => self.lambda_mw.unwrap_or(Price::QUARTER).lambda_mw(&target.costs),
                false => 0.0,
            },
        };
        let cpu_count = all.iter().count() as f64;
        let doubted = outcome.as_ref().map(|outcome| Doubted {
            outcome,
            edge_ratio: outcome.edge_ns as f64 / (length_ns as f64 * cpu_count),
        });
        let mut notes = self.notes(named, target, &variants, doubted.as_ref());
        if !unplayed.is_empty() {
            notes.doubt(format!(
                "not judged, because the workload cannot be played under it: {}",
                unplayed.join(", ")
            ));
        }
        let judged_by =
            if named.predicted.is_some() { JudgedBy::Predict } else { JudgedBy::Replay };
        let mut advice =
            Advice::new(&before, &tried, wishes, length_ns.unsigned_abs(), judged_by, notes);
        advice.log.clone_from(&named.name);
        advice.machine.clone_from(&target.machine.title);
        advice.governor = variants[0].choice.name();
        advice.cpus = asked.unwrap_or(all).to_string();
        Ok((advice, variants.into_iter().skip(1).map(|variant| variant.change).collect()))
    }

    fn notes(
        &self,
        named: &Judged,
        target: &ReplayTarget,
        variants: &[Variant],
        doubted: Option<&Doubted<'_>>,
    ) -> Notes {
        let metadata = &named.metadata;
        let mut notes = self.doubts.notes();
        match &named.predicted {
            Some(Predicted { reproduction, .. }) => {
                notes.basis(Basis::Measured, "what tasks run, and what wakes them");
                notes.basis(
                    Basis::Simulated,
                    format!(
                        "delays, from a wake-up until the task runs, and energy of idle CPUs. As it was, the workload \
                         reproduces itself: {}",
                        reproduction_text(reproduction)
                    ),
                );
            }
            None => {
                notes.basis(Basis::Simulated, "delays and energy, with worst-case exit latencies")
            }
        }
        if let Some(doubt) = &named.doubt {
            notes.doubt(doubt.clone());
        }
        let mut choices: Vec<Choice> = Vec::new();
        for variant in variants {
            if choices.iter().all(|known| known.id() != variant.choice.id()) {
                choices.push(variant.choice.clone());
            }
        }
        add_governors(&mut notes, Basis::Simulated, &choices);
        add_machine(&mut notes, &target.machine, "energy and cost");
        if doubted.is_some() {
            notes.basis(Basis::Assumed, "that time which shorter exits save is idle");
            notes.basis(
                Basis::Assumed,
                "that the machine would have been idle at the same times under each candidate",
            );
        }
        if self.hz.is_none() && metadata.hz.is_none() {
            notes.doubt(format!("HZ is unknown, {HZ_DEFAULT} was assumed; pass --hz"));
        }
        if metadata.governor.is_none() {
            notes.doubt("the recording does not name its governor; menu was assumed");
        }
        if let Some(&Doubted { outcome, edge_ratio }) = doubted {
            let replayed::Outcome { recorded_count, agreed_count, .. } = *outcome;
            let agreed_ratio = agreed_count as f64 / recorded_count.max(1) as f64;
            if is_own_machine(self.machine.as_deref())
                && recorded_count > 0
                && agreed_ratio < AGREED_MIN
            {
                notes.doubt(format!(
                    "the replay as it is enters the recorded state in only {:.0} % of the idle periods, so \
                     what it says of other settings may be off: `idlewise replay --check-recorded` says why",
                    agreed_ratio * 100.0
                ));
            }
            if edge_ratio > EDGE_MAX {
                notes.doubt(format!(
                    "{:.0} % of the CPU time is before a CPU's first idle period or after its last one, and \
                     its power is not counted; record for longer",
                    edge_ratio * 100.0
                ));
            }
            if let Some(limit_ns) = outcome.recorded_limit_ns {
                notes.doubt(format!(
                    "a latency limit of {} us was in force while recording, and holds for every candidate",
                    limit_ns / 1_000
                ));
            }
        }
        notes.doubts_of(&metadata.doubts);
        notes
    }

    fn print(
        &self,
        advice: &Advice,
        changes: &[Change],
        output: Option<idlewise_trace::OutputFile>,
    ) -> Result<ExitCode> {
        let status = match advice.outcome() {
            Outcome::Infeasible(_) => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
        let style = TextStyle::for_stdout();
        if let (Some(format), Some(output)) = (self.emit, output) {
            let mut report = output::report_of(&output)();
            report.write_all(advice.to_text(&style).as_bytes())?;
            let change = match advice.outcome() {
                Outcome::Change(index) => &changes[*index],
                _ => &Change::Nothing,
            };
            drop(report);
            output::write(output, emit::text(format, change, &advice.log, &advice.sentence()))?;
            return Ok(status);
        }
        let mut out = screen::stdout();
        if self.json {
            out.json(SCHEMA, &advice.to_json())?;
        } else {
            out.write_all(advice.to_text(&style).as_bytes())?;
        }
        Ok(status)
    }
}

/// What makes a replay doubtful.
struct Doubted<'a> {
    outcome: &'a replayed::Outcome,
    /// The share of CPU time that no gap's neighbours cover.
    edge_ratio: f64,
}

/// The machine whose files were captured, as its first CPU with idle states has it.
fn captured_machine(root: Option<&Root>) -> Option<Machine> {
    let tables = note(root?, String::new()).tables;
    tables.into_iter().next().map(|table| table.machine)
}

/// A folder that is removed with everything in it.
struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Makes a folder that only its owner can look into. Fails if something of that name exists.
    fn create() -> Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("idlewise-advise-{}-{}", std::process::id(), now.as_nanos());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            let other = match error.kind() {
                ErrorKind::NotFound => "a folder that exists",
                _ => "a place with more room",
            };
            Failure::new(format_args!(
                "cannot keep a recording in {}: {error}; set TMPDIR to {other}",
                path.display()
            ))
        })?;
        Ok(OwnFolder(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Records this machine. The recording is gone afterwards.
fn record(root: &Root, duration: Duration, unpacking: Unpacking) -> Result<NamedLog> {
    let folder = OwnFolder::create()?;
    let path = folder.0.join("this-machine.dat");
    let machine = note(root, "idlewise advise".to_owned());
    let output = output::create_private(&path, false)?;
    let mut signals = Signals::catch()?;
    let recording = Recording::start(root, output, None, wanted_events()).map_err(Failure::new)?;
    say(format_args!(
        "idlewise: recording {} for {} s; ctrl-c ends it early",
        counted(recording.cpus().len(), "CPU"),
        duration.as_secs_f64()
    ));
    loop {
        let left = duration.saturating_sub(recording.elapsed());
        if left.is_zero() || signals.has_ended() {
            break;
        }
        // Also finds out if the recorder cannot go on.
        recording.progress().map_err(Failure::new)?;
        signals.wait(left.min(Duration::from_secs(1)))?;
    }
    recording.stop().map_err(Failure::new)?;
    let bar = Progress::bytes("writing", 0);
    recording
        .finish(machine, &|done, all| {
            bar.set_length(all);
            bar.set(done);
        })
        .map_err(Failure::new)?;
    bar.finish();
    // The file is nothing that its user knows.
    let shown = format!("{}: ", path.display());
    NamedLog::open(&path, unpacking)
        .map_err(|failure| Failure::new(failure.text().replace(&shown, "")))
}
