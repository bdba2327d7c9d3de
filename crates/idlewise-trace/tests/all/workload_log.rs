//! From events to a workload log, and back.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use idlewise_trace::anonymize::Field;
use idlewise_trace::causes::{
    AnonymousWorkload, Cause, Step, StepBuilder, StepEnd, StepPlace, StepSink, WorkloadLog,
    WorkloadMetadata, WorkloadWriter,
};
use idlewise_trace::log::{IdleLog, LogError};
use idlewise_trace::{
    Event, EventKind, Leaving, NonZeroTask, OutputFile, OutputOptions, TaskName, Tracepoints,
    WakeContext,
};

const CAUSES: Tracepoints = Tracepoints::COMPLETE
    .union(Tracepoints::WAKING)
    .union(Tracepoints::VECTOR_EXIT)
    .union(Tracepoints::IRQ_HANDLER_EXIT)
    .union(Tracepoints::SOFTIRQ_EXIT);

/// Two tasks, and the idle task.
const A: u32 = 11;
const B: u32 = 22;
const IDLE: u32 = 0;

fn switch(prev: u32, next: u32, leaves: Leaving) -> EventKind {
    let next_name = TaskName::new(format!("task {next}").as_bytes());
    EventKind::Switch { prev: NonZeroTask::new(prev), next, leaves, next_name }
}

fn runs(next: u32) -> EventKind {
    switch(IDLE, next, Leaving::Runnable)
}

fn waits(prev: u32) -> EventKind {
    switch(prev, IDLE, Leaving::Waits)
}

fn wakes(task: u32) -> EventKind {
    EventKind::Waking { task, context: WakeContext::Task }
}

fn wakes_by_interrupt(task: u32) -> EventKind {
    EventKind::Waking { task, context: WakeContext::Interrupt }
}

fn steps(events: &[(i64, u16, EventKind)]) -> (Vec<Step>, WorkloadMetadata) {
    let mut builder = StepBuilder::new(Vec::new(), CAUSES, vec![0, 7]).unwrap();
    for &(at_ns, cpu, kind) in events {
        builder.push(&[Event { at_ns, cpu, kind }]).unwrap();
    }
    builder.finish().unwrap()
}

/// The cause and net length of each step of the second task that a recording shows.
fn second_task(events: &[(i64, u16, EventKind)]) -> Vec<(Cause, u64)> {
    let (steps, _) = steps(events);
    steps.iter().filter(|step| step.task == 1).map(|step| (step.cause, step.run_ns)).collect()
}

fn task_0(step: u64, offset_ns: u64) -> Cause {
    Cause::Task(StepPlace { task: 0, step, offset_ns })
}

#[test]
fn tasks_that_wake_each_other_become_steps_with_causes() {
    let (steps, metadata) = steps(&[
        (0, 0, runs(A)),
        (10, 1, EventKind::IdleEntry { state: 1 }),
        (100, 0, wakes(B)),
        (130, 1, EventKind::IdleExit),
        (140, 1, runs(B)),
        (150, 0, waits(A)),
        (200, 1, wakes(A)),
        (220, 0, runs(A)),
        (230, 1, waits(B)),
        (300, 0, switch(A, IDLE, Leaving::Ends)),
    ]);
    let step = |task, cpu, cause, [due, run, end]: [i64; 3], run_ns| Step {
        task,
        cpu,
        cause,
        due_at_ns: due,
        run_at_ns: run,
        run_ns,
        end_at_ns: end,
        end: StepEnd::Waits,
        idle_state: None,
    };
    let of_b = |step, offset_ns| Cause::Task(StepPlace { task: 1, step, offset_ns });
    assert_eq!(
        steps,
        [
            step(0, 0, Cause::Start, [0, 0, 150], 150),
            Step { idle_state: Some(1), ..step(1, 1, task_0(0, 100), [100, 140, 230], 90) },
            Step { end: StepEnd::Ends, ..step(0, 0, of_b(0, 60), [200, 220, 300], 80) },
        ]
    );
    assert_eq!((metadata.cpu_count, metadata.first_at_ns, metadata.last_at_ns), (2, 0, 300));
    let names: Vec<&str> = metadata.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["task 11", "task 22"]);
    assert_eq!((metadata.causeless_count, metadata.never_ran_count), (0, 0));
    // CPU 1 left its state 30 ns after the wake-up. CPU 0 entered none.
    assert_eq!(metadata.left_after_ns, [(1, 30)].into());
    assert_eq!(metadata.idle_entry_ns, None);
}

