//! The powers that a machine may have: the corners against curves drawn at random, which know nothing of hinges.

use idlewise_machine::{Machine, PowerCurve, bundled, bundled_machines};

/// Numbers from 0 to 1 (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }
}

fn has_published(machine: &Machine) -> bool {
    machine.running_power_figure().is_some()
        || machine.states.iter().any(|state| state.power_figure().is_some())
}

/// Residencies as a curve sees them, in ns. Polling is running; what pays at once may still draw less.
fn residencies(machine: &Machine) -> Vec<f64> {
    let of = |state: &idlewise_machine::MachineState| match state.idle().is_polling {
        true => 0.0,
        false => state.target_residency_ns.max(1) as f64,
    };
    machine.states.iter().map(of).collect()
}

/// A curve by its slopes: steep ones first.
fn drawn(machine: &Machine, random: &mut Random) -> PowerCurve {
    let running_mw = machine.running_power().mw * random.between(0.5, 2.0);
    let residencies = residencies(machine);
    let mut slopes: Vec<f64> =
        residencies.iter().map(|_| random.next().powf(random.between(0.1, 20.0))).collect();
    slopes.sort_by(|one, other| other.total_cmp(one));
    let (mut at, mut fallen) = (0.0, 0.0);
    let falls: Vec<f64> = residencies
        .iter()
        .zip(&slopes)
        .map(|(residency, slope)| {
            fallen += slope * (residency - at);
            at = *residency;
            fallen
        })
        .collect();
    // The deepest state keeps a share of running power.
    let scale = if fallen > 0.0 { running_mw * random.next() / fallen } else { 0.0 };
    let states_mw = falls.iter().map(|fall| running_mw - fall * scale).collect();
    PowerCurve { running_mw, states_mw }
}

fn check(machine: &Machine, curve: &PowerCurve) -> Result<(), String> {
    let PowerCurve { running_mw, states_mw } = curve;
    let rounding_mw = running_mw * 1e-6;
    let assumed_mw = machine.running_power().mw;
    let range = match machine.running_power_figure() {
        Some(figure) => figure.mw..=figure.mw,
        None => assumed_mw * 0.5..=assumed_mw * 2.0,
    };
    if *running_mw < range.start() - rounding_mw || *running_mw > range.end() + rounding_mw {
        return Err(format!("running power {running_mw}"));
    }
    let residencies = residencies(machine);
    let points: Vec<(f64, f64)> = std::iter::once((0.0, *running_mw))
        .chain(residencies.into_iter().zip(states_mw.iter().copied()))
        .collect();
    for (index, state) in machine.states.iter().enumerate() {
        if let Some(figure) = state.power_figure()
            && (figure.mw - states_mw[index]).abs() > rounding_mw
        {
            return Err(format!(
                "{} draws {} instead of {}",
                state.name, states_mw[index], figure.mw
            ));
        }
    }
    let mut slope_before = f64::MAX;
    for pair in points.windows(2) {
        let ((from_ns, from_mw), (to_ns, to_mw)) = (pair[0], pair[1]);
        if to_mw < -rounding_mw || to_mw > from_mw + rounding_mw {
            return Err(format!("{to_mw} after {from_mw}"));
        }
        if to_ns > from_ns {
            let slope = (from_mw - to_mw) / (to_ns - from_ns);
            // A slope over a nanosecond multiplies what rounding does.
            let rounding = rounding_mw / (to_ns - from_ns);
            if slope > slope_before + rounding {
                return Err(format!("slope {slope} after {slope_before}"));
            }
            slope_before = slope;
        }
    }
    Ok(())
}

#[test]
fn corners_keep_to_the_rules() {
    let mut corner_count = 0;
    for machine in bundled_machines().filter(|machine| !machine.states.is_empty()) {
        let corners = machine.power_corners();
        let own: Vec<f64> = machine.powers().iter().map(|power| power.mw).collect();
        assert_eq!(
            (&corners[0].states_mw, corners[0].running_mw),
            (&own, machine.running_power().mw)
        );
        for corner in &corners[1..] {
            check(&machine, corner)
                .unwrap_or_else(|error| panic!("{}: {error}: {corner:?}", machine.id));
            corner_count += 1;
        }
    }
    assert!(corner_count > 1_000, "{corner_count}");
}

