//! Properties of every simulated run: nothing is lost, the results of queueing theory hold, a case
//! computed by hand matches, and a recorded log gives the same result as its replay.

use idlewise_core::{Fixed, Governor, TimerOnly, tick_period_ns};
use idlewise_sim::replay::{
    GovernorJoint, GovernorLane, Lane, ReplayedGroups, Setting, Tally, UnitOf, replay_gaps_joined,
};
use idlewise_sim::simulate::{
    Hardware, Load, Report, Setup, SimulationError, simulate, simulate_replicates,
};
use idlewise_sim::workload::{Recorded, WORKLOADS, Workload};
use idlewise_sim::{Boxed, CostModel, Machine, SharedStates};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

const HZ: u32 = 250;

fn server() -> Machine {
    let text = include_str!("../../../../machines/spr.toml");
    Machine::from_toml(text).unwrap()
}

/// One state without exit latency, so that only queueing remains.
fn ideal() -> Machine {
    let text = "id = 'ideal'\ntitle = 'no latency'\narch = 'x86'\nsource = 'invented'\n\
                [[states]]\nname = 'HALT'\nexit_latency_us = 0\ntarget_residency_us = 0\n";
    Machine::from_toml(text).unwrap()
}

fn deepest() -> Box<dyn Governor> {
    Box::new(Fixed::Deepest)
}

fn by_timer() -> Box<dyn Governor> {
    Box::new(TimerOnly::new(u64::from(tick_period_ns(HZ))))
}

/// A small machine with every feature enabled.
fn setup(machine: &Machine) -> Setup<'_> {
    let mut setup = Setup::new(machine, &by_timer);
    setup.hardware = Hardware {
        package_count: 2,
        core_count: 2,
        thread_count: 2,
        tdp_mw: Some(9_000.0),
        package_exit_ns: 40_000,
        package_after_ns: 100_000,
        package_mw: 500.0,
        package_idle_mw: 50.0,
        entry_ratio: 0.2,
        ..Hardware::of(machine)
    };
    setup
}

fn run(setup: &Setup<'_>, workload: &str, sets: &[(&str, &str)], duration_ns: u64) -> Report {
    run_seeded(setup, workload, sets, duration_ns, 1)
}

fn run_seeded(
    setup: &Setup<'_>,
    workload: &str,
    sets: &[(&str, &str)],
    duration_ns: u64,
    seed: u64,
) -> Report {
    let mut workload = Workload::named(workload).unwrap();
    for (key, value) in sets {
        workload.set(&mut Hardware::default(), key, value).unwrap();
    }
    let load = workload.load(&setup.hardware.shape().unwrap(), &setup.hardware);
    simulate(setup, load, duration_ns, seed).unwrap()
}

#[test]
fn time_energy_tasks_messages_and_ipis_are_conserved() {
    let machine = server();
    for ipi_less in [true, false] {
        let mut setup = setup(&machine);
        setup.hardware.ipi_less = ipi_less;
        for spec in WORKLOADS {
            let report = run(&setup, spec.name, &[], 10_000_000);
            assert_conserved(&setup, &report, spec.name);
        }
    }
}

fn assert_conserved(setup: &Setup<'_>, report: &Report, what: &str) {
    let Report { duration_ns, cpu_count, core_count, .. } = *report;
    assert_eq!(report.busy_ns + report.idle_ns, cpu_count * duration_ns, "{what}: CPU time");
    let cores = &report.cores;
    let core_ns = cores.running_ns + cores.waking_ns + cores.residency_ns.iter().sum::<u64>();
    assert_eq!(core_ns, core_count * duration_ns, "{what}: core time");
    assert!(cores.package_idle_ns <= setup.hardware.package_count * duration_ns, "{what}");
    let ipis = &report.ipis;
    let settled = ipis.sent_count + ipis.elided_count() + ipis.batched_count;
    assert_eq!(ipis.requested_count, settled, "{what}: IPIs");
    let in_flight = ipis.sent_count - ipis.received_count;
    assert!(in_flight <= cpu_count, "{what}: {in_flight} IPIs never arrived");
    if !setup.hardware.ipi_less {
        assert_eq!(ipis.elided_count(), 0, "{what}");
    }
    let tasks = &report.tasks;
    let found = tasks.exited_count + tasks.blocked_count + tasks.runnable_count;
    assert_eq!(tasks.spawned_count, found, "{what}: tasks");
    assert_eq!(tasks.sent_count, tasks.taken_count + tasks.left_count, "{what}: messages");
    assert!(report.event_count > 0, "{what}");
}

