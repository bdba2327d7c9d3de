//! Runs the instruction paths on CPUs that lack the instructions: the library's own machine code, encodings
//! and flag handling, with an emulator in a signal handler. Instructions that do not trap are first run
//! natively, whether CPUID shows them or not, and then emulated all the same.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]

mod machine;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idlewise_core::Doorbell;
use idlewise_park::wait::mwaitx::{self, Mwaitx};
use idlewise_park::wait::waitpkg::{self, Tpause, Umwait};
use idlewise_park::wait::{Method, WFET_X0, WaitMethod, monitor_lasts, trust_again};
use idlewise_park::{ParkOutcome, Parker, WaitTable};
use machine::{Instruction, LOG};

/// The emulator's settings and counters are per process, so tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn with_emulator(test: impl FnOnce()) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine::install();
    // The deadlines of these instructions are counter readings on every machine.
    idlewise_park::wait::trust_counter();
    machine::OS_BOUND_TICKS.store(0, Ordering::Relaxed);
    machine::SPURIOUS_EVERY.store(0, Ordering::Relaxed);
    trust_again();
    test();
    assert_eq!(LOG.faults.load(Ordering::Relaxed), 0, "operands that raise #GP");
}

/// A table of states that are emulated or that this CPU has.
fn emulated(states: &str) -> WaitTable {
    // SAFETY: every test that calls this has installed the emulator.
    unsafe { WaitTable::unchecked(states) }
}

fn umwait(is_c01: bool) -> Umwait {
    // SAFETY: as above.
    unsafe { Umwait::assume_available(is_c01) }
}

fn tpause() -> Tpause {
    // SAFETY: as above.
    unsafe { Tpause::assume_available() }
}

fn mwaitx() -> Mwaitx {
    // SAFETY: as above.
    unsafe { Mwaitx::assume_available() }
}

/// Makes threads wait with an emulated instruction until each counted case has happened. If it does not
/// trap, the threads wait natively, and then the methods are single-stepped.
fn play(instruction: Instruction, tables: &[&str], ways: &[(&AtomicU64, &dyn WaitMethod)]) {
    let does_trap = machine::traps(instruction);
    let play_tables = || tables.iter().for_each(|states| play_ping_pong(states, 500));
    if !does_trap {
        println!("{instruction:?} does not trap here: it runs as this CPU does it, then emulated");
        play_tables();
    }
    let counted = || ways.iter().map(|(count, _)| count.load(Ordering::Relaxed));
    let before: Vec<_> = counted().collect();
    let are_counted = || counted().zip(&before).all(|(after, before)| after > *before);
    // Threads that get no CPU find the ring there and do not wait.
    let is_played = (0..100).any(|_| {
        if does_trap {
            // A slow machine misses so many rings that it distrusts the monitor.
            trust_again();
            play_tables();
        }
        // Where a signal takes longer than a wait may, the library arms the monitor and never waits.
        if !are_counted() {
            ways.iter().for_each(|(_, method)| ring_in_turns(*method, 50, !does_trap));
        }
        are_counted()
    });
    assert!(is_played, "{LOG:?}");
}

/// Two threads ring each other's doorbells, waiting with a single method, which has to be stepped where it does not trap.
fn ring_in_turns(method: &dyn WaitMethod, rounds: u32, is_stepped: bool) {
    let bells = [Doorbell::new(), Doorbell::new()];
    let wait = |bell: &Doorbell| {
        if bell.start_polling() {
            while !bell.is_rung() {
                let wait = || method.wait(bell, None);
                if is_stepped { machine::step(wait) } else { wait() }
            }
        }
        assert!(bell.take());
    };
    std::thread::scope(|scope| {
        let (bells, wait) = (&bells, &wait);
        scope.spawn(move || {
            for _ in 0..rounds {
                wait(&bells[1]);
                let _ = bells[0].ring();
            }
        });
        for _ in 0..rounds {
            let _ = bells[1].ring();
            wait(&bells[0]);
        }
    });
}

/// Two threads wake each other many times, both waiting in this state only.
fn play_ping_pong(states: &str, rounds: u32) {
    let parker = || {
        // No sleep meets this limit, so the first state is the only one.
        Parker::builder().table(emulated(states)).latency_limit_ns(2_000).build()
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
            // A CPU that ignores the instruction is found out, once.
            assert_eq!(stats.entered[0], stats.waits + stats.promotions);
            assert!(stats.promotions <= 1, "{stats:?}");
            assert_eq!(stats.store_wakes, stats.waits);
        }
        let waits: u64 = stats.iter().map(|stats| stats.waits).sum();
        assert!(waits > 0, "no wait in {rounds} rounds");
    });
}

