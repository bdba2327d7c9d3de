//! The gap builder on small hand-written traces.

use idlewise_machine::Arch;
use idlewise_trace::{
    CpuFacts, Doubt, Event, EventKind, GapBuilder, GapSummary, IdleGap, Leaving, TaskName,
    Tracepoints, WakeReason,
};

const TICK_TIMER: u64 = 0xa0;
const TICK_FUNCTION: u64 = 0xf0;
const TICK_NS: i64 = 4_000_000;
/// Where the traces begin: after twenty ticks from which the builder learns the grid.
const BEGIN_NS: i64 = 20 * TICK_NS;

/// A trace of CPU 0 that begins with a busy period of regular ticks.
struct Trace(Vec<Event>);

impl Trace {
    fn new() -> Self {
        let mut trace = Trace(Vec::new());
        for i in 1..=20 {
            trace.tick(i * TICK_NS);
        }
        trace
    }

    fn at(&mut self, at_ns: i64, kind: EventKind) -> &mut Self {
        self.0.push(Event { at_ns, cpu: 0, kind });
        self
    }

    fn tick(&mut self, at_ns: i64) -> &mut Self {
        self.at(at_ns + 500, EventKind::TimerInterrupt);
        self.expire(at_ns + 600, TICK_TIMER, TICK_FUNCTION);
        self.start(at_ns + 700, TICK_TIMER, TICK_FUNCTION, at_ns + TICK_NS)
    }

    fn start(&mut self, at_ns: i64, timer: u64, function: u64, expires_at_ns: i64) -> &mut Self {
        let has_slack = function != TICK_FUNCTION;
        self.at(at_ns, EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack })
    }

    fn expire(&mut self, at_ns: i64, timer: u64, function: u64) -> &mut Self {
        self.at(at_ns, EventKind::HrtimerExpire { timer, function, now_ns: at_ns - 100 })
    }

    fn idle(&mut self, at_ns: i64) -> &mut Self {
        self.at(at_ns, EventKind::IdleEntry { state: 1 })
    }

    fn exit(&mut self, at_ns: i64) -> &mut Self {
        self.at(at_ns, EventKind::IdleExit)
    }

    fn build(&self) -> (Vec<IdleGap>, GapSummary) {
        self.build_with(Tracepoints::COMPLETE, Vec::new())
    }

    fn build_with(
        &self,
        tracepoints: Tracepoints,
        exit_latencies_ns: Vec<u64>,
    ) -> (Vec<IdleGap>, GapSummary) {
        let mut builder = GapBuilder::new(Vec::new(), tracepoints, exit_latencies_ns);
        builder.push(&self.0).unwrap();
        builder.finish().unwrap()
    }
}

const T: i64 = BEGIN_NS + 1_000_000;

#[test]
fn joins_stays_that_only_the_tick_ended() {
    let mut trace = Trace::new();
    trace.idle(T);
    trace.tick(BEGIN_NS + TICK_NS).exit(BEGIN_NS + TICK_NS + 900);
    trace.idle(BEGIN_NS + TICK_NS + 1_000);
    trace.at(T + 5_000_000, EventKind::IpiInterrupt).exit(T + 5_000_200);
    trace.at(T + 5_001_000, EventKind::SwitchToTask);
    let (gaps, summary) = trace.build();
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].start_ns, gaps[0].gap_ns), (T, 5_000_000));
    assert_eq!(gaps[0].wake_reason, WakeReason::Ipi);
    assert_eq!(gaps[0].next_tick_ns, Some(3_000_000));
    assert_eq!(gaps[0].recorded_idle_ns, Some(3_000_900 + 1_999_200));
    assert_eq!(summary.cpus[0].joined_wake_count, 1);
    assert_eq!(summary.tick.hz, Some(250));
}

