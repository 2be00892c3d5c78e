//! Index of the largest value of each row.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2_pieces;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512vnni_pieces;
mod cuda;
mod prepared;
mod scalar;

use std::sync::LazyLock;

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
pub const ID: &str = "argmax";

/// Elements of a piece of a row. The largest of the pieces' largest is exact, so the cut does not show.
const PIECE: usize = 16_384;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = index of the largest of a row, the lowest of equals; NaN never wins",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "n", meaning: "length of a row, 1 to 262144" },
    ],
    tensors: &[
        TensorInfo { name: "logits", role: "in", meaning: "f32 [m, n], any values" },
        TensorInfo { name: "out", role: "out", meaning: "i32 [m], 0..n" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

const FAMILIES: &[(&str, &str)] = &[
    ("normal", "normal values"),
    ("ties", "few distinct values, so that many are equal to the largest"),
    ("zeros", "zeros of both signs"),
    ("broken", "NaN and infinities among the values; rows of nothing else"),
    ("ends", "the largest value first, last, or twice"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Index and value of the largest of a piece; `None` where every value is NaN. A piece has at least one value.
pub type HostKernel = fn(values: &[f32]) -> Option<(u32, f32)>;

/// One variant with its kernel.
#[derive(Debug)]
pub struct ArgmaxVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        ArgmaxVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::ARGMAX_LOWEST,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/argmax/", $file), text: include_str!($file) },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[ArgmaxVariant] = &[
    variant!("scalar", "one value after another; the baseline", IsaTier::Scalar, "scalar.rs", scalar::kernel),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_pieces",
        "the largest of pieces of 512 by eight lanes, then its place in the first piece that has it",
        IsaTier::Avx2,
        "avx2_pieces.rs",
        avx2_pieces::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx512vnni_pieces",
        "the largest of pieces of 512 by sixteen lanes, then its place in the first piece that has it",
        IsaTier::Avx512Vnni,
        "avx512vnni_pieces.rs",
        avx512vnni_pieces::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static ArgmaxVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// Writes the index of the largest value of each of `m` rows of `n`: `logits` is f32 `[m, n]`, `out` `[m]`.
///
/// # Panics
/// When `n` is zero or a slice has another size.
pub fn run(pool: &Pool, variant: &ArgmaxVariant, m: usize, n: usize, logits: &[f32], out: &mut [u32]) {
    assert!(n > 0, "argmax: a row has at least one value");
    assert_eq!(logits.len(), m * n, "argmax: logits are f32 [{m}, {n}]");
    assert_eq!(out.len(), m, "argmax: out is [{m}]");
    let tasks = shared::tasks(pool, logits.len(), PIECE);
    if tasks == 1 {
        for (row, out) in logits.chunks_exact(n).zip(out) {
            *out = (variant.kernel)(row).map_or(0, |(index, _)| index);
        }
        return;
    }
    let pieces = n.div_ceil(PIECE);
    let mut best: Vec<Option<(u32, f32)>> = vec![None; m * pieces];
    let mut partition = Partition::even(best.len(), tasks, 1);
    let tasks = partition.parts();
    let lent = partition.lend(&mut best, 1);
    pool.run(tasks, &|task| {
        let mut part = lent.take(task);
        let first = part.first();
        for (i, best) in part.row(0).iter_mut().enumerate() {
            let (row, start) = ((first + i) / pieces, (first + i) % pieces * PIECE);
            let values = &logits[row * n + start..][..PIECE.min(n - start)];
            *best = (variant.kernel)(values).map(|(index, value)| (index + start as u32, value));
        }
    });
    for (out, pieces) in out.iter_mut().zip(best.chunks_exact(pieces)) {
        let found = pieces.iter().flatten().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        *out = found.map_or(0, |(index, _)| index);
    }
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    n: usize,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["m", "n"])?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let n = problem.size(ID, "n", 1..=262_144)? as usize;
        Ok(Self { m, n })
    }
}

/// The contract.
#[derive(Debug)]
pub struct Argmax;

impl Contract for Argmax {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.n) as u64;
        Ok(Cost { flops: elements, read_bytes: elements * 4, written_bytes: sizes.m as u64 * 4 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance { max_scaled_error: 0.0, reason: "comparisons are exact" })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: "none".to_owned(), class: "any".to_owned(), m: sizes.m as u64 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let Sizes { m, n } = Sizes::parse(problem)?;
        let value: fn(Stream, u64, u64, u64) -> f32 = match family {
            "normal" => |s, i, _, _| s.normal(i),
            "ties" => |s, i, _, _| (s.bits(i) % 3) as f32,
            "zeros" => |s, i, _, _| if s.bits(i).is_multiple_of(2) { 0.0 } else { -0.0 },
            "broken" => |s, i, row, _| match (row % 3, s.bits(i) % 4) {
                (1, _) | (0, 0) => f32::NAN,
                (0, 1) | (2, _) => f32::NEG_INFINITY,
                _ => s.normal(i).abs() * f32::MAX,
            },
            "ends" => |s, _, row, column| {
                let distance = column.min(s.bits(row) % 1000);
                if row.is_multiple_of(2) { -(column as f32) } else { distance as f32 }
            },
            _ => return Err(shared::no_family(ID, family, FAMILIES)),
        };
        let (stream, width) = (Stream::new(seed, "logits"), n as u64);
        let values: Vec<f32> = (0..m as u64 * width).map(|i| value(stream, i, i / width, i % width)).collect();
        Ok(TensorSet::new(vec![Tensor::f32("logits", &[m, n], &values)]))
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let logits = inputs.get("logits").map(Tensor::to_f32).unwrap_or_default();
        let out: Vec<u32> = logits.chunks_exact(sizes.n).map(order::argmax).collect();
        Ok(TensorSet::new(vec![shared::integers("out", &[sizes.m], &out)]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let logits = inputs.get("logits").map(Tensor::to_f32).unwrap_or_default();
        let values: Vec<f64> = logits
            .chunks_exact(sizes.n)
            .map(|row| {
                let largest = row.iter().copied().map(f64::from).fold(f64::NAN, f64::max);
                row.iter().position(|value| f64::from(*value) == largest).map_or(0.0, |index| index as f64)
            })
            .collect();
        Ok(Reference { scales: vec![1.0; values.len()], values })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(shared::to_integers).unwrap_or_default().into_iter().map(f64::from).collect()
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
        Ok(Box::new(prepared::PreparedArgmax::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static ArgmaxVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
