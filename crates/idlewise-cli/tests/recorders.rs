//! Three recorders at once: `idlewise record`, `trace-cmd record` and `perf record` must see the
//! same gaps. The other two record all events, whereas ours lets the kernel filter out unneeded
//! ones, so this also shows that the filters lose nothing.
//!
//! The recorders take an event's time one after the other, and the first event after a sleep meets
//! cold caches, so their times can be microseconds apart. Each gap is therefore compared with the
//! times at which its recorder saw the events that bound it, as the tools print them.
//!
//! The test has a program of its own, so that no other test keeps the CPUs busy. If they are busy all the same, it
//! tries again, and in the end compares as many gaps as there are: recorders must agree also on a CPU that is
//! hardly ever idle. If tracing is not permitted, it says so. It checks only CPU 0, because some
//! virtual machines do not record the idle task of other CPUs.
#![allow(clippy::print_stdout, reason = "a test says what it compared")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use idlewise_trace::log::IdleLog;
use idlewise_trace::{IdleGap, WakeReason};

/// Timers, wake-ups across CPUs and quiet periods, for a second and a half.
const WORKLOAD: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; sleep 0.01; true | cat; done";
/// The events that perf and trace-cmd record: the README's list.
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
/// The allowed difference between two recorders, corrected for when each saw a gap's events.
const DIFFERENCE_NS: u64 = 1_000;
/// The recordings are cut in the middle of a time this long without an event, so that no recorder's time is on the wrong
/// side: an interrupt or another virtual machine may come between the times at which two recorders see an event. A gap's
/// middle would not do, since a tick that wakes nothing can be there.
const QUIET_NS: u64 = 3_000_000;
/// Of the gaps that timers end, at most this share may end with a timer that was armed when one
/// recorder had begun and the other had not.
const ARMED_BEFORE_RATIO: f64 = 0.1;
/// With fewer gaps than this, it tries again.
const GAP_COUNT_MIN: usize = 10;
const ATTEMPT_COUNT: usize = 5;

/// Why the test cannot run here.
type Skipped = String;

struct Recording {
    name: &'static str,
    /// The gaps of CPU 0; none if no CPU was idle.
    gaps: Vec<IdleGap>,
    /// The events that bound them.
    stamps: Vec<(String, i64)>,
}

/// Records the workload with all three.
fn record(folder: &Path) -> Result<[Recording; 3], Skipped> {
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
    // Only our recorder notes the machine. Without exit latencies, gaps end with events.
    let recording = idlewise_trace::import::open(&folder.join(ours)).unwrap();
    let note = recording.info().machine_note.clone().expect("our recorder noted the machine");
    let mut machine = note.tables[0].machine.clone();
    for state in &mut machine.states {
        state.exit_latency_ns = 0;
    }
    let machine_path = folder.join("machine.toml");
    std::fs::write(&machine_path, toml::to_string(&machine).unwrap()).unwrap();
    let [ours_text, trace_cmd_text] =
        [ours, trace_cmd].map(|name| text_of(folder, &["trace-cmd", "report", "-t", name]));
    let perf_text =
        text_of(folder, &["perf", "script", "--ns", "-F", "pid,cpu,time,event", "-i", perf]);
    let recording = |name, text: String| -> Result<_, Skipped> {
        let gaps = import(folder, name, &machine_path)?;
        Ok(Recording { name, gaps, stamps: text.lines().filter_map(stamp).collect() })
    };
    Ok([
        recording(ours, ours_text)?,
        recording(trace_cmd, trace_cmd_text)?,
        recording(perf, perf_text)?,
    ])
}

/// The gaps of CPU 0.
fn import(folder: &Path, name: &str, machine: &Path) -> Result<Vec<IdleGap>, Skipped> {
    let log_path = folder.join(format!("{name}.parquet"));
    let import = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "import", name, "--force", "-o"])
        .arg(&log_path)
        .arg("--recorded-machine")
        .arg(machine)
        .current_dir(folder)
        .output()
        .expect("it starts");
    let message = String::from_utf8_lossy(&import.stderr);
    if message.contains("never idle in these") {
        return Ok(Vec::new());
    }
    assert!(import.status.success(), "{name}: {message}");
    let log = IdleLog::open(&log_path).unwrap();
    let Some(cpu) = log.metadata.cpus.first().filter(|cpu| cpu.cpu == 0) else {
        return Ok(Vec::new());
    };
    if cpu.lost_event_count > 0 {
        return Err(format!("{name}: {} events were lost", cpu.lost_event_count));
    }
    let (mut all, mut some) = (Vec::new(), Vec::new());
    for group in log.groups() {
        log.read_group(group, all.last(), &mut some).unwrap();
        all.extend(some.iter().filter(|gap| gap.cpu == 0).copied());
    }
    Ok(all)
}

