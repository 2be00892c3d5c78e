//! Panels of eight weight rows in blocks, a lane a row, for every format of `block_panel.rs`.
//!
//! Products of an unsigned code and a signed quant are added in pairs of sixteen bits: 2 * 63 * 127 twice, or 2 * 31 * 127
//! four times, stays below 2^15, so a half of a block widens to 32 bits twice or once. The values of iq4_xs fill eight bits
//! with their sign, so theirs are formed from the absolute value, and widen every time. The rest is as in the wider form.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cvtepu8_epi16, _mm_loadl_epi64,
    _mm_loadu_si128, _mm_set1_epi8, _mm_slli_epi16, _mm256_abs_epi8, _mm256_add_epi8, _mm256_add_epi16,
    _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps,
    _mm256_i32gather_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_slli_epi16, _mm256_sllv_epi32,
    _mm256_srli_epi16, _mm256_storeu_ps, _mm256_sub_epi8, _mm256_xor_si256,
};
use std::ops::Range;

use memra_contract::order::QUANT_BLOCK;
use memra_contract::weights::IQ3_S_GRID;

use super::block_panel::{Beside, Codes, Panelled, Scales};
use super::layout::{CHAIN_ORDER, PackedSegment};
use super::variants::Operands;
use crate::backend::host::Part;

const ROWS: usize = 8;
/// Most activation rows of a tile.
const TILE: usize = 4;

/// Whether the values have a sign in the products; otherwise they are unsigned and zero is taken off.
const fn is_signed<F: Panelled>() -> bool {
    F::FORM.zero == 128
}

/// Pairs of products that may be added in sixteen bits.
const fn pairs<F: Panelled>() -> usize {
    match F::FORM.codes {
        Codes::Pairs => 2,
        _ if is_signed::<F>() => 1,
        _ => 4,
    }
}

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
    let zero = if is_signed::<F>() { 0 } else { i32::from(F::FORM.zero) };
    let mut beside = Vec::new();
    for first in (0..operands.m).step_by(TILE) {
        let height = TILE.min(operands.m - first);
        Beside::fill::<F>(&mut beside, planes, first * blocks..(first + height) * blocks, zero);
        for (column, panel) in (rows.start / ROWS..rows.end.div_ceil(ROWS)).enumerate() {
            let panel = &bytes[panel * stride..][..stride];
            let tile = Tile { operands, panel, beside: &beside, blocks, first };
            let column = column * ROWS;
            let live = ROWS.min(rows.len() - column);
            let mut results = [[0.0; ROWS]; TILE];
            // SAFETY: the backend runs this variant only where the CPU has the avx2 tier; the slices were checked above for all
            // rows of the activation, `beside` holds `height` rows, and a panel holds `blocks` blocks by its layout.
            unsafe {
                match height {
                    1 => tile.run::<F, 1>(outer, &mut results),
                    2 => tile.run::<F, 2>(outer, &mut results),
                    3 => tile.run::<F, 3>(outer, &mut results),
                    _ => tile.run::<F, TILE>(outer, &mut results),
                }
            }
            for (t, result) in results[..height].iter().enumerate() {
                out.row(first + t)[column..][..live].copy_from_slice(&result[..live]);
            }
        }
    }
}

struct Tile<'a> {
    operands: &'a Operands<'a>,
    panel: &'a [u8],
    beside: &'a [Beside],
    blocks: usize,
    first: usize,
}

