//! Where kernels for NVIDIA cards come from on this machine: the compiler, the cache of what it made, and bundles.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use memra_kernels::backend::cuda::bundle::Bundle;
use memra_kernels::backend::cuda::cubins::Cubins;
use memra_kernels::backend::cuda::nvrtc::Nvrtc;
use memra_kernels::backend::cuda::toolkit::{Candidates, Toolkit};

use crate::checkout;

/// Ending of a bundle's name.
const BUNDLE: &str = "cubins";

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn listed(name: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Where a compiler may be: `MEMRA_NVRTC`, the checkout, `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`, `LD_LIBRARY_PATH`.
pub fn candidates() -> Candidates {
    let homes = [set("CUDA_HOME"), set("CUDA_PATH"), Some(PathBuf::from("/usr/local/cuda"))];
    let mut distinct: Vec<PathBuf> = Vec::new();
    for home in homes.into_iter().flatten() {
        if !distinct.contains(&home) {
            distinct.push(home);
        }
    }
    Candidates {
        explicit: set("MEMRA_NVRTC"),
        checkout: checkout::checkout(),
        homes: distinct,
        library_path: listed("LD_LIBRARY_PATH"),
    }
}

/// The compiler of this machine, and where it lies.
///
/// # Errors
/// When there is none, naming every place that was looked at, or when it cannot be loaded.
pub fn nvrtc() -> anyhow::Result<(Nvrtc, Toolkit)> {
    let toolkit =
        Toolkit::find(&candidates()).map_err(|error| anyhow!("{error}, and MEMRA_NVRTC names another folder"))?;
    Ok((Nvrtc::load(&toolkit)?, toolkit))
}

/// The folder of what was compiled: `MEMRA_CUBIN_CACHE`, else below `XDG_CACHE_HOME` or `~/.cache`; `None` where there is no
/// home.
pub fn cache_folder() -> Option<PathBuf> {
    set("MEMRA_CUBIN_CACHE").or_else(|| {
        let caches = set("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
        caches.or_else(|| set("HOME").map(|home| home.join(".cache"))).map(|folder| folder.join("memra-lab/cubins"))
    })
}

/// The files of bundles: those that `MEMRA_CUBINS` lists, else `*.cubins` in the folder `cubins` of the user's data folder.
pub fn bundle_files() -> Vec<PathBuf> {
    let given = listed("MEMRA_CUBINS");
    if !given.is_empty() {
        return given;
    }
    let Some(folder) = checkout::data_folder().ok().map(|folder| folder.join("cubins")) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_bundle = |path: &PathBuf| path.extension() == Some(OsStr::new(BUNDLE));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_bundle).collect();
    files.sort();
    files
}

/// Opens bundles; the second list says which cannot be read and why.
pub fn bundles(files: &[impl AsRef<Path>]) -> (Vec<Bundle>, Vec<String>) {
    let (mut bundles, mut faults) = (Vec::new(), Vec::new());
    for file in files {
        match Bundle::open(file.as_ref()) {
            Ok(bundle) => bundles.push(bundle),
            Err(error) => faults.push(error.to_string()),
        }
    }
    (bundles, faults)
}

/// Every source of machine code that this machine has, and what is wrong with some of them.
///
/// # Errors
/// When there is neither a compiler nor a bundle.
pub fn cubins() -> anyhow::Result<(Cubins, Vec<String>)> {
    let (bundles, mut faults) = bundles(&bundle_files());
    let nvrtc = match nvrtc() {
        Ok((nvrtc, _)) => Some(nvrtc),
        Err(error) if bundles.is_empty() => return Err(error),
        Err(error) => {
            faults.push(format!("{error:#}"));
            None
        }
    };
    Ok((Cubins { nvrtc, cache: cache_folder(), bundles }, faults))
}
