//! Some weight rows with some activation rows: the thirty-two chains are the lanes of two vectors an output. Weights of
//! every float format are widened as they are loaded, which is exact.
//!
//! With few rows of the activation several weight rows go together, so that enough chains are alive to hide the latency of
//! an addition; with many a weight row goes alone and is used for all of them.

use std::arch::x86_64::{
    __m512, _MM_HINT_T0, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehl_ps, _mm_prefetch,
    _mm_shuffle_ps, _mm256_add_ps, _mm256_and_si256, _mm256_castps256_ps128, _mm256_cmpeq_epi16, _mm256_cvtepi8_epi16,
    _mm256_extractf128_ps, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi16, _mm256_slli_epi16, _mm512_add_ps,
    _mm512_castps512_ps256, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
};
use std::ops::Range;

use memra_contract::order::F8_BLOCK;

use super::layout::PackedSegment;
use super::variants::Operands;
use crate::backend::host::Part;

/// How far ahead of its use a weight is asked for.
const AHEAD_BYTES: usize = 8_192;

/// A float format.
pub(super) trait Widened {
    /// Bytes of an element.
    const BYTES: usize;
    /// Whether 128 elements have a scale beside the weight.
    const HAS_SCALES: bool;

    /// Sixteen elements.
    ///
    /// # Safety
    /// The CPU has the tier, and the elements can be read.
    #[expect(unsafe_code, reason = "SIMD module")]
    unsafe fn load(at: *const u8) -> __m512;
}

macro_rules! widened {
    ($name:ident, $bytes:literal, $has_scales:literal, $at:ident => $body:expr) => {
        #[derive(Debug)]
        pub(super) struct $name;

        #[expect(unsafe_code, reason = "SIMD module")]
        impl Widened for $name {
            const BYTES: usize = $bytes;
            const HAS_SCALES: bool = $has_scales;

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
            unsafe fn load($at: *const u8) -> __m512 {
                // SAFETY: sixteen elements can be read by the caller's promise.
                unsafe { $body }
            }
        }
    };
}

widened!(F32, 4, false, at => _mm512_loadu_ps(at.cast()));
widened!(F16, 2, false, at => _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())));
widened!(Bf16, 2, false, at => {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()))))
});
// The low bits of a code are those of an f16 that is smaller by 2^8, but for the codes of NaN.
widened!(E4m3, 1, true, at => {
    let codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast()));
    let magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
    let is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
    let magnitude =
        _mm256_or_si256(_mm256_slli_epi16::<7>(magnitude), _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00)));
    let sign = _mm256_and_si256(codes, _mm256_set1_epi16(i16::MIN));
    _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(magnitude, sign)), _mm512_set1_ps(256.0))
});

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel<F: Widened>(
    operands: &Operands<'_>,
    weight: &PackedSegment,
    rows: Range<usize>,
    out: &mut Part<'_, f32>,
) {
    assert!(operands.floats.len() >= operands.m * operands.k && operands.k.is_multiple_of(32));
    let mut first = 0;
    while first < operands.m {
        let tile = Tile { operands, weight, first, column: rows.start };
        // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier; the activation was checked above,
        // and the weight holds the rows that its segment says.
        first += unsafe {
            match operands.m - first {
                1 => tile.run::<F, 4, 1>(rows.clone(), out),
                2 | 3 => tile.run::<F, 4, 2>(rows.clone(), out),
                4..8 => tile.run::<F, 2, 4>(rows.clone(), out),
                _ => tile.run::<F, 1, 8>(rows.clone(), out),
            }
        };
    }
}

struct Tile<'a> {
    operands: &'a Operands<'a>,
    weight: &'a PackedSegment,
    first: usize,
    column: usize,
}

#[expect(unsafe_code, reason = "SIMD module")]
impl Tile<'_> {
    /// All weight rows, `R` together, with `T` rows of the activation; returns `T`.
    ///
    /// # Safety
    /// The CPU has the tier, and the operands hold rows `first..first + T`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<F: Widened, const R: usize, const T: usize>(
        &self,
        rows: Range<usize>,
        out: &mut Part<'_, f32>,
    ) -> usize {
        let whole = rows.start + rows.len() / R * R;
        for row in (rows.start..whole).step_by(R) {
            // SAFETY: the caller's promise, and the rows are those of the range.
            unsafe { self.rows::<F, R, T>(row, out) };
        }
        for row in whole..rows.end {
            // SAFETY: as above.
            unsafe { self.rows::<F, 1, T>(row, out) };
        }
        T
    }

    /// `R` weight rows with `T` rows of the activation.
    ///
    /// # Safety
    /// As for `run`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn rows<F: Widened, const R: usize, const T: usize>(&self, row: usize, out: &mut Part<'_, f32>) {
        let PackedSegment { segment, outer, .. } = self.weight;
        let k = self.operands.k;
        let row_bytes = k * F::BYTES;
        let weights: [&[u8]; R] =
            std::array::from_fn(|r| &self.weight.bytes.as_slice()[(row + r) * row_bytes..][..row_bytes]);
        let scales: [&[f32]; R] = std::array::from_fn(|r| segment.row_scales(k, outer, row + r));
        let x: [&[f32]; T] = std::array::from_fn(|t| &self.operands.floats[(self.first + t) * k..][..k]);
        let mut chains = [[[_mm512_setzero_ps(); 2]; T]; R];
        let step = if F::HAS_SCALES { F8_BLOCK } else { k };
        for (block, start) in (0..k).step_by(step).enumerate() {
            let mut parts = [[[_mm512_setzero_ps(); 2]; T]; R];
            for at in (start..k.min(start + step)).step_by(32) {
                // SAFETY: `k` is a multiple of 32, so 32 elements from here lie inside the rows; prefetches may miss them.
                unsafe {
                    for r in 0..R {
                        let w = weights[r].as_ptr().add(at * F::BYTES);
                        if self.first == 0 {
                            _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD_BYTES).cast());
                        }
                        let (low, high) = (F::load(w), F::load(w.add(16 * F::BYTES)));
                        for t in 0..T {
                            let x = x[t].as_ptr().add(at);
                            parts[r][t][0] = _mm512_fmadd_ps(low, _mm512_loadu_ps(x), parts[r][t][0]);
                            parts[r][t][1] = _mm512_fmadd_ps(high, _mm512_loadu_ps(x.add(16)), parts[r][t][1]);
                        }
                    }
                }
            }
            if !F::HAS_SCALES {
                chains = parts;
                break;
            }
            for r in 0..R {
                let scale = _mm512_set1_ps(scales[r][block]);
                for t in 0..T {
                    for v in 0..2 {
                        chains[r][t][v] = _mm512_fmadd_ps(parts[r][t][v], scale, chains[r][t][v]);
                    }
                }
            }
        }
        for (r, chains) in chains.into_iter().enumerate() {
            for (t, chains) in chains.into_iter().enumerate() {
                out.row(self.first + t)[row - self.column + r] = tree(chains);
            }
        }
    }
}

/// The pair tree at distances 16, 8, 4, 2, 1.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tree([a, b]: [__m512; 2]) -> f32 {
    let sixteen = _mm512_add_ps(a, b);
    let eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps::<1>(sixteen));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}
