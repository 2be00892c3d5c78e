//! Order classes: executable definitions of a row's arithmetic.
//!
//! A kernel that claims a class must give its bits on every backend, for every number of rows and threads. The
//! functions here are slow on purpose: one element at a time, every rounding visible. An `fma` rounds once; every other
//! `*` and `+` on floats rounds by itself, so kernels of a class are compiled with contraction off.

mod argmax;
mod attention;
mod dequantise;
mod dot;
mod exact;
mod exp;
mod rope;
mod sample;
mod swiglu;

pub use argmax::{ARGMAX_LOWEST, argmax};
pub use attention::{
    ATTENTION_SPLIT, ATTENTION_SPLIT256, AttentionSplit, attention, attention_combine, attention_split,
};
pub use dequantise::{DEQUANTISE_EXACT, dequantise_q8_0};
pub use dot::{
    DOT_E2M1_BLOCK16_CHAIN8, DOT_F8_BLOCK128_CHAIN32, DOT_F32_CHAIN32, DOT_I8_BLOCK32_CHAIN8,
    DOT_I8_SUB16_BLOCK32_CHAIN8, DOT_U_MIN_BLOCK32_CHAIN8, DOT_U4_MIN_BLOCK32_CHAIN8, E2m1Weights, F8_BLOCK,
    MinWeights, SubWeights, dot_e2m1, dot_f8, dot_f32, dot_i8, dot_i8_sub16, dot_u_min,
};
pub use exact::{EXACT_U32, STREAM_CHUNK, STREAM_SALT, stream_pattern, stream_read};
pub use exp::{EXP_COEFFICIENTS, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW, exp};
pub use rope::{ROPE_F32, RotationKind, rope_head, rope_pair};
pub use sample::{
    GUMBEL_HIGHEST, MIX32_FIRST, MIX32_SECOND, RowParams, SAMPLE_CHAINS, SAMPLE_GUMBEL, gumbel, mix32, sample,
    sample_bits, sample_exponent, sample_keys,
};
pub use swiglu::{SWIGLU, SWIGLU_QUANTISE_BLOCK32, swiglu, swiglu_quantise_block};

/// A named definition of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderClass {
    /// Name, as it stands in receipts and defaults.
    pub id: &'static str,
    /// The definition in words.
    pub text: &'static str,
}

impl OrderClass {
    /// Whether the order of additions is the device's own, as in a float tensor core: no function here gives its bits.
    ///
    /// A variant of such a class is held to the f64 reference, to itself on every run, and to every row of its output
    /// being the one that the row has alone and in any other place.
    pub fn is_device(&self) -> bool {
        DEVICE.contains(self)
    }
}

/// The classes that are a device's own.
pub const DEVICE: &[OrderClass] = &[DEVICE_EXAMPLE, DEVICE_MMA_F16, DEVICE_MMA_BF16, DEVICE_MMA_F8_BLOCK128];

/// A device class that no variant keeps: what tests of the check use.
pub const DEVICE_EXAMPLE: OrderClass =
    OrderClass { id: "device_example", text: "terms are added in an order that the device keeps to itself" };

/// Rows and elements are in order; every element of a block of 32 shares one scale.
pub const QUANT_BLOCK: usize = 32;

/// Below this block maximum the quantised block is all zeros, because `127 / maximum` would overflow.
pub const QUANT_FLUSH: f32 = f32::from_bits(0x0380_0000); // 2^-120

/// Activation quantisation, block by block.
pub const QUANTISE_BLOCK32: OrderClass = OrderClass {
    id: "quantise_block32",
    text: "per block of 32: a = max |x|; if a < 2^-120 all zero, else scale = a / 127, q = round_half_even(x * (127 / a)), \
           sum = exact sum of q",
};

/// Sum of squares in 128 f32 chains, then one scale for the row.
pub const RMS_CHAIN128: OrderClass = OrderClass {
    id: "rms_chain128",
    text: "element i: chain[i mod 128] = fma(x, x, chain[i mod 128]); chains are added in a pair tree at distances 64 to 1; \
           r = 1 / sqrt(sum / hidden + epsilon); y = (x * r) * weight",
};

/// [`RMS_CHAIN128`], then [`QUANTISE_BLOCK32`].
pub const RMS_CHAIN128_QUANTISE_BLOCK32: OrderClass = OrderClass {
    id: "rms_chain128_quantise_block32",
    text: "rms_chain128 of the row, then quantise_block32 of its f32 values",
};

/// Tensor-core products of f16 weights and activations: a device class.
pub const DEVICE_MMA_F16: OrderClass = OrderClass {
    id: "device_mma_f16_chain8",
    text: "units of 64 elements in steps of 16 in f32 accumulators of the tensor core, unit u in chain u mod 8; chains are \
           added in a pair tree at distances 4, 2, 1; a residual is added last; sums inside a step are the device's own",
};

/// Tensor-core products of bf16 weights and activations: a device class.
pub const DEVICE_MMA_BF16: OrderClass = OrderClass {
    id: "device_mma_bf16_chain8",
    text: "units of 64 elements in steps of 16 in f32 accumulators of the tensor core, unit u in chain u mod 8; chains are \
           added in a pair tree at distances 4, 2, 1; a residual is added last; sums inside a step are the device's own",
};

