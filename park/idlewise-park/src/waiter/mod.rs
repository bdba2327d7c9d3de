//! The idle loop of one thread: select, enter, be woken, reflect.
//!
//! The loop reaches the clock, its doorbell and the ways to wait through [`World`] (`world.rs`). `tests.rs`
//! replaces them by a virtual machine, in which the tests control time.
//!
//! A waiter that is awake looks at its doorbell between any two pieces of work. After `start_polling`, such
//! a piece is one step of counting threads, one step of a plan, or one selection. Each takes well below a
//! tenth of a microsecond.

use idlewise_core::{
    Context, Device, DisabledMask, Doorbell, FAR_AWAY_NS, Governor, NO_LATENCY_LIMIT_NS, Outcome,
    SleepLength, Stay, Verdict, auto_promotion_delay_ns,
};

mod world;

use crate::budget::Budget;
use crate::clock::{self, Deadline};
use crate::learn::{Learned, PRIOR};
use crate::load::Preemptions;
use crate::outcome::ParkOutcome;
use crate::poll_limit::PollLimit;
use crate::stats::WaitStats;
use crate::table::WaitTable;
use crate::wait::Method;
use crate::wait::monitor::{self, AT_ONCE_NS, Monitored, Trust};
use crate::wait::word::Reach;

#[cfg(target_os = "linux")]
pub(crate) use world::Events;
pub(crate) use world::{Here, NoEvents, World};

/// A polling method looks at least this often. If more time passes, somebody else had the CPU.
const LOOK_EVERY_NS: u64 = 2_000;
/// How long a monitored line is left alone unless promotion is due. A wake-up from it then costs no look.
const MONITOR_NS: u64 = 100_000;
/// How often a polling waiter reads the OS's clock, because ours may have jumped since the deadline was
/// set.
const OS_CLOCK_EVERY_NS: u64 = 1_000_000;
/// The longest time between the beginnings of two waits that is counted.
const CYCLE_MAX_NS: u64 = 100_000_000;

/// The result of a wait.
pub(crate) struct Wait {
    pub(crate) outcome: ParkOutcome,
    #[cfg(feature = "tracing")]
    pub(crate) gap_ns: u64,
    /// The last state, or `None` if the wait ended before it entered any.
    #[cfg(feature = "tracing")]
    pub(crate) state: Option<crate::wait::Method>,
}

impl Wait {
    fn none(outcome: ParkOutcome) -> Self {
        Wait {
            outcome,
            #[cfg(feature = "tracing")]
            gap_ns: 0,
            #[cfg(feature = "tracing")]
            state: None,
        }
    }
}

/// The state that belongs to the waiting thread alone.
pub(crate) struct Waiter {
    table: WaitTable,
    governor: PollLimit,
    device: Device,
    latency_limit_ns: i64,
    /// `None`: the thread's budget is used.
    budget: Option<Budget>,
    preemptions: Preemptions,
    /// `None`: the table's costs do not change.
    learned: Option<Learned>,
    is_cost_new: bool,
    trust: Trust,
    /// The average time from the beginning of one wait to that of the next; 0 if not known yet.
    cycle_ns: u64,
    started_at_ns: u64,
    stats: WaitStats,
    reach: Reach,
}

/// A wait that has polled for long enough and now sleeps in the caller's own system call.
#[cfg(any(target_os = "linux", test))]
pub(crate) struct Pause {
    course: Course,
    disabled: DisabledMask,
    start_ns: u64,
    deadline: Option<Deadline>,
    /// The thread's CPU time when it fell asleep, if it was asked for.
    cpu_ns: Option<u64>,
}

/// The course of a wait.
struct Course {
    state: usize,
    entered_at_ns: u64,
    ended_at_ns: u64,
    is_asleep: bool,
    /// The part of the wait that kept the CPU.
    polled_ns: u64,
    /// When the ring was made, if the waker recorded it, and how long its call took.
    rung: Option<(u64, u64)>,
}

impl Waiter {
    pub(crate) fn new(
        table: WaitTable,
        latency_limit_ns: Option<u64>,
        cpu_budget_permille: Option<u32>,
    ) -> Self {
        let learned = table.does_learn().then(|| Learned::new(table.sleep_cost(), &PRIOR));
        Waiter {
            governor: table.governor(),
            table,
            device: Device::default(),
            latency_limit_ns: latency_limit_ns
                .map_or(NO_LATENCY_LIMIT_NS, |ns| i64::try_from(ns).unwrap_or(i64::MAX)),
            budget: cpu_budget_permille.map(|share| Budget::new(share, clock::now_ns())),
            preemptions: Preemptions::default(),
            is_cost_new: learned.is_some(),
            learned,
            trust: Trust::default(),
            cycle_ns: 0,
            started_at_ns: 0,
            stats: WaitStats::default(),
            reach: Reach::Process,
        }
    }

