//! What a cubin is filed under: everything that goes into it.

use memra_contract::device::CudaArch;
use memra_contract::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::nvrtc::Nvrtc;
use crate::contract::{CudaBuild, Source};
use crate::headers;

/// sha256 over the text, every included header by name and text, the options in their order, and the architecture. The version
/// of the compiler joins in [`SourceKey::with_version`]: a bundle is asked without one where there is no compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey(pub [u8; 32]);

impl SourceKey {
    /// The key of a variant's text for an architecture.
    pub fn of(source: &Source, build: &CudaBuild, arch: CudaArch) -> Self {
        Self::of_text(source.text, &Nvrtc::options(arch, build), arch)
    }

    /// The key of a text with the options that [`Nvrtc::options`] gives.
    pub fn of_text(text: &str, options: &[String], arch: CudaArch) -> Self {
        let included = headers::included(text);
        let mut hash = Sha256::new();
        // Every field goes in behind its length, so that no two lists of fields read alike.
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        field("memra cubin 1");
        field(text);
        field(&included.len().to_string());
        for header in included {
            field(header.name);
            field(header.text);
        }
        field(&options.len().to_string());
        for option in options {
            field(option);
        }
        field(arch.name());
        Self(hash.finalize().into())
    }

    /// The key of what a version of the compiler makes of it.
    pub fn with_version(self, (major, minor): (u32, u32)) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(major.to_le_bytes());
        hash.update(minor.to_le_bytes());
        Digest::from_bytes(&hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everything_that_goes_into_a_cubin_changes_the_key() {
        const PLAIN: CudaBuild = CudaBuild { archs: &CudaArch::ALL, defines: &[] };
        const ONE: CudaBuild = CudaBuild { archs: &CudaArch::ALL, defines: &[("A", "1"), ("B", "2")] };
        const OTHER: CudaBuild = CudaBuild { archs: &CudaArch::ALL, defines: &[("B", "2"), ("A", "1")] };
        let of = |text, build: &CudaBuild, arch| SourceKey::of(&Source { path: "a.cu", text }, build, arch);
        let header = "#include \"memra.cuh\"\nint a;";
        let keys = [
            of("int a;", &PLAIN, CudaArch::Sm90a),
            of("int b;", &PLAIN, CudaArch::Sm90a),
            of("int a;", &PLAIN, CudaArch::Sm80),
            of("int a;", &ONE, CudaArch::Sm90a),
            of("int a;", &OTHER, CudaArch::Sm90a),
            of(header, &PLAIN, CudaArch::Sm90a),
        ];
        assert_eq!(HashSet::from(keys).len(), keys.len());
        assert_eq!(keys[0], of("int a;", &PLAIN, CudaArch::Sm90a));
        let versions: HashSet<_> = [(13, 0), (13, 1), (12, 9)].map(|version| keys[0].with_version(version)).into();
        assert_eq!(versions.len(), 3);
        // A header's text is in the key: what is included is not what only looks like it.
        let spaced = of("#include  \"memra.cuh\"\nint a;", &PLAIN, CudaArch::Sm90a);
        assert_ne!(spaced, keys[5]);
    }
}
