//! The output of `idlewise info` and `idlewise advise` for an idle histogram, which knows how often each CPU stayed
//! in each state and for how long, and nothing of the order.
//!
//! Whether a stay was too deep or too shallow depends on a length that may lie within its half-octave. So both shares are
//! given as a least and a most: without the stays of that half-octave, and with them.

use std::fmt::Write as _;

use idlewise_core::{StateIndex, StateTable};
use idlewise_sim::{CostModel, Machine, MachineError};
use idlewise_trace::histogram::{BIN_COUNT, Bin, IdleHistogram};

use crate::{Column, Table, Value};

/// A milliwatt for a nanosecond is a picojoule.
const UJ_PER_MW_NS: f64 = 1e-6;

/// How many stays of some are certainly so, and how many may be.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    /// Adds the stays of a bin that are shorter than `ns`, or not.
    fn add_if(&mut self, bin: Bin, ns: u64, is_shorter: bool) {
        let is_below = bin.to_ns().is_some_and(|to| to <= ns);
        let is_above = bin.from_ns() >= ns;
        let (is_sure, is_excluded) =
            if is_shorter { (is_below, is_above) } else { (is_above, is_below) };
        self.least += if is_sure { bin.stay_count } else { 0 };
        self.most += if is_excluded { 0 } else { bin.stay_count };
    }

    fn least_ratio(self, of: u64) -> Option<f64> {
        (of > 0).then(|| self.least as f64 / of as f64)
    }

    fn most_ratio(self, of: u64) -> Option<f64> {
        (of > 0).then(|| self.most as f64 / of as f64)
    }
}

/// The stays of one state, on one CPU or on all.
#[derive(Clone, Debug)]
pub struct StateLine {
    cpu: Option<u16>,
    state: String,
    bins: [(u64, u64); BIN_COUNT],
    timer_count: u64,
    /// How long all its CPUs were watched, together.
    watched_ns: u64,
    /// `None` without the machine's states.
    too_deep: Option<Bounds>,
    too_shallow: Option<Bounds>,
}

impl StateLine {
    fn new(cpu: Option<u16>, state: String, watched_ns: u64) -> Self {
        let bins = [(0, 0); BIN_COUNT];
        StateLine {
            cpu,
            state,
            bins,
            timer_count: 0,
            watched_ns,
            too_deep: None,
            too_shallow: None,
        }
    }

    fn add(&mut self, bin: Bin, is_timer: bool) {
        let (count, sum_ns) = &mut self.bins[usize::from(bin.place)];
        *count = count.saturating_add(bin.stay_count);
        *sum_ns = sum_ns.saturating_add(bin.stay_sum_ns);
        self.timer_count += if is_timer { bin.stay_count } else { 0 };
    }

    fn judge(&mut self, bin: Bin, state: StateIndex, states: &StateTable) {
        let (too_deep, too_shallow) =
            (self.too_deep.get_or_insert_default(), self.too_shallow.get_or_insert_default());
        let entered = states.get(state);
        if state > 0 {
            too_deep.add_if(bin, entered.target_residency_ns, true);
        }
        if state + 1 < states.len() {
            let next_ns = states.get(state + 1).target_residency_ns + entered.exit_latency_ns;
            too_shallow.add_if(bin, next_ns, false);
        }
    }

    fn stay_count(&self) -> u64 {
        self.bins.iter().map(|(count, _)| count).sum()
    }

    fn share(&self, count: u64) -> Option<f64> {
        let all = self.stay_count();
        (all > 0).then(|| count as f64 / all as f64)
    }

    /// The mean of the stays in the half-octave that holds this quantile.
    fn quantile_ns(&self, quantile: f64) -> Option<f64> {
        let wanted = (self.stay_count() as f64 * quantile).ceil().max(1.0) as u64;
        let mut reached = 0;
        let found = self.bins.iter().find(|(count, _)| {
            reached += count;
            reached >= wanted
        });
        let (count, sum_ns) = found?;
        (*count > 0).then(|| *sum_ns as f64 / *count as f64)
    }
}

