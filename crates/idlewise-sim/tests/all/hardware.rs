//! Each feature of the simulated hardware and kernel, on and off.

use idlewise_core::{Fixed, Governor, TimerOnly, tick_period_ns};
use idlewise_sim::Machine;
use idlewise_sim::simulate::{Hardware, Load, Op, Program, Report, Setup, Spawn, View, simulate};
use idlewise_sim::workload::Workload;
use idlewise_trace::WakeReason;

const C6_EXIT_NS: u64 = 290_000;
/// The time from the end of the exit to the task's first instruction: interrupt and switch.
const AFTER_EXIT_NS: u64 = 400 + 600;

fn server() -> Machine {
    Machine::from_toml(include_str!("../../../../machines/spr.toml")).unwrap()
}

fn power9() -> Machine {
    Machine::from_toml(include_str!("../../../../machines/power9-stop0lite.toml")).unwrap()
}

fn deepest() -> Box<dyn Governor> {
    Box::new(Fixed::Deepest)
}

fn shallowest() -> Box<dyn Governor> {
    Box::new(Fixed::Shallowest)
}

fn by_timer() -> Box<dyn Governor> {
    Box::new(TimerOnly::new(u64::from(tick_period_ns(250))))
}

type Make = fn() -> Box<dyn Governor>;

fn run(
    machine: &Machine,
    make: Make,
    hardware: Hardware,
    workload: &str,
    sets: &[(&str, u64)],
    duration_ns: u64,
) -> Report {
    let mut setup = Setup::new(machine, &make);
    setup.hardware = hardware;
    setup.keeps_gaps = true;
    let mut workload = Workload::named(workload).unwrap();
    for (key, value) in sets {
        workload.set(&mut setup.hardware, key, &value.to_string()).unwrap();
    }
    let load = workload.load(&setup.hardware.shape().unwrap(), &setup.hardware);
    simulate(&setup, load, duration_ns, 1).unwrap()
}

fn cores(count: u64) -> Hardware {
    Hardware { core_count: count, ..Hardware::default() }
}

fn longest_wake_ns(report: &Report) -> u64 {
    report.metrics.spans("wake_ns").unwrap().max_ns().unwrap()
}

const RARE: [(&str, u64); 2] = [("burst_count", 1), ("quiet_ns", 10_000_000)];

#[test]
fn a_package_sleeps_only_if_all_its_cores_do() {
    let machine = server();
    let hardware = Hardware { package_exit_ns: 40_000, package_after_ns: 100_000, ..cores(2) };
    let wake = |sibling_count| {
        let sets = [RARE[0], RARE[1], ("sibling_count", sibling_count)];
        run(&machine, deepest, hardware.clone(), "burst-then-idle", &sets, 100_000_000)
    };
    let (alone, beside_work) = (wake(0), wake(1));
    assert_eq!(longest_wake_ns(&alone), C6_EXIT_NS + 40_000 + AFTER_EXIT_NS);
    assert_eq!(longest_wake_ns(&beside_work), C6_EXIT_NS + AFTER_EXIT_NS);
    assert!(alone.cores.package_idle_ns > 0 && beside_work.cores.package_idle_ns == 0);
}

#[test]
fn an_entry_under_way_is_finished_first() {
    let machine = server();
    let wake = |entry_ratio, quiet_ns| {
        let hardware = Hardware { entry_ratio, ..cores(1) };
        let sets = [("burst_count", 1), ("quiet_ns", quiet_ns)];
        longest_wake_ns(&run(&machine, deepest, hardware, "burst-then-idle", &sets, 50_000_000))
    };
    let with_long_sleep = wake(1.0, 5_000_000);
    assert_eq!(with_long_sleep, wake(0.0, 5_000_000), "the entry was over long ago");
    let (aborted, finished) = (wake(0.0, 400_000), wake(1.0, 400_000));
    // In addition, an event waits at most for the work of the last wake-up.
    let bound_ns = aborted + C6_EXIT_NS + 1_000;
    assert!(finished > aborted + 100_000 && finished <= bound_ns, "{finished} {aborted}");
}

/// A lite state keeps its thread's share of the core. A deeper state gives it to the sibling.
#[test]
fn a_lite_state_blocks_smt_folding() {
    let machine = power9();
    let computed = |governor: Make| {
        let hardware = Hardware { thread_count: 2, core_count: 1, ..Hardware::of(&machine) };
        let sets = [RARE[0], RARE[1], ("sibling_count", 1)];
        let report = run(&machine, governor, hardware, "burst-then-idle", &sets, 200_000_000);
        report.metrics.spans("computed_ns").unwrap().count() as f64
    };
    let lite: Make = || Box::new(Fixed::State(1));
    let folded = computed(deepest);
    let ratio = computed(lite) / folded;
    assert!((ratio - 0.7).abs() < 0.01, "SMT2 against ST: {ratio}");
    assert!((computed(shallowest) / folded - 0.7).abs() < 0.01, "polling competes, too");
}