    /// The same waiter with another reach of its wakers.
    pub(crate) fn with_reach(self, reach: Reach) -> Self {
        Waiter { reach, ..self }
    }

    /// The table with what was learnt about its states.
    pub(crate) fn table(&self) -> WaitTable {
        let mut table = self.table.clone();
        if let Some(learned) = self.learned.as_ref().filter(|learned| learned.is_measured()) {
            table.set_sleep_cost(&learned.cost());
        }
        table.doubt_broken();
        table
    }

    pub(crate) fn stats(&self) -> WaitStats {
        WaitStats { preempted: self.preemptions.count, ..self.stats }
    }

    /// Waits until the doorbell is rung or the deadline passes. Runs no user code.
    #[inline(never)]
    pub(crate) fn wait(&mut self, bell: &Doorbell, deadline: Option<Deadline>) -> Wait {
        self.wait_in(&Here { bell, reach: self.reach, events: &NoEvents }, deadline)
    }

    fn wait_in(&mut self, world: &impl World, mut deadline: Option<Deadline>) -> Wait {
        let start_ns = world.now_ns();
        world.runs(start_ns);
        if is_over(world, &mut deadline, start_ns) || !world.start_polling() {
            return Wait::none(outcome(world.take()));
        }
        let disabled = self.begin(world, start_ns);
        let mut course = self.idle(world, disabled, start_ns, &mut deadline);
        if self.is_sleep(&course) {
            self.sleep(world, &mut course, &mut deadline);
        }
        let woken = world.take();
        self.stats.store_wakes += u64::from(woken && !course.is_asleep);
        self.note_end(&course, disabled, woken);
        self.learn(world, &course, start_ns, woken);
        Wait {
            outcome: outcome(woken),
            #[cfg(feature = "tracing")]
            gap_ns: course.ended_at_ns.saturating_sub(start_ns),
            #[cfg(feature = "tracing")]
            state: Some(self.table.states()[course.state].method),
        }
    }

    /// Counts the wait and plans it.
    fn begin(&mut self, world: &impl World, start_ns: u64) -> DisabledMask {
        self.stats.waits += 1;
        self.note_start(start_ns);
        let disabled = self.disabled(world, start_ns);
        self.plan(world, disabled, start_ns);
        disabled
    }

    /// Whether the current state is a sleep.
    fn is_sleep(&self, course: &Course) -> bool {
        self.table.states()[course.state].method.is_sleep()
    }

    fn note_start(&mut self, start_ns: u64) {
        let before_ns = std::mem::replace(&mut self.started_at_ns, start_ns);
        if before_ns == 0 {
            return;
        }
        let cycle_ns = start_ns.saturating_sub(before_ns).min(CYCLE_MAX_NS);
        self.cycle_ns = match self.cycle_ns {
            0 => cycle_ns,
            mean_ns => mean_ns - mean_ns / 8 + cycle_ns / 8,
        };
    }

