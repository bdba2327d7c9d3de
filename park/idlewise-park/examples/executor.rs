//! A one-page executor: its workers wait as an idle loop does, and its tasks wake them.
//!
//! `cargo run --release --package idlewise-park --example executor`
//!
//! The workers share one queue. When a task is woken, it enters the queue and wakes one idle worker. That
//! costs no system call unless the worker sleeps and nobody else is waking it. The main thread blocks on
//! the result with the same crate's `block_on`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use idlewise_park::{Idle, IdleWorker, block_on};

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Shared {
    ready: Mutex<VecDeque<Arc<Task>>>,
    idle: Idle,
    is_over: AtomicBool,
}

struct Task {
    /// `None` while the job is polled, and when it is done.
    job: Mutex<Option<Job>>,
    /// The job is already in the queue, so waking it again does nothing.
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let shared = self.shared.clone();
            shared.ready.lock().unwrap().push_back(self);
            shared.idle.wake_one();
        }
    }
}

impl Shared {
    fn work(&self, worker: &IdleWorker) {
        while !self.is_over.load(Ordering::Acquire) {
            let task = self.ready.lock().unwrap().pop_front();
            match task {
                Some(task) => task.poll(),
                // When it looks for the last time, wakers already know about this worker.
                None => worker.wait(|| {
                    self.is_over.load(Ordering::Acquire) || !self.ready.lock().unwrap().is_empty()
                }),
            }
        }
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        // From here on a wake-up queues it again. The lock keeps it to one worker at a time.
        let mut job = self.job.lock().unwrap();
        self.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(self.clone());
        let poll = |job: &mut Job| job.as_mut().poll(&mut Context::from_waker(&waker));
        if job.as_mut().is_some_and(|job| poll(job).is_ready()) {
            *job = None;
        }
    }
}

struct Executor {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Executor {
    fn new(worker_count: usize) -> Self {
        let idle = Idle::new(worker_count);
        let (ready, is_over) = Default::default();
        let shared = Arc::new(Shared { ready, idle, is_over });
        let workers = (0..worker_count)
            .map(|number| {
                let shared = shared.clone();
                std::thread::spawn(move || shared.work(&shared.idle.worker(number)))
            })
            .collect();
        Executor { shared, workers }
    }

    /// Spawns a future and returns a handle for its result.
    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Join<T> {
        let join = Join(Arc::default());
        let result = join.0.clone();
        let job: Job = Box::pin(async move {
            let output = future.await;
            let waiting = {
                let mut result = result.lock().unwrap();
                result.output = Some(output);
                result.waiting.take()
            };
            if let Some(waker) = waiting {
                waker.wake();
            }
        });
        let (job, is_queued) = (Mutex::new(Some(job)), AtomicBool::new(false));
        Arc::new(Task { job, is_queued, shared: self.shared.clone() }).wake();
        join
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.idle.wake_many(self.workers.len());
        for worker in self.workers.drain(..) {
            worker.join().expect("no task of this example panics");
        }
    }
}

struct Outcome<T> {
    output: Option<T>,
    waiting: Option<Waker>,
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Outcome { output: None, waiting: None }
    }
}

struct Join<T>(Arc<Mutex<Outcome<T>>>);

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut outcome = self.0.lock().unwrap();
        match outcome.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                outcome.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn main() {
    let executor = Executor::new(2);
    let squares: Vec<_> = (0..1_000u64).map(|n| executor.spawn(async move { n * n })).collect();
    let sum = executor.spawn(async move {
        let mut sum = 0;
        for square in squares {
            sum += square.await;
        }
        sum
    });
    println!("1001 tasks, sum of squares: {}", block_on(sum));
}
