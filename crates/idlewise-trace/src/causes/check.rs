//! What a workload log must satisfy: no effect before its cause, and no cause that is not there.
//!
//! There is one definition. The writer checks with it before a file gets its name, readers check what others
//! wrote, and `idlewise log validate` prints what it finds.

use std::collections::VecDeque;
use std::fmt;

use super::{Cause, Step, StepEnd, StepPlace};

/// How many finished steps of each task are kept to compare with later steps that they cause. A step that
/// names an older one is only checked for the older one's existence.
const KEPT_STEP_COUNT: usize = 64;

/// A row that contradicts itself or an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The row, counted from 0. For a step that another one names and that never comes: the number of rows.
    pub row: u64,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: it breaks the rule that {}", self.row, self.rule)
    }
}

const KNOWN_TASK: &str = "a task is one of those that the metadata list";
const KNOWN_CPU: &str = "a CPU's number is below the metadata's cpu_count";
const IN_ORDER: &str = "a step is due before it runs, and runs before it ends";
const RUNS_WITHIN: &str = "a step runs no longer than from its start to its end";
const AFTER_LAST: &str = "a step is due after the task's step before it ended";
const AFTER_END: &str = "a task that ended, or that the recording cut, has no further step";
const NOT_ITSELF: &str = "no task wakes itself";
const IS_THERE: &str = "the step that causes another one is there";
const CAUSE_FIRST: &str = "a step's cause is not after it";
const WITHIN_CAUSE: &str = "a step is woken or armed while the step that does it runs";
const NO_TIME: &str = "what is known of the next timer takes no time";
const START_FIRST: &str = "a step is due within the recording";

/// Checks the rows of a workload log in order. Memory depends only on the number of tasks.
pub struct Checker {
    cpu_count: u32,
    first_at_ns: i64,
    last_at_ns: i64,
    tasks: Vec<Seen>,
    row_count: u64,
}

/// What was seen of a task.
#[derive(Clone, Debug, Default)]
struct Seen {
    step_count: u64,
    is_over: bool,
    ended_at_ns: Option<i64>,
    /// The last finished steps: run, end, net length.
    kept: VecDeque<(i64, i64, u64)>,
    /// What others say of the step that is not finished yet.
    claim: Option<Claim>,
}

/// What others say of a step: it ran at these times, and at least that long.
#[derive(Clone, Copy, Debug)]
struct Claim {
    first_at_ns: i64,
    last_at_ns: i64,
    offset_ns: u64,
}

impl Checker {
    /// Makes a checker for a log of that many tasks and CPUs, of a recording between these times.
    pub fn new(task_count: usize, cpu_count: u32, first_at_ns: i64, last_at_ns: i64) -> Self {
        let tasks = vec![Seen::default(); task_count];
        Checker { cpu_count, first_at_ns, last_at_ns, tasks, row_count: 0 }
    }

    /// Checks the next row.
    ///
    /// # Errors
    /// Returns the first rule that it breaks.
    pub fn push(&mut self, step: &Step) -> Result<(), Contradiction> {
        let row = self.row_count;
        self.row_count += 1;
        self.check(step).map_err(|rule| Contradiction { row, rule })
    }

    /// Ends the log.
    ///
    /// # Errors
    /// Fails if a step that others name did not come.
    pub fn finish(self) -> Result<(), Contradiction> {
        match self.tasks.iter().any(|task| task.claim.is_some()) {
            true => Err(Contradiction { row: self.row_count, rule: IS_THERE }),
            false => Ok(()),
        }
    }

