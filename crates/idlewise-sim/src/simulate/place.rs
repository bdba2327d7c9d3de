//! Which CPU a woken task gets, and when a CPU that has nothing to do takes one from another.
//!
//! With [`Scheduler::Deadlines`], as Linux 6.12 does on CPUs that share a cache: written from what `select_task_rq_fair()`
//! and the balancing of newly idle CPUs do, with tasks of one weight. Left out are the balancing at ticks, and how many
//! CPUs a waker looks at where there are many.

use super::run_queue::Scheduler;
use super::{Simulation, TaskId};

/// In a load average, what was so long ago counts half: Linux's PELT.
const HALF_LIFE_NS: f64 = 32e6;
/// A task that has run since is left where its cache is: `sched_migration_cost_ns`.
pub(crate) const HOT_NS: u64 = 500_000;
/// A waking CPU must be so much less loaded than the task's last one.
const BIAS: f64 = 1.08;
/// No waker looks for an idle CPU where the machine has been this busy.
const SCANNED_MAX: f64 = 0.6;

/// How many tasks have wanted to run lately, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentLoad {
    mean: f64,
    count: u32,
    /// The share of the time in which at least one did.
    busy: f64,
    until_ns: u64,
}

impl RecentLoad {
    fn at(&self, now_ns: u64) -> Self {
        let kept = (-(now_ns.saturating_sub(self.until_ns) as f64) / HALF_LIFE_NS).exp2();
        let to = |old: f64, now: f64| now + (old - now) * kept;
        RecentLoad {
            mean: to(self.mean, f64::from(self.count)),
            busy: to(self.busy, f64::from(self.count.min(1))),
            until_ns: now_ns,
            count: self.count,
        }
    }

    fn change(&mut self, now_ns: u64, is_more: bool) {
        *self = self.at(now_ns);
        self.count = if is_more { self.count + 1 } else { self.count.saturating_sub(1) };
    }
}