#[test]
fn ends_a_gap_at_the_expiry_of_the_timer_and_not_at_the_interrupt() {
    let mut trace = Trace::new();
    trace.start(T - 10_000, 0xb0, 0xf1, T + 700_000);
    trace.idle(T).at(T + 703_000, EventKind::TimerInterrupt);
    trace.expire(T + 704_000, 0xb0, 0xf1).exit(T + 706_000).idle(T + 707_000);
    trace.exit(T + 800_000).at(T + 801_000, EventKind::SwitchToTask);
    let (gaps, _) = trace.build();
    assert_eq!((gaps[0].gap_ns, gaps[0].wake_reason), (700_000, WakeReason::Timer));
    assert_eq!(gaps[0].sleep_length_ns, Some(700_000));
    // No task ran after that timer, so the next gap begins without one.
    assert!(gaps[0].ran_task && !gaps[1].ran_task);
    assert_eq!((gaps[1].start_ns, gaps[1].sleep_length_ns), (T + 707_000, None));
    // It ended with a task and no interrupt: the polled flag was written.
    assert_eq!((gaps[1].gap_ns, gaps[1].wake_reason), (93_000, WakeReason::Resched));
}

#[test]
fn keeps_the_tick_stopped_until_a_task_runs() {
    let mut trace = Trace::new();
    trace.at(T - 1_000, EventKind::TickStop).idle(T);
    trace.at(T + 500_000, EventKind::IpiInterrupt).exit(T + 500_100).idle(T + 501_000);
    trace.at(T + 900_000, EventKind::IpiInterrupt).exit(T + 900_100);
    trace.at(T + 901_000, EventKind::SwitchToTask).at(T + 950_000, EventKind::SwitchToIdle);
    trace.idle(T + 951_000).exit(T + 960_000).at(T + 961_000, EventKind::SwitchToTask);
    let (gaps, _) = trace.build();
    let flags: Vec<_> = gaps.iter().map(|gap| (gap.tick_stopped, gap.ran_task)).collect();
    // The tick still ran when the decision to stop it was made.
    assert_eq!(flags, [(false, true), (true, false), (false, true)]);
}

#[test]
fn a_timer_that_is_late_at_the_entry_and_expires_was_due_at_once() {
    let mut trace = Trace::new();
    trace.start(T - 90_000, 0xb0, 0xf1, T - 50_000).idle(T);
    trace.at(T + 3_000, EventKind::TimerInterrupt).expire(T + 3_100, 0xb0, 0xf1).exit(T + 3_200);
    trace.at(T + 3_300, EventKind::SwitchToTask);
    let (gaps, summary) = trace.build();
    assert_eq!((gaps[0].sleep_length_ns, gaps[0].gap_ns), (Some(0), 0));
    assert_eq!((gaps[0].wake_reason, summary.vanished_timer_count), (WakeReason::Timer, 0));
}

#[test]
fn finds_timers_that_were_armed_before_the_trace_when_they_expire() {
    let mut trace = Trace::new();
    trace.idle(T).at(T + 100_000, EventKind::IpiInterrupt).exit(T + 100_100);
    trace.idle(T + 200_000).at(T + 900_000, EventKind::TimerInterrupt);
    trace.expire(T + 901_000, 0xc0, 0xf2).exit(T + 902_000).idle(T + 903_000);
    trace.exit(T + 950_000).at(T + 951_000, EventKind::SwitchToTask);
    let (gaps, _) = trace.build();
    let lengths: Vec<_> = gaps.iter().map(|gap| gap.sleep_length_ns).collect();
    assert_eq!(lengths, [Some(900_000), Some(700_000), None]);
    // The expiry itself is not in the trace, but its interrupt bounds it.
    assert_eq!((gaps[1].gap_ns, gaps[1].wake_reason), (700_000, WakeReason::Timer));
}

