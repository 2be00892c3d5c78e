//! The row's factor, then a buffer of normed values at a time, which stays in the first cache, and the blocks of it.

use std::arch::x86_64::{
    _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use memra_contract::IsaTier;
use memra_contract::order::QUANT_BLOCK;

use crate::ops::quantise;
use crate::ops::rms_norm::Operands;

/// Elements of the buffer.
const BUFFER: usize = 1024;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    const BLOCKS: usize = BUFFER / QUANT_BLOCK;
    let quantise = quantise::kernel_for(IsaTier::Avx2);
    let (hidden, blocks) = (operands.hidden, operands.hidden / QUANT_BLOCK);
    let mut buffer = [0.0_f32; BUFFER];
    let rows = operands.x.chunks_exact(hidden).zip(quants.chunks_exact_mut(hidden));
    for ((x, quants), (scales, sums)) in rows.zip(scales.chunks_exact_mut(blocks).zip(sums.chunks_exact_mut(blocks))) {
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
        let squares = unsafe { sum_of_squares(x) };
        let factor = 1.0 / (squares / hidden as f32 + operands.epsilon).sqrt();
        let inputs = x.chunks(BUFFER).zip(operands.weight.chunks(BUFFER)).zip(quants.chunks_mut(BUFFER));
        for (((x, weight), quants), (scales, sums)) in
            inputs.zip(scales.chunks_mut(BLOCKS).zip(sums.chunks_mut(BLOCKS)))
        {
            let normed = &mut buffer[..x.len()];
            // SAFETY: as above.
            unsafe { scale(x, weight, factor, normed) };
            quantise(normed, quants, scales, sums);
        }
    }
}

/// Sum of squares in 128 chains and their pair tree; the row is a multiple of eight long.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut chains = [_mm256_setzero_ps(); 16];
    let (groups, rest) = x.as_chunks::<128>();
    for half in 0..2 {
        let mut sums = [_mm256_setzero_ps(); 8];
        for group in groups {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: eight elements from 64 * half + 8 * v lie inside the group of 128.
                let x = unsafe { _mm256_loadu_ps(group.as_ptr().add(64 * half + 8 * v)) };
                *sum = _mm256_fmadd_ps(x, x, *sum);
            }
        }
        chains[half * 8..half * 8 + 8].copy_from_slice(&sums);
    }
    for (chain, x) in chains.iter_mut().zip(rest.as_chunks::<8>().0) {
        // SAFETY: the chunk holds eight elements.
        let x = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        *chain = _mm256_fmadd_ps(x, x, *chain);
    }
    for distance in [8, 4, 2, 1] {
        for i in 0..distance {
            chains[i] = _mm256_add_ps(chains[i], chains[i + distance]);
        }
    }
    let four = _mm_add_ps(_mm256_castps256_ps128(chains[0]), _mm256_extractf128_ps::<1>(chains[0]));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}

/// `out = (x * factor) * weight`, whole vectors of eight.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn scale(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    assert!(weight.len() == x.len() && out.len() == x.len() && x.len().is_multiple_of(8));
    let factor = _mm256_set1_ps(factor);
    for at in (0..x.len()).step_by(8) {
        // SAFETY: eight elements from `at` lie inside all three slices, whose length is a multiple of eight.
        unsafe {
            let y = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at)), factor);
            let y = _mm256_mul_ps(y, _mm256_loadu_ps(weight.as_ptr().add(at)));
            _mm256_storeu_ps(out.as_mut_ptr().add(at), y);
        }
    }
}
