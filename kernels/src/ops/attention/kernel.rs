//! What a kernel of attention is given: the heads of a few rows that share one head of keys and values, and one split.

use half::f16;
use memra_contract::order::ATTENTION_SPLIT;

use super::pages::{MAX_HEAD_DIM, PAGE};

/// Most (row, query head) pairs a kernel takes at once.
pub const MAX_PAIRS: usize = 12;
/// Elements from one pair's query to the next.
pub const QUERY_STRIDE: usize = MAX_HEAD_DIM;
/// Elements from one pair's scores to the next: a line more than a split, so that pairs lie in different cache sets.
pub const SCORE_STRIDE: usize = ATTENTION_SPLIT + 16;
/// Elements after the weighted values of a pair: the largest score, the sum, and space to the next line.
pub const PARTIAL_TAIL: usize = 16;
/// Pages of a split.
pub const SPLIT_PAGES: usize = ATTENTION_SPLIT / PAGE;

/// One split for some pairs.
#[derive(Debug, Clone, Copy)]
pub struct SplitOperands<'a> {
    /// Length of a head.
    pub head_dim: usize,
    /// Queries times the scale, f32 `[pairs, QUERY_STRIDE]`.
    pub queries: &'a [f32],
    /// Positions of the split each pair sees, counted from its start: 1 to 256, one a pair.
    pub positions: &'a [usize],
    /// Keys `[head_dim][PAGE]` of the pages of the split; as many as the positions need.
    pub keys: &'a [&'a [f16]],
    /// Values `[PAGE][head_dim]` of the same pages.
    pub values: &'a [&'a [f16]],
}

impl SplitOperands<'_> {
    /// Most positions that a pair sees, and fewest.
    ///
    /// # Panics
    /// When a slice is too short for what the operands promise; kernels rely on this.
    pub(super) fn check(&self, scores: &[f32], out: &[f32]) -> (usize, usize) {
        let pairs = self.positions.len();
        let most = self.positions.iter().copied().max().unwrap_or_default();
        let fewest = self.positions.iter().copied().min().unwrap_or_default();
        assert!((1..=MAX_PAIRS).contains(&pairs) && fewest >= 1 && most <= ATTENTION_SPLIT);
        assert!(self.head_dim.is_multiple_of(16) && self.head_dim <= MAX_HEAD_DIM);
        assert!(self.queries.len() >= pairs * QUERY_STRIDE && scores.len() >= pairs * SCORE_STRIDE);
        assert!(out.len() >= pairs * (self.head_dim + PARTIAL_TAIL));
        let pages = most.div_ceil(PAGE);
        assert!(self.keys.len() >= pages && self.values.len() >= pages);
        assert!(self.keys.iter().chain(self.values).all(|page| page.len() >= self.head_dim * PAGE));
        (most, fewest)
    }
}

/// Works on one split.
///
/// `scores` is room for f32 `[pairs, SCORE_STRIDE]`. `out` is f32 `[pairs, head_dim + PARTIAL_TAIL]`: weighted values, then
/// largest score, then sum.
pub type SplitKernel = fn(operands: &SplitOperands<'_>, scores: &mut [f32], out: &mut [f32]);

/// Puts the splits of one pair together: split `s` of `splits` stands at `s * stride` of `partials`; `out` is one head.
pub type CombineKernel = fn(partials: &[f32], splits: usize, stride: usize, out: &mut [f32]);
