//! The table of `idlewise info --why-menu`: how often each CPU reaches the line of menu that decides what a
//! short prediction is worth while the tick is stopped.

use crate::{Column, Table, Value, counted};

/// The selects of a CPU, or of all CPUs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyMenu {
    /// The CPU; `None` for all of them.
    pub cpu: Option<u16>,
    /// How often menu was asked for a state.
    pub select_count: u64,
    /// With the tick already stopped; `None` if the log cannot tell.
    pub tick_stopped_count: Option<u64>,
    /// No task ran since the gap before; `None` if the log cannot tell.
    pub no_task_count: Option<u64>,
    /// The prediction was below one tick.
    pub short_prediction_count: u64,
    /// The next timer was known and more than one tick away; `None` if the log has no timers.
    pub far_timer_count: Option<u64>,
    /// The next timer was unknown.
    pub unknown_timer_count: u64,
    /// Tick stopped and prediction short: menu does not use the prediction.
    pub line_count: Option<u64>,
    /// All four conditions.
    pub all_count: Option<u64>,
    /// The line was reached, and with min() menu would have selected another state.
    pub other_state_count: Option<u64>,
    /// Of [`WhyMenu::all_count`], those whose gap ended before the next timer.
    pub before_timer_count: Option<u64>,
    /// Of those again, the gaps that ended within one tick, as predicted.
    pub within_tick_count: Option<u64>,
}

impl WhyMenu {
    /// Adds another CPU. What one of them cannot tell, the sum cannot.
    pub fn merge(&mut self, other: &WhyMenu) {
        self.select_count += other.select_count;
        self.short_prediction_count += other.short_prediction_count;
        self.unknown_timer_count += other.unknown_timer_count;
        for (mine, theirs) in [
            (&mut self.tick_stopped_count, other.tick_stopped_count),
            (&mut self.no_task_count, other.no_task_count),
            (&mut self.far_timer_count, other.far_timer_count),
            (&mut self.line_count, other.line_count),
            (&mut self.all_count, other.all_count),
            (&mut self.other_state_count, other.other_state_count),
            (&mut self.before_timer_count, other.before_timer_count),
            (&mut self.within_tick_count, other.within_tick_count),
        ] {
            *mine = mine.zip(theirs).map(|(mine, theirs)| mine + theirs);
        }
    }

    /// Of all four conditions, the gaps that lasted until the timer.
    fn reached_timer_count(&self) -> Option<u64> {
        Some(self.all_count? - self.before_timer_count?)
    }

    fn share(&self, count: Option<u64>) -> Value {
        let all = Some(self.select_count).filter(|&all| all > 0);
        count.zip(all).map(|(count, all)| count as f64 / all as f64).into()
    }

    /// Returns what the figures say about a patch, in a sentence.
    pub fn sentence(&self) -> String {
        let (Some(line), Some(all), Some(before), Some(reached), Some(other)) = (
            self.line_count,
            self.all_count,
            self.before_timer_count,
            self.reached_timer_count(),
            self.other_state_count,
        ) else {
            return "The log cannot tell how often the line is reached; see the doubts.".to_owned();
        };
        if line == 0 {
            return "The line is never reached here, so min() would change nothing.".to_owned();
        }
        let percent = 100.0 * line as f64 / self.select_count.max(1) as f64;
        format!(
            "menu reaches the line in {line} of {} selects ({percent:.1} %), and min() would select \
             another state in {other}. With all four conditions ({all}), {} ended before the \
             timer, where min() is right, and {reached} lasted until the timer, where it is not.",
            self.select_count,
            counted(before, "gap")
        )
    }
}

type C = Column<WhyMenu>;

