//! The channel's rings, lines and ends.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use idlewise_core::model::{explore, explore_within, must_fail};
use idlewise_core::sync::broken::Break;
use idlewise_park::channel::{Receiver, Select, Sender, TrySendError, bounded, unbounded};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// One sender sends two items, one after the other, with room for one.
fn sender_waits_for_room() {
    let (sender, receiver) = bounded(1);
    let thread = thread::spawn(move || (1..=2).for_each(|n| sender.send(n).unwrap()));
    assert_eq!((receiver.recv(), receiver.recv()), (Ok(1), Ok(2)));
    assert!(receiver.recv().is_err(), "the sender is gone");
    thread.join().unwrap();
}

#[test]
fn sends_race_with_receives() {
    explore("channel of 1: one sender, two items, the end", sender_waits_for_room);
}

#[test]
fn broken_pushing_without_a_fence() {
    must_fail(Break::PushWithoutFence, sender_waits_for_room);
}

#[test]
fn broken_popping_without_a_fence() {
    must_fail(Break::PopWithoutFence, sender_waits_for_room);
}

#[test]
fn broken_getting_in_line_without_a_fence() {
    must_fail(Break::EnterLineWithoutFence, sender_waits_for_room);
}

#[test]
fn broken_a_stamp_that_publishes_nothing() {
    must_fail(Break::StampRelaxed, sender_waits_for_room);
}

/// Two senders with one item each.
fn two_senders(capacity: usize) {
    let (sender, receiver) = bounded(capacity);
    let threads: Vec<_> = (1..=2)
        .map(|n| {
            let sender = sender.clone();
            thread::spawn(move || sender.send(n).unwrap())
        })
        .collect();
    assert_eq!(receiver.recv().unwrap() + receiver.recv().unwrap(), 3);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(sender);
}

#[test]
fn two_senders_race() {
    explore_within("channel of 2: two senders", 2, || two_senders(2));
}

#[test]
fn two_senders_race_for_room() {
    explore_within("channel of 1: two senders", 1, || two_senders(1));
}

/// One sender with two items, and two receivers of one item each.
fn two_receivers(channel: fn() -> (Sender<u32>, Receiver<u32>)) {
    let (sender, receiver) = channel();
    let other = receiver.clone();
    let thread = thread::spawn(move || other.recv().unwrap());
    let sending = thread::spawn(move || (1..=2).for_each(|n| sender.send(n).unwrap()));
    let first = receiver.recv().unwrap();
    assert_eq!(first + thread.join().unwrap(), 3);
    sending.join().unwrap();
}

#[test]
fn two_receivers_race() {
    explore_within("channel of 2: two receivers", 2, || two_receivers(|| bounded(2)));
}

#[test]
fn two_receivers_of_an_unbounded_channel_race() {
    explore_within("unbounded channel: two receivers", 2, || two_receivers(unbounded));
}

/// Counts how often it was dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The receiver goes while the sender, which stays, sends.
fn receiver_goes() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = bounded(2);
    let thread = thread::spawn(move || drop(receiver));
    for _ in 0..2 {
        let sent = sender.try_send(Counted(dropped.clone()));
        assert!(!matches!(sent, Err(TrySendError::Full(_))));
    }
    thread.join().unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "an item is left behind");
}

#[test]
fn a_receiver_that_goes_races_with_sends() {
    explore("channel: the receiver goes while a sender sends", receiver_goes);
}

#[test]
fn broken_a_sender_that_does_not_see_the_end() {
    must_fail(Break::ClosedUnseen, receiver_goes);
}

#[test]
fn a_receiver_that_goes_lets_a_waiting_sender_go() {
    explore("channel of 1: the receiver goes while a sender waits", || {
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        let thread = thread::spawn(move || drop(receiver));
        // Both results are right: the receiver may go before or after this.
        let _ = sender.send(2);
        thread.join().unwrap();
        assert!(sender.is_empty(), "an item is left behind");
    });
}

