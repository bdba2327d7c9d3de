//! `idlewise try`: a command under two alternating settings, until it is decided whether they differ.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use idlewise_host::energy::{EnergyKind, EnergyMeter};
use idlewise_host::settings::{Applied, Owner, Setting, apply, planned};
use idlewise_host::{Root, is_virtual_machine};
use idlewise_report::saved::BetterValue;
use idlewise_report::trial::{
    BLOCK_ROUND_COUNT, Budget, Round, Trial, TrialEnd, TrialPlan, Verdict, Which,
};
use idlewise_report::{Notes, TextStyle, wrap};
use idlewise_sim::Basis;
use regex::Regex;
use serde_json::json;

use super::measure::saving::{self, Pair, machine_facts, saved};
use super::set::{holder, restore};
use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::signals::Signals;
use crate::sysroot::root;
use crate::unpack::unnamed_file;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Does my benchmark run faster without C6? Against the settings as they are
  sudo idlewise try --set C6=off -- ./bench --short

  # Two governors, judged by a number that the benchmark prints
  sudo idlewise try --set governor=teo --against governor=menu \\
      --metric 'requests/s: ([0-9.]+)' --higher-is-better -- ./load-test 10

  # Differences below half a percent do not matter; at most 120 rounds and half an hour
  sudo idlewise try --set latency=50us@4-7 --least 0.5% --rounds 120 --max-minutes 30 -- ./bench

  # The command as an ordinary user; every round in a file
  sudo idlewise try --set C6=off --csv -- sudo -u me ./bench > rounds.csv

A round is one run of COMMAND. Rounds come in blocks of four, A B B A or B A A B by the toss of a \
coin, so slow drift of the machine is not mistaken for a difference. Settings are restored after \
each round and on every exit. It stops as soon as the result is clear. Stopping early \
does not raise the error rate: with no real difference, at most 5 % of tries report one \
(--confidence). docs/try.md has the method.

Exit status: 0 if the result is clear, whatever it is; 1 if it is unclear after all rounds, \
when time is up or on ctrl-c; 2 if COMMAND failed or a setting cannot be changed.";

/// Run your benchmark with and without a setting until it is clear whether that helps
///
/// Prints how much B (--set) differs from A (--against), with an interval, or that the difference is
/// below the smallest one that matters (--least).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Try {
    /// A setting to try: governor=teo, C6=off, C6=off@4-7, latency=10us@4-7, latency=10us; repeat it to combine them
    #[arg(long, value_name = "SETTING", required = true)]
    set: Vec<Setting>,

    /// What to compare it with; may be repeated [default: the settings as they are]
    #[arg(long, value_name = "SETTING")]
    against: Vec<Setting>,

    /// Instead of wall time, compare a number that COMMAND prints: a regular expression with one group, such as
    /// 'p99: ([0-9.]+) us'. The last match that is not empty counts
    #[arg(long, value_name = "REGEX", value_parser = metric)]
    metric: Option<Regex>,

    /// Lower numbers are better [default for wall time; with --metric and neither option, the result says which
    /// setting's number is higher, not which is better]
    #[arg(long, requires = "metric", conflicts_with = "higher_is_better")]
    lower_is_better: bool,

    /// Higher numbers are better
    #[arg(long, requires = "metric")]
    higher_is_better: bool,

    /// Run COMMAND at most this many times, not counting warm-up
    #[arg(long, value_name = "N", default_value = "40")]
    rounds: usize,

    /// Stop after this many minutes
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    max_minutes: Option<Duration>,

    /// The smallest difference that matters. The result says whether the difference is proven to be at least that
    /// large, proven to be smaller, or neither
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    least: f64,

    /// Confidence level: at 95 %, at most 5 % of tries report a difference where there is none
    #[arg(long, value_name = "PERCENT", value_parser = confidence, default_value = "95%")]
    confidence: f64,

    /// Rounds of each setting that are run first and do not count
    #[arg(long, value_name = "N", default_value = "1")]
    warmup: usize,

    /// Seconds to wait after each change of settings
    #[arg(long, value_name = "SECONDS", value_parser = settle, default_value = "0.1")]
    settle: Duration,

    /// Seed for the random order of rounds [default: drawn from the operating system's randomness, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print JSON instead of text; `idlewise lab compare` reads its wall times
    #[arg(long)]
    json: bool,

    /// Print a line for each round as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// The benchmark
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

