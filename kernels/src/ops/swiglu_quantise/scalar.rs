//! The baseline: the order class, block by block.

use memra_contract::order;

pub(super) fn kernel(gate: &[f32], up: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = gate.as_chunks().0.iter().zip(up.as_chunks().0).zip(quants.as_chunks_mut().0);
    for ((((gate, up), quants), scale), sum) in blocks.zip(scales).zip(sums) {
        (*quants, *scale, *sum) = order::swiglu_quantise_block(gate, up);
    }
}
