//! A machine made of files, on which a model plays the CPUs: it enters the state that the files allow, and
//! takes a time that the measurement does not know.

use std::cell::Cell;
use std::fs;

use super::plan::GAP_MIN_NS;
use super::stays::Seen;
use super::wakes::{LATE_NS, ROUND_COUNT, sent_wakes};
use super::*;
use crate::Root;
use crate::cpuidle::state_folder;
use crate::ipi::forced::disable_file;
use crate::ipi::{StateSample, StateSamples, StateWish, Watch};
use crate::root::tests::machine;
use crate::settings::Owner;

const PATH_NS: u64 = 9_000;
/// What leaving the states really takes.
const EXITS_NS: [u64; 3] = [0, 37_000, 211_000];

/// CPUs 0 to 3; 0 and 2 share a core, as do 1 and 3. POLL, C1, C6.
fn tree() -> (tempfile::TempDir, Root) {
    let (folder, root) = machine(&[
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
        ("proc/cpuinfo", "vendor_id\t: AuthenticAMD\nflags\t: fpu\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-3\n"),
    ]);
    let write = |name: String, text: &str| {
        let path = root.path(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for cpu in 0..4 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        let siblings = if cpu % 2 == 0 { "0,2" } else { "1,3" };
        write(format!("{folder}/thread_siblings_list"), siblings);
        write(format!("{folder}/core_siblings_list"), "0-3");
        for (index, (name, latency, residency)) in
            [("POLL", 0, 0), ("C1", 2, 2), ("C6", 290, 800)].into_iter().enumerate()
        {
            let folder = state_folder(cpu, index);
            write(format!("{folder}/name"), name);
            write(format!("{folder}/latency"), &latency.to_string());
            write(format!("{folder}/residency"), &residency.to_string());
            for file in ["disable", "usage", "time"] {
                write(format!("{folder}/{file}"), "0");
            }
        }
    }
    (folder, root)
}

fn wishes(wake_count: u64) -> StatesWishes {
    StatesWishes { source: None, targets: Vec::new(), states: StateWish::All, wake_count, by: None }
}

fn owner() -> Owner {
    Owner::running("idlewise measure states")
}

struct Silent;

impl Watch for Silent {
    fn wakes(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        false
    }

    fn warn(&self, message: &str) {
        panic!("{message}");
    }
}

/// The model of the CPUs.
struct Model<'a> {
    root: &'a Root,
    /// What goes wrong at each wake, by its number.
    fault: fn(u64) -> Fault,
    nth: u64,
    stirred: Vec<u16>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    OtherState,
    Awake,
    Late,
    Interrupted,
}

impl<'a> Model<'a> {
    fn new(root: &'a Root, fault: fn(u64) -> Fault) -> Self {
        Model { root, fault, nth: 0, stirred: Vec::new() }
    }

    fn number(&self, cpu: u16, index: usize, name: &str) -> u64 {
        self.root.number(&format!("{}/{name}", state_folder(cpu, index))).unwrap()
    }

    /// The deepest state that is enabled.
    fn state(&self, cpu: u16) -> usize {
        (0..3).rev().find(|&index| self.number(cpu, index, "disable") == 0).unwrap()
    }

    fn enter(&self, cpu: u16, index: usize) {
        let usage = self.number(cpu, index, "usage") + 1;
        self.root
            .write_beneath(&format!("{}/usage", state_folder(cpu, index)), &usage.to_string())
            .unwrap();
    }
}

impl Launcher for Model<'_> {
    fn launch(
        &mut self,
        request: &LaunchRequest,
        each: &mut (dyn FnMut(Option<LaunchedWake>) + Send),
    ) {
        assert_eq!((request.source, request.runs), (0, false));
        let state = self.state(request.target);
        if request.gaps_ns.is_empty() {
            self.stirred.push(request.target);
        } else {
            assert_eq!(self.state(3), self.state(1), "the sibling is held in the same state");
        }
        each(None);
        for gap_ns in &request.gaps_ns {
            assert!(*gap_ns >= GAP_MIN_NS);
            self.nth += 1;
            let fault = (self.fault)(self.nth);
            match fault {
                Fault::OtherState => self.enter(request.target, (state + 1) % 3),
                Fault::Awake => {}
                _ => self.enter(request.target, state),
            }
            let late_ns = if fault == Fault::Late { LATE_NS + 1 } else { 100 };
            let send_ns = if fault == Fault::Interrupted { 500_000 } else { 1_000 + self.nth % 7 };
            // A wake that something was wrong with would show.
            let wrong_ns = if fault == Fault::None { 0 } else { 1_000_000 };
            each(Some(LaunchedWake {
                latency_ns: PATH_NS + EXITS_NS[state] + self.nth % 100 + wrong_ns,
                send_ns,
                late_ns,
                is_woken: fault != Fault::Awake,
            }));
        }
    }

    fn timers(&mut self, cpu: u16, count: u64, _: u64) -> Vec<u64> {
        vec![EXITS_NS[self.state(cpu)]; count as usize]
    }
}