fn metric(text: &str) -> Result<Regex, String> {
    let regex = Regex::new(text).map_err(|error| {
        // The error has several lines; the last says what is wrong.
        error.to_string().lines().last().unwrap_or_default().trim().to_owned()
    })?;
    match regex.captures_len() {
        2 => Ok(regex),
        count => {
            Err(format!("it has {} groups; mark the number with one: 'p99: ([0-9.]+)'", count - 1))
        }
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 1e6 => {
            Ok(Duration::from_secs_f64(minutes * 60.0))
        }
        _ => Err("give minutes above 0, such as 10 or 0.5".to_owned()),
    }
}

fn settle(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds, such as 1 or 0".to_owned()),
    }
}

fn percent_in(
    text: &str,
    range: std::ops::RangeInclusive<f64>,
    examples: &str,
) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number
        .filter(|percent| range.contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("give {} to {} %, such as {examples}", range.start(), range.end()))
}

fn percent(text: &str) -> Result<f64, String> {
    percent_in(text, 0.01..=100.0, "1% or 0.5%")
}

fn confidence(text: &str) -> Result<f64, String> {
    percent_in(text, 50.0..=99.9, "95% or 99%")
}

/// As much of what the command prints is searched and quoted.
const TAIL_BYTE_COUNT: u64 = 1 << 20;

/// How long a command may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// Below this, starting the process is a large part of what is measured.
const SHORT_NS: f64 = 20e6;

/// How a run of the command ended.
enum Ran {
    /// By itself, after this time.
    Whole { status: ExitStatus, wall_ns: u64 },
    /// Because there is no time left, or a signal came.
    Stopped(TrialEnd),
}

/// What is needed to run rounds.
struct Runner<'a> {
    arguments: &'a Try,
    root: &'a Root,
    found: BTreeMap<String, String>,
    signals: Signals,
    energy: Option<EnergyMeter>,
    deadline: Option<Instant>,
}

