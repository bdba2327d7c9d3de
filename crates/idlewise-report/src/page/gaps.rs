//! Gaps as columns: what was recorded, and what each shown governor did.
//!
//! Times are in a quantum, and relative to the start of the first row. A row's start is the end of the
//! row before it on the same CPU plus `busy`; a CPU's first row is relative to the first row of all.
//!
//! | column of a gap | encoding | is |
//! | --- | --- | --- |
//! | `cpu` | delta | the CPU; rows are sorted by CPU, then by time |
//! | `busy` | z | time from the end of the row before |
//! | `gap` | u | the gap's length |
//! | `sleep` | z, null | sleep length − gap |
//! | `grid` | delta, null | (start + next tick) mod the tick's period, in ns: constant unless ticks drift |
//! | `flags` | bytes | 1 the tick was stopped, 2 a task ran, 4 and 8: the recording knows these |
//! | `reason` | bytes | index of the wake reason |
//! | `recorded_state` | bytes, null | the state that the recorded kernel entered first |
//! | `recorded_idle` | z, null | recorded idle time − gap |
//! | `limit` | u, null | the latency limit, in ns |
//! | `skipped` | u | gaps of this CPU left out since the row before |
//!
//! | column of a course | encoding | is |
//! | --- | --- | --- |
//! | `state` | bytes | the first decision |
//! | `verdict` | bytes | 1 some stay was too deep, 2 some too shallow, 3 both |
//! | `stays` | u | entries of this gap in `more`; 0 is one stay that lasts until the event |
//! | `more` | u | entries of several numbers each |
//! | `forecast` | u, null | round(16 · log2(ns)) of what the governor expected |
//!
//! An entry of `more` begins with (4 · state + verdict) · 8 + kind. Kinds 0 event, 1 tick, 2 poll limit
//! and 3 promotion are stays, by what ended them: then follow the time since the stay before, and the
//! length without the exit. All stays of such a gap are listed, at most eight. If there are more, a kind
//! 7 for each state has their number and the sum of their lengths, and a last entry of kind 6 has the
//! number of ticks, the time at running power and the delay of the gap's event.

use idlewise_core::Verdict as KernelVerdict;
use idlewise_sim::ledger::{CourseGap, CourseStay, KeptCourse, KeptCpu, Rest};
use idlewise_sim::replay::StayEnd;
use idlewise_trace::IdleGap;

use super::{
    CourseColumns, CourseFacts, DetailColumns, DetailFacts, Encoder, Encoding, Knows, Page,
};

/// The gaps of a log, being encoded CPU by CPU.
#[derive(Debug)]
pub struct GapColumns {
    knows: Knows,
    quantum_ns: u64,
    tick_period_ns: u64,
    /// The start of the first row.
    origin_ns: Option<i64>,
    kept_count: u64,
    cpu: Encoder,
    busy: Encoder,
    gap: Encoder,
    sleep: Encoder,
    grid: Encoder,
    flags: Encoder,
    reason: Encoder,
    recorded_state: Encoder,
    recorded_idle: Encoder,
    limit: Encoder,
    skipped: Encoder,
    has_limits: bool,
    has_grid: bool,
    courses: Vec<Course>,
}

/// What a governor did in them.
#[derive(Debug)]
struct Course {
    state: Encoder,
    verdict: Encoder,
    stays: Encoder,
    more: Encoder,
    forecast: Encoder,
    has_forecast: bool,
}