#[test]
fn a_cpu_of_another_core_is_held_with_its_sibling() {
    let (_folder, root) = tree();
    let plan = StatesPlan::new(&root, &wishes(100)).unwrap();
    let [target] = &plan.targets[..] else { panic!("one kind") };
    assert_eq!((plan.source, target.cpu, &target.siblings[..]), (0, 1, &[3][..]));
    assert_eq!((target.alike.len(), target.baseline), (4, Baseline::Polls(0)));
    let gaps: Vec<[u64; 2]> = target.cases.iter().map(|case| case.gap_ns).collect();
    assert_eq!(gaps, [[100_000, 700_000], [800_000, 2_100_000]]);
    assert_eq!(plan.files().len(), 6);
}

#[test]
fn measures_what_the_model_takes_and_restores_what_was() {
    let (_folder, root) = tree();
    root.write_beneath(&disable_file(1, 1), "1").unwrap();
    let named =
        StatesWishes { states: StateWish::Named(vec!["C1".into(), "C6".into()]), ..wishes(100) };
    let plan = StatesPlan::new(&root, &named).unwrap();
    let mut model = Model::new(&root, |_| Fault::None);
    let measured = measure_states(&root, &plan, &owner(), &mut model, &Silent).unwrap();
    let stirred = model.stirred.len();
    for (index, wakes) in &measured[0].states {
        assert_eq!((wakes.latencies_ns.len(), wakes.drops), (100, Drops::default()));
        let least = wakes.latencies_ns.iter().min().unwrap();
        assert_eq!(least - PATH_NS - least % 100, EXITS_NS[*index]);
        assert_eq!(wakes.timers_ns[0], EXITS_NS[*index]);
    }
    assert_eq!(measured[0].baseline.latencies_ns.len(), 100);
    assert_eq!(stirred, 3 * ROUND_COUNT as usize, "the sibling is woken after each change");
    let disabled: Vec<u64> = (0..3).map(|i| root.number(&disable_file(1, i)).unwrap()).collect();
    assert_eq!(disabled, [0, 1, 0]);
}

#[test]
fn wakes_that_something_was_wrong_with_do_not_count() {
    let (_folder, root) = tree();
    let plan = StatesPlan::new(&root, &wishes(200)).unwrap();
    let fault = |nth: u64| match nth % 10 {
        1 => Fault::OtherState,
        3 => Fault::Awake,
        5 => Fault::Late,
        7 => Fault::Interrupted,
        _ => Fault::None,
    };
    let measured =
        measure_states(&root, &plan, &owner(), &mut Model::new(&root, fault), &Silent).unwrap();
    for wakes in measured[0].states.values() {
        assert_eq!(wakes.latencies_ns.len(), 200);
        assert!(wakes.latencies_ns.iter().all(|&ns| ns < 1_000_000), "none of them is in it");
        let Drops { not_idle_count, other_state_count, outside_count, .. } = wakes.drops;
        assert!(not_idle_count > 0 && other_state_count > 0 && outside_count > not_idle_count);
    }
}

#[test]
fn a_state_that_is_not_entered_is_given_up_and_others_are_measured() {
    let (_folder, root) = tree();
    struct Shallow<'a>(Model<'a>);
    impl Launcher for Shallow<'_> {
        fn launch(
            &mut self,
            request: &LaunchRequest,
            each: &mut (dyn FnMut(Option<LaunchedWake>) + Send),
        ) {
            let is_c6 = self.0.state(request.target) == 2;
            self.0.fault = if is_c6 { |_| Fault::OtherState } else { |_| Fault::None };
            self.0.launch(request, each);
        }

        fn timers(&mut self, cpu: u16, count: u64, gap_ns: u64) -> Vec<u64> {
            self.0.timers(cpu, count, gap_ns)
        }
    }
    let plan = StatesPlan::new(&root, &wishes(400)).unwrap();
    let mut launcher = Shallow(Model::new(&root, |_| Fault::None));
    let measured = measure_states(&root, &plan, &owner(), &mut launcher, &Silent).unwrap();
    assert!(measured[0].states[&2].is_given_up && measured[0].states[&2].latencies_ns.is_empty());
    assert_eq!(measured[0].states[&1].latencies_ns.len(), 400);
}

