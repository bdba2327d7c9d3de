//! What the page and `cases.csv` say of the cases.

use std::fmt::Write;

use idlewise_sim::predict::{COVERED, Durations, Interval, Reproduction, Vouched};

use super::{CHANGES, Case, Change, Errors, Judged, MissCause, Set, median};

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

/// A row of the page's first table: what is counted, and of a set what `predict` and what a replay has.
type Row<'a> = (&'a str, &'a dyn Fn(&[Judged]) -> [String; 2]);

/// The page's first table: a column for each set.
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
    let medians = |judged: &[Judged]| {
        let cases: Vec<&Case> = judged.iter().flat_map(|of| &of.cases).collect();
        [false, true].map(|is_replay| {
            let one = |at: usize| {
                median(cases.iter().map(|case| case.errors_of(is_replay)[at].abs()).collect())
            };
            [0, 1, 2].map(|at| format!("{:.1}", 100.0 * one(at))).join("/")
        })
    };
    let rows: [Row<'_>; 8] = [
        ("whole goal", &|of| count(of, |_| true, |met| met == [true; 3])),
        ("the same, where `predict` gives all figures", &|of| {
            count(of, |vouched| vouched.tail, |met| met == [true; 3])
        }),
        ("throughput and p50, where it gives these", &|of| {
            count(of, |vouched| vouched.middle, |met| met[..2] == [true; 2])
        }),
        ("throughput within 5 %", &|of| count(of, |_| true, |met| met[0])),
        ("p50 within 10 %", &|of| count(of, |_| true, |met| met[1])),
        ("p99 within 10 %", &|of| count(of, |_| true, |met| met[2])),
        ("right sign of changes > 3 %", &signs),
        ("median error: throughput/p50/p99, %", &medians),
    ];
    let names: Vec<&str> = sets.iter().map(|(set, _)| set.meaning).collect();
    let mut out = format!("| predict; replay | {} |\n|", names.join(" | "));
    out.push_str(&" --- |".repeat(sets.len() + 1));
    for (name, of) in rows {
        let cells: Vec<String> = sets.iter().map(|(_, judged)| of(judged).join("; ")).collect();
        write!(out, "\n| {name} | {} |", cells.join(" | ")).unwrap();
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

/// Of one figure, which is `at` in [`Errors`]: by how much intervals must be widened, of the cases in which `predict` gives the
/// figure. The set kept apart is the first.
fn beyond(sets: &[(&Set, Vec<Judged>)], is_apart: bool, at: usize) -> Vec<f64> {
    let is_given = |of: &&Judged| {
        let Vouched { middle, tail, .. } = of.reproduction.vouches();
        if at < 2 { middle } else { tail }
    };
    let of_sets = sets.iter().enumerate().filter(|(place, _)| (*place == 0) == is_apart);
    let judged = of_sets.flat_map(|(_, (_, judged))| judged).filter(is_given);
    let mut beyond: Vec<f64> =
        judged.flat_map(|of| &of.cases).map(|case| case.beyond()[at]).collect();
    beyond.sort_by(f64::total_cmp);
    beyond
}

/// What `MARGINS` must be: of throughput, p50 and p99, so much that as many cases are within as intervals are to contain of those
/// with which the model was made; in thousandths, rounded up.
pub(super) fn margins(sets: &[(&Set, Vec<Judged>)]) -> [f64; 3] {
    [0, 1, 2].map(|at| {
        let made = beyond(sets, false, at);
        let place = (COVERED * (made.len() + 1) as f64).ceil() as usize;
        let margin = made[place.min(made.len()) - 1].max(0.0);
        (margin * 1e3).ceil() / 1e3
    })
}

/// How many measured values the intervals contain that `predict` prints, and how wide these are.
fn coverage(sets: &[(&Set, Vec<Judged>)]) -> String {
    let margins = margins(sets);
    let mut out = "| interval of | bound to no CPU, kept apart | the others, by which it was chosen | median width, % |\n\
                   | --- | --- | --- | --- |\n"
        .to_owned();
    for (at, name) in ["throughput", "p50", "p99"].into_iter().enumerate() {
        let within = |is_apart: bool| {
            let beyond = beyond(sets, is_apart, at);
            let within = beyond.iter().filter(|&&beyond| beyond <= margins[at]).count();
            share(within, beyond.len())
        };
        let cases = sets.iter().flat_map(|(_, judged)| judged).flat_map(|of| &of.cases);
        let width = |case: &Case| {
            let Interval { low, high } = case.intervals[at].widened(margins[at]);
            high / low - 1.0
        };
        let width = median(cases.map(width).collect());
        writeln!(out, "| {name} | {} | {} | {:.0} |", within(true), within(false), 100.0 * width)
            .unwrap();
    }
    out
}

/// Why cases miss the goal.
fn causes_list(causes: &[MissCause]) -> String {
    let mut out = String::new();
    for (at, cause) in causes.iter().enumerate() {
        let of = if cause.cases.len() == 1 { "case" } else { "cases" };
        writeln!(out, "{}. {} ({} {of}.)", at + 1, cause.why.trim(), cause.cases.len()).unwrap();
    }
    out
}

/// `cases.csv`: each case, with the cause if it misses the goal.
pub(super) fn cases_csv(sets: &[(&Set, Vec<Judged>)], causes: &[MissCause]) -> String {
    let mut out =
        "set,load,change,measured_throughput_change_percent,predicted_throughput_change_percent,\
        measured_p50_us,predicted_p50_us,measured_p99_us,predicted_p99_us,throughput_error_percent,\
        p50_error_percent,p99_error_percent,meets_goal,cause\n"
            .to_owned();
    for (set, judged) in sets {
        for case in judged.iter().flat_map(|of| &of.cases) {
            let Case { base, played_base, measured, predicted, .. } = case;
            let name = set.name_of(case);
            let cause = causes.iter().position(|cause| cause.cases.contains(&name));
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
                case.errors(predicted).map(percent).join(","),
                case.meets_goal(),
            )
            .unwrap();
        }
    }
    out
}

/// What the page says.
pub(super) fn page(sets: &[(&Set, Vec<Judged>)], causes: &[MissCause]) -> String {
    let changes = CHANGES.iter().map(|Change { name, meaning, .. }| format!("{name} ({meaning})"));
    let changes: Vec<String> = changes.collect();
    format!(
        "{}\n{}\nPlayed under the recorded setting: errors of throughput/p50/p99, number of wake-ups, and KS of their latencies; \
         how close the kernel comes in a second run; how many steps ran on the CPU that the kernel chose; and how often \
         woken tasks waited behind another, and how long (p50/p99, µs), in the kernel; played.\n\n{}\nWhy predictions miss the goal:\n\n{}\nThe changes: {}.\n",
        summary(sets),
        coverage(sets),
        loads_table(sets),
        causes_list(causes),
        changes.join(", ")
    )
}
