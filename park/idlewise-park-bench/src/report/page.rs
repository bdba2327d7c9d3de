//! docs/park/measured.md. The whole page is generated from one saved measurement.

use std::fmt::Write as _;

use super::goals::{Figure, Goal, Verdict, judge, of_way};
use super::result::{ParkResult, ParkWorkload};
use super::{calls, round_trips, summary, timeouts};
use idlewise_report::saved::MachineFact;
use idlewise_report::shown_in_line;
use idlewise_report::statistics::estimate;

/// The figures with intervals in a workload's table, in microseconds.
const LATENCIES: [Figure; 3] =
    [|one| one.wake_latency_p50_ns, |one| one.wake_latency_mean_ns, |one| one.wake_latency_p99_ns];

/// Returns the file name of a workload's plot for the page `stem`. Characters of the workload's
/// name that could be special in a file name are replaced.
pub fn plot_name(stem: &str, workload: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let name: String = workload.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    format!("{stem}-{name}.svg")
}

/// Returns the page `stem`, which refers to the plots beside it ([`plot_name`]).
pub fn to_markdown(result: &ParkResult, stem: &str) -> String {
    let goals = judge(result);
    let mut text =
        "# What idlewise-park measured\n\n<!-- Made by `make measured`; do not edit. -->\n\n"
            .to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}\n", headline(&goals));
    text.push_str(
        "A goal is met if the whole interval keeps the limit, not met if none of it does, and otherwise undecided.\n\
         \"Behind the front\" is the factor by which the nearest fixed spin that is better in both latency and CPU time is\n\
         ahead in the closer of the two; at most 1 means that no fixed spin is better in both.\n\n\
         | goal | of | measured (95 %) | at most | verdict |\n| --- | --- | ---: | ---: | --- |\n",
    );
    for verdict in [Verdict::NotMet, Verdict::NotMeasured, Verdict::Undecided, Verdict::Met] {
        for goal in goals.iter().filter(|goal| goal.verdict == verdict) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                goal.goal,
                cell(goal.workload.as_deref().unwrap_or("")),
                goal.measured.map_or("-".to_owned(), |measured| within(
                    measured,
                    goal.interval,
                    ratio
                )),
                ratio(goal.at_most),
                verdict_text(goal.verdict)
            );
        }
    }
    text.push_str(&method(result));
    for workload in result.workloads() {
        text.push_str(&workload_text(result, workload, &plot_name(stem, &workload.workload)));
    }
    text.push_str(&mwaitx_text(result));
    text.push_str(&other_tables(result));
    text.push_str(
        "\n## Not measured\n\nUMWAIT and TPAUSE, WFE and WFET, a busy SMT sibling \
         (`--busy-sibling`), several waiters of one\nwaker, energy. A goal that is met here is met \
         on this machine.\n",
    );
    text
}

/// States first whether the goals are met. "Met" requires all of them.
fn headline(goals: &[Goal]) -> String {
    let all_are_met = goals.iter().all(|goal| goal.verdict == Verdict::Met);
    let any = |verdict| goals.iter().any(|goal| goal.verdict == verdict);
    let verdict = if all_are_met && !goals.is_empty() {
        "The goals are met."
    } else if any(Verdict::NotMet) {
        "The goals are not met."
    } else {
        "It is not shown that the goals are met."
    };
    format!("**{verdict}** {}.", summary(goals))
}

/// A figure with its interval, as in "1.64 (1.51–1.72)".
fn within(figure: f64, interval: Option<[f64; 2]>, text: fn(f64) -> String) -> String {
    let interval = interval.map(|[low, high]| format!(" ({}–{})", text(low), text(high)));
    text(figure) + &interval.unwrap_or_default()
}

fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Met => "met".to_owned(),
        other => format!("**{}**", other.as_str()),
    }
}