#[test]
fn a_signal_and_a_cpu_that_goes_offline_restore_what_was() {
    struct Stops(Cell<u32>);
    impl Watch for Stops {
        fn wakes(&self, _: u64) {
            self.0.set(self.0.get() + 1);
        }

        fn is_stopped(&self) -> bool {
            self.0.get() > 4
        }

        fn warn(&self, _: &str) {}
    }
    let (_folder, root) = tree();
    let plan = StatesPlan::new(&root, &wishes(100)).unwrap();
    let mut model = Model::new(&root, |_| Fault::None);
    let error =
        measure_states(&root, &plan, &owner(), &mut model, &Stops(Cell::new(0))).unwrap_err();
    assert!(error.to_string().starts_with("stopped before the end"), "{error}");
    let all = |root: &Root| {
        let files = plan.files();
        files.iter().all(|file| root.text(file).as_deref() == Some("0"))
    };
    assert!(all(&root));
    // The files of an offline CPU may stay, with counts that stand still.
    struct Unplugged<'a>(Model<'a>);
    impl Launcher for Unplugged<'_> {
        fn launch(
            &mut self,
            request: &LaunchRequest,
            each: &mut (dyn FnMut(Option<LaunchedWake>) + Send),
        ) {
            self.0.launch(request, each);
            if self.0.nth > 50 {
                self.0.root.write_beneath("sys/devices/system/cpu/online", "0,2-3").unwrap();
            }
        }

        fn timers(&mut self, cpu: u16, count: u64, gap_ns: u64) -> Vec<u64> {
            self.0.timers(cpu, count, gap_ns)
        }
    }
    let mut unplugged = Unplugged(Model::new(&root, |_| Fault::None));
    let error =
        measure_states(&root, &plan, &owner(), &mut unplugged, &Silent).unwrap_err().to_string();
    assert!(error.starts_with("CPU 1 is not online (0,2-3 are)"), "{error}");
    assert!(all(&root));
    root.write_beneath("sys/devices/system/cpu/online", "0-3").unwrap();
    // Or they are gone.
    fs::remove_file(root.path(&format!("{}/time", state_folder(1, 2)))).unwrap();
    let error =
        measure_states(&root, &plan, &owner(), &mut model, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("cpu1/cpuidle/state2/time") && error.ends_with("run it again"),
        "{error}"
    );
    assert!(all(&root));
}

#[test]
fn what_cannot_be_written_is_found_before_anything_is_changed() {
    let (_folder, root) = tree();
    let plan = StatesPlan::new(&root, &wishes(100)).unwrap();
    fs::remove_file(root.path(&disable_file(3, 2))).unwrap();
    let mut model = Model::new(&root, |_| Fault::None);
    let error =
        measure_states(&root, &plan, &owner(), &mut model, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("cpu3/cpuidle/state2/disable")
            && error.contains("; nothing was changed: run it"),
        "{error}"
    );
    assert_eq!(model.nth, 0);
}

/// A batch of IPIs: the module says that six wakes were out of state 1 and one out of state 2.
#[test]
fn a_batch_of_ipis_counts_if_the_kernels_counts_bear_it_out() {
    let sample = |state: u32| StateSample { wake_cycles: 40_000, send_cycles: 2_000, state };
    let samples: Vec<StateSample> = [1, 1, 2, 1, 1, 1, 1].map(sample).to_vec();
    let samples = StateSamples { tsc_khz: 2_000_000, given_up_count: 3, samples };
    let seen = |entries: [u64; 3], smi_count| Seen {
        entries: entries.to_vec(),
        times_us: vec![0; 3],
        smi_count,
    };
    for (seen, expected) in [
        // The target was also woken by others, and went elsewhere for these.
        (seen([0, 6, 9], 0), (6, [3, 1, 0])),
        // The driver entered another state than the governor had selected.
        (seen([4, 5, 0], 0), (0, [3, 7, 0])),
        (seen([0, 9, 1], 1), (0, [3, 1, 6])),
    ] {
        let mut drops = Drops::default();
        let wakes = sent_wakes(&samples, &seen, 1, &mut drops);
        assert!(wakes.iter().all(|wake| (wake.latency_ns, wake.send_ns) == (20_000, 1_000)));
        let Drops { not_idle_count, other_state_count, smi_count, .. } = drops;
        assert_eq!((wakes.len(), [not_idle_count, other_state_count, smi_count]), expected);
    }
}

