//! Rivals from the theory of online algorithms: policies that move down while the CPU is idle.
//!
//! A governor chooses once and then waits. The theory of dynamic power management, which is ski rental with several
//! slopes, lets a device move to a deeper state at any moment of its idle time. Its rules need no tick, and their
//! worst case is proven. A row of them beside the governors says what is lost by choosing once, and what is
//! gained by the timers and by learning, which the simplest of these rules do without.
//!
//! | name | rule | source |
//! | --- | --- | --- |
//! | `lower-envelope` | enters a state when the gap has become so long that the oracle would have chosen it | Irani, Shukla, Gupta: Online strategies for dynamic power management, 2003 |
//! | `ski-random` | the same times, all shortened by one random factor | Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems, 1994 |
//! | `ski-known` | the best times for the lengths that the log's CPU really had | the same, and Irani et al. |
//! | `dpm` | learns which of seven rules to follow, some of which follow a prediction | Antoniadis, Coester, Eliáš, Polak, Simon: Learning-augmented dynamic power management with multiple states via new ski rental bounds, 2021 |
//!
//! # What they pay
//!
//! As in those papers, moving down is free in itself: whoever ends in state i pays its transition and its priced
//! exit latency, `e[i] + λ·L[i]`, and for each moment the power of the state of that moment. So a gap of length g
//! costs the oracle the lower envelope of the states' lines, and `lower-envelope` at most twice that,
//! `ski-random` at most e/(e−1) ≈ 1.58 times that on average; `tests/all/prop_rival.rs` checks both on any states
//! and gaps.
//!
//! That is kinder than hardware. A CPU that moves down by itself must wake up first, unless the hardware demotes
//! it. They pay no ticks and read no timers, except `dpm`. They know powers and price, as the oracle does.
//!
//! # What a tally of them holds
//!
//! The time in each state, but entries only of the state in which the event found the CPU, because only that
//! one's transition is paid. So costs follow from the tally as everywhere. No stay is judged too deep or too
//! shallow: the kernel's rule is about single choices.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Rival`]: the rules by name, and [`RivalLane`] |
//! | `descent.rs` | the states worth entering, and when |
//! | `known.rs` | the best plan for known lengths |
//! | `dpm.rs` | the rule that learns, and its predictor |

mod descent;
mod dpm;
mod known;

use std::cell::OnceCell;

use idlewise_trace::{IdleGap, WakeReason};

use descent::{Descent, Moves};
use dpm::Learner;
use known::Lengths;

use crate::cost::CostModel;
use crate::replay::{Lane, Setting, Tally};

/// The rivals.
pub const RIVALS: &[Rival] = &[
    Rival {
        name: "lower-envelope",
        meaning: "goes one state deeper once the CPU has been idle so long that the next state would have been \
                  cheaper; at most 2 times the oracle's cost",
        moves: |limited, _, _| Some(limited.descent.break_evens()),
    },
    Rival {
        name: "ski-random",
        meaning: "the same at random times (seeded); on average at most e/(e-1) times the oracle's cost",
        moves: |limited, _, gap| Some(limited.descent.shortened(ski_factor(uniform(gap, 0)))),
    },
    Rival {
        name: "ski-known",
        meaning: "moves down at the best times for the recording's own gap lengths, known in advance",
        moves: |limited, _, gap| {
            limited.lengths.add(gap);
            None
        },
    },
    Rival {
        name: "dpm",
        meaning: "moves down as predictions and past costs suggest (Antoniadis et al., NeurIPS 2021)",
        moves: |limited, learner, gap| Some(learner.moves(&limited.descent, gap)),
    },
];

/// A rule that moves down while the CPU is idle: a row of [`RIVALS`].
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub meaning: &'static str,
    /// When it moves in a gap; `None` if it must first have seen all gaps.
    moves: fn(&mut Limited, &mut Learner, &IdleGap) -> Option<Moves>,
}

impl Rival {
    /// Finds a rival by name.
    pub fn parse(name: &str) -> Option<Self> {
        RIVALS.iter().find(|rival| rival.name == name).copied()
    }
}

/// A rival as a lane of one CPU.
pub struct RivalLane {
    rival: Rival,
    costs: CostModel,
    setting: Setting,
    lambda_mw: f64,
    /// One for each latency limit that gaps had; the first is the setting's own.
    limited: Vec<Limited>,
    learner: Learner,
    /// Without the gaps of `ski-known`, which it must all have seen.
    tally: Tally,
    whole: OnceCell<Tally>,
}

