//! Where machine code comes from: bundles first, then the cache, then the compiler.

use std::fmt;
use std::path::PathBuf;

use memra_contract::device::CudaArch;
use memra_contract::digest::Digest;

use super::bundle::Bundle;
use super::cache;
use super::key::SourceKey;
use super::nvrtc::{Compiled, Nvrtc, NvrtcError};
use super::resources;
use crate::contract::{CudaBuild, Variant};

/// Sources of machine code. Where there is no compiler, bundles alone serve.
#[derive(Debug, Default)]
pub struct Cubins {
    /// The compiler.
    pub nvrtc: Option<Nvrtc>,
    /// Folder of what was compiled before; made when something is put there.
    pub cache: Option<PathBuf>,
    /// Bundles, asked in order.
    pub bundles: Vec<Bundle>,
}

/// Machine code of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The code.
    pub bytes: Vec<u8>,
    /// Where it came from.
    pub origin: Origin,
    /// Version of the compiler that made it.
    pub nvrtc: (u32, u32),
    /// What the compiler and the assembler say, where it was compiled now.
    pub log: Option<String>,
    /// What was wrong with a bundle or a file of the cache on the way, as sentences for people. The code is right all the same.
    pub faults: Vec<String>,
}

/// Where machine code came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled now.
    Compiled,
    /// It was compiled before on this machine.
    Cache,
    /// It stands in this bundle.
    Bundle(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiled => f.write_str("compiled"),
            Self::Cache => f.write_str("cache"),
            Self::Bundle(name) => write!(f, "bundle {name}"),
        }
    }
}

/// No machine code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// The text does not compile, or the compiler does not work.
    #[error("variant `{variant}`: {source}")]
    Compile {
        /// The variant as contract/variant.
        variant: String,
        /// What the compiler says.
        source: NvrtcError,
    },
    /// The assembler took the overlap out of `wgmma` instructions.
    #[error("variant `{variant}` for {arch}: {}", self.reason())]
    Serialised {
        /// The variant as contract/variant.
        variant: String,
        /// The architecture.
        arch: CudaArch,
        /// The whole log.
        log: String,
    },
    /// There is no compiler, and no bundle has it.
    #[error("variant `{variant}` for {arch}: {}", self.reason())]
    Absent {
        /// The variant as contract/variant.
        variant: String,
        /// The architecture.
        arch: CudaArch,
        /// How many bundles were asked.
        bundles: usize,
        /// What was wrong with them.
        faults: Vec<String>,
    },
}

fn also(faults: &[String]) -> String {
    if faults.is_empty() { String::new() } else { format!("; {}", faults.join("; ")) }
}

impl CubinError {
    /// The error without the variant's name.
    pub fn reason(&self) -> String {
        match self {
            Self::Compile { source, .. } => source.to_string(),
            Self::Serialised { log, .. } => {
                resources::serialised(log).unwrap_or("wgmma instructions are serialized").to_owned()
            }
            Self::Absent { bundles, faults, .. } => {
                format!("there is no compiler, and none of {bundles} bundles has it{}", also(faults))
            }
        }
    }

    /// What the compiler and the assembler say, where they say something.
    pub fn log(&self) -> Option<&str> {
        match self {
            Self::Compile { source: NvrtcError::Compile { log, .. }, .. } | Self::Serialised { log, .. } => Some(log),
            Self::Compile { .. } | Self::Absent { .. } => None,
        }
    }
}

/// Compiles a variant now, whatever bundles and cache hold, and refuses what the assembler serialised.
///
/// # Errors
/// [`CubinError`] naming the variant.
pub fn compile(
    nvrtc: &Nvrtc,
    contract: &str,
    variant: &Variant,
    build: &CudaBuild,
    arch: CudaArch,
) -> Result<Compiled, CubinError> {
    judged(contract, variant, arch, nvrtc.compile(&variant.source, build, arch))
}

fn judged(
    contract: &str,
    variant: &Variant,
    arch: CudaArch,
    result: Result<Compiled, NvrtcError>,
) -> Result<Compiled, CubinError> {
    let name = || format!("{contract}/{}", variant.name);
    let compiled = result.map_err(|source| CubinError::Compile { variant: name(), source })?;
    if resources::serialised(&compiled.log).is_some() {
        return Err(CubinError::Serialised { variant: name(), arch, log: compiled.log });
    }
    Ok(compiled)
}

impl Cubins {
    /// Only a compiler: nothing is kept.
    pub fn of_compiler(nvrtc: Nvrtc) -> Self {
        Self { nvrtc: Some(nvrtc), cache: None, bundles: Vec::new() }
    }

    /// Version of the compiler, where there is one.
    pub fn version(&self) -> Option<(u32, u32)> {
        self.nvrtc.as_ref().map(Nvrtc::version)
    }

