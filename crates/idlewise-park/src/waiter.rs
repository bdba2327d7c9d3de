//! The idle loop of one thread: select, enter, be woken, reflect.
//!
//! The loop sees the world through [`World`]: the clock, its doorbell, and ways to wait. Tests put it in a
//! world of their own, where time passes as they say.
//!
//! A waiter that is not asleep looks at its doorbell between any two pieces of work: from
//! `start_polling` on, what it does between two looks is one step of counting threads, one step of a
//! plan, or a selection, each well below a tenth of a microsecond.

use idlewise_core::{
    Context, Device, DisabledMask, Doorbell, FAR_AWAY_NS, Governor, NO_LATENCY_LIMIT_NS, Outcome,
    PollLimit, SleepLength, Stay, Verdict, auto_promotion_delay_ns,
};

use crate::budget::Budget;
use crate::clock::{self, Deadline};
use crate::learn::{self, Learned, PRIOR};
use crate::load::{self, Preemptions};
use crate::parker::ParkOutcome;
use crate::stats::WaitStats;
use crate::table::WaitTable;
use crate::wait::Method;
use crate::wait::monitor::{self, AT_ONCE_NS, Monitored, Trust};
use crate::wait::word::Reach;

/// A polling method looks at least this often; a longer time between two looks was somebody else's.
const LOOK_EVERY_NS: u64 = 2_000;
/// A monitored line is left alone until promotion, or so long, so a wake-up from it costs no look at all.
const MONITOR_NS: u64 = 100_000;
/// Longer times between the beginnings of two waits count as this.
const CYCLE_MAX_NS: u64 = 100_000_000;

/// What a waiter needs of the world.
pub(crate) trait World {
    fn now_ns(&self) -> u64;
    /// The doorbell's, as the next three.
    fn start_polling(&self) -> bool;
    /// Or what else ends the wait is seen.
    fn is_rung(&self) -> bool;
    fn fall_asleep(&self) -> bool;
    fn take(&self) -> bool;
    /// Polls, or monitors the doorbell, until that time at the latest.
    fn rest(&self, method: Method, until_ns: u64);
    /// Sleeps until woken, or for no reason.
    fn sleep(&self, method: Method, until_ns: Option<u64>);
    fn is_reached(&self, deadline: &mut Deadline) -> bool;
    /// The thread is about to wait.
    fn runs(&self, now_ns: u64);
    /// It goes to sleep: said before the doorbell says so.
    fn sleeps(&self);
    /// It sleeps: there is time for what may be done now and then.
    fn is_asleep(&self, now_ns: u64);
    /// Whether there are more threads than CPUs; `None`: look at the doorbell and ask again.
    fn is_crowded(&self, now_ns: u64) -> Option<bool>;
    /// When the ring came that ended a sleep, if it came after `since_ns` and its waker says so, and what
    /// the waker's last call took (0: not known).
    fn rung(&self, since_ns: u64) -> Option<(u64, u64)>;
    fn thread_cpu_ns(&self) -> Option<u64>;
    /// The budget of a waiter that has none of its own.
    fn with_thread_budget<R>(
        &self,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R>;
}

/// What ends a wait besides the doorbell.
pub(crate) trait Events {
    /// Asks whoever knows, unless the bell was rung.
    fn look(&self, bell: &Doorbell);
    /// Whether a look saw any.
    fn are_seen(&self) -> bool;
}

/// Of a waiter that waits for its doorbell alone.
pub(crate) struct NoEvents;

impl Events for NoEvents {
    #[inline]
    fn look(&self, _bell: &Doorbell) {}

    #[inline]
    fn are_seen(&self) -> bool {
        false
    }
}

/// The real one.
pub(crate) struct Here<'a, E> {
    pub(crate) bell: &'a Doorbell,
    /// Where its wakers are.
    pub(crate) reach: Reach,
    pub(crate) events: &'a E,
}