struct Limited {
    limit_ns: Option<u64>,
    descent: Descent,
    lengths: Lengths,
}

impl RivalLane {
    /// Makes a lane for price `lambda_mw` of latency.
    pub fn new(rival: Rival, costs: CostModel, setting: Setting, lambda_mw: f64) -> Self {
        let descent = Descent::new(&costs, &setting, setting.latency_limit_ns, lambda_mw);
        let learner = Learner::new(&descent);
        let limited = vec![Limited { limit_ns: None, descent, lengths: Lengths::default() }];
        RivalLane {
            rival,
            costs,
            setting,
            lambda_mw,
            limited,
            learner,
            tally: Tally::default(),
            whole: OnceCell::new(),
        }
    }

    /// The index of the states that a gap's latency limit leaves.
    fn limited(&mut self, gap: &IdleGap) -> usize {
        let limit_ns = gap.latency_limit_ns;
        if let Some(index) = self.limited.iter().position(|it| it.limit_ns == limit_ns) {
            return index;
        }
        let own_ns = self.setting.latency_limit_ns;
        let effective_ns =
            limit_ns.and_then(|ns| i64::try_from(ns).ok()).map_or(own_ns, |ns| ns.min(own_ns));
        let descent = Descent::new(&self.costs, &self.setting, effective_ns, self.lambda_mw);
        self.limited.push(Limited { limit_ns, descent, lengths: Lengths::default() });
        self.limited.len() - 1
    }
}

impl Lane for RivalLane {
    fn replay(&mut self, gaps: &[IdleGap]) {
        self.whole.take();
        for gap in gaps {
            let index = self.limited(gap);
            let limited = &mut self.limited[index];
            if let Some(moves) = (self.rival.moves)(limited, &mut self.learner, gap) {
                limited.descent.count(&moves, Stays::of(gap), &self.setting, &mut self.tally);
            }
        }
    }

    fn tally(&self) -> &Tally {
        self.whole.get_or_init(|| {
            let mut tally = self.tally.clone();
            for Limited { descent, lengths, .. } in &self.limited {
                lengths.count(descent, &self.setting, &mut tally);
            }
            tally
        })
    }
}

/// Gaps that end in the same state.
#[derive(Clone, Copy, Debug, Default)]
struct Stays {
    count: u64,
    /// The shortest.
    least_ns: u64,
    sum_ns: u64,
    timerless_count: u64,
    /// Those that an IPI ended.
    ipi_count: u64,
}

impl Stays {
    fn of(gap: &IdleGap) -> Self {
        let is_ipi = matches!(gap.wake_reason, WakeReason::Ipi | WakeReason::Resched);
        Stays {
            count: 1,
            least_ns: gap.gap_ns,
            sum_ns: gap.gap_ns,
            timerless_count: u64::from(gap.sleep_length_ns.is_none()),
            ipi_count: u64::from(is_ipi),
        }
    }

    fn add(&mut self, other: Stays) {
        self.least_ns =
            if self.count == 0 { other.least_ns } else { self.least_ns.min(other.least_ns) };
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.timerless_count += other.timerless_count;
        self.ipi_count += other.ipi_count;
    }
}

/// The random factor with the density `eˣ/(e−1)` between 0 and 1, from a uniform number.
fn ski_factor(uniform: f64) -> f64 {
    (uniform * (std::f64::consts::E - 1.0)).ln_1p()
}

/// A number from 0 up to 1 that depends only on the gap's CPU and start, and on `purpose`.
fn uniform(gap: &IdleGap, purpose: u64) -> f64 {
    let mut bits = (gap.start_ns as u64) ^ (u64::from(gap.cpu) << 48) ^ purpose.rotate_right(8);
    // The finalizer of splitmix64 (Steele, Lea, Flood, 2014), twice.
    for _ in 0..2 {
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
    }
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_every_name_in_the_list() {
        for Rival { name, .. } in RIVALS {
            assert_eq!(Rival::parse(name).map(|rival| rival.name), Some(*name));
        }
        assert!(Rival::parse("ski").is_none());
    }

    #[test]
    fn the_random_factor_has_its_density() {
        // E[x] for density eˣ/(e−1) on [0, 1] is 1/(e−1).
        let count = 100_000;
        let mean =
            (0..count).map(|i| ski_factor((f64::from(i) + 0.5) / f64::from(count))).sum::<f64>()
                / f64::from(count);
        assert!((mean - 1.0 / (std::f64::consts::E - 1.0)).abs() < 1e-6, "{mean}");
    }
}
