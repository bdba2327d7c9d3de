//! Recorded decisions: comparing a replay with them, and writing a replay as a log that has some.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::tick_period_ns;
use idlewise_lab::target::{RECORDED, recorded_machine};
use idlewise_report::{counted, wrap};
use idlewise_sim::contest::Price;
use idlewise_sim::replay::{Feedback, GapCourse, GroupReader, Observer, ReplayedStay};
use idlewise_trace::log::{LogMetadata, LogSource, LogWriter};
use idlewise_trace::{Driver, GapSink, IdleGap};

use super::Replay;
use crate::bundled;
use crate::error::{Failure, Result};
use crate::governors::{Choice, must_decide};
use crate::input::{NamedLog, each_cpu};
use crate::output;
use crate::recorded_course::RecordedCourse;
use crate::replay_arguments::{ReplayTarget, Targets};
use crate::screen;

/// The states that the kernel reports without a driver: 1 for the default idle routine, 0 if it
/// polls (`kernel/sched/idle.c`: `default_idle_call`, `cpu_idle_poll`).
const STATES_WITHOUT_DRIVER: [u8; 2] = [0, 1];

/// The driver's name in a log written by a replay.
const REPLAY_DRIVER: &str = "replay";

/// What a governor learns from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Course {
    /// The recorded governor's decisions, and how long its stays were, so that each decision is
    /// made with the recorded history.
    Recorded,
    /// Its own decisions, with the machine's figures.
    #[default]
    Own,
}

/// Compares recorded first decisions with replayed ones.
#[derive(Default)]
struct Comparison {
    course: Course,
    recorded: RecordedCourse,
    compared_count: u64,
    agreed_count: u64,
    /// The first difference: start of the gap, recorded state, replayed state.
    first_difference: Option<(i64, u8, usize)>,
    /// How often each pair of different states occurred.
    differences: BTreeMap<(u8, usize), u64>,
}

impl Comparison {
    fn agreed_percent(&self) -> f64 {
        100.0 * self.agreed_count as f64 / self.compared_count.max(1) as f64
    }
}

impl Observer for &mut Comparison {
    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        if self.course == Course::Recorded {
            self.recorded.stay(gap, stay);
        }
    }

    fn gap(&mut self, gap: &IdleGap, course: GapCourse) {
        let Some(recorded) = gap.recorded_state else { return };
        self.compared_count += 1;
        let replayed = course.first.state;
        if usize::from(recorded) == replayed {
            self.agreed_count += 1;
        } else {
            self.first_difference.get_or_insert((gap.start_ns, recorded, replayed));
            *self.differences.entry((recorded, replayed)).or_default() += 1;
        }
    }

    fn feedback(&mut self, gap: &IdleGap) -> Option<Feedback> {
        if self.course == Course::Recorded { self.recorded.feedback(gap) } else { None }
    }
}

/// Collects the gaps with the recorded decisions replaced by the replay's.
#[derive(Default)]
struct Rewrite(Vec<IdleGap>);

impl Observer for Rewrite {
    fn gap(&mut self, gap: &IdleGap, course: GapCourse) {
        self.0.push(IdleGap {
            tick_stopped: course.first.tick_stopped,
            recorded_state: u8::try_from(course.first.state).ok(),
            recorded_idle_ns: Some(course.idle_ns),
            ..*gap
        });
    }
}

