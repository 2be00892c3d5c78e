//! The judges of the matrix product: the order class and the f64 reference.

use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::tolerance::F32_UNIT_ROUNDOFF;
use memra_contract::weights::{UnpackedRow, unpack_row};
use memra_contract::{BlockFormat, Tensor, TensorSet, Tolerance};

use super::problem::{Activation, Epilogue, MatmulProblem, Segment, order_class};
use super::row::{self, ActivationRow};
use crate::contract::Reference;
use crate::parallel;
use crate::vector::avx2_loops::on_vectors;

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

struct Decoded<'a> {
    quants: Vec<i8>,
    scales: Vec<f32>,
    floats: Vec<f32>,
    residual: Option<Vec<f32>>,
    weights: Vec<Weight<'a>>,
}

/// The weight of a segment.
struct Weight<'a> {
    segment: Segment,
    /// Its first column of the output.
    column: usize,
    /// Rows as they are stored.
    stored: &'a [u8],
    /// Scales from beside the weight.
    outer: Vec<f32>,
}

impl Decoded<'_> {
    #[inline(always)]
    fn activation(&self, k: usize, m: usize) -> ActivationRow<'_> {
        ActivationRow::new(k, &self.floats, &self.quants, &self.scales, m)
    }
}

/// Inputs of this contract's own generator have every tensor; a missing one reads as empty and fails the comparison.
fn decode_inputs<'a>(problem: &MatmulProblem, inputs: &'a TensorSet) -> Decoded<'a> {
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
    let mut column = 0;
    let weight = |(i, segment): (usize, &Segment)| {
        let stored = inputs.get(&format!("weight{i}")).map(|t| t.bytes.as_slice()).unwrap_or_default();
        let outer = segment.outer_tensor(problem.k).map(|(name, _)| floats(&format!("{name}{i}")));
        let weight = Weight { segment: *segment, column, stored, outer: outer.unwrap_or_default() };
        column += segment.n;
        weight
    };
    Decoded {
        quants,
        scales,
        floats: activation,
        residual: (problem.epilogue == Epilogue::Residual).then(|| floats("residual")),
        weights: problem.segments.iter().enumerate().map(weight).collect(),
    }
}

/// A row of a weight, unpacked, that is multiplied with every row of the activation.
struct WeightRow<'a> {
    format: BlockFormat,
    row: UnpackedRow,
    /// Its scales from beside the weight.
    outer: &'a [f32],
    /// Its column of the output.
    column: usize,
}

