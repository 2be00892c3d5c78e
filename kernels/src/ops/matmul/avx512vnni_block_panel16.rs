//! Panels of sixteen weight rows in blocks, a lane a row, for every format of `block_panel.rs`.
//!
//! A format differs in how the codes of a block become unsigned bytes, which is done once for a tile of activation rows, and
//! in its scales. Where zero is not code 0, its multiple of the activation's sums is taken off in the integer sums. The panel
//! is in chain order: a chain is finished before the next begins, so one accumulator per activation row is alive.
//!
//! Two classes have a scale for each half of a block. A half's integer sum times an integer scale is below 2^23 and the sum
//! of both below 2^24, so q6_k forms them as floats, exactly; nvfp4 rounds them as its class says.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m512, __m512i, _MM_HINT_T0, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128,
    _mm_prefetch, _mm_set1_epi8, _mm256_cvtepu8_epi16, _mm256_loadu_si256, _mm256_slli_epi16, _mm512_add_epi8,
    _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_i32gather_epi32, _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_mask_sub_epi8, _mm512_mul_ps,
    _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_slli_epi16, _mm512_sllv_epi32, _mm512_srli_epi16, _mm512_storeu_ps,
    _mm512_test_epi8_mask,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;
use memra_contract::weights::IQ3_S_GRID;

