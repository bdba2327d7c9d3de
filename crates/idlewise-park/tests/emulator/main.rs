//! The instruction paths, run on CPUs that lack the instructions: the library's own machine code,
//! its encodings and its flag handling, by an emulator in a signal handler. Where they don't trap they
//! run for real, whether CPUID shows them or not.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

mod machine;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idlewise_core::Doorbell;
use idlewise_park::wait::waitpkg::{self, Tpause, Umwait};
use idlewise_park::wait::{WFET_X0, WaitMethod, mwaitx};
use idlewise_park::{ParkOutcome, Parker, WaitTable};
use machine::{Execution, Instruction, LOG};

/// The emulator's settings and counters are the process's: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn with_emulator(test: impl FnOnce()) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine::install();
    // Deadlines of these instructions are the counter's readings, on every machine.
    idlewise_park::wait::trust_counter();
    machine::OS_BOUND_TICKS.store(0, Ordering::Relaxed);
    machine::SPURIOUS_EVERY.store(0, Ordering::Relaxed);
    test();
    assert_eq!(LOG.faults.load(Ordering::Relaxed), 0, "operands that raise #GP");
}

/// Whether it traps here, so that the emulator does it. Says what it does otherwise.
fn is_emulated(instruction: Instruction) -> bool {
    let execution = machine::probe(instruction);
    match execution {
        Execution::Emulated => {}
        Execution::Real => println!("{instruction:?} does not trap here: it ran for real"),
        Execution::Ignored => println!(
            "SKIPPED: {instruction:?} neither traps nor waits here (as in QEMU), so that a store ends \
             it was not shown; that needs a CPU that has it, or one that does not"
        ),
    }
    execution == Execution::Emulated
}

/// Whether the emulator did each of these while the test played, if it traps at all.
fn assert_emulated(instruction: Instruction, counts: &[&AtomicU64], play: impl FnOnce()) {
    let is_emulated = is_emulated(instruction);
    let before: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    play();
    let is_counted = |(count, before): (&&AtomicU64, u64)| count.load(Ordering::Relaxed) > before;
    assert!(!is_emulated || counts.iter().zip(before).all(is_counted), "{LOG:?}");
}

/// Two threads wake each other many times, both waiting in this state only.
fn play_ping_pong(states: &str, rounds: u32) {
    let parker = || {
        // A limit that no sleep keeps: the first state is the only one.
        Parker::builder().table(WaitTable::emulated(states)).latency_limit_ns(2_000).build()
    };
    let (ping, ball) = (parker(), AtomicU32::new(0));
    let ping_unparker = ping.unparker().clone();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let ball = &ball;
        let other = scope.spawn(move || {
            let pong = parker();
            send.send(pong.unparker().clone()).unwrap();
            for round in 0..rounds {
                pong.park();
                assert_eq!(ball.load(Ordering::Relaxed), 2 * round + 1);
                ball.store(2 * round + 2, Ordering::Relaxed);
                ping_unparker.unpark();
            }
            pong.stats()
        });
        let pong = receive.recv().unwrap();
        for round in 0..rounds {
            ball.store(2 * round + 1, Ordering::Relaxed);
            pong.unpark();
            ping.park();
            assert_eq!(ball.load(Ordering::Relaxed), 2 * round + 2);
        }
        let stats = [ping.stats(), other.join().unwrap()];
        for stats in stats {
            assert_eq!(stats.wake_calls, 0, "a store is all that it takes");
            assert_eq!(stats.entered[0], stats.waits);
            assert_eq!(stats.store_wakes, stats.waits);
        }
        let waits: u64 = stats.iter().map(|stats| stats.waits).sum();
        assert!(waits > 0, "no wait in {rounds} rounds");
    });
}

#[test]
fn stores_end_umwait_in_both_depths() {
    with_emulator(|| {
        let counts = [&LOG.umonitor, &LOG.umwait_c01, &LOG.umwait_c02];
        assert_emulated(Instruction::Umwait, &counts, || {
            machine::SPURIOUS_EVERY.store(7, Ordering::Relaxed);
            play_ping_pong("umwait-c01,futex", 500);
            play_ping_pong("umwait-c02,futex", 500);
        });
    });
}