fn text_of(folder: &Path, words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Parses a line of either tool into the name and time of an event in CPU 0's idle task that our
/// recorder does not filter: `task-pid`, the CPU in brackets, flags, seconds, name.
fn stamp(line: &str) -> Option<(String, i64)> {
    let (task, rest) = line.split_once(" [000] ")?;
    let pid = task.trim_end().rsplit(['-', ' ']).next()?;
    let mut words = rest.split_whitespace().skip_while(|word| !word.ends_with(':'));
    let (seconds, nanoseconds) = words.next()?.trim_end_matches(':').split_once('.')?;
    let name = words.next()?.trim_end_matches(':').rsplit(':').next()?;
    let is_kept = name == "cpu_idle" || name.ends_with("_entry");
    let at_ns = || {
        seconds
            .parse::<i64>()
            .ok()?
            .checked_mul(1_000_000_000)?
            .checked_add(nanoseconds.parse().ok()?)
    };
    if pid == "0" && is_kept { Some((name.to_owned(), at_ns()?)) } else { None }
}

/// When the other recorder saw the events between two of our recorder's times, as the tools print them. They are matched
/// by their order alone: two events of one name can be nearer to each other than the times at which two recorders see
/// one of them.
fn other_times(
    ours: &Recording,
    theirs: &Recording,
    from_ns: i64,
    to_ns: i64,
) -> HashMap<i64, i64> {
    let [ours_between, theirs_between] = [ours, theirs].map(|recording| {
        let is_between = |(_, at_ns): &&(String, i64)| (from_ns..=to_ns).contains(at_ns);
        recording.stamps.iter().filter(is_between).collect::<Vec<_>>()
    });
    let pairs = ours_between.iter().zip(&theirs_between);
    let different = pairs.clone().find(|((name, _), (their_name, _))| name != their_name);
    assert!(different.is_none(), "{}: events in another order, {different:?}", theirs.name);
    assert_eq!(
        ours_between.len(),
        theirs_between.len(),
        "{}: events from {from_ns} to {to_ns} ns, of all its {}, {:?} to {:?}",
        theirs.name,
        theirs.stamps.len(),
        theirs.stamps.first(),
        theirs.stamps.last()
    );
    pairs.map(|((_, at_ns), (_, their_at_ns))| (*at_ns, *their_at_ns)).collect()
}

fn end_ns(gap: &IdleGap) -> i64 {
    gap.start_ns.saturating_add_unsigned(gap.gap_ns)
}

/// Two moments between which all three recorded, each in the middle of a time without an event; `None` if CPU 0 was
/// hardly idle.
fn common_ns(recorded: &[Recording; 3]) -> Option<(i64, i64)> {
    // The recorders begin and end one after the other. One that begins in the middle of a gap does
    // not see its beginning, so the first gap of each is not compared.
    let gaps = recorded.each_ref().map(|recording| &recording.gaps);
    let from_ns = gaps
        .map(|gaps| gaps.get(1).map(|gap| gap.start_ns))
        .into_iter()
        .collect::<Option<Vec<_>>>()?;
    let to_ns = gaps.map(|gaps| gaps.last().map(end_ns)).into_iter().collect::<Option<Vec<_>>>()?;
    let (from_ns, to_ns) = (from_ns.into_iter().max()?, to_ns.into_iter().min()?);
    let mut quiet = recorded[0].stamps.windows(2).filter_map(|pair| {
        let [before_ns, after_ns] = [pair[0].1, pair[1].1];
        let is_common = from_ns <= before_ns && after_ns <= to_ns;
        (is_common && before_ns.abs_diff(after_ns) >= QUIET_NS)
            .then(|| i64::midpoint(before_ns, after_ns))
    });
    quiet.next().zip(quiet.next_back())
}

#[test]
fn three_recorders_at_once_see_the_same_gaps() {
    for attempt in 1..=ATTEMPT_COUNT {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let recorded = match record(folder.path()) {
            Ok(recorded) => recorded,
            Err(reason) => {
                eprintln!("SKIPPED: three_recorders_at_once_see_the_same_gaps: {reason}");
                return;
            }
        };
        let is_last = attempt == ATTEMPT_COUNT;
        match common_ns(&recorded) {
            Some(common_ns) if compared(&recorded, common_ns, is_last) => return,
            None if is_last => agree_that_it_was_busy(&recorded),
            _ => {}
        }
    }
}

/// What one recorder hardly saw the others must not have seen often: they began and ended a little earlier or later.
fn agree_that_it_was_busy(recorded: &[Recording; 3]) {
    let counts = recorded.each_ref().map(|recording| recording.gaps.len());
    println!("CPU 0 was hardly idle: {counts:?} gaps");
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= GAP_COUNT_MIN + least / 2, "{counts:?} gaps");
}

