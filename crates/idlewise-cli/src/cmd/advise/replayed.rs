//! Replays a recording once under every variant, and cuts what happens into slices of time.
//!
//! # Time that shorter exits save
//!
//! A replay keeps the recording's timeline: a gap begins when it began, although the CPU would have been
//! idle sooner if the exit before it had been shorter. For comparing governors that hardly matters. Here it does: a
//! CPU that no longer spends 290 us in each exit spends them in its next idle state, and that takes power.
//! So the difference between the delays as it is and those of a variant is counted as idle time of the
//! variant, at its mean power in the slice, and is taken off where exits get longer. Without that, the
//! power of a latency limit was predicted as 258 mW where the simulation of the same change found 732 mW.

use idlewise_core::tick_period_ns;
use idlewise_host::settings::CpuSet;
use idlewise_report::advise::Slices;
use idlewise_sim::CostModel;
use idlewise_sim::contest::Price;
use idlewise_sim::replay::{
    Delays, GapCourse, ObservedLane, Observer, PerCpu, Setting, Tally, replay_cpus,
};
use idlewise_trace::IdleGap;
use idlewise_trace::log::{ColumnSet, IdleLog};

use super::candidates::Variant;
use crate::error::Result;
use crate::progress::Progress;
use crate::replay_arguments::ReplayTarget;

/// Many enough for intervals.
const SLICE_COUNT_MAX: u64 = 32;
/// A slice with fewer events says little, so a short recording has fewer slices.
const EVENTS_PER_SLICE: u64 = 16;

/// What to replay.
pub(super) struct Replayed<'a> {
    pub log: &'a IdleLog,
    pub target: &'a ReplayTarget,
    pub hz: u32,
    /// The first is as it is.
    pub variants: &'a [Variant],
    /// The CPUs whose delays matter; `None`: all.
    pub asked: Option<&'a CpuSet>,
    /// The recording's first and last moment.
    pub span_ns: [i64; 2],
}

/// What came of it.
pub(super) struct Outcome {
    /// For each variant.
    pub slices: Vec<Slices>,
    /// The strictest latency limit in the recording.
    pub recorded_limit_ns: Option<u64>,
    /// Gaps whose recorded state is known, and those of them in which the replay as it is chose the same.
    pub recorded_count: u64,
    pub agreed_count: u64,
    /// CPU time before the first gap and after the last one, about which the log says nothing.
    pub edge_ns: u64,
}

/// Counts the delays of each slice.
struct SliceDelays {
    slices: Vec<Delays>,
    at: usize,
    recorded_count: u64,
    agreed_count: u64,
}

impl Observer for SliceDelays {
    fn gap(&mut self, gap: &IdleGap, course: GapCourse) {
        self.slices[self.at].record(course.delay_ns);
        if let Some(state) = gap.recorded_state {
            self.recorded_count += 1;
            self.agreed_count += u64::from(course.first.state == usize::from(state));
        }
    }
}

/// One CPU under every variant. A variant that does not change the CPU has no lane.
struct Cpu<'a> {
    cpu: u16,
    lanes: Vec<Option<Box<dyn ObservedLane<SliceDelays> + 'a>>>,
    slices: Vec<Slices>,
    at: usize,
    /// For each variant, until the end of the last slice.
    before: Vec<Spent>,
    /// Of each variant in each slice.
    spent: Vec<Vec<Spent>>,
    recorded_limit_ns: Option<u64>,
    /// From the first gap's start to the last one's end.
    covered_ns: Option<[i64; 2]>,
}

/// A CPU after its last gap.
struct Finished {
    cpu: u16,
    has_lane: Vec<bool>,
    slices: Vec<Slices>,
    recorded_limit_ns: Option<u64>,
    recorded_count: u64,
    agreed_count: u64,
    edge_ns: u64,
}

/// What a lane has spent.
#[derive(Clone, Default)]
struct Spent {
    /// With the machine's own powers, and then with each other that it may have.
    models: Vec<Consumed>,
    idle_ns: f64,
}

#[derive(Clone, Copy, Default)]
struct Consumed {
    /// Everything.
    energy_uj: f64,
    /// In idle states, without entering and leaving them.
    idle_uj: f64,
}

