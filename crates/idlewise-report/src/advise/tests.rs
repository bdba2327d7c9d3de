use super::judgement::{merged, rounded_up};
use super::*;
use crate::statistics::Draw;

/// Ten slices with 100 events of each delay, and this much energy in each.
fn slices(delays_ns: &[u64], energy_uj: impl Fn(usize) -> f64) -> Slices {
    let mut slices = Slices::new(10);
    for at in 0..10 {
        slices.energy_uj[at] = energy_uj(at);
        delays_ns.iter().for_each(|ns| slices.delays[at].add(*ns, 100));
    }
    slices
}

fn candidate(setting: &str, step: Step, slices: Slices) -> Candidate {
    Candidate { setting: setting.to_owned(), step, slices }
}

fn advice(candidates: &[Candidate], wishes: Wishes) -> Advice {
    advice_beside(&slices(&[2_000, 290_000], |_| 1e6), candidates, wishes)
}

/// Of a recording of 10 s, in which this happened as things are.
fn advice_beside(before: &Slices, candidates: &[Candidate], wishes: Wishes) -> Advice {
    Advice::new(before, candidates, wishes, 10_000_000_000, JudgedBy::Replay, Notes::default())
}

fn priced(lambda_mw: f64) -> Wishes {
    Wishes { lambda_mw, ..Wishes::default() }
}

#[test]
fn recommends_the_least_drastic_of_those_that_gain_alike() {
    let better = || slices(&[2_000], |_| 9e5);
    let candidates = [
        candidate("C6=off", Step::StateOff, better()),
        candidate("latency=2us", Step::LatencyLimit, better()),
        candidate("governor=teo", Step::Governor, slices(&[2_000], |_| 9.8e5)),
    ];
    let advice = advice(&candidates, priced(0.0));
    assert_eq!(*advice.outcome(), Outcome::Change(1));
    let sentence = advice.sentence();
    let expected = "Recommended: latency=2us. Delay p99 290 µs → 2 µs, worst 290 µs → 2 µs, power −100 mW (−100 mW to \
                    −100 mW), \
                    cost −10.0 % (−10.0 % to −10.0 %).";
    assert_eq!(sentence, expected);
}

#[test]
fn a_gain_by_chance_is_left_alone() {
    // Less in one slice of ten, more in most others: the mean gains 4 %, the interval does not.
    let lucky = slices(&[2_000, 290_000], |at| if at == 0 { 5.1e5 } else { 1.01e6 });
    let advice = advice(&[candidate("governor=teo", Step::Governor, lucky)], priced(0.0));
    assert_eq!(*advice.outcome(), Outcome::LeaveAlone);
    assert!(advice.sentence().starts_with("Leave it alone: nothing"), "{}", advice.sentence());
}

/// Each event waits 144 us less on average; 20 % more energy.
#[test]
fn only_a_limit_of_delay_lets_delay_be_traded_for_power() {
    let fast = || candidate("latency=2us", Step::LatencyLimit, slices(&[2_000; 2], |_| 1.2e6));
    for lambda_mw in [0.0, 100_000.0] {
        let priced = advice(&[fast()], priced(lambda_mw));
        assert_eq!(*priced.outcome(), Outcome::LeaveAlone, "{lambda_mw}");
        assert_eq!(priced.choices(), [0]);
    }
    let slo = Slo { ratio: 0.99, limit_ns: 50_000 };
    let limited = |power_max_mw| Wishes { slos: vec![slo], power_max_mw, lambda_mw: 0.0 };
    let within = advice(&[fast()], limited(Some(300.0)));
    assert_eq!((within.outcome(), within.choices().len()), (&Outcome::Change(0), 0));
    // 0.2 J more a second are 200 mW.
    let advice = advice(&[fast()], limited(Some(100.0)));
    assert_eq!(*advice.outcome(), Outcome::Infeasible(Some(0)));
    assert!(advice.sentence().contains("latency=2us comes nearest."), "{}", advice.sentence());
}

