//! The rule that follows predictions as far as they have been good.
//!
//! It is that of Antoniadis, Coester, Eliáš, Polak and Simon (NeurIPS 2021), in three layers:
//!
//! 1. **Two states, one prediction.** For a price ρ between 1 and e/(e−1), [`entered_share`] says with which
//!    probability the deeper state has been entered by which time. With a correct prediction that costs at most ρ
//!    times the oracle; for each break-even of error it costs μ(ρ) more ([`error_price`]). ρ near 1 trusts
//!    the prediction, ρ = e/(e−1) ignores it. The unit of time is the break-even.
//! 2. **Several states.** Each pair of neighbours is such a problem. What the pairs have entered so far, weighted by
//!    their fixed costs, is the fixed cost that the whole rule should have come to; it is in one of the two states
//!    around that, with the probability that makes it so on average. Powers are convex in fixed costs, so this costs
//!    no more than the pairs together.
//! 3. **Which ρ.** Following the prediction blindly, five values of ρ, and ignoring it are seven experts. Experts lose
//!    weight with what they would have paid, also in the course of a long gap (Blum, Burch, 2000). One of them is
//!    followed, with the probability of its weight, and exchanged as rarely as the weights allow.
//!
//! The prediction is the sooner of the next timer and a forecast of the last gaps. The forecaster is that of the
//! authors' experiments (Helmbold, Long, Sconyers, Sherrod, 2000): a weighted mean of fixed lengths, whose weights
//! fall with their errors and are partly shared. Theirs has 25 lengths up to the deepest break-even, so it can never
//! predict more; ours has 40, up to four times that. The timer is our addition: kernel governors know it too.

use idlewise_trace::IdleGap;

use super::descent::{Moves, Rung};
use super::{Descent, ski_factor, uniform};
use crate::cost::UJ_PER_MW_NS;

/// The trust in predictions of the experts between the first, who follows them, and the last, who doesn't.
const RHOS: [f64; 5] = [1.1, 1.1596, 1.3, 1.4, 1.5];
const EXPERT_COUNT: usize = RHOS.len() + 2;
const FOLLOWER: usize = 0;
const DOUBTER: usize = EXPERT_COUNT - 1;

/// How fast a loss takes weight, as in the authors' experiments: by 5 % for each half of a deepest entry.
const LOSS_BASE: f64 = 0.95;
const LOSS_UNIT: f64 = 0.5;
/// Experts never lose everything, so that they can come back.
const WEIGHT_MIN: f64 = 1e-12;
/// Weights change every tenth of the time in which the shallowest state costs as much as the deepest entry.
const STEP_RATIO: f64 = 0.1;
/// How exactly the time of a move is found, as a share of the deepest break-even.
const BISECTION_COUNT: u32 = 10;

/// What one CPU's rule has learnt.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    forecaster: Forecaster,
    weights: [f64; EXPERT_COUNT],
    followed: usize,
    /// μ of each ρ.
    error_prices: [f64; RHOS.len()],
}

impl Learner {
    pub(super) fn new(descent: &Descent) -> Self {
        let deepest_ns = descent.rungs().last().map_or(0, |rung| rung.from_ns);
        Learner {
            forecaster: Forecaster::new(4.0 * deepest_ns.max(1) as f64),
            weights: [1.0 / EXPERT_COUNT as f64; EXPERT_COUNT],
            followed: DOUBTER,
            error_prices: RHOS.map(error_price),
        }
    }

    /// When to move down in a gap. Its length is used for what is learnt during and after it, and not before.
    pub(super) fn moves(&mut self, descent: &Descent, gap: &IdleGap) -> Moves {
        let last = descent.rungs().len() - 1;
        if last == 0 {
            return descent.break_evens();
        }
        let timer_ns = gap.sleep_length_ns.map_or(f64::INFINITY, |ns| ns as f64);
        let predicted_ns = self.forecaster.forecast_ns().min(timer_ns);
        self.forecaster.learn(gap.gap_ns as f64);
        let experts: [Moves; EXPERT_COUNT] =
            std::array::from_fn(|expert| self.expert_moves(expert, descent, predicted_ns, gap));
        let step_ns = ((unit_ns(descent) * STEP_RATIO) as u64).max(1);
        let (least_mw, unit_uj) = (ends(descent).1.power_mw, unit_uj(descent));
        let mut moves = descent.moves(|_| u64::MAX);
        let (mut entered, mut at_ns, mut step) = (0, 0, 1);
        while at_ns < gap.gap_ns {
            // Once it is in the deepest state, only what the experts lose matters.
            let left_ns = gap.gap_ns - at_ns;
            let next_ns = at_ns + if entered == last { left_ns } else { left_ns.min(step_ns) };
            let followed = &experts[self.followed];
            while entered < last && followed[entered + 1] <= next_ns {
                entered += 1;
                moves[entered] = followed[entered].max(at_ns);
            }
            let losses = experts
                .each_ref()
                .map(|expert| loss_uj(descent, expert, at_ns, next_ns, least_mw) / unit_uj);
            self.learn(&losses, uniform(gap, step));
            (at_ns, step) = (next_ns, step + 1);
        }
        moves
    }