impl<E: Events> World for Here<'_, E> {
    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    #[inline]
    fn start_polling(&self) -> bool {
        self.bell.start_polling()
    }

    #[inline]
    fn is_rung(&self) -> bool {
        self.bell.is_rung() || self.events.are_seen()
    }

    #[inline]
    fn fall_asleep(&self) -> bool {
        self.bell.fall_asleep()
    }

    #[inline]
    fn take(&self) -> bool {
        self.bell.take()
    }

    #[inline]
    fn rest(&self, method: Method, until_ns: u64) {
        method.imp().wait(self.bell, Some(until_ns));
        self.events.look(self.bell);
    }

    #[inline]
    fn sleep(&self, method: Method, until_ns: Option<u64>) {
        let sleep = match self.reach {
            Reach::Process => method.imp(),
            // The only one that others can end.
            reach => reach.sleep(),
        };
        sleep.wait(self.bell, until_ns);
    }

    #[inline]
    fn is_reached(&self, deadline: &mut Deadline) -> bool {
        deadline.is_reached()
    }

    #[inline]
    fn runs(&self, now_ns: u64) {
        load::thread_runs(now_ns);
    }

    #[inline]
    fn sleeps(&self) {
        load::thread_sleeps();
        learn::falls_asleep(self.bell);
    }

    fn is_asleep(&self, now_ns: u64) {
        load::ask_for_cpus(now_ns);
    }

    #[inline]
    fn is_crowded(&self, now_ns: u64) -> Option<bool> {
        load::is_crowded(now_ns)
    }

    fn rung(&self, since_ns: u64) -> Option<(u64, u64)> {
        learn::rung(self.bell, since_ns)
    }

    fn thread_cpu_ns(&self) -> Option<u64> {
        learn::thread_cpu_ns()
    }

    #[inline]
    fn with_thread_budget<R>(
        &self,
        now_ns: u64,
        action: impl FnOnce(&mut Budget) -> R,
    ) -> Option<R> {
        load::with_thread_budget(now_ns, action)
    }
}

/// What a wait was like.
pub(crate) struct Wait {
    pub(crate) outcome: ParkOutcome,
    #[cfg(feature = "tracing")]
    pub(crate) gap_ns: u64,
    /// The last state; `None` if it ended before it entered any.
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

/// What belongs to the waiting thread alone.
pub(crate) struct Waiter {
    table: WaitTable,
    governor: PollLimit,
    device: Device,
    latency_limit_ns: i64,
    /// `None`: the thread's.
    budget: Option<Budget>,
    preemptions: Preemptions,
    /// `None`: the table's costs are to stay as they are.
    learned: Option<Learned>,
    is_cost_new: bool,
    trust: Trust,
    /// From the beginning of a wait to that of the next, on average; 0: not known yet.
    cycle_ns: u64,
    started_at_ns: u64,
    stats: WaitStats,
    reach: Reach,
}

/// A wait that has polled for long enough, and sleeps in a call that is not ours.
#[cfg(any(target_os = "linux", test))]
pub(crate) struct Pause {
    course: Course,
    disabled: DisabledMask,
    start_ns: u64,
    deadline: Option<Deadline>,
    /// The thread's CPU time when it fell asleep, where that was asked for.
    cpu_ns: Option<u64>,
}

/// How a wait went.
struct Course {
    state: usize,
    entered_at_ns: u64,
    ended_at_ns: u64,
    is_asleep: bool,
    /// Of the time until then, what kept the CPU.
    polled_ns: u64,
    /// When the ring came, where the waker said so, and what its call took.
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

    /// The same waiter, whose wakers are there.
    pub(crate) fn with_reach(self, reach: Reach) -> Self {
        Waiter { reach, ..self }
    }

    /// The states with what was learnt of them.
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

    /// Waits until the doorbell is rung or the deadline comes. Runs no code of the user's.
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

    /// Whether this state is left to sleep.
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

    /// States that do not work, and, when others need the CPU, those that keep it.
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

    /// Makes a new plan if it is time, and there is a choice.
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

