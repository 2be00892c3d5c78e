//! `memra_contract::order::exp` for sixteen values.

use std::arch::x86_64::{
    __m512, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtps_epi32, _mm512_fmadd_ps, _mm512_maskz_mul_ps, _mm512_min_ps,
    _mm512_mul_ps, _mm512_roundscale_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32,
};

use memra_contract::order::{EXP_COEFFICIENTS, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW};

/// `e^x`, lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) fn exp(x: __m512) -> __m512 {
    let is_below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_set1_ps(EXP_LOWEST));
    let x = _mm512_min_ps(x, _mm512_set1_ps(EXP_HIGHEST));
    let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm512_mul_ps(
        x,
        _mm512_set1_ps(std::f32::consts::LOG2_E),
    ));
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LN2_HIGH), x);
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LN2_LOW), r);
    let mut p = _mm512_set1_ps(EXP_COEFFICIENTS[0]);
    for c in &EXP_COEFFICIENTS[1..] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
    }
    let y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0));
    let exponent = _mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)));
    _mm512_maskz_mul_ps(!is_below, y, _mm512_castsi512_ps(exponent))
}

#[cfg(test)]
mod tests {
    use std::arch::x86_64::{_mm512_loadu_ps, _mm512_storeu_ps};

    #[expect(unsafe_code, reason = "SIMD module")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn sixteen(x: &[f32; 16]) -> [f32; 16] {
        let mut y = [0.0; 16];
        // SAFETY: both arrays hold sixteen elements.
        unsafe { _mm512_storeu_ps(y.as_mut_ptr(), super::exp(_mm512_loadu_ps(x.as_ptr()))) };
        y
    }

    #[expect(unsafe_code, reason = "SIMD module")]
    #[test]
    fn bits_are_those_of_the_definition() {
        if crate::backend::host::this_tier() < memra_contract::IsaTier::Avx512Vnni {
            return;
        }
        for i in 0..20_000_u32 {
            let x = std::array::from_fn(|lane| -95.0 + (i * 16 + lane as u32) as f32 * (190.0 / 320_000.0));
            // SAFETY: the tier was checked above.
            let y = unsafe { sixteen(&x) };
            assert_eq!(y.map(f32::to_bits), x.map(|x| memra_contract::order::exp(x).to_bits()));
        }
        // SAFETY: the tier was checked above.
        assert_eq!(unsafe { sixteen(&[f32::NEG_INFINITY; 16]) }, [0.0; 16]);
    }
}
