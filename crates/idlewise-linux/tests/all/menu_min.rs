//! Both sides of the proposed `min()` for menu (January 2026, not merged), on the states that the proposal
//! names: Sapphire Rapids with package C6.
//!
//! With the tick stopped, nothing corrects a forecast that was too short. So the release uses the timer,
//! and pays C6's exit latency for each interrupt that comes earlier. `min()` uses the forecast, and waits
//! in a shallow state for the timer if no interrupt comes.

use idlewise_core::tick_period_ns;
use idlewise_core::{
    Context, Decision, Device, Governor, IdleState, Outcome, SleepLength, StateTable,
};
use idlewise_linux::{Menu, MenuRelease};

const POLL: usize = 0;
const C1E: usize = 2;
const C6: usize = 3;

fn sapphire_rapids() -> StateTable {
    let c1 = IdleState::new(1_000, 1_000);
    let c1e = IdleState::new(2_000, 4_000);
    let c6 = IdleState::new(290_000, 800_000);
    StateTable::new(&[IdleState::POLL, c1, c1e, c6]).expect("the table is valid")
}

/// One CPU with its tick stopped.
struct Cpu {
    states: StateTable,
    governor: Menu,
    device: Device,
}

impl Cpu {
    /// A CPU whose last eight stays lasted `stay_ns`, with a timer at `timer_ns` each time.
    fn with_history(release: MenuRelease, hz: u32, timer_ns: i64, stay_ns: u64) -> Self {
        let governor = Menu::new(release, tick_period_ns(hz));
        let mut cpu = Cpu { states: sapphire_rapids(), governor, device: Device::default() };
        for _ in 0..8 {
            cpu.select(timer_ns);
            // Polling has no exit latency to subtract, so the stay is learnt unchanged.
            cpu.woken_after(POLL, stay_ns);
        }
        cpu
    }

    fn select(&mut self, timer_ns: i64) -> Decision {
        let timers = SleepLength { sleep_length_ns: timer_ns, next_event_ns: timer_ns };
        let mut context = Context::new(&self.states, timers);
        context.tick_stopped = true;
        self.governor.select(&context, &mut self.device)
    }

    fn woken_after(&mut self, entered: usize, residency_ns: u64) {
        self.device.last_residency_ns = residency_ns;
        let outcome = Outcome { entered, is_overruled: false, got_tick: false, now_ns: 0 };
        self.governor.reflect(&outcome, &mut self.device);
    }
}

#[test]
fn min_avoids_c6_for_interrupts_every_500_us_before_a_timer_in_10_ms() {
    let timer_ns = 10_000_000;
    let stay_ns = 500_000;
    assert!(stay_ns < u64::from(tick_period_ns(250)), "the forecast is below one tick");
    let mut release = Cpu::with_history(MenuRelease::V6_12, 250, timer_ns, stay_ns);
    let mut min = Cpu::with_history(MenuRelease::V6_12Min, 250, timer_ns, stay_ns);
    let mut safe_range = Cpu::with_history(MenuRelease::V6_12SafeRange, 250, timer_ns, stay_ns);

    assert_eq!(release.select(timer_ns).state, C6);
    assert_eq!(min.select(timer_ns).state, C1E);
    // 10 ms is more than two ticks of 4 ms, so this variant still uses the timer.
    assert_eq!(safe_range.select(timer_ns).state, C6);
}

#[test]
fn safe_range_avoids_c6_only_while_the_timer_is_near() {
    let deepest_for = |timer_ns| {
        let mut cpu = Cpu::with_history(MenuRelease::V6_12SafeRange, 250, timer_ns, 500_000);
        cpu.select(timer_ns).state
    };
    assert_eq!(deepest_for(8_000_000), C1E);
    assert_eq!(deepest_for(8_000_001), C6);
}

/// 7.2 with min() believes the forecast whatever the timer. The margin makes 500 us 625 us, and 700 us 875 us.
#[test]
fn min_on_7_2_and_the_margin_before_it_decide_by_the_forecast() {
    let state = |release, stay_us: u64| {
        let mut cpu = Cpu::with_history(release, 250, 10_000_000, stay_us * 1_000);
        cpu.select(10_000_000).state
    };
    assert_eq!(state(MenuRelease::V7_2, 500), C6);
    assert_eq!(state(MenuRelease::V7_2Min, 500), C1E);
    assert_eq!(state(MenuRelease::V6_12Margin, 500), C1E);
    assert_eq!(state(MenuRelease::V6_12Min, 700), C1E);
    assert_eq!(state(MenuRelease::V6_12Margin, 700), C6);
    // The timer bounds it.
    let mut near = Cpu::with_history(MenuRelease::V6_12Margin, 250, 750_000, 700_000);
    assert_eq!(near.select(750_000).state, C1E);
}

#[test]
fn min_stays_shallow_until_a_timer_seconds_away() {
    let timer_ns = 5_000_000_000;
    let stay_ns = 50_000;
    let mut release = Cpu::with_history(MenuRelease::V6_12, 250, timer_ns, stay_ns);
    let mut min = Cpu::with_history(MenuRelease::V6_12Min, 250, timer_ns, stay_ns);

    // The interrupts end here. The released rule sleeps deeply; min() waits five seconds in C1E, because a
    // stopped tick can't end the stay and nothing else will.
    assert_eq!(release.select(timer_ns), Decision { state: C6, stop_tick: true });
    assert_eq!(min.select(timer_ns), Decision { state: C1E, stop_tick: true });

    // It takes more than one such stay to unlearn: the second is no shorter.
    min.woken_after(C1E, timer_ns as u64);
    assert_eq!(min.select(timer_ns).state, C1E);
}

/// The line that min() changes is reached where the prediction is below one tick, and only there can the
/// decision differ. Asking beforehand changes no decision.
#[test]
fn tells_beforehand_what_min_would_change() {
    let tick_ns = u64::from(tick_period_ns(250));
    let mut differing_count = 0;
    for stay_us in [3, 40, 500, 3_000, 9_000] {
        for timer_ns in [20_000, 600_000, 5_000_000, 10_000_000, 5_000_000_000] {
            let with = |release| Cpu::with_history(release, 250, timer_ns, stay_us * 1_000);
            let mut asked = with(MenuRelease::V6_12);
            let timers = SleepLength { sleep_length_ns: timer_ns, next_event_ns: timer_ns };
            let states = asked.states;
            let mut context = Context::new(&states, timers);
            context.tick_stopped = true;
            let predicted_ns = asked.governor.prediction_ns(&context, &asked.device);
            let min = asked.governor.decision_with_min(&context, &asked.device);
            assert_eq!(min, with(MenuRelease::V6_12Min).select(timer_ns));
            let release = asked.select(timer_ns);
            assert_eq!(release, with(MenuRelease::V6_12).select(timer_ns), "asking changed it");
            if release != min {
                differing_count += 1;
                assert!(predicted_ns.is_some_and(|ns| ns < tick_ns), "{stay_us} us, {timer_ns} ns");
            }
        }
    }
    assert!(differing_count > 3, "{differing_count}");
}
