//! The doorbell: one 32-bit word between a waiter and its wakers.
//!
//! A wake-up should cost no more than the waiter's state requires. If the waiter polls the word, or has the
//! CPU monitor its cache line, the store alone wakes it. Only a waiter that sleeps in the kernel needs a
//! system call. While one wake-up is in flight, all others are free. This is what `TIF_POLLING_NRFLAG` does
//! in the kernel's idle loop, with the WAKING to WOKEN window of "Extend mwait idle to optimize away IPIs
//! when possible" (Venkatesh Pallipadi, 2012), for threads.
//!
//! ```text
//!                 1 start_polling           2 fall_asleep
//!      RUNNING ───────────────────► POLLING ─────────────► SLEEPING
//!        ▲ │                           │                       │
//!        │ │ 3 ring                    │ 4 ring                │ 5 ring: owes the system call
//!        │ ▼                           ▼                       ▼
//!        WOKEN ◄───────────────────────┴───────────────────────┘
//!          ⟲ 6 ring: free
//!
//!      WOKEN ── 7 take: woken ──► RUNNING
//!      POLLING, SLEEPING ── 8 take: not woken (deadline, spurious) ──► RUNNING
//! ```
//!
//! Edges 1, 2, 7 and 8 belong to the one waiter, edges 3 to 6 to any number of wakers. After edge 5, the
//! waker that took it owes one system call. The word does not record whether it was made, because nobody
//! needs to know: other wakers ride along in either case, and a waiter that fell asleep and finds WOKEN
//! knows that the ring met it asleep. It need not wait for the call. Whether the call, the deadline or a
//! signal ended its sleep, it takes the ring and runs. A late call wakes nobody, or ends the word's next
//! sleep spuriously. A sleeper that wakes and still finds SLEEPING sleeps again.
//!
//! A ring is a single swap with WOKEN. The value that it replaced tells what the waker still owes.
//!
//! # Guarantees
//!
//! 1. **Work published before `ring` is visible after the `take` that answers it**, even if the ring
//!    was a free one.
//! 2. **No lost wake-up**: after a `ring`, the waiter's current or next wait ends.
//! 3. **No needless system call**: at most one for each time that the waiter fell asleep.
//!
//! # Why these memory orders
//!
//! Every edge is one atomic read-modify-write of the same word. So all threads agree on one order of all
//! edges, whatever their memory orders. Guarantees 2 and 3 need no more than that: `fall_asleep` fails if a
//! ring came before it, a ring after it sees SLEEPING, and at most one ring replaces SLEEPING. The kernel
//! compares the word with SLEEPING under the lock that its wake takes, which covers the time between
//! `fall_asleep` and the sleep. Since there is no second word, no fence between two words is needed.
//!
//! Guarantee 1 needs a release in each `ring` and an acquire in each `take`:
//!
//! - `ring` is **Release** on all its edges. On edge 6 the word does not change, but it is still
//!   written, because a load cannot publish. Without that write, a waiter that takes the earlier ring
//!   and then waits for the next one might not see the free rider's work. All writes between the first
//!   ring and `take` are read-modify-writes. They form one release sequence, so `take` synchronizes
//!   with each of them, not only with the last.
//! - `take` is **Acquire** on both edges, because a waiter that gives up at its deadline may have been
//!   rung just before. It is a swap, because between a load and a store it could overwrite a ring.
//! - `start_polling` and `fall_asleep` are **Relaxed**. They publish nothing, and `take` follows
//!   whatever they read. The same holds for [`Doorbell::is_rung`], the look of a polling waiter.
//!
//! `tests/loom/doorbell.rs` explores all of this, and breaks each of these points in turn.
//!
//! # Known limits
//!
//! There can be only one waiter: of two, each would take rings meant for the other. The type cannot enforce
//! this, so the crates that wait (`idlewise-park`) keep the waiter's side private. Rings are not counted:
//! several before one `take` are one.

use crate::sync::{AtomicU32, Ordering, breaks, order};

const RUNNING: u32 = 0;
const POLLING: u32 = 1;
const SLEEPING: u32 = 2;
const WOKEN: u32 = 3;

