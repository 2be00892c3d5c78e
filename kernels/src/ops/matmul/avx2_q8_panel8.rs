//! Panels of eight weight rows, a lane a row.
//!
//! A lane's four products of a group are formed from the weight's absolute value and the activation with the weight's sign,
//! which keeps the 16-bit pair sums exact: 2 * 128 * 127 is below 2^15. The panel is in chain order, as in the wider form.

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi32, _mm256_add_ps, _mm256_cvtepi32_ps,
    _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_storeu_ps,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;

use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 8;
/// Bytes of one block of a panel's quants.
const BLOCK_BYTES: usize = ROWS * QUANT_BLOCK;
/// Bytes of one block of a panel's scales.
const SCALE_BYTES: usize = ROWS * 2;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let stride = weight.layout.stride(weight.segment, operands.k);
    let bytes = weight.bytes.as_slice();
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let planes = operands.planes;
    assert!(planes.quants.len() >= operands.m * k && planes.scales.len() >= operands.m * blocks);
    assert!(rows.start.is_multiple_of(ROWS));
    let mut column = 0;
    for panel in rows.start / ROWS..rows.end.div_ceil(ROWS) {
        let bytes = &bytes[panel * stride..][..stride];
        let live = ROWS.min(rows.len() - column);
        let mut m = 0;
        while m < operands.m {
            let tile = Tile { operands, panel: bytes, blocks, first: m, column, live };
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; the slices were checked above for all
            // rows of the activation, and a panel holds `blocks` blocks of quants and scales by its layout.
            m += unsafe {
                match operands.m - m {
                    1 => tile.run::<1>(out),
                    2 => tile.run::<2>(out),
                    3 => tile.run::<3>(out),
                    _ => tile.run::<4>(out),
                }
            };
        }
        column += live;
    }
}

struct Tile<'a> {
    operands: &'a Operands<'a>,
    panel: &'a [u8],
    blocks: usize,
    first: usize,
    column: usize,
    live: usize,
}

#[expect(unsafe_code, reason = "SIMD module")]
impl Tile<'_> {
    /// One panel with `T` rows of the activation; returns `T`.
    ///
    /// # Safety
    /// The CPU has the tier, and the operands hold rows `first..first + T`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<const T: usize>(&self, out: &mut Part<'_, f32>) -> usize {
        let quants = self.panel.as_ptr();
        // SAFETY: scales follow the quants of the panel.
        let scales = unsafe { quants.add(self.blocks * BLOCK_BYTES) };
        let mut slot = 0;
        let mut partial = [[_mm256_setzero_ps(); T]; 3];
        for (step, chain) in CHAIN_ORDER.into_iter().enumerate() {
            let mut sums = [_mm256_setzero_ps(); T];
            let mut block = chain;
            while block < self.blocks {
                // SAFETY: `slot` counts the blocks of the panel and stays below `blocks`.
                unsafe {
                    self.fold(quants.add(slot * BLOCK_BYTES), scales.add(slot * SCALE_BYTES), block, &mut sums);
                }
                slot += 1;
                block += 8;
            }
            // Steps 0, 2, 4, 6 open a pair; the others close it, and 3 and 7 close pairs of pairs.
            let level = [0, 0, 1, 1, 1, 1, 2, 2][step];
            for t in 0..T {
                if step % 2 == 0 {
                    partial[level][t] = sums[t];
                } else {
                    partial[level][t] = _mm256_add_ps(partial[level][t], sums[t]);
                    if step == 7 {
                        partial[1][t] = _mm256_add_ps(partial[1][t], partial[2][t]);
                    }
                    if step == 3 || step == 7 {
                        partial[0][t] = _mm256_add_ps(partial[0][t], partial[1][t]);
                    }
                }
            }
        }
        for (t, result) in partial[0].into_iter().enumerate() {
            let mut lanes = [0.0_f32; ROWS];
            // SAFETY: the array holds eight elements.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), result) };
            out.row(self.first + t)[self.column..][..self.live].copy_from_slice(&lanes[..self.live]);
        }
        T
    }

    /// Adds one block to the chain.
    ///
    /// # Safety
    /// As for `run`; the pointers lead to a block of quants and of scales.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn fold<const T: usize>(&self, quants: *const u8, scales: *const u8, block: usize, sums: &mut [__m256; T]) {
        let planes = self.operands.planes;
        let at: [usize; T] = std::array::from_fn(|t| (self.first + t) * self.blocks + block);
        let ones = _mm256_set1_epi16(1);
        let mut dots: [__m256i; T] = [_mm256_setzero_si256(); T];
        // SAFETY: the caller's promise covers rows `first..first + T` and this block of the panel.
        unsafe {
            for g in 0..8 {
                let w = _mm256_loadu_si256(quants.add(g * 32).cast());
                let magnitude = _mm256_abs_epi8(w);
                for t in 0..T {
                    let x = planes.quants.as_ptr().add(at[t] * QUANT_BLOCK + g * 4).cast::<i32>().read_unaligned();
                    let signed = _mm256_sign_epi8(_mm256_set1_epi32(x), w);
                    let pairs = _mm256_maddubs_epi16(magnitude, signed);
                    dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(pairs, ones));
                }
            }
            let weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(scales.cast()));
            for t in 0..T {
                let scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(*planes.scales.get_unchecked(at[t])));
                sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scale, sums[t]);
            }
        }
    }
}
