//! Writes 36 idle logs with gaps of known distributions, for judging governors (`docs/hazard.md`):
//!
//! ```sh
//! cargo run --release -p idlewise-trace --example generated_logs -- target/generated
//! ```
//!
//! `simple/` has independent gaps of one distribution or two, in bursts or phases. In `other/`, a gap depends on those before
//! it, lengths drift, or nothing is random. The same seed always gives the same logs, as far as the platform's logarithm does.

use std::error::Error;
use std::fs;
use std::path::Path;

use idlewise_trace::log::{FORMAT_VERSION, LogMetadata, LogWriter};
use idlewise_trace::{CpuSummary, GapSink, IdleGap, WakeReason};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const HZ: u32 = 250;
const TICK_NS: u64 = 4 * MS;
const GAP_COUNT: usize = 6_000;
/// When nothing is due, as on an idle machine.
const FAR_NS: u64 = 500 * MS;

/// What is random, and how many gaps there were.
struct Source {
    random: u64,
    turn: u64,
    /// What a kind remembers from one gap to the next.
    memory: f64,
}

/// A gap to come: what would end it, and the next timer.
struct Next {
    event_ns: u64,
    timer_ns: u64,
    ran_task: bool,
}

impl Source {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    /// From 0, exclusively, to 1.
    fn share(&mut self) -> f64 {
        (self.below(1 << 24) + 1) as f64 / f64::from(1 << 24)
    }

    fn between(&mut self, low_ns: u64, high_ns: u64) -> u64 {
        low_ns + self.below(high_ns - low_ns)
    }

    /// Memoryless with this mean.
    fn around(&mut self, mean_ns: u64) -> u64 {
        1 + (-self.share().ln() * mean_ns as f64) as u64
    }

    /// Evenly in logarithms.
    fn any(&mut self, low_ns: u64, high_ns: u64) -> u64 {
        (low_ns as f64 * (high_ns as f64 / low_ns as f64).powf(self.share())) as u64
    }