/// Tensor-core products of e4m3 weights with block scales and f16 activations: a device class.
pub const DEVICE_MMA_F8_BLOCK128: OrderClass = OrderClass {
    id: "device_mma_f8_block128_chain8",
    text: "units of 128 elements in steps of 16 in f32 accumulators of the tensor core, then chain[u mod 8] = fma(sum, \
           block_scale, chain[u mod 8]); chains are added in a pair tree at distances 4, 2, 1; a residual is added last; sums \
           inside a step are the device's own",
};

/// Every class, for listings and lookups.
pub const ALL: &[OrderClass] = &[
    DEVICE_MMA_F16,
    DEVICE_MMA_BF16,
    DEVICE_MMA_F8_BLOCK128,
    QUANTISE_BLOCK32,
    DOT_I8_BLOCK32_CHAIN8,
    DOT_U4_MIN_BLOCK32_CHAIN8,
    DOT_U_MIN_BLOCK32_CHAIN8,
    DOT_I8_SUB16_BLOCK32_CHAIN8,
    DOT_E2M1_BLOCK16_CHAIN8,
    DOT_F32_CHAIN32,
    DOT_F8_BLOCK128_CHAIN32,
    RMS_CHAIN128,
    RMS_CHAIN128_QUANTISE_BLOCK32,
    ROPE_F32,
    ATTENTION_SPLIT256,
    SWIGLU,
    SWIGLU_QUANTISE_BLOCK32,
    DEQUANTISE_EXACT,
    ARGMAX_LOWEST,
    SAMPLE_GUMBEL,
    EXACT_U32,
];

/// Adds chains in a pair tree: element `i` takes element `i + d` for `d = N/2, N/4, ..., 1`.
///
/// A warp that adds with `shfl_xor` at the same distances, and a vector that adds its upper half to its lower half,
/// give the same bits, because float addition is commutative.
pub fn pair_tree<const N: usize>(mut chains: [f32; N]) -> f32 {
    debug_assert!(N.is_power_of_two());
    let mut distance = N / 2;
    while distance > 0 {
        for i in 0..distance {
            chains[i] += chains[i + distance];
        }
        distance /= 2;
    }
    chains[0]
}

/// [`QUANTISE_BLOCK32`] for one block: 32 finite f32 values to quants in -127..=127, the scale and the sum of quants.
pub fn quantise_block(x: &[f32; QUANT_BLOCK]) -> ([i8; QUANT_BLOCK], f32, i16) {
    let maximum = x.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
    if maximum < QUANT_FLUSH {
        return ([0; QUANT_BLOCK], 0.0, 0);
    }
    let inverse = 127.0 / maximum;
    let quants = x.map(|v| (v * inverse).round_ties_even() as i8);
    let sum = quants.iter().map(|q| i16::from(*q)).sum();
    (quants, maximum / 127.0, sum)
}

/// The row factor of [`RMS_CHAIN128`]: `1 / sqrt(mean(x^2) + epsilon)`.
pub fn rms_factor(x: &[f32], epsilon: f32) -> f32 {
    let mut chains = [0.0_f32; 128];
    for (i, v) in x.iter().enumerate() {
        chains[i % 128] = v.mul_add(*v, chains[i % 128]);
    }
    1.0 / (pair_tree(chains) / x.len() as f32 + epsilon).sqrt()
}

/// [`RMS_CHAIN128`] for one row of `hidden` floats.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let factor = rms_factor(x, epsilon);
    x.iter().zip(weight).map(|(x, w)| (x * factor) * w).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_tree_is_a_butterfly() {
        let chains: [f32; 8] = [1e8, 1.0, -1e8, 3.0, 0.5, 7.0, 0.25, -2.0];
        let mut lanes = chains;
        for distance in [4, 2, 1] {
            let before = lanes;
            for i in 0..8 {
                lanes[i] = before[i] + before[i ^ distance];
            }
        }
        for lane in lanes {
            assert_eq!(lane.to_bits(), pair_tree(chains).to_bits());
        }
    }

    #[test]
    fn quantisation_bounds_hold() {
        let mut x = [0.0_f32; 32];
        x[3] = -2.0;
        x[4] = 1.0;
        let (q, scale, sum) = quantise_block(&x);
        assert_eq!((q[3], q[4], sum), (-127, 64, -63)); // 63.5 goes to the even neighbour
        assert_eq!(scale, 2.0 / 127.0);
        for tiny in [0.0, f32::MIN_POSITIVE, f32::from_bits(1), QUANT_FLUSH / 2.0] {
            let mut x = [0.0_f32; 32];
            x[0] = tiny;
            assert_eq!(quantise_block(&x), ([0; 32], 0.0, 0));
        }
        let mut x = [0.0_f32; 32];
        x[0] = f32::MAX;
        x[1] = QUANT_FLUSH;
        assert_eq!(quantise_block(&x).0[0], 127);
        x = [QUANT_FLUSH; 32];
        assert!(quantise_block(&x).0.iter().all(|q| *q == 127));
    }

    #[test]
    fn device_classes_are_none_of_the_executable_ones() {
        assert!(DEVICE_EXAMPLE.is_device());
        assert_eq!(ALL.iter().filter(|class| class.is_device()).count(), DEVICE.len() - 1);
    }

    #[test]
    fn rms_of_ones_is_one() {
        assert_eq!(rms_norm(&[1.0; 300], &[2.0; 300], 0.0), vec![2.0; 300]);
    }
}
