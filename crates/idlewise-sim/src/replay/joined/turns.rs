//! Which CPU's stay ends next.

/// When each CPU's turn comes: a tournament, in whose tree each node is the smaller of its two children.
pub(super) struct Turns {
    nodes: Vec<u128>,
}

/// The time in the upper half. At the same time, stays of some length end first, because their CPUs are idle
/// before the others begin. Then the lower CPU comes first.
pub(super) fn turn(at_ns: i64, is_stay_empty: bool, cpu: usize) -> u128 {
    u128::from(clock(at_ns)) << 64 | u128::from(is_stay_empty) << 32 | cpu as u128
}

impl Turns {
    pub(super) const NEVER: u128 = u128::MAX;

    pub(super) fn new(cpu_count: usize) -> Self {
        Turns { nodes: vec![Turns::NEVER; 2 * cpu_count.next_power_of_two()] }
    }

    #[inline]
    pub(super) fn set(&mut self, cpu: usize, turn: u128) {
        let mut node = self.nodes.len() / 2 + cpu;
        let mut least = turn;
        self.nodes[node] = turn;
        while node > 1 {
            least = least.min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = least;
        }
    }

    /// The time and the CPU of the next turn. Without any, the time is the last possible.
    #[inline]
    pub(super) fn first(&self) -> (i64, usize) {
        let turn = self.nodes[1];
        (unclock((turn >> 64) as u64), turn as u32 as usize)
    }
}

/// The clock of groups has no sign.
pub(super) fn clock(at_ns: i64) -> u64 {
    (at_ns as u64) ^ 1 << 63
}

pub(super) fn unclock(at_ns: u64) -> i64 {
    (at_ns ^ 1 << 63) as i64
}
