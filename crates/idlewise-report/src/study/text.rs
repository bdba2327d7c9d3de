//! A study as text, as a page of docs/studies, and as JSON.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::{Figure, Grid, Page, Published, Study, number_text, or_dash, percent};
use crate::{Column, Statement, Table, TextStyle, wrap};

/// The columns of the table of figures.
pub(crate) fn columns() -> Vec<Column<Figure>> {
    type C = Column<Figure>;
    vec![
        C::text("figure", "figure", "What is compared.", |row| row.what.as_str().into()).key(),
        C::text("unit", "unit", "The unit of the two numbers.", |row| row.unit.into()).key(),
        C::text("published", "published", "What the claim's author found.", |row| {
            published(row.published).into()
        })
        .key(),
        C::text("ours", "ours", "What we have.", |row| or_dash(row.ours, number_text).into()).key(),
        C::text("difference", "difference", "Ours above the published one.", |row| {
            or_dash(row.difference_ratio(), percent).into()
        })
        .key(),
        C::text(
            "role",
            "ours is",
            "Predicted: follows from the model. Simulated: the same, but an assumed input decides \
             its size. Calibrated: went into it, so agreement proves nothing. Arithmetic: follows \
             from published numbers.",
            |row| row.role.as_str().into(),
        )
        .key(),
    ]
}

fn published(published: Published) -> String {
    match published {
        Published::Exactly(number) => number_text(number),
        Published::Below(number) => format!("< {}", number_text(number)),
        Published::Above(number) => format!("> {}", number_text(number)),
        Published::Between(low, high) => format!("{} to {}", number_text(low), number_text(high)),
        Published::Nothing => "-".to_owned(),
    }
}

/// The study as text for a terminal.
pub fn to_text(study: &Study, page: &Page, style: &TextStyle) -> String {
    let mut text = String::new();
    let paragraph = |text: &mut String, words: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", wrap(words, style.width, 2));
    };
    paragraph(&mut text, &format!("{}: {}", study.name, study.claim));
    paragraph(&mut text, &format!("({})", study.source));
    text.push('\n');
    text.push_str(&Table::new("", &columns(), &page.figures).to_text(style));
    text.push_str("\nWhat went in:\n");
    for input in &page.inputs {
        let origin = input.origin.as_str();
        let line = format!("- {}: {} ({origin}: {})", input.what, input.value, input.source);
        paragraph(&mut text, &line);
    }
    for grid in &page.grids {
        text.push('\n');
        paragraph(&mut text, &grid.title);
        text.push_str(&grid_text(grid));
    }
    text.push_str("\nJudgement:\n");
    for sentence in &page.judgement {
        paragraph(&mut text, &format!("- {sentence}"));
    }
    text
}

fn grid_text(grid: &Grid) -> String {
    let rows = || std::iter::once(&grid.headings).chain(&grid.rows);
    let width = |column: usize| {
        rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for (index, row) in rows().enumerate() {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
        if index == 0 {
            let rule = (0..grid.headings.len()).map(|column| "-".repeat(width(column)));
            let _ = writeln!(text, "{}", rule.collect::<Vec<_>>().join("  "));
        }
    }
    text
}

/// The study as a page; its plot is beside it as `NAME.svg`.
pub fn to_markdown(study: &Study, page: &Page) -> String {
    let mut text = format!("# {}\n\n", study.name);
    let _ = writeln!(text, "<!-- Made by `make studies`; do not edit. -->\n");
    let _ = writeln!(
        text,
        "> {}\n>\n> {}\n",
        wrap(study.claim, 98, 0).replace('\n', "\n> "),
        study.source
    );
    let _ = writeln!(
        text,
        "*Predicted* figures follow from the model alone, and so do *simulated* ones, but an assumed\n\
         input decides their size; *calibrated* ones went into it, so that their agreement proves\n\
         nothing; *arithmetic* ones follow from the published numbers.\n"
    );
    let columns = columns();
    push_row(&mut text, columns.iter().map(|column| column.heading.heading));
    push_row(&mut text, ["---", "---", "---:", "---:", "---:", "---"]);
    for figure in &page.figures {
        push_row(&mut text, columns.iter().map(|column| (column.value)(figure).to_field()));
    }
    let _ = writeln!(text, "\n![{0}]({1}.svg)\n\n## Judgement\n", page.plot.title, study.name);
    for sentence in &page.judgement {
        let _ = writeln!(text, "{}", wrap(&format!("- {sentence}"), 100, 2));
    }
    text.push_str("\n## What went in\n\n");
    push_row(&mut text, ["input", "value", "origin", "source"]);
    push_row(&mut text, ["---"; 4]);
    for input in &page.inputs {
        push_row(&mut text, [input.what, &input.value, input.origin.as_str(), &input.source]);
    }
    for grid in &page.grids {
        let _ = writeln!(text, "\n## {}\n", grid.title.split(" (").next().unwrap_or_default());
        if grid.title.contains(" (") {
            let _ = writeln!(text, "{}.\n", wrap(&grid.title, 100, 0));
        }
        push_row(&mut text, &grid.headings);
        push_row(&mut text, grid.headings.iter().map(|_| "---"));
        for row in &grid.rows {
            push_row(&mut text, row);
        }
    }
    text
}

fn push_row(text: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    let cells: Vec<String> =
        cells.into_iter().map(|cell| cell.as_ref().replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The study for a program.
pub fn to_json(study: &Study, page: &Page) -> Json {
    let figures = page.figures.iter().map(|figure| {
        let (low, high) = match figure.published {
            Published::Exactly(number) => (Some(number), Some(number)),
            Published::Below(number) => (None, Some(number)),
            Published::Above(number) => (Some(number), None),
            Published::Between(low, high) => (Some(low), Some(high)),
            Published::Nothing => (None, None),
        };
        json!({
            "figure": figure.what,
            "unit": figure.unit,
            "published_min": low,
            "published_max": high,
            "ours": figure.ours,
            "difference_ratio": figure.difference_ratio(),
            "role": figure.role.as_str(),
        })
    });
    let inputs = page.inputs.iter().map(|input| {
        json!({
            "input": input.what,
            "value": input.value,
            "origin": input.origin.as_str(),
            "fitted_to": input.origin.fitted_to(),
            "source": input.source,
        })
    });
    let grids = page
        .grids
        .iter()
        .map(|grid| json!({ "title": grid.title, "headings": grid.headings, "rows": grid.rows }));
    let series =
        page.plot.lines.iter().map(|line| json!({ "name": line.name, "points": line.points }));
    let judgement = page.judgement.iter().map(Statement::general);
    json!({
        "study": study.name,
        "claim": study.claim,
        "source": study.source,
        "figures": figures.collect::<Vec<_>>(),
        "inputs": inputs.collect::<Vec<_>>(),
        "tables": grids.collect::<Vec<_>>(),
        "findings": judgement.collect::<Vec<_>>(),
        "plot": { "title": page.plot.title, "series": series.collect::<Vec<_>>() },
    })
}