#[test]
fn counts_a_tick_that_ran_timer_wheel_timers_as_a_timer_wake() {
    let mut trace = Trace::new();
    let jiffies = |at_ns: i64| 1_000 + (at_ns / TICK_NS) as u64;
    let due_at_ns = BEGIN_NS + TICK_NS;
    let kind = EventKind::WheelStart {
        timer: 0xd0,
        bucket_jiffies: jiffies(due_at_ns),
        ahead_jiffies: 1,
        flags: 0,
    };
    trace.at(T - 2_000, kind).idle(T).tick(due_at_ns);
    trace.at(
        due_at_ns + 800,
        EventKind::WheelExpire { timer: 0xd0, now_jiffies: jiffies(due_at_ns) },
    );
    trace.exit(due_at_ns + 900).idle(due_at_ns + 1_000);
    trace.exit(due_at_ns + 5_000).at(due_at_ns + 6_000, EventKind::SwitchToTask);
    let (gaps, _) = trace.build();
    assert_eq!((gaps[0].gap_ns, gaps[0].wake_reason), (3_000_000, WakeReason::Timer));
    assert_eq!(gaps[0].sleep_length_ns, Some(3_000_000));
}

#[test]
fn takes_the_exit_latency_off_but_never_more_than_the_stay() {
    let mut trace = Trace::new();
    trace.idle(T).exit(T + 400_000).at(T + 400_100, EventKind::IpiInterrupt);
    trace.at(T + 401_000, EventKind::SwitchToTask).idle(T + 500_000).exit(T + 510_000);
    trace.at(T + 510_100, EventKind::IpiInterrupt).at(T + 511_000, EventKind::SwitchToTask);
    let (gaps, _) = trace.build_with(Tracepoints::COMPLETE, vec![0, 290_000]);
    assert_eq!((gaps[0].gap_ns, gaps[1].gap_ns), (110_000, 0));
}

#[test]
fn takes_each_stay_as_a_gap_when_only_idle_events_were_recorded() {
    let mut trace = Trace(Vec::new());
    trace.idle(1_000).exit(5_000).idle(6_000).exit(7_000).idle(8_000);
    let (gaps, summary) = trace.build_with(Tracepoints::CPU_IDLE, Vec::new());
    assert_eq!(gaps.len(), 2);
    assert!(gaps.iter().all(|gap| gap.wake_reason == WakeReason::Unknown && gap.ran_task));
    assert_eq!((gaps[0].sleep_length_ns, gaps[0].next_tick_ns), (None, None));
    assert_eq!(summary.tick.hz, None);
}

/// What a whole recording shows to be the tick's may not be assumed in a reduced one.
#[test]
fn joins_nothing_where_an_event_could_have_gone_unrecorded() {
    let mut trace = Trace::new();
    trace.idle(T);
    trace.tick(BEGIN_NS + TICK_NS).exit(BEGIN_NS + TICK_NS + 900);
    trace.idle(BEGIN_NS + TICK_NS + 1_000).exit(T + 5_000_000);
    trace.idle(T + 5_100_000);
    trace.at(T + 6_000_000, EventKind::IpiInterrupt).exit(T + 6_000_200);
    trace.at(T + 6_001_000, EventKind::SwitchToTask);
    let (gaps, summary) = trace.build();
    assert_eq!((gaps.len(), gaps[0].gap_ns, gaps[0].wake_reason), (1, 6_000_000, WakeReason::Ipi));
    assert_eq!((summary.cpus[0].joined_wake_count, summary.evidence_doubts.len()), (2, 0));
    for missing in [
        Tracepoints::SCHED_SWITCH,
        Tracepoints::LOCAL_TIMER,
        Tracepoints::RESCHEDULE,
        Tracepoints::CALL_FUNCTION,
        Tracepoints::CALL_FUNCTION_SINGLE,
        Tracepoints::IRQ_WORK,
        Tracepoints::IRQ_HANDLER,
        Tracepoints::HRTIMER_START,
        Tracepoints::HRTIMER_EXPIRE,
        Tracepoints::WHEEL_EXPIRE,
    ] {
        let (gaps, summary) = trace.build_with(Tracepoints::COMPLETE.without(missing), Vec::new());
        assert_eq!((gaps.len(), summary.cpus[0].joined_wake_count), (3, 0), "{missing:?}");
        assert!(gaps[..2].iter().all(|gap| gap.wake_reason == WakeReason::Unknown), "{gaps:?}");
        assert!(summary.evidence_doubts.contains(&Doubt::UnjoinedStays { count: 2 }));
    }
}

