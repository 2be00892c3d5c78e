//! Four blocks at a time, gated and quantised without leaving the registers.

use std::arch::x86_64::{_mm512_loadu_ps, _mm512_setzero_ps};

use memra_contract::order::QUANT_BLOCK;

use crate::vector::avx512vnni_quantise::{Block, GROUP, quantise};
use crate::vector::avx512vnni_swiglu::swiglu;

#[expect(unsafe_code, reason = "SIMD module")]
pub(super) fn kernel(gate: &[f32], up: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    // SAFETY: the backend runs this variant only where the CPU has the avx512vnni tier.
    unsafe { groups(gate, up, quants, scales, sums) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn groups(gate: &[f32], up: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    const SPAN: usize = GROUP * QUANT_BLOCK;
    let inputs = gate.chunks(SPAN).zip(up.chunks(SPAN)).zip(quants.chunks_mut(SPAN));
    for (((gate, up), quants), (scales, sums)) in inputs.zip(scales.chunks_mut(GROUP).zip(sums.chunks_mut(GROUP))) {
        let mut group = [[_mm512_setzero_ps(); 2]; GROUP];
        let blocks = gate.as_chunks().0.iter().zip(up.as_chunks().0);
        for (block, (gate, up)) in group.iter_mut().zip(blocks) {
            *block = gated(gate, up);
        }
        quantise(&group, quants, scales, sums);
    }
}

#[expect(unsafe_code, reason = "SIMD module")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn gated(gate: &[f32; QUANT_BLOCK], up: &[f32; QUANT_BLOCK]) -> Block {
    // SAFETY: sixteen elements from 0 and from 16 lie inside a block.
    unsafe {
        [
            swiglu(_mm512_loadu_ps(gate.as_ptr()), _mm512_loadu_ps(up.as_ptr())),
            swiglu(_mm512_loadu_ps(gate.as_ptr().add(16)), _mm512_loadu_ps(up.as_ptr().add(16))),
        ]
    }
}
