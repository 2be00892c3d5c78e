//! Panels of sixteen weight rows, a lane a row.
//!
//! Quants lie as value + 128, so that `vpdpbusd` takes them as its unsigned operand; 128 times the sum of the activation's
//! quants is taken off before the block's products are added. The panel is in chain order: a chain is finished before the
//! next begins, so one accumulator per activation row is alive, and the pair tree needs three partial sums.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_si512,
    _mm512_mask_storeu_ps, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_storeu_ps,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;

use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 16;
/// Bytes of one block of a panel's quants.
const BLOCK_BYTES: usize = ROWS * QUANT_BLOCK;
/// Bytes of one block of a panel's scales.
const SCALE_BYTES: usize = ROWS * 2;
/// How far ahead of its use a quant is asked for.
const AHEAD_BYTES: usize = 16_384;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let stride = weight.layout.stride(weight.segment, operands.k);
    let bytes = weight.bytes.as_slice();
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let planes = operands.planes;
    assert!(planes.quants.len() >= operands.m * k && planes.scales.len() >= operands.m * blocks);
    assert!(planes.sums.len() >= operands.m * blocks && rows.start.is_multiple_of(ROWS));
    let mut column = 0;
    for panel in rows.start / ROWS..rows.end.div_ceil(ROWS) {
        let bytes = &bytes[panel * stride..][..stride];
        let live = ROWS.min(rows.len() - column);
        let mut m = 0;
        while m < operands.m {
            let tile = Tile { operands, panel: bytes, blocks, first: m, column, live };
            // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier; the slices were checked above
            // for all rows of the activation, and a panel holds `blocks` blocks of quants and scales by its layout.
            m += unsafe {
                match operands.m - m {
                    1 => tile.run::<1>(out),
                    2 => tile.run::<2>(out),
                    3 => tile.run::<3>(out),
                    4 => tile.run::<4>(out),
                    5 => tile.run::<5>(out),
                    6 => tile.run::<6>(out),
                    7 => tile.run::<7>(out),
                    _ => tile.run::<8>(out),
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
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<const T: usize>(&self, out: &mut Part<'_, f32>) -> usize {
        let quants = self.panel.as_ptr();
        // SAFETY: scales follow the quants of the panel.
        let scales = unsafe { quants.add(self.blocks * BLOCK_BYTES) };
        let mut slot = 0;
        let mut partial = [[_mm512_setzero_ps(); T]; 3];
        for (step, chain) in CHAIN_ORDER.into_iter().enumerate() {
            let mut sums = [_mm512_setzero_ps(); T];
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
                    partial[level][t] = _mm512_add_ps(partial[level][t], sums[t]);
                    if step == 7 {
                        partial[1][t] = _mm512_add_ps(partial[1][t], partial[2][t]);
                    }
                    if step == 3 || step == 7 {
                        partial[0][t] = _mm512_add_ps(partial[0][t], partial[1][t]);
                    }
                }
            }
        }
        for (t, result) in partial[0].into_iter().enumerate() {
            let row = &mut out.row(self.first + t)[self.column..][..self.live];
            if self.live == ROWS {
                // SAFETY: the slice holds sixteen elements.
                unsafe { _mm512_storeu_ps(row.as_mut_ptr(), result) };
            } else {
                // SAFETY: the mask keeps the store inside the slice.
                unsafe { _mm512_mask_storeu_ps(row.as_mut_ptr(), (1_u16 << self.live) - 1, result) };
            }
        }
        T
    }

    /// Adds one block to the chain.
    ///
    /// # Safety
    /// As for `run`; the pointers lead to a block of quants and of scales.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn fold<const T: usize>(&self, quants: *const u8, scales: *const u8, block: usize, sums: &mut [__m512; T]) {
        let planes = self.operands.planes;
        let at: [usize; T] = std::array::from_fn(|t| (self.first + t) * self.blocks + block);
        // SAFETY: the caller's promise covers rows `first..first + T` and this block of the panel.
        unsafe {
            let mut dots: [__m512i; T] =
                at.map(|at| _mm512_set1_epi32(-128 * i32::from(*planes.sums.get_unchecked(at))));
            let mut others = [_mm512_setzero_si512(); T];
            for g in 0..8 {
                let w = _mm512_loadu_si512(quants.add(g * 64).cast());
                if self.first == 0 {
                    _mm_prefetch::<_MM_HINT_T0>(quants.wrapping_add(g * 64 + AHEAD_BYTES).cast());
                }
                for t in 0..T {
                    let x = planes.quants.as_ptr().add(at[t] * QUANT_BLOCK + g * 4).cast::<i32>().read_unaligned();
                    // Two sums a row where few rows leave the units idle; integer sums may be split freely.
                    let target = if T <= 2 && g % 2 == 1 { &mut others[t] } else { &mut dots[t] };
                    *target = _mm512_dpbusd_epi32(*target, w, _mm512_set1_epi32(x));
                }
            }
            let weight_scale = _mm512_cvtph_ps(_mm256_loadu_si256(scales.cast()));
            for t in 0..T {
                let dot = if T <= 2 { _mm512_add_epi32(dots[t], others[t]) } else { dots[t] };
                let scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(*planes.scales.get_unchecked(at[t])));
                sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
            }
        }
    }
}