/// Without turbo, energy follows from times and entries.
#[test]
fn energy_is_what_times_and_entries_cost() {
    let machine = server();
    let mut setup = setup(&machine);
    setup.hardware.tdp_mw = None;
    let report = run(&setup, "nearly-idle", &[], 50_000_000);
    let powers: Vec<f64> = machine.powers().iter().map(|power| power.mw).collect();
    let running_mw = machine.running_power().mw;
    let costs = CostModel::of(&machine).unwrap();
    let cores = &report.cores;
    let residencies = (0..powers.len()).map(|i| powers[i] * cores.residency_ns[i] as f64 * 1e-6);
    let entries = (0..powers.len()).map(|i| costs.transition_uj(i) * cores.entry_count[i] as f64);
    // All entries here are from running. Otherwise their cost would be a difference.
    let expected: f64 = residencies.chain(entries).sum();
    assert!(cores.idle_uj <= expected + 1e-6 && cores.idle_uj > 0.5 * expected);
    let running_uj = running_mw * cores.running_ns as f64 * 1e-6;
    assert!((cores.running_uj / running_uj - 1.0).abs() < 1e-9);
    let awake_ns = setup.hardware.package_count * report.duration_ns - cores.package_idle_ns;
    let package_uj = 500.0 * awake_ns as f64 * 1e-6 + 50.0 * cores.package_idle_ns as f64 * 1e-6;
    assert!((cores.package_uj / package_uj - 1.0).abs() < 1e-9);
}

/// Little's law, L = λ·W, holds whatever the machine does.
#[test]
fn littles_law_holds() {
    let machine = server();
    let setup = setup(&machine);
    for (workload, spans) in
        [("tcp-lat", "latency_ns"), ("poisson", "latency_ns"), ("context-switch2", "one_way_ns")]
    {
        let report = run(&setup, workload, &[], 500_000_000);
        let duration_ns = report.duration_ns;
        let mean_count = report.metrics.mean_in_flight(duration_ns);
        let count = report.metrics.operation_count as f64;
        let spans = report.metrics.spans(spans).unwrap();
        // tcp-lat records half a round trip.
        let share = if workload == "tcp-lat" { 2.0 } else { 1.0 };
        let mean_ns = share * spans.sum_ns() as f64 / spans.count() as f64;
        let expected = count / duration_ns as f64 * mean_ns;
        assert!((mean_count / expected - 1.0).abs() < 0.01, "{workload}: {mean_count} {expected}");
    }
}

/// The mean waiting times of M/M/1 and M/D/1 at ρ = ½ are 1 and ½ service times. The means of
/// independent replicates are normally distributed, so the true value is more than 4 standard
/// errors away once in 15,000 times; and the seed is fixed.
#[test]
fn waiting_times_are_those_of_queueing_theory() {
    let machine = ideal();
    let mut setup = Setup::new(&machine, &deepest);
    setup.hardware =
        Hardware { irq_entry_ns: 0, switch_ns: 0, tick_work_ns: 0, ..Hardware::default() };
    for (is_exponential, expected_ns) in [("true", 100_000.0), ("false", 50_000.0)] {
        let mut workload = Workload::named("poisson").unwrap();
        workload.set(&mut Hardware::default(), "exponential_service", is_exponential).unwrap();
        let shape = setup.hardware.shape().unwrap();
        let hardware = setup.hardware.clone();
        let make = |_| workload.load(&shape, &hardware);
        let reports = simulate_replicates(&setup, &make, 1_000_000_000, 7, 16).unwrap();
        let means = reports.iter().map(|report| {
            let waits = report.metrics.spans("wait_ns").unwrap();
            waits.sum_ns() as f64 / waits.count() as f64
        });
        let means: Vec<f64> = means.collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let variance = means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 15.0;
        let error = (variance / 16.0).sqrt();
        assert!((mean - expected_ns).abs() < 4.0 * error, "{mean} ± {error}, not {expected_ns}");
        assert!(error < 0.05 * expected_ns, "the bound is tight: {error}");
    }
}