/// The state in a doorbell's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DoorbellState {
    /// The waiter runs and has not been rung.
    Running = RUNNING,
    /// The waiter looks at the word or monitors it, so a store wakes it.
    Polling = POLLING,
    /// The waiter sleeps in the kernel, or is about to, so it takes a system call to wake it.
    Sleeping = SLEEPING,
    /// The waiter was rung. If it had fallen asleep, the system call is owed, under way or done.
    Woken = WOKEN,
}

/// What a ring found, and what the waker still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a sleeper stays asleep until the system call is made"]
pub enum Ring {
    /// The waiter runs. Its next wait will end at once.
    Deposited,
    /// The waiter polls. The store has woken it.
    StoreWakes,
    /// The waiter sleeps. This waker, and no other, must make the system call that wakes it.
    MustWake,
    /// An earlier ring has not been answered yet. This one costs nothing more.
    FreeRide,
}

/// The word. The waiter calls `start_polling`, `fall_asleep` and `take`; wakers call `ring`. Its address is
/// the word's address.
#[derive(Debug)]
#[repr(transparent)]
pub struct Doorbell {
    word: AtomicU32,
}

impl Doorbell {
    /// The value of the word while the waiter sleeps. A futex wait must compare with it.
    pub const SLEEPING_WORD: u32 = SLEEPING;
    /// The value of the word while the waiter polls and nobody has rung.
    pub const POLLING_WORD: u32 = POLLING;