/// A recording of an audit: 30 % less power, and a 99th percentile of 290 instead of 1 us.
#[test]
fn a_trade_is_shown_with_both_prices_and_not_recommended() {
    let before = slices(&[1_000], |_| 1e6);
    let deep = slices(&[1_000, 290_000], |_| 7e5);
    let candidates = [candidate("governor=teo", Step::Governor, deep)];
    let advice = advice_beside(&before, &candidates, priced(0.0));
    assert_eq!(*advice.outcome(), Outcome::LeaveAlone);
    let text = advice.to_text(&TextStyle::default());
    assert!(text.starts_with("Leave it alone"), "the answer comes first: {text}");
    assert!(!text.contains("Recommended") && !text.contains("Refuted"), "{text}");
    let line = "- governor=teo: power −300 mW (−300 mW to −300 mW), but delay p99 1 µs → 290 µs, \
                worst 1 µs → 290 µs";
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(line), "{text}");
    assert!(joined.contains("What would change this verdict: - a limit on delay"), "{text}");
    let json = advice.to_json();
    assert_eq!((&json["choices"][0], &json["setting"]), (&"governor=teo".into(), &json!(null)));
    assert_eq!(advice.rows[1].verdict, "trade");
}

/// A longest delay that got twenty times longer was listed among the gains, because the 99th percentile fell.
#[test]
fn what_gets_worse_is_on_the_side_of_the_price() {
    let rare = |often_ns: u64, rare_ns: u64| {
        let mut slices = slices(&[often_ns], |_| 1e6);
        slices.delays.iter_mut().for_each(|delays| {
            delays.add(often_ns, 100);
            delays.add(rare_ns, 1);
        });
        slices
    };
    let candidates = [candidate("latency=2us", Step::LatencyLimit, rare(158_000, 329_000_000))];
    let advice = advice_beside(&rare(235_000, 16_000_000), &candidates, priced(0.0));
    let text = advice.to_text(&TextStyle::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, choice) = text.split_once("- latency=2us: ").expect(&text);
    let (gain, price) = choice.split_once(", but").expect(&text);
    assert!(gain.contains("p99 235 µs → 158 µs") && !gain.contains("worst"), "{text}");
    assert!(price.starts_with(" delay worst 16.0 ms → 329.0 ms"), "{text}");
}

/// A lower cost at the price asked for is no gain where nobody may pay more for it; the row says so.
#[test]
fn a_row_that_costs_power_says_so() {
    let before = slices(&[1_000, 290_000, 290_000], |_| 1e6);
    let faster = slices(&[1_000, 1_000, 290_000], |_| 1.05e6);
    let candidates = [candidate("governor=teo", Step::Governor, faster)];
    let advice = advice_beside(&before, &candidates, priced(100_000.0));
    assert_eq!(*advice.outcome(), Outcome::LeaveAlone);
    assert!(advice.rows[1].cost_change.unwrap().high().unwrap() < 0.0);
    assert_eq!(advice.rows[1].verdict, "costs power");
}

#[test]
fn the_same_tail_for_less_power_is_no_trade() {
    let less = candidate("C6=off", Step::StateOff, slices(&[2_000, 290_000], |_| 9e5));
    let advice = advice(&[less], priced(0.0));
    assert_eq!((advice.outcome(), advice.choices().len()), (&Outcome::Change(0), 0));
}

/// The 99th percentile stays, and one event in a thousand waits for the deepest state.
#[test]
fn a_longer_delay_beyond_the_99th_percentile_is_a_price() {
    let before = slices(&[2_000], |_| 1e6);
    let mut after = slices(&[2_000], |_| 9e5);
    after.delays[4].add(290_000, 1);
    let candidates = [candidate("governor=teo", Step::Governor, after)];
    let advice = advice_beside(&before, &candidates, priced(0.0));
    assert_eq!((advice.outcome(), advice.choices().len()), (&Outcome::LeaveAlone, 1));
    let text = advice.rows[1].choice();
    assert!(text.ends_with("but delay worst 2 µs → 290 µs"), "{text}");
}

