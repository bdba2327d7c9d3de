//! The counts of idle states of captured machines, and what is said about CPUs that come and go.

use crate::captured;

use std::time::Duration;

use captured::{CapturedMachine, More, state_file};
use idlewise_host::{Counts, CountsError, CountsReader, Root, Unusable};

const MACHINE: &str = "\
== sys/devices/system/cpu/online
0-2
== sys/devices/system/cpu/cpuidle/current_driver
intel_idle
== proc/uptime
100.00 0.00
== @cpuidle 0-2
name | desc       | latency | residency | disable | usage | time | above | below | rejected
POLL | CORE POLL  | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
C6   | MWAIT 0x20 | 190     | 600       | 0       | 9     | 9000 | 1     | 0     | 0
";

fn open(machine: &CapturedMachine) -> CountsReader {
    CountsReader::open(&Root::at(machine.path()), &[0, 1, 2]).unwrap()
}

#[test]
fn says_what_was_counted_between_two_readings() {
    let machine = CapturedMachine::from_tree(MACHINE);
    let mut reader = open(&machine);
    let (mut before, mut after) = (Counts::default(), Counts::default());
    reader.read(&mut before);
    assert_eq!(before.cpus[2].states[1].time_us, 9_000);
    machine.count(
        "1",
        1,
        More { usage: 100, time_us: 2_000_000, above: 30, below: 2, rejected: 1 },
    );
    machine.write(&state_file(1, 0, "disable"), "1\n");
    machine.pass(4.0);
    reader.read(&mut after);
    let difference = after.since(&before);
    assert_eq!(difference.elapsed, Duration::from_secs(4));
    let cpu = &difference.cpus[1];
    assert_eq!((cpu.cpu, cpu.usage(), cpu.unusable), (1, 100, None));
    let c6 = cpu.states[1];
    assert_eq!((c6.usage, c6.time_us), (100, 2_000_000));
    assert_eq!((c6.above, c6.below, c6.rejected), (Some(30), Some(2), Some(1)));
    assert!(cpu.states[0].is_disabled && cpu.states[0].disabled_changed && !c6.disabled_changed);
    assert_eq!(difference.cpus[0].usage(), 0);
    assert_eq!(reader.states(0)[1].name, "C6");
    assert_eq!(reader.cpus().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn old_kernels_do_not_count_misses() {
    let machine = CapturedMachine::from_tree(MACHINE);
    for name in ["above", "below", "rejected", "disable"] {
        for cpu in 0..3 {
            std::fs::remove_file(machine.path().join(state_file(cpu, 1, name))).unwrap();
        }
    }
    let mut reader = open(&machine);
    let mut counts = Counts::default();
    reader.read(&mut counts);
    let state = counts.cpus[0].states[1];
    assert_eq!(
        (state.above, state.below, state.rejected, state.is_disabled),
        (None, None, None, false)
    );
    assert_eq!(counts.since(&counts).cpus[0].states[1].above, None);
}

#[test]
fn a_cpu_that_comes_or_goes_is_not_judged() {
    let machine = CapturedMachine::from_tree(MACHINE);
    machine.set_online("0-1");
    let mut reader = open(&machine);
    let (mut before, mut after) = (Counts::default(), Counts::default());
    reader.read(&mut before);
    machine.set_online("0,2");
    reader.read(&mut after);
    let unusable = |difference: &idlewise_host::Difference| -> Vec<Option<Unusable>> {
        difference.cpus.iter().map(|cpu| cpu.unusable).collect()
    };
    let difference = after.since(&before);
    assert_eq!(
        unusable(&difference),
        [None, Some(Unusable::WentOffline), Some(Unusable::CameOnline)]
    );
    assert!(difference.cpus[1].states.is_empty());
    machine.set_online("0");
    let (mut early, mut late) = (Counts::default(), Counts::default());
    reader.read(&mut early);
    reader.read(&mut late);
    assert_eq!(late.since(&early).cpus[2].unusable, Some(Unusable::Offline));
}

#[test]
fn counts_that_went_backwards_are_not_used() {
    let machine = CapturedMachine::from_tree(MACHINE);
    let mut reader = open(&machine);
    let (mut before, mut after) = (Counts::default(), Counts::default());
    reader.read(&mut before);
    machine.write(&state_file(1, 1, "usage"), "3\n");
    machine.write(&state_file(2, 1, "time"), "nonsense\n");
    reader.read(&mut after);
    let difference = after.since(&before);
    assert_eq!(difference.cpus[1].unusable, Some(Unusable::WentBackwards));
    assert_eq!(difference.cpus[2].unusable, Some(Unusable::NoStates));
    assert_eq!(difference.cpus[0].unusable, None);
}

#[test]
fn states_that_were_set_up_anew_start_again() {
    let machine = CapturedMachine::from_tree(MACHINE);
    let mut reader = open(&machine);
    let (mut before, mut after, mut last) =
        (Counts::default(), Counts::default(), Counts::default());
    reader.read(&mut before);
    // The kernel removes the files, so the open ones cannot be read any more; and then makes new ones.
    machine.write(&state_file(1, 0, "usage"), "");
    machine.set_up_states_anew(1);
    reader.read(&mut after);
    assert!(after.since(&before).cpus[1].unusable.is_some());
    machine.count("1", 1, More { usage: 5, ..More::default() });
    reader.read(&mut last);
    let cpu = &last.since(&after).cpus[1];
    assert_eq!((cpu.unusable, cpu.usage()), (None, 5));
}

#[test]
fn without_a_driver_it_says_what_to_do() {
    let machine = CapturedMachine::from_tree("== sys/devices/system/cpu/online\n0\n");
    let error = CountsReader::open(&Root::at(machine.path()), &[0]).unwrap_err();
    assert!(matches!(error, CountsError::NoDriver { .. }));
    let text = error.to_string();
    assert!(text.starts_with("no idle driver is active here (none)"), "{text}");
    assert!(text.contains("run it on the host"), "{text}");
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "acpi_idle\n");
    let text = CountsReader::open(&Root::at(machine.path()), &[0, 1]).unwrap_err().to_string();
    assert!(text.starts_with("acpi_idle offers no idle states for CPUs 0-1;"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let text = CountsReader::open(&Root::at(empty.path()), &[0]).unwrap_err().to_string();
    assert!(text.ends_with("is /sys mounted?"), "{text}");
}

/// What changes with `usage` is read when that changes; the rest of each CPU in turns.
#[test]
fn reading_again_sees_what_reading_sees() {
    let machine = CapturedMachine::from_tree(MACHINE);
    let mut reader = open(&machine);
    let (mut again, mut anew) = (Counts::default(), Counts::default());
    reader.read_again(&mut again);
    reader.read(&mut anew);
    assert_eq!(again.cpus, anew.cpus, "the first reads all");
    for round in 1..5 {
        let more = More { usage: round, time_us: 5_000, above: 3, below: 2, rejected: 0 };
        machine.count("0-1", 1, more);
        reader.read_again(&mut again);
        reader.read(&mut anew);
        assert_eq!(again.cpus, anew.cpus);
    }
    machine.count("2", 0, More { rejected: 7, ..More::default() });
    machine.write(&state_file(2, 1, "disable"), "1\n");
    (0..4).for_each(|_| reader.read_again(&mut again));
    reader.read(&mut anew);
    assert_eq!(again.cpus, anew.cpus, "whose turn it is not comes later");
    assert!(again.cpus[2].states[1].is_disabled);
}
