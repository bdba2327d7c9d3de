//! Which CPU a woken task gets, and what a CPU without tasks does, with `Scheduler::linux`. Which of its tasks a CPU runs
//! next is tested beside `simulate/run_queue.rs`; a real kernel judges both in `docs/prediction.md`.

use idlewise_core::{Governor, TimerOnly, tick_period_ns};
use idlewise_sim::Machine;
use idlewise_sim::simulate::{
    Hardware, Load, Op, Program, Scheduler, Setup, Spawn, Urgency, View, simulate,
};
use idlewise_trace::causes::Step;

const RUN_NS: u64 = 200_000_000;

/// Runs and sleeps in turn.
struct Worker {
    run_ns: u64,
    sleep_ns: u64,
    runs_next: bool,
    urgency: Urgency,
}

impl Program for Worker {
    fn urgency(&self) -> Urgency {
        self.urgency
    }

    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.runs_next = !self.runs_next;
        match self.runs_next {
            false => Op::SleepUntil { at_ns: view.now_ns + self.sleep_ns, slack_ns: 0 },
            true => Op::Run { ns: self.run_ns },
        }
    }
}

fn worker(cpu: usize, is_pinned: bool, run_us: u64, sleep_us: u64) -> Spawn {
    let [run_ns, sleep_ns] = [1_000 * run_us, 1_000 * sleep_us];
    // Otherwise one that has waited takes the CPU the next time.
    let urgency = if is_pinned { Urgency::Usual } else { Urgency::Never };
    let worker = Worker { run_ns, sleep_ns, runs_next: false, urgency };
    Spawn { is_pinned, ..Spawn::pinned(cpu, worker) }
}

fn by_timer() -> Box<dyn Governor> {
    Box::new(TimerOnly::new(u64::from(tick_period_ns(250))))
}

/// The steps of the last task, on a machine of two CPUs.
fn steps(scheduler: Scheduler, tasks: Vec<Spawn>) -> Vec<Step> {
    let text = include_str!("../../../../machines/spr.toml");
    let machine = Machine::from_toml(text).unwrap();
    let mut setup = Setup::new(&machine, &by_timer);
    setup.hardware =
        Hardware { package_count: 1, core_count: 2, thread_count: 1, ..Hardware::of(&machine) };
    setup.scheduler = scheduler;
    setup.keeps_steps = true;
    let last = tasks.len() as u32 - 1;
    let report = simulate(&setup, Load { tasks, sources: Vec::new() }, RUN_NS, 1).unwrap();
    // The first begins with the run, and the last is cut.
    let of_last = report.steps.into_iter().filter(|step| step.task == last);
    let of_last: Vec<Step> = of_last.collect();
    assert!(of_last.len() > 40, "{}", of_last.len());
    of_last[1..of_last.len() - 1].to_vec()
}

#[test]
fn a_woken_task_goes_to_an_idle_cpu_unless_it_is_bound() {
    let share_elsewhere = |is_pinned| {
        let hog = worker(0, true, 1_000, 50);
        let steps = steps(Scheduler::linux(2, true), vec![hog, worker(0, is_pinned, 20, 300)]);
        let elsewhere = steps.iter().filter(|step| step.cpu == 1).count();
        elsewhere as f64 / steps.len() as f64
    };
    assert_eq!(share_elsewhere(true), 0.0);
    assert!(share_elsewhere(false) > 0.9, "{}", share_elsewhere(false));
}

#[test]
fn a_cpu_that_runs_out_of_tasks_takes_one_that_waits() {
    let waited_ns = |takes_waiting| {
        let others = [worker(0, true, 4_000, 100), worker(1, true, 700, 300)];
        let mut tasks: Vec<Spawn> = others.into();
        tasks.push(worker(0, false, 400, 900));
        let steps = steps(Scheduler::linux(2, takes_waiting), tasks);
        steps.iter().map(Step::wake_to_run_ns).sum::<u64>() / steps.len() as u64
    };
    let (taken_ns, left_ns) = (waited_ns(true), waited_ns(false));
    assert!(taken_ns < left_ns, "{taken_ns} and {left_ns} ns");
}
