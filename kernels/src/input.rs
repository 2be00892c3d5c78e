//! Seeded inputs by counter: element `i` of a tensor depends on the seed, the tensor's name and `i`, on nothing else.
//!
//! So changing a size, or adding a tensor, changes no value that was there before.

/// Name and revision of the generator, as it stands in receipts.
pub const GENERATOR: &str = "counter/1";

/// A stream of values for one tensor.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    key: u64,
}

/// The finaliser of SplitMix64: a bijection on 64 bits that mixes well enough to be used as a counter generator.
#[inline(always)]
const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of a tensor under a seed.
    pub fn new(seed: u64, tensor: &str) -> Self {
        let key = tensor.bytes().fold(mix(seed), |key, byte| mix(key ^ u64::from(byte)));
        Self { key }
    }

    /// 64 random bits at a position.
    #[inline(always)]
    pub const fn bits(self, position: u64) -> u64 {
        mix(self.key ^ mix(position))
    }

    /// A uniform value in [0, 1) with 24 bits.
    #[inline(always)]
    pub const fn unit(self, position: u64) -> f32 {
        (self.bits(position) >> 40) as f32 / 16_777_216.0
    }

    /// A uniform value in [-1, 1).
    #[inline(always)]
    pub const fn plus_minus_one(self, position: u64) -> f32 {
        self.unit(position) * 2.0 - 1.0
    }

    /// A value with mean 0 and variance 1: the sum of twelve 16-bit uniforms, so that it is bounded by 6 and has the same
    /// bits on every platform.
    #[inline(always)]
    pub fn normal(self, position: u64) -> f32 {
        let mut sum = 0_u32;
        for part in 0..3 {
            let bits = self.bits(position.wrapping_mul(3).wrapping_add(part) ^ (1 << 63));
            for lane in 0..4 {
                sum += (bits >> (16 * lane)) as u32 & 0xFFFF;
            }
        }
        // Twelve uniforms on 0..65536 have mean 6 * 65535 and, divided by 65536, variance 1.
        (sum as f32 - 393_210.0) / 65_536.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_depend_on_size_or_neighbours() {
        let a = Stream::new(7, "weight");
        assert_eq!(a.bits(5), Stream::new(7, "weight").bits(5));
        assert_ne!(a.bits(5), Stream::new(7, "activation").bits(5));
        assert_ne!(a.bits(5), Stream::new(8, "weight").bits(5));
    }

    #[test]
    fn moments_are_right() {
        let stream = Stream::new(1, "x");
        let n = 20_000;
        let normal: Vec<f64> = (0..n).map(|i| f64::from(stream.normal(i))).collect();
        let mean = normal.iter().sum::<f64>() / n as f64;
        let variance = normal.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let uniform = (0..n).map(|i| f64::from(stream.plus_minus_one(i))).sum::<f64>() / n as f64;
        assert!(uniform.abs() < 0.03, "{uniform}");
    }
}