#[test]
fn a_state_that_a_limit_forbids_is_left_out() {
    let (_folder, root) = tree();
    let limit = root.path("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us");
    fs::create_dir_all(limit.parent().unwrap()).unwrap();
    fs::write(limit, "20\n").unwrap();
    let plan = StatesPlan::new(&root, &wishes(100)).unwrap();
    let cases = &plan.targets[0].cases;
    assert!(cases[0].refusal.is_none() && cases[1].refusal.as_deref().unwrap().contains("20 us"));
    assert_eq!(plan.targets[0].measured().count(), 1);
}

#[test]
fn distances_follow_no_period_and_stay_in_their_range() {
    let mut random = Random(SEED);
    let gaps: Vec<u64> = (0..1_000).map(|_| random.between([100, 300])).collect();
    assert!(gaps.iter().all(|gap| (100..=300).contains(gap)));
    assert!(gaps.contains(&100) && gaps.contains(&300));
}

/// Hidden powers and costs of the model's states, for each CPU: the package draws 5 W more.
const POWER_MW: [f64; 3] = [4_000.0, 1_200.0, 80.0];
const WAKE_UJ: [f64; 3] = [6.0, 9.0, 330.0];
const RANGE_UJ: u64 = 30_000_000;

/// Plays CPUs that are all woken at intervals, and the package's counter, in its own time. The counter has
/// a small range and wraps many times.
struct Package<'a> {
    model: Model<'a>,
    energy_uj: f64,
}

impl Workers for Package<'_> {
    fn work(&mut self, cpus: &[u16], interval_ns: Option<u64>, slice_ns: u64) -> Worked {
        let state = self.model.state(cpus[0]);
        assert!(cpus.iter().all(|&cpu| self.model.state(cpu) == state), "all are in one state");
        let wake_count = interval_ns.map_or(1, |interval_ns| slice_ns / interval_ns);
        let stay_ns = slice_ns / wake_count;
        for &cpu in cpus {
            for (name, more) in [("usage", wake_count), ("time", wake_count * stay_ns / 1_000)] {
                let now = self.model.number(cpu, state, name) + more;
                let file = format!("{}/{name}", state_folder(cpu, state));
                self.model.root.write_beneath(&file, &now.to_string()).unwrap();
            }
        }
        let per_cpu = POWER_MW[state] * 1e-6 * slice_ns as f64 + WAKE_UJ[state] * wake_count as f64;
        // A little noise, the same in each run.
        let noise = 1.0 + ((self.model.nth * 37) % 21) as f64 * 2e-4 - 2e-3;
        self.model.nth += 1;
        self.energy_uj += (per_cpu * cpus.len() as f64) * noise + 5_000.0 * 1e-6 * slice_ns as f64;
        let counter = self.energy_uj as u64 % (RANGE_UJ + 1);
        let file = "sys/class/powercap/intel-rapl:0/energy_uj";
        self.model.root.write_beneath(file, &counter.to_string()).unwrap();
        Worked { elapsed_ns: slice_ns, wake_count: wake_count * cpus.len() as u64 }
    }
}

pub(crate) fn rapl(root: &Root) {
    for (name, text) in
        [("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", "30000000")]
    {
        let path = root.path(&format!("sys/class/powercap/intel-rapl:0/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
}

fn energy_wishes(intervals_ns: &[Option<u64>]) -> EnergyWishes {
    EnergyWishes {
        states: StateWish::All,
        intervals_ns: intervals_ns.to_vec(),
        slice_ns: 500_000_000,
        round_count: 8,
    }
}

/// The hidden model's break-even is found again from the files that it writes: counters that wrap, states
/// that are forced, all in the order and number in which they come.
#[test]
fn energy_is_that_of_the_held_state_through_all_wraps() {
    let (_folder, root) = tree();
    rapl(&root);
    let wishes = energy_wishes(&[Some(100_000), Some(400_000), Some(2_000_000)]);
    let plan = EnergyPlan::new(&root, &wishes).unwrap();
    assert_eq!((plan.cpus.len(), &plan.held[..], plan.slice_count()), (4, &[0, 1, 2][..], 72));
    let model = Model::new(&root, |_| Fault::None);
    let mut package = Package { model, energy_uj: 0.0 };
    let (domains, slices) = measure_energy(&root, &plan, &owner(), &mut package, &Silent).unwrap();
    assert_eq!((domains.len(), slices.len()), (1, 72));
    assert!(package.energy_uj > 8.0 * RANGE_UJ as f64, "it has wrapped");
    for slice in &slices {
        let interval_ns = slice.interval_ns.unwrap() as f64;
        let expected =
            4.0 * (POWER_MW[slice.state] * 1e-6 + WAKE_UJ[slice.state] / interval_ns) + 5e-3;
        let found = slice.energy_uj[0] as f64 / slice.worked.elapsed_ns as f64;
        assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
        assert_eq!(slice.other_count, 0);
    }
    let disabled = (0..4).all(|cpu| (0..3).all(|i| root.number(&disable_file(cpu, i)) == Some(0)));
    assert!(disabled);
}

#[test]
fn a_counter_that_is_set_back_restores_the_states_and_is_an_error() {
    let (_folder, root) = tree();
    rapl(&root);
    struct Resumed<'a>(Package<'a>);
    impl Workers for Resumed<'_> {
        fn work(&mut self, cpus: &[u16], interval_ns: Option<u64>, slice_ns: u64) -> Worked {
            if self.0.model.nth == 5 {
                self.0.energy_uj = 0.0;
            }
            self.0.work(cpus, interval_ns, slice_ns)
        }
    }
    let plan = EnergyPlan::new(&root, &energy_wishes(&[Some(2_000_000)])).unwrap();
    let package = Package { model: Model::new(&root, |_| Fault::None), energy_uj: 7_000_000.0 };
    root.write_beneath("sys/class/powercap/intel-rapl:0/energy_uj", "7000000").unwrap();
    let outcome = measure_energy(&root, &plan, &owner(), &mut Resumed(package), &Silent);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("package-0 went from") && error.ends_with("measure again"), "{error}");
    assert!((0..3).all(|index| root.number(&disable_file(0, index)) == Some(0)));
}

