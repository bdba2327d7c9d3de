//! What the page and `cases.csv` say of the cases.

use std::fmt::Write;

use idlewise_sim::predict::{COVERED, Durations, Interval, Margin, Margins, Reproduction, Vouched};

use super::cause::Causes;
use super::{CHANGES, Case, Change, Errors, Judged, Set, median};

fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn percent(ratio: f64) -> String {
    let percent = 100.0 * ratio;
    if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") }
}

fn errors_text(errors: &Errors) -> String {
    errors.map(percent).join("/")
}

fn share(n: usize, of: usize) -> String {
    format!("{n} of {of} ({:.0} %)", 100.0 * n as f64 / of.max(1) as f64)
}

/// A column of the page's first table: what is counted, and of a set what `predict` and what a replay has.
type Column<'a> = (&'a str, &'a dyn Fn(&[Judged]) -> [String; 2]);

/// The page's first table: a row for each set.
fn summary(sets: &[(&Set, Vec<Judged>)]) -> String {
    let count = |judged: &[Judged], keeps: fn(&Vouched) -> bool, is: fn([bool; 3]) -> bool| {
        let kept = judged.iter().filter(|of| keeps(&of.reproduction.vouches()));
        let cases: Vec<&Case> = kept.flat_map(|of| &of.cases).collect();
        [false, true].map(|is_replay| {
            let met = cases.iter().filter(|case| is(Case::meets(&case.errors_of(is_replay))));
            share(met.count(), cases.len())
        })
    };
    let signs = |judged: &[Judged]| {
        let cases = || judged.iter().flat_map(|of| &of.cases);
        let of =
            |all: Vec<bool>| format!("{} of {}", all.iter().filter(|is| **is).count(), all.len());
        let predicted = cases().flat_map(|case| case.signs(&case.predicted, &case.played_base));
        let replayed = cases().flat_map(|case| case.signs(&case.replayed, &case.base));
        [of(predicted.flatten().collect()), of(replayed.flatten().collect())]
    };
    let columns: [Column<'_>; 7] = [
        ("whole goal", &|of| count(of, |_| true, |met| met == [true; 3])),
        ("the same, where it gives all figures", &|of| {
            count(of, |vouched| vouched.tail, |met| met == [true; 3])
        }),
        ("throughput and p50, where it gives these", &|of| {
            count(of, |vouched| vouched.middle, |met| met[..2] == [true; 2])
        }),
        ("throughput", &|of| count(of, |_| true, |met| met[0])),
        ("p50", &|of| count(of, |_| true, |met| met[1])),
        ("p99", &|of| count(of, |_| true, |met| met[2])),
        ("right sign of changes > 3 %", &signs),
    ];
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut out = format!("| loads | {} |\n|", names.join(" | "));
    out.push_str(&" --- |".repeat(columns.len() + 1));
    for (set, judged) in sets {
        let cells = columns.iter().map(|(_, of)| of(judged).join("; "));
        write!(out, "\n| {} | {} |", set.meaning, cells.collect::<Vec<_>>().join(" | ")).unwrap();
    }
    out + "\n"
}

/// The page's second table: a row for each load.
fn loads_table(sets: &[(&Set, Vec<Judged>)]) -> String {
    let mut out = "| load | cases met | played, % | wake-ups, % | KS | the kernel again, % | same CPU, % | waits |\n\
                   | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (set, judged) in sets {
        writeln!(out, "| **{}** | | | | | | | |", set.meaning).unwrap();
        for Judged { load, reproduction, again, cases, queues, same_cpu } in judged {
            let Reproduction { throughput_ratio, wake_count_ratio, latency, .. } = reproduction;
            let of = [throughput_ratio, &latency.p50_ratio, &latency.p99_ratio];
            let of = of.map(|ratio| percent(ratio - 1.0)).join("/");
            let refused = match reproduction.vouches() {
                Vouched { middle: false, .. } => " (refused)",
                Vouched { tail: false, .. } => " (no tail)",
                _ => "",
            };
            let met = cases.iter().filter(|case| case.meets_goal()).count();
            let again = again.as_ref().map_or_else(String::new, errors_text);
            writeln!(
                out,
                "| {load}{refused} | {met} of {} | {of} | {} | {:.2} | {again} | {:.0} | {} |",
                cases.len(),
                percent(wake_count_ratio - 1.0),
                latency.distance,
                100.0 * same_cpu,
                queues.each_ref().map(wait_text).join("; ")
            )
            .unwrap();
        }
    }
    out
}