/// A text does not list what was recorded, and a rare vector may not have occurred.
#[test]
fn a_stay_without_any_interrupt_stays_open_where_a_rare_one_was_not_seen() {
    let mut trace = Trace::new();
    trace.idle(T);
    trace.tick(BEGIN_NS + TICK_NS).exit(BEGIN_NS + TICK_NS + 900);
    trace.idle(BEGIN_NS + TICK_NS + 1_000).exit(T + 5_000_000);
    trace.idle(T + 5_100_000).exit(T + 6_000_200).at(T + 6_001_000, EventKind::SwitchToTask);
    let rare = Tracepoints::CALL_FUNCTION.union(Tracepoints::IRQ_WORK);
    let seen = Tracepoints::COMPLETE.without(rare);
    let (gaps, summary) = trace.build_with(seen.union(Tracepoints::ONLY_SEEN), Vec::new());
    // The tick was recorded, but not the end of the second stay.
    let lengths: Vec<_> = gaps.iter().map(|gap| (gap.gap_ns, gap.wake_reason)).collect();
    let unknown = WakeReason::Unknown;
    assert_eq!(lengths, [(5_000_000, unknown), (900_200, unknown)]);
    assert_eq!(summary.cpus[0].joined_wake_count, 1);
    let names = "not seen: irq_vectors:call_function_entry, irq_vectors:irq_work_entry;";
    assert!(
        summary.evidence_doubts[0].to_string().starts_with(names),
        "{:?}",
        summary.evidence_doubts
    );
}

/// Arm has no vectors: its timer and its IPIs have handler events, or events of their own.
#[test]
fn an_arm_trace_is_whole_with_handlers_and_ipis() {
    let mut trace = Trace::new();
    trace.idle(T);
    trace.tick(BEGIN_NS + TICK_NS).exit(BEGIN_NS + TICK_NS + 900);
    trace.idle(BEGIN_NS + TICK_NS + 1_000);
    trace.at(T + 5_000_000, EventKind::DeviceInterrupt).exit(T + 5_000_200);
    trace.at(T + 5_001_000, EventKind::SwitchToTask);
    let handlers = Tracepoints::COMPLETE
        .without(Tracepoints::LOCAL_TIMER.union(Tracepoints::RESCHEDULE))
        .without(Tracepoints::CALL_FUNCTION.union(Tracepoints::CALL_FUNCTION_SINGLE))
        .without(Tracepoints::IRQ_WORK);
    let build = |trace: &Trace, tracepoints| {
        let (gaps, summary) = trace.build_with(tracepoints, Vec::new());
        (gaps.len(), gaps[gaps.len() - 1].wake_reason, summary.evidence_doubts)
    };
    // The timer was recorded, IPIs were not.
    let (gap_count, reason, doubts) = build(&trace, handlers);
    assert_eq!((gap_count, reason), (2, WakeReason::Unknown));
    assert!(doubts[0].to_string().starts_with("not recorded: ipi:ipi_entry;"), "{doubts:?}");
    // IPIs have an event of their own, or one of them was recorded as a handler event.
    let whole = (1, WakeReason::Irq, Vec::new());
    assert_eq!(build(&trace, handlers.union(Tracepoints::IPI_ENTRY)), whole);
    trace.0.insert(0, Event { at_ns: 1, cpu: 0, kind: EventKind::IpiInterrupt });
    assert_eq!(build(&trace, handlers), whole);
    let without_devices = handlers.without(Tracepoints::IRQ_HANDLER);
    let (_, reason, doubts) = build(&trace, without_devices.union(Tracepoints::IPI_ENTRY));
    assert_eq!(reason, WakeReason::Unknown);
    assert!(
        doubts[0].to_string().starts_with("not recorded: irq:irq_handler_entry;"),
        "{doubts:?}"
    );
}

