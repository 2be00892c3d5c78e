//! Eight lanes: positions for the scores, dimensions for the values.
//!
//! Both products have one inner loop: two vectors of cache elements, converted once, are multiplied with one scalar of each
//! pair. Six pairs fit in the registers.

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_max_ps, _mm_max_ss, _mm_movehl_ps,
    _mm_shuffle_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_cvtph_ps, _mm256_cvtss_f32, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps, _mm256_sub_ps,
};

use half::f16;

use super::kernel::{PARTIAL_TAIL, QUERY_STRIDE, SCORE_STRIDE, SplitOperands};
use super::pages::{MAX_HEAD_DIM, PAGE};
use crate::vector::avx2_exp::exp;

const LANES: usize = 8;
/// Vectors a step.
const V: usize = 2;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn split(operands: &SplitOperands<'_>, scores: &mut [f32], out: &mut [f32]) {
    let (most, fewest) = operands.check(scores, out);
    let step = Step { operands, most, fewest };
    assert!(operands.positions.len() <= 6, "{} pairs of at most 6", operands.positions.len());
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx2 tier, and the slices were checked for
    // the number of pairs that picks the instance.
    unsafe {
        match operands.positions.len() {
            1 => step.run::<1>(scores, out),
            2 => step.run::<2>(scores, out),
            3 => step.run::<3>(scores, out),
            4 => step.run::<4>(scores, out),
            5 => step.run::<5>(scores, out),
            _ => step.run::<6>(scores, out),
        }
    }
}

struct Step<'a> {
    operands: &'a SplitOperands<'a>,
    most: usize,
    fewest: usize,
}

#[expect(unsafe_code, reason = "SIMD module")]
impl Step<'_> {
    /// All of a split for `P` pairs.
    ///
    /// # Safety
    /// The CPU has the tier, and `operands.check` passed for `P` pairs with these slices.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<const P: usize>(&self, scores: &mut [f32], out: &mut [f32]) {
        let head_dim = self.operands.head_dim;
        let stride = head_dim + PARTIAL_TAIL;
        // SAFETY: the caller's promise; a block of V vectors of positions lies inside a page, because a page is four such
        // blocks, and blocks of dimensions end at head_dim, a multiple of sixteen.
        unsafe {
            for first in (0..self.most).step_by(V * LANES) {
                self.score::<P>(first, scores.as_mut_ptr());
            }
            for (pair, positions) in self.operands.positions.iter().enumerate() {
                let scores = scores.as_mut_ptr().add(pair * SCORE_STRIDE);
                let (maximum, sum) = weigh(scores, *positions);
                out[pair * stride + head_dim] = maximum;
                out[pair * stride + head_dim + 1] = sum;
            }
            for first in (0..head_dim).step_by(V * LANES) {
                self.value::<P>(first, scores.as_ptr(), out.as_mut_ptr());
            }
        }
    }

    /// Scores of `V` vectors of positions from `first`.
    ///
    /// # Safety
    /// As for `run`; the positions lie in one page of the split.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn score<const P: usize>(&self, first: usize, scores: *mut f32) {
        let mut keys = self.operands.keys[first / PAGE].as_ptr().wrapping_add(first % PAGE);
        let mut queries = self.operands.queries.as_ptr();
        let mut sums = [[_mm256_setzero_ps(); V]; P];
        // SAFETY: a page of keys holds head_dim rows of PAGE positions, and a query head_dim elements.
        unsafe {
            for _ in 0..self.operands.head_dim {
                let row: [__m256; V] = std::array::from_fn(|v| load(keys, v));
                for (pair, sums) in sums.iter_mut().enumerate() {
                    let q = _mm256_set1_ps(*queries.add(pair * QUERY_STRIDE));
                    for (sum, row) in sums.iter_mut().zip(row) {
                        *sum = _mm256_fmadd_ps(q, row, *sum);
                    }
                }
                // Past the last row the pointer leaves the page, and is not followed.
                keys = keys.wrapping_add(PAGE);
                queries = queries.add(1);
            }
            for (pair, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    _mm256_storeu_ps(scores.add(pair * SCORE_STRIDE + first + v * LANES), *sum);
                }
            }
        }
    }

    /// `V` vectors of dimensions from `first`, summed over the positions.
    ///
    /// # Safety
    /// As for `run`; the dimensions lie in the head, and `weigh` has been through the scores of every pair.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn value<const P: usize>(&self, first: usize, weights: *const f32, out: *mut f32) {
        let head_dim = self.operands.head_dim;
        let mut sums = [[_mm256_setzero_ps(); V]; P];
        // SAFETY: a page of values holds PAGE rows of head_dim dimensions, and the pages cover `most` positions.
        unsafe {
            for (page, start) in self.operands.values.iter().zip((0..self.fewest).step_by(PAGE)) {
                let mut values = page.as_ptr().add(first);
                let mut weights = weights.add(start);
                for _ in start..self.fewest.min(start + PAGE) {
                    let row: [__m256; V] = std::array::from_fn(|v| load(values, v));
                    for (pair, sums) in sums.iter_mut().enumerate() {
                        let weight = _mm256_set1_ps(*weights.add(pair * SCORE_STRIDE));
                        for (sum, row) in sums.iter_mut().zip(row) {
                            *sum = _mm256_fmadd_ps(weight, row, *sum);
                        }
                    }
                    values = values.wrapping_add(head_dim);
                    weights = weights.add(1);
                }
            }
            // Positions that only some rows see.
            for j in self.fewest..self.most {
                let values = self.operands.values[j / PAGE].as_ptr().add(j % PAGE * head_dim + first);
                let row: [__m256; V] = std::array::from_fn(|v| load(values, v));
                for (pair, sums) in sums.iter_mut().enumerate() {
                    if j >= *self.operands.positions.get_unchecked(pair) {
                        continue;
                    }
                    let weight = _mm256_set1_ps(*weights.add(pair * SCORE_STRIDE + j));
                    for (sum, row) in sums.iter_mut().zip(row) {
                        *sum = _mm256_fmadd_ps(weight, row, *sum);
                    }
                }
            }
            for (pair, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    _mm256_storeu_ps(out.add(pair * (head_dim + PARTIAL_TAIL) + first + v * LANES), *sum);
                }
            }
        }
    }
}