fn wait_text(waits: &Durations) -> String {
    let at = |share| us(waits.at(share).unwrap_or(0));
    format!("{} {}/{}", waits.count(), at(0.5), at(0.99))
}

/// What has intervals.
const FIGURES: [&str; 8] = [
    "throughput",
    "energy",
    "p50",
    "p99",
    "p50 of single tasks",
    "p99 of single tasks",
    "p50 of requests",
    "p99 of requests",
];

/// Of one figure, which is `at` in [`FIGURES`]: by how much intervals must be widened, of the cases of some sets in which
/// `predict` gives the figure.
fn beyond(sets: &[(&Set, Vec<Judged>)], takes: &dyn Fn(&Set) -> bool, at: usize) -> Vec<f64> {
    let of_judged = |of: &Judged| -> Vec<f64> {
        let whole = of.reproduction.vouches();
        match at {
            0..4 => {
                let Vouched { middle, tail, idle } = whole;
                let cases = of.cases.iter().filter(|_| [middle, idle, middle, tail][at]);
                cases.filter_map(|case| case.beyond()[at]).collect()
            }
            _ => {
                let (is_request, of_tail) = (at >= 6, at % 2);
                let singles = of.cases.iter().flat_map(|case| &case.singles);
                let given = singles.filter(|single| {
                    single.is_request == is_request && single.is_given(&whole)[of_tail]
                });
                given.map(|single| single.beyond[of_tail]).collect()
            }
        }
    };
    let of_sets = sets.iter().filter(|(set, _)| takes(set));
    let mut beyond: Vec<f64> =
        of_sets.flat_map(|(_, judged)| judged.iter().flat_map(of_judged)).collect();
    beyond.sort_by(f64::total_cmp);
    beyond
}

/// What `MARGINS` must be, by [`FIGURES`]: so much that as many cases are within as intervals are to contain of those
/// with which the model was made; in thousandths, rounded up.
fn margin_of_each(sets: &[(&Set, Vec<Judged>)]) -> [f64; 8] {
    std::array::from_fn(|at| {
        let made = beyond(sets, &|set| !set.is_apart, at);
        let place = (COVERED * (made.len() + 1) as f64).ceil() as usize;
        let margin = made.get(place.min(made.len()).wrapping_sub(1)).map_or(0.0, |of| of.max(0.0));
        (margin * 1e3).ceil() / 1e3
    })
}

/// The same as they must be in the program.
pub(super) fn margins(sets: &[(&Set, Vec<Judged>)]) -> Margins {
    let [throughput, energy, all, all_tail, task, task_tail, request, request_tail] =
        margin_of_each(sets);
    Margins {
        throughput,
        energy,
        all: Margin { p50: all, p99: all_tail },
        tasks: Margin { p50: task, p99: task_tail },
        requests: Margin { p50: request, p99: request_tail },
    }
}

/// How many measured values the intervals contain that `predict` prints, and how wide these are.
fn coverage(sets: &[(&Set, Vec<Judged>)]) -> String {
    let margins = margin_of_each(sets);
    let mut out = format!("| loads | {} |\n|{}\n", FIGURES.join(" | "), " --- |".repeat(9));
    let mut row = |name: &str, takes: &dyn Fn(&Set) -> bool| {
        let within: [String; 8] = std::array::from_fn(|at| {
            let beyond = beyond(sets, takes, at);
            share(beyond.iter().filter(|&&beyond| beyond <= margins[at]).count(), beyond.len())
        });
        writeln!(out, "| {name} | {} |", within.join(" | ")).unwrap();
    };
    for (set, _) in sets.iter().filter(|(set, _)| set.is_apart) {
        row(set.meaning, &|of| of.folder == set.folder);
    }
    row("both", &|set| set.is_apart);
    row("all others, by which the ranges were chosen", &|set| !set.is_apart);
    let cases: Vec<&Case> =
        sets.iter().flat_map(|(_, judged)| judged).flat_map(|of| &of.cases).collect();
    let widths = [0, 1, 2, 3].map(|at| {
        let width = |case: &&Case| {
            let Interval { low, high } = case.intervals[at].widened(margins[at]);
            high / low - 1.0
        };
        format!("{:.0} %", 100.0 * median(cases.iter().map(width).collect()))
    });
    writeln!(out, "| median width | {} |{}", widths.join(" | "), " |".repeat(4)).unwrap();
    out
}

