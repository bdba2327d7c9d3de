//! A bounded channel: many senders, one receiver that waits in the state that fits its gaps.
//!
//! The items are in a lock-free queue of crossbeam's. The receiver waits on its doorbell; senders
//! ring it after each item, which costs no system call while an earlier ring is not answered. A sender that
//! finds the queue full waits in line:
//!
//! ```text
//!   sender                                     receiver
//!   1. get in line (count + 1)                 a. pop an item
//!   2.   fence(SeqCst)              ◄─────►    b.   fence(SeqCst)
//!   3. try to push once more                   c. count > 0: unpark the first in line
//!   4. park, then from 3.
//! ```
//!
//! At least one of the two sees the other, as in `idlewise_core::IdleSet`. A sender that pushed and
//! finds itself out of the line has had a wake-up that another may need: it wakes the next.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::clock::Deadline;
use crate::parker::{Parker, Unparker};
use crate::stats::WaitStats;

/// The receiver is gone; the item comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why an item was not sent at once; the item comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room now.
    Full(T),
    /// The receiver is gone.
    Disconnected(T),
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// None is there now, or none came in time.
    Empty,
    /// None is there, and all senders are gone.
    Disconnected,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver is gone")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Disconnected(_) => f.write_str("Disconnected(..)"),
        }
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the channel is full"),
            Self::Disconnected(_) => f.write_str("the receiver is gone"),
        }
    }
}

impl<T> std::error::Error for TrySendError<T> {}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the channel is empty"),
            Self::Disconnected => f.write_str("the channel is empty and all senders are gone"),
        }
    }
}

impl std::error::Error for RecvError {}

struct Shared<T> {
    items: ArrayQueue<T>,
    receiver: Unparker,
    sender_count: AtomicUsize,
    is_receiver_gone: AtomicBool,
    /// Senders in line; `line_count` is its length, readable without the lock.
    line: Mutex<VecDeque<(u64, Unparker)>>,
    line_count: AtomicUsize,
}

impl<T> Shared<T> {
    fn line(&self) -> MutexGuard<'_, VecDeque<(u64, Unparker)>> {
        // Nothing in here panics half-way, so a poisoned line is whole.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the first in line, if there is one.
    fn wake_sender(&self) {
        if self.line_count.load(Ordering::Relaxed) > 0 {
            let first = {
                let mut line = self.line();
                let first = line.pop_front();
                self.line_count.store(line.len(), Ordering::Relaxed);
                first
            };
            if let Some((_, sender)) = first {
                sender.unpark();
            }
        }
    }
}

/// The sending end. Clones send to the same receiver.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving end.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    parker: Parker,
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
/// # Panics
/// If `capacity` is 0.
pub fn bounded_with<T>(capacity: usize, parker: Parker) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        items: ArrayQueue::new(capacity),
        receiver: parker.unparker().clone(),
        sender_count: AtomicUsize::new(1),
        is_receiver_gone: AtomicBool::new(false),
        line: Mutex::default(),
        line_count: AtomicUsize::new(0),
    });
    (Sender { shared: shared.clone() }, Receiver { shared, parker })
}

thread_local! {
    /// What a thread waits with when a channel is full. A thread waits in one line at a time.
    static SENDER: Parker = Parker::new();
}

