//! Compares our ports with the C files that they were written from, on the same inputs, and a whole
//! replay with a C file with that of the built-in governor.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use idlewise_core::Device;
use idlewise_linux::{GOVERNORS, GovernorSpec, resolve};
use idlewise_plugin::{Compiler, GovernorSource, Instance, Kernel};
use idlewise_report::{Column, Table, TextStyle};
use idlewise_sim::replay::{GovernorLane, Lane};

use crate::decisions::{HZ, Inputs, Note, Subject, Timed};
use crate::figure::{
    Figure, GOAL, Goal, REACHED, Whose, cpu_time, cpu_time_of, median, median_ratio, print, time,
};
use crate::replay::write_log;

const ROUND_COUNT: usize = 31;
const REPLAY_ROUND_COUNT: usize = 5;
/// The kernel whose C files are replayed.
const REPLAY_SERIES: &str = "6.12";
/// Enough gaps that starting the workers and identifying the compiler (about 30 ms) hardly matter.
const REPLAY_GAP_COUNT_MIN: usize = 8_000_000;
const DRIVER: &str = include_str!("kernel_c.c");

/// The C file of a port, with the variant's patch.
fn source(sources: &Path, spec: &GovernorSpec) -> Result<GovernorSource, Box<dyn Error>> {
    // The patches are for 6.12, unless their names say otherwise.
    let rule = spec.name.split_once('+').map(|(_, rule)| match spec.series {
        "6.12" => rule.to_owned(),
        series => format!("{rule}-{series}"),
    });
    let patches = concat!(env!("CARGO_MANIFEST_DIR"), "/../idlewise-linux/patches");
    Ok(GovernorSource {
        patch: rule.map(|rule| PathBuf::from(format!("{patches}/{rule}.patch"))),
        kernel: Some(Kernel::parse(spec.series)?),
        kernel_source: Some(sources.join(spec.series)),
        fixed_hz: Some(HZ),
        ..GovernorSource::new(format!("{}.c", spec.port))
    })
}

/// A kernel's governor that gets the inputs of a port.
struct KernelC {
    /// Owns the code of `ask`.
    _instance: Instance,
    ask: unsafe extern "C" fn(*const Note, usize, u32) -> u64,
    disabled: u32,
}

impl KernelC {
    fn load(source: &GovernorSource, inputs: &Inputs) -> Result<Self, Box<dyn Error>> {
        let library = Compiler::system().library(source, Some(DRIVER))?;
        let mut instance = Instance::load(&library, inputs.setting.tick_period_ns)?;
        instance.enable(&inputs.setting.states, &mut Device::default());
        let ask = instance.symbol(c"idlewise_ask");
        assert!(!ask.is_null(), "the driver was compiled in");
        // SAFETY: the symbol is the driver's function, of this type (kernel_c.c).
        let ask = unsafe { std::mem::transmute::<*mut _, unsafe extern "C" fn(_, _, _) -> _>(ask) };
        let disabled = inputs.setting.disabled.bits().into();
        Ok(KernelC { _instance: instance, ask, disabled })
    }

    /// Makes all decisions once. Returns how long they took, and how many differ from the port's.
    fn pass(&self, timed: &dyn Timed) -> (Duration, u64) {
        cpu_time(|| {
            // SAFETY: pointer and length are a slice's, and the instance is alive.
            let ask = |n: &Vec<Note>| unsafe { (self.ask)(n.as_ptr(), n.len(), self.disabled) };
            timed.streams().iter().map(ask).sum()
        })
    }
}

/// A port and its C file.
struct Pair {
    id: &'static str,
    ours_ns: f64,
    theirs_ns: f64,
    ratio: f64,
    goal: Goal,
}

/// Times each port and its C file.
pub fn run() -> Result<(), Box<dyn Error>> {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernel-sources"));
    let is_there = |series: &str| sources.join(series).is_dir();
    let skip = |what: &str, series: &str| {
        println!(
            "SKIPPED: kernel-c: {what}: no C file of Linux {series} in target/kernel-sources/{series} \
             (scripts/kernel-sources target/kernel-sources has Debian's series)"
        );
    };
    let (found, missing): (Vec<&GovernorSpec>, Vec<&GovernorSpec>) =
        GOVERNORS.iter().partition(|spec| is_there(spec.series));
    missing.iter().for_each(|spec| skip(spec.id, spec.series));
    let inputs = Inputs::load()?;
    if !found.is_empty() {
        print_decisions(sources, &found, &inputs)?;
        println!();
    }
    if is_there(REPLAY_SERIES) {
        print_replays(sources, &inputs)
    } else {
        skip("replay", REPLAY_SERIES);
        Ok(())
    }
}