/// Returns the columns of `idlewise info` for a histogram.
pub fn state_columns() -> Vec<Column<StateLine>> {
    type C = Column<StateLine>;
    vec![
        C::text("cpu", "CPU", |row| row.cpu.map_or("all".to_owned(), |cpu| cpu.to_string()).into())
            .means("The CPU, or `all`.")
            .key(),
        C::text("state", "state", |row| row.state.as_str().into())
            .means("The idle state's name.")
            .key(),
        C::count("stay_count", "stays", |row| row.stay_count().into())
            .means("Stays that were counted."),
        C::per_s("stays_per_s", "rate", |row| {
            (row.stay_count() as f64 / (row.watched_ns as f64 / 1e9)).into()
        })
        .means("Stays per second and CPU.")
        .detail(),
        C::ratio("residency_ratio", "time", |row| {
            let sum_ns: u64 = row.bins.iter().map(|(_, sum_ns)| sum_ns).sum();
            (sum_ns as f64 / row.watched_ns as f64).into()
        })
        .means("Time in the state, as a share of the CPUs' time."),
        C::ratio("timer_ratio", "ended by timer", |row| row.share(row.timer_count).into())
            .means("Share of stays that a timer ended, the tick included."),
        C::ns("stay_p50_ns", "stay p50", |row| row.quantile_ns(0.5).into())
            .means("Median stay: the mean of the stays in its half-octave."),
        C::ns("stay_p90_ns", "stay p90", |row| row.quantile_ns(0.9).into())
            .means("90th percentile, in the same way.")
            .detail(),
        C::ns("stay_p99_ns", "stay p99", |row| row.quantile_ns(0.99).into())
            .means("99th percentile, in the same way."),
        C::ratio("too_deep_least_ratio", "too deep at least", |row| {
            row.too_deep.and_then(|bounds| bounds.least_ratio(row.stay_count())).into()
        })
        .means("Share of stays that were certainly shorter than the state's target residency."),
        C::ratio("too_deep_most_ratio", "at most", |row| {
            row.too_deep.and_then(|bounds| bounds.most_ratio(row.stay_count())).into()
        })
        .means("The same with all stays of the half-octave that the target residency is in."),
        C::ratio("too_shallow_least_ratio", "too shallow at least", |row| {
            row.too_shallow.and_then(|bounds| bounds.least_ratio(row.stay_count())).into()
        })
        .means(
            "Share of stays that were certainly long enough for the next deeper state, whether or \
             not it was enabled.",
        ),
        C::ratio("too_shallow_most_ratio", "at most", |row| {
            row.too_shallow.and_then(|bounds| bounds.most_ratio(row.stay_count())).into()
        })
        .means("The same with all stays of the half-octave that this length is in."),
    ]
}

/// Returns a line for each state of all CPUs, and those of each CPU.
pub fn state_lines(histogram: &IdleHistogram) -> (Vec<StateLine>, Vec<StateLine>) {
    let all_ns = histogram.recorded_ns.saturating_mul(histogram.cpus.len() as u64);
    let (mut all, mut each): (Vec<StateLine>, Vec<StateLine>) = (Vec::new(), Vec::new());
    for cpu in &histogram.cpus {
        let states = histogram.machine(cpu.cpu).and_then(|machine| machine.table().ok());
        let first = each.len();
        for (of, bin) in cpu.bins() {
            let name = histogram.state_name(cpu.cpu, of.state);
            let in_all = place(&mut all, 0, None, &name, all_ns);
            let own = place(&mut each, first, Some(cpu.cpu), &name, histogram.recorded_ns);
            for line in [&mut all[in_all], &mut each[own]] {
                line.add(bin, of.is_timer);
                if let Some(states) =
                    states.as_ref().filter(|states| usize::from(of.state) < states.len())
                {
                    line.judge(bin, of.state.into(), states);
                }
            }
        }
    }
    (all, each)
}

/// The line of a state from `first` on, added if there is none.
fn place(lines: &mut Vec<StateLine>, first: usize, cpu: Option<u16>, name: &str, ns: u64) -> usize {
    let found = lines.iter().skip(first).position(|line| line.state == name);
    found.map_or_else(
        || {
            lines.push(StateLine::new(cpu, name.to_owned(), ns));
            lines.len() - 1
        },
        |found| first + found,
    )
}

/// Returns lines under the columns of `idlewise info` for a histogram.
pub fn state_table(title: &str, lines: &[StateLine]) -> Table {
    Table::new(title, &state_columns(), lines).unranked()
}

const BAR_WIDTH: u64 = 50;

/// Returns the lengths of all stays as bars, a line for each half-octave.
pub fn bars(all: &[StateLine]) -> String {
    let counts: Vec<u64> =
        (0..BIN_COUNT).map(|place| all.iter().map(|line| line.bins[place].0).sum()).collect();
    let Some(first) = counts.iter().position(|count| *count > 0) else { return String::new() };
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(first);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut text = String::from("   stay us from       stays\n");
    for (place, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let bin = Bin { place: place as u8, stay_count: *count, stay_sum_ns: 0 };
        let from_us = bin.from_ns() as f64 / 1e3;
        let bar =
            "#".repeat((u128::from(*count) * u128::from(BAR_WIDTH)).div_ceil(most.into()) as usize);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("{from_us:15.1} {count:11}  {bar}").trim_end());
    }
    text
}