#[test]
fn a_nearly_idle_cpu_calls_as_many_others_as_it_is_told_and_none_twice() {
    let machine = server();
    let mut setup = setup(&machine);
    let report = |setup: &Setup<'_>, call_count| {
        let sets = [("wake_ratio", "1"), ("call_count", call_count)];
        run(setup, "nearly-idle", &sets, 50_000_000)
    };
    let call_count = |count| report(&setup, count).ipis.requested_count as f64;
    // A round with more calls takes a little longer.
    let ratio = call_count("3") / call_count("1");
    assert!((2.5..=3.5).contains(&ratio), "{ratio}");
    assert_eq!(report(&setup, "7"), report(&setup, "100"), "there are 8 CPUs");
    setup.hardware =
        Hardware { package_count: 1, core_count: 2, thread_count: 1, ..setup.hardware };
    assert_eq!(report(&setup, "1"), report(&setup, "100"), "there is one other CPU");
}

#[test]
fn replicates_do_not_depend_on_threads() {
    let machine = server();
    let setup = setup(&machine);
    let workload = Workload::named("nearly-idle").unwrap();
    let shape = setup.hardware.shape().unwrap();
    let make = |_| workload.load(&shape, &setup.hardware);
    let with = |thread_count| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(thread_count).build().unwrap();
        pool.install(|| simulate_replicates(&setup, &make, 20_000_000, 3, 5).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(4));
    assert_ne!(one[0], one[1], "seeds differ");
}

/// Two CPUs, one wake-up by IPI and one by store, step by step:
///
/// ```text
///   0      tasks of both CPUs switch in (600)
///   600    waker begins to be busy until 10,000; the sleeper waits: CPU 1 idles in C6
///          (timer-only sees no timer: deepest), tick stopped
///  10,000  waker sends: IPI 300 to send, 200 under way
///  10,500  CPU 1 begins to leave C6: 290,000
/// 300,500  interrupt 400, switch 600: the sleeper runs 291,500 after the wish
/// ```
///
/// With a store, 50 and 60 replace 300 and 200, and there is no interrupt: 290,710.
#[test]
fn two_cpus_step_by_step() {
    let machine = server();
    for (ipi_less, expected_ns) in [(false, 291_500), (true, 290_710)] {
        let mut setup = Setup::new(&machine, &by_timer);
        setup.hardware = Hardware {
            ipi_less,
            ipi_send_ns: 300,
            ipi_delivery_ns: 200,
            ipi_receive_ns: 400,
            store_ns: 50,
            store_delivery_ns: 60,
            switch_ns: 600,
            package_count: 1,
            core_count: 2,
            thread_count: 1,
            ..Hardware::default()
        };
        let sets = [("interval_ns", "9400"), ("wake_count", "1")];
        let report = run(&setup, "wakes", &sets, 1_000_000);
        let wakes = report.metrics.spans("wake_ns").unwrap();
        assert_eq!((wakes.count(), wakes.sum_ns()), (1, expected_ns));
        assert_eq!(report.ipis.sent_count, u64::from(!ipi_less));
        assert_eq!(report.ipis.stored_count, u64::from(ipi_less));
        assert_eq!(report.ipis.sender_ns, if ipi_less { 50 } else { 300 });
        // CPU 1: from 600 to the wake-up, including the exit.
        let c6 = &report.idle.states[3];
        assert_eq!(c6.wake_count, 1);
        let sleep_ns = if ipi_less { 10_110 } else { 10_500 } - 600;
        assert_eq!(report.idle.gap_ns, sleep_ns);
    }
}

#[test]
fn a_run_that_would_never_end_is_ended() {
    struct Forever;
    impl idlewise_sim::simulate::Program for Forever {
        fn next(
            &mut self,
            _view: &mut idlewise_sim::simulate::View<'_>,
        ) -> idlewise_sim::simulate::Op {
            idlewise_sim::simulate::Op::Run { ns: 0 }
        }
    }
    let machine = server();
    let mut setup = setup(&machine);
    let tasks = || vec![idlewise_sim::simulate::Spawn::pinned(0, Forever)];
    let load = || Load { tasks: tasks(), sources: Vec::new() };
    let error = simulate(&setup, load(), 1_000_000, 0).unwrap_err();
    assert!(matches!(error, SimulationError::Stuck { .. }), "{error}");
    setup.hardware.event_limit = 1_000;
    let workload = Workload::named("hackbench").unwrap();
    let load = workload.load(&setup.hardware.shape().unwrap(), &setup.hardware);
    let error = simulate(&setup, load, 1_000_000_000, 0).unwrap_err();
    assert!(matches!(error, SimulationError::TooLong { event_limit: 1_000, .. }), "{error}");
}