/// Returns the columns of `idlewise info --why-menu`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("cpu", "CPU", |row| row.cpu.map_or("all".to_owned(), |cpu| cpu.to_string()).into())
            .means("The CPU; `all` for all of them together.")
            .key(),
        C::count("select_count", "selects", |row| row.select_count.into())
            .means("How often menu was asked for a state."),
        C::count("tick_stopped_count", "tick stopped (count)", |row| row.tick_stopped_count.into())
            .means("Selects with the tick already stopped.")
            .detail(),
        C::ratio("tick_stopped_ratio", "tick stopped", |row| row.share(row.tick_stopped_count))
            .means("The same, as a share of the selects."),
        C::count("no_task_count", "no task ran (count)", |row| row.no_task_count.into())
            .means(
                "Selects before which no task ran since the previous gap, so that nothing \
                 restarted the tick.",
            )
            .detail(),
        C::ratio("no_task_ratio", "no task ran", |row| row.share(row.no_task_count))
            .means("The same, as a share of the selects."),
        C::count("short_prediction_count", "short prediction (count)", |row| {
            row.short_prediction_count.into()
        })
        .means("Selects in which menu predicted a stay below one tick.")
        .detail(),
        C::ratio("short_prediction_ratio", "predicts short", |row| {
            row.share(Some(row.short_prediction_count))
        })
        .means("The same, as a share of the selects."),
        C::count("far_timer_count", "far timer (count)", |row| row.far_timer_count.into())
            .means("Selects whose next timer was known to be more than one tick away.")
            .detail(),
        C::ratio("far_timer_ratio", "far timer", |row| row.share(row.far_timer_count))
            .means("The same, as a share of the selects."),
        C::count("unknown_timer_count", "unknown timer", |row| row.unknown_timer_count.into())
            .means(
                "Selects whose next timer is unknown: not far, and never in all four conditions.",
            )
            .detail(),
        C::count("line_count", "line reached", |row| row.line_count.into()).means(
            "Selects with a stopped tick and a short prediction, where menu up to 6.12 uses the \
             next timer and `+min` the shorter of the two.",
        ),
        C::ratio("line_ratio", "of selects", |row| row.share(row.line_count))
            .means("The same, as a share of the selects."),
        C::count("other_state_count", "other state", |row| row.other_state_count.into()).means(
            "Of those, the selects in which `+min` would choose another state, given the same \
             history.",
        ),
        C::count("all_count", "all four", |row| row.all_count.into())
            .means("Selects with all four conditions."),
        C::ratio("all_ratio", "all four (share)", |row| row.share(row.all_count))
            .means("The same, as a share of the selects.")
            .detail(),
        C::count("before_timer_count", "ended before timer", |row| row.before_timer_count.into())
            .means(
                "Of those, the selects whose gap ended before the next timer, where `+min` is \
                 right.",
            ),
        C::count("within_tick_count", "within a tick", |row| row.within_tick_count.into())
            .means("Of those again, the gaps that ended within one tick, as predicted.")
            .detail(),
        C::count("reached_timer_count", "lasted to timer", |row| row.reached_timer_count().into())
            .means(
                "Of those with all four conditions, the selects whose gap lasted until the timer, \
                 where `+min` may keep the CPU in a shallow state.",
            ),
    ]
}

/// Returns a line for each CPU.
pub fn why_menu_table(title: &str, rows: &[WhyMenu]) -> Table {
    Table::new(title, &columns(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_does_not_tell_what_a_part_of_it_does_not() {
        let known = WhyMenu {
            select_count: 10,
            tick_stopped_count: Some(4),
            line_count: Some(2),
            all_count: Some(2),
            before_timer_count: Some(1),
            other_state_count: Some(1),
            ..WhyMenu::default()
        };
        let mut sum = known.clone();
        sum.merge(&known);
        assert_eq!((sum.tick_stopped_count, sum.no_task_count), (Some(8), None));
        assert!(sum.sentence().starts_with("menu reaches the line in 4 of 20 selects (20.0 %)"));
        sum.merge(&WhyMenu { tick_stopped_count: None, ..known });
        assert_eq!(sum.tick_stopped_count, None);
        let never =
            WhyMenu { line_count: Some(0), all_count: Some(0), before_timer_count: Some(0), ..sum };
        assert!(never.sentence().contains("would change nothing"));
    }
}