/// `--check-recorded`: compares for each log the recorded decisions with those of its own governor,
/// replayed on its own table. Only the first decision in each gap is compared. After a different
/// decision a governor has a different history, so each decision is made with the recorded history.
/// The agreement of a replay with its own history is printed as well. A log in which nothing can be
/// compared does not agree.
pub fn check(logs: &[NamedLog], options: &Replay, choices: &[Choice]) -> Result<ExitCode> {
    if !options.governors.is_empty() {
        must_decide(choices)?;
    }
    if !options.governors.is_empty() && choices.iter().any(|c| c.is_oracle()) {
        return Err(Failure::new(
            "--check-recorded needs a governor that decides; the oracle knows",
        ));
    }
    let mut out = screen::stdout();
    let mut all_agree = true;
    for named in logs {
        let name = &named.name;
        let line = match recorded_governor(named, options, choices)? {
            Err(reason) => {
                all_agree = false;
                format!("{name}: {reason}")
            }
            Ok((target, choice)) => {
                // A replay's log contains decisions that followed its own history.
                let is_replay = named.log.metadata.driver == Some(Driver::named(REPLAY_DRIVER));
                let courses: &[Course] =
                    if is_replay { &[Course::Own] } else { &[Course::Own, Course::Recorded] };
                let comparisons = compare(named, options, &target, &choice, courses)?;
                let (own, judged) = (&comparisons[0], &comparisons[comparisons.len() - 1]);
                if judged.compared_count == 0 {
                    all_agree = false;
                    format!("{name}: no gap in it has a recorded decision; nothing to compare")
                } else {
                    all_agree &= judged.agreed_count == judged.compared_count;
                    format!("{name}: {}", summary(&target, &choice, judged, own))
                }
            }
        };
        writeln!(out, "{}", wrap(&line, 100, 2))?;
        if named.log.metadata.driver == Some(Driver::named(Driver::SIMULATED)) {
            for doubt in &named.log.metadata.doubts {
                writeln!(out, "{}", wrap(&format!("  {doubt}"), 100, 4))?;
            }
        }
    }
    Ok(if all_agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result for a log: `judged`, and the replay with its own history if that is different.
fn summary(
    target: &ReplayTarget,
    choice: &Choice,
    judged: &Comparison,
    own: &Comparison,
) -> String {
    let mut text = format!(
        "{} on {}: {} of {} decisions agree ({:.2} %), one per gap",
        choice.name(),
        target.machine.id,
        judged.agreed_count,
        judged.compared_count,
        judged.agreed_percent(),
    );
    if judged.course == Course::Recorded {
        let percent = own.agreed_percent();
        text += &format!(
            ", each asked for after the recorded governor's earlier ones; {percent:.2} % if the replay continues \
             from its own, on the machine's figures"
        );
    }
    let name = |state| state_name(target, state);
    if let Some((start_ns, recorded, replayed)) = judged.first_difference {
        let (recorded, replayed) = (name(usize::from(recorded)), name(replayed));
        text += &format!(
            "; the first that differs begins at {start_ns} ns: recorded {recorded}, replayed {replayed}"
        );
    }
    let mut pairs: Vec<_> = judged.differences.iter().collect();
    pairs.sort_by_key(|&(pair, &count)| (Reverse(count), *pair));
    if pairs.len() > 1 {
        let most: Vec<_> = pairs
            .iter()
            .take(3)
            .map(|&(&(recorded, replayed), count)| {
                format!(
                    "{} instead of {} ({})",
                    name(replayed),
                    name(usize::from(recorded)),
                    counted(count, "time")
                )
            })
            .collect();
        text += &format!("; most often it chose {}", most.join(", "));
    }
    text
}

fn state_name(target: &ReplayTarget, index: usize) -> &str {
    target.state_names.get(index).map_or("a state that the machine doesn't have", String::as_str)
}

/// The governor and table of a recording, or the reason why there is nothing to compare.
fn recorded_governor(
    named: &NamedLog,
    options: &Replay,
    choices: &[Choice],
) -> Result<Result<(ReplayTarget, Choice), String>> {
    let metadata = &named.log.metadata;
    let named_choice = choices.first().filter(|_| !options.governors.is_empty());
    let governor = match (named_choice, &metadata.governor) {
        (Some(choice), _) => Some(choice.clone()),
        (None, Some(name)) => Some(Choice::of_kernel(name, metadata.kernel.as_deref())?),
        (None, None) => None,
    };
    let machine = match options.shared.machines.first() {
        Some(name) if name == RECORDED => Some(recorded_machine(&named.name, metadata)?),
        Some(name) => Some(bundled::machine(name)?),
        None => metadata.machine.clone(),
    };
    if metadata.driver == Some(Driver::Absent) {
        return Ok(Err("its kernel had no cpuidle driver, so it asked no governor".to_owned()));
    }
    match (governor, machine) {
        (Some(governor), Some(machine)) => {
            let (disabled, promoted) =
                (&options.shared.disabled, options.shared.promoting.states());
            Ok(Ok((ReplayTarget::new(machine, disabled, promoted)?, governor)))
        }
        (governor, machine) if governor.is_none() && machine.is_none() && is_driverless(named)? => {
            Ok(Err(
                "its kernel asked no governor: every entry has the state that the default idle \
                    routine reports, as without a cpuidle driver; nothing to compare"
                    .to_owned(),
            ))
        }
        (governor, machine) => {
            let flag = match (governor, machine) {
                (None, None) => "--governor NAME --machine NAME",
                (None, _) => "--governor NAME",
                _ => "--machine NAME",
            };
            Ok(Err(format!("the log doesn't say what decided; name it with {flag} and ask again")))
        }
    }
}

/// Whether all recorded states are those that a kernel reports without a driver.
fn is_driverless(named: &NamedLog) -> Result<bool> {
    let mut reader = GroupReader::new(&named.log);
    for group in named.log.groups() {
        let gaps = reader.read(group)?;
        let is_default =
            |gap: &IdleGap| gap.recorded_state.is_some_and(|s| STATES_WITHOUT_DRIVER.contains(&s));
        let same = |gap: &IdleGap| gap.recorded_state == gaps[0].recorded_state;
        if !gaps.iter().all(|gap| is_default(gap) && same(gap)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn compare(
    named: &NamedLog,
    options: &Replay,
    target: &ReplayTarget,
    choice: &Choice,
    courses: &[Course],
) -> Result<Vec<Comparison>> {
    let recorded = RecordedCourse::new(&target.states);
    let new = |&course| Comparison { course, recorded, ..Comparison::default() };
    let mut comparisons: Vec<_> = courses.iter().map(new).collect();
    let player = choice.on(&target.machine)?;
    each_cpu(named, |cpu_gaps| {
        let setting = options.shared.setting(target, named);
        let lane = |comparison| player.observed(&target.costs, setting, Price::QUARTER, comparison);
        let mut lanes: Vec<_> = comparisons.iter_mut().map(lane).collect();
        cpu_gaps(&mut |gaps| {
            lanes.iter_mut().for_each(|lane| lane.replay(gaps));
            Ok(())
        })
    })?;
    match choice.failure() {
        Some(failure) => Err(Failure::new(failure)),
        None => Ok(comparisons),
    }
}

/// Checks that the log's next ticks are also on the grid of a kernel with this HZ.
fn check_grid(named: &NamedLog, hz: u32) -> Result<()> {
    let metadata = &named.log.metadata;
    let Some(recorded_hz) = metadata.hz.filter(|&hz| hz > 0) else { return Ok(()) };
    if tick_period_ns(recorded_hz).is_multiple_of(tick_period_ns(hz)) {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "{}: its ticks are those of HZ={recorded_hz}, so a log with --hz {hz} can't be written; \
         leave out --hz, or give a multiple",
        named.log.path().display()
    )))
}

/// `--write-log`: writes the replay of one governor on one machine as a log with its decisions.
pub fn write(
    logs: &[NamedLog],
    options: &Replay,
    on: &Targets,
    choices: &[Choice],
    path: &Path,
) -> Result<ExitCode> {
    let ([named], [target], [choice], None, 1) =
        (logs, on.targets.as_slice(), choices, &on.assumed, options.governors.len())
    else {
        return Err(Failure::new(
            "--write-log takes exactly one log, one --machine and one --governor",
        ));
    };
    must_decide(choices)?;
    if choice.is_oracle() {
        return Err(Failure::new("--write-log needs a governor that decides; the oracle knows"));
    }
    let setting = options.shared.setting(target, named);
    let hz = options.shared.hz(named);
    check_grid(named, hz)?;
    let inputs = options.shared.inputs(&options.governors);
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let output = output::create(path, options.force, &inputs)?;
    let report = output::report_of(&output);
    let mut writer = LogWriter::new(output)?;
    let player = choice.on(&target.machine)?;
    each_cpu(named, |cpu_gaps| {
        let mut lane = player.observed(&target.costs, setting, Price::QUARTER, Rewrite::default());
        cpu_gaps(&mut |gaps| {
            lane.observer_mut().0.clear();
            lane.replay(gaps);
            let rewritten = &mut lane.observer_mut().0;
            for gap in rewritten.iter_mut() {
                let first_ns = |ns: u32| ns.saturating_sub(1) % setting.tick_period_ns + 1;
                gap.next_tick_ns = gap.next_tick_ns.map(first_ns);
            }
            if options.shared.latency_limit_us.is_some() {
                for gap in rewritten.iter_mut() {
                    gap.latency_limit_ns = u64::try_from(setting.latency_limit_ns)
                        .ok()
                        .map(|ns| ns.min(gap.latency_limit_ns.unwrap_or(u64::MAX)));
                }
            }
            match rewritten.first() {
                Some(first) => Ok(writer.take(first.cpu, rewritten)?),
                None => Ok(()),
            }
        })
    })?;
    if let Some(failure) = choice.failure() {
        return Err(Failure::new(format_args!("{failure}; no log was written")));
    }
    let source = &named.log.metadata.source;
    let mut metadata = LogMetadata {
        hz: Some(hz),
        governor: Some(choice.id()),
        driver: Some(Driver::named(REPLAY_DRIVER)),
        machine: Some(target.machine.clone()),
        source: LogSource { format: format!("replay of {}", source.format), ..source.clone() },
        ..named.log.metadata.clone()
    };
    // The replay's decisions and inputs are known, whatever the recording lacked.
    metadata.unknown_columns.retain(|column| match column.as_str() {
        "tick_stopped" | "recorded_state" | "recorded_idle_ns" => false,
        "latency_limit_ns" => options.shared.latency_limit_us.is_none(),
        _ => true,
    });
    for cpu in &mut metadata.cpus {
        let period_ns = i64::from(setting.tick_period_ns);
        cpu.tick_phase_ns = cpu.tick_phase_ns.map(|phase_ns| phase_ns.rem_euclid(period_ns));
    }
    writer.finish(&metadata)?;
    writeln!(
        report(),
        "{}: {} as {} decided them on {}",
        screen::name(path),
        counted(named.log.gap_count(), "gap"),
        choice.name(),
        target.machine.id,
    )?;
    Ok(ExitCode::SUCCESS)
}
