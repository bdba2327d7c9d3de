//! The plot of a study.

use plotters::prelude::*;

use super::{Page, Plot};

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

/// A page's plot as SVG.
///
/// # Panics
/// Never: a string takes all that is drawn.
pub fn to_svg(page: &Page) -> String {
    let mut svg = String::new();
    draw(&page.plot, &mut svg).expect("a string takes all that is drawn");
    svg
}

fn draw(plot: &Plot, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let bounds = |of: fn(&(f64, f64)) -> f64, room_ratio: f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        let high = points().map(of).fold(f64::NEG_INFINITY, f64::max);
        let margin = ((high - low) * 0.05).max(1e-9);
        let room = (high - low) * room_ratio;
        if low.is_finite() { low - margin..high + margin + room } else { 0.0..1.0 }
    };
    let mut chart = ChartBuilder::on(&area)
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
    area.present()?;
    drop(chart);
    Ok(())
}