#[test]
fn cpus_and_shapes_that_cannot_be_are_refused() {
    let machine = server();
    let mut setup = setup(&machine);
    let mut workload = Workload::named("tcp-lat").unwrap();
    workload.set(&mut Hardware::default(), "server_cpu", "8").unwrap();
    let load = workload.load(&setup.hardware.shape().unwrap(), &setup.hardware);
    let error = simulate(&setup, load, 1_000, 0).unwrap_err();
    assert!(
        error.to_string().starts_with("the workload names CPU 8, but the machine has CPUs 0 to 7")
    );
    setup.hardware.core_count = 0;
    let error = simulate(&setup, Load::default(), 1_000, 0).unwrap_err();
    assert!(matches!(error, SimulationError::Shape(_)));
    setup.hardware.core_count = u64::MAX;
    assert!(simulate(&setup, Load::default(), 1_000, 0).is_err());
}

prop_compose! {
    /// Gaps that are far enough apart for any exit and tick. A simulated CPU that wakes up late
    /// begins its next gap late; a replayed one does not.
    fn any_gaps()(
        rows in prop::collection::vec((
            prop_oneof![0..50_000_u64, 0..60_000_000_u64],
            prop::option::of(0..100_000_000_u64),
            any::<bool>(),
            0..6_usize,
            400_000..2_000_000_u64,
            prop::option::of(0..600_000_u64),
        ), 1..60),
        phase_ns in 0..4_000_000_u64,
        knows_tick in any::<bool>(),
    ) -> Vec<IdleGap> {
        let mut at_ns = 5_000_000_u64;
        rows.into_iter().map(|(gap_ns, sleep_length_ns, ran_task, reason, busy_ns, limit_ns)| {
            let start_ns = at_ns;
            at_ns += gap_ns + busy_ns;
            let to_tick_ns = 4_000_000 - (start_ns + 4_000_000 - phase_ns) % 4_000_000;
            IdleGap {
                cpu: 0, start_ns: start_ns as i64, gap_ns, sleep_length_ns,
                next_tick_ns: knows_tick.then_some(to_tick_ns as u32),
                tick_stopped: false, ran_task,
                wake_reason: WakeReason::ALL[reason], latency_limit_ns: limit_ns,
                recorded_state: None, recorded_idle_ns: None,
            }
        }).collect()
    }
}

fn replayed(machine: &Machine, gaps: &[IdleGap], make: fn() -> Box<dyn Governor>) -> Tally {
    let setting = Setting::new(machine.table().unwrap(), tick_period_ns(HZ));
    let mut governor = make();
    let mut lane = GovernorLane::new(&mut *governor, setting);
    lane.replay(gaps);
    lane.tally().clone()
}

fn simulated(machine: &Machine, gaps: &[IdleGap], make: fn() -> Box<dyn Governor>) -> Tally {
    let mut setup = Setup::new(machine, &make);
    setup.hardware =
        Hardware { package_count: 1, core_count: 1, thread_count: 1, ..Hardware::default() };
    let recorded = Recorded::new(gaps, tick_period_ns(HZ));
    let duration_ns = recorded.end_ns() + 10_000_000;
    let shape = setup.hardware.shape().unwrap();
    let load = Workload::Recorded(recorded).load(&shape, &setup.hardware);
    simulate(&setup, load, duration_ns, 0).unwrap().idle
}

/// Compares everything that a replay counts.
fn assert_same(machine: &Machine, gaps: &[IdleGap], make: fn() -> Box<dyn Governor>) {
    let (replayed, simulated) = (replayed(machine, gaps, make), simulated(machine, gaps, make));
    assert_eq!(replayed.gap_ns, simulated.gap_ns);
    assert_eq!(replayed.gap_count, simulated.gap_count);
    for (index, pair) in replayed.states.iter().zip(&simulated.states).enumerate() {
        assert_eq!(pair.0, pair.1, "state {index}");
    }
    assert_eq!(replayed.work_ns, simulated.work_ns);
    assert_eq!(replayed.tick_wake_count, simulated.tick_wake_count);
    assert_eq!(replayed.auto_promotion_count, simulated.auto_promotion_count);
    assert_eq!(replayed, simulated);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_gives_what_its_replay_gives(gaps in any_gaps()) {
        assert_same(&server(), &gaps, by_timer);
        assert_same(&server(), &gaps, deepest);
        assert_same(&server(), &gaps, || Box::new(Fixed::Shallowest));
    }

    #[test]
    fn so_it_does_with_promotion(gaps in any_gaps()) {
        let power9 =
            Machine::from_toml(include_str!("../../../../machines/power9-stop0lite.toml")).unwrap();
        assert_same(&power9, &gaps, by_timer);
        assert_same(&power9, &gaps, || Box::new(Fixed::State(1)));
        assert_same(&power9, &gaps, || Box::new(Fixed::Shallowest));
    }
}