#[test]
fn how_long_a_cpu_takes_to_go_idle_is_known() {
    let rounds = [100, 200, 300].into_iter().zip([7, 9, 8]);
    let events: Vec<_> = rounds
        .flat_map(|(at_ns, entry_ns)| {
            [
                (at_ns, 0, runs(A)),
                (at_ns + 50, 0, waits(A)),
                (at_ns + 50 + entry_ns, 0, EventKind::IdleEntry { state: 1 }),
                (at_ns + 70, 0, EventKind::IdleExit),
                // Nothing ran in between.
                (at_ns + 90, 0, EventKind::IdleEntry { state: 1 }),
            ]
        })
        .collect();
    assert_eq!(steps(&events).1.idle_entry_ns, Some(8));
}

#[test]
fn what_interrupts_and_other_tasks_take_is_not_the_tasks_own() {
    let softirq = EventKind::Softirq { vector: 1 };
    let (steps, _) = steps(&[
        (0, 0, runs(A)),
        (10, 0, EventKind::TimerInterrupt),
        (15, 0, EventKind::InterruptExit),
        // The interrupt left it behind.
        (16, 0, softirq),
        (26, 0, EventKind::SoftirqExit),
        (50, 0, switch(A, B, Leaving::Runnable)),
        (80, 0, switch(B, A, Leaving::Waits)),
        // Its own, because nothing interrupted it.
        (10_000, 0, softirq),
        (10_020, 0, EventKind::SoftirqExit),
        (10_100, 0, waits(A)),
    ]);
    let of_a = steps.iter().find(|step| step.task == 0).unwrap();
    assert_eq!(of_a.run_ns, 10 + 1 + 24 + 10_020);
    assert_eq!((of_a.run_at_ns, of_a.end_at_ns), (0, 10_100));
}

#[test]
fn a_wake_up_in_a_softirq_is_the_tasks_if_no_interrupt_left_it_behind() {
    let in_softirq = EventKind::Waking { task: B, context: WakeContext::Softirq };
    let softirq = EventKind::Softirq { vector: 3 };
    let sends = [
        (0, 0, runs(A)),
        (10_000, 0, softirq),
        (10_010, 0, in_softirq),
        (10_020, 0, EventKind::SoftirqExit),
        (10_030, 1, runs(B)),
        (10_040, 1, waits(B)),
    ];
    assert_eq!(second_task(&sends), [(task_0(0, 10_010), 10)]);
    let mut receives = sends.to_vec();
    receives.splice(
        1..1,
        [(9_000, 0, EventKind::DeviceInterrupt), (9_500, 0, EventKind::InterruptExit)],
    );
    assert_eq!(second_task(&receives), [(Cause::Interrupt, 10)]);
    // The tick comes while the task sends. It sends no packet itself, but it may run other softirqs.
    let mut ticked = receives.clone();
    ticked[1].2 = EventKind::TimerInterrupt;
    assert_eq!(second_task(&ticked), [(task_0(0, 9_510), 10)]);
    for event in &mut ticked {
        if let EventKind::Softirq { vector } = &mut event.2 {
            *vector = 1;
        }
    }
    assert_eq!(second_task(&ticked), [(Cause::Interrupt, 10)]);
    // Without flags, what surrounds the event tells.
    let unknown = EventKind::Waking { task: B, context: WakeContext::Unknown };
    let untold = |events: &[(i64, u16, EventKind)]| -> Vec<_> {
        let replaced = events.iter().map(|&(at_ns, cpu, kind)| match kind {
            EventKind::Waking { .. } => (at_ns, cpu, unknown),
            kind => (at_ns, cpu, kind),
        });
        replaced.collect()
    };
    assert_eq!(second_task(&untold(&sends)), second_task(&sends));
    assert_eq!(second_task(&untold(&receives)), second_task(&receives));
}

