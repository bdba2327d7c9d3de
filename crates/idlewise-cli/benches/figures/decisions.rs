//! How long one decision (select and reflect) takes, without the replay around it.
//!
//! A governor is replayed once over the gaps of the bundled logs while a wrapper records its inputs
//! and feedback. Then a fresh governor gets the same inputs in order, and only that is timed. A
//! note fits a cache line. Reading it is part of the time, like reading the timers in a kernel.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use idlewise_core::tick_period_ns;
use idlewise_core::{
    Context, Decision, Device, Fixed, Governor, GovernorVisitor, Hazard, Lambda,
    NO_LATENCY_LIMIT_NS, Outcome, SleepLength, StateTable, TimerOnly,
};
use idlewise_linux::{GOVERNORS, GovernorSpec, USUAL, resolve};
use idlewise_report::{Column, Table, TextStyle};
use idlewise_sim::replay::{GovernorLane, Lane, Setting};
use idlewise_sim::{CostModel, Oracle, OracleLane};
use idlewise_trace::IdleGap;
use idlewise_trace::log::IdleLog;

use crate::figure::{cpu_time, median};
use crate::{RECORDINGS, traces};

/// The tick of the bundled recordings.
pub const HZ: u32 = 250;
const ROUND_COUNT: usize = 15;

/// The spr table and everything else for replaying the gaps of the bundled logs.
pub struct Inputs {
    pub setting: Setting,
    pub costs: CostModel,
    /// The gaps of each CPU of each bundled log.
    pub streams: Vec<Vec<IdleGap>>,
}

impl Inputs {
    pub fn load() -> Result<Self, Box<dyn Error>> {
        let machine = idlewise_machine::bundled("spr").ok_or("no machine spr")?;
        let states = machine.table()?;
        let setting = Setting {
            disabled: machine.disabled_by_default(),
            ..Setting::new(states, tick_period_ns(HZ))
        };
        let costs = CostModel::of(&machine)?;
        let mut streams = Vec::new();
        for name in RECORDINGS {
            let log = IdleLog::open(&traces().join(format!("{name}.parquet")))?;
            let mut gaps = Vec::new();
            for group in log.groups() {
                let mut group_gaps = Vec::new();
                log.read_group(group, None, &mut group_gaps)?;
                gaps.append(&mut group_gaps);
            }
            streams.extend(gaps.chunk_by(|a, b| a.cpu == b.cpu).map(<[_]>::to_vec));
        }
        Ok(Inputs { setting, costs, streams })
    }
}

/// A simple rule.
#[derive(Clone, Copy)]
pub enum Rule {
    Fixed(Fixed),
    TimerOnly,
}

impl Rule {
    fn visit<V: GovernorVisitor>(self, tick_period_ns: u32, visitor: V) -> V::Output {
        match self {
            Rule::Fixed(governor) => visitor.visit(governor),
            Rule::TimerOnly => visitor.visit(TimerOnly::new(tick_period_ns.into())),
        }
    }
}

/// A governor to time: those of `idlewise replay` that need no argument.
#[derive(Clone, Copy)]
pub enum Subject {
    Linux(&'static GovernorSpec),
    Hazard,
    Bound(&'static str, Rule),
    /// The oracle, at this fraction of a polling CPU's power as the price of latency. Its lookup
    /// counts as its decision. It has no reflect.
    Oracle(f64),
}

impl Subject {
    pub fn all() -> Vec<Self> {
        let linux = GOVERNORS.iter().map(Subject::Linux);
        linux
            .chain([Subject::Hazard])
            .chain(Self::bounds())
            .chain([Subject::Oracle(0.25)])
            .collect()
    }

    /// The default governors of `idlewise replay`.
    pub fn standard() -> Vec<Self> {
        let linux = USUAL.iter().filter_map(|name| resolve(name)).map(Subject::Linux);
        linux.chain(Self::bounds()).chain([0.0, 0.25, 1.0].map(Subject::Oracle)).collect()
    }

    fn bounds() -> [Self; 3] {
        [
            Subject::Bound("deepest", Rule::Fixed(Fixed::Deepest)),
            Subject::Bound("shallowest", Rule::Fixed(Fixed::Shallowest)),
            Subject::Bound("timer-only", Rule::TimerOnly),
        ]
    }

    pub fn name(self) -> String {
        match self {
            Subject::Linux(spec) => spec.id.to_owned(),
            Subject::Hazard => "hazard".to_owned(),
            Subject::Bound(name, _) => name.to_owned(),
            Subject::Oracle(_) => "oracle (lookup)".to_owned(),
        }
    }

    pub fn lane(self, inputs: &Inputs) -> Box<dyn Lane> {
        let setting = inputs.setting;
        let period_ns = setting.tick_period_ns;
        match self {
            Subject::Linux(spec) => spec.build(period_ns).visit(IntoLane(setting)),
            Subject::Hazard => IntoLane(setting).visit(Hazard::new(Lambda::QUARTER)),
            Subject::Bound(_, rule) => rule.visit(period_ns, IntoLane(setting)),
            Subject::Oracle(part) => {
                let lambda_mw = part * inputs.costs.full_price_mw();
                Box::new(OracleLane::new(inputs.costs.clone(), setting, lambda_mw))
            }
        }
    }

    /// The subject with its inputs, ready to be timed.
    pub fn prepare(self, inputs: &Inputs) -> Box<dyn Timed + '_> {
        let period_ns = inputs.setting.tick_period_ns;
        match self {
            Subject::Linux(spec) => spec.build(period_ns).visit(Capture(inputs)),
            Subject::Hazard => Capture(inputs).visit(Hazard::new(Lambda::QUARTER)),
            Subject::Bound(_, rule) => rule.visit(period_ns, Capture(inputs)),
            Subject::Oracle(part) => {
                let lambda_mw = part * inputs.costs.full_price_mw();
                let setting = &inputs.setting;
                let oracle =
                    Oracle::new(&inputs.costs, setting, setting.latency_limit_ns, lambda_mw);
                Box::new(Lookups { oracle, inputs })
            }
        }
    }
}

struct IntoLane(Setting);

impl GovernorVisitor for IntoLane {
    type Output = Box<dyn Lane>;

