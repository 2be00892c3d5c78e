//! `memra_contract::order::quantise_block` for four blocks that lie in registers.

use std::arch::x86_64::{
    __m128, __m256, __m512, _mm_add_epi32, _mm_andnot_ps, _mm_cmplt_ps, _mm_div_ps, _mm_max_ps, _mm_packs_epi32,
    _mm_set1_ps, _mm_storel_epi64, _mm_storeu_ps, _mm_storeu_si128, _mm256_add_epi32, _mm256_castps256_ps128,
    _mm256_castsi256_si128, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_hadd_epi32, _mm256_max_ps,
    _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_abs_ps, _mm512_add_epi32,
    _mm512_castps512_ps256, _mm512_castsi512_si256, _mm512_cvtps_epi32, _mm512_cvtsepi32_epi8, _mm512_extractf32x8_ps,
    _mm512_extracti64x4_epi64, _mm512_max_ps, _mm512_mul_ps, _mm512_set1_ps,
};

use memra_contract::order::{QUANT_BLOCK, QUANT_FLUSH};

/// Blocks of a group.
pub(crate) const GROUP: usize = 4;

/// A block: its lower and its upper half.
pub(crate) type Block = [__m512; 2];

/// Quantises a group, or the first blocks of one: as many as `scales` holds, at most four.
///
/// # Panics
/// When the slices do not hold the same number of blocks, or more than four.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) fn quantise(group: &[Block; GROUP], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = scales.len();
    assert!(blocks <= GROUP && quants.len() == blocks * QUANT_BLOCK && sums.len() == blocks);
    if blocks == GROUP {
        // SAFETY: the slices hold four blocks.
        unsafe { whole(group, quants, scales, sums) };
        return;
    }
    let (mut q, mut scale, mut sum) = ([0_i8; GROUP * QUANT_BLOCK], [0.0_f32; GROUP], [0_i16; GROUP]);
    // SAFETY: the arrays hold four blocks.
    unsafe { whole(group, &mut q, &mut scale, &mut sum) };
    quants.copy_from_slice(&q[..blocks * QUANT_BLOCK]);
    scales.copy_from_slice(&scale[..blocks]);
    sums.copy_from_slice(&sum[..blocks]);
}

/// Four blocks.
///
/// # Safety
/// The CPU has the tier; `quants` holds four blocks, `scales` and `sums` four elements.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn whole(group: &[Block; GROUP], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let maxima = group.map(|[low, high]| {
        let v = _mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high));
        _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))
    });
    let maximum = largest(maxima);
    let is_flushed = _mm_cmplt_ps(maximum, _mm_set1_ps(QUANT_FLUSH));
    let top = _mm_set1_ps(127.0);
    let scale = _mm_andnot_ps(is_flushed, _mm_div_ps(maximum, top));
    // A flushed block may divide to infinity; the mask takes it away before it is used.
    let inverse = _mm_andnot_ps(is_flushed, _mm_div_ps(top, maximum));
    let mut inverses = [0.0_f32; GROUP];
    // SAFETY: both hold four elements.
    unsafe {
        _mm_storeu_ps(scales.as_mut_ptr(), scale);
        _mm_storeu_ps(inverses.as_mut_ptr(), inverse);
    }
    let mut totals = [_mm256_setzero_si256(); GROUP];
    for (block, halves) in group.iter().enumerate() {
        let inverse = _mm512_set1_ps(inverses[block]);
        // The conversion rounds halves to even.
        let [low, high] = halves.map(|v| _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse)));
        let both = _mm512_add_epi32(low, high);
        totals[block] = _mm256_add_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64::<1>(both));
        // SAFETY: `quants` holds four blocks of 32 bytes.
        unsafe {
            let target = quants.as_mut_ptr().add(block * QUANT_BLOCK);
            _mm_storeu_si128(target.cast(), _mm512_cvtsepi32_epi8(low));
            _mm_storeu_si128(target.add(QUANT_BLOCK / 2).cast(), _mm512_cvtsepi32_epi8(high));
        }
    }
    let [a, b, c, d] = totals;
    let halves = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let total = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    // SAFETY: `sums` holds four 16-bit elements, which are the low eight bytes.
    unsafe { _mm_storel_epi64(sums.as_mut_ptr().cast(), _mm_packs_epi32(total, total)) };
}

/// Lane `i` is the largest lane of `v[i]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn largest([a, b, c, d]: [__m256; GROUP]) -> __m128 {
    let ab = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let cd = _mm256_max_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    // ab holds a b a b in each half, cd holds c d c d.
    let abcd = _mm256_max_ps(_mm256_shuffle_ps::<0b01_00_01_00>(ab, cd), _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd));
    _mm_max_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps::<1>(abcd))
}