    /// When an expert moves down in a gap. Moves after its end may be left out.
    fn expert_moves(
        &self,
        expert: usize,
        descent: &Descent,
        predicted_ns: f64,
        gap: &IdleGap,
    ) -> Moves {
        let uniform = uniform(gap, u64::MAX - expert as u64);
        match expert {
            FOLLOWER => {
                descent.moves(|rung| if rung.from_ns as f64 <= predicted_ns { 0 } else { u64::MAX })
            }
            DOUBTER => descent.shortened(ski_factor(uniform)),
            _ => {
                let trust = [RHOS[expert - 1], self.error_prices[expert - 1]];
                prudent_moves(trust, descent, predicted_ns, gap.gap_ns, uniform)
            }
        }
    }

    /// Takes weight from experts, and exchanges the one that is followed if it must.
    fn learn(&mut self, losses: &[f64; EXPERT_COUNT], uniform: f64) {
        let before = self.weights;
        let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
        for (weight, loss) in self.weights.iter_mut().zip(losses) {
            // Most lose the same.
            if *loss > least {
                *weight = (*weight * LOSS_BASE.powf((loss - least) / LOSS_UNIT)).max(WEIGHT_MIN);
            }
        }
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
        // It is given up with the share of its weight that was lost, for one that has gained.
        let lost = before[self.followed] - self.weights[self.followed];
        let mut left = uniform * before[self.followed];
        if left >= lost {
            return;
        }
        let gains = |expert: usize| (self.weights[expert] - before[expert]).max(0.0);
        let gained: f64 = (0..EXPERT_COUNT).map(gains).sum();
        left *= gained / lost;
        for expert in 0..EXPERT_COUNT {
            left -= gains(expert);
            if left < 0.0 {
                self.followed = expert;
                return;
            }
        }
    }
}

/// The time in which the shallowest state costs as much more than the deepest as entering that costs.
fn unit_ns(descent: &Descent) -> f64 {
    let (first, last) = ends(descent);
    unit_uj(descent) / (first.power_mw - last.power_mw) / UJ_PER_MW_NS
}

fn unit_uj(descent: &Descent) -> f64 {
    let (first, last) = ends(descent);
    (last.fixed_uj - first.fixed_uj).max(f64::MIN_POSITIVE)
}

fn ends(descent: &Descent) -> (&Rung, &Rung) {
    let rungs = descent.rungs();
    (&rungs[0], &rungs[rungs.len() - 1])
}

/// What an expert pays between two times, above the deepest state's power.
fn loss_uj(descent: &Descent, moves: &Moves, from_ns: u64, to_ns: u64, least_mw: f64) -> f64 {
    let rungs = descent.rungs();
    let mut uj = 0.0;
    for (index, rung) in rungs.iter().enumerate() {
        let left_ns = if index + 1 < rungs.len() { moves[index + 1] } else { u64::MAX };
        let stay_ns = left_ns.min(to_ns).saturating_sub(moves[index].max(from_ns));
        uj += (rung.power_mw - least_mw) * stay_ns as f64 * UJ_PER_MW_NS;
        if index > 0 && (from_ns..to_ns).contains(&moves[index]) {
            uj += rung.fixed_uj - rungs[index - 1].fixed_uj;
        }
    }
    uj
}

/// Layer 2: several states, for one ρ.
fn prudent_moves(
    [rho, mu]: [f64; 2],
    descent: &Descent,
    predicted_ns: f64,
    gap_ns: u64,
    uniform: f64,
) -> Moves {
    let rungs = descent.rungs();
    let (_, last) = ends(descent);
    let end_ns = last.from_ns.min(gap_ns);
    // The fixed cost that the pairs have come to, above that of the first state.
    let fixed_uj = |at_ns: u64| -> f64 {
        let of_pair = |pair: &[Rung]| {
            let break_even_ns = pair[1].from_ns.max(1) as f64;
            let share =
                entered_share(rho, mu, predicted_ns / break_even_ns, at_ns as f64 / break_even_ns);
            share * (pair[1].fixed_uj - pair[0].fixed_uj)
        };
        rungs.windows(2).map(of_pair).sum()
    };
    let at_end_uj = fixed_uj(end_ns);
    let mut above_uj = 0.0;
    descent.moves(|rung| {
        let level_uj = rung.fixed_uj - rungs[0].fixed_uj;
        let wanted_uj = above_uj + uniform * (level_uj - above_uj);
        above_uj = level_uj;
        if at_end_uj < wanted_uj {
            return u64::MAX;
        }
        let (mut low_ns, mut high_ns) = (0, end_ns);
        if fixed_uj(0) >= wanted_uj {
            return 0;
        }
        for _ in 0..BISECTION_COUNT {
            let middle_ns = low_ns + (high_ns - low_ns) / 2;
            if fixed_uj(middle_ns) >= wanted_uj { high_ns = middle_ns } else { low_ns = middle_ns }
        }
        high_ns
    })
}

