//! A study as text, as a page of docs/studies, as JSON, and its plot.

use std::fmt::Write as _;

use idlewise_sim::study::{Figure, Grid, Plot, Published, Study};
use plotters::prelude::*;
use serde_json::{Value as Json, json};

use crate::{Column, Statement, Table, TextStyle, wrap};

/// The columns of the table of figures.
pub fn columns() -> Vec<Column<Figure>> {
    type C = Column<Figure>;
    vec![
        C::text("figure", "figure", "What is compared.", |row| row.what.as_str().into()).key(),
        C::text("unit", "unit", "The unit of the two numbers.", |row| row.unit.into()).key(),
        C::text("published", "published", "What the claim's author found.", |row| {
            published(row.published).into()
        })
        .key(),
        C::text("ours", "ours", "What we have.", |row| number_text(row.ours).into()).key(),
        C::text("difference", "difference", "Ours above the published one.", |row| {
            difference(row).into()
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

/// At least three digits, and all of a whole number.
fn number_text(number: f64) -> String {
    match number.abs() {
        1_000.0.. => format!("{number:.0}"),
        100.0.. if number.fract() == 0.0 => format!("{number:.0}"),
        100.0.. => format!("{number:.1}"),
        0.0 => "0".to_owned(),
        _ if number.fract() == 0.0 => format!("{number:.0}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn difference(figure: &Figure) -> String {
    figure.difference_ratio().map_or("-".to_owned(), |ratio| format!("{:+.1} %", ratio * 100.0))
}

/// The study as text for a terminal.
pub fn to_text(study: &Study, style: &TextStyle) -> String {
    let mut text = String::new();
    let paragraph = |text: &mut String, words: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", wrap(words, style.width, 2));
    };
    paragraph(&mut text, &format!("{}: {}", study.name, study.claim));
    paragraph(&mut text, &format!("({})", study.source));
    text.push('\n');
    text.push_str(&Table::new("", &columns(), &study.figures).to_text(style));
    text.push_str("\nWhat went in:\n");
    for input in &study.inputs {
        let origin = input.origin.as_str();
        let line = format!("- {}: {} ({origin}: {})", input.what, input.value, input.source);
        paragraph(&mut text, &line);
    }
    for grid in &study.grids {
        text.push('\n');
        paragraph(&mut text, &grid.title);
        text.push_str(&grid_text(grid));
    }
    text.push_str("\nJudgement:\n");
    for sentence in &study.judgement {
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
pub fn to_markdown(study: &Study) -> String {
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
    let words = columns.iter().map(|column| column.heading.heading.to_owned());
    push_row(&mut text, &words.collect::<Vec<_>>());
    push_row(&mut text, &["---", "---", "---:", "---:", "---:", "---"].map(str::to_owned));
    for figure in &study.figures {
        let cells = columns.iter().map(|column| (column.value)(figure).to_field());
        push_row(&mut text, &cells.collect::<Vec<_>>());
    }
    let _ = writeln!(text, "\n![{0}]({1}.svg)\n\n## Judgement\n", study.plot.title, study.name);
    for sentence in &study.judgement {
        let _ = writeln!(text, "{}", wrap(&format!("- {sentence}"), 100, 2));
    }
    text.push_str("\n## What went in\n\n");
    push_row(&mut text, &["input", "value", "origin", "source"].map(str::to_owned));
    push_row(&mut text, &["---", "---", "---", "---"].map(str::to_owned));
    for input in &study.inputs {
        let origin = input.origin.as_str().to_owned();
        push_row(
            &mut text,
            &[input.what.clone(), input.value.clone(), origin, input.source.clone()],
        );
    }
    for grid in &study.grids {
        let _ = writeln!(text, "\n## {}\n", grid.title.split(" (").next().unwrap_or_default());
        if grid.title.contains(" (") {
            let _ = writeln!(text, "{}.\n", wrap(&grid.title, 100, 0));
        }
        push_row(&mut text, &grid.headings);
        push_row(&mut text, &vec!["---".to_owned(); grid.headings.len()]);
        for row in &grid.rows {
            push_row(&mut text, row);
        }
    }
    text
}

fn push_row(text: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The study for a program.
pub fn to_json(study: &Study) -> Json {
    let figures = study.figures.iter().map(|figure| {
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
    let inputs = study.inputs.iter().map(|input| {
        json!({
            "input": input.what,
            "value": input.value,
            "origin": input.origin.as_str(),
            "fitted_to": input.fitted_to,
            "source": input.source,
        })
    });
    let grids = study
        .grids
        .iter()
        .map(|grid| json!({ "title": grid.title, "headings": grid.headings, "rows": grid.rows }));
    let series =
        study.plot.series.iter().map(|(name, points)| json!({ "name": name, "points": points }));
    let judgement = study.judgement.iter().map(Statement::general);
    json!({
        "study": study.name,
        "claim": study.claim,
        "source": study.source,
        "figures": figures.collect::<Vec<_>>(),
        "inputs": inputs.collect::<Vec<_>>(),
        "tables": grids.collect::<Vec<_>>(),
        "findings": judgement.collect::<Vec<_>>(),
        "plot": { "title": study.plot.title, "series": series.collect::<Vec<_>>() },
    })
}

/// Colours that are told apart without seeing red and green.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// Room on the right for the names of the lines, as a share of the axis.
const LEGEND_ROOM: f64 = 0.3;

/// A plot as SVG.
///
/// # Panics
/// Never: a string takes all that is drawn.
pub fn to_svg(plot: &Plot) -> String {
    let mut svg = String::new();
    draw(plot, &mut svg).expect("a string takes all that is drawn");
    svg
}

fn draw(plot: &Plot, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || plot.series.iter().flat_map(|(_, points)| points);
    let bounds = |of: fn(&(f64, f64)) -> f64, room_ratio: f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        let high = points().map(of).fold(f64::NEG_INFINITY, f64::max);
        let margin = ((high - low) * 0.05).max(1e-9);
        let room = (high - low) * room_ratio;
        if low.is_finite() { low - margin..high + margin + room } else { 0.0..1.0 }
    };
    let mut chart = ChartBuilder::on(&area)
        .caption(&plot.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(bounds(|point| point.0, LEGEND_ROOM), bounds(|point| point.1, 0.0))?;
    chart
        .configure_mesh()
        .x_desc(&plot.x_label)
        .y_desc(&plot.y_label)
        .light_line_style(WHITE)
        .draw()?;
    for (index, (name, points)) in plot.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    drop(chart);
    Ok(())
}
