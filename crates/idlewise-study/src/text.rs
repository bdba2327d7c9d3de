//! A study as text, as a page of docs/studies, and as JSON.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use idlewise_report::columns::headings;
use idlewise_report::{Column, Heading, Statement, Table, TextStyle, wrap};

use crate::figure::{Grid, Published, Study, number_text, or_dash, short};
use crate::inputs::Input;
use crate::page::{Page, Row};
use crate::sensitivity::{Decider, STEADY_FACTOR, Why};

/// The headings of the table of figures, for docs/columns.md.
pub fn figure_headings() -> Vec<Heading> {
    headings(&columns())
}

/// The columns of the table of figures.
fn columns() -> Vec<Column<Row>> {
    type C = Column<Row>;
    vec![
        C::text("figure", "figure", |row| row.figure.what.as_str().into())
            .means("The figure.")
            .key(),
        C::text("unit", "unit", |row| row.figure.unit.into())
            .means("The unit of the numbers.")
            .key(),
        C::text("published", "published", |row| published(row.figure.published).into())
            .means("The claim's figure.")
            .key(),
        C::text("ours", "ours", |row| or_dash(row.figure.ours, number_text).into())
            .means("Our figure.")
            .key(),
        C::text("explored", "explored", |row| range(row).into())
            .means(
                "The range over runs with other plausible inputs. Other combinations may exceed \
                 it.",
            )
            .key(),
        C::text("role", "ours is", |row| row.examined.label.as_str().into())
            .means(
                "The label: predicted, simulated, calibrated or arithmetic \
                 (docs/studies/README.md).",
            )
            .key(),
    ]
}

fn range(row: &Row) -> String {
    match row.examined.range {
        Some((low, high)) if low == high => "-".to_owned(),
        Some((low, high)) => format!("{} to {}", short(low), short(high)),
        None if row.examined.effects.is_empty() => "-".to_owned(),
        None => "or none".to_owned(),
    }
}

/// What decides a figure, in words.
fn decider(decider: &Decider, unit: &str) -> String {
    let inputs: Vec<String> = decider.inputs.iter().map(ToString::to_string).collect();
    let gives = or_dash(decider.gives, |ours| format!("{} {unit}", short(ours)).trim().to_owned());
    let why = match decider.why {
        Why::Existence => ", or none at all".to_owned(),
        Why::Sign => ", another sign".to_owned(),
        Why::Size(factor) => format!(", a factor of {}", short(factor)),
        Why::Judgement => ", another judgement".to_owned(),
    };
    format!("{}: {gives}{why}", inputs.join(" and "))
}

/// A number of an input with its unit.
fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", number_text(value)).trim_end().to_owned()
}

fn plausible(input: &Input) -> String {
    match input.ends() {
        Some([low, high]) => format!("{} to {}", number_text(low), with_unit(high, input.unit)),
        None => "-".to_owned(),
    }
}

/// The inputs and facts, with the values that the reader set.
fn given(study: &Study, page: &Page) -> Grid {
    let inputs = study.inputs.iter().map(|input| {
        let (value, plausible, origin, source) = match page.given.value(input.key) {
            None => (input.value, plausible(input), input.origin.as_str(), input.source),
            Some(value) => match page.given.source(input.key) {
                Some(source) => (value, "-".to_owned(), "documented", source),
                None => (value, plausible(input), "guessed", "--set without --source"),
            },
        };
        [input.meaning, &with_unit(value, input.unit), &plausible, origin, source]
            .map(str::to_owned)
            .into()
    });
    let facts = page.body.facts.iter().map(|fact| {
        [fact.what, &fact.value, "-", fact.origin.as_str(), &fact.source].map(str::to_owned).into()
    });
    Grid {
        title: "What went in".to_owned(),
        headings: ["input", "value", "plausible", "origin", "source"].map(str::to_owned).into(),
        rows: inputs.chain(facts).collect(),
        is_detail: false,
    }
}

