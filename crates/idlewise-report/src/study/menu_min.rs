//! `menu-min`: menu believes its short forecast though the tick is stopped.

use idlewise_sim::study::menu_min::{
    AFTER_NS, Findings, Interrupts, LEAST_EXIT_NS, MENU, MIN, NEWEST, SAFE_RANGE, run,
};
use idlewise_sim::workload::BurstThenIdle;

use super::Origin::{Assumed, Calibrated, Documented};
use super::Published::{Below, Exactly, Nothing};
use super::*;

pub(super) const STUDY: Study = Study {
    name: "menu-min",
    claim: "With the tick stopped, menu should take the shorter of forecast and next timer: qperf \
            tcp_lat on Sapphire Rapids falls from 151 us to about 30 us, package power changes by \
            less than 1 %.",
    source: "Ionut Nechita, cpuidle: menu: Use min() to prevent deep C-states when tick is stopped, \
             v2, 22 January 2026",
    page: |shelf| Ok(page(&run(shelf)?)),
};

const BEFORE_US: f64 = 151.0;
const AFTER_US: f64 = AFTER_NS / 1e3;
const IMPROVEMENT_RATIO: f64 = 5.0;
/// The power's change is below.
const POWER_PERCENT: f64 = 1.0;

fn page(found: &Findings) -> Page {
    use Interrupts::{OtherCpu, TaskCpu};
    let Findings { machine, gap_machine, hardware, tcp_lat, stuck_load, .. } = found;
    let at = |governor, interrupts| found.placement(governor, interrupts);
    let latency_us = |governor, interrupts| at(governor, interrupts).latency_ns / 1e3;
    let before_us = latency_us(MENU, OtherCpu);
    let before_same_us = latency_us(MENU, TaskCpu);
    let after_us = latency_us(MIN, OtherCpu);
    let min_same_us = latency_us(MIN, TaskCpu);
    let improvement = at(MENU, OtherCpu).latency_ns / at(MIN, OtherCpu).latency_ns;
    let tcp_power_ratio = at(MIN, OtherCpu).power_mw / at(MENU, OtherCpu).power_mw - 1.0;
    let gap_improvement = found.gap_menu_ns / found.gap_min_ns;
    let pc6 = state(machine, "PC6");
    let exit_us = us(pc6.exit_latency_ns);
    let least_exit_us = us(LEAST_EXIT_NS);
    let c2_us = us(state(gap_machine, "C2").target_residency_ns);
    let c3 = state(gap_machine, "C3");
    let (c3_us, c3_exit_us) = (us(c3.target_residency_ns), us(c3.exit_latency_ns));
    let other = format!("C2 at {c2_us} us, C3 at {c3_us}/{c3_exit_us} us");
    let timer = or_dash(hardware.housekeeping_ns, span);
    let two_ticks_ms = 2_000.0 / hardware.hz as f64;
    let BurstThenIdle { burst_count, burst_gap_ns, quiet_ns, .. } = stuck_load;
    let (burst_gap, quiet_s) = (span(*burst_gap_ns), *quiet_ns as f64 / 1e9);
    let powers_mw = found.stuck.iter().map(|row| row.found.power_mw);
    let best_stuck_mw = powers_mw.fold(f64::INFINITY, f64::min);
    Page {
        figures: figures! {
            "tcp_lat after (+min), interrupts on another CPU", "us", Exactly(AFTER_US), Calibrated, after_us;
            "tcp_lat before (menu), interrupts on another CPU", "us", Exactly(BEFORE_US), Predicted, before_us;
            "tcp_lat before (menu), interrupts on the task's CPU", "us", Exactly(BEFORE_US), Predicted, before_same_us;
            "the same, if only one end is such a machine", "us", Exactly(BEFORE_US), Predicted,
                (at(MENU, OtherCpu).latency_ns + AFTER_NS) / 2e3;
            "improvement, interrupts on another CPU", "times", Exactly(IMPROVEMENT_RATIO), Predicted, improvement;
            "improvement, interrupts on the task's CPU", "times", Exactly(IMPROVEMENT_RATIO), Predicted,
                at(MENU, TaskCpu).latency_ns / at(MIN, TaskCpu).latency_ns;
            "package power, mixed load, +min against menu", "%", Below(POWER_PERCENT), Simulated,
                found.mixed_power_ratio * 100.0;
            "package power, tcp_lat alone, +min against menu", "%", Nothing, Simulated, tcp_power_ratio * 100.0;
            format!("{other}: tcp_lat before"), "us", Nothing, Predicted, found.gap_menu_ns / 1e3;
            format!("{other}: improvement"), "times", Nothing, Predicted, gap_improvement;
        },
        inputs: inputs! {
            "time on the wire", format!("{} ns", tcp_lat.wire_ns), Calibrated(&["tcp_lat after (+min)"]),
                format!("so that +min gives {AFTER_US} us with interrupts on another CPU");
            "exit of package C6", span(pc6.exit_latency_ns), Calibrated(&[]), "the claim's \"150-190us\", upper end";
            "the kernel's own timer", format!("every {timer}"), Calibrated(&[]), "the claim's \"10ms timer\"";
            "C2 and C3 of the other platform", format!("{c2_us} and {c3_us}/{c3_exit_us} us"), Calibrated(&[]),
                "the claim";
            "target residency of package C6", span(pc6.target_residency_ns), Documented,
                "C6's in drivers/idle/intel_idle.c";
            "governors", "Linux 6.1.192, 6.12.117 and 7.2.13", Documented, "our ports, bit-exact";
            "HZ", hardware.hz, Assumed, "Debian's; decides only what two ticks are";
            "handler and softirq, send and receive calls",
                format!("{}, {}", span(tcp_lat.irq_work_ns), span(tcp_lat.send_work_ns)), Assumed,
                "their sum with the wire is calibrated; how it divides matters little";
            "powers", "default shape", Assumed, "machines/README.md";
        },
        grids: vec![
            table! {
                "tcp-lat by governor and by where the card's interrupts go (tick stopped: share of selects on the \
                 card's CPUs)";
                &found.placements, |row|
                "governor" => row.governor;
                "interrupts" => if row.interrupts == TaskCpu { "task's CPU" } else { "another CPU" };
                "latency us" => short(row.latency_ns / 1e3);
                "tick stopped" => share(row.stopped_ratio);
                "wakes from PC6" => share(row.deepest_ratio);
                "power mW" => short(row.power_mw);
            },
            matrix(
                format!(
                    "The rules by how far the next timer is (tcp-lat, us, interrupts on another CPU; 2 ticks are \
                 {two_ticks_ms} ms)"
                ),
                "timer every",
                &found.by_timer_ns,
                |timer_ns| format!("{} ms", *timer_ns as f64 / 1e6),
                |governor| governor.to_string(),
                |latency_ns| short(latency_ns / 1e3),
            ),
            table! {
                "Where min() loses: {burst_count} interrupts {burst_gap} apart without a task, then {quiet_s} s of nothing but a \
                 timer a second away";
                &found.stuck, |At { at, found }|
                "governor" => at;
                "time in PC6" => format!("{:.1} %", found.deepest_ratio * 100.0);
                "power mW" => short(found.power_mw);
                "of the best" => percent(found.power_mw / best_stuck_mw - 1.0);
                "irq delay us (mean)" => or_dash(found.delay_ns, |ns| short(ns / 1e3));
            },
            table! {
                "Sensitivity of menu's latency before, us: PC6's exit latency (claimed {least_exit_us} to {exit_us} \
                 us), how much of it is the package's, whether both ends are such machines, and the load";
                &found.by_exit_ns, |At { at, found }|
                "PC6 exit us" => us(*at);
                "as above" => short(found.menu_ns / 1e3);
                "half the package's" => short(found.half_package_ns / 1e3);
                "one end only" => short(found.one_end_ns / 1e3);
                "wire + 50 us" => short(found.longer_wire_ns / 1e3);
                "500 us between requests" => short(found.thinking_ns / 1e3);
            },
        ],
        judgement: sentences! {
            "With the card's interrupts on a CPU of their own the mechanism follows: the tick there is stopped at {} of \
             selects, menu then takes the timer {timer} away for its forecast and pays PC6's exit each way, and min() \
             undoes that. The size does not follow as well: {} us before, {} from the published {BEFORE_US} us. PC6 exits \
             of {least_exit_us} to {exit_us} us give {} to {} us, by whether one or both ends are such machines and \
             whether half of the exit is the package's; the published figure is {} that, and the claim says neither.",
                share(at(MENU, OtherCpu).stopped_ratio), short(before_us), percent(before_us / BEFORE_US - 1.0),
                short(found.before_ns.start() / 1e3), short(found.before_ns.end() / 1e3),
                if found.before_ns.contains(&(BEFORE_US * 1e3)) { "within" } else { "outside" };
            "On the platform with C2 at {c2_us} and C3 at {c3_us}/{c3_exit_us} us min() gains {} times ({} to {} us): {}.",
                short(gap_improvement), short(found.gap_menu_ns / 1e3), short(found.gap_min_ns / 1e3),
                if gap_improvement < 2.0 {
                    format!(
                        "\"similar improvements\" do not follow. C3's own delay makes the idles of this closed loop \
                         longer than C3's {c3_us} us, so that the short forecast is no longer short: the loop that once \
                         slept deeply holds itself there"
                    )
                } else {
                    "similar improvements, as claimed".to_owned()
                };
            "With interrupts on the task's own CPU min() changes {}: each wake-up runs the task, which restarts the tick, \
             and the changed line is never reached ({} us and {} us; tick stopped at {} of selects). The claim does not \
             say which it was; it can only hold for the former.",
                if (min_same_us / before_same_us - 1.0).abs() < 0.01 { "nothing" } else { "little" },
                short(before_same_us), short(min_same_us), share(at(MENU, TaskCpu).stopped_ratio);
            "It depends on the past and on a timer: the card's CPU must once have been idle for long, so that its tick \
             is stopped (here all idle for {} first), and its next timer must be far, but known.", span(tcp_lat.start_ns);
            "Mainline's first later rule, always to look at the timers when the tick is stopped, is in menu-6.12 \
             (6.12.117) above, and in 6.1's menu: by itself it does not help. Its second, to believe the timer only if \
             it is beyond two ticks (safe-range, in Linux 7.2), gives {} us with the timer every {timer} at {} Hz: as \
             good as min() whenever the timer is within {two_ticks_ms} ms, as bad as menu when it is beyond (table). \
             7.2's menu, which also looks for typical lengths in another way, gives {} us.",
                short(latency_us(SAFE_RANGE, OtherCpu)), hardware.hz, short(latency_us(NEWEST, OtherCpu));
            "Package power: {} in a mixed, nearly idle load of 32 cores (claimed: less than {POWER_PERCENT} %), {} for the \
             hosts of tcp-lat itself while they do {} times as many round trips; by assumed powers.",
                percent(found.mixed_power_ratio), percent(tcp_power_ratio), short(improvement);
            "Where the short forecast is wrong, min() is stuck shallow until the next timer: {} power against menu in \
             the case made for it. safe-range avoids that.", percent(found.stuck_power_ratio());
        },
        plot: Plot {
            title: "tcp-lat with interrupts on another CPU",
            x_label: "exit latency of the deepest state, us",
            y_label: "latency, us",
            lines: lines(found),
        },
    }
}

fn lines(found: &Findings) -> Vec<Line> {
    let governors = found.by_exit_ns.iter().take(1).flat_map(|row| &row.found.by_governor);
    let lines = governors.map(|of| {
        let points = found.by_exit_ns.iter().flat_map(|row| {
            let here = row.found.by_governor.iter().filter(|latency| latency.at == of.at);
            here.map(|latency| (us(row.at), latency.found / 1e3))
        });
        Line { name: of.at.to_owned(), points: points.collect() }
    });
    lines.collect()
}
