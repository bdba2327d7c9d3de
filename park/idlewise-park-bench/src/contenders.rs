//! Our parker and everything it is compared with, each as a waiter and a waker that share a token.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use idlewise_core::{Doorbell, Ring};
use idlewise_probe::{futex_wait, futex_wake};

/// The side that waits.
pub trait Wait: Send {
    /// Called once by the thread that will wait.
    fn begin(&mut self) {}

    /// Waits for a token and consumes it.
    fn wait(&mut self);
}

/// The side that wakes.
pub trait Wake: Send + Sync {
    /// Leaves a token and wakes the waiter.
    fn wake(&self);
}

/// Both sides.
pub(crate) type Pair = (Box<dyn Wait>, Box<dyn Wake>);

/// A way to wait and wake.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name in tables.
    pub name: &'static str,
    /// How long it spins before it sleeps, if it is one of the fixed spins.
    pub fixed_spin_ns: Option<u64>,
    pub(crate) pair: fn(Option<u64>) -> Pair,
}

/// The name of our parker.
pub const OURS: &str = "idlewise";
/// The name of the plain futex.
pub const FUTEX: &str = "futex";

/// Returns all contenders: ours first, then other libraries', then fixed spins.
pub fn contenders() -> Vec<Contender> {
    let other = |name, pair| Contender { name, fixed_spin_ns: None, pair };
    let spin = |name, us: u64| Contender { name, fixed_spin_ns: Some(us * 1000), pair: fixed_spin };
    vec![
        other(OURS, ours),
        other(FUTEX, futex),
        other("eventfd", eventfd),
        other("std park", std_park),
        other("crossbeam", crossbeam),
        other("parking_lot", parking_lot_condvar),
        other("tokio Notify", tokio_notify),
        other("event-listener", event_listener_event),
        spin("spin 1 us", 1),
        spin("spin 2 us", 2),
        spin("spin 5 us", 5),
        spin("spin 10 us", 10),
        spin("spin 20 us", 20),
        spin("spin 50 us", 50),
        spin("spin 100 us", 100),
    ]
}

/// MWAITX without sleeping. Use it only in a process in which [`crate::probe_mwaitx`] returned.
pub const MWAITX: Contender = Contender { name: "mwaitx", fixed_spin_ns: None, pair: mwaitx };

fn mwaitx(_: Option<u64>) -> Pair {
    let line = Arc::new(crate::mwaitx::Line::default());
    (Box::new(Mwaitx(line.clone())), Box::new(Mwaitx(line)))
}

struct Mwaitx(Arc<crate::mwaitx::Line>);

impl Wait for Mwaitx {
    fn wait(&mut self) {
        while self.0.word.swap(0, Ordering::Acquire) == 0 {
            self.0.watch();
        }
    }
}

impl Wake for Mwaitx {
    fn wake(&self) {
        self.0.word.store(1, Ordering::Release);
    }
}

struct OursWaiter(idlewise_park::Parker);
struct OursWaker(idlewise_park::Unparker);

fn ours(_: Option<u64>) -> Pair {
    let parker = idlewise_park::Parker::new();
    let unparker = parker.unparker().clone();
    (Box::new(OursWaiter(parker)), Box::new(OursWaker(unparker)))
}

impl Wait for OursWaiter {
    fn wait(&mut self) {
        self.0.park();
    }
}

impl Wake for OursWaker {
    fn wake(&self) {
        self.0.unpark();
    }
}

struct Futex(Arc<AtomicU32>);

fn futex(_: Option<u64>) -> Pair {
    let word = Arc::new(AtomicU32::new(0));
    (Box::new(Futex(word.clone())), Box::new(Futex(word)))
}

impl Wait for Futex {
    fn wait(&mut self) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            futex_wait(&self.0, 0);
        }
    }
}

impl Wake for Futex {
    fn wake(&self) {
        self.0.store(1, Ordering::Release);
        futex_wake(&self.0);
    }
}

struct EventFd(Arc<File>);

fn eventfd(_: Option<u64>) -> Pair {
    // SAFETY: no pointers; we own the descriptor.
    let file = unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        assert!(fd >= 0, "no eventfd: {}", std::io::Error::last_os_error());
        Arc::new(File::from_raw_fd(fd))
    };
    (Box::new(EventFd(file.clone())), Box::new(EventFd(file)))
}

impl Wait for EventFd {
    fn wait(&mut self) {
        (&*self.0).read_exact(&mut [0; 8]).expect("an eventfd can be read");
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        (&*self.0).write_all(&1u64.to_ne_bytes()).expect("an eventfd can be written");
    }
}

#[derive(Clone)]
struct StdPark {
    has_token: Arc<AtomicBool>,
    waiter: Arc<OnceLock<Thread>>,
}

fn std_park(_: Option<u64>) -> Pair {
    let pair = StdPark { has_token: Arc::default(), waiter: Arc::default() };
    (Box::new(pair.clone()), Box::new(pair))
}

