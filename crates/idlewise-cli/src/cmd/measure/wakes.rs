//! `idlewise measure wakes`: who wakes idle CPUs, and how.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use idlewise_host::{Root, WakeWatch};
use idlewise_report::wakes::{pair_table, sentence, short_pair_table, woken_table};
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_sim::{Arch, Basis};
use idlewise_trace::import::trace_dat::RingDecoder;
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::wakes::{WakeCounter, WakeCounts, sees_interrupts};
use idlewise_trace::{Event, Tracepoints};
use serde_json::json;

use super::forced::{SCHEMA, print_csv};
use crate::error::{Failure, Result};
use crate::input::{self, Reading};
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::signals::Signals;
use crate::unpack::Unpacking;

/// How often the buffers are emptied.
const READ_EVERY: Duration = Duration::from_millis(200);
/// How many pairs of CPUs a text shows.
const PAIR_COUNT_SHOWN: usize = 24;
/// The formats of recordings that keep who sent a wake.
const FORMATS: [&str; 2] = ["trace.dat", "perf.data"];

const EXAMPLES: &str = "\
Examples:
  # Ten seconds of this machine
  sudo idlewise measure wakes -d 10

  # A table each second until ctrl-c, and one of it all at the end
  sudo idlewise measure wakes --follow

  # The same of a recording. That of `idlewise record` has no events of who wakes; this one has:
  sudo trace-cmd record -C mono -e power:cpu_idle -e sched:sched_switch -e irq_vectors \\
      -e irq:irq_handler_entry \\
      -e sched:sched_wake_idle_without_ipi -e ipi:ipi_send_cpu -e ipi:ipi_send_cpumask sleep 10
  idlewise measure wakes --from trace.dat

Works on any kernel with tracefs, without a module. What a kernel does not report is unknown: \
before 6.4 no event says who sends an IPI. If idlewise_idle is loaded, its tracepoint says what \
ended each stay.

Exit status: 0, even after ctrl-c; 2 if nothing could be traced.";

/// Count who wakes idle CPUs: by a store, by an interrupt, or as a free ride
///
/// A CPU that polls or monitors memory is woken by a store; others need an interrupt (IPI). A store that
/// finds the CPU being woken already is a free ride. Counts the stays in idle states by what ended them, and
/// the wakes of each pair of CPUs. Traces until SECONDS pass or ctrl-c comes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Wakes {
    /// Stop after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = crate::cmd::record::seconds)]
    duration: Option<Duration>,

    /// Print the tables of each interval, too
    #[arg(long, conflicts_with_all = ["json", "csv", "from"])]
    follow: bool,

    /// Seconds between the tables of --follow
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "follow", value_parser = crate::cmd::record::seconds)]
    interval: Duration,

    /// Count the wakes in a recording instead, a trace.dat or perf.data
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["duration", "buffer_kb"])]
    from: Option<PathBuf>,

    /// Leave out what idlewise_idle reports, to see what follows from the kernel's own events
    #[arg(long, conflicts_with = "from")]
    without_driver: bool,

    /// Buffer size for each CPU in KiB [default: 4096, or less on machines with little memory]
    #[arg(short, long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(4..))]
    buffer_kb: Option<u64>,

    #[command(flatten)]
    unpacking: Unpacking,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the line of each pair of CPUs as CSV
    #[arg(long)]
    csv: bool,
}

/// What was counted, and from what.
struct Measured {
    counts: WakeCounts,
    span_ns: u64,
    tracepoints: Tracepoints,
    arch: Option<String>,
    /// The CPUs that were traced; empty if a recording does not say.
    cpus: Vec<u16>,
    undecodable_count: u64,
}

