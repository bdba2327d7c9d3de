//! What a parker guarantees, whatever happens to real threads.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_park::{ParkOutcome, Parker, Unparker, WaitTable};

/// Tables that work everywhere, and together take each path through the idle loop.
const TABLES: [&str; 3] = ["spin,condvar", "condvar", HOST];
#[cfg(target_os = "linux")]
const HOST: &str = "futex";
#[cfg(not(target_os = "linux"))]
const HOST: &str = "spin,condvar";

fn parkers() -> impl Iterator<Item = Parker> {
    let mut tables = Vec::from(TABLES.map(|list| WaitTable::assumed(list).unwrap()));
    if cfg!(target_arch = "aarch64") {
        // Every such CPU has WFE, and its emulator makes waits end spuriously.
        // SAFETY: as above.
        tables.push(unsafe { WaitTable::unchecked("wfe,condvar") });
    }
    tables.into_iter().map(|table| Parker::builder().table(table).build())
}

#[test]
fn a_token_is_one_however_often_it_is_left() {
    for parker in parkers() {
        assert_eq!(parker.park_timeout(Duration::ZERO), ParkOutcome::TimedOut);
        parker.unparker().unpark();
        parker.unparker().unpark();
        parker.park();
        assert_eq!(parker.park_timeout(Duration::from_micros(10)), ParkOutcome::TimedOut);
        assert_eq!(parker.stats().free_rides, cfg!(feature = "free-rides").then_some(1));
    }
}

#[test]
fn a_deadline_in_the_past_takes_only_a_token_that_is_there() {
    let past = Instant::now();
    for parker in parkers() {
        assert_eq!(parker.park_deadline(past), ParkOutcome::TimedOut);
        parker.unparker().unpark();
        assert_eq!(parker.park_deadline(past), ParkOutcome::Woken);
        let soon = Instant::now() + Duration::from_micros(50);
        assert_eq!(parker.park_deadline(soon), ParkOutcome::TimedOut);
        assert!(Instant::now() >= soon);
    }
}

#[test]
fn a_timeout_beyond_all_clocks_is_none() {
    for parker in parkers() {
        let unparker = parker.unparker().clone();
        thread::scope(|scope| {
            scope.spawn(move || unparker.unpark());
            assert_eq!(parker.park_timeout(Duration::MAX), ParkOutcome::Woken);
        });
    }
}

/// A parker and an unparker can be used wherever crossbeam's can.
#[test]
fn can_be_sent_shared_and_caught_as_crossbeams() {
    fn parker_is<T: Send + Unpin + UnwindSafe + RefUnwindSafe>() {}
    fn unparker_is<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Clone>() {}
    parker_is::<crossbeam_utils::sync::Parker>();
    parker_is::<Parker>();
    unparker_is::<crossbeam_utils::sync::Unparker>();
    unparker_is::<Unparker>();
    // For Parker not being Sync, see the compile_fail test in `Parker`'s docs.
}