/// A clock that jumps by years makes a gap that no log's reader accepts.
#[test]
fn gives_up_gaps_that_no_log_can_hold() {
    const YEAR_NS: i64 = 31_536_000_000_000_000;
    let mut trace = Trace::new();
    trace.idle(T).exit(T + YEAR_NS).idle(T + YEAR_NS).exit(T + YEAR_NS + 1_000);
    trace.at(T + YEAR_NS + 2_000, EventKind::SwitchToTask);
    trace.idle(T + YEAR_NS + 3_000).exit(T + YEAR_NS + 5_000);
    trace.at(T + YEAR_NS + 5_000, EventKind::SwitchToTask);
    let part = Tracepoints::CPU_IDLE;
    let (gaps, summary) = trace.build_with(part, Vec::new());
    assert_eq!(gaps.len(), 2);
    assert_eq!((summary.impossible_gap_count, summary.cpus[0].broken_gap_count), (1, 1));
    // All in a single gap, which is too long as well.
    let (gaps, summary) = trace.build();
    assert_eq!((gaps.len(), summary.impossible_gap_count), (1, 1));
    assert_eq!((gaps[0].start_ns, gaps[0].gap_ns), (T + YEAR_NS + 3_000, 2_000));
}

/// The highest state of any idle driver is 9. A higher one in a damaged event is unknown.
#[test]
fn a_state_that_no_driver_has_is_unknown() {
    let mut trace = Trace::new();
    trace.at(T, EventKind::IdleEntry { state: 9 }).exit(T + 1_000);
    trace.at(T + 2_000, EventKind::SwitchToTask);
    trace.at(T + 3_000, EventKind::IdleEntry { state: 10 }).exit(T + 4_000);
    trace.at(T + 5_000, EventKind::SwitchToTask);
    let states = |latencies: Vec<u64>| {
        let (gaps, summary) = trace.build_with(Tracepoints::COMPLETE, latencies);
        let states: Vec<_> = gaps.iter().map(|gap| gap.recorded_state).collect();
        (states, summary.unknown_state.map(|unknown| unknown.state))
    };
    assert_eq!(states(Vec::new()), (vec![Some(9), None], Some(10)));
    assert_eq!(states(vec![0, 100]), (vec![None, None], Some(9)));
}

#[test]
fn reports_a_cpu_without_idle_events_as_unobserved() {
    let mut trace = Trace::new();
    trace.0.push(Event { at_ns: T, cpu: 1, kind: EventKind::SwitchToIdle });
    trace.0.push(Event { at_ns: T + 9_000, cpu: 1, kind: EventKind::SwitchToTask });
    trace.idle(T + 9_000);
    let (gaps, summary) = trace.build();
    assert!(gaps.is_empty());
    let observed: Vec<_> = summary.cpus.iter().map(|cpu| (cpu.cpu, cpu.observed)).collect();
    assert_eq!(observed, [(0, true), (1, false)]);
}

#[test]
fn gives_up_the_gap_in_which_events_were_lost() {
    let mut trace = Trace::new();
    trace.idle(T).at(T + 1_000, EventKind::Lost { event_count: 7 }).exit(T + 5_000);
    trace.at(T + 6_000, EventKind::SwitchToTask).idle(T + 7_000).exit(T + 8_000);
    trace.at(T + 9_000, EventKind::SwitchToTask);
    let (gaps, summary) = trace.build();
    assert_eq!((gaps.len(), gaps[0].start_ns), (1, T + 7_000));
    let cpu = &summary.cpus[0];
    assert_eq!((cpu.lost_event_count, cpu.broken_gap_count, cpu.stray_exit_count), (7, 1, 1));
}

#[test]
fn counts_events_that_step_back_in_time() {
    let mut trace = Trace::new();
    trace.idle(T).exit(T - 5_000).at(T + 10, EventKind::SwitchToTask);
    let (gaps, summary) = trace.build();
    assert_eq!((gaps.len(), gaps[0].gap_ns, summary.out_of_order_count), (1, 0, 1));
}

