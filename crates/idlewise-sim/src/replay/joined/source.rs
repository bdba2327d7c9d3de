//! The gaps of a log's CPUs, of which a part is in memory.

use idlewise_trace::IdleGap;
use idlewise_trace::log::{ColumnSet, GapGroup, GroupRows, IdleLog, LogError};

/// The unread rest of a CPU, and its gaps in memory.
pub(super) struct Source<'a> {
    pub(super) cpu: u16,
    log: &'a IdleLog,
    columns: ColumnSet,
    groups: std::vec::IntoIter<GapGroup>,
    rows: Option<GroupRows<'a>>,
    pub(super) gaps: Vec<IdleGap>,
    /// How many of them have been replayed.
    pub(super) used: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        log: &'a IdleLog,
        columns: ColumnSet,
        cpu: u16,
        groups: Vec<GapGroup>,
    ) -> Self {
        let groups = groups.into_iter();
        Source { cpu, log, columns, groups, rows: None, gaps: Vec::new(), used: 0 }
    }

    /// Reads the next part. Returns how many gaps it has.
    pub(super) fn read(&mut self) -> Result<u64, LogError> {
        // The last gap remains, to check the order.
        let previous = self.gaps.last().copied();
        self.gaps.drain(..self.used);
        self.used = 0;
        if self.rows.as_ref().is_none_or(|rows| rows.left_count() == 0) {
            let Some(group) = self.groups.next() else { return Ok(0) };
            self.rows = Some(self.log.rows(group, self.columns)?);
        }
        let held_count = self.gaps.len();
        if let Some(rows) = &mut self.rows {
            rows.read_in_order(previous.as_ref(), &mut self.gaps)?;
        }
        Ok((self.gaps.len() - held_count) as u64)
    }

    pub(super) fn is_read(&self) -> bool {
        self.groups.as_slice().is_empty()
            && self.rows.as_ref().is_none_or(|rows| rows.left_count() == 0)
    }

    /// Up to when all gaps are in memory.
    pub(super) fn known_until_ns(&self) -> i64 {
        match (self.is_read(), self.gaps.last()) {
            (true, _) => i64::MAX,
            (false, Some(last)) => last.start_ns,
            (false, None) => i64::MIN,
        }
    }

    /// Its gaps up to then.
    pub(super) fn part(&self, until_ns: i64) -> &[IdleGap] {
        let rest = &self.gaps[self.used..];
        match until_ns {
            i64::MAX => rest,
            _ => &rest[..rest.partition_point(|gap| gap.start_ns < until_ns)],
        }
    }
}
