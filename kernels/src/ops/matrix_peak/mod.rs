//! Products of small matrices with all operands at hand: the ceiling of a device's matrix units.

mod pack;
mod prepared;
mod problem;
mod scalar;

use std::sync::LazyLock;

use memra_contract::device::CudaArch;
use memra_contract::{Cost, DType, IsaTier, Problem, ProblemError, TensorSet, Tolerance, order};

use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, CudaBuild, InputError, PrepareError, Prepared, ProblemClass, Reference, Source,
    Target, TensorInfo, Variant,
};
use crate::form::{Arg, DeviceForm, LaunchForm, OutputForm};
use crate::ops::shared;
pub use problem::Element;
use problem::Sizes;

/// The contract's name.
pub const ID: &str = "matrix_peak";

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "sums of depth products of 64 x k and k x 256 in a group of four warps, folded to 64 x 8; k is 16, of 8-bit types 32",
    axes: &[
        AxisInfo { name: "type", meaning: "bf16, f16, fp8 (e4m3) or int8; sums are f32, of int8 i32" },
        AxisInfo { name: "depth", meaning: "products one after another, 1 to 8192" },
        AxisInfo { name: "warps", meaning: "warps of a block, 4 or 8" },
        AxisInfo { name: "blocks", meaning: "blocks, 1 to 4096" },
    ],
    tensors: &[
        TensorInfo {
            name: "a",
            role: "weight",
            meaning: "i8 [4, 16, k], -3 to 3; row tile i of step s is tile i + s + group mod 4",
        },
        TensorInfo { name: "b", role: "weight", meaning: "i8 [k, 256], -3 to 3" },
        TensorInfo {
            name: "out",
            role: "out",
            meaning: "i32 [groups, 64, 8]; column c is the sum over n of n + 1 times column 8 n + c of the sums, modulo 2^32",
        },
    ],
    scalars: &["depth"],
    families: FAMILIES,
    rows_axis: "blocks",
};

const FAMILIES: &[(&str, &str)] = &[
    ("mixed", "random whole numbers around zero, -3 to 3, zeros among them"),
    ("dense", "random whole numbers, none zero but where a tile balances the others"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// The instruction of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The host.
    Scalar,
    /// `mma.sync`, operands in registers.
    Mma,
    /// `wgmma`, operands in shared memory.
    Wgmma,
}

/// One variant with its instruction and type.
#[derive(Debug)]
pub struct MatrixPeakVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Instruction.
    pub unit: Unit,
    /// Type it serves; none for all.
    pub element: Option<Element>,
}

macro_rules! cuda {
    ($name:literal, $unit:ident, $element:ident, $kind:literal, $archs:expr, $file:literal, $summary:literal) => {
        MatrixPeakVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: Target::Cuda(CudaBuild { archs: $archs, defines: &[("KIND", $kind)] }),
                layout: "operands",
                order_class: order::EXACT_U32,
                rows: (1, 1),
                source: Source { path: concat!("kernels/src/ops/matrix_peak/", $file), text: include_str!($file) },
            },
            unit: Unit::$unit,
            element: Some(Element::$element),
        }
    };
}

const HOPPER: &[CudaArch] = &[CudaArch::Sm90a];

/// Where 8-bit floats have an instruction of their own: on sm_90a and sm_100a the assembler converts to f16 and multiplies that.
const FP8_MMA: &[CudaArch] = &[CudaArch::Sm89, CudaArch::Sm120a];

