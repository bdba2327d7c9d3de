//! `idlewise info --why-menu`: how often menu would reach the line that the patch "Use min() to prevent deep
//! C-states when tick is stopped" (January 2026) changes.
//!
//! Our port of menu is asked at each idle entry of the log. If the log has the decisions of a kernel's
//! governor, the replay follows them: menu sees the recorded ticks and stays, and only its prediction is
//! simulated. Otherwise, as in a log of a kernel without idle driver, menu decides itself, and the tick is
//! as menu leaves it.

use std::sync::{Arc, Mutex, PoisonError};

use idlewise_core::{Context, Decision, Device, Governor, Outcome};
use idlewise_lab::target::{Conditions, HZ_DEFAULT, is_own_machine, named_machine, own_machine};
use idlewise_linux::{GovernorSpec, LinuxGovernor, Menu, resolve, resolve_for};
use idlewise_report::Notes;
use idlewise_report::why_menu::WhyMenu;
use idlewise_sim::Basis;
use idlewise_sim::replay::{
    Feedback, GapCourse, GovernorLane, Lane, Observer, Repetition, ReplayedStay, Setting,
};
use idlewise_trace::{Driver, IdleGap};

use crate::bundled;
use crate::error::{Failure, Result};
use crate::input::{NamedLog, each_cpu};
use crate::recorded_course::RecordedCourse;
use crate::replay_arguments::{MACHINES_DEFAULT, ReplayTarget};

/// The answer for a log.
pub struct Answer {
    /// The port's id.
    pub governor: &'static str,
    pub machine: String,
    /// Whether ticks and stays are as recorded, or as menu decides.
    pub is_recorded: bool,
    pub cpus: Vec<WhyMenu>,
    pub all: WhyMenu,
    pub notes: Notes,
}

/// Asks menu throughout a log.
pub fn ask(named: &NamedLog, machine: Option<&str>, mut notes: Notes) -> Result<Answer> {
    let metadata = &named.log.metadata;
    let own = own_machine(machine, &named.name, metadata)?;
    let is_own = is_own_machine(machine) && own.is_some();
    let machine = match named_machine(machine)?.or(own) {
        Some(machine) => machine,
        None => bundled::machine(MACHINES_DEFAULT[0])?,
    };
    let target = ReplayTarget::new(machine, &[], &[])?;
    let id = target.machine.id.clone();
    if target.states.len() == 1 {
        return Err(Failure::new(format_args!(
            "{id} has a single idle state, so its kernel asks no governor; name another with --machine"
        )));
    }
    let known = metadata.kernel.as_deref().and_then(|kernel| resolve_for("menu", kernel));
    let spec = known.or_else(|| resolve("menu")).expect("menu is in the list");
    let is_recorded = is_own
        && metadata.governor.is_some()
        && !matches!(metadata.driver, None | Some(Driver::Absent))
        && !metadata.is_unknown("recorded_state");
    let unknown = Unknown {
        tick: metadata.is_unknown(if is_recorded { "tick_stopped" } else { "ran_task" }),
        tasks: metadata.is_unknown("ran_task"),
        timers: metadata.is_unknown("sleep_length_ns"),
    };
    let setting = target.setting(Conditions::default(), metadata);
    let mut cpus = Vec::new();
    each_cpu(named, |cpu_gaps| {
        let mut lane =
            lane(spec, setting, is_recorded.then(|| RecordedCourse::new(&target.states)));
        let mut cpu = None;
        cpu_gaps(&mut |gaps| {
            cpu = cpu.or(gaps.first().map(|gap| gap.cpu));
            lane.0.replay(gaps);
            Ok(())
        })?;
        if cpu.is_some() {
            cpus.push(unknown.hide(WhyMenu { cpu, ..lane.1.lock().counts.clone() }));
        }
        Ok(())
    })?;
    let sum = |mut sum: WhyMenu, cpu: WhyMenu| {
        sum.merge(&cpu);
        sum
    };
    let all = cpus.iter().cloned().reduce(sum).unwrap_or_default();
    let all = WhyMenu { cpu: None, ..all };
    let series = spec.release;
    notes.basis(
        Basis::Simulated,
        format!("menu's predictions (Linux {series}) on the states of {id}"),
    );
    if is_recorded {
        notes.basis(Basis::Measured, "ticks, tasks, timers and lengths of gaps");
    } else {
        notes.basis(Basis::Measured, "tasks, timers and lengths of gaps");
        notes.basis(Basis::Simulated, "when the tick is stopped, as menu decides");
        let why = match metadata.driver {
            Some(Driver::Absent) => "the recording kernel had no idle driver and asked no governor",
            _ if !is_own => "the states are not known to be the recorded machine's",
            _ => "the log does not hold what a governor decided",
        };
        notes.doubt(format!("{why}, so the tick is as menu would have left it on {id}"));
    }
    if known.is_none() {
        notes.doubt(format!("the kernel is unknown: this is menu as in Linux {series}"));
    }
    if metadata.hz.is_none() {
        notes.doubt(format!("HZ is unknown: a tick is taken as 1/{HZ_DEFAULT} s"));
    }
    unknown.note(&mut notes);
    if !unknown.timers && all.unknown_timer_count > 0 {
        notes.doubt(format!(
            "in {} selects the next timer is unknown; they count neither as far nor in all four",
            all.unknown_timer_count
        ));
    }
    notes.doubts_of(&metadata.doubts);
    Ok(Answer { governor: spec.id, machine: id, is_recorded, cpus, all, notes })
}

