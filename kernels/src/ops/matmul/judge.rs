//! The judges of the matrix product: the order class and the f64 reference.

use half::f16;
use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::{BlockFormat, Tensor, TensorSet, Tolerance};

use super::problem::{Activation, Epilogue, MatmulProblem, Segment};
use crate::contract::Reference;

pub(super) fn tolerance(problem: &MatmulProblem) -> Tolerance {
    // Longest path of one term: scale product, conversion, its chain, the pair tree, the residual.
    let is_min = problem.segments.iter().any(|segment| segment.format == BlockFormat::Q4_1);
    let (length, reason) = match problem.multiplied() {
        Activation::Q8 if is_min => (
            2 * problem.blocks().div_ceil(8) + 3 + 3,
            "each term is rounded once when scales are multiplied or the activation's sum is scaled, at most twice for every \
             block of its chain, three times in the tree and once at the residual; the scale is the sum of absolute terms, so \
             the bound is that count of unit roundoffs",
        ),
        Activation::Q8 => (
            problem.blocks().div_ceil(8) + 3 + 3,
            "each term is rounded once when scales are multiplied, once a fold of its chain, three times in the tree and once \
             at the residual; the scale is the sum of absolute terms, so the bound is that count of unit roundoffs",
        ),
        Activation::F32 => (
            problem.k.div_ceil(32) + 5 + 1,
            "each term is rounded once a fold of its chain, five times in the tree and once at the residual; the scale is the \
             sum of absolute terms, so the bound is that count of unit roundoffs",
        ),
    };
    Tolerance { max_scaled_error: length as f64 * F32_UNIT_ROUNDOFF, reason }
}

/// The stored weight of a segment, decoded as far as the judges need it.
enum Rows {
    Q8 { quants: Vec<i8>, scales: Vec<f16> },
    Q4Min { quants: Vec<u8>, scales: Vec<f16>, minima: Vec<f16> },
    F32(Vec<f32>),
}

fn decode(segment: Segment, bytes: &[u8]) -> Rows {
    if segment.format == BlockFormat::F32 {
        return Rows::F32(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect());
    }
    if segment.format == BlockFormat::Q4_1 {
        let (mut quants, mut scales, mut minima) = (Vec::with_capacity(bytes.len() * 2), Vec::new(), Vec::new());
        for block in bytes.chunks_exact(20) {
            scales.push(f16::from_le_bytes([block[0], block[1]]));
            minima.push(f16::from_le_bytes([block[2], block[3]]));
            quants.extend(block[4..].iter().map(|q| q & 15));
            quants.extend(block[4..].iter().map(|q| q >> 4));
        }
        return Rows::Q4Min { quants, scales, minima };
    }
    let mut quants = Vec::with_capacity(bytes.len());
    let mut scales = Vec::with_capacity(bytes.len() / 34);
    for block in bytes.chunks_exact(34) {
        scales.push(f16::from_le_bytes([block[0], block[1]]));
        quants.extend(block[2..].iter().map(|q| q.cast_signed()));
    }
    Rows::Q8 { quants, scales }
}

struct Decoded {
    quants: Vec<i8>,
    scales: Vec<f32>,
    floats: Vec<f32>,
    residual: Option<Vec<f32>>,
    weights: Vec<Rows>,
}

/// Inputs of this contract's own generator have every tensor; a missing one reads as empty and fails the comparison.
fn decode_inputs(problem: &MatmulProblem, inputs: &TensorSet) -> Decoded {
    let floats = |name: &str| inputs.get(name).map(Tensor::to_f32).unwrap_or_default();
    let activation = floats("activation");
    let (mut quants, mut scales) = (inputs.get("quants").map(Tensor::to_i8).unwrap_or_default(), floats("scales"));
    if problem.quantises() {
        for block in activation.as_chunks::<QUANT_BLOCK>().0 {
            let (q, scale, _) = order::quantise_block(block);
            quants.extend_from_slice(&q);
            scales.push(scale);
        }
    }
    Decoded {
        quants,
        scales,
        floats: activation,
        residual: (problem.epilogue == Epilogue::Residual).then(|| floats("residual")),
        weights: problem
            .segments
            .iter()
            .enumerate()
            .map(|(i, segment)| {
                decode(*segment, inputs.get(&format!("weight{i}")).map(|t| t.bytes.as_slice()).unwrap_or_default())
            })
            .collect(),
    }
}

/// Calls `visit(row, segment, column in the segment, index in out)` in output order.
fn for_each_output(problem: &MatmulProblem, mut visit: impl FnMut(usize, usize, usize, usize)) {
    let mut index = 0;
    for row in 0..problem.m {
        for (s, segment) in problem.segments.iter().enumerate() {
            for column in 0..segment.n {
                visit(row, s, column, index);
                index += 1;
            }
        }
    }
}