impl Wait for StdPark {
    fn begin(&mut self) {
        self.waiter.set(std::thread::current()).expect("one thread waits");
    }

    fn wait(&mut self) {
        while !self.has_token.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Wake for StdPark {
    fn wake(&self) {
        self.has_token.store(true, Ordering::Release);
        self.waiter.get().expect("the waiter has begun").unpark();
    }
}

struct Crossbeam(crossbeam_utils::sync::Parker);
struct CrossbeamWaker(crossbeam_utils::sync::Unparker);

fn crossbeam(_: Option<u64>) -> Pair {
    let parker = crossbeam_utils::sync::Parker::new();
    let unparker = parker.unparker().clone();
    (Box::new(Crossbeam(parker)), Box::new(CrossbeamWaker(unparker)))
}

impl Wait for Crossbeam {
    fn wait(&mut self) {
        self.0.park();
    }
}

impl Wake for CrossbeamWaker {
    fn wake(&self) {
        self.0.unpark();
    }
}

#[derive(Clone, Default)]
struct ParkingLot(Arc<(parking_lot::Mutex<bool>, parking_lot::Condvar)>);

fn parking_lot_condvar(_: Option<u64>) -> Pair {
    let pair = ParkingLot::default();
    (Box::new(pair.clone()), Box::new(pair))
}

impl Wait for ParkingLot {
    fn wait(&mut self) {
        let (has_token, woken) = &*self.0;
        let mut has_token = has_token.lock();
        while !std::mem::take(&mut *has_token) {
            woken.wait(&mut has_token);
        }
    }
}

impl Wake for ParkingLot {
    fn wake(&self) {
        let (has_token, woken) = &*self.0;
        *has_token.lock() = true;
        woken.notify_one();
    }
}

struct TokioNotify {
    notify: Arc<tokio::sync::Notify>,
    runtime: tokio::runtime::Runtime,
}

struct TokioWaker(Arc<tokio::sync::Notify>);

fn tokio_notify(_: Option<u64>) -> Pair {
    let notify = Arc::new(tokio::sync::Notify::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    (Box::new(TokioNotify { notify: notify.clone(), runtime }), Box::new(TokioWaker(notify)))
}

impl Wait for TokioNotify {
    fn wait(&mut self) {
        self.runtime.block_on(self.notify.notified());
    }
}

impl Wake for TokioWaker {
    fn wake(&self) {
        self.0.notify_one();
    }
}

#[derive(Clone, Default)]
struct EventListener(Arc<(AtomicBool, event_listener::Event)>);

fn event_listener_event(_: Option<u64>) -> Pair {
    let pair = EventListener::default();
    (Box::new(pair.clone()), Box::new(pair))
}

impl Wait for EventListener {
    fn wait(&mut self) {
        use event_listener::Listener;
        let (has_token, event) = &*self.0;
        while !has_token.swap(false, Ordering::Acquire) {
            event_listener::listener!(event => listener);
            if has_token.swap(false, Ordering::Acquire) {
                return;
            }
            listener.wait();
        }
    }
}

impl Wake for EventListener {
    fn wake(&self) {
        let (has_token, event) = &*self.0;
        has_token.store(true, Ordering::Release);
        event.notify(1);
    }
}

/// What today's libraries do: spin for a fixed time, then sleep. It uses our doorbell, so that only
/// that choice differs.
struct FixedSpin {
    bell: Arc<Doorbell>,
    spin: Duration,
}

struct FixedSpinWaker(Arc<Doorbell>);

fn fixed_spin(spin_ns: Option<u64>) -> Pair {
    let bell = Arc::new(Doorbell::new());
    let spin = Duration::from_nanos(spin_ns.unwrap_or(0));
    (Box::new(FixedSpin { bell: bell.clone(), spin }), Box::new(FixedSpinWaker(bell)))
}

impl Wait for FixedSpin {
    fn wait(&mut self) {
        if self.bell.start_polling() {
            let start = Instant::now();
            while !self.bell.is_rung() && start.elapsed() < self.spin {
                std::hint::spin_loop();
            }
            if !self.bell.is_rung() && self.bell.fall_asleep() {
                while !self.bell.is_rung() {
                    futex_wait(self.bell.word(), Doorbell::SLEEPING_WORD);
                }
            }
        }
        self.bell.take();
    }
}

impl Wake for FixedSpinWaker {
    fn wake(&self) {
        if self.0.ring() == Ring::MustWake {
            futex_wake(self.0.word());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_passes_every_token() {
        for contender in contenders() {
            let (mut waiter, waker) = (contender.pair)(contender.fixed_spin_ns);
            let (to, from) = (AtomicU32::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                let (to, from) = (&to, &from);
                scope.spawn(move || {
                    waiter.begin();
                    from.store(1, Ordering::Release);
                    for round in 1..=200 {
                        waiter.wait();
                        assert_eq!(to.load(Ordering::Relaxed), round, "{}", contender.name);
                        from.store(round + 1, Ordering::Release);
                    }
                });
                for round in 1..=200 {
                    while from.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    to.store(round, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
    }
}