#[test]
fn an_unparker_may_cross_a_panic() {
    for parker in parkers() {
        let unparker = parker.unparker().clone();
        std::panic::catch_unwind(|| {
            unparker.unpark();
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .unwrap_err();
        parker.park();
    }
}

/// A parker reports the same settings before and after its first wait.
#[test]
fn settings_hold_from_the_first_wait_on() {
    let table = WaitTable::assumed("condvar").unwrap();
    let parker = Parker::builder().table(table).build();
    assert_eq!(
        parker.stats(),
        idlewise_park::WaitStats {
            free_rides: cfg!(feature = "free-rides").then_some(0),
            ..Default::default()
        }
    );
    assert_eq!(parker.table().states().len(), 1);
    // A thread that gets no CPU may find its deadline already past, and so enter no state.
    while parker.stats().entered[0] == 0 {
        parker.park_timeout(Duration::from_micros(100));
    }
    assert_eq!(parker.table().states().len(), 1);
    assert!(parker.stats().entered[0] <= parker.stats().waits);
}

/// The thread and its parker are gone while others still wake it.
#[test]
fn a_waiter_may_go_while_it_is_woken() {
    let rounds = if cfg!(miri) { 20 } else { 300 };
    for round in 0..rounds {
        for parker in parkers() {
            let unparkers = [parker.unparker().clone(), parker.unparker().clone()];
            let waiter = thread::spawn(move || {
                if round % 2 == 0 {
                    parker.park();
                }
            });
            let wakers = unparkers.map(|unparker| thread::spawn(move || unparker.unpark()));
            waiter.join().unwrap();
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
        }
    }
}

#[test]
fn no_budget_means_no_polling() {
    let table = WaitTable::assumed("spin,condvar").unwrap();
    let parker = Parker::builder().table(table).cpu_budget_permille(0).build();
    for _ in 0..20 {
        parker.park_timeout(Duration::from_micros(200));
    }
    let stats = parker.stats();
    // The initial balance is soon used up.
    assert!(stats.entered[1] > stats.entered[0], "{stats:?}");
}

#[test]
fn a_latency_limit_that_no_sleep_keeps_means_polling() {
    let table = WaitTable::assumed("spin,condvar").unwrap();
    let parker = Parker::builder().table(table).latency_limit_ns(1_000).build();
    // A thread that gets no CPU may find its deadline already past, and so enter no state.
    while parker.stats().entered.iter().sum::<u64>() < 20 {
        parker.park_timeout(Duration::from_micros(200));
    }
    assert_eq!(parker.stats().entered[1], 0, "{:?}", parker.stats());
}

/// Runs more threads that wait now and then, and run otherwise, than there are CPUs.
#[test]
fn more_runnable_threads_than_cpus_do_not_poll() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let table = WaitTable::assumed("spin,condvar").unwrap();
    let parker = || Parker::builder().table(table.clone()).build();
    let is_over = AtomicBool::new(false);
    let stats = thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| {
                let parker = parker();
                while !is_over.load(Ordering::Relaxed) {
                    parker.park_timeout(Duration::from_micros(1));
                    (0..1_000).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        let parker = parker();
        // A thread that gets no CPU may find its deadline already past.
        while parker.stats().oversubscribed == 0 {
            parker.park_timeout(Duration::from_micros(100));
        }
        is_over.store(true, Ordering::Relaxed);
        parker.stats()
    });
    let sleeps = stats.entered[1];
    assert!(stats.oversubscribed <= sleeps && sleeps <= stats.waits, "{stats:?}");
}

/// With a limit that no sleep meets, it polls even in a crowd, and its deadline still ends the wait.
#[test]
fn a_latency_limit_is_kept_in_a_crowd() {
    let table = WaitTable::assumed("spin,condvar").unwrap();
    let parkers = (0..64).map(|_| {
        Parker::builder()
            .table(table.clone())
            .latency_limit_ns(1_000)
            .cpu_budget_permille(0)
            .build()
    });
    // The first wait of each, with polling switched off.
    for parker in parkers {
        for _ in 0..20 {
            assert_eq!(parker.park_timeout(Duration::from_micros(20)), ParkOutcome::TimedOut);
        }
        assert_eq!(parker.stats().entered[1], 0);
    }
}

/// A budget of a hundredth limits all polling beyond what a sleep would have cost: no wait polls once it is used up. A
/// poll may take longer than planned if its thread gets no CPU. If others need the CPUs, there is hardly any polling to
/// limit: then `a_budget_is_a_share_of_time` and `gaps_of_50_us_cost_a_quarter_of_a_cpu_at_most`, in virtual time, show as much.
#[test]
fn a_budget_is_kept() {
    /// The initial balance.
    const SAVED_NS: u64 = 1_000_000;
    /// What a sleep costs the sleeper.
    const FREE_NS: u64 = 6_000;
    let mut states = WaitTable::assumed("spin,condvar").unwrap().states().to_vec();
    // Half of it is the sleeper's own.
    states[1].transition_ns = 2 * FREE_NS;
    let table = WaitTable::new(&states).unwrap();
    let start = Instant::now();
    let parker = Parker::builder().table(table).cpu_budget_permille(10).build();
    let mut is_spent = false;
    for _ in 0..20_000 {
        let before = parker.stats();
        let before_ns = before.residency_ns[0].saturating_sub(before.entered[0] * FREE_NS);
        // Deadlines this short are not worth a sleep, except for the budget: a poll ends a little after its deadline.
        parker.park_timeout(Duration::from_nanos(FREE_NS));
        let earned_ns = start.elapsed().as_nanos() as u64 / 100;
        if parker.stats().residency_ns[0] > before.residency_ns[0] {
            // The two clocks agree to a hundredth.
            let most_ns = SAVED_NS + earned_ns + earned_ns / 100;
            assert!(before_ns <= most_ns, "polled for {before_ns} of {most_ns} ns, and again");
        }
        is_spent |= before_ns > SAVED_NS;
        if is_spent && earned_ns > SAVED_NS {
            break;
        }
    }
}

#[cfg(unix)]
mod unix {
    use super::*;

    extern "C" fn on_signal(_: libc::c_int) {}

    /// Signals interrupt the sleep (EINTR) and change nothing else.
    #[test]
    fn signals_do_not_end_a_wait() {
        // SAFETY: a handler that does nothing, without SA_RESTART.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        for parker in parkers() {
            let unparker = parker.unparker().clone();
            let (is_rung, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
            // SAFETY: no arguments.
            let waiter = unsafe { libc::pthread_self() };
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // SAFETY: the waiter lives until the scope ends.
                        unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                        thread::yield_now();
                    }
                    is_rung.store(true, Ordering::Relaxed);
                    unparker.unpark();
                    while !is_done.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                });
                parker.park();
                assert!(is_rung.load(Ordering::Relaxed), "woken by nobody");
                is_done.store(true, Ordering::Release);
            });
        }
    }

    /// A child has its parent's parkers but no other threads. Its waits work.
    #[test]
    fn a_forked_child_can_wait() {
        for parker in parkers() {
            // The first wait allocates.
            parker.park_timeout(Duration::from_micros(10));
            parker.unparker().unpark();
            // SAFETY: the child only calls functions that neither allocate nor take a lock that another
            // thread may hold: it parks and exits.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                parker.park();
                let timed_out = parker.park_timeout(Duration::from_micros(200));
                parker.unparker().unpark();
                let woken = parker.park_timeout(Duration::from_secs(60));
                let is_right = !timed_out.is_woken() && woken.is_woken();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: writes `status`.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child");
            parker.park();
        }
    }

    const CHILD: &str = "IDLEWISE_PARK_TEST_CHILD";

    /// A process that is stopped and continued at arbitrary moments loses no wake-up.
    #[test]
    fn a_process_may_be_frozen_and_continued() {
        if std::env::var_os(CHILD).is_some() {
            return ping_pong(2_000);
        }
        // Under an emulator the child needs one too: Cargo's runner.
        let runner = std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
        let runner = runner.ok().filter(|_| cfg!(target_arch = "aarch64")).unwrap_or_default();
        let mut words: Vec<_> = runner.split_whitespace().map(std::ffi::OsString::from).collect();
        words.push(std::env::current_exe().unwrap().into());
        let mut child = std::process::Command::new(&words[0])
            .args(&words[1..])
            .args(["--exact", "unix::a_process_may_be_frozen_and_continued"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as libc::pid_t;
        let mut freezes = 0;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            // SAFETY: our own child, which is not reaped yet.
            unsafe {
                libc::kill(pid, libc::SIGSTOP);
                thread::yield_now();
                libc::kill(pid, libc::SIGCONT);
            }
            freezes += 1;
            // Let it make progress: a process that is always stopped never ends.
            (0..50).for_each(|_| thread::yield_now());
        };
        assert!(status.success(), "after {freezes} freezes: {status}");
    }

    fn ping_pong(rounds: u32) {
        for (ping, pong) in parkers().zip(parkers()) {
            let (to_ping, to_pong) = (ping.unparker().clone(), pong.unparker().clone());
            let ball = AtomicU32::new(0);
            thread::scope(|scope| {
                let ball = &ball;
                scope.spawn(move || {
                    for round in 0..rounds {
                        pong.park();
                        assert_eq!(ball.load(Ordering::Relaxed), round * 2 + 1);
                        ball.store(round * 2 + 2, Ordering::Relaxed);
                        to_ping.unpark();
                    }
                });
                for round in 0..rounds {
                    ball.store(round * 2 + 1, Ordering::Relaxed);
                    to_pong.unpark();
                    ping.park();
                    assert_eq!(ball.load(Ordering::Relaxed), round * 2 + 2);
                }
            });
        }
    }
}
