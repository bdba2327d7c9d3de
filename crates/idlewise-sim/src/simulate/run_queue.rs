//! Which task a CPU runs next: in turn, or by virtual deadlines, as Linux does since 6.6 (EEVDF).
//!
//! Written from the published algorithm (Stoica and Abdel-Wahab, 1995) and from what Linux 6.12 does with tasks of one
//! weight. A task's **virtual time** is what it has run; **lag** is how far it is behind the mean of its CPU's tasks. Only
//! tasks that are not ahead of the mean may run, and of these the one whose slice would end first.
//!
//! * A task keeps the CPU until its slice is over or it is ahead of the mean. So a woken task takes the CPU from
//!   another one only if it lags.
//! * A task that blocks takes its lag with it. One that is ahead of the mean stays in the queue until it no longer is
//!   (*delayed*). If it is woken before that, it goes on on this CPU.

use std::collections::VecDeque;

use super::task::{TaskId, Urgency};

/// How a CPU chooses among its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// In turn; every tick gives the turn to the next.
    #[default]
    Turns,
    /// By virtual deadlines, with slices of this length.
    Deadlines {
        /// Linux's `base_slice_ns`.
        slice_ns: u64,
        /// Whether a CPU that has nothing to do takes a task that waits for another CPU.
        takes_waiting: bool,
    },
}

impl Scheduler {
    /// Linux's since 6.6, for a machine of so many CPUs: 0.75 ms, and as much again each time their number doubles, up to 8.
    pub fn linux(cpu_count: usize, takes_waiting: bool) -> Self {
        let steps = cpu_count.clamp(1, 8).ilog2();
        Scheduler::Deadlines { slice_ns: 750_000 * u64::from(1 + steps), takes_waiting }
    }
}

/// A task on a CPU. Times are virtual.
#[derive(Clone, Copy, Debug)]
struct Entity {
    task: TaskId,
    urgency: Urgency,
    run_ns: i64,
    deadline_ns: i64,
    /// It waits already, and is here only until it is no longer ahead of the mean.
    is_delayed: bool,
    /// Its slice is not over.
    is_within_slice: bool,
}

/// The tasks of a CPU.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    scheduler: Scheduler,
    queued: VecDeque<Entity>,
    /// The one that runs, and until when its time is counted.
    current: Option<Entity>,
    counted_until_ns: u64,
    /// The mean when there was a task last.
    mean_ns: i64,
    delayed_count: usize,
}