impl Try {
    /// Runs rounds until it is decided, and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        saving::begin();
        let root = root(self.sysroot.as_deref())?;
        let budget = self.budget()?;
        let found = self.check_settings(&root)?;
        // Catch signals before changing settings that a signal could leave behind.
        let signals = Signals::catch()?;
        let (energy, energy_absent) = match EnergyMeter::open(&root) {
            Ok(meter) => (Some(meter), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let deadline = self.max_minutes.map(|time| Instant::now() + time);
        let mut runner = Runner { arguments: &self, root: &root, found, signals, energy, deadline };
        let mut trial = Trial::new(self.plan(budget)?);
        let end = runner.run(&mut trial)?;
        self.print(&root, &trial, end, energy_absent.as_deref())?;
        Ok(ExitCode::from(u8::from(trial.verdict() == Verdict::Undecided)))
    }

    fn budget(&self) -> Result<Budget> {
        let error_ratio = 1.0 - self.confidence;
        let budget = Budget { error_ratio, block_count_max: self.rounds / BLOCK_ROUND_COUNT };
        if budget.can_decide() {
            return Ok(budget);
        }
        let needed = Budget::block_count_needed(error_ratio) * BLOCK_ROUND_COUNT;
        Err(Failure::new(format_args!(
            "--rounds {}: with fewer than {needed} rounds nothing can be decided at {} %; give more, or a lower \
             --confidence",
            self.rounds,
            100.0 * self.confidence
        )))
    }

    /// Finds out what cannot be set before the first round, and whether there is anything to compare. Returns what is
    /// in the files that A or B changes.
    fn check_settings(&self, root: &Root) -> Result<BTreeMap<String, String>> {
        let changes = |settings: &[Setting]| match settings {
            [] => Ok(Vec::new()),
            settings => planned(root, settings).map_err(Failure::new),
        };
        let (a, b) = (changes(&self.against)?, changes(&self.set)?);
        // A limit of the whole machine has no file that would show it.
        let is_machine_limit =
            |one: &Setting| matches!(one, Setting::LatencyLimit { cpus: None, .. });
        let has_machine_limit = self.set.iter().chain(&self.against).any(is_machine_limit);
        if a == b && !has_machine_limit {
            return Err(Failure::new(format_args!(
                "A ({}) and B ({}) are the same on this machine, so there is nothing to compare",
                self.words(Which::A),
                self.words(Which::B)
            )));
        }
        Ok(a.into_iter().chain(b).map(|change| (change.file, change.from)).collect())
    }

    fn settings(&self, which: Which) -> &[Setting] {
        match which {
            Which::A => &self.against,
            Which::B => &self.set,
        }
    }

    /// The settings as the user writes them.
    fn words(&self, which: Which) -> String {
        let words: Vec<String> = self.settings(which).iter().map(ToString::to_string).collect();
        if words.is_empty() { "as they are".to_owned() } else { words.join(" ") }
    }

    fn command_words(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    fn plan(&self, budget: Budget) -> Result<TrialPlan> {
        let seed = self.seed.map_or_else(drawn_seed, Ok)?;
        let better = match (&self.metric, self.lower_is_better, self.higher_is_better) {
            (None, ..) | (_, true, _) => Some(BetterValue::Lower),
            (_, _, true) => Some(BetterValue::Higher),
            _ => None,
        };
        Ok(TrialPlan {
            settings: Which::BOTH.map(|which| self.words(which)),
            command: self.command_words(),
            metric: self.metric.as_ref().map(|metric| metric.as_str().to_owned()),
            better,
            budget,
            least_ratio: self.least,
            seed,
        })
    }

    fn print(
        &self,
        root: &Root,
        trial: &Trial,
        end: TrialEnd,
        energy_absent: Option<&str>,
    ) -> Result<()> {
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "wall times");
        if self.metric.is_some() {
            notes.basis(Basis::Measured, "printed numbers");
        }
        if energy_absent.is_none() {
            notes.basis(Basis::Measured, "energies");
        }
        if is_virtual_machine(root) {
            notes.doubt(
                "this is a virtual machine: the processor's own idle states are chosen by the host",
            );
        }
        if self.metric.is_none() && trial.wall_median_ns().is_some_and(|ns| ns < SHORT_NS) {
            notes.doubt(
                "a round is so short that starting the process is a large part of it: give the command more \
                 work, or compare a number that it prints (--metric)",
            );
        }
        let style = TextStyle::for_stdout();
        if self.json {
            let document = json!({
                "a": self.words(Which::A),
                "b": self.words(Which::B),
                "command": self.command_words(),
                "metric": trial.plan().metric,
                "better": trial.plan().better,
                "seed": trial.plan().seed,
                "round_count_max": trial.plan().budget.block_count_max * BLOCK_ROUND_COUNT,
                "confidence_ratio": self.confidence,
                "least_ratio": self.least,
                "result": trial.result_json(end),
                "energy_absent": energy_absent,
                "is_virtual_machine": is_virtual_machine(root),
                "sides": trial.settings_table(""),
                "rounds": trial.rounds_table(),
            });
            let cpu = root.online_cpus().first().copied().unwrap_or_default();
            let facts = machine_facts(root, Pair { waker_cpu: cpu, waiter_cpu: cpu });
            let document = saved("try", &facts, trial.series(), &notes, document);
            screen::stdout().json(SCHEMA, &document)?;
        } else if self.csv {
            write!(screen::stdout(), "{}", trial.rounds_table().to_csv())?;
            say(wrap(&trial.sentence(end), style.width, 0));
            write!(screen::stderr(), "{}", notes.to_text(style.width))?;
        } else {
            let mut out = screen::stdout();
            write!(out, "{}", trial.to_text(end, &style))?;
            write!(out, "{}", notes.to_text(style.width))?;
        }
        Ok(())
    }
}

impl Runner<'_> {
    /// Runs rounds until there is a reason to stop.
    fn run(&mut self, trial: &mut Trial) -> Result<TrialEnd> {
        let bar = Progress::rounds("rounds", self.arguments.rounds as u64);
        for number in 1..=self.arguments.warmup {
            for which in Which::BOTH {
                let name = format!("warm-up round {number}");
                if let Err(end) = self.round(&name, which)? {
                    return Ok(end);
                }
            }
        }
        let start = Instant::now();
        loop {
            let order = trial.next_order();
            let mut block = Vec::with_capacity(order.len());
            for which in order {
                let number = trial.round_count() + block.len() + 1;
                match self.round(&format!("round {number}"), which)? {
                    Ok(round) => block.push(round),
                    // What was run of the block is in no balance, and does not count.
                    Err(end) => return Ok(end),
                }
                bar.add(1);
            }
            let block: [Round; BLOCK_ROUND_COUNT] =
                block.try_into().map_err(|_| Failure::new("a block has four rounds"))?;
            trial.add(block, start.elapsed());
            if let Some(end) = trial.end() {
                bar.finish();
                return Ok(end);
            }
        }
    }

