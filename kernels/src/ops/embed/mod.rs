//! Embedding: rows of a stored matrix, as floats.
//!
//! The matrix is read from the layout that the matrix product uses for the same tensor, because a tied embedding exists
//! once.

mod cuda;
mod panel;
mod prepared;
mod scalar;

use std::sync::LazyLock;

use half::f16;
use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::{BlockFormat, Cost, DType, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance};

use crate::backend::host::{Partition, Pool};
use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PrepareError, Prepared, ProblemClass, Reference, Source, TensorInfo,
    Variant,
};
use crate::form::DeviceForm;
use crate::input::Stream;
use crate::ops::matmul::{Layout, PackedSegment, Segment};
use crate::ops::{device, input, shared};

/// The contract's name.
pub const ID: &str = "embed";

/// Fewest elements a task is worth handing out for.
const TASK_ELEMENTS: usize = 8192;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out[m, hidden] = the rows of weight[vocab, hidden] that the tokens name, as f32",
    axes: &[
        AxisInfo { name: "m", meaning: "tokens, 1 to 4096" },
        AxisInfo { name: "hidden", meaning: "length of a row, at most 131072; a multiple of 32 for q8_0" },
        AxisInfo { name: "vocab", meaning: "rows of the weight, 1 to 1048576" },
        AxisInfo { name: "fmt", meaning: "format of the weight: q8_0 or f32" },
    ],
    tensors: &[
        TensorInfo { name: "tokens", role: "in", meaning: "i32 [m], 0..vocab" },
        TensorInfo { name: "weight", role: "weight", meaning: "[vocab, hidden] in the block format" },
        TensorInfo { name: "out", role: "out", meaning: "f32 [m, hidden]" },
    ],
    scalars: &[],
    families: FAMILIES,
    rows_axis: "m",
};

