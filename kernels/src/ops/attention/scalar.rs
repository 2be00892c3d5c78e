//! The baseline: the order class, pair by pair.

use memra_contract::order::{self, AttentionSplit};

use super::kernel::{PARTIAL_TAIL, QUERY_STRIDE, SplitOperands};
use super::pages::PAGE;

pub(super) fn split(operands: &SplitOperands<'_>, scores: &mut [f32], out: &mut [f32]) {
    operands.check(scores, out);
    let head_dim = operands.head_dim;
    let key = |j: usize, d: usize| operands.keys[j / PAGE][d * PAGE + j % PAGE];
    let value = |j: usize, d: usize| operands.values[j / PAGE][j % PAGE * head_dim + d];
    for (pair, positions) in operands.positions.iter().enumerate() {
        let query = &operands.queries[pair * QUERY_STRIDE..][..head_dim];
        let split = order::attention_split(query, *positions, &key, &value);
        let out = &mut out[pair * (head_dim + PARTIAL_TAIL)..][..head_dim + PARTIAL_TAIL];
        out[..head_dim].copy_from_slice(&split.values);
        out[head_dim] = split.maximum;
        out[head_dim + 1] = split.sum;
    }
}

pub(super) fn combine(partials: &[f32], splits: usize, stride: usize, out: &mut [f32]) {
    let head_dim = out.len();
    let splits: Vec<AttentionSplit> = (0..splits)
        .map(|split| {
            let partial = &partials[split * stride..][..head_dim + 2];
            AttentionSplit {
                maximum: partial[head_dim],
                sum: partial[head_dim + 1],
                values: partial[..head_dim].to_vec(),
            }
        })
        .collect();
    order::attention_combine(&splits, out);
}
