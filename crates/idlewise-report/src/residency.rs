//! The output of `idlewise measure residency` and `measure power`: what CPUs draw in each idle state, what
//! entering and leaving it costs, and so how long a stay must last to pay.
//!
//! # Model
//!
//! All CPUs are held in a state and woken at intervals. A period with a stay of length d takes the energy
//! `p · d + e`: p is the power in the state, e what a wake-up costs, with the work at the wake-up and the
//! entry and exit of the state in it. A line through (d, energy of a period) of several intervals has the
//! slope p and the intercept e. The work at the wake-up is the same in all states, and so is what the rest of
//! the package draws. Both cancel out when two states are compared: the deeper one pays from
//!
//! ```text
//! break-even = (e_deep - e_shallow) / (p_shallow - p_deep)
//! ```
//!
//! The length of stays is the kernel's count of time in the state over its count of stays, which includes
//! the exit. Without wakes there is only the power. Intervals (95 %) come from drawing whole rounds.
//!
//! # Known limitations
//!
//! A package state that is entered only when all CPUs are idle together bends the line; the break-even is
//! then that of the interval's range. Powers are those of the package for each CPU, with its other parts in
//! them; only differences between states are a CPU's.

use crate::columns::Column;
use crate::statistics::{Series, estimate};
use crate::{Table, Value};

/// If a smaller share of stays was in the held state, a slice says nothing about it.
pub const HELD_RATIO_MIN: f64 = 0.95;

/// A slice of time in one state, with all CPUs held in it.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The round: one slice of each setting.
    pub round: u64,
    /// The state, by its place among those measured, shallowest first.
    pub state: usize,
    /// The setting: the place of the interval.
    pub interval: usize,
    /// How long it took.
    pub elapsed_ns: u64,
    /// The energy of the packages.
    pub energy_uj: u64,
    /// Wakes of all CPUs.
    pub wake_count: u64,
    /// Stays in the state.
    pub entry_count: u64,
    /// Stays in others.
    pub other_count: u64,
    /// Time in the state, all CPUs together.
    pub in_state_ns: u64,
}

impl Slice {
    /// Whether the CPUs were in the state when they idled.
    fn is_held(&self) -> bool {
        let all = self.entry_count + self.other_count;
        all > 0 && self.entry_count as f64 >= HELD_RATIO_MIN * all as f64
    }

    /// The length of a stay and the energy of a period, for one CPU.
    fn point(&self) -> Option<(f64, f64)> {
        if !self.is_held() || self.entry_count == 0 {
            return None;
        }
        // All CPUs do the same, so a stay has its share of the packages' energy.
        let stays = self.entry_count as f64;
        Some((self.in_state_ns as f64 / stays, self.energy_uj as f64 / stays))
    }

    /// The power of the packages.
    fn power_mw(&self) -> Option<f64> {
        let is_alone = self.is_held() || self.entry_count + self.other_count == 0;
        // A microjoule in a nanosecond is a million milliwatts.
        (is_alone && self.elapsed_ns > 0)
            .then(|| self.energy_uj as f64 / self.elapsed_ns as f64 * 1e6)
    }
}

/// A statistic and its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The value; `None` if it cannot be had.
    pub value: Option<f64>,
    /// The 95 % interval; `None` with fewer than seven rounds.
    pub interval: Option<[f64; 2]>,
}

fn figure(round_count: usize, statistic: impl Fn(&[usize]) -> Option<f64>) -> Figure {
    let all: Vec<usize> = (0..round_count).collect();
    let Some(value) = statistic(&all).filter(|value| value.is_finite()) else {
        return Figure::default();
    };
    // Rounds without a value would make their place in the middle meaningless.
    let (_, interval) = estimate(round_count, |drawn| statistic(drawn).unwrap_or(f64::NAN));
    Figure {
        value: Some(value),
        interval: interval.filter(|ends| ends.iter().all(|end| end.is_finite())),
    }
}

/// What was measured of a state by waking CPUs periodically.
#[derive(Clone, Debug)]
pub struct ResidencyFigures {
    /// The state.
    pub state: String,
    /// The next shallower one that was measured.
    pub shallower: Option<String>,
    /// What the driver declares.
    pub declared_target_residency_ns: u64,
    /// The shortest stay that pays against the shallower state, in nanoseconds.
    pub break_even_ns: Figure,
    /// The package's power for each CPU in the state, in milliwatts.
    pub power_mw: Figure,
    /// What a wake-up out of the state costs more than out of the shallowest one, in microjoules.
    pub transition_uj: Figure,
    /// Slices in which the CPUs were elsewhere.
    pub dropped_count: u64,
}

