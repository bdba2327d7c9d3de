//! Chooses the unit and the number of decimals for a column. The whole column uses the same, so
//! that its numbers can be compared at a glance.

use crate::Unit;

/// A unit and a number of decimals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The unit in the heading; empty if there is none.
    pub unit: &'static str,
    /// How many base units it is.
    factor: f64,
    decimals: usize,
}

/// More decimals than this are noise in a table.
const DECIMALS_MAX: usize = 3;

/// The same where each number matters.
const PRECISE_DECIMALS_MAX: usize = 6;

/// A smaller number needs a smaller unit.
const LEAST: f64 = 1.0;

/// A larger number needs a larger unit.
const GREATEST: f64 = 100_000.0;

/// The units to choose from, smallest first.
fn units(unit: Unit) -> &'static [(&'static str, f64)] {
    match unit {
        Unit::Text | Unit::Number => &[("", 1.0)],
        Unit::Count => &[("", 1.0), ("k", 1e3), ("M", 1e6)],
        Unit::Ratio => &[("%", 0.01)],
        Unit::Nanoseconds => &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
        Unit::Cycles => &[("cycles", 1.0)],
        Unit::Microjoules => &[("uJ", 1.0), ("mJ", 1e3), ("J", 1e6)],
        Unit::Milliwatts => &[("mW", 1.0), ("W", 1e3)],
        Unit::PerSecond => &[("1/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)],
    }
}

impl Scale {
    /// Chooses the scale for a column's numbers.
    ///
    /// It is the largest unit in which the greatest number is at least 1. Smaller units are used
    /// while the least number is below 1 and the greatest stays below 100,000, because whole
    /// numbers are easier to compare than fractions. Counts are not divided up to 100,000, nor beside smaller ones, which
    /// would be fractions.
    pub(crate) fn new(unit: Unit, numbers: impl Iterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.filter(|number| *number != 0.0).map(f64::abs).collect();
        let greatest = numbers.iter().copied().fold(0.0, f64::max);
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);

        let units = units(unit);
        let (is_count, is_ratio) = (unit == Unit::Count, unit == Unit::Ratio);
        let wanted = if is_count { GREATEST / 1e3 } else { 1.0 };
        let mut index =
            units.iter().rposition(|(_, factor)| greatest / factor >= wanted).unwrap_or(0);
        while index > 0
            && least / units[index].1 < LEAST
            && (greatest / units[index - 1].1 < GREATEST || is_count)
        {
            index -= 1;
        }
        let (unit, factor) = units[index];

        let is_whole = |number: &f64| ((number / factor).round() - number / factor).abs() < 1e-9;
        let decimals = if numbers.iter().all(is_whole) {
            0
        } else if is_ratio {
            1
        } else {
            // Three digits for the greatest number; one decimal to tell the least from zero.
            let of_greatest = 2 - digits_before_point(greatest / factor);
            let of_least = (1 - digits_before_point(least / factor)).min(1);
            usize::try_from(of_greatest.max(of_least)).unwrap_or(0).min(DECIMALS_MAX)
        };
        Scale { unit, factor, decimals }
    }

    /// Adds decimals until each number is shown within half a percent.
    pub(crate) fn precise(mut self, numbers: impl Iterator<Item = f64>) -> Self {
        for number in numbers.map(|number| (number / self.factor).abs()) {
            let error = |decimals: usize| {
                let step = 10_f64.powi(decimals as i32);
                ((number * step).round() / step - number).abs()
            };
            while self.decimals < PRECISE_DECIMALS_MAX && error(self.decimals) > number / 200.0 {
                self.decimals += 1;
            }
        }
        self
    }

    /// Formats a number. Zero is `0`; a number that would round to zero is marked as not zero.
    pub(crate) fn print(&self, number: f64) -> String {
        if number == 0.0 {
            return "0".to_owned();
        }
        let scaled = number / self.factor;
        let text = format!("{scaled:.*}", self.decimals);
        if text.chars().any(|c| c.is_ascii_digit() && c != '0') {
            return text;
        }
        let step = 10_f64.powi(-(self.decimals as i32));
        let sign = if number < 0.0 { ">-" } else { "<" };
        format!("{sign}{step:.*}", self.decimals)
    }
}

/// 0 for 1 to 9.99, 1 for 10 to 99.9, -1 for 0.1 to 0.999.
fn digits_before_point(number: f64) -> i32 {
    number.log10().floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(unit: Unit, numbers: &[f64]) -> (&'static str, Vec<String>) {
        let scale = Scale::new(unit, numbers.iter().copied());
        (scale.unit, numbers.iter().map(|number| scale.print(*number)).collect())
    }

    #[test]
    fn one_unit_for_a_column() {
        assert_eq!(
            printed(Unit::Nanoseconds, &[0.0, 120.0]),
            ("ns", vec!["0".into(), "120".into()])
        );
        assert_eq!(
            printed(Unit::Nanoseconds, &[1_500.0, 290_000.0]),
            ("us", vec!["1.5".into(), "290.0".into()])
        );
        assert_eq!(
            printed(Unit::Nanoseconds, &[1_000.0, 20_000_000.0]),
            ("us", vec!["1".into(), "20000".into()])
        );
        assert_eq!(
            printed(Unit::Nanoseconds, &[2_430e6, 648e6, 21e6]),
            ("ms", vec!["2430".into(), "648".into(), "21".into()])
        );
        assert_eq!(
            printed(Unit::Microjoules, &[1_234_000.0, 2_000_000.0]),
            ("J", vec!["1.23".into(), "2.00".into()])
        );
        assert_eq!(
            printed(Unit::Milliwatts, &[1_440.0, 100.0]),
            ("mW", vec!["1440".into(), "100".into()])
        );
    }

    #[test]
    fn a_range_too_wide_for_whole_numbers_gets_decimals() {
        assert_eq!(
            printed(Unit::Nanoseconds, &[100.0, 800_000.0]),
            ("us", vec!["0.1".into(), "800.0".into()])
        );
    }

    #[test]
    fn precise_numbers_keep_their_digits() {
        let residencies = [0.0, 10e3, 50e3, 133e3, 100e6];
        let numbers = || residencies.into_iter();
        let scale = Scale::new(Unit::Nanoseconds, numbers()).precise(numbers());
        let shown: Vec<String> = numbers().map(|number| scale.print(number)).collect();
        assert_eq!(scale.unit, "ms");
        assert_eq!(shown, ["0", "0.010", "0.050", "0.133", "100.000"]);
    }

    #[test]
    fn counts_are_whole_until_they_are_long() {
        assert_eq!(printed(Unit::Count, &[99_999.0, 1.0]), ("", vec!["99999".into(), "1".into()]));
        assert_eq!(
            printed(Unit::Count, &[1_234_567.0, 120_000.0]),
            ("k", vec!["1235".into(), "120".into()])
        );
        assert_eq!(printed(Unit::Count, &[2e9, 1.5e8]), ("M", vec!["2000".into(), "150".into()]));
    }

    #[test]
    fn ratios_are_percent() {
        assert_eq!(
            printed(Unit::Ratio, &[0.4312, 0.031, 0.0]),
            ("%", vec!["43.1".into(), "3.1".into(), "0".into()])
        );
        assert_eq!(printed(Unit::Ratio, &[1.0]), ("%", vec!["100".into()]));
    }

    #[test]
    fn what_rounds_to_zero_is_not_printed_as_zero() {
        assert_eq!(
            printed(Unit::Ratio, &[0.5, 0.000_000_1, -0.000_000_1, 0.0]),
            ("%", vec!["50.0".into(), "<0.1".into(), ">-0.1".into(), "0".into()])
        );
    }

    #[test]
    fn negative_numbers_count_by_size() {
        assert_eq!(
            printed(Unit::Microjoules, &[-1_500.0, 3_000.0]),
            ("mJ", vec!["-1.50".into(), "3.00".into()])
        );
    }

    #[test]
    fn no_numbers_print_in_the_base_unit() {
        assert_eq!(printed(Unit::Nanoseconds, &[]), ("ns", vec![]));
    }
}
