//! Texts of every recorder, kernel and machine that we know, whole and damaged, as events.

use idlewise_trace::import::text::FtraceText;
use idlewise_trace::import::{ReadSummary, Recording, TraceInfo, TruncationReason};
use idlewise_trace::{Doubt, Event, EventKind, IdleGap, RecordedMachine, Tracepoints, convert};

fn import(text: &str) -> (Vec<Event>, TraceInfo, ReadSummary) {
    let text = FtraceText::from_bytes(text.as_bytes().to_vec()).unwrap();
    let info = text.info().clone();
    let mut events = Vec::new();
    let summary = text.read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
    assert_eq!(summary.event_count, events.len() as u64);
    assert!(events.is_sorted_by_key(|event| event.at_ns));
    (events, info, summary)
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

fn has_doubt(doubts: &[Doubt], words: &str) -> bool {
    doubts.iter().any(|doubt| doubt.to_string().contains(words))
}

/// The text of an arm64 phone of 2021 (Linux 5.10): interrupts by name, IPIs with reasons.
#[test]
fn a_phone_of_arm64_says_why_its_cpus_wake() {
    let (events, info, _) = import(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: 8/20   #P:8\n#\n\
         #           TASK-PID    TGID     CPU#  ||||   TIMESTAMP  FUNCTION\n\
         <idle>-0     (-----) [007] d..2    56.916920: cpu_idle: state=2 cpu_id=7\n\
         <idle>-0     (-----) [007] d..2    56.917920: cpu_idle: state=4294967295 cpu_id=7\n\
         <idle>-0     (-----) [007] d.h2    56.917921: irq_handler_entry: irq=2 name=IPI\n\
         <idle>-0     (-----) [007] d.h2    56.917922: ipi_entry: (Rescheduling interrupts)\n\
         <idle>-0     (-----) [007] d..2    56.917930: sched_switch: prev_comm=swapper/7 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=RenderThread 1 next_pid=512 next_prio=97\n\
         RenderThread 1-512   (  498) [007] d..2    56.918000: sched_switch: prev_comm=RenderThread 1 prev_pid=512 prev_prio=97 prev_state=S ==> next_comm=swapper/7 next_pid=0 next_prio=120\n\
         <idle>-0     (-----) [007] d..2    56.918001: cpu_idle: state=0 cpu_id=7\n\
         <idle>-0     (-----) [003] d.h2    56.919001: irq_handler_entry: irq=13 name=arch_timer\n",
    );
    use EventKind::{
        IdleEntry, IdleExit, IpiInterrupt, RescheduleInterrupt, SwitchToIdle, SwitchToTask,
        TimerInterrupt,
    };
    assert_eq!(
        kinds(&events),
        [
            IdleEntry { state: 2 },
            IdleExit,
            IpiInterrupt,
            RescheduleInterrupt,
            SwitchToTask,
            SwitchToIdle,
            IdleEntry { state: 0 },
            TimerInterrupt
        ]
    );
    assert_eq!((events[0].cpu, events[7].cpu, events[0].at_ns), (7, 3, 56_916_920_000));
    assert_eq!(info.cpu_count, Some(8));
    assert!(!info.tracepoints.contains(Tracepoints::HRTIMER_START));
    assert!(has_doubt(&info.doubts, "12 older events were overwritten"), "{:?}", info.doubts);
}

#[test]
fn a_power_machine_has_interrupts_of_its_own() {
    let (events, _, _) = import(
        "          <idle>-0     [044]    10.000100: cpu_idle:             state=3 cpu_id=44\n\
         \x20         <idle>-0     [044]    10.000900: timer_interrupt_entry: pt_regs=0xc000000001d37c60\n\
         \x20         <idle>-0     [044]    10.000905: doorbell_entry: pt_regs=0xc000000001d37c60\n\
         \x20         <idle>-0     [044]    10.000910: cpu_idle:             state=4294967295 cpu_id=44\n",
    );
    let [_, timer, doorbell, _] = kinds(&events)[..] else { panic!("{events:?}") };
    assert_eq!((timer, doorbell), (EventKind::TimerInterrupt, EventKind::IpiInterrupt));
}

/// Linux 3.10: no CPU, bucket or `now` in timer_start, `msg` in tick_stop, real addresses.
#[test]
fn an_old_kernel_says_less_and_that_is_a_doubt() {
    let (events, info, summary) = import(
        "          <idle>-0     [001] d..2    10.000100: tick_stop: success=yes msg= \n\
         \x20         <idle>-0     [001] d..2    10.000110: tick_stop: success=no msg=more than 1 task in runqueue\n\
         \x20         <idle>-0     [001] d..2    10.000120: timer_start: timer=ffff880002d7bd40 function=delayed_work_timer_fn expires=4294940040 [timeout=250]\n\
         \x20         <idle>-0     [001] d..2    10.000130: timer_expire_entry: timer=ffff880002d7bd40 function=delayed_work_timer_fn now=4294940040\n\
         \x20         <idle>-0     [001] d..2    10.000140: hrtimer_expire_entry: hrtimer=ffff88007d50d5e0 function=tick_sched_timer now=9000140000\n\
         \x20         <idle>-0     [001] d..2    10.000150: cpu_idle: state=4294967295 cpu_id=1\n",
    );
    let EventKind::WheelStart { flags, ahead_jiffies, .. } = events[1].kind else {
        panic!("{events:?}")
    };
    assert_eq!((events.len(), summary.undecodable_count), (5, 0));
    assert_eq!(flags & 0x3_ffff, 1, "queued where it was started");
    assert!(ahead_jiffies >= 250);
    assert!(has_doubt(&info.doubts, "no CPU (Linux before 4.2)"), "{:?}", info.doubts);
    assert!(has_doubt(&info.doubts, "no bucket_expiry"), "{:?}", info.doubts);
    assert_eq!(info.clock, None, "the timers' clock is a second behind");
}

#[test]
fn lost_events_come_before_the_event_behind_their_line() {
    let (events, _, summary) = import(
        "CPU:1 [LOST EVENTS]\n\
         <idle>-0 [000] 10.000100: cpu_idle: state=1 cpu_id=0\n\
         CPU:0 [LOST 136 EVENTS]\nCPU:2 [7 EVENTS DROPPED]\n\
         <idle>-0 [000] 10.000300: cpu_idle: state=1 cpu_id=0\n\
         CPU:0 [LOST 4 EVENTS]\n",
    );
    let lost =
        |at_ns, cpu, event_count| Event { at_ns, cpu, kind: EventKind::Lost { event_count } };
    let idle = |at_ns| Event { at_ns, cpu: 0, kind: EventKind::IdleEntry { state: 1 } };
    assert_eq!(
        events,
        [
            lost(10_000_100_000, 1, 1),
            idle(10_000_100_000),
            lost(10_000_300_000, 0, 136),
            lost(10_000_300_000, 2, 7),
            idle(10_000_300_000),
            lost(10_000_300_000, 0, 4),
        ]
    );
    let counts: Vec<(u16, u64)> = summary.lost_event_counts.into_iter().collect();
    assert_eq!(counts, [(0, 140), (1, 1), (2, 7)]);
}

#[test]
fn a_page_of_systrace_holds_a_text() {
    let lines = "          <idle>-0     [000] d..2    10.000100: cpu_idle: state=1 cpu_id=0\n\
                 \x20         <idle>-0     [000] d..2    10.000300: cpu_idle: state=4294967295 cpu_id=0\n";
    let long = "x".repeat(300_000);
    let (events, info, summary) = import(&format!(
        "<!DOCTYPE html>\n<html>\n<script>{long}\n <idle>-0 [000] 1.0: cpu_idle: state=7 cpu_id=0\n\
         </script>\n<script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n\
         {lines}</script>\n<script class=\"trace-data\" type=\"application/json\">{{}}</script>\n\
         </html>"
    ));
    assert_eq!(kinds(&events), [EventKind::IdleEntry { state: 1 }, EventKind::IdleExit]);
    assert_eq!((info.cpu_count, summary.truncated), (None, None));

    // The form that systrace wrote in 2012.
    let old = lines.replace('\n', "\\n\\\n");
    let (events, _, _) = import(&format!(
        "<!DOCTYPE HTML>\n<html>\n<script>\n  var linuxPerfData = \"\\\n# tracer: nop\\n\\\n{old}\";\n\
         </script>\n</html>\n"
    ));
    assert_eq!(events.len(), 2);
}

#[test]
fn a_cut_line_is_a_counted_loss() {
    let whole = "<idle>-0 [000] 10.000100: cpu_idle: state=1 cpu_id=0\n";
    let (events, _, summary) = import(&format!("{whole}<idle>-0 [000] 10.000300: cpu_idle: sta"));
    assert_eq!(events.len(), 1);
    let truncated = summary.truncated.unwrap();
    assert_eq!(truncated.reason, TruncationReason::CutShort);
    assert_eq!((truncated.at_byte, truncated.lost_byte_count), (whole.len() as u64, 39));
}

#[test]
fn a_clock_that_steps_back_and_lines_that_lack_a_field_are_counted() {
    let (events, _, summary) = import(
        "<idle>-0 [000] 10.000100: cpu_idle: state=1 cpu_id=0\n\
         <idle>-0 [000] 9.000100: cpu_idle: state=4294967295 cpu_id=0\n\
         <idle>-0 [000] 10.000200: cpu_idle: state= cpu_id=0\n\
         <idle>-0 [000] 10.000300: hrtimer_cancel: hrtimer=(____ptrval____)\n",
    );
    assert_eq!((events.len(), events[1].at_ns), (2, 10_000_100_000));
    assert_eq!((summary.out_of_order_count, summary.undecodable_count), (1, 2));
}

/// trace-cmd 3.1 always prints all of a timer's flags.
#[test]
fn flags_that_every_timer_has_are_not_believed() {
    let line = |flags| {
        format!(
            "<idle>-0 [000] 10.000100: cpu_idle: state=1 cpu_id=0\n\
             <idle>-0 [000] 10.000200: timer_start:          timer=0xd0 function=f expires=90 [timeout=10] bucket_expiry=91 cpu=2 idx=34 flags={flags}\n"
        )
    };
    let flags = |events: &[Event]| match events[1].kind {
        EventKind::WheelStart { flags, .. } => flags,
        other => panic!("{other:?}"),
    };
    const DEFERRABLE: u32 = 0x0008_0000;
    let (events, info, _) = import(&line("D|P|I"));
    assert_eq!(flags(&events), 2);
    assert!(has_doubt(&info.doubts, "by mistake"), "{:?}", info.doubts);
    let (events, info, _) = import(&line("D|I"));
    assert_eq!(flags(&events), DEFERRABLE | 2);
    assert!(!has_doubt(&info.doubts, "by mistake"), "{:?}", info.doubts);
}

#[test]
fn nanoseconds_leave_no_doubt_about_the_time() {
    let (events, info, _) = import(
        "<idle>-0 [000] 10.000100999: cpu_idle: state=1 cpu_id=0\n\
         <idle>-0 [000] 10.000300000: hrtimer_expire_entry: hrtimer=0x1 function=f/0x0 now=10000299000\n",
    );
    assert_eq!(events[0].at_ns, 10_000_100_999);
    assert_eq!(info.doubts, []);
    assert_eq!(info.clock.as_deref(), Some("CLOCK_MONOTONIC"));
}

/// A phone's text without interrupts names no architecture, and one that calls its timer arch_timer is Arm's.
#[test]
fn a_text_lacks_no_events_of_another_architecture() {
    let doubts = |interrupt: &str| {
        let text = format!(
            "# tracer: nop\n#\n#           TASK-PID   CPU#  ||||   TIMESTAMP  FUNCTION\n\
             <idle>-0  [000] d..2  1.000000: cpu_idle: state=1 cpu_id=0\n\
             <idle>-0  [000] d..2  1.001000: cpu_idle: state=4294967295 cpu_id=0\n\
             {interrupt}\
             <idle>-0  [000] d..2  1.002000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a next_pid=5 next_prio=97\n\
             a-5  [000] d..2  1.003000: sched_switch: prev_comm=a prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n\
             <idle>-0  [000] d..2  1.004000: cpu_idle: state=1 cpu_id=0\n"
        );
        let text = FtraceText::from_bytes(text.into_bytes()).unwrap();
        let recorded = RecordedMachine::default();
        let (_, metadata) = convert(text, Vec::<IdleGap>::new(), &recorded, &|_| {}).unwrap();
        let doubts: Vec<String> = metadata.doubts.iter().map(ToString::to_string).collect();
        doubts.join("\n")
    };
    let neither = doubts("");
    assert!(neither.contains("not recorded: some or all interrupts that end idle"), "{neither}");
    assert!(!neither.contains("irq_vectors") && !neither.contains("ipi_entry"), "{neither}");
    let arm = doubts("<idle>-0  [000] d.h2  1.001001: irq_handler_entry: irq=13 name=arch_timer\n");
    assert!(arm.contains("ipi:ipi_entry") && !arm.contains("irq_vectors"), "{arm}");
}
