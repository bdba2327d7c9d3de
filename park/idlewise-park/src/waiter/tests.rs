//! Waiters on a virtual machine whose time the tests control: the same loop and policy, without chance.
//! Miri would find nothing here and take hours.

use std::cell::{Cell, RefCell};

use super::*;
use crate::learn::Prior;
use crate::table::{Basis, WaitState};
use crate::wait::Method;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const NEVER: u64 = u64::MAX;

/// A virtual machine like some that idlewise met: a sleep of 100 µs takes 24 µs to leave, one of 5 ms 92.
const LATENCIES: [(u64, u64); 3] = [(100 * US, 24 * US), (2 * MS, 62 * US), (NEVER, 92 * US)];
/// The CPU time of a sleep, and of the call that ends it.
const OWN_NS: u64 = 6 * US;
const CALL_NS: u64 = 4 * US;
/// The kernel's timer slack: how much longer a sleeper sleeps after its deadline.
const SLACK_NS: u64 = 50 * US;

struct Machine {
    now_ns: Cell<u64>,
    asleep_ns: Cell<u64>,
    is_asleep: Cell<bool>,
    /// When the next ring is made; [`NEVER`] once it was answered.
    ring_at_ns: Cell<u64>,
    is_crowded: Cell<bool>,
    budget: RefCell<Budget>,
    /// How waits on the monitor end.
    monitor: Cell<Monitored>,
    monitored_count: Cell<u32>,
    /// When the sleep began that is going on.
    slept_at_ns: Cell<u64>,
    /// The deadline by the OS's clock, if ours jumped since it was set.
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
            monitored_count: Cell::new(0),
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
        self.monitored_count.set(self.monitored_count.get() + u32::from(method.is_monitored()));
        // The ring is noticed a fifth of a microsecond late.
        let rung_ns = self.ring_at_ns.get().saturating_add(200);
        let end_ns = match self.monitor.get() {
            _ if !method.is_monitored() => rung_ns.min(until_ns).min(now_ns + 500),
            Monitored::Well => rung_ns.min(until_ns),
            Monitored::AtOnce => now_ns + 50,
            Monitored::Missed => until_ns,
        };
        self.now_ns.set(end_ns.max(now_ns + 20));
    }

    fn sleep(&self, _method: Method, deadline: Option<&Deadline>) {
        let until_ns = deadline.map(|deadline| self.deadline_ns.get().unwrap_or(deadline.at_ns));
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

/// The result of a run.
#[derive(Debug)]
struct Run {
    cpu_ns: u64,
    elapsed_ns: u64,
    /// What a waiter that always sleeps at once would have burnt in as many waits.
    sleeper_cpu_ns: u64,
    stats: WaitStats,
}

impl Run {
    fn cpu_permille(&self) -> u64 {
        self.cpu_ns * 1000 / self.elapsed_ns
    }
}

/// Waits repeatedly for `span_ns`. `next_ring` returns when the next ring after a given time is made.
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

/// A wait whose sleep is the caller's, as in an `EventBell`.
fn wait_in_parts(waiter: &mut Waiter, machine: &Machine, deadline: Option<Deadline>) {
    assert!(machine.start_polling());
    if let Some(mut pause) = waiter.poll(machine, deadline) {
        let is_asleep = machine.fall_asleep();
        waiter.pause(machine, &mut pause, is_asleep);
        if is_asleep {
            machine.sleep(Method::Condvar, deadline.as_ref());
        }
        waiter.resume(machine, pause);
    }
    machine.take();
}

/// It must make the same looks, sleeps and counts, and use the same CPU time.
#[test]
fn a_wait_in_parts_is_a_wait() {
    for (gap_us, timeout_us) in
        [(8, None), (50, None), (2_000, None), (30, Some(100)), (200, Some(100)), (150, Some(150))]
    {
        let (mut whole, mut parts) = (waiter(), waiter());
        let machines = [Machine::new(250), Machine::new(250)];
        for turn in 0..4_000 {
            // Two short gaps, then one five times as long.
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
    // As if this machine had been measured before. Its latencies make polling worth a lot.
    let sleep = WaitState {
        exit_latency_ns: 30 * US,
        transition_ns: OWN_NS + CALL_NS,
        basis: Basis::Calibrated,
        ..*WaitTable::assumed("condvar").unwrap().states().last().unwrap()
    };
    let spin = WaitTable::assumed("spin,condvar").unwrap().states()[0];
    for timeout_us in [20, 50, 100, 150, 200, 300, 500, 1_000, 2_000] {
        for table in [WaitTable::new(&[spin, sleep]), WaitTable::assumed("spin,condvar")] {
            // Whatever the budget.
            for share_permille in [1000, 250] {
                let machine = Machine::new(share_permille);
                let mut waiter = waiter_of(table.clone().unwrap());
                let run = run(&mut waiter, &machine, 700 * MS, Some(timeout_us * US), |_| NEVER);
                let most_ns = run.sleeper_cpu_ns * 11 / 10;
                assert!(run.cpu_ns <= most_ns, "{timeout_us} µs: {} > {most_ns}", run.cpu_ns);
            }
        }
    }
}

/// The clock went back by years before the wait, so a wait by the old time would last that long.
#[test]
fn a_deadline_comes_though_the_clock_went_back() {
    // One waiter sleeps at once, one polls for a while, and one may not sleep.
    for (share_permille, latency_limit_ns, late_us) in
        [(0, None, 600), (1000, None, 600), (1000, Some(0), 1_100)]
    {
        let table = WaitTable::assumed("spin,condvar").unwrap();
        let mut waiter = Waiter::new(table, latency_limit_ns, None);
        let machine = Machine::new(share_permille);
        let start_ns = machine.now_ns.get();
        machine.deadline_ns.set(Some(start_ns + 500 * US));
        let wait = waiter.wait_in(&machine, Some(Deadline::by_our_clock(NEVER / 4)));
        assert_eq!(wait.outcome, ParkOutcome::TimedOut);
        let waited_ns = machine.now_ns.get() - start_ns;
        // A spinner looks at the OS's clock once a millisecond.
        assert!((500 * US..late_us * US).contains(&waited_ns), "{waited_ns}");
    }
}

/// A timer of 150 µs in a loop, and a ring every 20 ms.
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
    // The cost of sleeping, plus the budget's share, plus its initial balance.
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

/// Seven short gaps for each long one: the budget is spent where it helps.
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

/// A parker made for each request has no history, but its thread has a budget.
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
    assert!(about(short, 24 * US) && about(long, 62 * US) && about(longest, 92 * US), "{cost:?}");
    assert!(about(cost.own_ns, OWN_NS), "{cost:?}");
    assert!(about(cost.transition_ns, OWN_NS + CALL_NS), "{cost:?}");
    let table = waiter.table();
    assert_eq!(table.states()[1].basis, Basis::Calibrated);
    assert!(about(table.states()[1].exit_latency_ns, 24 * US), "a short one's");
}

/// Uses a method that no other test here waits with, because distrust affects the whole process.
fn monitored_waiter(method: &str) -> Waiter {
    // SAFETY: the virtual machine never executes it.
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
fn a_monitor_that_does_not_work_is_entered_once_where_nothing_else_is_quick_enough() {
    let (mut waiter, machine) = (monitored_waiter("wfet"), Machine::new(1000));
    waiter.latency_limit_ns = 0;
    machine.monitor.set(Monitored::AtOnce);
    let run = run(&mut waiter, &machine, 50 * MS, None, |now_ns| now_ns + 300 * US);
    // Once more for the wait in which it is found.
    assert!(run.stats.entered[0] <= run.stats.waits + 1, "{run:?}");
    assert_eq!(run.stats.store_wakes, run.stats.waits, "{run:?}");
    // After the verdict it spins: an instruction that ends at once costs more than a look.
    assert!(machine.monitored_count.get() <= 64, "{}", machine.monitored_count.get());
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