    /// Goes through states until the wait is over, or the state is a sleep, which is only entered.
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
            // Promotion leads only to states that are fast enough.
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
            let method = self.table.states()[state].method;
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
            let mut is_trusted = true;
            while is_trusted && !world.is_rung() && end_ns.is_none_or(|end_ns| now_ns < end_ns) {
                // Bounded, so that a look that comes late tells of a preemption.
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
                    // The counter went back: the stay begins anew.
                    if deadline.as_mut().is_some_and(|deadline| world.is_reached(deadline)) {
                        break;
                    }
                    entered_at_ns = now_ns;
                    end_ns = end_of(entered_at_ns, *deadline);
                }
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
            let left = Outcome { entered: state, got_tick: true, now_ns };
            self.governor.reflect(&left, &mut self.device);
        }
    }

    /// Sleeps until woken or the deadline comes.
    fn sleep(&mut self, world: &impl World, course: &mut Course, deadline: &mut Option<Deadline>) {
        world.sleeps();
        course.is_asleep = world.fall_asleep();
        let mut cpu_ns = None;
        if course.is_asleep {
            cpu_ns = self.falls_asleep(world, course.entered_at_ns);
            let method = self.table.states()[course.state].method;
            // Our clock may have stopped, jumped or begun again, with the machine, before the sleep as
            // well as in it; a look at the OS's sets the deadline right.
            while !world.is_rung() {
                if deadline.as_mut().is_some_and(|deadline| world.is_reached(deadline)) {
                    break;
                }
                world.sleep(method, deadline.map(|deadline| deadline.at_ns));
            }
        }
        self.wakes_up(world, course, cpu_ns);
    }

    /// The thread's CPU time when it falls asleep, if it is to be asked for.
    fn falls_asleep(&self, world: &impl World, entered_at_ns: u64) -> Option<u64> {
        world.is_asleep(entered_at_ns);
        let does_ask = self.learned.as_ref().is_some_and(Learned::wants_own_time);
        if does_ask { world.thread_cpu_ns() } else { None }
    }

    /// Fills in what the sleep was like.
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

    /// What the wait says of gaps, of sleep, and of the budget.
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
            // The wake-up came before the exit from the state, as the kernel sees it.
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

/// A wait in three parts.
#[cfg(any(target_os = "linux", test))]
impl Waiter {
    /// The first part of a wait whose sleep is the caller's own: polls while that pays. The doorbell polls.
    /// `None`: the wait is over, rung for, with events or at its deadline.
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

    /// Its second part: the doorbell says that it sleeps, or that it was rung for just before.
    pub(crate) fn pause(&mut self, world: &impl World, pause: &mut Pause, is_asleep: bool) {
        pause.course.is_asleep = is_asleep;
        if is_asleep {
            pause.cpu_ns = self.falls_asleep(world, pause.course.entered_at_ns);
        }
    }

    /// Its end, before the doorbell is taken. What ends a sleep before its deadline is an event.
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

/// How a monitored wait ended that was to take `asked_ns`.
fn how_it_ended(is_rung: bool, elapsed_ns: u64, asked_ns: u64) -> Monitored {
    if is_rung && elapsed_ns >= asked_ns && asked_ns >= MONITOR_NS {
        Monitored::Missed
    } else if !is_rung && elapsed_ns < AT_ONCE_NS && asked_ns >= 2 * AT_ONCE_NS {
        Monitored::AtOnce
    } else {
        Monitored::Well
    }
}

/// Whether the deadline is reached. Where our clock does not say so, the OS's is not asked.
fn is_over(world: &impl World, deadline: &mut Option<Deadline>, now_ns: u64) -> bool {
    deadline.as_mut().is_some_and(|deadline| now_ns >= deadline.at_ns && world.is_reached(deadline))
}

fn outcome(woken: bool) -> ParkOutcome {
    if woken { ParkOutcome::Woken } else { ParkOutcome::TimedOut }
}

/// Waiters in a world whose time passes as the tests say: the same loop, the same policy, and no chance.
/// Nothing here is for miri to find, and it would take hours.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::learn::Prior;
    use crate::table::{Basis, WaitState};

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const NEVER: u64 = u64::MAX;

    /// A virtual machine, as idlewise met some: a sleep of 100 µs takes 24 µs to leave, one of 5 ms 92.
    const LATENCIES: [(u64, u64); 3] = [(100 * US, 24 * US), (2 * MS, 62 * US), (NEVER, 92 * US)];
    /// CPU time of a sleep, and of the call that ends it.
    const OWN_NS: u64 = 6 * US;
    const CALL_NS: u64 = 4 * US;
    /// The kernel's slack: a sleeper whose deadline comes sleeps on for so long.
    const SLACK_NS: u64 = 50 * US;

    struct Machine {
        now_ns: Cell<u64>,
        asleep_ns: Cell<u64>,
        is_asleep: Cell<bool>,
        /// When the next ring comes; an answered one is [`NEVER`].
        ring_at_ns: Cell<u64>,
        is_crowded: Cell<bool>,
        budget: RefCell<Budget>,
        /// How the monitor fails.
        monitor: Cell<Monitored>,
        /// Slept on: when that began.
        slept_at_ns: Cell<u64>,
        /// When the deadline is by the OS's clock, if ours jumped since it was made.
        deadline_ns: Cell<Option<u64>>,
    }

