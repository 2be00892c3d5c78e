//! The largest of pieces of 512, four vectors at a time; then the place of the largest in the first piece that has it.

use std::arch::x86_64::{
    _CMP_GT_OQ, _mm256_cmp_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps, _mm256_set1_ps, _mm256_storeu_ps,
};

use memra_contract::order;

const PIECE: usize = 512;

#[expect(unsafe_code, reason = "SIMD module")]
pub(crate) fn kernel(values: &[f32]) -> Option<(u32, f32)> {
    // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
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
#[target_feature(enable = "avx2,fma")]
fn first_piece(values: &[f32]) -> Option<(usize, f32)> {
    let mut found = None;
    let mut best = f32::NEG_INFINITY;
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut largest = [_mm256_set1_ps(best); 4];
        let (groups, rest) = values.as_chunks::<32>();
        for group in groups {
            for (v, largest) in largest.iter_mut().enumerate() {
                // SAFETY: eight elements from 8 * v lie inside the group of 32.
                let x = unsafe { _mm256_loadu_ps(group.as_ptr().add(8 * v)) };
                // Where an operand is NaN the result is the second one, which never is.
                *largest = _mm256_max_ps(x, *largest);
            }
        }
        let [a, b, c, d] = largest;
        let all = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
        let mut piece_best = best;
        if _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(all, _mm256_set1_ps(best))) != 0 {
            let mut lanes = [0.0_f32; 8];
            // SAFETY: the array holds eight elements.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), all) };
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