fn method(result: &ParkResult) -> String {
    let settings = &result.settings;
    let first_seed = settings.seed;
    let last_seed = result.runs.last().map_or(first_seed, |run| run.seed);
    let load = result.runs.iter().filter_map(|run| run.load_average);
    let load = load.fold(None, |most: Option<f64>, load| Some(most.map_or(load, |m| m.max(load))));
    let steal = result.runs.iter().filter_map(|run| run.steal_ratio).fold(0.0, f64::max);
    let mut text = format!(
        "\n## How it was measured\n\n`{}`, {}: {} runs. In each, all ways to wait took turns of 100 wakes in random \
         order, {} wakes of each\nway on each workload; seeds {first_seed} to {last_seed}. A figure is the median of the \
         runs, with its 95 % bootstrap interval; the mean\nis that of the 99 % shortest latencies. Compare only ratios of \
         figures of one run.{}{} Load average before the\nruns: at most {}; the hypervisor kept at most {:.1} % of the \
         CPUs' time. The raw figures are beside this page, as JSON.\n`make measured` measures all of it again.\n\n",
        shown_in_line(&result.program),
        shown_in_line(&result.date),
        result.runs.len(),
        settings.wake_count,
        if settings.oversubscribed { " A busy thread ran on each CPU." } else { "" },
        if settings.busy_sibling { " A busy thread ran on the waiter's SMT sibling." } else { "" },
        load.map_or("not shown".to_owned(), |load| format!("{load:.1}")),
        steal * 100.0,
    );
    let doubts = doubts(result);
    for doubt in &doubts {
        let _ = writeln!(text, "- doubt: {doubt}");
    }
    if !doubts.is_empty() {
        text.push('\n');
    }
    text.push_str("| the machine | |\n| --- | --- |\n");
    for MachineFact { fact, value } in &result.machine {
        let value = value.as_deref().map_or("not shown".to_owned(), cell);
        let _ = writeln!(text, "| {} | {value} |", cell(fact));
    }
    text.push('\n');
    text
}

/// The doubts, each once. What workloads have in common is said with their names and the largest number.
fn doubts(result: &ParkResult) -> Vec<String> {
    let mut found: Vec<(String, Vec<&str>, &str)> = Vec::new();
    for doubt in &result.doubts {
        // A workload's name ends at the first colon that a space follows.
        let (name, rest) = doubt.doubt.split_once(": ").unwrap_or(("", &doubt.doubt));
        let kind: String = rest.chars().filter(|c| !c.is_ascii_digit()).collect();
        let number = |text: &str| {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap_or(0)
        };
        match found.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, names, most)) => {
                names.push(name);
                if number(rest) > number(most) {
                    *most = rest;
                }
            }
            None => found.push((kind, vec![name], rest)),
        }
    }
    let text = |(_, names, rest): &(String, Vec<&str>, &str)| {
        let names = names.join(", ");
        let text = if names.is_empty() { (*rest).to_owned() } else { format!("{names}: {rest}") };
        shown_in_line(&text).into_owned()
    };
    found.iter().map(text).collect()
}

fn workload_text(result: &ParkResult, workload: &ParkWorkload, plot_name: &str) -> String {
    let name = workload.workload.as_str();
    let runs = result.runs.as_slice();
    let mut text = format!(
        "\n## {}\n\n| way | wake p50, µs | wake mean, µs | wake p99, µs | send p50, µs | CPU, % | \
         switches per wake |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        cell(name)
    );
    for way in &workload.ways {
        let estimated = |figure: Figure, scale: f64, has_interval: bool| {
            let Some(series) = of_way(runs, name, &way.way, figure) else { return "-".to_owned() };
            let (median, interval) = estimate(runs.len(), |drawn| series.median(drawn));
            let interval =
                interval.filter(|_| has_interval).map(|ends| ends.map(|end| end / scale));
            within(median / scale, interval, figure_text)
        };
        let _ = write!(text, "| {} ", cell(&way.way));
        for figure in LATENCIES {
            let _ = write!(text, "| {} ", estimated(figure, 1_000.0, true));
        }
        let _ = write!(text, "| {} ", estimated(|one| one.send_cost_p50_ns, 1_000.0, false));
        let _ = write!(text, "| {} ", estimated(|one| one.cpu_ratio, 0.01, true));
        let _ = writeln!(text, "| {} |", estimated(|one| one.switches_per_wake, 1.0, false));
    }
    let _ = writeln!(text, "\n![mean wake latency against CPU time]({plot_name})");
    text
}

fn mwaitx_text(result: &ParkResult) -> String {
    match &result.mwaitx {
        Some(finding) => format!(
            "\n## MWAITX\n\nTried although CPUID does not offer it (`--try-mwaitx`): {}.{}\n",
            shown_in_line(&finding.to_sentence()),
            match (finding.refused.is_some(), finding.waits) {
                (true, _) => "",
                (false, true) => " Its row above is MWAITX alone, without any sleep.",
                (false, false) =>
                    " Its row above is therefore a loop of exits: it polls, at a CPU's full price.",
            }
        ),
        None => String::new(),
    }
}