#[test]
fn stores_end_mwaitx() {
    with_emulator(|| {
        assert_emulated(Instruction::Mwaitx, &[&LOG.monitorx, &LOG.mwaitx], || {
            machine::SPURIOUS_EVERY.store(7, Ordering::Relaxed);
            play_ping_pong("mwaitx,futex", 500);
        });
    });
}

#[test]
fn tpause_looks_again() {
    with_emulator(|| {
        assert_emulated(Instruction::Tpause, &[&LOG.tpause], || {
            play_ping_pong("tpause,futex", 500);
        });
    });
}

#[test]
fn deadlines_end_every_instruction() {
    with_emulator(|| {
        for states in ["umwait-c01,futex", "umwait-c02,futex", "mwaitx,futex", "tpause,futex"] {
            let table = WaitTable::emulated(states);
            let parker = Parker::builder().table(table).latency_limit_ns(2_000).build();
            let timeout = Duration::from_micros(300);
            let start = Instant::now();
            assert_eq!(parker.park_timeout(timeout), ParkOutcome::TimedOut, "{states}");
            assert!(start.elapsed() >= timeout, "{states}: too early");
        }
    });
}

#[test]
fn waits_are_promoted_to_the_sleep() {
    with_emulator(|| {
        // A thread that gets no CPU for the whole wait sees its deadline first: try again.
        let is_promoted = (0..200).any(|_| {
            let parker = Parker::builder().table(WaitTable::emulated("umwait-c02,futex")).build();
            parker.park_timeout(Duration::from_millis(5));
            let stats = parker.stats();
            stats.promotions == 1 && stats.entered[..2] == [1, 1]
        });
        assert!(is_promoted, "no wait of 5 ms went on to the sleep");
    });
}

#[test]
fn the_bound_of_the_os_sets_the_carry_flag() {
    with_emulator(|| {
        let bell = Doorbell::new();
        assert!(bell.start_polling());
        if !is_emulated(Instruction::Umwait) {
            let umwait = Umwait { is_c01: true };
            // Interrupts end some of them.
            let is_counted = (0..10_000).any(|_| {
                umwait.wait(&bell, None);
                waitpkg::os_bound_count() > 0
            });
            if !is_counted {
                println!("SKIPPED: the OS bounds no UMWAIT here, or it does not wait");
            }
            return;
        }
        let counted = |wait: &dyn Fn()| {
            let before = waitpkg::os_bound_count();
            wait();
            waitpkg::os_bound_count() - before
        };
        machine::OS_BOUND_TICKS.store(1_000, Ordering::Relaxed);
        assert_eq!(counted(&|| Umwait { is_c01: true }.wait(&bell, None)), 1);
        assert_eq!(counted(&|| Umwait { is_c01: false }.wait(&bell, None)), 1);
        machine::OS_BOUND_TICKS.store(0, Ordering::Relaxed);
        assert_eq!(counted(&|| Umwait { is_c01: true }.wait(&bell, Some(0))), 0, "the deadline");
        assert_eq!(counted(&|| Tpause.wait(&bell, None)), 0, "the rest");
    });
}

#[test]
fn a_ring_before_the_monitor_is_armed_is_not_slept_over() {
    with_emulator(|| {
        let bell = Doorbell::new();
        assert!(bell.start_polling());
        let _ = bell.ring();
        // None of these has a deadline: sleeping over the ring would hang.
        Umwait { is_c01: true }.wait(&bell, None);
        mwaitx::Mwaitx.wait(&bell, None);
        Tpause.wait(&bell, None);
        assert!(bell.take());
    });
}

