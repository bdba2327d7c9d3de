//! [`Ring`]: a bounded queue whose ends never wait for each other.
//!
//! Dmitry Vyukov's bounded queue: each slot has a stamp, the position whose turn it is.
//!
//! ```text
//!                      1 push takes the position       2 and has written
//!   stamp = position ──────────────────────────► (same) ───────────────► position + 1
//!           ▲                                                                  │
//!           │ 4 has read: position + lap                 3 pop takes the position │
//!           └────────────────────────────────────────── (same) ◄────────────────┘
//! ```
//!
//! Positions count slots and, above them, rounds; a lap is the distance from a slot to itself one
//! round later. `tail` is the next position to push to, `head` the next to pop from; both are
//! claimed by compare-exchange, so there may be any number of threads at each end.
//!
//! A pusher that the scheduler stops between 1 and 2 makes the ring look empty from its slot on,
//! a popper between 3 and 4 full. crossbeam's `ArrayQueue` spins until such a thread goes on, for
//! milliseconds if it must. Here the other end is told that there is nothing (no room), may sleep, and is
//! called by that very thread: each calls after it has finished its slot (`channel/mod.rs`). So a
//! look at one stamp decides, and neither end reads the other's counter.
//!
//! # Why these memory orders
//!
//! The stamp's Release store (2, 4) and Acquire load (before 1 and 3) pass the slot's value on. The
//! compare-exchanges only share out positions, so they are relaxed.

use std::mem::MaybeUninit;

use crate::sync::{AtomicUsize, Ordering, Padded, UnsafeCell, breaks, is_model_over};

pub(crate) struct Ring<T> {
    head: Padded<AtomicUsize>,
    tail: Padded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
    lap: usize,
}

struct Slot<T> {
    stamp: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value is written, read and dropped by the one thread that has its position, and passed on
// by the stamp; so values move between threads, and are never shared.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// With room for `capacity` values, one at least.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a channel has room for one item at least");
        // One more, so that a full slot's stamp of this round is no empty one's of the next.
        let lap = (capacity + 1).next_power_of_two();
        let slot = |index| Slot {
            stamp: AtomicUsize::new(index),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Ring {
            head: Padded(AtomicUsize::new(0)),
            tail: Padded(AtomicUsize::new(0)),
            slots: (0..capacity).map(slot).collect(),
            lap,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.lap - 1)]
    }

    /// The position after this one.
    #[inline]
    fn next(&self, position: usize) -> usize {
        let index = position & (self.lap - 1);
        if index + 1 < self.slots.len() {
            position + 1
        } else {
            (position - index).wrapping_add(self.lap)
        }
    }

    /// Appends a value. It comes back if there is no room.
    #[inline]
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(tail);
            let found = if slot.stamp.load(Ordering::Acquire) == tail {
                let next = self.next(tail);
                match self.tail.compare_exchange_weak(
                    tail,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: the position is this thread's, and its slot is empty.
                        slot.value.with_mut(|place| unsafe { (*place).write(value) });
                        let release = if breaks!(StampRelaxed) {
                            Ordering::Relaxed
                        } else {
                            Ordering::Release
                        };
                        slot.stamp.store(tail.wrapping_add(1), release);
                        return Ok(());
                    }
                    Err(found) => found,
                }
            } else {
                let found = self.tail.load(Ordering::Relaxed);
                if found == tail {
                    return Err(value);
                }
                found
            };
            tail = found;
        }
    }

    /// The oldest value, if there is one.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            let found = if slot.stamp.load(Ordering::Acquire) == head.wrapping_add(1) {
                let next = self.next(head);
                match self.head.compare_exchange_weak(
                    head,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: the position is this thread's, and its slot is full.
                        let value = slot.value.with(|place| unsafe { (*place).assume_init_read() });
                        slot.stamp.store(head.wrapping_add(self.lap), Ordering::Release);
                        return Some(value);
                    }
                    Err(found) => found,
                }
            } else {
                let found = self.head.load(Ordering::Relaxed);
                if found == head {
                    return None;
                }
                found
            };
            head = found;
        }
    }

    /// Whether the next value to pop is there, as a hint.
    #[inline]
    pub(crate) fn has_value(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        self.slot(head).stamp.load(Ordering::Acquire) == head.wrapping_add(1)
    }

    /// Whether the next value to push finds room, as a hint.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        self.slot(tail).stamp.load(Ordering::Acquire) == tail
    }

    /// How many values there are, those included that are being pushed or popped.
    pub(crate) fn len(&self) -> usize {
        // The head first: values that come meanwhile make it longer, at most full.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        let index = |position: usize| position & (self.lap - 1);
        let rounds = (tail - index(tail)).wrapping_sub(head - index(head)) / self.lap;
        let len = (rounds * self.capacity() + index(tail)).saturating_sub(index(head));
        len.min(self.capacity())
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The ring and its naive twin do the same, whatever is asked of them.
    #[test]
    fn is_a_bounded_queue() {
        for capacity in [1, 2, 3, 4, 7, 8] {
            let (ring, mut twin) = (Ring::new(capacity), VecDeque::new());
            let mut random = 0x9e37_79b9_7f4a_7c15u64 + capacity as u64;
            for n in 0..2_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if (random >> 33) % 2 == 0 {
                    let pushed = ring.push(n);
                    assert_eq!(pushed.is_ok(), twin.len() < capacity);
                    if pushed.is_ok() {
                        twin.push_back(n);
                    }
                } else {
                    assert_eq!(ring.pop(), twin.pop_front());
                }
                assert_eq!(ring.len(), twin.len(), "capacity {capacity}");
                assert_eq!(ring.has_value(), !twin.is_empty());
                assert_eq!(ring.has_room(), twin.len() < capacity);
            }
        }
    }

    #[test]
    fn counts_on_over_the_end_of_the_counter() {
        for capacity in [1, 3, 4] {
            let mut ring = Ring::new(capacity);
            let last_round = 0usize.wrapping_sub(ring.lap);
            (ring.head.0, ring.tail.0) =
                (AtomicUsize::new(last_round), AtomicUsize::new(last_round));
            for (index, slot) in ring.slots.iter_mut().enumerate() {
                slot.stamp = AtomicUsize::new(last_round + index);
            }
            for n in 0..20 {
                assert_eq!((ring.push(n), ring.len()), (Ok(()), 1));
                assert_eq!((ring.pop(), ring.len()), (Some(n), 0));
            }
        }
    }

    #[test]
    fn drops_what_is_left() {
        let item = std::sync::Arc::new(());
        let ring = Ring::new(3);
        (0..3).for_each(|_| ring.push(item.clone()).unwrap());
        drop(ring.pop());
        assert_eq!(std::sync::Arc::strong_count(&item), 3);
        drop(ring);
        assert_eq!(std::sync::Arc::strong_count(&item), 1);
    }

    /// The scheduler stopped a pusher after it took its position: its end says "empty", and goes on.
    #[test]
    fn an_unfinished_push_does_not_hold_a_popper() {
        let ring = Ring::new(2);
        ring.tail.store(ring.next(0), Ordering::Relaxed);
        ring.push(2).unwrap();
        assert_eq!((ring.pop(), ring.push(3)), (None, Err(3)));
        let slot = ring.slot(0);
        // SAFETY: this is that pusher.
        slot.value.with_mut(|place| unsafe { (*place).write(1) });
        slot.stamp.store(1, Ordering::Release);
        assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
    }
}