/// Compares the gaps between two moments. Returns whether there were enough, or as many as there will be.
fn compared(recorded: &[Recording; 3], (from_ns, to_ns): (i64, i64), is_last: bool) -> bool {
    let common = recorded.each_ref().map(|recording| {
        let is_common = |gap: &&IdleGap| gap.start_ns >= from_ns && end_ns(gap) <= to_ns;
        recording.gaps.iter().filter(is_common).collect::<Vec<_>>()
    });
    let [ours, others @ ..] = &common;
    let is_enough = ours.len() >= GAP_COUNT_MIN;
    if !is_enough && !is_last {
        return false;
    }
    let [our_recording, other_recordings @ ..] = recorded;
    for (theirs, recording) in others.iter().zip(other_recordings) {
        let name = recording.name;
        assert_eq!(ours.len(), theirs.len(), "{name}: gaps");
        if !is_last && recording.stamps.is_empty() && !our_recording.stamps.is_empty() {
            println!("{name}: its tool printed none of its events; once more");
            return false;
        }
        let seen = other_times(our_recording, recording, from_ns, to_ns);
        let (mut differences_ns, mut delays_ns) = (Vec::new(), Vec::new());
        let (mut timer_count, mut armed_before_count) = (0, 0);
        for (ours, theirs) in ours.iter().zip(theirs) {
            let gaps = format!("{name}: {ours:?}, {theirs:?}");
            assert_eq!(ours.recorded_state, theirs.recorded_state, "{gaps}");
            delays_ns.extend(seen.get(&end_ns(ours)).map(|at_ns| at_ns.abs_diff(end_ns(ours))));
            let expected_ns = |at_ns: i64| seen.get(&at_ns).copied().unwrap_or(at_ns);
            differences_ns.push(expected_ns(ours.start_ns).abs_diff(theirs.start_ns));
            let end_difference_ns = expected_ns(end_ns(ours)).abs_diff(end_ns(theirs));
            let has_same_reason = ours.wake_reason == theirs.wake_reason;
            let is_timer = [ours, theirs].iter().any(|gap| gap.wake_reason == WakeReason::Timer);
            timer_count += usize::from(is_timer);
            // The recorder that began first knows more timers, and which of them are deferrable.
            if is_timer && (!has_same_reason || end_difference_ns > DIFFERENCE_NS) {
                armed_before_count += 1;
            } else {
                assert!(has_same_reason, "{gaps}");
                differences_ns.push(end_difference_ns);
            }
            assert!(differences_ns.iter().all(|&ns| ns <= DIFFERENCE_NS), "{gaps}");
        }
        // Each recorder learns about the time before its beginning from the first few gaps.
        for (ours, theirs) in ours.iter().zip(theirs).skip(GAP_COUNT_MIN / 2) {
            assert_eq!(ours.ran_task, theirs.ran_task, "{name}: {ours:?}, {theirs:?}");
            assert_eq!(ours.tick_stopped, theirs.tick_stopped, "{name}: {ours:?}, {theirs:?}");
        }
        delays_ns.sort_unstable();
        println!(
            "{name}: {} gaps, all bounds within {} ns of ours. It saw the events that woke the CPU \
             {} ns (median) to {} ns (most) from when ours did; {armed_before_count} of \
             {timer_count} timers were armed before one of us began.",
            ours.len(),
            differences_ns.iter().max().copied().unwrap_or(0),
            delays_ns.get(delays_ns.len() / 2).copied().unwrap_or(0),
            delays_ns.last().copied().unwrap_or(0),
        );
        let most = ARMED_BEFORE_RATIO * timer_count as f64;
        assert!(!is_enough || armed_before_count as f64 <= most, "{name}");
    }
    true
}