/// Layer 1: the probability that the deeper of two states has been entered by `at`, for a gap of predicted length
/// `predicted`, both in break-evens.
fn entered_share(rho: f64, mu: f64, predicted: f64, at: f64) -> f64 {
    let slope = rho - 1.0 - mu + mu * predicted;
    let grown = |until: f64| slope.max(0.0) * until.exp_m1();
    if predicted >= 1.0 {
        // The deeper state should be chosen: some of the probability at once, more with time, up to the point from
        // which a wrong prediction pays for the rest.
        let at_once = mu * predicted;
        let (share, at_turn) = (at_once + grown(at), at_once + grown(predicted - 1.0));
        return if at_turn > 1.0 {
            share.min(1.0)
        } else if at < predicted - 1.0 {
            share
        } else if at_turn > 1.0 - mu {
            at_turn
        } else {
            share.min(1.0 - mu)
        };
    }
    // The shallower one should be chosen: little probability until the gap is longer than predicted, then as fast as
    // ρ requires.
    let is_flat = slope <= 0.0;
    let at_once =
        if is_flat { predicted * (rho - 1.0) / (1.0 - predicted) } else { mu * predicted };
    let never = mu.min(1.0 - at_once);
    let by_prediction = grown(predicted);
    let turn = 1.0 + ((rho - 1.0 + at_once + never + by_prediction) / rho).ln();
    let share = if at < turn {
        at_once + grown(at.min(predicted))
    } else {
        at_once + by_prediction + rho * ((at.min(1.0) - 1.0).exp() - (turn - 1.0).exp()).max(0.0)
    };
    share.min(1.0 - never).max(at_once.min(1.0))
}

/// What a break-even of error may cost at best, for what a correct prediction may.
fn error_price(rho: f64) -> f64 {
    const TRUSTING: f64 = 1.1596;
    if rho > TRUSTING {
        return (1.0 - rho * (1.0 - (-1.0_f64).exp())) / std::f64::consts::LN_2;
    }
    // The upper branch of Lambert's W: w·eʷ = x, by Newton.
    let x = -((rho - 1.0) / (4.0 * rho)).sqrt();
    let mut w = 0.0_f64;
    for _ in 0..50 {
        w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
    }
    (rho - 1.0) / (2.0 * w) * (1.0 + 1.0 / (2.0 * w))
}

const LENGTH_COUNT: usize = 40;
const LENGTH_RATIO: f64 = 1.15;
/// How fast errors take weight, and how much of it is shared.
const ERROR_RATE: f64 = 4.0;
const SHARE: f64 = 0.08;

/// Predicts the next gap by the last ones.
#[derive(Clone, Debug)]
struct Forecaster {
    lengths_ns: [f64; LENGTH_COUNT],
    weights: [f64; LENGTH_COUNT],
}

impl Forecaster {
    fn new(longest_ns: f64) -> Self {
        Forecaster {
            lengths_ns: std::array::from_fn(|i| longest_ns / LENGTH_RATIO.powi(i as i32)),
            weights: [1.0 / LENGTH_COUNT as f64; LENGTH_COUNT],
        }
    }

    fn forecast_ns(&self) -> f64 {
        self.lengths_ns.iter().zip(&self.weights).map(|(ns, weight)| ns * weight).sum()
    }

