//! What `doctor` says of CUDA: the compiler, bundles, the driver and its first device. What is missing is an answer.

use memra_contract::device::CudaArch;
use memra_kernels::backend::cuda::driver::Driver;
use memra_kernels::contract::Target;
use memra_kernels::ops::CONTRACTS;
use serde::Serialize;

use crate::toolkit;

/// CUDA on this machine.
#[derive(Serialize)]
pub(super) struct Cuda {
    /// Registered variants for cards.
    variants: usize,
    nvrtc: Found<Compiler>,
    cubin_cache: Option<String>,
    bundles: Vec<BundleFacts>,
    device: Found<Card>,
    /// What is wrong with bundles.
    #[serde(skip)]
    pub(super) faults: Vec<String>,
}

/// Something that is here, or why it is not.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Found<T> {
    Here(T),
    Missing(String),
}

impl<T> Found<T> {
    fn line(&self, here: impl FnOnce(&T) -> String) -> String {
        match self {
            Self::Here(thing) => here(thing),
            Self::Missing(why) => format!("none: {why}"),
        }
    }
}

#[derive(Serialize)]
struct Compiler {
    version: String,
    libraries: String,
    include: String,
}

#[derive(Serialize)]
struct BundleFacts {
    file: String,
    cubins: usize,
    archs: Vec<&'static str>,
}

#[derive(Serialize)]
struct Card {
    name: String,
    device_key: String,
    driver: String,
    memory_bytes: u64,
    l2_bytes: u64,
    sms: u32,
    /// Registered variants that run on it.
    variants_here: usize,
}

/// Looks at this machine; the driver is asked only where its library is there.
pub(super) fn look() -> Cuda {
    let all = || CONTRACTS.iter().flat_map(|contract| contract.variants());
    let nvrtc = match toolkit::nvrtc() {
        Ok((nvrtc, toolkit)) => {
            let (major, minor) = nvrtc.version();
            Found::Here(Compiler {
                version: format!("{major}.{minor}"),
                libraries: toolkit.libraries.display().to_string(),
                include: toolkit.include.display().to_string(),
            })
        }
        Err(error) => Found::Missing(format!("{error:#}")),
    };
    // A driver does not know its default power limit, so the key is shown with none.
    let device = match Driver::probe(0, 0) {
        Ok(driver) => {
            let facts = driver.facts();
            Found::Here(Card {
                name: facts.name.clone(),
                device_key: driver.key().to_string(),
                driver: format!("{}.{}", facts.driver / 1000, facts.driver % 1000 / 10),
                memory_bytes: facts.memory_bytes,
                l2_bytes: facts.l2_bytes,
                sms: facts.sms,
                variants_here: all().filter(|variant| variant.target.serves(driver.key())).count(),
            })
        }
        Err(error) => Found::Missing(error.to_string()),
    };
    let (bundles, faults) = toolkit::bundles(&toolkit::bundle_files());
    let bundles = bundles.iter().map(|bundle| {
        let mut archs: Vec<_> = bundle.entries().iter().map(|entry| entry.arch).collect();
        archs.sort_unstable();
        archs.dedup();
        BundleFacts {
            file: bundle.name().to_owned(),
            cubins: bundle.entries().len(),
            archs: archs.into_iter().map(CudaArch::name).collect(),
        }
    });
    Cuda {
        variants: all().filter(|variant| matches!(variant.target, Target::Cuda(_))).count(),
        nvrtc,
        cubin_cache: toolkit::cache_folder().map(|folder| folder.display().to_string()),
        bundles: bundles.collect(),
        device,
        faults,
    }
}

impl Cuda {
    /// Lines of the table.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            (
                "cuda device",
                self.device.line(|card| {
                    format!(
                        "{} ({}), driver {}, {} of {} variants for cards run on it",
                        card.name, card.device_key, card.driver, card.variants_here, self.variants
                    )
                }),
            ),
            ("nvrtc", self.nvrtc.line(|compiler| format!("{} in {}", compiler.version, compiler.libraries))),
            ("cubins", self.cubin_cache.clone().unwrap_or_else(|| "are not kept: there is no home".to_owned())),
        ];
        for bundle in &self.bundles {
            let text = format!("{}: {} cubins for {}", bundle.file, bundle.cubins, bundle.archs.join(", "));
            rows.push(("bundle", text));
        }
        rows
    }
}
