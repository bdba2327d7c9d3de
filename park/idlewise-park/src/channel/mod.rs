//! Channels whose ends wait in the state that suits their gaps.
//!
//! | made by | room | ends |
//! | --- | --- | --- |
//! | [`bounded`] | for a given number of items | any number of senders and receivers |
//! | [`unbounded`] | limited only by memory | any number of senders and receivers |
//! | [`oneshot`] | for one item | one sender that sends once, one receiver |
//!
//! Errors are those of `std::sync::mpsc`, so code written for its channels works with these. Threads wait
//! with [`Receiver::recv`], tasks with [`Receiver::recv_async`], and [`Select`] waits for any of several.
//!
//! | file | holds |
//! | --- | --- |
//! | `shared.rs` | what both ends share: the way of an item from one to the other |
//! | `ring.rs` | the bounded queue |
//! | `asynchronous.rs` | [`RecvFuture`], [`SendFuture`] |
//! | `select.rs` | [`Select`] |
//! | `oneshot.rs` | [`oneshot`] |
//! | `error.rs` | [`SendTimeoutError`] |
//!
//! The unbounded queue is crossbeam's `SegQueue`. Waiters stand in a line (`line.rs`). Whoever sent an
//! item, or made room, looks at the other end's line and calls the first waiter. If nobody waits, that
//! costs a fence and a load. `tests/loom` explores this very code.
//!
//! **Every item is received, or dropped with the last receiver.** A sender may have seen a receiver, and
//! push after that one is gone. So the line's state also says that the receivers are gone, and the sender
//! looks at it after each push, behind the same fence. Either the receiver sees the item when it drops what
//! is left, or the sender sees that it must do so itself. So what an item holds, such as the sending end of
//! a reply channel, never stays behind in a channel without a receiver.

mod asynchronous;
mod error;
mod oneshot;
mod ring;
mod select;
mod shared;

use std::fmt;
use std::time::{Duration, Instant};

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

pub(crate) use asynchronous::PlaceOfTask;
pub use asynchronous::{RecvFuture, SendFuture};
pub use error::SendTimeoutError;
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use select::Select;

use crate::clock::Deadline;
use crate::line::Waiting;
use crate::parker::Parker;
use crate::stats::WaitStats;
use crate::sync::Arc;
use shared::{Shared, no_timeout};

/// A sending end. All clones send to the same receivers.
///
/// ```
/// let (sender, receiver) = idlewise_park::channel::bounded::<u8>(1);
/// let other = sender.clone();
/// drop((sender, other));
/// assert!(receiver.recv().is_err(), "all senders are gone");
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// A receiving end. Each item goes to one of the clones, each of which waits on a parker of its own.
///
/// It can be sent to another thread, but not shared: give each thread a clone.
///
/// ```
/// let (sender, receiver) = idlewise_park::channel::bounded(4);
/// let workers: Vec<_> = (0..2)
///     .map(|_| {
///         let receiver = receiver.clone();
///         std::thread::spawn(move || receiver.iter().count())
///     })
///     .collect();
/// (0..100).for_each(|n| sender.send(n).unwrap());
/// drop(sender);
/// let received: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
/// assert_eq!(received, 100);
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    waiting: Waiting,
}

/// Creates a channel with room for `capacity` items.
///
/// ```
/// let (sender, receiver) = idlewise_park::channel::bounded(4);
/// let producer = std::thread::spawn(move || (0..100).for_each(|n| sender.send(n).unwrap()));
/// assert_eq!(receiver.iter().sum::<i32>(), 4950);
/// producer.join().unwrap();
/// ```
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    bounded_with(capacity, Parker::new())
}

/// Like [`bounded`], with a receiver that waits on `parker`.
///
/// ```
/// use idlewise_park::{Parker, channel};
///
/// let parker = Parker::builder().cpu_budget_permille(0).build();
/// let (sender, receiver) = channel::bounded_with(4, parker);
/// sender.send("never polled for")?;
/// assert_eq!(receiver.recv()?, "never polled for");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded_with<T>(capacity: usize, parker: Parker) -> (Sender<T>, Receiver<T>) {
    ends(Shared::new(Some(capacity)), parker)
}

