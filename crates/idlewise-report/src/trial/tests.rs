use super::*;
use crate::TextStyle;

/// Numbers that are as good as random, from a seed.
struct Random {
    seed: u64,
    drawn_count: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        Random { seed: splitmix(seed), drawn_count: 0 }
    }

    /// Between 0 and 1, neither of them.
    fn uniform(&mut self) -> f64 {
        self.drawn_count += 1;
        ((splitmix(self.seed.wrapping_add(self.drawn_count)) >> 12) as f64 + 0.5)
            / (1_u64 << 52) as f64
    }

    /// Box and Muller (1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Makes the noise of the next round, a logarithm, from the round's number.
type Noise = fn(&mut Random, usize, f64) -> f64;

/// Everything that may happen to a machine during a trial. Each gets what it returned for the round before.
const NOISES: [(&str, Noise); 9] = [
    ("white", |random, _, _| 0.01 * random.normal()),
    ("remembers", |random, _, last| 0.9 * last + 0.01 * random.normal()),
    ("random walk", |random, _, last| last + 0.01 * random.normal()),
    ("drift", |random, round, _| 0.005 * round as f64 + 0.003 * random.normal()),
    ("curved drift", |random, round, _| 0.0005 * (round as f64).powi(2) + 0.0003 * random.normal()),
    ("warming up", |random, round, _| {
        0.3 * (-(round as f64) / 6.0).exp() + 0.002 * random.normal()
    }),
    (
        "every fourth round",
        |random, round, _| {
            if round % 4 == 1 { 0.05 } else { 0.002 * random.normal() }
        },
    ),
    ("a neighbour", |random, _, _| {
        let is_hit = random.uniform() < 0.1;
        0.005 * random.normal() + if is_hit { 0.5 * random.uniform() } else { 0.0 }
    }),
    ("no moments", |random, _, _| 0.01 * (std::f64::consts::PI * (random.uniform() - 0.5)).tan()),
];

fn plan(seed: u64) -> TrialPlan {
    TrialPlan {
        settings: ["as they are".to_owned(), "C6=off".to_owned()],
        command: "./bench".to_owned(),
        metric: None,
        better: Some(BetterValue::Lower),
        budget: Budget { error_ratio: 0.05, block_count_max: 10 },
        least_ratio: 0.01,
        seed,
    }
}

/// Runs a trial whose rounds take a second with this noise, and under B this much more.
fn run(plan: TrialPlan, noise: Noise, b_more_ratio: f64) -> (Trial, TrialEnd) {
    let mut random = Random::new(plan.seed ^ 0x5eed);
    let mut trial = Trial::new(plan);
    let (mut number, mut last) = (0, 0.0);
    loop {
        let block = trial.next_order().map(|which| {
            last = noise(&mut random, number, last);
            number += 1;
            let more = if which == Which::B { b_more_ratio } else { 0.0 };
            // Far beyond what a command takes, times are cut.
            let wall_ns = (1e9 * (1.0 + more) * last.clamp(-20.0, 20.0).exp()) as u64;
            Round { which, wall_ns, metric: None, energy_uj: None }
        });
        // As much again for settling and the settings, and once more.
        trial.add(block, Duration::from_secs(3 * number as u64));
        if let Some(end) = trial.end() {
            return (trial, end);
        }
    }
}

/// The promise of the whole command: where there is no difference, at most 5 % of 2000 trials find one,
/// whatever the noise is, although each looks four times.
#[test]
fn finds_a_difference_that_is_not_there_in_at_most_5_percent_of_trials() {
    // The last ones have fewer trials, to save time: `rejects_at_most_5_percent_of_all_outcomes` is
    // about all noises.
    for (place, (name, noise)) in NOISES.into_iter().enumerate() {
        let trial_count = if place < 5 { 2_000 } else { 400 };
        let found = (0..trial_count)
            .filter(|&seed| run(plan(seed), noise, 0.0).0.sequential.is_one_rejected());
        let found_count = found.count();
        println!("{name}: {found_count} of {trial_count}");
        assert!(found_count * 20 <= trial_count as usize, "{name}: {found_count} of {trial_count}");
    }
}