/// One receiver gives up. The other one, or one that comes later, must get the item.
fn one_gives_up() {
    let (sender, receiver) = bounded(2);
    let impatient = receiver.clone();
    let answer = sender.clone();
    let giving_up = thread::spawn(move || {
        // No time passes in a model: it looks, gets in line, looks again, and gives up.
        if impatient.recv_timeout(Duration::ZERO).is_ok() {
            answer.send(2).unwrap();
        }
    });
    let sending = thread::spawn(move || sender.send(1).unwrap());
    receiver.recv().unwrap();
    giving_up.join().unwrap();
    sending.join().unwrap();
}

#[test]
fn giving_up_races_with_a_call() {
    explore_within("channel: one of two receivers gives up", 2, one_gives_up);
}

/// Two items. One receiver takes an item without waiting for the call that it gets.
fn call_that_is_not_needed() {
    let (sender, receiver) = bounded(2);
    let other = receiver.clone();
    let first = sender.clone();
    let sending = thread::spawn(move || first.send(1).unwrap());
    let receiving = thread::spawn(move || other.recv().unwrap());
    sender.send(2).unwrap();
    receiver.recv().unwrap();
    receiving.join().unwrap();
    sending.join().unwrap();
}

#[test]
fn two_senders_race_with_two_receivers() {
    explore_within("channel of 2: two senders, two receivers", 1, call_that_is_not_needed);
}

/// An executor for one task, in which a wake-up is an unpark.
struct Task(loom::thread::Thread);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Task(loom::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => loom::thread::park(),
        }
    }
}

#[test]
fn tasks_race_with_each_other() {
    explore("channel of 1: two tasks", || {
        let (sender, receiver) = bounded(1);
        let thread = thread::spawn(move || {
            for n in 1..=2 {
                block_on(sender.send_async(n)).unwrap();
            }
        });
        assert_eq!(block_on(receiver.recv_async()), Ok(1));
        assert_eq!(block_on(receiver.recv_async()), Ok(2));
        thread.join().unwrap();
    });
}

/// A future is dropped after one look. If it was called, the call goes to the waiting thread.
fn dropped_future() {
    let (sender, receiver) = bounded(2);
    let other = receiver.clone();
    let answer = sender.clone();
    let dropping = thread::spawn(move || {
        let waker = Arc::new(Task(loom::thread::current())).into();
        let mut future = pin!(other.recv_async());
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            answer.send(2).unwrap();
        }
    });
    let sending = thread::spawn(move || sender.send(1).unwrap());
    receiver.recv().unwrap();
    dropping.join().unwrap();
    sending.join().unwrap();
}

#[test]
fn a_dropped_future_races_with_a_call() {
    explore_within("channel: a future is dropped, a thread waits", 2, dropped_future);
}

/// The same, with a future that is first in line before the others begin.
fn dropped_future_in_line() {
    let (sender, receiver) = bounded(1);
    let other = receiver.clone();
    let waker = Arc::new(Task(loom::thread::current())).into();
    let mut future = Box::pin(other.recv_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let receiving = thread::spawn(move || receiver.recv().unwrap());
    let sending = thread::spawn(move || {
        sender.send(1).unwrap();
        sender
    });
    drop(future);
    receiving.join().unwrap();
    sending.join().unwrap();
}

#[test]
fn a_dropped_future_in_line_races_with_a_call() {
    explore_within("channel: a future in line is dropped", 3, dropped_future_in_line);
}

#[test]
fn broken_a_call_that_is_not_passed_on() {
    must_fail(Break::CallKept, dropped_future_in_line);
}

#[test]
fn select_races_with_two_senders() {
    explore_within("select of two channels", 2, || {
        let ((first, one), (second, two)) = (bounded::<()>(1), bounded::<()>(1));
        let threads = [first, second].map(|sender| thread::spawn(move || sender.send(())));
        let mut received = [false; 2];
        while received != [true; 2] {
            let mut select = Select::new();
            // Ends of finished threads stay disconnected, so only the others are asked.
            let ends: Vec<_> =
                [&one, &two].into_iter().enumerate().filter(|(n, _)| !received[*n]).collect();
            ends.iter().for_each(|(_, end)| _ = select.recv(end));
            let (number, end) = ends[select.ready()];
            received[number] |= end.try_recv().is_ok();
        }
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}
