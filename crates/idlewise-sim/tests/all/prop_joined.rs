//! Replays of CPUs that share states, against a machine that is stepped through every nanosecond.

use std::path::Path;

use idlewise_core::{Context, Decision, Device, Governor, IdleState, Outcome, StateTable};
use idlewise_machine::{DomainState, Machine};
use idlewise_sim::replay::{
    Delays, GovernorJoint, GovernorLane, JointBound, JointReplays, Lane, ReplayedGroups, Setting,
    SharedStateTally, Tally, UnitOf, replay_gaps_joined, replay_joined,
};
use idlewise_sim::{CostModel, Exits, Scope, SharedStates};
use idlewise_trace::log::{ColumnSet, FORMAT_VERSION, IdleLog, LogMetadata, LogWriter};
use idlewise_trace::{CpuGroups, GapSink, IdleGap, OutputFile, WakeReason};
use proptest::prelude::*;

const TICK_NS: u32 = 1_000;
const TICK_WORK_NS: u64 = 7;
const EXIT_NS: [u64; 3] = [1, 5, 20];
const CPU_COUNT: usize = 4;
/// The power of what CPUs share.
const AWAKE_MW: f64 = 100.0;

/// The power in a shared state with that exit latency.
fn power_mw(exit_ns: u64) -> f64 {
    AWAKE_MW - exit_ns as f64
}

/// States of some nanoseconds: WFI, sleep and off. Clusters of two CPUs, one package.
fn machine(shared: &[(&str, &str, &str, u64, u64)]) -> Machine {
    let mut text = String::from(
        "id = \"toy\"\ntitle = \"Toy\"\narch = \"arm\"\nsource = \"invented\"\nstates = [\n",
    );
    for (name, exit_ns, residency_us) in
        [("WFI", EXIT_NS[0], 0.001), ("sleep", EXIT_NS[1], 0.03), ("off", EXIT_NS[2], 0.1)]
    {
        let exit_us = exit_ns as f64 / 1e3;
        text += &format!(
            "{{ name = \"{name}\", exit_latency_us = {exit_us}, target_residency_us = {residency_us} }},\n"
        );
    }
    text += "]\n";
    for (scope, coordination, requires, exit_ns, residency_ns) in shared {
        let (exit_us, residency_us) = (*exit_ns as f64 / 1e3, *residency_ns as f64 / 1e3);
        text += &format!(
            "[[domain_states]]\nname = \"{scope}-{exit_ns}\"\nexit_latency_us = {exit_us}\n\
             target_residency_us = {residency_us}\nscope = \"{scope}\"\ncoordination = \
             \"{coordination}\"\nrequires = \"{requires}\"\nawake_power_mw = {AWAKE_MW}\n\
             power_mw = {}\npower_kind = \"assumed\"\n",
            power_mw(*exit_ns),
        );
    }
    Machine::from_toml(&text).unwrap()
}

fn machines() -> Vec<Machine> {
    vec![
        machine(&[("package", "platform", "off", 40, 300)]),
        machine(&[
            ("cluster", "platform", "sleep", 10, 50),
            ("cluster", "platform", "off", 30, 200),
            ("package", "platform", "off", 40, 300),
        ]),
        machine(&[
            ("cluster", "os-initiated", "off", 10, 100),
            ("cluster", "os-initiated", "off", 60, 400),
            ("package", "os-initiated", "off", 80, 500),
        ]),
    ]
}

fn groups() -> CpuGroups {
    "cluster=0,1/2,3;package=0-3".parse().unwrap()
}

/// Answers in turn, whatever happens.
#[derive(Clone)]
struct Script {
    answers: Vec<(usize, bool)>,
    next: usize,
}

impl Script {
    fn answer(&mut self) -> (usize, bool) {
        let answer = self.answers[self.next % self.answers.len()];
        self.next += 1;
        answer
    }
}

impl Governor for Script {
    fn select(&mut self, _context: &Context<'_>, _device: &mut Device) -> Decision {
        let (state, stop_tick) = self.answer();
        Decision { state, stop_tick }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}
}