fn other_tables(result: &ParkResult) -> String {
    let mut text = String::new();
    let rates = round_trips(result);
    if let Some((_, futex_per_s)) = rates.iter().find(|(name, _)| name[0] == "futex") {
        text.push_str(
            "\n## More threads than CPUs\n\nPairs of threads pass a token to and fro, two pairs for each \
             CPU. Throughput is not fairness: a pair\nthat spins keeps its CPUs while the others wait.\n\n\
             | way | round trips a second | of a futex's |\n| --- | ---: | ---: |\n",
        );
        for ([way, _], per_s) in &rates {
            let _ =
                writeln!(text, "| {} | {per_s:.0} | {} |", cell(way), ratio(per_s / futex_per_s));
        }
    }
    text.push_str("\n## Calls that wait for nobody\n\n| call | of | ns |\n| --- | --- | ---: |\n");
    for ([call, way], cost_ns) in calls(result) {
        let _ = writeln!(text, "| {} | {} | {} |", cell(call), cell(way), figure_text(cost_ns));
    }
    text.push_str(
        "\n## Waits that end by their timeout\n\n| pattern | of | CPU, % |\n| --- | --- | ---: |\n",
    );
    for ([pattern, way], cpu_ratio) in timeouts(result) {
        let percent = figure_text(cpu_ratio * 100.0);
        let _ = writeln!(text, "| {} | {} | {percent} |", cell(pattern), cell(way));
    }
    text
}

/// Text that may be foreign, for a table cell.
fn cell(text: &str) -> String {
    shown_in_line(text).replace('|', "\\|").replace('<', "&lt;")
}

/// A ratio with three digits, to be compared with a limit.
fn ratio(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// A figure with three digits. Small shares do not need a fourth decimal.
fn figure_text(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use super::*;
    use idlewise_report::CountedDoubt;

    fn page(result: &ParkResult) -> String {
        to_markdown(result, "page")
    }

    /// The sample misses one goal: CPU time with gaps of 1 ms.
    #[test]
    fn a_missed_goal_is_the_headline() {
        let page = page(&result());
        let start: String = page.lines().filter(|line| !line.is_empty()).take(4).collect();
        assert!(start.contains("**The goals are not met.** Of 15 goals: 1 not met, 14 met."));
        let first = page.lines().find(|line| line.starts_with("| ") && line.contains("met"));
        assert!(first.unwrap().starts_with("| CPU time, against a futex's | periodic:1000 | 6.00"));
    }

    #[test]
    fn met_is_said_only_if_every_goal_is_met() {
        let mut met = result();
        for run in &mut met.runs {
            run.workloads.pop();
        }
        assert!(page(&met).contains("**The goals are met.** Of 11 goals: 11 met."));
        let mut few = met.clone();
        few.runs.truncate(3);
        assert!(page(&few).contains("**It is not shown that the goals are met.** Of 11 goals"));
        met.runs[0].calls.clear();
        assert!(page(&met).contains("**It is not shown that the goals are met.** Of 11 goals"));
        let is_it = |line: &str| {
            line.starts_with("| unpark of a set token") && line.contains("**not measured**")
        };
        assert!(page(&met).lines().any(is_it));
    }

    #[test]
    fn a_doubt_of_several_workloads_is_one_line_with_the_largest_number() {
        let mut result = result();
        for (workload, percent) in [("poisson:20", 6), ("bursty:1000", 9), ("poisson:50", 7)] {
            let doubt = format!("{workload}: up to {percent} % of the wakes");
            result.doubts.push(CountedDoubt { doubt, count: 1 });
        }
        let page = page(&result);
        let doubts: Vec<&str> = page.lines().filter(|line| line.starts_with("- doubt")).collect();
        assert_eq!(
            doubts,
            ["- doubt: poisson:20, bursty:1000, poisson:50: up to 9 % of the wakes"]
        );
    }

    #[test]
    fn foreign_names_stay_in_their_cells() {
        let mut result = result();
        for run in &mut result.runs {
            run.workloads[0].workload = "a|b\u{1b}<c".to_owned();
        }
        let page = page(&result);
        assert!(page.contains("a\\|b␛&lt;c") && !page.contains('\u{1b}'));
    }
}
