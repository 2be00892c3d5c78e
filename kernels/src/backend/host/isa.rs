//! Which instruction-set tier this CPU offers.

use memra_contract::IsaTier;

/// The best tier whose every instruction set the CPU and the operating system offer.
pub fn this_tier() -> IsaTier {
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        if has_avx2 && has_avx512 {
            return IsaTier::Avx512Vnni;
        }
        if has_avx2 {
            return IsaTier::Avx2;
        }
    }
    IsaTier::Scalar
}
