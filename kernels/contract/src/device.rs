//! Device keys: a silicon class, never a product name.

use std::fmt;
use std::str::FromStr;

/// The instruction-set tier of a host, from slowest to fastest. A tier includes the ones below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IsaTier {
    /// What the language offers on any machine.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI, on top of [`IsaTier::Avx2`].
    Avx512Vnni,
}

impl IsaTier {
    /// All tiers, slowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512Vnni];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512vnni",
        }
    }
}

impl fmt::Display for IsaTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a default is keyed by. Two machines with the same key run the same defaults.
///
/// The text form is `host-<architecture>-<tier>`, for example `host-x86_64-avx2`, or
/// `cuda-<arch>-<sms>sm-<l2>l2-<memory>gib-<power>w`, for example `cuda-sm_90a-132sm-60l2-140gib-700w`; it is also the stem
/// of the file that holds the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKey {
    /// A CPU by architecture and instruction-set tier.
    Host {
        /// Architecture name as the compiler gives it.
        arch: HostArch,
        /// Best tier the CPU offers.
        tier: IsaTier,
    },
    /// A class of NVIDIA silicon.
    Cuda(CudaClass),
}

/// What makes two NVIDIA cards the same class: never a product name, and nothing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CudaClass {
    /// Architecture that code is compiled for.
    pub arch: CudaArch,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Level-2 cache, MiB.
    pub l2_mib: u32,
    /// Memory, whole GiB.
    pub memory_gib: u32,
    /// Default power limit, whole watts; 0 where the card does not say.
    pub power_w: u32,
}

/// Architectures that kernels are compiled for, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CudaArch {
    /// Ampere, data centre.
    Sm80,
    /// Ampere, consumer.
    Sm86,
    /// Ada.
    Sm89,
    /// Hopper with its own instructions.
    Sm90a,
    /// Blackwell, data centre, with its own instructions.
    Sm100a,
    /// Blackwell, consumer and workstation, with its own instructions.
    Sm120a,
}

impl CudaArch {
    /// All, oldest first.
    pub const ALL: [Self; 6] = [Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90a, Self::Sm100a, Self::Sm120a];

    /// The name NVRTC takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90a => "sm_90a",
            Self::Sm100a => "sm_100a",
            Self::Sm120a => "sm_120a",
        }
    }

    /// The architecture of a compute capability, if kernels are compiled for it.
    pub const fn of_capability(major: u32, minor: u32) -> Option<Self> {
        Some(match (major, minor) {
            (8, 0) => Self::Sm80,
            (8, 6) => Self::Sm86,
            (8, 9) => Self::Sm89,
            (9, 0) => Self::Sm90a,
            (10, 0) => Self::Sm100a,
            (12, 0) => Self::Sm120a,
            _ => return None,
        })
    }

    /// The compute capability, major and minor.
    pub const fn capability(self) -> (u32, u32) {
        match self {
            Self::Sm80 => (8, 0),
            Self::Sm86 => (8, 6),
            Self::Sm89 => (8, 9),
            Self::Sm90a => (9, 0),
            Self::Sm100a => (10, 0),
            Self::Sm120a => (12, 0),
        }
    }

    /// The architecture of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }
}

impl fmt::Display for CudaArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CudaClass {
    /// Reads the text after `cuda-`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let arch = CudaArch::from_name(parts.next()?)?;
        let mut number = |unit: &str| {
            let digits = parts.next()?.strip_suffix(unit)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u32>().ok()).flatten()
        };
        let class =
            Self { arch, sms: number("sm")?, l2_mib: number("l2")?, memory_gib: number("gib")?, power_w: number("w")? };
        parts.next().is_none().then_some(class)
    }
}

/// CPU architectures that have their own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostArch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// Anything else: runs the scalar variants.
    Other,
}

impl HostArch {
    /// The architecture this binary was compiled for.
    pub const fn of_this_build() -> Self {
        if cfg!(target_arch = "x86_64") {
            Self::X86_64
        } else if cfg!(target_arch = "aarch64") {
            Self::Aarch64
        } else {
            Self::Other
        }
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { arch, tier } => write!(f, "host-{}-{}", arch.name(), tier.name()),
            Self::Cuda(CudaClass { arch, sms, l2_mib, memory_gib, power_w }) => {
                write!(f, "cuda-{arch}-{sms}sm-{l2_mib}l2-{memory_gib}gib-{power_w}w")
            }
        }
    }
}

/// Text that is no device key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a device key: expected host-<x86_64|aarch64|other>-<scalar|avx2|avx512vnni> or cuda-<arch>-<n>sm-<n>l2-<n>gib-<n>w"
)]
pub struct DeviceKeyError(pub String);

impl FromStr for DeviceKey {
    type Err = DeviceKeyError;
    fn from_str(text: &str) -> Result<Self, DeviceKeyError> {
        let refused = || DeviceKeyError(text.to_owned());
        if let Some(class) = text.strip_prefix("cuda-") {
            return CudaClass::parse(class).map(Self::Cuda).ok_or_else(refused);
        }
        let rest = text.strip_prefix("host-").ok_or_else(refused)?;
        let (arch, tier) = rest.rsplit_once('-').ok_or_else(refused)?;
        let arch = [HostArch::X86_64, HostArch::Aarch64, HostArch::Other].into_iter().find(|a| a.name() == arch);
        let tier = IsaTier::ALL.into_iter().find(|t| t.name() == tier);
        match (arch, tier) {
            (Some(arch), Some(tier)) => Ok(Self::Host { arch, tier }),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_others_are_refused() {
        for tier in IsaTier::ALL {
            let key = DeviceKey::Host { arch: HostArch::X86_64, tier };
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for arch in CudaArch::ALL {
            let (major, minor) = arch.capability();
            assert_eq!(CudaArch::of_capability(major, minor), Some(arch));
            let key = DeviceKey::Cuda(CudaClass { arch, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 });
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for bad in [
            "cuda-sm_90a",
            "cuda-sm_91-1sm-1l2-1gib-1w",
            "cuda-sm_90a-132-60l2-140gib-700w",
            "cuda-sm_80-+1sm-1l2-1gib-1w",
        ] {
            assert!(bad.parse::<DeviceKey>().is_err(), "{bad}");
        }
        for bad in ["", "host", "host-x86_64", "host-x86_64-sse", "gpu-x86_64-avx2"] {
            assert!(bad.parse::<DeviceKey>().is_err(), "{bad}");
        }
    }
}
