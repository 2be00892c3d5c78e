//! One step of the engine: the plan over the rows of several sequences.

use std::time::Instant;

use memra_kernels::backend::host::Pool;
use memra_kernels::ops::attention::RowGroup;
use memra_kernels::ops::matmul::{Operands, Q8Rows};
use memra_kernels::ops::quantise::Quantiser;
use memra_kernels::ops::{argmax, attention, embed, rms_norm_quantise, rope_append, swiglu_quantise};

use super::{Buffers, Op, Plan, Target};
use crate::cache::KvCache;

/// Rows of one sequence: consecutive tokens at consecutive positions.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Pages of the sequence, enough for the chunk's last position.
    pub pages: &'a [u32],
    /// Position of the first token.
    pub first_position: usize,
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// Which rows logits are wanted of.
    pub wanted: Wanted,
}

/// Which rows of a chunk logits are wanted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// None: the middle of a prompt.
    None,
    /// The last row.
    Last,
    /// Every row.
    All,
}

/// The rows of one step: chunks of different sequences, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The chunks.
    pub chunks: &'a [Chunk<'a>],
}

impl Batch<'_> {
    /// Rows of the step.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tokens.len()).sum()
    }

    /// Rows that logits are wanted of.
    pub fn wanted(&self) -> usize {
        self.chunks
            .iter()
            .map(|chunk| match chunk.wanted {
                Wanted::None => 0,
                Wanted::Last => 1,
                Wanted::All => chunk.tokens.len(),
            })
            .sum()
    }
}

impl Plan {
    /// Runs every step over the rows of a batch. Logits and most likely tokens of the wanted rows are in the buffers
    /// afterwards, in the order of the rows. `times`, where given, gets the nanoseconds of every step.
    ///
    /// # Panics
    /// When the batch is empty, has more rows than the plan, or names a token or a page that does not exist: the scheduler
    /// checks requests before they come here.
    pub fn run(
        &mut self,
        pool: &Pool,
        cache: &mut KvCache,
        buffers: &mut Buffers,
        batch: &Batch<'_>,
        mut times: Option<&mut Vec<u64>>,
    ) {
        let (rows, wanted) = (batch.rows(), batch.wanted());
        assert!(rows > 0 && rows <= self.max_rows, "a step of {rows} rows, and the plan is for 1 to {}", self.max_rows);
        assert!(wanted <= self.max_wanted, "logits of {wanted} rows, and the plan is for {}", self.max_wanted);
        buffers.begin(batch, &self.inverse_frequencies);
        let groups: Vec<RowGroup<'_>> = batch
            .chunks
            .iter()
            .map(|chunk| RowGroup {
                pages: chunk.pages,
                first_position: chunk.first_position,
                rows: chunk.tokens.len(),
            })
            .collect();
        if let Some(times) = times.as_deref_mut() {
            times.clear();
        }
        let Self { config, steps, .. } = self;
        let scale = 1.0 / (config.head_dim as f32).sqrt();
        let (hidden, ffn, query_width) = (config.hidden, config.ffn, config.heads * config.head_dim);
        let shape = cache.shape();
        let mut live = rows;
        let mut last = times.is_some().then(Instant::now);
        for step in steps {
            match &mut step.op {
                Op::Embed { weight, variant } => {
                    embed::run(pool, variant, weight, &buffers.tokens, &mut buffers.stream[..rows * hidden]);
                }
                Op::NormQuantise { weight, variants, is_last } => {
                    if *is_last {
                        live = wanted;
                        if live == 0 {
                            break;
                        }
                        buffers.keep_wanted(hidden);
                    }
                    let blocks = live * hidden / 32;
                    rms_norm_quantise::run(
                        pool,
                        variants.get(live),
                        live,
                        hidden,
                        config.norm_epsilon,
                        &buffers.stream[..live * hidden],
                        weight,
                        &mut buffers.quants[..live * hidden],
                        &mut buffers.scales[..blocks],
                        &mut buffers.sums[..blocks],
                    );
                }
                Op::Product { product, k, target } => {
                    let blocks = live * *k / 32;
                    let planes = Q8Rows {
                        quants: &buffers.quants[..live * *k],
                        scales: &buffers.scales[..blocks],
                        sums: &buffers.sums[..blocks],
                    };
                    let operands = Operands { m: live, k: *k, floats: &[], planes };
                    let size = live * product.width();
                    match target {
                        Target::Qkv => product.run(pool, &operands, &[], &mut buffers.qkv[..size]),
                        Target::GateUp => product.run(pool, &operands, &[], &mut buffers.gate_up[..size]),
                        Target::Logits => product.run(pool, &operands, &[], &mut buffers.logits[..size]),
                        Target::Residual => {
                            product.run(pool, &operands, &buffers.stream[..size], &mut buffers.next[..size]);
                            std::mem::swap(&mut buffers.stream, &mut buffers.next);
                        }
                    }
                }
                Op::RopeAppend { layer, variants } => rope_append::run(
                    pool,
                    variants.get(rows),
                    shape,
                    &buffers.rotation,
                    &groups,
                    &buffers.qkv[..rows * config.qkv_width()],
                    &mut buffers.queries[..rows * query_width],
                    cache.layer_mut(*layer),
                ),
                Op::Attention { layer, variants } => attention::run(
                    pool,
                    variants.get(rows),
                    shape,
                    scale,
                    &groups,
                    &buffers.queries[..rows * query_width],
                    cache.layer(*layer),
                    &mut buffers.scratch,
                    &mut buffers.attended[..rows * query_width],
                ),
                Op::Quantise { variants } => {
                    let blocks = rows * query_width / 32;
                    Quantiser::new(variants.get(rows).kernel).run(
                        pool,
                        &buffers.attended[..rows * query_width],
                        &mut buffers.quants[..rows * query_width],
                        &mut buffers.scales[..blocks],
                        &mut buffers.sums[..blocks],
                    );
                }
                Op::SwigluQuantise { variants } => {
                    let blocks = rows * ffn / 32;
                    swiglu_quantise::run(
                        pool,
                        variants.get(rows),
                        rows,
                        ffn,
                        &buffers.gate_up[..rows * 2 * ffn],
                        &mut buffers.quants[..rows * ffn],
                        &mut buffers.scales[..blocks],
                        &mut buffers.sums[..blocks],
                    );
                }
                Op::Argmax { variants } => argmax::run(
                    pool,
                    variants.get(live),
                    live,
                    config.vocab,
                    &buffers.logits[..live * config.vocab],
                    &mut buffers.best[..live],
                ),
            }
            if let (Some(times), Some(last)) = (times.as_deref_mut(), &mut last) {
                let now = Instant::now();
                times.push((now - *last).as_nanos() as u64);
                *last = now;
            }
        }
    }
}