/// What the log cannot tell.
struct Unknown {
    tick: bool,
    tasks: bool,
    timers: bool,
}

impl Unknown {
    /// Removes the counts that rest on what is unknown.
    fn hide(&self, counts: WhyMenu) -> WhyMenu {
        let of_all = self.tick || self.tasks || self.timers;
        let unless = |is_unknown: bool, count: Option<u64>| count.filter(|_| !is_unknown);
        WhyMenu {
            tick_stopped_count: unless(self.tick, counts.tick_stopped_count),
            no_task_count: unless(self.tasks, counts.no_task_count),
            far_timer_count: unless(self.timers, counts.far_timer_count),
            line_count: unless(self.tick, counts.line_count),
            other_state_count: unless(self.tick || self.timers, counts.other_state_count),
            all_count: unless(of_all, counts.all_count),
            before_timer_count: unless(of_all, counts.before_timer_count),
            within_tick_count: unless(of_all, counts.within_tick_count),
            ..counts
        }
    }

    fn note(&self, notes: &mut Notes) {
        if self.tick {
            notes.doubt(
                "whether the tick was stopped is unknown, so nobody can say whether the line is reached; \
                 record timer:tick_stop and sched:sched_switch",
            );
        }
        if self.tasks {
            notes
                .doubt("whether a task ran between two gaps is unknown; record sched:sched_switch");
        }
        if self.timers {
            notes.doubt(
                "next timers are unknown, and menu's predictions are made without them; record \
                 timer:hrtimer_* and timer:timer_*",
            );
        }
    }
}

/// What menu thought when it was asked.
#[derive(Clone, Copy)]
struct Select {
    tick_stopped: bool,
    is_short: bool,
    /// Whether the next timer is more than a tick away; `None` if it is unknown.
    is_far: Option<bool>,
    is_other_state: bool,
}

/// The selects of the current gap, and the counts of the gaps before.
#[derive(Default)]
struct Counts {
    selects: Vec<Select>,
    counts: WhyMenu,
}