/// What may be set, as text for a terminal.
pub fn inputs_to_text(study: &Study, style: &TextStyle) -> String {
    type C = Column<&'static Input>;
    let columns = [
        C::text("key", "key", |input| input.key.into()).means("What --set names.").key(),
        C::text("value", "value", |input| with_unit(input.value, input.unit).into())
            .means("Its value.")
            .key(),
        C::text("plausible", "plausible", |input| plausible(input).into())
            .means("Its plausible values.")
            .key(),
        C::text("origin", "origin", |input| input.origin.as_str().into())
            .means("Where the value comes from.")
            .key(),
        C::text("meaning", "meaning", |input| input.meaning.into()).means("What it is."),
    ];
    Table::new(format!("{}: what --set takes", study.name), &columns, study.inputs).to_text(style)
}

/// The same for a program.
pub fn inputs_to_json(study: &Study) -> Json {
    study
        .inputs
        .iter()
        .map(|input| {
            json!({
                "key": input.key,
                "input": input.meaning,
                "value": input.value,
                "unit": input.unit,
                "plausible_min": input.plausible.start(),
                "plausible_max": input.plausible.end(),
                "origin": input.origin.as_str(),
                "fitted_to": input.origin.fitted_to(),
                "source": input.source,
            })
        })
        .collect()
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

/// How the terminal explains the labels. Pages link to docs/studies/README.md, which says the same.
fn labels() -> String {
    format!(
        "Labels are computed. The study ran again with other plausible values of each undocumented input, alone and \
         together. A figure is *predicted* if no run changed its sign, changed its size by more than a factor of \
         {STEADY_FACTOR}, or changed whether it agrees with the published one (within that factor). Otherwise it is \
         *simulated*, and the inputs that decide it are listed. *Calibrated* figures went into the model, so their \
         agreement proves nothing. *Arithmetic* figures follow from published numbers alone. *Explored* is the range \
         over all these runs; it is no bound."
    )
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
    text.push_str("\nJudgement:\n");
    for sentence in &page.body.judgement {
        paragraph(&mut text, &format!("- {sentence}"));
    }
    text.push_str("\nWhat went in:\n");
    for row in given(study, page).rows {
        let [what, value, plausible, origin, source] = &row[..] else { continue };
        let plausible =
            if plausible == "-" { String::new() } else { format!(", plausible {plausible}") };
        paragraph(&mut text, &format!("- {what}: {value}{plausible} ({origin}: {source})"));
    }
    text.push_str("\nSensitivity:\n");
    paragraph(&mut text, &labels().replace('*', ""));
    for row in page.figures.iter().filter(|row| !row.examined.deciders.is_empty()) {
        let by = row.examined.deciders.iter().take(3).map(|by| decider(by, row.figure.unit));
        let by: Vec<String> = by.collect();
        paragraph(&mut text, &format!("- {}: {}", row.figure.what, by.join("; ")));
    }
    for grid in &page.body.grids {
        text.push('\n');
        paragraph(&mut text, &grid.title);
        text.push_str(&grid_text(grid));
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

/// The study as a page; its plot is beside it as `NAME.svg`. The answer is first, then the figures, then what they rest on.
pub fn to_markdown(study: &Study, page: &Page) -> String {
    let mut text = format!("# {}\n\n", study.name);
    let _ = writeln!(text, "<!-- Made by `make studies`; do not edit. -->\n");
    let _ = writeln!(
        text,
        "> {}\n>\n> {}\n",
        wrap(study.claim, 98, 0).replace('\n', "\n> "),
        study.source
    );
    let _ = writeln!(text, "## Judgement\n");
    for sentence in &page.body.judgement {
        let _ = writeln!(text, "{}", wrap(&format!("- {sentence}"), 100, 2));
    }
    let _ = writeln!(text, "\n`idlewise lab study {}` computes all this again.\n", study.name);
    let _ = writeln!(text, "![{0}]({1}.svg)", page.body.plot.title, study.name);
    let _ = writeln!(
        text,
        "\n## Figures\n\n[What the labels mean](README.md); *explored* is the range over other plausible inputs.\n"
    );
    push_row(&mut text, ["figure", "published", "ours", "explored", "label"]);
    push_row(&mut text, ["---", "---:", "---:", "---", "---"]);
    for row in &page.figures {
        let unit = row.figure.unit;
        let what = if unit.is_empty() {
            row.figure.what.clone()
        } else {
            format!("{}, {unit}", row.figure.what)
        };
        let ours = or_dash(row.figure.ours, number_text);
        push_row(
            &mut text,
            [
                what,
                published(row.figure.published),
                ours,
                range(row),
                row.examined.label.as_str().to_owned(),
            ],
        );
    }
    if let Some(row) = crate::plot::tornado_row(page) {
        let _ = writeln!(
            text,
            "\n![The effect of each input on: {}]({}-tornado.svg)",
            row.figure.what, study.name
        );
    }
    push_grid(&mut text, &strongest_deciders(page));
    let (inputs, left_out) = inputs(study, page);
    push_grid(&mut text, &inputs);
    if left_out > 0 {
        let _ = writeln!(
            text,
            "\n{left_out} more inputs are documented or decide nothing: `idlewise lab study {} --inputs`.",
            study.name
        );
    }
    let (details, tables): (Vec<_>, Vec<_>) =
        page.body.grids.iter().partition(|grid| grid.is_detail);
    for grid in tables {
        push_grid(&mut text, grid);
    }
    if !details.is_empty() {
        let titles: Vec<&str> = details.iter().map(|grid| parts(&grid.title).0).collect();
        let more = format!("The command also prints: {}.", titles.join("; "));
        let _ = writeln!(text, "\n{}", wrap(&more, 100, 0));
    }
    text
}

/// For each figure that an input decides, the one that does so most.
fn strongest_deciders(page: &Page) -> Grid {
    let rows = page.figures.iter().filter_map(|row| {
        let by = row.examined.deciders.first()?;
        Some(vec![row.figure.what.clone(), decider(by, row.figure.unit)])
    });
    Grid {
        title:
            "What decides the figures (the strongest input of each; the command lists up to three)"
                .to_owned(),
        headings: ["figure", "would be"].map(str::to_owned).into(),
        rows: rows.collect(),
        is_detail: false,
    }
}

/// The inputs that decide a figure or are from the claim, and the facts, with origin and range in one column; and how many
/// other inputs there are.
fn inputs(study: &Study, page: &Page) -> (Grid, usize) {
    let deciders = page.figures.iter().flat_map(|row| row.examined.deciders.iter().take(3));
    let deciding: Vec<&str> =
        deciders.flat_map(|by| by.inputs.iter().map(|changed| changed.input)).collect();
    let given = given(study, page);
    let mut left_out = 0;
    let mut rows = Vec::new();
    for (index, row) in given.rows.into_iter().enumerate() {
        let [what, value, plausible, origin, source] = &row[..] else { continue };
        let is_input = index < study.inputs.len();
        if is_input && origin != "calibrated" && !deciding.contains(&what.as_str()) {
            left_out += 1;
            continue;
        }
        let origin =
            if plausible == "-" { origin.clone() } else { format!("{origin}, {plausible}") };
        rows.push(vec![what.clone(), value.clone(), origin, source.clone()]);
    }
    let headings =
        ["input", "value", "origin, plausible range", "source"].map(str::to_owned).into();
    (Grid { title: given.title, headings, rows, is_detail: false }, left_out)
}

/// What a table's title says as a heading, and the remark behind it.
fn parts(title: &str) -> (&str, &str) {
    title.split_once(" (").or_else(|| title.split_once("; ")).unwrap_or((title, ""))
}

/// A table with its heading. A remark in the title's brackets, or after its semicolon, is a line below the heading.
fn push_grid(text: &mut String, grid: &Grid) {
    if grid.rows.is_empty() {
        return;
    }
    let (heading, remark) = parts(&grid.title);
    let _ = writeln!(text, "\n## {heading}\n");
    if !remark.is_empty() {
        let remark = remark.strip_suffix(')').unwrap_or(remark);
        let mut letters = remark.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        let _ = writeln!(text, "{}.\n", wrap(&first.chain(letters).collect::<String>(), 100, 0));
    }
    push_row(text, &grid.headings);
    push_row(text, grid.headings.iter().map(|_| "---"));
    // Rows that differ in nothing but their name are one.
    let mut rows: Vec<(Vec<&str>, &[String])> = Vec::new();
    for row in &grid.rows {
        let Some((name, cells)) = row.split_first() else { continue };
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], cells)),
        }
    }
    for (names, cells) in rows {
        push_row(text, std::iter::once(names.join("; ")).chain(cells.iter().cloned()));
    }
}

