//! RMS norm straight to int8 planes: the normed row never leaves the first cache as floats.

#[cfg(target_arch = "x86_64")]
mod avx2_buffer;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_block4;
mod cuda;
mod prepared;
mod scalar;

use std::sync::LazyLock;

use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{Cost, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance};

use crate::backend::host::{Partition, Pool};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::ops::rms_norm::{self, Operands, RmsNorm};
use crate::ops::{device, quantise, shared};

/// The contract's name.
pub const ID: &str = "rms_norm_quantise";

/// Fewest elements a task is worth handing out for.
const TASK_ELEMENTS: usize = 8192;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "rms_norm of x, then quantise of the normed rows, with the bits of the two in turn",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "hidden", meaning: "length of a row, a multiple of 32, at most 131072" },
        AxisInfo { name: "eps", meaning: "epsilon, a positive decimal number; 1e-5 by default" },
    ],
    tensors: &[
        TensorInfo { name: "x", role: "in", meaning: "f32 [m, hidden]" },
        TensorInfo { name: "weight", role: "weight", meaning: "f32 [hidden]" },
        TensorInfo { name: "quants", role: "out", meaning: "i8 [m, hidden], -127..=127" },
        TensorInfo { name: "scales", role: "out", meaning: "f32 [m, hidden/32]" },
        TensorInfo { name: "sums", role: "out", meaning: "i16 [m, hidden/32], sum of the quants of a block" },
    ],
    scalars: &["epsilon: f32"],
    families: rms_norm::FAMILIES,
    rows_axis: "m",
};

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Norms and quantises whole rows: `quants` is as long as `operands.x`, `scales` and `sums` hold one element a block.
pub type HostKernel = fn(operands: &Operands<'_>, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct RmsNormQuantiseVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        RmsNormQuantiseVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::RMS_CHAIN128_QUANTISE_BLOCK32,
                rows: (1, 4096),
                source: Source {
                    path: concat!("kernels/src/ops/rms_norm_quantise/", $file),
                    text: include_str!($file),
                },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[RmsNormQuantiseVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, "scalar.rs", scalar::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_buffer",
        "normed values in a buffer of 1024, then its blocks in groups of four",
        IsaTier::Avx2,
        "avx2_buffer.rs",
        avx2_buffer::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx512vnni_block4",
        "four blocks at a time in registers, one reduction and one division for four maxima",
        IsaTier::Avx512Vnni,
        "avx512vnni_block4.rs",
        avx512vnni_block4::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static RmsNormQuantiseVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// Norms and quantises `m` rows: `x` is f32 `[m, hidden]`, `weight` f32 `[hidden]`, `quants` i8 `[m, hidden]`, `scales` f32
/// and `sums` i16 `[m, hidden/32]`.
///
/// # Panics
/// When `hidden` is no multiple of 32 or a slice has another size.
#[expect(clippy::too_many_arguments, reason = "the tensors of the contract")]
pub fn run(
    pool: &Pool,
    variant: &RmsNormQuantiseVariant,
    m: usize,
    hidden: usize,
    epsilon: f32,
    x: &[f32],
    weight: &[f32],
    quants: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i16],
) {
    assert!(hidden.is_multiple_of(QUANT_BLOCK), "rms_norm_quantise: hidden is a multiple of 32, not {hidden}");
    assert_eq!(x.len(), m * hidden, "rms_norm_quantise: x is f32 [{m}, {hidden}]");
    assert_eq!(weight.len(), hidden, "rms_norm_quantise: weight is f32 [{hidden}]");
    assert_eq!(quants.len(), m * hidden, "rms_norm_quantise: quants are i8 [{m}, {hidden}]");
    let row_blocks = hidden / QUANT_BLOCK;
    let blocks = m * row_blocks;
    assert!(
        scales.len() == blocks && sums.len() == blocks,
        "rms_norm_quantise: scales and sums are [{m}, {hidden} / 32]"
    );
    let tasks = shared::tasks(pool, x.len(), TASK_ELEMENTS).min(m);
    if tasks <= 1 {
        return (variant.kernel)(&Operands { hidden, x, weight, epsilon }, quants, scales, sums);
    }
    let [mut elements, mut of_scales, mut of_sums] =
        [QUANT_BLOCK, 1, 1].map(|unit| Partition::even(blocks * unit, tasks, row_blocks * unit));
    let tasks = elements.parts();
    let (quants, scales, sums) = (elements.lend(quants, 1), of_scales.lend(scales, 1), of_sums.lend(sums, 1));
    pool.run(tasks, &|task| {
        let (mut quants, mut scales, mut sums) = (quants.take(task), scales.take(task), sums.take(task));
        let operands = Operands { hidden, x: &x[quants.first()..][..quants.columns()], weight, epsilon };
        (variant.kernel)(&operands, quants.row(0), scales.row(0), sums.row(0));
    });
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    hidden: usize,
    epsilon: f32,
}

impl Sizes {
    /// The axes are those of `rms_norm`, so its parser reads them; its messages name this contract.
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        let (m, hidden, epsilon) = rms_norm::parse_axes(ID, problem)?;
        shared::whole_blocks(ID, "hidden", hidden)?;
        Ok(Self { m, hidden, epsilon })
    }
}

