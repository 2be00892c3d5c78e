//! Attention: causal, grouped-query, over a paged cache in f16; prefill and decode in one launch.

#[cfg(target_arch = "x86_64")]
mod avx2_lanes8;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_lanes16;
mod inputs;
mod kernel;
pub mod pages;
mod prepared;
pub(crate) mod problem;
mod run;
mod scalar;
#[cfg(test)]
mod tests;

pub use kernel::{
    CombineKernel, MAX_PAIRS, PARTIAL_TAIL, QUERY_STRIDE, SCORE_STRIDE, SPLIT_PAGES, SplitKernel, SplitOperands,
};
pub use pages::{HeadShape, PAGE, Pages, PagesMut, RowGroup};
pub use run::{Scratch, run};

use std::sync::LazyLock;

use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{Cost, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance, order};

use self::problem::{CacheSizes, halves_of, pages_of};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};

/// The contract's name.
pub const ID: &str = "attention";

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = softmax(q k^T / sqrt(head_dim)) v, each row over the positions up to its own, on a paged f16 cache",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "heads", meaning: "query heads, a multiple of kv_heads, at most 256" },
        AxisInfo { name: "kv_heads", meaning: "heads of keys and of values" },
        AxisInfo { name: "head_dim", meaning: "length of a head, a multiple of 16, at most 256" },
        AxisInfo { name: "depth", meaning: "positions before the first row of each sequence; 0 by default" },
        AxisInfo {
            name: "seqs",
            meaning: "sequences the rows are split over evenly; 1 by default, m for a decode batch",
        },
    ],
    tensors: &[
        TensorInfo { name: "q", role: "in", meaning: "f32 [m, heads * head_dim]" },
        TensorInfo { name: "keys", role: "in", meaning: "f16 [pages, kv_heads, head_dim, 64]" },
        TensorInfo { name: "values", role: "in", meaning: "f16 [pages, kv_heads, 64, head_dim]" },
        TensorInfo { name: "page_table", role: "in", meaning: "i32 [seqs, pages of a sequence]" },
        TensorInfo { name: "out", role: "out", meaning: "f32 [m, heads * head_dim]; does not alias q" },
    ],
    scalars: &["scale: f32, 1 / sqrt(head_dim)"],
    families: inputs::FAMILIES,
    rows_axis: "m",
};

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// One variant with its kernels.
#[derive(Debug)]
pub struct AttentionVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// (Row, query head) pairs its split kernel takes at once, at most [`MAX_PAIRS`].
    pub pairs: usize,
    /// Works on a split.
    pub split: SplitKernel,
    /// Puts splits together.
    pub combine: CombineKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $pairs:literal, $module:ident) => {
        AttentionVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "pages64",
                order_class: order::ATTENTION_SPLIT256,
                rows: (1, 4096),
                source: Source {
                    path: concat!("kernels/src/ops/attention/", stringify!($module), ".rs"),
                    text: include_str!(concat!(stringify!($module), ".rs")),
                },
            },
            pairs: $pairs,
            split: $module::split,
            combine: $module::combine,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[AttentionVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, 1, scalar),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_lanes8",
        "six pairs of row and head share each converted key and value; a lane is a position, then a dimension",
        IsaTier::Avx2,
        6,
        avx2_lanes8
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx512vnni_lanes16",
        "twelve pairs of row and head share each converted key and value; a lane is a position, then a dimension",
        IsaTier::Avx512Vnni,
        12,
        avx512vnni_lanes16
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> = LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).collect());

/// The registered variants with their kernels, baseline first.
pub fn variants() -> &'static [AttentionVariant] {
    VARIANTS
}

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static AttentionVariant> {
    VARIANTS.iter().find(|variant| variant.listed.name == name)
}

/// `1 / sqrt(head_dim)`, the factor of the scores.
pub fn scale_of(head_dim: usize) -> f32 {
    (1.0 / (head_dim as f64).sqrt()) as f32
}

/// A problem's cache sizes, with foreign axes refused.
fn sizes(problem: &Problem) -> Result<CacheSizes, ProblemError> {
    problem.only(ID, &CacheSizes::AXES)?;
    CacheSizes::parse(ID, problem)
}

/// The contract.
#[derive(Debug)]
pub struct Attention;