    fn with_budget<R>(
        &mut self,
        world: &impl World,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R> {
        match &mut self.budget {
            Some(budget) => Some(action(budget)),
            None => world.with_thread_budget(now_ns, action),
        }
    }

    /// The states that do not work and, if others need the CPU, those that keep it.
    fn disabled(&mut self, world: &impl World, now_ns: u64) -> DisabledMask {
        let states = self.table.states();
        let broken = (0..states.len()).filter(|&state| monitor::is_broken(states[state].method));
        let broken = broken.fold(DisabledMask::NONE, DisabledMask::with);
        let is_penalized = !self.preemptions.may_poll();
        let may_poll = self.with_budget(world, now_ns, |budget| budget.may_poll(now_ns));
        let is_kept = is_penalized || may_poll == Some(false);
        let mut is_crowded = false;
        while !is_kept && !world.is_rung() {
            if let Some(answer) = world.is_crowded(now_ns) {
                is_crowded = answer;
                break;
            }
        }
        self.stats.not_polled += u64::from(is_kept);
        self.stats.oversubscribed += u64::from(is_crowded);
        if is_crowded || is_kept {
            (0..self.table.state_table().deepest()).fold(broken, DisabledMask::with)
        } else {
            broken
        }
    }

    /// Makes a new plan if one is due and there is a choice.
    fn plan(&mut self, world: &impl World, disabled: DisabledMask, now_ns: u64) {
        let deepest = self.table.state_table().deepest();
        let has_choice = (0..deepest).any(|state| !disabled.contains(state));
        if !has_choice || !self.governor.wants_plan() {
            return;
        }
        if let Some(learned) = self.learned.as_ref().filter(|_| self.is_cost_new) {
            let cost = learned.cost();
            if learned.is_measured() {
                self.table.set_sleep_cost(&cost);
            }
            self.governor.set_sleep_cost(cost);
            self.is_cost_new = false;
        }
        if self.cycle_ns > 0 {
            let cycle_ns = self.cycle_ns;
            let share_ns = self.with_budget(world, now_ns, |budget| budget.share_of_ns(cycle_ns));
            self.governor.set_excess_max_ns(share_ns.unwrap_or(u64::MAX));
        }
        let far = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: FAR_AWAY_NS };
        let mut context = Context::new(self.table.state_table(), far);
        context.disabled = disabled;
        context.latency_limit_ns = self.latency_limit_ns;
        let mut planner = self.governor.planner();
        while !world.is_rung() && !self.governor.plan_step(&mut planner, &context) {}
    }

    /// Goes through the states until the wait is over or the state is a sleep, which is only entered.
    fn idle(
        &mut self,
        world: &impl World,
        mut disabled: DisabledMask,
        start_ns: u64,
        deadline: &mut Option<Deadline>,
    ) -> Course {
        let mut now_ns = start_ns;
        let mut polled_ns = 0;
        loop {
            // Promotion leads only to states that meet the latency limit.
            let states = self.table.state_table();
            let is_slow = |state: &usize| {
                i64::try_from(states.get(*state).exit_latency_ns)
                    .is_ok_and(|ns| ns > self.latency_limit_ns)
            };
            let not_promoted_to =
                (0..states.len()).filter(is_slow).fold(disabled, DisabledMask::with);
            let left_ns = deadline.map_or(FAR_AWAY_NS, |deadline| {
                i64::try_from(deadline.at_ns.saturating_sub(now_ns)).unwrap_or(FAR_AWAY_NS)
            });
            let sleep_length = SleepLength { sleep_length_ns: left_ns, next_event_ns: left_ns };
            let mut context = Context::new(self.table.state_table(), sleep_length);
            context.disabled = disabled;
            context.latency_limit_ns = self.latency_limit_ns;
            context.now_ns = now_ns;
            let state = self.governor.select(&context, &mut self.device).state;
            let stay_ns = if self.table.state_table().get(state).is_polling {
                Some(self.device.poll_limit_ns)
            } else {
                auto_promotion_delay_ns(self.table.state_table(), not_promoted_to, state)
            };
            // Where no other state meets the latency limit, one that is broken is still chosen. It polls then, and is not
            // judged again: each verdict would enter it anew.
            let method = match self.table.states()[state].method {
                broken if monitor::is_broken(broken) => Method::Spin,
                method => method,
            };
            self.stats.entered[state] += 1;
            let mut entered_at_ns = now_ns;

            if method.is_sleep() {
                let (is_asleep, rung) = (false, None);
                let ended_at_ns = entered_at_ns;
                return Course { state, entered_at_ns, ended_at_ns, is_asleep, polled_ns, rung };
            }

            let end_of = |entered_at_ns: u64, deadline: Option<Deadline>| {
                let stay_end_ns = stay_ns.map(|stay_ns| entered_at_ns.saturating_add(stay_ns));
                [deadline.map(|deadline| deadline.at_ns), stay_end_ns].into_iter().flatten().min()
            };
            let mut end_ns = end_of(entered_at_ns, *deadline);
            let is_monitored = method.is_monitored();
            let quantum_ns = if is_monitored { MONITOR_NS } else { LOOK_EVERY_NS };
            let mut os_clock_at_ns = now_ns.saturating_add(OS_CLOCK_EVERY_NS);
            let mut is_trusted = true;
            while is_trusted && !world.is_rung() && end_ns.is_none_or(|end_ns| now_ns < end_ns) {
                // Bounded, so that a late look reveals a preemption.
                let look_ns = now_ns.saturating_add(quantum_ns);
                let look_ns = end_ns.map_or(look_ns, |end_ns| end_ns.min(look_ns));
                world.rest(method, look_ns);
                let before_ns = std::mem::replace(&mut now_ns, world.now_ns());
                let (elapsed_ns, asked_ns) =
                    (now_ns.saturating_sub(before_ns), look_ns.saturating_sub(before_ns));
                self.preemptions.looked(elapsed_ns, asked_ns);
                if is_monitored {
                    let ended = how_it_ended(world.is_rung(), elapsed_ns, asked_ns);
                    is_trusted = self.trust.note(method, ended);
                }
                if now_ns < before_ns {
                    // The counter went back, so the stay starts again.
                    entered_at_ns = now_ns;
                } else if now_ns < os_clock_at_ns {
                    continue;
                }
                if deadline.as_mut().is_some_and(|deadline| world.is_reached(deadline)) {
                    now_ns = world.now_ns();
                    break;
                }
                os_clock_at_ns = now_ns.saturating_add(OS_CLOCK_EVERY_NS);
                end_ns = end_of(entered_at_ns, *deadline);
            }
            self.preemptions.polled();
            let stayed_ns = now_ns.saturating_sub(entered_at_ns);
            polled_ns += stayed_ns;
            self.stats.residency_ns[state] += stayed_ns;
            if world.is_rung() || is_over(world, deadline, now_ns) {
                let (is_asleep, rung) = (false, None);
                let ended_at_ns = now_ns;
                return Course { state, entered_at_ns, ended_at_ns, is_asleep, polled_ns, rung };
            }
            if !is_trusted {
                disabled = disabled.with(state);
            }
            self.stats.promotions += 1;
            self.device.last_residency_ns = stayed_ns;
            let left = Outcome { entered: state, is_overruled: false, got_tick: true, now_ns };
            self.governor.reflect(&left, &mut self.device);
        }
    }