/// Wilcoxon's test at 5 % as it is used once, counted outcome by outcome.
fn is_rejected_once(values: &[f64]) -> bool {
    let rank = |value: f64| values.iter().filter(|other| other.abs() <= value.abs()).count() as i32;
    let ranks: Vec<i32> = values.iter().map(|value| rank(*value)).collect();
    let sum = |is_plus: &dyn Fn(usize) -> bool| -> i32 {
        ranks.iter().enumerate().map(|(i, rank)| if is_plus(i) { *rank } else { -*rank }).sum()
    };
    let real = sum(&|i| values[i] > 0.0).abs();
    let outcome_count = 1_u32 << values.len();
    let extreme =
        (0..outcome_count).filter(|bits| sum(&|i| bits >> i & 1 != 0).abs() >= real).count();
    extreme as f64 <= 0.05 * f64::from(outcome_count)
}

/// Without the spending, the same test would err too often: the promise is not empty.
#[test]
fn looking_after_each_block_without_spending_would_err_more_often() {
    let is_rejected = |seed: &u64| {
        let mut random = Random::new(*seed);
        let values: Vec<f64> = (0..10).map(|_| random.normal()).collect();
        (7..=10).any(|count| is_rejected_once(&values[..count]))
    };
    let found_count = (0..300).filter(is_rejected).count();
    assert!(found_count > 20, "{found_count} of 300");
}

/// The same without drawing lots: of all outcomes of the coins, the tests reject at most 5 %.
#[test]
fn rejects_at_most_5_percent_of_all_outcomes_of_the_coins() {
    let budget = Budget { error_ratio: 0.05, block_count_max: 10 };
    let sizes: [fn(usize) -> f64; 4] =
        [|_| 1.0, |i| (i + 1) as f64, |i| 2_f64.powi(-(i as i32)), |i| ((i * 7 + 3) % 5) as f64];
    for (kind, size) in sizes.into_iter().enumerate() {
        let is_rejected = |outcome: &u32| {
            let mut sequential = Sequential::new(budget, 0.01, 1);
            (0..10).any(|i| {
                let sign = if outcome >> i & 1 == 0 { 1.0 } else { -1.0 };
                sequential.add(sign * size(i));
                sequential.is_one_rejected()
            })
        };
        let rejected_count = (0..1024_u32).filter(is_rejected).count();
        assert!((1..=51).contains(&rejected_count), "{kind}: {rejected_count} of 1024");
    }
}

/// Beyond the exact blocks the outcomes are drawn, and the promise is kept.
#[test]
fn long_trials_keep_the_promise() {
    let budget = Budget { error_ratio: 0.05, block_count_max: 20 };
    let long = |seed| TrialPlan { budget, least_ratio: 1e-6, ..plan(seed) };
    let found =
        (0..60).filter(|&seed| run(long(seed), NOISES[1].1, 0.0).0.sequential.is_one_rejected());
    let found_count = found.count();
    assert!(found_count <= 6, "{found_count} of 60");
}

/// A difference of 3 % under noise of 1.5 % in each round.
#[test]
fn finds_3_percent_in_at_most_40_rounds() {
    let noise: Noise =
        |random, round, last| 0.3 * last + 0.0143 * random.normal() + 0.0003 * round as f64;
    let found: Vec<usize> = (0..200)
        .map(|seed| run(plan(seed), noise, 0.03).0)
        .filter(|trial| {
            trial.verdict() == Verdict::Different && trial.sequential.ratio() > Some(1.0)
        })
        .map(|trial| trial.round_count())
        .collect();
    let mean = found.iter().sum::<usize>() / found.len().max(1);
    println!("{} of 200, after {mean} rounds on average", found.len());
    assert!(found.len() >= 190, "{} of 200", found.len());
    assert!(found.iter().all(|count| *count <= 40));
}

/// Noise of 1 %, twenty tries: no difference is found, and most show that there is none of 1 %.
#[test]
fn does_not_find_what_is_not_there_in_twenty_tries() {
    let verdicts: Vec<Verdict> =
        (0..20).map(|seed| run(plan(seed), NOISES[0].1, 0.0).0.verdict()).collect();
    assert!(!verdicts.contains(&Verdict::Different), "{verdicts:?}");
}