impl GapColumns {
    /// Starts the columns of a log with so many courses.
    pub fn new(knows: Knows, quantum_ns: u64, tick_period_ns: u32, course_count: usize) -> Self {
        let course = || Course {
            state: Encoder::new(Encoding::Bytes),
            verdict: Encoder::new(Encoding::Bytes),
            stays: Encoder::new(Encoding::U),
            more: Encoder::new(Encoding::U),
            forecast: Encoder::nullable(Encoding::U),
            has_forecast: false,
        };
        GapColumns {
            knows,
            quantum_ns: quantum_ns.max(1),
            tick_period_ns: u64::from(tick_period_ns),
            origin_ns: None,
            kept_count: 0,
            cpu: Encoder::new(Encoding::Delta),
            busy: Encoder::new(Encoding::Z),
            gap: Encoder::new(Encoding::U),
            sleep: Encoder::nullable(Encoding::Z),
            grid: Encoder::nullable(Encoding::Delta),
            flags: Encoder::new(Encoding::Bytes),
            reason: Encoder::new(Encoding::Bytes),
            recorded_state: Encoder::nullable(Encoding::Bytes),
            recorded_idle: Encoder::nullable(Encoding::Z),
            limit: Encoder::nullable(Encoding::U),
            skipped: Encoder::new(Encoding::U),
            has_limits: false,
            has_grid: false,
            courses: (0..course_count).map(|_| course()).collect(),
        }
    }

    /// Adds the kept gaps of the next CPU.
    pub fn add(&mut self, kept: &KeptCpu) {
        // In units of the quantum, since the origin.
        let mut end = 0;
        for (gap, skipped) in &kept.gaps {
            end = self.add_gap(gap, *skipped, end);
        }
        self.kept_count += kept.gaps.len() as u64;
        for (course, kept) in self.courses.iter_mut().zip(&kept.courses) {
            course.add(kept, self.quantum_ns);
        }
    }

    fn add_gap(&mut self, gap: &IdleGap, skipped: u64, last_end: i64) -> i64 {
        let quantum_ns = self.quantum_ns as i64;
        let origin_ns = *self.origin_ns.get_or_insert(gap.start_ns);
        let start_ns = gap.start_ns.saturating_sub(origin_ns);
        // Both ends are rounded, so that rows don't drift apart.
        let start = start_ns.div_euclid(quantum_ns);
        let end = start_ns.saturating_add_unsigned(gap.gap_ns).div_euclid(quantum_ns).max(start);
        let length = |ns: u64| clamped(ns) / quantum_ns;
        let beyond = |ns: u64| length(ns) - (end - start);
        self.cpu.push(i64::from(gap.cpu));
        self.busy.push(start - last_end);
        self.gap.push(end - start);
        self.sleep.push_option(gap.sleep_length_ns.map(beyond));
        let period_ns = self.tick_period_ns as i64;
        let on_grid = |ns: u32| (start_ns.wrapping_add(i64::from(ns))).rem_euclid(period_ns);
        self.has_grid |= gap.next_tick_ns.is_some();
        self.grid.push_option(gap.next_tick_ns.map(on_grid));
        let known = if self.knows.ticks { 4 | 8 } else { 0 };
        self.flags.push(i64::from(gap.tick_stopped) | i64::from(gap.ran_task) << 1 | known);
        self.reason.push(gap.wake_reason as i64);
        self.recorded_state.push_option(gap.recorded_state.map(i64::from));
        self.recorded_idle.push_option(gap.recorded_idle_ns.map(beyond));
        self.has_limits |= gap.latency_limit_ns.is_some();
        self.limit.push_option(gap.latency_limit_ns.map(clamped));
        self.skipped.push(clamped(skipped));
        end
    }

    /// Adds the columns to a page. `names` are machine and governor of each course; courses without a
    /// governor are left out.
    pub fn finish(self, page: &mut Page, log: GapLog, names: &[(usize, Option<usize>)]) {
        let GapLog { log, gap_count, first_ns, how } = log;
        let is_sampled = self.kept_count < gap_count;
        let mut add_if = |is_known: bool, column| is_known.then(|| page.add(column));
        let columns = DetailColumns {
            sleep: add_if(self.knows.timers, self.sleep),
            grid: add_if(self.has_grid, self.grid),
            reason: add_if(self.knows.wakes, self.reason),
            recorded_state: add_if(self.knows.states, self.recorded_state),
            recorded_idle: add_if(self.knows.states, self.recorded_idle),
            limit: add_if(self.has_limits, self.limit),
            skipped: add_if(is_sampled, self.skipped),
            cpu: page.add(self.cpu),
            busy: page.add(self.busy),
            gap: page.add(self.gap),
            flags: page.add(self.flags),
        };
        let offset_ns = self.origin_ns.map_or(0, |origin_ns| origin_ns.abs_diff(first_ns));
        page.facts.details.push(DetailFacts {
            log,
            kept_count: self.kept_count,
            gap_count,
            is_sampled,
            how,
            quantum_ns: self.quantum_ns,
            tick_period_ns: self.tick_period_ns,
            offset_ns,
            columns,
        });
        for (course, &(machine, governor)) in self.courses.into_iter().zip(names) {
            let Some(governor) = governor else { continue };
            let columns = CourseColumns {
                state: page.add(course.state),
                verdict: page.add(course.verdict),
                stays: page.add(course.stays),
                more: page.add(course.more),
                forecast: course.has_forecast.then(|| page.add(course.forecast)),
            };
            page.facts.courses.push(CourseFacts { log, machine, governor, columns });
        }
    }
}

