//! A replay turned inside out: the caller is asked for each decision, instead of a governor. It is for those who learn
//! from many lanes at once, and it is the naive twin of [`GovernorLane`](super::GovernorLane): it follows each stay,
//! also those that repeat.

use idlewise_core::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, StateIndex, StateTable,
};
use idlewise_trace::IdleGap;

use super::{GridPlace, first_tick_ns, line_after, timer_left_ns};
use crate::idle_loop::{IdleLoop, Outlook, Setting, StayEnd, Stayed};
use crate::replay::Tally;

/// What may be looked at when a state is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The time to the next timer, [`FAR_AWAY_NS`] if there is none.
    pub sleep_length_ns: i64,
    /// The time to the next timer or tick.
    pub next_event_ns: i64,
    /// The longest exit latency that is allowed.
    pub latency_limit_ns: i64,
    /// Whether the tick is stopped.
    pub tick_stopped: bool,
    /// The clock.
    pub now_ns: u64,
    /// The last residency, exit included; 0 before the first.
    pub last_residency_ns: u64,
}

/// What a decision led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The state that was entered.
    pub state: StateIndex,
    /// How long the CPU stayed, without the exit.
    pub stay_ns: u64,
    /// How long it then ran for a tick, exit included.
    pub work_ns: u64,
    /// If the gap is over: how long its event was delayed.
    pub delay_ns: Option<u64>,
}

/// Says what it was told, and remembers the residency.
struct Told {
    decision: Decision,
    last_residency_ns: u64,
}

impl Governor for Told {
    fn select(&mut self, _context: &Context<'_>, _device: &mut Device) -> Decision {
        self.decision
    }

    fn reflect(&mut self, _outcome: &Outcome, device: &mut Device) {
        self.last_residency_ns = device.last_residency_ns;
    }
}

/// The gap that the CPU is in.
#[derive(Clone, Copy)]
struct Position {
    gap: IdleGap,
    latency_limit_ns: i64,
    first_tick_ns: u64,
    at_ns: u64,
    next_tick_at_ns: u64,
}

impl Position {
    fn outlook(&self) -> Outlook {
        Outlook {
            now_ns: (self.gap.start_ns as u64).wrapping_add(self.at_ns),
            timer_left_ns: timer_left_ns(&self.gap, self.at_ns),
            tick_left_ns: self.next_tick_at_ns - self.at_ns,
            latency_limit_ns: self.latency_limit_ns,
        }
    }
}

/// One CPU. Give it a gap, then a decision for each question until the gap is over.
pub struct Steps {
    idle: IdleLoop<Told>,
    tally: Tally,
    position: Option<Position>,
}

impl Steps {
    /// Makes a CPU without a history.
    pub fn new(setting: Setting) -> Self {
        let decision = Decision { state: 0, stop_tick: true };
        let told = Told { decision, last_residency_ns: 0 };
        Steps { idle: IdleLoop::new(told, setting), tally: Tally::default(), position: None }
    }

    /// The machine's states.
    pub fn states(&self) -> &StateTable {
        &self.idle.setting.states
    }

    /// The counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Begins a gap. What is left of the last one is forgotten.
    pub fn begin(&mut self, gap: &IdleGap) {
        let setting = &self.idle.setting;
        let period_ns = u64::from(setting.tick_period_ns);
        let log_limit_ns = gap.latency_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let first_tick_ns = first_tick_ns(gap, period_ns);
        self.position = Some(Position {
            gap: *gap,
            latency_limit_ns: log_limit_ns.unwrap_or(i64::MAX).min(setting.latency_limit_ns),
            first_tick_ns,
            at_ns: 0,
            next_tick_at_ns: first_tick_ns,
        });
        if gap.ran_task {
            self.idle.tick_stopped = false;
        }
        self.tally.add_gap(gap.gap_ns, gap.sleep_length_ns.is_some());
    }

    /// What is to be decided; `None` between gaps.
    pub fn question(&self) -> Option<Question> {
        let outlook = self.position?.outlook();
        let tick_stopped = self.idle.tick_stopped;
        let tick_ns = if tick_stopped { u64::MAX } else { outlook.tick_left_ns };
        let tick_ns = i64::try_from(tick_ns).unwrap_or(FAR_AWAY_NS);
        Some(Question {
            sleep_length_ns: outlook.timer_left_ns,
            next_event_ns: outlook.timer_left_ns.min(tick_ns),
            latency_limit_ns: outlook.latency_limit_ns,
            tick_stopped,
            now_ns: outlook.now_ns,
            last_residency_ns: self.idle.governor().last_residency_ns,
        })
    }

    /// Carries out a decision; `None` between gaps.
    pub fn decide(&mut self, decision: Decision) -> Option<Stay> {
        let Position { gap, first_tick_ns, at_ns, .. } = self.position?;
        let outlook = self.position?.outlook();
        self.idle.governor_mut().decision = decision;
        let entry = self.idle.select(outlook, &mut self.tally);
        let rule = *self.idle.rule(entry.state);
        let event_left_ns = gap.gap_ns - at_ns;
        let stay_ns = event_left_ns.min(entry.tick_left_ns).min(entry.own_limit_ns);
        let period_ns = u64::from(self.idle.setting.tick_period_ns);
        // At the same time, the event comes before the tick, and the tick before our timers.
        let (end, tick_ran) = if stay_ns == event_left_ns {
            let is_on_grid = GridPlace { first_tick_ns, period_ns }.ends(&gap);
            (StayEnd::Event, entry.tick_left_ns == stay_ns || is_on_grid)
        } else if stay_ns == entry.tick_left_ns {
            (StayEnd::Tick, true)
        } else if rule.is_polling {
            (StayEnd::PollLimit, false)
        } else {
            (StayEnd::Promotion, false)
        };
        let exit_ns = rule.exit_latency_ns;
        let now_ns = outlook.now_ns.wrapping_add(stay_ns + exit_ns);
        let stayed = Stayed { stay_ns, exit_ns, end, tick_ran, now_ns };
        let worked_ns = self.tally.work_ns;
        let residency_ns = self.idle.reflect(&entry, stayed, &mut self.tally);
        let passed_ns = match end {
            StayEnd::Event => {
                let state = &mut self.tally.states[entry.state];
                state.add_wake(gap.wake_reason, rule.wakes_on_store);
                self.position = None;
                let delay_ns = Some(exit_ns);
                return Some(Stay { state: entry.state, stay_ns, work_ns: 0, delay_ns });
            }
            StayEnd::Tick => {
                let tick_work_ns = self.idle.setting.tick_work_ns;
                self.tally.add_tick(exit_ns, tick_work_ns);
                residency_ns + tick_work_ns
            }
            StayEnd::Promotion => {
                self.tally.add_promotion(exit_ns);
                residency_ns.max(1)
            }
            // A limit of 0 must not stop the clock.
            StayEnd::PollLimit | StayEnd::Deadline => stay_ns.max(1),
        };
        let work_ns = self.tally.work_ns - worked_ns;
        let at_ns = at_ns + passed_ns;
        let delay_ns = at_ns.checked_sub(gap.gap_ns);
        match delay_ns {
            Some(overrun_ns) => {
                self.tally.overruns.record(overrun_ns);
                self.position = None;
            }
            None => {
                let position = self.position.as_mut().expect("it was there above");
                position.at_ns = at_ns;
                position.next_tick_at_ns = line_after(at_ns, position.next_tick_at_ns, period_ns);
            }
        }
        Some(Stay { state: entry.state, stay_ns, work_ns, delay_ns })
    }
}