use super::block_panel::{Beside, Codes, Panelled, Scales};
use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 16;
/// Activation rows of a tile, largest first.
const TILES: [usize; 5] = [16, 8, 4, 2, 1];
/// How far ahead of its use a block is asked for.
const AHEAD_BYTES: usize = 16_384;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel<F: Panelled>(
    operands: &Operands<'_>,
    weight: &PackedSegment,
    rows: Range<usize>,
    out: &mut Part<'_, f32>,
) {
    let stride = weight.layout.stride(weight.segment, operands.k);
    let bytes = weight.bytes.as_slice();
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let planes = operands.planes;
    assert!(planes.quants.len() >= operands.m * k && planes.scales.len() >= operands.m * blocks);
    assert!(planes.sums.len() >= operands.m * blocks && rows.start.is_multiple_of(ROWS));
    assert!(stride >= F::FORM.panel_bytes(ROWS, k), "{} lies in panels of {ROWS} rows", F::FORM.format);
    let outer = weight.outer.first().copied().unwrap_or(1.0);
    let mut beside = Vec::new();
    let mut first = 0;
    while first < operands.m {
        let height = TILES.into_iter().find(|height| *height <= operands.m - first).unwrap_or(1);
        Beside::fill::<F>(&mut beside, planes, first * blocks..(first + height) * blocks, i32::from(F::FORM.zero));
        let mut column = 0;
        for panel in rows.start / ROWS..rows.end.div_ceil(ROWS) {
            let panel = &bytes[panel * stride..][..stride];
            let live = ROWS.min(rows.len() - column);
            let tile = Tile { operands, panel, beside: &beside, blocks, first, column, live, outer };
            // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier; the slices were checked above
            // for all rows of the activation, `beside` holds `height` rows, and a panel holds `blocks` blocks by its layout.
            unsafe {
                match height {
                    1 => tile.run::<F, 1>(out),
                    2 => tile.run::<F, 2>(out),
                    4 => tile.run::<F, 4>(out),
                    8 => tile.run::<F, 8>(out),
                    _ => tile.run::<F, { TILES[0] }>(out),
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
    beside: &'a [Beside],
    blocks: usize,
    first: usize,
    column: usize,
    live: usize,
    outer: f32,
}

/// The unsigned codes of a block: elements 0..16, and 16..32.
type Halves = [[__m512i; 4]; 2];

#[expect(unsafe_code, reason = "SIMD module")]
impl Tile<'_> {
    /// One panel with `T` rows of the activation.
    ///
    /// # Safety
    /// The CPU has the tier, and the operands hold rows `first..first + T`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<F: Panelled, const T: usize>(&self, out: &mut Part<'_, f32>) {
        let mut at = self.panel.as_ptr();
        let mut chains = [[_mm512_setzero_ps(); T]; 8];
        for chain in CHAIN_ORDER {
            let mut sums = [_mm512_setzero_ps(); T];
            for block in (chain..self.blocks).step_by(8) {
                // SAFETY: `at` walks the blocks of the panel, of which there are `blocks`.
                unsafe {
                    self.fold::<F, T>(at, block, &mut sums);
                    at = at.add(ROWS * F::FORM.block_bytes());
                }
            }
            chains[chain] = sums;
        }
        for distance in [4, 2, 1] {
            let (near, far) = chains.split_at_mut(distance);
            for (near, far) in near.iter_mut().zip(far) {
                near.iter_mut().zip(far).for_each(|(near, far)| *near = _mm512_add_ps(*near, *far));
            }
        }
        for (t, mut result) in chains[0].into_iter().enumerate() {
            if matches!(F::FORM.scales, Scales::Micro) {
                result = _mm512_mul_ps(result, _mm512_set1_ps(self.outer));
            }
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
    unsafe fn fold<F: Panelled, const T: usize>(&self, weight: *const u8, block: usize, sums: &mut [__m512; T]) {
        let planes = self.operands.planes;
        let row = self.first * self.blocks + block;
        // SAFETY: the caller's promise covers this block of the panel, the scales of its super-block, the rows of the planes
        // and of `beside`; every pointer is moved on by one row only after the row before it was read.
        unsafe {
            if self.first == 0 {
                for line in 0..(ROWS * F::FORM.block_bytes()).div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T0>(weight.wrapping_add(line * 64 + AHEAD_BYTES).cast());
                }
            }
            let codes = codes::<F>(weight);
            let heads = self.panel.as_ptr().add(ROWS * self.blocks * F::FORM.block_bytes());
            let heads = heads.wrapping_add(block / 8 * F::FORM.heads() * ROWS * 2);
            let (scales, others) = scales::<F>(weight.add(ROWS * F::FORM.code_bytes()), heads);
            let mut quants = planes.quants.as_ptr().add(row * QUANT_BLOCK);
            let mut scale = planes.scales.as_ptr().add(row);
            let mut beside = self.beside.as_ptr().add(block);
            for sum in sums {
                let x_scale = _mm512_set1_ps(*scale);
                let zero = |half: usize| match F::FORM.zero {
                    0 => _mm512_setzero_si512(),
                    _ => _mm512_set1_epi32((*beside).zeros[half]),
                };
                if F::FORM.has_halves() {
                    let [low, high] = dots(&codes, quants, [zero(0), zero(1)]);
                    let low = _mm512_mul_ps(_mm512_cvtepi32_ps(low), others[0]);
                    let both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), others[1], low);
                    let scale = match F::FORM.scales {
                        Scales::Micro => x_scale,
                        _ => _mm512_mul_ps(scales, x_scale),
                    };
                    *sum = _mm512_fmadd_ps(both, scale, *sum);
                } else {
                    let [low, high] = dots(&codes, quants, [zero(0), _mm512_setzero_si512()]);
                    let dot = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
                    *sum = _mm512_fmadd_ps(dot, _mm512_mul_ps(scales, x_scale), *sum);
                    match F::FORM.scales {
                        Scales::HalfMinimum => {
                            *sum = _mm512_fmadd_ps(others[0], _mm512_set1_ps((*beside).offset), *sum);
                        }
                        Scales::SuperMinimum => {
                            *sum = _mm512_fnmadd_ps(others[0], _mm512_set1_ps((*beside).offset), *sum);
                        }
                        _ => {}
                    }
                }
                quants = quants.wrapping_add(self.operands.k);
                scale = scale.wrapping_add(self.blocks);
                beside = beside.wrapping_add(self.blocks);
            }
        }
    }
}

/// The codes of a block as unsigned bytes.
///
/// # Safety
/// The CPU has the tier, and the pointer leads to a block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn codes<F: Panelled>(block: *const u8) -> Halves {
    // SAFETY: every line that is read belongs to the codes of the block.
    unsafe {
        if F::FORM.codes == Codes::Grid {
            return grid(block);
        }
        let line = |line: usize| _mm512_loadu_si512(block.add(line * ROWS * 4).cast());
        let nibble = _mm512_set1_epi8(15);
        let packed = [line(0), line(1), line(2), line(3)];
        let low = packed.map(|packed| _mm512_and_si512(packed, nibble));
        let high = packed.map(|packed| _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble));
        let above = |code: [__m512i; 4], bits: [__m512i; 4], mask: i8| -> [__m512i; 4] {
            let mask = _mm512_set1_epi8(mask);
            std::array::from_fn(|g| _mm512_or_si512(code[g], _mm512_and_si512(bits[g], mask)))
        };
        match F::FORM.codes {
            Codes::Fifths => {
                let w = line(4);
                let first = [
                    _mm512_slli_epi16::<4>(w),
                    _mm512_slli_epi16::<3>(w),
                    _mm512_slli_epi16::<2>(w),
                    _mm512_slli_epi16::<1>(w),
                ];
                let second = [w, _mm512_srli_epi16::<1>(w), _mm512_srli_epi16::<2>(w), _mm512_srli_epi16::<3>(w)];
                [above(low, first, 0x10), above(high, second, 0x10)]
            }
            Codes::Pairs => {
                let pairs = |w| [_mm512_slli_epi16::<4>(w), _mm512_slli_epi16::<2>(w), w, _mm512_srli_epi16::<2>(w)];
                [above(low, pairs(line(4)), 0x30), above(high, pairs(line(5)), 0x30)]
            }
            _ if F::FORM.values.is_some() => {
                let table = F::FORM.table();
                let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
                [low, high].map(|half| half.map(|places| _mm512_shuffle_epi8(table, places)))
            }
            _ => [low, high],
        }
    }
}

