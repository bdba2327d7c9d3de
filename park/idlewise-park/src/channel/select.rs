//! [`Select`]: one thread waits until any of several channels is ready.

use std::fmt;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::{Receiver, Sender};
use crate::clock::Deadline;
use crate::line::{Line, Waiting, with_waiting};
use crate::sync::is_model_over;

/// One end of a channel, whatever the type of its items.
trait End {
    fn line(&self) -> &Line;
    /// Whether the operation would succeed without waiting, as a hint.
    fn is_ready(&self) -> bool;
}

struct ReceivingEnd<'a, T>(&'a Shared<T>);

impl<T> End for ReceivingEnd<'_, T> {
    fn line(&self) -> &Line {
        &self.0.receivers
    }

    fn is_ready(&self) -> bool {
        self.0.has_item() || self.0.senders.is_closed()
    }
}

struct SendingEnd<'a, T>(&'a Shared<T>);

impl<T> End for SendingEnd<'_, T> {
    fn line(&self) -> &Line {
        &self.0.senders
    }

    fn is_ready(&self) -> bool {
        self.0.has_room() || self.0.receivers.is_closed()
    }
}

/// Waits until any of several channels is ready to receive from or to send to.
///
/// Ready means that the operation would not wait *now*; that includes a disconnected channel. Another
/// thread may get there first, so try the operation, and wait again if it fails.
///
/// ```
/// use idlewise_park::channel::{Select, unbounded};
///
/// let ((orders, new_orders), (urgent, urgent_orders)) = (unbounded(), unbounded());
/// std::thread::spawn(move || {
///     orders.send(1).unwrap();
///     urgent.send(2).unwrap();
/// });
/// let mut select = Select::new();
/// let order = select.recv(&new_orders);
/// select.recv(&urgent_orders);
/// let mut sum = 0;
/// while sum < 3 {
///     let ready = if select.ready() == order { &new_orders } else { &urgent_orders };
///     sum += ready.try_recv().unwrap_or(0);
/// }
/// ```
pub struct Select<'a> {
    ends: Vec<Box<dyn End + 'a>>,
    /// Where the last search began, so that no end always comes first.
    first: usize,
}

impl<'a> Select<'a> {
    /// Creates a selection without operations.
    ///
    /// ```
    /// assert_eq!(idlewise_park::channel::Select::new().try_ready(), None);
    /// ```
    pub fn new() -> Self {
        Select { ends: Vec::new(), first: first() }
    }