prop_compose! {
    /// Many of them begin and end at the same time as others if times are whole steps.
    fn any_gaps()(
        step_ns in prop::sample::select(vec![1, 1, 50]),
        rows in prop::collection::vec((
            0..CPU_COUNT, 0..700_u64, 0..1_500_u64, prop::option::of(0..3_000_u64), any::<bool>(),
            1..=TICK_NS, prop::option::of(0..120_u64),
        ), 1..60),
    ) -> Vec<IdleGap> {
        let mut at_ns = [0_i64; CPU_COUNT];
        let mut gaps: Vec<IdleGap> = rows
            .into_iter()
            .map(|(cpu, busy_ns, gap_ns, sleep_length_ns, ran_task, next_tick_ns, latency_limit_ns)| {
                let (busy_ns, gap_ns) = (busy_ns / step_ns * step_ns, gap_ns / step_ns * step_ns);
                let start_ns = at_ns[cpu] + busy_ns as i64;
                at_ns[cpu] = start_ns + gap_ns as i64;
                IdleGap {
                    cpu: cpu as u16, start_ns, gap_ns, sleep_length_ns,
                    next_tick_ns: Some(next_tick_ns), tick_stopped: false, ran_task,
                    wake_reason: WakeReason::Irq, latency_limit_ns, recorded_state: None,
                    recorded_idle_ns: None,
                }
            })
            .collect();
        gaps.sort_by_key(|gap| gap.cpu);
        gaps
    }
}

/// The gaps in a log, so many in a row group.
fn log(gaps: &[IdleGap], group_gap_count: usize) -> IdleLog {
    let path = Path::new("small.parquet");
    let mut writer = LogWriter::new(OutputFile::unnamed(path).unwrap()).unwrap();
    for of_cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
        for group in of_cpu.chunks(group_gap_count) {
            writer.take(group[0].cpu, group).unwrap();
        }
    }
    let metadata = LogMetadata { format_version: FORMAT_VERSION, ..LogMetadata::default() };
    IdleLog::from_file(path, writer.finish_unnamed(&metadata).unwrap()).unwrap()
}

/// The cheapest of a group's shared states, or none, from each beginning or end of a gap to the next at which all
/// CPUs are in a gap.
fn naive_bound_uj(machine: &Machine, gaps: &[IdleGap], lambda_mw: f64) -> f64 {
    let uj = |mw: f64, ns: u64| mw * ns as f64 * 1e-6;
    let mut sum_uj = 0.0;
    for (scope, cpus) in
        [(Scope::Cluster, 0..2), (Scope::Cluster, 2..4), (Scope::Package, 0..CPU_COUNT as u16)]
    {
        let is_member = |gap: &&IdleGap| cpus.contains(&gap.cpu);
        let span = |gap: &IdleGap| [gap.start_ns as u64, gap.start_ns as u64 + gap.gap_ns];
        let mut edges: Vec<u64> = gaps.iter().filter(is_member).flat_map(span).collect();
        edges.sort_unstable();
        for edge in edges.windows(2) {
            let is_in = |gap: &IdleGap| span(gap)[0] <= edge[0] && edge[1] <= span(gap)[1];
            if !cpus.clone().all(|cpu| gaps.iter().any(|gap| gap.cpu == cpu && is_in(gap))) {
                continue;
            }
            let (mut least_uj, mut before, mut transition_uj) = (0.0_f64, AWAKE_MW, 0.0);
            for state in machine.shared_states().filter(|state| state.scope == Some(scope)) {
                let mw = power_mw(state.exit_latency_ns);
                transition_uj += uj(before - mw, state.target_residency_ns);
                let saved_uj = uj(AWAKE_MW - mw, edge[1] - edge[0]);
                let delay_uj = uj(lambda_mw, state.exit_latency_ns);
                least_uj = least_uj.min(transition_uj - saved_uj + delay_uj);
                before = mw;
            }
            sum_uj += least_uj;
        }
    }
    sum_uj
}

/// What the naive machine counts.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    entries: [u64; 3],
    stays_ns: [u64; 3],
    wakes: [u64; 3],
    too_deep: u64,
    shared: Vec<SharedStateTally>,
    delays: Delays,
    work_ns: u64,
    ticks: u64,
}

