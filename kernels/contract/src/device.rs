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
/// The text form is `host-<architecture>-<tier>`, for example `host-x86_64-avx2`; it is also the stem of the file that
/// holds the defaults. GPU keys join this enum together with the first GPU backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKey {
    /// A CPU by architecture and instruction-set tier.
    Host {
        /// Architecture name as the compiler gives it.
        arch: HostArch,
        /// Best tier the CPU offers.
        tier: IsaTier,
    },
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
        }
    }
}

/// Text that is no device key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device key: expected host-<x86_64|aarch64|other>-<scalar|avx2|avx512vnni>")]
pub struct DeviceKeyError(pub String);

impl FromStr for DeviceKey {
    type Err = DeviceKeyError;
    fn from_str(text: &str) -> Result<Self, DeviceKeyError> {
        let refused = || DeviceKeyError(text.to_owned());
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
        for bad in ["", "host", "host-x86_64", "host-x86_64-sse", "gpu-x86_64-avx2"] {
            assert!(bad.parse::<DeviceKey>().is_err(), "{bad}");
        }
    }
}
