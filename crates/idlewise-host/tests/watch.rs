//! A reading of everything that `idlewise watch` shows allocates nothing, however many CPUs there are.

mod captured;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use captured::CapturedMachine;
use idlewise_host::watch::{IdleTimes, LatencyLimits, Marks};
use idlewise_host::{Counts, CountsReader, Root};

thread_local! {
    /// How often this thread allocated.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised to us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocation_count(run: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

const TREE: &str = "\
== sys/devices/system/cpu/online
0-39
== sys/devices/system/cpu/cpuidle/current_driver
intel_idle
== sys/devices/system/cpu/cpu{0-39}/power/pm_qos_resume_latency_us
20
== proc/stat
cpu  1 1 1 1
cpu0 1 1 1 1 1
intr 5
== @cpuidle 0-39
name | desc       | latency | residency | disable | usage | time | above | below | rejected
POLL | CORE POLL  | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
C6   | MWAIT 0x20 | 190     | 600       | 0       | 9     | 9000 | 1     | 0     | 0
";

#[test]
fn a_reading_allocates_nothing() {
    let machine = CapturedMachine::from_tree(TREE);
    let root = Root::at(machine.path());
    let cpus: Vec<u16> = (0..40).collect();
    let mut reader = CountsReader::open(&root, &cpus).unwrap();
    let mut counts = Counts::default();
    let limits = LatencyLimits::open(&root, &cpus);
    let mut times = IdleTimes::open(&root).unwrap();
    let mut marks = Marks::open(&root);
    let mut limit_sum_ns = 0;
    let mut read = || {
        assert!(!marks.have_changed());
        reader.read(&mut counts);
        limit_sum_ns += (0..cpus.len()).filter_map(|index| limits.cpu_ns(index)).sum::<u64>();
        times.read(|_, idle_ns| assert_eq!(idle_ns, 20_000_000));
    };
    // The first one makes room.
    assert!(allocation_count(&mut read) > 0, "allocations are counted");
    assert_eq!(allocation_count(&mut read), 0);
    assert_eq!(limit_sum_ns, 2 * 40 * 20_000);
    assert_eq!(counts.cpus[39].states[1].usage, 9);
}
