//! Plots latency against CPU time with a dot for each way to park. Left and low is good.

use plotters::prelude::*;

use super::goals::of_way;
use super::result::{ParkResult, ParkRole, ParkWorkload};
use idlewise_report::shown_in_line;
use idlewise_report::svg::{Area, BLUE, Drawn, GREY, ORANGE, svg};

/// Draws a workload as SVG: medians over the runs.
pub fn to_svg(result: &ParkResult, workload: &ParkWorkload) -> String {
    svg((760, 420), |area| draw(result, workload, area))
}

fn draw(result: &ParkResult, workload: &ParkWorkload, area: &Area<'_>) -> Drawn {
    let runs = result.runs.as_slice();
    let all: Vec<usize> = (0..runs.len()).collect();
    let name = workload.workload.as_str();
    let dots: Vec<_> = workload
        .ways
        .iter()
        .filter_map(|way| {
            let latency_ns =
                of_way(runs, name, &way.way, |one| one.wake_latency_mean_ns)?.median(&all);
            let cpu_ratio = of_way(runs, name, &way.way, |one| one.cpu_ratio)?.median(&all);
            let at = (cpu_ratio * 100.0, latency_ns.max(1.0) / 1_000.0);
            Some((shown_in_line(&way.way).into_owned(), way.role, at))
        })
        .collect();
    let latencies = || dots.iter().map(|(_, _, (_, latency_us))| *latency_us);
    let decade = |us: f64, round: fn(f64) -> f64| 10f64.powf(round(us.log10()));
    let low = decade(latencies().fold(f64::INFINITY, f64::min).clamp(1e-3, 1e6), f64::floor);
    let high = decade(latencies().fold(0.0, f64::max).clamp(1e-3, 1e6), f64::ceil).max(low * 10.0);
    let title = format!("{}: mean wake latency against CPU time (measured)", shown_in_line(name));
    // Leave room on the right for the names of those that use a whole CPU.
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..115.0, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("CPU time of the waiter, % (blue: a futex and other libraries)")
        .y_desc("us")
        .light_line_style(WHITE)
        .draw()?;
    for (way, role, at) in dots {
        let colour = match role {
            ParkRole::Ours => ORANGE,
            ParkRole::FixedSpin => GREY,
            ParkRole::Futex | ParkRole::Other => BLUE,
        };
        chart.draw_series([Circle::new(at, 4, colour.filled())])?;
        // The other libraries' dots overlap, so they have no labels.
        if role != ParkRole::Other {
            let style = ("sans-serif", 12).into_font().color(&colour);
            let label = EmptyElement::at(at) + Text::new(way, (6, -12), style);
            chart.draw_series([label])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use super::*;

    #[test]
    fn plots_every_way_and_names_the_judged_ones() {
        let result = result();
        let plot = to_svg(&result, &result.runs[0].workloads[0]);
        assert_eq!(plot.matches("<circle").count(), 4);
        assert!(plot.contains("spin &lt;1") && plot.trim_end().ends_with("</svg>"));
    }
}
