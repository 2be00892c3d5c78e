//! The plan: a straight list of steps with every kernel resolved, and the buffers between them.
//!
//! The same plan runs a prefill chunk, a decode batch, or both in one step: its rows are (sequence, position) pairs. On the
//! host the prefill and the decode program are the same order classes, so a token's numbers do not depend on how it was
//! scheduled.

mod buffers;
mod build;
mod resolve;
mod run;

pub use buffers::Buffers;
pub use build::Planner;
pub use resolve::Resolved;
pub use run::{Batch, Chunk, Wanted};

use std::sync::Arc;

use memra_kernels::ops::matmul::{PackedSegment, Product};
use memra_kernels::ops::{argmax, attention, embed, quantise, rms_norm_quantise, rope_append, sample, swiglu_quantise};
use memra_kernels::select::ByRows;

use crate::arch::ModelConfig;

/// Steps of one model on one device.
pub struct Plan {
    /// The model.
    pub config: ModelConfig,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Most rows of a step.
    pub max_rows: usize,
    /// Most rows of a step that logits are made for.
    pub max_wanted: usize,
    /// 1 / (base ^ (2 i / n_rot)), scaled as the model asks.
    pub inverse_frequencies: Vec<f64>,
    /// What draws tokens.
    pub sampler: &'static sample::SampleVariant,
    /// Hex digest of the problems and order classes of all steps, not of variants or layouts: with the same weights, equal
    /// digests give equal bits.
    pub program: String,
}

/// One step.
pub struct Step {
    /// Where it stands, such as `blk.3.qkv`.
    pub label: String,
    /// What was selected for it, one entry a family.
    pub resolved: Vec<Resolved>,
    /// What it does.
    pub op: Op,
}

/// What a step does.
pub enum Op {
    /// Token rows of the embedding into the residual stream.
    Embed {
        /// The embedding, in the layout of the head where they are one.
        weight: Arc<PackedSegment>,
        /// The kernel.
        variant: &'static embed::EmbedVariant,
    },
    /// The residual stream, normed and quantised, into the planes.
    NormQuantise {
        /// One factor an element.
        weight: Vec<f32>,
        /// The kernel.
        variants: ByRows<&'static rms_norm_quantise::RmsNormQuantiseVariant>,
        /// Whether only the wanted rows are left after it.
        is_last: bool,
    },
    /// Planes times weights.
    Product {
        /// The weights.
        product: Product,
        /// Length of a row of the activation.
        k: usize,
        /// Where the result goes.
        target: Target,
    },
    /// Queries are rotated; keys are rotated and appended to the cache with the values.
    RopeAppend {
        /// The layer.
        layer: usize,
        /// The kernel.
        variants: ByRows<&'static rope_append::RopeAppendVariant>,
    },
    /// Queries over the cache.
    Attention {
        /// The layer.
        layer: usize,
        /// The kernel.
        variants: ByRows<&'static attention::AttentionVariant>,
    },
    /// The attention's result into the planes.
    Quantise {
        /// The kernel.
        variants: ByRows<&'static quantise::QuantiseVariant>,
    },
    /// Gate and up into the planes.
    SwigluQuantise {
        /// The kernel.
        variants: ByRows<&'static swiglu_quantise::SwigluQuantiseVariant>,
    },
    /// The most likely token of every wanted row.
    Argmax {
        /// The kernel.
        variants: ByRows<&'static argmax::ArgmaxVariant>,
    },
}

/// Where the result of a product goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Queries, keys and values.
    Qkv,
    /// Gate and up.
    GateUp,
    /// Added to the residual stream.
    Residual,
    /// Logits of the wanted rows.
    Logits,
}

impl Plan {
    /// The kernel that takes the most likely token of one row.
    pub(crate) fn argmax(&self) -> &'static argmax::ArgmaxVariant {
        let last = self.steps.iter().rev().find_map(|step| match &step.op {
            Op::Argmax { variants } => Some(*variants.get(1)),
            _ => None,
        });
        last.unwrap_or(&argmax::VARIANTS[0])
    }

    /// Bytes of all weights as they lie in memory; a tied embedding counts once.
    pub fn weight_bytes(&self) -> usize {
        self.steps
            .iter()
            .map(|step| match &step.op {
                Op::Product { product, .. } => product.bytes(),
                Op::NormQuantise { weight, .. } => size_of_val(weight.as_slice()),
                Op::Embed { weight, .. } if !self.config.is_tied => weight.bytes.as_slice().len(),
                _ => 0,
            })
            .sum()
    }
}