#[test]
fn stores_end_umwait_in_both_depths() {
    with_emulator(|| {
        machine::SPURIOUS_EVERY.store(7, Ordering::Relaxed);
        let tables = ["umwait-c01,futex", "umwait-c02,futex"];
        let (c01, c02) = (umwait(true), umwait(false));
        let ways: [(&_, &dyn WaitMethod); 3] =
            [(&LOG.umonitor, &c01), (&LOG.umwait_c01, &c01), (&LOG.umwait_c02, &c02)];
        play(Instruction::Umwait, &tables, &ways);
    });
}

#[test]
fn stores_end_mwaitx() {
    with_emulator(|| {
        machine::SPURIOUS_EVERY.store(7, Ordering::Relaxed);
        let method = mwaitx();
        let ways: [(&_, &dyn WaitMethod); 2] = [(&LOG.monitorx, &method), (&LOG.mwaitx, &method)];
        play(Instruction::Mwaitx, &["mwaitx,futex"], &ways);
    });
}

#[test]
fn tpause_looks_again() {
    with_emulator(|| play(Instruction::Tpause, &["tpause,futex"], &[(&LOG.tpause, &tpause())]));
}

#[test]
fn deadlines_end_every_instruction() {
    with_emulator(|| {
        for states in ["umwait-c01,futex", "umwait-c02,futex", "mwaitx,futex", "tpause,futex"] {
            let table = emulated(states);
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
        // A thread that gets no CPU for the whole wait sees its deadline first, so try again.
        let is_promoted = (0..200).any(|_| {
            let parker = Parker::builder().table(emulated("umwait-c02,futex")).build();
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
        let counted = |wait: &dyn Fn()| {
            let before = waitpkg::os_bound_count();
            machine::step(wait);
            waitpkg::os_bound_count() - before
        };
        machine::OS_BOUND_TICKS.store(1_000, Ordering::Relaxed);
        assert_eq!(counted(&|| umwait(true).wait(&bell, None)), 1);
        assert_eq!(counted(&|| umwait(false).wait(&bell, None)), 1);
        machine::OS_BOUND_TICKS.store(0, Ordering::Relaxed);
        assert_eq!(counted(&|| umwait(true).wait(&bell, Some(0))), 0, "the deadline");
        assert_eq!(counted(&|| tpause().wait(&bell, None)), 0, "the rest");
    });
}

#[test]
fn a_ring_before_the_monitor_is_armed_is_not_slept_over() {
    with_emulator(|| {
        let bell = Doorbell::new();
        assert!(bell.start_polling());
        let _ = bell.ring();
        // None of these has a deadline, so missing the ring would hang.
        umwait(true).wait(&bell, None);
        mwaitx().wait(&bell, None);
        tpause().wait(&bell, None);
        assert!(bell.take());
    });
}

/// The library's clock reads the time stamp counter. Here that is trapped, and jumps in the middle of a
/// wait, as after a suspend or a migration. Deadlines follow the OS's clock.
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
        // Runs `then` after the jump. Returns what ended the wait, and whether its time had come.
        let jump = |parker: &Parker,
                    readings: u64,
                    ticks: i64,
                    timeout: Duration,
                    then: &(dyn Fn() + Sync)| {
            let (before, start) = (LOG.rdtsc.load(Ordering::Relaxed), Instant::now());
            let outcome = std::thread::scope(|scope| {
                scope.spawn(move || {
                    // At different moments of the wait, some of them before it begins.
                    while LOG.rdtsc.load(Ordering::Relaxed) < before + readings {
                        std::thread::yield_now();
                    }
                    machine::TSC_OFFSET.fetch_add(ticks, Ordering::Relaxed);
                    then();
                });
                parker.park_timeout(timeout)
            });
            (outcome, start.elapsed() >= timeout)
        };
        // A waiter has read the counter four times before it waits.
        for (parker, readings) in
            [&spin, &sleep].into_iter().flat_map(|p| (1..=4).map(move |n| (p, n)))
        {
            let unparker = parker.unparker();
            let unpark = || {
                (0..5_000).for_each(|_| std::thread::yield_now());
                unparker.unpark();
            };
            let (long, short) = (Duration::from_secs(1200), Duration::from_millis(20));
            let jump = |ticks, timeout, then: &(dyn Fn() + Sync)| {
                jump(parker, readings, ticks, timeout, then)
            };
            assert_eq!(
                jump(1 << 44, long, &unpark),
                (ParkOutcome::Woken, false),
                "ahead {readings}"
            );
            for (ticks, name) in [(-1 << 45, "back"), (1 << 44, "ahead")] {
                let ended = jump(ticks, short, &|| {});
                assert_eq!(ended, (ParkOutcome::TimedOut, true), "{name} {readings}");
            }
        }
        machine::trap_tsc(false);
        machine::TSC_OFFSET.store(0, Ordering::Relaxed);
    });
}