#[expect(unsafe_code, reason = "SIMD module")]
impl Tile<'_> {
    /// One panel with `T` rows of the activation.
    ///
    /// # Safety
    /// The CPU has the tier, and the operands hold rows `first..first + T`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<F: Panelled, const T: usize>(&self, outer: f32, results: &mut [[f32; ROWS]; TILE]) {
        let mut at = self.panel.as_ptr();
        let mut chains = [[_mm256_setzero_ps(); T]; 8];
        for chain in CHAIN_ORDER {
            for block in (chain..self.blocks).step_by(8) {
                // SAFETY: `at` walks the blocks of the panel, of which there are `blocks`.
                unsafe {
                    self.fold::<F, T>(at, block, &mut chains[chain]);
                    at = at.add(ROWS * F::FORM.block_bytes());
                }
            }
        }
        for distance in [4, 2, 1] {
            let (near, far) = chains.split_at_mut(distance);
            for (near, far) in near.iter_mut().zip(far) {
                near.iter_mut().zip(far).for_each(|(near, far)| *near = _mm256_add_ps(*near, *far));
            }
        }
        for (mut result, lanes) in chains[0].into_iter().zip(results) {
            if matches!(F::FORM.scales, Scales::Micro) {
                result = _mm256_mul_ps(result, _mm256_set1_ps(outer));
            }
            // SAFETY: the array holds eight elements.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), result) };
        }
    }

    /// Adds one block to the chains.
    ///
    /// # Safety
    /// As for `run`; the pointer leads to a block of the panel.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn fold<F: Panelled, const T: usize>(&self, weight: *const u8, block: usize, sums: &mut [__m256; T]) {
        let planes = self.operands.planes;
        let at: [usize; T] = std::array::from_fn(|t| (self.first + t) * self.blocks + block);
        let beside: [Beside; T] = std::array::from_fn(|t| self.beside[t * self.blocks + block]);
        let zeros = |half: usize| beside.map(|beside| _mm256_set1_epi32(beside.zeros[half]));
        // SAFETY: the caller's promise covers this block of the panel, the scales of its super-block and the rows of the planes.
        unsafe {
            let quants: [*const i8; T] = at.map(|at| planes.quants.as_ptr().add(at * QUANT_BLOCK));
            let x_scales: [__m256; T] = at.map(|at| _mm256_set1_ps(*planes.scales.get_unchecked(at)));
            let heads = self.panel.as_ptr().add(ROWS * self.blocks * F::FORM.block_bytes());
            let heads = heads.wrapping_add(block / 8 * F::FORM.heads() * ROWS * 2);
            let (scales, others) = scales::<F>(weight.add(ROWS * F::FORM.code_bytes()), heads);
            let mut dots = zeros(0);
            half_dots::<F, T>(&codes::<F, 0>(weight), quants, &mut dots);
            let quants = quants.map(|quants| quants.add(QUANT_BLOCK / 2));
            if F::FORM.has_halves() {
                let mut highs = zeros(1);
                half_dots::<F, T>(&codes::<F, 1>(weight), quants, &mut highs);
                for t in 0..T {
                    let low = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[t]), others[0]);
                    let both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(highs[t]), others[1], low);
                    let is_micro = matches!(F::FORM.scales, Scales::Micro);
                    let scale = if is_micro { x_scales[t] } else { _mm256_mul_ps(scales, x_scales[t]) };
                    sums[t] = _mm256_fmadd_ps(both, scale, sums[t]);
                }
                return;
            }
            half_dots::<F, T>(&codes::<F, 1>(weight), quants, &mut dots);
            for t in 0..T {
                let scale = _mm256_mul_ps(scales, x_scales[t]);
                sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scale, sums[t]);
                let offset = _mm256_set1_ps(beside[t].offset);
                if matches!(F::FORM.scales, Scales::HalfMinimum) {
                    sums[t] = _mm256_fmadd_ps(others[0], offset, sums[t]);
                } else if matches!(F::FORM.scales, Scales::SuperMinimum) {
                    sums[t] = _mm256_fnmadd_ps(others[0], offset, sums[t]);
                }
            }
        }
    }
}

/// Adds the products of a half of a block.
///
/// # Safety
/// The CPU has the tier, and sixteen quants can be read at every pointer.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn half_dots<F: Panelled, const T: usize>(
    codes: &[__m256i; 4],
    quants: [*const i8; T],
    dots: &mut [__m256i; T],
) {
    let ones = _mm256_set1_epi16(1);
    for (quants, dot) in quants.into_iter().zip(dots) {
        let mut sum = _mm256_setzero_si256();
        for (g, code) in codes.iter().enumerate() {
            // SAFETY: four of the sixteen quants of the caller's promise.
            let x = _mm256_set1_epi32(unsafe { quants.add(g * 4).cast::<i32>().read_unaligned() });
            let product = if is_signed::<F>() {
                _mm256_maddubs_epi16(_mm256_abs_epi8(*code), _mm256_sign_epi8(x, *code))
            } else {
                _mm256_maddubs_epi16(*code, x)
            };
            sum = if g % pairs::<F>() == 0 { product } else { _mm256_add_epi16(sum, product) };
            if (g + 1) % pairs::<F>() == 0 {
                *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(sum, ones));
            }
        }
    }
}

