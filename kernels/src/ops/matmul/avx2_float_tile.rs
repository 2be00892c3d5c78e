//! Some weight rows with some activation rows, for the narrower float formats. Sixteen of the thirty-two chains are alive in
//! a pass, two vectors an output, so that the accumulators of four outputs fit the registers; the second pass finds the
//! weights in the nearest cache.

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_and_si128, _mm_cmpeq_epi16, _mm_cvtepi8_epi16, _mm_cvtss_f32, _mm_loadl_epi64,
    _mm_loadu_si128, _mm_movehl_ps, _mm_or_si128, _mm_set1_epi16, _mm_shuffle_ps, _mm_slli_epi16, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
};
use std::ops::Range;

use memra_contract::order::F8_BLOCK;

use super::layout::PackedSegment;
use super::variants::Operands;
use crate::backend::host::Part;

/// How eight elements of a float format are widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Widen {
    F16,
    Bf16,
    E4m3,
}

/// f16 weights.
pub(super) fn f16(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    kernel::<{ Widen::F16 as u8 }>(operands, weight, rows, out);
}

/// bf16 weights.
pub(super) fn bf16(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    kernel::<{ Widen::Bf16 as u8 }>(operands, weight, rows, out);
}

/// E4M3 weights with a scale for 128.
pub(super) fn e4m3(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    kernel::<{ Widen::E4m3 as u8 }>(operands, weight, rows, out);
}

/// Whether 128 elements have a scale beside the weight.
const fn has_scales(widen: u8) -> bool {
    widen == Widen::E4m3 as u8
}

const fn element_bytes(widen: u8) -> usize {
    if has_scales(widen) { 1 } else { 2 }
}

/// Eight elements.
///
/// # Safety
/// The CPU has the tier, and the elements can be read.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<const WIDEN: u8>(at: *const u8) -> __m256 {
    // SAFETY: eight elements can be read by the caller's promise.
    unsafe {
        if WIDEN == Widen::F16 as u8 {
            return _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
        }
        if WIDEN == Widen::Bf16 as u8 {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            return _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits));
        }
        // The low bits of a code are those of an f16 that is smaller by 2^8, but for the codes of NaN.
        let codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(at.cast()));
        let magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
        let nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
        let sign = _mm_and_si128(codes, _mm_set1_epi16(i16::MIN));
        let half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16::<7>(magnitude), nan), sign);
        _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0))
    }
}

#[expect(unsafe_code, reason = "SIMD module")]
fn kernel<const WIDEN: u8>(
    operands: &Operands<'_>,
    weight: &PackedSegment,
    rows: Range<usize>,
    out: &mut Part<'_, f32>,
) {
    assert!(operands.floats.len() >= operands.m * operands.k && operands.k.is_multiple_of(32));
    let mut m = 0;
    while m < operands.m {
        let (r, t) = [(1, 4), (2, 2), (4, 1)].into_iter().find(|(_, t)| *t <= operands.m - m).unwrap_or((4, 1));
        let mut row = rows.start;
        while row < rows.end {
            let r = if rows.end - row < r { 1 } else { r };
            let mut results = [[0.0; 4]; 4];
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; the activation was checked above, and
            // the weight holds the rows that its segment says.
            unsafe {
                match (r, t) {
                    (1, 4) => tile::<WIDEN, 1, 4>(operands, weight, row, m, &mut results),
                    (2, _) => tile::<WIDEN, 2, 2>(operands, weight, row, m, &mut results),
                    (1, 2) => tile::<WIDEN, 1, 2>(operands, weight, row, m, &mut results),
                    (4, _) => tile::<WIDEN, 4, 1>(operands, weight, row, m, &mut results),
                    _ => tile::<WIDEN, 1, 1>(operands, weight, row, m, &mut results),
                }
            }
            for (i, results) in results[..t].iter().enumerate() {
                out.row(m + i)[row - rows.start..][..r].copy_from_slice(&results[..r]);
            }
            row += r;
        }
        m += t;
    }
}

/// `R` weight rows with `T` rows of the activation; `results[t][r]` are theirs.
///
/// # Safety
/// The CPU has the tier, and the operands hold rows `m..m + T`.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<const WIDEN: u8, const R: usize, const T: usize>(
    operands: &Operands<'_>,
    weight: &PackedSegment,
    row: usize,
    m: usize,
    results: &mut [[f32; 4]; 4],
) {
    let k = operands.k;
    let row_bytes = k * element_bytes(WIDEN);
    let weights: [&[u8]; R] = std::array::from_fn(|r| &weight.bytes.as_slice()[(row + r) * row_bytes..][..row_bytes]);
    let scales: [&[f32]; R] = std::array::from_fn(|r| weight.segment.row_scales(k, &weight.outer, row + r));
    let x: [&[f32]; T] = std::array::from_fn(|t| &operands.floats[(m + t) * k..][..k]);
    let mut passes = [[[[_mm256_setzero_ps(); 2]; T]; R]; 2];
    let step = if has_scales(WIDEN) { F8_BLOCK } else { k };
    for (pass, chains) in passes.iter_mut().enumerate() {
        for (block, start) in (0..k).step_by(step).enumerate() {
            let mut parts = [[[_mm256_setzero_ps(); 2]; T]; R];
            for at in (start + pass * 16..k.min(start + step)).step_by(32) {
                for r in 0..R {
                    // SAFETY: `k` is a multiple of 32, so sixteen elements from here lie inside the rows.
                    unsafe {
                        let w = weights[r].as_ptr().add(at * element_bytes(WIDEN));
                        let (low, high) = (load::<WIDEN>(w), load::<WIDEN>(w.add(8 * element_bytes(WIDEN))));
                        for t in 0..T {
                            let x = x[t].as_ptr().add(at);
                            parts[r][t][0] = _mm256_fmadd_ps(low, _mm256_loadu_ps(x), parts[r][t][0]);
                            parts[r][t][1] = _mm256_fmadd_ps(high, _mm256_loadu_ps(x.add(8)), parts[r][t][1]);
                        }
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    for v in 0..2 {
                        chains[r][t][v] = if has_scales(WIDEN) {
                            _mm256_fmadd_ps(parts[r][t][v], _mm256_set1_ps(scales[r][block]), chains[r][t][v])
                        } else {
                            parts[r][t][v]
                        };
                    }
                }
            }
        }
    }
    for r in 0..R {
        for t in 0..T {
            results[t][r] = tree(passes[0][r][t], passes[1][r][t]);
        }
    }
}

/// The pair tree at distances 16, 8, 4, 2, 1.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tree([a, b]: [__m256; 2], [c, d]: [__m256; 2]) -> f32 {
    let eight = _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
