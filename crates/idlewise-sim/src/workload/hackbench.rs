//! `hackbench`: groups of senders and receivers.

use crate::simulate::parameter::{SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// Groups of senders and receivers. Each sender sends to every receiver of its group in turn,
    /// and waits while a receiver's buffer is full. An operation is a message received.
    pub struct Hackbench {
        group_count: u64 = 4, 0..=1_000, "groups (-g)";
        fd_count: u64 = 25, 1..=100, "senders of a group, and receivers (-f)";
        send_work_ns: u64 = 2_500, SPAN_NS, "what sending a message takes";
        receive_work_ns: u64 = 2_500, SPAN_NS, "what receiving one takes";
        work_spread: f64 = 0.0, 0.0..=1.0, "each message's work is longer or shorter by up to this share of it";
        capacity: u64 = 8, 1..=1_000_000, "messages that a receiver's buffer holds";
    }
}

struct Sender {
    first_receiver: TaskId,
    receiver_count: usize,
    next: usize,
    work: Work,
    capacity: u32,
    is_ready: bool,
}

/// What a message takes.
#[derive(Clone, Copy)]
struct Work {
    mean_ns: u64,
    spread: f64,
}

impl Work {
    fn draw_ns(self, view: &mut View<'_>) -> u64 {
        if self.spread == 0.0 {
            return self.mean_ns;
        }
        let share = view.rng.f64().mul_add(2.0, -1.0).mul_add(self.spread, 1.0);
        (self.mean_ns as f64 * share) as u64
    }
}

impl Program for Sender {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            // A little noise, otherwise all groups would run in step.
            let work_ns = self.work.draw_ns(view);
            return Op::Run { ns: work_ns + view.rng.u64(0..=self.work.mean_ns / 8) };
        }
        let to = self.first_receiver + self.next;
        self.next = (self.next + 1) % self.receiver_count;
        Op::Send { to, stamp_ns: view.now_ns, capacity: Some(self.capacity) }
    }
}

struct Receiver {
    work: Work,
}

impl Program for Receiver {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        match view.message {
            Some(sent_at_ns) => {
                view.metrics.record("message_ns", view.now_ns - sent_at_ns);
                view.metrics.operation_count += 1;
                Op::Run { ns: self.work.draw_ns(view) }
            }
            None => Op::Wait,
        }
    }
}

impl Hackbench {
    pub(super) fn load(&self, shape: &Shape, _hardware: &Hardware) -> Load {
        let fd_count = (self.fd_count as usize).max(1);
        let work = |mean_ns| Work { mean_ns, spread: self.work_spread };
        let mut tasks = Vec::new();
        let cpu_count = shape.cpu_count();
        for group in 0..self.group_count as usize {
            let first_sender = group * 2 * fd_count;
            let first_receiver = first_sender + fd_count;
            for index in 0..2 * fd_count {
                let cpu = (first_sender + index) % cpu_count;
                let program: Box<dyn Program> = if index < fd_count {
                    Box::new(Sender {
                        first_receiver,
                        receiver_count: fd_count,
                        next: index,
                        work: work(self.send_work_ns),
                        capacity: u32::try_from(self.capacity).unwrap_or(u32::MAX).max(1),
                        is_ready: false,
                    })
                } else {
                    Box::new(Receiver { work: work(self.receive_work_ns) })
                };
                tasks.push(Spawn { program, cpu, is_pinned: false, is_recorded: false });
            }
        }
        Load { tasks, sources: Vec::new() }
    }
}
