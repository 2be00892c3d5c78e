//! Sixteen lanes: positions for the scores, dimensions for the values.
//!
//! Both products have one inner loop: a vector of cache elements, converted once, is multiplied with one scalar of each pair.
//! Few pairs take four vectors a step so that enough chains are in flight; many take two, so that all fit in registers.

use std::arch::x86_64::{
    __m512, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_loadu_si256, _mm512_add_ps, _mm512_castps512_ps256,
    _mm512_cvtph_ps, _mm512_cvtss_f32, _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_blend_ps,
    _mm512_mask3_fmadd_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps, _mm512_sub_ps,
};

use half::f16;

use super::kernel::{PARTIAL_TAIL, QUERY_STRIDE, SCORE_STRIDE, SplitOperands};
use super::pages::{MAX_HEAD_DIM, PAGE};
use crate::vector::avx512vnni_exp::exp;

const LANES: usize = 16;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn split(operands: &SplitOperands<'_>, scores: &mut [f32], out: &mut [f32]) {
    let (most, fewest) = operands.check(scores, out);
    let step = Step { operands, most, fewest };
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx512vnni tier, and the slices were checked
    // for the number of pairs that picks the instance.
    unsafe {
        match operands.positions.len() {
            1 => step.run::<1, 4>(scores, out),
            2 => step.run::<2, 4>(scores, out),
            3 => step.run::<3, 4>(scores, out),
            4 => step.run::<4, 4>(scores, out),
            5 => step.run::<5, 4>(scores, out),
            6 => step.run::<6, 4>(scores, out),
            7 => step.run::<7, 2>(scores, out),
            8 => step.run::<8, 2>(scores, out),
            9 => step.run::<9, 2>(scores, out),
            10 => step.run::<10, 2>(scores, out),
            11 => step.run::<11, 2>(scores, out),
            _ => step.run::<12, 2>(scores, out),
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
    /// All of a split for `P` pairs, `V` vectors a step.
    ///
    /// # Safety
    /// The CPU has the tier, and `operands.check` passed for `P` pairs with these slices.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<const P: usize, const V: usize>(&self, scores: &mut [f32], out: &mut [f32]) {
        let head_dim = self.operands.head_dim;
        let stride = head_dim + PARTIAL_TAIL;
        // SAFETY: the caller's promise; a block of V vectors of positions lies inside a page, because a page is four vectors,
        // and blocks of dimensions end at head_dim, a multiple of sixteen.
        unsafe {
            for first in (0..self.most).step_by(V * LANES) {
                self.score::<P, V>(first, scores.as_mut_ptr());
            }
            for (pair, positions) in self.operands.positions.iter().enumerate() {
                let scores = scores.as_mut_ptr().add(pair * SCORE_STRIDE);
                let (maximum, sum) = weigh(scores, *positions);
                out[pair * stride + head_dim] = maximum;
                out[pair * stride + head_dim + 1] = sum;
            }
            let mut first = 0;
            while first + V * LANES <= head_dim {
                self.value::<P, V>(first, scores.as_ptr(), out.as_mut_ptr());
                first += V * LANES;
            }
            if V > 2 && first + 2 * LANES <= head_dim {
                self.value::<P, 2>(first, scores.as_ptr(), out.as_mut_ptr());
                first += 2 * LANES;
            }
            if first < head_dim {
                self.value::<P, 1>(first, scores.as_ptr(), out.as_mut_ptr());
            }
        }
    }

    /// Scores of `V` vectors of positions from `first`.
    ///
    /// # Safety
    /// As for `run`; the positions lie in one page of the split.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn score<const P: usize, const V: usize>(&self, first: usize, scores: *mut f32) {
        let mut keys = self.operands.keys[first / PAGE].as_ptr().wrapping_add(first % PAGE);
        let mut queries = self.operands.queries.as_ptr();
        let mut sums = [[_mm512_setzero_ps(); V]; P];
        // SAFETY: a page of keys holds head_dim rows of PAGE positions, and a query head_dim elements.
        unsafe {
            for _ in 0..self.operands.head_dim {
                let row: [__m512; V] = std::array::from_fn(|v| load(keys, v));
                for (pair, sums) in sums.iter_mut().enumerate() {
                    let q = _mm512_set1_ps(*queries.add(pair * QUERY_STRIDE));
                    for (sum, row) in sums.iter_mut().zip(row) {
                        *sum = _mm512_fmadd_ps(q, row, *sum);
                    }
                }
                // Past the last row the pointer leaves the page, and is not followed.
                keys = keys.wrapping_add(PAGE);
                queries = queries.add(1);
            }
            for (pair, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(scores.add(pair * SCORE_STRIDE + first + v * LANES), *sum);
                }
            }
        }
    }

    /// `V` vectors of dimensions from `first`, summed over the positions.
    ///
    /// # Safety
    /// As for `run`; the dimensions lie in the head, and `weigh` has been through the scores of every pair.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn value<const P: usize, const V: usize>(&self, first: usize, weights: *const f32, out: *mut f32) {
        let head_dim = self.operands.head_dim;
        let mut sums = [[_mm512_setzero_ps(); V]; P];
        // SAFETY: a page of values holds PAGE rows of head_dim dimensions, and the pages cover `most` positions.
        unsafe {
            for (page, start) in self.operands.values.iter().zip((0..self.fewest).step_by(PAGE)) {
                let mut values = page.as_ptr().add(first);
                let mut weights = weights.add(start);
                for _ in start..self.fewest.min(start + PAGE) {
                    let row: [__m512; V] = std::array::from_fn(|v| load(values, v));
                    for (pair, sums) in sums.iter_mut().enumerate() {
                        let weight = _mm512_set1_ps(*weights.add(pair * SCORE_STRIDE));
                        for (sum, row) in sums.iter_mut().zip(row) {
                            *sum = _mm512_fmadd_ps(weight, row, *sum);
                        }
                    }
                    values = values.wrapping_add(head_dim);
                    weights = weights.add(1);
                }
            }
            // Positions that only some rows see.
            for j in self.fewest..self.most {
                let values = self.operands.values[j / PAGE].as_ptr().add(j % PAGE * head_dim + first);
                let row: [__m512; V] = std::array::from_fn(|v| load(values, v));
                for (pair, sums) in sums.iter_mut().enumerate() {
                    let is_seen = if j < *self.operands.positions.get_unchecked(pair) { u16::MAX } else { 0 };
                    let weight = _mm512_set1_ps(*weights.add(pair * SCORE_STRIDE + j));
                    for (sum, row) in sums.iter_mut().zip(row) {
                        *sum = _mm512_mask3_fmadd_ps(weight, row, *sum, is_seen);
                    }
                }
            }
            for (pair, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.add(pair * (head_dim + PARTIAL_TAIL) + first + v * LANES), *sum);
                }
            }
        }
    }
}