/// Creates a channel without a bound: senders never wait.
///
/// ```
/// let (sender, receiver) = idlewise_park::channel::unbounded();
/// (0..1000).for_each(|n| sender.send(n).unwrap());
/// assert_eq!((receiver.len(), receiver.capacity()), (1000, None));
/// assert_eq!(receiver.try_iter().count(), 1000);
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    unbounded_with(Parker::new())
}

/// Like [`unbounded`], with a receiver that waits on `parker`.
///
/// ```
/// let (sender, receiver) = idlewise_park::channel::unbounded_with(idlewise_park::Parker::new());
/// sender.send(1).unwrap();
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
pub fn unbounded_with<T>(parker: Parker) -> (Sender<T>, Receiver<T>) {
    ends(Shared::new(None), parker)
}

fn ends<T>(shared: Shared<T>, parker: Parker) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(shared);
    (Sender { shared: shared.clone() }, Receiver { shared, waiting: Waiting::new(parker) })
}

impl<T> Sender<T> {
    /// Sends an item if there is room.
    ///
    /// ```
    /// use idlewise_park::channel::{TrySendError, bounded};
    ///
    /// let (sender, receiver) = bounded(1);
    /// assert_eq!(sender.try_send(1), Ok(()));
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    /// drop(receiver);
    /// assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    ///
    /// # Errors
    /// If there is no room, or all receivers are gone. The error contains the item.
    #[inline]
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        self.shared.try_send(item)
    }

    /// Sends an item. If there is no room, waits for it.
    ///
    /// As with std's channels, `Ok` does not mean that the item was received. If the last receiver goes
    /// before it receives the item, the item is dropped.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// sender.send("hello").unwrap();
    /// assert_eq!(receiver.recv(), Ok("hello"));
    /// ```
    ///
    /// # Errors
    /// If all receivers are gone. The error contains the item.
    #[inline]
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send(item, || None).map_err(no_timeout)
    }

    /// Like [`Sender::send`], but waits no longer than `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use idlewise_park::channel::{SendTimeoutError, bounded};
    ///
    /// let (sender, receiver) = bounded(1);
    /// sender.send(1).unwrap();
    /// let late = sender.send_timeout(2, Duration::from_micros(10));
    /// assert_eq!(late, Err(SendTimeoutError::Timeout(2)));
    /// # drop(receiver);
    /// ```
    ///
    /// # Errors
    /// As for [`Sender::send`], or if there was no room in time. The error contains the item.
    pub fn send_timeout(&self, item: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.shared.send(item, || Deadline::after(timeout))
    }

    /// Like [`Sender::send`], but gives up at `deadline`.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// sender.send_deadline(1, std::time::Instant::now()).unwrap();
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// As for [`Sender::send`], or if there was no room in time. The error contains the item.
    pub fn send_deadline(&self, item: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.shared.send(item, || Some(Deadline::at(deadline)))
    }

    /// Like [`Sender::send`] for a task: the future waits for room.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// let mut sending = pin!(sender.send_async("hello"));
    /// // What an executor does:
    /// let polled = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    /// assert_eq!(polled, Poll::Ready(Ok(())));
    /// assert_eq!(receiver.recv(), Ok("hello"));
    /// ```
    pub fn send_async(&self, item: T) -> SendFuture<'_, T> {
        SendFuture::new(&self.shared, item)
    }

    /// Returns how many items are in the channel.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(4);
    /// sender.send(1).unwrap();
    /// assert_eq!((sender.len(), receiver.len()), (1, 1));
    /// ```
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns whether the channel contains no item.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded::<u8>(4);
    /// assert!(sender.is_empty() && receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items the channel has room for, or `None` if it is unbounded.
    ///
    /// ```
    /// let (sender, _receiver) = idlewise_park::channel::bounded::<u8>(4);
    /// assert_eq!(sender.capacity(), Some(4));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Returns whether all receivers are gone.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded::<u8>(4);
    /// assert!(!sender.is_disconnected());
    /// drop(receiver);
    /// assert!(sender.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.shared.receivers.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.add_sender();
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.remove_sender();
    }
}