/// A deferrable timer that was armed before the trace shows that only when it is armed again. The
/// result must not depend on how an importer splits the trace into batches.
#[test]
fn gives_the_same_gaps_however_many_events_come_at_once() {
    const DEFERRABLE: u64 = 0xd0;
    let mut trace = Trace::new();
    for jiffies in 21..300 {
        let at_ns = jiffies * TICK_NS;
        let tick = |trace: &mut Trace| {
            trace.tick(at_ns);
        };
        let wheel_start = |timer, flags| {
            let bucket_jiffies = jiffies as u64 + 5;
            EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies: 5, flags }
        };
        match jiffies {
            200 => {
                trace.idle(at_ns - 2_000_000);
                tick(&mut trace);
                let now_jiffies = jiffies as u64;
                trace.at(at_ns + 1_000, EventKind::WheelExpire { timer: DEFERRABLE, now_jiffies });
                trace.exit(at_ns + 2_000).idle(at_ns + 3_000);
                trace.at(at_ns + 900_000, EventKind::IpiInterrupt).exit(at_ns + 901_000);
                trace.at(at_ns + 902_000, EventKind::SwitchToTask);
            }
            290 => {
                tick(&mut trace);
                trace.at(at_ns + 1_000, wheel_start(DEFERRABLE, 0x0008_0000));
            }
            _ => {
                tick(&mut trace);
                trace.at(at_ns + 1_000, wheel_start(0xe0, 0));
            }
        }
    }
    let (at_once, _) = trace.build();
    assert_eq!(at_once.len(), 1);
    assert_eq!((at_once[0].gap_ns, at_once[0].wake_reason), (2_900_000, WakeReason::Ipi));
    for piece in [1, 7, 1_000] {
        let mut builder = GapBuilder::new(Vec::new(), Tracepoints::COMPLETE, Vec::new());
        for events in trace.0.chunks(piece) {
            builder.push(events).unwrap();
        }
        assert_eq!(builder.finish().unwrap().0, at_once, "{piece} at once");
    }
}

/// CPU 0 has a timer of the wheel, due in five jiffies, and goes idle four times: while CPU 1 runs a task, while that
/// is idle with its tick running, when its tick has stopped, and with its own tick stopped.
fn two_cpus_with_a_timer(flags: u32, to_task: EventKind, to_idle: EventKind) -> Trace {
    let mut trace = Trace::new();
    let bucket_jiffies = 1_000 + 25;
    let kind = EventKind::WheelStart { timer: 0xd0, bucket_jiffies, ahead_jiffies: 5, flags };
    trace.at(T - 1_000_000, kind);
    let on_other = |trace: &mut Trace, at_ns, kind| trace.0.push(Event { at_ns, cpu: 1, kind });
    trace.at(T - 800_000, to_task);
    on_other(&mut trace, T - 700_000, EventKind::IdleEntry { state: 1 });
    on_other(&mut trace, T - 600_000, EventKind::IdleExit);
    on_other(&mut trace, T - 500_000, to_task);
    let visit = |trace: &mut Trace, at_ns| {
        trace.at(at_ns - 5_000, to_idle).idle(at_ns).at(at_ns + 40_000, EventKind::IpiInterrupt);
        trace.exit(at_ns + 41_000).at(at_ns + 42_000, to_task);
    };
    visit(&mut trace, T);
    on_other(&mut trace, T + 50_000, to_idle);
    on_other(&mut trace, T + 51_000, EventKind::IdleEntry { state: 1 });
    visit(&mut trace, T + 100_000);
    on_other(&mut trace, T + 150_000, EventKind::IdleExit);
    on_other(&mut trace, T + 151_000, EventKind::TickStop);
    on_other(&mut trace, T + 152_000, EventKind::IdleEntry { state: 1 });
    visit(&mut trace, T + 200_000);
    trace.at(T + 299_000, EventKind::TickStop).idle(T + 300_000);
    trace.at(T + 340_000, EventKind::IpiInterrupt).exit(T + 341_000).idle(T + 342_000);
    trace.at(T + 380_000, EventKind::IpiInterrupt).exit(T + 381_000).at(T + 382_000, to_task);
    trace
}