    /// Sleeps until woken or until the deadline passes.
    fn sleep(&mut self, world: &impl World, course: &mut Course, deadline: &mut Option<Deadline>) {
        world.sleeps();
        course.is_asleep = world.fall_asleep();
        let mut cpu_ns = None;
        if course.is_asleep {
            cpu_ns = self.falls_asleep(world, course.entered_at_ns);
            let method = self.table.states()[course.state].method;
            while !world.is_rung() {
                world.sleep(method, deadline.as_ref());
                // Ask the OS's clock, as the sleep did. Ours may have stopped or jumped with the machine.
                if deadline.as_mut().is_some_and(|deadline| world.is_reached(deadline)) {
                    break;
                }
            }
        }
        self.wakes_up(world, course, cpu_ns);
    }

    /// The thread's CPU time when it falls asleep, if it should be measured.
    fn falls_asleep(&self, world: &impl World, entered_at_ns: u64) -> Option<u64> {
        world.is_asleep(entered_at_ns);
        let does_ask = self.learned.as_ref().is_some_and(Learned::wants_own_time);
        if does_ask { world.thread_cpu_ns() } else { None }
    }

    /// Records how the sleep went.
    fn wakes_up(&mut self, world: &impl World, course: &mut Course, cpu_ns: Option<u64>) {
        let own_time = cpu_ns.and_then(|before_ns| world.thread_cpu_ns()?.checked_sub(before_ns));
        let now_ns = world.now_ns();
        world.runs(now_ns);
        let is_rung = course.is_asleep && world.is_rung();
        let rung = if is_rung { world.rung(course.entered_at_ns) } else { None };
        course.rung = rung.filter(|&(rung_at_ns, _)| rung_at_ns <= now_ns);
        course.ended_at_ns = now_ns;
        let stayed_ns = now_ns.saturating_sub(course.entered_at_ns);
        self.stats.residency_ns[course.state] += stayed_ns;
        if let Some(learned) = self.learned.as_mut().filter(|_| course.is_asleep) {
            if let Some(own_ns) = own_time {
                learned.note_own_time(own_ns);
            }
            self.is_cost_new |= learned.note_sleep();
        }
    }

