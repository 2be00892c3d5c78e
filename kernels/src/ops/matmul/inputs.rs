//! Seeded inputs of the matrix product, ordinary and made to break kernels.

use half::f16;
use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::{BlockFormat, Tensor, TensorSet};

use super::problem::{Activation, Epilogue, MatmulProblem, Segment};
use super::{ID, INFO};
use crate::contract::InputError;
use crate::input::Stream;

pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("normal", "what trained weights look like: normal values, scales near one percent"),
    ("uniform", "uniform values in -1..1"),
    ("extremes", "quants at -128, -127 and 127, alternating in runs: saturating integer paths overflow"),
    ("cancel", "large terms that cancel across blocks and chains: order of addition shows"),
    ("spike", "one block in sixteen at the largest scale, the others with subnormal scales"),
    ("zeros", "zero scales and zero activations"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Normal,
    Uniform,
    Extremes,
    Cancel,
    Spike,
    Zeros,
}

impl Family {
    fn parse(name: &str) -> Result<Self, InputError> {
        Ok(match name {
            "normal" => Self::Normal,
            "uniform" => Self::Uniform,
            "extremes" => Self::Extremes,
            "cancel" => Self::Cancel,
            "spike" => Self::Spike,
            "zeros" => Self::Zeros,
            _ => {
                return Err(InputError::Family {
                    contract: ID,
                    family: name.to_owned(),
                    known: FAMILIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                });
            }
        })
    }

    /// A weight quant.
    fn quant(self, stream: Stream, i: u64) -> i8 {
        match self {
            Self::Normal | Self::Spike => (stream.normal(i) * 36.0).clamp(-127.0, 127.0) as i8,
            Self::Uniform => (stream.plus_minus_one(i) * 127.0) as i8,
            Self::Extremes => match stream.bits(i / 5) % 3 {
                0 => -128,
                1 => -127,
                _ => 127,
            },
            Self::Cancel => 100 - (i / QUANT_BLOCK as u64 % 2) as i8 * 100 + (stream.bits(i) % 5) as i8,
            Self::Zeros => (stream.bits(i) % 3) as i8,
        }
    }

    /// A weight scale.
    fn scale(self, stream: Stream, block: u64) -> f16 {
        f16::from_f32(match self {
            Self::Normal => 0.002 + 0.01 * stream.unit(block),
            Self::Uniform | Self::Extremes => 1.0 / 127.0,
            Self::Cancel => [1.0, -1.0][(block / 2 % 2) as usize] * (1.0 + stream.unit(block)),
            Self::Spike if block.is_multiple_of(16) => 65_504.0,
            Self::Spike => 6.0e-8,
            Self::Zeros => 0.0,
        })
    }

    /// A float of a weight or an activation.
    fn float(self, stream: Stream, i: u64) -> f32 {
        match self {
            Self::Normal => stream.normal(i),
            Self::Uniform => stream.plus_minus_one(i),
            Self::Extremes => [-3.0e15, 3.0e15, 1.0][(stream.bits(i / 5) % 3) as usize],
            Self::Cancel => [1.0e6, -1.0e6][(i / 3 % 2) as usize] + stream.plus_minus_one(i),
            Self::Spike if i.is_multiple_of(61) => 1.0e12,
            Self::Spike => 1.0e-12 * stream.normal(i),
            Self::Zeros => 0.0,
        }
    }
}

pub(super) fn generate(problem: &MatmulProblem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
    let family = Family::parse(family)?;
    let mut tensors = Vec::new();
    let stream = Stream::new(seed, "activation");
    let elements = problem.m * problem.k;
    let floats: Vec<f32> = (0..elements as u64).map(|i| family.float(stream, i)).collect();
    match problem.activation {
        Activation::F32 => tensors.push(Tensor::f32("activation", &[problem.m, problem.k], &floats)),
        Activation::Q8 => tensors.extend(planes(problem, family, &floats)),
    }
    if problem.epilogue == Epilogue::Residual {
        let stream = Stream::new(seed, "residual");
        let shape = [problem.m, problem.width()];
        let values: Vec<f32> = (0..(shape[0] * shape[1]) as u64).map(|i| family.float(stream, i)).collect();
        tensors.push(Tensor::f32("residual", &shape, &values));
    }
    for (index, segment) in problem.segments.iter().enumerate() {
        let name = format!("weight{index}");
        let stream = Stream::new(seed, &name);
        let bytes = if segment.format == BlockFormat::F32 {
            let count = (segment.n * problem.k) as u64;
            (0..count).flat_map(|i| family.float(stream, i).to_le_bytes()).collect()
        } else if segment.format == BlockFormat::Q4_1 {
            q4_1_bytes(problem, *segment, family, stream)
        } else {
            q8_0_bytes(problem, *segment, family, stream)
        };
        tensors.push(Tensor::u8(&name, &[segment.n, segment.row_bytes(problem.k)], bytes));
    }
    Ok(TensorSet::new(tensors))
}