    impl Machine {
        fn new(share_permille: u32) -> Self {
            Machine {
                now_ns: Cell::new(MS),
                asleep_ns: Cell::new(0),
                is_asleep: Cell::new(false),
                ring_at_ns: Cell::new(NEVER),
                is_crowded: Cell::new(false),
                budget: RefCell::new(Budget::new(share_permille, MS)),
                monitor: Cell::new(Monitored::Well),
                slept_at_ns: Cell::new(0),
                deadline_ns: Cell::new(None),
            }
        }

        fn pass(&self, ns: u64) {
            self.now_ns.set(self.now_ns.get() + ns);
        }

        fn cpu_ns(&self) -> u64 {
            self.now_ns.get() - MS - self.asleep_ns.get()
        }
    }

    fn latency_ns(asleep_ns: u64) -> u64 {
        LATENCIES.iter().find(|(longest_ns, _)| asleep_ns <= *longest_ns).unwrap().1
    }

    impl World for Machine {
        fn now_ns(&self) -> u64 {
            self.pass(20);
            self.now_ns.get()
        }

        fn start_polling(&self) -> bool {
            !self.is_rung()
        }

        fn is_rung(&self) -> bool {
            self.ring_at_ns.get() <= self.now_ns.get()
        }

        fn fall_asleep(&self) -> bool {
            self.is_asleep.set(!self.is_rung());
            self.slept_at_ns.set(self.now_ns.get());
            self.is_asleep.get()
        }

        fn take(&self) -> bool {
            self.is_asleep.set(false);
            let is_rung = self.is_rung();
            if is_rung {
                self.ring_at_ns.set(NEVER);
            }
            is_rung
        }

        fn rest(&self, method: Method, until_ns: u64) {
            let now_ns = self.now_ns.get();
            // Noticed a fifth of a microsecond after it came.
            let rung_ns = self.ring_at_ns.get().saturating_add(200);
            let end_ns = match self.monitor.get() {
                _ if !method.is_monitored() => rung_ns.min(until_ns).min(now_ns + 500),
                Monitored::Well => rung_ns.min(until_ns),
                Monitored::AtOnce => now_ns + 50,
                Monitored::Missed => until_ns,
            };
            self.now_ns.set(end_ns.max(now_ns + 20));
        }

        fn sleep(&self, _method: Method, until_ns: Option<u64>) {
            assert!(self.is_asleep.get());
            let (now_ns, ring_at_ns) = (self.now_ns.get(), self.ring_at_ns.get());
            let end_ns = if ring_at_ns <= until_ns.unwrap_or(NEVER) {
                assert_ne!(ring_at_ns, NEVER, "asleep for ever");
                ring_at_ns + latency_ns(ring_at_ns.saturating_sub(now_ns))
            } else {
                until_ns.unwrap() + SLACK_NS
            };
            self.asleep_ns.set(self.asleep_ns.get() + end_ns - now_ns - OWN_NS);
            self.now_ns.set(end_ns);
        }

        fn is_reached(&self, deadline: &mut Deadline) -> bool {
            deadline.at_ns = self.deadline_ns.get().unwrap_or(deadline.at_ns);
            self.now_ns.get() >= deadline.at_ns
        }

        fn runs(&self, _now_ns: u64) {}
        fn sleeps(&self) {}
        fn is_asleep(&self, _now_ns: u64) {}

        fn is_crowded(&self, _now_ns: u64) -> Option<bool> {
            Some(self.is_crowded.get())
        }

        fn rung(&self, since_ns: u64) -> Option<(u64, u64)> {
            Some((self.ring_at_ns.get(), CALL_NS)).filter(|(at_ns, _)| *at_ns >= since_ns)
        }

        fn thread_cpu_ns(&self) -> Option<u64> {
            Some(self.cpu_ns())
        }

        fn with_thread_budget<R>(
            &self,
            _now_ns: u64,
            action: impl FnOnce(&mut Budget) -> R,
        ) -> Option<R> {
            Some(action(&mut self.budget.borrow_mut()))
        }
    }