impl<T> Sender<T> {
    /// Sends an item if there is room.
    ///
    /// # Errors
    /// If there is none, or the receiver is gone.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let shared = &self.shared;
        if shared.is_receiver_gone.load(Ordering::Acquire) {
            return Err(TrySendError::Disconnected(item));
        }
        shared.items.push(item).map_err(TrySendError::Full)?;
        shared.receiver.unpark();
        Ok(())
    }

    /// Sends an item, and waits for room if there is none.
    ///
    /// # Errors
    /// If the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        match self.try_send(item) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(item)) => Err(SendError(item)),
            Err(TrySendError::Full(item)) => {
                let mut item = Some(item);
                let mut send = |parker: &Parker| {
                    let item = item.take().expect("sent once");
                    self.send_in_line(item, parker)
                };
                // A thread that ends sends from its last destructors too.
                let sent = SENDER.try_with(&mut send);
                sent.unwrap_or_else(|_| send(&Parker::new()))
            }
        }
    }

    #[cold]
    fn send_in_line(&self, mut item: T, parker: &Parker) -> Result<(), SendError<T>> {
        let shared = &self.shared;
        // Which of the thread's turns in line this is: a line keeps no address that is reused.
        static TURN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        loop {
            {
                let mut line = shared.line();
                line.push_back((turn, parker.unparker().clone()));
                shared.line_count.store(line.len(), Ordering::Relaxed);
            }
            fence(Ordering::SeqCst); // with the one in `Receiver::try_recv` and in its drop
            let sent = self.try_send(item);
            if let Err(TrySendError::Full(back)) = sent {
                item = back;
                // Only the one who took this sender out of the line unparks it.
                parker.park();
                match self.try_send(item) {
                    Ok(()) => return Ok(()),
                    Err(TrySendError::Disconnected(item)) => return Err(SendError(item)),
                    Err(TrySendError::Full(back)) => item = back,
                }
                continue;
            }
            let was_in_line = {
                let mut line = shared.line();
                let before = line.len();
                line.retain(|(other, _)| *other != turn);
                shared.line_count.store(line.len(), Ordering::Relaxed);
                line.len() < before
            };
            if !was_in_line {
                // The wake-up is on its way: take it, so that it ends no later wait, and pass it
                // on to somebody who needs it.
                parker.park();
                shared.wake_sender();
            }
            return match sent {
                Ok(()) => Ok(()),
                Err(TrySendError::Full(item) | TrySendError::Disconnected(item)) => {
                    Err(SendError(item))
                }
            };
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.sender_count.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // AcqRel: what any sender sent is seen by a receiver that finds no sender left.
        if self.shared.sender_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.receiver.unpark();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item, if there is one.
    ///
    /// # Errors
    /// If there is none.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let shared = &self.shared;
        let item = match shared.items.pop() {
            Some(item) => item,
            // Senders that are gone sent before they went: look once more.
            None if shared.sender_count.load(Ordering::Acquire) == 0 => {
                shared.items.pop().ok_or(RecvError::Disconnected)?
            }
            None => return Err(RecvError::Empty),
        };
        fence(Ordering::SeqCst); // with the one in `send_in_line`
        shared.wake_sender();
        Ok(item)
    }

    /// The next item; waits for it.
    ///
    /// # Errors
    /// If there is none and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None)
    }

    /// As [`Receiver::recv`], but waits no longer than this.
    ///
    /// # Errors
    /// Also if none came in time.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.recv_until(Deadline::after(timeout))
    }

    /// As [`Receiver::recv`], but waits not beyond this moment.
    ///
    /// # Errors
    /// Also if none came in time.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvError> {
        self.recv_until(Some(Deadline::at(deadline)))
    }

    fn recv_until(&self, deadline: Option<Deadline>) -> Result<T, RecvError> {
        loop {
            match self.try_recv() {
                Err(RecvError::Empty) => {}
                received => return received,
            }
            if !self.parker.park_until(deadline).is_woken() {
                return self.try_recv();
            }
        }
    }

    /// All items, until the senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// What the receiver's waits were like.
    pub fn stats(&self) -> WaitStats {
        self.parker.stats()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.is_receiver_gone.store(true, Ordering::Release);
        fence(Ordering::SeqCst); // with the one in `send_in_line`
        let line = std::mem::take(&mut *self.shared.line());
        self.shared.line_count.store(0, Ordering::Relaxed);
        line.into_iter().for_each(|(_, sender)| sender.unpark());
        while self.shared.items.pop().is_some() {}
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.shared.items.len()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.shared.items.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::cpu_count;

    #[test]
    fn says_full_empty_and_gone() {
        let (sender, receiver) = bounded(1);
        assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvError::Empty));
        assert_eq!(receiver.recv_deadline(Instant::now()), Err(RecvError::Empty));
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        assert_eq!(receiver.recv(), Ok(1));
        sender.clone().send(3).unwrap();
        drop(sender);
        assert_eq!(receiver.recv(), Ok(3));
        assert_eq!(receiver.recv(), Err(RecvError::Disconnected));
        let (sender, receiver) = bounded(1);
        drop(receiver);
        assert_eq!(sender.send(4), Err(SendError(4)));
    }

    #[test]
    fn brings_everything_from_many_senders_in_the_order_of_each() {
        const COUNT: u32 = if cfg!(miri) { 100 } else { 20_000 };
        for capacity in [1, 2, 64] {
            let (sender, receiver) = bounded(capacity);
            std::thread::scope(|scope| {
                for number in 0..4u32 {
                    let sender = sender.clone();
                    scope.spawn(move || (0..COUNT).for_each(|n| sender.send((number, n)).unwrap()));
                }
                drop(sender);
                let mut next = [0; 4];
                for (number, n) in receiver.iter() {
                    assert_eq!(n, next[number as usize], "of sender {number}");
                    next[number as usize] += 1;
                }
                assert_eq!(next, [COUNT; 4]);
            });
        }
    }

    /// An item and the end come in any order with a look: the item is never lost.
    #[test]
    fn brings_the_last_item_of_a_sender_that_goes() {
        let (to_sender, senders) = std::sync::mpsc::channel::<Sender<u32>>();
        let thread = std::thread::spawn(move || {
            for sender in senders {
                sender.send(1).unwrap();
            }
        });
        for _ in 0..if cfg!(miri) { 50 } else { 50_000 } {
            let (sender, receiver) = bounded(1);
            to_sender.send(sender).unwrap();
            loop {
                match receiver.try_recv() {
                    Ok(_) => break,
                    // On one CPU the sender needs it.
                    Err(RecvError::Empty) if cpu_count() == 1 => std::thread::yield_now(),
                    Err(RecvError::Empty) => std::hint::spin_loop(),
                    Err(RecvError::Disconnected) => panic!("the item is lost"),
                }
            }
        }
        drop(to_sender);
        thread.join().unwrap();
    }

    /// The thread's own parker may be gone by then.
    #[test]
    fn sends_from_a_destructor_of_a_thread_that_ends() {
        struct SendsLast(Sender<u32>);
        impl Drop for SendsLast {
            fn drop(&mut self) {
                self.0.send(2).unwrap();
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<SendsLast>> = const { std::cell::RefCell::new(None) };
        }
        let (sender, receiver) = bounded(1);
        let thread = std::thread::spawn(move || {
            LAST.with_borrow_mut(|last| *last = Some(SendsLast(sender.clone())));
            // After it in line to be destroyed, so before it destroyed.
            sender.send(0).unwrap();
            sender.send(1).unwrap();
        });
        while receiver.shared.line_count.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(receiver.recv(), Ok(0));
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(receiver.recv(), Ok(2));
        thread.join().unwrap();
    }

    #[test]
    fn a_receiver_that_goes_lets_its_senders_go() {
        let (sender, receiver) = bounded(1);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(move || while sender.send(0).is_ok() {})
                })
                .collect();
            (0..10).for_each(|_| assert_eq!(receiver.recv(), Ok(0)));
            drop(receiver);
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
    }
}