/// What `products` gives for every row of the weights, in the layout of the output. It appends one value for every row of the
/// activation, and is called on all CPUs at once.
fn by_rows<T: Copy + Default + Send>(
    problem: &MatmulProblem,
    d: &Decoded<'_>,
    products: &(impl Fn(&WeightRow<'_>, &mut Vec<T>) + Sync),
) -> Vec<T> {
    let (m, k, width) = (problem.m, problem.k, problem.width());
    let columns = parallel::map(width, k * (m + 1), &|columns| {
        let mut values = Vec::with_capacity(columns.len() * m);
        for weight in &d.weights {
            let (begin, end) = (columns.start.max(weight.column), columns.end.min(weight.column + weight.segment.n));
            let (format, row_bytes) = (weight.segment.format, weight.segment.row_bytes(k));
            for column in begin..end {
                let row = column - weight.column;
                let stored = &weight.stored[row * row_bytes..][..row_bytes];
                let outer = weight.segment.row_scales(k, &weight.outer, row);
                products(&WeightRow { format, row: unpack_row(format, stored), outer, column }, &mut values);
            }
        }
        values
    });
    let mut out = vec![T::default(); m * width];
    for (column, values) in columns.chunks_exact(m.max(1)).enumerate() {
        for (row, value) in values.iter().enumerate() {
            out[row * width + column] = *value;
        }
    }
    out
}

pub(super) fn ordered_outputs(problem: &MatmulProblem, inputs: &TensorSet) -> TensorSet {
    let d = decode_inputs(problem, inputs);
    let width = problem.width();
    let out = by_rows(problem, &d, &|weight, values| {
        ordered_row(problem, &d, weight, values);
    });
    TensorSet::new(vec![Tensor::f32("out", &[problem.m, width], &out)])
}

on_vectors!(fn ordered_row(problem: &MatmulProblem, d: &Decoded<'_>, weight: &WeightRow<'_>, values: &mut Vec<f32>) = ordered_row_of);

#[inline(always)]
fn ordered_row_of(problem: &MatmulProblem, d: &Decoded<'_>, weight: &WeightRow<'_>, values: &mut Vec<f32>) {
    let width = problem.width();
    for row in 0..problem.m {
        let residual = d.residual.as_ref().map(|residual| residual[row * width + weight.column]);
        let activation = d.activation(problem.k, row);
        values.push(row::dot(weight.format, &weight.row, weight.outer, activation, residual));
    }
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
fn reference_of(problem: &MatmulProblem, d: &Decoded<'_>, activation: Activation) -> Reference {
    let width = problem.width();
    let judged = by_rows(problem, d, &|weight, judged| {
        judged.extend((0..problem.m).map(|row| {
            let residual = d.residual.as_ref().map_or(0.0, |residual| f64::from(residual[row * width + weight.column]));
            let x = d.activation(problem.k, row);
            let (value, scale) = if activation == Activation::Q8 {
                integer_sums(&weight.row, weight.outer, x, residual)
            } else {
                float_terms(&weight.row, weight.outer, x.floats, residual)
            };
            // An underflowing product is off by less than the smallest normal number.
            (value, scale.max(f64::from(f32::MIN_POSITIVE)))
        }));
    });
    let (values, scales) = judged.into_iter().unzip();
    Reference { values, scales }
}

/// A sum and the sum of the absolute terms.
struct Sums(f64, f64);

impl Sums {
    #[inline(always)]
    fn add(&mut self, term: f64) {
        self.0 += term;
        self.1 += term.abs();
    }
}

on_vectors!(fn integer_sums(row: &UnpackedRow, outer: &[f32], x: ActivationRow<'_>, first: f64) -> (f64, f64) = integer_terms);

/// A product with floats and the sum of its absolute terms, element by element from `first` on.
#[inline(always)]
fn float_terms(row: &UnpackedRow, outer: &[f32], x: &[f32], first: f64) -> (f64, f64) {
    let mut sums = Sums(first, first.abs());
    let x = x.iter().map(|x| f64::from(*x)).enumerate();
    match row {
        UnpackedRow::Scaled { quants, scales } => {
            x.for_each(|(i, x)| sums.add(f64::from(quants[i]) * f64::from(scales[i / 32]) * x));
        }
        UnpackedRow::Min { quants, scales, minima } => x.for_each(|(i, x)| {
            sums.add(f64::from(quants[i]) * f64::from(scales[i / 32]) * x);
            sums.add(f64::from(minima[i / 32]) * x);
        }),
        UnpackedRow::Sub16 { quants, sub_scales, scales } => x.for_each(|(i, x)| {
            sums.add(f64::from(quants[i]) * f64::from(sub_scales[i / 16]) * f64::from(scales[i / 32]) * x);
        }),
        UnpackedRow::Micro16 { quants, scales } => {
            let outer = f64::from(outer[0]);
            x.for_each(|(i, x)| sums.add(f64::from(quants[i]) * f64::from(scales[i / 16]) * outer * x));
        }
        UnpackedRow::Floats(weight) if outer.is_empty() => {
            x.zip(weight).for_each(|((_, x), weight)| sums.add(f64::from(*weight) * x));
        }
        UnpackedRow::Floats(weight) => {
            x.for_each(|(i, x)| sums.add(f64::from(weight[i]) * f64::from(outer[i / order::F8_BLOCK]) * x));
        }
    }
    (sums.0, sums.1)
}

/// The exact dot of as many integers.
#[inline(always)]
fn dot<const N: usize>(weight: &[i8; N], x: &[i8; N]) -> f64 {
    f64::from(weight.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum::<i32>())
}

/// A product with int8 planes and the sum of its absolute terms, from `first` on: what is exact in integers is one term.
#[inline(always)]
fn integer_terms(row: &UnpackedRow, outer: &[f32], x: ActivationRow<'_>, first: f64) -> (f64, f64) {
    let mut sums = Sums(first, first.abs());
    let halves = x.quants.as_chunks::<16>().0;
    let blocks = x.quants.as_chunks::<QUANT_BLOCK>().0.iter().zip(x.scales.iter().map(|scale| f64::from(*scale)));
    match row {
        UnpackedRow::Scaled { quants, scales } => {
            for (((x, x_scale), w), scale) in blocks.zip(quants.as_chunks().0).zip(scales) {
                sums.add(dot(w, x) * f64::from(*scale) * x_scale);
            }
        }
        UnpackedRow::Min { quants, scales, minima } => {
            let minima = scales.iter().zip(minima);
            for (((x, x_scale), w), (scale, minimum)) in blocks.zip(quants.as_chunks::<QUANT_BLOCK>().0).zip(minima) {
                let isum: i32 = w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
                let sum: i32 = x.iter().map(|x| i32::from(*x)).sum();
                sums.add(f64::from(isum) * f64::from(*scale) * x_scale);
                sums.add(f64::from(sum) * f64::from(*minimum) * x_scale);
            }
        }
        UnpackedRow::Sub16 { quants, sub_scales, scales } => {
            let quants = quants.as_chunks::<16>().0;
            for (b, ((_, x_scale), scale)) in blocks.zip(scales).enumerate() {
                let half = |h: usize| f64::from(sub_scales[h]) * dot(&quants[h], &halves[h]);
                // Both halves and their sum are integers below 2^53.
                sums.add((half(2 * b) + half(2 * b + 1)) * f64::from(*scale) * x_scale);
            }
        }
        UnpackedRow::Micro16 { quants, scales } => {
            let (outer, quants) = (f64::from(outer[0]), quants.as_chunks::<16>().0);
            for (b, (_, x_scale)) in blocks.enumerate() {
                for h in [2 * b, 2 * b + 1] {
                    sums.add(dot(&quants[h], &halves[h]) * f64::from(scales[h]) * x_scale * outer);
                }
            }
        }
        // Float weights are not multiplied with planes.
        UnpackedRow::Floats(_) => (),
    }
    (sums.0, sums.1)
}

#[cfg(test)]
mod tests {
    use super::super::inputs;
    use super::*;

    #[test]
    fn how_work_is_divided_does_not_show() {
        // Enough work for several threads in the first, too little in the others.
        for (seg, few) in [("q8_0:400+q8_0:300", "q8_0:3"), ("q4_k:700", "q4_k:3"), ("nvfp4:700", "nvfp4:3")] {
            let parse = |seg: &str, m: usize| {
                let text = format!("m={m},k=2048,seg={seg},epi=residual");
                MatmulProblem::parse(&text.parse().unwrap()).unwrap()
            };
            let (problem, small) = (parse(seg, 5), parse(few, 5));
            let inputs = inputs::generate(&problem, "normal", 9).unwrap();
            let of_few = inputs::generate(&small, "normal", 9).unwrap();
            let few = &of_few.get("weight0").unwrap().bytes;
            assert!(inputs.get("weight0").unwrap().bytes.starts_with(few), "{seg}");

            let d = decode_inputs(&problem, &inputs);
            let out = ordered_outputs(&problem, &inputs).get("out").unwrap().to_f32();
            let reference = reference(&problem, &inputs);
            let width = problem.width();
            for (row, column) in [(0, 0), (0, 699), (4, 0), (4, 350), (4, 699), (2, 401)] {
                let weight = d.weights.iter().rev().find(|weight| weight.column <= column).unwrap();
                let bytes = weight.segment.row_bytes(2048);
                let stored = &weight.stored[(column - weight.column) * bytes..][..bytes];
                let (format, at) = (weight.segment.format, row * width + column);
                let residual = d.residual.as_ref().map(|residual| residual[at]);
                let unpacked = unpack_row(format, stored);
                let wanted = row::dot(format, &unpacked, &weight.outer, d.activation(2048, row), residual);
                assert_eq!(out[at].to_bits(), wanted.to_bits(), "{seg} {row} {column}");
                let error = (f64::from(wanted) - reference.values[at]).abs() / reference.scales[at];
                assert!(error <= tolerance(&problem).max_scaled_error, "{seg} {row} {column}: {error}");
            }
        }
    }
}
