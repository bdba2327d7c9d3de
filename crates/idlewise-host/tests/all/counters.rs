//! Which counters a machine has, and how they are opened, on the machines of `tests/counters`.

use std::fs;
use std::path::Path;

use idlewise_host::Root;
use idlewise_host::counters::{Base, CounterPlan, CounterSpec, FileCounters, Meaning, Scope};
use tempfile::TempDir;

/// Unpacks a `.tree`. Each file begins with `== PATH`.
fn unpack(name: &str) -> (TempDir, Root) {
    let file = format!("tests/counters/{name}.tree");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in text.split("== ").skip(1) {
        let (path, content) = file.split_once('\n').unwrap();
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let root = Root::at(folder.path());
    (folder, root)
}

fn names(plan: &CounterPlan) -> Vec<&str> {
    plan.specs.iter().map(|spec| spec.counter.as_str()).collect()
}

fn spec<'a>(plan: &'a CounterPlan, name: &str) -> &'a CounterSpec {
    plan.specs.iter().find(|spec| spec.counter == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn a_sapphire_rapids_counts_c0_states_cores_packages_and_energy() {
    let (_folder, root) = unpack("sapphire-rapids");
    let plan = CounterPlan::new(&root);
    assert_eq!(
        names(&plan),
        [
            "TSC",
            "C0 (MPERF)",
            "speed in C0 (APERF/MPERF)",
            "SMI",
            "core C1",
            "core C6",
            "package C2",
            "package C6",
            "package energy",
            "DRAM energy",
            "platform energy",
            "cache references",
            "cache misses",
            "CPU_CLK_UNHALTED.THREAD",
            "CPU_CLK_UNHALTED.C01",
            "CPU_CLK_UNHALTED.C02",
        ]
    );
    assert_eq!(plan.lacks, []);
    let c02 = spec(&plan, "CPU_CLK_UNHALTED.C02");
    assert_eq!((c02.type_number, c02.event.config), (4, 0x20ec));
    assert_eq!((c02.scope, c02.meaning), (Scope::Cpu, Meaning::ShareOf(Base::Unhalted)));
    assert_eq!(c02.cpus, [0, 1, 2, 3]);
    let c6 = spec(&plan, "package C6");
    assert_eq!((c6.type_number, c6.event.config, &c6.cpus[..]), (15, 2, &[0, 2][..]));
    assert_eq!((c6.scope, c6.meaning), (Scope::Package, Meaning::ShareOf(Base::Tsc)));
    let Meaning::Energy(uj) = spec(&plan, "package energy").meaning else { panic!("energy") };
    // 2^-32 joules.
    assert!((uj / 1e6 - 1.0 / 4_294_967_296.0).abs() < 1e-18, "{uj}");
    assert_eq!(spec(&plan, "TSC").is_base, Some(Base::Tsc));
    let speed = spec(&plan, "speed in C0 (APERF/MPERF)");
    assert_eq!(speed.meaning, Meaning::ShareOf(Base::Mperf));
}

#[test]
fn an_epyc_has_no_idle_states_of_cores_and_says_so() {
    let (_folder, root) = unpack("epyc");
    let plan = CounterPlan::new(&root);
    assert_eq!(
        names(&plan),
        [
            "TSC",
            "C0 (MPERF)",
            "speed in C0 (APERF/MPERF)",
            "package energy",
            "core energy",
            "cache references",
            "cache misses",
        ]
    );
    assert_eq!(spec(&plan, "core energy").cpus, [0, 2]);
    let lacks: Vec<String> =
        plan.lacks.iter().map(|lack| format!("{}: {}", lack.counter, lack.reason)).collect();
    let has = |parts: [&str; 2]| {
        assert!(
            lacks.iter().any(|lack| parts.iter().all(|part| lack.contains(part))),
            "{lacks:#?}"
        );
    };
    has(["SMI", "the unit msr does not count it"]);
    has(["idle states that cores were in", "no cstate_core: AMD's processors do not count it"]);
    has(["idle states that packages were in", "no cstate_pkg: AMD's"]);
    has(["C0.2", "only Intel processors with WAITPKG"]);
    assert_eq!(lacks.len(), 4);
}

#[test]
fn files_count_interrupts_and_requested_states_of_each_cpu() {
    let (_folder, root) = unpack("sapphire-rapids");
    let (counters, lacks) = FileCounters::open(&root);
    assert_eq!(lacks, []);
    let res = counters.meters().iter().position(|meter| meter.counter.starts_with("RES")).unwrap();
    let found = counters.read();
    assert_eq!(found[res..res + 4], [10, 20, 30, 40].map(Some));
    // Four interrupts, and the time and entries of three states, on each of four CPUs.
    assert_eq!(found.len(), 4 * 4 + 4 * 3 * 2);
    let requested = counters.meters().iter().filter(|meter| meter.counter == "requested C6");
    assert_eq!(requested.count(), 4);
}

#[test]
fn cache_references_are_counted_on_each_kind_of_core_or_missed() {
    let (folder, root) = unpack("epyc");
    let references = spec(&CounterPlan::new(&root), "cache references").clone();
    assert_eq!((references.type_number, references.event.config), (4, 0xff60));
    assert_eq!((references.scope, references.meaning), (Scope::Cpu, Meaning::Events));
    assert_eq!(references.cpus, [0, 1, 2, 3]);
    let devices = folder.path().join("sys/bus/event_source/devices");
    fs::rename(devices.join("cpu"), devices.join("cpu_core")).unwrap();
    fs::write(devices.join("cpu_core/cpus"), "0-1\n").unwrap();
    let plan = CounterPlan::new(&root);
    let of_large = spec(&plan, "cache references");
    assert_eq!(
        (of_large.source.as_str(), &of_large.cpus[..]),
        ("cpu_core/cache-references/", &[0, 1][..])
    );
    let lack = |root: &Root| {
        let plan = CounterPlan::new(root);
        let lack = plan.lacks.iter().find(|lack| lack.counter.starts_with("cache references"));
        lack.map(|lack| lack.reason.clone())
    };
    assert_eq!(lack(&root), None, "the other kind's unit is not missed");
    fs::remove_file(devices.join("cpu_core/events/cache-references")).unwrap();
    fs::remove_file(devices.join("cpu_core/events/cache-misses")).unwrap();
    assert!(lack(&root).unwrap().contains("the unit cpu_core does not count it"));
    fs::remove_dir_all(devices.join("cpu_core")).unwrap();
    assert!(lack(&root).unwrap().contains("has no cpu"));
}

/// A processor whose codes nobody wrote down is told apart from one without the instructions.
#[test]
fn unknown_models_and_small_cores_are_not_asked_for_c0_states() {
    let (folder, root) = unpack("sapphire-rapids");
    let reason = |from: &str, to: &str| {
        let file = folder.path().join("proc/cpuinfo");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(from, to)).unwrap();
        let plan = CounterPlan::new(&root);
        fs::write(&file, text).unwrap();
        assert!(!names(&plan).contains(&"CPU_CLK_UNHALTED.C02"));
        plan.lacks[0].reason.clone()
    };
    assert!(reason("143", "134").contains("not known for this Intel model"));
    assert!(reason(" waitpkg", "").contains("shows no WAITPKG"));
}

/// Where cores differ, the large ones have a unit of their own with a list of their CPUs.
#[test]
fn a_hybrid_counts_c0_states_on_its_large_cores() {
    let (folder, root) = unpack("sapphire-rapids");
    let devices = folder.path().join("sys/bus/event_source/devices");
    fs::rename(devices.join("cpu"), devices.join("cpu_core")).unwrap();
    fs::write(devices.join("cpu_core/cpus"), "0-1\n").unwrap();
    let plan = CounterPlan::new(&root);
    let c01 = spec(&plan, "CPU_CLK_UNHALTED.C01");
    assert_eq!(
        (c01.source.as_str(), &c01.cpus[..]),
        ("cpu_core/event=0xec,umask=0x10/", &[0, 1][..])
    );
}
