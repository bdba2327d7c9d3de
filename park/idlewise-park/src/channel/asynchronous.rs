//! Futures of tasks that wait for an item or for room.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::shared::Shared;
use super::{RecvError, SendError, TryRecvError, TrySendError};
use crate::line::Line;
use crate::sync::{breaks, is_model_over};

/// A task's place in line, which it leaves when its future is dropped.
pub(crate) struct PlaceOfTask<'a> {
    line: &'a Line,
    ticket: Option<u64>,
}

impl<'a> PlaceOfTask<'a> {
    pub(crate) fn new(line: &'a Line) -> Self {
        PlaceOfTask { line, ticket: None }
    }

    /// Gets in line, or stays there with a new waker.
    pub(crate) fn enter(&mut self, waker: &Waker) {
        self.ticket = Some(self.line.enter_task(self.ticket, waker));
    }

    /// Polls once: tries `attempt`, and gets in line if it fails. A call then wakes the task.
    pub(crate) fn poll<R>(
        &mut self,
        waker: &Waker,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Poll<R> {
        // A task that is in line keeps its place unless it was called.
        let first = attempt();
        let result = first.or_else(|| {
            self.enter(waker);
            attempt()
        });
        let Some(result) = result else { return Poll::Pending };
        self.leave();
        Poll::Ready(result)
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        if !self.line.leave(ticket) && !breaks!(CallKept) {
            // It was called, but may have succeeded without the call, which then belongs to another waiter.
            self.line.call(1);
        }
    }
}

impl Drop for PlaceOfTask<'_> {
    fn drop(&mut self) {
        if !is_model_over() {
            self.leave();
        }
    }
}

/// The future of [`super::Receiver::recv_async`]. Dropping it loses no item.
#[must_use = "futures do nothing unless they are awaited"]
pub struct RecvFuture<'a, T> {
    shared: &'a Shared<T>,
    place: PlaceOfTask<'a>,
}

impl<'a, T> RecvFuture<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>) -> Self {
        RecvFuture { shared, place: PlaceOfTask::new(&shared.receivers) }
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        self.place.poll(context.waker(), || match shared.try_recv() {
            Ok(item) => Some(Ok(item)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(RecvError)),
        })
    }
}

/// The future of [`super::Sender::send_async`]. Dropping it before it is ready drops the item.
#[must_use = "futures do nothing unless they are awaited"]
pub struct SendFuture<'a, T> {
    shared: &'a Shared<T>,
    item: Option<T>,
    place: PlaceOfTask<'a>,
}

impl<'a, T> SendFuture<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>, item: T) -> Self {
        SendFuture { shared, item: Some(item), place: PlaceOfTask::new(&shared.senders) }
    }
}

// The item is moved, never pinned.
impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let SendFuture { shared, item, place } = &mut *self;
        place.poll(context.waker(), || {
            let taken = item.take().expect("polled after it was ready");
            match shared.try_send(taken) {
                Ok(()) => Some(Ok(())),
                Err(TrySendError::Full(back)) => {
                    *item = Some(back);
                    None
                }
                Err(TrySendError::Disconnected(back)) => Some(Err(SendError(back))),
            }
        })
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvFuture").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFuture").finish_non_exhaustive()
    }
}
