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
//! | `timer` | u, null | 0: the next timer ended the gap; else 1 + zigzag(its expiry − the last one's) |
//! | `grid` | delta | (start + next tick) mod the tick's period, in ns, as replayed: constant unless ticks drift |
//! | `flags` | bytes | 1 the tick was stopped, 2 a task ran, 4 and 8: the recording knows these, 16: the grid is recorded |
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
//! An entry of `more` begins with (4 · state + verdict) · 16 + kind. Kinds 0 event, 1 tick, 2 poll limit
//! and 3 promotion are stays, by what ended them. All stays of such a gap are listed, at most eight. If
//! there are more, a kind 7 for each state has their number and the sum of their lengths, and a last
//! entry of kind 6 has the number of ticks, the time at running power and the delay of the gap's event.
//!
//! Most stays begin and end when anybody could say who knows the gap, the grid and the machine, so their
//! times are left out. A stay begins when the one before has ended and, after a tick, the exit latency
//! and the tick's work have passed, and after a promotion the exit latency. It lasts until the gap's end
//! (event), until the next line of the grid (tick), or as long as the last stay of this course in the
//! same state that ended in the same way (the other two; at first 0). If either is otherwise, 8 is added
//! to the kind, and two numbers follow: the time since the stay before, and the length.

use idlewise_core::{STATE_COUNT_MAX, Verdict as KernelVerdict};
use idlewise_sim::ledger::{CourseGap, CourseStay, KeptCourse, KeptCpu, Rest};
use idlewise_sim::replay::{Setting, StayEnd};
use idlewise_trace::IdleGap;

use super::packed::zigzag;
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
    timer: Encoder,
    /// When the timer of the last row that has one expires.
    last_expiry: i64,
    grid: Encoder,
    flags: Encoder,
    reason: Encoder,
    recorded_state: Encoder,
    recorded_idle: Encoder,
    limit: Encoder,
    skipped: Encoder,
    has_limits: bool,
    courses: Vec<Course>,
}

/// What the page knows of a gap when it reads its stays.
#[derive(Clone, Copy, Debug)]
struct Place {
    gap_ns: u64,
    next_tick_ns: u64,
    period_ns: u64,
}

impl Place {
    /// The time from `at_ns` to the next line of the grid.
    fn tick_left_ns(self, at_ns: u64) -> u64 {
        match at_ns.checked_sub(self.next_tick_ns) {
            None => self.next_tick_ns - at_ns,
            Some(passed_ns) => self.period_ns - passed_ns % self.period_ns,
        }
    }
}

/// What a governor did in them.
#[derive(Debug)]
struct Course {
    quantum_ns: u64,
    tick_work_ns: u64,
    exit_latencies_ns: [u64; STATE_COUNT_MAX],
    /// The last stay that the poll limit ended, and the last that a promotion ended, by state.
    last_ns: [[u64; STATE_COUNT_MAX]; 2],
    state: Encoder,
    verdict: Encoder,
    stays: Encoder,
    more: Encoder,
    forecast: Encoder,
    has_forecast: bool,
}