/// A task that sleeps: it arms a timer and waits, and the timer's interrupt wakes it.
fn naps(expiries_ns: &[i64]) -> Vec<(i64, u16, EventKind)> {
    let mut events = vec![(0, 0, runs(A))];
    let mut now_ns = 40;
    for &expires_at_ns in expiries_ns {
        let start =
            EventKind::HrtimerStart { timer: 5, function: 6, expires_at_ns, has_slack: false };
        let expire = EventKind::HrtimerExpire { timer: 5, function: 6, now_ns: expires_at_ns };
        let waking = EventKind::Waking { task: A, context: WakeContext::Interrupt };
        events.extend([
            (now_ns, 0, start),
            (now_ns + 3, 0, waits(A)),
            (now_ns + 5, 0, EventKind::IdleEntry { state: 1 }),
            (expires_at_ns + 20, 0, EventKind::IdleExit),
            (expires_at_ns + 21, 0, EventKind::TimerInterrupt),
            (expires_at_ns + 22, 0, expire),
            (expires_at_ns + 23, 0, waking),
            (expires_at_ns + 24, 0, EventKind::InterruptExit),
            (expires_at_ns + 30, 0, runs(A)),
        ]);
        now_ns = expires_at_ns + 70;
    }
    events.push((now_ns + 1, 0, waits(A)));
    events
}

#[test]
fn a_timer_is_relative_to_where_it_was_armed_unless_it_keeps_to_a_grid() {
    let (relative, _) = steps(&naps(&[100_007, 200_099]));
    let armed = |step, offset_ns| StepPlace { task: 0, step, offset_ns };
    let own = relative.iter().filter(|step| step.task == 0);
    assert_eq!(
        own.map(|step| step.cause).collect::<Vec<_>>(),
        [
            Cause::Start,
            Cause::Timer { armed: armed(0, 40), delay_ns: 99_967 },
            Cause::Timer { armed: armed(1, 40), delay_ns: 100_022 },
        ]
    );
    assert_eq!(relative[1].due_at_ns, 100_007);
    assert_eq!((relative[1].idle_state, relative[1].wake_to_run_ns()), (Some(1), 30));
    // Two on a grid may be so by chance.
    let (absolute, _) = steps(&naps(&[100_007, 200_007, 300_007, 400_007]));
    assert!(matches!(absolute[2].cause, Cause::Timer { .. }));
    assert_eq!(absolute[3].cause, Cause::Absolute);
    assert_eq!(absolute[4].cause, Cause::Absolute);
    let (relative, _) = steps(&naps(&[100_007, 200_007, 300_099, 400_099]));
    let own = relative[1..].iter().filter(|step| step.task == 0);
    assert!(
        own.clone().count() == 4
            && own.into_iter().all(|step| matches!(step.cause, Cause::Timer { .. }))
    );
}