/// A state of a sweep.
#[derive(Clone, Debug)]
pub struct SweptState {
    /// Its name.
    pub name: String,
    /// What the driver declares.
    pub target_residency_ns: u64,
}

/// Computes each state's figures from the slices of a sweep.
pub fn residencies(states: &[SweptState], slices: &[Slice]) -> Vec<ResidencyFigures> {
    let round_count = rounds(slices);
    let line = |state: usize, drawn: &[usize]| fitted(slices, state, drawn);
    let dropped = |state: usize| {
        let of_state = slices.iter().filter(|slice| slice.state == state);
        of_state.filter(|slice| !slice.is_held()).count() as u64
    };
    let figures = |(state, swept): (usize, &SweptState)| {
        let break_even = |drawn: &[usize]| {
            let (shallow, deep) = (line(state.checked_sub(1)?, drawn)?, line(state, drawn)?);
            let saved = shallow.slope - deep.slope;
            // Below the noise of the slopes, no stay pays.
            (saved > 0.0).then(|| ((deep.intercept - shallow.intercept) / saved).max(0.0))
        };
        let more =
            |drawn: &[usize]| Some(line(state, drawn)?.intercept - line(0, drawn)?.intercept);
        ResidencyFigures {
            state: swept.name.clone(),
            shallower: state.checked_sub(1).map(|place| states[place].name.clone()),
            declared_target_residency_ns: swept.target_residency_ns,
            break_even_ns: figure(round_count, break_even),
            power_mw: figure(round_count, |drawn| Some(line(state, drawn)?.slope * 1e6)),
            transition_uj: if state == 0 { Figure::default() } else { figure(round_count, more) },
            dropped_count: dropped(state),
        }
    };
    states.iter().enumerate().map(figures).collect()
}

fn rounds(slices: &[Slice]) -> usize {
    slices.iter().map(|slice| slice.round as usize + 1).max().unwrap_or(0)
}

struct Line {
    slope: f64,
    intercept: f64,
}

/// The line of least squares through a state's points in the drawn rounds. Points are weighted by one over
/// the square of their stay, because the noise of an energy grows with the time that it was taken over.
fn fitted(slices: &[Slice], state: usize, drawn: &[usize]) -> Option<Line> {
    let (mut all, mut x_sum, mut y_sum) = (0.0, 0.0, 0.0);
    let points = || {
        drawn.iter().flat_map(move |&round| {
            let is_it = move |slice: &&Slice| slice.state == state && slice.round as usize == round;
            slices.iter().filter(is_it).filter_map(Slice::point)
        })
    };
    for (x, y) in points() {
        let weight = 1.0 / (x * x).max(1.0);
        all += weight;
        x_sum += weight * x;
        y_sum += weight * y;
    }
    if all == 0.0 {
        return None;
    }
    let (x_mean, y_mean) = (x_sum / all, y_sum / all);
    let (mut square, mut product) = (0.0, 0.0);
    for (x, y) in points() {
        let weight = 1.0 / (x * x).max(1.0);
        square += weight * (x - x_mean) * (x - x_mean);
        product += weight * (x - x_mean) * (y - y_mean);
    }
    // All points at one length make no line.
    let slope = (square > 1e-9 * all * x_mean * x_mean).then(|| product / square)?;
    Some(Line { slope, intercept: y_mean - slope * x_mean })
}

/// What was measured of a state without wakes.
#[derive(Clone, Debug)]
pub struct PowerFigures {
    /// The state.
    pub state: String,
    /// The power of the packages, in milliwatts.
    pub power_mw: Figure,
    /// What a core draws less than in the next shallower state that was measured.
    pub saved_mw: Figure,
    /// What a core draws more than in the deepest state that was measured.
    pub above_deepest_mw: Figure,
    /// The share of time in the state.
    pub in_state_ratio: Option<f64>,
}

