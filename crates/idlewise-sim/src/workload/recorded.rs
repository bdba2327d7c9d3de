//! The gaps of an idle log. Each CPU is idle exactly when and as long as the recorded one was.

use std::collections::BTreeMap;

use idlewise_trace::IdleGap;

use crate::simulate::{Load, Op, Program, Spawn, View};

/// Recorded gaps, shifted so that the first begins within the first tick.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    gaps: BTreeMap<u16, Vec<IdleGap>>,
}

impl Recorded {
    /// Takes gaps sorted by CPU, then by time. Times are shifted by whole ticks of
    /// `tick_period_ns`, so that gaps keep their place on the tick grid.
    pub fn new(gaps: &[IdleGap], tick_period_ns: u32) -> Self {
        let period_ns = i64::from(tick_period_ns.max(1));
        let first_at_ns = gaps.iter().map(|gap| gap.start_ns).min().unwrap_or(0);
        let shift_ns = first_at_ns.div_euclid(period_ns) * period_ns;
        let mut by_cpu: BTreeMap<u16, Vec<IdleGap>> = BTreeMap::new();
        for gap in gaps {
            let start_ns = gap.start_ns.saturating_sub(shift_ns);
            by_cpu.entry(gap.cpu).or_default().push(IdleGap { start_ns, ..*gap });
        }
        Recorded { gaps: by_cpu }
    }

    /// Returns how many CPUs a machine needs to play the gaps.
    pub fn cpu_count(&self) -> usize {
        self.gaps.keys().next_back().map_or(0, |cpu| usize::from(*cpu) + 1)
    }

    /// Returns the end of the last gap.
    pub fn end_ns(&self) -> u64 {
        let lasts = self.gaps.values().filter_map(|gaps| gaps.last());
        lasts.map(|gap| gap.start_ns as u64 + gap.gap_ns).max().unwrap_or(0)
    }

    pub(super) fn load(&self) -> Load {
        let tasks = self.gaps.iter().map(|(cpu, gaps)| Spawn {
            is_recorded: true,
            ..Spawn::pinned(
                usize::from(*cpu),
                Player { gaps: gaps.clone().into_iter(), next: None },
            )
        });
        Load { tasks: tasks.collect(), sources: Vec::new() }
    }
}

struct Player {
    gaps: std::vec::IntoIter<IdleGap>,
    next: Option<IdleGap>,
}

impl Program for Player {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(gap) = self.next.take() {
            // If the machine takes longer than the recorded one did, the gap begins late.
            view.metrics.record("late_start_ns", view.now_ns.saturating_sub(gap.start_ns as u64));
            return Op::Gap(Box::new(gap));
        }
        self.next = self.gaps.next();
        // What happened after the last gap is unknown. The CPU stays busy.
        let at_ns = self.next.as_ref().map_or(u64::MAX / 2, |gap| gap.start_ns as u64);
        Op::RunUntil { at_ns }
    }
}
