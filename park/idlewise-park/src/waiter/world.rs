//! [`World`]: a waiter's interface to the clock, its doorbell, the ways to wait and other threads.

use idlewise_core::Doorbell;

use crate::budget::Budget;
use crate::clock::{self, Deadline};
use crate::learn;
use crate::load;
use crate::wait::word::{self, Reach};
use crate::wait::{Method, condvar};

/// What a waiter calls: the real thing, or a virtual machine in tests.
pub(crate) trait World {
    fn now_ns(&self) -> u64;
    /// This and the next three are the doorbell's.
    fn start_polling(&self) -> bool;
    /// Also `true` once other events that end the wait were seen.
    fn is_rung(&self) -> bool;
    fn fall_asleep(&self) -> bool;
    fn take(&self) -> bool;
    /// Polls, or monitors the doorbell, until `until_ns` at the latest.
    fn rest(&self, method: Method, until_ns: u64);
    /// Sleeps until woken. May return spuriously.
    fn sleep(&self, method: Method, deadline: Option<&Deadline>);
    fn is_reached(&self, deadline: &mut Deadline) -> bool;
    /// Notes that the thread is about to wait.
    fn runs(&self, now_ns: u64);
    /// Notes that the thread goes to sleep. Called before the doorbell is SLEEPING.
    fn sleeps(&self);
    /// The thread sleeps, so there is time for occasional work.
    fn is_asleep(&self, now_ns: u64);
    /// Whether there are more threads than CPUs. `None`: look at the doorbell and ask again.
    fn is_crowded(&self, now_ns: u64) -> Option<bool>;
    /// When the ring that ended a sleep was made, if after `since_ns` and if its waker recorded it, and how
    /// long the waker's last call took (0: not known).
    fn rung(&self, since_ns: u64) -> Option<(u64, u64)>;
    fn thread_cpu_ns(&self) -> Option<u64>;
    /// Calls a function with the thread's budget, for a waiter that has none of its own.
    fn with_thread_budget<R>(
        &self,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R>;
}

/// Events besides the doorbell that end a wait.
pub(crate) trait Events {
    /// Checks for events, unless the bell was rung.
    fn look(&self, bell: &Doorbell);
    /// Whether a look saw any.
    fn are_seen(&self) -> bool;
}

/// For a waiter that waits for its doorbell alone.
pub(crate) struct NoEvents;

impl Events for NoEvents {
    #[inline]
    fn look(&self, _bell: &Doorbell) {}

    #[inline]
    fn are_seen(&self) -> bool {
        false
    }
}

/// The real machine.
pub(crate) struct Here<'a, E> {
    pub(crate) bell: &'a Doorbell,
    /// Which wakers it has.
    pub(crate) reach: Reach,
    pub(crate) events: &'a E,
}

impl<E: Events> World for Here<'_, E> {
    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    #[inline]
    fn start_polling(&self) -> bool {
        self.bell.start_polling()
    }

    #[inline]
    fn is_rung(&self) -> bool {
        self.bell.is_rung() || self.events.are_seen()
    }

    #[inline]
    fn fall_asleep(&self) -> bool {
        self.bell.fall_asleep()
    }

    #[inline]
    fn take(&self) -> bool {
        self.bell.take()
    }

    #[inline]
    fn rest(&self, method: Method, until_ns: u64) {
        method.imp().wait(self.bell, Some(until_ns));
        self.events.look(self.bell);
    }

    #[inline]
    fn sleep(&self, method: Method, deadline: Option<&Deadline>) {
        // The OS's clock is used, because ours may jump at any moment. A sleep until a time on a clock that
        // went back would last as much longer.
        let until = deadline.map(Deadline::instant);
        let word = self.bell.word();
        match (self.reach, method) {
            (Reach::Process, Method::Condvar) => {
                condvar::sleep(word, Doorbell::SLEEPING_WORD, until);
            }
            // The only sleep that other processes can end.
            (reach, _) => word::sleep(word, Doorbell::SLEEPING_WORD, until, reach),
        }
    }

    #[inline]
    fn is_reached(&self, deadline: &mut Deadline) -> bool {
        deadline.is_reached()
    }

    #[inline]
    fn runs(&self, now_ns: u64) {
        load::thread_runs(now_ns);
    }

    #[inline]
    fn sleeps(&self) {
        load::thread_sleeps();
        learn::falls_asleep(self.bell);
    }

    fn is_asleep(&self, now_ns: u64) {
        load::ask_for_cpus(now_ns);
    }

    #[inline]
    fn is_crowded(&self, now_ns: u64) -> Option<bool> {
        load::is_crowded(now_ns)
    }

    fn rung(&self, since_ns: u64) -> Option<(u64, u64)> {
        learn::rung(self.bell, since_ns)
    }

    fn thread_cpu_ns(&self) -> Option<u64> {
        learn::thread_cpu_ns()
    }

    #[inline]
    fn with_thread_budget<R>(
        &self,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R> {
        load::with_thread_budget(now_ns, action)
    }
}