/// Eight cache elements, `v` vectors from a pointer.
///
/// # Safety
/// The pointer leads to that many elements.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load(elements: *const f16, v: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(elements.add(v * LANES).cast())) }
}

/// Turns the scores of one pair into exponentials. Returns the largest score and the sum.
///
/// # Safety
/// There are `positions` scores, with room to a multiple of sixteen.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weigh(scores: *mut f32, positions: usize) -> (f32, f32) {
    let end = positions.next_multiple_of(2 * LANES);
    // SAFETY: what is touched lies below `positions` rounded up to a multiple of sixteen.
    unsafe {
        for j in positions..end {
            *scores.add(j) = f32::NEG_INFINITY;
        }
        let mut maxima = [_mm256_set1_ps(f32::NEG_INFINITY); 2];
        for first in (0..end).step_by(2 * LANES) {
            maxima[0] = _mm256_max_ps(maxima[0], _mm256_loadu_ps(scores.add(first)));
            maxima[1] = _mm256_max_ps(maxima[1], _mm256_loadu_ps(scores.add(first + LANES)));
        }
        let maximum = largest(_mm256_max_ps(maxima[0], maxima[1]));
        let all = _mm256_set1_ps(maximum);
        let mut sums = [_mm256_setzero_ps(); 2];
        for first in (0..end).step_by(2 * LANES) {
            for (half, sum) in sums.iter_mut().enumerate() {
                let at = scores.add(first + half * LANES);
                let weight = exp(_mm256_sub_ps(_mm256_loadu_ps(at), all));
                _mm256_storeu_ps(at, weight);
                *sum = _mm256_add_ps(*sum, weight);
            }
        }
        (maximum, tree(sums))
    }
}

/// The largest lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn largest(values: __m256) -> f32 {
    let four = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}

/// The pair tree at distances 8 to 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tree(sums: [__m256; 2]) -> f32 {
    let eight = _mm256_add_ps(sums[0], sums[1]);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn combine(partials: &[f32], splits: usize, stride: usize, out: &mut [f32]) {
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx2 tier.
    unsafe { combine_splits(partials, splits, stride, out) };
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
fn combine_splits(partials: &[f32], splits: usize, stride: usize, out: &mut [f32]) {
    let head_dim = out.len();
    assert!(
        splits > 0
            && stride >= head_dim + 2
            && head_dim.is_multiple_of(LANES)
            && head_dim <= MAX_HEAD_DIM
            && partials.len() >= (splits - 1) * stride + head_dim + 2
    );
    let maximum = (0..splits).fold(f32::NEG_INFINITY, |maximum, s| maximum.max(partials[s * stride + head_dim]));
    let mut sum = 0.0_f32;
    let mut totals = [_mm256_setzero_ps(); MAX_HEAD_DIM / LANES];
    for partial in partials.chunks(stride).take(splits) {
        let weight = exp(_mm256_set1_ps(partial[head_dim] - maximum));
        sum = partial[head_dim + 1].mul_add(_mm256_cvtss_f32(weight), sum);
        for (total, values) in totals.iter_mut().zip(partial[..head_dim].chunks_exact(LANES)) {
            // SAFETY: the chunk holds eight elements.
            *total = _mm256_fmadd_ps(unsafe { _mm256_loadu_ps(values.as_ptr()) }, weight, *total);
        }
    }
    let inverse = _mm256_set1_ps(1.0 / sum);
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(LANES)) {
        // SAFETY: the chunk holds eight elements.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_mul_ps(*total, inverse)) };
    }
}
