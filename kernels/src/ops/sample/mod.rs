//! One token per row of logits, with parameters of each row's own.

#[cfg(target_arch = "x86_64")]
mod avx2_select;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_select;
mod inputs;
mod prepared;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod select;

use std::sync::LazyLock;

pub use memra_contract::order::RowParams;
use memra_contract::{Cost, IsaTier, Problem, ProblemError, TensorSet, Tolerance, order};

use crate::backend::host::{Partition, Pool};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::ops::shared;

/// The contract's name.
pub const ID: &str = "sample";

/// Fewest logits a task is worth handing out for.
const TASK_LOGITS: usize = 16_384;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = one token a row: filters by top_k, top_p and min_p, then the largest of z + gumbel(seed, position, token)",
    axes: &[
        AxisInfo { name: "m", meaning: "rows, 1 to 4096" },
        AxisInfo { name: "n", meaning: "length of a row, 1 to 262144" },
        AxisInfo {
            name: "filter",
            meaning: "which parameters of the rows are set: none (temperature alone, the default), greedy, top_k, top_p, min_p, \
                      or mixed (another choice each row)",
        },
    ],
    tensors: &[
        TensorInfo { name: "logits", role: "in", meaning: "f32 [m, n], any values" },
        TensorInfo { name: "temperature", role: "in", meaning: "f32 [m]; 0 chooses the largest logit" },
        TensorInfo { name: "top_k", role: "in", meaning: "i32 [m]; 0 keeps all" },
        TensorInfo { name: "top_p", role: "in", meaning: "f32 [m]; 1 keeps all" },
        TensorInfo { name: "min_p", role: "in", meaning: "f32 [m]; 0 keeps all" },
        TensorInfo { name: "seed", role: "in", meaning: "[m, 8] bytes of a little-endian u64" },
        TensorInfo { name: "position", role: "in", meaning: "[m, 8] bytes of a little-endian u64" },
        TensorInfo { name: "out", role: "out", meaning: "i32 [m], 0..n" },
    ],
    scalars: &[],
    families: inputs::FAMILIES,
    rows_axis: "m",
};

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Samples one row of at least one logit.
pub type HostKernel = fn(logits: &[f32], params: &RowParams, scratch: &mut TaskScratch) -> u32;

/// Room that the tasks of a launch work in; it grows to what a launch needs and is kept for the next.
#[derive(Debug, Default)]
pub struct SampleScratch {
    tasks: Vec<TaskScratch>,
}

/// Room of one task.
#[derive(Debug, Default)]
pub struct TaskScratch {
    /// Keys of tokens: sorting them gives the descending order of the logits, equal ones by index.
    keys: Vec<u64>,
    /// Largest logits of the pieces of a row, or weights of the keys.
    floats: Vec<f32>,
}

impl SampleScratch {
    /// Empty room.
    pub fn new() -> Self {
        Self::default()
    }
}

