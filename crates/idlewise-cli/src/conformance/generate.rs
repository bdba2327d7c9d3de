//! Generates rows that no trace contains. A stream changes its regime every few rows: timers that
//! expire on time, repeating periods, bursts of interrupts, times at the limits that governors
//! compare with, 32-bit overflows of microseconds, and noise. The same seed gives the same rows.

use idlewise_core::{DisabledMask, FAR_AWAY_NS, Governor, IdleState, SleepLength, StateTable};
use idlewise_sim::decision_log::DecisionAnswer;

use super::{DrivenGovernor, Row};

/// A small, fast generator (splitmix64) that gives the same numbers everywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A number of any magnitude up to `bits` bits.
    fn magnitude(&mut self, bits: u64) -> u64 {
        let bit_count = self.below(bits) + 1;
        self.next() >> (64 - bit_count)
    }
}

/// Returns a random table, unlike that of any machine.
pub fn random_table(seed: u64) -> StateTable {
    let random = &mut Random(seed ^ 0x7461_626c);
    let mut times_ns: Vec<(u64, u64)> = (0..1 + random.below(10))
        .map(|_| {
            let residency_ns = match random.below(6) {
                0 => random.below(20_000),
                1 => random.below(30) * 1_000,
                2 => random.below(10) * 1_000_000,
                // menu and teo treat 15 us specially.
                3 => 14_999 + random.below(3),
                _ => random.magnitude(34),
            };
            let latency_ns = match random.below(4) {
                0 => random.magnitude(30),
                1 => residency_ns,
                _ => residency_ns / (1 + random.below(5)),
            };
            (latency_ns, residency_ns)
        })
        .collect();
    times_ns.sort_by_key(|&(_, residency_ns)| residency_ns);
    if times_ns.len() > 1 && random.one_in(3) {
        let index = random.below(times_ns.len() as u64 - 1) as usize;
        times_ns[index + 1].1 = times_ns[index].1;
    }
    let mut states: Vec<IdleState> =
        times_ns.into_iter().map(|(latency_ns, ns)| IdleState::new(latency_ns, ns)).collect();
    match random.below(3) {
        0 => states[0] = IdleState::POLL,
        1 => states[0].is_polling = true,
        _ => {}
    }
    StateTable::new(&states).expect("sorted, and only state 0 polls")
}

/// The kind of a stretch of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regime {
    TimersInTime,
    Period,
    ShortBursts,
    FarTimers,
    Pattern,
    Endless,
    Edges,
    Overflows,
    Noise,
}

const REGIMES: [Regime; 9] = [
    Regime::TimersInTime,
    Regime::Period,
    Regime::ShortBursts,
    Regime::FarTimers,
    Regime::Pattern,
    Regime::Endless,
    Regime::Edges,
    Regime::Overflows,
    Regime::Noise,
];

/// The kernel's value for no latency limit.
const NO_LIMIT_NS: i64 = idlewise_core::NO_LATENCY_LIMIT_NS;
/// Microseconds beyond this overflow 32 bits.
const WRAP_NS: u64 = 4_294_967_296_000;

/// Generates rows for a table.
pub struct Generator {
    random: Random,
    states: StateTable,
    tick_ns: u64,
    clock_ns: u64,
    left_count: u64,
    regime: Regime,
    period_ns: u64,
    pattern_ns: [u64; 8],
    pattern_length: u64,
    disabled: u16,
    limit_ns: i64,
    iowait_count: u32,
    tick_stopped: bool,
}

impl Generator {
    /// Makes a generator for a table and a tick period. Each seed gives different rows.
    pub fn new(seed: u64, states: StateTable, tick_period_ns: u32) -> Self {
        let mut random = Random(seed);
        let clock_ns = 1_000_000_000 + random.magnitude(40);
        Generator {
            random,
            states,
            tick_ns: tick_period_ns.into(),
            clock_ns,
            left_count: 0,
            regime: Regime::Noise,
            period_ns: 0,
            pattern_ns: [0; 8],
            pattern_length: 1,
            disabled: 0,
            limit_ns: NO_LIMIT_NS,
            iowait_count: 0,
            tick_stopped: false,
        }
    }

