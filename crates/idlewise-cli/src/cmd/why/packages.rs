//! The packages of a report: the states that they were in by counters of the processor, and what their CPUs asked for.

use std::collections::BTreeMap;

use idlewise_host::{CountsReader, Difference, Root};
use idlewise_report::watch::PackageLine;
use idlewise_report::why::{PackageCpu, PackageState, WhyPackage};

/// Makes packages of the counters' lines. `limits_ns` are the CPUs' latency limits.
pub(super) fn packages(
    root: &Root,
    reader: &CountsReader,
    difference: &Difference,
    limits_ns: &BTreeMap<u16, u64>,
    lines: &[PackageLine],
) -> Vec<WhyPackage> {
    let mut packages: Vec<WhyPackage> = Vec::new();
    for line in lines {
        let Some(residency_ratio) = line.residency_ratio else { continue };
        let known = packages.iter().position(|package| package.name == line.place);
        let place = known.unwrap_or_else(|| {
            packages.push(WhyPackage { name: line.place.clone(), ..WhyPackage::default() });
            packages.len() - 1
        });
        packages[place].states.push(PackageState { state: line.counter.clone(), residency_ratio });
    }
    for (at, cpu) in difference.cpus.iter().enumerate() {
        let id = format!("sys/devices/system/cpu/cpu{}/topology/physical_package_id", cpu.cpu);
        let name = root.text(&id).map(|id| format!("package {id}"));
        let package = packages.iter_mut().find(|package| Some(&package.name) == name.as_ref());
        // Nothing is known of a CPU on which no stay ended: it may have slept all the time.
        let (Some(package), true) = (package, cpu.usage() > 0) else { continue };
        if let (Some(deepest), Some(counted)) = (reader.states(at).last(), cpu.states.last()) {
            package.cpus.push(PackageCpu {
                cpu: cpu.cpu,
                deepest: deepest.name.clone(),
                exit_latency_ns: deepest.exit_latency_ns,
                is_disabled: counted.is_disabled,
                latency_limit_ns: limits_ns.get(&cpu.cpu).copied(),
                asked_ratio: (counted.time_us as f64 / (cpu.elapsed.as_micros() as f64).max(1.0))
                    .min(1.0),
            });
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use idlewise_host::{CpuDifference, StateDifference};

    use super::*;

    /// CPUs 0 and 1 are in package 0, and CPU 2 in package 1. Each has C1 and C6.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join("sys/devices/system/cpu").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("online", "0-2");
        for (cpu, package) in [(0, "0"), (1, "0"), (2, "1")] {
            write(&format!("cpu{cpu}/topology/physical_package_id"), package);
            for (state, name, latency) in [(0, "C1", "1"), (1, "C6", "170")] {
                for (file, text) in
                    [("name", name), ("latency", latency), ("usage", "0"), ("time", "0")]
                {
                    write(&format!("cpu{cpu}/cpuidle/state{state}/{file}"), text);
                }
            }
        }
        folder
    }

    #[test]
    fn cpus_are_in_their_package_with_what_they_asked_for() {
        let folder = machine();
        let root = Root::at(folder.path());
        let reader = CountsReader::open(&root, &[0, 1, 2]).unwrap();
        let state =
            |usage, time_us| StateDifference { usage, time_us, ..StateDifference::default() };
        let cpu = |cpu, usage, time_us| CpuDifference {
            cpu,
            elapsed: Duration::from_secs(10),
            states: vec![state(usage, 0), state(usage, time_us)],
            ..CpuDifference::default()
        };
        // On CPU 2 no stay ended.
        let cpus = vec![cpu(0, 7, 9_000_000), cpu(1, 7, 200_000), cpu(2, 0, 0)];
        let difference = Difference { elapsed: Duration::from_secs(10), cpus };
        let line = |place: &str, counter: &str, residency_ratio| PackageLine {
            place: place.to_owned(),
            counter: counter.to_owned(),
            residency_ratio,
            power_mw: None,
        };
        let lines = [
            line("package 0", "C2", Some(0.5)),
            line("package 0", "C6", Some(0.01)),
            line("package 0", "power", None),
            line("package 1", "C6", Some(0.0)),
        ];
        let limits_ns = BTreeMap::from([(0, 200_000)]);
        let packages = packages(&root, &reader, &difference, &limits_ns, &lines);
        assert_eq!(
            packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(),
            ["package 0", "package 1"]
        );
        assert_eq!(packages[0].states.len(), 2);
        let expected = "CPU 1 asked for C6 2.0 % of the time, and package states that need it need it on all CPUs";
        assert_eq!(packages[0].reason().unwrap(), expected);
        assert_eq!((packages[1].cpus.len(), packages[1].reason()), (0, None));
        // A lower limit of a CPU explains more.
        let limits_ns = BTreeMap::from([(0, 100_000)]);
        let packages = super::packages(&root, &reader, &difference, &limits_ns, &lines);
        assert!(
            packages[0]
                .reason()
                .unwrap()
                .starts_with("a latency limit of 100 us on CPU 0 forbids C6")
        );
    }
}