impl Buffers {
    fn begin(&mut self, batch: &Batch<'_>, inverse_frequencies: &[f64]) {
        self.tokens.clear();
        self.wanted.clear();
        for chunk in batch.chunks {
            let first = self.tokens.len();
            self.tokens.extend_from_slice(chunk.tokens);
            match chunk.wanted {
                Wanted::None => {}
                Wanted::Last => self.wanted.push(self.tokens.len() - 1),
                Wanted::All => self.wanted.extend(first..self.tokens.len()),
            }
        }
        let positions =
            batch.chunks.iter().flat_map(|chunk| chunk.first_position..chunk.first_position + chunk.tokens.len());
        self.rotation.fill(positions, inverse_frequencies);
    }

    /// Moves the wanted rows of the residual stream to its front.
    fn keep_wanted(&mut self, hidden: usize) {
        for (target, row) in self.wanted.iter().enumerate() {
            self.stream.copy_within(row * hidden..(row + 1) * hidden, target * hidden);
        }
    }

    /// Logits of a wanted row of the last step.
    pub fn logits(&self, wanted: usize, vocab: usize) -> &[f32] {
        &self.logits[wanted * vocab..(wanted + 1) * vocab]
    }

    /// Logits of a wanted row of the last step, to be changed before a token is drawn.
    pub fn logits_mut(&mut self, wanted: usize, vocab: usize) -> &mut [f32] {
        &mut self.logits[wanted * vocab..(wanted + 1) * vocab]
    }

    /// The most likely token of a wanted row of the last step.
    pub fn best(&self, wanted: usize) -> u32 {
        self.best[wanted]
    }
}
