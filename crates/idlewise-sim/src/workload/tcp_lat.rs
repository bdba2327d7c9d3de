//! `tcp-lat`: requests and responses, a closed loop over a wire.

use crate::simulate::parameter::{CPUS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Irq, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// A client and a server on two CPUs of the simulated machine, like on two hosts. Each message
    /// crosses a wire and arrives as a network card's interrupt. `latency_ns` is half a round trip,
    /// as qperf prints it.
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

/// How to reach the other side.
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
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
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
