//! Products of one row of a weight with one row of an activation.

use super::{OrderClass, QUANT_BLOCK, pair_tree};

/// Rows and elements of a weight that share one scale of a block-scaled f8 weight.
pub const F8_BLOCK: usize = 128;

/// Integer block products folded into eight f32 chains.
pub const DOT_I8_BLOCK32_CHAIN8: OrderClass = OrderClass {
    id: "dot_i8_block32_chain8",
    text: "block b of 32: s = exact integer dot; chain[b mod 8] = fma(f32(s), weight_scale * activation_scale, chain[b mod \
           8]); chains are added in a pair tree at distances 4, 2, 1; a residual is added last",
};

/// Integer block products of four-bit weights with a minimum, folded into eight f32 chains.
pub const DOT_U4_MIN_BLOCK32_CHAIN8: OrderClass = OrderClass {
    id: "dot_u4_min_block32_chain8",
    text: "block b of 32: s = exact integer dot of the unsigned quants, t = f32(sum of the activation's quants) * \
           activation_scale; c = chain[b mod 8]; c = fma(f32(s), weight_scale * activation_scale, c); c = fma(weight_minimum, \
           t, c); chains are added in a pair tree at distances 4, 2, 1; a residual is added last",
};

/// [`DOT_U4_MIN_BLOCK32_CHAIN8`] for wider quants and for scales and minima that are products.
pub const DOT_U_MIN_BLOCK32_CHAIN8: OrderClass = OrderClass {
    id: "dot_u_min_block32_chain8",
    text: "dot_u4_min_block32_chain8 for unsigned quants of four or five bits; weight_scale and weight_minimum are exact in \
           f32, also where they are products of a block's scales: d * sc and -(dmin * m)",
};

/// Integer products of halves of blocks, each half with an integer scale, folded into eight f32 chains.
pub const DOT_I8_SUB16_BLOCK32_CHAIN8: OrderClass = OrderClass {
    id: "dot_i8_sub16_block32_chain8",
    text: "block b of 32: s = sub_scale[2b] * (exact integer dot of elements 0..16) + sub_scale[2b + 1] * (of elements \
           16..32), exact below 2^24; chain[b mod 8] = fma(f32(s), weight_scale * activation_scale, chain[b mod 8]); chains \
           are added in a pair tree at distances 4, 2, 1; a residual is added last",
};

/// Products of doubled E2M1 weights with a float scale for every sixteen, folded into eight f32 chains.
pub const DOT_E2M1_BLOCK16_CHAIN8: OrderClass = OrderClass {
    id: "dot_e2m1_block16_chain8",
    text: "block b of 32: low and high = exact integer dots of elements 0..16 and 16..32; t = fma(f32(high), scale[2b + 1], \
           f32(low) * scale[2b]); chain[b mod 8] = fma(t, activation_scale, chain[b mod 8]); chains are added in a pair tree \
           at distances 4, 2, 1; the sum is multiplied by the outer scale; a residual is added last",
};

/// Float products folded into thirty-two f32 chains.
pub const DOT_F32_CHAIN32: OrderClass = OrderClass {
    id: "dot_f32_chain32",
    text: "element i: chain[i mod 32] = fma(weight, activation, chain[i mod 32]); chains are added in a pair tree at \
           distances 16, 8, 4, 2, 1; a residual is added last; narrower floats are converted to f32, which is exact",
};

/// Float products with one weight scale for 128 elements, folded into thirty-two f32 chains.
pub const DOT_F8_BLOCK128_CHAIN32: OrderClass = OrderClass {
    id: "dot_f8_block128_chain32",
    text: "block of 128, the last one may be shorter: part[c] = 0; element i of the row: part[i mod 32] = fma(f32(weight), \
           activation, part[i mod 32]); at the block's end chain[c] = fma(part[c], block_scale, chain[c]) for every c; chains \
           are added in a pair tree at distances 16, 8, 4, 2, 1; a residual is added last",
};

/// Weights of one row in blocks of 32 with a scale and a minimum a block: `value = scale * quant + minimum`.
#[derive(Debug, Clone, Copy)]
pub struct MinWeights<'a> {
    /// Unsigned quants, `k` of them.
    pub quants: &'a [u8],
    /// One a block.
    pub scales: &'a [f32],
    /// One a block.
    pub minima: &'a [f32],
}

/// Weights of one row in blocks of 32 with an integer scale a half: `value = scale * sub_scale * quant`.
#[derive(Debug, Clone, Copy)]
pub struct SubWeights<'a> {
    /// Quants in -32..=31, `k` of them.
    pub quants: &'a [i8],
    /// Two a block.
    pub sub_scales: &'a [i8],
    /// One a block.
    pub scales: &'a [f32],
}