/// The codes of half a block: unsigned bytes, or signed ones where [`is_signed`].
///
/// # Safety
/// The CPU has the tier, and the pointer leads to a block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn codes<F: Panelled, const HALF: usize>(block: *const u8) -> [__m256i; 4] {
    // SAFETY: every line that is read belongs to the codes of the block.
    unsafe {
        if F::FORM.codes == Codes::Grid {
            return grid::<HALF>(block);
        }
        let line = |line: usize| _mm256_loadu_si256(block.add(line * ROWS * 4).cast());
        let shifted = |packed| if HALF == 0 { packed } else { _mm256_srli_epi16::<4>(packed) };
        let nibbles = [line(0), line(1), line(2), line(3)].map(|packed| {
            let packed = shifted(packed);
            _mm256_and_si256(packed, _mm256_set1_epi8(15))
        });
        let w = match F::FORM.codes {
            Codes::Fifths => line(4),
            Codes::Pairs => line(4 + HALF),
            _ if F::FORM.values.is_some() => {
                let mut table = F::FORM.table();
                if is_signed::<F>() {
                    table = table.map(|value| value.wrapping_sub(F::FORM.zero));
                }
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                return nibbles.map(|places| _mm256_shuffle_epi8(table, places));
            }
            _ => return nibbles,
        };
        let (bits, mask) = match (F::FORM.codes, HALF) {
            (Codes::Pairs, _) => {
                ([_mm256_slli_epi16::<4>(w), _mm256_slli_epi16::<2>(w), w, _mm256_srli_epi16::<2>(w)], 0x30)
            }
            (_, 0) => {
                let three = _mm256_slli_epi16::<3>(w);
                ([_mm256_slli_epi16::<4>(w), three, _mm256_slli_epi16::<2>(w), _mm256_slli_epi16::<1>(w)], 0x10)
            }
            _ => {
                let three = _mm256_srli_epi16::<3>(w);
                ([w, _mm256_srli_epi16::<1>(w), _mm256_srli_epi16::<2>(w), three], 0x10)
            }
        };
        std::array::from_fn(|g| _mm256_or_si256(nibbles[g], _mm256_and_si256(bits[g], _mm256_set1_epi8(mask))))
    }
}

/// Values of the grid with their signs, plus sixteen.
///
/// # Safety
/// The CPU has the tier, and the pointer leads to a block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn grid<const HALF: usize>(block: *const u8) -> [__m256i; 4] {
    // SAFETY: every line that is read belongs to the codes of the block; places have nine bits, and so has the grid.
    unsafe {
        let ninth = _mm256_cvtepu8_epi32(_mm_loadl_epi64(block.add(8 * ROWS).cast()));
        let signs = _mm256_loadu_si256(block.add(9 * ROWS).cast());
        std::array::from_fn(|g| {
            let v = HALF * 4 + g;
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(block.add(v * ROWS).cast()));
            let top = _mm256_sllv_epi32(ninth, _mm256_set1_epi32(8 - v as i32));
            let place = _mm256_or_si256(low, _mm256_and_si256(top, _mm256_set1_epi32(256)));
            let magnitude = _mm256_i32gather_epi32::<4>(IQ3_S_GRID.as_ptr().cast(), place);
            let bit = _mm256_set1_epi8((1_u8 << v).cast_signed());
            let sign = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bit), bit);
            let value = _mm256_sub_epi8(_mm256_xor_si256(magnitude, sign), sign);
            _mm256_add_epi8(value, _mm256_set1_epi8(16))
        })
    }
}

/// The scale of every row, and what else there is: the minimum, or the scales of both halves.
///
/// # Safety
/// The CPU has the tier, and the pointers lead to the scales of a block and of its super-block.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales<F: Panelled>(own: *const u8, heads: *const u8) -> (__m256, [__m256; 2]) {
    let none = _mm256_setzero_ps();
    // SAFETY: every vector that is read belongs to the scales of the block or of its super-block.
    unsafe {
        let half = |at: *const u8, i: usize| _mm256_cvtph_ps(_mm_loadu_si128(at.add(i * ROWS * 2).cast()));
        let bytes = |i: usize| _mm_loadl_epi64(own.add(i * ROWS).cast());
        let unsigned = |i: usize| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(i)));
        let signed = |i: usize| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(i)));
        match F::FORM.scales {
            Scales::Half => (half(own, 0), [none; 2]),
            Scales::HalfMinimum => (half(own, 0), [half(own, 1), none]),
            Scales::SuperHalves => (half(heads, 0), [signed(0), signed(1)]),
            Scales::Micro => (none, [micro(bytes(0)), micro(bytes(1))]),
            Scales::Super { factor, offset } => {
                let own = _mm256_fmadd_ps(unsigned(0), _mm256_set1_ps(factor), _mm256_set1_ps(offset));
                (_mm256_mul_ps(half(heads, 0), own), [none; 2])
            }
            Scales::SuperMinimum => {
                let minimum = _mm256_mul_ps(half(heads, 1), unsigned(1));
                (_mm256_mul_ps(half(heads, 0), unsigned(0)), [minimum, none])
            }
        }
    }
}

/// Half of the values of unsigned E4M3 codes, as in the wider form.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn micro(codes: __m128i) -> __m256 {
    let is_zero = _mm_cmpeq_epi8(codes, _mm_set1_epi8(0x7f));
    let codes = _mm_and_si128(_mm_andnot_si128(is_zero, codes), _mm_set1_epi8(0x7f));
    _mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16::<7>(_mm_cvtepu8_epi16(codes))), _mm256_set1_ps(128.0))
}
