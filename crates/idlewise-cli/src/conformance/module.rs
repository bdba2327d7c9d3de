//! Compares `kernel/idlewise_governor.c`, the kernel module's source file, with the ports of menu
//! and its variants in generated rows. Recordings and booted kernels compare them too, but there no
//! CPU is ever idle for half an hour, as in these rows.

use std::fs;
use std::path::Path;

use idlewise_core::tick_period_ns;
use idlewise_linux::resolve;
use idlewise_plugin::{Compiler, GovernorSource, Instance};

use super::{Generator, first_difference, random_table};

const TABLE_COUNT: u64 = 64;
const ROW_COUNT: u64 = 1_000;

#[test]
fn the_module_decides_by_each_rule_as_the_port_does() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let source = fs::read_to_string(kernel.join("idlewise_governor.c")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The confined compiler can read files in the same folder.
    let header = "governor_symbols.h";
    fs::copy(kernel.join(header), folder.path().join(header)).unwrap();
    for (rule, port) in ["menu-6.12", "menu-6.12+min", "menu-6.12+safe-range"].iter().enumerate() {
        let path = folder.path().join(format!("rule{rule}.c"));
        let initial = format!("static unsigned int rule = {rule};");
        fs::write(&path, source.replace("static unsigned int rule;", &initial)).unwrap();
        let library = Compiler::system().library(&GovernorSource::new(path), None).unwrap();
        let port = resolve(port).unwrap();
        for (seed, hz) in (0..TABLE_COUNT).zip([100, 250, 300, 1_000].into_iter().cycle()) {
            let tick_ns = tick_period_ns(hz);
            let states = random_table(seed);
            let mut rows = Vec::new();
            let mut leader = port.build(tick_ns);
            Generator::new(seed, states, tick_ns)
                .run(ROW_COUNT, &mut leader, &mut |row, _| rows.push(*row));
            let mut module = Instance::load(&library, tick_ns).unwrap();
            let first = first_difference(&states, &rows, &mut port.build(tick_ns), &mut module);
            assert_eq!(first, None, "{}, table {seed}, {hz} HZ: port and module", port.id);
        }
    }
}