    fn learn(&mut self, gap_ns: f64) {
        let longest_ns = self.lengths_ns[0];
        let mut pool = 0.0;
        for (ns, weight) in self.lengths_ns.iter().zip(&mut self.weights) {
            let error = (ns - gap_ns.min(longest_ns)).abs() / longest_ns;
            *weight *= (-ERROR_RATE * error).exp();
            let kept = (1.0 - SHARE).powf(error);
            pool += *weight * (1.0 - kept);
            *weight *= kept;
        }
        let share = pool / LENGTH_COUNT as f64;
        let sum = self.weights.iter().sum::<f64>() + pool;
        self.weights.iter_mut().for_each(|weight| *weight = (*weight + share) / sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_costs_what_the_paper_allows() {
        // What is paid by a gap of length x: the shallow state until it is left, and 1 if it is. At most ρ times the
        // oracle's min(x, 1), and μ for each unit of error.
        let (count, longest) = (1_500, 4.0);
        let dt = longest / f64::from(count);
        for rho in RHOS.into_iter().chain([1.05, std::f64::consts::E / (std::f64::consts::E - 1.0)])
        {
            let mu = error_price(rho);
            assert!(mu > -1e-12 && mu < 1.0, "{mu}");
            for predicted in (0..80).map(|i| f64::from(i) * 0.05) {
                let (mut shallow, mut before) = (0.0, 0.0);
                for step in 0..count {
                    let at = (f64::from(step) + 0.5) * dt;
                    let share = entered_share(rho, mu, predicted, at);
                    assert!(
                        (before - 1e-12..=1.0 + 1e-12).contains(&share),
                        "{predicted} {at} {share}"
                    );
                    before = share;
                    shallow += (1.0 - share) * dt;
                    let x = at + dt / 2.0;
                    let allowed = rho * x.min(1.0) + mu * (x - predicted).abs();
                    assert!(shallow + share <= allowed + 1e-6, "{rho} {predicted} {x}");
                }
            }
        }
    }

    #[test]
    fn no_trust_is_the_classic_rule_and_full_trust_follows() {
        let e = std::f64::consts::E;
        let mu = error_price(e / (e - 1.0));
        assert!(mu.abs() < 1e-12);
        for at in [0.0_f64, 0.25, 0.5, 1.0] {
            let classic = at.exp_m1() / (e - 1.0);
            assert!((entered_share(e / (e - 1.0), mu, 0.0, at) - classic).abs() < 1e-9);
        }
        // Nearly full trust enters nearly surely at once what is predicted to be long.
        assert!(entered_share(1.001, error_price(1.001), 4.0, 0.0) > 0.9);
        assert!(entered_share(1.001, error_price(1.001), 0.1, 0.5) < 0.01);
    }

    #[test]
    fn the_forecast_follows_the_gaps() {
        let mut forecaster = Forecaster::new(4_000.0);
        (0..100).for_each(|_| forecaster.learn(100.0));
        let short_ns = forecaster.forecast_ns();
        (0..100).for_each(|_| forecaster.learn(1e9));
        let long_ns = forecaster.forecast_ns();
        assert!(short_ns < 400.0 && long_ns > 3_000.0, "{short_ns} {long_ns}");
        (0..100).for_each(|_| forecaster.learn(100.0));
        assert!((forecaster.forecast_ns() - short_ns).abs() < 50.0);
    }

    #[test]
    fn weight_goes_to_whoever_loses_least_and_the_followed_one_goes_with_it() {
        let descent = Descent::for_tests(&[(0, 4_000.0, 0.0), (1_000, 1_000.0, 3.0)]);
        let mut learner = Learner::new(&descent);
        let mut losses = [1.0; EXPERT_COUNT];
        losses[2] = 0.0;
        for step in 0..400 {
            learner.learn(&losses, f64::from(step % 10) / 10.0);
            assert!((learner.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        assert!(learner.weights[2] > 0.99 && learner.followed == 2);
        losses = [1.0; EXPERT_COUNT];
        losses[4] = 0.0;
        (0..800).for_each(|step| learner.learn(&losses, f64::from(step % 10) / 10.0));
        assert_eq!(learner.followed, 4, "it can come back");
    }

    #[test]
    fn losses_of_parts_add_up_to_the_whole() {
        let descent = Descent::for_tests(&[
            (0, 4_000.0, 0.0),
            (1_000, 1_000.0, 3.0),
            (800_000, 100.0, 723.0),
        ]);
        let moves = descent.shortened(0.5);
        let between = |from_ns, to_ns| loss_uj(&descent, &moves, from_ns, to_ns, 100.0);
        let whole = between(0, 2_000_000);
        let parts = (0..20).map(|i| between(i * 100_000, (i + 1) * 100_000)).sum::<f64>();
        assert!((whole - parts).abs() < 1e-9, "{whole} {parts}");
        // By hand, above 100 mW: 3.9 W for 0.5 µs, 0.9 W for 399.5 µs, and 723 µJ.
        let by_hand = 3_900.0 * 500.0 * 1e-6 + 900.0 * 399_500.0 * 1e-6 + 723.0;
        assert!((whole - by_hand).abs() < 1e-9, "{whole} {by_hand}");
    }
}
