//! A figure with its goal, and statistics of a few rounds.

use std::time::{Duration, Instant};

use idlewise_report::{Column, Heading, Priority, Table, TextStyle, Value};

/// A figure's goal. Only ratios have one: times depend on the machine.
#[derive(Clone, Copy)]
pub enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

/// A line of a report.
pub struct Figure {
    pub what: String,
    pub unit: &'static str,
    pub measured: f64,
    pub goal: Goal,
}

impl Figure {
    fn measured(&self) -> String {
        let decimals = match self.measured.abs() {
            100.0.. => 0,
            10.0.. => 1,
            1.0.. => 2,
            _ => 4,
        };
        format!("{:.decimals$} {}", self.measured, self.unit)
    }
}

/// Prints figures as a table.
pub fn print(title: &str, figures: &[Figure]) {
    type C = Column<Figure>;
    let columns = [
        C::text("figure", "figure", |row| row.what.as_str().into())
            .means("What was measured.")
            .key(),
        C::text("measured", "measured", |row| row.measured().into())
            .means("With its unit; × is a ratio.")
            .key(),
        C::new(GOAL, |row| row.goal.words(row.unit)),
        C::new(REACHED, |row| row.goal.reached(row.measured)),
    ];
    print!("{}", Table::new(title, &columns, figures).to_text(&TextStyle::for_stdout()));
}

/// The goal.
pub const GOAL: Heading =
    Heading::text("goal", "goal", "What we want it to be.").priority(Priority::Key);
/// Whether the goal is reached.
pub const REACHED: Heading =
    Heading::text("reached", "reached", "Whether it is.").priority(Priority::Key);

impl Goal {
    /// The goal in words.
    pub fn words(self, unit: &str) -> Value {
        match self {
            Goal::None => Value::Absent,
            Goal::AtMost(most) => format!("≤ {most} {unit}").into(),
            Goal::AtLeast(least) => format!("≥ {least} {unit}").into(),
        }
    }

    /// Whether the goal is reached.
    pub fn reached(self, measured: f64) -> Value {
        match self {
            Goal::None => Value::Absent,
            Goal::AtMost(most) => yes_or_no(measured <= most),
            Goal::AtLeast(least) => yes_or_no(measured >= least),
        }
    }
}

fn yes_or_no(is_reached: bool) -> Value {
    if is_reached { "yes" } else { "NO" }.into()
}

/// How long a call takes.
pub fn time<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed(), result)
}

/// Whose CPU time to get.
#[derive(Clone, Copy)]
pub enum Whose {
    /// This process, all its threads.
    Own,
    /// Children that have ended and been waited for.
    Children,
}

/// Returns the CPU time used so far.
pub fn cpu_time_of(whose: Whose) -> Duration {
    let who = match whose {
        Whose::Own => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: all of `rusage` is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local of the right type.
    unsafe { libc::getrusage(who, &mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Returns the CPU time of a call, including other threads.
pub fn cpu_time<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let before = cpu_time_of(Whose::Own);
    let result = call();
    (cpu_time_of(Whose::Own) - before, result)
}

/// The median; for an even number of values, the mean of the middle two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[upper],
        _ => (values[upper - 1] + values[upper]) / 2.0,
    }
}

/// The median of the rounds' ratios. Both sides of a round ran under the same conditions.
pub fn median_ratio(above: &[f64], below: &[f64]) -> f64 {
    median(above.iter().zip(below).map(|(above, below)| above / below))
}
