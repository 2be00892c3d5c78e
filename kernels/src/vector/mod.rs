//! Vector forms of the functions that several contracts share.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2_exp;
pub(crate) mod avx2_loops;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2_swiglu;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512vnni_exp;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512vnni_quantise;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512vnni_swiglu;
