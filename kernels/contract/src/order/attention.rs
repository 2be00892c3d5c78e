//! Causal attention of one query head over the positions it sees, in splits of 256 positions.

use half::f16;

use super::{OrderClass, exp, pair_tree};

/// Positions of one split; splits start at multiples of it.
pub const ATTENTION_SPLIT: usize = 256;

/// Softmax over splits of 256 positions, whatever rows are worked on together.
pub const ATTENTION_SPLIT256: OrderClass = OrderClass {
    id: "attention_split256",
    text: "q' = q * scale; positions are cut at multiples of 256; per split: score_j is one chain of fmas over rising d from \
           0, M = max score, e_j = exp(score_j - M), l = sum of e_j in 16 chains (j mod 16) and a pair tree, acc[d] is one \
           chain of fma(e_j, v_j[d], acc[d]) over rising j from 0; then M* = max of M, w = exp(M - M*), L and O[d] are \
           chains of fma(l, w, L) and fma(acc[d], w, O[d]) over rising splits from 0; out[d] = O[d] * (1 / L)",
};

/// What one split adds to a head.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSplit {
    /// Largest score.
    pub maximum: f32,
    /// Sum of the exponentials.
    pub sum: f32,
    /// Sum of the values, weighted by the exponentials: one element a dimension.
    pub values: Vec<f32>,
}

/// One split: `query` is already multiplied by the scale; `key(j, d)` and `value(j, d)` give the cache's elements, `j`
/// counted from the start of the split, for `positions` positions, 1 to 256.
pub fn attention_split(
    query: &[f32],
    positions: usize,
    key: &dyn Fn(usize, usize) -> f16,
    value: &dyn Fn(usize, usize) -> f16,
) -> AttentionSplit {
    let scores: Vec<f32> = (0..positions)
        .map(|j| query.iter().enumerate().fold(0.0_f32, |score, (d, q)| q.mul_add(key(j, d).to_f32(), score)))
        .collect();
    let maximum = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| exp(score - maximum)).collect();
    let mut chains = [0.0_f32; 16];
    for (j, weight) in weights.iter().enumerate() {
        chains[j % 16] += weight;
    }
    let values = (0..query.len())
        .map(|d| weights.iter().enumerate().fold(0.0_f32, |sum, (j, weight)| weight.mul_add(value(j, d).to_f32(), sum)))
        .collect();
    AttentionSplit { maximum, sum: pair_tree(chains), values }
}

/// Puts the splits of one head together, first split first.
pub fn attention_combine(splits: &[AttentionSplit], out: &mut [f32]) {
    let maximum = splits.iter().fold(f32::NEG_INFINITY, |maximum, split| maximum.max(split.maximum));
    let mut sum = 0.0_f32;
    out.fill(0.0);
    for split in splits {
        let weight = exp(split.maximum - maximum);
        sum = split.sum.mul_add(weight, sum);
        for (out, value) in out.iter_mut().zip(&split.values) {
            *out = value.mul_add(weight, *out);
        }
    }
    let inverse = 1.0 / sum;
    for out in out {
        *out *= inverse;
    }
}

/// [`ATTENTION_SPLIT256`] for one head of one row: `query` as projected, `positions` the number of positions it sees.
pub fn attention(
    query: &[f32],
    scale: f32,
    positions: usize,
    key: &dyn Fn(usize, usize) -> f16,
    value: &dyn Fn(usize, usize) -> f16,
    out: &mut [f32],
) {
    let query: Vec<f32> = query.iter().map(|q| q * scale).collect();
    let splits: Vec<AttentionSplit> = (0..positions)
        .step_by(ATTENTION_SPLIT)
        .map(|first| {
            let count = ATTENTION_SPLIT.min(positions - first);
            attention_split(&query, count, &|j, d| key(first + j, d), &|j, d| value(first + j, d))
        })
        .collect();
    attention_combine(&splits, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_position_gives_its_value_and_equal_scores_give_the_mean() {
        let value = |j: usize, d: usize| f16::from_f32((j + d) as f32);
        let mut out = [0.0; 2];
        attention(&[3.0, 4.0], 0.5, 1, &|_, _| f16::ONE, &value, &mut out);
        assert_eq!(out, [0.0, 1.0]);
        attention(&[3.0, 4.0], 0.5, 513, &|_, _| f16::ONE, &value, &mut out);
        assert!((out[0] - 256.0).abs() < 1e-3 && (out[1] - 257.0).abs() < 1e-3, "{out:?}");
    }

    #[test]
    fn a_far_larger_score_takes_all() {
        let key = |j: usize, _: usize| if j == 300 { f16::from_f32(200.0) } else { f16::from_f32(-200.0) };
        let mut out = [0.0];
        attention(&[1.0], 1.0, 400, &key, &|j, _| f16::from_f32(j as f32), &mut out);
        assert_eq!(out, [300.0]);
    }
}