    fn check(&mut self, step: &Step) -> Result<(), &'static str> {
        let Step { task, cpu, cause, due_at_ns, run_at_ns, run_ns, end_at_ns, end, .. } = *step;
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        rule(u32::from(cpu) < self.cpu_count, KNOWN_CPU)?;
        rule(due_at_ns <= run_at_ns && run_at_ns <= end_at_ns, IN_ORDER)?;
        rule(run_ns <= end_at_ns.abs_diff(run_at_ns), RUNS_WITHIN)?;
        rule(self.first_at_ns <= due_at_ns && end_at_ns <= self.last_at_ns, START_FIRST)?;
        let own = self.tasks.get(task as usize).ok_or(KNOWN_TASK)?;
        rule(!own.is_over, AFTER_END)?;
        rule(own.ended_at_ns.is_none_or(|ended| ended <= due_at_ns), AFTER_LAST)?;
        // A task that is woken while it is about to wait is due when its step has ended. When it was woken is not
        // told then.
        let is_told = own.ended_at_ns != Some(due_at_ns);
        match cause {
            Cause::Task(place) => {
                rule(place.task != task, NOT_ITSELF)?;
                self.check_place(place, is_told.then_some(due_at_ns), due_at_ns)?;
            }
            Cause::Timer { armed, delay_ns } => {
                let delay_ns = i64::try_from(delay_ns).map_err(|_| CAUSE_FIRST)?;
                let armed_at_ns = due_at_ns.checked_sub(delay_ns).ok_or(CAUSE_FIRST)?;
                let is_own = armed.task == task;
                let is_before = !is_own || armed.step < own.step_count;
                rule(is_before, CAUSE_FIRST)?;
                self.check_place(armed, is_told.then_some(armed_at_ns), due_at_ns)?;
            }
            Cause::NextTimer { .. } => rule(due_at_ns == end_at_ns, NO_TIME)?,
            Cause::Start | Cause::Absolute | Cause::Interrupt => {}
        }
        let own = self.tasks.get_mut(task as usize).ok_or(KNOWN_TASK)?;
        if let Some(Claim { first_at_ns, last_at_ns, offset_ns }) = own.claim.take() {
            let is_within = run_at_ns <= first_at_ns && last_at_ns <= end_at_ns;
            rule(is_within && offset_ns <= run_ns, WITHIN_CAUSE)?;
        }
        own.step_count += 1;
        own.is_over = end != StepEnd::Waits;
        own.ended_at_ns = Some(end_at_ns);
        if own.kept.len() == KEPT_STEP_COUNT {
            own.kept.pop_front();
        }
        own.kept.push_back((run_at_ns, end_at_ns, run_ns));
        Ok(())
    }

    /// Checks that another step is there, and did something at that time, or at an unknown one.
    fn check_place(
        &mut self,
        place: StepPlace,
        at_ns: Option<i64>,
        due_at_ns: i64,
    ) -> Result<(), &'static str> {
        let StepPlace { task, step, offset_ns } = place;
        let seen = self.tasks.get_mut(task as usize).ok_or(KNOWN_TASK)?;
        let age = match seen.step_count.checked_sub(step) {
            // The step has not ended yet.
            Some(0) if !seen.is_over => {
                // It runs at this time, or has begun before it.
                let (first_at_ns, last_at_ns) =
                    (at_ns.unwrap_or(due_at_ns), at_ns.unwrap_or(i64::MIN));
                let claim = seen.claim.get_or_insert(Claim { first_at_ns, last_at_ns, offset_ns });
                claim.first_at_ns = claim.first_at_ns.min(first_at_ns);
                claim.last_at_ns = claim.last_at_ns.max(last_at_ns);
                claim.offset_ns = claim.offset_ns.max(offset_ns);
                return Ok(());
            }
            None | Some(0) => return Err(IS_THERE),
            Some(age) => age,
        };
        let kept = usize::try_from(age).ok().and_then(|age| seen.kept.len().checked_sub(age));
        let Some(&(run_at_ns, end_at_ns, run_ns)) = kept.and_then(|at| seen.kept.get(at)) else {
            return Ok(());
        };
        if run_at_ns > due_at_ns {
            return Err(CAUSE_FIRST);
        }
        let is_within = at_ns.is_none_or(|at_ns| (run_at_ns..=end_at_ns).contains(&at_ns));
        if is_within && offset_ns <= run_ns { Ok(()) } else { Err(WITHIN_CAUSE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Step = Step {
        task: 0,
        cpu: 0,
        cause: Cause::Start,
        due_at_ns: 100,
        run_at_ns: 110,
        run_ns: 80,
        end_at_ns: 200,
        end: StepEnd::Waits,
        idle_state: None,
    };

    fn woken(task: u32, step: u64, offset_ns: u64, due_at_ns: i64) -> Step {
        Step {
            task: 1,
            cause: Cause::Task(StepPlace { task, step, offset_ns }),
            due_at_ns,
            run_at_ns: due_at_ns,
            run_ns: 10,
            end_at_ns: due_at_ns + 10,
            ..WAITS
        }
    }

    fn found(steps: &[Step]) -> Option<&'static str> {
        let mut checker = Checker::new(2, 1, 0, 1_000);
        for step in steps {
            if let Err(contradiction) = checker.push(step) {
                return Some(contradiction.rule);
            }
        }
        checker.finish().err().map(|contradiction| contradiction.rule)
    }

    #[test]
    fn what_a_recording_shows_is_valid() {
        assert_eq!(found(&[WAITS, woken(0, 0, 30, 150)]), None);
        // The step that wakes may end later than the one that it wakes.
        assert_eq!(found(&[woken(0, 0, 30, 150), WAITS]), None);
        let later = Step { due_at_ns: 300, run_at_ns: 300, end_at_ns: 390, ..WAITS };
        let armed = StepPlace { task: 0, step: 0, offset_ns: 80 };
        let timer = Step { cause: Cause::Timer { armed, delay_ns: 110 }, ..later };
        assert_eq!(found(&[WAITS, timer]), None);
        assert_eq!(found(&[WAITS, Step { end: StepEnd::Ends, ..later }]), None);
    }

    #[test]
    fn a_task_may_be_woken_while_it_is_about_to_wait() {
        // Task 0 woke it before 200 and then ended its step. It had not left its CPU until 250.
        let waits = Step { task: 1, end_at_ns: 250, ..WAITS };
        assert_eq!(found(&[WAITS, waits, woken(0, 0, 30, 250)]), None);
        let armed = StepPlace { task: 0, step: 0, offset_ns: 80 };
        let timer = Step { cause: Cause::Timer { armed, delay_ns: 10 }, ..woken(0, 0, 0, 250) };
        assert_eq!(found(&[WAITS, waits, timer]), None);
        // But a step that begins later cannot have done it, nor one that is shorter.
        let later = Step { due_at_ns: 300, run_at_ns: 300, end_at_ns: 390, ..WAITS };
        assert_eq!(found(&[WAITS, later, waits, woken(0, 1, 0, 250)]), Some(CAUSE_FIRST));
        assert_eq!(found(&[WAITS, waits, woken(0, 0, 81, 250)]), Some(WITHIN_CAUSE));
        // Later than its step's end, the time is told.
        assert_eq!(found(&[WAITS, waits, woken(0, 0, 30, 251)]), Some(WITHIN_CAUSE));
    }

    #[test]
    fn every_rule_is_checked() {
        let later = Step { due_at_ns: 300, run_at_ns: 300, end_at_ns: 390, ..WAITS };
        let cases: &[(&[Step], &str)] = &[
            (&[Step { task: 2, ..WAITS }], KNOWN_TASK),
            (&[Step { cpu: 1, ..WAITS }], KNOWN_CPU),
            (&[Step { due_at_ns: 111, ..WAITS }], IN_ORDER),
            (&[Step { end_at_ns: 109, run_ns: 0, ..WAITS }], IN_ORDER),
            (&[Step { run_ns: 91, ..WAITS }], RUNS_WITHIN),
            (&[Step { due_at_ns: -1, ..WAITS }], START_FIRST),
            (&[Step { end_at_ns: 1_001, ..WAITS }], START_FIRST),
            (
                &[WAITS, Step { due_at_ns: 199, run_at_ns: 210, end_at_ns: 290, ..WAITS }],
                AFTER_LAST,
            ),
            (&[Step { end: StepEnd::Ends, ..WAITS }, later], AFTER_END),
            (&[Step { task: 0, ..woken(0, 0, 0, 100) }], NOT_ITSELF),
            (&[woken(0, 1, 0, 150)], IS_THERE),
            (&[woken(0, 0, 0, 150)], IS_THERE),
            (&[WAITS, woken(0, 0, 30, 250)], WITHIN_CAUSE),
            (&[WAITS, woken(0, 0, 81, 150)], WITHIN_CAUSE),
            (&[WAITS, woken(0, 0, 0, 105)], CAUSE_FIRST),
            (&[woken(0, 0, 30, 250), WAITS], WITHIN_CAUSE),
            (&[woken(0, 0, 81, 150), WAITS], WITHIN_CAUSE),
        ];
        for (steps, rule) in cases {
            assert_eq!(found(steps), Some(*rule), "{steps:?}");
        }
        let armed = StepPlace { task: 0, step: 0, offset_ns: 80 };
        for delay_ns in [u64::MAX, 400, 10] {
            let timer = Step { cause: Cause::Timer { armed, delay_ns }, ..later };
            assert!(found(&[WAITS, timer]).is_some(), "{delay_ns}");
        }
        // A step that waits for its own timer.
        let own = Step { cause: Cause::Timer { armed, delay_ns: 0 }, ..WAITS };
        assert_eq!(found(&[own]), Some(CAUSE_FIRST));
        // Two steps that cause each other.
        let other = Step { task: 0, ..woken(1, 0, 5, 150) };
        assert!(
            found(&[woken(0, 0, 5, 150), other]).is_some_and(|rule| rule == WITHIN_CAUSE)
                || found(&[woken(0, 0, 5, 151), other]).is_some()
        );
    }
}
