//! Parkers of one word, and sleeping on words, within a process and between two.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_park::{ParkOutcome, RawParker, word};

#[test]
fn is_four_bytes_and_holds_one_token() {
    assert_eq!((size_of::<RawParker>(), align_of::<RawParker>()), (4, 4));
    let parker = RawParker::new();
    assert_eq!(parker.park_timeout(Duration::ZERO), ParkOutcome::TimedOut);
    parker.unpark();
    parker.unpark();
    parker.park();
    assert_eq!(parker.park_timeout(Duration::from_micros(50)), ParkOutcome::TimedOut);
    parker.unpark();
    assert_eq!(parker.park_deadline(Instant::now()), ParkOutcome::Woken);
}

struct Place(*const RawParker);
// SAFETY: the parker lives until it is woken.
unsafe impl Send for Place {}

/// It is on the waiter's stack and gone as soon as the waiter is woken, while its waker may still be in the
/// system call.
#[test]
fn may_be_gone_once_its_waiter_is_woken() {
    let places = std::sync::mpsc::channel::<Place>();
    let (to_waker, from_waiter) = places;
    let waker = thread::spawn(move || {
        for place in from_waiter {
            // SAFETY: it lives until it is woken, and it is woken once.
            unsafe { RawParker::unpark_raw(place.0) };
        }
    });
    for round in 0..if cfg!(miri) { 30 } else { 3_000 } {
        let parker = Box::new(RawParker::new());
        to_waker.send(Place(&raw const *parker)).unwrap();
        if round % 2 == 0 {
            thread::yield_now();
        }
        parker.park();
        drop(parker);
    }
    drop(to_waker);
    waker.join().unwrap();
}

/// Two threads pass a count back and forth, and sometimes give up in between.
#[test]
fn loses_no_wake_up() {
    const ROUNDS: u32 = if cfg!(miri) { 100 } else { 5_000 };
    static PLACES: [RawParker; 2] = [RawParker::new(), RawParker::new()];
    static BALL: AtomicU32 = AtomicU32::new(0);
    let play = |me: usize| {
        for round in 0..ROUNDS {
            let mine = 2 * round + me as u32;
            while BALL.load(Ordering::Relaxed) != mine {
                if round % 3 == 0 {
                    PLACES[me].park_timeout(Duration::from_micros(20));
                } else {
                    let outcome = PLACES[me].park_timeout(Duration::from_secs(60));
                    assert_eq!(outcome, ParkOutcome::Woken, "lost in round {round}");
                }
            }
            BALL.store(mine + 1, Ordering::Relaxed);
            PLACES[1 - me].unpark();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(1));
        play(0);
    });
}

#[test]
fn a_waker_without_references_wakes_it() {
    static PARKER: RawParker = RawParker::new();
    let waker = PARKER.waker();
    assert!(waker.will_wake(&waker.clone()));
    let other = thread::spawn(move || {
        waker.wake_by_ref();
        waker.wake();
    });
    PARKER.park();
    other.join().unwrap();
}

#[test]
fn waits_in_the_destructors_of_a_thread_that_ends() {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            let parker = RawParker::new();
            assert_eq!(parker.park_timeout(Duration::from_micros(50)), ParkOutcome::TimedOut);
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    thread::spawn(|| {
        LAST.set(Some(Last));
        RawParker::new().park_timeout(Duration::from_micros(50));
    })
    .join()
    .unwrap();
}

#[test]
fn a_word_that_has_changed_is_not_slept_on() {
    let word = AtomicU32::new(5);
    word::wait(&word, 4);
    assert!(word::wait_timeout(&word, 4, Duration::from_secs(3600)));
    assert!(!word::wait_timeout(&word, 5, Duration::from_micros(50)));
}

