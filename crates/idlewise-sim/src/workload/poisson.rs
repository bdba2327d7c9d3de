//! `poisson`: jobs that arrive at random.

use fastrand::Rng;

use crate::simulate::parameter::{FLAG, INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{
    EventSource, Fired, Hardware, Irq, Load, Metrics, Op, Program, Shape, Spawn, TaskId, View,
    exponential_ns,
};

parameters! {
    /// Jobs arrive at random as interrupts of CPU 0, whose task serves them in order. `wait_ns` is
    /// the time from arrival to the beginning of service, `latency_ns` to its end.
    pub struct Poisson {
        interval_ns: u64 = 200_000, INTERVAL_NS, "mean time between arrivals";
        service_ns: u64 = 100_000, SPAN_NS, "mean service time";
        exponential_service: bool = true, FLAG, "service times are exponential; else all the same";
    }
}

struct Arrivals {
    cpu: usize,
    to: TaskId,
    interval_ns: f64,
}

impl EventSource for Arrivals {
    fn fire(&mut self, now_ns: u64, rng: &mut Rng, metrics: &mut Metrics) -> Fired {
        metrics.begin(now_ns);
        let irq = Irq { work_ns: 0, to: Some(self.to), stamp_ns: now_ns };
        let next_at_ns = now_ns + exponential_ns(self.interval_ns, rng).max(1);
        Fired { irq: Some((self.cpu, irq)), next_at_ns: Some(next_at_ns) }
    }
}

struct Service {
    service_ns: f64,
    is_exponential: bool,
    arrived_at_ns: Option<u64>,
}

impl Program for Service {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(arrived_at_ns) = self.arrived_at_ns.take() {
            view.metrics.record("latency_ns", view.now_ns - arrived_at_ns);
            view.metrics.complete(view.now_ns);
        }
        let Some(arrived_at_ns) = view.message else { return Op::Wait };
        view.metrics.record("wait_ns", view.now_ns - arrived_at_ns);
        self.arrived_at_ns = Some(arrived_at_ns);
        let ns = match self.is_exponential {
            true => exponential_ns(self.service_ns, view.rng),
            false => self.service_ns as u64,
        };
        Op::Run { ns }
    }
}

impl Poisson {
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
        let service = Service {
            service_ns: self.service_ns as f64,
            is_exponential: self.exponential_service,
            arrived_at_ns: None,
        };
        let arrivals = Arrivals { cpu: 0, to: 0, interval_ns: self.interval_ns.max(1) as f64 };
        Load {
            tasks: vec![Spawn::pinned(0, service)],
            sources: vec![(self.interval_ns, Box::new(arrivals))],
        }
    }
}
