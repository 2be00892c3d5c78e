//! The largest of pieces of 512, four vectors at a time; then the place of the largest in the first piece that has it.

use std::arch::x86_64::{
    _CMP_GT_OQ, _mm512_cmp_ps_mask, _mm512_loadu_ps, _mm512_max_ps, _mm512_set1_ps, _mm512_storeu_ps,
};

use memra_contract::order;

const PIECE: usize = 512;

#[expect(unsafe_code, reason = "SIMD module")]
pub(crate) fn kernel(values: &[f32]) -> Option<(u32, f32)> {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    if let Some((piece, value)) = unsafe { first_piece(values) } {
        let place = values[piece * PIECE..].iter().position(|v| *v == value)?;
        return Some(((piece * PIECE + place) as u32, value));
    }
    // Nothing above -inf: the values are -inf and NaN.
    let index = order::argmax(values);
    values.get(index as usize).filter(|value| !value.is_nan()).map(|value| (index, *value))
}

/// The first piece that holds the largest value above -inf, and that value.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn first_piece(values: &[f32]) -> Option<(usize, f32)> {
    let mut found = None;
    let mut best = f32::NEG_INFINITY;
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut largest = [_mm512_set1_ps(best); 4];
        let (groups, rest) = values.as_chunks::<64>();
        for group in groups {
            for (v, largest) in largest.iter_mut().enumerate() {
                // SAFETY: sixteen elements from 16 * v lie inside the group of 64.
                let x = unsafe { _mm512_loadu_ps(group.as_ptr().add(16 * v)) };
                // Where an operand is NaN the result is the second one, which never is.
                *largest = _mm512_max_ps(x, *largest);
            }
        }
        let [a, b, c, d] = largest;
        let all = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
        let mut piece_best = best;
        if _mm512_cmp_ps_mask::<_CMP_GT_OQ>(all, _mm512_set1_ps(best)) != 0 {
            let mut lanes = [0.0_f32; 16];
            // SAFETY: the array holds sixteen elements.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), all) };
            piece_best = lanes.into_iter().fold(piece_best, |a, b| if b > a { b } else { a });
        }
        piece_best = rest.iter().fold(piece_best, |a, b| if *b > a { *b } else { a });
        if piece_best > best {
            best = piece_best;
            found = Some((piece, best));
        }
    }
    found
}
