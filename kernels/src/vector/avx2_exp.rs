//! `memra_contract::order::exp` for eight values.

use std::arch::x86_64::{
    __m256, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps,
    _mm256_andnot_ps, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtps_epi32, _mm256_fmadd_ps, _mm256_min_ps,
    _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32,
};

use memra_contract::order::{EXP_COEFFICIENTS, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW};

/// `e^x`, lane by lane.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn exp(x: __m256) -> __m256 {
    let is_below = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(EXP_LOWEST));
    let x = _mm256_min_ps(x, _mm256_set1_ps(EXP_HIGHEST));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    let r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LN2_HIGH), x);
    let r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LN2_LOW), r);
    let mut p = _mm256_set1_ps(EXP_COEFFICIENTS[0]);
    for c in &EXP_COEFFICIENTS[1..] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(*c));
    }
    let y = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0));
    let exponent = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)));
    _mm256_andnot_ps(is_below, _mm256_mul_ps(y, _mm256_castsi256_ps(exponent)))
}

#[cfg(test)]
mod tests {
    use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};

    #[expect(unsafe_code, reason = "SIMD module")]
    #[target_feature(enable = "avx2,fma")]
    fn eight(x: &[f32; 8]) -> [f32; 8] {
        let mut y = [0.0; 8];
        // SAFETY: both arrays hold eight elements.
        unsafe { _mm256_storeu_ps(y.as_mut_ptr(), super::exp(_mm256_loadu_ps(x.as_ptr()))) };
        y
    }

    #[expect(unsafe_code, reason = "SIMD module")]
    #[test]
    fn bits_are_those_of_the_definition() {
        if crate::backend::host::this_tier() < memra_contract::IsaTier::Avx2 {
            return;
        }
        for i in 0..40_000_u32 {
            let x = std::array::from_fn(|lane| -95.0 + (i * 8 + lane as u32) as f32 * (190.0 / 320_000.0));
            // SAFETY: the tier was checked above.
            let y = unsafe { eight(&x) };
            assert_eq!(y.map(f32::to_bits), x.map(|x| memra_contract::order::exp(x).to_bits()));
        }
        // SAFETY: the tier was checked above.
        assert_eq!(unsafe { eight(&[f32::NEG_INFINITY; 8]) }, [0.0; 8]);
    }
}
