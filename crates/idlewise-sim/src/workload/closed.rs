//! Closed loops: nothing is asked before the last answer is there, so a faster wake-up makes them
//! turn faster.

use crate::simulate::parameter::{CPUS, SPAN_NS, parameters};
use crate::simulate::{Irq, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// A client and a server on two CPUs of the simulated machine, as if on two hosts: each message
    /// crosses a wire and arrives as an interrupt of a network card. `latency_ns` is half a round
    /// trip, as qperf prints it.
    pub struct TcpLat {
        client_cpu: u64 = 0, CPUS, "CPU of the client";
        server_cpu: u64 = 2, CPUS, "CPU of the server";
        irq_offset: u64 = 0, CPUS, "the card interrupts the CPU that is so many above the task's: 0 is the task's own";
        wire_ns: u64 = 6_000, SPAN_NS, "from the send call's end to the interrupt at the other end";
        irq_work_ns: u64 = 3_000, SPAN_NS, "interrupt handler and softirq of one message";
        send_work_ns: u64 = 4_000, SPAN_NS, "from the task's first instruction to the message on the wire: receive call's end, and send call";
        start_ns: u64 = 5_000_000, SPAN_NS, "when the client begins: by then CPUs without tasks have stopped their tick";
        think_ns: u64 = 0, SPAN_NS, "pause between an answer and the next request: sleep by timer";
    }
}

struct Client {
    peer: Peer,
    start_ns: Option<u64>,
    think_ns: u64,
    sent_at_ns: u64,
    stage: u8,
}

/// How to reach the other end.
#[derive(Clone, Copy)]
struct Peer {
    task: TaskId,
    irq_cpu: usize,
    wire_ns: u64,
    irq_work_ns: u64,
    send_work_ns: u64,
}

impl Peer {
    fn message(&self, stamp_ns: u64) -> Op {
        let irq = Irq { work_ns: self.irq_work_ns, to: Some(self.task), stamp_ns };
        Op::Device { delay_ns: self.wire_ns, cpu: self.irq_cpu, irq }
    }
}

impl Program for Client {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if view.message.is_some() {
            view.metrics.complete(view.now_ns);
            view.metrics.record("latency_ns", (view.now_ns - self.sent_at_ns) / 2);
            self.stage = 0;
        }
        if let Some(at_ns) = self.start_ns.take() {
            return Op::SleepUntil { at_ns, slack_ns: 0 };
        }
        self.stage += 1;
        match self.stage {
            1 if self.think_ns > 0 => {
                Op::SleepUntil { at_ns: view.now_ns + self.think_ns, slack_ns: 0 }
            }
            1 => Op::Run { ns: 0 },
            2 => {
                view.metrics.begin(view.now_ns);
                self.sent_at_ns = view.now_ns;
                Op::Run { ns: self.peer.send_work_ns }
            }
            3 => self.peer.message(view.now_ns),
            _ => Op::Wait,
        }
    }
}

struct Server {
    peer: Peer,
    stage: u8,
}

impl Program for Server {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.stage = if view.message.is_some() { 1 } else { self.stage + 1 };
        match self.stage {
            1 => Op::Run { ns: self.peer.send_work_ns },
            2 => self.peer.message(view.now_ns),
            _ => Op::Wait,
        }
    }
}

impl TcpLat {
    pub(super) fn load(&self) -> Load {
        let (client_cpu, server_cpu) = (self.client_cpu as usize, self.server_cpu as usize);
        let peer = |task, cpu| Peer {
            task,
            irq_cpu: cpu + self.irq_offset as usize,
            wire_ns: self.wire_ns,
            irq_work_ns: self.irq_work_ns,
            send_work_ns: self.send_work_ns,
        };
        let client = Client {
            peer: peer(1, server_cpu),
            start_ns: Some(self.start_ns),
            think_ns: self.think_ns,
            sent_at_ns: 0,
            stage: 0,
        };
        let server = Server { peer: peer(0, client_cpu), stage: 2 };
        Load {
            tasks: vec![Spawn::pinned(client_cpu, client), Spawn::pinned(server_cpu, server)],
            sources: Vec::new(),
        }
    }
}