#[test]
fn few_events_have_no_tail_to_judge() {
    let few = |delay_ns: u64, energy_uj: f64| {
        let mut slices = Slices::new(10);
        slices.energy_uj.fill(energy_uj);
        slices.delays.iter_mut().for_each(|delays| delays.add(delay_ns, 40));
        slices
    };
    let candidates = [candidate("C6=off", Step::StateOff, few(2_000, 9e5))];
    let judged = |wishes| {
        let before = few(2_000, 1e6);
        Advice::new(&before, &candidates, wishes, 1_000_000, JudgedBy::Replay, Notes::default())
    };
    let advice = judged(priced(0.0));
    assert_eq!(*advice.outcome(), Outcome::LeaveAlone);
    let sentence = "with 400 wake events, the recording is too short to judge the longest 1 % of the delays \
                    (500 are needed)";
    assert!(advice.sentence().contains(sentence), "{}", advice.sentence());
    // A limit is what the user can judge, so only a doubt remains.
    let slos = vec![Slo { ratio: 0.99, limit_ns: 50_000 }];
    let advice = judged(Wishes { slos, ..Wishes::default() });
    assert_eq!(*advice.outcome(), Outcome::Change(0));
    let doubts: Vec<&str> = advice.notes.doubts().map(|(doubt, _)| doubt).collect();
    assert!(
        doubts[0].starts_with("with 400 wake events, fewer than 5 are expected beyond p99"),
        "{doubts:?}"
    );
}

/// A limit of the median says nothing of the tail, so a tail that gets longer is named first.
#[test]
fn a_tail_beyond_the_limits_is_named() {
    let [before, after] = [(2_000, 1e6), (290_000, 5e5)].map(|(tail_ns, energy_uj)| {
        let mut slices = Slices::new(10);
        slices.energy_uj.fill(energy_uj);
        for delays in &mut slices.delays {
            delays.add(1_000, 900);
            delays.add(tail_ns, 100);
        }
        slices
    });
    let candidates = [candidate("governor=teo", Step::Governor, after)];
    let said = |ratio| {
        let slos = vec![Slo { ratio, limit_ns: 500_000 }];
        let wishes = Wishes { slos, ..Wishes::default() };
        let advice = advice_beside(&before, &candidates, wishes);
        assert_eq!(*advice.outcome(), Outcome::Change(0));
        advice.doubters().join(" ")
    };
    assert!(said(0.5).contains("which gets longer: --slo p99=50us"), "{}", said(0.5));
    assert!(!said(WORST).contains("which gets longer"), "{}", said(WORST));
}

/// Whatever the candidates do: nothing that is recommended without a limit has a longer tail or more power.
#[test]
fn nothing_is_traded_without_a_limit() {
    let [mut draw, _] = Draw::pair();
    let mut weights = vec![0; 10];
    let mut count = [0; 2];
    for _ in 0..150 {
        let mut any = || {
            let mut slices = Slices::new(10);
            for at in 0..10 {
                draw.weights(&mut weights);
                slices.energy_uj[at] = 1e6 + 5e4 * weights[0] as f64 - 5e4 * weights[1] as f64;
                slices.delays[at].add(2_000, 490);
                slices.delays[at].add(100_000, weights[2]);
                slices.delays[at].add(290_000, weights[3] / 2);
            }
            slices
        };
        let before = any();
        let candidates: Vec<Candidate> =
            (0..4).map(|nth| candidate(&format!("{nth}"), Step::StateOff, any())).collect();
        let advice = advice_beside(&before, &candidates, priced(0.0));
        count[1] += advice.choices().len();
        let Outcome::Change(index) = *advice.outcome() else { continue };
        count[0] += 1;
        let [old, new] = [&before, &candidates[index].slices];
        let energy = |slices: &Slices| slices.energy_uj.iter().sum::<f64>();
        assert!(energy(new) <= energy(old));
        for ratio in [P99, WORST] {
            let [old, new] = [old, new].map(|slices| merged(slices).quantile_ns(ratio));
            assert!(new <= old, "{ratio}: {old:?} {new:?}");
        }
    }
    assert!(count[0] > 5 && count[1] > 5, "{count:?}");
}

#[test]
fn with_few_slices_nothing_is_certain() {
    let mut before = slices(&[2_000, 290_000], |_| 1e6);
    let mut after = slices(&[2_000], |_| 5e5);
    for slices in [&mut before, &mut after] {
        slices.energy_uj.truncate(3);
        slices.delays.truncate(3);
    }
    let candidates = [candidate("latency=2us", Step::LatencyLimit, after)];
    let advice = Advice::new(
        &before,
        &candidates,
        priced(0.0),
        1_000_000_000,
        JudgedBy::Replay,
        Notes::default(),
    );
    assert_eq!(*advice.outcome(), Outcome::LeaveAlone);
    assert!(advice.sentence().contains("too short"), "{}", advice.sentence());
}

