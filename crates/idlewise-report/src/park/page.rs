//! docs/park/measured.md. The whole page is generated from one saved measurement.

use std::fmt::Write as _;

use super::goals::{Figure, Goal, Verdict, judge, of_way};
use super::result::{MachineFact, ParkResult, ParkWorkload};
use super::{calls, round_trips, summary, timeouts};
use crate::shown::shown_in_line;
use crate::statistics::estimate;

/// The figures with intervals in a workload's table, in microseconds.
const LATENCIES: [Figure; 4] = [
    |one| one.wake_latency_p50_ns,
    |one| one.wake_latency_mean_ns,
    |one| one.wake_latency_p99_ns,
    |one| one.send_cost_p50_ns,
];

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
    for verdict in [Verdict::NotMet, Verdict::NotMeasured, Verdict::Undecided] {
        for goal in goals.iter().filter(|goal| goal.verdict == verdict) {
            let _ = writeln!(text, "- {}", sentence(goal));
        }
    }
    if goals.iter().any(|goal| goal.verdict != Verdict::Met) {
        text.push('\n');
    }
    text.push_str(&method(result));
    text.push_str(
        "## All goals\n\nA goal is met if the whole interval of what was measured keeps the limit, not \
         met if\nnone of it does, and otherwise undecided. \"Behind the front\" says how far the \
         nearest\nfixed spin that is better in both latency and CPU time is ahead in the closer of the \
         two;\nat most 1 means that no fixed spin is better in both.\n\n\
         | goal | of | measured | 95 % interval | at most | verdict |\n\
         | --- | --- | ---: | --- | ---: | --- |\n",
    );
    for goal in &goals {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            goal.goal,
            cell(goal.workload.as_deref().unwrap_or("")),
            goal.measured.map_or("-".to_owned(), ratio),
            goal.interval.map_or("-".to_owned(), |[low, high]| format!(
                "{} to {}",
                ratio(low),
                ratio(high)
            )),
            ratio(goal.at_most),
            verdict_text(goal.verdict)
        );
    }
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
    format!("**{verdict}** {}{}", summary(goals), if all_are_met { "." } else { ":" })
}

fn sentence(goal: &Goal) -> String {
    let of = goal.workload.as_ref().map(|name| format!("{}: ", cell(name))).unwrap_or_default();
    let Some(measured) = goal.measured else {
        return format!("**not measured**: {of}{}", goal.goal);
    };
    let within = goal
        .interval
        .map_or(String::new(), |[low, high]| format!(" ({} to {})", ratio(low), ratio(high)));
    format!(
        "**{}**: {of}{}: {}{within}, at most {}",
        goal.verdict.as_str(),
        goal.goal,
        ratio(measured),
        ratio(goal.at_most)
    )
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
        "`{}`, {}: {} runs, in each of which all ways to wait took turns of 100 wakes, in an order \
         drawn\nanew for each round, {} wakes of each way on each workload. Seeds {first_seed} to \
         {last_seed}. A figure is the\nmedian of the runs, with the 95 % bootstrap interval of that \
         median. Only ratios of figures of one\nrun mean anything. The mean is that of the 99 % \
         shortest latencies.{}{} Load average when\nthe runs began: at most {}; the hypervisor kept at \
         most {:.1} % of the CPUs' time. The raw figures of each\nrun are beside this page, as JSON.\n\n",
        shown_in_line(&result.program),
        shown_in_line(&result.date),
        result.runs.len(),
        settings.wake_count,
        if settings.oversubscribed { " A busy thread ran on each CPU." } else { "" },
        if settings.busy_sibling { " A busy thread ran on the waiter's SMT sibling." } else { "" },
        load.map_or("not shown".to_owned(), |load| format!("{load:.1}")),
        steal * 100.0,
    );
    for doubt in &result.doubts {
        let _ = writeln!(text, "- doubt: {}", shown_in_line(&doubt.doubt));
    }
    if !result.doubts.is_empty() {
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

fn workload_text(result: &ParkResult, workload: &ParkWorkload, plot_name: &str) -> String {
    let name = workload.workload.as_str();
    let runs = result.runs.as_slice();
    let mut text = format!(
        "\n## {}\n\n| way | wake p50, µs | wake mean, µs | wake p99, µs | send p50, µs | CPU, % | \
         switches per wake |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        cell(name)
    );
    for way in &workload.ways {
        let with_interval = |figure: Figure, scale: f64| {
            let Some(series) = of_way(runs, name, &way.way, figure) else { return "-".to_owned() };
            let (median, interval) = estimate(runs.len(), |drawn| series.median(drawn));
            let within = interval.map(|[low, high]| {
                format!(" ({} to {})", figure_text(low / scale), figure_text(high / scale))
            });
            figure_text(median / scale) + &within.unwrap_or_default()
        };
        let _ = write!(text, "| {} ", cell(&way.way));
        for figure in LATENCIES {
            let _ = write!(text, "| {} ", with_interval(figure, 1_000.0));
        }
        let _ = write!(text, "| {} ", with_interval(|one| one.cpu_ratio, 0.01));
        let _ = writeln!(text, "| {} |", with_interval(|one| one.switches_per_wake, 1.0));
    }
    let _ = writeln!(text, "\n![mean wake latency against CPU time]({plot_name})");
    text
}

fn mwaitx_text(result: &ParkResult) -> String {
    match &result.mwaitx {
        Some(finding) => format!(
            "\n## MWAITX\n\nCPUID was not believed (`--try-mwaitx`): {}.{}\n",
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
             CPU. Throughput is not fairness: a pair\nthat spins keeps its CPUs, and the others wait.\n\n\
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

    fn page(result: &ParkResult) -> String {
        to_markdown(result, "page")
    }

    /// The sample misses one goal: CPU time with gaps of 1 ms.
    #[test]
    fn a_missed_goal_is_the_headline() {
        let page = page(&result());
        let start: String = page.lines().filter(|line| !line.is_empty()).take(4).collect();
        assert!(start.contains("**The goals are not met.** Of 15 goals: 1 not met, 14 met:"));
        assert!(start.contains("- **not met**: periodic:1000: CPU time, against a futex's: 6.00"));
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
        assert!(page(&met).contains("- **not measured**: unpark of a set token"));
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
