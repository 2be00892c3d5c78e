//! Eight dimensions a vector: the cosines and sines of a vector are spread once for all heads of the row.

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_ps, _mm_storeu_si128, _mm256_castps128_ps256, _mm256_cvtps_ph,
    _mm256_fmadd_ps, _mm256_fmaddsub_ps, _mm256_fmsub_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_permute_ps,
    _mm256_permutevar8x32_ps, _mm256_setr_epi32, _mm256_storeu_ps,
};

use half::f16;
use memra_contract::order::RotationKind;

const LANES: usize = 8;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn rotate(kind: RotationKind, table: &[f32], head_dim: usize, heads: &[f32], out: &mut [f32]) {
    assert!(head_dim > 0 && heads.len().is_multiple_of(head_dim) && out.len() == heads.len());
    assert!(table.len() <= head_dim && table.len().is_multiple_of(2));
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx2 tier; the lengths were checked.
    unsafe {
        match kind {
            RotationKind::Interleaved => interleaved(table, head_dim, heads, out),
            RotationKind::Halves => halves(table, head_dim, heads, out),
        }
    }
    for (head, out) in heads.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        out[table.len()..].copy_from_slice(&head[table.len()..]);
    }
}

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn narrow(values: &[f32], out: &mut [f16]) {
    assert_eq!(values.len(), out.len(), "as many f16 as f32");
    // SAFETY: `run` of the contract refuses this variant where the CPU lacks the avx2 tier.
    unsafe { narrow_vectors(values, out) };
}

/// Turns pairs of neighbours.
///
/// # Safety
/// `heads` and `out` are equally many heads of `head_dim`, and the table is even and no longer than a head.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn interleaved(table: &[f32], head_dim: usize, heads: &[f32], out: &mut [f32]) {
    let (cosines, sines) = table.split_at(table.len() / 2);
    let spread = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    let whole = table.len() / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        // SAFETY: four pairs from here lie inside the table and inside every head.
        unsafe {
            let cos = _mm256_castps128_ps256(_mm_loadu_ps(cosines.as_ptr().add(first / 2)));
            let sin = _mm256_castps128_ps256(_mm_loadu_ps(sines.as_ptr().add(first / 2)));
            let cos = _mm256_permutevar8x32_ps(cos, spread);
            let sin = _mm256_permutevar8x32_ps(sin, spread);
            for at in (first..heads.len()).step_by(head_dim) {
                let x = _mm256_loadu_ps(heads.as_ptr().add(at));
                let other = _mm256_mul_ps(_mm256_permute_ps::<0b10_11_00_01>(x), sin);
                // Even lanes subtract, odd lanes add.
                _mm256_storeu_ps(out.as_mut_ptr().add(at), _mm256_fmaddsub_ps(x, cos, other));
            }
        }
    }
    for (head, out) in heads.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        for i in whole / 2..cosines.len() {
            let (x0, x1) = (head[2 * i], head[2 * i + 1]);
            out[2 * i] = x0.mul_add(cosines[i], -(x1 * sines[i]));
            out[2 * i + 1] = x1.mul_add(cosines[i], x0 * sines[i]);
        }
    }
}

/// Turns pairs at a distance of half the table.
///
/// # Safety
/// As for [`interleaved`].
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn halves(table: &[f32], head_dim: usize, heads: &[f32], out: &mut [f32]) {
    let pairs = table.len() / 2;
    let (cosines, sines) = table.split_at(pairs);
    let whole = pairs / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        // SAFETY: eight pairs from here lie inside the table and inside every head.
        unsafe {
            let cos = _mm256_loadu_ps(cosines.as_ptr().add(first));
            let sin = _mm256_loadu_ps(sines.as_ptr().add(first));
            for at in (first..heads.len()).step_by(head_dim) {
                let x0 = _mm256_loadu_ps(heads.as_ptr().add(at));
                let x1 = _mm256_loadu_ps(heads.as_ptr().add(at + pairs));
                let y0 = _mm256_fmsub_ps(x0, cos, _mm256_mul_ps(x1, sin));
                let y1 = _mm256_fmadd_ps(x1, cos, _mm256_mul_ps(x0, sin));
                _mm256_storeu_ps(out.as_mut_ptr().add(at), y0);
                _mm256_storeu_ps(out.as_mut_ptr().add(at + pairs), y1);
            }
        }
    }
    for (head, out) in heads.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        for i in whole..pairs {
            let (x0, x1) = (head[i], head[i + pairs]);
            out[i] = x0.mul_add(cosines[i], -(x1 * sines[i]));
            out[i + pairs] = x1.mul_add(cosines[i], x0 * sines[i]);
        }
    }
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow_vectors(values: &[f32], out: &mut [f16]) {
    let (vectors, rest) = values.as_chunks::<LANES>();
    let (halves, rest_out) = out.as_chunks_mut::<LANES>();
    for (vector, half) in vectors.iter().zip(halves) {
        // SAFETY: both arrays hold eight elements.
        unsafe {
            let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(vector.as_ptr()));
            _mm_storeu_si128(half.as_mut_ptr().cast(), narrow);
        }
    }
    for (out, value) in rest_out.iter_mut().zip(rest) {
        *out = f16::from_f32(*value);
    }
}