/// What else is said about the gaps of a log.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "as in `DetailFacts`")]
pub struct GapLog {
    pub log: usize,
    pub gap_count: u64,
    pub first_ns: i64,
    pub how: String,
}

impl Course {
    fn add(&mut self, kept: &KeptCourse, quantum_ns: u64) {
        let mut stays = kept.stays.iter();
        let mut rests = kept.rests.iter();
        for gap in &kept.gaps {
            let CourseGap { verdicts, listed_count, .. } = *gap;
            self.state.push(gap.state as i64);
            let too_shallow = i64::from(verdicts.is_too_shallow);
            self.verdict.push(i64::from(verdicts.is_too_deep) | too_shallow << 1);
            let mut entry_count = listed_count;
            for stay in stays.by_ref().take(listed_count) {
                self.stay(stay, quantum_ns);
            }
            if gap.has_rest
                && let Some(rest) = rests.next()
            {
                entry_count += self.rest(rest, gap.delay_ns, quantum_ns);
            }
            self.stays.push(entry_count as i64);
            self.has_forecast |= gap.forecast_ns.is_some();
            self.forecast.push_option(gap.forecast_ns.filter(|&ns| ns > 0).map(sixteenths));
        }
    }

    fn stay(&mut self, stay: &CourseStay, quantum_ns: u64) {
        let kind = match stay.end {
            StayEnd::Tick => 1,
            StayEnd::PollLimit => 2,
            StayEnd::Promotion => 3,
            _ => 0,
        };
        self.more.push(head(stay.state, stay.verdict, kind));
        self.more.push(clamped(stay.wait_ns / quantum_ns));
        self.more.push(clamped(stay.stay_ns / quantum_ns));
    }

    fn rest(&mut self, rest: &Rest, delay_ns: u64, quantum_ns: u64) -> usize {
        let mut entry_count = 1;
        for (state, count, sum_ns) in rest.states() {
            self.more.push(head(state, KernelVerdict::Fit, REST));
            self.more.push(clamped(count));
            self.more.push(clamped(sum_ns / quantum_ns));
            entry_count += 1;
        }
        self.more.push(head(0, KernelVerdict::Fit, END));
        self.more.push(clamped(rest.tick_count));
        self.more.push(clamped(rest.work_ns / quantum_ns));
        self.more.push(clamped(delay_ns / quantum_ns));
        entry_count
    }
}

/// Kinds of entries that are no stays.
const REST: i64 = 7;
const END: i64 = 6;

fn head(state: usize, verdict: KernelVerdict, kind: i64) -> i64 {
    let verdict = match verdict {
        KernelVerdict::Fit => 0,
        KernelVerdict::TooDeep => 1,
        KernelVerdict::TooShallow => 2,
    };
    (4 * state as i64 + verdict) * 8 + kind
}

/// The greatest whole number that a script reads exactly.
const NUMBER_MAX: u64 = (1 << 53) - 1;

fn clamped(value: u64) -> i64 {
    value.min(NUMBER_MAX) as i64
}

/// round(16 · log2(ns)).
fn sixteenths(ns: u64) -> i64 {
    (16.0 * (ns as f64).log2()).round() as i64
}
