//! The doorbell: one 32-bit word between a waiter and those who wake it.
//!
//! A waker should pay for what the waiter does. One that looks at the word, or has the CPU monitor
//! its cache line, is woken by the store alone; only one that sleeps in the kernel needs a system
//! call; and while somebody's wake-up is in flight, everybody else's is free. That is
//! `TIF_POLLING_NRFLAG` of the kernel's idle loop, and the WAKING to WOKEN window of "Extend mwait
//! idle to optimize away IPIs when possible" (Venkatesh Pallipadi, 2012), for threads.
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
//! Edges 1, 2, 7 and 8 belong to the one waiter; 3 to 6 to any number of wakers. After edge 5 one
//! system call is owed or under way, by the waker that took it. The word does not say so, because
//! nobody needs it there: other wakers ride along either way, and a waiter that fell asleep and
//! finds WOKEN knows that the ring met it asleep. It need not wait for the call: whether the call,
//! the deadline or a signal got it out of the kernel, it takes the ring and runs. The call that
//! comes late wakes nobody, or the next sleep of the same word spuriously, and a sleeper that wakes
//! with the word still SLEEPING sleeps again.
//!
//! All that a ring does is one swap with WOKEN: what it replaced says what the waker still owes.
//!
//! # What is promised
//!
//! 1. **Work published before `ring` is seen after the `take` that answers it**, also when the ring
//!    was a free one.
//! 2. **No lost wake-up**: after a `ring`, the waiter's current or next wait ends.
//! 3. **No needless system call**: one at most for each time that the waiter fell asleep.
//!
//! # Why these memory orders
//!
//! Every edge is one atomic read-modify-write of one word, so all edges stand in one order that
//! everybody agrees on, whatever their strength. Promise 2 and 3 rest on that alone: `fall_asleep`
//! fails if a ring came before it, a ring that comes after it sees SLEEPING, and one ring at most
//! replaces SLEEPING. The kernel compares the word with SLEEPING under the same lock that its wake
//! takes, which covers the time between `fall_asleep` and the sleep. No fence between two words is
//! needed, because there is no second word.
//!
//! Promise 1 needs a release in each `ring` and an acquire in each `take`:
//!
//! - `ring` is **Release** on all its edges. On edge 6 the word does not change, yet it is written:
//!   a load cannot publish. Without that write the free rider's work could stay unseen by a waiter
//!   that takes the earlier ring and then waits for the next one. All writes between the first ring
//!   and `take` are read-modify-writes, so they form one release sequence and `take` synchronizes
//!   with each of them, not only with the last.
//! - `take` is **Acquire**, on both edges: a waiter that gives up at its deadline may find that it
//!   was rung just before. It is a swap, not a load and a store, because a ring between these two
//!   would be overwritten.
//! - `start_polling` and `fall_asleep` are **Relaxed**: they publish nothing, and what they read is
//!   answered by `take`. So is [`Doorbell::is_rung`], the look of a polling waiter.
//!
//! `tests/loom/doorbell.rs` explores all of this and breaks each of these points once.
//!
//! # Known limits
//!
//! One waiter at a time: with two, each takes rings meant for the other. The type cannot tell, so
//! the crates that wait (`idlewise-park`) keep the waiter's side to themselves. A ring is not
//! counted: many before one `take` are one.

use crate::sync::{AtomicU32, Ordering, breaks, order};

const RUNNING: u32 = 0;
const POLLING: u32 = 1;
const SLEEPING: u32 = 2;
const WOKEN: u32 = 3;

/// What a doorbell's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DoorbellState {
    /// The waiter runs and has not been rung for.
    Running = RUNNING,
    /// It looks at the word or monitors it: a store wakes it.
    Polling = POLLING,
    /// It sleeps in the kernel, or is about to: a system call wakes it.
    Sleeping = SLEEPING,
    /// It was rung for. If it had fallen asleep, the system call is owed, under way or done.
    Woken = WOKEN,
}

/// What a ring met, and what the waker still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a sleeper stays asleep until the system call is made"]
pub enum Ring {
    /// The waiter runs; its next wait will end at once.
    Deposited,
    /// The waiter polls; the store was the wake-up.
    StoreWakes,
    /// The waiter sleeps: this waker, and no other, must make the system call that ends the sleep.
    MustWake,
    /// Somebody's ring is not answered yet; this one rides along.
    FreeRide,
}

/// The word. Its waiter calls `start_polling`, `fall_asleep` and `take`; wakers call `ring`.
/// It is nothing but the word, so its address is the word's.
#[derive(Debug)]
#[repr(transparent)]
pub struct Doorbell {
    word: AtomicU32,
}

impl Doorbell {
    /// The word of a sleeper: what a futex wait must compare with.
    pub const SLEEPING_WORD: u32 = SLEEPING;
    /// The word of a polling waiter: as long as it is there, nobody rang.
    pub const POLLING_WORD: u32 = POLLING;

    /// A doorbell whose waiter runs.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Doorbell { word: AtomicU32::new(RUNNING) }
    }

    /// A doorbell whose waiter runs.
    #[cfg(loom)]
    pub fn new() -> Self {
        Doorbell { word: AtomicU32::new(RUNNING) }
    }

    /// The word itself, for those who monitor its cache line or hand its address to the kernel.
    /// Only to be read: writing is what the methods are for.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// What the word says, as a hint: it may have changed.
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

    /// Wakes the waiter, now or when it waits next. All that the caller wrote before is seen by the
    /// waiter afterwards.
    ///
    /// One swap, whatever the waiter does and however many ring at once: a look first would bring a
    /// shared copy of the cache line and be paid for on top, and a compare-exchange may need a second
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

    /// Whether somebody rang: the look of a waiter that polls. Call [`Doorbell::take`] to be sure
    /// of seeing the waker's work.
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

    /// From here on a store wakes the waiter. `false`: it was rung for already; take it.
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

    /// From here on wakers make the system call. `false`: the waiter was rung for; it must not
    /// sleep but take it.
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

    /// Ends a wait, whatever ended it: the waiter runs. `true`: it was rung for, and sees what
    /// every waker wrote before it rang; `false`: it gave up.
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

    /// Two wakers and a waiter that polls, falls "asleep" (polling the word, as a kernel that wakes
    /// spuriously all the time) and gives up: every item of work is seen.
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