/// The contract.
#[derive(Debug)]
pub struct RmsNormQuantise;

impl Contract for RmsNormQuantise {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        RmsNorm.normalise(problem)
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.hidden) as u64;
        // Four operations for the norm and five for the quantisation.
        Ok(Cost {
            flops: elements * 9,
            read_bytes: elements * 4 + sizes.hidden as u64 * 4,
            written_bytes: elements + elements / QUANT_BLOCK as u64 * 6,
        })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        let norm = RmsNorm.tolerance(problem)?.max_scaled_error;
        Ok(Tolerance {
            max_scaled_error: 0.5 + 512.0 * F32_UNIT_ROUNDOFF + 2.0 * 127.0 * norm,
            reason: "half a quant, 127 quants times the roundings of inverse, product and scale, and 127 quants times the bound of \
                     the norm, once for the element and once for the block's maximum",
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
        Sizes::parse(problem)?;
        if !rms_norm::FAMILIES.iter().any(|(name, _)| *name == family) {
            return Err(shared::no_family(ID, family, rms_norm::FAMILIES));
        }
        RmsNorm.inputs(problem, family, seed)
    }

    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        Sizes::parse(problem)?;
        RmsNorm.with_weights(problem, inputs, weights).map_err(|error| match error {
            InputError::Weights { problem, why, .. } => InputError::Weights { contract: ID, problem, why },
            other => other,
        })
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let x = inputs.get("x").map(Tensor::to_f32).unwrap_or_default();
        let weight = inputs.get("weight").map(Tensor::to_f32).unwrap_or_default();
        let (mut quants, mut scales, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for row in x.chunks_exact(sizes.hidden) {
            for block in order::rms_norm(row, &weight, sizes.epsilon).as_chunks().0 {
                let (q, scale, sum) = order::quantise_block(block);
                quants.extend_from_slice(&q);
                scales.push(scale);
                sums.push(sum);
            }
        }
        Ok(quantise::planes(sizes.m, sizes.hidden, &quants, &scales, &sums))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Sizes::parse(problem)?;
        let Reference { values, .. } = RmsNorm.reference(problem, inputs)?;
        Ok(Reference { scales: quantise::block_scales(&values), values })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        quantise::plane_values(outputs)
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &LISTED
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        if let Some(kernel) = device::kernel_of(cuda::VARIANTS, variant) {
            let sizes = Sizes::parse(problem)?;
            return rms_norm::cuda::check(ID, kernel, variant.name, problem, sizes.hidden);
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
        Ok(Box::new(prepared::PreparedRmsNormQuantise::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static RmsNormQuantiseVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