impl Wakes {
    /// Counts and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let measured = match &self.from {
            Some(path) => self.of_recording(path)?,
            None => self.live()?,
        };
        self.print(&measured)?;
        Ok(ExitCode::SUCCESS)
    }

    fn of_recording(&self, path: &Path) -> Result<Measured> {
        let reading = Reading {
            unpacking: self.unpacking.into(),
            purpose: Purpose::Wakes,
            ..Reading::default()
        };
        let recording = input::open_recording(path, &reading)?;
        if !FORMATS.contains(&recording.format_name()) {
            return Err(Failure::new(format_args!(
                "{}: wakes are counted in {} only; record with trace-cmd or perf",
                path.display(),
                FORMATS.join(" and "),
            )));
        }
        let info = recording.info();
        let noted = info.machine_note.as_ref().and_then(|note| note.arch.clone());
        let (tracepoints, arch) = (info.tracepoints, info.arch.clone().or(noted));
        let mut counter = WakeCounter::new(tracepoints, arch.as_deref());
        let bar = Progress::bytes("reading", info.file_byte_count);
        let summary = recording
            .read(&|done| bar.set(done), &mut |events| counter.push(events))
            .map_err(|error| input::import_failure(path, &error))?;
        bar.finish();
        let span_ns = summary.first_at_ns.zip(summary.last_at_ns);
        Ok(Measured {
            counts: counter.take(),
            span_ns: span_ns.map_or(0, |(first, last)| last.saturating_sub(first).max(0) as u64),
            tracepoints,
            arch,
            cpus: Vec::new(),
            undecodable_count: summary.undecodable_count,
        })
    }

    fn live(&self) -> Result<Measured> {
        let root = Root::live();
        // Catch signals before creating an instance that a signal could leave behind.
        let mut signals = Signals::catch()?;
        let mut watch =
            WakeWatch::start(&root, self.buffer_kb, !self.without_driver).map_err(Failure::new)?;
        let started = Instant::now();
        let decoder = RingDecoder::new(watch.header_page(), watch.formats()).ok_or_else(|| {
            Failure::new(
                "this kernel's events have no common_type, so none can be read; report it to us",
            )
        })?;
        let until = match self.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None => "until ctrl-c".to_owned(),
        };
        let cpus: Vec<u16> = watch.cpus().collect();
        say(format_args!("idlewise: tracing wakes of {} {until}", counted(cpus.len(), "CPU")));
        let arch = std::env::consts::ARCH;
        let mut ring = Ring {
            counter: WakeCounter::new(decoder.tracepoints(), Some(arch)),
            decoder,
            held: Vec::new(),
            undecodable_count: 0,
        };
        let mut sum = WakeCounts::default();
        let mut print_at = self.interval;
        loop {
            let elapsed = started.elapsed();
            let left = self.duration.map_or(Duration::MAX, |all| all.saturating_sub(elapsed));
            if signals.has_ended() || left.is_zero() {
                break;
            }
            signals.wait(left.min(READ_EVERY))?;
            // Every event before this moment is in the buffers, whatever its CPU.
            let until_ns = watch.now_ns();
            ring.read(&mut watch, until_ns)?;
            if self.follow && started.elapsed() >= print_at {
                print_at = started.elapsed() + self.interval;
                let span = ring.counter.take();
                self.print_interval(started.elapsed(), &span)?;
                sum.merge(&span);
            }
        }
        watch.stop().map_err(Failure::new)?;
        let span_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        ring.read(&mut watch, i64::MAX)?;
        sum.merge(&ring.counter.take());
        // The kernel's own count; pages mark only that some were lost.
        sum.lost_event_count =
            sum.lost_event_count.max(watch.lost_event_count().map_err(Failure::new)?);
        Ok(Measured {
            counts: sum,
            span_ns,
            tracepoints: ring.decoder.tracepoints(),
            arch: Some(arch.to_owned()),
            cpus,
            undecodable_count: ring.undecodable_count,
        })
    }

    fn print_interval(&self, elapsed: Duration, counts: &WakeCounts) -> Result<()> {
        let style = TextStyle::for_stdout();
        let mut out = screen::stdout();
        let title = format!(
            "At {:.1} s, the last {} s:",
            elapsed.as_secs_f64(),
            self.interval.as_secs_f64()
        );
        writeln!(out, "{}", woken_table(&title, counts).to_text(&style))?;
        let (table, left_out) = short_pair_table("", counts, PAIR_COUNT_SHOWN);
        if table.row_count() > 0 {
            writeln!(out, "{}", table.to_text(&style))?;
        }
        if left_out > 0 {
            writeln!(out, "and {left_out} more pairs\n")?;
        }
        out.flush()?;
        Ok(())
    }

    fn print(&self, measured: &Measured) -> Result<()> {
        let Measured { counts, span_ns, tracepoints, .. } = measured;
        let notes = notes(measured);
        if self.csv {
            return Ok(print_csv(&pair_table("", counts), &notes)?);
        }
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "span_ns": span_ns,
                "cpus": woken_table("", counts),
                "pairs": pair_table("", counts),
                "has_driver": tracepoints.contains(Tracepoints::DRIVER_WAKE),
                "lost_event_count": counts.lost_event_count,
                "finding": sentence(counts),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            return Ok(out.json(SCHEMA, &document)?);
        }
        let style = TextStyle::for_stdout();
        let seconds = *span_ns as f64 / 1e9;
        let title = format!("What ended the stays in idle states in {seconds:.1} s, measured:");
        writeln!(out, "{}", woken_table(&title, counts).to_text(&style))?;
        let (table, left_out) = short_pair_table("Who woke whom:", counts, PAIR_COUNT_SHOWN);
        if table.row_count() > 0 {
            writeln!(out, "{}", table.to_text(&style))?;
        }
        if left_out > 0 {
            writeln!(out, "and {left_out} more pairs: --csv and --json have all\n")?;
        }
        writeln!(out, "{}\n", wrap(&sentence(counts), style.width, 0))?;
        write!(out, "{}", notes.to_text(style.width))?;
        Ok(())
    }
}

