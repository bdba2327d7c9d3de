//! What an [`EventBell`](super::EventBell) does before it sleeps: an idle loop whose last state, the sleep,
//! is left to the caller.

use std::cell::{Cell, RefCell};

use idlewise_core::Doorbell;

use super::Polled;
use crate::clock::Deadline;
use crate::load;
use crate::parker::ParkerBuilder;
use crate::stats::WaitStats;
use crate::table::WaitTable;
use crate::wait::word::Reach;
use crate::waiter::{Events, Here, NoEvents, Pause, Waiter};

pub(super) struct Polling {
    /// Kept until the first poll creates the waiter. Many bells never poll.
    settings: Option<Box<ParkerBuilder>>,
    waiter: Option<Box<Waiter>>,
    /// The wait that is asleep now.
    pause: Option<Pause>,
}

/// The caller's look. Once it has seen events, that does not change.
struct Look<F> {
    has_events: RefCell<F>,
    is_seen: Cell<bool>,
}

impl<F: FnMut() -> bool> Events for Look<F> {
    #[inline]
    fn look(&self, bell: &Doorbell) {
        if !bell.is_rung() && (self.has_events.borrow_mut())() {
            self.is_seen.set(true);
        }
    }

    #[inline]
    fn are_seen(&self) -> bool {
        self.is_seen.get()
    }
}

fn without_look(bell: &Doorbell) -> Here<'_, NoEvents> {
    Here { bell, reach: Reach::Process, events: &NoEvents }
}

impl Polling {
    pub(super) fn new(settings: ParkerBuilder) -> Self {
        Polling { settings: Some(Box::new(settings)), waiter: None, pause: None }
    }

    /// Polls while that pays. The doorbell must be POLLING. Returns `None` when it is time to sleep.
    pub(super) fn poll(
        &mut self,
        bell: &Doorbell,
        deadline: Option<Deadline>,
        has_events: impl FnMut() -> bool,
    ) -> Option<Polled> {
        let events = Look { has_events: RefCell::new(has_events), is_seen: Cell::new(false) };
        events.look(bell);
        let waiter = self.waiter.get_or_insert_with(|| {
            load::prepare();
            let settings = self.settings.take().unwrap_or_default();
            Box::new(settings.build_waiter(WaitTable::without_monitors))
        });
        self.pause = waiter.poll(&Here { bell, reach: Reach::Process, events: &events }, deadline);
        match self.pause {
            Some(_) => None,
            None if bell.is_rung() => Some(Polled::Woken),
            None if events.are_seen() => Some(Polled::Events),
            None => Some(Polled::TimedOut),
        }
    }

    /// Call it after a poll that said to sleep. `is_asleep` is `false` if the bell was rung just before.
    pub(super) fn falls_asleep(&mut self, bell: &Doorbell, is_asleep: bool) {
        if let (Some(waiter), Some(pause)) = (&mut self.waiter, &mut self.pause) {
            waiter.pause(&without_look(bell), pause, is_asleep);
        }
    }

    /// Call it before the bell is taken. Returns whether this ends a poll's wait.
    pub(super) fn wakes_up(&mut self, bell: &Doorbell) -> bool {
        match (&mut self.waiter, self.pause.take()) {
            (Some(waiter), Some(pause)) => {
                waiter.resume(&without_look(bell), pause);
                true
            }
            _ => false,
        }
    }

    pub(super) fn stats(&self) -> WaitStats {
        self.waiter.as_ref().map_or_else(WaitStats::default, |waiter| waiter.stats())
    }
}