/// Values of the grid with their signs, plus sixteen.
///
/// # Safety
/// The CPU has the tier, and the pointer leads to a block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn grid(block: *const u8) -> Halves {
    // SAFETY: every line that is read belongs to the codes of the block; places have nine bits, and so has the grid.
    unsafe {
        let ninth = _mm512_cvtepu8_epi32(_mm_loadu_si128(block.add(8 * ROWS).cast()));
        let signs = _mm512_loadu_si512(block.add(9 * ROWS).cast());
        let sixteen = _mm512_set1_epi8(16);
        let line = |v: usize| {
            let low = _mm512_cvtepu8_epi32(_mm_loadu_si128(block.add(v * ROWS).cast()));
            let top = _mm512_sllv_epi32(ninth, _mm512_set1_epi32(8 - v as i32));
            let place = _mm512_or_si512(low, _mm512_and_si512(top, _mm512_set1_epi32(256)));
            let magnitude = _mm512_i32gather_epi32::<4>(place, IQ3_S_GRID.as_ptr().cast());
            let is_negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8((1_u8 << v).cast_signed()));
            let positive = _mm512_add_epi8(sixteen, magnitude);
            _mm512_mask_sub_epi8(positive, is_negative, sixteen, magnitude)
        };
        [[line(0), line(1), line(2), line(3)], [line(4), line(5), line(6), line(7)]]
    }
}

/// The scale of every row, and what else there is: the minimum, or the scales of both halves.
///
/// # Safety
/// The CPU has the tier, and the pointers lead to the scales of a block and of its super-block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn scales<F: Panelled>(own: *const u8, heads: *const u8) -> (__m512, [__m512; 2]) {
    let none = _mm512_setzero_ps();
    // SAFETY: every vector that is read belongs to the scales of the block or of its super-block.
    unsafe {
        let half = |at: *const u8, i: usize| _mm512_cvtph_ps(_mm256_loadu_si256(at.add(i * ROWS * 2).cast()));
        let bytes = |i: usize| _mm_loadu_si128(own.add(i * ROWS).cast());
        let unsigned = |i: usize| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes(i)));
        let signed = |i: usize| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(i)));
        match F::FORM.scales {
            Scales::Half => (half(own, 0), [none; 2]),
            Scales::HalfMinimum => (half(own, 0), [half(own, 1), none]),
            Scales::Super { factor, offset } => {
                let own = _mm512_fmadd_ps(unsigned(0), _mm512_set1_ps(factor), _mm512_set1_ps(offset));
                (_mm512_mul_ps(half(heads, 0), own), [none; 2])
            }
            Scales::SuperMinimum => {
                let minimum = _mm512_mul_ps(half(heads, 1), unsigned(1));
                (_mm512_mul_ps(half(heads, 0), unsigned(0)), [minimum, none])
            }
            Scales::SuperHalves => (half(heads, 0), [signed(0), signed(1)]),
            Scales::Micro => (none, [micro(bytes(0)), micro(bytes(1))]),
        }
    }
}

/// Half of the values of unsigned E4M3 codes: the bits of the code are those of an f16 that is smaller by 2^8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn micro(codes: __m128i) -> __m512 {
    let is_zero = _mm_cmpeq_epi8(codes, _mm_set1_epi8(0x7f));
    let codes = _mm_and_si128(_mm_andnot_si128(is_zero, codes), _mm_set1_epi8(0x7f));
    let halves = _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(codes));
    _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(128.0))
}

/// The integer sums of both halves of a block, added to `sums`.
///
/// Quants of the activation are broadcast by the multiplying instruction itself, which is written out: left to the compiler
/// they are broadcast ahead of time and spilled.
///
/// # Safety
/// The CPU has the tier, and 32 quants can be read.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn dots(codes: &Halves, quants: *const i8, [mut low, mut high]: [__m512i; 2]) -> [__m512i; 2] {
    for (g, (a, b)) in codes[0].iter().zip(&codes[1]).enumerate() {
        // SAFETY: reads eight of the 32 bytes of the caller's promise, and changes nothing but two registers.
        unsafe {
            asm!(
                "vpdpbusd {low}, {a}, dword ptr [{x}]{{1to16}}",
                "vpdpbusd {high}, {b}, dword ptr [{x} + 16]{{1to16}}",
                low = inout(zmm_reg) low,
                high = inout(zmm_reg) high,
                a = in(zmm_reg) *a,
                b = in(zmm_reg) *b,
                x = in(reg) quants.add(g * 4),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }
    [low, high]
}
