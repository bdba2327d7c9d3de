//! What a waiter sees of the world: the clock, its doorbell, ways to wait, and other threads.

use idlewise_core::Doorbell;

use crate::budget::Budget;
use crate::clock::{self, Deadline};
use crate::learn;
use crate::load;
use crate::wait::word::{self, Reach};
use crate::wait::{Method, condvar};

/// What a waiter needs of the world.
pub(crate) trait World {
    fn now_ns(&self) -> u64;
    /// The doorbell's, as the next three.
    fn start_polling(&self) -> bool;
    /// Or what else ends the wait is seen.
    fn is_rung(&self) -> bool;
    fn fall_asleep(&self) -> bool;
    fn take(&self) -> bool;
    /// Polls, or monitors the doorbell, until that time at the latest.
    fn rest(&self, method: Method, until_ns: u64);
    /// Sleeps until woken, or for no reason.
    fn sleep(&self, method: Method, deadline: Option<&Deadline>);
    fn is_reached(&self, deadline: &mut Deadline) -> bool;
    /// The thread is about to wait.
    fn runs(&self, now_ns: u64);
    /// It goes to sleep: said before the doorbell says so.
    fn sleeps(&self);
    /// It sleeps: there is time for what may be done now and then.
    fn is_asleep(&self, now_ns: u64);
    /// Whether there are more threads than CPUs; `None`: look at the doorbell and ask again.
    fn is_crowded(&self, now_ns: u64) -> Option<bool>;
    /// When the ring came that ended a sleep, if it came after `since_ns` and its waker says so, and what
    /// the waker's last call took (0: not known).
    fn rung(&self, since_ns: u64) -> Option<(u64, u64)>;
    fn thread_cpu_ns(&self) -> Option<u64>;
    /// The budget of a waiter that has none of its own.
    fn with_thread_budget<R>(
        &self,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R>;
}

/// What ends a wait besides the doorbell.
pub(crate) trait Events {
    /// Asks whoever knows, unless the bell was rung.
    fn look(&self, bell: &Doorbell);
    /// Whether a look saw any.
    fn are_seen(&self) -> bool;
}

/// Of a waiter that waits for its doorbell alone.
pub(crate) struct NoEvents;

impl Events for NoEvents {
    #[inline]
    fn look(&self, _bell: &Doorbell) {}

    #[inline]
    fn are_seen(&self) -> bool {
        false
    }
}

/// The real one.
pub(crate) struct Here<'a, E> {
    pub(crate) bell: &'a Doorbell,
    /// Where its wakers are.
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
        // By the OS's clock: ours may jump at any moment, and who sleeps until a time by a clock that went
        // back sleeps for as long as it went back.
        let until = deadline.map(Deadline::instant);
        let word = self.bell.word();
        match (self.reach, method) {
            (Reach::Process, Method::Condvar) => {
                condvar::sleep(word, Doorbell::SLEEPING_WORD, until);
            }
            // The only one that other processes can end.
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
