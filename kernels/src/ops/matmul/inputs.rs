//! Seeded inputs of the matrix product, ordinary and made to break kernels.

mod stored;

use half::f16;
use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::{DType, Tensor, TensorSet};

use super::problem::{Epilogue, MatmulProblem};
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
    #[inline(always)]
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

    /// A float that is stored as f16: the same where it fits, with smaller extremes.
    fn half_float(self, stream: Stream, i: u64) -> f32 {
        match self {
            Self::Normal | Self::Uniform | Self::Zeros => self.float(stream, i),
            Self::Extremes => [-6.0e4, 6.0e4, 1.0][(stream.bits(i / 5) % 3) as usize],
            Self::Cancel => [1.0e4, -1.0e4][(i / 3 % 2) as usize] + 64.0 * stream.plus_minus_one(i),
            Self::Spike if i.is_multiple_of(61) => 6.0e4,
            Self::Spike => 1.0e-6 * stream.normal(i),
        }
    }

    /// A float that is stored as `dtype`.
    fn float_of(self, dtype: DType, stream: Stream, i: u64) -> f32 {
        if dtype == DType::F16 { self.half_float(stream, i) } else { self.float(stream, i) }
    }
}

pub(super) fn generate(problem: &MatmulProblem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
    let family = Family::parse(family)?;
    let mut tensors = Vec::new();
    let stream = Stream::new(seed, "activation");
    let elements = problem.m * problem.k;
    let dtype = problem.activation.dtype();
    let floats: Vec<f32> =
        (0..elements as u64).map(|i| family.float_of(dtype.unwrap_or(DType::F32), stream, i)).collect();
    match dtype {
        Some(dtype) => tensors.push(Tensor::floats("activation", &[problem.m, problem.k], dtype, &floats)),
        None => tensors.extend(planes(problem, family, &floats)),
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
        let bytes = stored::bytes(family, *segment, problem.k, stream);
        tensors.push(Tensor::u8(&name, &[segment.n, segment.row_bytes(problem.k)], bytes));
        if let Some((name, shape)) = segment.outer_tensor(problem.k) {
            let name = format!("{name}{index}");
            let stream = Stream::new(seed, &name);
            let scales: Vec<f32> = (0..segment.outer_scales(problem.k) as u64)
                .map(|i| family.scale(stream, i).to_f32() * stored::OUTER_FACTOR)
                .collect();
            tensors.push(Tensor::f32(&name, &shape, &scales));
        }
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
    if let Some((name, shape)) = segment.outer_tensor(problem.k) {
        let name = format!("{name}0");
        if inputs.get(&name).is_none_or(|tensor| tensor.shape != shape) {
            return Err(refuse(format!("its scales are not in the tensor, and `{name}` is no f32 {shape:?}")));
        }
    }
    stored::check_finite(segment.format, problem.k, weights).map_err(refuse)?;
    inputs.insert(Tensor::u8("weight0", &[segment.n, segment.row_bytes(problem.k)], weights.to_vec()));
    Ok(inputs)
}
