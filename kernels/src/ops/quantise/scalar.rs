//! The baseline: the order class, block by block.

use memra_contract::order::{self, QUANT_BLOCK};

pub(super) fn kernel(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let blocks = x.as_chunks::<QUANT_BLOCK>().0.iter().zip(quants.as_chunks_mut::<QUANT_BLOCK>().0);
    for (((x, quants), scale), sum) in blocks.zip(scales).zip(sums) {
        (*quants, *scale, *sum) = order::quantise_block(x);
    }
}