/// Computes each state's power from slices without wakes.
pub fn powers(
    names: &[String],
    slices: &[Slice],
    cpu_count: usize,
    core_count: usize,
) -> Vec<PowerFigures> {
    let round_count = rounds(slices);
    let power = |state: usize, drawn: &[usize]| {
        let mw = drawn.iter().map(|&round| {
            let is_it = |slice: &&Slice| slice.state == state && slice.round as usize == round;
            slices.iter().find(is_it).and_then(Slice::power_mw)
        });
        let mw = Series::new(mw)?;
        Some(mw.median(&(0..drawn.len()).collect::<Vec<_>>()))
    };
    let cores = core_count.max(1) as f64;
    let deepest = names.len().saturating_sub(1);
    let figures = |(state, name): (usize, &String)| {
        let saved = |drawn: &[usize]| {
            Some((power(state.checked_sub(1)?, drawn)? - power(state, drawn)?) / cores)
        };
        let above = |drawn: &[usize]| Some((power(state, drawn)? - power(deepest, drawn)?) / cores);
        let of_state = || slices.iter().filter(|slice| slice.state == state);
        let all_ns: u64 = of_state().map(|slice| slice.elapsed_ns).sum::<u64>() * cpu_count as u64;
        let in_ns: u64 = of_state().map(|slice| slice.in_state_ns).sum();
        PowerFigures {
            state: name.clone(),
            power_mw: figure(round_count, |drawn| power(state, drawn)),
            saved_mw: figure(round_count, saved),
            above_deepest_mw: figure(round_count, above),
            in_state_ratio: (all_ns > 0).then(|| (in_ns as f64 / all_ns as f64).min(1.0)),
        }
    };
    names.iter().enumerate().map(figures).collect()
}

fn low(figure: Figure) -> Value {
    figure.interval.map(|ends| ends[0]).into()
}

fn high(figure: Figure) -> Value {
    figure.interval.map(|ends| ends[1]).into()
}

/// Returns the columns of `idlewise measure residency`.
pub fn residency_columns() -> Vec<Column<ResidencyFigures>> {
    type C = Column<ResidencyFigures>;
    vec![
        C::text("state", "state", |row| row.state.as_str().into())
            .means("The idle state that all CPUs were held in.")
            .key(),
        C::text("shallower", "against", |row| row.shallower.as_deref().into())
            .means("The next shallower state that was measured."),
        C::ns("break_even_ns", "break-even", |row| row.break_even_ns.value.into()).means(
            "The shortest stay that takes less energy than the shallower state would: what a \
             target residency should be; measured. Absent if no stay pays.",
        ),
        C::ns("break_even_low_ns", "from", |row| low(row.break_even_ns))
            .means("Lower end of its 95 % interval."),
        C::ns("break_even_high_ns", "to", |row| high(row.break_even_ns))
            .means("Upper end of its 95 % interval."),
        C::ns("declared_target_residency_ns", "table's target", |row| {
            row.declared_target_residency_ns.into()
        })
        .means("The state's target residency in the driver's table: declared, not measured."),
        C::mw("cpu_power_mw", "power a CPU", |row| row.power_mw.value.into()).means(
            "The packages' power for each CPU in the state, other parts of the packages included; \
             measured. Only differences between states are due to a CPU.",
        ),
        C::mw("cpu_power_low_mw", "power from", |row| low(row.power_mw))
            .means("Lower end of its 95 % interval.")
            .detail(),
        C::mw("cpu_power_high_mw", "power to", |row| high(row.power_mw))
            .means("Upper end of its 95 % interval.")
            .detail(),
        C::uj("transition_energy_uj", "wake-up costs", |row| row.transition_uj.value.into()).means(
            "Extra energy of a wake-up out of the state, entry and exit, compared with the \
             shallowest state; measured.",
        ),
        C::uj("transition_low_uj", "costs from", |row| low(row.transition_uj))
            .means("Lower end of its 95 % interval.")
            .detail(),
        C::uj("transition_high_uj", "costs to", |row| high(row.transition_uj))
            .means("Upper end of its 95 % interval.")
            .detail(),
        C::count("dropped_count", "dropped", |row| row.dropped_count.into())
            .means("Slices of time dropped because the CPUs entered other states."),
    ]
}

/// Returns the columns of `idlewise measure power`.
pub fn power_columns() -> Vec<Column<PowerFigures>> {
    type C = Column<PowerFigures>;
    vec![
        C::text("state", "state", |row| row.state.as_str().into())
            .means("The idle state that all CPUs were held in.")
            .key(),
        C::mw("package_power_mw", "power", |row| row.power_mw.value.into())
            .means("The packages' power, all together; measured."),
        C::mw("package_power_low_mw", "from", |row| low(row.power_mw))
            .means("Lower end of its 95 % interval."),
        C::mw("package_power_high_mw", "to", |row| high(row.power_mw))
            .means("Upper end of its 95 % interval."),
        C::mw("core_saving_mw", "less a core", |row| row.saved_mw.value.into()).means(
            "How much less a core draws than in the next shallower state that was measured; \
             measured.",
        ),
        C::mw("core_saving_low_mw", "less from", |row| low(row.saved_mw))
            .means("Lower end of its 95 % interval.")
            .detail(),
        C::mw("core_saving_high_mw", "less to", |row| high(row.saved_mw))
            .means("Upper end of its 95 % interval.")
            .detail(),
        C::mw("core_above_deepest_mw", "above deepest", |row| row.above_deepest_mw.value.into())
            .means(
                "How much more a core draws than in the deepest state that was measured; measured. \
                 Its own power there cannot be separated from the rest of the package.",
            ),
        C::ratio("in_state_ratio", "in state", |row| row.in_state_ratio.into()).means(
            "Share of time that the CPUs were in the state, as the kernel counted; measured.",
        ),
    ]
}