/// Weights of one row in blocks of 16 with a scale a block: `value = outer * scale * quant`.
#[derive(Debug, Clone, Copy)]
pub struct E2m1Weights<'a> {
    /// Doubled E2M1 values, integers in -12..=12, `k` of them.
    pub quants: &'a [i8],
    /// One for 16 quants, halved, because the quants are doubled.
    pub scales: &'a [f32],
    /// One for the whole weight.
    pub outer: f32,
}

#[inline(always)]
fn integer_dot(weight: &[i8], activation: &[i8]) -> i32 {
    weight.iter().zip(activation).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum()
}

/// [`DOT_I8_BLOCK32_CHAIN8`] for one output: `k` quants a side, one scale per 32 of them, optional residual.
#[inline(always)]
pub fn dot_i8(
    weight: &[i8],
    weight_scales: &[f32],
    activation: &[i8],
    activation_scales: &[f32],
    residual: Option<f32>,
) -> f32 {
    let mut chains = [0.0_f32; 8];
    for (b, (w, x)) in weight.chunks_exact(QUANT_BLOCK).zip(activation.chunks_exact(QUANT_BLOCK)).enumerate() {
        let scale = weight_scales[b] * activation_scales[b];
        chains[b % 8] = (integer_dot(w, x) as f32).mul_add(scale, chains[b % 8]);
    }
    finish(pair_tree(chains), residual)
}

/// [`DOT_U4_MIN_BLOCK32_CHAIN8`] and [`DOT_U_MIN_BLOCK32_CHAIN8`] for one output: `k` quants a side, optional residual.
#[inline(always)]
pub fn dot_u_min(weight: MinWeights<'_>, activation: &[i8], activation_scales: &[f32], residual: Option<f32>) -> f32 {
    let mut chains = [0.0_f32; 8];
    for (b, (w, x)) in weight.quants.chunks_exact(QUANT_BLOCK).zip(activation.chunks_exact(QUANT_BLOCK)).enumerate() {
        let isum: i32 = w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
        let sum: i32 = x.iter().map(|x| i32::from(*x)).sum();
        let scale = weight.scales[b] * activation_scales[b];
        let offset = sum as f32 * activation_scales[b];
        let chain = (isum as f32).mul_add(scale, chains[b % 8]);
        chains[b % 8] = weight.minima[b].mul_add(offset, chain);
    }
    finish(pair_tree(chains), residual)
}

/// [`DOT_I8_SUB16_BLOCK32_CHAIN8`] for one output: `k` quants a side, optional residual.
#[inline(always)]
pub fn dot_i8_sub16(
    weight: SubWeights<'_>,
    activation: &[i8],
    activation_scales: &[f32],
    residual: Option<f32>,
) -> f32 {
    let mut chains = [0.0_f32; 8];
    for (b, (w, x)) in weight.quants.chunks_exact(QUANT_BLOCK).zip(activation.chunks_exact(QUANT_BLOCK)).enumerate() {
        let (half, sub) = (QUANT_BLOCK / 2, &weight.sub_scales[2 * b..]);
        let isum = i32::from(sub[0]) * integer_dot(&w[..half], &x[..half])
            + i32::from(sub[1]) * integer_dot(&w[half..], &x[half..]);
        let scale = weight.scales[b] * activation_scales[b];
        chains[b % 8] = (isum as f32).mul_add(scale, chains[b % 8]);
    }
    finish(pair_tree(chains), residual)
}

/// [`DOT_E2M1_BLOCK16_CHAIN8`] for one output: `k` quants a side, optional residual.
#[inline(always)]
pub fn dot_e2m1(weight: E2m1Weights<'_>, activation: &[i8], activation_scales: &[f32], residual: Option<f32>) -> f32 {
    let mut chains = [0.0_f32; 8];
    for (b, (w, x)) in weight.quants.chunks_exact(QUANT_BLOCK).zip(activation.chunks_exact(QUANT_BLOCK)).enumerate() {
        let (half, scales) = (QUANT_BLOCK / 2, &weight.scales[2 * b..]);
        let low = integer_dot(&w[..half], &x[..half]) as f32;
        let high = integer_dot(&w[half..], &x[half..]) as f32;
        let term = high.mul_add(scales[1], low * scales[0]);
        chains[b % 8] = term.mul_add(activation_scales[b], chains[b % 8]);
    }
    finish(pair_tree(chains) * weight.outer, residual)
}