/// One variant with its kernel.
#[derive(Debug)]
pub struct SampleVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $isa:expr, $file:literal, $kernel:expr) => {
        SampleVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host($isa),
                layout: "rows",
                order_class: order::SAMPLE_GUMBEL,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/sample/", $file), text: include_str!($file) },
            },
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[SampleVariant] = &[
    variant!(
        "scalar",
        "the order class: a full sort, and every candidate's random bits; the baseline",
        IsaTier::Scalar,
        "scalar.rs",
        scalar::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx2_select",
        "selection in the place of the sort; random bits by eight lanes, and a value only for tokens that can still win",
        IsaTier::Avx2,
        "avx2_select.rs",
        avx2_select::kernel
    ),
    #[cfg(target_arch = "x86_64")]
    variant!(
        "avx512vnni_select",
        "selection in the place of the sort; random bits by sixteen lanes, and a value only for tokens that can still win",
        IsaTier::Avx512Vnni,
        "avx512vnni_select.rs",
        avx512vnni_select::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> = LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static SampleVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// Samples one token for each of `m` rows of `n`: `logits` is f32 `[m, n]`, `params` and `out` hold one element a row.
///
/// # Panics
/// When `n` is zero or a slice has another size. Values of logits and parameters never panic.
#[expect(clippy::too_many_arguments, reason = "the tensors of the contract")]
pub fn run(
    pool: &Pool,
    variant: &SampleVariant,
    m: usize,
    n: usize,
    logits: &[f32],
    params: &[RowParams],
    scratch: &mut SampleScratch,
    out: &mut [u32],
) {
    assert!(n > 0, "sample: a row has at least one logit");
    assert_eq!(logits.len(), m * n, "sample: logits are f32 [{m}, {n}]");
    assert!(params.len() == m && out.len() == m, "sample: params and out hold {m} rows");
    let tasks = shared::tasks(pool, logits.len(), TASK_LOGITS).min(m).max(1);
    let mut partition = Partition::even(m, tasks, 1);
    let tasks = partition.parts();
    if scratch.tasks.len() < tasks {
        scratch.tasks.resize_with(tasks, TaskScratch::default);
    }
    let rows = |first: usize, out: &mut [u32], scratch: &mut TaskScratch| {
        for (i, out) in out.iter_mut().enumerate() {
            let row = first + i;
            *out = (variant.kernel)(&logits[row * n..][..n], &params[row], scratch);
        }
    };
    if tasks == 1 {
        return rows(0, out, &mut scratch.tasks[0]);
    }
    let mut one_each = Partition::even(tasks, tasks, 1);
    let (out, scratch) = (partition.lend(out, 1), one_each.lend(&mut scratch.tasks[..tasks], 1));
    pool.run(tasks, &|task| {
        let (mut out, mut scratch) = (out.take(task), scratch.take(task));
        rows(out.first(), out.row(0), &mut scratch.row(0)[0]);
    });
}

/// Which parameters of the rows are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    Greedy,
    TopK,
    TopP,
    MinP,
    Mixed,
}

const FILTERS: [(&str, Filter); 6] = [
    ("none", Filter::None),
    ("greedy", Filter::Greedy),
    ("top_k", Filter::TopK),
    ("top_p", Filter::TopP),
    ("min_p", Filter::MinP),
    ("mixed", Filter::Mixed),
];

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    n: usize,
    filter: Filter,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["m", "n", "filter"])?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let n = problem.size(ID, "n", 1..=262_144)? as usize;
        let word = problem.get("filter").map_or_else(|| "none".to_owned(), ToString::to_string);
        match FILTERS.iter().find(|(name, _)| *name == word) {
            Some((_, filter)) => Ok(Self { m, n, filter: *filter }),
            None => Err(ProblemError::Value {
                contract: ID.to_owned(),
                axis: "filter".to_owned(),
                value: word,
                why: format!("filters are {}", FILTERS.map(|(name, _)| name).join(", ")),
            }),
        }
    }
}

/// The contract.
#[derive(Debug)]
pub struct Sample;

impl Contract for Sample {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let name = FILTERS.iter().find(|(_, filter)| *filter == sizes.filter).map_or("none", |(name, _)| *name);
        Ok(problem.clone().with_word("filter", name))
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.n) as u64;
        let rows = sizes.m as u64;
        // A logit is compared, shifted, divided and compared again; parameters are 32 bytes a row.
        Ok(Cost { flops: elements * 4, read_bytes: elements * 4 + rows * 32, written_bytes: rows * 4 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance {
            max_scaled_error: 0.0,
            reason: "a token is the one that the order class names, or it is another",
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
        inputs::generate(Sizes::parse(problem)?, family, seed)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(TensorSet::new(vec![shared::integers("out", &[sizes.m], &inputs::tokens(sizes, inputs))]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        // A token is no approximation of another: the reference is the definition.
        let values: Vec<f64> = inputs::tokens(sizes, inputs).into_iter().map(f64::from).collect();
        Ok(Reference { scales: vec![1.0; values.len()], values })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(shared::to_integers).unwrap_or_default().into_iter().map(f64::from).collect()
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
        Ok(Box::new(prepared::PreparedSample::new(variant, sizes, inputs, copies)?))
    }
}

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static SampleVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
