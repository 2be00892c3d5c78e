//! The judges of the matrix product: the order class and the f64 reference.

use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::weights::{UnpackedRow, unpack_row};
use memra_contract::{BlockFormat, Tensor, TensorSet, Tolerance};

use super::problem::{Activation, Epilogue, MatmulProblem, order_class};
use super::row::{self, ActivationRow};
use crate::contract::Reference;

/// The largest of the segments' bounds.
pub(super) fn tolerance(problem: &MatmulProblem) -> Tolerance {
    let bounds = problem.segments.iter().map(|segment| roundings(segment.format, problem.k));
    let (length, reason) = bounds.max_by_key(|(length, _)| *length).unwrap_or((1, "nothing is computed"));
    Tolerance { max_scaled_error: length as f64 * F32_UNIT_ROUNDOFF, reason }
}

/// Roundings on the longest path of one term: scale product, conversion, its chain, the pair tree, the residual.
fn roundings(format: BlockFormat, k: usize) -> (usize, &'static str) {
    let blocks = k / QUANT_BLOCK;
    match order_class(format) {
        order::DOT_U4_MIN_BLOCK32_CHAIN8 | order::DOT_U_MIN_BLOCK32_CHAIN8 => (
            2 * blocks.div_ceil(8) + 3 + 3,
            "each term is rounded once when scales are multiplied or the activation's sum is scaled, at most twice for every \
             block of its chain, three times in the tree and once at the residual; the scale is the sum of absolute terms, so \
             the bound is that count of unit roundoffs",
        ),
        order::DOT_E2M1_BLOCK16_CHAIN8 => (
            blocks.div_ceil(8) + 3 + 4,
            "each term is rounded once when the halves of a block are added, once a fold of its chain, three times in the tree, \
             once at the outer scale and once at the residual; the scale is the sum of absolute terms, so the bound is that \
             count of unit roundoffs",
        ),
        order::DOT_F32_CHAIN32 => (
            k.div_ceil(32) + 5 + 1,
            "each term is rounded once a fold of its chain, five times in the tree and once at the residual; the scale is the \
             sum of absolute terms, so the bound is that count of unit roundoffs",
        ),
        order::DOT_F8_BLOCK128_CHAIN32 => (
            4 + k.div_ceil(128) + 5 + 1,
            "each term is rounded four times in its block of 128, once a fold of its chain, five times in the tree and once at \
             the residual; the scale is the sum of absolute terms, so the bound is that count of unit roundoffs",
        ),
        _ => (
            blocks.div_ceil(8) + 3 + 3,
            "each term is rounded once when scales are multiplied, once a fold of its chain, three times in the tree and once \
             at the residual; the scale is the sum of absolute terms, so the bound is that count of unit roundoffs",
        ),
    }
}

struct Decoded {
    quants: Vec<i8>,
    scales: Vec<f32>,
    floats: Vec<f32>,
    residual: Option<Vec<f32>>,
    weights: Vec<Weight>,
}

/// The stored weight of a segment, unpacked once.
struct Weight {
    rows: Vec<UnpackedRow>,
    /// Scales from beside the weight.
    outer: Vec<f32>,
}

impl Decoded {
    fn activation(&self, k: usize, m: usize) -> ActivationRow<'_> {
        ActivationRow::new(k, &self.floats, &self.quants, &self.scales, m)
    }
}

/// Inputs of this contract's own generator have every tensor; a missing one reads as empty and fails the comparison.
fn decode_inputs(problem: &MatmulProblem, inputs: &TensorSet) -> Decoded {
    let floats = |name: &str| inputs.get(name).map(Tensor::to_f32).unwrap_or_default();
    let activation = inputs.get("activation").map(Tensor::to_floats).unwrap_or_default();
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
                let stored = inputs.get(&format!("weight{i}")).map(|t| t.bytes.as_slice()).unwrap_or_default();
                let rows = stored.chunks_exact(segment.row_bytes(problem.k).max(1));
                Weight {
                    rows: rows.map(|row| unpack_row(segment.format, row)).collect(),
                    outer: segment
                        .outer_tensor(problem.k)
                        .map(|(name, _)| floats(&format!("{name}{i}")))
                        .unwrap_or_default(),
                }
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
    let mut out = Vec::with_capacity(problem.m * problem.width());
    for_each_output(problem, |row, s, column, index| {
        let residual = d.residual.as_ref().map(|residual| residual[index]);
        let (segment, weight) = (problem.segments[s], &d.weights[s]);
        let outer = segment.row_scales(problem.k, &weight.outer, column);
        let activation = d.activation(problem.k, row);
        out.push(row::dot(segment.format, &weight.rows[column], outer, activation, residual));
    });
    TensorSet::new(vec![Tensor::f32("out", &[problem.m, problem.width()], &out)])
}