pub(super) fn ordered_outputs(problem: &MatmulProblem, inputs: &TensorSet) -> TensorSet {
    let d = decode_inputs(problem, inputs);
    let (k, blocks) = (problem.k, problem.blocks());
    let mut out = Vec::with_capacity(problem.m * problem.width());
    for_each_output(problem, |row, s, column, index| {
        let residual = d.residual.as_ref().map(|residual| residual[index]);
        out.push(match &d.weights[s] {
            Rows::Q8 { quants, scales } => order::dot_i8(
                &quants[column * k..(column + 1) * k],
                &scales[column * blocks..(column + 1) * blocks],
                &d.quants[row * k..(row + 1) * k],
                &d.scales[row * blocks..(row + 1) * blocks],
                residual,
            ),
            Rows::Q4Min { quants, scales, minima } => order::dot_u4_min(
                order::MinWeights {
                    quants: &quants[column * k..(column + 1) * k],
                    scales: &scales[column * blocks..(column + 1) * blocks],
                    minima: &minima[column * blocks..(column + 1) * blocks],
                },
                &d.quants[row * k..(row + 1) * k],
                &d.scales[row * blocks..(row + 1) * blocks],
                residual,
            ),
            Rows::F32(weight) => {
                order::dot_f32(&weight[column * k..(column + 1) * k], &d.floats[row * k..(row + 1) * k], residual)
            }
        });
    });
    TensorSet::new(vec![Tensor::f32("out", &[problem.m, problem.width()], &out)])
}

pub(super) fn reference(problem: &MatmulProblem, inputs: &TensorSet) -> Reference {
    reference_of(problem, &decode_inputs(problem, inputs), problem.multiplied())
}

/// The product with the activation as it was given, before any quantisation.
pub(super) fn peer_reference(problem: &MatmulProblem, inputs: &TensorSet) -> Option<(Reference, Tolerance)> {
    if problem.activation != Activation::F32 {
        return None;
    }
    let tolerance = if problem.quantises() {
        Tolerance {
            max_scaled_error: 0.02,
            reason: "eight-bit quantisation moves an element by up to 1/254 of its block's maximum, which is about 1 percent of \
                     the mean magnitude of ordinary activations; a half-precision scale adds 1/2048",
        }
    } else {
        Tolerance {
            max_scaled_error: problem.k as f64 * F32_UNIT_ROUNDOFF,
            reason: "any order of k roundings; the scale is the sum of absolute terms",
        }
    };
    Some((reference_of(problem, &decode_inputs(problem, inputs), Activation::F32), tolerance))
}

fn reference_of(problem: &MatmulProblem, d: &Decoded, activation: Activation) -> Reference {
    let (k, blocks) = (problem.k, problem.blocks());
    let mut values = Vec::with_capacity(problem.m * problem.width());
    let mut scales = Vec::with_capacity(values.capacity());
    for_each_output(problem, |row, s, column, index| {
        let residual = d.residual.as_ref().map_or(0.0, |residual| f64::from(residual[index]));
        let (mut value, mut scale) = (residual, residual.abs());
        let mut add = |term: f64| {
            value += term;
            scale += term.abs();
        };
        let floats = |i: usize| f64::from(d.floats[row * k + i]);
        match &d.weights[s] {
            Rows::Q8 { quants, scales } => {
                for b in 0..blocks {
                    let w = &quants[column * k + b * QUANT_BLOCK..][..QUANT_BLOCK];
                    let weight_scale = scales[column * blocks + b].to_f64();
                    if activation == Activation::F32 {
                        for (i, w) in w.iter().enumerate() {
                            add(f64::from(*w) * weight_scale * floats(b * QUANT_BLOCK + i));
                        }
                        continue;
                    }
                    let x = &d.quants[row * k + b * QUANT_BLOCK..][..QUANT_BLOCK];
                    let isum: i32 = w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
                    add(f64::from(isum) * weight_scale * f64::from(d.scales[row * blocks + b]));
                }
            }
            Rows::Q4Min { quants, scales, minima } => {
                for b in 0..blocks {
                    let w = &quants[column * k + b * QUANT_BLOCK..][..QUANT_BLOCK];
                    let weight_scale = scales[column * blocks + b].to_f64();
                    let minimum = minima[column * blocks + b].to_f64();
                    if activation == Activation::F32 {
                        for (i, w) in w.iter().enumerate() {
                            let x = floats(b * QUANT_BLOCK + i);
                            add(f64::from(*w) * weight_scale * x);
                            add(minimum * x);
                        }
                        continue;
                    }
                    let x = &d.quants[row * k + b * QUANT_BLOCK..][..QUANT_BLOCK];
                    let isum: i32 = w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
                    let sum: i32 = x.iter().map(|x| i32::from(*x)).sum();
                    let scale = f64::from(d.scales[row * blocks + b]);
                    add(f64::from(isum) * weight_scale * scale);
                    add(f64::from(sum) * minimum * scale);
                }
            }
            Rows::F32(weight) => {
                for i in 0..k {
                    add(f64::from(weight[column * k + i]) * floats(i));
                }
            }
        }
        values.push(value);
        // An underflowing product is off by less than the smallest normal number.
        scales.push(scale.max(f64::from(f32::MIN_POSITIVE)));
    });
    Reference { values, scales }
}