    /// The machine code of a variant for an architecture. With a compiler, bundle and cache serve what its own version made;
    /// without one, the newest version that a bundle has.
    ///
    /// # Errors
    /// [`CubinError`] naming the variant.
    pub fn get(
        &self,
        contract: &str,
        variant: &Variant,
        build: &CudaBuild,
        arch: CudaArch,
    ) -> Result<Cubin, CubinError> {
        let compiler = self.nvrtc.as_ref().map(|nvrtc| {
            let compile = || nvrtc.compile(&variant.source, build, arch);
            (nvrtc.version(), compile)
        });
        self.get_with(contract, variant, build, arch, compiler)
    }

    fn get_with(
        &self,
        contract: &str,
        variant: &Variant,
        build: &CudaBuild,
        arch: CudaArch,
        compiler: Option<((u32, u32), impl FnOnce() -> Result<Compiled, NvrtcError>)>,
    ) -> Result<Cubin, CubinError> {
        let key = SourceKey::of(&variant.source, build, arch);
        let version = compiler.as_ref().map(|(version, _)| *version);
        let mut faults = Vec::new();
        if let Some(cubin) = self.bundled(key, version, &mut faults) {
            return Ok(Cubin { faults, ..cubin });
        }
        let Some((nvrtc, compile)) = compiler else {
            let variant = format!("{contract}/{}", variant.name);
            return Err(CubinError::Absent { variant, arch, bundles: self.bundles.len(), faults });
        };
        let key: Digest = key.with_version(nvrtc);
        match self.cache.as_deref().map(|folder| cache::load(folder, &key)) {
            Some(Ok(Some(bytes))) => return Ok(Cubin { bytes, origin: Origin::Cache, nvrtc, log: None, faults }),
            Some(Err(fault)) => faults.push(format!("{fault}; it was compiled again")),
            Some(Ok(None)) | None => {}
        }
        let Compiled { cubin: bytes, log } = judged(contract, variant, arch, compile())?;
        if let Some(folder) = &self.cache
            && let Err(error) = cache::store(folder, &key, &bytes)
        {
            faults.push(format!("{}: a cubin could not be kept: {error}", folder.display()));
        }
        Ok(Cubin { bytes, origin: Origin::Compiled, nvrtc, log: Some(log), faults })
    }