/// A task waits for `timeout_ns(now)` or an interrupt, which comes `count` times, every 700 us, and at last until the timer is due.
/// Returns the place where the last timer was armed, as the steps have it, and by how much the delay exceeds the last timeout.
fn armed_after_interrupts(count: i64, timeout_ns: impl Fn(i64) -> i64) -> (StepPlace, i64) {
    let wakes_it = EventKind::Waking { task: A, context: WakeContext::Interrupt };
    let mut events = vec![(0, 0, runs(A))];
    let mut now_ns = 13;
    let mut expires_at_ns = 0;
    for turn in 0..=count {
        let timer = 5 + turn as u64 % 3;
        expires_at_ns = now_ns + timeout_ns(now_ns);
        let start = EventKind::HrtimerStart { timer, function: 6, expires_at_ns, has_slack: true };
        events.extend([(now_ns, 0, start), (now_ns + 3, 0, waits(A))]);
        if turn < count {
            let at_ns = now_ns + 700_009;
            events.extend([
                (at_ns, 0, EventKind::DeviceInterrupt),
                (at_ns + 2, 0, wakes_it),
                (at_ns + 4, 0, EventKind::InterruptExit),
                (at_ns + 10, 0, runs(A)),
                (at_ns + 20, 0, EventKind::HrtimerCancel { timer }),
            ]);
            now_ns = at_ns + 50;
            continue;
        }
        let expire = EventKind::HrtimerExpire { timer, function: 6, now_ns: expires_at_ns };
        events.extend([
            (expires_at_ns + 21, 0, EventKind::TimerInterrupt),
            (expires_at_ns + 22, 0, expire),
            (expires_at_ns + 23, 0, wakes_it),
            (expires_at_ns + 24, 0, EventKind::InterruptExit),
            (expires_at_ns + 30, 0, runs(A)),
            (expires_at_ns + 50, 0, waits(A)),
        ]);
    }
    let (steps, _) = steps(&events);
    let last = steps.iter().rfind(|step| step.task == 0).unwrap();
    match last.cause {
        Cause::Timer { armed, delay_ns } => (armed, delay_ns as i64 - (expires_at_ns - now_ns)),
        cause => panic!("{cause:?}"),
    }
}

/// `epoll_wait` is called with the whole milliseconds until a deadline. Each answer that comes earlier must not bring the deadline
/// forward.
#[test]
fn a_timer_belongs_to_the_step_that_set_the_deadline() {
    const MS: i64 = 1_000_000;
    // The first waits of a recording show that its task keeps deadlines: one of 20 ms here.
    let of_epoll = |now_ns: i64| 21 * MS - now_ns / MS * MS;
    let (armed, earlier_ns) = armed_after_interrupts(25, of_epoll);
    assert!((1..12).contains(&armed.step), "{armed:?}");
    assert_eq!(earlier_ns, (26 - armed.step as i64 - 1) * 700_059, "{armed:?}");
    // In nanoseconds, as with ppoll.
    let (armed, earlier_ns) = armed_after_interrupts(25, |now_ns| 21 * MS - now_ns);
    assert!((1..12).contains(&armed.step), "{armed:?}");
    assert!(earlier_ns > 9 * MS, "{earlier_ns}");
    // A timeout that begins anew with each answer.
    for timeout_ns in [MS, 20 * MS] {
        let (armed, earlier_ns) = armed_after_interrupts(25, |_| timeout_ns);
        assert_eq!((armed.step, earlier_ns), (25, 0));
    }
}

/// Timeouts of many lengths are near the one before now and then, and then shorter.
#[test]
fn timeouts_that_end_at_the_same_time_by_chance_are_no_deadline() {
    const MS: i64 = 1_000_000;
    let by_chance = |now_ns: i64| 700_059 * (1 + (now_ns / 700_059 * 7 + 3) % 11);
    for count in 20..60 {
        let (armed, earlier_ns) = armed_after_interrupts(count, by_chance);
        assert_eq!((armed.step, earlier_ns), (count as u64, 0));
    }
    // What no kernel writes.
    for ends in [[i64::MIN, i64::MAX], [MS, i64::MIN], [i64::MAX, i64::MIN]] {
        let mut events = vec![(0, 0, runs(A))];
        for (place, expires_at_ns) in (0_i64..).zip(ends.into_iter().cycle().take(30)) {
            let start =
                EventKind::HrtimerStart { timer: 5, function: 6, expires_at_ns, has_slack: false };
            let expire = EventKind::HrtimerExpire { timer: 5, function: 6, now_ns: 0 };
            let at_ns = 1_000 * place;
            events.extend([(at_ns + 10, 0, start), (at_ns + 20, 0, waits(A))]);
            if place % 3 == 0 {
                events.extend([
                    (at_ns + 30, 0, EventKind::TimerInterrupt),
                    (at_ns + 31, 0, expire),
                    (at_ns + 32, 0, wakes_by_interrupt(A)),
                    (at_ns + 33, 0, EventKind::InterruptExit),
                ]);
            }
            events.push((at_ns + 40, 0, runs(A)));
        }
        assert!(!steps(&events).0.is_empty());
    }
}

