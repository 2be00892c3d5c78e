//! One lane of a panel: blocks lie in order of chains, and the quants of a block in groups of four, lane by lane.

use half::f16;
use memra_contract::order::QUANT_BLOCK;

use crate::ops::matmul::{Layout, PackedSegment, panel_order};

pub(super) fn kernel(weight: &PackedSegment, tokens: &[u32], out: &mut [f32]) {
    let Layout::Panel { rows, is_offset } = weight.layout else { return };
    let (k, blocks) = (weight.k, weight.k / QUANT_BLOCK);
    let stride = weight.layout.stride(weight.segment, k);
    let flip = if is_offset { 0x80 } else { 0 };
    for (token, out) in tokens.iter().zip(out.chunks_exact_mut(k)) {
        let (panel, lane) = (*token as usize / rows, *token as usize % rows);
        let (quants, scales) = weight.bytes.as_slice()[panel * stride..][..stride].split_at(rows * k);
        let groups = quants.as_chunks::<4>().0;
        let scales = scales.as_chunks::<2>().0;
        for (slot, block) in panel_order(blocks).enumerate() {
            let scale = f16::from_le_bytes(scales[slot * rows + lane]).to_f32();
            let out = out[block * QUANT_BLOCK..][..QUANT_BLOCK].as_chunks_mut::<4>().0;
            for (g, out) in out.iter_mut().enumerate() {
                *out = groups[(slot * 8 + g) * rows + lane].map(|q| scale * f32::from((q ^ flip).cast_signed()));
            }
        }
    }
}
