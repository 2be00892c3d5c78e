//! One dot product at a time over stored blocks: eight blocks are reduced together, one lane of the accumulator a chain.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehl_ps, _mm_shuffle_ps,
    _mm256_abs_epi8, _mm256_add_epi32, _mm256_castps256_ps128, _mm256_cvtepi32_ps, _mm256_cvtph_ps,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute2x128_si256, _mm256_set1_epi16, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_sign_epi8,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;

use super::layout::PackedSegment;
use super::variants::Operands;
use crate::backend::host::Part;

const BLOCK_BYTES: usize = 34;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let row_bytes = weight.segment.row_bytes(k);
    for (column, row) in rows.enumerate() {
        let stored = &weight.bytes.as_slice()[row * row_bytes..][..row_bytes];
        for m in 0..operands.m {
            let quants = &operands.planes.quants[m * k..][..k];
            let scales = &operands.planes.scales[m * blocks..][..blocks];
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; the three slices hold `blocks` blocks.
            out.row(m)[column] = unsafe { dot(stored, quants, scales) };
        }
    }
}

/// One output.
///
/// # Safety
/// The CPU has the tier, and the slices hold the same number of blocks.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot(stored: &[u8], quants: &[i8], scales: &[f32]) -> f32 {
    let mut chains = _mm256_setzero_ps();
    let whole = scales.len() / 8;
    for group in 0..whole {
        let at = group * 8;
        // SAFETY: eight blocks from `at` lie inside all three slices.
        unsafe {
            let scales = _mm256_loadu_ps(scales.as_ptr().add(at));
            chains = fold::<8>(
                stored.as_ptr().add(at * BLOCK_BYTES),
                quants.as_ptr().add(at * QUANT_BLOCK),
                scales,
                chains,
                8,
            );
        }
    }
    let rest = scales.len() % 8;
    if rest > 0 {
        let at = whole * 8;
        let mut padded = [0.0_f32; 8];
        padded[..rest].copy_from_slice(&scales[at..]);
        // SAFETY: `rest` blocks from `at` lie inside the slices, and `fold` reads no more. A lane without a block adds
        // fma(0, 0, chain), which leaves the chain's bits: a chain is never -0, since it starts at +0 and a non-zero term
        // cannot round to zero.
        unsafe {
            let scales = _mm256_loadu_ps(padded.as_ptr());
            chains = fold::<7>(
                stored.as_ptr().add(at * BLOCK_BYTES),
                quants.as_ptr().add(at * QUANT_BLOCK),
                scales,
                chains,
                rest,
            );
        }
    }
    tree(chains)
}

/// Adds up to `N` blocks, one a lane, of which `live` exist.
///
/// # Safety
/// The CPU has the tier; `live` blocks can be read at both pointers and `live <= N <= 8`.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn fold<const N: usize>(
    stored: *const u8,
    quants: *const i8,
    scales: __m256,
    chains: __m256,
    live: usize,
) -> __m256 {
    let ones = _mm256_set1_epi16(1);
    let mut lanes = [_mm256_setzero_si256(); 8];
    let mut halves = [0_u16; 8];
    for i in 0..N {
        if i < live {
            // SAFETY: block `i` exists at both pointers.
            unsafe {
                let block = stored.add(i * BLOCK_BYTES);
                halves[i] = block.cast::<u16>().read_unaligned();
                let w = _mm256_loadu_si256(block.add(2).cast());
                let x = _mm256_loadu_si256(quants.add(i * QUANT_BLOCK).cast());
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                lanes[i] = _mm256_madd_epi16(pairs, ones);
            }
        }
    }
    // SAFETY: the array holds eight halves.
    let weight_scales = _mm256_cvtph_ps(unsafe { _mm_loadu_si128(halves.as_ptr().cast()) });
    let dots = _mm256_cvtepi32_ps(add_lanes(lanes));
    _mm256_fmadd_ps(dots, _mm256_mul_ps(weight_scales, scales), chains)
}

/// Lane `i` of the result is the sum of the eight lanes of `vectors[i]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_lanes(vectors: [__m256i; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = vectors;
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
    _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
}

/// The pair tree at distances 4, 2, 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tree(chains: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(chains), _mm256_extractf128_ps::<1>(chains));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
