//! Passes of sixteen lanes: the sum of weights in 64 chains, and the scan for tokens that may win, whose random bits are made
//! and compared with a bound in vectors.

use std::arch::x86_64::{
    __m512, __m512i, _CMP_GE_OQ, _CMP_GT_OQ, _CMP_NGT_UQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_POS_INF, _mm512_add_epi32,
    _mm512_add_ps, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_ps, _mm512_cvtps_epi32, _mm512_div_ps,
    _mm512_loadu_ps, _mm512_mask_add_ps, _mm512_mask_cmp_ps_mask, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps,
    _mm512_mullo_epi32, _mm512_roundscale_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi32, _mm512_setzero_ps,
    _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_ps, _mm512_sub_epi32, _mm512_sub_ps, _mm512_xor_si512,
};

use memra_contract::order::{self, GUMBEL_HIGHEST, MIX32_FIRST, MIX32_SECOND, RowParams, SAMPLE_CHAINS};

use super::TaskScratch;
use super::select::{self, Best, Passes, SLACK};
use crate::ops::argmax::avx512vnni_pieces;
use crate::vector::avx512vnni_exp::exp;

const LANES: usize = 16;

static PASSES: Passes = Passes { largest: avx512vnni_pieces::kernel, total, exp: exp_all, offer_all };

pub(super) fn kernel(logits: &[f32], params: &RowParams, scratch: &mut TaskScratch) -> u32 {
    select::sample(&PASSES, logits, params, scratch)
}

#[expect(unsafe_code, reason = "SIMD module")]
fn total(logits: &[f32], maximum: f32, temperature: f32) -> f32 {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    order::pair_tree(unsafe { chains(logits, maximum, temperature) })
}

#[expect(unsafe_code, reason = "SIMD module")]
fn exp_all(values: &mut [f32]) {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    unsafe { exp_each(values) };
}

#[expect(unsafe_code, reason = "SIMD module")]
fn offer_all(logits: &[f32], best: &mut Best) {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    unsafe { scan(logits, best) };
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn exp_each(values: &mut [f32]) {
    let (groups, rest) = values.as_chunks_mut::<LANES>();
    for group in groups {
        // SAFETY: the group holds sixteen elements.
        unsafe { _mm512_storeu_ps(group.as_mut_ptr(), exp(_mm512_loadu_ps(group.as_ptr()))) };
    }
    for value in rest {
        *value = order::exp(*value);
    }
}

/// The chains of the sum of weights; a logit that is no candidate adds zero.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn chains(logits: &[f32], maximum: f32, temperature: f32) -> [f32; SAMPLE_CHAINS] {
    let mut sums = [_mm512_setzero_ps(); SAMPLE_CHAINS / LANES];
    let (largest, divisor) = (_mm512_set1_ps(maximum), _mm512_set1_ps(temperature));
    let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
    let mut add = |group: &[f32; SAMPLE_CHAINS]| {
        for (v, sum) in sums.iter_mut().enumerate() {
            // SAFETY: sixteen elements from 16 * v lie inside the group of 64.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr().add(LANES * v)) };
            let weight = exp(_mm512_div_ps(_mm512_sub_ps(x, largest), divisor));
            *sum = _mm512_mask_add_ps(*sum, _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, lowest), *sum, weight);
        }
    };
    let (groups, rest) = logits.as_chunks::<SAMPLE_CHAINS>();
    groups.iter().for_each(&mut add);
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; SAMPLE_CHAINS];
        padded[..rest.len()].copy_from_slice(rest);
        add(&padded);
    }
    let mut chains = [0.0_f32; SAMPLE_CHAINS];
    for (chains, sum) in chains.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
        // SAFETY: the chunk holds sixteen elements.
        unsafe { _mm512_storeu_ps(chains.as_mut_ptr(), sum) };
    }
    chains
}

/// Offers the tokens whose random bits may let them win.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scan(logits: &[f32], best: &mut Best) {
    let (largest, divisor) = (_mm512_set1_ps(best.maximum), _mm512_set1_ps(best.temperature));
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut value = best.value;
    let mut least = least_difference(best);
    let (groups, rest) = logits.as_chunks::<LANES>();
    for (g, group) in groups.iter().enumerate() {
        // SAFETY: the group holds sixteen elements.
        let difference = _mm512_sub_ps(unsafe { _mm512_loadu_ps(group.as_ptr()) }, largest);
        let is_near = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(difference, _mm512_set1_ps(least));
        if is_near == 0 {
            continue;
        }
        let distance = _mm512_sub_ps(_mm512_div_ps(difference, divisor), _mm512_set1_ps(value));
        let tokens = _mm512_add_epi32(_mm512_set1_epi32((g * LANES) as i32), lanes);
        let left = left_of_one(tokens, best.keys);
        // Not above the bound, or not comparable.
        let mut mask = _mm512_mask_cmp_ps_mask::<_CMP_NGT_UQ>(is_near, left, bound(distance));
        while mask != 0 {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            best.offer((g * LANES + lane) as u32, group[lane]);
        }
        if best.value > value {
            value = best.value;
            least = least_difference(best);
        }
    }
    for (i, logit) in rest.iter().enumerate() {
        best.offer((groups.len() * LANES + i) as u32, *logit);
    }
}

/// Below this difference to the largest logit no token can win.
fn least_difference(best: &Best) -> f32 {
    // The product is near enough unless it is subnormal.
    if best.temperature < 1e-30 {
        return f32::NEG_INFINITY;
    }
    best.temperature * (best.value - GUMBEL_HIGHEST - 0.02)
}

/// `(1 - u) * 2^24` of the tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn left_of_one(tokens: __m512i, keys: [u32; 2]) -> __m512 {
    let [first, second] = keys.map(|key| _mm512_set1_epi32(key.cast_signed()));
    let bits = mix32(_mm512_xor_si512(mix32(_mm512_xor_si512(tokens, first)), second));
    let left = _mm512_sub_epi32(_mm512_set1_epi32(1 << 24), _mm512_srli_epi32::<8>(bits));
    _mm512_sub_ps(_mm512_cvtepi32_ps(left), _mm512_set1_ps(0.5))
}

/// `memra_contract::order::mix32`, lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn mix32(x: __m512i) -> __m512i {
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<16>(x));
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MIX32_FIRST.cast_signed()));
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MIX32_SECOND.cast_signed()));
    _mm512_xor_si512(x, _mm512_srli_epi32::<16>(x))
}

/// The largest `(1 - u) * 2^24` of a token that can win, from `z - best`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn bound(distance: __m512) -> __m512 {
    let power = _mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(_mm512_mul_ps(
        distance,
        _mm512_set1_ps(std::f32::consts::LOG2_E),
    ));
    let power = _mm512_max_ps(_mm512_min_ps(power, _mm512_set1_ps(30.0)), _mm512_set1_ps(-60.0));
    let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(power), _mm512_set1_epi32(24 + 127));
    let power = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent));
    _mm512_add_ps(_mm512_mul_ps(power, _mm512_set1_ps(SLACK.0)), _mm512_set1_ps(SLACK.1))
}
