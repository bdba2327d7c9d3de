//! All tables: docs/columns.md and docs/schemas/columns.json are generated from this list.

use std::fmt::Write as _;

use idlewise_sim::contest::Price;
use serde_json::json;

use crate::columns::{Better, Heading, Unit, headings};
use crate::{
    Column, advise, arena, arena_played, cell, compare, counters, diff, export, histogram,
    imported, info, ipi, logs, machines, predict, promotion, proxy, replay, residency,
    shared_states, simulate, states, switch, timer, trial, validate, wakes, watch, why, why_menu,
};

/// A documented table.
struct Listed {
    /// Its heading in docs/columns.md; empty if it is not there.
    title: &'static str,
    /// Its key in docs/schemas/columns.json; empty if `--json` does not print it.
    key: &'static str,
    columns: Vec<Heading>,
}

/// A table that rows are made of.
fn listed<Row>(key: &'static str, title: &'static str, columns: &[Column<Row>]) -> Listed {
    Listed { title, key, columns: headings(columns) }
}

/// Every table that has columns. That of studies is made by a crate that uses this one.
fn tables(of_studies: Vec<Heading>) -> Vec<Listed> {
    [replayed(), simulated(of_studies), read(), measured(), of_this_machine()]
        .into_iter()
        .flatten()
        .collect()
}

fn replayed() -> Vec<Listed> {
    let given = [Price::Milliwatts(0.0)];
    let prices: Vec<Price> = Price::STANDARD.into_iter().chain(given).collect();
    vec![
        listed("", "`replay`", &replay::columns(&prices)),
        listed("replay", "", &replay::columns(&Price::STANDARD)),
        listed("replay_at_lambda", "", &replay::columns(&given)),
        listed("", "`replay` of several logs, log by log", &replay::by_log_columns()),
        listed(
            "replay_promotion",
            "`replay --promote`, with the timers and without (`promotion` of `--json`)",
            &promotion::columns(),
        ),
        listed(
            "replay_shared",
            "`replay`, states that CPUs share (`shared` of `--json`)",
            &shared_states::columns(),
        ),
        listed("arena", "`replay --rank`", &arena::columns()),
        listed(
            "arena_cells",
            "`replay --rank`, cells (`--csv`, and `cells` of `--json`)",
            &arena::cell_columns(),
        ),
        listed("arena_played", "", &arena_played::played_standing_columns()),
        listed(
            "arena_played_cells",
            "`replay --rank --played`, cells (`--csv`, and `cells` of `--json`)",
            &arena_played::played_columns(),
        ),
        listed("", "`lab sweep plan`, the table of logs", &logs::columns()),
        listed("", "`lab sweep`, a shard of cells", &cell::shard_columns()),
        listed(
            "sweep_cells",
            "`lab sweep collect` (`cells` of `--format json`)",
            &cell::collected_columns(),
        ),
    ]
}

fn simulated(of_studies: Vec<Heading>) -> Vec<Listed> {
    vec![
        listed("predict_runs", "`predict`, settings", &predict::run_columns()),
        listed(
            "predict_tasks",
            "`predict`, tasks (`--csv`, and `tasks` of `--json`)",
            &predict::task_columns(),
        ),
        listed("simulate_runs", "`lab simulate`, runs", &simulate::run_columns()),
        listed("simulate_spans", "`lab simulate`, spans", &simulate::span_columns()),
        listed("simulate_states", "`lab simulate`, states", &simulate::state_columns()),
        Listed {
            key: "",
            title: "`lab study`, figures (`--json` has `published_min`, `published_max` and \
                    `difference_ratio`)",
            columns: of_studies,
        },
    ]
}

fn read() -> Vec<Listed> {
    vec![
        listed(
            "diff_groups",
            "`replay --compare`, gaps in groups (`--csv`, and `groups` of `--json`)",
            &diff::group_columns(),
        ),
        listed(
            "diff_costly_gaps",
            "`replay --compare`, the costliest gaps (`costly_gaps` of `--json`)",
            &diff::costly_columns(),
        ),
        listed("info", "`info`", &info::columns()),
        listed("histogram", "`info` of a histogram", &histogram::state_columns()),
        listed("histogram_limits", "`advise` for a histogram", &histogram::limit_columns()),
        listed(
            "info_why_menu",
            "`info --why-menu` (`why_menu.cpus` of `--json`)",
            &why_menu::columns(),
        ),
        Listed { key: "", title: "`log export`", columns: export::headings() },
        listed("validate", "`log validate`", &validate::columns()),
    ]
}

