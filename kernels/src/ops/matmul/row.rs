//! One output of any format by its order class.

use memra_contract::BlockFormat;
use memra_contract::order::{self, E2m1Weights, MinWeights, QUANT_BLOCK, SubWeights};
use memra_contract::weights::UnpackedRow;

/// A row of the activation in the form that the weight is multiplied with; the other form is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActivationRow<'a> {
    /// `k` floats.
    pub(super) floats: &'a [f32],
    /// `k` quants.
    pub(super) quants: &'a [i8],
    /// `k / 32` scales.
    pub(super) scales: &'a [f32],
}

impl<'a> ActivationRow<'a> {
    /// Row `m` of whole tensors, each of which may be empty.
    #[inline(always)]
    pub(super) fn new(k: usize, floats: &'a [f32], quants: &'a [i8], scales: &'a [f32], m: usize) -> Self {
        let blocks = k / QUANT_BLOCK;
        Self {
            floats: floats.get(m * k..(m + 1) * k).unwrap_or_default(),
            quants: quants.get(m * k..(m + 1) * k).unwrap_or_default(),
            scales: scales.get(m * blocks..(m + 1) * blocks).unwrap_or_default(),
        }
    }
}

/// The product of an unpacked row with a row of the activation; `outer` are the row's scales from beside the weight.
#[inline(always)]
pub(super) fn dot(
    format: BlockFormat,
    row: &UnpackedRow,
    outer: &[f32],
    activation: ActivationRow<'_>,
    residual: Option<f32>,
) -> f32 {
    let ActivationRow { floats, quants: x, scales: x_scales } = activation;
    match row {
        UnpackedRow::Scaled { quants, scales } => order::dot_i8(quants, scales, x, x_scales, residual),
        UnpackedRow::Min { quants, scales, minima } => {
            order::dot_u_min(MinWeights { quants, scales, minima }, x, x_scales, residual)
        }
        UnpackedRow::Sub16 { quants, sub_scales, scales } => {
            order::dot_i8_sub16(SubWeights { quants, sub_scales, scales }, x, x_scales, residual)
        }
        UnpackedRow::Micro16 { quants, scales } => {
            order::dot_e2m1(E2m1Weights { quants, scales, outer: outer[0] }, x, x_scales, residual)
        }
        UnpackedRow::Floats(weight) if format == BlockFormat::F8_E4M3 => order::dot_f8(weight, outer, floats, residual),
        UnpackedRow::Floats(weight) => order::dot_f32(weight, floats, residual),
    }
}