/// What CPUs would do if no state deeper than one were allowed.
#[derive(Clone, Debug)]
pub struct LimitLine {
    limit: String,
    /// The exit latency of the deepest allowed state; `None` for a policy that no setting gives.
    pub latency_ns: Option<u64>,
    energy_uj: f64,
    delay_ns: f64,
    too_deep: Bounds,
    stay_count: u64,
    watched_ns: u64,
    recorded_uj: f64,
}

impl LimitLine {
    /// Returns the mean power of an idle CPU over the whole time, in milliwatts.
    pub fn power_mw(&self) -> f64 {
        self.energy_uj / UJ_PER_MW_NS / self.watched_ns as f64
    }

    /// Returns the share of time that CPUs wait for exits.
    pub fn waiting_ratio(&self) -> f64 {
        self.delay_ns / self.watched_ns as f64
    }

    /// Returns the name of the deepest allowed state.
    pub fn name(&self) -> &str {
        &self.limit
    }
}

/// Returns the columns of `idlewise advise` for a histogram.
pub fn limit_columns() -> Vec<Column<LimitLine>> {
    type C = Column<LimitLine>;
    vec![
        C::text("deepest", "deepest state allowed", |row| row.limit.as_str().into())
            .means(
                "The deepest state allowed: deeper stays are counted as stays in it, equally long. \
                 `as recorded` allows all; the last row takes the cheapest state for each length \
                 at λ=1, which no setting can do.",
            )
            .key(),
        C::ns("latency_ns", "exit latency", |row| row.latency_ns.into())
            .means("The latency limit that has this effect."),
        C::ratio("waiting_ratio", "time waiting", |row| row.waiting_ratio().into())
            .means("Exit latencies of all stays, as a share of the CPUs' time.")
            .lower_is_better(),
        C::mw("power_mw", "idle power of a CPU", |row| row.power_mw().into())
            .means("Energy of all stays with their transitions, divided by the CPUs' time.")
            .lower_is_better(),
        C::ratio("energy_change_ratio", "energy", |row| match row.recorded_uj > 0.0 {
            true => Value::Real(row.energy_uj / row.recorded_uj - 1.0),
            false => Value::Absent,
        })
        .means("Change of that energy from the recording's."),
        C::ratio("too_deep_least_ratio", "too deep at least", |row| {
            row.too_deep.least_ratio(row.stay_count).into()
        })
        .means(
            "Share of stays that would certainly be shorter than their state's target residency.",
        ),
        C::ratio("too_deep_most_ratio", "at most", |row| {
            row.too_deep.most_ratio(row.stay_count).into()
        })
        .means("The same with all that may be."),
    ]
}

/// Returns what each deepest allowed state would have meant, from the shallowest on, what was recorded, and the
/// cheapest state for each length. The states are those of `machine`, for all CPUs.
///
/// # Errors
/// Fails if the machine's states are no table.
pub fn limit_lines(
    histogram: &IdleHistogram,
    machine: &Machine,
) -> Result<Vec<LimitLine>, MachineError> {
    let (states, model) = (machine.table()?, CostModel::of(machine)?);
    let watched_ns = histogram.recorded_ns.saturating_mul(histogram.cpus.len() as u64).max(1);
    let name =
        |index: usize| machine.states.get(index).map_or(String::new(), |state| state.name.clone());
    let cheapest = |bin: Bin| {
        let cost = |index: StateIndex| {
            let delay_ns = model.exits().mean_ns(index).saturating_mul(bin.stay_count);
            model.stays_uj(index, bin.stay_count, bin.stay_sum_ns)
                + model.full_price_mw() * delay_ns as f64 * UJ_PER_MW_NS
        };
        (0..states.len()).min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or(0)
    };
    let line = |limit: String,
                latency_ns: Option<u64>,
                choose: &dyn Fn(StateIndex, Bin) -> StateIndex| {
        let mut line = LimitLine {
            limit,
            latency_ns,
            energy_uj: 0.0,
            delay_ns: 0.0,
            too_deep: Bounds::default(),
            stay_count: 0,
            watched_ns,
            recorded_uj: 0.0,
        };
        let recorded = histogram.cpus.iter().flat_map(|cpu| cpu.bins());
        for (of, bin) in recorded.filter(|(of, _)| usize::from(of.state) < states.len()) {
            let chosen = choose(of.state.into(), bin);
            line.energy_uj += model.stays_uj(chosen, bin.stay_count, bin.stay_sum_ns);
            line.recorded_uj += model.stays_uj(of.state.into(), bin.stay_count, bin.stay_sum_ns);
            let state = states.get(chosen);
            line.delay_ns += model.exits().mean_ns(chosen) as f64 * bin.stay_count as f64;
            line.stay_count = line.stay_count.saturating_add(bin.stay_count);
            if chosen > 0 {
                line.too_deep.add_if(bin, state.target_residency_ns, true);
            }
        }
        line
    };
    let mut lines: Vec<LimitLine> = (0..states.len() - 1)
        .map(|index| {
            let latency_ns = states.get(index).exit_latency_ns;
            line(name(index), Some(latency_ns), &|state, _| state.min(index))
        })
        .collect();
    lines.push(line("as recorded".to_owned(), None, &|state, _| state));
    lines.push(line("(best for each length)".to_owned(), None, &|_, bin| cheapest(bin)));
    Ok(lines)
}

