//! What the two ends of a channel share: the items, and a [`Line`] for each end.

use std::sync::mpsc::{RecvTimeoutError, SendError, TryRecvError, TrySendError};

use crossbeam_queue::SegQueue;

use crate::channel::SendTimeoutError;
use crate::channel::ring::Ring;
use crate::clock::Deadline;
use crate::line::{Line, Waiting, with_waiting};
use crate::sync::{AtomicUsize, Ordering, Padded, breaks, fence, is_model_over, seen_soon};

enum Items<T> {
    Bounded(Ring<T>),
    Unbounded(SegQueue<T>),
}

pub(crate) struct Shared<T> {
    items: Items<T>,
    /// Receivers in line for an item. Closed when the last receiver is gone.
    pub(crate) receivers: Padded<Line>,
    /// Senders in line for room. Closed when the last sender is gone.
    pub(crate) senders: Padded<Line>,
    receiver_count: AtomicUsize,
    sender_count: AtomicUsize,
}

impl<T> Shared<T> {
    /// Creates the state for one sender and one receiver.
    ///
    /// # Panics
    /// If the capacity is 0.
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Shared {
            items: capacity.map_or_else(
                || Items::Unbounded(SegQueue::new()),
                |capacity| Items::Bounded(Ring::new(capacity)),
            ),
            receivers: Padded(Line::new()),
            senders: Padded(Line::new()),
            receiver_count: AtomicUsize::new(1),
            sender_count: AtomicUsize::new(1),
        }
    }

    #[inline]
    pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        if self.receivers.is_closed() {
            return Err(TrySendError::Disconnected(item));
        }
        match &self.items {
            Items::Bounded(ring) => ring.push(item).map_err(TrySendError::Full)?,
            Items::Unbounded(queue) => queue.push(item),
        }
        if !breaks!(PushWithoutFence) {
            fence(Ordering::SeqCst); // with those of `Line`
        }
        if self.receivers.needs_call() {
            self.call_receiver();
        }
        if self.senders.len() > 0 && self.has_room() {
            self.senders.call(1);
        }
        Ok(())
    }

    /// There is an item, and either a receiver waits or the last receiver is gone.
    #[cold]
    fn call_receiver(&self) {
        self.receivers.call(1);
        if self.receivers.is_closed() && !breaks!(ClosedUnseen) {
            // The item was pushed while the last receiver went, which may not have seen it when it dropped
            // what was left. Nobody else would drop it, and another channel's end may be in it.
            self.drop_items();
        }
    }

    #[inline]
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let item = match self.pop() {
            Some(item) => item,
            // Senders that are gone sent their items before they went, so look once more.
            None if self.senders.is_closed() => self.pop().ok_or(TryRecvError::Disconnected)?,
            None => return Err(TryRecvError::Empty),
        };
        if matches!(self.items, Items::Bounded(_)) {
            if !breaks!(PopWithoutFence) {
                fence(Ordering::SeqCst); // with those of `Line`
            }
            self.senders.call(1);
        }
        // An unfinished push may have hidden this item from a receiver that was called for it and now waits
        // again.
        if self.receivers.len() > 0 && self.has_item() {
            self.receivers.call(1);
        }
        Ok(item)
    }

    #[inline]
    fn pop(&self) -> Option<T> {
        match &self.items {
            Items::Bounded(ring) => ring.pop(),
            Items::Unbounded(queue) => queue.pop(),
        }
    }

    /// Whether a receiver would find an item now, as a hint.
    #[inline]
    pub(crate) fn has_item(&self) -> bool {
        match &self.items {
            Items::Bounded(ring) => ring.has_value(),
            Items::Unbounded(queue) => !queue.is_empty(),
        }
    }

    /// Whether a sender would find room now, as a hint.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        match &self.items {
            Items::Bounded(ring) => ring.has_room(),
            Items::Unbounded(_) => true,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.items {
            Items::Bounded(ring) => ring.len(),
            Items::Unbounded(queue) => queue.len(),
        }
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        match &self.items {
            Items::Bounded(ring) => Some(ring.capacity()),
            Items::Unbounded(_) => None,
        }
    }

    fn drop_items(&self) {
        while self.pop().is_some() {}
    }

    #[inline]
    pub(crate) fn recv(
        &self,
        waiting: &Waiting,
        deadline: Option<Deadline>,
    ) -> Result<T, RecvTimeoutError> {
        match self.try_recv() {
            Ok(item) => Ok(item),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => self.recv_in_line(waiting, deadline),
        }
    }

    #[cold]
    fn recv_in_line(
        &self,
        waiting: &Waiting,
        deadline: Option<Deadline>,
    ) -> Result<T, RecvTimeoutError> {
        let attempt = || match self.try_recv() {
            Ok(item) => Some(Ok(item)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(RecvTimeoutError::Disconnected)),
        };
        // A sender in the middle of a push needs less time than getting in line and out of it takes.
        let soon = seen_soon(|| self.has_item()).then(attempt).flatten();
        soon.or_else(|| self.receivers.wait_until(waiting, deadline, attempt))
            .unwrap_or(Err(RecvTimeoutError::Timeout))
    }

    #[inline]
    pub(crate) fn send(
        &self,
        item: T,
        deadline: impl FnOnce() -> Option<Deadline>,
    ) -> Result<(), SendTimeoutError<T>> {
        match self.try_send(item) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(item)) => Err(SendTimeoutError::Disconnected(item)),
            Err(TrySendError::Full(item)) => self.send_in_line(item, deadline()),
        }
    }

    #[cold]
    fn send_in_line(&self, item: T, deadline: Option<Deadline>) -> Result<(), SendTimeoutError<T>> {
        let mut kept = Some(item);
        let mut attempt = || match self.try_send(kept.take()?) {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Full(item)) => {
                kept = Some(item);
                None
            }
            Err(TrySendError::Disconnected(item)) => {
                Some(Err(SendTimeoutError::Disconnected(item)))
            }
        };
        let soon = seen_soon(|| self.has_room()).then(&mut attempt).flatten();
        let sent = soon.or_else(|| {
            with_waiting(|waiting| self.senders.wait_until(waiting, deadline, &mut attempt))
        });
        match (sent, kept) {
            (Some(sent), _) => sent,
            (None, Some(item)) => Err(SendTimeoutError::Timeout(item)),
            (None, None) => unreachable!("an item that is not sent is kept"),
        }
    }

    pub(crate) fn add_sender(&self) {
        self.sender_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_receiver(&self) {
        self.receiver_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_sender(&self) {
        if is_model_over() {
            return;
        }
        // AcqRel: the sender that closes the line sees what any other sender did.
        if self.sender_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.senders.close();
            self.receivers.call(usize::MAX);
        }
    }

    pub(crate) fn remove_receiver(&self) {
        if is_model_over() {
            return;
        }
        // AcqRel: as above.
        if self.receiver_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.receivers.close();
            self.senders.call(usize::MAX);
            self.drop_items();
        }
    }
}

/// Without a deadline there is no timeout.
pub(crate) fn no_timeout<T>(error: SendTimeoutError<T>) -> SendError<T> {
    SendError(error.into_inner())
}
