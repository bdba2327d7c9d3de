//! What a recording shows of its tasks that it does not say: which are bound to a CPU, which serve several others, which
//! requests were answered without a wake-up, and which tasks take the CPU from others.

use std::collections::{BTreeMap, BTreeSet};

use idlewise_trace::causes::WorkloadMetadata;

use super::{Act, CausedWorkload, Costs, Played};
use crate::simulate::{HOT_NS, Urgency};

/// A task serves whoever comes if two come in either order so often, and if no one comes next in all but one of so many cases.
const SERVED_COUNT_MIN: usize = 3;
const SERVED_SHARE: usize = 20;
/// So many times a task must have met another one to show that it always, or never, takes the CPU.
const URGENCY_SHOWN_MIN: usize = 8;
/// CPUs that take waiting tasks leave fewer than so many, and take one within this time.
const LEFT_WAITING_MAX: usize = 3;
const MOVED_WITHIN_NS: u64 = 20_000;
/// A task asks another one if it wakes it once for so many answers.
const ASKED_SHARE: usize = 10;
/// Of those who wake a task at the end of their steps, so many are looked at.
const FEEDER_COUNT_MAX: usize = 16;
/// A task that is to be bound to a CPU is bound within its first steps.
const SETTLING_STEP_COUNT: usize = 3;

/// The tasks that a step met on its CPU in the recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others {
    /// One stopped between the wake-up and the step, so the step waited for it.
    pub(super) were_ahead: bool,
    /// Whether one that ran at the wake-up went on after the step; `None` if none ran.
    pub(super) ran_on: Option<bool>,
}

/// Finds the wake-ups that answer a request that came while the task was at work. The request woke nobody, so nothing in the
/// recording says that the answer needs it. The task that asks is one that wakes the other at other times.
pub(super) fn find_answers(steps: &[Played], tasks: &[(u32, u32)], acts: &mut [Act]) {
    let task_of = |id: u32| steps[id as usize].task;
    let mut wakes: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut woken_by: BTreeSet<(u32, u32)> = BTreeSet::new();
    for act in acts.iter().filter(|act| act.delay_ns.is_none()) {
        *wakes.entry((task_of(act.step), task_of(act.target))).or_default() += 1;
        woken_by.insert((act.step, task_of(act.target)));
    }
    let count = |from: u32, to: u32| wakes.get(&(from, to)).copied().unwrap_or(0);
    for place in 1..acts.len() {
        let (before, act) = (acts[place - 1], acts[place]);
        let (server, client) = (task_of(act.step), task_of(act.target));
        let (first, _) = tasks[client as usize];
        // The first thing that a step does answers what woke it.
        if before.step != act.step
            || act.delay_ns.is_some()
            || act.target == first
            || server == client
        {
            continue;
        }
        let asked = act.target - 1;
        let is_late =
            steps[asked as usize].recorded_end_ns > steps[act.step as usize].recorded_run_at_ns;
        let is_client = ASKED_SHARE * count(client, server) >= count(server, client);
        if is_late && is_client && !woken_by.contains(&(asked, server)) {
            acts[place].answers = Some(asked);
        }
    }
    find_feeds(steps, tasks, acts, &wakes, &woken_by);
}

/// Finds what else came while a task was at work, from tasks that mostly wake this one as they end. It is served at the
/// earliest after what the task was doing then. `wakes` counts who wakes whom, and `woken_by` has which steps wake a task.
fn find_feeds(
    steps: &[Played],
    tasks: &[(u32, u32)],
    acts: &mut [Act],
    wakes: &BTreeMap<(u32, u32), usize>,
    woken_by: &BTreeSet<(u32, u32)>,
) {
    let task_of = |id: u32| steps[id as usize].task;
    let mut feeders: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (&(from, to), &count) in wakes {
        let (first, end) = tasks[from as usize];
        if from != to && 2 * count > (end - first) as usize {
            feeders.entry(to).or_default().push(from);
        }
    }
    let mut begin = 0;
    while begin < acts.len() {
        let step = acts[begin].step;
        let end = begin + acts[begin..].partition_point(|act| act.step == step);
        let [from_ns, until_ns] =
            [steps[step as usize].recorded_run_at_ns, acts[end - 1].recorded_ns.0];
        for &from in feeders.get(&task_of(step)).into_iter().flatten().take(FEEDER_COUNT_MAX) {
            let (first, last) = tasks[from as usize];
            let of_feeder = &steps[first as usize..last as usize];
            let place = of_feeder.partition_point(|step| step.recorded_end_ns <= from_ns);
            let came = of_feeder[place..].iter().take_while(|step| step.recorded_end_ns < until_ns);
            for (id, fed) in (first + place as u32..).zip(came) {
                if woken_by.contains(&(id, task_of(step))) {
                    continue;
                }
                let of_step = &mut acts[begin..end];
                let after = of_step.partition_point(|act| act.recorded_ns.0 <= fed.recorded_end_ns);
                if let Some(act) = of_step.get_mut(after + 1).filter(|act| act.answers.is_none()) {
                    act.answers = Some(id);
                }
            }
        }
        begin = end;
    }
}