fn print_decisions(
    sources: &Path,
    specs: &[&'static GovernorSpec],
    inputs: &Inputs,
) -> Result<(), Box<dyn Error>> {
    let mut pairs = Vec::new();
    for &spec in specs {
        let kernel_c = KernelC::load(&source(sources, spec)?, inputs)?;
        pairs.push((spec, Subject::Linux(spec).prepare(inputs), kernel_c));
    }
    let mut rounds = vec![[Vec::new(), Vec::new()]; pairs.len()];
    for _ in 0..ROUND_COUNT {
        for ((spec, timed, kernel_c), [ours, theirs]) in pairs.iter().zip(&mut rounds) {
            let count = timed.decision_count() as f64;
            // Both must find the inputs in the cache, or the first would fetch them for the other.
            kernel_c.pass(&**timed);
            ours.push(timed.pass().as_nanos() as f64 / count);
            let (duration, different) = kernel_c.pass(&**timed);
            theirs.push(duration.as_nanos() as f64 / count);
            if different > 0 {
                return Err(
                    format!("{different} decisions of {}'s C differ from ours", spec.id).into()
                );
            }
        }
    }
    let title = format!(
        "kernel-c: select and reflect over the gaps of the bundled logs on spr, our port and the \
         kernel's C ({}) with the same answers, {ROUND_COUNT} rounds in turns, CPU time; measured",
        Compiler::system().version(),
    );
    type C = Column<Pair>;
    let columns = [
        C::text("governor", "governor", |row| row.id.into()).means("The port.").key(),
        C::ns("ours_ns", "ours", |row| row.ours_ns.into())
            .means("A select and a reflect, median.")
            .key(),
        C::ns("c_ns", "C", |row| row.theirs_ns.into())
            .means("The same of the kernel's C file.")
            .key(),
        C::count("ratio", "ours / C", |row| format!("{:.2} ×", row.ratio).into())
            .means("Median of the rounds' ratios: × of the C's time.")
            .key(),
        C::new(GOAL, |row| row.goal.words("×")),
        C::new(REACHED, |row| row.goal.reached(row.ratio)),
    ];
    let pairs = pairs.iter().zip(&rounds).map(|((spec, ..), [ours, theirs])| Pair {
        id: spec.id,
        ours_ns: median(ours.iter().copied()),
        theirs_ns: median(theirs.iter().copied()),
        ratio: median_ratio(ours, theirs),
        goal: Goal::AtMost(if spec.port == "menu" { 0.6 } else { 1.0 }),
    });
    let table = Table::new(title, &columns, pairs);
    print!("{}", table.to_text(&TextStyle::for_stdout()));
    Ok(())
}

fn print_replays(sources: &Path, inputs: &Inputs) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("large.parquet");
    let gap_count = write_log(&path, inputs, REPLAY_GAP_COUNT_MIN)?;
    let mut figures = Vec::new();
    for name in ["menu", "teo", "ladder"] {
        let mut seconds: [Vec<f64>; 4] = Default::default();
        // The first run compiles the file.
        replay(&path, sources, &format!("{name}.c"))?;
        for _ in 0..REPLAY_ROUND_COUNT {
            let (built_in, built_in_work) = replay(&path, sources, name)?;
            let (plugin, plugin_work) = replay(&path, sources, &format!("{name}.c"))?;
            let row = [built_in, plugin, built_in_work, plugin_work];
            seconds.iter_mut().zip(row).for_each(|(seconds, of)| seconds.push(of));
        }
        let spec = resolve(name).ok_or("no such port")?;
        let more_s = c_lane_excess_ns(sources, spec, inputs)? * gap_count as f64 / 1e9;
        let [built_in, plugin, built_in_work, plugin_work] = &seconds;
        let mut add = |what, measured, goal| {
            figures.push(Figure {
                what: format!("{name}.c / {name}{what}"),
                unit: "×",
                measured,
                goal,
            });
        };
        add("", median_ratio(plugin, built_in), Goal::AtMost(1.5));
        add(", CPU time of all processes", median_ratio(plugin_work, built_in_work), Goal::None);
        let floor = 1.0 + more_s / median(built_in_work.iter().copied());
        add(", CPU time if the C ran in this process", floor, Goal::None);
    }
    print(
        &format!(
            "kernel-c: `idlewise replay LOG --machine spr --governor ...` with the C file (compiled \
             before) and with the built-in, {gap_count} gaps, {REPLAY_ROUND_COUNT} rounds in turns"
        ),
        &figures,
    );
    Ok(())
}

/// How much longer a lane takes for a gap, in ns of CPU time, if its governor is the C file in this process:
/// without a worker no C file can cost less.
fn c_lane_excess_ns(
    sources: &Path,
    spec: &'static GovernorSpec,
    inputs: &Inputs,
) -> Result<f64, Box<dyn Error>> {
    let library = Compiler::system().library(&source(sources, spec)?, None)?;
    let mut instance = Instance::load(&library, inputs.setting.tick_period_ns)?;
    instance.enable(&inputs.setting.states, &mut Device::default());
    let mut theirs = GovernorLane::new(instance, inputs.setting);
    let mut ours = Subject::Linux(spec).lane(inputs);
    let gap_count: usize = inputs.streams.iter().map(Vec::len).sum();
    let pass = |lane: &mut dyn Lane| {
        let replay = || inputs.streams.iter().for_each(|gaps| lane.replay(gaps));
        cpu_time(replay).0.as_nanos() as f64 / gap_count as f64
    };
    let excess_ns = (0..ROUND_COUNT).map(|_| {
        let ours_ns = pass(&mut *ours);
        pass(&mut theirs) - ours_ns
    });
    Ok(median(excess_ns))
}

/// Returns the elapsed time and the CPU time of a command in seconds.
fn replay(path: &Path, sources: &Path, governor: &str) -> Result<(f64, f64), Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.arg("replay").arg(path).args(["--machine", "spr", "--csv"]);
    command.arg("--kernel-source").arg(sources.join(REPLAY_SERIES)).args(["--governor", governor]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let before = cpu_time_of(Whose::Children);
    let (duration, status) = time(|| command.status());
    if !status?.success() {
        return Err(format!("`idlewise replay --governor {governor}` failed").into());
    }
    Ok((duration.as_secs_f64(), (cpu_time_of(Whose::Children) - before).as_secs_f64()))
}