/// The events of the ring buffers that have not been counted.
struct Ring {
    decoder: RingDecoder,
    counter: WakeCounter,
    held: Vec<Event>,
    undecodable_count: u64,
}

impl Ring {
    /// Empties the buffers, and counts the events before `until_ns`, of all CPUs in order. Later ones wait,
    /// because another CPU's buffer may still lack earlier events.
    fn read(&mut self, watch: &mut WakeWatch, until_ns: i64) -> Result<()> {
        let Self { decoder, counter, held, undecodable_count } = self;
        watch
            .read(&mut |cpu, page| {
                *undecodable_count += decoder.page(page, cpu, held).undecodable_count;
            })
            .map_err(Failure::new)?;
        // Stable, so that a CPU's events of one moment stay in their order.
        held.sort_by_key(|event| event.at_ns);
        let ready_count = held.partition_point(|event| event.at_ns < until_ns);
        counter.push(&held[..ready_count]);
        held.drain(..ready_count);
        Ok(())
    }
}

/// What the figures stand on, and what the kernel did not tell.
fn notes(measured: &Measured) -> Notes {
    let Measured { counts, tracepoints, arch, cpus, undecodable_count, .. } = measured;
    let has = |needed: Tracepoints| tracepoints.contains(needed);
    let mut notes = Notes::default();
    notes.basis(Basis::Measured, "all counts");
    if has(Tracepoints::DRIVER_WAKE) {
        notes
            .basis(Basis::Measured, "what ended stays, by the driver idlewise_idle where it tells");
    }
    if !sees_interrupts(*tracepoints, arch.as_deref()) && !has(Tracepoints::DRIVER_WAKE) {
        let named = match arch.as_deref().map(Arch::of_uname) {
            Some(Arch::X86) => " (irq_vectors:*, irq:irq_handler_entry)",
            Some(Arch::Power) => " (powerpc:timer_interrupt_entry, irq:irq_handler_entry)",
            Some(Arch::Arm) => " (irq:irq_handler_entry, ipi:ipi_entry)",
            Some(_) => " (irq:irq_handler_entry)",
            None => "",
        };
        notes.doubt(format!(
            "interrupts were not traced{named}: one of those may have ended any stay, so what ended it is unknown"
        ));
    }
    if !has(Tracepoints::STORE_SENT) {
        notes.doubt(
            "no event tells of wakes by store (sched:sched_wake_idle_without_ipi): stays that a store ended \
             are among the unknown, and free rides are not seen",
        );
    }
    if !has(Tracepoints::IPI_SENT) {
        notes.doubt(
            "no event tells who sends an IPI (ipi:ipi_send_cpu, since Linux 6.4): wakers by IPI are unknown",
        );
    }
    let unseen: Vec<String> =
        cpus.iter().filter(|cpu| !counts.woken.contains_key(cpu)).map(u16::to_string).collect();
    if !unseen.is_empty() {
        notes.doubt(format!(
            "CPU {}: no idle stay ended; it was busy or asleep all the time, or this kernel does not trace \
             its idle task",
            unseen.join(", ")
        ));
    }
    if counts.lost_event_count > 0 {
        notes.doubt(format!(
            "{} lost, and the stays around that time are not counted; trace with larger buffers (-b)",
            counted(counts.lost_event_count, "event")
        ));
    }
    if *undecodable_count > 0 {
        let events = counted(undecodable_count, "event");
        notes.doubt(format!("{events} left out, because they could not be read"));
    }
    notes
}