impl GapColumns {
    /// Starts the columns of a log with a course for each of these machines' settings.
    pub fn new(knows: Knows, quantum_ns: u64, tick_period_ns: u32, settings: &[Setting]) -> Self {
        let course = |setting: &Setting| Course {
            quantum_ns: quantum_ns.max(1),
            tick_work_ns: setting.tick_work_ns,
            exit_latencies_ns: setting.exits_ns,
            last_ns: [[0; STATE_COUNT_MAX]; 2],
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
            timer: Encoder::nullable(Encoding::U),
            last_expiry: 0,
            grid: Encoder::new(Encoding::Delta),
            flags: Encoder::new(Encoding::Bytes),
            reason: Encoder::new(Encoding::Bytes),
            recorded_state: Encoder::nullable(Encoding::Bytes),
            recorded_idle: Encoder::nullable(Encoding::Z),
            limit: Encoder::nullable(Encoding::U),
            skipped: Encoder::new(Encoding::U),
            has_limits: false,
            courses: settings.iter().map(course).collect(),
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
        let places: Vec<Place> = kept.gaps.iter().map(|(gap, _)| self.place(gap)).collect();
        for (course, kept) in self.courses.iter_mut().zip(&kept.courses) {
            course.add(kept, &places);
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
        let expiry = gap
            .sleep_length_ns
            .map(|ns| start_ns.saturating_add(clamped(ns)).div_euclid(quantum_ns).max(start));
        self.timer.push_option(expiry.map(|expiry| match expiry == end {
            true => 0,
            // A timer that did not fire is still the next one in the gap after.
            false => 1 + zigzag(expiry - self.last_expiry).min(NUMBER_MAX) as i64,
        }));
        self.last_expiry = expiry.unwrap_or(self.last_expiry);
        self.grid.push(self.grid_ns(gap));
        let known = if self.knows.ticks { 4 | 8 } else { 0 };
        let is_grid_known = i64::from(gap.next_tick_ns.is_some());
        let (stopped, ran) = (i64::from(gap.tick_stopped), i64::from(gap.ran_task));
        self.flags.push(stopped | ran << 1 | known | is_grid_known << 4);
        self.reason.push(gap.wake_reason as i64);
        self.recorded_state.push_option(gap.recorded_state.map(i64::from));
        self.recorded_idle.push_option(gap.recorded_idle_ns.map(beyond));
        self.has_limits |= gap.latency_limit_ns.is_some();
        self.limit.push_option(gap.latency_limit_ns.map(clamped));
        self.skipped.push(clamped(skipped));
        end
    }

    fn place(&self, gap: &IdleGap) -> Place {
        let period_ns = self.tick_period_ns as i64;
        let start_ns = gap.start_ns.saturating_sub(self.origin_ns.unwrap_or(0));
        let next_ns = (self.grid_ns(gap) - start_ns).rem_euclid(period_ns);
        let next_tick_ns = if next_ns == 0 { self.tick_period_ns } else { next_ns as u64 };
        Place { gap_ns: gap.gap_ns, next_tick_ns, period_ns: self.tick_period_ns }
    }

    /// A line of the tick's grid, less than a period after the origin. As in a replay, unknown ticks are at
    /// multiples of the period.
    fn grid_ns(&self, gap: &IdleGap) -> i64 {
        let period_ns = self.tick_period_ns as i64;
        let origin_ns = self.origin_ns.unwrap_or(0);
        match gap.next_tick_ns {
            Some(next_ns) => {
                let start_ns = gap.start_ns.saturating_sub(origin_ns);
                start_ns.wrapping_add(i64::from(next_ns.max(1))).rem_euclid(period_ns)
            }
            None => origin_ns.wrapping_neg().rem_euclid(period_ns),
        }
    }

    /// Adds the columns to a page. `names` are machine and governor of each course; courses without a
    /// governor are left out.
    pub fn finish(self, page: &mut Page, log: GapLog, names: &[(usize, Option<usize>)]) {
        let GapLog { log, gap_count, first_ns, how } = log;
        let is_sampled = self.kept_count < gap_count;
        let mut add_if = |is_known: bool, column| is_known.then(|| page.add(column));
        let columns = DetailColumns {
            timer: add_if(self.knows.timers, self.timer),
            reason: add_if(self.knows.wakes, self.reason),
            recorded_state: add_if(self.knows.states, self.recorded_state),
            recorded_idle: add_if(self.knows.states, self.recorded_idle),
            limit: add_if(self.has_limits, self.limit),
            skipped: add_if(is_sampled, self.skipped),
            cpu: page.add(self.cpu),
            busy: page.add(self.busy),
            gap: page.add(self.gap),
            grid: page.add(self.grid),
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
    fn add(&mut self, kept: &KeptCourse, places: &[Place]) {
        let mut stays = kept.stays.iter();
        let mut rests = kept.rests.iter();
        for (gap, place) in kept.gaps.iter().zip(places) {
            let CourseGap { verdicts, listed_count, .. } = *gap;
            self.state.push(gap.state as i64);
            let too_shallow = i64::from(verdicts.is_too_shallow);
            self.verdict.push(i64::from(verdicts.is_too_deep) | too_shallow << 1);
            let mut entry_count = listed_count;
            let mut last: Option<&CourseStay> = None;
            let mut end_ns = 0;
            for stay in stays.by_ref().take(listed_count) {
                self.stay(stay, last, end_ns, place);
                end_ns += stay.wait_ns + stay.stay_ns;
                last = Some(stay);
            }
            if gap.has_rest
                && let Some(rest) = rests.next()
            {
                entry_count += self.rest(rest, gap.delay_ns);
            }
            self.stays.push(entry_count as i64);
            self.has_forecast |= gap.forecast_ns.is_some();
            self.forecast.push_option(gap.forecast_ns.filter(|&ns| ns > 0).map(sixteenths));
        }
    }

    /// Adds a stay of a gap after another one, which ended at `end_ns`.
    fn stay(&mut self, stay: &CourseStay, last: Option<&CourseStay>, end_ns: u64, place: &Place) {
        let wait_ns = last.map_or(0, |last| match last.end {
            StayEnd::Tick => self.exit_latencies_ns[last.state] + self.tick_work_ns,
            StayEnd::Promotion => self.exit_latencies_ns[last.state],
            _ => 0,
        });
        let at_ns = end_ns + wait_ns;
        let (kind, stay_ns) = match stay.end {
            StayEnd::Tick => (1, place.tick_left_ns(at_ns)),
            StayEnd::PollLimit => (2, self.last_ns[0][stay.state]),
            StayEnd::Promotion => (3, self.last_ns[1][stay.state]),
            _ => (0, place.gap_ns.saturating_sub(at_ns)),
        };
        if let (2 | 3, index) = (kind, (kind as usize).saturating_sub(2)) {
            self.last_ns[index][stay.state] = stay.stay_ns;
        }
        if (wait_ns, stay_ns) == (stay.wait_ns, stay.stay_ns) {
            self.more.push(head(stay.state, stay.verdict, kind));
            return;
        }
        self.more.push(head(stay.state, stay.verdict, kind + OTHERWISE));
        self.more.push(clamped(stay.wait_ns / self.quantum_ns));
        self.more.push(clamped(stay.stay_ns / self.quantum_ns));
    }

    fn rest(&mut self, rest: &Rest, delay_ns: u64) -> usize {
        let mut entry_count = 1;
        for (state, count, sum_ns) in rest.states() {
            self.more.push(head(state, KernelVerdict::Fit, REST));
            self.more.push(clamped(count));
            self.more.push(clamped(sum_ns / self.quantum_ns));
            entry_count += 1;
        }
        self.more.push(head(0, KernelVerdict::Fit, END));
        self.more.push(clamped(rest.tick_count));
        self.more.push(clamped(rest.work_ns / self.quantum_ns));
        self.more.push(clamped(delay_ns / self.quantum_ns));
        entry_count
    }
}

/// Added to the kind of a stay whose times follow.
const OTHERWISE: i64 = 8;
/// Kinds of entries that are no stays.
const REST: i64 = 7;
const END: i64 = 6;

fn head(state: usize, verdict: KernelVerdict, kind: i64) -> i64 {
    let verdict = match verdict {
        KernelVerdict::Fit => 0,
        KernelVerdict::TooDeep => 1,
        KernelVerdict::TooShallow => 2,
    };
    (4 * state as i64 + verdict) * 16 + kind
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
