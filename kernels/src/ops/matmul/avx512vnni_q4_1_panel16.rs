//! Panels of sixteen weight rows, a lane a row, four-bit quants.
//!
//! Quants are unsigned, so `vpdpbusd` takes them as they are. A block lies in one stream of five cache lines: four of
//! quants, one of scales and minima. The panel is in chain order: a chain is finished before the next begins, so one
//! accumulator per activation row is alive, and the pair tree needs three partial sums. The activation's scaled sums are
//! made once for a tile of rows and shared by the panels of the task.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_si512,
    _mm512_mask_storeu_ps, _mm512_mul_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_srli_epi16, _mm512_storeu_ps,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;

use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 16;
/// Most activation rows of a tile.
const TILE: usize = 8;
/// Bytes of one block of a panel: quants, scales, minima.
const BLOCK_BYTES: usize = ROWS * 20;
/// Where the scales of a block stand.
const SCALES: usize = ROWS * 16;
/// Where the minima of a block stand.
const MINIMA: usize = ROWS * 18;
/// How far ahead of its use a block is asked for.
const AHEAD_BYTES: usize = 16_384;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let stride = weight.layout.stride(weight.segment, operands.k);
    let bytes = weight.bytes.as_slice();
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let planes = operands.planes;
    assert!(planes.quants.len() >= operands.m * k && planes.scales.len() >= operands.m * blocks);
    assert!(planes.sums.len() >= operands.m * blocks && rows.start.is_multiple_of(ROWS));
    let mut offsets = vec![0.0; TILE.min(operands.m) * blocks];
    let mut first = 0;
    while first < operands.m {
        let height = TILE.min(operands.m - first);
        let at = first * blocks;
        for (i, offset) in offsets[..height * blocks].iter_mut().enumerate() {
            *offset = f32::from(planes.sums[at + i]) * planes.scales[at + i];
        }
        let mut column = 0;
        for panel in rows.start / ROWS..rows.end.div_ceil(ROWS) {
            let panel = &bytes[panel * stride..][..stride];
            let live = ROWS.min(rows.len() - column);
            let tile = Tile { operands, panel, offsets: &offsets, blocks, first, column, live };
            // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier; the slices were checked above
            // for all rows of the activation, `offsets` holds `height` rows, and a panel holds `blocks` blocks by its layout.
            unsafe {
                match height {
                    1 => tile.run::<1>(out),
                    2 => tile.run::<2>(out),
                    3 => tile.run::<3>(out),
                    4 => tile.run::<4>(out),
                    5 => tile.run::<5>(out),
                    6 => tile.run::<6>(out),
                    7 => tile.run::<7>(out),
                    _ => tile.run::<TILE>(out),
                }
            }
            column += live;
        }
        first += height;
    }
}

struct Tile<'a> {
    operands: &'a Operands<'a>,
    panel: &'a [u8],
    offsets: &'a [f32],
    blocks: usize,
    first: usize,
    column: usize,
    live: usize,
}

#[expect(unsafe_code, reason = "SIMD module")]
impl Tile<'_> {
    /// One panel with `T` rows of the activation.
    ///
    /// # Safety
    /// The CPU has the tier, and the operands hold rows `first..first + T`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<const T: usize>(&self, out: &mut Part<'_, f32>) {
        let mut at = self.panel.as_ptr();
        let mut partial = [[_mm512_setzero_ps(); T]; 3];
        for (step, chain) in CHAIN_ORDER.into_iter().enumerate() {
            let mut sums = [_mm512_setzero_ps(); T];
            let mut block = chain;
            while block < self.blocks {
                // SAFETY: `at` walks the blocks of the panel, of which there are `blocks`.
                unsafe {
                    self.fold(at, block, &mut sums);
                    at = at.add(BLOCK_BYTES);
                }
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
    }

    /// Adds one block to the chain.
    ///
    /// # Safety
    /// As for `run`; the pointer leads to a block of the panel.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn fold<const T: usize>(&self, weight: *const u8, block: usize, sums: &mut [__m512; T]) {
        let planes = self.operands.planes;
        let nibble = _mm512_set1_epi8(15);
        let at: [usize; T] = std::array::from_fn(|t| (self.first + t) * self.blocks + block);
        // SAFETY: the caller's promise covers rows `first..first + T`, `offsets` and this block of the panel.
        unsafe {
            let mut dots: [__m512i; T] = [_mm512_setzero_si512(); T];
            let mut others = [_mm512_setzero_si512(); T];
            for g in 0..4 {
                let packed = _mm512_loadu_si512(weight.add(g * 64).cast());
                if self.first == 0 {
                    _mm_prefetch::<_MM_HINT_T0>(weight.wrapping_add(g * 64 + AHEAD_BYTES).cast());
                }
                let low = _mm512_and_si512(packed, nibble);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble);
                for t in 0..T {
                    let x = planes.quants.as_ptr().add(at[t] * QUANT_BLOCK + g * 4);
                    let y = x.add(QUANT_BLOCK / 2).cast::<i32>().read_unaligned();
                    let x = x.cast::<i32>().read_unaligned();
                    dots[t] = _mm512_dpbusd_epi32(dots[t], low, _mm512_set1_epi32(x));
                    // Two sums a row where few rows leave the units idle; integer sums may be split freely.
                    let target = if T <= 2 { &mut others[t] } else { &mut dots[t] };
                    *target = _mm512_dpbusd_epi32(*target, high, _mm512_set1_epi32(y));
                }
            }
            if self.first == 0 {
                _mm_prefetch::<_MM_HINT_T0>(weight.wrapping_add(SCALES + AHEAD_BYTES).cast());
            }
            let scales = _mm512_cvtph_ps(_mm256_loadu_si256(weight.add(SCALES).cast()));
            let minima = _mm512_cvtph_ps(_mm256_loadu_si256(weight.add(MINIMA).cast()));
            for t in 0..T {
                let dot = if T <= 2 { _mm512_add_epi32(dots[t], others[t]) } else { dots[t] };
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(*planes.scales.get_unchecked(at[t])));
                let offset = _mm512_set1_ps(*self.offsets.get_unchecked(t * self.blocks + block));
                sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
                sums[t] = _mm512_fmadd_ps(minima, offset, sums[t]);
            }
        }
    }
}
