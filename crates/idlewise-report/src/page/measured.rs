//! Saved measurements as charts: each figure's distribution, and its median and 99th percentile with
//! intervals.

use super::{
    BasisKind, Chart, Drawing, IntervalRow, Page, PageKind, Provenance, QuantilePoint,
    QuantileSeries,
};
use crate::saved::{Block, Saved, SavedSeries, SeriesUnit, Statistic};
use crate::statistics::{RUN_COUNT_MIN, estimate};

/// The quantiles of a distribution: even up to nine tenths, then denser towards 1.
const QUANTILES: [f64; 30] = [
    0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8,
    0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0,
];

/// Makes the page of saved measurements, each with the name of its file.
pub fn measured_page(files: &[(String, Saved)], command: &str) -> Page {
    let mut page = Page::new(PageKind::Figures);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let kind = files.first().map_or("", |(_, saved)| saved.measurement.as_str());
    page.facts.title = format!("measure {kind}: {}", names.join(", "));
    command.clone_into(&mut page.facts.command);
    let mut figures: Vec<(&str, SeriesUnit)> = Vec::new();
    for series in files.iter().flat_map(|(_, saved)| &saved.series) {
        if !figures.contains(&(series.figure.as_str(), series.unit)) {
            figures.push((&series.figure, series.unit));
        }
    }
    for (index, &(figure, unit)) in figures.iter().enumerate() {
        let all =
            files.iter().flat_map(|(name, saved)| saved.series.iter().map(move |one| (name, one)));
        let same = all.filter(|(_, one)| one.figure == figure && one.unit == unit);
        let series: Vec<(String, &SavedSeries)> =
            same.map(|(name, one)| (case(files.len() > 1, name, one), one)).collect();
        page.facts.charts.extend(charts(index, figure, unit, &series, command));
    }
    for (name, saved) in files {
        let mut add = |what: &str, value: &str| {
            let what = format!("{name}: {what}");
            page.facts.provenance.push(Provenance { name: what, value: value.to_owned() });
        };
        add("measured by", &saved.program);
        add("date", &saved.date);
        for fact in &saved.machine {
            add(&fact.fact, fact.value.as_deref().unwrap_or("not shown"));
        }
        for doubt in &saved.doubts {
            add("doubt", doubt);
        }
        if saved.doubt_count > 0 {
            add("doubts", &format!("{} in the file itself", saved.doubt_count));
        }
    }
    page
}

/// What a series is of.
fn case(has_files: bool, file: &str, series: &SavedSeries) -> String {
    let parts = [if has_files { file } else { "" }, &series.setting, &series.place];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn charts(
    index: usize,
    figure: &str,
    unit: SeriesUnit,
    series: &[(String, &SavedSeries)],
    command: &str,
) -> Vec<Chart> {
    let unit = match unit {
        SeriesUnit::Nanoseconds => "ns",
        SeriesUnit::PerSecond => "1/s",
        SeriesUnit::Milliwatts => "mW",
        SeriesUnit::Ratio => "",
    };
    let chart = |id: &str, title: String, about: &str, drawing| Chart {
        id: format!("{id}-{index}"),
        title,
        about: about.to_owned(),
        basis: Some(BasisKind::Measured),
        command: Some(command.to_owned()),
        drawing,
    };
    let all = |one: &SavedSeries| Values::of(&one.blocks, 0..one.blocks.len());
    let is_log = unit == "ns" && series.iter().all(|(_, one)| all(one).quantile(0.0) > 0.0);
    let mut charts = Vec::new();
    let distributions: Vec<QuantileSeries> = series
        .iter()
        .filter(|(_, one)| one.statistic == Statistic::Percentiles)
        .map(|(name, one)| QuantileSeries { name: name.clone(), points: points(&all(one)) })
        .filter(|series| !series.points.is_empty())
        .collect();
    if !distributions.is_empty() {
        charts.push(chart(
            "quantiles",
            format!("{figure}: distribution"),
            "Each line is a case: the share of its values that are at most so long.",
            Drawing::Quantiles { unit: unit.to_owned(), is_log, series: distributions },
        ));
    }
    let rows: Vec<IntervalRow> = series.iter().flat_map(|(name, one)| rows(name, one)).collect();
    if !rows.is_empty() {
        charts.push(chart(
            "intervals",
            format!("{figure}: with intervals"),
            "One row for each case and statistic.",
            Drawing::Intervals {
                unit: unit.to_owned(),
                is_log,
                about_interval: format!(
                    "95 %, from drawing the saved blocks of values again and again. They say how values \
                     vary within a run, not from run to run: two intervals that do not meet are no difference yet. A case with fewer than {RUN_COUNT_MIN} \
                     blocks has no interval."
                ),
                rows,
            },
        ));
    }
    charts
}

/// The values of some blocks, ascending, each with how often it occurs.
struct Values {
    counted: Vec<(f64, u64)>,
    count: u64,
}

impl Values {
    fn of(blocks: &[Block], drawn: impl IntoIterator<Item = usize>) -> Self {
        let mut counted: Vec<(f64, u64)> =
            drawn.into_iter().flat_map(|index| blocks[index].0.iter().copied()).collect();
        counted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = counted.iter().map(|(_, count)| count).sum();
        Values { counted, count }
    }

    /// The least value that at least that share does not exceed; NaN if there are none.
    fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reaches = |&&(_, count): &&(f64, u64)| {
            seen += count;
            seen >= rank
        };
        self.counted.iter().find(reaches).map_or(f64::NAN, |&(value, _)| value)
    }

    fn mean(&self) -> f64 {
        let sum: f64 = self.counted.iter().map(|&(value, count)| value * count as f64).sum();
        sum / self.count as f64
    }
}