/// `chains[i mod 32] = fma(w[i], x[i], chains[i mod 32])` for every `i`.
#[inline(always)]
fn fold(chains: &mut [f32; 32], w: &[f32], x: &[f32]) {
    let length = w.len().min(x.len());
    let ((w, w_rest), (x, x_rest)) = (w[..length].as_chunks::<32>(), x[..length].as_chunks::<32>());
    for (w, x) in w.iter().zip(x) {
        for (chain, (w, x)) in chains.iter_mut().zip(w.iter().zip(x)) {
            *chain = w.mul_add(*x, *chain);
        }
    }
    for (chain, (w, x)) in chains.iter_mut().zip(w_rest.iter().zip(x_rest)) {
        *chain = w.mul_add(*x, *chain);
    }
}

/// [`DOT_F32_CHAIN32`] for one output: `k` floats a side, optional residual.
#[inline(always)]
pub fn dot_f32(weight: &[f32], activation: &[f32], residual: Option<f32>) -> f32 {
    let mut chains = [0.0_f32; 32];
    fold(&mut chains, weight, activation);
    finish(pair_tree(chains), residual)
}

/// [`DOT_F8_BLOCK128_CHAIN32`] for one output: `k` floats a side, one scale for 128 of the weight, optional residual.
#[inline(always)]
pub fn dot_f8(weight: &[f32], block_scales: &[f32], activation: &[f32], residual: Option<f32>) -> f32 {
    let mut chains = [0.0_f32; 32];
    for (b, (w, x)) in weight.chunks(F8_BLOCK).zip(activation.chunks(F8_BLOCK)).enumerate() {
        let mut parts = [0.0_f32; 32];
        fold(&mut parts, w, x);
        for (chain, part) in chains.iter_mut().zip(parts) {
            *chain = part.mul_add(block_scales[b], *chain);
        }
    }
    finish(pair_tree(chains), residual)
}

fn finish(product: f32, residual: Option<f32>) -> f32 {
    match residual {
        None => product,
        Some(residual) => product + residual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_matters_and_is_kept() {
        // Summed left to right this is 0; the classes keep block 0 and block 8 in one chain.
        let mut activation = vec![0_i8; 32 * 9];
        activation[0] = 1;
        activation[32 * 8] = 1;
        let weight = activation.clone();
        let scales = vec![1.0; 9];
        let mut activation_scales = vec![1.0_f32; 9];
        activation_scales[8] = 1e-9;
        assert_eq!(dot_i8(&weight, &scales, &activation, &activation_scales, Some(-1.0)), 0.0);
    }

    #[test]
    fn sub_scales_belong_to_halves_and_stay_exact_at_their_ends() {
        let quants = vec![-32_i8; 32];
        let activation = vec![127_i8; 32];
        let weight = |sub_scales| SubWeights { quants: &quants, sub_scales, scales: &[1.0] };
        assert_eq!(dot_i8_sub16(weight(&[-128, -128]), &activation, &[1.0], None), 16_646_144.0);
        assert_eq!(dot_i8_sub16(weight(&[-128, -127]), &activation, &[1.0], None), 16_646_144.0 - 65_024.0);
        assert_eq!(dot_i8_sub16(weight(&[1, 0]), &activation, &[1.0], Some(1.0)), -65_023.0);
    }

    #[test]
    fn the_outer_scale_comes_before_the_residual() {
        let quants: Vec<i8> = (0..32).map(|i| if i < 16 { 12 } else { -1 }).collect();
        let weight = E2m1Weights { quants: &quants, scales: &[0.5, 2.0], outer: 3.0 };
        assert_eq!(dot_e2m1(weight, &[1; 32], &[0.25], Some(7.0)), (96.0 - 32.0) * 0.25 * 3.0 + 7.0);
    }

    #[test]
    fn block_scales_multiply_whole_parts_and_the_last_block_may_be_short() {
        let weight = vec![2.0_f32; 128 + 32];
        assert_eq!(dot_f8(&weight, &[1.0, 0.5], &vec![1.0; 160], None), 256.0 + 32.0);
        // 1 + 2^-24 is rounded inside the block, so the scale does not bring it back.
        let mut weight = vec![0.0_f32; 64];
        weight[0] = 1.0;
        weight[32] = f32::EPSILON / 2.0;
        assert_eq!(dot_f8(&weight, &[8.0], &vec![1.0; 64], Some(-8.0)), 0.0);
    }

    #[test]
    fn minima_are_multiplied_by_the_sum_of_the_activation() {
        let weight = MinWeights { quants: &[31; 32], scales: &[0.5], minima: &[-4.0] };
        assert_eq!(dot_u_min(weight, &[2; 32], &[0.25], None), (31.0 * 64.0 * 0.5 - 4.0 * 64.0) * 0.25);
    }
}
