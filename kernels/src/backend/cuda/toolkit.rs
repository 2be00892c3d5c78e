//! Where a compiler and its headers lie: the first of some folders that holds both.

use std::fmt;
use std::path::{Path, PathBuf};

/// What fetches a compiler into the checkout.
pub const FETCH: &str = "tools/fetch-nvrtc.sh";

/// Names of the library, newest binding first.
pub(super) const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"];

/// The header that shows where the others are.
const HEADER: &str = "cuda_fp16.h";

/// Below a root, where libraries may lie and where the headers of such a root may lie.
const LIBRARIES: [&str; 3] = ["lib", "lib64", "targets/x86_64-linux/lib"];
const INCLUDES: [&str; 2] = ["include", "targets/x86_64-linux/include"];

/// Where a compiler and its headers lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    /// Folder of `libnvrtc.so`.
    pub libraries: PathBuf,
    /// Folder of `cuda_fp16.h` and the others.
    pub include: PathBuf,
}

/// Where a compiler may be, as the caller knows it; the order of the fields is the order in which they are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidates {
    /// A root or a folder of libraries that somebody asked for. Where there is one, nothing else is looked at.
    pub explicit: Option<PathBuf>,
    /// The checkout, into which [`FETCH`] puts one.
    pub checkout: Option<PathBuf>,
    /// Roots of CUDA installations.
    pub homes: Vec<PathBuf>,
    /// Folders in which the loader looks for libraries; headers lie in `include` beside them.
    pub library_path: Vec<PathBuf>,
}

/// No compiler at any place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no NVRTC with its headers: {}; {FETCH} fetches both into the checkout", Places(.0))]
pub struct ToolkitError(
    /// Every place that was looked at, and what it lacks.
    pub Vec<Place>,
);

/// A place without a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// What it lacks.
    pub lacks: String,
}

struct Places<'a>(&'a [Place]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no place was given to look at");
        }
        for (index, place) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", place.folder.display(), place.lacks)?;
        }
        Ok(())
    }
}

impl Toolkit {
    /// The first place that holds a compiler and its headers. Nothing is loaded.
    ///
    /// # Errors
    /// [`ToolkitError`] naming every place that was looked at.
    pub fn find(candidates: &Candidates) -> Result<Self, ToolkitError> {
        let mut places = Vec::new();
        let mut look = |folder: &Path, found: Result<Self, String>| match found {
            Ok(toolkit) => Some(toolkit),
            Err(lacks) => {
                places.push(Place { folder: folder.to_owned(), lacks });
                None
            }
        };
        let found = if let Some(folder) = &candidates.explicit {
            look(folder, Self::below(folder).or_else(|lacks| Self::beside(folder).map_err(|_| lacks)))
        } else {
            let checkout = candidates.checkout.iter().map(|checkout| checkout.join(".nvrtc/nvidia/cu13"));
            checkout
                .chain(candidates.homes.iter().cloned())
                .find_map(|root| look(&root, Self::below(&root)))
                .or_else(|| candidates.library_path.iter().find_map(|folder| look(folder, Self::beside(folder))))
        };
        found.ok_or(ToolkitError(places))
    }

    /// The toolkit of a root.
    fn below(root: &Path) -> Result<Self, String> {
        let libraries = LIBRARIES.iter().map(|folder| root.join(folder)).find(|folder| holds_library(folder));
        let include = INCLUDES.iter().map(|folder| root.join(folder)).find(|folder| folder.join(HEADER).is_file());
        Self::of(libraries, include)
    }

    /// The toolkit of a folder of libraries.
    fn beside(folder: &Path) -> Result<Self, String> {
        let libraries = Some(folder.to_owned()).filter(|folder| holds_library(folder));
        let include = folder.parent().map(|root| root.join("include")).filter(|folder| folder.join(HEADER).is_file());
        Self::of(libraries, include)
    }

    fn of(libraries: Option<PathBuf>, include: Option<PathBuf>) -> Result<Self, String> {
        match (libraries, include) {
            (Some(libraries), Some(include)) => Ok(Self { libraries, include }),
            (None, _) => Err("holds no libnvrtc".to_owned()),
            (Some(_), None) => Err(format!("holds libnvrtc, but no {HEADER}")),
        }
    }
}

fn holds_library(folder: &Path) -> bool {
    NAMES.iter().any(|name| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    fn put(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }

    #[test]
    fn places_are_looked_at_in_order() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        put(&at("checkout"), &[".nvrtc/nvidia/cu13/lib/libnvrtc.so.13", ".nvrtc/nvidia/cu13/include/cuda_fp16.h"]);
        put(&at("home"), &["targets/x86_64-linux/lib/libnvrtc.so.12", "include/cuda_fp16.h"]);
        put(&at("home64"), &["lib64/libnvrtc.so", "include/cuda_fp16.h"]);
        put(&at("loader"), &["some/libnvrtc.so.13", "include/cuda_fp16.h"]);
        let mut candidates = Candidates {
            explicit: None,
            checkout: Some(at("checkout")),
            homes: vec![at("nothing"), at("home"), at("home64")],
            library_path: vec![at("loader/some")],
        };
        let libraries = |candidates: &Candidates| Toolkit::find(candidates).unwrap().libraries;
        assert_eq!(libraries(&candidates), at("checkout/.nvrtc/nvidia/cu13/lib"));
        candidates.checkout = None;
        assert_eq!(libraries(&candidates), at("home/targets/x86_64-linux/lib"));
        candidates.homes.remove(1);
        assert_eq!(libraries(&candidates), at("home64/lib64"));
        candidates.homes.clear();
        let found = Toolkit::find(&candidates).unwrap();
        assert_eq!((found.libraries, found.include), (at("loader/some"), at("loader/include")));
        for explicit in ["home64", "home64/lib64"] {
            candidates.explicit = Some(at(explicit));
            assert_eq!(libraries(&candidates), at("home64/lib64"), "{explicit}");
        }
    }

    #[test]
    fn the_error_names_every_place_and_what_fetches_one() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        put(&at("home"), &["lib64/libnvrtc.so.13"]);
        let mut candidates = Candidates {
            explicit: None,
            checkout: Some(at("checkout")),
            homes: vec![at("home")],
            library_path: vec![at("loader")],
        };
        let error = Toolkit::find(&candidates).unwrap_err().to_string();
        for wanted in [
            "checkout/.nvrtc/nvidia/cu13 holds no libnvrtc",
            "home holds libnvrtc, but no cuda_fp16.h",
            "loader holds no libnvrtc",
            FETCH,
        ] {
            assert!(error.contains(wanted), "{error}");
        }
        put(&at("home"), &["include/cuda_fp16.h"]);
        candidates.explicit = Some(at("asked"));
        let error = Toolkit::find(&candidates).unwrap_err();
        assert_eq!(error.0.len(), 1, "what was asked for is not replaced by something else: {error}");
        assert!(Toolkit::find(&Candidates::default()).unwrap_err().to_string().contains("no place was given"));
    }
}
