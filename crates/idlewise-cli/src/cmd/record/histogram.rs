//! `idlewise record --histogram`: counts idle stays inside the kernel, instead of recording events.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Child, ExitCode};
use std::time::Instant;

use idlewise_host::histogram::{Layout, possible_cpu_count};
use idlewise_host::{Root, note, note_changes};
use idlewise_probe::{BpfMap, BpfProbe};
use idlewise_report::wrap;
use idlewise_trace::histogram::IdleHistogram;
use serde_json::json;

use super::{End, LOOK_EVERY, Record, cpus};
use crate::error::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Screen, say};
use crate::signals::Signals;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// The file's name unless the user gives one.
pub(super) const OUTPUT: &str = "histogram.json";

/// The counting programs. They stop when this is dropped.
struct Counting {
    layout: Layout,
    map: BpfMap,
    probes: Vec<BpfProbe>,
    start: Instant,
}

impl Counting {
    fn start(root: &Root) -> Result<Self> {
        let layout = Layout::of(root);
        let byte_count = u32::try_from(layout.byte_count()).map_err(Failure::new)?;
        let map = BpfMap::per_cpu(byte_count).map_err(|error| refusal("bpf", &error))?;
        let mut probes = Vec::new();
        for (tracepoint, instructions) in layout.programs(map.fd()) {
            let probe = BpfProbe::attach(tracepoint, &instructions);
            probes.push(probe.map_err(|error| refusal(tracepoint, &error))?);
        }
        Ok(Counting { layout, map, probes, start: Instant::now() })
    }
}

/// Why the kernel does not count, and what to do.
fn refusal(what: &str, error: &io::Error) -> Failure {
    let advice = match (
        error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
        error.kind(),
    ) {
        (_, ErrorKind::PermissionDenied) => {
            "counting in the kernel needs root, outside of containers and without kernel lockdown"
        }
        (Some(rustix::io::Errno::NOSYS), _) => {
            "this kernel has no BPF (CONFIG_BPF_SYSCALL); record without --histogram"
        }
        (_, ErrorKind::NotFound) => {
            "this kernel has no such tracepoint for BPF (CONFIG_BPF_EVENTS); record without --histogram"
        }
        (_, ErrorKind::OutOfMemory) => "there is not enough memory",
        _ => "record without --histogram",
    };
    Failure::new(format_args!("cannot count in the kernel: {what}: {error}; {advice}"))
}

impl Record {
    /// Counts until the end, writes the file, and prints what it holds.
    pub(super) fn run_histogram(&self, path: &Path) -> Result<ExitCode> {
        let root = Root::live();
        let words: Vec<_> = crate::program::arguments()
            .into_iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        let mut machine = note(&root, words.join(" "));
        let output = output::create_private(path, self.force)?;
        let report = output::report_of(&output);
        let mut signals = Signals::catch()?;
        let counting = Counting::start(&root)?;
        let until = self.until();
        let online = root.online_cpus();
        say(format_args!(
            "idlewise: counting idle stays of {} in the kernel, {until}",
            cpus(online.len())
        ));
        let mut child = self.start_command()?;
        let end = self.wait(&counting, &mut signals, child.as_mut())?;
        let Counting { layout, map, probes, start } = counting;
        let recorded_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        drop(probes);
        let values = map
            .read(possible_cpu_count(&root))
            .map_err(|error| Failure::new(format_args!("cannot read what was counted: {error}")))?;
        note_changes(&mut machine, &root);
        let cpus = layout.histograms(&root, &values);
        let histogram = IdleHistogram::new(machine, recorded_ns, cpus);
        let text = histogram.to_json();
        output::write(output, &text)?;
        let said = self.say_histogram(report, path, &histogram, text.len(), layout);
        self.end(said, end, child)
    }

    /// Waits for the end.
    fn wait(
        &self,
        counting: &Counting,
        signals: &mut Signals,
        mut child: Option<&mut Child>,
    ) -> Result<End> {
        let spinner = Progress::open_ended();
        loop {
            if signals.has_ended() {
                return Ok(End::Signal);
            }
            if let Some(child) = &mut child
                && let Some(status) = child.try_wait()?
            {
                return Ok(End::Command(status));
            }
            let elapsed = counting.start.elapsed();
            let left = self.duration.map_or(LOOK_EVERY, |all| all.saturating_sub(elapsed));
            if left.is_zero() {
                return Ok(End::Time);
            }
            spinner.say(format!("{} s", elapsed.as_secs()));
            // Nobody watches, nobody needs to wake up.
            let nap = if screen::is_watched() { left.min(LOOK_EVERY) } else { left };
            signals.wait(nap)?;
        }
    }

    fn say_histogram(
        &self,
        report: fn() -> Screen,
        path: &Path,
        histogram: &IdleHistogram,
        byte_count: usize,
        layout: Layout,
    ) -> Result<()> {
        let stay_count: u64 = histogram.cpus.iter().map(|cpu| cpu.stay_count()).sum();
        if self.json {
            let document = json!({
                "output": path.to_string_lossy(),
                "byte_count": byte_count,
                "stay_count": stay_count,
                "recorded_ns": histogram.recorded_ns,
                "cpus": histogram.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(),
                "kernel_byte_count_per_cpu": layout.byte_count(),
            });
            return Ok(report().json(SCHEMA, &document)?);
        }
        let name = screen::name(path);
        let line = format!(
            "{name}: {stay_count} idle stays of {} in {:.1} s, {:.1} kB; the kernel kept {:.1} kB for each CPU",
            cpus(histogram.cpus.len()),
            histogram.recorded_ns as f64 / 1e9,
            byte_count as f64 / 1e3,
            layout.byte_count() as f64 / 1e3,
        );
        say(wrap(&line, 100, 2));
        if path.is_file() {
            let operand = screen::operand(path);
            say(format_args!("Next: idlewise info {operand}; idlewise advise {operand}"));
        }
        Ok(())
    }
}
