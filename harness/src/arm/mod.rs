//! Arms: what the user names, and the variant or process it stands for.

mod command;

pub use command::{CommandError, CommandLine, Commands};

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use memra_contract::digest::Digest;
use memra_contract::{DeviceKey, Problem, VariantId};
use memra_kernels::contract::PrepareError;
use memra_kernels::out_of_tree::{ArmFile, ArmFileError, ArmText, EXTENSION};
use memra_kernels::registry::{self, LookupError};
use memra_kernels::select::{SelectError, Tables, select};
use memra_kernels::{Contract, Variant};
use memra_ledger::record::{self, ArmKind, OUT_OF_TREE};

use crate::process::Hello;

/// How an arm is named on the command line and in cell files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmSpec {
    /// `default`: what selection gives for the problem on this device.
    Default,
    /// `baseline`: the first registered variant that serves the problem.
    Baseline,
    /// The name of a variant.
    Variant(String),
    /// A path that ends in `.cu`: a file of device text that was never compiled in.
    File(PathBuf),
    /// `process:NAME`: a child process whose command the user gave under that name.
    Process(String),
    /// `engine:NAME`: an inference engine whose command the user gave under that name.
    Engine(String),
}

/// Text that names no arm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no arm: use default, baseline, the name of a variant, a file that ends in .cu, process:NAME, or engine:NAME"
)]
pub struct ArmSpecError(pub String);

/// Whether an arm is a file of device text.
pub fn is_file(text: &str) -> bool {
    text.len() > EXTENSION.len() && text.ends_with(EXTENSION)
}

impl FromStr for ArmSpec {
    type Err = ArmSpecError;

    fn from_str(text: &str) -> Result<Self, ArmSpecError> {
        let refused = || ArmSpecError(text.to_owned());
        match text {
            "default" => Ok(Self::Default),
            "baseline" => Ok(Self::Baseline),
            _ if is_file(text) => Ok(Self::File(PathBuf::from(text))),
            _ => match text.split_once(':') {
                Some(("process", name)) if command::is_process_name(name) => Ok(Self::Process(name.to_owned())),
                Some(("engine", name)) if command::is_process_name(name) => Ok(Self::Engine(name.to_owned())),
                Some(_) => Err(refused()),
                None => VariantId::new(text).map(|id| Self::Variant(id.into())).map_err(|_| refused()),
            },
        }
    }
}

impl fmt::Display for ArmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Baseline => f.write_str("baseline"),
            Self::Variant(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Process(name) => write!(f, "process:{name}"),
            Self::Engine(name) => write!(f, "engine:{name}"),
        }
    }
}

/// A variant with the way it was found.
#[derive(Clone)]
pub struct KernelArm {
    /// The contract.
    pub contract: &'static dyn Contract,
    /// The variant.
    pub variant: &'static Variant,
    /// `explicit`, `out-of-tree`, or the words of [`memra_kernels::select::Reason`].
    pub chosen: String,
    /// Ledger id of the promotion behind a default.
    pub promotion: Option<String>,
    /// Defaults that selection passed over, and why.
    pub passed_over: Vec<String>,
    /// sha256 of the source text.
    pub source_sha256: Digest,
}

impl fmt::Debug for KernelArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelArm")
            .field("contract", &self.contract.info().id)
            .field("variant", &self.variant.name)
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}

impl KernelArm {
    fn new(contract: &'static dyn Contract, variant: &'static Variant, chosen: &str) -> Self {
        Self {
            contract,
            variant,
            chosen: chosen.to_owned(),
            promotion: None,
            passed_over: Vec::new(),
            source_sha256: variant.source_sha256(),
        }
    }

    /// A variant that was named, registered or of a file.
    pub fn explicit(contract: &'static dyn Contract, variant: &'static Variant) -> Self {
        let is_file = contract.arm_file().is_some();
        Self::new(contract, variant, if is_file { OUT_OF_TREE } else { "explicit" })
    }

    /// A text of a file as an arm on a device.
    ///
    /// # Errors
    /// [`ArmFileError`] naming the file and the line or the field.
    pub fn of_text(text: &ArmText, key: DeviceKey) -> Result<Self, ArmFileError> {
        let file = ArmFile::load(text, key)?;
        Ok(Self::explicit(file, file.variant()))
    }

    /// A file as an arm on a device.
    ///
    /// # Errors
    /// [`ArmFileError`] naming the file and the line or the field.
    pub fn of_file(path: &Path, key: DeviceKey) -> Result<Self, ArmFileError> {
        Self::of_text(&ArmText::read(path)?, key)
    }

