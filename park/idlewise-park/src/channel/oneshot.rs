//! [`oneshot`]: a channel for one item.

use std::fmt;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::{RecvError, RecvFuture, RecvTimeoutError, SendError, TryRecvError, no_timeout};
use crate::clock::Deadline;
use crate::line::with_waiting;
use crate::sync::Arc;

/// The sending end of a [`oneshot`] channel.
pub struct OneshotSender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving end of a [`oneshot`] channel.
pub struct OneshotReceiver<T> {
    shared: Arc<Shared<T>>,
}

/// Creates a channel for one item, such as the answer to a request. The receiver waits on its thread's
/// parker, so the channel needs none of its own.
///
/// ```
/// use idlewise_park::channel;
///
/// let (to_server, requests) = channel::bounded::<(u32, channel::OneshotSender<u32>)>(8);
/// std::thread::spawn(move || {
///     for (n, answer) in requests {
///         let _ = answer.send(n * n);
///     }
/// });
/// let (sender, answer) = channel::oneshot();
/// to_server.send((7, sender)).unwrap();
/// assert_eq!(answer.recv(), Ok(49));
/// ```
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Arc::new(Shared::new(Some(1)));
    (OneshotSender { shared: shared.clone() }, OneshotReceiver { shared })
}

impl<T> OneshotSender<T> {
    /// Sends the item. Never waits.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot();
    /// drop(receiver);
    /// assert!(sender.send(1).is_err());
    /// ```
    ///
    /// # Errors
    /// If the receiver is gone. The error contains the item.
    pub fn send(self, item: T) -> Result<(), SendError<T>> {
        self.shared.send(item, || None).map_err(no_timeout)
    }

    /// Returns whether the receiver is gone. If so, the answer need not be computed.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot::<u8>();
    /// drop(receiver);
    /// assert!(sender.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.shared.receivers.is_closed()
    }
}

impl<T> OneshotReceiver<T> {
    /// Receives the item, waiting for it if necessary.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot::<u8>();
    /// drop(sender);
    /// assert!(receiver.recv().is_err());
    /// ```
    ///
    /// # Errors
    /// If the sender is gone and did not send.
    pub fn recv(self) -> Result<T, RecvError> {
        with_waiting(|waiting| self.shared.recv(waiting, None)).map_err(|_| RecvError)
    }

    /// Receives the item if it is there.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot();
    /// assert!(receiver.try_recv().is_err());
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// If it is not there. The error tells whether it may still come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.shared.try_recv()
    }

    /// Like [`OneshotReceiver::recv`], but waits no longer than `timeout`.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot();
    /// assert!(receiver.recv_timeout(std::time::Duration::from_micros(10)).is_err());
    /// sender.send(1).unwrap();
    /// ```
    ///
    /// # Errors
    /// As for [`OneshotReceiver::recv`], or if the item did not come in time.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        with_waiting(|waiting| self.shared.recv(waiting, Deadline::after(timeout)))
    }

    /// Like [`OneshotReceiver::recv`], but gives up at `deadline`.
    ///
    /// ```
    /// let (sender, receiver) = idlewise_park::channel::oneshot();
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.recv_deadline(std::time::Instant::now()), Ok(1));
    /// ```
    ///
    /// # Errors
    /// As for [`OneshotReceiver::recv`], or if the item did not come in time.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        with_waiting(|waiting| self.shared.recv(waiting, Some(Deadline::at(deadline))))
    }

    /// Like [`OneshotReceiver::recv`] for a task: the future waits for the item.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let (sender, receiver) = idlewise_park::channel::oneshot();
    /// sender.send("hello").unwrap();
    /// let mut receiving = pin!(receiver.recv_async());
    /// let polled = receiving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    /// assert_eq!(polled, Poll::Ready(Ok("hello")));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture::new(&self.shared)
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.shared.remove_sender();
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        self.shared.remove_receiver();
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotReceiver").finish_non_exhaustive()
    }
}