    fn visit<G: Governor + 'static>(self, governor: G) -> Self::Output {
        Box::new(GovernorLane::new(governor, self.0))
    }
}

struct Capture<'a>(&'a Inputs);

impl<'a> GovernorVisitor for Capture<'a> {
    type Output = Box<dyn Timed + 'a>;

    fn visit<G: Governor + Clone + 'static>(self, governor: G) -> Self::Output {
        Captured::boxed(governor, self.0)
    }
}

/// Something whose decisions can be timed repeatedly.
pub trait Timed {
    fn decision_count(&self) -> u64;

    /// Makes all decisions once.
    fn pass(&self) -> Duration;

    /// The inputs, one stream after the other; empty if there are only lookups.
    fn streams(&self) -> &[Vec<Note>] {
        &[]
    }

    fn ns_per_decision(&self) -> f64 {
        self.pass().as_nanos() as f64 / self.decision_count() as f64
    }
}

/// A decision's inputs, its outcome and its feedback (`struct note` of kernel_c.c).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Note {
    sleep_length_ns: i64,
    next_event_ns: i64,
    select_at_ns: u64,
    reflect_at_ns: u64,
    residency_ns: u64,
    poll_limit_ns: u64,
    tick_stopped: bool,
    poll_time_limit: bool,
    got_tick: bool,
    entered: u8,
}

/// Passes everything through and records it.
struct Recorder<G> {
    governor: G,
    notes: Vec<Note>,
}

impl<G: Governor> Governor for Recorder<G> {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        // This read makes the replay's count of timer reads wrong by one, but nobody uses it.
        let timers = context.sleep_length();
        self.notes.push(Note {
            sleep_length_ns: timers.sleep_length_ns,
            next_event_ns: timers.next_event_ns,
            select_at_ns: context.now_ns,
            tick_stopped: context.tick_stopped,
            ..Note::default()
        });
        self.governor.select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        if let Some(note) = self.notes.last_mut() {
            note.reflect_at_ns = outcome.now_ns;
            note.residency_ns = device.last_residency_ns;
            note.poll_limit_ns = device.poll_limit_ns;
            note.poll_time_limit = device.poll_time_limit;
            note.got_tick = outcome.got_tick;
            note.entered = outcome.entered as u8;
        }
        self.governor.reflect(outcome, device);
    }

    fn forecast_ns(&self) -> Option<u64> {
        self.governor.forecast_ns()
    }
}

/// A governor without history, and the notes of each stream of gaps.
struct Captured<'a, G> {
    fresh: G,
    inputs: &'a Inputs,
    streams: Vec<Vec<Note>>,
}