parameters! {
    /// Two pinned tasks pass a byte to and fro. An operation is one way: the benchmark counts two
    /// for each round. `one_way_ns` is from the wish to wake the other to its first instruction.
    pub struct ContextSwitch2 {
        first_cpu: u64 = 0, CPUS, "CPU of one task";
        second_cpu: u64 = 1, CPUS, "CPU of the other";
        before_wake_ns: u64 = 1_500, SPAN_NS, "from a task's first instruction to the wake-up of the other: read call's end, write call";
        after_wake_ns: u64 = 800, SPAN_NS, "from there to going idle: write call's end, read call";
    }
}

struct Passer {
    to: TaskId,
    before_wake_ns: u64,
    after_wake_ns: u64,
    stage: u8,
}

impl Program for Passer {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(sent_at_ns) = view.message {
            self.stage = 0;
            view.metrics.complete(view.now_ns);
            view.metrics.record("one_way_ns", view.now_ns - sent_at_ns);
        }
        self.stage += 1;
        match self.stage {
            1 => Op::Run { ns: self.before_wake_ns },
            2 => {
                view.metrics.begin(view.now_ns);
                Op::Send { to: self.to, stamp_ns: view.now_ns, capacity: None }
            }
            3 => Op::Run { ns: self.after_wake_ns },
            _ => Op::Wait,
        }
    }
}

impl ContextSwitch2 {
    pub(super) fn load(&self) -> Load {
        let passer = |to, stage| Passer {
            to,
            before_wake_ns: self.before_wake_ns,
            after_wake_ns: self.after_wake_ns,
            stage,
        };
        Load {
            tasks: vec![
                Spawn::pinned(self.first_cpu as usize, passer(1, 0)),
                Spawn::pinned(self.second_cpu as usize, passer(0, 3)),
            ],
            sources: Vec::new(),
        }
    }
}

parameters! {
    /// Groups of senders and receivers; each sender sends to every receiver of its group in turn,
    /// and waits while a receiver's buffer is full. An operation is a message received.
    pub struct Hackbench {
        group_count: u64 = 4, 0..=1_000, "groups (-g)";
        fd_count: u64 = 25, 1..=100, "senders of a group, and receivers (-f)";
        send_work_ns: u64 = 2_500, SPAN_NS, "what sending a message takes";
        receive_work_ns: u64 = 2_500, SPAN_NS, "what receiving one takes";
        capacity: u64 = 8, 1..=1_000_000, "messages that a receiver's buffer holds";
    }
}

struct Sender {
    first_receiver: TaskId,
    receiver_count: usize,
    next: usize,
    work_ns: u64,
    capacity: u32,
    is_ready: bool,
}

impl Program for Sender {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            // A little noise, or all groups would march in step.
            return Op::Run { ns: self.work_ns + view.rng.u64(0..=self.work_ns / 8) };
        }
        let to = self.first_receiver + self.next;
        self.next = (self.next + 1) % self.receiver_count;
        Op::Send { to, stamp_ns: view.now_ns, capacity: Some(self.capacity) }
    }
}

struct Receiver {
    work_ns: u64,
}

impl Program for Receiver {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        match view.message {
            Some(sent_at_ns) => {
                view.metrics.record("message_ns", view.now_ns - sent_at_ns);
                view.metrics.operation_count += 1;
                Op::Run { ns: self.work_ns }
            }
            None => Op::Wait,
        }
    }
}

impl Hackbench {
    pub(super) fn load(&self, shape: &Shape) -> Load {
        let fd_count = (self.fd_count as usize).max(1);
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
                        work_ns: self.send_work_ns,
                        capacity: u32::try_from(self.capacity).unwrap_or(u32::MAX).max(1),
                        is_ready: false,
                    })
                } else {
                    Box::new(Receiver { work_ns: self.receive_work_ns })
                };
                tasks.push(Spawn { program, cpu, is_pinned: false, is_recorded: false });
            }
        }
        Load { tasks, sources: Vec::new() }
    }
}
