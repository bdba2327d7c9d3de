//! How a CPU enters and leaves idle states, and the gap in between.

use idlewise_core::{FAR_AWAY_NS, NO_LATENCY_LIMIT_NS};
use idlewise_trace::{IdleGap, WakeReason};

use super::cpu::{Effect, Exit, IdleStay, Mode, OpenGap, Pending};
use super::task::TaskId;
use super::{Event, Simulation, SimulationError, TaskState};
use crate::idle_loop::{Outlook, StayEnd, Stayed};
use crate::shared::Ask;

impl Simulation<'_> {
    /// Asks the governor and enters the idle state.
    pub(super) fn enter_idle(&mut self, cpu: usize) {
        let (now_ns, period_ns) = (self.now_ns, self.period_ns);
        let is_recorded = self.cpus[cpu].recorded.is_some();
        let next_timer_ns = if is_recorded { None } else { self.next_timer_ns(cpu) };
        let this = &mut self.cpus[cpu];
        let next_tick_at_ns = if this.idle.tick_stopped {
            this.next_tick_at_ns(now_ns, period_ns)
        } else {
            this.tick_at_ns
        };
        let start_ns = this.gap.map_or(now_ns, |gap| gap.start_ns);
        let timer_left_ns = match &this.recorded {
            Some(gap) => match gap.sleep_length_ns {
                Some(length_ns) if length_ns >= now_ns - start_ns => {
                    i64::try_from(length_ns - (now_ns - start_ns)).unwrap_or(FAR_AWAY_NS)
                }
                _ => FAR_AWAY_NS,
            },
            None => next_timer_ns
                .and_then(|at_ns| i64::try_from(at_ns).ok())
                .map_or(FAR_AWAY_NS, |at_ns| at_ns - now_ns as i64),
        };
        let tick_left_ns = next_tick_at_ns.saturating_sub(now_ns);
        let needs_tick = !this.idle.tick_stopped
            && self.setup.tick_need > 0.0
            && self.rng.f64() < self.setup.tick_need;
        let timer_left_ns = match needs_tick {
            true => timer_left_ns.min(tick_left_ns as i64),
            false => timer_left_ns,
        };
        let recorded_limit_ns = this.recorded.as_ref().and_then(|gap| gap.latency_limit_ns);
        let recorded_limit_ns = recorded_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let outlook = Outlook {
            now_ns,
            timer_left_ns,
            tick_left_ns,
            latency_limit_ns: recorded_limit_ns
                .map_or(self.setup.latency_limit_ns, |ns| ns.min(self.setup.latency_limit_ns)),
        };
        let tick_stopped = this.idle.tick_stopped;
        let entry = this.idle.select(outlook, &mut self.report.idle);
        if this.idle.tick_stopped && !tick_stopped {
            this.tick_generation = this.tick_generation.wrapping_add(1);
        }
        let ran_task = std::mem::replace(&mut this.ran_task, false);
        this.gap.get_or_insert(OpenGap {
            start_ns,
            sleep_length_ns: u64::try_from(timer_left_ns)
                .ok()
                .filter(|_| timer_left_ns != FAR_AWAY_NS),
            next_tick_ns: outlook.tick_left_ns,
            latency_limit_ns: outlook.latency_limit_ns,
            tick_stopped,
            ran_task,
            first_state: entry.state,
            idle_ns: 0,
            shallow_since_ns: 0,
            shallow_count: 0,
            event: None,
        });
        self.note_round(cpu, entry.state);
        let this = &mut self.cpus[cpu];
        let rule = *this.idle.rule(entry.state);
        if self.hardware.ipi_less && rule.wakes_on_store {
            this.doorbell.start_polling();
        }
        let entry_ns = match self.hardware.entry_ratio {
            0.0 => 0,
            ratio => (rule.exit_latency_ns as f64 * ratio) as u64,
        };
        let stay = IdleStay { entry, since_ns: now_ns, entered_at_ns: now_ns + entry_ns };
        self.set_mode(cpu, Mode::Idle(stay));
        self.enter_groups(cpu, Ask::of(&entry, timer_left_ns, outlook.latency_limit_ns));
        let limit_ns = match self.hardware.umwait_max_ns {
            Some(max_ns) if self.is_umwait[entry.state] => entry.own_limit_ns.min(max_ns),
            _ => entry.own_limit_ns,
        };
        if limit_ns != u64::MAX {
            let generation = self.cpus[cpu].generation;
            self.queue.push_limit(now_ns.saturating_add(limit_ns), cpu as u32, generation);
        }
    }

    /// Records how long a CPU takes to get deeper than the shallowest non-polling state.
    pub(super) fn note_round(&mut self, cpu: usize, state: usize) {
        let now_ns = self.now_ns;
        let Some(gap) = &mut self.cpus[cpu].gap else { return };
        if state == self.shallow_state {
            if gap.shallow_count == 0 {
                gap.shallow_since_ns = now_ns;
            }
            gap.shallow_count += 1;
        } else if state > self.shallow_state && gap.shallow_count > 0 {
            let rounds = std::mem::take(&mut gap.shallow_count);
            let metrics = &mut self.report.metrics;
            metrics.record("deeper_after_ns", now_ns - gap.shallow_since_ns);
            metrics.record("deeper_after_rounds", rounds);
        }
    }

    pub(super) fn idle_limit(&mut self, cpu: usize) {
        let Mode::Idle(stay) = self.cpus[cpu].mode else { return };
        let end = match self.cpus[cpu].idle.rule(stay.entry.state).is_polling {
            true => StayEnd::PollLimit,
            false if self.now_ns - stay.since_ns < stay.entry.own_limit_ns => StayEnd::Deadline,
            false => StayEnd::Promotion,
        };
        self.leave_idle(cpu, end, WakeReason::Unknown);
    }

    /// An event reaches a CPU. If the CPU is idle, it begins to wake up. If it is busy within a
    /// gap, the event is delayed.
    pub(super) fn notice(&mut self, cpu: usize, reason: WakeReason) {
        match self.cpus[cpu].mode {
            Mode::Idle(_) => self.leave_idle(cpu, StayEnd::Event, reason),
            Mode::Exiting(exit) if exit.end == StayEnd::Event => {}
            Mode::Exiting(_) | Mode::Running => {
                let now_ns = self.now_ns;
                if let Some(gap) = &mut self.cpus[cpu].gap {
                    gap.event.get_or_insert((now_ns, reason));
                }
            }
        }
    }

    pub(super) fn leave_idle(&mut self, cpu: usize, end: StayEnd, reason: WakeReason) {
        let now_ns = self.now_ns;
        let Mode::Idle(stay) = self.cpus[cpu].mode else { return };
        let this = &self.cpus[cpu];
        let tick_is_now = !this.idle.tick_stopped && this.tick_at_ns == now_ns;
        let is_on_grid = || now_ns % self.period_ns == this.tick_phase_ns % self.period_ns;
        let tick_ran = match end {
            StayEnd::Tick => true,
            StayEnd::Event => tick_is_now || reason == WakeReason::Timer && is_on_grid(),
            StayEnd::PollLimit | StayEnd::Promotion | StayEnd::Deadline => false,
        };
        // A poll that reached its limit has no state to leave.
        let (exit_ns, wait_ns) = match end {
            StayEnd::PollLimit => (self.cpus[cpu].idle.rule(stay.entry.state).exit_latency_ns, 0),
            _ => self.exit(cpu, &stay, end),
        };
        let stay_ns = now_ns - stay.since_ns;
        let entry = stay.entry;
        let left_at_ns = now_ns;
        let exit = Exit { entry, stay_ns, exit_ns, wait_ns, end, tick_ran, reason, left_at_ns };
        self.cpus[cpu].left_state = (end == StayEnd::Event).then_some(entry.state);
        self.set_mode(cpu, Mode::Exiting(exit));
        if exit_ns == 0 || end == StayEnd::PollLimit {
            self.awake(cpu);
        } else {
            let generation = self.cpus[cpu].generation;
            self.queue.push(now_ns + exit_ns, Event::Awake { cpu: cpu as u32, generation });
        }
    }

    /// The CPU has left its idle state.
    pub(super) fn awake(&mut self, cpu: usize) {
        let Mode::Exiting(exit) = self.cpus[cpu].mode else { return };
        self.set_mode(cpu, Mode::Running);
        let Exit { entry, stay_ns, exit_ns, wait_ns, end, tick_ran, reason, left_at_ns } = exit;
        let this = &mut self.cpus[cpu];
        this.doorbell.take();
        let tally = &mut self.report.idle;
        let stayed = Stayed { stay_ns, exit_ns, end, tick_ran, now_ns: left_at_ns + exit_ns };
        let residency_ns = this.idle.reflect(&entry, stayed, tally);
        if let Some(gap) = &mut this.gap {
            gap.idle_ns += residency_ns;
        }
        match end {
            StayEnd::Event => {
                let wakes_on_store = this.idle.rule(entry.state).wakes_on_store;
                tally.states[entry.state].add_wake(reason, wakes_on_store);
                if wait_ns > 0 && self.has_shared_states {
                    tally.add_shared_delay(entry.state, exit_ns);
                }
                self.end_gap(cpu, left_at_ns, reason);
            }
            StayEnd::Tick => {
                tally.add_tick(exit_ns, self.hardware.tick_work_ns);
                let pending =
                    Pending { work_ns: self.hardware.tick_work_ns, effect: Effect::TickInGap };
                this.irqs.push_front(pending);
            }
            // A limit of 0 must not stop the clock.
            StayEnd::PollLimit if stay_ns == 0 => {
                let pending = Pending { work_ns: 1, effect: Effect::Pause };
                this.irqs.push_front(pending);
            }
            StayEnd::PollLimit => {}
            StayEnd::Promotion => tally.add_promotion(exit_ns),
            StayEnd::Deadline => tally.work_ns += exit_ns,
        }
        self.proceed(cpu);
    }

    /// Ends a gap whose event came while the CPU was busy with the tick or a promotion.
    pub(super) fn end_gap_if_open(&mut self, cpu: usize) {
        let Some(gap) = self.cpus[cpu].gap else { return };
        let (at_ns, reason) = gap.event.unwrap_or((self.now_ns, WakeReason::Unknown));
        self.report.idle.overruns.record(self.now_ns - at_ns);
        self.end_gap(cpu, at_ns, reason);
    }

    pub(super) fn end_gap(&mut self, cpu: usize, at_ns: u64, reason: WakeReason) {
        let Some(gap) = self.cpus[cpu].gap.take() else { return };
        self.cpus[cpu].recorded = None;
        let gap_ns = at_ns - gap.start_ns;
        if gap.shallow_count > 0 {
            let shallow_ns = at_ns.saturating_sub(gap.shallow_since_ns);
            self.report.metrics.record("not_deeper_ns", shallow_ns);
        }
        self.report.idle.add_gap(gap_ns, gap.sleep_length_ns.is_some());
        if self.setup.keeps_gaps {
            self.report.gaps.push(IdleGap {
                cpu: cpu as u16,
                start_ns: gap.start_ns as i64,
                gap_ns,
                sleep_length_ns: gap.sleep_length_ns,
                next_tick_ns: u32::try_from(gap.next_tick_ns).ok(),
                tick_stopped: gap.tick_stopped,
                ran_task: gap.ran_task,
                wake_reason: reason,
                latency_limit_ns: u64::try_from(gap.latency_limit_ns)
                    .ok()
                    .filter(|_| gap.latency_limit_ns < NO_LATENCY_LIMIT_NS),
                recorded_state: u8::try_from(gap.first_state).ok(),
                recorded_idle_ns: Some(gap.idle_ns),
            });
        }
    }

    /// Plays a recorded gap.
    pub(super) fn play_gap(&mut self, cpu: usize, id: TaskId, gap: Box<IdleGap>) {
        if u64::from(gap.cpu) as usize != cpu {
            self.error =
                Some(SimulationError::NoCpu { cpu: gap.cpu.into(), cpu_count: self.cpus.len() });
            return;
        }
        let (now_ns, period_ns) = (self.now_ns, self.period_ns);
        self.block(cpu, id, TaskState::Waiting);
        let this = &mut self.cpus[cpu];
        this.recorded_task = Some(id);
        this.ran_task = gap.ran_task;
        if gap.ran_task {
            this.idle.tick_stopped = false;
        }
        this.tick_phase_ns = match gap.next_tick_ns {
            Some(next_ns) => (now_ns + u64::from(next_ns).max(1)) % period_ns,
            None => 0,
        };
        self.queue.push(now_ns + gap.gap_ns, Event::Recorded { cpu: cpu as u32 });
        self.cpus[cpu].recorded = Some(gap);
        self.arm_tick(cpu);
    }

    pub(super) fn recorded_event(&mut self, cpu: usize) {
        let reason =
            self.cpus[cpu].recorded.as_ref().map_or(WakeReason::Unknown, |g| g.wake_reason);
        self.interrupt(cpu, Pending { work_ns: 0, effect: Effect::Recorded }, reason);
    }
}
