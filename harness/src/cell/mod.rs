//! Cells: what is measured, by name. The files under `cells/` are compiled in.
//!
//! A cell names a contract, a problem, two arms, the inputs and the state of the caches. The command line may replace the
//! arms; what makes two results comparable (everything but the arms) stays with the name.
//!
//! A workload cell names a model and numbers of tokens in the place of a contract and a problem; its arms are engines.

#[cfg(test)]
mod tests;
mod workload;

pub use workload::{FileWorkload, ModelWorkload, WORKLOAD_FAMILY};

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use memra_kernels::registry;
use serde::{Deserialize, Serialize};

use crate::arm::{self, ArmSpec};
use workload::WorkloadCell;

/// Files under `harness/cells`; a test compares the list with the folder.
const FILES: &[(&str, &str)] = &[
    ("demo.toml", include_str!("../../cells/demo.toml")),
    ("embed.toml", include_str!("../../cells/embed.toml")),
    ("engine.toml", include_str!("../../cells/engine.toml")),
    ("gemma3.toml", include_str!("../../cells/gemma3.toml")),
    ("h200-ceilings.toml", include_str!("../../cells/h200-ceilings.toml")),
    ("h200.toml", include_str!("../../cells/h200.toml")),
    ("layers.toml", include_str!("../../cells/layers.toml")),
    ("router.toml", include_str!("../../cells/router.toml")),
    ("small.toml", include_str!("../../cells/small.toml")),
    ("smollm2.toml", include_str!("../../cells/smollm2.toml")),
];

/// Most threads a cell may ask for.
pub const MAX_THREADS: u32 = 1024;

static CATALOGUE: LazyLock<Vec<Cell>> = LazyLock::new(|| match parse_all(FILES) {
    Ok(cells) => cells,
    Err(error) => panic!("{error}"),
});

/// What the caches hold when a launch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// Launches go round copies of the weights that together are at least three last-level caches.
    Rotate,
    /// Launches run back to back on one copy.
    Hot,
    /// Engines run a model, and the caches hold what that leaves in them.
    Workload,
}

impl CacheMode {
    /// Lower-case name, as it stands in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Hot => "hot",
            Self::Workload => "workload",
        }
    }
}

/// What the kernels of a cell run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// The CPUs of this machine.
    #[default]
    Host,
    /// An NVIDIA card.
    Cuda,
}

impl BackendKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Host, Self::Cuda];

    /// Lower-case name, which the backend has too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cell as its file states it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name: lower-case letters, digits and hyphens.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Contract.
    pub contract: String,
    /// Problem text.
    pub problem: String,
    /// Incumbent, as [`ArmSpec`] text.
    pub a: String,
    /// Challenger, as [`ArmSpec`] text.
    pub b: String,
    /// Input family.
    pub family: String,
    /// Seed of the inputs.
    pub input_seed: u64,
    /// State of the caches.
    pub cache: CacheMode,
    /// Threads; 0 for all CPUs of the process.
    pub threads: u32,
    /// What a budget keeps first: 1 is kept longest.
    pub priority: u32,
    /// Weights of a model in the place of generated ones.
    #[serde(default)]
    pub weights: Option<ModelTensor>,
    /// What its kernels run on; the host by default.
    #[serde(default)]
    pub backend: BackendKind,
    /// What engines run, in a workload cell.
    #[serde(skip)]
    pub workload: Option<ModelWorkload>,
}

/// A tensor of a model that users have under a common name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTensor {
    /// Model: the file is `<model>.gguf` in the models folder.
    pub model: String,
    /// Tensor name.
    pub tensor: String,
}

/// A cell ready to be handed to another process: weights have a file, arms may have been replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellSpec {
    /// Name.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Contract.
    pub contract: String,
    /// Problem text.
    pub problem: String,
    /// Incumbent, as [`ArmSpec`] text.
    pub a: String,
    /// Challenger, as [`ArmSpec`] text.
    pub b: String,
    /// Input family.
    pub family: String,
    /// Seed of the inputs.
    pub input_seed: u64,
    /// State of the caches.
    pub cache: CacheMode,
    /// Threads; 0 for all CPUs of the process.
    pub threads: u32,
    /// What a budget keeps first: 1 is kept longest.
    pub priority: u32,
    /// Weights from a file in the place of generated ones.
    pub weights: Option<FileTensor>,
    /// What engines run, in a workload cell.
    #[serde(default)]
    pub workload: Option<FileWorkload>,
    /// What its kernels run on.
    #[serde(default)]
    pub backend: BackendKind,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTensor {
    /// Path of the file. Receipts hold its name only.
    pub file: PathBuf,
    /// Tensor name.
    pub tensor: String,
}