    /// Makes `count` rows. The feedback follows the answers of `leader`. Each row is passed to
    /// `take` with the leader's state.
    pub fn run(
        &mut self,
        count: u64,
        leader: &mut dyn Governor,
        take: &mut dyn FnMut(&Row, DecisionAnswer),
    ) {
        let mut leader = DrivenGovernor::new(leader);
        for index in 0..count {
            if self.left_count == 0 {
                self.change();
            }
            self.left_count -= 1;
            let question = self.question(index);
            let answer = leader.select(&self.states, &question);
            let row = self.outcome(question, &answer);
            leader.reflect(&row);
            take(&row, answer);
        }
    }

    fn change(&mut self) {
        let random = &mut self.random;
        self.left_count = 5 + random.below(60);
        self.regime = REGIMES[random.below(9) as usize];
        self.period_ns = match random.below(4) {
            0 => random.below(15_000),
            1 => random.magnitude(26),
            2 => random.below(2 * self.tick_ns),
            _ => random.magnitude(36),
        };
        self.disabled = if random.one_in(3) {
            random.next() as u16 & 0x3ff
        } else if random.one_in(2) {
            1 << random.below(10)
        } else {
            0
        };
        let state = random.below(self.states.len() as u64) as usize;
        self.limit_ns = match random.below(4) {
            0 => random.magnitude(30) as i64,
            1 => self.states.get(state).exit_latency_ns as i64 + random.below(3) as i64 - 1,
            _ => NO_LIMIT_NS,
        };
        self.iowait_count = if random.one_in(3) { random.below(5) as u32 } else { 0 };
        self.pattern_length = 1 + random.below(8);
        for ns in &mut self.pattern_ns {
            *ns = random.magnitude(30);
        }
        self.tick_stopped = random.one_in(3);
    }

    /// A time that a governor may compare with, or one next to it.
    fn edge_ns(&mut self) -> u64 {
        let random = &mut self.random;
        let state = self.states.get(random.below(self.states.len() as u64) as usize);
        let edge_ns = match random.below(8) {
            0 => state.exit_latency_ns,
            1 => state.target_residency_ns,
            2 => self.tick_ns,
            3 => 15_000,
            4 => 10_u64.pow(3 + random.below(8) as u32),
            5 => 2 * self.tick_ns,
            6 => 2 * state.exit_latency_ns,
            _ => self.tick_ns / 2,
        };
        (edge_ns + random.below(5)).saturating_sub(2)
    }

    /// The next timer, and the length of the stay.
    fn lengths_ns(&mut self, index: u64) -> (i64, u64) {
        let random = &mut self.random;
        match self.regime {
            Regime::TimersInTime => {
                let timer_ns = random.magnitude(34);
                (timer_ns as i64, timer_ns + random.below(3_000))
            }
            Regime::Period => {
                let late_ns =
                    if random.one_in(2) { random.below(self.period_ns / 16 + 1) } else { 0 };
                (random.magnitude(40) as i64, self.period_ns + late_ns)
            }
            Regime::ShortBursts => (random.magnitude(36) as i64, 1_000 + random.below(20_000)),
            Regime::FarTimers => {
                ((20_000_000 + random.below(10_000_000_000)) as i64, random.magnitude(34))
            }
            Regime::Pattern => {
                let ns = self.pattern_ns[(index % self.pattern_length) as usize];
                (random.magnitude(38) as i64, ns)
            }
            Regime::Endless => {
                let is_far = random.one_in(3);
                let timer_ns = if is_far { FAR_AWAY_NS } else { random.magnitude(63) as i64 };
                (timer_ns, random.magnitude(40))
            }
            Regime::Edges => {
                let timer_ns =
                    if self.random.one_in(2) { self.edge_ns() } else { self.random.magnitude(36) };
                (timer_ns as i64, self.edge_ns())
            }
            Regime::Overflows => {
                let wraps = 1 + random.below(1 << 20);
                let timer_ns = wraps.wrapping_mul(WRAP_NS).wrapping_add(random.magnitude(33));
                let stay_ns = if random.one_in(2) {
                    random.below(1 << 20) * WRAP_NS + random.magnitude(33)
                } else {
                    random.magnitude(45)
                };
                ((timer_ns as i64) & i64::MAX, stay_ns)
            }
            Regime::Noise => {
                let timer_ns = match random.below(4) {
                    0 | 1 => random.next() as i64,
                    2 => -(random.magnitude(40) as i64),
                    _ => FAR_AWAY_NS - random.below(3) as i64,
                };
                (timer_ns, if random.one_in(4) { random.next() } else { random.magnitude(50) })
            }
        }
    }

