//! `memra_contract::order::swiglu` for sixteen values.

use std::arch::x86_64::{__m512, _mm512_add_ps, _mm512_div_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_xor_ps};

use super::avx512vnni_exp::exp;

/// The gated product, lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) fn swiglu(gate: __m512, up: __m512) -> __m512 {
    let e = exp(_mm512_xor_ps(gate, _mm512_set1_ps(-0.0)));
    _mm512_mul_ps(_mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0), e)), up)
}