    /// Runs the command once under a setting, and restores what was found.
    fn round(&mut self, name: &str, which: Which) -> Result<Result<Round, TrialEnd>> {
        let place = format!("{name} ({}: {})", which.name(), self.arguments.words(which));
        let settings = self.arguments.settings(which);
        let applied = match settings.is_empty() {
            true => None,
            false => {
                // If this process is killed, its holder restores the settings.
                let owner = Owner { holder: holder(), ..Owner::running("idlewise try") };
                Some(apply(self.root, settings, &owner).map_err(Failure::new)?)
            }
        };
        let ran = self.measured(&place, which);
        let changed = self.changed(applied.as_ref());
        let restored = applied.map_or(Ok(()), |applied| restore(applied, &place));
        // The command's failure is the one to tell of, and dropping would have restored as well.
        let ran = ran?;
        restored?;
        let Some((file, now)) = changed else { return Ok(ran) };
        Err(Failure::new(match now {
            Some(now) => format!(
                "{place}: somebody else wrote {now} to {file} meanwhile, so the round was not under this setting; find \
                 out who (idlewise set status), and try again"
            ),
            None => format!(
                "{place}: {file} is gone, as when a CPU is put offline or the driver changed; try again without that"
            ),
        }))
    }

    /// A file that has not the value of this round, and what is in it.
    fn changed(&self, applied: Option<&Applied>) -> Option<(String, Option<String>)> {
        let mut expected = self.found.clone();
        let set = applied.iter().flat_map(|applied| applied.changes());
        expected.extend(set.map(|change| (change.file.clone(), change.to.clone())));
        let values = expected.into_iter().map(|(file, to)| (self.root.text(&file), file, to));
        let mut others = values.filter(|(now, _, to)| now.as_ref() != Some(to));
        others.next().map(|(now, file, _)| (self.root.path(&file).display().to_string(), now))
    }

    fn measured(&mut self, place: &str, which: Which) -> Result<Result<Round, TrialEnd>> {
        if let Some(end) = self.wait(self.arguments.settle)? {
            return Ok(Err(end));
        }
        let (mut stdout, mut stderr) = (unnamed_file()?, unnamed_file()?);
        let before_uj = self.energy_uj();
        let (status, wall_ns) = match self.command(&stdout, &stderr)? {
            Ran::Whole { status, wall_ns } => (status, wall_ns),
            Ran::Stopped(end) => return Ok(Err(end)),
        };
        let energy_uj = self.energy_uj().zip(before_uj).map(|(after, before)| after - before);
        // Ctrl-c has ended the command as well, and that is not its failure.
        if self.signals.has_ended() {
            return Ok(Err(TrialEnd::Signal));
        }
        if !status.success() {
            let said = tail(&mut stderr)?;
            let said = said
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it said nothing");
            return Err(Failure::new(format_args!(
                "{place}: `{}` {}: {}; the settings are as they were",
                self.arguments.command_words(),
                ended(status),
                said.trim()
            )));
        }
        let metric = match &self.arguments.metric {
            None => None,
            Some(metric) => Some(self.printed(metric, place, [&mut stdout, &mut stderr])?),
        };
        Ok(Ok(Round { which, wall_ns, metric, energy_uj }))
    }