    /// What a cell record says of the arm; its gate is not known yet.
    pub fn record(&self) -> record::Arm {
        record::Arm {
            kind: ArmKind::Kernel,
            variant: self.variant.name.to_owned(),
            chosen: self.chosen.clone(),
            layout: self.variant.layout.to_owned(),
            order_class: Some(self.variant.order_class.id.to_owned()),
            isa: self.variant.target.to_string(),
            source: Some(self.variant.source.path.to_owned()),
            source_sha256: Some(self.source_sha256.clone()),
            about: Vec::new(),
            gate: None,
        }
    }
}

/// A process under the name the user gave it.
#[derive(Debug, Clone)]
pub struct ProcessArm {
    /// The user's name for it.
    pub name: String,
    /// How it is started. Never part of a receipt.
    pub command: CommandLine,
}

impl ProcessArm {
    /// What a cell record says of the arm: what the process says of itself, or only its name where it said nothing.
    pub fn record(&self, hello: Option<&Hello>) -> record::Arm {
        record::Arm {
            kind: ArmKind::Process,
            variant: hello.map_or_else(|| self.name.clone(), |hello| hello.name.clone()),
            chosen: "explicit".to_owned(),
            layout: String::new(),
            order_class: None,
            isa: String::new(),
            source: None,
            source_sha256: None,
            about: hello.map(|hello| hello.about.clone()).unwrap_or_default(),
            gate: None,
        }
    }
}

/// What an arm stands for.
#[derive(Debug, Clone)]
pub enum ResolvedArm {
    /// A variant of the registry.
    Kernel(KernelArm),
    /// A child process.
    Process(ProcessArm),
}

impl ResolvedArm {
    /// The variant's name, or the user's name for the process.
    pub fn name(&self) -> &str {
        match self {
            Self::Kernel(arm) => arm.variant.name,
            Self::Process(arm) => &arm.name,
        }
    }
}