/// The gaps of a CPU among several. Nothing of two CPUs happens at the same time: their gaps and ticks are
/// nanoseconds apart.
fn of_cpu(cpu: u16, gaps: Vec<IdleGap>) -> Vec<IdleGap> {
    let shift_ns = i64::from(cpu) * 1_013;
    gaps.into_iter().map(|gap| IdleGap { cpu, start_ns: gap.start_ns + shift_ns, ..gap }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Replay and simulation share the rule, and count the same. Busy times are longer than any exit with its
    /// waits, so that no simulated gap begins late.
    #[test]
    fn cpus_that_share_states_are_counted_as_their_replay_counts_them(
        first in any_gaps(), second in any_gaps(), third in any_gaps(), fourth in any_gaps(),
    ) {
        let cpus = [first, second, third, fourth].into_iter().enumerate();
        let gaps: Vec<IdleGap> =
            cpus.flat_map(|(cpu, gaps)| of_cpu(cpu as u16, gaps)).collect();
        for (text, groups) in [
            (include_str!("../../../../machines/spr-pc6.toml"), "package=0-3"),
            (SHARED, "cluster=0,1/2,3;package=0-3"),
            (&SHARED.replace("platform", "os-initiated"), "cluster=0,1/2,3;package=0-3"),
        ] {
            let machine = Machine::from_toml(text).unwrap();
            for make in [by_timer as fn() -> Box<dyn Governor>, deepest] {
                assert_shared_same(&machine, groups, &gaps, make);
            }
        }
    }
}

const SHARED: &str = r#"
    id = "toy"
    title = "Clusters of two in a package of four"
    arch = "arm"
    source = "invented"
    states = [
        { name = "WFI", exit_latency_us = 1, target_residency_us = 1 },
        { name = "ret", exit_latency_us = 20, target_residency_us = 100 },
        { name = "off", exit_latency_us = 50, target_residency_us = 400 },
    ]
    domain_states = [
        { name = "C-ret", exit_latency_us = 15, target_residency_us = 200, scope = "cluster", coordination = "platform", requires = "ret", power_mw = 50, awake_power_mw = 90, power_kind = "assumed" },
        { name = "C-off", exit_latency_us = 40, target_residency_us = 900, scope = "cluster", coordination = "platform", requires = "off", power_mw = 10, awake_power_mw = 90, power_kind = "assumed" },
        { name = "P-off", exit_latency_us = 60, target_residency_us = 1500, scope = "package", coordination = "platform", requires = "off" },
    ]
"#;

fn assert_shared_same(
    machine: &Machine,
    groups: &str,
    gaps: &[IdleGap],
    make: fn() -> Box<dyn Governor>,
) {
    let shared = SharedStates::of(machine).unwrap();
    let replayed = ReplayedGroups::new(&shared, &groups.parse().unwrap());
    let setting = Setting::new(machine.table().unwrap(), tick_period_ns(HZ));
    let make_joint = |unit: &UnitOf<'_>| GovernorJoint::make(unit, setting, || Boxed(make()));
    let mut replayed = replay_gaps_joined(gaps, &replayed, &make_joint, &[]);

    let mut setup = Setup::new(machine, &make);
    setup.hardware = Hardware {
        package_count: 1,
        core_count: 4,
        thread_count: 1,
        cluster_cpu_count: 2,
        ..Hardware::of(machine)
    };
    let recorded = Recorded::new(gaps, tick_period_ns(HZ));
    let duration_ns = recorded.end_ns() + 10_000_000;
    let shape = setup.hardware.shape().unwrap();
    let load = Workload::Recorded(recorded).load(&shape, &setup.hardware);
    let simulated = simulate(&setup, load, duration_ns, 0).unwrap().idle;
    // The simulation also runs before the first gap and after the last.
    replayed.group_ns = simulated.group_ns;
    assert_eq!(replayed.shared, simulated.shared);
    assert_eq!(replayed, simulated);
}

proptest! {
    /// The result is a one-line error, or a workload with a load.
    #[test]
    fn any_text_is_a_workload_or_one_line(
        text in "(workload = \"(poisson|tcp-lat|wakes)\"\n)?([a-z_]{0,12} = ([0-9a-z.\"-]{0,8})\n){0,3}\\PC{0,12}",
    ) {
        let mut hardware = Hardware::default();
        match Workload::from_toml(&text, &mut hardware) {
            Ok(workload) => prop_assert!(!workload.values().is_empty()),
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error),
        }
    }
}