fn sleep_lengths(gaps: &[IdleGap]) -> Vec<Option<u64>> {
    gaps.iter().filter(|gap| gap.cpu == 0).map(|gap| gap.sleep_length_ns).collect()
}

/// Linux since 6.9: kernel/time/timer_migration.c.
#[test]
fn a_timer_that_another_cpu_would_run_is_not_waited_for() {
    let due = |after_ns: i64| Some((25 * TICK_NS - T - after_ns) as u64);
    let all = [due(0), due(100_000), due(200_000), due(300_000), due(342_000)];
    let migrating = [None, None, all[2], all[3], all[4]];
    let lengths = |flags| {
        let trace = two_cpus_with_a_timer(flags, EventKind::SwitchToTask, EventKind::SwitchToIdle);
        sleep_lengths(&trace.build().0)
    };
    assert_eq!(lengths(0), migrating);
    let pinned = 0x0010_0000;
    assert_eq!(lengths(pinned), all);
    // A kernel that is too old for it.
    let trace = two_cpus_with_a_timer(0, EventKind::SwitchToTask, EventKind::SwitchToIdle);
    let facts = CpuFacts { keeps_timers: true, ..CpuFacts::default() };
    let mut builder = GapBuilder::new(Vec::new(), Tracepoints::COMPLETE, facts);
    builder.push(&trace.0).unwrap();
    assert_eq!(sleep_lengths(&builder.finish().unwrap().0), all);
}

#[test]
fn switches_that_name_both_tasks_are_switches() {
    let to = |next| EventKind::Switch {
        prev: None,
        next,
        leaves: Leaving::Waits,
        next_name: TaskName::default(),
    };
    let (expected, _) =
        two_cpus_with_a_timer(0, EventKind::SwitchToTask, EventKind::SwitchToIdle).build();
    assert_eq!(two_cpus_with_a_timer(0, to(7), to(0)).build().0, expected);
}

/// A recording without interrupts lacks those events that its architecture has, and no others.
#[test]
fn only_events_of_the_architecture_are_missing() {
    let mut trace = Trace(Vec::new());
    trace.idle(T).exit(T + 1_000).at(T + 2_000, EventKind::SwitchToTask).idle(T + 3_000);
    let tracepoints = Tracepoints::CPU_IDLE.union(Tracepoints::SCHED_SWITCH);
    let doubts = |arch| {
        let facts = CpuFacts { arch, ..CpuFacts::default() };
        let mut builder = GapBuilder::new(Vec::new(), tracepoints, facts);
        builder.push(&trace.0).unwrap();
        let (gaps, summary) = builder.finish().unwrap();
        assert_eq!(gaps[0].wake_reason, WakeReason::Unknown);
        let doubts: Vec<String> = summary.evidence_doubts.iter().map(ToString::to_string).collect();
        // They are recognised when a log is read.
        for (doubt, text) in summary.evidence_doubts.iter().zip(&doubts) {
            assert_eq!(Doubt::from(text.clone()), *doubt);
        }
        doubts.join("\n")
    };
    let families = ["irq_vectors:", "ipi:ipi_entry", "powerpc:"];
    for (arch, expected) in [
        (Some(Arch::X86), [true, false, false]),
        (Some(Arch::Arm), [false, true, false]),
        (Some(Arch::Power), [false, false, true]),
        (Some(Arch::Other), [false; 3]),
        (None, [false; 3]),
    ] {
        let text = doubts(arch);
        assert_eq!(families.map(|family| text.contains(family)), expected, "{arch:?}: {text}");
        let generic = "not recorded: some or all interrupts that end idle";
        assert_eq!(text.contains(generic), expected == [false; 3], "{arch:?}: {text}");
    }
    let arm = doubts(Some(Arch::Arm));
    assert!(
        arm.contains("not recorded: irq:irq_handler_entry, ipi:ipi_entry;")
            || arm.contains("not recorded: ipi:ipi_entry, irq:irq_handler_entry;"),
        "{arm}"
    );
}