#[test]
fn a_timer_that_wakes_nobody_is_the_kernels_own() {
    let start = |expires_at_ns| EventKind::HrtimerStart {
        timer: 5,
        function: 6,
        expires_at_ns,
        has_slack: false,
    };
    let expire = |now_ns| EventKind::HrtimerExpire { timer: 5, function: 6, now_ns };
    let mut events = vec![
        (0, 0, runs(A)),
        (10, 0, waits(A)),
        (900, 0, EventKind::TimerInterrupt),
        (901, 0, start(5_000)),
        (902, 0, EventKind::InterruptExit),
        (5_100, 0, EventKind::TimerInterrupt),
        (5_101, 0, expire(5_090)),
    ];
    let rest = [(5_110, 0, EventKind::InterruptExit), (9_000, 0, EventKind::TimerInterrupt)];
    let wakes_one = EventKind::Waking { task: B, context: WakeContext::Interrupt };
    let after = [(9_100, 0, runs(B)), (9_200, 0, waits(B))];
    let without: Vec<_> = [&events[..], &rest, &after].concat();
    let (own, metadata) = steps(&without);
    let timer = own.iter().find(|step| metadata.tasks[step.task as usize].is_idle).unwrap();
    assert_eq!(
        (timer.cause, timer.due_at_ns, timer.run_at_ns, timer.run_ns),
        (Cause::Absolute, 5_000, 5_110, 0)
    );
    assert_eq!((timer.cpu, metadata.tasks[timer.task as usize].name.as_str()), (0, "swapper/0"));
    // If it wakes a task, its CPU knew when it would.
    events.push((5_105, 0, wakes_one));
    let (woken, metadata) = steps(&[&events[..], &rest, &after].concat());
    assert!(!metadata.tasks.iter().any(|task| task.is_idle));
    assert_eq!(
        woken.iter().map(|step| (step.cause, step.due_at_ns)).next_back(),
        Some((Cause::Absolute, 5_000))
    );
}

/// The step that says what a CPU knows of its next timer.
fn next_timers(steps: &[Step], metadata: &WorkloadMetadata) -> Vec<(u16, i64, u64)> {
    let told = steps.iter().filter_map(|step| match step.cause {
        Cause::NextTimer { delay_ns } => {
            assert!(metadata.tasks[step.task as usize].is_idle);
            assert_eq!((step.run_at_ns, step.end_at_ns), (step.due_at_ns, step.due_at_ns));
            Some((step.cpu, step.due_at_ns, delay_ns))
        }
        _ => None,
    });
    told.collect()
}

/// A connection's timer is armed anew with each packet and never expires, and yet it is what the CPU expects.
#[test]
fn what_a_cpu_knows_of_its_next_timer_is_told_where_it_changes() {
    let start = |expires_at_ns| EventKind::HrtimerStart {
        timer: 5,
        function: 6,
        expires_at_ns,
        has_slack: false,
    };
    let mut events = vec![(0, 1, runs(B))];
    // The second stay has the first one's timer.
    for (from_ns, due_at_ns) in [(1_000, 90_000), (2_000, 90_000), (3_000, 120_000)] {
        events.extend([
            (from_ns, 0, runs(A)),
            (from_ns + 10, 0, start(due_at_ns)),
            (from_ns + 20, 0, waits(A)),
            (from_ns + 30, 0, EventKind::IdleEntry { state: 1 }),
            (from_ns + 500, 0, EventKind::IdleExit),
            (from_ns + 501, 0, EventKind::DeviceInterrupt),
            (from_ns + 502, 0, wakes_by_interrupt(A)),
            (from_ns + 503, 0, EventKind::InterruptExit),
        ]);
    }
    events.extend([
        (4_000, 0, EventKind::HrtimerCancel { timer: 5 }),
        (4_010, 0, runs(A)),
        (4_020, 0, waits(A)),
        // A gap is known to be over when the next one begins.
        (4_030, 0, EventKind::IdleEntry { state: 1 }),
    ]);
    let (steps, metadata) = steps(&events);
    assert_eq!(next_timers(&steps, &metadata), [(0, 1_030, 88_970), (0, 3_030, 116_970)]);
    let names = metadata.tasks.iter().filter(|task| task.is_idle).map(|task| task.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["swapper/0"]);
}