    fn waiter_of(table: WaitTable) -> Waiter {
        let prior = Box::leak(Box::new(Prior::new()));
        let mut waiter = Waiter::new(table.learning(), None, None);
        waiter.learned = Some(Learned::new(waiter.table.sleep_cost(), prior));
        waiter
    }

    fn waiter() -> Waiter {
        waiter_of(WaitTable::assumed("spin,condvar").unwrap())
    }

    /// What a run was like.
    #[derive(Debug)]
    struct Run {
        cpu_ns: u64,
        elapsed_ns: u64,
        /// What one that always sleeps at once would have burnt in as many waits.
        sleeper_cpu_ns: u64,
        stats: WaitStats,
    }

    impl Run {
        fn cpu_permille(&self) -> u64 {
            self.cpu_ns * 1000 / self.elapsed_ns
        }
    }

    /// Waits again and again for `span_ns`. `next_ring` says when the ring after that time comes.
    fn run(
        waiter: &mut Waiter,
        machine: &Machine,
        span_ns: u64,
        timeout_ns: Option<u64>,
        mut next_ring: impl FnMut(u64) -> u64,
    ) -> Run {
        let start_ns = machine.now_ns.get();
        let (start_cpu_ns, start) = (machine.cpu_ns(), waiter.stats());
        while machine.now_ns.get() < start_ns + span_ns {
            let now_ns = machine.now_ns.get();
            if machine.ring_at_ns.get() == NEVER {
                machine.ring_at_ns.set(next_ring(now_ns));
            }
            let deadline = timeout_ns.map(|timeout_ns| Deadline::by_our_clock(now_ns + timeout_ns));
            waiter.wait_in(machine, deadline);
        }
        let stats = waiter.stats();
        Run {
            cpu_ns: machine.cpu_ns() - start_cpu_ns,
            elapsed_ns: machine.now_ns.get() - start_ns,
            sleeper_cpu_ns: (stats.waits - start.waits) * OWN_NS,
            stats,
        }
    }

    /// A wait whose sleep is the caller's, as an `EventBell`'s.
    fn wait_in_parts(waiter: &mut Waiter, machine: &Machine, deadline: Option<Deadline>) {
        assert!(machine.start_polling());
        if let Some(mut pause) = waiter.poll(machine, deadline) {
            let is_asleep = machine.fall_asleep();
            waiter.pause(machine, &mut pause, is_asleep);
            if is_asleep {
                machine.sleep(Method::Condvar, deadline.map(|deadline| deadline.at_ns));
            }
            waiter.resume(machine, pause);
        }
        machine.take();
    }

    /// The same looks, sleeps, counts and CPU time.
    #[test]
    fn a_wait_in_parts_is_a_wait() {
        for (gap_us, timeout_us) in [
            (8, None),
            (50, None),
            (2_000, None),
            (30, Some(100)),
            (200, Some(100)),
            (150, Some(150)),
        ] {
            let (mut whole, mut parts) = (waiter(), waiter());
            let machines = [Machine::new(250), Machine::new(250)];
            for turn in 0..4_000 {
                // Two short gaps, then one of five times the length.
                let gap_ns = gap_us * US * if turn % 3 == 2 { 5 } else { 1 };
                let deadline = machines.each_ref().map(|machine| {
                    let now_ns = machine.now_ns.get();
                    if machine.ring_at_ns.get() == NEVER {
                        machine.ring_at_ns.set(now_ns + gap_ns);
                    }
                    timeout_us.map(|us: u64| Deadline::by_our_clock(now_ns + us * US))
                });
                if machines[0].is_rung() {
                    machines.iter().for_each(|machine| _ = machine.take());
                    continue;
                }
                whole.wait_in(&machines[0], deadline[0]);
                wait_in_parts(&mut parts, &machines[1], deadline[1]);
            }
            let store_wakes = whole.stats().store_wakes;
            assert_eq!(whole.stats(), WaitStats { store_wakes, ..parts.stats() }, "{gap_us} µs");
            let [cpu_ns, parts_cpu_ns] = machines.each_ref().map(Machine::cpu_ns);
            assert_eq!(cpu_ns, parts_cpu_ns, "{gap_us} µs");
            assert!(whole.stats().waits > 1_000);
        }
    }