/// The variants, baseline first.
pub static VARIANTS: &[MatrixPeakVariant] = &[
    MatrixPeakVariant {
        listed: Variant {
            name: "scalar",
            summary: "one product after another in whole numbers; the baseline",
            target: Target::Host(IsaTier::Scalar),
            layout: "operands",
            order_class: order::EXACT_U32,
            rows: (1, 1),
            source: Source { path: "kernels/src/ops/matrix_peak/scalar.rs", text: include_str!("scalar.rs") },
        },
        unit: Unit::Scalar,
        element: None,
    },
    cuda!("cuda_mma_bf16", Mma, Bf16, "0", &CudaArch::ALL, "mma.cu", "mma.sync m16n8k16, 32 independent sums a warp"),
    cuda!("cuda_mma_f16", Mma, F16, "1", &CudaArch::ALL, "mma.cu", "mma.sync m16n8k16, 32 independent sums a warp"),
    cuda!("cuda_mma_fp8", Mma, Fp8, "2", FP8_MMA, "mma.cu", "mma.sync m16n8k32, 32 independent sums a warp"),
    cuda!("cuda_mma_int8", Mma, Int8, "3", &CudaArch::ALL, "mma.cu", "mma.sync m16n8k32, 32 independent sums a warp"),
    cuda!("cuda_wgmma_bf16", Wgmma, Bf16, "0", HOPPER, "wgmma.cu", "wgmma m64n256k16, operands in shared memory"),
    cuda!("cuda_wgmma_f16", Wgmma, F16, "1", HOPPER, "wgmma.cu", "wgmma m64n256k16, operands in shared memory"),
    cuda!("cuda_wgmma_fp8", Wgmma, Fp8, "2", HOPPER, "wgmma.cu", "wgmma m64n256k32, operands in shared memory"),
    cuda!("cuda_wgmma_int8", Wgmma, Int8, "3", HOPPER, "wgmma.cu", "wgmma m64n256k32, operands in shared memory"),
];

static LISTED: LazyLock<Vec<&'static Variant>> = LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static MatrixPeakVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// The contract.
#[derive(Debug)]
pub struct MatrixPeak;

impl Contract for MatrixPeak {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        Ok(Sizes::parse(problem)?.cost())
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance { max_scaled_error: 0.0, reason: "sums of small whole numbers are exact" })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: "none".to_owned(), class: sizes.element.name().to_owned(), m: 1 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        Sizes::parse(problem)?.inputs(family, seed)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(TensorSet::new(vec![shared::integers("out", &sizes.shape(), &sizes.ordered_outputs(inputs))]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Ok(Sizes::parse(problem)?.reference(inputs))
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        let values = outputs.get("out").map(shared::to_integers).unwrap_or_default();
        values.into_iter().map(|value| f64::from(value.cast_signed())).collect()
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
        let (entry, sizes) = find(variant, problem)?;
        if entry.unit != Unit::Scalar {
            return Err(shared::unsupported(ID, variant.name, problem, "it does not run on a host".to_owned()));
        }
        Ok(Box::new(prepared::PreparedMatrixPeak::new(sizes, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        let (entry, sizes) = find(variant, problem)?;
        let (a, b) = prepared::operands(sizes, inputs)?;
        let (name, operands) = match entry.unit {
            Unit::Mma => ("matrix_peak_mma", pack::fragments(sizes.element, &a, &b)),
            Unit::Wgmma => ("matrix_peak_wgmma", pack::core_matrices(sizes.element, &a, &b)),
            Unit::Scalar => {
                return Err(shared::unsupported(ID, variant.name, problem, "it runs on a host".to_owned()));
            }
        };
        Ok(DeviceForm {
            rotating: vec![operands],
            outputs: vec![OutputForm { name: "out".to_owned(), dtype: DType::I32, shape: sizes.shape().to_vec() }],
            launches: vec![LaunchForm {
                entry: name.to_owned(),
                grid: [sizes.blocks as u32, 1, 1],
                block: [sizes.warps as u32 * 32, 1, 1],
                shared_bytes: 0,
                args: vec![Arg::Rotating(0), Arg::Output(0), Arg::U32(sizes.depth as u32)],
                persistent: None,
            }],
            ..DeviceForm::default()
        })
    }
}

/// The variant and the sizes, where the variant is of the problem's type.
fn find(variant: &Variant, problem: &Problem) -> Result<(&'static MatrixPeakVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    match entry.element {
        Some(element) if element != sizes.element => {
            Err(shared::unsupported(ID, variant.name, problem, format!("it multiplies {}", element.name())))
        }
        _ => Ok((entry, sizes)),
    }
}

#[cfg(test)]
mod tests;
