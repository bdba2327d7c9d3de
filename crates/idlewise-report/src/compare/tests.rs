use super::*;
use crate::saved::Block;
use crate::saved::MachineFact;

fn fact(fact: &str, value: &str) -> MachineFact {
    MachineFact { fact: fact.to_owned(), value: Some(value.to_owned()) }
}

fn saved(measurement: &str, series: Vec<SavedSeries>) -> Saved {
    Saved {
        measurement: measurement.to_owned(),
        program: "idlewise 0.1.0".to_owned(),
        date: "2026-11-22".to_owned(),
        machine: vec![fact("kernel", "6.12.1")],
        series,
        doubt_count: 0,
        run_count: RUN_COUNT_MIN,
        conditions: Vec::new(),
        doubts: Vec::new(),
    }
}

/// Runs that took turns, A first.
fn in_turns(mut a: Saved, mut b: Saved) -> [Saved; 2] {
    for (saved, first) in [(&mut a, 0), (&mut b, 1)] {
        let count = saved.run_count as u64;
        let at = |nth| Conditions { at_s: Some(60 * (2 * nth + first)), ..Conditions::default() };
        saved.conditions = (0..count).map(at).collect();
    }
    [a, b]
}

/// Values whose percentiles are the given ones: `count` values, dealt out to 50 blocks.
fn series_with(percentiles: &[(u64, f64)], count: u64) -> SavedSeries {
    let mut blocks = vec![Block::default(); 50];
    for nth in 1..=count {
        let value = percentiles.iter().find(|(hundredths, _)| {
            let rank = (u128::from(count) * u128::from(*hundredths)).div_ceil(10_000);
            u128::from(nth) <= rank
        });
        let value = value.map_or(percentiles[percentiles.len() - 1].1, |(_, value)| *value);
        let block = &mut blocks[(nth % 50) as usize];
        match block.0.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => block.0.push((value, 1)),
        }
    }
    SavedSeries::times("wake latency", "another core", "HALT", blocks)
}

/// The table of the mail that proposed MWAIT instead of HALT on AMD.
fn published() -> [SavedSeries; 2] {
    let hundredths = [1, 2500, 5000, 7500, 9000, 9500, 9900, 9950, 9990, 9995, 9999, 10_000];
    let halt = [1700., 1900., 2000., 2300., 2500., 2600., 2800., 3000., 3400., 3600., 5900., 5900.];
    let mwait =
        [1200., 1400., 1500., 1700., 1800., 1900., 2300., 2500., 3200., 3500., 4600., 4600.];
    let with = |values: [f64; 12], count| {
        let percentiles: Vec<(u64, f64)> = hundredths.into_iter().zip(values).collect();
        series_with(&percentiles, count)
    };
    let [a, mut b] = [with(halt, 9_999), with(mwait, 9_997)];
    b.setting = "MWAIT".to_owned();
    [a, b]
}

/// The same, a little slower in each block than in the one before, as runs may be.
fn varying(mut series: SavedSeries, first_ns: u64) -> SavedSeries {
    for (block, by_ns) in series.blocks.iter_mut().zip(first_ns..) {
        block.0.iter_mut().for_each(|(value, _)| *value += by_ns as f64);
    }
    series
}