/// Runs with a counter that advances by readings, not by time. `false`: the kernel refuses the trap.
fn with_manual_clock(action: impl FnOnce()) -> bool {
    if !machine::trap_tsc(true) {
        println!("SKIPPED: the kernel does not let RDTSC trap");
        return false;
    }
    machine::MANUAL_TICKS.store(machine::ticks(), Ordering::Relaxed);
    action();
    machine::MANUAL_TICKS.store(0, Ordering::Relaxed);
    machine::trap_tsc(false)
}

/// The check before a monitored state is used.
#[test]
fn a_monitor_is_tried_before_it_is_trusted() {
    with_emulator(|| {
        for method in [Method::UmwaitC01, Method::UmwaitC02, Method::Mwaitx] {
            for (spurious_every, expected) in [(0, true), (1, false)] {
                machine::SPURIOUS_EVERY.store(spurious_every, Ordering::Relaxed);
                with_manual_clock(|| {
                    // SAFETY: the emulator is installed.
                    let does_last = || unsafe { monitor_lasts(method) };
                    assert_eq!(machine::step(does_last), expected, "{method:?} {spurious_every}");
                });
            }
        }
    });
}

/// The OS, the hypervisor or a microcode update disables monitoring while the process runs.
#[test]
fn a_monitor_that_is_switched_off_is_used_no_more() {
    with_emulator(|| {
        if !machine::traps(Instruction::Umwait) {
            println!("SKIPPED: UMWAIT does not trap here: it would not be the emulator's");
            return;
        }
        let parker =
            Parker::builder().table(emulated("umwait-c01,futex")).cpu_budget_permille(1000).build();
        // No sleep is this fast.
        let limited =
            Parker::builder().table(emulated("umwait-c01,futex")).latency_limit_ns(2_000).build();
        with_manual_clock(|| {
            let timeout = Duration::from_micros(20);
            limited.park_timeout(timeout);
            assert!(limited.table().doubts().is_empty());
            machine::SPURIOUS_EVERY.store(1, Ordering::Relaxed);
            let is_dropped = (0..100).any(|_| {
                limited.park_timeout(timeout);
                !limited.table().doubts().is_empty()
            });
            assert!(is_dropped);
            let doubts = limited.table().doubts().join(", ");
            assert!(doubts.starts_with("umwait-c01: not used any more"), "{doubts}");
            // Another parker knows it too.
            let before = LOG.umwait_c01.load(Ordering::Relaxed);
            parker.park_timeout(timeout);
            assert_eq!(LOG.umwait_c01.load(Ordering::Relaxed), before);
        });
        trust_again();
    });
}

/// GNU's assembly of an instruction, as objdump prints it; `None` without a GNU assembler.
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

/// The encodings of the library's assembler are the same as GNU's.
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

/// The executed bytes are those that the assembler was asked about, whether they trap or not.
#[test]
fn executed_bytes_are_the_listed_encodings() {
    with_emulator(|| {
        let bell = Doorbell::new();
        assert!(bell.start_polling());
        // Nobody rings, so make waits end at once, as if interrupted.
        machine::SPURIOUS_EVERY.store(1, Ordering::Relaxed);
        LOG.bytes.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
        machine::step(|| {
            umwait(true).wait(&bell, Some(0));
            tpause().wait(&bell, Some(0));
            mwaitx().wait(&bell, Some(u64::MAX));
        });
        let executed = |kind: usize| LOG.bytes[kind].load(Ordering::Relaxed).to_le_bytes();
        for (kind, (text, expected)) in
            [0, 1, 3, 4, 5].into_iter().zip(waitpkg::ENCODINGS.iter().chain(&mwaitx::ENCODINGS))
        {
            assert!(executed(kind).starts_with(expected), "{text}: {:x?}", executed(kind));
        }
    });
}
