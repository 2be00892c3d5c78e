//! Rotary embedding of queries and keys, and the append of keys and values to the paged cache.

#[cfg(target_arch = "x86_64")]
mod avx2_pairs;
mod cuda;
mod prepared;
mod rotation;
mod run;
mod scalar;
#[cfg(test)]
mod tests;

pub use rotation::{Rotation, RotationKind, inverse_frequencies};
pub use run::run;

use std::sync::LazyLock;

use half::f16;
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{AxisValue, Cost, DType, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance, order};

use super::attention::problem::{CacheSizes, half_tensor, halves_of, pages_of};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::input::Stream;
use crate::ops::{device, input, shared};

/// The contract's name.
pub const ID: &str = "rope_append";

/// Base of the frequencies of generated problems.
const BASE: f64 = 10_000.0;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "queries and keys are turned by their positions; keys and values go to their pages of the cache as f16",
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
        AxisInfo { name: "kind", meaning: "pairs of dimensions: interleaved (default) or halves" },
        AxisInfo { name: "n_rot", meaning: "dimensions of a head that are turned, even; head_dim by default" },
    ],
    tensors: &[
        TensorInfo { name: "qkv", role: "in", meaning: "f32 [m, (heads + 2 kv_heads) * head_dim]: query, key, value" },
        TensorInfo { name: "table", role: "in", meaning: "f32 [m, n_rot]: a row's cosines, then its sines" },
        TensorInfo { name: "page_table", role: "in", meaning: "i32 [seqs, pages of a sequence]" },
        TensorInfo { name: "q", role: "out", meaning: "f32 [m, heads * head_dim]; does not alias qkv" },
        TensorInfo { name: "k", role: "out", meaning: "f16 [m, kv_heads * head_dim], as it stands in pages of keys" },
        TensorInfo { name: "v", role: "out", meaning: "f16 [m, kv_heads * head_dim], as it stands in pages of values" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

const FAMILIES: &[(&str, &str)] = &[
    ("normal", "normal values"),
    ("large", "values up to half the largest f16"),
    ("small", "values that are subnormal in f16"),
    ("ties", "values half way between two f16, and no turn where the position is zero"),
    ("zeros", "zeros of both signs"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Turns whole heads of one row: `table` holds `n_rot / 2` cosines, then as many sines; `out` is as long as `heads`.
pub type RotateKernel = fn(kind: RotationKind, table: &[f32], head_dim: usize, heads: &[f32], out: &mut [f32]);

/// Rounds to f16, ties to even; both slices are equally long.
pub type NarrowKernel = fn(values: &[f32], out: &mut [f16]);

/// One variant with its kernels.
#[derive(Debug)]
pub struct RopeAppendVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Turns heads.
    pub rotate: RotateKernel,
    /// Rounds to f16.
    pub narrow: NarrowKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $module:ident) => {
        RopeAppendVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "pages64",
                order_class: order::ROPE_F32,
                rows: (1, 4096),
                source: Source {
                    path: concat!("kernels/src/ops/rope_append/", stringify!($module), ".rs"),
                    text: include_str!(concat!(stringify!($module), ".rs")),
                },
            },
            rotate: $module::rotate,
            narrow: $module::narrow,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[RopeAppendVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, scalar),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_pairs",
        "eight dimensions a vector, a pair's cosine and sine spread once for all heads of the row",
        IsaTier::Avx2,
        avx2_pairs
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The registered variants with their kernels, baseline first.
pub fn variants() -> &'static [RopeAppendVariant] {
    VARIANTS
}

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static RopeAppendVariant> {
    VARIANTS.iter().find(|variant| variant.listed.name == name)
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    cache: CacheSizes,
    kind: RotationKind,
    n_rot: usize,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        let mut axes = CacheSizes::AXES.to_vec();
        axes.extend(["kind", "n_rot"]);
        problem.only(ID, &axes)?;
        let cache = CacheSizes::parse(ID, problem)?;
        let refuse = |axis: &str, value: String, why: &str| ProblemError::Value {
            contract: ID.to_owned(),
            axis: axis.to_owned(),
            value,
            why: why.to_owned(),
        };
        let kind = match problem.get("kind").map(AxisValue::to_string).as_deref() {
            None | Some("interleaved") => RotationKind::Interleaved,
            Some("halves") => RotationKind::Halves,
            Some(other) => return Err(refuse("kind", other.to_owned(), "interleaved or halves is needed")),
        };
        let n_rot = match problem.get("n_rot") {
            None => cache.shape.head_dim,
            Some(_) => problem.size(ID, "n_rot", 2..=cache.shape.head_dim as u64)? as usize,
        };
        if !n_rot.is_multiple_of(2) {
            return Err(refuse("n_rot", n_rot.to_string(), "it must be even"));
        }
        Ok(Self { cache, kind, n_rot })
    }

    /// Query, key and value of each row.
    fn rows(self, qkv: &[f32]) -> impl Iterator<Item = (&[f32], &[f32], &[f32])> {
        let shape = self.cache.shape;
        qkv.chunks_exact(shape.qkv_elements()).map(move |row| {
            let (q, kv) = row.split_at(shape.q_elements());
            let (k, v) = kv.split_at(shape.kv_heads * shape.head_dim);
            (q, k, v)
        })
    }
}

/// The contract.
#[derive(Debug)]
pub struct RopeAppend;

impl Contract for RopeAppend {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let kind = match sizes.kind {
            RotationKind::Interleaved => "interleaved",
            RotationKind::Halves => "halves",
        };
        Ok(sizes.cache.fill(problem).with_word("kind", kind).with("n_rot", sizes.n_rot as u64))
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let (m, shape) = (sizes.cache.m as u64, sizes.cache.shape);
        let kv = (shape.kv_heads * shape.head_dim) as u64;
        let turned = ((shape.heads + shape.kv_heads) * sizes.n_rot) as u64;
        Ok(Cost {
            flops: m * turned * 3,
            read_bytes: m * (shape.qkv_elements() + sizes.n_rot) as u64 * 4,
            written_bytes: m * (shape.q_elements() as u64 * 4 + kv * 4),
        })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance {
            max_scaled_error: 4.0 * F32_UNIT_ROUNDOFF,
            reason: "one product and one fma, relative to the sum of the absolute values of the pair; for f16 that sum, at \
                     least the smallest normal f16, is taken 4096 times, so that it covers half a unit of f16",
        })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: "f16".to_owned(), class: sizes.cache.class(), m: sizes.cache.m as u64 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let sizes = Sizes::parse(problem)?;
        let value: fn(Stream, u64) -> f32 = match family {
            "normal" => Stream::normal,
            "large" => |s, i| s.plus_minus_one(i) * 32_000.0,
            "small" => |s, i| s.plus_minus_one(i) * 6e-5,
            // Eleven bits are kept: an odd multiple of 2^-11 past one is a tie.
            "ties" => |s, i| 1.0 + (2 * (s.bits(i) % 512) + 1) as f32 / 2048.0,
            "zeros" => |s, i| if s.bits(i).is_multiple_of(2) { 0.0 } else { -0.0 },
            _ => {
                return Err(InputError::Family {
                    contract: ID,
                    family: family.to_owned(),
                    known: FAMILIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                });
            }
        };
        let cache = sizes.cache;
        let stream = Stream::new(seed, "qkv");
        let qkv: Vec<f32> = (0..(cache.m * cache.shape.qkv_elements()) as u64).map(|i| value(stream, i)).collect();
        let mut rotation = Rotation::new(sizes.kind, sizes.n_rot);
        let positions = (0..cache.m).map(|row| cache.depth + row % cache.rows());
        rotation.fill(positions, &inverse_frequencies(BASE, sizes.n_rot, None));
        Ok(TensorSet::new(vec![
            Tensor::f32("qkv", &[cache.m, cache.shape.qkv_elements()], &qkv),
            Tensor::f32("table", &[cache.m, sizes.n_rot], &rotation.table),
            cache.page_table(seed),
        ]))
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let qkv = inputs.get("qkv").map(Tensor::to_f32).unwrap_or_default();
        let table = inputs.get("table").map(Tensor::to_f32).unwrap_or_default();
        let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut turned = vec![0.0; sizes.cache.shape.head_dim];
        for ((q, k, v), table) in sizes.rows(&qkv).zip(table.chunks_exact(sizes.n_rot)) {
            for head in q.chunks_exact(turned.len()) {
                order::rope_head(sizes.kind, table, head, &mut turned);
                queries.extend_from_slice(&turned);
            }
            for head in k.chunks_exact(turned.len()) {
                order::rope_head(sizes.kind, table, head, &mut turned);
                keys.extend(turned.iter().map(|k| f16::from_f32(*k)));
            }
            values.extend(v.iter().map(|v| f16::from_f32(*v)));
        }
        let shape = [sizes.cache.m, sizes.cache.shape.q_elements()];
        Ok(outputs(sizes, Tensor::f32("q", &shape, &queries), &keys, &values))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let qkv = inputs.get("qkv").map(Tensor::to_f32).unwrap_or_default();
        let table = inputs.get("table").map(Tensor::to_f32).unwrap_or_default();
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for ((q, k, v), table) in sizes.rows(&qkv).zip(table.chunks_exact(sizes.n_rot)) {
            for (part, heads) in parts.iter_mut().zip([q, k]) {
                for head in heads.chunks_exact(sizes.cache.shape.head_dim) {
                    part.extend(turned_exactly(sizes, table, head));
                }
            }
            parts[2].extend(v.iter().map(|v| (f64::from(*v), f64::from(v.abs()))));
        }
        let (mut values, mut scales) = (Vec::new(), Vec::new());
        for (part, is_half) in parts.into_iter().zip([false, true, true]) {
            for (value, terms) in part {
                values.push(value);
                scales.push(if is_half {
                    terms.max(f64::from(f16::MIN_POSITIVE)) * 4096.0
                } else {
                    terms.max(f64::from(f32::MIN_POSITIVE))
                });
            }
        }
        Ok(Reference { values, scales })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        let q = outputs.get("q").map(Tensor::to_f32).unwrap_or_default();
        let halves = [halves_of(outputs.get("k")), halves_of(outputs.get("v"))];
        q.into_iter().map(f64::from).chain(halves.into_iter().flatten().map(f64::from)).collect()
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &LISTED
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        if device::kernel_of(cuda::VARIANTS, variant).is_some() {
            return Ok(Sizes::parse(problem).map(|_| ())?);
        }
        find(variant, problem).map(|_| ())
    }

    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        device::refuse_on_host(ID, variant, problem)?;
        let (variant, sizes) = find(variant, problem)?;
        Ok(Box::new(prepared::PreparedRopeAppend::new(variant, sizes, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        self.supports(variant, problem)?;
        device::kernel_of(cuda::VARIANTS, variant)
            .ok_or_else(|| shared::unsupported(ID, variant.name, problem, "it runs on the host".to_owned()))?;
        cuda::form(Sizes::parse(problem)?, inputs)
    }
}

/// A turned head in f64: each element with the sum of the absolute values of its terms.
fn turned_exactly(sizes: Sizes, table: &[f32], head: &[f32]) -> Vec<(f64, f64)> {
    let mut turned: Vec<(f64, f64)> = head.iter().map(|x| (f64::from(*x), f64::from(x.abs()))).collect();
    let pairs = sizes.n_rot / 2;
    for i in 0..pairs {
        let (first, second) = match sizes.kind {
            RotationKind::Interleaved => (2 * i, 2 * i + 1),
            RotationKind::Halves => (i, i + pairs),
        };
        let (cos, sin) = (f64::from(table[i]), f64::from(table[pairs + i]));
        let (x0, x1) = (f64::from(head[first]), f64::from(head[second]));
        turned[first] = (x0 * cos - x1 * sin, (x0 * cos).abs() + (x1 * sin).abs());
        turned[second] = (x1 * cos + x0 * sin, (x1 * cos).abs() + (x0 * sin).abs());
    }
    turned
}

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static RopeAppendVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
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

/// The page table, which names pages of the cache and none twice.
fn page_table_of(sizes: Sizes, inputs: &TensorSet) -> Result<Vec<u32>, PrepareError> {
    let cache = sizes.cache;
    let pages = input(ID, inputs, "page_table", DType::I32, cache.seqs * cache.sequence_pages())?;
    let page_table = pages_of(Some(pages));
    let mut sorted = page_table.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1])
        || sorted.last().is_some_and(|page| *page as usize >= cache.cache_pages())
    {
        let why = format!("names a page twice, or one outside the cache of {} pages", cache.cache_pages());
        return Err(PrepareError::Input { contract: ID, tensor: "page_table".to_owned(), why });
    }
    Ok(page_table)
}

fn outputs(sizes: Sizes, q: Tensor, keys: &[f16], values: &[f16]) -> TensorSet {
    let shape = vec![sizes.cache.m, sizes.cache.shape.kv_heads * sizes.cache.shape.head_dim];
    TensorSet::new(vec![q, half_tensor("k", shape.clone(), keys), half_tensor("v", shape, values)])
}