/// What the CPUs of another package save is in no counter.
#[test]
fn a_package_without_a_counter_is_left_alone_and_named() {
    let (_folder, root) = tree();
    rapl(&root);
    for cpu in 0..4 {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        fs::write(root.path(&file), format!("{}\n", cpu / 2)).unwrap();
    }
    let plan = EnergyPlan::new(&root, &energy_wishes(&[None])).unwrap();
    assert_eq!(plan.cpus, [0, 1]);
    assert_eq!(
        plan.doubts,
        ["package 1 has no energy counter: CPUs 2-3 were left alone, and no figure is theirs"]
    );
    assert_eq!(plan.files().len(), 2 * 3);
    let zone = root.path("sys/class/powercap/intel-rapl:0");
    fs::rename(&zone, root.path("sys/class/powercap/intel-rapl:1")).unwrap();
    fs::write(root.path("sys/class/powercap/intel-rapl:1/name"), "package-1-die-0\n").unwrap();
    assert_eq!(EnergyPlan::new(&root, &energy_wishes(&[None])).unwrap().cpus, [2, 3]);
}

#[test]
fn without_counters_nothing_is_changed() {
    let (_folder, root) = tree();
    let plan = EnergyPlan::new(&root, &energy_wishes(&[None])).unwrap();
    assert!(plan.doubts[0].contains("no RAPL"), "{:?}", plan.doubts);
    let model = Model::new(&root, |_| Fault::None);
    let error =
        measure_energy(&root, &plan, &owner(), &mut Package { model, energy_uj: 0.0 }, &Silent)
            .unwrap_err();
    assert!(error.to_string().contains("no RAPL"), "{error}");
}

#[test]
fn what_keeps_a_plan_from_being_made_is_named() {
    let (_folder, root) = tree();
    let error = || StatesPlan::new(&root, &wishes(1)).unwrap_err();
    fs::write(root.path("proc/self/status"), "Cpus_allowed_list:\t2\n").unwrap();
    assert!(matches!(error(), StatesError::NotAllowed { cpu: 0 }), "{}", error());
    fs::write(root.path("proc/self/status"), "Cpus_allowed_list:\t0-3\n").unwrap();
    let off = |cpu, index| fs::write(root.path(&disable_file(cpu, index)), "1\n").unwrap();
    (0..4).for_each(|cpu| [1, 2].into_iter().for_each(|index| off(cpu, index)));
    assert!(matches!(error(), StatesError::NothingToHold { .. }), "{}", error());
    for (cpu, index) in (0..4).flat_map(|cpu| [1, 2].map(|index| (cpu, index))) {
        fs::remove_dir_all(root.path(&state_folder(cpu, index))).unwrap();
    }
    assert!(matches!(error(), StatesError::OnlyPolls { .. }), "{}", error());
}

#[test]
fn a_journal_that_others_could_write_is_found_before_anything_is_changed() {
    use std::os::unix::fs::PermissionsExt;

    let (_folder, root) = tree();
    let plan = StatesPlan::new(&root, &wishes(1)).unwrap();
    plan.check_writable(&root).unwrap();
    let folder = root.path("run/idlewise");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = plan.check_writable(&root).unwrap_err().to_string();
    assert!(error.contains("run/idlewise: others than root can write to it"), "{error}");
}
