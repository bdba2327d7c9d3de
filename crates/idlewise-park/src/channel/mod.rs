//! Channels whose ends wait in the state that fits their gaps.
//!
//! | made by | room | ends |
//! | --- | --- | --- |
//! | [`bounded`] | for a number of items | any number of senders and receivers |
//! | [`unbounded`] | for as many as memory has | the same |
//! | [`oneshot`] | for one | one sender that sends once, one receiver |
//!
//! Errors are `std::sync::mpsc`'s, so that code for its channels works with these. Threads wait with
//! [`Receiver::recv`], tasks with [`Receiver::recv_async`], and [`Select`] waits for any of several.
//!
//! | file | holds |
//! | --- | --- |
//! | `shared.rs` | what both ends share: an item's way from one to the other |
//! | `ring.rs` | the bounded queue |
//! | `asynchronous.rs` | [`RecvFuture`], [`SendFuture`] |
//! | `select.rs` | [`Select`] |
//! | `oneshot.rs` | [`oneshot`] |
//! | `error.rs` | [`SendTimeoutError`] |
//!
//! The unbounded queue is crossbeam's `SegQueue`. Who waits stands in a line (`line.rs`): whoever
//! sent an item, or made room, looks at the other end's line and calls the first, which costs a
//! fence and a load if nobody waits. `tests/loom` explores this code itself.
//!
//! **An item is received, or dropped with the last receiver.** A sender may have found the
//! receiver there and push after it is gone. The line's state says so too, and the sender looks at
//! it after each push, behind the same fence: either the receiver sees the item when it drops what
//! is left, or the sender sees that it must do that. So nothing that an item holds, such as the
//! sending end of a reply's channel, is left in a channel without a receiver.

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

/// A sending end. Clones send to the same receivers.
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

/// A receiving end. Each item goes to one of the clones, which wait by a parker of their own each.
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

/// A channel with room for `capacity` items.
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

/// As [`bounded`], with a receiver that waits by this parker.
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

/// A channel with room for as many items as memory has: senders never wait.
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

/// As [`unbounded`], with a receiver that waits by this parker.
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
    /// If there is no room, or all receivers are gone. The item comes back.
    #[inline]
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        self.shared.try_send(item)
    }

    /// Sends an item, and waits for room if there is none.
    ///
    /// As with std's channels `Ok` means that the item is on its way. It is dropped if the last
    /// receiver goes before it receives it.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// sender.send("hello").unwrap();
    /// assert_eq!(receiver.recv(), Ok("hello"));
    /// ```
    ///
    /// # Errors
    /// If all receivers are gone. The item comes back.
    #[inline]
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send(item, || None).map_err(no_timeout)
    }

    /// As [`Sender::send`], but waits no longer than this.
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
    /// Also if there was no room in time. The item comes back.
    pub fn send_timeout(&self, item: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.shared.send(item, || Deadline::after(timeout))
    }

    /// As [`Sender::send`], but waits not beyond this moment.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// sender.send_deadline(1, std::time::Instant::now()).unwrap();
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// Also if there was no room in time. The item comes back.
    pub fn send_deadline(&self, item: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.shared.send(item, || Some(Deadline::at(deadline)))
    }

    /// As [`Sender::send`] for a task: the future waits for room.
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

    /// How many items are on their way.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(4);
    /// sender.send(1).unwrap();
    /// assert_eq!((sender.len(), receiver.len()), (1, 1));
    /// ```
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether no item is on its way.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded::<u8>(4);
    /// assert!(sender.is_empty() && receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many items there is room in all; `None` if there is no bound.
    ///
    /// ```
    /// let (sender, _receiver) = idlewise_park::channel::bounded::<u8>(4);
    /// assert_eq!(sender.capacity(), Some(4));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Whether all receivers are gone.
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
    /// The next item, if there is one.
    ///
    /// While a sender that came earlier is stopped half-way through its push, later items are not there
    /// yet either; [`Receiver::recv`] waits for them.
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
    /// If there is none, and whether one may come.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.shared.try_recv()
    }

    /// The next item; waits for it.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::bounded(1);
    /// std::thread::spawn(move || sender.send(1));
    /// assert_eq!(receiver.recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// If there is none and all senders are gone.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.shared.recv(&self.waiting, None).map_err(|_| RecvError)
    }

    /// As [`Receiver::recv`], but waits no longer than this.
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
    /// Also if none came in time.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.shared.recv(&self.waiting, Deadline::after(timeout))
    }

    /// As [`Receiver::recv`], but waits not beyond this moment.
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
    /// Also if none came in time.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.shared.recv(&self.waiting, Some(Deadline::at(deadline)))
    }

    /// As [`Receiver::recv`] for a task: the future waits for the item.
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

    /// All items, until the senders are gone.
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

    /// The items that are there, without waiting for more.
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

    /// A clone that waits by this parker.
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

    /// As [`Sender::len`].
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::unbounded();
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// As [`Sender::is_empty`].
    ///
    /// ```
    /// let (_sender, receiver) = idlewise_park::channel::unbounded::<u8>();
    /// assert!(receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Sender::capacity`].
    ///
    /// ```
    /// let (_sender, receiver) = idlewise_park::channel::unbounded::<u8>();
    /// assert_eq!(receiver.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Whether all senders are gone. Items may be left.
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

    /// What this receiver's waits were like.
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

/// A clone waits by a parker with default settings ([`Receiver::clone_with`] takes another).
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

/// See [`Receiver::iter`].
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

/// See [`Receiver::try_iter`].
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

/// All items of a receiver that belongs to the iterator, until the senders are gone.
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