    /// `park_timeout` in a loop that nobody wakes.
    #[test]
    fn deadlines_that_nobody_beats_cost_what_sleeping_costs() {
        // As if somebody had measured this machine before; its latencies make polling worth a lot.
        let sleep = WaitState {
            exit_latency_ns: 30 * US,
            transition_ns: OWN_NS + CALL_NS,
            basis: Basis::Calibrated,
            ..*WaitTable::assumed("condvar").unwrap().states().last().unwrap()
        };
        let spin = WaitTable::assumed("spin,condvar").unwrap().states()[0];
        for timeout_us in [20, 50, 100, 150, 200, 300, 500, 1_000, 2_000] {
            for table in [WaitTable::new(&[spin, sleep]), WaitTable::assumed("spin,condvar")] {
                // However large the budget.
                for share_permille in [1000, 250] {
                    let machine = Machine::new(share_permille);
                    let mut waiter = waiter_of(table.clone().unwrap());
                    let run =
                        run(&mut waiter, &machine, 700 * MS, Some(timeout_us * US), |_| NEVER);
                    let most_ns = run.sleeper_cpu_ns * 11 / 10;
                    assert!(run.cpu_ns <= most_ns, "{timeout_us} µs: {} > {most_ns}", run.cpu_ns);
                }
            }
        }
    }

    /// It went back by years, and whoever sleeps until what it said before sleeps as long.
    #[test]
    fn a_deadline_comes_though_the_clock_went_back() {
        for share_permille in [0, 1000] {
            let (mut waiter, machine) = (waiter(), Machine::new(share_permille));
            let start_ns = machine.now_ns.get();
            machine.deadline_ns.set(Some(start_ns + 500 * US));
            let wait = waiter.wait_in(&machine, Some(Deadline::by_our_clock(NEVER / 4)));
            assert_eq!(wait.outcome, ParkOutcome::TimedOut);
            let waited_ns = machine.now_ns.get() - start_ns;
            assert!((500 * US..600 * US).contains(&waited_ns), "{waited_ns}");
        }
    }

    /// A timer of 150 µs in a loop, and somebody every 20 ms.
    #[test]
    fn a_timer_with_a_rare_wake_costs_what_sleeping_costs() {
        for share_permille in [1000, 250] {
            let (mut waiter, machine) = (waiter(), Machine::new(share_permille));
            let every_20_ms = |now_ns: u64| (now_ns / (20 * MS) + 1) * 20 * MS;
            let run = run(&mut waiter, &machine, 2_000 * MS, Some(150 * US), every_20_ms);
            assert!(run.cpu_ns <= run.sleeper_cpu_ns * 11 / 10, "{run:?}");
        }
    }

    #[test]
    fn gaps_of_50_us_cost_a_quarter_of_a_cpu_at_most() {
        let periodic = |now_ns: u64| now_ns + 50 * US;
        let (mut first, machine) = (waiter(), Machine::new(1000));
        let unlimited = run(&mut first, &machine, 500 * MS, None, periodic);
        assert!(unlimited.cpu_permille() > 900, "it pays: {unlimited:?}");
        let (mut second, machine) = (waiter(), Machine::new(250));
        let run = run(&mut second, &machine, 500 * MS, None, periodic);
        // What sleeping takes, the share, and what it begins with.
        let most_ns = run.sleeper_cpu_ns + run.elapsed_ns / 4 + MS;
        assert!(run.cpu_ns <= most_ns, "{run:?}");
        assert!(run.cpu_permille() < 500, "{run:?}");
    }

    /// Polls that are cheaper than a sleep are free.
    #[test]
    fn short_gaps_are_polled_for_whatever_the_budget() {
        let (mut waiter, machine) = (waiter(), Machine::new(10));
        let run = run(&mut waiter, &machine, 100 * MS, None, |now_ns| now_ns + 2 * US);
        assert_eq!(run.stats.store_wakes, run.stats.waits, "{run:?}");
    }

    /// Seven short gaps for each long one: the budget goes where it helps.
    #[test]
    fn bursts_are_polled_for_and_pauses_slept_through() {
        let (mut waiter, machine) = (waiter(), Machine::new(250));
        let mut turn = 0;
        let bursts = |now_ns| {
            turn += 1;
            now_ns + if turn % 8 == 0 { MS } else { 8 * US }
        };
        let run = run(&mut waiter, &machine, 1_000 * MS, None, bursts);
        assert!(run.stats.store_wakes * 10 > run.stats.waits * 8, "{run:?}");
        assert!(run.cpu_permille() < 150, "{run:?}");
    }