fn push_row(text: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    let cells: Vec<String> =
        cells.into_iter().map(|cell| cell.as_ref().replace('|', "\\|")).collect();
    let _ = writeln!(text, "{}", cells.join(" | "));
}

/// The study for a program.
pub fn to_json(study: &Study, page: &Page) -> Json {
    let figures = page.figures.iter().map(|Row { figure, examined }| {
        let (low, high) = match figure.published {
            Published::Exactly(number) => (Some(number), Some(number)),
            Published::Below(number) => (None, Some(number)),
            Published::Above(number) => (Some(number), None),
            Published::Between(low, high) => (Some(low), Some(high)),
            Published::Nothing => (None, None),
        };
        let deciders = examined.deciders.iter().map(|decider| {
            let inputs = decider.inputs.iter().map(|changed| {
                json!({ "input": changed.input, "value": changed.value, "unit": changed.unit })
            });
            json!({ "inputs": inputs.collect::<Vec<_>>(), "ours": decider.gives })
        });
        let effects = examined.effects.iter().map(
            |effect| json!({ "input": effect.input, "values": effect.ends, "ours": effect.gives }),
        );
        json!({
            "figure": figure.what,
            "unit": figure.unit,
            "published_min": low,
            "published_max": high,
            "ours": figure.ours,
            "ours_min": examined.range.map(|range| range.0),
            "ours_max": examined.range.map(|range| range.1),
            "difference_ratio": figure.difference_ratio(),
            "role": examined.label.as_str(),
            "decided_by": deciders.collect::<Vec<_>>(),
            "effects": effects.collect::<Vec<_>>(),
        })
    });
    let facts = page.body.facts.iter().map(|fact| {
        json!({
            "fact": fact.what,
            "value": fact.value,
            "origin": fact.origin.as_str(),
            "fitted_to": fact.origin.fitted_to(),
            "source": fact.source,
        })
    });
    let given = &page.given;
    let set = given
        .changes
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": value, "source": given.source(key) }));
    let grids = &page.body.grids;
    let grids = grids
        .iter()
        .map(|grid| json!({ "title": grid.title, "headings": grid.headings, "rows": grid.rows }));
    let plot = &page.body.plot;
    let series = plot.lines.iter().map(|line| json!({ "name": line.name, "points": line.points }));
    let judgement = page.body.judgement.iter().map(Statement::general);
    json!({
        "study": study.name,
        "claim": study.claim,
        "source": study.source,
        "steady_factor": STEADY_FACTOR,
        "figures": figures.collect::<Vec<_>>(),
        "inputs": inputs_to_json(study),
        "set": set.collect::<Vec<_>>(),
        "facts": facts.collect::<Vec<_>>(),
        "tables": grids.collect::<Vec<_>>(),
        "findings": judgement.collect::<Vec<_>>(),
        "plot": { "title": plot.title, "series": series.collect::<Vec<_>>() },
    })
}
