//! What the steps of a plan hand to each other.

use memra_kernels::ops::attention::Scratch;
use memra_kernels::ops::rope_append::Rotation;

use super::Plan;

/// Activations of one step; rows times width each, allocated once for the most rows.
pub struct Buffers {
    /// The residual stream, `[rows, hidden]`.
    pub(super) stream: Vec<f32>,
    /// The next residual stream: a product does not write over its residual.
    pub(super) next: Vec<f32>,
    /// Quants of the activation of the next product, `[rows, k]`.
    pub(super) quants: Vec<i8>,
    /// Their scales, `[rows, k / 32]`.
    pub(super) scales: Vec<f32>,
    /// Sums of the quants of a block, `[rows, k / 32]`.
    pub(super) sums: Vec<i16>,
    /// Queries, keys and values, `[rows, qkv_width]`.
    pub(super) qkv: Vec<f32>,
    /// Rotated queries, `[rows, heads * head_dim]`.
    pub(super) queries: Vec<f32>,
    /// What attention gives, `[rows, heads * head_dim]`.
    pub(super) attended: Vec<f32>,
    /// Gate and up, `[rows, 2 * ffn]`.
    pub(super) gate_up: Vec<f32>,
    /// `[wanted rows, vocab]`.
    pub(super) logits: Vec<f32>,
    /// The most likely token of each wanted row.
    pub(super) best: Vec<u32>,
    /// Tokens of the step.
    pub(super) tokens: Vec<u32>,
    /// Rows that logits are wanted of.
    pub(super) wanted: Vec<usize>,
    /// Cosines and sines of the step's positions.
    pub(super) rotation: Rotation,
    /// Partial results of attention.
    pub(super) scratch: Scratch,
}

impl Buffers {
    /// Room for the most rows of a plan.
    pub fn new(plan: &Plan) -> Self {
        let (config, rows) = (&plan.config, plan.max_rows);
        let query_width = config.heads * config.head_dim;
        let k = config.hidden.max(config.ffn).max(query_width);
        Self {
            stream: vec![0.0; rows * config.hidden],
            next: vec![0.0; rows * config.hidden],
            quants: vec![0; rows * k],
            scales: vec![0.0; rows * k / 32],
            sums: vec![0; rows * k / 32],
            qkv: vec![0.0; rows * config.qkv_width()],
            queries: vec![0.0; rows * query_width],
            attended: vec![0.0; rows * query_width],
            gate_up: vec![0.0; rows * 2 * config.ffn],
            logits: vec![0.0; plan.max_wanted * config.vocab],
            best: vec![0; plan.max_wanted],
            tokens: Vec::with_capacity(rows),
            wanted: Vec::with_capacity(plan.max_wanted),
            rotation: Rotation { kind: config.rope.kind, n_rot: config.rope.n_rot, table: Vec::new() },
            scratch: Scratch::default(),
        }
    }

    /// Bytes that were allocated.
    pub fn bytes(&self) -> usize {
        let floats = [&self.stream, &self.next, &self.scales, &self.qkv, &self.queries, &self.attended, &self.gate_up];
        floats.iter().map(|buffer| buffer.capacity() * 4).sum::<usize>()
            + self.logits.capacity() * 4
            + self.quants.capacity()
            + self.sums.capacity() * 2
    }
}