    /// A row without its outcome. `residency_ns` has the length of the stay to come.
    fn question(&mut self, index: u64) -> Row {
        let (mut sleep_length_ns, stay_ns) = self.lengths_ns(index);
        let is_noise = self.regime == Regime::Noise;
        if self.random.one_in(60) {
            sleep_length_ns = -(self.random.magnitude(40) as i64);
        }
        let random = &mut self.random;
        let mut next_event_ns = if is_noise && random.one_in(2) {
            random.next() as i64
        } else if self.tick_stopped {
            sleep_length_ns
        } else {
            sleep_length_ns.min(random.below(self.tick_ns + 1) as i64)
        };
        if random.one_in(50) {
            next_event_ns = self.edge_ns() as i64;
        }
        let random = &mut self.random;
        if is_noise {
            self.tick_stopped = random.one_in(2);
            self.disabled = if random.one_in(2) { random.next() as u16 & 0x3ff } else { 0 };
            self.iowait_count = if random.one_in(4) { random.next() as u32 } else { 0 };
            self.limit_ns = match random.below(6) {
                0 => 0,
                1 => random.next() as i64,
                2 => -(random.magnitude(40) as i64),
                3 => random.magnitude(35) as i64,
                _ => NO_LIMIT_NS,
            };
        } else if random.one_in(40) {
            self.limit_ns = if random.one_in(4) { 0 } else { random.magnitude(30) as i64 };
        }
        Row {
            timers: SleepLength { sleep_length_ns, next_event_ns },
            disabled: DisabledMask::from_bits(self.disabled),
            latency_limit_ns: self.limit_ns,
            tick_stopped: self.tick_stopped,
            iowait_count: self.iowait_count,
            select_at_ns: self.clock_ns,
            entered: None,
            residency_ns: stay_ns,
            poll_time_limit: None,
            poll_limit_ns: 0,
            got_tick: false,
            reflect_at_ns: 0,
        }
    }

    /// The outcome: usually the selected state is entered, sometimes it is refused or replaced.
    fn outcome(&mut self, question: Row, answer: &DecisionAnswer) -> Row {
        let is_noise = self.regime == Regime::Noise;
        let stay_ns = question.residency_ns;
        let edge_ns = self.edge_ns();
        let random = &mut self.random;
        let entered = if random.one_in(50) {
            None
        } else if answer.state > 0 && random.one_in(25) {
            Some(random.below(answer.state as u64 + 1) as usize)
        } else if random.one_in(200) {
            Some(random.below(self.states.len() as u64) as usize)
        } else {
            Some(answer.state)
        };
        let residency_ns = if random.one_in(50) {
            0
        } else if random.one_in(20) {
            edge_ns
        } else if !question.tick_stopped && !is_noise && random.one_in(2) {
            stay_ns.min(question.timers.next_event_ns.max(0) as u64)
        } else {
            stay_ns
        };
        let poll_time_limit = if entered == Some(0) {
            [None, Some(false), Some(true)][random.below(3) as usize]
        } else {
            random.one_in(100).then_some(true)
        };
        let poll_limit_ns = match random.below(30) {
            0 => random.next(),
            1 | 2 => random.magnitude(24),
            _ => 0,
        };
        let got_tick = random.one_in(if question.tick_stopped { 20 } else { 4 });
        let reflect_at_ns = if is_noise && random.one_in(3) {
            random.next()
        } else {
            self.clock_ns.wrapping_add(residency_ns).wrapping_add(random.below(4_000))
        };
        self.clock_ns = if random.one_in(500) {
            random.next()
        } else {
            reflect_at_ns.wrapping_add(random.below(1_000_000))
        };
        if !is_noise {
            let stops = answer.stop_tick && question.timers.sleep_length_ns > self.tick_ns as i64;
            self.tick_stopped |= stops;
            self.tick_stopped &= !random.one_in(3);
        }
        Row {
            entered,
            residency_ns,
            poll_time_limit,
            poll_limit_ns,
            got_tick,
            reflect_at_ns,
            ..question
        }
    }
}
