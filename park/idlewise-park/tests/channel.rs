//! The channel as its users see it: used by threads and tasks, bounded, unbounded and for one item.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_park::channel::{
    Receiver, RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, Sender,
    TryRecvError, TrySendError, bounded, oneshot, unbounded,
};

/// A limit for waits that must end. A test fails instead of hanging.
const LOST: Duration = Duration::from_secs(60);

#[test]
fn says_full_empty_and_gone() {
    let (sender, receiver) = bounded(1);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    assert_eq!(receiver.recv_deadline(Instant::now()), Err(RecvTimeoutError::Timeout));
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    assert_eq!(sender.send_timeout(2, Duration::ZERO), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(sender.send_deadline(2, Instant::now()), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(receiver.recv(), Ok(1));
    sender.clone().send(3).unwrap();
    drop(sender);
    assert_eq!(receiver.recv(), Ok(3));
    assert_eq!(receiver.recv(), Err(RecvError));
    let (sender, receiver) = bounded(1);
    drop(receiver);
    assert_eq!(sender.send(4), Err(SendError(4)));
    assert_eq!(sender.send_timeout(4, LOST), Err(SendTimeoutError::Disconnected(4)));
}

/// A sender's number and its item's number.
type Numbered = (usize, u32);

/// Each receiver gets the items of each sender in order, and together they get all items.
fn brings_everything(
    (sender, receiver): (Sender<Numbered>, Receiver<Numbered>),
    sender_count: usize,
    receiver_count: usize,
) {
    const COUNT: u32 = if cfg!(miri) { 50 } else { 3_000 };
    let received = thread::scope(|scope| {
        for number in 0..sender_count {
            let sender = sender.clone();
            scope.spawn(move || (0..COUNT).for_each(|n| sender.send((number, n)).unwrap()));
        }
        drop(sender);
        let receivers: Vec<_> = (0..receiver_count)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn(move || {
                    let mut last = vec![None; sender_count];
                    let mut count = 0;
                    for (number, n) in receiver {
                        assert!(last[number] < Some(n), "of sender {number}");
                        last[number] = Some(n);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        drop(receiver);
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum::<usize>()
    });
    assert_eq!(received, sender_count * COUNT as usize);
}

#[test]
fn brings_everything_in_the_order_of_each_sender() {
    for capacity in [1, 2, 64] {
        for (senders, receivers) in [(1, 1), (4, 1), (1, 3), (3, 2)] {
            brings_everything(bounded(capacity), senders, receivers);
        }
    }
    for (senders, receivers) in [(1, 1), (4, 1), (3, 2)] {
        brings_everything(unbounded(), senders, receivers);
    }
}

/// The last item, the end of the sender and a look come in any order: the item is never lost.
#[test]
fn brings_the_last_item_of_a_sender_that_goes() {
    let (to_sender, senders) = std::sync::mpsc::channel::<Sender<u32>>();
    let thread = thread::spawn(move || {
        for sender in senders {
            sender.send(1).unwrap();
        }
    });
    for _ in 0..if cfg!(miri) { 50 } else { 5_000 } {
        let (sender, receiver) = bounded(1);
        to_sender.send(sender).unwrap();
        loop {
            match receiver.try_recv() {
                Ok(_) => break,
                Err(TryRecvError::Empty) => thread::yield_now(),
                Err(TryRecvError::Disconnected) => panic!("the item is lost"),
            }
        }
    }
    drop(to_sender);
    thread.join().unwrap();
}

/// Counts how often it was dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The receiver goes while a sender sends as fast as it can. One of the two drops whatever was accepted,
/// while the sender still lives. (One round in five used to leave an item behind.)
fn leaves_no_item_behind(channel: fn() -> (Sender<Counted>, Receiver<Counted>)) {
    const ROUNDS: usize = if cfg!(miri) { 30 } else { 1_000 };
    let (to_sender, senders) = std::sync::mpsc::sync_channel(0);
    let (to_test, sent) = std::sync::mpsc::sync_channel(0);
    let thread = thread::spawn(move || {
        for (sender, dropped) in senders {
            let sender: Sender<Counted> = sender;
            let dropped: Arc<AtomicUsize> = dropped;
            let mut made = 0;
            loop {
                made += 1;
                match sender.try_send(Counted(dropped.clone())) {
                    Ok(()) => {}
                    Err(TrySendError::Full(_)) => thread::yield_now(),
                    Err(TrySendError::Disconnected(_)) => break,
                }
            }
            to_test.send((sender, made)).unwrap();
        }
    });
    for round in 0..ROUNDS {
        let ((sender, receiver), dropped) = (channel(), Arc::new(AtomicUsize::new(0)));
        to_sender.send((sender, dropped.clone())).unwrap();
        while receiver.is_empty() {
            thread::yield_now();
        }
        (0..round % 97).for_each(|_| std::hint::spin_loop());
        drop(receiver);
        let (sender, made) = sent.recv().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), made, "in round {round}");
        drop(sender);
    }
    drop(to_sender);
    thread.join().unwrap();
}

#[test]
fn a_receiver_that_goes_leaves_no_item_behind() {
    leaves_no_item_behind(|| bounded(4096));
    leaves_no_item_behind(unbounded);
}

/// The server goes: no client waits for ever for an answer to an accepted request.
#[test]
fn no_client_waits_for_a_server_that_is_gone() {
    for round in 0..if cfg!(miri) { 10 } else { 500 } {
        let (to_server, server) = bounded(4096);
        let client = thread::spawn(move || {
            let mut last = None;
            loop {
                let (sender, answer) = oneshot::<u8>();
                match to_server.try_send(sender) {
                    Ok(()) => last = Some(answer),
                    Err(TrySendError::Full(_)) => thread::yield_now(),
                    Err(TrySendError::Disconnected(_)) => break,
                }
            }
            (last.map(|answer| answer.recv_timeout(LOST)), to_server)
        });
        while server.is_empty() {
            thread::yield_now();
        }
        (0..round % 61).for_each(|_| std::hint::spin_loop());
        drop(server);
        let (answer, _to_server) = client.join().unwrap();
        assert!(matches!(answer, None | Some(Err(RecvTimeoutError::Disconnected))), "{round}");
    }
}

/// What the thread waits with may already be destroyed.
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
    let thread = thread::spawn(move || {
        LAST.with_borrow_mut(|last| *last = Some(SendsLast(sender.clone())));
        // It is destroyed after this one, so it still exists here.
        sender.send(0).unwrap();
        sender.send(1).unwrap();
    });
    for n in 0..3 {
        assert_eq!(receiver.recv_timeout(LOST), Ok(n));
    }
    thread.join().unwrap();
}

#[test]
fn a_receiver_that_goes_lets_its_senders_go() {
    let (sender, receiver) = bounded(1);
    thread::scope(|scope| {
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

/// Senders and receivers give up now and then: nothing is lost or received twice.
#[test]
fn gives_up_without_loss() {
    const COUNT: u64 = if cfg!(miri) { 60 } else { 5_000 };
    let (sender, receiver) = bounded(2);
    let received = thread::scope(|scope| {
        for _ in 0..2 {
            let sender = sender.clone();
            scope.spawn(move || {
                for n in 1..=COUNT {
                    let mut item = n;
                    while let Err(error) =
                        sender.send_timeout(item, Duration::from_nanos(n % 9_000))
                    {
                        item = error.into_inner();
                    }
                }
            });
        }
        drop(sender);
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn(move || {
                    let mut sum = 0;
                    loop {
                        match receiver.recv_timeout(Duration::from_nanos(sum % 9_000)) {
                            Ok(n) => sum += n,
                            Err(RecvTimeoutError::Timeout) => {}
                            Err(RecvTimeoutError::Disconnected) => return sum,
                        }
                    }
                })
            })
            .collect();
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum::<u64>()
    });
    assert_eq!(received, COUNT * (COUNT + 1));
}

/// A task that counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn task() -> (Arc<Wakes>, Waker) {
    let wakes = Arc::new(Wakes::default());
    (wakes.clone(), wakes.into())
}

fn poll<F: Future>(future: &mut Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn wakes_tasks_that_wait_for_items_and_for_room() {
    let (sender, receiver) = bounded(1);
    let (wakes, waker) = task();
    let mut receiving = pin!(receiver.recv_async());
    assert_eq!(poll(&mut receiving, &waker), Poll::Pending);
    assert_eq!(poll(&mut receiving, &waker), Poll::Pending, "in line still");
    sender.send(1).unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(poll(&mut receiving, &waker), Poll::Ready(Ok(1)));

    let mut first = pin!(sender.send_async(2));
    assert_eq!(poll(&mut first, &waker), Poll::Ready(Ok(())));
    let mut second = pin!(sender.send_async(3));
    assert_eq!(poll(&mut second, &waker), Poll::Pending);
    assert_eq!(receiver.recv(), Ok(2));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
    assert_eq!(poll(&mut second, &waker), Poll::Ready(Ok(())));
    assert_eq!(receiver.recv(), Ok(3));

    let mut last = pin!(receiver.recv_async());
    assert_eq!(poll(&mut last, &waker), Poll::Pending);
    drop(sender.clone());
    assert_eq!(poll(&mut last, &waker), Poll::Pending, "one sender is left");
}

/// A task is called and then dropped before it looks: the next one is called.
#[test]
fn a_future_that_is_dropped_passes_its_call_on() {
    let (sender, receiver) = bounded(2);
    let ((first_wakes, first_waker), (second_wakes, second_waker)) = (task(), task());
    let mut first = Box::pin(receiver.recv_async());
    let mut second = pin!(receiver.recv_async());
    assert_eq!(poll(&mut first.as_mut(), &first_waker), Poll::Pending);
    assert_eq!(poll(&mut second, &second_waker), Poll::Pending);
    sender.send(1).unwrap();
    assert_eq!(first_wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(second_wakes.0.load(Ordering::SeqCst), 0);
    drop(first);
    assert_eq!(second_wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(poll(&mut second, &second_waker), Poll::Ready(Ok(1)));
}

#[test]
fn select_waits_for_whatever_comes_first() {
    let (first_sender, first) = bounded::<u32>(1);
    let (second_sender, second) = unbounded::<&str>();
    let mut select = Select::new();
    assert_eq!((select.recv(&first), select.recv(&second)), (0, 1));
    assert_eq!(select.ready_timeout(Duration::ZERO), None);
    thread::scope(|scope| {
        scope.spawn(|| second_sender.send("hello").unwrap());
        assert_eq!(select.ready_timeout(LOST), Some(1));
    });
    assert_eq!(second.try_recv(), Ok("hello"));
    first_sender.send(1).unwrap();
    second_sender.send("again").unwrap();
    let mut both = [select.try_ready().unwrap(), select.try_ready().unwrap()];
    both.sort_unstable();
    assert_eq!(both, [0, 1], "none is always first");
    assert_eq!((first.try_recv(), second.try_recv()), (Ok(1), Ok("again")));
    drop(first_sender);
    assert_eq!(select.ready(), 0, "disconnected");
}

/// (A `Select` made for each wait began with the same end each time, so a disconnected one hid the other.)
#[test]
fn a_select_for_each_wait_hides_no_end() {
    let (sender, one) = bounded::<u32>(1);
    let (_, gone) = bounded::<u32>(1);
    sender.send(1).unwrap();
    let ready = (0..4).map(|_| {
        let mut select = Select::new();
        select.recv(&one);
        select.recv(&gone);
        select.ready()
    });
    assert!(ready.collect::<Vec<_>>().contains(&0));
}

/// Two selecting threads and a receiving one share a channel: every item arrives.
#[test]
fn select_and_recv_share_a_channel() {
    const COUNT: u32 = if cfg!(miri) { 60 } else { 5_000 };
    let (sender, receiver) = bounded::<u32>(2);
    let (stop, stopped) = bounded::<()>(1);
    let received = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (receiver, stopped) = (receiver.clone(), stopped.clone());
            let received = &received;
            scope.spawn(move || {
                let mut select = Select::new();
                let item = select.recv(&receiver);
                select.recv(&stopped);
                loop {
                    if select.ready() != item && stopped.is_disconnected() {
                        break;
                    }
                    if receiver.try_recv().is_ok() {
                        received.fetch_add(1, Ordering::SeqCst);
                    } else if receiver.is_disconnected() {
                        break;
                    }
                }
            });
        }
        let other = receiver.clone();
        let received = &received;
        let thread = scope.spawn(move || {
            for _ in other {
                received.fetch_add(1, Ordering::SeqCst);
            }
        });
        (0..COUNT).for_each(|n| sender.send_timeout(n, LOST).unwrap());
        drop(sender);
        thread.join().unwrap();
        drop(stop);
    });
    // A thread that stopped may have left the last items to the others.
    assert_eq!(received.load(Ordering::SeqCst), COUNT as usize);
}
