//! Eight columns at a time.

use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};

use memra_contract::order;

use crate::vector::avx2_swiglu::swiglu;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(gate: &[f32], up: &[f32], out: &mut [f32]) {
    // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
    unsafe { columns(gate, up, out) };
}

#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn columns(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len());
    let whole = out.len() / 8 * 8;
    for at in (0..whole).step_by(8) {
        // SAFETY: eight elements from `at` lie inside all three slices.
        unsafe {
            let y = swiglu(_mm256_loadu_ps(gate.as_ptr().add(at)), _mm256_loadu_ps(up.as_ptr().add(at)));
            _mm256_storeu_ps(out.as_mut_ptr().add(at), y);
        }
    }
    for i in whole..out.len() {
        out[i] = order::swiglu(gate[i], up[i]);
    }
}
