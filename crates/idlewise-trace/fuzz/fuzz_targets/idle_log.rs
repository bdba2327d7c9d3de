//! Reads any bytes as a log. Must end without a panic, either with gaps that are in order or with
//! an error of one line.
#![no_main]

use idlewise_trace::IdleGap;
use idlewise_trace::log::{IdleLog, LogError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = read(bytes) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
});

fn read(bytes: &[u8]) -> Result<(), LogError> {
    let log = IdleLog::from_bytes("log", bytes.to_vec())?;
    let groups = log.groups();
    assert_eq!(groups.iter().map(|group| group.gap_count).sum::<u64>(), log.gap_count());
    let mut gaps: Vec<IdleGap> = Vec::new();
    for (cpu, groups) in log.groups_by_cpu().unwrap_or_default() {
        for group in groups {
            if log.read_group(group, None, &mut gaps).is_ok() {
                assert!(gaps.iter().all(|gap| gap.cpu == cpu));
            }
        }
    }
    let mut previous: Option<IdleGap> = None;
    for group in groups {
        log.read_group(group, previous.as_ref(), &mut gaps)?;
        assert_eq!(gaps.len() as u64, group.gap_count);
        for gap in &gaps {
            assert!(previous.is_none_or(|p| (p.cpu, p.start_ns) <= (gap.cpu, gap.start_ns)));
            previous = Some(*gap);
        }
    }
    Ok(())
}
