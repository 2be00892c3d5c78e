//! The generator behind seeded orders.

use std::num::NonZero;

/// The step of the counter: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// The first multiplier of the finaliser.
const MIX_1: u64 = 0xBF58_476D_1CE4_E5B9;
/// The second multiplier of the finaliser.
const MIX_2: u64 = 0x94D0_49BB_1331_11EB;

/// `SplitMix64` (Steele, Lea and Flood, 2014): a counter and a finaliser.
///
/// Draw number `i`, counted from 1, is `mix(seed + i * 0x9E3779B97F4A7C15)` modulo 2^64, where `mix(z)` is
/// `z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9`, `z = (z ^ (z >> 27)) * 0x94D049BB133111EB`, `z ^ (z >> 31)`.
/// Receipts name a seed and rely on this sequence; it must never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    counter: u64,
}

impl SplitMix64 {
    /// The generator whose draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(STEP);
        let z = (self.counter ^ (self.counter >> 30)).wrapping_mul(MIX_1);
        let z = (z ^ (z >> 27)).wrapping_mul(MIX_2);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, every one equally likely.
    ///
    /// The draw times `bound` is split at bit 64; the upper half is the answer unless the lower half is below
    /// `2^64 mod bound`, in which case another draw is taken (Lemire, 2019).
    pub fn below(&mut self, bound: NonZero<u64>) -> u64 {
        let bound = bound.get();
        let reject_below = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= reject_below {
                return (product >> 64) as u64;
            }
        }
    }

    /// Brings `items` into a random order: from the last place down to the second, each place takes a random item
    /// among itself and those before it (Durstenfeld, 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let places = NonZero::<u64>::MIN.saturating_add(last as u64);
            let chosen = self.below(places) as usize;
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_is_reproduced() {
        let mut random = SplitMix64::new(1_234_567);
        let draws: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            draws,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
        assert_eq!(SplitMix64::new(0).next_u64(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn bounded_draws_cover_their_range_evenly() {
        let mut random = SplitMix64::new(7);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[random.below(NonZero::new(6).unwrap()) as usize] += 1;
        }
        for count in counts {
            assert!((9_600..10_400).contains(&count), "{counts:?}");
        }
        assert_eq!(random.below(NonZero::<u64>::MIN), 0);
        let most = NonZero::<u64>::MAX;
        assert!(random.below(most) < most.get());
    }

    #[test]
    fn every_permutation_of_three_is_about_as_frequent() {
        let mut random = SplitMix64::new(11);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..12_000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (1_850..2_150).contains(count)), "{counts:?}");
    }
}