impl Spent {
    fn of(costs: &CostModel, tally: &Tally) -> Self {
        let consumed = |costs: &CostModel| Consumed {
            energy_uj: costs.energy_uj(tally),
            idle_uj: costs.idle_uj(tally),
        };
        let states = tally.states.iter().take(costs.states().len());
        Spent {
            models: costs.with_corners().map(consumed).collect(),
            idle_ns: states.map(|it| it.stay_ns as f64).sum(),
        }
    }

    fn add(&mut self, other: &Spent) {
        self.models.resize(other.models.len(), Consumed::default());
        for (sum, other) in self.models.iter_mut().zip(&other.models) {
            sum.energy_uj += other.energy_uj;
            sum.idle_uj += other.idle_uj;
        }
        self.idle_ns += other.idle_ns;
    }

    /// What was spent since `before`.
    fn since(&self, before: &Spent) -> Self {
        let zero = Consumed::default();
        let befores = before.models.iter().chain(std::iter::repeat(&zero));
        let models = self.models.iter().zip(befores);
        Spent {
            models: models
                .map(|(now, before)| Consumed {
                    energy_uj: now.energy_uj - before.energy_uj,
                    idle_uj: now.idle_uj - before.idle_uj,
                })
                .collect(),
            idle_ns: self.idle_ns - before.idle_ns,
        }
    }
}

/// Adds energy by model to a slice: first the machine's own.
fn add_energy(slices: &mut Slices, at: usize, mut uj: impl Iterator<Item = f64>) {
    slices.energy_uj[at] += uj.next().unwrap_or(0.0);
    for (corner, uj) in uj.enumerate() {
        slices.corner_uj.resize(slices.corner_uj.len().max(corner + 1), 0.0);
        slices.corner_uj[corner] += uj;
    }
}

impl Cpu<'_> {
    /// Moves the delays to the slices, and adds the energy of the time that shorter exits save.
    fn finish(&mut self) {
        for (lane, slices) in self.lanes.iter_mut().zip(&mut self.slices) {
            if let Some(lane) = lane {
                slices.delays = std::mem::take(&mut lane.observer_mut().slices);
            }
        }
        let delay_ns = |slices: &Slices, at: usize| slices.delays[at].sum_ns() as f64;
        let count = self.slices.first().map_or(0, |slices| slices.delays.len());
        let before_ns: Vec<f64> = (0..count).map(|at| delay_ns(&self.slices[0], at)).collect();
        for (slices, spent) in self.slices.iter_mut().zip(&self.spent) {
            for (at, spent) in spent.iter().enumerate() {
                // A variant without a lane has spent nothing, and has no models.
                let freed_ns = before_ns[at] - delay_ns(slices, at);
                let freed_uj = |it: &Consumed| match spent.idle_ns {
                    0.0 => 0.0,
                    idle_ns => freed_ns * it.idle_uj / idle_ns,
                };
                let energies = spent.models.iter().map(|it| it.energy_uj + freed_uj(it));
                add_energy(slices, at, energies);
            }
        }
    }
}

