//! The row's factor in eight vectors of chains, then four blocks at a time, normed and quantised without leaving the
//! registers.

use std::arch::x86_64::{
    __m512, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm512_add_ps, _mm512_castps512_ps256, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

use memra_contract::order::QUANT_BLOCK;

use crate::ops::rms_norm::Operands;
use crate::vector::avx512vnni_quantise::{Block, GROUP, quantise};

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let (hidden, blocks) = (operands.hidden, operands.hidden / QUANT_BLOCK);
    let rows = operands.x.chunks_exact(hidden).zip(quants.chunks_exact_mut(hidden));
    for ((x, quants), (scales, sums)) in rows.zip(scales.chunks_exact_mut(blocks).zip(sums.chunks_exact_mut(blocks))) {
        // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
        unsafe {
            let factor = 1.0 / (sum_of_squares(x) / hidden as f32 + operands.epsilon).sqrt();
            groups(x, operands.weight, factor, quants, scales, sums);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn groups(x: &[f32], weight: &[f32], factor: f32, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    const SPAN: usize = GROUP * QUANT_BLOCK;
    let factor = _mm512_set1_ps(factor);
    let inputs = x.chunks(SPAN).zip(weight.chunks(SPAN)).zip(quants.chunks_mut(SPAN));
    for (((x, weight), quants), (scales, sums)) in inputs.zip(scales.chunks_mut(GROUP).zip(sums.chunks_mut(GROUP))) {
        let mut group = [[_mm512_setzero_ps(); 2]; GROUP];
        let blocks = x.as_chunks().0.iter().zip(weight.as_chunks().0);
        for (block, (x, weight)) in group.iter_mut().zip(blocks) {
            *block = normed(x, weight, factor);
        }
        quantise(&group, quants, scales, sums);
    }
}

#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn normed(x: &[f32; QUANT_BLOCK], weight: &[f32; QUANT_BLOCK], factor: __m512) -> Block {
    // SAFETY: sixteen elements from 0 and from 16 lie inside a block.
    unsafe {
        [
            _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), factor), _mm512_loadu_ps(weight.as_ptr())),
            _mm512_mul_ps(
                _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr().add(16)), factor),
                _mm512_loadu_ps(weight.as_ptr().add(16)),
            ),
        ]
    }
}

/// Sum of squares in 128 chains and their pair tree; the row is a multiple of 32 long.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut chains = [_mm512_setzero_ps(); 8];
    let (groups, rest) = x.as_chunks::<128>();
    for group in groups {
        for (v, chain) in chains.iter_mut().enumerate() {
            // SAFETY: sixteen elements from 16 * v lie inside the group of 128.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr().add(16 * v)) };
            *chain = _mm512_fmadd_ps(x, x, *chain);
        }
    }
    for (chain, x) in chains.iter_mut().zip(rest.as_chunks::<16>().0) {
        // SAFETY: the chunk holds sixteen elements.
        let x = unsafe { _mm512_loadu_ps(x.as_ptr()) };
        *chain = _mm512_fmadd_ps(x, x, *chain);
    }
    for distance in [4, 2, 1] {
        for i in 0..distance {
            chains[i] = _mm512_add_ps(chains[i], chains[i + distance]);
        }
    }
    let eight = _mm256_add_ps(_mm512_castps512_ps256(chains[0]), _mm512_extractf32x8_ps::<1>(chains[0]));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