fn points(values: &Values) -> Vec<QuantilePoint> {
    let point = |&quantile: &f64| QuantilePoint { quantile, value: values.quantile(quantile) };
    QUANTILES.iter().map(point).filter(|point| point.value.is_finite()).collect()
}

fn rows(name: &str, series: &SavedSeries) -> Vec<IntervalRow> {
    type Statistics = &'static [(&'static str, fn(&Values) -> f64)];
    let statistics: Statistics = match series.statistic {
        Statistic::Percentiles => {
            &[("median", |all| all.quantile(0.5)), ("99th percentile", |all| all.quantile(0.99))]
        }
        Statistic::Mean => &[("mean", Values::mean)],
        Statistic::Median => &[("median", |all| all.quantile(0.5))],
    };
    let row = |&(group, statistic): &(&str, fn(&Values) -> f64)| {
        let of = |drawn: &[usize]| statistic(&Values::of(&series.blocks, drawn.iter().copied()));
        let (middle, interval) = estimate(series.blocks.len(), of);
        let [low, high] = interval.unwrap_or([middle; 2]);
        let is_known = middle.is_finite() && low.is_finite() && high.is_finite();
        is_known.then(|| IntervalRow {
            name: name.to_owned(),
            group: group.to_owned(),
            middle,
            low,
            high,
        })
    };
    statistics.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(blocks: Vec<Block>) -> Saved {
        Saved {
            measurement: "ipi".to_owned(),
            program: "idlewise".to_owned(),
            date: "2026-11-22".to_owned(),
            machine: Vec::new(),
            series: vec![SavedSeries::times("wake latency", "CPU 2", "C6", blocks)],
            doubt_count: 0,
            run_count: 1,
            conditions: Vec::new(),
            doubts: Vec::new(),
        }
    }

    #[test]
    fn a_measurement_has_its_distribution_and_its_intervals() {
        let block = |i: u64| Block::of_times(&mut [1_000 + i, 2_000, 3_000]);
        let page = measured_page(&[("halt".to_owned(), saved((0..20).map(block).collect()))], "x");
        let [quantiles, intervals] = &page.facts.charts[..] else { panic!() };
        let Drawing::Quantiles { series, is_log, .. } = &quantiles.drawing else { panic!() };
        assert!(*is_log && series[0].name == "C6, CPU 2");
        assert_eq!((series[0].points[0].value, series[0].points[29].value), (1_000.0, 3_000.0));
        assert!(series[0].points.is_sorted_by(|a, b| a.value <= b.value));
        let Drawing::Intervals { rows, .. } = &intervals.drawing else { panic!() };
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].middle, rows[1].middle), (2_000.0, 3_000.0));
        assert!(rows.iter().all(|row| row.low <= row.middle && row.middle <= row.high));
    }

    #[test]
    fn a_measurement_without_values_has_no_chart() {
        let page = measured_page(&[("empty".to_owned(), saved(vec![Block::default()]))], "x");
        assert!(page.facts.charts.is_empty());
        assert!(page.to_html().contains("measure ipi"));
    }
}
