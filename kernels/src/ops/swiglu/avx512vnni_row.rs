//! Sixteen columns at a time, the last ones under a mask.

use std::arch::x86_64::{_mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_storeu_ps};

use crate::vector::avx512vnni_swiglu::swiglu;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(gate: &[f32], up: &[f32], out: &mut [f32]) {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    unsafe { columns(gate, up, out) };
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn columns(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len());
    let whole = out.len() / 16 * 16;
    for at in (0..whole).step_by(16) {
        // SAFETY: sixteen elements from `at` lie inside all three slices.
        unsafe {
            let y = swiglu(_mm512_loadu_ps(gate.as_ptr().add(at)), _mm512_loadu_ps(up.as_ptr().add(at)));
            _mm512_storeu_ps(out.as_mut_ptr().add(at), y);
        }
    }
    if whole < out.len() {
        let mask = (1_u16 << (out.len() - whole)) - 1;
        // SAFETY: the mask covers the elements from `whole` to the end of all three slices.
        unsafe {
            let gate = _mm512_maskz_loadu_ps(mask, gate.as_ptr().add(whole));
            let up = _mm512_maskz_loadu_ps(mask, up.as_ptr().add(whole));
            _mm512_mask_storeu_ps(out.as_mut_ptr().add(whole), mask, swiglu(gate, up));
        }
    }
}