    /// The cubin of the newest version among the bundles, or of the version that is asked for.
    fn bundled(&self, key: SourceKey, version: Option<(u32, u32)>, faults: &mut Vec<String>) -> Option<Cubin> {
        let mut found: Vec<_> =
            self.bundles.iter().filter_map(|bundle| Some((bundle, bundle.find(key, version)?))).collect();
        // The sort keeps the order of bundles among equal versions.
        found.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.nvrtc));
        for (bundle, entry) in found {
            match bundle.cubin(entry) {
                Ok(bytes) => {
                    let origin = Origin::Bundle(bundle.name().to_owned());
                    let (bytes, nvrtc) = (bytes.to_vec(), entry.nvrtc);
                    return Some(Cubin { bytes, origin, nvrtc, log: None, faults: Vec::new() });
                }
                Err(error) => faults.push(error.to_string()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use memra_contract::order::OrderClass;

    use super::super::bundle::{Packed, pack};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::contract::{Source, Target};

    const BUILD: CudaBuild = CudaBuild { archs: &[CudaArch::Sm90a], defines: &[("ROWS", "4")] };
    const ARCH: CudaArch = CudaArch::Sm90a;
    static ORDER: OrderClass = OrderClass { id: "test", text: "" };
    static VARIANT: Variant = Variant {
        name: "warp",
        summary: "",
        target: Target::Cuda(BUILD),
        layout: "none",
        order_class: ORDER,
        rows: (1, 1),
        source: Source { path: "a/warp.cu", text: "#include \"memra.cuh\"\n" },
    };

    type Fake = Option<((u32, u32), fn() -> Result<Compiled, NvrtcError>)>;

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a compiler does")]
    fn compiled() -> Result<Compiled, NvrtcError> {
        Ok(Compiled { cubin: b"compiled".to_vec(), log: "a log".to_owned() })
    }

    fn get(cubins: &Cubins, compiler: Fake) -> Result<Cubin, CubinError> {
        cubins.get_with("matmul", &VARIANT, &BUILD, ARCH, compiler)
    }

    fn bundle(nvrtc: (u32, u32), cubin: &[u8]) -> Vec<u8> {
        let key = SourceKey::of(&VARIANT.source, &BUILD, ARCH);
        pack(&[Packed { key, arch: ARCH, nvrtc, cubin: cubin.to_vec() }])
    }

    fn of_bundles(bundles: &[Vec<u8>]) -> Cubins {
        let named = |(index, bytes): (usize, &Vec<u8>)| Bundle::parse(&format!("b{index}"), bytes.clone()).unwrap();
        Cubins { bundles: bundles.iter().enumerate().map(named).collect(), ..Cubins::default() }
    }

    #[test]
    fn what_was_compiled_is_kept_and_not_compiled_again() {
        let scratch = Scratch::new();
        let cubins = Cubins { cache: Some(scratch.path().join("cubins")), ..Cubins::default() };
        let runs = Cell::new(0);
        let ask = |version| {
            let compile = || {
                runs.set(runs.get() + 1);
                compiled()
            };
            cubins.get_with("matmul", &VARIANT, &BUILD, ARCH, Some((version, compile))).unwrap()
        };
        let first = ask((13, 0));
        assert_eq!((first.origin, first.log.as_deref()), (Origin::Compiled, Some("a log")));
        let second = ask((13, 0));
        assert_eq!((second.origin, second.bytes.as_slice(), runs.get()), (Origin::Cache, &b"compiled"[..], 1));
        assert_eq!((ask((13, 1)).origin, runs.get()), (Origin::Compiled, 2));
        // A damaged file is compiled again, which is said, and is whole afterwards.
        for entry in fs::read_dir(scratch.path().join("cubins")).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            bytes[0] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        let third = ask((13, 0));
        assert_eq!((third.origin, third.bytes.as_slice(), runs.get()), (Origin::Compiled, &b"compiled"[..], 3));
        assert!(third.faults[0].contains("digest"), "{:?}", third.faults);
        assert_eq!(ask((13, 0)).origin, Origin::Cache);
    }

    #[test]
    fn a_cache_that_takes_nothing_is_slow_and_not_wrong() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        let cubins = Cubins { cache: Some(file), ..Cubins::default() };
        let cubin = get(&cubins, Some(((13, 0), compiled))).unwrap();
        assert_eq!(cubin.bytes, b"compiled");
        assert!(cubin.faults.iter().any(|fault| fault.contains("could not be kept")), "{:?}", cubin.faults);
    }

    #[test]
    fn bundles_serve_without_a_compiler_and_say_which_version_made_it() {
        let cubins = of_bundles(&[bundle((13, 0), b"old"), bundle((13, 1), b"new")]);
        let newest = get(&cubins, None).unwrap();
        assert_eq!((newest.bytes.as_slice(), newest.nvrtc), (&b"new"[..], (13, 1)));
        assert_eq!(newest.origin, Origin::Bundle("b1".to_owned()));
        let same = get(&cubins, Some(((13, 0), || panic!("compiled")))).unwrap();
        assert_eq!((same.bytes.as_slice(), same.origin), (&b"old"[..], Origin::Bundle("b0".to_owned())));
        let other = get(&cubins, Some(((12, 9), compiled))).unwrap();
        assert_eq!((other.origin, other.nvrtc), (Origin::Compiled, (12, 9)));
    }

    #[test]
    fn a_damaged_bundle_never_serves_and_is_named() {
        let mut damaged = bundle((13, 1), b"new");
        *damaged.last_mut().unwrap() ^= 1;
        let cubins = of_bundles(&[damaged.clone(), bundle((13, 0), b"old")]);
        let cubin = get(&cubins, None).unwrap();
        assert_eq!(cubin.bytes, b"old");
        assert!(cubin.faults[0].contains("b0"), "{:?}", cubin.faults);
        let error = get(&of_bundles(&[damaged]), None).unwrap_err().to_string();
        for wanted in ["matmul/warp", "sm_90a", "no compiler", "1 bundles", "digest"] {
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn serialised_code_is_refused_by_name_and_never_kept() {
        let scratch = Scratch::new();
        let cubins = Cubins { cache: Some(scratch.path().to_owned()), ..Cubins::default() };
        let compiler: Fake = Some(((13, 0), || {
            let log = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized";
            Ok(Compiled { cubin: b"slow".to_vec(), log: log.to_owned() })
        }));
        let error = get(&cubins, compiler).unwrap_err();
        assert!(error.to_string().contains("matmul/warp") && error.to_string().contains("(C7511)"), "{error}");
        assert!(error.log().is_some());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        let compiler: Fake = Some(((13, 0), || {
            let log = "warp.cu(3): note\nwarp.cu(4): error: no such thing".to_owned();
            Err(NvrtcError::Compile { name: "warp.cu".to_owned(), arch: ARCH, log })
        }));
        let error = get(&cubins, compiler).unwrap_err();
        assert!(error.to_string().contains("no such thing") && error.log().unwrap().contains("note"), "{error}");
    }
}
