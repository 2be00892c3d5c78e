//! One block at a time: four vectors of eight, reduced across their lanes.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_cvtss_f32, _mm_max_ps, _mm_max_ss, _mm_movehl_ps,
    _mm_shuffle_epi32, _mm_shuffle_ps, _mm256_add_epi32, _mm256_andnot_ps, _mm256_castps256_ps128,
    _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_mul_ps, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_ps,
    _mm256_setr_epi32, _mm256_storeu_si256,
};

use memra_contract::order::{QUANT_BLOCK, QUANT_FLUSH};

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = x.as_chunks::<QUANT_BLOCK>().0.iter().zip(quants.as_chunks_mut::<QUANT_BLOCK>().0);
    for (((x, quants), scale), sum) in blocks.zip(scales).zip(sums) {
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
        (*scale, *sum) = unsafe { block(x, quants) };
    }
}

/// One block; returns scale and sum.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn block(x: &[f32; QUANT_BLOCK], quants: &mut [i8; QUANT_BLOCK]) -> (f32, i16) {
    // SAFETY: eight elements from 8 * i lie inside the block for i below 4.
    let x: [__m256; 4] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) });
    let sign = _mm256_set1_ps(-0.0);
    let [a, b, c, d] = x.map(|v| _mm256_andnot_ps(sign, v));
    let maximum = largest(_mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d)));
    let (scale, inverse) = if maximum < QUANT_FLUSH { (0.0, 0.0) } else { (maximum / 127.0, 127.0 / maximum) };
    let inverse = _mm256_set1_ps(inverse);
    // The conversion rounds halves to even.
    let [a, b, c, d] = x.map(|v| _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse)));
    let sum = total(_mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d)));
    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    // Packing works inside halves: lanes of four bytes are a0 b0 c0 d0 a1 b1 c1 d1.
    let bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    // SAFETY: the block holds 32 bytes.
    unsafe { _mm256_storeu_si256(quants.as_mut_ptr().cast(), bytes) };
    (scale, sum as i16)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn largest(v: __m256) -> f32 {
    let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn total(v: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b00_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b00_00_00_01>(two)))
}