#[test]
fn a_task_restarts_the_tick_and_an_interrupt_alone_does_not() {
    let machine = server();
    for wakes_task in [true, false] {
        let mut setup = Setup::new(&machine, &by_timer);
        setup.hardware = Hardware { housekeeping_ns: None, ..cores(1) };
        setup.keeps_gaps = true;
        let mut workload = Workload::named("burst-then-idle").unwrap();
        for (key, value) in [("burst_count", "1"), ("quiet_ns", "10000000")] {
            workload.set(&mut setup.hardware, key, value).unwrap();
        }
        workload.set(&mut setup.hardware, "wakes_task", &wakes_task.to_string()).unwrap();
        let load = workload.load(&setup.hardware.shape().unwrap(), &setup.hardware);
        let report = simulate(&setup, load, 100_000_000, 1).unwrap();
        let later = &report.gaps[1..];
        assert!(later.len() > 5);
        for gap in later {
            assert_eq!((gap.ran_task, gap.tick_stopped), (wakes_task, !wakes_task));
        }
        // Without a timer the governor stops the tick, so only events end a stay.
        assert_eq!(report.idle.tick_wake_count, 0);
    }
    // A state that keeps the tick is woken by every tick.
    let keeps = run(&machine, shallowest, cores(1), "burst-then-idle", &RARE, 100_000_000);
    assert!(keeps.idle.tick_wake_count >= 15, "{}", keeps.idle.tick_wake_count);
}

#[test]
fn the_kernels_own_timer_ends_gaps_and_leaves_the_tick_stopped() {
    let machine = server();
    let mut setup = Setup::new(&machine, &by_timer);
    setup.hardware = Hardware { housekeeping_ns: Some(10_000_000), ..cores(1) };
    setup.keeps_gaps = true;
    let report = simulate(&setup, Load::default(), 100_000_000, 1).unwrap();
    assert_eq!(report.gaps.len(), 10 - 1, "each but the last, whose exit is not over");
    for gap in &report.gaps[1..] {
        assert!(gap.tick_stopped && !gap.ran_task && gap.wake_reason == WakeReason::Timer);
        assert_eq!(gap.sleep_length_ns, Some(gap.gap_ns));
    }
}

struct Sleeps {
    at_ns: u64,
    slack_ns: u64,
    is_done: bool,
}

impl Program for Sleeps {
    fn next(&mut self, _view: &mut View<'_>) -> Op {
        if std::mem::replace(&mut self.is_done, true) {
            return Op::Exit;
        }
        Op::SleepUntil { at_ns: self.at_ns, slack_ns: self.slack_ns }
    }
}

#[test]
fn slack_lets_timers_share_an_interrupt() {
    let machine = server();
    let gap_count = |slack_ns| {
        let mut setup = Setup::new(&machine, &shallowest);
        setup.hardware = Hardware { housekeeping_ns: None, hz: 10, ..cores(1) };
        setup.keeps_gaps = true;
        let at = |at_ns| Spawn::pinned(0, Sleeps { at_ns, slack_ns, is_done: false });
        let tasks = vec![at(5_000_000), at(5_030_000)];
        let load = Load { tasks, sources: Vec::new() };
        simulate(&setup, load, 50_000_000, 1).unwrap().gaps.len()
    };
    assert_eq!((gap_count(0), gap_count(50_000)), (2, 1));
}

#[test]
fn interrupts_go_where_their_affinity_says() {
    let machine = server();
    for (irq_offset, wanted) in [(0, [0_u16, 2]), (1, [1, 3])] {
        let sets = [("irq_offset", irq_offset)];
        let report = run(&machine, shallowest, cores(4), "tcp-lat", &sets, 20_000_000);
        let mut woken = report.gaps.iter().filter(|gap| gap.wake_reason == WakeReason::Irq);
        assert!(woken.clone().count() > 100);
        assert!(woken.all(|gap| wanted.contains(&gap.cpu)));
    }
}

#[test]
fn posted_interrupts_spare_the_receiver_its_handler() {
    let machine = server();
    let wake = |ipi_receive_ns| {
        let hardware = Hardware { ipi_less: false, ipi_receive_ns, ..cores(2) };
        let sets = [("wake_count", 100), ("interval_ns", 1_000_000)];
        longest_wake_ns(&run(&machine, deepest, hardware, "wakes", &sets, 50_000_000))
    };
    assert_eq!(wake(400), wake(0) + 400);
}

/// Under a power limit, the power that an idle core saves raises the busy core's frequency.
#[test]
fn idle_power_saved_raises_the_frequency_of_the_busy() {
    let machine = server();
    let frequency = |governor, tdp_mw| {
        let hardware = Hardware { tdp_mw, turbo_ratio: 1.5, ..cores(2) };
        let sets = [RARE[0], RARE[1], ("sibling_count", 1)];
        let report = run(&machine, governor, hardware, "burst-then-idle", &sets, 100_000_000);
        let computed = report.metrics.spans("computed_ns").unwrap().count();
        (report.cores.mean_frequency_ratio(), computed)
    };
    let (polling, sleeping) =
        (frequency(shallowest, Some(8_000.0)), frequency(deepest, Some(8_000.0)));
    assert!(sleeping.0 > 1.1 * polling.0 && sleeping.1 > polling.1, "{polling:?} {sleeping:?}");
    let unlimited = frequency(shallowest, None);
    assert!((unlimited.0 - 1.0).abs() < 1e-9);
}