impl<'a, G: Governor + Clone + 'a> Captured<'a, G> {
    fn boxed(fresh: G, inputs: &'a Inputs) -> Box<dyn Timed + 'a> {
        let streams = inputs.streams.iter().map(|gaps| {
            let mut recorder = Recorder { governor: fresh.clone(), notes: Vec::new() };
            GovernorLane::new(&mut recorder, inputs.setting).replay(gaps);
            recorder.notes
        });
        let captured = Captured { streams: streams.collect(), fresh, inputs };
        // A governor that decides differently from the replay would be timed at different work.
        let states = &inputs.setting.states;
        let same = captured.streams.iter().all(|notes| captured.ask(states, notes).1);
        assert!(same, "a governor's decisions depend on its questions alone");
        Box::new(captured)
    }

    /// Gives one stream's inputs to a fresh governor. The sum keeps its decisions alive.
    #[inline]
    fn ask(&self, states: &StateTable, notes: &[Note]) -> (usize, bool) {
        let mut governor = self.fresh.clone();
        let mut device = Device::default();
        let (mut sum, mut same) = (0, true);
        let mut context =
            Context::new(states, SleepLength { sleep_length_ns: 0, next_event_ns: 0 });
        context.disabled = self.inputs.setting.disabled;
        context.latency_limit_ns = NO_LATENCY_LIMIT_NS;
        for note in notes {
            context.set_timers(SleepLength {
                sleep_length_ns: note.sleep_length_ns,
                next_event_ns: note.next_event_ns,
            });
            context.tick_stopped = note.tick_stopped;
            context.now_ns = note.select_at_ns;
            let decision = governor.select(&context, &mut device);
            sum += decision.state + usize::from(decision.stop_tick);
            same &= decision.state == usize::from(note.entered);
            device.last_residency_ns = note.residency_ns;
            device.poll_limit_ns = note.poll_limit_ns;
            device.poll_time_limit = note.poll_time_limit;
            let outcome = Outcome {
                entered: note.entered.into(),
                is_overruled: false,
                got_tick: note.got_tick,
                now_ns: note.reflect_at_ns,
            };
            governor.reflect(&outcome, &mut device);
        }
        (sum, same)
    }
}

impl<G: Governor + Clone> Timed for Captured<'_, G> {
    fn decision_count(&self) -> u64 {
        self.streams.iter().map(|notes| notes.len() as u64).sum()
    }

    fn pass(&self) -> Duration {
        let states = black_box(&self.inputs.setting.states);
        let ask_all = || self.streams.iter().map(|notes| self.ask(states, notes).0).sum::<usize>();
        let (duration, sum) = cpu_time(ask_all);
        black_box(sum);
        duration
    }

    fn streams(&self) -> &[Vec<Note>] {
        &self.streams
    }
}

struct Lookups<'a> {
    oracle: Oracle,
    inputs: &'a Inputs,
}

impl Timed for Lookups<'_> {
    fn decision_count(&self) -> u64 {
        self.inputs.streams.iter().map(|gaps| gaps.len() as u64).sum()
    }

    fn pass(&self) -> Duration {
        let gaps = || self.inputs.streams.iter().flatten();
        let (duration, sum) =
            cpu_time(|| gaps().map(|gap| self.oracle.state(gap.gap_ns)).sum::<usize>());
        black_box(sum);
        duration
    }
}

/// How long a governor's decisions take.
struct Line {
    governor: String,
    count: u64,
    median_ns: f64,
    least_ns: f64,
}

/// Times every governor.
pub fn run() -> Result<(), Box<dyn Error>> {
    let inputs = Inputs::load()?;
    let subjects = Subject::all();
    let timed: Vec<_> = subjects.iter().map(|subject| subject.prepare(&inputs)).collect();
    let mut rounds = vec![Vec::with_capacity(ROUND_COUNT); timed.len()];
    for _ in 0..ROUND_COUNT {
        for (timed, rounds) in timed.iter().zip(&mut rounds) {
            rounds.push(timed.ns_per_decision());
        }
    }
    let gap_count: usize = inputs.streams.iter().map(Vec::len).sum();
    let title = format!(
        "decisions: {gap_count} gaps of the bundled logs on spr, {ROUND_COUNT} rounds in turns; \
         measured; beside the kernel's C: section kernel-c"
    );
    type C = Column<Line>;
    let columns = [
        C::text("governor", "governor", |row| row.governor.as_str().into())
            .means("The governor.")
            .key(),
        C::count("decision_count", "decisions", |row| row.count.into())
            .means("Decisions timed in one round.")
            .key(),
        C::ns("decision_ns", "one decision", |row| row.median_ns.into())
            .means("Select and reflect, median of the rounds.")
            .key(),
        C::ns("decision_least_ns", "least", |row| row.least_ns.into())
            .means("Of the fastest round.")
            .key(),
        C::per_s("decisions_per_second", "decisions per second", |row| {
            (1e9 / row.median_ns).into()
        })
        .means("On one CPU.")
        .key(),
    ];
    let lines = subjects.iter().zip(&timed).zip(&rounds).map(|((subject, timed), rounds)| Line {
        governor: subject.name().to_string(),
        count: timed.decision_count(),
        median_ns: median(rounds.iter().copied()),
        least_ns: rounds.iter().copied().fold(f64::INFINITY, f64::min),
    });
    let table = Table::new(title, &columns, lines);
    print!("{}", table.to_text(&TextStyle::for_stdout()));
    Ok(())
}
