//! A buffer of gated products, which stays in the first cache, then the blocks of it.

use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};

use memra_contract::IsaTier;
use memra_contract::order::QUANT_BLOCK;

use crate::ops::quantise;
use crate::vector::avx2_swiglu::swiglu;

/// Elements of the buffer.
const BUFFER: usize = 1024;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(gate: &[f32], up: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    let quantise = quantise::kernel_for(IsaTier::Avx2);
    let mut buffer = [0.0_f32; BUFFER];
    let inputs = gate.chunks(BUFFER).zip(up.chunks(BUFFER)).zip(quants.chunks_mut(BUFFER));
    let planes = scales.chunks_mut(BUFFER / QUANT_BLOCK).zip(sums.chunks_mut(BUFFER / QUANT_BLOCK));
    for (((gate, up), quants), (scales, sums)) in inputs.zip(planes) {
        let gated = &mut buffer[..gate.len()];
        // SAFETY: the backend runs this variant only where the CPU has the avx2 tier.
        unsafe { columns(gate, up, gated) };
        quantise(gated, quants, scales, sums);
    }
}

/// Whole blocks of 32.
#[expect(unsafe_code, reason = "SIMD module")]
#[target_feature(enable = "avx2,fma")]
fn columns(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len() && out.len().is_multiple_of(8));
    for at in (0..out.len()).step_by(8) {
        // SAFETY: eight elements from `at` lie inside all three slices, whose length is a multiple of eight.
        unsafe {
            let y = swiglu(_mm256_loadu_ps(gate.as_ptr().add(at)), _mm256_loadu_ps(up.as_ptr().add(at)));
            _mm256_storeu_ps(out.as_mut_ptr().add(at), y);
        }
    }
}
