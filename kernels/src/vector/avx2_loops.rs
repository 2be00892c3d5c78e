//! Plain loops compiled for the vectors of this CPU: the same operations in the same order, so the same bits.

/// `fn name(arguments) -> Result = inner` makes a function that calls `inner`, which must be `#[inline(always)]`, compiled for
/// the best tier of this CPU.
macro_rules! on_vectors {
    (fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? = $inner:ident) => {
        #[expect(unsafe_code, reason = "calls of functions that need what was just found on the CPU")]
        fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                use memra_contract::IsaTier;

                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
                fn wide($($arg: $type),*) $(-> $out)? {
                    $inner($($arg),*)
                }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn narrow($($arg: $type),*) $(-> $out)? {
                    $inner($($arg),*)
                }
                match $crate::backend::host::this_tier() {
                    // SAFETY: the CPU has the tier, which is those features and more.
                    IsaTier::Avx512Vnni => return unsafe { wide($($arg),*) },
                    // SAFETY: as above.
                    IsaTier::Avx2 => return unsafe { narrow($($arg),*) },
                    IsaTier::Scalar => (),
                }
            }
            $inner($($arg),*)
        }
    };
}

pub(crate) use on_vectors;