fn measured() -> Vec<Listed> {
    vec![
        listed("measure_ipi", "`measure ipi`, a CPU and a state", &ipi::columns()),
        listed("measure_ipi_all", "`measure ipi`, all of them", &ipi::all_columns()),
        listed("measure_timer", "`measure timer`", &timer::columns()),
        listed(
            "measure_ipi_proxy",
            "`measure ipi`, from user space (proxies)",
            &proxy::ipi_columns(),
        ),
        listed(
            "measure_timer_proxy",
            "`measure timer`, from user space (a proxy)",
            &proxy::timer_columns(),
        ),
        listed("measure_states", "`measure states`", &states::columns()),
        listed("measure_residency", "`measure residency`", &residency::residency_columns()),
        listed("measure_power", "`measure power`", &residency::power_columns()),
        listed("measure_switch", "`measure switch`", &switch::columns()),
        listed("measure_counters", "`measure counters`", &counters::columns()),
        listed("compare", "`lab compare`", &compare::columns()),
        listed("try", "`try`", &trial::side_columns()),
        listed(
            "try_rounds",
            "`try`, rounds (`--csv`, and `rounds` of `--json`)",
            &trial::round_columns(),
        ),
        listed("measure_wakes_woken", "`measure wakes`, by woken CPU", &wakes::woken_columns()),
        listed("measure_wakes_pairs", "`measure wakes`, by pair", &wakes::pair_columns()),
    ]
}

fn of_this_machine() -> Vec<Listed> {
    vec![
        listed("why", "`why`", &why::columns()),
        listed("watch_cpus", "`watch`, CPUs or groups of them", &watch::line_columns()),
        listed("watch_states", "`watch`, states", &watch::state_columns()),
        listed("watch_packages", "`watch`, packages", &watch::package_columns()),
        listed("advise", "`advise`", &advise::columns()),
        listed("machines", "`machines`", &machines::machine_columns()),
        listed("machine_states", "`machines NAME`", &machines::state_columns()),
        listed("machines_import", "`machines import`", &imported::columns()),
    ]
}

/// Returns the JSON Schema of the rows of all tables in `--json`: docs/schemas/columns.json.
pub fn columns_schema() -> String {
    let row = |table: &Listed| {
        let property = |column: &Heading| {
            let (kind, unit) = match column.unit {
                Unit::Text => ("string", String::new()),
                Unit::Count | Unit::Number => ("number", String::new()),
                unit => ("number", format!(" In {}.", unit.as_str())),
            };
            let description = format!("{}{unit}", column.meaning);
            (column.id.to_owned(), json!({ "type": [kind, "null"], "description": description }))
        };
        let ids: Vec<&str> = table.columns.iter().map(|column| column.id).collect();
        let properties: serde_json::Map<_, _> = table.columns.iter().map(property).collect();
        json!({ "type": "object", "properties": properties, "required": ids })
    };
    let tables = tables(Vec::new()).into_iter().filter(|table| !table.key.is_empty());
    let rows: serde_json::Map<_, _> =
        tables.map(|table| (table.key.to_owned(), row(&table))).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rows of the tables that --json prints. Made by `make golden`; do not edit.",
        "$defs": rows,
    });
    format!("{schema:#}\n")
}

/// An entry of docs/columns.md: columns of one meaning.
#[derive(PartialEq, Eq, Hash)]
struct Entry {
    ids: Vec<&'static str>,
    better: Option<Better>,
    meaning: &'static str,
}

impl Entry {
    /// Its line, such as "- `delay_p50_ns`, `delay_p90_ns` ↓: Median delay."
    fn line(&self) -> String {
        let better = match self.better {
            Some(Better::Lower) => " ↓",
            Some(Better::Higher) => " ↑",
            None => "",
        };
        let ids: Vec<String> = self.ids.iter().map(|id| format!("`{id}`")).collect();
        format!("- {}{better}: {}", ids.join(", "), self.meaning)
    }
}

/// Whether a column is the same figure as the one before it, in another statistic or for the other side, so that its
/// name says enough. What has a condition of its own gets an entry of its own.
fn repeats(column: &Heading, before: &str) -> bool {
    fn stem(id: &str) -> Vec<&str> {
        const STATISTICS: [&str; 10] =
            ["mean", "median", "min", "max", "low", "high", "least", "greatest", "a", "b"];
        let is_percentile =
            |token: &str| token.strip_prefix('p').is_some_and(|n| n.parse::<u32>().is_ok());
        id.split('_').filter(|token| !STATISTICS.contains(token) && !is_percentile(token)).collect()
    }
    let has_condition = column.meaning.to_lowercase().contains("absent");
    let is_share =
        before.strip_suffix("_count").is_some_and(|stem| column.id == format!("{stem}_ratio"));
    !has_condition && (is_share || (column.id != before && stem(column.id) == stem(before)))
}

fn entries(columns: Vec<Heading>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for column in columns {
        match entries.last_mut() {
            Some(entry) if repeats(&column, entry.ids[entry.ids.len() - 1]) => {
                entry.ids.push(column.id)
            }
            _ => entries.push(Entry {
                ids: vec![column.id],
                better: column.better,
                meaning: column.meaning,
            }),
        }
    }
    entries
}