/// A cell file or a name that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// A file is not a cell file.
    #[error("cells/{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What the parser says.
        why: String,
    },
    /// A cell breaks a rule.
    #[error("cell `{cell}`: {field}: {why}")]
    Field {
        /// The cell.
        cell: String,
        /// The field.
        field: &'static str,
        /// The rule it breaks.
        why: String,
    },
    /// Two cells have one name.
    #[error("cell `{cell}` stands in {first} and in {second}")]
    Twice {
        /// The name.
        cell: String,
        /// First file.
        first: String,
        /// Second file.
        second: String,
    },
    /// No cell of this name.
    #[error("no cell `{name}`{hint}; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest name, as a phrase.
        hint: String,
        /// All names, those with one first word as one pattern.
        known: String,
    },
    /// No cell that a pattern fits.
    #[error("no cell fits `{pattern}`; there are {known}")]
    NoneFits {
        /// The pattern.
        pattern: String,
        /// All names, those with one first word as one pattern.
        known: String,
    },
}

/// Every cell, by file and then in file order.
pub fn cells() -> &'static [Cell] {
    &CATALOGUE
}

/// The cell of a name.
///
/// # Errors
/// [`CellError::Unknown`] with the nearest name.
pub fn cell(name: &str) -> Result<&'static Cell, CellError> {
    cells().iter().find(|cell| cell.name == name).ok_or_else(|| CellError::Unknown {
        name: name.to_owned(),
        hint: registry::nearest(name, cells().iter().map(|cell| cell.name.as_str())),
        known: groups(),
    })
}

/// The cells of a name, or of a pattern in which `*` stands for any text, also none; in the order of [`cells`].
///
/// # Errors
/// [`CellError::Unknown`] with the nearest name, or [`CellError::NoneFits`].
pub fn select(pattern: &str) -> Result<Vec<&'static Cell>, CellError> {
    if !pattern.contains('*') {
        return cell(pattern).map(|cell| vec![cell]);
    }
    let fitting: Vec<_> = cells().iter().filter(|cell| fits(pattern, &cell.name)).collect();
    if fitting.is_empty() {
        return Err(CellError::NoneFits { pattern: pattern.to_owned(), known: groups() });
    }
    Ok(fitting)
}

/// Whether a name is what a pattern with at least one `*` says: pieces are taken at their first place, the last at the end.
fn fits(pattern: &str, name: &str) -> bool {
    let (Some((first, rest)), Some((_, last))) = (pattern.split_once('*'), pattern.rsplit_once('*')) else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    for piece in rest.split('*').take(rest.matches('*').count()) {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last)
}

