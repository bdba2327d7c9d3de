//! A study on the page of `idlewise lab study --report`: its own plot, its figures with the range of all its
//! runs, and for each figure what each input does to it.

use crate::figure::{Line, Study, short};
use crate::page::{Page, Row};
use crate::plot::bars;
use crate::sensitivity::{Effect, Label};
use idlewise_report::page::{
    Axis, BasisKind, Chart, Drawing, IntervalRow, LinePoint, LineSeries, Page as HtmlPage,
    PageKind, Provenance, TornadoRow,
};

/// Makes the page of some studies.
pub fn to_html_page<'a>(
    studies: impl IntoIterator<Item = (&'a Study, &'a Page)>,
    command: &str,
) -> HtmlPage {
    let mut html = HtmlPage::new(PageKind::Figures);
    command.clone_into(&mut html.facts.command);
    let mut names = Vec::new();
    for (study, page) in studies {
        names.push(study.name);
        html.facts.charts.extend(charts(study, page));
        let name = format!("{}: source of the claim", study.name);
        html.facts.provenance.push(Provenance { name, value: study.source.to_owned() });
    }
    html.facts.title = match names[..] {
        [one] => format!("study {one}"),
        _ => format!("studies {}", names.join(", ")),
    };
    html
}

fn charts(study: &Study, page: &Page) -> Vec<Chart> {
    let chart = |id: String, title: String, about: String, basis, drawing| Chart {
        id: format!("{}-{id}", study.name),
        title,
        about,
        basis: Some(basis),
        command: Some(format!("idlewise lab study {}", study.name)),
        drawing,
    };
    let plot = &page.body.plot;
    let axis = |label: &str| Axis { name: label.to_owned(), unit: String::new(), is_log: false };
    let line = |line: &Line| LineSeries {
        name: line.name.clone(),
        points: line.points.iter().map(|&(x, y)| LinePoint { x, y }).collect(),
    };
    let judgement = page.body.judgement.join(" ");
    let mut charts = vec![chart(
        "plot".to_owned(),
        format!("{}: {}", study.name, plot.title),
        format!("{} {judgement}", study.claim),
        BasisKind::Simulated,
        Drawing::Lines {
            x: axis(plot.x_label),
            y: axis(plot.y_label),
            series: plot.lines.iter().map(line).collect(),
        },
    )];
    for (index, row) in page.figures.iter().enumerate() {
        let is_ours = matches!(row.examined.label, Label::Predicted | Label::Simulated);
        let (Some(ours), true) = (row.figure.ours, is_ours) else { continue };
        let rows = tornado(row);
        if rows.is_empty() {
            continue;
        }
        charts.push(chart(
            format!("inputs-{index}"),
            format!("{}: what moves \"{}\"", study.name, row.figure.what),
            format!(
                "Each bar is one input from the one to the other end of what is plausible, the others as \
                 they are. The figure is {}.",
                row.examined.label.as_str()
            ),
            BasisKind::Simulated,
            Drawing::Tornado {
                unit: row.figure.unit.to_owned(),
                base: ours,
                base_name: "ours".to_owned(),
                rows,
            },
        ));
    }
    for unit in units(page) {
        let rows: Vec<IntervalRow> = page
            .figures
            .iter()
            .filter(|row| row.figure.unit == unit)
            .filter_map(interval)
            .collect();
        if rows.is_empty() {
            continue;
        }
        charts.push(chart(
            format!("ranges-{}", charts.len()),
            format!(
                "{}: figures in {}",
                study.name,
                if unit.is_empty() { "numbers" } else { unit }
            ),
            "Each figure of ours, with the least and the greatest that runs with other plausible inputs gave."
                .to_owned(),
            BasisKind::Simulated,
            Drawing::Intervals {
                unit: unit.to_owned(),
                is_log: false,
                about_interval:
                    "explored by runs with other inputs; neither a bound nor a confidence interval".to_owned(),
                rows,
            },
        ));
    }
    charts
}

/// The units of the figures, each once.
fn units(page: &Page) -> Vec<&'static str> {
    let mut units = Vec::new();
    for row in &page.figures {
        if !units.contains(&row.figure.unit) {
            units.push(row.figure.unit);
        }
    }
    units
}

fn interval(row: &Row) -> Option<IntervalRow> {
    let (low, high) = row.examined.range?;
    Some(IntervalRow {
        name: row.figure.what.clone(),
        group: row.examined.label.as_str().to_owned(),
        middle: row.figure.ours?,
        low,
        high,
    })
}

fn tornado(row: &Row) -> Vec<TornadoRow> {
    let of_name = |(name, [low, high]): (String, [f64; 2])| {
        let is_it = |effect: &&Effect| name.starts_with(&format!("{}: ", effect.input));
        let [low_name, high_name] = match row.examined.effects.iter().find(is_it) {
            Some(effect) => effect.ends.map(short),
            None => [String::new(), String::new()],
        };
        TornadoRow { name, low, high, low_name, high_name }
    };
    bars(row).into_iter().map(of_name).collect()
}
