//! The baseline: stored blocks one after another.

use half::f16;
use memra_contract::BlockFormat;
use memra_contract::order;

use crate::ops::matmul::PackedSegment;

pub(super) fn kernel(weight: &PackedSegment, tokens: &[u32], out: &mut [f32]) {
    let (bytes, row_bytes) = (weight.bytes.as_slice(), weight.segment.row_bytes(weight.k));
    for (token, out) in tokens.iter().zip(out.chunks_exact_mut(weight.k)) {
        let row = &bytes[*token as usize * row_bytes..][..row_bytes];
        if weight.segment.format == BlockFormat::F32 {
            for (out, value) in out.iter_mut().zip(row.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*value);
            }
            continue;
        }
        for (out, block) in out.as_chunks_mut().0.iter_mut().zip(row.as_chunks::<34>().0) {
            let quants = std::array::from_fn(|i| block[2 + i].cast_signed());
            *out = order::dequantise_q8_0(f16::from_le_bytes([block[0], block[1]]), &quants);
        }
    }
}