/// How many figures of single tasks and of requests are right that `predict` gives, and that it leaves out.
fn singles(sets: &[(&Set, Vec<Judged>)]) -> String {
    let mut out = String::from("| loads |");
    for of in ["tasks", "requests"] {
        for figure in ["p50", "p99"] {
            write!(out, " {figure} of {of}; left out |").unwrap();
        }
    }
    out.push_str("\n| --- | --- | --- | --- | --- |\n");
    for (set, judged) in sets {
        let count = |is_request: bool, at: usize, is_given: bool| {
            let (mut met, mut all) = (0, 0);
            for of in judged {
                let whole = of.reproduction.vouches();
                let singles = of.cases.iter().flat_map(|case| &case.singles);
                for single in singles.filter(|single| single.is_request == is_request) {
                    if single.is_given(&whole)[at] == is_given {
                        met += usize::from(single.meets[at]);
                        all += 1;
                    }
                }
            }
            share(met, all)
        };
        let cells = [(false, 0), (false, 1), (true, 0), (true, 1)]
            .map(|(is_request, at)| [true, false].map(|is| count(is_request, at, is)).join("; "));
        writeln!(out, "| {} | {} |", set.meaning, cells.join(" | ")).unwrap();
    }
    out
}

/// Why cases miss the goal, and how many.
fn causes_list(sets: &[(&Set, Vec<Judged>)], causes: &Causes) -> String {
    let mut counts = vec![0; causes.0.len()];
    for (set, judged) in sets {
        for of in judged {
            let missed = of.cases.iter().filter(|case| !case.meets_goal());
            for at in missed.filter_map(|case| causes.of(set, case)) {
                counts[at] += 1;
            }
        }
    }
    let mut out = String::new();
    for (at, (cause, count)) in causes.0.iter().zip(counts).enumerate() {
        let of = if count == 1 { "case" } else { "cases" };
        writeln!(out, "{}. {} ({count} {of}.)", at + 1, cause.why).unwrap();
    }
    out
}

/// `cases.csv`: each case, with the cause if it misses the goal.
pub(super) fn cases_csv(sets: &[(&Set, Vec<Judged>)], causes: &Causes) -> String {
    let mut out =
        "set,load,change,measured_throughput_change_percent,predicted_throughput_change_percent,\
        measured_p50_us,predicted_p50_us,measured_p99_us,predicted_p99_us,throughput_error_percent,\
        p50_error_percent,p99_error_percent,meets_goal,cause\n"
            .to_owned();
    for (set, judged) in sets {
        for case in judged.iter().flat_map(|of| &of.cases) {
            let Case { base, played_base, measured, predicted, .. } = case;
            let cause = if case.meets_goal() { None } else { causes.of(set, case) };
            let cause = cause.map_or_else(String::new, |at| (at + 1).to_string());
            writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{},{},{cause}",
                set.folder,
                case.load,
                case.change.name,
                percent(measured.throughput_change(base)),
                percent(predicted.throughput_change(played_base)),
                us(measured.p50_ns),
                us(predicted.p50_ns),
                us(measured.p99_ns),
                us(predicted.p99_ns),
                case.errors_of(false).map(percent).join(","),
                case.meets_goal(),
            )
            .unwrap();
        }
    }
    out
}

/// What the page says.
pub(super) fn page(sets: &[(&Set, Vec<Judged>)], causes: &Causes) -> String {
    let changes = CHANGES.iter().map(|Change { name, meaning, .. }| format!("{name} ({meaning})"));
    let changes: Vec<String> = changes.collect();
    format!(
        "{}\n{}\nOf single tasks, by name, and of requests between them, with 50 at least, so many percentiles are within 10 %:\n\n{}\nPlayed under the recorded setting: errors of throughput/p50/p99, number of wake-ups, and KS of their latencies; \
         how close the kernel comes in a second run; how many steps ran on the CPU that the kernel chose; and how often \
         woken tasks waited behind another, and how long (p50/p99, µs), in the kernel; played.\n\n{}\nWhy predictions miss the goal:\n\n{}\nThe changes: {}.\n",
        summary(sets),
        coverage(sets),
        singles(sets),
        loads_table(sets),
        causes_list(sets, causes),
        changes.join(", ")
    )
}