#[test]
fn no_drawn_curve_is_beyond_the_corners() {
    let mut random = Random(1);
    let mut nearest = f64::MAX;
    for machine in bundled_machines().filter(|machine| !machine.states.is_empty()) {
        if has_published(&machine) {
            continue;
        }
        let corners = machine.power_corners();
        for _ in 0..10 {
            // Any sum that is linear in the powers, and any ratio of two that are positive.
            let mut factors = |low: f64| -> Vec<f64> {
                (0..=machine.states.len()).map(|_| random.between(low, 1.0)).collect()
            };
            let (any, one, other) = (factors(-1.0), factors(0.0), factors(0.0));
            let sum = |factors: &[f64], curve: &PowerCurve| -> f64 {
                let powers = curve.states_mw.iter().chain([&curve.running_mw]);
                powers.zip(factors).map(|(mw, factor)| mw * factor).sum()
            };
            let figures: [&dyn Fn(&PowerCurve) -> f64; 2] =
                [&|curve| sum(&any, curve), &|curve| sum(&one, curve) / sum(&other, curve)];
            for figure in figures {
                let (low, high) = corners
                    .iter()
                    .map(figure)
                    .fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
                for _ in 0..20 {
                    let curve = drawn(&machine, &mut random);
                    check(&machine, &curve)
                        .unwrap_or_else(|error| panic!("{}: {error}: {curve:?}", machine.id));
                    let it = figure(&curve);
                    let rounding = (high - low).abs() * 1e-9 + it.abs() * 1e-12;
                    assert!(
                        it >= low - rounding && it <= high + rounding,
                        "{}: {it} {low} {high}",
                        machine.id
                    );
                    nearest = nearest.min((it - low).min(high - it) / (high - low));
                }
            }
        }
    }
    assert!(nearest < 0.01, "the drawn curves stay far from the corners: {nearest}");
}

#[test]
fn published_powers_stay() {
    // By hand: PG draws 50 mW. A running core draws 200 to 800, and WFI falls from there by the first
    // microsecond or by the two hundred until PG.
    let machine = bundled("calxeda-highbank").unwrap();
    let mut corners: Vec<[f64; 3]> = machine.power_corners()[1..]
        .iter()
        .map(|corner| [corner.running_mw, corner.states_mw[0], corner.states_mw[1]])
        .collect();
    corners.sort_by(|one, other| one[0].total_cmp(&other[0]).then(one[1].total_cmp(&other[1])));
    let expected = [
        [200.0, 50.0, 50.0],
        [200.0, 50.0 + 150.0 * 199.0 / 200.0, 50.0],
        [800.0, 50.0, 50.0],
        [800.0, 50.0 + 750.0 * 199.0 / 200.0, 50.0],
    ];
    assert_eq!(corners.len(), expected.len(), "{corners:?}");
    for (corner, expected) in corners.iter().zip(expected) {
        assert!(corner.iter().zip(expected).all(|(it, mw)| (it - mw).abs() < 1e-6), "{corners:?}");
    }
    // All are published.
    assert_eq!(bundled("skx").unwrap().power_corners().len(), 1);
}

fn toy(states: &[(u32, Option<u32>)]) -> Machine {
    let mut text =
        "id = \"toy\"\ntitle = \"Toy\"\narch = \"x86\"\nsource = \"invented\"\n".to_owned();
    for (index, (residency_us, power_mw)) in states.iter().enumerate() {
        text += &format!(
            "[[states]]\nname = \"s{index}\"\nexit_latency_us = 1\ntarget_residency_us = {residency_us}\n"
        );
        if let Some(mw) = power_mw {
            text += &format!("power_mw = {mw}\npower_kind = \"measured\"\n");
        }
    }
    Machine::from_toml(&text).unwrap()
}

/// The least and the largest power of the last state.
fn last_range_mw(machine: &Machine) -> [f64; 2] {
    let last = |corner: &PowerCurve| *corner.states_mw.last().unwrap();
    machine
        .power_corners()
        .iter()
        .map(last)
        .fold([f64::MAX, 0.0], |[low, high], mw| [low.min(mw), high.max(mw)])
}

#[test]
fn states_of_one_residency_are_at_one_place() {
    for corner in &toy(&[(2, None), (20, None), (20, None), (600, None)]).power_corners()[1..] {
        assert_eq!(corner.states_mw[1], corner.states_mw[2], "{corner:?}");
    }
    // Two published ones at one place say nothing of what is deeper.
    for other_mw in [204, 300] {
        let machine = toy(&[(28, Some(other_mw)), (28, Some(204)), (1_091, None)]);
        assert_eq!(last_range_mw(&machine), [0.0, 204.0], "{other_mw}");
    }
    // What pays at once may draw anything.
    assert_eq!(last_range_mw(&toy(&[(0, None)])), [0.0, 8_000.0]);
}

#[test]
fn published_powers_that_no_curve_has_leave_the_machines_own() {
    assert_eq!(toy(&[(10, Some(100)), (20, Some(300)), (600, None)]).power_corners().len(), 1);
}