const FAMILIES: &[(&str, &str)] = &[
    ("normal", "what trained weights look like; the first and the last token are among the tokens"),
    ("extremes", "quants and scales at both ends of their range"),
    ("tiny", "subnormal scales and floats"),
    ("repeated", "one token for all rows"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// Gathers the rows of some tokens; `out` holds one row a token, and every token names a row of the weight.
pub type HostKernel = fn(weight: &PackedSegment, tokens: &[u32], out: &mut [f32]);

/// One variant with its kernel.
#[derive(Debug)]
pub struct EmbedVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Layout it reads.
    pub layout: Layout,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! variant {
    ($name:literal, $summary:literal, $text:literal, $layout:expr, $file:literal, $kernel:expr) => {
        EmbedVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: crate::contract::Target::Host(IsaTier::Scalar),
                layout: $text,
                order_class: order::DEQUANTISE_EXACT,
                rows: (1, 4096),
                source: Source { path: concat!("kernels/src/ops/embed/", $file), text: include_str!($file) },
            },
            layout: $layout,
            kernel: $kernel,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[EmbedVariant] = &[
    variant!(
        "scalar_stored",
        "stored blocks one after another; the baseline",
        "stored",
        Layout::Stored,
        "scalar.rs",
        scalar::kernel
    ),
    variant!(
        "panel8",
        "one lane of a panel of eight rows, four quants at a time",
        "panel8",
        Layout::Panel { rows: 8, is_offset: false },
        "panel.rs",
        panel::kernel
    ),
    variant!(
        "panel16_offset",
        "one lane of a panel of sixteen rows, four quants at a time, less the offset",
        "panel16_offset",
        Layout::Panel { rows: 16, is_offset: true },
        "panel.rs",
        panel::kernel
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static EmbedVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// The variant that reads a layout.
pub fn by_layout(layout: Layout) -> Option<&'static EmbedVariant> {
    VARIANTS.iter().find(|entry| entry.layout == layout)
}

/// Writes the rows that `tokens` name to `out`, f32 `[tokens, hidden]`, where the hidden size is `weight.k`.
///
/// # Panics
/// When the weight has another layout than the variant reads, a token is not below the weight's rows, or `out` has another
/// size.
pub fn run(pool: &Pool, variant: &EmbedVariant, weight: &PackedSegment, tokens: &[u32], out: &mut [f32]) {
    let (rows, hidden) = (weight.segment.n, weight.k);
    assert_eq!(variant.layout, weight.layout, "embed/{} reads another layout", variant.listed.name);
    if let Some(token) = tokens.iter().find(|token| **token as usize >= rows) {
        panic!("embed: token {token} is not one of {rows}");
    }
    assert_eq!(out.len(), tokens.len() * hidden, "embed: the output is f32 [{}, {hidden}]", tokens.len());
    let tasks = shared::tasks(pool, out.len(), TASK_ELEMENTS);
    if tasks == 1 {
        return (variant.kernel)(weight, tokens, out);
    }
    let mut partition = Partition::even(out.len(), tasks, hidden);
    let tasks = partition.parts();
    let lent = partition.lend(out, 1);
    pool.run(tasks, &|task| {
        let mut part = lent.take(task);
        let tokens = &tokens[part.first() / hidden..][..part.columns() / hidden];
        (variant.kernel)(weight, tokens, part.row(0));
    });
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    hidden: usize,
    segment: Segment,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["m", "hidden", "vocab", "fmt"])?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let hidden = problem.size(ID, "hidden", 1..=131_072)? as usize;
        let n = problem.size(ID, "vocab", 1..=1_048_576)? as usize;
        let name = problem.word(ID, "fmt")?;
        let refuse = |axis: &str, value: &str, why: &str| ProblemError::Value {
            contract: ID.to_owned(),
            axis: axis.to_owned(),
            value: value.to_owned(),
            why: why.to_owned(),
        };
        let format = match BlockFormat::from_name(&name) {
            Some(format) if format == BlockFormat::Q8_0 || format == BlockFormat::F32 => format,
            _ => return Err(refuse("fmt", &name, "weight formats are q8_0 and f32")),
        };
        if format == BlockFormat::Q8_0 {
            shared::whole_blocks(ID, "hidden", hidden)?;
        }
        if n * hidden > 1 << 32 {
            return Err(refuse("vocab", &n.to_string(), "more than 4294967296 elements of weight"));
        }
        Ok(Self { m, hidden, segment: Segment { format, n } })
    }
}

/// The contract.
#[derive(Debug)]
pub struct Embed;

impl Contract for Embed {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let elements = (sizes.m * sizes.hidden) as u64;
        let flops = if sizes.segment.format == BlockFormat::F32 { 0 } else { elements };
        let rows = (sizes.m * sizes.segment.row_bytes(sizes.hidden)) as u64;
        Ok(Cost { flops, read_bytes: rows + sizes.m as u64 * 4, written_bytes: elements * 4 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance { max_scaled_error: 0.0, reason: "eleven bits times eight bits fit the 24 of a float" })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: sizes.segment.format.name.to_owned(), class: "any".to_owned(), m: sizes.m as u64 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let Sizes { m, hidden, segment } = Sizes::parse(problem)?;
        if !FAMILIES.iter().any(|(name, _)| *name == family) {
            return Err(shared::no_family(ID, family, FAMILIES));
        }
        let draws = Stream::new(seed, "tokens");
        let last = segment.n as u32 - 1;
        let tokens: Vec<u32> = (0..m as u64)
            .map(|row| match (family, row) {
                ("repeated", _) => (draws.bits(0) % segment.n as u64) as u32,
                (_, 0) => last,
                (_, 1) => 0,
                _ => (draws.bits(row) % segment.n as u64) as u32,
            })
            .collect();
        let (values, scales) = (Stream::new(seed, "weight"), Stream::new(seed, "scales"));
        let elements = (segment.n * hidden) as u64;
        let bytes = if segment.format == BlockFormat::F32 {
            (0..elements).flat_map(|i| float(family, values, i).to_le_bytes()).collect()
        } else {
            let block = QUANT_BLOCK as u64;
            (0..elements / block)
                .flat_map(|b| {
                    let scale = scale(family, scales, b).to_le_bytes().into_iter();
                    scale.chain((b * block..(b + 1) * block).map(|i| quant(family, values, i)))
                })
                .collect()
        };
        Ok(TensorSet::new(vec![
            shared::integers("tokens", &[m], &tokens),
            Tensor::u8("weight", &[segment.n, segment.row_bytes(hidden)], bytes),
        ]))
    }

    fn with_weights(&self, problem: &Problem, mut inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        let sizes = Sizes::parse(problem)?;
        let refuse = |why: String| InputError::Weights { contract: ID, problem: problem.to_string(), why };
        let needed = sizes.segment.bytes(sizes.hidden);
        if weights.len() != needed {
            return Err(refuse(format!("the tensor holds {} bytes, and {needed} are needed", weights.len())));
        }
        for row in 0..sizes.segment.n as u32 {
            if let Some(i) = values_of(sizes, weights, row).iter().position(|value| !value.is_finite()) {
                return Err(refuse(format!("element {i} of row {row} is not finite")));
            }
        }
        inputs.insert(Tensor::u8(
            "weight",
            &[sizes.segment.n, sizes.segment.row_bytes(sizes.hidden)],
            weights.to_vec(),
        ));
        Ok(inputs)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let tokens = inputs.get("tokens").map(shared::to_integers).unwrap_or_default();
        let weight = inputs.get("weight").map(|weight| weight.bytes.as_slice()).unwrap_or_default();
        let out: Vec<f32> = tokens.iter().flat_map(|token| values_of(sizes, weight, *token)).collect();
        Ok(TensorSet::new(vec![Tensor::f32("out", &[sizes.m, sizes.hidden], &out)]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        let tokens = inputs.get("tokens").map(shared::to_integers).unwrap_or_default();
        let weight = inputs.get("weight").map(|weight| weight.bytes.as_slice()).unwrap_or_default();
        let row_bytes = sizes.segment.row_bytes(sizes.hidden);
        let mut values = Vec::with_capacity(tokens.len() * sizes.hidden);
        for token in tokens {
            let row = &weight[token as usize * row_bytes..][..row_bytes];
            if sizes.segment.format == BlockFormat::F32 {
                values.extend(row.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))));
            } else {
                for block in row.as_chunks::<34>().0 {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f64();
                    values.extend(block[2..].iter().map(|q| f64::from(q.cast_signed()) * scale));
                }
            }
        }
        Ok(Reference { scales: vec![1.0; values.len()], values })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(|out| out.to_f32().into_iter().map(f64::from).collect()).unwrap_or_default()
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
        Ok(Box::new(prepared::PreparedEmbed::new(variant, sizes, inputs, copies)?))
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

fn find(variant: &Variant, problem: &Problem) -> Result<(&'static EmbedVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    if entry.layout != Layout::Stored && sizes.segment.format == BlockFormat::F32 {
        let why = "panels hold q8_0 weights".to_owned();
        return Err(shared::unsupported(ID, variant.name, problem, why));
    }
    Ok((entry, sizes))
}

/// The tokens, each of which names a row of the weight.
fn tokens_of(sizes: Sizes, inputs: &TensorSet) -> Result<Vec<u32>, PrepareError> {
    let tokens = shared::to_integers(input(ID, inputs, "tokens", DType::I32, sizes.m)?);
    if let Some(token) = tokens.iter().find(|token| **token as usize >= sizes.segment.n) {
        let why = format!("names row {token} of {}", sizes.segment.n);
        return Err(PrepareError::Input { contract: ID, tensor: "tokens".to_owned(), why });
    }
    Ok(tokens)
}

/// One row by the order class.
fn values_of(sizes: Sizes, weight: &[u8], row: u32) -> Vec<f32> {
    let row_bytes = sizes.segment.row_bytes(sizes.hidden);
    let row = &weight[row as usize * row_bytes..][..row_bytes];
    if sizes.segment.format == BlockFormat::F32 {
        return row.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    }
    let blocks = row.as_chunks::<34>().0.iter();
    blocks
        .flat_map(|block| {
            let quants = std::array::from_fn(|i| block[2 + i].cast_signed());
            order::dequantise_q8_0(f16::from_le_bytes([block[0], block[1]]), &quants)
        })
        .collect()
}

fn float(family: &str, stream: Stream, i: u64) -> f32 {
    match family {
        "extremes" => [f32::MAX, f32::MIN, 0.0, -0.0][(stream.bits(i) % 4) as usize],
        "tiny" => f32::from_bits((stream.bits(i) % 1000) as u32),
        _ => stream.normal(i),
    }
}

fn scale(family: &str, stream: Stream, block: u64) -> f16 {
    match family {
        "extremes" => [f16::MAX, f16::MIN, f16::ZERO][(stream.bits(block) % 3) as usize],
        "tiny" => f16::from_bits((stream.bits(block) % 1000) as u16),
        _ => f16::from_f32(0.002 + 0.01 * stream.unit(block)),
    }
}

fn quant(family: &str, stream: Stream, i: u64) -> u8 {
    match family {
        "extremes" => [-128_i8, -127, 0, 127][(stream.bits(i) % 4) as usize].cast_unsigned(),
        _ => ((stream.normal(i) * 36.0).clamp(-128.0, 127.0) as i8).cast_unsigned(),
    }
}

#[cfg(test)]
mod tests;