    /// Learns from the wait about gaps, sleeping and the budget.
    fn learn(&mut self, world: &impl World, course: &Course, start_ns: u64, woken: bool) {
        let waited_ns = course.ended_at_ns.saturating_sub(start_ns);
        if !woken {
            self.governor.end_wait_unwoken(waited_ns);
        } else if let Some((rung_at_ns, call_ns)) = course.rung {
            let gap_ns = rung_at_ns.saturating_sub(start_ns);
            self.governor.end_wait(gap_ns);
            if let Some(learned) = &mut self.learned {
                let latency_ns = course.ended_at_ns - rung_at_ns;
                learned.note_wake(gap_ns, latency_ns, call_ns);
            }
        } else {
            // The gap ends with the wake-up, before the exit from the state, as in the kernel.
            let exit_latency_ns = self.table.state_table().get(course.state).exit_latency_ns;
            self.governor.end_wait(waited_ns.saturating_sub(exit_latency_ns));
        }
        if course.polled_ns > 0 {
            // What a sleep would have cost is free.
            let cost = self.learned.as_ref().map_or_else(|| self.table.sleep_cost(), Learned::cost);
            let free_ns = match woken {
                _ if course.is_asleep => 0,
                true => cost.transition_ns,
                false => cost.own_ns,
            };
            let burnt_ns = course.polled_ns.saturating_sub(free_ns);
            if burnt_ns > 0 {
                self.with_budget(world, course.ended_at_ns, |budget| budget.burnt(burnt_ns));
            }
        }
    }

    fn note_end(&mut self, course: &Course, disabled: DisabledMask, woken: bool) {
        let Course { state, entered_at_ns, ended_at_ns, .. } = *course;
        self.stats.timeouts += u64::from(!woken);
        let idle_duration_ns = ended_at_ns.saturating_sub(entered_at_ns);
        match (Stay { state, idle_duration_ns }).verdict(self.table.state_table(), disabled) {
            Verdict::TooDeep => self.stats.too_deep += 1,
            Verdict::TooShallow => self.stats.too_shallow += 1,
            Verdict::Fit => {}
        }
    }
}

/// A wait in three parts, for a sleep that the caller makes.
#[cfg(any(target_os = "linux", test))]
impl Waiter {
    /// The first part: polls while that pays. The doorbell must be POLLING. Returns `None` if the wait is
    /// over, because of a ring, events or its deadline.
    pub(crate) fn poll(
        &mut self,
        world: &impl World,
        mut deadline: Option<Deadline>,
    ) -> Option<Pause> {
        let start_ns = world.now_ns();
        world.runs(start_ns);
        if world.is_rung() || is_over(world, &mut deadline, start_ns) {
            return None;
        }
        let disabled = self.begin(world, start_ns);
        let course = self.idle(world, disabled, start_ns, &mut deadline);
        let is_sleep = self.is_sleep(&course);
        let pause = Pause { course, disabled, start_ns, deadline, cpu_ns: None };
        if is_sleep {
            world.sleeps();
            return Some(pause);
        }
        self.end(world, pause, world.is_rung());
        None
    }

    /// The second part. `is_asleep` is `false` if the doorbell was rung just before.
    pub(crate) fn pause(&mut self, world: &impl World, pause: &mut Pause, is_asleep: bool) {
        pause.course.is_asleep = is_asleep;
        if is_asleep {
            pause.cpu_ns = self.falls_asleep(world, pause.course.entered_at_ns);
        }
    }

    /// The last part, before the doorbell is taken. Whatever ends a sleep before its deadline is an event.
    pub(crate) fn resume(&mut self, world: &impl World, mut pause: Pause) {
        self.wakes_up(world, &mut pause.course, pause.cpu_ns);
        let mut is_over = || pause.deadline.as_mut().is_some_and(|end| world.is_reached(end));
        let woken = world.is_rung() || !is_over();
        self.end(world, pause, woken);
    }

    fn end(&mut self, world: &impl World, pause: Pause, woken: bool) {
        self.note_end(&pause.course, pause.disabled, woken);
        self.learn(world, &pause.course, pause.start_ns, woken);
    }
}

/// How a monitored wait ended that was asked to take `asked_ns`.
fn how_it_ended(is_rung: bool, elapsed_ns: u64, asked_ns: u64) -> Monitored {
    if is_rung && elapsed_ns >= asked_ns && asked_ns >= MONITOR_NS {
        Monitored::Missed
    } else if !is_rung && elapsed_ns < AT_ONCE_NS && asked_ns >= 2 * AT_ONCE_NS {
        Monitored::AtOnce
    } else {
        Monitored::Well
    }
}

/// Whether the deadline is reached. The OS's clock is only asked if ours says so.
fn is_over(world: &impl World, deadline: &mut Option<Deadline>, now_ns: u64) -> bool {
    deadline.as_mut().is_some_and(|deadline| now_ns >= deadline.at_ns && world.is_reached(deadline))
}

fn outcome(woken: bool) -> ParkOutcome {
    if woken { ParkOutcome::Woken } else { ParkOutcome::TimedOut }
}

#[cfg(all(test, not(miri)))]
mod tests;
