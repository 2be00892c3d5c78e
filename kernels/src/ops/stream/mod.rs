//! Memory read, written and copied: the ceilings of a device's memory and of its caches.
//!
//! The grid is a part of the problem, so that two variants differ in nothing but what they keep in flight.

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
use problem::{Op, Sizes};

/// The contract's name.
pub const ID: &str = "stream";

/// Threads of a block.
const THREADS: u32 = 256;

/// Vectors of sixteen bytes that a thread takes of a chunk.
const VECTORS_OF_CHUNK: usize = 4;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "read: sum and exclusive or of parts of the input; write: a pattern; copy: the input",
    axes: &[
        AxisInfo { name: "op", meaning: "read, write or copy" },
        AxisInfo { name: "bytes", meaning: "bytes read or written, a multiple of 16384, to 8589934592" },
        AxisInfo {
            name: "parts",
            meaning: "parts, each a block's; chunk c of 16 KiB belongs to part c mod parts; by default 128 KiB each, and at \
                      least 512 where there are so many chunks",
        },
    ],
    tensors: &[
        TensorInfo { name: "in", role: "weight", meaning: "i32 [bytes / 4], of read and copy; rotates" },
        TensorInfo { name: "seed", role: "weight", meaning: "i32 [1], of write: what the pattern begins with" },
        TensorInfo { name: "sums", role: "out", meaning: "i32 [parts, 2], of read: sum modulo 2^32, exclusive or" },
        TensorInfo { name: "out", role: "out", meaning: "i32 [bytes / 4], of write and copy" },
    ],
    scalars: &["chunks"],
    families: FAMILIES,
    rows_axis: "parts",
};

const FAMILIES: &[(&str, &str)] = &[
    ("random", "64 KiB of random words, to which every 64 KiB add another number"),
    ("index", "every word its own number; of write, the seed 0"),
];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// One variant with what it keeps in flight.
#[derive(Debug)]
pub struct StreamVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Vectors of sixteen bytes that a thread asks for before it uses the first; 0 on a host.
    pub flight: usize,
}

macro_rules! cuda {
    ($name:literal, $flight:literal, $summary:literal) => {
        StreamVariant {
            listed: Variant {
                name: $name,
                summary: $summary,
                target: Target::Cuda(CudaBuild { archs: &CudaArch::ALL, defines: &[("FLIGHT", stringify!($flight))] }),
                layout: "words",
                order_class: order::EXACT_U32,
                rows: (1, 1),
                source: Source { path: "kernels/src/ops/stream/stream.cu", text: include_str!("stream.cu") },
            },
            flight: $flight,
        }
    };
}

/// The variants, baseline first.
pub static VARIANTS: &[StreamVariant] = &[
    StreamVariant {
        listed: Variant {
            name: "scalar",
            summary: "one word after another; the baseline",
            target: Target::Host(IsaTier::Scalar),
            layout: "words",
            order_class: order::EXACT_U32,
            rows: (1, 1),
            source: Source { path: "kernels/src/ops/stream/scalar.rs", text: include_str!("scalar.rs") },
        },
        flight: 0,
    },
    cuda!("cuda_stream_f4", 4, "64 bytes a thread in flight"),
    cuda!("cuda_stream_f1", 1, "16 bytes a thread in flight"),
    cuda!("cuda_stream_f2", 2, "32 bytes a thread in flight"),
    cuda!("cuda_stream_f8", 8, "128 bytes a thread in flight"),
    cuda!("cuda_stream_f16", 16, "256 bytes a thread in flight"),
];

static LISTED: LazyLock<Vec<&'static Variant>> = LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static StreamVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

/// The contract.
#[derive(Debug)]
pub struct Stream;

impl Contract for Stream {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Ok(Sizes::parse(problem)?.problem())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        Ok(Sizes::parse(problem)?.cost())
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance { max_scaled_error: 0.0, reason: "whole numbers modulo 2^32 are exact" })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let sizes = Sizes::parse(problem)?;
        Ok(ProblemClass { format: "none".to_owned(), class: sizes.op.name().to_owned(), m: 1 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        Sizes::parse(problem)?.inputs(family, seed)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        Ok(Sizes::parse(problem)?.ordered_outputs(inputs))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Ok(Sizes::parse(problem)?.reference(inputs))
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        problem::output_values(outputs)
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
        if entry.flight != 0 {
            return Err(shared::unsupported(ID, variant.name, problem, "it does not run on a host".to_owned()));
        }
        Ok(Box::new(prepared::PreparedStream::new(sizes, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        let (_, sizes) = find(variant, problem)?;
        let source = prepared::source(sizes, inputs)?;
        let chunks = Arg::U32(sizes.chunks() as u32);
        let (entry, args) = match sizes.op {
            Op::Read => ("stream_read", vec![Arg::Rotating(0), Arg::Output(0), chunks]),
            Op::Copy => ("stream_copy", vec![Arg::Rotating(0), Arg::Output(0), chunks]),
            Op::Write => {
                let seed = shared::to_integers(source).first().copied().unwrap_or_default();
                ("stream_write", vec![Arg::Output(0), chunks, Arg::U32(seed)])
            }
        };
        let (name, shape) = match sizes.op {
            Op::Read => ("sums", vec![sizes.parts, 2]),
            Op::Write | Op::Copy => ("out", vec![sizes.words()]),
        };
        Ok(DeviceForm {
            rotating: vec![source.bytes.clone()],
            outputs: vec![OutputForm { name: name.to_owned(), dtype: DType::I32, shape }],
            launches: vec![LaunchForm {
                entry: entry.to_owned(),
                grid: [sizes.parts as u32, 1, 1],
                block: [THREADS, 1, 1],
                shared_bytes: 0,
                args,
                persistent: None,
            }],
            ..DeviceForm::default()
        })
    }
}

/// The variant and the sizes, where the smallest part holds a whole flight.
fn find(variant: &Variant, problem: &Problem) -> Result<(&'static StreamVariant, Sizes), PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let entry = by_name(variant.name).ok_or_else(|| shared::unregistered(ID, variant.name, problem))?;
    let refuse = |why: String| Err(shared::unsupported(ID, variant.name, problem, why));
    let vectors = sizes.least_chunks() * VECTORS_OF_CHUNK;
    if entry.flight > vectors {
        return refuse(format!("{} vectors a thread are in flight, and a part holds {vectors}", entry.flight));
    }
    if entry.flight == 1 && sizes.op == Op::Copy {
        return refuse("the assembler puts four vectors in flight where the text has one".to_owned());
    }
    Ok((entry, sizes))
}

#[cfg(test)]
mod tests;
