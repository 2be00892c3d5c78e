//! SwiGLU straight to int8 planes: the gated product never leaves the first cache as floats.

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
use crate::ops::swiglu::{FAMILIES, exact, for_each_run, gate_up, pairs};
use crate::ops::{device, quantise, shared};

/// The contract's name.
pub const ID: &str = "swiglu_quantise";

/// Fewest blocks a task is worth handing out for.
const TASK_BLOCKS: usize = 256;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "swiglu of gate_up, then quantise of the product, with the bits of the two in turn",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "ffn", meaning: "columns of the output, a multiple of 32, at most 131072" },
    ],
    tensors: &[
        TensorInfo { name: "gate_up", role: "in", meaning: "f32 [m, 2 * ffn], finite: gates, then ups" },
        TensorInfo { name: "quants", role: "out", meaning: "i8 [m, ffn], -127..=127" },
        TensorInfo { name: "scales", role: "out", meaning: "f32 [m, ffn/32]" },
        TensorInfo { name: "sums", role: "out", meaning: "i16 [m, ffn/32], sum of the quants of a block" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Gates and quantises a run of whole blocks of one row: `gate`, `up` and `quants` hold 32 elements a block, `scales` and
/// `sums` one.
pub type HostKernel = fn(gate: &[f32], up: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct SwigluQuantiseVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        SwigluQuantiseVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::SWIGLU_QUANTISE_BLOCK32,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/swiglu_quantise/", $file), text: include_str!($file) },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[SwigluQuantiseVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, "scalar.rs", scalar::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_buffer",
        "gated products in a buffer of 1024, then its blocks in groups of four",
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
pub fn by_name(name: &str) -> Option<&'static SwigluQuantiseVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// Gates and quantises `m` rows: `gate_up` is f32 `[m, 2 * ffn]`, `quants` i8 `[m, ffn]`, `scales` f32 and `sums` i16
/// `[m, ffn/32]`.
///
/// # Panics
/// When `ffn` is no multiple of 32 or a slice has another size.
#[expect(clippy::too_many_arguments, reason = "the tensors of the contract")]
pub fn run(
    pool: &Pool,
    variant: &SwigluQuantiseVariant,
    m: usize,
    ffn: usize,
    gate_up: &[f32],
    quants: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i16],
) {
    assert!(ffn.is_multiple_of(QUANT_BLOCK), "swiglu_quantise: ffn is a multiple of 32, not {ffn}");
    assert_eq!(gate_up.len(), m * 2 * ffn, "swiglu_quantise: gate_up is f32 [{m}, 2 * {ffn}]");
    assert_eq!(quants.len(), m * ffn, "swiglu_quantise: quants are i8 [{m}, {ffn}]");
    let blocks = quants.len() / QUANT_BLOCK;
    assert!(scales.len() == blocks && sums.len() == blocks, "swiglu_quantise: scales and sums are [{m}, {ffn} / 32]");
    let piece = |first: usize, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]| {
        for_each_run(ffn, first, quants.len(), |row, column, at, length| {
            let (gate, up) = gate_up[row * 2 * ffn..][..2 * ffn].split_at(ffn);
            let (block, blocks) = (at / QUANT_BLOCK, length / QUANT_BLOCK);
            let (scales, sums) = (&mut scales[block..][..blocks], &mut sums[block..][..blocks]);
            (variant.kernel)(
                &gate[column..][..length],
                &up[column..][..length],
                &mut quants[at..][..length],
                scales,
                sums,
            );
        });
    };
    let tasks = shared::tasks(pool, blocks, TASK_BLOCKS);
    if tasks == 1 {
        return piece(0, quants, scales, sums);
    }
    let [mut elements, mut of_scales, mut of_sums] =
        [QUANT_BLOCK, 1, 1].map(|unit| Partition::even(blocks * unit, tasks, 4 * unit));
    let tasks = elements.parts();
    let (quants, scales, sums) = (elements.lend(quants, 1), of_scales.lend(scales, 1), of_sums.lend(sums, 1));
    pool.run(tasks, &|task| {
        let (mut quants, mut scales, mut sums) = (quants.take(task), scales.take(task), sums.take(task));
        piece(quants.first(), quants.row(0), scales.row(0), sums.row(0));
    });
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    ffn: usize,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["m", "ffn"])?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let ffn = problem.size(ID, "ffn", QUANT_BLOCK as u64..=131_072)? as usize;
        shared::whole_blocks(ID, "ffn", ffn)?;
        Ok(Self { m, ffn })
    }
}

/// The contract.
#[derive(Debug)]
pub struct SwigluQuantise;

impl Contract for SwigluQuantise {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.ffn) as u64;
        // Four operations for the gated product and five for its quantisation.
        Ok(Cost {
            flops: elements * 9,
            read_bytes: elements * 8,
            written_bytes: elements + elements / QUANT_BLOCK as u64 * 6,
        })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance {
            max_scaled_error: 0.5 + (512.0 + 2.0 * 127.0 * 8.0) * F32_UNIT_ROUNDOFF,
            reason: "half a quant, 127 quants times the roundings of inverse, product and scale, and 127 quants times the eight \
                     unit roundoffs of the gated product, once for the element and once for the block's maximum",
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
        Ok(TensorSet::new(vec![gate_up(ID, sizes.m, sizes.ffn, family, seed)?]))
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let gate_up = inputs.get("gate_up").map(Tensor::to_f32).unwrap_or_default();
        let (mut quants, mut scales, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for row in gate_up.chunks_exact(2 * sizes.ffn) {
            let (gate, up) = row.split_at(sizes.ffn);
            for (gate, up) in gate.as_chunks().0.iter().zip(up.as_chunks().0) {
                let (q, scale, sum) = order::swiglu_quantise_block(gate, up);
                quants.extend_from_slice(&q);
                scales.push(scale);
                sums.push(sum);
            }
        }
        Ok(quantise::planes(sizes.m, sizes.ffn, &quants, &scales, &sums))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let gate_up = inputs.get("gate_up").map(Tensor::to_f32).unwrap_or_default();
        let rows = gate_up.chunks_exact(2 * sizes.ffn);
        let (values, scales): (Vec<f64>, Vec<f64>) =
            rows.flat_map(|row| pairs(row).map(|(gate, up)| exact(gate, up))).unzip();
        Ok(Reference { values, scales: quantise::block_scales(&scales) })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        quantise::plane_values(outputs)
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
        Ok(Box::new(prepared::PreparedSwigluQuantise::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static SwigluQuantiseVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