/// What runs before the warm-up's end is in no sum, and what runs after it is no longer.
#[test]
fn a_warm_up_is_not_in_the_report() {
    let machine = server();
    let make = || deepest();
    let mut setup = Setup::new(&machine, &make);
    setup.hardware =
        Hardware { package_count: 1, core_count: 2, thread_count: 1, ..setup.hardware };
    let sets = [("period_ns", "1000000"), ("jitter_ns", "0")];
    let cold = run(&setup, "periodic", &sets, 20_000_000);
    setup.warm_up_ns = 10_500_000;
    let warm = run(&setup, "periodic", &sets, 20_000_000);
    for report in [&cold, &warm] {
        assert_eq!(report.duration_ns, 20_000_000);
        assert_eq!(report.busy_ns + report.idle_ns, 2 * 20_000_000, "the time of two CPUs");
        let count = report.metrics.operation_count;
        assert!((39..=40).contains(&count), "{count}, but one per millisecond and CPU");
    }
}

/// hackbench keeps all cores busy: at nominal frequency they would draw more than the limit, and at the
/// highest, with which a run must not begin, several times as much.
/// How many idles began with the tick stopped, of how many.
fn stopped_ticks(nohz_full: bool, workload: &str, sets: &[(&str, &str)]) -> (usize, usize) {
    let machine = server();
    let mut setup = Setup::new(&machine, &deepest);
    setup.hardware = Hardware { nohz_full, core_count: 4, ..setup.hardware };
    setup.keeps_gaps = true;
    let report = run(&setup, workload, sets, 100_000_000);
    let stopped_count = report.gaps.iter().filter(|gap| gap.tick_stopped).count();
    (stopped_count, report.gaps.len())
}

#[test]
fn nohz_full_stops_the_tick_of_a_lone_task_only() {
    // A client and a server, each alone on its CPU.
    let (stopped_count, gap_count) = stopped_ticks(false, "tcp-lat", &[]);
    assert!(stopped_count < gap_count / 10, "{stopped_count} of {gap_count}");
    let (stopped_count, gap_count) = stopped_ticks(true, "tcp-lat", &[]);
    assert!(stopped_count > gap_count * 9 / 10, "{stopped_count} of {gap_count}");
    // Two hundred tasks on four CPUs take turns by the tick, so it starts again.
    let (stopped_count, gap_count) = stopped_ticks(true, "hackbench", &[("group_count", "4")]);
    assert!(stopped_count < gap_count * 9 / 10, "{stopped_count} of {gap_count}");
}

#[test]
fn a_power_limit_is_kept() {
    let machine = server();
    let make = || -> Box<dyn Governor> { Box::new(Fixed::Shallowest) };
    let mut setup = Setup::new(&machine, &make);
    setup.hardware = Hardware {
        package_count: 1,
        core_count: 8,
        thread_count: 2,
        tdp_mw: Some(26_000.0),
        package_mw: 3_000.0,
        turbo_ratio: 1.9,
        budget_period_ns: 100_000,
        ..setup.hardware
    };
    let sets = [("group_count", "1"), ("work_spread", "1")];
    setup.warm_up_ns = 1_000_000;
    let warm_mw = run(&setup, "hackbench", &sets, 5_000_000).power_mw();
    assert!((25_500.0..26_100.0).contains(&warm_mw), "{warm_mw}");
    setup.warm_up_ns = 0;
    let cold_mw = run(&setup, "hackbench", &sets, 1_000_000).power_mw();
    assert!(cold_mw < 28_000.0, "{cold_mw}");
}
