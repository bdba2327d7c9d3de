//! `idlewise watch`: what idle CPUs do, now: on a screen, as lines, or as a page for Prometheus.

mod app;
pub(super) mod packages;
mod recorder;
mod serve;
mod source;
mod terminal;
mod view;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use crossterm::event::{self, Event, KeyEventKind};
use idlewise_host::{CpuListError, parse_cpu_list};
use idlewise_report::watch::{
    CpuReading, Figures, Grouping, Matching, Reading, SortKey, bar_column, line_columns, lines,
    package_columns, sort, state_columns, state_lines, symbol,
};
use idlewise_report::{Notes, Table, TextStyle, counted, wrap};
use idlewise_sim::Basis;
use serde_json::json;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

use self::app::{App, Wish};
use self::recorder::Recorder;
use self::source::Source;
use self::terminal::Session;
use crate::error::{Failure, Result};
use crate::screen;
use crate::signals::Signals;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;
/// How soon a signal or the end of a recording is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The interval of the first figures on a screen.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

const EXAMPLES: &str = "\
Examples:
  # All CPUs, once a second; ? explains the keys
  idlewise watch

  # Packages instead of CPUs, every five seconds
  idlewise watch --group package --interval 5

  # One table, for a terminal without cursor, a pipe or a log file
  idlewise watch --once

  # A line of JSON each second, ten of them
  idlewise watch --json --count 10

  # A page for Prometheus, without a screen; then look at it
  sudo idlewise watch --serve 127.0.0.1:9737
  curl http://127.0.0.1:9737/metrics

  # Sums of packages instead of each CPU, for a machine with hundreds of them
  sudo idlewise watch --serve 127.0.0.1:9737 --group package

Everybody may watch. Only root sees the latency limit of the whole machine, package states and \
power, and can record with the key r. If standard output isn't a terminal, or TERM is dumb, it \
prints one table and ends. Nothing is changed on the machine. NO_COLOR turns colours off; bars can \
be read without them.

The kernel counts a stay in an idle state when it ends. Until then, its time is shown as a dot in \
the bars. Waiting is entries times the exit latency that the driver declares, a worst case; it is \
not measured.

Exit status: 0, even after ctrl-c; 2 if there is nothing to watch or the port can't be used.";

/// Watch what idle CPUs do: time by state, wake-ups, wrong choices, latency limits
///
/// Reads the kernel's counters of idle states once a second and shows what happened in between, for each CPU or
/// for groups of CPUs.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Watch {
    /// Seconds between two readings
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// Only these CPUs, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = Cpus::parse)]
    cpus: Option<Cpus>,

    /// What a line is about, or with --serve what a sample is summed over
    #[arg(short, long, value_name = "WHAT", default_value = "cpu", value_parser = PossibleValuesParser::new(Grouping::ALL.map(Grouping::as_str)))]
    group: String,

    /// What lines are sorted by, the greatest first
    #[arg(short, long, value_name = "COLUMN", default_value = "cpu", value_parser = PossibleValuesParser::new(SortKey::ALL.map(SortKey::as_str)))]
    sort: String,

    /// Print one table of one interval instead of showing a screen
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Print this many tables, or lines with --json
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print a line of JSON for each interval, until ctrl-c
    #[arg(long)]
    json: bool,

    /// Serve the counters to Prometheus at this address instead, such as 127.0.0.1:9737
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = serve::address,
          conflicts_with_all = ["interval", "sort", "once", "count", "json"])]
    serve: Option<SocketAddr>,

    /// Let --serve listen on an address that other machines reach
    #[arg(long, requires = "serve")]
    allow_remote: bool,

    /// Let clients call the server of --serve by this name too, as `Host` of HTTP; other names except localhost
    /// are refused
    #[arg(long, value_name = "NAME", requires = "serve", value_parser = serve::host_name)]
    allow_host: Vec<String>,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

/// CPUs that the user named.
#[derive(Clone, Debug)]
struct Cpus(Vec<u16>);

impl Cpus {
    fn parse(text: &str) -> Result<Self, CpuListError> {
        parse_cpu_list(text).map(Cpus)
    }
}

