//! The output of `idlewise measure counters`: what CPUs, cores and packages did, by counters of the
//! processor and of the kernel.

use crate::saved::{Block, SavedSeries, SeriesUnit, Statistic};
use crate::{Column, Table, Value};

/// A counter at one place, slice by slice.
#[derive(Clone, Debug)]
pub struct CounterFigures {
    /// Its name.
    pub counter: String,
    /// Its name for perf, or the file.
    pub source: String,
    /// Where it counted: `CPU 3`, `core of CPU 2`, `package 1`.
    pub place: String,
    /// The unit of the values: a share, a rate or a power.
    pub unit: SeriesUnit,
    /// A value for each slice; `None` if it did not count then.
    pub slices: Vec<Option<f64>>,
}

impl CounterFigures {
    fn mean(&self) -> Option<f64> {
        mean(self.slices.iter().copied())
    }
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, count) = values.flatten().fold((0.0, 0_u64), |(sum, n), value| (sum + value, n + 1));
    (count > 0).then(|| sum / count as f64)
}

/// A line of the table: a counter at one place, or at several.
#[derive(Clone, Debug)]
pub struct CounterLine {
    counter: String,
    source: String,
    place: String,
    unit: SeriesUnit,
    mean: Option<f64>,
    /// The least and the greatest of several places.
    range: Option<[f64; 2]>,
    /// The mean of the places in each slice.
    slices: Vec<Option<f64>>,
}

impl CounterLine {
    fn value(&self, unit: SeriesUnit, value: Option<f64>) -> Value {
        value.filter(|_| self.unit == unit).into()
    }

    fn end(&self, unit: SeriesUnit, end: usize) -> Value {
        self.value(unit, self.range.map(|range| range[end]))
    }

    /// Returns the line in the form in which measurements are saved.
    pub fn series(&self, setting: &str) -> SavedSeries {
        SavedSeries {
            figure: self.counter.clone(),
            place: self.place.clone(),
            setting: setting.to_owned(),
            unit: self.unit,
            statistic: Statistic::Mean,
            better: None,
            blocks: self.slices.iter().flatten().map(|value| Block::of(*value)).collect(),
        }
    }
}

/// Returns the columns of `idlewise measure counters`.
pub fn columns() -> Vec<Column<CounterLine>> {
    use SeriesUnit::{Milliwatts, PerSecond, Ratio};
    type C = Column<CounterLine>;
    vec![
        C::text("counter", "counter", |row| row.counter.as_str().into())
            .means(
                "What is counted: `requested` by the kernel, or what the hardware did (`core`, \
                 `module`, `package`).",
            )
            .key(),
        C::text("place", "place", |row| row.place.as_str().into())
            .means("Where, or in how many places."),
        C::ratio("share_ratio", "share", |row| row.value(Ratio, row.mean)).means(
            "Mean share of time over slices and places; measured. For C0.1 and C0.2 a share of \
             unhalted cycles, for the speed of the TSC's (above 100 % in turbo).",
        ),
        C::ratio("share_least_ratio", "least", |row| row.end(Ratio, 0))
            .means("The least of the places.")
            .detail(),
        C::ratio("share_greatest_ratio", "greatest", |row| row.end(Ratio, 1))
            .means("The greatest of the places.")
            .detail(),
        C::per_s("rate_per_s", "rate", |row| row.value(PerSecond, row.mean))
            .means("Events per second and place, mean; measured."),
        C::per_s("rate_least_per_s", "least", |row| row.end(PerSecond, 0))
            .means("The least of the places.")
            .detail(),
        C::per_s("rate_greatest_per_s", "greatest", |row| row.end(PerSecond, 1))
            .means("The greatest of the places.")
            .detail(),
        C::mw("power_mw", "power", |row| row.value(Milliwatts, row.mean))
            .means("Power at each place, mean; measured.")
            .detail(),
        C::text("source", "source", |row| row.source.as_str().into())
            .means("The counter's name for perf, or the file.")
            .detail(),
    ]
}

