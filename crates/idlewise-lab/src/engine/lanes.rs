//! Many CPUs at once, whose decisions the caller makes: what a learning agent needs. A lane is given a CPU of a log and
//! a part of its gaps, an episode. A step carries out one decision in every lane.

use std::sync::Arc;

use idlewise_core::Decision;
use idlewise_sim::OracleLane;
use idlewise_sim::replay::{GroupReader, Question, Steps};
use idlewise_trace::IdleGap;

use super::{Log, Request};
use crate::error::{Failure, Result};
use crate::target::{AskedMachines, ReplayTarget};

/// What to step through.
pub struct LanesRequest {
    /// An id, a file or `recorded`.
    pub machine: String,
    /// The price of delay, in times the power of polling.
    pub lambda: f64,
    /// The tick's frequency; `None`: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed.
    pub latency_limit_us: Option<u32>,
    /// How many lanes.
    pub lane_count: usize,
}

/// The gaps of a CPU.
struct Source {
    setting: idlewise_sim::replay::Setting,
    gaps: Vec<IdleGap>,
}

struct Lane {
    steps: Steps,
    oracle: OracleLane,
    source: usize,
    /// The gap that the CPU is in, and where the episode ends.
    at: usize,
    end: usize,
    cost_uj: f64,
    oracle_cost_uj: f64,
}

/// What a step came to in one lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// What is to be decided next; `None` if the episode is over.
    pub question: Option<Question>,
    /// What the step cost: energy, and the delay of an event at its price.
    pub cost_uj: f64,
    /// If the step ended its gap: what the oracle spends in it.
    pub oracle_cost_uj: Option<f64>,
}

/// The lanes.
pub struct Lanes {
    target: ReplayTarget,
    lambda_mw: f64,
    sources: Vec<Source>,
    lanes: Vec<Option<Lane>>,
}

impl Lanes {
    /// Reads the logs' gaps, which stay in memory.
    ///
    /// # Errors
    /// If a name is unknown, or a log is damaged or has no gaps.
    pub fn new(logs: &[Arc<Log>], request: &LanesRequest) -> Result<Self, String> {
        Self::read(logs, request).map_err(|failure| failure.text())
    }

    fn read(logs: &[Arc<Log>], asked: &LanesRequest) -> Result<Self> {
        let request = Request {
            machines: vec![asked.machine.clone()],
            governors: Vec::new(),
            lambdas: vec![asked.lambda],
            hz: asked.hz,
            latency_limit_us: asked.latency_limit_us,
        };
        let conditions = request.conditions()?;
        let price = request.prices()?.remove(0);
        let named = logs.iter().map(|log| (log.name(), &log.0.log.metadata));
        let machines = AskedMachines::new(&request.machines, &[], &[], &[])?;
        let mut targets = machines.on(named, &[])?.targets;
        if targets.len() > 1 {
            return Err(Failure::new(
                "the logs were recorded on different machines, and lanes are on one: name one, or give fewer logs",
            ));
        }
        let target = targets.pop().ok_or_else(|| Failure::new("there are no logs"))?;
        let mut sources: Vec<Source> = Vec::new();
        for log in logs {
            let setting = target.setting(conditions, &log.0.log.metadata);
            let mut reader = GroupReader::new(&log.0.log);
            let first = sources.len();
            for group in log.0.log.groups() {
                for gaps in reader.read(group)?.chunk_by(|a, b| a.cpu == b.cpu) {
                    let is_same = |it: &&mut Source| it.gaps[0].cpu == gaps[0].cpu;
                    match sources[first..].iter_mut().find(is_same) {
                        Some(source) => source.gaps.extend_from_slice(gaps),
                        None => sources.push(Source { setting, gaps: gaps.to_vec() }),
                    }
                }
            }
        }
        if sources.is_empty() {
            return Err(Failure::new("the logs have no gaps"));
        }
        let lambda_mw = price.lambda_mw(&target.costs);
        let lanes = (0..asked.lane_count).map(|_| None).collect();
        Ok(Lanes { target, lambda_mw, sources, lanes })
    }