impl Replayed<'_> {
    /// The number of slices.
    fn slice_count(&self) -> usize {
        (self.log.gap_count() / EVENTS_PER_SLICE).clamp(1, SLICE_COUNT_MAX) as usize
    }

    /// Replays everything.
    pub fn run(&self) -> Result<Outcome> {
        let mut outcome = Outcome {
            slices: vec![Slices::new(self.slice_count()); self.variants.len()],
            recorded_limit_ns: None,
            recorded_count: 0,
            agreed_count: 0,
            edge_ns: 0,
        };
        let bar = Progress::gaps("replaying", self.log.gap_count());
        let cpu = PerCpu {
            // Lanes do not look at what was recorded; the observer compares.
            columns: ColumnSet::All,
            make: &|| None,
            take: &|cpu: &mut Option<Cpu<'_>>, gaps| {
                let Some(first) = gaps.first() else { return };
                let cpu = cpu.get_or_insert_with(|| self.cpu(first.cpu));
                self.take(cpu, gaps);
            },
            finish: &|cpu| {
                cpu.map(|mut cpu| {
                    self.end_slice(&mut cpu);
                    cpu.finish();
                    self.finished(cpu)
                })
            },
        };
        let mut merge = |finished: Option<Finished>| {
            let Some(finished) = finished else { return };
            let counts = self.asked.is_none_or(|asked| asked.contains(finished.cpu));
            for (index, sum) in outcome.slices.iter_mut().enumerate() {
                // A variant that leaves the CPU alone is what the CPU is.
                let own = if finished.has_lane[index] { index } else { 0 };
                sum.add(&finished.slices[own], counts);
            }
            let limits = [outcome.recorded_limit_ns, finished.recorded_limit_ns];
            outcome.recorded_limit_ns = limits.into_iter().flatten().min();
            outcome.recorded_count += finished.recorded_count;
            outcome.agreed_count += finished.agreed_count;
            outcome.edge_ns += finished.edge_ns;
        };
        replay_cpus(self.log, &cpu, &mut merge, &|done| bar.add(done))?;
        Ok(outcome)
    }

    fn cpu(&self, cpu: u16) -> Cpu<'_> {
        let is_asked = self.asked.is_none_or(|asked| asked.contains(cpu));
        let lane = |(index, variant): (usize, &Variant)| {
            if index > 0 && !is_asked && !variant.is_everywhere {
                return None;
            }
            let setting = Setting {
                exits_ns: self.target.costs.exits().means_ns(),
                disabled: variant.disabled,
                latency_limit_ns: variant.latency_limit_ns,
                ..Setting::new(self.target.states, tick_period_ns(self.hz))
            };
            let observer = SliceDelays {
                slices: vec![Delays::default(); self.slice_count()],
                at: 0,
                recorded_count: 0,
                agreed_count: 0,
            };
            let player = variant.choice.on(&self.target.machine).ok()?;
            Some(player.observed(&self.target.costs, setting, Price::FREE, observer))
        };
        Cpu {
            cpu,
            lanes: self.variants.iter().enumerate().map(lane).collect(),
            slices: vec![Slices::new(self.slice_count()); self.variants.len()],
            at: 0,
            before: vec![Spent::default(); self.variants.len()],
            spent: vec![vec![Spent::default(); self.slice_count()]; self.variants.len()],
            recorded_limit_ns: None,
            covered_ns: None,
        }
    }

    fn finished(&self, mut cpu: Cpu<'_>) -> Finished {
        let [first_ns, last_ns] = cpu.covered_ns.unwrap_or(self.span_ns);
        let observer = cpu.lanes[0].as_mut().map(|lane| lane.observer_mut());
        let (recorded_count, agreed_count) =
            observer.map_or((0, 0), |seen| (seen.recorded_count, seen.agreed_count));
        Finished {
            cpu: cpu.cpu,
            has_lane: cpu.lanes.iter().map(Option::is_some).collect(),
            recorded_limit_ns: cpu.recorded_limit_ns,
            recorded_count,
            agreed_count,
            edge_ns: first_ns.abs_diff(self.span_ns[0]) + last_ns.abs_diff(self.span_ns[1]),
            slices: cpu.slices,
        }
    }

    fn take(&self, cpu: &mut Cpu<'_>, gaps: &[IdleGap]) {
        for gaps in gaps.chunk_by(|a, b| self.slice(a) == self.slice(b)) {
            let at = self.slice(&gaps[0]);
            if at != cpu.at {
                self.end_slice(cpu);
                cpu.at = at;
            }
            for lane in cpu.lanes.iter_mut().flatten() {
                lane.observer_mut().at = at;
                lane.replay(gaps);
            }
            let last_ns =
                gaps.last().map_or(0, |gap| gap.start_ns.saturating_add_unsigned(gap.gap_ns));
            let first_ns = cpu.covered_ns.map_or(gaps[0].start_ns, |[first_ns, _]| first_ns);
            cpu.covered_ns = Some([first_ns, last_ns]);
            let limits = gaps.iter().filter_map(|gap| gap.latency_limit_ns);
            cpu.recorded_limit_ns = limits.chain(cpu.recorded_limit_ns).min();
        }
    }

    /// A gap belongs to the slice in which it begins.
    fn slice(&self, gap: &IdleGap) -> usize {
        let [first_ns, last_ns] = self.span_ns.map(i128::from);
        let at = (i128::from(gap.start_ns) - first_ns) * self.slice_count() as i128;
        let at = at / (last_ns - first_ns).max(1);
        usize::try_from(at).unwrap_or(0).min(self.slice_count() - 1)
    }

    fn end_slice(&self, cpu: &mut Cpu<'_>) {
        let costs = &self.target.costs;
        for (index, lane) in cpu.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let now = Spent::of(costs, lane.tally());
            let spent = now.since(&cpu.before[index]);
            cpu.before[index] = now;
            cpu.spent[index][cpu.at].add(&spent);
        }
    }
}