/// The table said that a row keeps the limits, and the sentence that nothing surely does.
#[test]
fn with_few_slices_no_limit_is_kept_for_sure() {
    let short = |delays_ns: &[u64], energy_uj: f64| {
        let mut slices = slices(delays_ns, |_| energy_uj);
        slices.energy_uj.truncate(3);
        slices.delays.truncate(3);
        slices
    };
    let candidates = [
        candidate("latency=1us", Step::LatencyLimit, short(&[1_000], 2e6)),
        candidate("latency=2us", Step::LatencyLimit, short(&[2_000], 1e6)),
    ];
    let slos = vec![Slo { ratio: 0.99, limit_ns: 50_000 }];
    let wishes = Wishes { slos, ..Wishes::default() };
    let advice = advice_beside(&short(&[2_000, 290_000], 1e6), &candidates, wishes);
    // Both keep it in the estimate; the second costs less.
    assert_eq!(*advice.outcome(), Outcome::Infeasible(Some(1)));
    assert_eq!(advice.rows[1].verdict, "perhaps keeps limits");
    let said = advice.sentence();
    assert!(
        said.contains(
            "because the recording is too short (3 slices of time, 7 are needed). latency=2us comes"
        ),
        "{said}"
    );
}

/// The sentence named p99 and the longest delay only, whatever the limit was of.
#[test]
fn a_limit_that_is_no_tail_has_its_figures_in_the_sentence() {
    let candidates = [candidate("latency=2us", Step::LatencyLimit, slices(&[2_000], |_| 9e5))];
    let slos = vec![Slo { ratio: 0.5, limit_ns: 50_000 }];
    let advice = advice(&candidates, Wishes { slos, ..Wishes::default() });
    let expected = "Recommended: latency=2us. Delay p50 2 µs → 2 µs, p99 290 µs → 2 µs, worst";
    assert!(advice.sentence().starts_with(expected), "{}", advice.sentence());
}

/// A longer recording of the same load had a longer delay than the limit, and this said nothing of it.
#[test]
fn a_limit_that_few_events_are_beyond_is_not_certain() {
    let fast = candidate("latency=2us", Step::LatencyLimit, slices(&[2_000; 2], |_| 9e5));
    let said = |ratio| {
        let slos = vec![Slo { ratio, limit_ns: 50_000 }];
        let advice = advice(std::slice::from_ref(&fast), Wishes { slos, ..Wishes::default() });
        assert_eq!(*advice.outcome(), Outcome::Change(0));
        advice.sentence()
    };
    let few =
        "But with 2000 wake events, fewer than 5 are expected beyond p100, so a longer recording";
    assert!(said(WORST).contains(few), "{}", said(WORST));
    assert!(!said(P99).contains("But"), "{}", said(P99));
}

#[test]
fn of_those_that_exceed_a_limit_alike_the_cheapest_is_nearest() {
    let candidates = [1.2e6, 9e5, 1.1e6]
        .map(|energy_uj| candidate("C1=off", Step::StateOff, slices(&[290_000], |_| energy_uj)));
    let slos = vec![Slo { ratio: 0.99, limit_ns: 50_000 }];
    let advice = advice(&candidates, Wishes { slos, ..Wishes::default() });
    assert_eq!(*advice.outcome(), Outcome::Infeasible(Some(1)));
}

/// The setting with the highest p99 of all was the nearest, because its interval ended lowest.
#[test]
fn the_nearest_is_nearest_in_what_the_table_shows() {
    let mut uncertain = slices(&[60_000], |_| 1e6);
    uncertain.delays[0].add(1_000_000, 5);
    let candidates = [
        candidate("C1=off", Step::StateOff, slices(&[100_000], |_| 1e6)),
        candidate("C1E=off", Step::StateOff, uncertain),
    ];
    let slos = vec![Slo { ratio: 0.99, limit_ns: 50_000 }];
    let advice = advice(&candidates, Wishes { slos, ..Wishes::default() });
    assert!(
        advice.rows[2].slo_delays[0].high() > Some(900_000.0),
        "{:?}",
        advice.rows[2].slo_delays
    );
    assert_eq!(*advice.outcome(), Outcome::Infeasible(Some(1)));
}