/// Returns Markdown that defines the columns of every table, one section each: docs/columns.md. Columns that several
/// tables have are defined once.
pub fn columns_markdown(of_studies: Vec<Heading>) -> String {
    let tables: Vec<(&str, Vec<Entry>)> = tables(of_studies)
        .into_iter()
        .filter(|table| !table.title.is_empty())
        .map(|table| (table.title, entries(table.columns)))
        .collect();
    let all = || tables.iter().flat_map(|(_, entries)| entries);
    // A name that means one thing here and another there is shared in the sense that most tables have.
    let mut shared: Vec<&Entry> = Vec::new();
    for entry in all() {
        let count = |other: &Entry| all().filter(|one| *one == other).count();
        let is_new = shared.iter().all(|one| one.ids[0] != entry.ids[0]);
        let most = all().filter(|one| one.ids[0] == entry.ids[0]).map(count).max();
        if is_new && count(entry) > 1 && Some(count(entry)) == most {
            shared.push(entry);
        }
    }
    let mut text = String::from(
        "# Columns\n\n\
         Every column of every table, generated from `crates/idlewise-report/src`.\n\n\
         The last part of a name is its unit: `_ns`, `_uj`, `_mw`, `_cycles` (of the TSC), `_per_s`, `_count`, or `_ratio` \
         for a share from 0 to 1.\nCSV and JSON hold these units; text scales them. An absent value is `-` in text, empty \
         in CSV and `null` in JSON; zero\nis `0`. ↓ means that lower values are better, ↑ that higher ones are.\n\n\
         An entry with several names describes the first. The others are the percentile, extreme or side that they name, or \
         the\nsame as a share. Unless the entry says otherwise, `low` and `high` are the ends of a 95 % interval.\n\n\
         ## Columns of several tables\n",
    );
    text.push('\n');
    for entry in &shared {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", entry.line());
    }
    for (title, entries) in &tables {
        let _ = write!(text, "\n## {title}\n");
        let (above, own): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| shared.contains(entry));
        let names: Vec<_> =
            above.iter().flat_map(|entry| &entry.ids).map(|id| format!("`{id}`")).collect();
        if !names.is_empty() {
            let _ = write!(text, "\nDefined above: {}.\n", names.join(", "));
        }
        if !own.is_empty() {
            text.push('\n');
        }
        for entry in own {
            let _ = writeln!(text, "{}", entry.line());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_end_in_their_unit() {
        for Listed { title, columns, .. } in tables(Vec::new()) {
            for column in columns {
                let suffix = match column.unit {
                    Unit::Nanoseconds => "_ns",
                    Unit::Cycles => "_cycles",
                    Unit::Microjoules => "_uj",
                    Unit::Milliwatts => "_mw",
                    Unit::Ratio => "_ratio",
                    _ => "",
                };
                assert!(column.id.ends_with(suffix), "{title}: {}", column.id);
            }
        }
    }

    /// A heading is broken at spaces. One that is broken within a word cannot be searched for.
    #[test]
    fn no_word_of_a_heading_is_broken() {
        for Listed { title, columns, .. } in tables(Vec::new()) {
            for part in columns.iter().flat_map(|column| column.heading.split(' ')) {
                let is_known =
                    !part.contains('-') || ["wake-ups", "wake-up", "break-even"].contains(&part);
                assert!(is_known, "{title}: {part}");
            }
        }
    }

    #[test]
    fn the_page_has_every_column_in_the_section_of_its_table() {
        let page = columns_markdown(Vec::new());
        for Listed { title, columns, .. } in
            tables(Vec::new()).into_iter().filter(|it| !it.title.is_empty())
        {
            let (_, section) = page.split_once(&format!("\n## {title}\n")).unwrap();
            let section = section.split("\n## ").next().unwrap();
            for column in columns {
                assert!(section.contains(&format!("`{}`", column.id)), "{title}: {}", column.id);
            }
        }
    }

    #[test]
    fn percentiles_share_an_entry_and_a_condition_has_its_own() {
        let page = columns_markdown(Vec::new());
        let starts = |start: &str| page.lines().any(|line| line.starts_with(start));
        assert!(starts("- `exit_p50_ns`, `exit_p50_low_ns`, `exit_p50_high_ns`, `exit_p90_ns`"));
        assert!(starts("- `exit_p9999_ns`:"), "absent with few wakes");
        assert!(starts("- `line_count`, `line_ratio`:"));
        assert!(starts("- `energy_change_uj`:"), "not a side of its own");
    }

    #[test]
    fn no_table_has_two_columns_of_one_id() {
        for Listed { title, columns, .. } in tables(Vec::new()) {
            let ids: std::collections::HashSet<_> = columns.iter().map(|one| one.id).collect();
            assert_eq!(ids.len(), columns.len(), "{title}");
        }
    }
}
