//! SwiGLU: the gated product of a feed-forward layer.

#[cfg(target_arch = "x86_64")]
mod avx2_row;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_row;
mod cuda;
mod prepared;
mod scalar;

use std::sync::LazyLock;

use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{Cost, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance, order};

use crate::backend::host::{Partition, Pool};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::input::Stream;
use crate::ops::{device, shared};

/// The contract's name.
pub const ID: &str = "swiglu";

/// Fewest elements a task is worth handing out for.
const TASK_ELEMENTS: usize = 8192;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = gate / (1 + exp(-gate)) * up, where a row holds its gates and then its ups",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "ffn", meaning: "columns of the output, 1 to 131072" },
    ],
    tensors: &[
        TensorInfo { name: "gate_up", role: "in", meaning: "f32 [m, 2 * ffn], finite: gates, then ups" },
        TensorInfo { name: "out", role: "out", meaning: "f32 [m, ffn]; does not alias gate_up" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

pub(crate) const FAMILIES: &[(&str, &str)] = &[
    ("normal", "what projections give: normal values"),
    ("wide", "gates from -120 to 120, past both ends of the exponential"),
    ("tiny", "subnormal gates and ups"),
    ("zeros", "zeros of both signs"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Gates a run of columns of one row; the three slices have one length.
pub type HostKernel = fn(gate: &[f32], up: &[f32], out: &mut [f32]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct SwigluVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        SwigluVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::SWIGLU,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/swiglu/", $file), text: include_str!($file) },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[SwigluVariant] = &[
    variant!("scalar", "the order class in plain loops; the baseline", IsaTier::Scalar, "scalar.rs", scalar::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!("avx2_row", "eight columns at a time", IsaTier::Avx2, "avx2_row.rs", avx2_row::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx512vnni_row",
        "sixteen columns at a time, the last ones under a mask",
        IsaTier::Avx512Vnni,
        "avx512vnni_row.rs",
        avx512vnni_row::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static SwigluVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// Gates `m` rows: `gate_up` is f32 `[m, 2 * ffn]`, `out` f32 `[m, ffn]`.
///
/// # Panics
/// When a slice has another size.
pub fn run(pool: &Pool, variant: &SwigluVariant, m: usize, ffn: usize, gate_up: &[f32], out: &mut [f32]) {
    assert_eq!(gate_up.len(), m * 2 * ffn, "swiglu: gate_up is f32 [{m}, 2 * {ffn}]");
    assert_eq!(out.len(), m * ffn, "swiglu: out is f32 [{m}, {ffn}]");
    let tasks = shared::tasks(pool, out.len(), TASK_ELEMENTS);
    if tasks == 1 {
        for (input, out) in gate_up.chunks_exact(2 * ffn).zip(out.chunks_exact_mut(ffn)) {
            let (gate, up) = input.split_at(ffn);
            (variant.kernel)(gate, up, out);
        }
        return;
    }
    let mut partition = Partition::even(out.len(), tasks, 64);
    let tasks = partition.parts();
    let lent = partition.lend(out, 1);
    pool.run(tasks, &|task| {
        let mut part = lent.take(task);
        let first = part.first();
        let out = part.row(0);
        for_each_run(ffn, first, out.len(), |row, column, at, length| {
            let (gate, up) = gate_up[row * 2 * ffn..][..2 * ffn].split_at(ffn);
            (variant.kernel)(&gate[column..][..length], &up[column..][..length], &mut out[at..][..length]);
        });
    });
}

/// Cuts the elements `first..first + count` of rows of `width` where rows end: calls
/// `body(row, first column, offset from first, length)`.
pub(crate) fn for_each_run(width: usize, first: usize, count: usize, mut body: impl FnMut(usize, usize, usize, usize)) {
    let mut at = 0;
    while at < count {
        let (row, column) = ((first + at) / width, (first + at) % width);
        let length = (width - column).min(count - at);
        body(row, column, at, length);
        at += length;
    }
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
        let ffn = problem.size(ID, "ffn", 1..=131_072)? as usize;
        Ok(Self { m, ffn })
    }
}

/// Gates and ups of a family, `[m, 2 * ffn]`, for this contract and for the one that quantises the product.
pub(crate) fn gate_up(
    contract: &'static str,
    m: usize,
    ffn: usize,
    family: &str,
    seed: u64,
) -> Result<Tensor, InputError> {
    let value: fn(Stream, u64, bool) -> f32 = match family {
        "normal" => |s, i, _| s.normal(i),
        "wide" => |s, i, is_gate| if is_gate { s.plus_minus_one(i) * 120.0 } else { s.normal(i) },
        "tiny" => |s, i, _| s.plus_minus_one(i) * 1e-38,
        "zeros" => |s, i, _| if s.bits(i).is_multiple_of(2) { 0.0 } else { -0.0 },
        _ => return Err(shared::no_family(contract, family, FAMILIES)),
    };
    let stream = Stream::new(seed, "gate_up");
    let width = 2 * ffn as u64;
    let values: Vec<f32> = (0..m as u64 * width).map(|i| value(stream, i, i % width < ffn as u64)).collect();
    Ok(Tensor::f32("gate_up", &[m, 2 * ffn], &values))
}

/// Gates and ups of a row, one pair a column.
pub(crate) fn pairs(row: &[f32]) -> impl Iterator<Item = (f32, f32)> {
    let (gate, up) = row.split_at(row.len() / 2);
    gate.iter().copied().zip(up.iter().copied())
}

/// The exact value of one element, and the scale its error is measured in.
pub(crate) fn exact(gate: f32, up: f32) -> (f64, f64) {
    let (gate, up) = (f64::from(gate), f64::from(up));
    let value = gate / (1.0 + (-gate).exp()) * up;
    // Below -88 the exponential stays at its highest value, 2^127, where the right answer goes on falling; and results near
    // the bottom of the range lose bits of their own.
    let clamped = (gate * up).abs() * 2.0_f64.powi(-105);
    let subnormal = (1.0 + up.abs()) * f64::from(f32::MIN_POSITIVE);
    (value, value.abs() + clamped + subnormal)
}

/// The contract.
#[derive(Debug)]
pub struct Swiglu;

impl Contract for Swiglu {
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
        // The exponential counts as one operation, then a sum, a quotient and a product.
        Ok(Cost { flops: elements * 4, read_bytes: elements * 8, written_bytes: elements * 4 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance {
            max_scaled_error: 8.0 * F32_UNIT_ROUNDOFF,
            reason: "four unit roundoffs of the exponential, then one each for sum, quotient and product, and one to spare",
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
        let rows = gate_up.chunks_exact(2 * sizes.ffn);
        let out: Vec<f32> = rows.flat_map(|row| pairs(row).map(|(gate, up)| order::swiglu(gate, up))).collect();
        Ok(TensorSet::new(vec![Tensor::f32("out", &[sizes.m, sizes.ffn], &out)]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let gate_up = inputs.get("gate_up").map(Tensor::to_f32).unwrap_or_default();
        let rows = gate_up.chunks_exact(2 * sizes.ffn);
        let (values, scales) = rows.flat_map(|row| pairs(row).map(|(gate, up)| exact(gate, up))).unzip();
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
            return cuda::check(kernel, variant.name, problem, sizes);
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
        Ok(Box::new(prepared::PreparedSwiglu::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static SwigluVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
