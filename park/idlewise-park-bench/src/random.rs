//! Reproducible pseudo-random numbers (xorshift64*), good enough for gaps and orders of lanes.

/// A sequence determined by its seed.
pub(crate) struct Random(u64);

impl Random {
    /// Seeds that differ in more than the lowest bit give different sequences.
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in (0, 1] with 53 random bits.
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles a slice. All orders are equally likely.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // The high bits are of better quality. A bias of 2^-60 does not matter.
            let other = (u128::from(self.next()) * (last as u128 + 1)) >> 64;
            items.swap(last, other as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_order_and_every_item_stays() {
        let shuffled = |seed| {
            let mut items: Vec<usize> = (0..16).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(3), shuffled(3));
        assert_ne!(shuffled(3), shuffled(5));
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn each_item_comes_first_about_as_often() {
        let mut random = Random::new(1);
        let mut firsts = [0; 4];
        for _ in 0..4_000 {
            let mut items = [0, 1, 2, 3];
            random.shuffle(&mut items);
            firsts[items[0]] += 1;
        }
        assert!(firsts.iter().all(|count| (850..1_150).contains(count)), "{firsts:?}");
    }
}