/// Taking on power brings nothing nearer while the delay stays too long.
#[test]
fn what_exceeds_one_limit_more_is_not_nearest_for_a_hair_of_the_other() {
    let candidates = [candidate("C1E=off", Step::StateOff, slices(&[2_000, 289_999], |_| 1.2e6))];
    let slos = vec![Slo { ratio: 0.99, limit_ns: 200_000 }];
    let wishes = Wishes { slos, power_max_mw: Some(0.0), ..Wishes::default() };
    let advice = advice(&candidates, wishes);
    assert!(advice.rows[1].slo_delays[0].value < advice.rows[0].slo_delays[0].value);
    assert_eq!(*advice.outcome(), Outcome::Infeasible(None));
}

/// The CPUs of a large machine that matter may be scattered. The output took 255 columns, and dropped most figures.
#[test]
fn many_scattered_cpus_fit_the_width() {
    let cpus: Vec<String> = (0..64).map(|cpu| (3 * cpu).to_string()).collect();
    let setting = |latency| format!("latency={latency}us@{}", cpus.join(","));
    let fast = |latency, energy_uj| {
        candidate(&setting(latency), Step::LatencyLimit, slices(&[2_000], move |_| energy_uj))
    };
    let advice = advice(&[fast(1, 1.2e6), fast(2, 9e5)], priced(0.0));
    let text = advice.to_text(&TextStyle::default());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.starts_with("Recommended: latency=2us@0,3,6,") && text.contains("cost"), "{text}");
    assert_eq!(advice.to_json()["setting"], setting(2));
}

#[test]
fn rounding_never_meets_a_limit() {
    for ns in [0, 1, 1_023, 1_024, 1_025, 290_000, u64::from(u32::MAX)] {
        assert!(rounded_up(ns) >= ns && rounded_up(ns) as f64 <= ns as f64 * 1.002, "{ns}");
    }
}

#[test]
fn a_saving_that_rests_on_assumed_powers_says_so() {
    let with =
        |corner_uj: [f64; 2], slices: Slices| Slices { corner_uj: corner_uj.to_vec(), ..slices };
    let before = with([1e7, 2e7], slices(&[2_000, 290_000], |_| 1e6));
    let said = |corner_uj: [f64; 2]| {
        let after = with(corner_uj, slices(&[2_000], |_| 9e5));
        let candidates = [candidate("latency=2us", Step::LatencyLimit, after)];
        let advice = advice_beside(&before, &candidates, priced(0.0));
        let csv = Table::new("", &columns(), advice.rows.iter()).to_csv();
        let row = csv.lines().nth(2).unwrap_or_default().to_owned();
        (advice.sentence(), row)
    };
    // By hand: the own powers save 10 %, the others 1 and 50, or cost 20.
    let (sentence, row) = said([9.9e6, 1e7]);
    let all = "It saves power under all plausible powers of the states (−50.0 % to −1.0 %).";
    assert!(sentence.contains(all), "{sentence}");
    assert!(row.contains("-0.5") && row.contains("-0.01"), "{row}");
    // What may be equal saves nothing for sure.
    let (sentence, _) = said([1e7, 2e7]);
    let all = "It takes no more power under all plausible powers of the states (\u{2212}10.0 % to +0.0 %).";
    assert!(sentence.contains(all), "{sentence}");
    let (sentence, _) = said([1.2e7, 2e7]);
    let depends =
        "depends on the states' powers, which are assumed: −10.0 % to +20.0 % is plausible";
    assert!(sentence.contains(depends), "{sentence}");
    let known = advice_beside(
        &slices(&[2_000, 290_000], |_| 1e6),
        &[candidate("latency=2us", Step::LatencyLimit, slices(&[2_000], |_| 9e5))],
        priced(0.0),
    );
    assert!(!known.sentence().contains("plausible"), "{}", known.sentence());
}