    /// The number that the command printed.
    fn printed(&self, metric: &Regex, place: &str, files: [&mut File; 2]) -> Result<f64> {
        let fail = |what: String| {
            Failure::new(format_args!("{place}: {what}; the settings are as they were"))
        };
        for file in files {
            let text = tail(file)?;
            let matches = metric.captures_iter(&text).filter_map(|found| found.get(1));
            let numbers = matches.map(|number| number.as_str().trim());
            let Some(number) = numbers.filter(|number| !number.is_empty()).last() else { continue };
            let parsed = number.parse::<f64>();
            let number = cut(number);
            return match parsed {
                // Their ratios are numbers, too.
                Ok(value) if (1e-100..=1e100).contains(&value) => Ok(value),
                Ok(_) => Err(fail(format!(
                    "--metric found {number}, and only numbers above 0 have ratios (1e-100 to 1e100)"
                ))),
                Err(_) => Err(fail(format!("--metric found '{number}', which is no number"))),
            };
        }
        Err(fail(format!(
            "`{}` printed nothing that --metric '{metric}' finds",
            self.arguments.command_words()
        )))
    }

    /// Runs the command.
    fn command(&mut self, stdout: &File, stderr: &File) -> Result<Ran> {
        let (program, words) = self.arguments.command.split_first().expect("clap requires one");
        let to_file = |file: &File| file.try_clone().map(Stdio::from);
        let stdout = match self.arguments.metric {
            Some(_) => to_file(stdout)?,
            None => Stdio::null(),
        };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(to_file(stderr)?);
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| {
            let program = program.to_string_lossy();
            Failure::new(format_args!(
                "cannot start {program}: {error}; the settings are as they were"
            ))
        })?;
        loop {
            if let Some(status) = child.try_wait()? {
                let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                return Ok(Ran::Whole { status, wall_ns });
            }
            if let Some(end) = self.over() {
                self.end(&mut child)?;
                return Ok(Ran::Stopped(end));
            }
            let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // The command's end is a signal, which ends the wait.
            self.signals.wait(left.unwrap_or(Duration::from_secs(3_600)))?;
        }
    }

    /// Ends a command that is still running.
    fn end(&mut self, child: &mut Child) -> Result<()> {
        let process = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let at = Instant::now() + PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() >= at {
                child.kill()?;
                child.wait()?;
                break;
            }
            self.signals.wait(at.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }

    /// Why to stop whatever has been found.
    fn over(&self) -> Option<TrialEnd> {
        if self.signals.has_ended() {
            return Some(TrialEnd::Signal);
        }
        self.deadline.is_some_and(|at| Instant::now() >= at).then_some(TrialEnd::Time)
    }

    fn wait(&mut self, time: Duration) -> Result<Option<TrialEnd>> {
        let at = Instant::now() + time;
        while self.over().is_none() && Instant::now() < at {
            self.signals.wait(at.saturating_duration_since(Instant::now()))?;
        }
        Ok(self.over())
    }

    /// The energy of all packages so far. Once it cannot be read, it is no longer asked for.
    fn energy_uj(&mut self) -> Option<f64> {
        let meter = self.energy.as_mut()?;
        let is_counted: Vec<bool> =
            meter.domains().iter().map(|domain| is_whole(domain.kind)).collect();
        let sum = match meter.read_uj() {
            Ok(read) => {
                read.iter().zip(is_counted).filter(|(_, is)| *is).map(|(uj, _)| *uj as f64).sum()
            }
            Err(_) => {
                self.energy = None;
                return None;
            }
        };
        Some(sum)
    }
}

/// Tosses the coins: 48 bits, which every program that reads JSON keeps.
fn drawn_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes[..6]));
    drawn.map_err(|error| {
        Failure::new(format_args!(
            "/dev/urandom: {error}; the order of the rounds must be random: give one by --seed"
        ))
    })?;
    Ok(u64::from_le_bytes(bytes))
}

/// The end of what was printed.
fn tail(file: &mut File) -> Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTE_COUNT)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTE_COUNT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The beginning of what may be a megabyte.
fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "did not end".to_owned(),
    }
}

/// Whose energy is counted: what no other domain contains. Memory is not in the packages of servers.
fn is_whole(kind: EnergyKind) -> bool {
    matches!(kind, EnergyKind::Package | EnergyKind::Memory | EnergyKind::Machine)
}