pub(super) fn reference(problem: &MatmulProblem, inputs: &TensorSet) -> Reference {
    reference_of(problem, &decode_inputs(problem, inputs), problem.multiplied())
}

/// The product with the activation as it was given, before any quantisation.
pub(super) fn peer_reference(problem: &MatmulProblem, inputs: &TensorSet) -> Option<(Reference, Tolerance)> {
    if problem.activation == Activation::Q8 {
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

/// `activation` says in which form it is multiplied: f32 for any float, or planes.
fn reference_of(problem: &MatmulProblem, d: &Decoded, activation: Activation) -> Reference {
    let mut values = Vec::with_capacity(problem.m * problem.width());
    let mut scales = Vec::with_capacity(values.capacity());
    for_each_output(problem, |row, s, column, index| {
        let residual = d.residual.as_ref().map_or(0.0, |residual| f64::from(residual[index]));
        let (mut value, mut scale) = (residual, residual.abs());
        let add = |term: f64| {
            value += term;
            scale += term.abs();
        };
        let (segment, weight) = (problem.segments[s], &d.weights[s]);
        let outer = segment.row_scales(problem.k, &weight.outer, column);
        let x = d.activation(problem.k, row);
        if activation == Activation::Q8 {
            integer_terms(&weight.rows[column], outer, x, add);
        } else {
            float_terms(&weight.rows[column], outer, x.floats, add);
        }
        values.push(value);
        // An underflowing product is off by less than the smallest normal number.
        scales.push(scale.max(f64::from(f32::MIN_POSITIVE)));
    });
    Reference { values, scales }
}

/// The terms of a product with floats, element by element.
fn float_terms(row: &UnpackedRow, outer: &[f32], x: &[f32], mut add: impl FnMut(f64)) {
    for (i, x) in x.iter().enumerate() {
        let x = f64::from(*x);
        match row {
            UnpackedRow::Scaled { quants, scales } => add(f64::from(quants[i]) * f64::from(scales[i / 32]) * x),
            UnpackedRow::Min { quants, scales, minima } => {
                add(f64::from(quants[i]) * f64::from(scales[i / 32]) * x);
                add(f64::from(minima[i / 32]) * x);
            }
            UnpackedRow::Sub16 { quants, sub_scales, scales } => {
                add(f64::from(quants[i]) * f64::from(sub_scales[i / 16]) * f64::from(scales[i / 32]) * x);
            }
            UnpackedRow::Micro16 { quants, scales } => {
                add(f64::from(quants[i]) * f64::from(scales[i / 16]) * f64::from(outer[0]) * x);
            }
            UnpackedRow::Floats(weight) => {
                let scale = outer.get(i / order::F8_BLOCK).map_or(1.0, |scale| f64::from(*scale));
                add(f64::from(weight[i]) * scale * x);
            }
        }
    }
}

/// The terms of a product with int8 planes: what is exact in integers is one term.
fn integer_terms(row: &UnpackedRow, outer: &[f32], x: ActivationRow<'_>, mut add: impl FnMut(f64)) {
    let blocks = x.quants.as_chunks::<QUANT_BLOCK>().0.iter().zip(x.scales).enumerate();
    for (b, (x, x_scale)) in blocks {
        let x_scale = f64::from(*x_scale);
        // The integer dot of a range of the block.
        let dot = |quants: &[i8], from: usize, to: usize| -> i32 {
            let weight = &quants[b * QUANT_BLOCK..][from..to];
            weight.iter().zip(&x[from..to]).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum()
        };
        match row {
            UnpackedRow::Scaled { quants, scales } => {
                add(f64::from(dot(quants, 0, 32)) * f64::from(scales[b]) * x_scale);
            }
            UnpackedRow::Min { quants, scales, minima } => {
                let weight = &quants[b * QUANT_BLOCK..][..QUANT_BLOCK];
                let isum: i32 = weight.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
                let sum: i32 = x.iter().map(|x| i32::from(*x)).sum();
                add(f64::from(isum) * f64::from(scales[b]) * x_scale);
                add(f64::from(sum) * f64::from(minima[b]) * x_scale);
            }
            UnpackedRow::Sub16 { quants, sub_scales, scales } => {
                let (low, high) = (i32::from(sub_scales[2 * b]), i32::from(sub_scales[2 * b + 1]));
                let isum = low * dot(quants, 0, 16) + high * dot(quants, 16, 32);
                add(f64::from(isum) * f64::from(scales[b]) * x_scale);
            }
            UnpackedRow::Micro16 { quants, scales } => {
                let outer = f64::from(outer[0]);
                add(f64::from(dot(quants, 0, 16)) * f64::from(scales[2 * b]) * x_scale * outer);
                add(f64::from(dot(quants, 16, 32)) * f64::from(scales[2 * b + 1]) * x_scale * outer);
            }
            // Float weights are not multiplied with planes.
            UnpackedRow::Floats(_) => (),
        }
    }
}
