//! Plots energy against delay: a dot for each governor and price of delay, and the oracle's front. Left and low is
//! good.

use std::collections::HashMap;

use plotters::prelude::*;

use idlewise_sim::contest::{Entry, Spent};

use crate::arena::times;
use crate::shown::shown_in_line;
use crate::svg::{Area, BLUE, Drawn, GREEN, ORANGE, PURPLE, SKY, YELLOW, svg};

const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY];
/// Energy is shown up to this many times the least.
const ENERGY_RATIO_MAX: f64 = 4.0;

/// A governor's dots, or the oracle's: for each price of delay the mean delay in µs, and the energy as a multiple of
/// the least.
#[derive(Clone, Debug, PartialEq)]
struct Course {
    name: String,
    dots: Vec<(f64, f64)>,
}

/// Draws all cells as SVG: means over logs, machines, ticks and shapes.
pub fn to_svg(cells: &[Entry]) -> String {
    svg((900, 520), |area| draw(&courses(cells), area))
}

/// The oracle's course, then the governors' in the order of the cells.
fn courses(cells: &[Entry]) -> Vec<Course> {
    // Energy is compared with the least that the oracle needs in the same place at any of the prices.
    let place =
        |cell: &Entry| (cell.log.clone(), cell.machine().to_owned(), cell.result.hz, cell.shape);
    let mut least_uj = HashMap::new();
    for cell in cells {
        let uj = least_uj.entry(place(cell)).or_insert(f64::INFINITY);
        *uj = cell.oracle_spent.energy_uj.min(*uj);
    }
    let dot = |cell: &Entry, spent: &Spent| {
        let least_uj = least_uj[&place(cell)];
        (least_uj > 0.0).then(|| (spent.delay_mean_ns / 1_000.0, spent.energy_uj / least_uj))
    };
    let mut governors: Vec<&str> = Vec::new();
    let mut lambdas: Vec<f64> = Vec::new();
    for cell in cells {
        if !governors.contains(&&*cell.governor) {
            governors.push(&cell.governor);
        }
        let lambda = times(cell.price);
        if !lambdas.contains(&lambda) {
            lambdas.push(lambda);
        }
    }
    let Some(&first) = governors.first() else { return Vec::new() };
    let course = |name: &str, governor: &str, spent: fn(&Entry) -> &Spent| {
        let mean = |lambda: &f64| {
            let own =
                cells.iter().filter(|it| it.governor == governor && times(it.price) == *lambda);
            let dots: Vec<(f64, f64)> = own.filter_map(|cell| dot(cell, spent(cell))).collect();
            let count = dots.len() as f64;
            let sum = dots.iter().fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
            (count > 0.0).then(|| (sum.0 / count, sum.1 / count))
        };
        let mut dots: Vec<(f64, f64)> = lambdas.iter().filter_map(mean).collect();
        // A governor that knows no price does the same at each.
        dots.dedup();
        Course { name: name.to_owned(), dots }
    };
    let oracle = course("oracle", first, |cell| &cell.oracle_spent);
    let own = governors.iter().map(|name| course(name, name, |cell| &cell.spent));
    std::iter::once(oracle).chain(own).collect()
}

fn draw(courses: &[Course], area: &Area<'_>) -> Drawn {
    let all = || courses.iter().flat_map(|course| &course.dots);
    let delay_us = all().map(|at| at.0).fold(0.0, f64::max).max(1e-3) * 1.05;
    let shown = all().map(|at| at.1).filter(|energy| *energy <= ENERGY_RATIO_MAX);
    let energy = (shown.fold(1.0, f64::max) * 1.03).max(1.1);
    let (left, right) = area.split_horizontally(700);
    let mut chart = ChartBuilder::on(&left)
        .caption("Energy against delay, means over cells (simulated)", ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..delay_us, 1.0 - (energy - 1.0) * 0.03..energy)?;
    chart
        .configure_mesh()
        .x_desc("mean delay of a wake event, us")
        .y_desc("energy, times the oracle's least")
        .light_line_style(WHITE)
        .draw()?;
    for (index, course) in courses.iter().enumerate() {
        let colour = match index {
            0 => BLACK,
            _ => COLOURS[(index - 1) % COLOURS.len()],
        };
        // Each time all colours were used, the dots get another shape.
        let round = index.saturating_sub(1) / COLOURS.len();
        let inside = course.dots.iter().copied().filter(|at| at.1 <= energy);
        let dots: Vec<(f64, f64)> = inside.collect();
        chart.draw_series(LineSeries::new(dots.iter().copied(), colour.stroke_width(1)))?;
        let y = 40 + 20 * index as i32;
        let name = shown_in_line(&course.name).into_owned();
        let name = match dots.len() {
            0 => format!("{name} (above the plot)"),
            _ => name,
        };
        let style = ("sans-serif", 13).into_font().color(&colour);
        right.draw(&Text::new(name, (18, y - 7), style))?;
        match round {
            0 => {
                chart.draw_series(dots.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
                right.draw(&Circle::new((8, y), 4, colour.filled()))?;
            }
            1 => {
                let square =
                    |at| EmptyElement::at(at) + Rectangle::new([(-4, -4), (4, 4)], colour.filled());
                chart.draw_series(dots.iter().map(|&at| square(at)))?;
                right.draw(&Rectangle::new([(4, y - 4), (12, y + 4)], colour.filled()))?;
            }
            _ => {
                let dots = dots.iter().map(|&at| TriangleMarker::new(at, 6, colour.filled()));
                chart.draw_series(dots)?;
                right.draw(&TriangleMarker::new((8, y), 6, colour.filled()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::tests::cell;

    #[test]
    fn a_course_is_the_mean_over_cells_by_price() {
        let cells = [
            cell("a", "menu", 0.0, 0.5),
            cell("b", "menu", 0.0, 0.1),
            cell("a", "menu", 1.0, 0.5),
            cell("b", "menu", 1.0, 0.1),
            cell("a", "hazard", 0.0, 0.2),
            cell("b", "hazard", 0.0, 0.2),
            cell("a", "hazard", 1.0, 0.4),
            cell("b", "hazard", 1.0, 0.4),
        ];
        let courses = courses(&cells);
        let names: Vec<&str> = courses.iter().map(|course| &*course.name).collect();
        assert_eq!(names, ["oracle", "menu", "hazard"]);
        assert_eq!(courses[0].dots, [(1.0, 1.0)]);
        assert_eq!(courses[1].dots, [(2.0, 1.3)], "the same at both prices");
        assert_eq!(courses[2].dots, [(2.0, 1.2), (2.0, 1.4)]);
        let svg = to_svg(&cells);
        // Four dots, and one of each in the legend.
        assert_eq!(svg.matches("<circle").count(), 4 + 3);
        assert!(svg.contains("hazard") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn what_is_far_above_is_said_and_nothing_at_all_is_drawn() {
        let svg = to_svg(&[cell("a", "menu", 0.0, 0.1), cell("a", "a<b", 0.0, 30.0)]);
        assert!(svg.contains("a&lt;b (above the plot)"), "{svg}");
        assert!(to_svg(&[]).contains("</svg>"));
    }
}
