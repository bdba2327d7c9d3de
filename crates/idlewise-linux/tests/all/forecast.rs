//! Governors say what they expected: menu the forecast behind its last choice, the others nothing.

use idlewise_core::{
    Context, Device, Governor, IdleState, Outcome, SleepLength, StateTable, tick_period_ns,
};
use idlewise_linux::{GOVERNORS, Menu, MenuRelease};

fn states() -> StateTable {
    let states = [IdleState::POLL, IdleState::new(2_000, 2_000), IdleState::new(290_000, 800_000)];
    StateTable::new(&states).unwrap()
}

/// Stays of many lengths, with a timer some time after the wake-up.
fn courses() -> impl Iterator<Item = (i64, u64)> {
    (0..200_i64).map(|i| {
        let stay_ns = [3_000, 90_000, 700_000, 3_000_000, 40_000_000][(i * i % 5) as usize] + i * 7;
        (stay_ns * (1 + i % 3), stay_ns as u64)
    })
}

fn asked(governor: &mut dyn Governor, mut see: impl FnMut(&dyn Governor)) {
    let (states, mut device) = (states(), Device::default());
    for (timer_ns, stay_ns) in courses() {
        let context = Context::new(
            &states,
            SleepLength { sleep_length_ns: timer_ns, next_event_ns: timer_ns.min(4_000_000) },
        );
        let decision = governor.select(&context, &mut device);
        see(governor);
        device.last_residency_ns = stay_ns;
        let outcome =
            Outcome { entered: decision.state, is_overruled: false, got_tick: false, now_ns: 0 };
        governor.reflect(&outcome, &mut device);
    }
}

#[test]
fn menu_says_the_forecast_that_it_chose_by() {
    let tick_ns = tick_period_ns(250);
    for release in [MenuRelease::V6_1, MenuRelease::V6_12, MenuRelease::V7_2] {
        let mut expected = Vec::new();
        {
            let (states, mut device) = (states(), Device::default());
            let mut menu = Menu::new(release, tick_ns);
            for (timer_ns, stay_ns) in courses() {
                let next_event_ns = timer_ns.min(4_000_000);
                let context =
                    Context::new(&states, SleepLength { sleep_length_ns: timer_ns, next_event_ns });
                expected.push(menu.prediction_ns(&context, &device));
                let decision = menu.select(&context, &mut device);
                device.last_residency_ns = stay_ns;
                let entered = decision.state;
                let outcome = Outcome { entered, is_overruled: false, got_tick: false, now_ns: 0 };
                menu.reflect(&outcome, &mut device);
            }
        }
        assert!(expected.iter().filter(|forecast| forecast.is_some()).count() > 50);
        let mut found = Vec::new();
        let mut menu = Menu::new(release, tick_ns);
        // Through a reference too, as every wrapper passes it on.
        asked(&mut &mut menu, |governor| found.push(governor.forecast_ns()));
        assert_eq!(found, expected);
    }
}

#[test]
fn only_menu_says_anything() {
    for spec in GOVERNORS {
        let mut count = 0;
        let mut governor = spec.build(tick_period_ns(250));
        asked(&mut governor, |governor| count += usize::from(governor.forecast_ns().is_some()));
        assert_eq!(count > 0, spec.name.starts_with("menu"), "{}", spec.id);
    }
}
