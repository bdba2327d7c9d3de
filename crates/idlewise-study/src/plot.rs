//! The plots of a study: its own, and what each input does to one of its figures.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figure::{Plot, Published, short};
use crate::page::{Page, Row};
use crate::sensitivity::{Effect, Label};
use idlewise_report::svg::{Area, BLUE, Drawn, GREEN, GREY, ORANGE, PURPLE, SKY, svg};

const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, PURPLE, SKY, GREY];

/// Room on the right for the names of the lines, as a share of the axis.
const LEGEND_ROOM: f64 = 0.3;

/// A page's plot as SVG.
pub fn to_svg(page: &Page) -> String {
    svg((760, 420), |area| draw(&page.body.plot, area))
}

/// Inputs that a tornado plot shows, at most.
const BAR_COUNT_MAX: usize = 8;
/// Room for the inputs' names.
const NAMES_WIDTH: u32 = 470;
/// What moves a figure by less than this share of the whole has no bar.
const LEAST_BAR_RATIO: f64 = 0.005;

/// What each input does to the study's first published figure that was not put in, as SVG. None if there
/// is no such figure, or nothing does anything to it.
pub fn to_tornado(page: &Page) -> Option<String> {
    let row = tornado_row(page)?;
    let bars = bars(row);
    let height = 110 + 34 * bars.len() as u32;
    Some(svg((1_040, height), |area| draw_tornado(row, &bars, area)))
}

/// The figure that the tornado plot shows.
pub(crate) fn tornado_row(page: &Page) -> Option<&Row> {
    let rows = || {
        page.figures.iter().filter(|row| {
            let is_ours = matches!(row.examined.label, Label::Predicted | Label::Simulated);
            is_ours && !bars(row).is_empty()
        })
    };
    let exact = rows().find(|row| matches!(row.figure.published, Published::Exactly(_)));
    exact.or_else(|| rows().find(|row| !matches!(row.figure.published, Published::Nothing)))
}

/// The inputs that change a figure, the strongest first: their names, and what the ends give.
pub(crate) fn bars(row: &Row) -> Vec<(String, [f64; 2])> {
    let ends = row.examined.effects.iter().filter_map(|effect| {
        let Effect { input, ends: [low, high], gives: [Some(a), Some(b)] } = effect else {
            return None;
        };
        let name = format!("{input}: {} to {}", short(*low), short(*high));
        Some((name, [*a, *b]))
    });
    let ours = row.figure.ours.unwrap_or(0.0);
    let span = |ends: &[f64; 2]| ends[0].max(ends[1]).max(ours) - ends[0].min(ends[1]).min(ours);
    let mut bars: Vec<_> = ends.collect();
    bars.sort_by(|a, b| span(&b.1).total_cmp(&span(&a.1)));
    let longest = bars.first().map_or(0.0, |bar| span(&bar.1));
    bars.retain(|bar| span(&bar.1) > LEAST_BAR_RATIO * longest);
    bars.truncate(BAR_COUNT_MAX);
    bars
}

fn draw_tornado(row: &Row, bars: &[(String, [f64; 2])], area: &Area<'_>) -> Drawn {
    let ours = row.figure.ours.unwrap_or(0.0);
    let published = match row.figure.published {
        Published::Exactly(published) => Some(published),
        _ => None,
    };
    let all = || bars.iter().flat_map(|(_, ends)| *ends).chain([ours]).chain(published);
    let (low, high) =
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let margin = ((high - low) * 0.05).max(1e-9);
    let mut chart = ChartBuilder::on(area)
        .caption(&row.figure.what, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d(low - margin..high + margin, 0.0..bars.len() as f64)?;
    chart
        .configure_mesh()
        .x_desc(format!(
            "{}; black: ours, green: published; blue: with the input's lower end, orange: its upper",
            row.figure.unit
        ))
        .disable_y_axis()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .draw()?;
    // The strongest on top.
    for (index, (name, ends)) in bars.iter().rev().enumerate() {
        let (bottom, top) = (index as f64 + 0.15, index as f64 + 0.85);
        for (end, colour) in ends.iter().zip(COLOURS) {
            let corners = [(ours, bottom), (*end, top)];
            chart.draw_series([Rectangle::new(corners, colour.mix(0.7).filled())])?;
        }
        let (_, y) = chart.backend_coord(&(ours, index as f64 + 0.5));
        let style = TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(name.as_str(), (NAMES_WIDTH as i32, y), style))?;
    }
    let mut mark = |at: f64, colour: RGBColor| {
        let ends = [(at, 0.0), (at, bars.len() as f64)];
        chart.draw_series([PathElement::new(ends, colour.stroke_width(2))]).map(|_| ())
    };
    mark(ours, BLACK)?;
    if let Some(published) = published {
        mark(published, COLOURS[2])?;
    }
    Ok(())
}

fn draw(plot: &Plot, area: &Area<'_>) -> Drawn {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let bounds = |of: fn(&(f64, f64)) -> f64, room_ratio: f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        let high = points().map(of).fold(f64::NEG_INFINITY, f64::max);
        let margin = ((high - low) * 0.05).max(1e-9);
        let room = (high - low) * room_ratio;
        if low.is_finite() { low - margin..high + margin + room } else { 0.0..1.0 }
    };
    let mut chart = ChartBuilder::on(area)
        .caption(plot.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(bounds(|point| point.0, LEGEND_ROOM), bounds(|point| point.1, 0.0))?;
    chart
        .configure_mesh()
        .x_desc(plot.x_label)
        .y_desc(plot.y_label)
        .light_line_style(WHITE)
        .draw()?;
    for (index, line) in plot.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart
            .draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
