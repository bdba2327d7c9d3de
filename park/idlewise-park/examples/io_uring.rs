//! An event loop on io_uring (Linux 6.7). One call waits for its bell and for a futex word whose wakers do
//! not know about the bell (`IORING_OP_FUTEX_WAIT`). The loop polls for both before it blocks.
//!
//! `cargo run --release --package idlewise-park --example io_uring`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use idlewise_park::{EventBell, word};
    use io_uring::{IoUring, Probe, opcode, squeue, types};

    const ROUNDS: u32 = 1_000;
    /// What a completion is for.
    const BELL: u64 = 1;
    const WORD: u64 = 2;

    // From linux/futex.h: a 32-bit word, private to the process, for any waker.
    const FUTEX2_SIZE_U32: u32 = 0x02;
    const FUTEX2_PRIVATE: u32 = 128;
    const FUTEX_BITSET_MATCH_ANY: u64 = 0xffff_ffff;

    /// Creates a ring with what the loop needs. The error says why there is none.
    fn ring() -> Result<IoUring, String> {
        let ring = IoUring::new(8).map_err(|error| format!("no io_uring here: {error}"))?;
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe);
        probed.map_err(|error| format!("this kernel's io_uring can't be asked: {error}"))?;
        if probe.is_supported(opcode::FutexWait::CODE) {
            Ok(ring)
        } else {
            Err("this kernel's io_uring has no IORING_OP_FUTEX_WAIT (6.7 has)".to_owned())
        }
    }

    fn submit(ring: &mut IoUring, entry: &squeue::Entry) {
        // SAFETY: the entries point to the bell's descriptor and to a static word, which outlive the ring.
        unsafe { ring.submission().push(entry) }.expect("room for two entries");
    }

    /// Other threads write a request's number here and wake whoever sleeps on it.
    static REQUEST: AtomicU32 = AtomicU32::new(0);
    /// Work that other threads announce by ringing the bell.
    static WORK: AtomicU32 = AtomicU32::new(0);

    pub fn run() -> io::Result<String> {
        let mut ring = match ring() {
            Ok(ring) => ring,
            Err(why) => return Ok(format!("SKIPPED: {why}")),
        };
        let mut bell = EventBell::new()?;
        let bell_fd = types::Fd(bell.as_raw_fd());
        let unparker = bell.unparker();
        let ringer = std::thread::spawn(move || {
            for n in 1..=ROUNDS {
                WORK.store(n, Ordering::Relaxed);
                unparker.unpark().expect("the loop reads its eventfd");
            }
        });
        let requester = std::thread::spawn(|| {
            for n in 1..=ROUNDS {
                REQUEST.store(n, Ordering::Release);
                word::wake_one(&REQUEST);
            }
        });

        let (mut request, mut work, mut blocked_count) = (0, 0, 0);
        let (mut is_bell_watched, mut is_word_watched) = (false, false);
        while request < ROUNDS || work < ROUNDS {
            if !is_bell_watched {
                let readable = libc::POLLIN as u32;
                submit(&mut ring, &opcode::PollAdd::new(bell_fd, readable).build().user_data(BELL));
                is_bell_watched = true;
            }
            if !is_word_watched {
                // Completes at once (EAGAIN) if the word has changed since it was read.
                let (word, expected) = (REQUEST.as_ptr(), u64::from(request));
                let flags = FUTEX2_SIZE_U32 | FUTEX2_PRIVATE;
                let wait = opcode::FutexWait::new(word, expected, FUTEX_BITSET_MATCH_ANY, flags);
                submit(&mut ring, &wait.build().user_data(WORD));
                is_word_watched = true;
            }
            ring.submit()?;

            // The look loads two words that the kernel writes. A ring created with
            // IORING_SETUP_COOP_TASKRUN or DEFER_TASKRUN would have to enter the kernel for it.
            let is_asleep = bell.poll(|| !ring.completion().is_empty()).is_asleep();
            if is_asleep {
                blocked_count += 1;
                match ring.submit_and_wait(1) {
                    // After a signal: call `wake_up` and wait again.
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                    _ => {}
                }
            }
            if bell.wake_up() {
                work = WORK.load(Ordering::Relaxed);
            }
            for completion in ring.completion() {
                match completion.user_data() {
                    // An io_uring poll ends after one completion. `wake_up` reads the eventfd.
                    BELL => is_bell_watched = false,
                    _ => is_word_watched = false,
                }
                let result = completion.result();
                if result < 0 && result != -libc::EAGAIN {
                    return Err(io::Error::from_raw_os_error(-result));
                }
            }
            if !is_word_watched {
                request = REQUEST.load(Ordering::Acquire);
            }
        }
        ringer.join().expect("a thread that does not panic");
        requester.join().expect("a thread that does not panic");
        assert!(blocked_count <= bell.stats().waits, "a block is a wait");
        Ok(format!("{request} requests by the word, {work} rings"))
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    match linux::run() {
        Ok(told) => println!("{told}"),
        Err(error) => {
            println!("io_uring: {error}");
            std::process::exit(1);
        }
    }
    #[cfg(not(target_os = "linux"))]
    println!("SKIPPED: io_uring is Linux's");
}