    /// A parker for each request has no history; its thread has.
    #[test]
    fn parkers_that_wait_once_have_one_budget() {
        let machine = Machine::new(250);
        let mut waits = 0;
        while machine.now_ns.get() < 1_000 * MS {
            run(&mut waiter(), &machine, 1, None, |now_ns| now_ns + MS);
            waits += 1;
        }
        let (cpu_ns, elapsed_ns) = (machine.cpu_ns(), machine.now_ns.get());
        assert!(cpu_ns <= waits * OWN_NS + elapsed_ns / 4 + MS, "{cpu_ns} of {elapsed_ns}");
    }

    #[test]
    fn learns_what_sleeping_costs_here() {
        let (mut waiter, machine) = (waiter(), Machine::new(0));
        assert_eq!(waiter.table().states()[1].basis, Basis::Assumed);
        for gap_ns in [50 * US, MS, 5 * MS] {
            run(&mut waiter, &machine, 100 * gap_ns, None, |now_ns| now_ns + gap_ns);
        }
        let cost = waiter.learned.as_ref().unwrap().cost();
        let about = |ns: u64, expected_ns: u64| ns.abs_diff(expected_ns) <= expected_ns / 10;
        let [_, short, long, longest] = cost.exit_latency_ns;
        assert!(
            about(short, 24 * US) && about(long, 62 * US) && about(longest, 92 * US),
            "{cost:?}"
        );
        assert!(about(cost.own_ns, OWN_NS), "{cost:?}");
        assert!(about(cost.transition_ns, OWN_NS + CALL_NS), "{cost:?}");
        let table = waiter.table();
        assert_eq!(table.states()[1].basis, Basis::Calibrated);
        assert!(about(table.states()[1].exit_latency_ns, 24 * US), "a short one's");
    }

    /// Of a method that no other test of this program waits by: distrust is the process's.
    fn monitored_waiter(method: &str) -> Waiter {
        // SAFETY: nothing executes it in this world.
        waiter_of(unsafe { WaitTable::unchecked(&format!("{method},condvar")) })
    }

    #[test]
    fn a_monitor_that_works_is_used() {
        let (mut waiter, machine) = (monitored_waiter("umwait-c01"), Machine::new(1000));
        let run = run(&mut waiter, &machine, 100 * MS, None, |now_ns| now_ns + 30 * US);
        assert_eq!(run.stats.store_wakes, run.stats.waits, "{run:?}");
        assert!(waiter.table().doubts().is_empty());
    }

    #[test]
    fn a_monitor_that_returns_at_once_is_dropped() {
        let (mut waiter, machine) = (monitored_waiter("umwait-c02"), Machine::new(1000));
        machine.monitor.set(Monitored::AtOnce);
        run(&mut waiter, &machine, 50 * MS, None, |now_ns| now_ns + 30 * US);
        let table = waiter.table();
        assert_eq!(table.doubts().len(), 1);
        assert!(table.doubts()[0].starts_with("umwait-c02: not used any more"), "{table:?}");
        let entered = waiter.stats().entered[0];
        let run = run(&mut waiter, &machine, 50 * MS, None, |now_ns| now_ns + 30 * US);
        assert_eq!(run.stats.entered[0], entered, "and by nobody else");
        assert!(run.cpu_ns < run.elapsed_ns / 2, "{run:?}");
    }

    #[test]
    fn a_monitor_that_misses_stores_is_dropped() {
        let (mut waiter, machine) = (monitored_waiter("mwaitx"), Machine::new(1000));
        machine.monitor.set(Monitored::Missed);
        run(&mut waiter, &machine, 50 * MS, None, |now_ns| now_ns + 30 * US);
        assert_eq!(waiter.table().doubts().len(), 1);
    }

    #[test]
    fn nobody_polls_in_a_crowd() {
        let (mut waiter, machine) = (waiter(), Machine::new(1000));
        machine.is_crowded.set(true);
        let run = run(&mut waiter, &machine, 10 * MS, None, |now_ns| now_ns + 5 * US);
        assert_eq!((run.stats.entered[0], run.stats.oversubscribed), (0, run.stats.waits));
    }
}