    /// Adds receiving from this channel. Returns the operation's index, beginning at 0.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (sender, receiver) = bounded(1);
    /// sender.send(1).unwrap();
    /// let mut select = Select::new();
    /// let index = select.recv(&receiver);
    /// assert_eq!(select.try_ready(), Some(index));
    /// ```
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(Box::new(ReceivingEnd(&*receiver.shared)))
    }

    /// Adds sending to this channel. Returns the operation's index, beginning at 0.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (sender, receiver) = bounded::<u8>(1);
    /// let mut select = Select::new();
    /// let index = select.send(&sender);
    /// assert_eq!(select.try_ready(), Some(index));
    /// # drop(receiver);
    /// ```
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Box::new(SendingEnd(&*sender.shared)))
    }

    fn add(&mut self, end: Box<dyn End + 'a>) -> usize {
        self.ends.push(end);
        self.ends.len() - 1
    }

    /// Returns the index of an operation that is ready, if there is one.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (_sender, receiver) = bounded::<u8>(1);
    /// let mut select = Select::new();
    /// select.recv(&receiver);
    /// assert_eq!(select.try_ready(), None);
    /// ```
    pub fn try_ready(&mut self) -> Option<usize> {
        self.first = self.first.wrapping_add(1);
        let first = self.first % self.ends.len().max(1);
        let (before, after) = (0..first, first..self.ends.len());
        after.chain(before).find(|&index| self.ends[index].is_ready())
    }

    /// Waits for an operation that is ready, and returns its index.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (sender, receiver) = bounded(1);
    /// std::thread::spawn(move || sender.send(1));
    /// let mut select = Select::new();
    /// select.recv(&receiver);
    /// assert_eq!(select.ready(), 0);
    /// ```
    ///
    /// # Panics
    /// If no operation was added.
    pub fn ready(&mut self) -> usize {
        self.ready_until(None).expect("without a deadline it waits until one is ready")
    }

    /// Like [`Select::ready`], but waits no longer than `timeout`.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (_sender, receiver) = bounded::<u8>(1);
    /// let mut select = Select::new();
    /// select.recv(&receiver);
    /// assert_eq!(select.ready_timeout(std::time::Duration::from_micros(10)), None);
    /// ```
    ///
    /// # Panics
    /// If no operation was added.
    pub fn ready_timeout(&mut self, timeout: Duration) -> Option<usize> {
        self.ready_until(Deadline::after(timeout))
    }

    /// Like [`Select::ready`], but gives up at `deadline`.
    ///
    /// ```
    /// use idlewise_park::channel::{Select, bounded};
    ///
    /// let (_sender, receiver) = bounded::<u8>(1);
    /// let mut select = Select::new();
    /// select.recv(&receiver);
    /// assert_eq!(select.ready_deadline(std::time::Instant::now()), None);
    /// ```
    ///
    /// # Panics
    /// If no operation was added.
    pub fn ready_deadline(&mut self, deadline: Instant) -> Option<usize> {
        self.ready_until(Some(Deadline::at(deadline)))
    }

    fn ready_until(&mut self, deadline: Option<Deadline>) -> Option<usize> {
        assert!(!self.ends.is_empty(), "a Select without operations would wait for ever");
        self.try_ready().or_else(|| with_waiting(|waiting| self.wait(waiting, deadline)))
    }

    fn wait(&mut self, waiting: &Waiting, deadline: Option<Deadline>) -> Option<usize> {
        loop {
            waiting.begin();
            let mut places = PlacesOfThread { select: self, waiting, tickets: Vec::new() };
            places.enter();
            let is_ready = places.select.try_ready().is_some();
            let is_over = !is_ready && waiting.wait(deadline).is_none();
            drop(places);
            match self.try_ready() {
                None if is_over => return None,
                None => {}
                ready => return ready,
            }
        }
    }
}

/// A thread's places in the lines of all its ends.
struct PlacesOfThread<'s, 'a, 'w> {
    select: &'s mut Select<'a>,
    waiting: &'w Waiting,
    tickets: Vec<u64>,
}

impl PlacesOfThread<'_, '_, '_> {
    fn enter(&mut self) {
        for (operation, end) in self.select.ends.iter().enumerate() {
            self.tickets.push(end.line().enter_thread(self.waiting, operation));
        }
    }
}

impl Drop for PlacesOfThread<'_, '_, '_> {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        let called_by = self.waiting.abandon();
        for (end, ticket) in self.select.ends.iter().zip(&self.tickets) {
            end.line().leave(*ticket);
        }
        // The caller relies on one operation being used, and this thread may choose another. The call is
        // passed on only if that end is ready; otherwise two threads could pass it to each other for ever.
        let end = called_by.and_then(|operation| self.select.ends.get(operation));
        if let Some(end) = end.filter(|end| end.is_ready()) {
            end.line().call(1);
        }
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a new selection begins: one made for each wait must not always begin with the same end.
#[cfg(not(loom))]
fn first() -> usize {
    thread_local! {
        static FIRST: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    FIRST.try_with(|first| first.replace(first.get().wrapping_add(1))).unwrap_or(0)
}

/// In a model every execution begins alike.
#[cfg(loom)]
fn first() -> usize {
    0
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("operations", &self.ends.len()).finish_non_exhaustive()
    }
}