/// The library's clock reads the time stamp counter; here it is trapped, and jumps in the middle of a
/// wait, as when a machine was suspended or a virtual one moved. Deadlines are the OS's clock's.
#[test]
fn a_counter_that_jumps_moves_no_deadline() {
    with_emulator(|| {
        let spin = WaitTable::assumed("spin,futex").unwrap();
        let spin = Parker::builder().table(spin).latency_limit_ns(0).build();
        let sleep = Parker::builder().table(WaitTable::assumed("futex").unwrap()).build();
        for parker in [&spin, &sleep] {
            parker.unparker().unpark();
            parker.park();
            assert_eq!(parker.park_timeout(Duration::from_micros(1)), ParkOutcome::TimedOut);
        }
        if !machine::trap_tsc(true) {
            println!("SKIPPED: the kernel does not let RDTSC trap");
            return;
        }
        // `then` after the jump; what ended the wait, and whether its time had come.
        let jump = |parker: &Parker, ticks: i64, timeout: Duration, then: &(dyn Fn() + Sync)| {
            let (before, start) = (LOG.rdtsc.load(Ordering::Relaxed), Instant::now());
            let outcome = std::thread::scope(|scope| {
                scope.spawn(move || {
                    while LOG.rdtsc.load(Ordering::Relaxed) < before + 4 {
                        std::thread::yield_now();
                    }
                    machine::TSC_OFFSET.fetch_add(ticks, Ordering::Relaxed);
                    then();
                });
                parker.park_timeout(timeout)
            });
            (outcome, start.elapsed() >= timeout)
        };
        for parker in [&spin, &sleep] {
            let unparker = parker.unparker();
            let unpark = || {
                (0..5_000).for_each(|_| std::thread::yield_now());
                unparker.unpark();
            };
            let long = Duration::from_secs(1200);
            assert_eq!(jump(parker, 1 << 44, long, &unpark), (ParkOutcome::Woken, false), "ahead");
            let short = Duration::from_millis(20);
            let nothing = || {};
            assert_eq!(
                jump(parker, -1 << 45, short, &nothing),
                (ParkOutcome::TimedOut, true),
                "back"
            );
            assert_eq!(
                jump(parker, 1 << 44, short, &nothing),
                (ParkOutcome::TimedOut, true),
                "ahead"
            );
        }
        machine::trap_tsc(false);
        machine::TSC_OFFSET.store(0, Ordering::Relaxed);
    });
}

/// What an assembler of GNU's makes of an instruction, as objdump prints it; `None` if there is none.
fn assemble(prefix: &str, options: &[&str], text: &str) -> Option<String> {
    let (assembler, objdump) = (format!("{prefix}as"), format!("{prefix}objdump"));
    if Command::new(&assembler).arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: no assembler to ask: {assembler} (binutils)");
        return None;
    }
    let name = format!("idlewise-{}-{text}.o", std::process::id()).replace(['%', ' '], "-");
    let object = std::env::temp_dir().join(name);
    let mut child = Command::new(&assembler)
        .args(options)
        .arg("-o")
        .arg(&object)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{text}").unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let dump = Command::new(&objdump).arg("-d").arg(&object).output().unwrap();
    std::fs::remove_file(&object).unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    let line = dump.lines().find_map(|line| line.split_once("   0:\t")).expect("one line").1;
    Some(line.trim_start().to_owned())
}

/// The numbers that the library's assembler chose are those of GNU's.
#[test]
fn encodings_are_those_of_another_assembler() {
    for (text, expected) in waitpkg::ENCODINGS.iter().chain(&mwaitx::ENCODINGS) {
        let hex: Vec<_> = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(line) = assemble("", &["--64"], text) {
            assert!(line.starts_with(&hex.join(" ")), "{text}: {line}");
        }
    }
    if let Some(line) = assemble("aarch64-linux-gnu-", &["-march=armv8.7-a"], "wfet x0") {
        assert!(line.starts_with(&format!("{WFET_X0:08x}")), "{line}");
    }
}

/// What ran is what that assembler was asked about, whether it traps or not.
#[test]
fn executed_bytes_are_the_listed_encodings() {
    with_emulator(|| {
        let bell = Doorbell::new();
        assert!(bell.start_polling());
        // Nobody rings; as if interrupted at once.
        machine::SPURIOUS_EVERY.store(1, Ordering::Relaxed);
        LOG.bytes.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
        machine::step(|| {
            Umwait { is_c01: true }.wait(&bell, Some(0));
            Tpause.wait(&bell, Some(0));
            mwaitx::Mwaitx.wait(&bell, Some(u64::MAX));
        });
        let executed = |kind: usize| LOG.bytes[kind].load(Ordering::Relaxed).to_le_bytes();
        for (kind, (text, expected)) in
            [0, 1, 3, 4, 5].into_iter().zip(waitpkg::ENCODINGS.iter().chain(&mwaitx::ENCODINGS))
        {
            assert!(executed(kind).starts_with(expected), "{text}: {:x?}", executed(kind));
        }
    });
}