impl<T> Receiver<T> {
    /// Receives the next item if there is one.
    ///
    /// While an earlier sender is stopped half-way through its push, later items are not available here
    /// either. [`Receiver::recv`] waits for them.
    ///
    /// ```
    /// use idlewise_park::channel::{TryRecvError, bounded};
    ///
    /// let (sender, receiver) = bounded(1);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// drop(sender);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    ///
    /// # Errors
    /// If there is no item. The error tells whether one may still come.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.shared.try_recv()
    }

    /// Receives the next item, waiting for it if necessary.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// std::thread::spawn(move || sender.send(1));
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// If there is no item and all senders are gone.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.shared.recv(&self.waiting, None).map_err(|_| RecvError)
    }

    /// Like [`Receiver::recv`], but waits no longer than `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use idlewise_park::channel::{RecvTimeoutError, bounded};
    ///
    /// let (sender, receiver) = bounded::<u8>(1);
    /// let late = receiver.recv_timeout(Duration::from_micros(10));
    /// assert_eq!(late, Err(RecvTimeoutError::Timeout));
    /// # drop(sender);
    /// ```
    ///
    /// # Errors
    /// As for [`Receiver::recv`], or if no item came in time.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.shared.recv(&self.waiting, Deadline::after(timeout))
    }

    /// Like [`Receiver::recv`], but gives up at `deadline`.
    ///
    /// ```
    /// use idlewise_park::channel::{RecvTimeoutError, bounded};
    ///
    /// let (sender, receiver) = bounded::<u8>(1);
    /// let late = receiver.recv_deadline(std::time::Instant::now());
    /// assert_eq!(late, Err(RecvTimeoutError::Timeout));
    /// # drop(sender);
    /// ```
    ///
    /// # Errors
    /// As for [`Receiver::recv`], or if no item came in time.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.shared.recv(&self.waiting, Some(Deadline::at(deadline)))
    }

    /// Like [`Receiver::recv`] for a task: the future waits for the item.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// let mut receiving = pin!(receiver.recv_async());
    /// // What an executor does:
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert_eq!(receiving.as_mut().poll(&mut context), Poll::Pending);
    /// sender.send("hello").unwrap();
    /// assert_eq!(receiving.as_mut().poll(&mut context), Poll::Ready(Ok("hello")));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture::new(&self.shared)
    }

    /// Returns an iterator over all items, which ends when the senders are gone.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(4);
    /// (1..=3).for_each(|n| sender.send(n).unwrap());
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<i32>(), 6);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Returns an iterator over the items that are there; it does not wait for more.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(4);
    /// (1..=3).for_each(|n| sender.send(n).unwrap());
    /// assert_eq!(receiver.try_iter().sum::<i32>(), 6);
    /// # drop(sender);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Returns a clone that waits on `parker`.
    ///
    /// ```
    /// use idlewise_park::{Parker, channel};
    ///
    /// let (sender, receiver) = channel::bounded(4);
    /// let other = receiver.clone_with(Parker::builder().cpu_budget_permille(0).build());
    /// sender.send(1).unwrap();
    /// assert_eq!(other.recv(), Ok(1));
    /// ```
    #[must_use]
    pub fn clone_with(&self, parker: Parker) -> Self {
        self.shared.add_receiver();
        Receiver { shared: self.shared.clone(), waiting: Waiting::new(parker) }
    }

    /// See [`Sender::len`].
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::unbounded();
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// See [`Sender::is_empty`].
    ///
    /// ```
    /// let (_sender, receiver) = idlewise_park::channel::unbounded::<u8>();
    /// assert!(receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// See [`Sender::capacity`].
    ///
    /// ```
    /// let (_sender, receiver) = idlewise_park::channel::unbounded::<u8>();
    /// assert_eq!(receiver.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Returns whether all senders are gone. There may still be items.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(4);
    /// sender.send(1).unwrap();
    /// drop(sender);
    /// assert!(receiver.is_disconnected());
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.shared.senders.is_closed()
    }

    /// Returns statistics of this receiver's waits.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// sender.send(1).unwrap();
    /// receiver.recv().unwrap();
    /// assert_eq!(receiver.stats().waits, 0, "the item was there");
    /// ```
    pub fn stats(&self) -> WaitStats {
        self.waiting.parker.stats()
    }
}

/// A clone waits on a parker with default settings. [`Receiver::clone_with`] takes another one.
impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.clone_with(Parker::new())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.remove_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The iterator of [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

/// The iterator of [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// An iterator that owns its receiver and returns all items until the senders are gone.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