/// Where B really differs by the least, "no difference larger" is said in at most 5 % of the trials.
#[test]
fn does_not_deny_a_difference_that_is_there() {
    for (name, noise) in [NOISES[0], NOISES[1], NOISES[7]] {
        let denied = (0..400)
            .filter(|&seed| run(plan(seed), noise, 0.01).0.verdict() == Verdict::NoDifference)
            .count();
        println!("{name}: {denied} of 400");
        assert!(denied <= 20, "{name}: {denied} of 400");
    }
    let quiet: Noise = |random, _, _| 0.004 * random.normal();
    let shown = (0..200)
        .filter(|&seed| run(plan(seed), quiet, 0.0).0.verdict() == Verdict::NoDifference)
        .count();
    assert!(shown >= 190, "{shown} of 200");
}

#[test]
fn the_interval_holds_the_ratio_and_agrees_with_the_verdict() {
    let mut held_count = 0;
    for seed in 0..100 {
        let (trial, _) = run(plan(seed), NOISES[0].1, 0.02);
        let [low, high] = trial.sequential.interval().unwrap();
        let ratio = trial.sequential.ratio().unwrap();
        assert!(low <= ratio && ratio <= high, "{low} {ratio} {high}");
        held_count += usize::from(low <= 1.02 && 1.02 <= high);
        if trial.verdict() == Verdict::NoDifference {
            assert!(low > 1.0 / 1.0101 && high < 1.0101, "{low} {high}");
        }
        if trial.verdict() == Verdict::Different {
            assert!(low > 0.9999 || high < 1.0001, "{low} {high}");
            let is_beyond = low > 1.01 || high < 1.0 / 1.01;
            assert_eq!(trial.sequential.is_least_shown(), is_beyond, "{low} {high}");
        }
    }
    assert!(held_count >= 95, "{held_count} of 100");
}

#[test]
fn a_block_is_symmetric_and_its_coin_is_fair() {
    let orders: Vec<_> = (0..1_000).map(|block| block_order(17, block)).collect();
    for order in &orders {
        let [first, second, third, fourth] = *order;
        assert!(first == fourth && second == third && first != second);
    }
    let count = orders.iter().filter(|order| order[0] == Which::A).count();
    assert!((450..=550).contains(&count), "{count}");
    assert_ne!(
        (0..64).map(|block| block_order(1, block)).collect::<Vec<_>>(),
        (0..64).map(|block| block_order(2, block)).collect::<Vec<_>>()
    );
}