/// One line for each place.
pub fn each_place(figures: &[CounterFigures]) -> Vec<CounterLine> {
    let line = |one: &CounterFigures| CounterLine {
        counter: one.counter.clone(),
        source: one.source.clone(),
        place: one.place.clone(),
        unit: one.unit,
        mean: one.mean(),
        range: None,
        slices: one.slices.clone(),
    };
    figures.iter().map(line).collect()
}

/// One line for each counter, over all its places. Packages are not summed up: each has a line.
pub fn over_places(figures: &[CounterFigures]) -> Vec<CounterLine> {
    let mut lines: Vec<CounterLine> = Vec::new();
    let mut rest = figures;
    while let Some(first) = rest.first() {
        let is_alike = |one: &&CounterFigures| {
            (&one.counter, &one.source, one.unit) == (&first.counter, &first.source, first.unit)
        };
        let count = rest.iter().take_while(is_alike).count();
        let (alike, others) = rest.split_at(count);
        rest = others;
        if count == 1 || first.place.starts_with("package") {
            lines.extend(each_place(alike));
            continue;
        }
        let means: Vec<f64> = alike.iter().filter_map(CounterFigures::mean).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let kind = first.place.split_whitespace().next().unwrap_or_default();
        let slice_count = alike.iter().map(|one| one.slices.len()).max().unwrap_or(0);
        let of_slice =
            |index: usize| mean(alike.iter().map(|one| one.slices.get(index).copied().flatten()));
        lines.push(CounterLine {
            counter: first.counter.clone(),
            source: first.source.clone(),
            place: format!("{count} {kind}s"),
            unit: first.unit,
            mean: mean(alike.iter().map(CounterFigures::mean)),
            range: (!means.is_empty()).then_some([least, greatest]),
            slices: (0..slice_count).map(of_slice).collect(),
        });
    }
    lines
}

/// Returns a table of lines.
pub fn measure_counters_table(title: &str, lines: &[CounterLine]) -> Table {
    Table::new(title, &columns(), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    fn figures(counter: &str, place: &str, unit: SeriesUnit, slices: &[f64]) -> CounterFigures {
        CounterFigures {
            counter: counter.to_owned(),
            source: "x/y/".to_owned(),
            place: place.to_owned(),
            unit,
            slices: slices.iter().copied().map(Some).collect(),
        }
    }

    #[test]
    fn cpus_are_one_line_and_packages_each_have_one() {
        let all = [
            figures("core C6", "core of CPU 0", SeriesUnit::Ratio, &[0.5, 0.7]),
            figures("core C6", "core of CPU 1", SeriesUnit::Ratio, &[0.1, 0.3]),
            figures("package energy", "package 0", SeriesUnit::Milliwatts, &[1000.0, 3000.0]),
            figures("package energy", "package 1", SeriesUnit::Milliwatts, &[4000.0, 4000.0]),
            figures("RES", "CPU 0", SeriesUnit::PerSecond, &[10.0, 30.0]),
        ];
        let lines = over_places(&all);
        let csv = measure_counters_table("", &lines).to_csv();
        let rows: Vec<&str> = csv.lines().skip(1).collect();
        assert!(rows[0].starts_with("core C6,2 cores,0.4,0.2"), "{csv}");
        assert_eq!(rows[1], "package energy,package 0,,,,,,,2000,x/y/");
        assert_eq!(rows[2], "package energy,package 1,,,,,,,4000,x/y/");
        assert_eq!(rows[3], "RES,CPU 0,,,,20,,,,x/y/");
        assert_eq!(each_place(&all).len(), 5);
        let series = lines[0].series("");
        assert_eq!(series.blocks.len(), 2, "a block for each slice: 0.3 and 0.5");
        let text = measure_counters_table("", &lines).to_text(&TextStyle::default());
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn a_counter_that_never_counted_is_absent() {
        let mut one = figures("C6", "CPU 0", SeriesUnit::Ratio, &[]);
        one.slices = vec![None, None];
        let lines = over_places(&[one.clone(), one]);
        let csv = measure_counters_table("", &lines).to_csv();
        assert_eq!(csv.lines().nth(1), Some("C6,2 CPUs,,,,,,,,x/y/"));
        assert!(lines[0].series("").blocks.is_empty());
    }
}
