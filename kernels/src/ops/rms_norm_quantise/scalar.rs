//! The baseline: the order class, row by row and block by block.

use memra_contract::order::{self, QUANT_BLOCK};

use crate::ops::rms_norm::Operands;

pub(super) fn kernel(operands: &Operands<'_>, quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = operands.hidden / QUANT_BLOCK;
    let weights = operands.weight.as_chunks::<QUANT_BLOCK>().0;
    let rows = operands.x.chunks_exact(operands.hidden).zip(quants.chunks_exact_mut(operands.hidden));
    let planes = scales.chunks_exact_mut(blocks).zip(sums.chunks_exact_mut(blocks));
    for ((x, quants), (scales, sums)) in rows.zip(planes) {
        let factor = order::rms_factor(x, operands.epsilon);
        let blocks = x.as_chunks::<QUANT_BLOCK>().0.iter().zip(weights).zip(quants.as_chunks_mut().0);
        for ((((x, weight), quants), scale), sum) in blocks.zip(scales).zip(sums) {
            let normed = std::array::from_fn(|i| (x[i] * factor) * weight[i]);
            (*quants, *scale, *sum) = order::quantise_block(&normed);
        }
    }
}