/// Returns lines under the columns of `idlewise advise` for a histogram.
pub fn limit_table(title: &str, lines: &[LimitLine]) -> Table {
    Table::new(title, &limit_columns(), lines).unranked()
}

#[cfg(test)]
mod tests {
    use idlewise_sim::{Arch, MachineState};
    use idlewise_trace::histogram::{CpuHistogram, StateHistogram, place_of};
    use idlewise_trace::{MachineNote, NotedTable};

    use super::*;

    fn machine() -> Machine {
        let mut machine = Machine::new("recorded", "A machine", Arch::X86, "captured");
        machine.states =
            vec![MachineState::new("C1", 2_000, 2_000), MachineState::new("C6", 100_000, 300_000)];
        machine
    }

    /// A second of two CPUs: CPU 0 in C6, half of its stays short; CPU 1 in C1.
    fn histogram() -> IdleHistogram {
        let bin = |stay_ns: u64, stay_count: u64| Bin {
            place: place_of(stay_ns),
            stay_count,
            stay_sum_ns: stay_ns * stay_count,
        };
        let of = |state, is_timer, bins| StateHistogram { state, is_timer, bins };
        let cpus = vec![
            CpuHistogram {
                cpu: 0,
                states: vec![
                    of(1, false, vec![bin(20_000, 1_000)]),
                    of(1, true, vec![bin(280_000, 500), bin(700_000, 500)]),
                ],
                beyond_count: 0,
            },
            CpuHistogram {
                cpu: 1,
                states: vec![of(0, true, vec![bin(1_000_000, 400)])],
                beyond_count: 0,
            },
        ];
        let tables = vec![NotedTable { cpus: vec![0, 1], machine: machine() }];
        let note = MachineNote { tables, ..MachineNote::default() };
        IdleHistogram::new(note, 1_000_000_000, cpus)
    }

    #[test]
    fn a_line_for_each_state_with_what_is_certain_and_what_may_be() {
        let (all, each) = state_lines(&histogram());
        let csv = state_table("", &all).to_csv();
        let lines: Vec<&str> = csv.lines().skip(1).collect();
        // 1000 of 2000 stays are certainly too short for C6, and 500 more are in the half-octave of 300 us.
        let c6 = "all,C6,2000,1000,0.255,0.5,20000,700000,700000,0.5,0.75,0,0";
        let c1 = "all,C1,400,200,0.2,1,1000000,1000000,1000000,0,0,1,1";
        assert_eq!(lines, [c6, c1]);
        assert_eq!(each.len(), 2);
        let bars = bars(&all);
        assert_eq!(
            bars.lines().count(),
            1 + usize::from(place_of(1_000_000) - place_of(20_000)) + 1
        );
        assert!(bars.contains("1000  ####"), "{bars}");
    }

    #[test]
    fn a_limit_moves_deeper_stays_up_and_nothing_else() {
        let lines = limit_lines(&histogram(), &machine()).unwrap();
        let names: Vec<&str> = lines.iter().map(LimitLine::name).collect();
        assert_eq!(names, ["C1", "as recorded", "(best for each length)"]);
        // 2400 exits from C1; or 2000 from C6 and 400 from C1; of two seconds.
        assert!((lines[0].waiting_ratio() - 2_400.0 * 2e3 / 2e9).abs() < 1e-12);
        assert!((lines[1].waiting_ratio() - (2_000.0 * 1e5 + 400.0 * 2e3) / 2e9).abs() < 1e-12);
        let csv = limit_table("", &lines).to_csv();
        let recorded = csv.lines().nth(2).unwrap();
        assert!(recorded.contains(",0,"), "the energy as recorded does not change: {recorded}");
        // At λ=1 the best pays no more than either, in energy and delay together.
        let model = CostModel::of(&machine()).unwrap();
        let cost =
            |line: &LimitLine| line.power_mw() + model.full_price_mw() * line.waiting_ratio();
        assert!(cost(&lines[2]) <= cost(&lines[0]).min(cost(&lines[1])) + 1e-9);
    }

    #[test]
    fn without_states_nothing_is_judged() {
        let mut histogram = histogram();
        histogram.note.tables.clear();
        let (all, _) = state_lines(&histogram);
        let csv = state_table("", &all).to_csv();
        assert!(csv.contains("all,state 1,2000,") && csv.contains(",,,,\n"), "{csv}");
    }
}