/// How long after a wake-up the woken task usually takes the waker's CPU.
pub(super) fn usual_preemption_ns(acts: &[Act]) -> u64 {
    let mut spans_ns: Vec<u64> = acts.iter().filter_map(|act| act.preempts_after_ns).collect();
    let middle = spans_ns.len() / 2;
    spans_ns.sort_unstable();
    spans_ns.get(middle).copied().unwrap_or(0)
}

/// Which tasks serve whoever comes: two others wake them one after another in either order, and who comes next does not
/// follow from who came last. A task that waits for each of them in turn is woken in one order.
pub(super) fn serving_tasks(
    steps: &[Played],
    tasks: &[(u32, u32)],
    acts: &[Act],
    costs: Costs,
) -> Vec<bool> {
    let mut wakers: Vec<Option<u32>> = vec![None; steps.len()];
    for act in acts.iter().filter(|act| act.delay_ns.is_none()) {
        wakers[act.target as usize] = Some(steps[act.step as usize].task);
    }
    let serves = |&(first, end): &(u32, u32)| {
        let mut pairs: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let mut after: BTreeMap<u32, usize> = BTreeMap::new();
        for two in wakers[first as usize..end as usize].windows(2) {
            if let [Some(one), Some(other)] = *two {
                *pairs.entry((one, other)).or_default() += 1;
                *after.entry(one).or_default() += 1;
            }
        }
        let is_open = |(&(one, _), &count): (&(u32, u32), &usize)| {
            count * SERVED_SHARE < after[&one] * (SERVED_SHARE - 1) && count >= SERVED_COUNT_MIN
        };
        let both_ways = |one: u32, other: u32| {
            one != other && pairs.get(&(other, one)).is_some_and(|&count| count >= SERVED_COUNT_MIN)
        };
        pairs.iter().any(|pair| is_open(pair) && both_ways(pair.0.0, pair.0.1))
    };
    tasks.iter().map(|range| costs == Costs::Recorded && serves(range)).collect()
}

/// Which tasks may run on any CPU: those that came to another one after they had waited. A new task is moved at its
/// beginning, and may bind itself to a CPU then. Tasks too short to tell do as others of their name.
pub(super) fn free_tasks(
    metadata: &WorkloadMetadata,
    steps: &[Played],
    tasks: &[(u32, u32)],
) -> Vec<bool> {
    let moves = |&(first, end): &(u32, u32)| {
        let steps = &steps[first as usize..end as usize];
        let settled = steps.get(SETTLING_STEP_COUNT..).unwrap_or_default();
        let is_told = settled.len() >= SETTLING_STEP_COUNT;
        is_told.then(|| settled.windows(2).any(|two| two[0].cpu != two[1].cpu))
    };
    let told: Vec<Option<bool>> = tasks.iter().map(moves).collect();
    let name = |task: usize| metadata.tasks[task].name.as_str();
    let mut by_name: BTreeMap<&str, (usize, usize, BTreeSet<u16>)> = BTreeMap::new();
    for (task, told) in told.iter().enumerate() {
        let (bound, free, cpus) = by_name.entry(name(task)).or_default();
        *bound += usize::from(*told == Some(false));
        *free += usize::from(*told == Some(true));
        let (first, end) = tasks[task];
        cpus.extend(steps[first as usize..end as usize].iter().map(|step| step.cpu));
    }
    let as_others = |task: usize| match &by_name[name(task)] {
        (0, 0, cpus) => cpus.len() > 1,
        (bound, free, _) => free > bound,
    };
    told.into_iter()
        .enumerate()
        .map(|(task, told)| told.unwrap_or_else(|| as_others(task)))
        .collect()
}