/// Returns a line for each state.
pub fn residency_table(title: &str, all: &[ResidencyFigures]) -> Table {
    Table::new(title, &residency_columns(), all)
}

/// Returns a line for each state.
pub fn power_table(title: &str, all: &[PowerFigures]) -> Table {
    Table::new(title, &power_columns(), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two states: 1000 mW and 2 uJ a wake-up, 100 mW and 90 uJ more: break-even at 97.8 us.
    fn slices(round_count: u64) -> Vec<Slice> {
        let mut slices = Vec::new();
        for round in 0..round_count {
            for (state, (mw, uj)) in [(1_000.0, 2.0), (100.0, 90.0)].into_iter().enumerate() {
                for (interval, ns) in [50_000_u64, 200_000, 1_000_000].into_iter().enumerate() {
                    let count = 1_000;
                    let energy_uj = count as f64 * (mw * 1e-6 * ns as f64 + uj);
                    slices.push(Slice {
                        round,
                        state,
                        interval,
                        elapsed_ns: ns * count,
                        energy_uj: energy_uj.round() as u64,
                        wake_count: count,
                        entry_count: count,
                        other_count: 0,
                        in_state_ns: ns * count,
                    });
                }
            }
        }
        slices
    }

    fn swept() -> [SweptState; 2] {
        let state = |name: &str| SweptState { name: name.to_owned(), target_residency_ns: 600_000 };
        [state("C1"), state("C6")]
    }

    #[test]
    fn a_line_has_power_and_cost_and_two_have_a_break_even() {
        let found = residencies(&swept(), &slices(7));
        let value = |figure: Figure| figure.value.unwrap();
        assert!((value(found[0].power_mw) - 1_000.0).abs() < 0.1);
        assert!((value(found[1].power_mw) - 100.0).abs() < 0.1);
        assert!((value(found[1].transition_uj) - 88.0).abs() < 0.1);
        let expected = (90.0 - 2.0) / 900e-6;
        assert!((value(found[1].break_even_ns) - expected).abs() < 50.0);
        assert!(
            found[1].break_even_ns.interval.is_some() && found[0].break_even_ns.value.is_none()
        );
        assert_eq!(found[1].shallower.as_deref(), Some("C1"));
    }

    #[test]
    fn a_state_that_draws_no_less_never_pays() {
        let mut slices = slices(7);
        for slice in slices.iter_mut().filter(|slice| slice.state == 1) {
            slice.energy_uj *= 20;
        }
        assert_eq!(residencies(&swept(), &slices)[1].break_even_ns, Figure::default());
    }

    #[test]
    fn slices_elsewhere_do_not_count() {
        let mut slices = slices(7);
        for slice in slices.iter_mut().filter(|slice| slice.state == 1) {
            slice.other_count = slice.entry_count;
        }
        let found = residencies(&swept(), &slices);
        assert_eq!((found[1].power_mw, found[1].dropped_count), (Figure::default(), 21));
    }

    #[test]
    fn few_rounds_have_no_interval_and_one_interval_has_no_line() {
        let found = residencies(&swept(), &slices(3));
        assert!(
            found[1].break_even_ns.value.is_some() && found[1].break_even_ns.interval.is_none()
        );
        let mut one: Vec<Slice> = slices(7);
        one.retain(|slice| slice.interval == 0);
        assert_eq!(residencies(&swept(), &one)[1].power_mw, Figure::default());
    }

    #[test]
    fn powers_are_compared_by_core() {
        let mut slices = slices(7);
        slices.retain(|slice| slice.interval == 2);
        let names = ["C1".to_owned(), "C6".to_owned()];
        let found = powers(&names, &slices, 1, 2);
        let value = |figure: Figure| figure.value.unwrap();
        assert!((value(found[0].power_mw) - 1_002.0).abs() < 0.1);
        assert!((value(found[1].saved_mw) - (1_002.0 - 190.0) / 2.0).abs() < 0.1);
        assert_eq!(value(found[1].above_deepest_mw), 0.0);
        assert_eq!(found[0].in_state_ratio, Some(1.0));
    }
}