/// An arm that stands for nothing here.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The text names no arm.
    #[error(transparent)]
    Spec(#[from] ArmSpecError),
    /// No variant of this name.
    #[error("contract `{contract}` has no variant `{name}`{hint}; arms are default, baseline, process:NAME, {known}")]
    Variant {
        /// The contract.
        contract: &'static str,
        /// The name.
        name: String,
        /// The nearest name, as a phrase.
        hint: String,
        /// The variants.
        known: String,
    },
    /// The file is no arm.
    #[error(transparent)]
    File(#[from] ArmFileError),
    /// The file is an arm of another contract.
    #[error("{file}: contract: it is an arm of `{contract}`, and the cell is of `{wanted}`")]
    Contract {
        /// The file.
        file: String,
        /// Its contract.
        contract: &'static str,
        /// The cell's contract.
        wanted: &'static str,
    },
    /// The variant cannot run the problem on this device.
    #[error(transparent)]
    CannotRun(#[from] PrepareError),
    /// Selection failed.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// There is no baseline.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// No command of this name.
    #[error("arm `{kind}:{name}` has no command{hint}; give one as --process {name}=COMMAND")]
    Command {
        /// `process` or `engine`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The nearest name, as a phrase.
        hint: String,
    },
    /// An engine in a cell of a kernel.
    #[error("arm `engine:{0}`: an engine runs workload cells, and not a contract")]
    Engine(String),
    /// Something else in a workload cell.
    #[error("arm `{0}`: a workload is run by engines; name one as engine:NAME")]
    NoEngine(String),
}

/// Finds what an arm stands for, for a problem on a device.
///
/// # Errors
/// [`ResolveError`] naming the arm, with the nearest name where there is none of that name.
pub fn resolve(
    spec: &ArmSpec,
    contract: &'static dyn Contract,
    problem: &Problem,
    key: DeviceKey,
    tables: &Tables,
    commands: &Commands,
) -> Result<ResolvedArm, ResolveError> {
    Ok(match spec {
        ArmSpec::Default => {
            let selection = select(contract, problem, key, tables)?;
            ResolvedArm::Kernel(KernelArm {
                promotion: selection.promotion,
                passed_over: selection.passed_over,
                ..KernelArm::new(contract, selection.variant, selection.reason.text())
            })
        }
        ArmSpec::Baseline => {
            let variant = registry::baseline(contract, problem, key)?;
            ResolvedArm::Kernel(KernelArm::new(contract, variant, "baseline"))
        }
        ArmSpec::Variant(name) => {
            let variant = find_variant(contract, name)?;
            registry::can_run(contract, variant, problem, key)?;
            ResolvedArm::Kernel(KernelArm::explicit(contract, variant))
        }
        ArmSpec::File(path) => {
            let arm = KernelArm::of_file(path, key)?;
            let (own, wanted) = (arm.contract.info().id, contract.info().id);
            if own != wanted {
                let file = arm.variant.source.path.to_owned();
                return Err(ResolveError::Contract { file, contract: own, wanted });
            }
            registry::can_run(arm.contract, arm.variant, problem, key)?;
            ResolvedArm::Kernel(arm)
        }
        ArmSpec::Process(name) => {
            let missing = || ResolveError::Command {
                kind: "process",
                name: name.clone(),
                hint: registry::nearest(name, commands.names()),
            };
            let command = commands.get(name).ok_or_else(missing)?.clone();
            ResolvedArm::Process(ProcessArm { name: name.clone(), command })
        }
        ArmSpec::Engine(name) => return Err(ResolveError::Engine(name.clone())),
    })
}

fn find_variant(contract: &'static dyn Contract, name: &str) -> Result<&'static Variant, ResolveError> {
    let variants = contract.variants();
    variants.iter().copied().find(|variant| variant.name == name).ok_or_else(|| {
        let known: Vec<_> = variants.iter().map(|variant| variant.name).collect();
        let hint = registry::nearest(name, known.iter().copied().chain(["default", "baseline"]));
        ResolveError::Variant { contract: contract.info().id, name: name.to_owned(), hint, known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_contract::IsaTier;
    use memra_contract::device::HostArch;

    const SCALAR: DeviceKey = DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Scalar };

    fn resolve_text(text: &str, key: DeviceKey) -> Result<ResolvedArm, ResolveError> {
        let contract = registry::contract("matmul").unwrap();
        let problem = contract.normalise(&"m=1,k=64,seg=q8_0:8".parse().unwrap()).unwrap();
        let mut commands = Commands::default();
        commands.add("peer=peer-program --fast").unwrap();
        resolve(&text.parse()?, contract, &problem, key, &Tables::default(), &commands)
    }

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        for text in [
            "default",
            "baseline",
            "avx2_q8_row",
            "process:peer",
            "process:llama.cpp-b1",
            "engine:memra",
            "idea.cu",
            "some folder/Idea-1.cu",
        ] {
            assert_eq!(text.parse::<ArmSpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Avx2",
            "avx2-row",
            "process:",
            "process:a b",
            "process",
            "process:/x",
            "engine:",
            "motor:x",
            ".cu",
            "a.cuh",
        ] {
            let parsed = text.parse::<ArmSpec>();
            assert!(parsed.is_err() || text == "process", "{text}");
        }
    }

    #[test]
    fn every_kind_resolves_and_says_how() {
        for (text, chosen) in [("baseline", "baseline"), ("default", "baseline"), ("scalar_q8", "explicit")] {
            let ResolvedArm::Kernel(arm) = resolve_text(text, SCALAR).unwrap() else { panic!("{text}") };
            let record = arm.record();
            assert_eq!((record.variant.as_str(), record.chosen.as_str()), ("scalar_q8", chosen));
            assert_eq!(record.source_sha256, Some(arm.variant.source_sha256()));
            assert_eq!(record.source.as_deref(), Some("kernels/src/ops/matmul/scalar.rs"));
            assert_eq!((record.isa.as_str(), record.layout.as_str()), ("scalar", "stored"));
        }
        let ResolvedArm::Process(arm) = resolve_text("process:peer", SCALAR).unwrap() else { panic!() };
        let hello = Hello { name: "peer 3".to_owned(), about: vec!["built with x".to_owned()] };
        let record = arm.record(Some(&hello));
        assert_eq!((record.kind, record.variant.as_str(), record.about.len()), (ArmKind::Process, "peer 3", 1));
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("peer-program"), "{text}");
        assert_eq!(arm.record(None).variant, "peer");
    }

    #[test]
    fn wrong_names_get_the_nearest_right_one() {
        let error = resolve_text("scalr_q8", SCALAR).unwrap_err().to_string();
        assert!(error.contains("did you mean `scalar_q8`") && error.contains("process:NAME"), "{error}");
        let error = resolve_text("basline", SCALAR).unwrap_err().to_string();
        assert!(error.contains("did you mean `baseline`"), "{error}");
        let error = resolve_text("engine:peer", SCALAR).unwrap_err().to_string();
        assert!(error.contains("an engine runs workload cells"), "{error}");
        let error = resolve_text("process:per", SCALAR).unwrap_err().to_string();
        assert!(error.contains("did you mean `peer`") && error.contains("--process per=COMMAND"), "{error}");
    }

    #[test]
    fn a_variant_that_cannot_run_here_is_refused_with_the_reason() {
        let error = resolve_text("scalar_f32", SCALAR).unwrap_err().to_string();
        assert!(error.contains("`matmul/scalar_f32` does not serve"), "{error}");
        if cfg!(target_arch = "x86_64") {
            let error = resolve_text("avx2_q8_row", SCALAR).unwrap_err().to_string();
            assert!(error.contains("needs avx2, and this device is scalar"), "{error}");
        }
    }
}
