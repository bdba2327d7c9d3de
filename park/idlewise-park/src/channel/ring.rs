//! [`Ring`]: a bounded queue in which neither end ever waits for the other.
//!
//! This is Dmitry Vyukov's bounded queue. Each slot has a stamp: the position whose turn it is.
//!
//! ```text
//!                      1 push takes the position       2 and has written
//!   stamp = position ──────────────────────────► (same) ───────────────► position + 1
//!           ▲                                                                  │
//!           │ 4 has read: position + lap                 3 pop takes the position │
//!           └────────────────────────────────────────── (same) ◄────────────────┘
//! ```
//!
//! A position counts slots in its low bits and rounds in its high bits. A lap is the distance from a slot
//! to the same slot one round later. `tail` is the next position to push to, `head` the next to pop from.
//! Both are claimed by compare-exchange, so each end may have any number of threads.
//!
//! If the scheduler stops a pusher between 1 and 2, the ring looks empty from that slot on. If it stops a
//! popper between 3 and 4, the ring looks full. crossbeam's `ArrayQueue` spins until that thread continues,
//! for milliseconds if it must. Here the other end is told that there is no value (or no room) and may
//! sleep. The stopped thread calls it later, since each thread calls after it has finished its slot
//! (`channel/mod.rs`). So a look at one stamp is enough, and neither end reads the other's counter.
//!
//! # Why these memory orders
//!
//! The stamp's Release store (2, 4) and Acquire load (before 1 and 3) hand over the slot's value. The
//! compare-exchanges only distribute positions, so they are relaxed.

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

// SAFETY: only the thread that holds a position writes, reads or drops its value, and the stamp hands it
// over. So values move between threads but are never shared.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// Creates a ring for `capacity` values, which must be at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a channel has room for one item at least");
        // One more, so that a full slot's stamp in this round differs from an empty slot's in the next.
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

    /// Appends a value. Returns it if there is no room.
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

    /// Removes the oldest value, if there is one.
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

    /// Whether there is room for the next value to push, as a hint.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        self.slot(tail).stamp.load(Ordering::Acquire) == tail
    }

    /// The number of values, including those being pushed or popped.
    pub(crate) fn len(&self) -> usize {
        // The head first: values pushed meanwhile only make the result larger, and at most full.
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

    /// The ring and its naive twin behave alike for any sequence of operations.
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

    /// The scheduler stopped a pusher that has claimed a position. A popper sees an empty ring and goes on.
    #[test]
    fn an_unfinished_push_does_not_hold_a_popper() {
        let ring = Ring::new(2);
        ring.tail.store(ring.next(0), Ordering::Relaxed);
        ring.push(2).unwrap();
        assert_eq!((ring.pop(), ring.push(3)), (None, Err(3)));
        let slot = ring.slot(0);
        // SAFETY: this plays the part of that pusher.
        slot.value.with_mut(|place| unsafe { (*place).write(1) });
        slot.stamp.store(1, Ordering::Release);
        assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
    }
}