impl CausedWorkload {
    /// The tasks that each step met on its CPU.
    pub(super) fn others(&self) -> Vec<Others> {
        let steps = &self.steps;
        let of = |id: u32| &steps[id as usize];
        let mut order: Vec<u32> = (0..steps.len() as u32).collect();
        order.sort_unstable_by_key(|&id| (of(id).cpu, of(id).recorded_run_at_ns, id));
        let mut met = vec![Others::default(); steps.len()];
        let mut before: Vec<u32> = Vec::new();
        for (place, &id) in order.iter().enumerate() {
            let step = of(id);
            if place > 0 && of(order[place - 1]).cpu != step.cpu {
                before.clear();
            }
            before.retain(|&other| of(other).recorded_end_ns > step.due_ns);
            let has_ended = |other: u32| of(other).recorded_end_ns <= step.recorded_run_at_ns;
            let ran = before.iter().filter(|&&other| of(other).recorded_run_at_ns <= step.due_ns);
            met[id as usize] = Others {
                were_ahead: before.iter().any(|&other| has_ended(other)),
                ran_on: ran.map(|&other| !has_ended(other)).reduce(|one, other| one || other),
            };
            before.push(id);
        }
        met
    }

    /// How often a CPU ran out of tasks while one waited for another CPU that it could have taken. Linux measures what the
    /// search costs, and does not search where that is much.
    fn left_waiting_count(&self, others: &[Others]) -> usize {
        let steps = &self.steps;
        // Until when each CPU is busy, by when it became so, and when it ran out of tasks.
        let mut order: Vec<&Played> = steps.iter().collect();
        order.sort_unstable_by_key(|step| (step.cpu, step.recorded_run_at_ns));
        let mut emptied: Vec<(u64, u16)> = Vec::new();
        for of_cpu in order.chunk_by(|one, other| one.cpu == other.cpu) {
            let mut busy_until_ns = 0;
            for step in of_cpu {
                if step.due_ns > busy_until_ns && busy_until_ns > 0 {
                    emptied.push((busy_until_ns, step.cpu));
                }
                busy_until_ns = busy_until_ns.max(step.recorded_end_ns);
            }
        }
        emptied.sort_unstable();
        let is_left = |id: usize, first: usize| {
            let step = &steps[id];
            let last_ns = if id > first { steps[id - 1].recorded_end_ns } else { return false };
            let from_ns = last_ns.saturating_add(HOT_NS).max(step.due_ns);
            let until_ns = step.recorded_run_at_ns.saturating_sub(MOVED_WITHIN_NS);
            let from = emptied.partition_point(|&(at_ns, _)| at_ns <= from_ns);
            let during = emptied[from..].iter().take_while(|&&(at_ns, _)| at_ns < until_ns);
            others[id].were_ahead && during.clone().any(|&(_, cpu)| cpu != step.cpu)
        };
        let of_task = |(task, &(first, end)): (usize, &(u32, u32))| {
            let ids = if self.is_free[task] { first..end } else { first..first };
            ids.filter(|&id| is_left(id as usize, first as usize)).count()
        };
        self.tasks.iter().enumerate().map(of_task).sum()
    }

    /// Finds how the kernel's scheduler treated the tasks.
    pub(super) fn find_scheduling(&mut self, others: &[Others]) {
        self.find_urgencies(others);
        self.takes_waiting = self.left_waiting_count(others) < LEFT_WAITING_MAX;
    }

    /// Finds the tasks that always take the CPU from the one that runs there, and those that never do. The rest does if it
    /// lags, as far as the recording shows.
    fn find_urgencies(&mut self, others: &[Others]) {
        let urgency = |&(first, end): &(u32, u32)| {
            let steps = first as usize..end as usize;
            let met: Vec<bool> = others[steps].iter().filter_map(|others| others.ran_on).collect();
            let count = met.iter().filter(|&&ran_on| ran_on).count();
            match count {
                _ if met.len() < URGENCY_SHOWN_MIN => Urgency::Usual,
                0 => Urgency::Never,
                count if count == met.len() => Urgency::Always,
                _ => Urgency::Usual,
            }
        };
        self.urgencies = self.tasks.iter().map(urgency).collect();
    }
}

#[cfg(test)]
mod tests {
    use idlewise_trace::causes::{StepEnd, TaskInfo};