impl Counts {
    fn of(tally: &Tally, states: &StateTable, shared_count: usize) -> Self {
        let each = |count: fn(&idlewise_sim::replay::StateTally) -> u64| {
            [0, 1, 2].map(|index| count(&tally.states[index]))
        };
        Counts {
            entries: each(|state| state.entry_count),
            stays_ns: each(|state| state.stay_ns),
            wakes: each(|state| state.wake_count),
            too_deep: tally.too_deep_count(),
            shared: tally.shared[..shared_count].to_vec(),
            delays: tally.delays(&Exits::declared(states)),
            work_ns: tally.work_ns,
            ticks: tally.tick_wake_count,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Awake,
    /// Since when, in which state, and when the next timer or tick is due.
    Idle(u64, usize, u64),
    /// Until when, within a gap.
    Busy(u64),
}

struct NaiveCpu {
    gaps: Vec<IdleGap>,
    script: Script,
    mode: Mode,
    tick_stopped: bool,
    next_tick_at_ns: u64,
}

/// A machine that looks at every CPU in every nanosecond.
fn naive(machine: &Machine, gaps: &[IdleGap], script: &Script) -> Counts {
    let states = machine.table().unwrap();
    let shared: Vec<&DomainState> = machine.shared_states().collect();
    let mut counts =
        Counts { shared: vec![SharedStateTally::default(); shared.len()], ..Counts::default() };
    let mut cpus: Vec<NaiveCpu> = (0..CPU_COUNT)
        .map(|cpu| NaiveCpu {
            gaps: gaps.iter().filter(|gap| usize::from(gap.cpu) == cpu).copied().rev().collect(),
            script: script.clone(),
            mode: Mode::Awake,
            tick_stopped: false,
            next_tick_at_ns: 0,
        })
        .collect();
    let levels = [Scope::Cluster, Scope::Package];
    let members = |level: Scope, cpu: usize| match level {
        Scope::Cluster => cpu / 2 * 2..cpu / 2 * 2 + 2,
        _ => 0..CPU_COUNT,
    };
    // The state and its beginning, and the end of the last exit and its state, of each CPU's group.
    let mut asleep: [[Option<(usize, u64)>; CPU_COUNT]; 2] = Default::default();
    let mut exits = [[(0_u64, 0_usize); CPU_COUNT]; 2];
    let end_ns =
        gaps.iter().map(|gap| gap.start_ns as u64 + gap.gap_ns).max().unwrap_or(0) + 10_000;
    for now_ns in 0..=end_ns {
        // Entries may follow wake-ups at the same time, and a gap of length 0 both.
        for _round in 0..200 {
            for cpu in 0..CPU_COUNT {
                let Mode::Idle(since_ns, state, _) = cpus[cpu].mode else { continue };
                let gap = *cpus[cpu].gaps.last().unwrap();
                let is_event = now_ns == gap.start_ns as u64 + gap.gap_ns;
                let is_tick = !cpus[cpu].tick_stopped && now_ns == cpus[cpu].next_tick_at_ns;
                if !is_event && !is_tick {
                    continue;
                }
                let mut awake_at_ns = now_ns;
                for (number, level) in levels.into_iter().enumerate().rev() {
                    let asked = |of: &DomainState| {
                        let place = machine.state_index(of.requires.as_ref().unwrap()).unwrap();
                        let is_limited = of.coordination.unwrap().as_str() == "os-initiated"
                            && gap.latency_limit_ns.is_some_and(|ns| of.exit_latency_ns > ns);
                        of.scope == Some(level) && state >= place && !is_limited
                    };
                    if !shared.iter().any(|of| asked(of)) {
                        continue;
                    }
                    if let Some((index, since_ns)) = asleep[number][cpu] {
                        let tally = &mut counts.shared[index];
                        tally.entry_count += 1;
                        tally.stay_ns += now_ns - since_ns;
                        let is_short = now_ns - since_ns < shared[index].target_residency_ns;
                        tally.too_deep_count += u64::from(is_short);
                        let exit_ends_ns = awake_at_ns + shared[index].exit_latency_ns;
                        for member in members(level, cpu) {
                            asleep[number][member] = None;
                            exits[number][member] = (exit_ends_ns, index);
                        }
                    }
                    let (exit_ends_ns, index) = exits[number][cpu];
                    if exit_ends_ns > awake_at_ns {
                        if is_event {
                            counts.shared[index].wake_count += 1;
                            counts.shared[index].delay_ns += exit_ends_ns - awake_at_ns;
                        }
                        awake_at_ns = exit_ends_ns;
                    }
                }
                let exit_ns = EXIT_NS[state] + awake_at_ns - now_ns;
                let stay_ns = now_ns - since_ns;
                counts.entries[state] += 1;
                counts.stays_ns[state] += stay_ns;
                let is_too_deep =
                    state > 0 && stay_ns + exit_ns < states.get(state).target_residency_ns;
                counts.too_deep += u64::from(is_too_deep);
                if is_event {
                    counts.wakes[state] += 1;
                    counts.delays.record(exit_ns);
                    cpus[cpu].mode = Mode::Awake;
                    cpus[cpu].gaps.pop();
                } else {
                    counts.ticks += 1;
                    counts.work_ns += exit_ns + TICK_WORK_NS;
                    cpus[cpu].mode = Mode::Busy(now_ns + exit_ns + TICK_WORK_NS);
                }
            }
            let mut has_entered = false;
            for cpu in 0..CPU_COUNT {
                let this = &mut cpus[cpu];
                let Some(gap) = this.gaps.last().copied() else { continue };
                let start_ns = gap.start_ns as u64;
                match this.mode {
                    Mode::Awake if now_ns == start_ns => {
                        this.tick_stopped &= !gap.ran_task;
                        this.next_tick_at_ns = start_ns + u64::from(gap.next_tick_ns.unwrap());
                    }
                    // An event in the meantime is seen when the CPU is done.
                    Mode::Busy(until_ns) if until_ns >= start_ns + gap.gap_ns => {
                        counts.delays.record(until_ns - start_ns - gap.gap_ns);
                        this.mode = Mode::Awake;
                        this.gaps.pop();
                        // The next gap may begin at this moment.
                        has_entered = true;
                        continue;
                    }
                    Mode::Busy(until_ns) if now_ns == until_ns => {
                        while this.next_tick_at_ns <= now_ns {
                            this.next_tick_at_ns += u64::from(TICK_NS);
                        }
                    }
                    _ => continue,
                }
                let timer_at_ns = gap.sleep_length_ns.map(|ns| start_ns + ns);
                let timer_at_ns = timer_at_ns.filter(|at_ns| *at_ns >= now_ns);
                let (state, stop_tick) = this.script.answer();
                this.tick_stopped |= stop_tick && timer_at_ns != Some(this.next_tick_at_ns);
                let tick_at_ns = (!this.tick_stopped).then_some(this.next_tick_at_ns);
                let due_ns = timer_at_ns.into_iter().chain(tick_at_ns).min().unwrap_or(u64::MAX);
                this.mode = Mode::Idle(now_ns, state, due_ns);
                has_entered = true;
                for (number, level) in levels.into_iter().enumerate() {
                    // The last of the group decides.
                    let group: Vec<&NaiveCpu> = cpus[members(level, cpu)].iter().collect();
                    let fits = |of: &DomainState| {
                        let place = machine.state_index(of.requires.as_ref().unwrap()).unwrap();
                        let is_os = of.coordination.unwrap().as_str() == "os-initiated";
                        of.scope == Some(level)
                            && group.iter().all(|member| match member.mode {
                                Mode::Idle(_, state, due_ns) => {
                                    let limit_ns = member.gaps.last().unwrap().latency_limit_ns;
                                    let is_limited =
                                        limit_ns.is_some_and(|ns| of.exit_latency_ns > ns);
                                    let is_due =
                                        due_ns.saturating_sub(now_ns) < of.target_residency_ns;
                                    state >= place && !(is_os && (is_limited || is_due))
                                }
                                _ => false,
                            })
                    };
                    // An entry that asks for nothing changes nothing.
                    let chosen = shared.iter().rposition(|of| fits(of));
                    if let Some(index) = chosen {
                        for member in members(level, cpu) {
                            asleep[number][member] = Some((index, now_ns));
                        }
                    }
                }
                // A gap of no length ends before the next CPU goes idle.
                if gap.gap_ns == 0 {
                    break;
                }
            }
            if !has_entered {
                break;
            }
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn counts_as_a_machine_stepped_through_every_nanosecond(
        gaps in any_gaps(),
        answers in prop::collection::vec((0..3_usize, any::<bool>()), 1..8),
        mut parts_ns in prop::collection::vec(0..30_000_i64, 0..5),
    ) {
        parts_ns.sort_unstable();
        let script = Script { answers, next: 0 };
        for machine in machines() {
            let states = machine.table().unwrap();
            let shared = SharedStates::of(&machine).unwrap();
            let replayed = ReplayedGroups::new(&shared, &groups());
            let setting = Setting { tick_work_ns: TICK_WORK_NS, ..Setting::new(states, TICK_NS) };
            let tally = |parts_ns: &[i64]| replay_gaps_joined(&gaps, &replayed, &|unit| {
                GovernorJoint::make(unit, setting, || script.clone())
            }, parts_ns);
            let found = tally(&[]);
            prop_assert_eq!(&found, &tally(&parts_ns), "the parts changed something");
            let shared_count = machine.shared_states().count();
            let found = Counts::of(&found, &states, shared_count);
            prop_assert_eq!(found, naive(&machine, &gaps, &script));
        }
    }

    /// Wherever row groups end, and whichever CPU's gaps are read first.
    #[test]
    fn a_log_gives_what_its_gaps_give_and_the_bound_is_that_of_every_stretch(
        gaps in any_gaps(),
        answers in prop::collection::vec((0..3_usize, any::<bool>()), 1..8),
        group_gap_count in 1..9_usize,
    ) {
        let script = Script { answers, next: 0 };
        let log = log(&gaps, group_gap_count);
        let lambdas_mw = [0.0, 20.0, 900.0];
        for machine in machines() {
            let shared = SharedStates::of(&machine).unwrap();
            let replayed = ReplayedGroups::new(&shared, &groups());
            let costs = CostModel::of(&machine).unwrap();
            let setting = Setting::new(machine.table().unwrap(), TICK_NS);
            let make = |unit: &UnitOf<'_>| GovernorJoint::make(unit, setting, || script.clone());
            let results = replay_joined(
                &log,
                ColumnSet::WithoutRecorded,
                JointReplays {
                    makes: &[(&replayed, &make)],
                    bounds: &[JointBound { groups: &replayed, costs: &costs, lambdas_mw: &lambdas_mw }],
                },
                &|_| {},
            ).unwrap();
            prop_assert_eq!(&results.tallies[0], &replay_gaps_joined(&gaps, &replayed, &make, &[]));
            for (lambda_mw, bound_uj) in lambdas_mw.iter().zip(&results.bounds_uj[0]) {
                let naive_uj = naive_bound_uj(&machine, &gaps, *lambda_mw);
                prop_assert!((bound_uj - naive_uj).abs() < 1e-9, "{bound_uj} {naive_uj}");
            }
        }
    }

    /// With exits that take no time, sharing changes nothing of what a CPU does alone.
    #[test]
    fn is_the_plain_replay_where_leaving_takes_no_time(
        gaps in any_gaps(),
        answers in prop::collection::vec((0..3_usize, any::<bool>()), 1..8),
    ) {
        let script = Script { answers, next: 0 };
        let machine = machine(&[("package", "platform", "off", 0, 300)]);
        let setting = Setting::new(machine.table().unwrap(), TICK_NS);
        let mut plain = Tally::default();
        for cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            let mut lane = GovernorLane::new(script.clone(), setting);
            lane.replay(cpu);
            plain.merge(lane.tally());
        }
        let shared = SharedStates::of(&machine).unwrap();
        let joined = replay_gaps_joined(&gaps, &ReplayedGroups::new(&shared, &groups()), &|unit| {
            GovernorJoint::make(unit, setting, || script.clone())
        }, &[]);
        let passed = gaps.iter().any(|gap| gap.gap_ns > 0);
        prop_assert!(joined.shared[0].wake_count == 0 && (joined.group_ns[3] > 0 || !passed));
        let alone = Tally { shared: plain.shared, group_ns: plain.group_ns, ..joined };
        prop_assert_eq!(alone, plain);
    }
}

/// A CPU that polls for a day has a hundred million stays. They are counted without replaying each, also beside
/// CPUs that share a state.
#[test]
fn a_day_of_polling_beside_a_sleeping_package_ends() {
    let poll = StateTable::new(&[IdleState::POLL, IdleState::new(20, 100)]).unwrap();
    let machine = machine(&[("package", "platform", "sleep", 40, 300)]);
    let shared = SharedStates::of(&machine).unwrap();
    let groups: CpuGroups = "package=0-1".parse().unwrap();
    let gap = |cpu| IdleGap {
        cpu,
        start_ns: 0,
        gap_ns: 86_400_000_000_000,
        sleep_length_ns: None,
        next_tick_ns: Some(1_000),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let mut states = [1, 0].into_iter();
    let replayed = ReplayedGroups::new(&shared, &groups);
    // The first CPU sleeps with its tick stopped, the second polls with its tick running.
    let tally = replay_gaps_joined(
        &[gap(0), gap(1)],
        &replayed,
        &|unit| {
            let mut states = states.clone();
            GovernorJoint::make(unit, Setting::new(poll, 4_000_000), move || {
                Constant(states.next().unwrap())
            })
        },
        &[],
    );
    assert_eq!(states.next(), Some(1));
    assert_eq!(tally.states[1].entry_count, 1);
    assert!(tally.states[0].entry_count > 100_000_000, "{}", tally.states[0].entry_count);
    assert_eq!(tally.shared[0].entry_count, 0);
}

/// Always the same state; only the deep one stops the tick. It has no memory.
#[derive(Clone)]
struct Constant(usize);

impl Governor for Constant {
    fn select(&mut self, _context: &Context<'_>, _device: &mut Device) -> Decision {
        Decision { state: self.0, stop_tick: self.0 > 0 }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}

    fn memory(&self, _note: &mut dyn FnMut(u64)) -> bool {
        true
    }
}