impl Simulation<'_> {
    /// Puts a woken task into the queue of a CPU. Returns whether it is to take the CPU from the task that runs there.
    pub(super) fn enqueue(&mut self, target: usize, id: TaskId) -> bool {
        let now_ns = self.now_ns;
        self.tasks[id].cpu = target;
        let queue = &mut self.cpus[target].run_queue;
        // Linux puts back a task that is still here before it counts what the current one has run since it last looked. So
        // the task usually takes the CPU from that one.
        if queue.add_delayed(id) {
            queue.count(now_ns);
        } else {
            queue.count(now_ns);
            queue.add(id, self.tasks[id].urgency, self.lags_ns[id]);
        }
        self.note_runnable(target, id, true);
        let queue = &mut self.cpus[target].run_queue;
        let preempts = match self.setup.scheduler {
            Scheduler::Turns => false,
            Scheduler::Deadlines { .. } => queue.preempts(id) || queue.is_over(),
        };
        self.cpus[target].is_wanted |= preempts;
        preempts
    }

    /// A task wants to run on a CPU from now on, or no longer.
    pub(super) fn note_runnable(&mut self, cpu: usize, id: TaskId, is_more: bool) {
        if self.setup.scheduler != Scheduler::Turns {
            self.cpus[cpu].load.change(self.now_ns, is_more);
            self.tasks[id].load.change(self.now_ns, is_more);
            if !is_more {
                self.tasks[id].ran_at_ns = self.now_ns;
            }
        }
    }

    /// The next task of a CPU that runs none: one of its own, or one that waits for another CPU.
    pub(super) fn take_task(&mut self, cpu: usize) -> Option<TaskId> {
        let now_ns = self.now_ns;
        let queue = &mut self.cpus[cpu].run_queue;
        if let Some(task) = queue.take(now_ns, &mut self.lags_ns) {
            return Some(task);
        }
        let task = self.waits_elsewhere(cpu)?;
        let from = self.tasks[task].cpu;
        self.cpus[from].run_queue.count(now_ns);
        let lag_ns = self.cpus[from].run_queue.remove(task);
        self.cpus[from].load.change(now_ns, false);
        self.cpus[cpu].load.change(now_ns, true);
        self.tasks[task].recent_cpu = from;
        self.tasks[task].cpu = cpu;
        let queue = &mut self.cpus[cpu].run_queue;
        queue.add(task, self.tasks[task].urgency, lag_ns);
        queue.take(now_ns, &mut self.lags_ns)
    }

    /// A task that a newly idle CPU takes from the one where most wait.
    fn waits_elsewhere(&self, cpu: usize) -> Option<TaskId> {
        if !matches!(self.setup.scheduler, Scheduler::Deadlines { takes_waiting: true, .. }) {
            return None;
        }
        // Of many CPUs, most are idle: they are passed by 64 at a time.
        let mut busiest = None;
        for (word, idle) in self.idle_cpus.iter().enumerate() {
            let mut busy = !idle;
            while busy != 0 {
                let other = 64 * word + busy.trailing_zeros() as usize;
                busy &= busy - 1;
                let waiting_count = self.cpus.get(other).map_or(0, |other| other.run_queue.len());
                if other != cpu && waiting_count > busiest.map_or(0, |(most, _)| most) {
                    busiest = Some((waiting_count, other));
                }
            }
        }
        let (_, busiest) = busiest?;
        let busiest = &self.cpus[busiest];
        busiest.current?;
        let may_move = |task: &TaskId| {
            let task = &self.tasks[*task];
            !task.is_pinned && self.now_ns.saturating_sub(task.ran_at_ns) > HOT_NS
        };
        busiest.run_queue.waiting().find(may_move)
    }

    /// The CPU for a task that CPU `from` wakes.
    pub(super) fn choose_cpu(&mut self, from: usize, id: TaskId) -> usize {
        let home = self.tasks[id].cpu;
        if self.tasks[id].is_pinned || self.cpus[home].run_queue.holds_delayed(id) {
            return home;
        }
        match self.setup.scheduler {
            Scheduler::Turns => self.choose_next_idle(home),
            Scheduler::Deadlines { .. } => self.choose_as_linux(from, id),
        }
    }

    /// The last CPU if it is idle, otherwise the next idle CPU of the package, otherwise the last CPU.
    fn choose_next_idle(&self, home: usize) -> usize {
        let is_idle = |cpu: usize| {
            self.idle_cpus[cpu / 64] >> (cpu % 64) & 1 != 0 && self.cpus[cpu].run_queue.is_empty()
        };
        if is_idle(home) {
            return home;
        }
        let package_cpu_count = self.shape.core_count * self.shape.thread_count;
        let first = self.shape.package_of(home) * package_cpu_count;
        let end = first + package_cpu_count;
        let above = self.first_idle(home + 1, end);
        above.or_else(|| self.first_idle(first, home)).unwrap_or(home)
    }

    /// The first idle CPU of a range that has not been given a task yet.
    fn first_idle(&self, begin: usize, end: usize) -> Option<usize> {
        let mut cpu = begin;
        while cpu < end {
            let word = self.idle_cpus[cpu / 64] >> (cpu % 64);
            if word == 0 {
                cpu = (cpu / 64 + 1) * 64;
                continue;
            }
            cpu += word.trailing_zeros() as usize;
            if cpu < end && self.cpus[cpu].run_queue.is_empty() {
                return Some(cpu);
            }
            cpu += 1;
        }
        None
    }

    fn has_nothing(&self, cpu: usize) -> bool {
        self.cpus[cpu].current.is_none() && self.cpus[cpu].run_queue.is_empty()
    }

    fn choose_as_linux(&mut self, from: usize, id: TaskId) -> usize {
        let home = self.tasks[id].cpu;
        let target = self.nearer(from, id);
        if self.has_nothing(target) {
            return target;
        }
        if self.has_nothing(home) {
            return home;
        }
        let recent = std::mem::replace(&mut self.tasks[id].recent_cpu, home);
        if self.has_nothing(recent) {
            return recent;
        }
        let cpu_count = self.cpus.len();
        let busy: f64 = self.cpus.iter().map(|cpu| cpu.load.at(self.now_ns).busy).sum();
        if busy > SCANNED_MAX * cpu_count as f64 {
            return target;
        }
        let others = (1..cpu_count).map(|further| (target + further) % cpu_count);
        others.into_iter().find(|&cpu| self.has_nothing(cpu)).unwrap_or(target)
    }

    /// The waker's CPU or the task's last one: where to begin to look.
    fn nearer(&self, from: usize, id: TaskId) -> usize {
        let home = self.tasks[id].cpu;
        if from == home || self.has_nothing(home) {
            return home;
        }
        if self.has_nothing(from) {
            return from;
        }
        let load = |cpu: usize| self.cpus[cpu].load.at(self.now_ns).mean;
        let own = self.tasks[id].load.at(self.now_ns).mean;
        if load(from) + own < BIAS * (load(home) - own).max(0.0) { from } else { home }
    }
}