    use super::super::Arrival;
    use super::*;

    fn step(task: u32, cpu: u16, run_at_ns: u64, end_ns: u64) -> Played {
        Played {
            task,
            cpu,
            arrival: Arrival::FromStep,
            due_ns: run_at_ns,
            recorded_run_at_ns: run_at_ns,
            recorded_end_ns: end_ns,
            run_ns: end_ns - run_at_ns,
            idle_state: None,
            takes_over: false,
            is_remote: false,
            is_by_timer: false,
            rest_ns: 0,
            end: StepEnd::Waits,
        }
    }

    fn wake(step: u32, target: u32, at_ns: u64) -> Act {
        Act {
            step,
            offset_ns: 0,
            recorded_ns: (at_ns, at_ns),
            target,
            delay_ns: None,
            preempts_after_ns: None,
            answers: None,
        }
    }

    /// A server of two clients, whose requests come in this order.
    fn serves(order: &[u32]) -> bool {
        let count = order.len() as u32;
        let steps: Vec<Played> = (0..3 * count)
            .map(|id| {
                step(id / count, 0, 100 * u64::from(id % count), 100 * u64::from(id % count) + 50)
            })
            .collect();
        let tasks = [(0, count), (count, 2 * count), (2 * count, 3 * count)];
        let acts: Vec<Act> =
            order.iter().zip(0..).map(|(client, id)| wake(client * count + id, id, 0)).collect();
        let found = serving_tasks(&steps, &tasks, &acts, Costs::Recorded);
        assert_eq!(found[1..], [false, false], "nobody wakes the clients");
        found[0]
    }

    #[test]
    fn a_server_is_told_from_a_task_that_asks_each_in_turn() {
        assert!(serves(&[1, 1, 2, 1, 2, 2, 2, 1, 1, 2, 1, 1, 2, 2, 1, 2]));
        assert!(!serves(&[1, 2].repeat(8)));
        assert!(!serves(&[1; 16]));
    }

    #[test]
    fn a_task_that_moves_once_at_its_beginning_is_bound() {
        let free = |cpus: &[u16], names: [&str; 2]| {
            let count = cpus.len() as u32;
            let steps: Vec<Played> = cpus
                .iter()
                .zip(0..)
                .map(|(&cpu, at_ns)| step(0, cpu, at_ns, at_ns + 1))
                .chain([step(1, 1, 0, 1)])
                .collect();
            let task = |name: &str| TaskInfo { name: name.to_owned(), ..TaskInfo::default() };
            let tasks = names.map(task).to_vec();
            let metadata = WorkloadMetadata { tasks, ..WorkloadMetadata::default() };
            free_tasks(&metadata, &steps, &[(0, count), (count, count + 1)])
        };
        assert_eq!(free(&[0, 1, 1, 1, 1, 1, 1, 1], ["a", "b"]), [false, false]);
        assert_eq!(free(&[0, 0, 0, 0, 1, 1, 0, 0], ["a", "b"]), [true, false]);
        // Too short to tell, it does as the other of its name.
        assert_eq!(free(&[0, 0, 0, 0, 1, 1, 0, 0], ["a", "a"]), [true, true]);
    }

    #[test]
    fn an_answer_to_a_request_that_woke_nobody_needs_it() {
        // The server, two steps of each client. The second client asks while the server answers the first.
        let steps = [
            step(0, 0, 0, 50),
            step(0, 0, 100, 160),
            step(1, 1, 60, 90),
            step(1, 1, 120, 130),
            step(2, 1, 0, 10),
            step(2, 1, 105, 110),
            step(2, 1, 150, 155),
        ];
        let tasks = [(0, 2), (2, 4), (4, 7)];
        let mut acts = [
            wake(1, 3, 120),
            wake(1, 6, 150),
            // Each client wakes the server at other times.
            wake(2, 1, 90),
            wake(4, 0, 5),
        ];
        find_answers(&steps, &tasks, &mut acts);
        assert_eq!(acts.map(|act| act.answers), [None, Some(5), None, None]);
        // Had it woken the server, that would say it.
        let mut acts = [wake(1, 3, 120), wake(1, 6, 150), wake(4, 0, 5), wake(5, 1, 95)];
        find_answers(&steps, &tasks, &mut acts);
        assert_eq!(acts.map(|act| act.answers), [None; 4]);
    }
}
