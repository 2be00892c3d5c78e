//! RMS norm: each row is divided by the root of its mean square and multiplied by a weight.

#[cfg(target_arch = "x86_64")]
mod avx2_row;
#[cfg(target_arch = "x86_64")]
mod avx2_rows4;
pub(crate) mod cuda;
mod prepared;
mod scalar;

use std::sync::LazyLock;

use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{AxisValue, Cost, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance, order};

use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::input::Stream;
use crate::ops::{device, shared};

/// The contract's name.
pub const ID: &str = "rms_norm";

const DEFAULT_EPSILON: &str = "1e-5";

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = x / sqrt(mean(x^2) + epsilon) * weight, row by row",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "hidden", meaning: "length of a row, 1 to 131072" },
        AxisInfo { name: "eps", meaning: "epsilon, a positive decimal number; 1e-5 by default" },
    ],
    tensors: &[
        TensorInfo { name: "x", role: "in", meaning: "f32 [m, hidden]" },
        TensorInfo { name: "weight", role: "weight", meaning: "f32 [hidden]" },
        TensorInfo { name: "out", role: "out", meaning: "f32 [m, hidden]; does not alias x" },
    ],
    scalars: &["epsilon: f32"],
    families: FAMILIES,
    rows_axis: "m",
};

pub(crate) const FAMILIES: &[(&str, &str)] = &[
    ("normal", "normal values, weights near one"),
    ("outlier", "one value in a hundred is a thousand times the others"),
    ("small", "values near 1e-18, so that epsilon decides"),
    ("large", "values near 1e17, so that squares are near the top of the range"),
    ("zeros", "zero rows"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Rows a kernel works on.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// Length of a row.
    pub hidden: usize,
    /// f32 `[rows, hidden]`.
    pub x: &'a [f32],
    /// f32 `[hidden]`.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Norms whole rows; `out` is as long as `operands.x`.
pub type HostKernel = fn(operands: &Operands<'_>, out: &mut [f32]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct RmsNormVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Rows it works on together.
    pub unit: usize,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $unit:literal, $file:literal, $kernel:expr) => {
        RmsNormVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::RMS_CHAIN128,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/rms_norm/", $file), text: include_str!($file) },
            },
            unit: $unit,
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[RmsNormVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, 1, "scalar.rs", scalar::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_row",
        "one row, 128 chains in two passes of eight vectors",
        IsaTier::Avx2,
        1,
        "avx2_row.rs",
        avx2_row::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_rows4",
        "four rows: their sums are reduced and rooted together in one vector",
        IsaTier::Avx2,
        4,
        "avx2_rows4.rs",
        avx2_rows4::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    hidden: usize,
    epsilon: f32,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        let (m, hidden, epsilon) = parse_axes(ID, problem)?;
        Ok(Self { m, hidden, epsilon })
    }
}

/// Rows, length of a row and epsilon, for this contract and for those that go on from it.
pub(crate) fn parse_axes(contract: &str, problem: &Problem) -> Result<(usize, usize, f32), ProblemError> {
    problem.only(contract, &["m", "hidden", "eps"])?;
    let m = problem.size(contract, "m", 1..=4096)? as usize;
    let hidden = problem.size(contract, "hidden", 1..=131_072)? as usize;
    let text = problem.get("eps").map_or_else(|| DEFAULT_EPSILON.to_owned(), AxisValue::to_string);
    match text.parse::<f32>() {
        Ok(epsilon) if epsilon > 0.0 && epsilon.is_finite() => Ok((m, hidden, epsilon)),
        _ => Err(ProblemError::Value {
            contract: contract.to_owned(),
            axis: "eps".to_owned(),
            value: text,
            why: "a positive decimal number is needed".to_owned(),
        }),
    }
}

/// The contract.
#[derive(Debug)]
pub struct RmsNorm;

impl Contract for RmsNorm {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        let text = problem.get("eps").map_or_else(|| DEFAULT_EPSILON.to_owned(), AxisValue::to_string);
        Ok(problem.clone().with_word("eps", &text))
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.hidden) as u64;
        Ok(Cost {
            flops: elements * 4,
            read_bytes: elements * 4 + sizes.hidden as u64 * 4,
            written_bytes: elements * 4,
        })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        // A sum of positive terms keeps its relative error; the root halves it.
        let sum = (sizes.hidden.div_ceil(128) + 7 + 2) as f64;
        Ok(Tolerance {
            max_scaled_error: (sum / 2.0 + 4.0) * F32_UNIT_ROUNDOFF,
            reason: "half the roundings of the sum of squares (its chain, seven in the tree, mean and epsilon), then root, \
                     reciprocal and two products; relative to the exact value of the element",
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
        let value: fn(Stream, u64) -> f32 = match family {
            "normal" => Stream::normal,
            "outlier" => |s, i| s.normal(i) * if s.bits(i).is_multiple_of(100) { 1000.0 } else { 1.0 },
            "small" => |s, i| s.normal(i) * 1e-18,
            "large" => |s, i| s.normal(i) * 1e17,
            "zeros" => |_, _| 0.0,
            _ => {
                return Err(InputError::Family {
                    contract: ID,
                    family: family.to_owned(),
                    known: FAMILIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                });
            }
        };
        let x = Stream::new(seed, "x");
        let weight = Stream::new(seed, "weight");
        let x: Vec<f32> = (0..(sizes.m * sizes.hidden) as u64).map(|i| value(x, i)).collect();
        let weight: Vec<f32> = (0..sizes.hidden as u64).map(|i| 1.0 + 0.1 * weight.normal(i)).collect();
        Ok(TensorSet::new(vec![
            Tensor::f32("x", &[sizes.m, sizes.hidden], &x),
            Tensor::f32("weight", &[sizes.hidden], &weight),
        ]))
    }

    fn with_weights(&self, problem: &Problem, mut inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        let sizes = Sizes::parse(problem)?;
        let refuse = |why: String| InputError::Weights { contract: ID, problem: problem.to_string(), why };
        if weights.len() != sizes.hidden * 4 {
            return Err(refuse(format!(
                "the tensor holds {} bytes, and {} are needed",
                weights.len(),
                sizes.hidden * 4
            )));
        }
        let values: Vec<f32> = weights.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(refuse(format!("element {i} is not finite")));
        }
        inputs.insert(Tensor::f32("weight", &[sizes.hidden], &values));
        Ok(inputs)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let x = inputs.get("x").map(Tensor::to_f32).unwrap_or_default();
        let weight = inputs.get("weight").map(Tensor::to_f32).unwrap_or_default();
        let out: Vec<f32> =
            x.chunks_exact(sizes.hidden).flat_map(|row| order::rms_norm(row, &weight, sizes.epsilon)).collect();
        Ok(TensorSet::new(vec![Tensor::f32("out", &[sizes.m, sizes.hidden], &out)]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let x = inputs.get("x").map(Tensor::to_f32).unwrap_or_default();
        let weight = inputs.get("weight").map(Tensor::to_f32).unwrap_or_default();
        let mut values = Vec::with_capacity(x.len());
        for row in x.chunks_exact(sizes.hidden) {
            let squares: f64 = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let root = (squares / sizes.hidden as f64 + f64::from(sizes.epsilon)).sqrt();
            values.extend(row.iter().zip(&weight).map(|(x, w)| f64::from(*x) / root * f64::from(*w)));
        }
        let scales = values.iter().map(|v: &f64| v.abs().max(f64::from(f32::MIN_POSITIVE))).collect();
        Ok(Reference { values, scales })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(|out| out.to_f32().into_iter().map(f64::from).collect()).unwrap_or_default()
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &LISTED
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        if let Some(kernel) = device::kernel_of(cuda::VARIANTS, variant) {
            let sizes = Sizes::parse(problem)?;
            return cuda::check(ID, kernel, variant.name, problem, sizes.hidden);
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
        Ok(Box::new(prepared::PreparedRmsNorm::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static RmsNormVariant, Sizes), PrepareError> {
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