    /// Heavy-tailed: P(longer than t) = (least / t)^exponent, and at most a second.
    fn heavy(&mut self, least_ns: u64, exponent: f64) -> u64 {
        (least_ns as f64 * self.share().powf(-1.0 / exponent)).min(1e9) as u64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Ended by an event, with a timer far away.
fn event(ns: u64) -> Next {
    Next { event_ns: ns, timer_ns: FAR_NS.max(2 * ns), ran_task: true }
}

/// Ended by its timer, or before it by an event.
fn timer(timer_ns: u64, event_ns: u64) -> Next {
    Next { event_ns, timer_ns, ran_task: true }
}

type Kind = (&'static str, fn(&mut Source) -> Next);

const SIMPLE: [Kind; 18] = [
    ("memoryless-100us", |s| event(s.around(100 * US))),
    ("memoryless-2ms", |s| event(s.around(2 * MS))),
    ("uniform-500us", |s| event(s.between(10 * US, 500 * US))),
    ("uniform-8ms", |s| event(s.between(100 * US, 8 * MS))),
    ("two-30us-3ms", |s| {
        let mean = if s.chance(80) { 30 * US } else { 3 * MS };
        event(s.around(mean))
    }),
    ("two-200us-10ms", |s| {
        let mean = if s.chance(50) { 200 * US } else { 10 * MS };
        event(s.around(mean))
    }),
    ("burst-30us-20ms", |s| {
        let mean = if s.turn % 20 == 0 { 20 * MS } else { 30 * US };
        event(s.around(mean))
    }),
    ("burst-10us-5ms", |s| {
        let mean = if s.turn % 100 == 0 { 5 * MS } else { 10 * US };
        event(s.around(mean))
    }),
    ("phases-20us-3ms", |s| {
        let mean = if s.turn / 500 % 2 == 0 { 20 * US } else { 3 * MS };
        event(s.around(mean))
    }),
    ("phases-300us-15ms", |s| {
        let mean = if s.turn % 1_000 < 800 { 300 * US } else { 15 * MS };
        event(s.around(mean))
    }),
    ("timer-1ms", |s| timer(s.between(950 * US, 1_050 * US), u64::MAX)),
    ("timer-10ms", |s| timer(s.between(9 * MS, 11 * MS), u64::MAX)),
    ("timer-4ms-or-event", |s| timer(4 * MS, s.around(5 * MS))),
    ("timer-1ms-or-event", |s| timer(MS, s.around(500 * US))),
    ("heavy-10us", |s| event(s.heavy(10 * US, 1.2))),
    ("heavy-5us", |s| event(s.heavy(5 * US, 0.8))),
    ("any-10us-10ms", |s| event(s.any(10 * US, 10 * MS))),
    ("any-1us-100ms", |s| event(s.any(US, 100 * MS))),
];

const OTHER: [Kind; 18] = [
    ("constant-120us", |_| event(120 * US)),
    ("interrupt-2500us", |s| Next { ran_task: false, ..event(s.between(2_450 * US, 2_550 * US)) }),
    ("regular-150us", |s| event((0..4).map(|_| s.around(38 * US)).sum())),
    ("regular-4ms", |s| event((0..4).map(|_| s.around(MS)).sum())),
    ("alternating-20us-2ms", |s| {
        let mean = if s.turn % 2 == 0 { 20 * US } else { 2 * MS };
        event(s.between(mean / 2, mean * 3 / 2))
    }),
    ("alternating-80us-12ms", |s| {
        let mean = if s.turn % 2 == 0 { 80 * US } else { 12 * MS };
        event(s.between(mean / 2, mean * 3 / 2))
    }),
    ("three-10us-300us-6ms", |s| {
        let mean = [10 * US, 300 * US, 6 * MS][(s.turn % 3) as usize];
        event(s.between(mean / 2, mean * 3 / 2))
    }),
    ("three-50us-50us-5ms", |s| {
        let mean = [50 * US, 50 * US, 5 * MS][(s.turn % 3) as usize];
        event(s.between(mean / 2, mean * 3 / 2))
    }),
    ("drift-20us-20ms", |s| {
        let part = s.turn as f64 / GAP_COUNT as f64;
        event(s.around((20e3 * 1_000_f64.powf(part)) as u64))
    }),
    ("drift-20ms-20us", |s| {
        let part = 1.0 - s.turn as f64 / GAP_COUNT as f64;
        event(s.around((20e3 * 1_000_f64.powf(part)) as u64))
    }),
    ("walk-slow", |s| {
        s.memory = (s.memory + 0.1 * (s.share() - 0.5)).clamp(0.0, 1.0);
        event((5e3 * 6_000_f64.powf(s.memory)) as u64)
    }),
    ("walk-fast", |s| {
        s.memory = (s.memory + 0.5 * (s.share() - 0.5)).clamp(0.0, 1.0);
        event((5e3 * 6_000_f64.powf(s.memory)) as u64)
    }),
    ("switch-rarely-15us-8ms", |s| {
        s.memory = if s.chance(2) { 1.0 - s.memory } else { s.memory };
        let mean = if s.memory > 0.5 { 15 * US } else { 8 * MS };
        event(s.around(mean))
    }),
    ("switch-often-15us-8ms", |s| {
        s.memory = if s.chance(20) { 1.0 - s.memory } else { s.memory };
        let mean = if s.memory > 0.5 { 15 * US } else { 8 * MS };
        event(s.around(mean))
    }),
    ("near-800us", |s| event(s.between(700 * US, 900 * US))),
    ("near-60us", |s| event(s.between(40 * US, 80 * US))),
    ("idle-ticks", |s| {
        let count = 1 + s.below(60);
        let at_ns = s.memory as u64;
        timer(TICK_NS * count + TICK_NS - at_ns % TICK_NS, u64::MAX)
    }),
    ("idle-some-events", |s| {
        let event_ns = s.around(400 * MS);
        timer(s.any(10 * MS, 1_000 * MS), event_ns)
    }),
];

fn write(path: &Path, seed: u64, next: fn(&mut Source) -> Next) -> Result<(), Box<dyn Error>> {
    let mut source = Source { random: seed * 2 + 88_172_645_463_325_253, turn: 0, memory: 0.5 };
    let mut now_ns = MS;
    let mut gaps = Vec::new();
    for turn in 0..GAP_COUNT {
        source.turn = turn as u64;
        if path.ends_with("idle-ticks.parquet") {
            source.memory = now_ns as f64;
        }
        let Next { event_ns, timer_ns, ran_task } = next(&mut source);
        let gap_ns = event_ns.min(timer_ns);
        gaps.push(IdleGap {
            cpu: 0,
            start_ns: now_ns as i64,
            gap_ns,
            sleep_length_ns: Some(timer_ns),
            next_tick_ns: Some((TICK_NS - now_ns % TICK_NS) as u32),
            tick_stopped: false,
            ran_task,
            wake_reason: if event_ns < timer_ns { WakeReason::Irq } else { WakeReason::Timer },
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        });
        now_ns += gap_ns + if ran_task { 20 * US } else { 3 * US };
    }
    let cpu = CpuSummary {
        observed: true,
        first_at_ns: MS as i64,
        last_at_ns: now_ns as i64,
        gap_count: gaps.len() as u64,
        tick_phase_ns: Some(0),
        ..CpuSummary::default()
    };
    let metadata = LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(HZ),
        cpus: vec![cpu],
        unknown_columns: ["latency_limit_ns", "recorded_state", "recorded_idle_ns"]
            .map(String::from)
            .to_vec(),
        ..LogMetadata::default()
    };
    let mut writer = LogWriter::create(path, true)?;
    writer.take(0, &gaps)?;
    writer.finish(&metadata)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name the folder for the logs")?;
    for (name, kinds) in [("simple", SIMPLE), ("other", OTHER)] {
        let folder = Path::new(&folder).join(name);
        fs::create_dir_all(&folder)?;
        for (seed, (kind, next)) in (1..).zip(kinds) {
            write(&folder.join(format!("{kind}.parquet")), seed, next)?;
        }
    }
    Ok(())
}