/// All names: those that share their first word are one pattern with their number.
fn groups() -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Cell { name, .. } in cells() {
        let word = name.split('-').next().unwrap_or(name);
        match groups.iter_mut().find(|(known, _)| *known == word) {
            Some((_, names)) => names.push(name),
            None => groups.push((word, vec![name])),
        }
    }
    let texts = groups.iter().map(|(word, names)| match names.as_slice() {
        [name] => (*name).to_owned(),
        names => format!("{} `{word}-*`", names.len()),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Parses a cell file and checks every cell of it: first those of kernels, then workloads.
///
/// # Errors
/// [`CellError`] naming the file, or the cell and its field.
pub fn parse(file: &str, text: &str) -> Result<Vec<Cell>, CellError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CellFile {
        #[serde(default)]
        cell: Vec<Cell>,
        #[serde(default)]
        workload: Vec<WorkloadCell>,
    }
    let parsed: CellFile = toml::from_str(text)
        .map_err(|error| CellError::File { file: file.to_owned(), why: error.to_string().trim_end().to_owned() })?;
    let cells: Vec<Cell> = parsed.cell.into_iter().chain(parsed.workload.into_iter().map(Cell::from)).collect();
    for cell in &cells {
        cell.check()?;
    }
    Ok(cells)
}

fn parse_all(files: &[(&str, &str)]) -> Result<Vec<Cell>, CellError> {
    let mut origin: BTreeMap<String, &str> = BTreeMap::new();
    let mut all = Vec::new();
    for (file, text) in files {
        for cell in parse(file, text)? {
            if let Some(first) = origin.insert(cell.name.clone(), file) {
                return Err(CellError::Twice { cell: cell.name, first: first.to_owned(), second: (*file).to_owned() });
            }
            all.push(cell);
        }
    }
    Ok(all)
}

impl Cell {
    /// The cell with its weights looked for in a folder of models.
    pub fn spec(&self, models: &Path) -> CellSpec {
        CellSpec {
            name: self.name.clone(),
            title: self.title.clone(),
            contract: self.contract.clone(),
            problem: self.problem.clone(),
            a: self.a.clone(),
            b: self.b.clone(),
            family: self.family.clone(),
            input_seed: self.input_seed,
            cache: self.cache,
            threads: self.threads,
            priority: self.priority,
            weights: self.weights.as_ref().map(|weights| FileTensor {
                file: models.join(format!("{}.gguf", weights.model)),
                tensor: weights.tensor.clone(),
            }),
            workload: self.workload.as_ref().map(|workload| FileWorkload {
                model: models.join(format!("{}.gguf", workload.model)),
                workload: workload.workload,
            }),
            backend: self.backend,
        }
    }

    fn check(&self) -> Result<(), CellError> {
        self.spec(Path::new("")).check()?;
        let is_file_stem = |text: &str| !text.is_empty() && !text.contains(['/', '\\']) && !text.starts_with('.');
        let weights = self.weights.as_ref().map(|weights| ("weights.model", &weights.model));
        let workload = self.workload.as_ref().map(|workload| ("model", &workload.model));
        for (field, model) in [weights, workload].into_iter().flatten() {
            if !is_file_stem(model) {
                return Err(self.field(field, format!("`{model}` is not the name of a model")));
            }
        }
        Ok(())
    }

    fn field(&self, field: &'static str, why: impl fmt::Display) -> CellError {
        CellError::Field { cell: self.name.clone(), field, why: why.to_string() }
    }
}

impl CellSpec {
    /// Holds the cell to its rules: names, known contract, problem and family, arms that can be read; a workload's numbers, and
    /// engines for it.
    ///
    /// # Errors
    /// [`CellError::Field`] naming the field.
    pub fn check(&self) -> Result<(), CellError> {
        let refuse = |field, why: String| Err(CellError::Field { cell: self.name.clone(), field, why });
        let is_name =
            self.name.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
                && self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !is_name {
            return refuse("name", "use lower-case letters, digits and hyphens".to_owned());
        }
        if self.title.is_empty() {
            return refuse("title", "is empty".to_owned());
        }
        if self.threads > MAX_THREADS {
            return refuse("threads", format!("{} is more than {MAX_THREADS}", self.threads));
        }
        if self.priority == 0 {
            return refuse("priority", "starts at 1".to_owned());
        }
        for (field, text) in [("a", &self.a), ("b", &self.b)] {
            match text.parse::<ArmSpec>() {
                Err(error) => return refuse(field, error.to_string()),
                Ok(ArmSpec::Engine(name)) if self.workload.is_none() => {
                    return refuse(field, arm::ResolveError::Engine(name).to_string());
                }
                Ok(ArmSpec::Engine(_)) => {}
                Ok(_) if self.workload.is_some() => {
                    return refuse(field, arm::ResolveError::NoEngine(text.clone()).to_string());
                }
                Ok(_) => {}
            }
        }
        if let Some(workload) = &self.workload {
            return self.check_workload(workload);
        }
        if self.cache == CacheMode::Workload {
            return refuse("cache", "is workload in a cell of a contract".to_owned());
        }
        let contract = match registry::contract(&self.contract) {
            Ok(contract) => contract,
            Err(error) => return refuse("contract", error.to_string()),
        };
        let problem = match self.problem.parse().and_then(|problem| contract.normalise(&problem)) {
            Ok(problem) => problem,
            Err(error) => return refuse("problem", error.to_string()),
        };
        let families = contract.info().families;
        if !families.iter().any(|(family, _)| *family == self.family) {
            let hint = registry::nearest(&self.family, families.iter().map(|(family, _)| *family));
            return refuse("family", format!("contract `{}` has no `{}`{hint}", self.contract, self.family));
        }
        if let Some(weights) = &self.weights
            && weights.tensor.is_empty()
        {
            return refuse("weights.tensor", format!("names no tensor for `{problem}`"));
        }
        Ok(())
    }
}