    /// How many gaps each CPU of each log has. Its index is the source of [`Lanes::reset`].
    pub fn gap_counts(&self) -> Vec<usize> {
        self.sources.iter().map(|source| source.gaps.len()).collect()
    }

    /// The states' names, exit latencies and target residencies.
    pub fn states(&self) -> Vec<(String, u64, u64)> {
        let states = self.target.states.as_slice().iter();
        let named = self.target.state_names.iter().zip(states);
        named.map(|(name, it)| (name.clone(), it.exit_latency_ns, it.target_residency_ns)).collect()
    }

    /// How many lanes there are.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// Begins an episode in a lane: `count` gaps of a source from the gap `start` on, without a history.
    ///
    /// # Errors
    /// If there are no such gaps.
    pub fn reset(
        &mut self,
        lane: usize,
        source: usize,
        start: usize,
        count: usize,
    ) -> Result<Question, String> {
        let slot = self.lanes.get_mut(lane).ok_or_else(|| format!("there is no lane {lane}"))?;
        let of = self.sources.get(source).ok_or_else(|| format!("there is no source {source}"))?;
        let end = start.saturating_add(count).min(of.gaps.len());
        if start >= end {
            return Err(format!("source {source} has {} gaps, none from {start}", of.gaps.len()));
        }
        let mut steps = Steps::new(of.setting);
        steps.begin(&of.gaps[start]);
        let question = steps.question().expect("a gap has begun");
        let oracle = OracleLane::new(self.target.costs.clone(), of.setting, self.lambda_mw);
        *slot =
            Some(Lane { steps, oracle, source, at: start, end, cost_uj: 0.0, oracle_cost_uj: 0.0 });
        Ok(question)
    }

    /// Carries out a decision in a lane; `None` if its episode is over or has not begun.
    ///
    /// # Errors
    /// If there is no such lane or state.
    pub fn step(&mut self, lane: usize, decision: Decision) -> Result<Option<Asked>, String> {
        let count = self.target.states.len();
        if decision.state >= count {
            let state = decision.state;
            return Err(format!(
                "lane {lane}: there is no state {state}; there are 0 to {}",
                count - 1
            ));
        }
        let slot = self.lanes.get_mut(lane).ok_or_else(|| format!("there is no lane {lane}"))?;
        let Some(lane) = slot else { return Ok(None) };
        let Some(stay) = lane.steps.decide(decision) else { return Ok(None) };
        let costs = &self.target.costs;
        let mut cost_uj = costs.stay_uj(stay.state, stay.stay_ns) + costs.running_uj(stay.work_ns);
        let mut oracle_cost_uj = None;
        if let Some(delay_ns) = stay.delay_ns {
            cost_uj += idlewise_sim::CostModel::delay_uj(delay_ns, self.lambda_mw);
            let gaps = &self.sources[lane.source].gaps;
            let gap = &gaps[lane.at];
            let state = lane.oracle.state(gap);
            let least_uj = costs.gap_uj(state, gap.gap_ns, self.lambda_mw);
            oracle_cost_uj = Some(least_uj);
            lane.oracle_cost_uj += least_uj;
            lane.at += 1;
            if lane.at < lane.end {
                lane.steps.begin(&gaps[lane.at]);
            }
        }
        lane.cost_uj += cost_uj;
        Ok(Some(Asked { question: lane.steps.question(), cost_uj, oracle_cost_uj }))
    }

    /// What a lane's episode has cost so far, and what the oracle spent in the gaps that are over.
    pub fn costs_uj(&self, lane: usize) -> Option<(f64, f64)> {
        let lane = self.lanes.get(lane)?.as_ref()?;
        Some((lane.cost_uj, lane.oracle_cost_uj))
    }
}