    /// Creates a doorbell whose waiter runs.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Doorbell { word: AtomicU32::new(RUNNING) }
    }

    /// Creates a doorbell whose waiter runs.
    #[cfg(loom)]
    pub fn new() -> Self {
        Doorbell { word: AtomicU32::new(RUNNING) }
    }

    /// Returns the word, for code that monitors its cache line or passes its address to the kernel. It must
    /// only be read; the methods write it.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Returns the state, as a hint: it may have changed since.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert_eq!(bell.state(), DoorbellState::Running);
    /// ```
    #[inline]
    pub fn state(&self) -> DoorbellState {
        state_of(self.word.load(Ordering::Relaxed))
    }

    /// Wakes the waiter, now or when it waits next. The waiter then sees everything that the caller wrote
    /// before.
    ///
    /// This is one swap, whatever the waiter does and however many threads ring at once. A load first would
    /// fetch a shared copy of the cache line at an extra cost, and a compare-exchange may need a second
    /// try.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert_eq!(bell.ring(), Ring::Deposited);
    /// assert_eq!(bell.ring(), Ring::FreeRide);
    /// assert!(bell.take() && bell.start_polling());
    /// assert_eq!(bell.ring(), Ring::StoreWakes);
    /// assert!(bell.take() && bell.start_polling() && bell.fall_asleep());
    /// assert_eq!(bell.ring(), Ring::MustWake, "the caller makes the system call");
    /// ```
    #[inline]
    pub fn ring(&self) -> Ring {
        if breaks!(FreeRideOnlyLooks) && self.word.load(Ordering::Relaxed) == WOKEN {
            return Ring::FreeRide;
        }
        // Release: pairs with the Acquire of `take`.
        let release = order!(Release unless RingRelaxed);
        match self.word.swap(WOKEN, release) {
            // 3. RUNNING => WOKEN
            RUNNING => Ring::Deposited,
            // 4. POLLING => WOKEN
            POLLING => Ring::StoreWakes,
            SLEEPING if breaks!(SleeperGetsNoCall) => Ring::StoreWakes,
            // 5. SLEEPING => WOKEN
            SLEEPING => Ring::MustWake,
            // 6. WOKEN => WOKEN, written to publish this waker's work.
            _ => Ring::FreeRide,
        }
    }

    /// Returns whether somebody rang: the look of a polling waiter. Only [`Doorbell::take`] guarantees that
    /// the waker's work is visible.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert!(bell.start_polling() && !bell.is_rung());
    /// bell.ring();
    /// assert!(bell.is_rung());
    /// ```
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.word.load(Ordering::Relaxed) >= WOKEN
    }

    /// Lets a store wake the waiter from here on. Returns `false` if it was rung already; then call `take`.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert!(bell.start_polling());
    /// let rung = Doorbell::new();
    /// rung.ring();
    /// assert!(!rung.start_polling() && rung.take());
    /// ```
    #[inline]
    pub fn start_polling(&self) -> bool {
        // 1. RUNNING => POLLING
        self.word.compare_exchange(RUNNING, POLLING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// From here on wakers make the system call. Returns `false` if the waiter was rung. It must not sleep
    /// then, but call `take`.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert!(bell.start_polling() && bell.fall_asleep());
    /// assert_eq!(bell.word().load(std::sync::atomic::Ordering::Relaxed), Doorbell::SLEEPING_WORD);
    /// ```
    #[inline]
    pub fn fall_asleep(&self) -> bool {
        if breaks!(FallAsleepBlindly) {
            self.word.store(SLEEPING, Ordering::Relaxed);
            return true;
        }
        // 2. POLLING => SLEEPING
        self.word.compare_exchange(POLLING, SLEEPING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends a wait, for whatever reason, so that the waiter runs. Returns `true` if it was rung; it then
    /// sees everything that the wakers wrote before they rang. Returns `false` if it gave up.
    ///
    /// ```
    /// # use idlewise_core::{Doorbell, DoorbellState, Ring};
    /// let bell = Doorbell::new();
    /// assert!(bell.start_polling());
    /// assert!(!bell.take(), "nobody rang");
    /// bell.ring();
    /// assert!(bell.take());
    /// ```
    #[inline]
    pub fn take(&self) -> bool {
        // 7. WOKEN => RUNNING; 8. POLLING, SLEEPING => RUNNING
        // Acquire: pairs with the Release of every `ring` since the last `take`.
        let acquire = order!(Acquire unless TakeRelaxed);
        if breaks!(TakeInTwoSteps) {
            let word = self.word.load(acquire);
            self.word.store(RUNNING, Ordering::Relaxed);
            return word == WOKEN;
        }
        self.word.swap(RUNNING, acquire) >= WOKEN
    }
}

fn state_of(word: u32) -> DoorbellState {
    match word {
        RUNNING => DoorbellState::Running,
        POLLING => DoorbellState::Polling,
        SLEEPING => DoorbellState::Sleeping,
        _ => DoorbellState::Woken,
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn wakers_pay_for_what_the_waiter_does() {
        let bell = Doorbell::new();
        assert_eq!(bell.ring(), Ring::Deposited);
        assert_eq!(bell.ring(), Ring::FreeRide);
        assert!(!bell.start_polling(), "a ring waits to be taken");
        assert!(bell.take());

        assert!(bell.start_polling());
        assert_eq!(bell.ring(), Ring::StoreWakes);
        assert!(!bell.fall_asleep(), "no sleep after a ring");
        assert!(bell.take());

        assert!(bell.start_polling() && bell.fall_asleep());
        assert_eq!(bell.ring(), Ring::MustWake);
        assert_eq!(bell.state(), DoorbellState::Woken);
        assert_eq!(bell.ring(), Ring::FreeRide);
        assert!(bell.is_rung() && bell.take());
        assert_eq!(bell.state(), DoorbellState::Running);
    }

    #[test]
    fn gives_up_from_every_state() {
        let bell = Doorbell::new();
        assert!(!bell.take());
        assert!(bell.start_polling());
        assert!(!bell.take());
        assert!(bell.start_polling() && bell.fall_asleep());
        assert!(!bell.take());
        assert_eq!(bell.ring(), Ring::Deposited);
    }

    /// Two wakers, and a waiter that polls, "sleeps" (polling the word, like a kernel that keeps waking
    /// spuriously) and gives up. It sees every item of work.
    #[test]
    fn no_ring_is_lost_under_stress() {
        extern crate std;
        use core::sync::atomic::AtomicU32;
        const ROUNDS: u32 = if cfg!(miri) { 300 } else { 100_000 };

        let bell = Doorbell::new();
        let work = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|scope| {
            for counter in &work {
                let bell = &bell;
                scope.spawn(move || {
                    for n in 1..=ROUNDS {
                        counter.store(n, Ordering::Relaxed);
                        let _ = bell.ring();
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut turn = 0u32;
            while work.iter().any(|counter| counter.load(Ordering::Relaxed) < ROUNDS) {
                turn = turn.wrapping_add(1);
                if bell.start_polling() && turn % 4 != 0 && !bell.is_rung() && bell.fall_asleep() {
                    while turn % 4 != 1 && !bell.is_rung() {
                        std::thread::yield_now();
                    }
                }
                bell.take();
            }
        });
    }
}
