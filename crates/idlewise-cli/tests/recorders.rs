//! Three recorders at once: `idlewise record`, `trace-cmd record` and `perf record` see the same
//! gaps. The other two record whole events, ours lets the kernel drop what it does not need, so this
//! also shows that nothing is lost by that. Alone in its program, so that no other test keeps the
//! CPUs from going idle; where that happens all the same, or where tracing is not permitted, it says
//! so. It looks at CPU 0: some virtual machines record nothing of other CPUs' idle task.

use std::path::Path;
use std::process::Command;

use idlewise_trace::log::IdleLog;
use idlewise_trace::{IdleGap, WakeReason};

/// Timers, wakes across CPUs and quiet spells, for a second and a half.
const WORKLOAD: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; sleep 0.01; true | cat; done";
/// What perf and trace-cmd are told to record: the README's list.
const EVENTS: [&str; 11] = [
    "power:cpu_idle",
    "sched:sched_switch",
    "irq_vectors:*_entry",
    "irq:irq_handler_entry",
    "timer:hrtimer_start",
    "timer:hrtimer_cancel",
    "timer:hrtimer_expire_entry",
    "timer:timer_start",
    "timer:timer_cancel",
    "timer:timer_expire_entry",
    "timer:tick_stop",
];
/// Each recorder takes its own time of an event, one after the other.
const DIFFERENCE_NS: u64 = 1_000;
/// An interrupt, or another virtual machine's turn, may come between two recorders' times of one
/// event; all but so many must be close.
const DISTURBED_RATIO: f64 = 0.05;
/// With fewer gaps than this nothing is shown.
const GAP_COUNT_MIN: usize = 10;

/// Why it can't be done here.
type Skipped = String;

/// Records the workload with all three, and gives each one's gaps of CPU 0.
fn record(folder: &Path) -> Result<[(&'static str, Vec<IdleGap>); 3], Skipped> {
    let [ours, trace_cmd, perf] = ["ours.dat", "trace-cmd.dat", "perf.data"];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plain_function_tracing.sh");
    let mut words = vec![env!("CARGO_BIN_EXE_idlewise"), "record", "-o", ours, "--"];
    words.extend(["unshare", "-m", "sh", script, "trace-cmd", "record", "-q", "-C", "mono"]);
    words.extend(["-b", "8192"]);
    words.extend(EVENTS.iter().flat_map(|event| ["-e", event]));
    words.extend(["-o", trace_cmd, "perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC"]);
    words.extend(["-m", "2048", "-o", perf]);
    words.extend(EVENTS.iter().flat_map(|event| ["-e", event]));
    words.extend(["--", "sh", "-c", WORKLOAD]);
    let output = Command::new(words[0]).args(&words[1..]).current_dir(folder).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let gaps = |name: &'static str| -> Result<_, Skipped> {
        let log_path = folder.join(format!("{name}.parquet"));
        let import = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["import", name, "-o"])
            .arg(&log_path)
            .current_dir(folder)
            .output()
            .expect("it starts");
        let message = String::from_utf8_lossy(&import.stderr);
        if message.contains("no idle entries") {
            return Err("no CPU was idle while recording".to_owned());
        }
        assert!(import.status.success(), "{name}: {message}");
        let log = IdleLog::open(&log_path).unwrap();
        let Some(cpu) = log.metadata.cpus.first().filter(|cpu| cpu.cpu == 0) else {
            return Err(format!("{name}: nothing of CPU 0"));
        };
        if cpu.lost_event_count > 0 {
            return Err(format!("{name}: {} events were lost", cpu.lost_event_count));
        }
        let (mut all, mut some) = (Vec::new(), Vec::new());
        for group in log.groups() {
            log.read_group(group, all.last(), &mut some).unwrap();
            all.extend(some.iter().filter(|gap| gap.cpu == 0).copied());
        }
        Ok((name, all))
    };
    Ok([gaps(ours)?, gaps(trace_cmd)?, gaps(perf)?])
}

fn end_ns(gap: &IdleGap) -> i64 {
    gap.start_ns.saturating_add_unsigned(gap.gap_ns)
}

#[test]
fn three_recorders_at_once_see_the_same_gaps() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let recorded = match record(folder.path()) {
        Ok(recorded) => recorded,
        Err(reason) => {
            eprintln!("SKIPPED: three_recorders_at_once_see_the_same_gaps: {reason}");
            return;
        }
    };
    // The recorders begin and end one after the other. A recorder that begins in the middle of a gap
    // does not see it begin, so the first gap of each is no measure of the others'.
    let from_ns = recorded.iter().filter_map(|(_, gaps)| gaps.get(1)).map(|gap| gap.start_ns).max();
    let to_ns = recorded.iter().filter_map(|(_, gaps)| gaps.last()).map(end_ns).min();
    let (Some(from_ns), Some(to_ns)) = (from_ns, to_ns) else {
        eprintln!("SKIPPED: three_recorders_at_once_see_the_same_gaps: CPU 0 was hardly idle");
        return;
    };
    let slack_ns = 10 * DIFFERENCE_NS as i64;
    let common = recorded.each_ref().map(|(name, gaps)| {
        let is_common =
            |gap: &&IdleGap| gap.start_ns >= from_ns - slack_ns && end_ns(gap) <= to_ns + slack_ns;
        (*name, gaps.iter().filter(is_common).collect::<Vec<_>>())
    });
    let [(_, ours), others @ ..] = &common;
    if ours.len() < GAP_COUNT_MIN {
        eprintln!(
            "SKIPPED: three_recorders_at_once_see_the_same_gaps: CPU 0 had only {} gaps, for others \
             kept it busy",
            ours.len()
        );
        return;
    }
    for (name, theirs) in others {
        assert_eq!(ours.len(), theirs.len(), "{name}: gaps");
        let mut differences_ns: Vec<u64> = Vec::new();
        for (ours, theirs) in ours.iter().zip(theirs) {
            let difference_ns =
                ours.start_ns.abs_diff(theirs.start_ns).max(end_ns(ours).abs_diff(end_ns(theirs)));
            differences_ns.push(difference_ns);
            assert_eq!(ours.wake_reason, theirs.wake_reason, "{name}: {ours:?}, {theirs:?}");
            assert_eq!(ours.recorded_state, theirs.recorded_state, "{name}: {ours:?}, {theirs:?}");
            // An expiry is the kernel's own number.
            if ours.wake_reason == WakeReason::Timer {
                assert_eq!(end_ns(ours), end_ns(theirs), "{name}: {ours:?}, {theirs:?}");
            }
        }
        // What a recorder knows of the time before it began, it learns with the first few.
        for (ours, theirs) in ours.iter().zip(theirs).skip(GAP_COUNT_MIN / 2) {
            assert_eq!(ours.ran_task, theirs.ran_task, "{name}: {ours:?}, {theirs:?}");
            assert_eq!(ours.tick_stopped, theirs.tick_stopped, "{name}: {ours:?}, {theirs:?}");
        }
        differences_ns.sort_unstable();
        let far_count = differences_ns.iter().filter(|&&ns| ns > DIFFERENCE_NS).count();
        println!(
            "{name}: {} gaps, {} within {DIFFERENCE_NS} ns; median difference {} ns, largest {} ns",
            differences_ns.len(),
            differences_ns.len() - far_count,
            differences_ns[differences_ns.len() / 2],
            differences_ns[differences_ns.len() - 1],
        );
        assert!(far_count as f64 <= DISTURBED_RATIO * differences_ns.len() as f64, "{name}");
    }
}