impl Contract for Attention {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Ok(sizes(problem)?.fill(problem))
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = sizes(problem)?;
        let (rows, shape) = (sizes.rows(), sizes.shape);
        // Row i of a sequence sees depth + i + 1 positions; each is a product with the key and one with the value.
        let seen = sizes.seqs * (rows * sizes.depth + rows * (rows + 1) / 2);
        let cached = sizes.seqs * (sizes.depth + rows) * shape.kv_heads * shape.head_dim * 2;
        let activation = (sizes.m * shape.q_elements() * 4) as u64;
        Ok(Cost {
            flops: (seen * shape.q_elements() * 4) as u64,
            read_bytes: cached as u64 * 2 + activation,
            written_bytes: activation,
        })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        let sizes = sizes(problem)?;
        let splits = (sizes.depth + sizes.rows()).div_ceil(order::ATTENTION_SPLIT);
        let score = sizes.shape.head_dim + 6;
        let sums = order::ATTENTION_SPLIT + splits + 16;
        Ok(Tolerance {
            max_scaled_error: (2 * (score + sums)) as f64 * F32_UNIT_ROUNDOFF,
            reason: "an exponential's relative error is its score's absolute one: a rounding per dimension, scale, difference \
                     and exponential, times the sum of the absolute terms; then the chains over positions and splits; \
                     twice, for numerator and denominator; relative to the weighted absolute values times one and the \
                     largest sum of absolute score terms",
        })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = sizes(problem)?;
        Ok(ProblemClass { format: "f16".to_owned(), class: sizes.class(), m: sizes.m as u64 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        inputs::generate(sizes(problem)?, family, seed)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = sizes(problem)?;
        let scale = scale_of(sizes.shape.head_dim);
        let mut out = vec![0.0; sizes.m * sizes.shape.q_elements()];
        for_each_head(sizes, inputs, |head, q, positions, key, value| {
            let out = &mut out[head * sizes.shape.head_dim..][..sizes.shape.head_dim];
            order::attention(q, scale, positions, key, value, out);
        });
        Ok(TensorSet::new(vec![Tensor::f32("out", &[sizes.m, sizes.shape.q_elements()], &out)]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = sizes(problem)?;
        let scale = f64::from(scale_of(sizes.shape.head_dim));
        let (mut values, mut scales) = (Vec::new(), Vec::new());
        for_each_head(sizes, inputs, |_, q, positions, key, value| {
            let (mut scores, mut largest) = (Vec::with_capacity(positions), 0.0_f64);
            for j in 0..positions {
                let terms = q.iter().enumerate().map(|(d, q)| f64::from(*q) * scale * f64::from(key(j, d).to_f32()));
                scores.push(terms.clone().sum::<f64>());
                largest = largest.max(terms.map(f64::abs).sum());
            }
            let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - maximum).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..q.len() {
                let terms =
                    weights.iter().enumerate().map(|(j, weight)| weight * f64::from(value(j, d).to_f32()) / sum);
                values.push(terms.clone().sum());
                let scale = terms.map(f64::abs).sum::<f64>() * (1.0 + largest);
                scales.push(scale.max(f64::from(f32::MIN_POSITIVE)));
            }
        });
        Ok(Reference { values, scales })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(|out| out.to_f32().into_iter().map(f64::from).collect()).unwrap_or_default()
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &LISTED
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        find(variant, problem).map(|_| ())
    }

    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let (variant, sizes) = find(variant, problem)?;
        Ok(Box::new(prepared::PreparedAttention::new(variant, sizes, inputs, copies)?))
    }
}

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static AttentionVariant, CacheSizes), PrepareError> {
    let sizes = sizes(problem)?;
    match by_name(variant.name) {
        Some(entry) => Ok((entry, sizes)),
        None => Err(PrepareError::Unsupported {
            contract: ID,
            variant: variant.name.to_owned(),
            problem: problem.to_string(),
            why: "it is not registered".to_owned(),
        }),
    }
}

type Element<'a> = &'a dyn Fn(usize, usize) -> half::f16;

/// Calls `body(index of the head, query, positions it sees, key, value)` for each query head of each row.
fn for_each_head(
    sizes: CacheSizes,
    inputs: &TensorSet,
    mut body: impl FnMut(usize, &[f32], usize, Element<'_>, Element<'_>),
) {
    let shape = sizes.shape;
    let q = inputs.get("q").map(Tensor::to_f32).unwrap_or_default();
    let (keys, values) = (halves_of(inputs.get("keys")), halves_of(inputs.get("values")));
    let table = pages_of(inputs.get("page_table"));
    for (head, q) in q.chunks_exact(shape.head_dim).enumerate() {
        let (row, kv_head) = (head / shape.heads, head % shape.heads / shape.group());
        let table = &table[row / sizes.rows() * sizes.sequence_pages()..];
        let base = |j: usize| (table[j / PAGE] as usize * shape.kv_heads + kv_head) * shape.head_elements();
        let key = |j: usize, d: usize| keys[base(j) + d * PAGE + j % PAGE];
        let value = |j: usize, d: usize| values[base(j) + j % PAGE * shape.head_dim + d];
        body(head, q, sizes.depth + row % sizes.rows() + 1, &key, &value);
    }
}