/// Sixteen cache elements, `v` vectors from a pointer.
///
/// # Safety
/// The pointer leads to that many elements.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn load(elements: *const f16, v: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(elements.add(v * LANES).cast())) }
}

/// Turns the scores of one pair into exponentials. Returns the largest score and the sum.
///
/// # Safety
/// There are `positions` scores, with room to a multiple of sixteen.
#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn weigh(scores: *mut f32, positions: usize) -> (f32, f32) {
    let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
    let (whole, rest) = (positions / LANES, positions % LANES);
    let seen = (1_u16 << rest) - 1;
    // SAFETY: the vectors that are touched begin below `positions`.
    unsafe {
        let at = |vector: usize| scores.add(vector * LANES);
        let mut maxima = [lowest; 4];
        for vector in 0..whole {
            maxima[vector % 4] = _mm512_max_ps(maxima[vector % 4], _mm512_loadu_ps(at(vector)));
        }
        if rest > 0 {
            let last = _mm512_mask_blend_ps(seen, lowest, _mm512_loadu_ps(at(whole)));
            _mm512_storeu_ps(at(whole), last);
            maxima[0] = _mm512_max_ps(maxima[0], last);
        }
        let [a, b, c, d] = maxima;
        let maximum = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
        let all = _mm512_set1_ps(maximum);
        let mut sums = _mm512_setzero_ps();
        for vector in 0..positions.div_ceil(LANES) {
            let weight = exp(_mm512_sub_ps(_mm512_loadu_ps(at(vector)), all));
            _mm512_storeu_ps(at(vector), weight);
            sums = _mm512_add_ps(sums, weight);
        }
        (maximum, tree(sums))
    }
}

/// The pair tree at distances 8 to 1.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tree(sums: __m512) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps::<1>(sums));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<0b01>(two, two)))
}

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn combine(partials: &[f32], splits: usize, stride: usize, out: &mut [f32]) {
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx512vnni tier.
    unsafe { combine_splits(partials, splits, stride, out) };
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
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
    let mut totals = [_mm512_setzero_ps(); MAX_HEAD_DIM / LANES];
    for partial in partials.chunks(stride).take(splits) {
        let weight = exp(_mm512_set1_ps(partial[head_dim] - maximum));
        sum = partial[head_dim + 1].mul_add(_mm512_cvtss_f32(weight), sum);
        for (total, values) in totals.iter_mut().zip(partial[..head_dim].chunks_exact(LANES)) {
            // SAFETY: the chunk holds sixteen elements.
            *total = _mm512_fmadd_ps(unsafe { _mm512_loadu_ps(values.as_ptr()) }, weight, *total);
        }
    }
    let inverse = _mm512_set1_ps(1.0 / sum);
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(LANES)) {
        // SAFETY: the chunk holds sixteen elements.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_mul_ps(*total, inverse)) };
    }
}