#[test]
fn an_interrupt_is_due_when_the_cpu_began_to_leave_its_state() {
    let (steps, _) = steps(&[
        (0, 0, EventKind::IdleEntry { state: 1 }),
        (1_000, 0, EventKind::IdleExit),
        (1_001, 0, EventKind::DeviceInterrupt),
        (1_002, 0, EventKind::Waking { task: B, context: WakeContext::Interrupt }),
        (1_003, 0, EventKind::InterruptExit),
        (1_010, 0, runs(B)),
        (1_020, 0, waits(B)),
    ]);
    // State 1's exit latency is 7 ns.
    assert_eq!((steps[0].cause, steps[0].due_at_ns), (Cause::Interrupt, 993));
    assert_eq!(steps[0].idle_state, Some(1));
}

/// perf enables its events CPU by CPU. A task may move to a CPU whose events begin later.
#[test]
fn a_task_that_was_seen_on_another_cpu_has_not_run_on_this_one_since_the_beginning() {
    let (steps, metadata) = steps(&[
        (0, 0, runs(A)),
        (100, 0, waits(A)),
        (200, 0, wakes_by_interrupt(A)),
        // CPU 1 has run it since some time after that.
        (300, 1, waits(A)),
        (400, 0, runs(B)),
        (450, 0, switch(B, IDLE, Leaving::Runnable)),
        (500, 1, switch(B, IDLE, Leaving::Waits)),
    ]);
    let times = |task| -> Vec<[i64; 4]> {
        let of_task = steps.iter().filter(|step| step.task == task);
        let times = of_task.map(|s| [s.due_at_ns, s.run_at_ns, s.end_at_ns, s.run_ns as i64]);
        times.collect()
    };
    assert_eq!(times(0), [[0, 0, 100, 100], [200, 200, 300, 100]]);
    // It went on elsewhere, and nothing says when.
    assert_eq!(times(1), [[400, 400, 500, 50]]);
    written(&steps, &metadata);
}

#[test]
fn what_has_no_cause_is_counted() {
    let (steps, metadata) = steps(&[
        (0, 0, runs(A)),
        (10, 0, waits(A)),
        // Who woke it is not recorded.
        (50, 0, runs(A)),
        (60, 0, wakes(B)),
        (70, 0, EventKind::Lost { event_count: 3 }),
        (80, 0, waits(A)),
    ]);
    assert_eq!(steps[1].cause, Cause::Start);
    assert_eq!(metadata.causeless_count, 1);
    assert_eq!(metadata.never_ran_count, 1);
    assert_eq!(metadata.lost_event_count, 3);
}

#[test]
fn a_recording_without_causes_is_refused_in_one_line() {
    let refused = |tracepoints| match StepBuilder::new(Vec::<Step>::new(), tracepoints, vec![]) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        refused(Tracepoints::COMPLETE),
        "it does not say what makes tasks run: sched:sched_waking was not recorded; record with \
         `idlewise record --causes`"
    );
    let some = refused(Tracepoints::CPU_IDLE.union(Tracepoints::WAKING));
    assert!(some.contains("sched:sched_switch, timer:hrtimer_start"), "{some}");
    assert!(!some.contains('\n'));
}