/// More often, reading costs more than it shows.
const INTERVAL_S_MIN: f64 = 0.05;
/// Longer than anybody watches.
const INTERVAL_S_MAX: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (INTERVAL_S_MIN..=INTERVAL_S_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => {
            Err(format!("give seconds from {INTERVAL_S_MIN} to {INTERVAL_S_MAX}, such as 1 or 0.5"))
        }
    }
}

impl Watch {
    /// Watches until the user has seen enough.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let cpus = self.cpus.as_ref().map(|cpus| cpus.0.clone());
        let source = Source::open(root, cpus)?;
        let signals = Signals::catch()?;
        if let Some(address) = self.serve {
            let served = serve::Served {
                address,
                by: self.grouping(),
                allows_remote: self.allow_remote,
                host_names: self.allow_host.clone(),
            };
            return serve::serve(source, &served, signals);
        }
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let is_text = self.once || self.json || self.count.is_some();
        if is_text || is_dumb || !screen::raw_stdout().is_terminal() {
            return self.print(source, signals);
        }
        self.show(source, &signals)
    }

    fn grouping(&self) -> Grouping {
        let named = Grouping::ALL.into_iter().find(|grouping| grouping.as_str() == self.group);
        named.unwrap_or_default()
    }

    fn sort_key(&self) -> SortKey {
        SortKey::ALL.into_iter().find(|key| key.as_str() == self.sort).unwrap_or_default()
    }

    /// Prints tables or lines of JSON.
    fn print(&self, mut source: Source, mut signals: Signals) -> Result<ExitCode> {
        let until_signal = self.json && !self.once;
        let count = self.count.unwrap_or(if until_signal { u64::MAX } else { 1 });
        let (mut before, mut after) = (Reading::default(), Reading::default());
        let mut figures = Figures::default();
        source.package_lines(&figures);
        source.read(&mut before);
        let mut next = Instant::now();
        let mut printed = 0;
        while printed < count {
            next = next_after(next, self.interval);
            while Instant::now() < next && !signals.has_ended() {
                signals.wait(next.saturating_duration_since(Instant::now()))?;
            }
            if signals.has_ended() {
                break;
            }
            if source.follow()? {
                source.read(&mut before);
                continue;
            }
            source.read(&mut after);
            figures.update(source.layout(), &before, &after);
            std::mem::swap(&mut before, &mut after);
            self.print_interval(&mut source, &before, &figures)?;
            printed += 1;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_interval(
        &self,
        source: &mut Source,
        reading: &Reading,
        figures: &Figures,
    ) -> Result<()> {
        let packages = source.package_lines(figures);
        let layout = source.layout();
        let (grouping, all) = (self.grouping(), Matching::default());
        let mut rows = lines(layout, figures, grouping, &all);
        sort(&mut rows, self.sort_key(), false);
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "times, entries and misses, by the kernel");
        if !layout.has_no_states() {
            notes.basis(
                Basis::Assumed,
                "waiting (each wake-up waits for the exit latency that the driver declares)",
            );
        } else {
            notes.doubt(
                "no cpuidle driver counts idle states here, as in most virtual machines: idle time is that of \
                 /proc/stat",
            );
        }
        if let Some(lack) = source.machine_limit_lack() {
            notes.doubt(format_args!(
                "the latency limit of the whole machine is unknown: {}",
                lack.as_str()
            ));
        }
        if !source.knows_idle_times() {
            notes.doubt(
                "/proc/stat cannot be read, so nothing tells a running CPU from one in a stay in progress",
            );
        }
        for lack in source.package_lacks() {
            notes.doubt(format_args!("unknown: {lack}"));
        }
        let holders = source.limit_holders_of(reading);
        let layout = source.layout();
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "interval_ns": figures.interval_ns,
                "driver": layout.driver,
                "governor": layout.governor,
                "kernel": layout.kernel,
                "machine_limit_ns": figures.machine_limit_ns,
                "limit_holders": holders,
                "cpus": Table::new("", &line_columns(), &rows),
                "states": Table::new("", &state_columns(), state_lines(layout, figures, grouping, &all)),
                "packages": Table::new("", &package_columns(), &packages),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json_line(SCHEMA, &document)?;
            return Ok(out.flush()?);
        }
        let style = TextStyle::for_stdout();
        let driver = layout.driver.as_deref().unwrap_or("no cpuidle driver");
        let governor = layout.governor.as_ref().map(|governor| format!(", {governor}"));
        let title = format!(
            "{driver}{}, {}, {:.1} s",
            governor.unwrap_or_default(),
            counted(layout.cpus.len(), "CPU"),
            figures.interval_ns as f64 / 1e9,
        );
        if !layout.has_no_states() {
            let machine = state_lines(layout, figures, Grouping::Machine, &all);
            let table =
                Table::new(title.clone() + ": states of all CPUs", &state_columns(), machine);
            writeln!(out, "{}", table.without(&["cpus"]).unranked().to_text(&style))?;
            let legend = layout.slots().iter().enumerate();
            let legend: Vec<String> =
                legend.map(|(slot, name)| format!("{} {name}", symbol(slot))).collect();
            let unknown = if source.knows_idle_times() { "" } else { ", ? not known" };
            let legend =
                format!("Bars: # running, {}, . idle, in progress{unknown}", legend.join(", "));
            writeln!(out, "{}", wrap(&legend, style.width, 2))?;
        } else {
            writeln!(out, "{title}")?;
        }
        let mut columns = line_columns();
        columns.insert(1, bar_column());
        let table = Table::new("", &columns, &rows);
        let table = if grouping == Grouping::Cpu { table.without(&["cpu_count"]) } else { table };
        writeln!(out, "{}", table.unranked().to_text(&style))?;
        if !holders.is_empty() {
            writeln!(
                out,
                "{}",
                wrap(
                    &format!("Latency limits are held by {}.", holders.join(", ")),
                    style.width,
                    0
                )
            )?;
        }
        if !packages.is_empty() {
            let table = Table::new("Packages", &package_columns(), &packages);
            writeln!(out, "{}", table.unranked().to_text(&style))?;
        }
        write!(out, "{}", notes.to_text(style.width))?;
        Ok(out.flush()?)
    }

    /// Shows the screen until the user quits.
    fn show(&self, mut source: Source, signals: &Signals) -> Result<ExitCode> {
        let flag = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone())
                .map(|_| flag)
                .map_err(|error| Failure::new(format_args!("cannot catch signals: {error}")))
        };
        let (is_to_stop, has_continued) = (flag(SIGTSTP)?, flag(SIGCONT)?);
        let mut app = App::new(source.layout().clone(), self.interval.as_secs_f64());
        (app.grouping, app.sort) = (self.grouping(), self.sort_key());
        app.has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        app.package_lacks = source.package_lacks();
        app.machine_limit_lack = source.machine_limit_lack();
        let mut readings = Readings::default();
        readings.start(&mut source);
        // The first figures come soon.
        let mut next = Instant::now() + self.interval.min(FIRST_INTERVAL);
        let mut recorder: Option<Recorder> = None;
        let mut session = Session::start().map_err(|error| no_screen(&error))?;
        let mut is_changed = true;
        while !signals.has_ended() {
            let now = Instant::now();
            if now >= next && !app.is_paused {
                next = next_after(next, self.interval);
                readings.go_on(&mut source, &mut app)?;
                is_changed = true;
            }
            if let Some(message) = recorder.as_mut().and_then(Recorder::ended) {
                (recorder, app.is_recording) = (None, false);
                app.message = Some(message);
                is_changed = true;
            }
            if has_continued.swap(false, Ordering::Relaxed) {
                // Whoever stopped us may have left the terminal in another state.
                session.without(|| {}).map_err(|error| no_screen(&error))?;
                is_changed = true;
            }
            if is_changed {
                session.draw(&mut app).map_err(|error| no_screen(&error))?;
                is_changed = false;
            }
            let mut wish = None;
            let patience = patience(now, next, app.is_paused);
            if event::poll(patience).map_err(|error| no_screen(&error))? {
                is_changed = true;
                if let Event::Key(key) = event::read().map_err(|error| no_screen(&error))?
                    && key.kind == KeyEventKind::Press
                {
                    wish = Some(app.key(key));
                }
            } else if session.is_resized() {
                is_changed = true;
            }
            if is_to_stop.swap(false, Ordering::Relaxed) {
                wish = Some(Wish::Suspend);
            }
            match wish {
                None | Some(Wish::Draw) => {}
                Some(Wish::Quit) => break,
                Some(Wish::Redraw) => session.clear().map_err(|error| no_screen(&error))?,
                Some(Wish::Resume) => {
                    readings.start(&mut source);
                    next = next_after(Instant::now(), self.interval);
                }
                Some(Wish::Suspend) => {
                    let stop = || {
                        let _ = emulate_default_handler(SIGTSTP);
                    };
                    session.without(stop).map_err(|error| no_screen(&error))?;
                    is_changed = true;
                }
                Some(Wish::Record) if recorder.is_some() => {}
                Some(Wish::Record) => match Recorder::start() {
                    Ok(started) => {
                        app.message = Some(started.message());
                        app.is_recording = true;
                        recorder = Some(started);
                    }
                    Err(message) => app.message = Some(message),
                },
            }
            panic_for_a_test();
        }
        drop(session);
        if let Some(recorder) = recorder {
            screen::say(recorder.stop());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The next moment of a rhythm that has not passed. A moment that was missed is left out.
fn next_after(last: Instant, interval: Duration) -> Instant {
    let next = last + interval;
    if next > Instant::now() { next } else { Instant::now() + interval }
}

/// How long to wait for a key.
fn patience(now: Instant, next: Instant, is_paused: bool) -> Duration {
    if is_paused { LOOK_EVERY } else { next.saturating_duration_since(now).min(LOOK_EVERY) }
}

/// The terminal has gone, so there may be nobody to tell.
fn no_screen(error: &io::Error) -> Failure {
    Failure::new(format_args!(
        "the terminal cannot be used: {error}; `idlewise watch --once` prints a table instead"
    ))
}

/// Two readings, used alternately.
#[derive(Default)]
struct Readings {
    before: Reading,
    after: Reading,
    figures: Figures,
}

impl Readings {
    fn start(&mut self, source: &mut Source) {
        source.package_lines(&self.figures);
        source.read(&mut self.before);
    }

    fn go_on(&mut self, source: &mut Source, app: &mut App) -> Result<()> {
        if source.follow()? {
            app.message = Some("the driver or the CPUs changed; reading anew".to_owned());
            app.layout = source.layout().clone();
            app.figures = None;
            self.start(source);
            return Ok(());
        }
        app.layout.driver.clone_from(&source.layout().driver);
        app.layout.governor.clone_from(&source.layout().governor);
        source.read(&mut self.after);
        if self.after.at_ns <= self.before.at_ns {
            return Ok(());
        }
        self.figures.update(source.layout(), &self.before, &self.after);
        std::mem::swap(&mut self.before, &mut self.after);
        let is_same = |(was, is): (&CpuReading, &CpuReading)| was.limit_ns == is.limit_ns;
        let are_same = self.before.machine_limit_ns == self.after.machine_limit_ns
            && self.before.cpus.iter().zip(&self.after.cpus).all(is_same);
        if app.figures.is_none() || !are_same {
            app.limit_holders = source.limit_holders_of(&self.before);
        }
        app.packages = source.package_lines(&self.figures);
        app.package_lacks = source.package_lacks();
        let shown = app.figures.get_or_insert_default();
        std::mem::swap(shown, &mut self.figures);
        Ok(())
    }
}

/// Tests see that a panic restores the terminal. Released programs have no such switch.
fn panic_for_a_test() {
    #[cfg(debug_assertions)]
    assert!(std::env::var_os("IDLEWISE_WATCH_PANIC").is_none(), "a panic, asked for by a test");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise it would wait for nothing, again and again.
    #[test]
    fn a_pause_waits_although_the_next_reading_is_due() {
        let now = Instant::now();
        let later = now + Duration::from_millis(50);
        assert_eq!(patience(later, now, true), LOOK_EVERY);
        assert_eq!(patience(later, now, false), Duration::ZERO);
        assert_eq!(patience(now, later, false), Duration::from_millis(50));
        assert_eq!(patience(now, now + Duration::from_secs(60), false), LOOK_EVERY);
    }
}
