//! `memra_contract::order::swiglu` for eight values.

use std::arch::x86_64::{__m256, _mm256_add_ps, _mm256_div_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_xor_ps};

use super::avx2_exp::exp;

/// The gated product, lane by lane.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn swiglu(gate: __m256, up: __m256) -> __m256 {
    let e = exp(_mm256_xor_ps(gate, _mm256_set1_ps(-0.0)));
    _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1.0), e)), up)
}