fn written(steps: &[Step], metadata: &WorkloadMetadata) -> Vec<u8> {
    let output = OutputFile::unnamed(&std::env::temp_dir().join("workload")).unwrap();
    let mut writer = WorkloadWriter::new(output).unwrap();
    writer.take(steps).unwrap();
    let mut bytes = Vec::new();
    let file: File = writer.finish_unnamed(metadata).unwrap();
    let mut file = file;
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn read(bytes: Vec<u8>) -> Result<Vec<Step>, LogError> {
    let log = WorkloadLog::from_bytes("test", bytes)?;
    let mut steps = Vec::new();
    log.each_group(&mut |group| steps.extend_from_slice(group))?;
    Ok(steps)
}

#[test]
fn a_log_is_read_as_it_was_written() {
    for events in [naps(&[100_007, 200_099, 300_099]), vec![]] {
        let (steps, metadata) = steps(&events);
        let bytes = written(&steps, &metadata);
        let log = WorkloadLog::from_bytes("test", bytes.clone()).unwrap();
        assert_eq!((&log.metadata, log.step_count()), (&metadata, steps.len() as u64));
        assert_eq!(read(bytes).unwrap(), steps);
    }
}

#[test]
fn a_log_that_contradicts_itself_is_neither_written_nor_read() {
    let (mut steps, metadata) = steps(&naps(&[100_007]));
    steps[1].cause = Cause::Task(StepPlace { task: 0, step: 7, offset_ns: 0 });
    let error = read(written(&steps, &metadata)).unwrap_err().to_string();
    assert!(error.contains("row 1: it breaks the rule that no task wakes itself"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let output = OutputFile::create(&path, &OutputOptions::default()).unwrap();
    let mut writer = WorkloadWriter::new(output).unwrap();
    writer.take(&steps).unwrap();
    assert!(writer.finish(&metadata).is_err());
    assert!(!Path::new(&path).exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_anonymous_log_has_the_same_steps_without_names() {
    let (steps, mut metadata) = steps(&naps(&[100_007, 200_099]));
    metadata.hz = Some(250);
    metadata.command = Some("record --causes -- secret".to_owned());
    metadata.kernel = Some("6.12.1-acme".to_owned());
    let later = 40_000_000_000_123;
    metadata.first_at_ns += later;
    metadata.last_at_ns += later;
    let moved = |step: &Step, by_ns| Step {
        due_at_ns: step.due_at_ns + by_ns,
        run_at_ns: step.run_at_ns + by_ns,
        end_at_ns: step.end_at_ns + by_ns,
        ..*step
    };
    let steps: Vec<Step> = steps.iter().map(|step| moved(step, later)).collect();
    let anonymous = AnonymousWorkload::new(&metadata, &[]);
    let json = serde_json::to_string(&anonymous.metadata).unwrap();
    for secret in ["secret", "acme", "task 11", "pid\":11"] {
        assert!(!json.contains(secret), "{secret}: {json}");
    }
    assert_eq!(anonymous.metadata.first_at_ns, 123);
    assert_eq!(anonymous.metadata.kernel.as_deref(), Some("6.12"));
    let shifted: Vec<Step> = steps.iter().map(|step| anonymous.step(step)).collect();
    let back: Vec<Step> = shifted.iter().map(|step| moved(step, 40_000_000_000_000)).collect();
    assert_eq!(back, steps);
    assert_eq!(read(written(&shifted, &anonymous.metadata)).unwrap(), shifted);
    let kept = AnonymousWorkload::new(&metadata, &[Field::Command, Field::Time]);
    assert_eq!(kept.metadata.command, metadata.command);
    assert_eq!(kept.metadata.first_at_ns, metadata.first_at_ns);
}

#[test]
fn a_damaged_log_is_an_error() {
    let (steps, metadata) = steps(&naps(&[100_007, 200_099]));
    let bytes = written(&steps, &metadata);
    for length in 0..bytes.len() {
        let error = read(bytes[..length].to_vec()).unwrap_err().to_string();
        assert!(!error.contains("an idle log's") && !error.contains("damaged idle"), "{error}");
    }
    // Any byte may be wrong. What is read then is still a valid log.
    let mut is_named = false;
    for at in 0..bytes.len() {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            if let Err(error) = read(bytes) {
                assert!(!error.to_string().contains("damaged idle log"), "{error}");
                is_named |= error.to_string().contains("damaged workload log: ");
            }
        }
    }
    assert!(is_named);
    let error = IdleLog::from_bytes("test", written(&steps, &metadata)).map(drop).unwrap_err();
    assert!(error.to_string().contains("a workload log, which has no gaps"), "{error}");
    let error = read(b"PAR1 and so on".to_vec()).unwrap_err().to_string();
    assert!(error.starts_with("test: "), "{error}");
}
