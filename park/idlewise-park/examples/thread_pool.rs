//! A thread pool on [`idlewise_park::Idle`]. Workers that find no task wait there, and each new task wakes
//! one of them if one waits.
//!
//! `cargo run --release --package idlewise-park --example thread_pool [tasks]`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::SegQueue;
use idlewise_park::Idle;

type Task = Box<dyn FnOnce() + Send>;

struct Pool {
    tasks: Arc<SegQueue<Task>>,
    idle: Idle,
    is_closed: Arc<AtomicBool>,
    workers: Vec<std::thread::JoinHandle<u64>>,
}

impl Pool {
    fn new(worker_count: usize) -> Self {
        let (tasks, is_closed) =
            (Arc::new(SegQueue::<Task>::new()), Arc::new(AtomicBool::new(false)));
        let idle = Idle::new(worker_count);
        let workers = (0..worker_count)
            .map(|number| {
                let (tasks, is_closed, idle) = (tasks.clone(), is_closed.clone(), idle.clone());
                std::thread::spawn(move || {
                    let place = idle.worker(number);
                    loop {
                        // Read the flag first: tasks pushed before it was set are then visible.
                        let is_over = is_closed.load(Ordering::Acquire);
                        if let Some(task) = tasks.pop() {
                            task();
                        } else if is_over {
                            return place.stats().waits;
                        } else {
                            place.wait(|| !tasks.is_empty() || is_closed.load(Ordering::Acquire));
                        }
                    }
                })
            })
            .collect();
        Pool { tasks, idle, is_closed, workers }
    }

    fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.tasks.push(Box::new(task));
        self.idle.wake_one();
    }

    /// Runs the remaining tasks, and returns how often workers waited.
    fn close(self) -> u64 {
        self.is_closed.store(true, Ordering::Release);
        self.idle.wake_many(self.workers.len());
        self.workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    }
}

fn main() {
    let tasks = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000u64);
    let pool = Pool::new(4);
    let sum = Arc::new(AtomicU64::new(0));
    for number in 1..=tasks {
        let sum = sum.clone();
        pool.run(move || {
            sum.fetch_add(number, Ordering::Relaxed);
        });
    }
    let waits = pool.close();
    assert_eq!(sum.load(Ordering::Relaxed), tasks * (tasks + 1) / 2);
    println!("{tasks} tasks done, workers waited {waits} times");
}