#[test]
fn computes_the_published_improvement() {
    let [a, b] = published();
    // The values are dealt out, so that blocks hardly differ, as runs would.
    let comparison = Comparison::in_turns(&saved("ipi", vec![a]), &saved("ipi", vec![b])).unwrap();
    let text = comparison.to_text(&TextStyle::default(), false);
    assert!(text.contains("wake latency, another core, HALT → MWAIT: A 9999 values"), "{text}");
    assert!(text.contains("Improvement (99th percentile): 21.74 % (95 % interval "), "{text}");
    assert!(text.contains("Improvement (median): 33.33 % (95 % interval "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let csv = comparison.table("").to_csv();
    let row = csv.lines().find(|line| line.contains(",99,")).unwrap();
    assert!(row.starts_with("wake latency,another core,HALT → MWAIT,99,2800,2300,"), "{row}");
}

#[test]
fn more_is_better_for_rates() {
    let of = |value: f64| {
        let mut series = SavedSeries::times(
            "context switches",
            "same CPU",
            "yield",
            (0..100).map(|nth| Block::of(value + f64::from(nth % 5 - 2))).collect(),
        );
        series.unit = SeriesUnit::PerSecond;
        series.better = Some(BetterValue::Higher);
        saved("switch", vec![series])
    };
    let comparison = Comparison::new(&of(192_844.0), &of(280_504.0)).unwrap();
    let text = comparison.to_text(&TextStyle::default(), false);
    // One value in a hundred is beyond it.
    assert!(text.contains("Improvement (99th percentile): 45.46 % (no interval)"), "{text}");
    assert!(text.contains("Improvement (median): 45.46 % (95 % interval 45.46 to 45.46 %)"));
}

/// A row of equal values has no width to show, whatever it was copied from.
#[test]
fn runs_that_do_not_vary_have_no_interval() {
    let of = |first: u64, step: u64| {
        let blocks = (0..10).map(|nth| Block::of((first + step * nth) as f64)).collect();
        let mut series = SavedSeries::times("round trip", "same CPU", "futex", blocks);
        series.statistic = Statistic::Median;
        saved("switch", vec![series])
    };
    let doubt_of =
        |name: &str| format!("some figures have exactly the same value in all runs of {name}");
    for (a, b, has_interval) in [
        (of(1_000, 1), of(2_000, 1), true),
        (of(1_000, 0), of(2_000, 1), false),
        (of(1_000, 1), of(2_000, 0), false),
        (of(1_000, 0), of(2_000, 0), false),
    ] {
        let is_same = |one: &Saved| one.series[0].blocks[0] == one.series[0].blocks[1];
        let is_same = [("A", is_same(&a)), ("B", is_same(&b))];
        let [a, b] = in_turns(a, b);
        let comparison = Comparison::new(&a, &b).unwrap();
        assert_eq!(comparison.pairs[0].lines[0].interval.is_some(), has_interval);
        for (name, is_same) in is_same {
            let doubts = comparison.notes().doubts();
            let is_said = doubts.filter(|(it, _)| it.starts_with(&doubt_of(name))).count() == 1;
            assert_eq!(is_said, is_same, "{name}");
        }
    }
}

/// Copies of a run, also with another time, say no more than the run.
#[test]
fn copies_count_once() {
    let mut later = run(3);
    later.conditions[0].at_s = Some(100_000);
    let joined = run(3).joined(&[run(3), later.clone(), run(4), run(3), run(4)]).unwrap();
    assert_eq!((joined.run_count, joined.conditions.len()), (2, 2));
    assert_eq!(joined.series[0].blocks.len(), 100);
    assert_eq!(
        joined.doubts,
        ["4 of its 6 files have the same values as another one; copies count once"]
    );
    let six = vec![later; 6];
    let [a, b] = [run(3).joined(&six).unwrap(), run(4).joined(&six).unwrap()];
    assert_eq!((a.run_count, b.run_count), (1, 2));
    let comparison = Comparison::new(&a, &b).unwrap();
    assert!(comparison.pairs[0].lines.iter().all(|line| line.interval.is_none()));
    let itself = Comparison::new(&a, &a).unwrap();
    assert!(itself.notes().doubts().any(|(doubt, _)| doubt.contains("with itself")));
}

/// 40 blocks of one value each: 1 to 40. The standard error of their mean is 1.82 (with the
/// population's variance of 133.25), so that 95 % of the resampled means are within 3.57 of 20.5.
#[test]
fn an_interval_of_a_mean_has_the_width_of_its_standard_error() {
    let of = |add: f64| {
        let blocks = (1..=40).map(|i| Block::of(f64::from(i) + add)).collect();
        let mut series = SavedSeries::times("power", "package 0", "", blocks);
        series.statistic = Statistic::Mean;
        series.better = None;
        saved("counters", vec![series])
    };
    // A's values hardly vary, so the interval is B's.
    let mut a = of(0.0);
    a.series[0].blocks =
        (0..40).map(|nth| Block::of(20.5 + 0.001 * f64::from(nth % 2 * 2 - 1))).collect();
    let [a, b] = in_turns(a, of(0.0));
    let comparison = Comparison::new(&a, &b).unwrap();
    let line = &comparison.pairs[0].lines[0];
    assert_eq!((line.a, line.b), (Some(20.5), Some(20.5)));
    assert_eq!((line.change(), line.improvement()), (Some(0.0), None));
    let [low, high] = line.interval.unwrap().map(|ratio| 20.5 * ratio);
    assert!((low + 3.57).abs() < 0.4 && (high - 3.57).abs() < 0.4, "{low} {high}");
}

/// An independent implementation: expands all values and sorts them.
#[test]
fn percentiles_of_drawn_blocks_are_those_of_their_values() {
    let [a, _] = published();
    let sample = Sample::new(&a).unwrap();
    let mut draw = Draw::pair();
    for round in 0..20 {
        let mut weights = vec![1; 50];
        if round > 0 {
            draw[0].weights(&mut weights);
        }
        assert_eq!(weights.iter().sum::<u64>(), 50);
        let mut values: Vec<f64> = Vec::new();
        for (block, weight) in a.blocks.iter().zip(&weights) {
            for (value, count) in &block.0 {
                values.extend(std::iter::repeat_n(*value, (count * weight) as usize));
            }
        }
        values.sort_unstable_by(f64::total_cmp);
        for hundredths in PERCENTILES {
            let nth = (values.len() as u64 * hundredths).div_ceil(10_000).max(1);
            let expected = values.get(nth as usize - 1).copied();
            assert_eq!(sample.statistic(Rank::Hundredths(hundredths), &weights), expected);
        }
        let sum: f64 = values.iter().sum();
        let mean = sample.statistic(Rank::Mean, &weights).unwrap();
        assert!((mean - sum / values.len() as f64).abs() < 1e-6);
    }
}

/// Six figures, some of them rates: each table has one column of A and one of B.
#[test]
fn many_figures_are_shown_by_unit() {
    let mut series = Vec::new();
    for place in ["one", "another", "a third"] {
        let times = published()[0].blocks.clone();
        series.push(SavedSeries::times("round trip", place, "futex", times));
        let rates = (1..=50).map(|i| Block::of(f64::from(i) * 1e4)).collect();
        let mut rates = SavedSeries::times("context switches", place, "futex", rates);
        (rates.unit, rates.better) = (SeriesUnit::PerSecond, Some(BetterValue::Higher));
        series.push(rates);
    }
    let all = saved("switch", series);
    let text = Comparison::new(&all, &all).unwrap().to_text(&TextStyle::default(), false);
    for title in ["prints all): times", "prints all): rates"] {
        let table = text.split(title).nth(1).unwrap_or_else(|| panic!("no {title}: {text}"));
        let heading = table.lines().find(|line| line.starts_with("figure")).unwrap();
        assert!(heading.contains("us ") || heading.contains("k/s "), "{text}");
    }
    assert!(!text.contains("Not shown"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn unlike_kinds_and_nothing_in_common_are_refused() {
    let [a, b] = published();
    let error = Comparison::new(&saved("ipi", vec![a.clone()]), &saved("timer", vec![b.clone()]));
    let error = error.unwrap_err();
    assert_eq!(error, "A is a measurement of ipi, B one of timer: compare two of the same kind");
    let mut other = b;
    other.figure = "send cost".to_owned();
    let error = Comparison::new(&saved("ipi", vec![a]), &saved("ipi", vec![other]));
    assert!(error.unwrap_err().starts_with("A and B have no case in common: A has another"));
}

#[test]
fn says_in_what_the_machines_differ_and_what_only_one_has() {
    let [one, other] = published().map(|series| varying(series, 0));
    let mut more = one.clone();
    more.place = "SMT sibling".to_owned();
    let a = saved("ipi", vec![one.clone(), more]);
    let mut b = saved("ipi", vec![one, other]);
    b.machine = vec![fact("kernel", "6.1.0"), fact("CPU", "another")];
    b.doubt_count = 2;
    let [a, b] = in_turns(a, b);
    let comparison = Comparison::new(&a, &b).unwrap();
    let doubts: Vec<&str> = comparison.notes().doubts().map(|(doubt, _)| doubt).collect();
    assert_eq!(
        doubts,
        [
            "A and B differ in kernel: 6.12.1; 6.1.0",
            "B has doubts of its own (2): see the file",
            "only A has wake latency of SMT sibling, HALT",
            "only B has wake latency of another core, MWAIT",
        ]
    );
    assert_eq!(comparison.pairs.len(), 1);
    let [a, b] = in_turns(a, saved("ipi", vec![varying(published()[0].clone(), 0)]));
    let alone = Comparison::new(&a, &b).unwrap();
    let doubts: Vec<&str> = alone.notes().doubts().map(|(doubt, _)| doubt).collect();
    assert_eq!(doubts, ["only A has wake latency of SMT sibling, HALT"]);
}

/// Runs of one setting, whose values all differ from run to run: 1000 to 1009, 1010 to 1019, ...
fn run(nth: u64) -> Saved {
    let times: Vec<u64> = (0..1_000).map(|i| 1_000 + 10 * nth + i % 10).collect();
    let series = SavedSeries::times("wake latency", "CPU 1", "C1", Block::divided(&times));
    let at = Conditions { at_s: Some(60 * nth), ..Conditions::default() };
    Saved { run_count: 1, conditions: vec![at], ..saved("ipi", vec![series]) }
}

/// Two runs of the same setting differ, and the blocks of one know nothing of that.
#[test]
fn only_several_runs_show_how_runs_differ() {
    let alone = Comparison::new(&run(3), &run(7)).unwrap();
    let median = |comparison: &Comparison| {
        let lines = &comparison.pairs[0].lines;
        lines.iter().find(|line| line.rank == Rank::Hundredths(MEDIAN)).unwrap().clone()
    };
    assert_eq!(median(&alone).interval, None);
    let (doubt, _) = alone.notes().doubts().next().unwrap();
    assert!(
        doubt.starts_with("one run of A and one run of B do not show how much runs differ"),
        "{doubt}"
    );

    // Two sets of ten runs, dealt out in turns.
    let set = |first: u64| {
        let more: Vec<Saved> = (1..10).map(|nth| run(2 * nth + first)).collect();
        run(first).joined(&more).unwrap()
    };
    let several = Comparison::new(&set(0), &set(1)).unwrap();
    assert_eq!(several.pairs[0].amounts, [(10_000, 10); 2], "a block for each run");
    let [low, high] = median(&several).interval.unwrap();
    assert!(low < 0.0 && high > 0.0, "undecided: {low} {high}");
    assert_eq!(several.notes().doubts().count(), 0);

    // In whichever order the files are named.
    let more: Vec<Saved> = (0..9).rev().map(run).collect();
    let sorted = run(9).joined(&more).unwrap();
    let least: Vec<f64> = sorted.series[0].blocks.iter().map(|block| block.0[0].0).collect();
    assert!(sorted.conditions.is_sorted_by_key(|run| run.at_s) && least.is_sorted(), "{least:?}");
    assert_eq!((least.len(), least[0]), (10, 1_000.0));

    let few = run(0).joined(&[run(1)]).unwrap();
    assert_eq!(few.series[0].blocks.len(), 100, "all blocks of both");
    let mut other = run(1);
    other.machine = vec![fact("kernel", "6.1.0")];
    assert_eq!(
        run(0).joined(&[other.clone()]).unwrap().doubts,
        ["its runs differ in kernel: 6.12.1; 6.1.0"]
    );
    other.measurement = "timer".to_owned();
    let error = run(0).joined(&[other]).unwrap_err();
    assert_eq!(error, "run 1 is a measurement of ipi, run 2 one of timer");
}

/// Files may be damaged or made up.
#[test]
fn a_damaged_file_is_refused_or_compared() {
    let [a, _] = published();
    let document = serde_json::json!({
        "measurement": "ipi",
        "machine": [{ "fact": "kernel", "value": "6.12.1" }],
        "series": [a],
    });
    let text = document.to_string();
    let whole = Saved::from_json(&text).unwrap();
    let mut number: u64 = 1;
    let mut below = |count: usize| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) as usize % count
    };
    let mut compared_count = 0;
    for _ in 0..30 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            bytes[at] = b"0123456789x. \"-e"[below(16)];
        }
        let damaged = Saved::from_json(&String::from_utf8_lossy(&bytes));
        if let Ok(damaged) = damaged
            && let Ok(comparison) = Comparison::new(&whole, &damaged)
        {
            comparison.to_text(&TextStyle::default(), false);
            compared_count += 1;
        }
    }
    assert!((1..30).contains(&compared_count), "{compared_count}");
}

#[test]
fn few_blocks_have_no_interval() {
    let [a, mut b] = published();
    b.blocks.truncate(RUN_COUNT_MIN - 1);
    let (a, b) = (saved("ipi", vec![a]), saved("ipi", vec![b]));
    let comparison = Comparison::in_turns(&a, &b).unwrap();
    assert!(comparison.pairs[0].lines.iter().all(|line| line.interval.is_none()));
    let (doubt, _) = comparison.notes().doubts().next().unwrap();
    assert!(doubt.starts_with("B has as few as 6 blocks of values, too few for an interval"));
}

/// A machine that changes while it is measured, by five kinds of drift. Each run is one of its moments.
struct Drifting(u64);

impl Drifting {
    const KINDS: [&str; 5] = ["none", "remembers", "walks", "is loaded at times", "is a line"];

    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// The times of so many runs, one after the other.
    fn times(&mut self, kind: &str, count: usize) -> Vec<f64> {
        let (mut remembered, mut walked, mut is_loaded) =
            (3.0 * self.normal(), 0.0, self.uniform() < 0.5);
        (0..count)
            .map(|nth| {
                remembered = 0.8 * remembered + 1.8 * self.normal();
                walked += self.normal();
                is_loaded ^= self.uniform() < 0.15;
                let drift = match kind {
                    "remembers" => remembered,
                    "walks" => walked,
                    "is loaded at times" if is_loaded => 40.0,
                    "is a line" => 5.0 * nth as f64 / count as f64,
                    _ => 0.0,
                };
                1_000.0 * (1.0 + 0.01 * (self.normal() + drift))
            })
            .collect()
    }
}

/// A measurement of runs: their times, and when each was made. The values of one run hardly vary.
fn of_runs(runs: &[(u64, f64)]) -> Saved {
    let one = |&(at_s, time): &(u64, f64)| {
        let blocks = (0..10).map(|nth| Block::of(time + f64::from(nth % 3))).collect();
        let mut series = SavedSeries::times("wake latency", "CPU 1", "C1", blocks);
        series.statistic = Statistic::Mean;
        let conditions = vec![Conditions { at_s: Some(at_s), ..Conditions::default() }];
        Saved { run_count: 1, conditions, ..saved("ipi", vec![series]) }
    };
    let all: Vec<Saved> = runs.iter().map(one).collect();
    all[0].clone().joined(&all[1..]).unwrap()
}

fn has_decided(a: &[(u64, f64)], b: &[(u64, f64)]) -> bool {
    let comparison = Comparison::new(&of_runs(a), &of_runs(b)).unwrap();
    comparison.pairs[0].lines[0].interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
}

/// 500 comparisons of A with A in each order, on a machine that changes: few find a difference. The draws are always
/// the same.
#[test]
fn a_changing_machine_is_no_difference() {
    const RUN_COUNT: usize = 8;
    const PAIR_COUNT: usize = 100;
    let mut drifting = Drifting(1);
    let mut found = [[0; Drifting::KINDS.len()]; 2];
    for (nth, kind) in Drifting::KINDS.iter().enumerate() {
        for _ in 0..PAIR_COUNT {
            let times = drifting.times(kind, 2 * RUN_COUNT);
            let runs: Vec<(u64, f64)> = (0..).map(|nth| 60 * nth).zip(times).collect();
            let (first, last) = runs.split_at(RUN_COUNT);
            let [even, odd] = [0, 1].map(|skipped| -> Vec<(u64, f64)> {
                runs.iter().skip(skipped).step_by(2).copied().collect()
            });
            found[0][nth] += usize::from(has_decided(first, last));
            found[1][nth] += usize::from(has_decided(&even, &odd));
        }
    }
    for (order, found) in ["one after the other", "in turns"].iter().zip(found) {
        let sum: usize = found.iter().sum();
        println!(
            "{order}: {sum} of 500 find a difference; of {PAIR_COUNT} each: {:?} {found:?}",
            Drifting::KINDS
        );
        let all = PAIR_COUNT * Drifting::KINDS.len();
        assert!(sum * 100 <= 7 * all, "{order}: {sum} of {all}: {found:?}");
        assert!(found.iter().all(|count| *count <= 12), "{order}: {found:?}");
    }
}

/// The widened interval still finds what is there.
#[test]
fn a_difference_is_found_in_either_order() {
    let mut drifting = Drifting(2);
    let mut slower = |factor: f64| -> Vec<f64> {
        drifting.times("none", 8).into_iter().map(|time| factor * time).collect()
    };
    for (step, gap) in [(2, 1), (1, 8)] {
        let runs = |times: Vec<f64>, first: u64| -> Vec<(u64, f64)> {
            (0..).map(|nth| 60 * (step * nth + first)).zip(times).collect()
        };
        let (a, b) = (runs(slower(1.0), 0), runs(slower(1.2), gap));
        assert!(has_decided(&a, &b), "{step}");
    }
}

/// Two runs of one setting, the second while the machine was loaded: 94.6 % less, and not by chance within the two.
#[test]
fn one_run_of_each_decides_nothing() {
    let [a, b] = [(0, 1_000.0), (60, 18_600.0)].map(|run| of_runs(&[run]));
    let comparison = Comparison::new(&a, &b).unwrap();
    let line = &comparison.pairs[0].lines[0];
    assert!(line.improvement().unwrap() < -0.94 && line.interval.is_none());
}

#[test]
fn load_and_order_are_doubts() {
    let [a, _] = published();
    let of = |others_ratio: f64, stolen_ratio: f64, at_s: u64| {
        let (others_ratio, stolen_ratio) = (Some(others_ratio), Some(stolen_ratio));
        let runs =
            (0..7).map(|nth| Conditions { at_s: Some(at_s + nth), others_ratio, stolen_ratio });
        Saved { conditions: runs.collect(), ..saved("ipi", vec![varying(a.clone(), at_s)]) }
    };
    let doubts = |a: &Saved, b: &Saved| {
        let comparison = Comparison::new(a, b).unwrap();
        comparison.notes().doubts().map(|(doubt, _)| doubt.to_owned()).collect::<Vec<String>>()
    };
    let found = doubts(&of(0.45, 0.0, 0), &of(0.02, 0.12, 100));
    assert!(found[0].starts_with("the runs of A and B did not take turns"), "{found:?}");
    assert!(
        found[1].starts_with("A was measured on a loaded machine: other processes took 45 %"),
        "{found:?}"
    );
    assert!(
        found[2].contains("of the CPU time, the host 12 %") && found[2].starts_with("B was"),
        "{found:?}"
    );
    let idle = of(0.02, 0.0, 0);
    let unknown = Saved { conditions: Vec::new(), ..idle.clone() };
    assert!(doubts(&idle, &unknown)[0].starts_with("the files do not say whether"));
    assert_eq!(doubts(&idle, &of(0.02, 0.0, 1)), Vec::<String>::new());
}

/// A measured in hundreds of ns, B in hundreds of us: both are printed in the unit that fits both.
#[test]
fn both_sides_have_one_unit() {
    let of = |ns: f64| {
        let series =
            SavedSeries::times("wake latency", "CPU 1", "C1", vec![Block(vec![(ns, 20)]); 10]);
        saved("ipi", vec![series])
    };
    for [a, b] in [[400.0, 250_000.0], [250_000.0, 400.0], [1_200.0, 9_000.0]] {
        let text = Comparison::new(&of(a), &of(b)).unwrap().to_text(&TextStyle::default(), false);
        let units = text.lines().take(8).map(|line| -> Vec<&str> {
            line.split_whitespace().filter(|word| ["ns", "us", "ms"].contains(word)).collect()
        });
        let units = units.max_by_key(Vec::len).unwrap();
        assert!(units.len() == 2 && units[0] == units[1], "{text}");
    }
}
