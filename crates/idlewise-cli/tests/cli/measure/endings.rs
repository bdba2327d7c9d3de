//! Signals, time limits and failures: what was measured is printed, and the states are as they were.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{CPUS, Machine, Running, samples, text};

#[test]
fn a_run_that_fails_half_way_leaves_the_states_as_they_were() {
    let wrong = [
        (
            "# tsc_khz 2000000, given up 0 (…)\nwake_cycles,call_cycles,idle_cycles,\
             waking_cycles,busy_cycles\n5,6\n",
            "line 3",
        ),
        ("no such thing\n", "line 1"),
        (&samples(1, 0, 0), "0 wakes, measured or given up, where"),
    ];
    for (answer, part) in wrong {
        let machine = Machine::new();
        let mut running = machine.start(&["--target", "1"]);
        let [_, _, wake_count, _] = running.request().unwrap();
        running.answer(&samples(1, wake_count, 0));
        running.request().unwrap();
        assert_eq!(machine.disabled(1), "011");
        running.answer(answer);
        let output = running.end();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(part) && message.contains("idlewise_bench/samples"), "{message}");
        assert_eq!(machine.disabled(1), "001");
    }
}

#[test]
fn signals_end_it_with_the_states_as_they_were() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let machine = Machine::new();
        let file = machine.path("wakes.csv");
        let mut running =
            machine.start(&["--target", "2", "--samples", file.to_str().unwrap(), "--state", "C1"]);
        running.request().unwrap();
        assert_eq!(machine.disabled(2), "101");
        let process = running.child.id().to_string();
        // Use the shell's kill, because not every machine has a program of that name.
        let script = format!("kill {signal} {process}");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        running.answer(&samples(2, 10, 0));
        let output = running.answer_all(0);
        assert_eq!(output.status.code(), Some(130));
        let message = text(&output.stderr);
        assert!(message.contains("stopped before the end") && message.lines().count() == 1);
        assert!(output.stdout.is_empty() && !file.exists());
        assert_eq!(machine.disabled(2), "001");
    }
}

#[test]
fn says_what_to_write_where_it_can_not_restore() {
    let machine = Machine::new();
    let mut running = machine.start(&["--target", "1", "--state", "POLL"]);
    running.request().unwrap();
    // No link is followed, so this cannot be written even by root.
    let file = machine.path(&format!("{CPUS}/cpu1/cpuidle/state1/disable"));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    running.answer("cut");
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.trim_end().ends_with(&format!("echo 0 > {}", file.display())), "{message}");
}

/// What a measurement prints that `end` ended during its third answer, with what was measured and the exit status.
/// `None` if something ended it before that.
fn cut_short(end: impl FnOnce(&Running<'_>), more: &[&str], status: i32) -> Option<String> {
    let machine = Machine::new();
    let options = ["--target", "2,1", "--count", "1000000"];
    let mut running = machine.start(&[&options[..], more].concat());
    // POLL of CPU 2 is asked for in parts. The first answer is the warm-up.
    let mut end = Some(end);
    let mut measured_count = 0;
    let mut answer_count = 0;
    while let Some([_, target, wake_count, _]) = running.request() {
        assert_eq!(target, 2);
        running.enter(target, wake_count);
        running.answer(&samples(target, wake_count, 0));
        answer_count += 1;
        measured_count += if answer_count > 1 { wake_count } else { 0 };
        if answer_count == 3 {
            end.take().unwrap()(&running);
        }
    }
    let output = running.end();
    assert!((0..4).all(|cpu| machine.disabled(cpu) == "001"));
    if answer_count < 3 {
        return None;
    }
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("takes 800 s at least; ctrl-c ends it early"), "{said}");
    let shown = text(&output.stdout);
    assert!(shown.contains("POLL"), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let doubt = format!(
        "ended it early: 1 of 4 states of CPUs were measured, the last one by {measured_count} of 1000000 wakes"
    );
    assert!(words.contains(&doubt), "{words:?} has no {doubt:?}");
    Some(words)
}

#[test]
fn what_was_measured_before_a_signal_is_printed() {
    let interrupt = |running: &Running<'_>| {
        let script = format!("kill -INT {}", running.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    };
    assert!(cut_short(interrupt, &[], 130).unwrap().contains("a signal ended it early"));
}

#[test]
fn what_was_measured_within_the_time_limit_is_printed() {
    // A quick machine waits until the time is over. A busy one, which used it up before, gets more.
    let cut_after = |seconds: u64| {
        let since = Instant::now();
        let limit = Duration::from_secs(seconds);
        let wait = |_: &Running<'_>| {
            while since.elapsed() < limit {
                std::thread::park_timeout(limit);
            }
        };
        cut_short(wait, &["--time-limit", &seconds.to_string()], 0)
    };
    let words = [1, 8, 64].into_iter().find_map(cut_after).unwrap();
    assert!(words.contains("the time limit ended it early"));
    let machine = Machine::new();
    for bad in ["0", "-1", "x", "inf"] {
        assert_eq!(crate::failure(&machine.arguments(&["--time-limit", bad])).0, Some(2), "{bad}");
    }
}

#[test]
fn a_target_that_never_idles_is_not_waited_for() {
    let machine = Machine::new();
    let mut running = machine.start(&["--target", "1"]);
    while let Some([_, target, wake_count, _]) = running.request() {
        running.answer(&samples(target, 0, wake_count));
    }
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("CPU 1 did not go idle in"), "{message}");
    assert_eq!(machine.disabled(1), "001");
}
