//! λ, the price of delay, from an option to a cost: the same type throughout.

use std::ops::RangeInclusive;

use idlewise_core::Lambda;

use crate::CostModel;

/// The price of a second of delay. Each caller words it for its own output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// In seconds of polling: at 1, a second of delay costs as much as a second of polling.
    Times(f64),
    /// In milliwatts.
    Milliwatts(f64),
}

/// A megawatt. No CPU costs as much.
const MILLIWATTS_MAX: f64 = 1e9;

impl Price {
    /// Delay costs nothing.
    pub const FREE: Price = Price::Times(0.0);
    /// A quarter of the cost of polling.
    pub const QUARTER: Price = Price::Times(0.25);
    /// The cost of polling.
    pub const FULL: Price = Price::Times(1.0);
    /// The prices that are reported unless the user gives one.
    pub const STANDARD: [Price; 3] = [Price::FREE, Price::QUARTER, Price::FULL];
    /// The prices that make sense, in times the power of polling.
    pub const TIMES: RangeInclusive<f64> = 0.0..=16.0;

    /// Returns so many times the power of polling; `None` if that makes no sense.
    pub fn times(times: f64) -> Option<Self> {
        Price::TIMES.contains(&times).then_some(Price::Times(times))
    }

    /// Parses a number of times the power of polling.
    ///
    /// # Errors
    /// Says what is expected.
    pub fn parse_times(text: &str) -> Result<Self, String> {
        let times = text.parse().map_err(|_| "not a number".to_owned())?;
        Price::times(times).ok_or_else(|| "must be from 0 to 16".to_owned())
    }

    /// Parses a number of milliwatts.
    ///
    /// # Errors
    /// Says what is expected.
    pub fn parse_milliwatts(text: &str) -> Result<Self, String> {
        let power: f64 = text.parse().map_err(|_| "not a number of milliwatts".to_owned())?;
        (0.0..=MILLIWATTS_MAX)
            .contains(&power)
            .then_some(Price::Milliwatts(power))
            .ok_or_else(|| format!("must be from 0 to {MILLIWATTS_MAX} mW"))
    }

    /// Returns λ for a machine.
    pub fn lambda_mw(self, costs: &CostModel) -> f64 {
        match self {
            Price::Times(times) => times * costs.full_price_mw(),
            Price::Milliwatts(lambda_mw) => lambda_mw,
        }
    }

    /// Returns it in times the power of polling, if it was given so.
    pub fn as_times(self) -> Option<f64> {
        match self {
            Price::Times(times) => Some(times),
            Price::Milliwatts(_) => None,
        }
    }

    /// Returns it as a governor is told it, if it was given in times the power of polling.
    pub fn told(self) -> Option<Lambda> {
        self.as_times().map(|times| Lambda::from_1024ths((times * 1_024.0).round() as u32))
    }
}