impl Counts {
    fn add(&mut self, gap: &IdleGap, tick_period_ns: u64, from: usize, times: u64) {
        let counts = &mut self.counts;
        let ends_before = gap.sleep_length_ns.is_some_and(|timer_ns| gap.gap_ns < timer_ns);
        let is_within_tick = ends_before && gap.gap_ns < tick_period_ns;
        let count = |place: &mut Option<u64>, is_it: bool| {
            *place = Some(place.unwrap_or(0) + if is_it { times } else { 0 });
        };
        for (index, select) in self.selects.iter().enumerate().skip(from) {
            let Select { tick_stopped, is_short, is_far, is_other_state } = *select;
            // Within a gap no task runs.
            let no_task = index > 0 || !gap.ran_task;
            let is_line = tick_stopped && is_short;
            let is_all = is_line && no_task && is_far == Some(true);
            counts.select_count += times;
            counts.short_prediction_count += if is_short { times } else { 0 };
            counts.unknown_timer_count += if is_far.is_none() { times } else { 0 };
            count(&mut counts.tick_stopped_count, tick_stopped);
            count(&mut counts.no_task_count, no_task);
            count(&mut counts.far_timer_count, is_far == Some(true));
            count(&mut counts.line_count, is_line);
            count(&mut counts.other_state_count, is_line && is_other_state);
            count(&mut counts.all_count, is_all);
            count(&mut counts.before_timer_count, is_all && ends_before);
            count(&mut counts.within_tick_count, is_all && is_within_tick);
        }
    }
}

/// Shared by the governor and the observer of a lane, which take turns on one thread.
#[derive(Clone)]
struct Shared(Arc<Mutex<Counts>>);

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// menu, and a note of each question.
struct Asked {
    menu: Menu,
    tick_period_ns: u64,
    shared: Shared,
}

impl Governor for Asked {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let predicted_ns = self.menu.prediction_ns(context, device);
        let is_short = predicted_ns.is_some_and(|ns| ns < self.tick_period_ns);
        // A replay takes an unknown timer as one that never comes.
        let timer_ns = context.timers().sleep_length_ns;
        let known_ns = Some(timer_ns).filter(|&ns| ns != idlewise_core::FAR_AWAY_NS);
        let is_far = known_ns.map(|ns| u64::try_from(ns).is_ok_and(|ns| ns > self.tick_period_ns));
        let min = self.menu.decision_with_min(context, device);
        let decision = self.menu.select(context, device);
        self.shared.lock().selects.push(Select {
            tick_stopped: context.tick_stopped,
            is_short,
            is_far,
            is_other_state: min.state != decision.state,
        });
        decision
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.menu.reflect(outcome, device);
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        self.menu.memory(note)
    }

    fn forecast_ns(&self) -> Option<u64> {
        self.menu.forecast_ns()
    }
}

/// Counts the questions of each gap when its end is known.
struct Watch {
    tick_period_ns: u64,
    recorded: Option<RecordedCourse>,
    shared: Shared,
}

impl Observer for Watch {
    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        if let Some(recorded) = &mut self.recorded {
            recorded.stay(gap, stay);
        }
    }

    /// The latest selects are those that repeat: one for each stay.
    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition) {
        let mut shared = self.shared.lock();
        let repeating_count = repetition.once.decision_count() as usize;
        let from = shared.selects.len().saturating_sub(repeating_count);
        shared.add(gap, self.tick_period_ns, from, repetition.count);
    }

    fn gap(&mut self, gap: &IdleGap, _course: GapCourse) {
        let mut shared = self.shared.lock();
        shared.add(gap, self.tick_period_ns, 0, 1);
        shared.selects.clear();
    }

    fn feedback(&mut self, gap: &IdleGap) -> Option<Feedback> {
        self.recorded.as_ref()?.feedback(gap)
    }
}

/// The lane of a CPU, and its counts.
fn lane(
    spec: &GovernorSpec,
    setting: Setting,
    recorded: Option<RecordedCourse>,
) -> (Box<dyn Lane>, Shared) {
    let LinuxGovernor::Menu(menu) = spec.build(setting.tick_period_ns) else {
        unreachable!("the spec is menu's");
    };
    let shared = Shared(Arc::default());
    let tick_period_ns = u64::from(setting.tick_period_ns);
    let asked = Asked { menu, tick_period_ns, shared: shared.clone() };
    let watch = Watch { tick_period_ns, recorded, shared: shared.clone() };
    (Box::new(GovernorLane::with_observer(asked, setting, watch)), shared)
}
