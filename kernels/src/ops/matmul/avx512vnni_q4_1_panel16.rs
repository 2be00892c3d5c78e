//! Panels of sixteen weight rows, a lane a row, four-bit quants.
//!
//! Quants are unsigned, so `vpdpbusd` takes them as they are. A block lies in one stream of five cache lines: four of
//! quants, one of scales and minima. The panel is in chain order: a chain is finished before the next begins, so one
//! accumulator per activation row is alive, and the pair tree needs three partial sums. The activation's scaled sums are
//! made once for a tile of rows and shared by the panels of the task.
//!
//! The unpacked weights of a block stay in eight registers while up to twelve activation rows go past. Quants of the
//! activation are broadcast by the multiplying instruction itself, which is written out: left to the compiler they are
//! broadcast ahead of time and spilled.

use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_mul_ps,
    _mm512_set1_epi8, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_srli_epi16, _mm512_storeu_ps,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;

use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 16;
/// Activation rows of a tile, largest first.
const TILES: [usize; 7] = [12, 8, 6, 4, 3, 2, 1];
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
    let mut offsets = vec![0.0; TILES[0].min(operands.m) * blocks];
    let mut first = 0;
    while first < operands.m {
        let height = TILES.into_iter().find(|height| *height <= operands.m - first).unwrap_or(1);
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
                    6 => tile.run::<6>(out),
                    8 => tile.run::<8>(out),
                    _ => tile.run::<{ TILES[0] }>(out),
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

    /// Adds one block to the chains.
    ///
    /// # Safety
    /// As for `run`; the pointer leads to a block of the panel.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn fold<const T: usize>(&self, weight: *const u8, block: usize, sums: &mut [__m512; T]) {
        let planes = self.operands.planes;
        let nibble = _mm512_set1_epi8(15);
        let row = self.first * self.blocks + block;
        // SAFETY: the caller's promise covers this block of the panel, the rows of the planes and of `offsets`; every pointer
        // is moved on by one row only after the row before it was read.
        unsafe {
            let packed: [__m512i; 4] = std::array::from_fn(|g| _mm512_loadu_si512(weight.add(g * 64).cast()));
            if self.first == 0 {
                for line in 0..5 {
                    _mm_prefetch::<_MM_HINT_T0>(weight.wrapping_add(line * 64 + AHEAD_BYTES).cast());
                }
            }
            let low = packed.map(|packed| _mm512_and_si512(packed, nibble));
            let high = packed.map(|packed| _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble));
            let scales = _mm512_cvtph_ps(_mm256_loadu_si256(weight.add(SCALES).cast()));
            let minima = _mm512_cvtph_ps(_mm256_loadu_si256(weight.add(MINIMA).cast()));
            let mut quants = planes.quants.as_ptr().add(row * QUANT_BLOCK);
            let mut scale = planes.scales.as_ptr().add(row);
            let mut offset = self.offsets.as_ptr().add(block);
            for sum in sums {
                let dot = _mm512_cvtepi32_ps(dot(&low, &high, quants));
                let folded = _mm512_fmadd_ps(dot, _mm512_mul_ps(scales, _mm512_set1_ps(*scale)), *sum);
                *sum = _mm512_fmadd_ps(minima, _mm512_set1_ps(*offset), folded);
                quants = quants.wrapping_add(self.operands.k);
                scale = scale.wrapping_add(self.blocks);
                offset = offset.wrapping_add(self.blocks);
            }
        }
    }
}

/// Exact products of a block: the low nibbles with the first sixteen quants of the activation, the high ones with the others.
///
/// # Safety
/// The CPU has the tier, and 32 quants can be read.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn dot(low: &[__m512i; 4], high: &[__m512i; 4], quants: *const i8) -> __m512i {
    // Two sums, because each instruction waits for the one before it on the same sum.
    let (mut a, mut b) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    // SAFETY: reads the 32 bytes of the caller's promise, and changes nothing but the two registers.
    unsafe {
        asm!(
            "vpdpbusd {a}, {l0}, dword ptr [{x}]{{1to16}}",
            "vpdpbusd {b}, {h0}, dword ptr [{x} + 16]{{1to16}}",
            "vpdpbusd {a}, {l1}, dword ptr [{x} + 4]{{1to16}}",
            "vpdpbusd {b}, {h1}, dword ptr [{x} + 20]{{1to16}}",
            "vpdpbusd {a}, {l2}, dword ptr [{x} + 8]{{1to16}}",
            "vpdpbusd {b}, {h2}, dword ptr [{x} + 24]{{1to16}}",
            "vpdpbusd {a}, {l3}, dword ptr [{x} + 12]{{1to16}}",
            "vpdpbusd {b}, {h3}, dword ptr [{x} + 28]{{1to16}}",
            a = inout(zmm_reg) a,
            b = inout(zmm_reg) b,
            l0 = in(zmm_reg) low[0],
            l1 = in(zmm_reg) low[1],
            l2 = in(zmm_reg) low[2],
            l3 = in(zmm_reg) low[3],
            h0 = in(zmm_reg) high[0],
            h1 = in(zmm_reg) high[1],
            h2 = in(zmm_reg) high[2],
            h3 = in(zmm_reg) high[3],
            x = in(reg) quants,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    _mm512_add_epi32(a, b)
}
