//! Activation quantisation: f32 rows to int8 planes.

#[cfg(target_arch = "x86_64")]
mod avx2_block;
#[cfg(target_arch = "x86_64")]
mod avx2_block4;
mod cuda;
mod prepared;
mod scalar;

pub use prepared::Quantiser;

use std::sync::LazyLock;

use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{Cost, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance};

use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::input::Stream;
use crate::ops::{device, shared};

/// The contract's name.
pub const ID: &str = "quantise";

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "blocks of 32 f32 become 32 signed bytes, one f32 scale and the sum of the bytes",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "k", meaning: "length of a row, a multiple of 32, at most 131072" },
    ],
    tensors: &[
        TensorInfo { name: "x", role: "in", meaning: "f32 [m, k], finite" },
        TensorInfo { name: "quants", role: "out", meaning: "i8 [m, k], -127..=127" },
        TensorInfo { name: "scales", role: "out", meaning: "f32 [m, k/32]" },
        TensorInfo { name: "sums", role: "out", meaning: "i16 [m, k/32], sum of the quants of a block" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

const FAMILIES: &[(&str, &str)] = &[
    ("normal", "what activations look like: normal values"),
    ("outlier", "one value in forty is a hundred times the others"),
    ("ties", "values half way between two quants"),
    ("range", "block maxima from the largest float down to below the flush threshold"),
    ("zeros", "zeros of both signs"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Quantises a run of whole blocks.
///
/// `x` and `quants` hold 32 elements a block, `scales` and `sums` one.
pub type HostKernel = fn(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct QuantiseVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        QuantiseVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::QUANTISE_BLOCK32,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/quantise/", $file), text: include_str!($file) },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[QuantiseVariant] = &[
    variant!(
        "scalar",
        "one block after another in plain loops; the baseline",
        IsaTier::Scalar,
        "scalar.rs",
        scalar::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_block",
        "one block in four vectors, maximum and sum reduced across lanes",
        IsaTier::Avx2,
        "avx2_block.rs",
        avx2_block::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_block4",
        "four blocks together: one transposed reduction and one division for four maxima",
        IsaTier::Avx2,
        "avx2_block4.rs",
        avx2_block4::kernel
    ),
];

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static QuantiseVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// The fastest registered kernel of a tier for a few rows, used where a product quantises its own activation.
pub(crate) fn kernel_for(tier: IsaTier) -> HostKernel {
    VARIANTS.iter().rev().find(|entry| entry.listed.target.is_within(tier)).map_or(scalar::kernel, |entry| entry.kernel)
}

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    k: usize,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["m", "k"])?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let k = problem.size(ID, "k", QUANT_BLOCK as u64..=131_072)? as usize;
        if !k.is_multiple_of(QUANT_BLOCK) {
            return Err(ProblemError::Value {
                contract: ID.to_owned(),
                axis: "k".to_owned(),
                value: k.to_string(),
                why: "it must be a multiple of 32".to_owned(),
            });
        }
        Ok(Self { m, k })
    }

    fn blocks(self) -> usize {
        self.m * self.k / QUANT_BLOCK
    }
}

/// The contract.
#[derive(Debug)]
pub struct Quantise;

impl Contract for Quantise {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.k) as u64;
        // Per element: absolute value, maximum, product, rounding, sum.
        Ok(Cost { flops: elements * 5, read_bytes: elements * 4, written_bytes: elements + sizes.blocks() as u64 * 6 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance {
            max_scaled_error: 0.5 + 512.0 * F32_UNIT_ROUNDOFF,
            reason: "half a quant, plus 127 quants times the roundings of inverse, product and scale",
        })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: "none".to_owned(), class: "any".to_owned(), m: sizes.m as u64 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let sizes = Sizes::parse(problem)?;
        let stream = Stream::new(seed, "x");
        let value: fn(Stream, u64) -> f32 = match family {
            "normal" => Stream::normal,
            "outlier" => |s, i| s.normal(i) * if s.bits(i).is_multiple_of(40) { 100.0 } else { 1.0 },
            // A maximum of 127 makes the inverse 1, so halves are exact ties.
            "ties" => |s, i| if i.is_multiple_of(32) { 127.0 } else { (s.bits(i) % 253) as f32 - 126.0 + 0.5 },
            "range" => |s, i| {
                s.plus_minus_one(i) * [f32::MAX, 1e30, 1.0, 1e-30, 3e-36, 8e-37, 4e-37, 1e-40][(i / 32 % 8) as usize]
            },
            "zeros" => |s, i| if s.bits(i).is_multiple_of(2) { 0.0 } else { -0.0 },
            _ => {
                return Err(InputError::Family {
                    contract: ID,
                    family: family.to_owned(),
                    known: FAMILIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                });
            }
        };
        let values: Vec<f32> = (0..(sizes.m * sizes.k) as u64).map(|i| value(stream, i)).collect();
        Ok(TensorSet::new(vec![Tensor::f32("x", &[sizes.m, sizes.k], &values)]))
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let x = inputs.get("x").map(Tensor::to_f32).unwrap_or_default();
        let (mut quants, mut scales, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for block in x.as_chunks::<QUANT_BLOCK>().0 {
            let (q, scale, sum) = order::quantise_block(block);
            quants.extend_from_slice(&q);
            scales.push(scale);
            sums.push(sum);
        }
        Ok(outputs(sizes, &quants, &scales, &sums))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Sizes::parse(problem)?;
        let values: Vec<f64> =
            inputs.get("x").map(Tensor::to_f32).unwrap_or_default().into_iter().map(f64::from).collect();
        Ok(Reference { scales: block_scales(&values), values })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        plane_values(outputs)
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
        Ok(Box::new(prepared::PreparedQuantise::new(variant, sizes, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        self.supports(variant, problem)?;
        let kernel = device::kernel_of(cuda::VARIANTS, variant)
            .ok_or_else(|| shared::unsupported(ID, variant.name, problem, "it runs on the host".to_owned()))?;
        cuda::form(kernel, Sizes::parse(problem)?, inputs)
    }
}

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static QuantiseVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    match VARIANTS.iter().find(|entry| entry.listed.name == variant.name) {
        Some(entry) => Ok((entry, sizes)),
        None => Err(PrepareError::Unsupported {
            contract: ID,
            variant: variant.name.to_owned(),
            problem: problem.to_string(),
            why: "it is not registered".to_owned(),
        }),
    }
}

fn outputs(sizes: Sizes, quants: &[i8], scales: &[f32], sums: &[i16]) -> TensorSet {
    planes(sizes.m, sizes.k, quants, scales, sums)
}

/// The scale of each element's error: one quant of its block.
pub(crate) fn block_scales(values: &[f64]) -> Vec<f64> {
    let mut scales = Vec::with_capacity(values.len());
    for block in values.chunks_exact(QUANT_BLOCK) {
        let maximum = block.iter().fold(0.0_f64, |a, v| a.max(v.abs()));
        // Blocks below the flush threshold become zero: their error is the threshold's.
        scales.extend([(maximum / 127.0).max(2.0 * f64::from(order::QUANT_FLUSH)); QUANT_BLOCK]);
    }
    scales
}

/// The values that int8 planes stand for.
pub(crate) fn plane_values(outputs: &TensorSet) -> Vec<f64> {
    let quants = outputs.get("quants").map(Tensor::to_i8).unwrap_or_default();
    let scales = outputs.get("scales").map(Tensor::to_f32).unwrap_or_default();
    quants
        .chunks_exact(QUANT_BLOCK)
        .zip(scales)
        .flat_map(|(block, scale)| block.iter().map(move |q| f64::from(*q) * f64::from(scale)))
        .collect()
}

/// Int8 planes of `m` rows of `k` as tensors.
pub(crate) fn planes(m: usize, k: usize, quants: &[i8], scales: &[f32], sums: &[i16]) -> TensorSet {
    let blocks = [m, k / QUANT_BLOCK];
    TensorSet::new(vec![
        Tensor::i8("quants", &[m, k], quants),
        Tensor::f32("scales", &blocks, scales),
        Tensor::i16("sums", &blocks, sums),
    ])
}