fn planes(problem: &MatmulProblem, family: Family, floats: &[f32]) -> [Tensor; 3] {
    let blocks = problem.m * problem.blocks();
    let (mut quants, mut scales, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for (b, block) in floats.as_chunks::<QUANT_BLOCK>().0.iter().enumerate() {
        let (mut q, mut scale, mut sum) = order::quantise_block(block);
        if family == Family::Extremes {
            // Full-scale quants of both signs, which quantised floats rarely give.
            q = std::array::from_fn(|i| if (i / 7 + b).is_multiple_of(2) { 127 } else { -127 });
            sum = q.iter().map(|q| i16::from(*q)).sum();
            scale = 1.0 + b as f32;
        }
        quants.extend_from_slice(&q);
        scales.push(scale);
        sums.push(sum);
    }
    debug_assert_eq!(scales.len(), blocks);
    let (m, k) = (problem.m, problem.k);
    [
        Tensor::i8("quants", &[m, k], &quants),
        Tensor::f32("scales", &[m, k / QUANT_BLOCK], &scales),
        Tensor::i16("sums", &[m, k / QUANT_BLOCK], &sums),
    ]
}

fn q8_0_bytes(problem: &MatmulProblem, segment: Segment, family: Family, stream: Stream) -> Vec<u8> {
    let blocks = (segment.n * problem.blocks()) as u64;
    let mut bytes = Vec::with_capacity(segment.bytes(problem.k));
    let scales = Stream::new(stream.bits(0), "scale");
    for block in 0..blocks {
        bytes.extend_from_slice(&family.scale(scales, block).to_le_bytes());
        let first = block * QUANT_BLOCK as u64;
        bytes.extend((first..first + QUANT_BLOCK as u64).map(|i| family.quant(stream, i).cast_unsigned()));
    }
    bytes
}

fn q4_1_bytes(problem: &MatmulProblem, segment: Segment, family: Family, stream: Stream) -> Vec<u8> {
    let blocks = (segment.n * problem.blocks()) as u64;
    let mut bytes = Vec::with_capacity(segment.bytes(problem.k));
    let scales = Stream::new(stream.bits(0), "scale");
    let minima = Stream::new(stream.bits(0), "minimum");
    for block in 0..blocks {
        let scale = family.scale(scales, block);
        // A block of trained weights reaches to both sides of zero.
        let minimum = match family {
            Family::Normal | Family::Uniform => f16::from_f32(scale.to_f32() * (-9.0 + 3.0 * minima.unit(block))),
            _ => family.scale(minima, block + 1),
        };
        bytes.extend_from_slice(&scale.to_le_bytes());
        bytes.extend_from_slice(&minimum.to_le_bytes());
        bytes.extend((block * 16..block * 16 + 16).map(|i| match family {
            Family::Extremes => [0x00, 0xFF, 0xF0, 0x0F][(stream.bits(i / 5) % 4) as usize],
            _ => stream.bits(i) as u8,
        }));
    }
    bytes
}

/// Puts stored bytes in the place of `weight0`.
pub(super) fn with_weights(
    problem: &MatmulProblem,
    mut inputs: TensorSet,
    weights: &[u8],
) -> Result<TensorSet, InputError> {
    let refuse =
        |why: String| InputError::Weights { contract: INFO.id, problem: problem.to_problem().to_string(), why };
    let [segment] = problem.segments.as_slice() else {
        return Err(refuse("weights from a file fill one segment, and the problem has several".to_owned()));
    };
    let needed = segment.bytes(problem.k);
    if weights.len() != needed {
        return Err(refuse(format!("the tensor holds {} bytes, and {needed} are needed", weights.len())));
    }
    if segment.format == BlockFormat::Q8_0 {
        for (block, bytes) in weights.chunks_exact(34).enumerate() {
            let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
            if !scale.is_finite() {
                let (row, block) = (block / problem.blocks(), block % problem.blocks());
                return Err(refuse(format!("the scale of row {row}, block {block} is {scale}")));
            }
        }
    } else if segment.format == BlockFormat::Q4_1 {
        for (block, bytes) in weights.chunks_exact(20).enumerate() {
            let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
            let minimum = f16::from_le_bytes([bytes[2], bytes[3]]);
            if !(scale.is_finite() && minimum.is_finite()) {
                let (row, block) = (block / problem.blocks(), block % problem.blocks());
                return Err(refuse(format!("scale and minimum of row {row}, block {block} are {scale} and {minimum}")));
            }
        }
    } else if let Some(i) =
        weights.chunks_exact(4).position(|b| !f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite())
    {
        return Err(refuse(format!("element {} of row {} is not finite", i % problem.k, i / problem.k)));
    }
    inputs.insert(Tensor::u8("weight0", &[segment.n, segment.row_bytes(problem.k)], weights.to_vec()));
    Ok(inputs)
}