/// The coins fall in the same way again, so a seed repeats a trial's order.
#[test]
fn says_what_it_found() {
    let (trial, end) = run(plan(3), NOISES[0].1, 0.1);
    let text = trial.to_text(end, &TextStyle::default());
    for part in [
        "blocks of four (A B B A or B A A B, chosen at random with seed 3):",
        "C6=off",
        "as they are",
        ": B is worse, by 1 % or more.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let (trial, end) = run(plan(3), NOISES[0].1, -0.1);
    assert!(trial.sentence(end).contains("B is better"), "{}", trial.sentence(end));
    let wild: Noise = |random, _, _| 0.2 * random.normal();
    let (trial, end) = run(plan(5), wild, 0.0);
    assert_eq!((trial.verdict(), end), (Verdict::Undecided, TrialEnd::Rounds));
    let (needed, said) = (trial.round_count_needed().unwrap(), trial.sentence(end));
    let time = format!("take about {:.0} hours: --rounds {needed}", 3.0 * needed as f64 / 3_600.0);
    assert!(said.contains(&time), "{said}");
    let texts = [90.0, 600.0, 36_000.0, 230_452.0].map(duration);
    assert_eq!(texts, ["90 s", "10 minutes", "10 hours", "3 days"]);
    let none = Trial::new(plan(1));
    assert!(
        none.sentence(TrialEnd::Signal).contains("no block"),
        "{}",
        none.sentence(TrialEnd::Signal)
    );
    assert_eq!(none.result_json(TrialEnd::Signal)["ratio"], serde_json::Value::Null);
}

#[test]
fn too_few_rounds_are_known_in_advance() {
    assert_eq!(Budget::block_count_needed(0.05), 7);
    assert_eq!(Budget::block_count_needed(0.01), 8);
    assert!(Budget { error_ratio: 0.05, block_count_max: 7 }.can_decide());
    assert!(!Budget { error_ratio: 0.01, block_count_max: 7 }.can_decide());
}

#[test]
fn the_saved_wall_times_are_those_of_the_rounds() {
    let (trial, _) = run(plan(3), NOISES[0].1, 0.1);
    let series = trial.series();
    assert_eq!(series.len(), 2);
    assert_eq!(series[0].setting, "as they are");
    assert_eq!(series[0].blocks.len() * 4, trial.round_count());
    assert_eq!(trial.rounds_table().row_count(), trial.round_count());
}

/// 3 % under noise that hides it half of the time: those tries that find it report more, and say so. Those that
/// could hardly miss it do not.
#[test]
fn an_estimate_that_was_selected_is_doubted() {
    let found = |noise: Noise, b_more_ratio: f64| -> Vec<Trial> {
        let all = (0..200).map(|seed| run(plan(seed), noise, b_more_ratio).0);
        all.filter(|trial| trial.verdict() == Verdict::Different).collect()
    };
    let of =
        |trials: &[Trial], is: fn(&Trial) -> bool| trials.iter().filter(|trial| is(trial)).count();
    let lucky = found(|random, _, _| 0.035 * random.normal(), 0.03);
    let mean =
        lucky.iter().filter_map(|trial| trial.sequential.ratio()).sum::<f64>() / lucky.len() as f64;
    let doubted = of(&lucky, Trial::is_overstated);
    println!(
        "{} of 200 found 3 %, as {:.2} %; {doubted} say that it is overstated",
        lucky.len(),
        100.0 * (mean - 1.0)
    );
    assert!((20..180).contains(&lucky.len()) && mean > 1.035, "{} {mean}", lucky.len());
    assert!(doubted * 10 >= 9 * lucky.len(), "{doubted} of {}", lucky.len());
    let sentence =
        lucky.iter().find(|trial| trial.is_overstated()).unwrap().sentence(TrialEnd::Decided);
    assert!(sentence.contains("probably smaller than the estimate"), "{sentence}");

    let sure = found(|random, _, _| 0.01 * random.normal(), 0.1);
    assert_eq!((sure.len(), of(&sure, Trial::is_overstated)), (200, 0));
    assert_eq!(of(&sure, |trial| trial.sequential.is_least_shown()), 200);
}

/// B differs by just the least that matters: a difference is found, and hardly ever that it is more.
#[test]
fn at_least_is_said_only_where_it_is_shown() {
    let quiet: Noise = |random, _, _| 0.004 * random.normal();
    let trials: Vec<Trial> = (0..400).map(|seed| run(plan(seed), quiet, 0.01).0).collect();
    let found: Vec<&Trial> =
        trials.iter().filter(|trial| trial.verdict() == Verdict::Different).collect();
    let shown = found.iter().filter(|trial| trial.sequential.is_least_shown()).count();
    println!("{} of 400 found a difference, {shown} that it is 1 % or more", found.len());
    assert!(found.len() >= 100 && shown <= 20, "{} {shown}", found.len());
    let perhaps = found.iter().find(|trial| !trial.sequential.is_least_shown()).unwrap();
    let sentence = perhaps.sentence(TrialEnd::Decided);
    assert!(sentence.contains(": B is worse, but perhaps by less than 1 %."), "{sentence}");
}

/// Beyond the exact blocks each trial compares with other outcomes, and the same seed with the same.
#[test]
fn the_outcomes_of_long_trials_are_drawn_by_the_seed() {
    let budget = Budget { error_ratio: 0.05, block_count_max: 20 };
    let interval = |seed| {
        let mut random = Random::new(5);
        let mut sequential = Sequential::new(budget, 0.01, seed);
        (0..20).for_each(|_| sequential.add(0.02 * random.normal()));
        sequential.interval().unwrap()
    };
    let all: Vec<[f64; 2]> = (0..8).map(interval).collect();
    assert!(all.iter().any(|other| *other != all[0]), "{all:?}");
    assert_eq!(interval(3), all[3]);
}