#[test]
fn all_who_sleep_on_a_word_are_woken() {
    let gate = AtomicU32::new(0);
    let turns = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while gate.load(Ordering::Acquire) == 0 {
                    word::wait(&gate, 0);
                }
                // One at a time: each wakes the next.
                while turns.load(Ordering::Acquire) == 0 {
                    word::wait_timeout(&turns, 0, Duration::from_secs(3600));
                }
                word::wake_one(&turns);
            });
        }
        thread::yield_now();
        gate.store(1, Ordering::Release);
        word::wake_all(&gate);
        turns.store(1, Ordering::Release);
        word::wake_one(&turns);
    });
}

#[cfg(target_os = "linux")]
mod processes {
    use super::*;

    use std::os::fd::AsRawFd;
    use std::path::Path;

    use idlewise_park::ProcessParker;

    const CHILD: &str = "IDLEWISE_PARK_TEST_SHARED";
    const ROUNDS: u32 = 3_000;

    /// A page of a file that both processes have mapped.
    struct Page(*mut u32);

    impl Page {
        fn of(path: &Path) -> Self {
            let options = std::fs::OpenOptions::new().read(true).write(true).open(path);
            let file = options.unwrap();
            // SAFETY: a new mapping of a file of that size.
            let address = unsafe {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    access,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(address, libc::MAP_FAILED);
            Page(address.cast())
        }

        fn word(&self, index: usize) -> &AtomicU32 {
            // SAFETY: within the page, which is never unmapped.
            unsafe { AtomicU32::from_ptr(self.0.add(index)) }
        }

        fn parker(&self, index: usize) -> &ProcessParker {
            // SAFETY: within the page, which is never unmapped; all use it as a parker.
            unsafe { ProcessParker::from_ptr(self.0.add(index)) }
        }
    }

    /// Words 0 and 1 are the parkers; word 2 is the ball.
    fn play(page: &Page, me: usize) {
        for round in 0..ROUNDS {
            let mine = 2 * round + me as u32;
            while page.word(2).load(Ordering::Relaxed) != mine {
                let outcome = page.parker(me).park_timeout(Duration::from_secs(60));
                assert_eq!(outcome, ParkOutcome::Woken, "lost in round {round}");
            }
            page.word(2).store(mine + 1, Ordering::Relaxed);
            page.parker(1 - me).unpark();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri starts no processes")]
    fn two_processes_wake_each_other() {
        if let Some(path) = std::env::var_os(CHILD) {
            return play(&Page::of(Path::new(&path)), 1);
        }
        let name = format!("idlewise-park-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0u8; 4096]).unwrap();
        let page = Page::of(&path);
        let mut words: Vec<_> = runner().into_iter().map(std::ffi::OsString::from).collect();
        words.push(std::env::current_exe().unwrap().into());
        let mut child = std::process::Command::new(&words[0])
            .args(&words[1..])
            .args(["--exact", "processes::two_processes_wake_each_other"])
            .env(CHILD, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        play(&page, 0);
        assert!(child.wait().unwrap().success());
        std::fs::remove_file(&path).unwrap();
    }

    /// Under an emulator a child needs one too: Cargo's runner.
    fn runner() -> Vec<String> {
        let runner = std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
        let runner = runner.ok().filter(|_| cfg!(target_arch = "aarch64")).unwrap_or_default();
        runner.split_whitespace().map(str::to_owned).collect()
    }

    /// A word left by a process that was killed while waiting, or that does not know the protocol.
    #[test]
    fn takes_over_whatever_a_word_says() {
        for left in [0, 1, 2, 3, 4, 77, u32::MAX] {
            let mut word = left;
            // SAFETY: a word of ours that nobody else uses.
            let parker = unsafe { ProcessParker::from_ptr(&raw mut word) };
            parker.park_timeout(Duration::from_micros(50));
            assert_eq!(parker.park_timeout(Duration::from_micros(50)), ParkOutcome::TimedOut);
            thread::scope(|scope| {
                scope.spawn(|| parker.unpark());
                parker.park();
            });
        }
    }
}
