//! Compares the kernel modules' source files with Rust in generated rows: `kernel/idlewise_governor.c` with the ports
//! of menu and its variants, `kernel/idlewise_hazard.c` with `hazard`. Recordings and booted kernels compare them too,
//! but there no CPU is ever idle for half an hour, as in these rows.

use std::fs;
use std::path::Path;

use idlewise_core::{Governor, Hazard, Lambda, tick_period_ns};
use idlewise_linux::resolve;
use idlewise_plugin::{Compiler, GovernorSource, Instance};

use super::{Generator, first_difference, random_table};

const TABLE_COUNT: u64 = 64;
const ROW_COUNT: u64 = 1_000;
/// For the long form: 64 tables at three prices are 5.8 million decisions.
const LONG_ROW_COUNT: u64 = 30_000;

/// The module's file, with something in it replaced, as a library. The confined compiler can read files in the same
/// folder.
fn library(file: &str, from: &str, to: &str) -> (tempfile::TempDir, idlewise_plugin::Library) {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let source = fs::read_to_string(kernel.join(file)).unwrap();
    assert!(source.contains(from), "{file}");
    let folder = tempfile::tempdir().unwrap();
    let header = "governor_symbols.h";
    fs::copy(kernel.join(header), folder.path().join(header)).unwrap();
    let path = folder.path().join("governor.c");
    fs::write(&path, source.replace(from, to)).unwrap();
    let library = Compiler::system().library(&GovernorSource::new(path), None).unwrap();
    (folder, library)
}

/// Compares a module with a governor of ours on generated tables and rows.
fn compare<G: Governor>(
    name: &str,
    library: &idlewise_plugin::Library,
    row_count: u64,
    ours: impl Fn(u32) -> G,
) {
    for (seed, hz) in (0..TABLE_COUNT).zip([100, 250, 300, 1_000].into_iter().cycle()) {
        let tick_ns = tick_period_ns(hz);
        let states = random_table(seed);
        let mut rows = Vec::new();
        let mut leader = ours(tick_ns);
        Generator::new(seed, states, tick_ns)
            .run(row_count, &mut leader, &mut |row, _| rows.push(*row));
        let mut module = Instance::load(library, tick_ns).unwrap();
        let first = first_difference(&states, &rows, &mut ours(tick_ns), &mut module);
        assert_eq!(first, None, "{name}, table {seed}, {hz} HZ: ours and the module");
    }
}

fn compare_hazard(row_count: u64) {
    for lambda in [0, 256, 2_048, 16_384] {
        let (_folder, library) = library(
            "idlewise_hazard.c",
            "static unsigned int lambda = 2048;",
            &format!("static unsigned int lambda = {lambda};"),
        );
        compare(&format!("lambda {lambda}"), &library, row_count, |_| {
            Hazard::new(Lambda::from_1024ths(lambda))
        });
    }
}

#[test]
fn hazards_module_decides_as_it_does() {
    compare_hazard(ROW_COUNT);
}

#[test]
#[ignore = "takes minutes; `make conformance` runs it"]
fn hazards_module_decides_as_it_does_in_millions_of_rows() {
    compare_hazard(LONG_ROW_COUNT);
}

#[test]
fn the_module_decides_by_each_rule_as_the_port_does() {
    for (rule, port) in ["menu-6.12", "menu-6.12+min", "menu-6.12+safe-range"].iter().enumerate() {
        let (_folder, library) = library(
            "idlewise_governor.c",
            "static unsigned int rule;",
            &format!("static unsigned int rule = {rule};"),
        );
        let port = resolve(port).unwrap();
        compare(port.id, &library, ROW_COUNT, |tick_ns| port.build(tick_ns));
    }
}