impl RunQueue {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        RunQueue { scheduler, ..RunQueue::default() }
    }

    fn slice_ns(&self) -> Option<i64> {
        match self.scheduler {
            Scheduler::Turns => None,
            Scheduler::Deadlines { slice_ns, .. } => i64::try_from(slice_ns).ok(),
        }
    }

    /// How many tasks wait for the CPU.
    pub(super) fn len(&self) -> usize {
        self.queued.len() - self.delayed_count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tasks that wait for the CPU.
    pub(super) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.queued.iter().filter(|entity| !entity.is_delayed).map(|entity| entity.task)
    }

    /// Counts what the current task has run.
    pub(super) fn count(&mut self, now_ns: u64) {
        let span_ns = now_ns.saturating_sub(self.counted_until_ns);
        self.counted_until_ns = now_ns;
        let slice_ns = self.slice_ns();
        if let (Some(current), Some(slice_ns)) = (&mut self.current, slice_ns) {
            current.run_ns += span_ns as i64;
            if current.run_ns >= current.deadline_ns {
                current.deadline_ns = current.run_ns + slice_ns;
                current.is_within_slice = false;
            }
        }
    }

    /// The sum of the virtual times, and how many tasks have one.
    fn sum(&self) -> (i64, i64) {
        let all = self.queued.iter().chain(&self.current);
        let usual = all.filter(|entity| entity.urgency != Urgency::Always);
        usual.fold((0, 0), |(sum, count), entity| (sum + entity.run_ns, count + 1))
    }

    fn mean(&self) -> i64 {
        let (sum, count) = self.sum();
        sum.checked_div(count).unwrap_or(self.mean_ns)
    }

    /// Adds a task that lags by so much.
    pub(super) fn add(&mut self, task: TaskId, urgency: Urgency, lag_ns: i64) {
        let (_, count) = self.sum();
        let mean_ns = self.mean();
        // Its own lag moves the mean.
        let lag_ns = if count > 0 { lag_ns * (count + 1) / count } else { 0 };
        let run_ns = mean_ns - lag_ns;
        let deadline_ns = run_ns + self.slice_ns().unwrap_or(0);
        let entity = Entity {
            task,
            urgency,
            run_ns,
            deadline_ns,
            is_delayed: false,
            is_within_slice: false,
        };
        self.queued.push_back(entity);
    }

    /// Adds a task that is woken, if it is still here. It lags no more than if it had just come.
    pub(super) fn add_delayed(&mut self, task: TaskId) -> bool {
        let is_it = |entity: &Entity| entity.is_delayed && entity.task == task;
        let Some(place) = self.queued.iter().position(is_it) else { return false };
        self.delayed_count -= 1;
        self.queued[place].is_delayed = false;
        if self.mean() > self.queued[place].run_ns {
            let urgency = self.queued[place].urgency;
            self.queued.remove(place);
            self.add(task, urgency, 0);
        }
        true
    }

    /// Whether a task that waits is still here.
    pub(super) fn holds_delayed(&self, task: TaskId) -> bool {
        self.delayed_count > 0
            && self.queued.iter().any(|entity| entity.is_delayed && entity.task == task)
    }

    /// The place of the queued task that is to run next; `None` if it is the current one, or there is none.
    fn next_place(&self) -> Option<usize> {
        if self.scheduler == Scheduler::Turns {
            return if self.current.is_some() || self.queued.is_empty() { None } else { Some(0) };
        }
        let is_urgent = |entity: &Entity| entity.urgency == Urgency::Always;
        if self.current.as_ref().is_some_and(is_urgent) {
            return None;
        }
        if let Some(place) = self.queued.iter().position(is_urgent) {
            return Some(place);
        }
        let (sum, count) = self.sum();
        let is_behind = |entity: &Entity| entity.run_ns * count <= sum;
        let current = self.current.filter(is_behind);
        if current.is_some_and(|current| current.is_within_slice) {
            return None;
        }
        let behind = self.queued.iter().enumerate().filter(|(_, entity)| is_behind(entity));
        let (place, first) = behind.min_by_key(|(_, entity)| entity.deadline_ns)?;
        let is_first = current.is_none_or(|current| first.deadline_ns <= current.deadline_ns);
        is_first.then_some(place)
    }

    /// Takes out what waits already, until the next is a task that runs. Their lag is over.
    fn settle(&mut self, lags_ns: &mut [i64]) -> Option<usize> {
        loop {
            let place = self.next_place()?;
            if !self.queued[place].is_delayed {
                return Some(place);
            }
            self.mean_ns = self.mean();
            let gone = self.queued.remove(place)?;
            lags_ns[gone.task] = 0;
            self.delayed_count -= 1;
        }
    }

    /// Whether a task that has just been woken takes the CPU from the current one.
    pub(super) fn preempts(&self, task: TaskId) -> bool {
        let next = self.current.and_then(|_| self.next_place()).map(|place| self.queued[place]);
        next.is_some_and(|next| next.task == task && next.urgency != Urgency::Never)
    }

    /// Whether the current task's turn is over, and there are others.
    pub(super) fn is_over(&self) -> bool {
        let is_within_slice = self.scheduler != Scheduler::Turns
            && self.current.is_some_and(|current| current.is_within_slice);
        !self.queued.is_empty() && !is_within_slice
    }

    /// Makes the next task the current one.
    pub(super) fn take(&mut self, now_ns: u64, lags_ns: &mut [i64]) -> Option<TaskId> {
        assert!(self.current.is_none());
        let place = self.settle(lags_ns)?;
        let entity = self.queued.remove(place)?;
        self.counted_until_ns = now_ns;
        self.current = Some(Entity { is_within_slice: true, ..entity });
        Some(entity.task)
    }

    /// The current task goes back into the queue.
    pub(super) fn put_back(&mut self, now_ns: u64) {
        self.count(now_ns);
        self.queued.extend(self.current.take());
    }

    /// The current task blocks. A task that is ahead of the mean stays, but does not run.
    pub(super) fn block(&mut self, now_ns: u64, lags_ns: &mut [i64]) {
        self.count(now_ns);
        let mean_ns = self.mean();
        let Some(current) = self.current.take() else { return };
        let Some(slice_ns) = self.slice_ns() else { return };
        self.mean_ns = mean_ns;
        let lag_ns = (mean_ns - current.run_ns).clamp(-2 * slice_ns, 2 * slice_ns);
        if lag_ns < 0 && current.urgency != Urgency::Always {
            self.queued.push_back(Entity { is_delayed: true, ..current });
            self.delayed_count += 1;
        } else {
            lags_ns[current.task] = lag_ns;
        }
    }

    /// Takes a task out that waits for the CPU. Returns its lag.
    pub(super) fn remove(&mut self, task: TaskId) -> i64 {
        let mean_ns = self.mean();
        let Some(place) = self.queued.iter().position(|entity| entity.task == task) else {
            return 0;
        };
        self.mean_ns = mean_ns;
        let limit_ns = 2 * self.slice_ns().unwrap_or(0);
        // Its own lag moved the mean, each time that it came to a CPU.
        let lag_ns = |entity: Entity| (mean_ns - entity.run_ns).clamp(-limit_ns, limit_ns);
        self.queued.remove(place).map_or(0, lag_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE_NS: u64 = 1_500_000;

    struct Bench {
        queue: RunQueue,
        lags_ns: Vec<i64>,
    }

    impl Bench {
        fn new() -> Self {
            Bench { queue: RunQueue::new(Scheduler::linux(2, true)), lags_ns: vec![0; 8] }
        }

        fn add(&mut self, task: TaskId) {
            if !self.queue.add_delayed(task) {
                self.queue.add(task, Urgency::Usual, self.lags_ns[task]);
            }
        }

        fn take(&mut self, now_ns: u64) -> Option<TaskId> {
            self.queue.take(now_ns, &mut self.lags_ns)
        }

        fn preempts(&mut self, now_ns: u64, task: TaskId) -> bool {
            self.queue.count(now_ns);
            self.queue.preempts(task)
        }

        fn block(&mut self, now_ns: u64) {
            self.queue.block(now_ns, &mut self.lags_ns);
        }
    }

    #[test]
    fn slices_grow_with_the_machine_up_to_eight_cpus() {
        let slice_us = |cpu_count| match Scheduler::linux(cpu_count, true) {
            Scheduler::Deadlines { slice_ns, .. } => slice_ns / 1_000,
            Scheduler::Turns => 0,
        };
        assert_eq!([1, 2, 4, 8, 64].map(slice_us), [750, 1_500, 2_250, 3_000, 3_000]);
    }

    #[test]
    fn only_a_task_that_lags_takes_the_cpu_from_another() {
        let mut bench = Bench::new();
        bench.add(0);
        assert_eq!(bench.take(0), Some(0));
        bench.queue.count(10_000);
        // Neither has waited for the other.
        bench.add(1);
        assert!(!bench.preempts(10_000, 1));
        // The first goes on and is ahead of the mean now, but 1 has to be woken to be asked for. Its slice is not over.
        bench.block(50_000);
        assert_eq!(bench.take(50_000), Some(1));
        // 1 has waited for 0: it has 20 us to go until they are even, and blocks before that.
        bench.block(60_000);
        assert_eq!(bench.take(60_000), None);
        assert_eq!(bench.lags_ns[..2], [0, 15_000]);
        bench.add(0);
        assert_eq!(bench.take(70_000), Some(0));
        bench.queue.count(80_000);
        bench.add(1);
        assert!(bench.preempts(80_000, 1));
    }

    #[test]
    fn a_slice_ends_at_its_length_and_the_other_runs() {
        let mut bench = Bench::new();
        bench.add(0);
        bench.add(1);
        assert_eq!(bench.take(0), Some(0));
        for (at_ns, is_over) in [(SLICE_NS - 1, false), (SLICE_NS, true)] {
            bench.queue.count(at_ns);
            assert_eq!(bench.queue.is_over(), is_over, "at {at_ns} ns");
        }
        bench.queue.put_back(SLICE_NS);
        assert_eq!(bench.take(SLICE_NS), Some(1));
    }

    #[test]
    fn a_task_that_is_ahead_stays_until_the_others_have_caught_up() {
        let mut bench = Bench::new();
        bench.add(0);
        assert_eq!(bench.take(0), Some(0));
        bench.add(1);
        bench.block(40_000);
        assert!(bench.queue.holds_delayed(0));
        assert_eq!(bench.queue.len(), 1, "it does not wait for the CPU");
        assert_eq!(bench.take(40_000), Some(1));
        // Woken meanwhile, it goes on here, still ahead.
        bench.queue.count(50_000);
        bench.add(0);
        assert!(!bench.queue.holds_delayed(0));
        assert!(!bench.preempts(50_000, 0));
        bench.block(60_000);
        assert_eq!(bench.take(60_000), Some(0));
    }

    #[test]
    fn a_task_that_is_moved_again_and_again_lags_no_more_than_two_slices() {
        let mut bench = Bench::new();
        bench.add(0);
        assert_eq!(bench.take(0), Some(0));
        let mut lag_ns = 1_000_000;
        for _ in 0..200 {
            bench.queue.add(1, Urgency::Usual, lag_ns);
            lag_ns = bench.queue.remove(1);
        }
        assert!(lag_ns.unsigned_abs() <= 2 * SLICE_NS, "{lag_ns}");
    }

    #[test]
    fn turns_are_taken_in_order() {
        let mut queue = RunQueue::new(Scheduler::Turns);
        let mut none = [];
        queue.add(3, Urgency::Usual, 0);
        queue.add(5, Urgency::Usual, 0);
        assert_eq!(queue.take(0, &mut none), Some(3));
        assert!(queue.is_over());
        queue.put_back(9);
        assert_eq!(queue.take(9, &mut none), Some(5));
        queue.block(12, &mut none);
        assert_eq!(queue.take(12, &mut none), Some(3));
    }
}
