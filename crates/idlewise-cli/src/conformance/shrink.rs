//! Finds the fewest rows that show a difference: leaves out halves, quarters, and finally single
//! rows, as long as the rest still differs somewhere.

use super::Row;

/// Returns a subset of `rows` that still differs and from which no row can be left out. `differs`
/// returns the index of the first row in which two new governors differ.
pub fn shrink(mut rows: Vec<Row>, differs: &mut dyn FnMut(&[Row]) -> Option<usize>) -> Vec<Row> {
    let Some(last) = differs(&rows) else { return rows };
    rows.truncate(last + 1);
    let mut chunk = rows.len().div_ceil(2);
    loop {
        let mut start = 0;
        let mut is_shorter = false;
        while start < rows.len() {
            let end = (start + chunk).min(rows.len());
            let rest: Vec<Row> = [&rows[..start], &rows[end..]].concat();
            match differs(&rest) {
                Some(last) => {
                    rows = rest;
                    rows.truncate(last + 1);
                    is_shorter = true;
                }
                None => start = end,
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !is_shorter {
            return rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::{
        Context, Decision, Device, Governor, IdleState, Outcome, StateTable, tick_period_ns,
    };
    use idlewise_linux::{LinuxGovernor, resolve};

    use super::super::{Generator, first_difference};
    use super::*;

    /// A port that goes wrong after it was told of three ticks.
    struct Broken {
        governor: LinuxGovernor,
        tick_count: u32,
    }

    impl Governor for Broken {
        fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
            let decision = self.governor.select(context, device);
            Decision { stop_tick: decision.stop_tick != (self.tick_count >= 3), ..decision }
        }

        fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
            self.tick_count += u32::from(outcome.got_tick);
            self.governor.reflect(outcome, device);
        }
    }

    #[test]
    fn finds_the_three_ticks_that_break_a_governor_and_the_row_that_shows_it() {
        let states = [IdleState::POLL, IdleState::new(1_000, 2_000), IdleState::new(9_000, 90_000)];
        let states = StateTable::new(&states).unwrap();
        let tick_ns = tick_period_ns(250);
        let build = || resolve("menu").unwrap().build(tick_ns);
        let mut leader = build();
        let mut rows = Vec::new();
        Generator::new(7, states, tick_ns).run(500, &mut leader, &mut |row, _| rows.push(*row));
        let mut differs = |rows: &[Row]| {
            let mut broken = Broken { governor: build(), tick_count: 0 };
            first_difference(&states, rows, &mut build(), &mut broken).map(|(index, _)| index)
        };
        let first = differs(&rows).expect("ticks come in 500 rows");
        let shortest = shrink(rows, &mut differs);
        assert!(first > 4, "there is something to leave out");
        assert_eq!(shortest.len(), 4);
        assert!(shortest[..3].iter().all(|row| row.got_tick && row.entered.is_some()));
        assert_eq!(differs(&shortest), Some(3));
    }

    #[test]
    fn leaves_rows_without_a_difference_alone() {
        assert_eq!(shrink(Vec::new(), &mut |_| None), []);
    }
}
