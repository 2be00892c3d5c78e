//! What a contract declares, what a variant is, and what a backend hands back: the types every room above shares.

use std::fmt;

use memra_contract::device::CudaArch;
use memra_contract::digest::Digest;
use memra_contract::{Cost, DeviceKey, IsaTier, OrderClass, Problem, ProblemError, TensorSet, Tolerance};
use sha2::{Digest as _, Sha256};

use crate::backend::host::Pool;
use crate::case::CaseFile;
use crate::form::DeviceForm;
use crate::headers;
use crate::memory::MemoryError;
use crate::out_of_tree::ArmFile;

/// One operation: its axes, its meaning, its judges and its variants.
///
/// A contract is one folder under `ops/`; everything the harness does with it goes through this trait.
pub trait Contract: Sync {
    /// Fixed facts.
    fn info(&self) -> &'static ContractInfo;

    /// Checks a problem and fills axes that have a default, so that equal problems have equal text.
    ///
    /// # Errors
    /// [`ProblemError`] naming the axis.
    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError>;

    /// Least work of one launch.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError>;

    /// Allowed distance from the f64 reference.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError>;

    /// What defaults are looked up by.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError>;

    /// The committed cases.
    fn cases(&self) -> &'static CaseFile;

    /// Inputs of a family under a seed.
    ///
    /// # Errors
    /// [`InputError`] naming the family or the axis.
    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError>;

    /// Replaces generated weights by the bytes of a stored tensor. The default is that of a contract without weights.
    ///
    /// # Errors
    /// [`InputError`] when the contract has no weights, the size differs, or a scale is not finite.
    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        let _ = (inputs, weights);
        Err(InputError::Weights {
            contract: self.info().id,
            problem: problem.to_string(),
            why: "the contract has no weights".to_owned(),
        })
    }

    /// Outputs by the executable order class of the problem. Slow.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError>;

    /// The right answer in f64 with the scale errors are measured in. Slow.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError>;

    /// The right answer for a peer that computes the same product by another order and with its own quantisation of the
    /// activation; `None` where the problem has no inputs that a peer could take.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of this contract.
    fn peer_reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Option<PeerReference>, ProblemError> {
        let _ = (problem, inputs);
        Ok(None)
    }

    /// The problem and inputs of some rows of a problem, in the given order and as often as they are named, with the same
    /// weights; `None` where rows do not stand alone. Outputs have rows along their first axis.
    fn picked_rows(&self, problem: &Problem, inputs: &TensorSet, rows: &[usize]) -> Option<(Problem, TensorSet)> {
        let _ = (problem, inputs, rows);
        None
    }

    /// The problem and inputs of one row alone: [`Contract::picked_rows`] of it.
    fn single_row(&self, problem: &Problem, inputs: &TensorSet, row: usize) -> Option<(Problem, TensorSet)> {
        self.picked_rows(problem, inputs, &[row])
    }

    /// Outputs as the values that [`Contract::reference`] speaks of, in the same order.
    fn output_values(&self, outputs: &TensorSet) -> Vec<f64>;

    /// The registered variants, baseline first.
    fn variants(&self) -> &'static [&'static Variant];

    /// The file that this contract stands for, where its variant was never compiled in.
    fn arm_file(&self) -> Option<&ArmFile> {
        None
    }

    /// Whether a variant serves a problem; the reason if not.
    ///
    /// # Errors
    /// [`PrepareError::Unsupported`] with the reason, or a problem error.
    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError>;

    /// Lays out inputs for a host variant and allocates outputs. `copies` of what rotates are made.
    ///
    /// # Errors
    /// [`PrepareError`] naming variant and problem.
    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError>;

    /// What a CUDA variant launches for a problem: buffers, repacked weights, grids and arguments. No device is needed.
    ///
    /// # Errors
    /// [`PrepareError`] naming variant and problem.
    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        let _ = inputs;
        Err(PrepareError::Unsupported {
            contract: self.info().id,
            variant: variant.name.to_owned(),
            problem: problem.to_string(),
            why: "the contract has no CUDA variants".to_owned(),
        })
    }
}

/// Fixed facts of a contract.
#[derive(Debug)]
pub struct ContractInfo {
    /// Name.
    pub id: &'static str,
    /// Bumped when the meaning changes.
    pub revision: u32,
    /// One sentence.
    pub summary: &'static str,
    /// Axes with their meaning, in the order they are explained.
    pub axes: &'static [AxisInfo],
    /// Tensors in the order a launch takes them.
    pub tensors: &'static [TensorInfo],
    /// Scalars in the order a launch takes them.
    pub scalars: &'static [&'static str],
    /// Input families with their meaning.
    pub families: &'static [(&'static str, &'static str)],
    /// The axis that counts rows, for range tables.
    pub rows_axis: &'static str,
}

/// One named axis.
#[derive(Debug)]
pub struct AxisInfo {
    /// Name.
    pub name: &'static str,
    /// Meaning and allowed values.
    pub meaning: &'static str,
}

/// One tensor of a contract.
#[derive(Debug)]
pub struct TensorInfo {
    /// Name.
    pub name: &'static str,
    /// `in`, `weight` or `out`.
    pub role: &'static str,
    /// Element type, shape by axis names, layout and aliasing.
    pub meaning: &'static str,
}

/// What a default is looked up by: weight format, class of shapes, rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemClass {
    /// Weight format name, or `none`.
    pub format: String,
    /// Class of shapes.
    pub class: String,
    /// Number of rows.
    pub m: u64,
}

/// The f64 answer.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Values, one per output element that is judged.
    pub values: Vec<f64>,
    /// Scale of each element's error; positive.
    pub scales: Vec<f64>,
}

/// The f64 answer a peer's outputs are held against, and how near they must come.
pub type PeerReference = (Reference, Tolerance);

/// Source text of a variant.
#[derive(Debug)]
pub struct Source {
    /// File relative to the repository.
    pub path: &'static str,
    /// Its text as compiled in.
    pub text: &'static str,
}

/// What a variant runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A CPU of at least this tier.
    Host(IsaTier),
    /// An NVIDIA card, by text that is compiled at run time.
    Cuda(CudaBuild),
}

/// How the text of a CUDA variant is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaBuild {
    /// Architectures it serves, oldest first.
    pub archs: &'static [CudaArch],
    /// Preprocessor definitions, in the order they are passed.
    pub defines: &'static [(&'static str, &'static str)],
}

impl Target {
    /// Whether a CPU of this tier runs it; a CUDA variant runs on none.
    pub fn is_within(self, tier: IsaTier) -> bool {
        matches!(self, Self::Host(needed) if needed <= tier)
    }

    /// The tier a host variant needs; the lowest for others.
    pub const fn tier(self) -> IsaTier {
        match self {
            Self::Host(tier) => tier,
            Self::Cuda(_) => IsaTier::Scalar,
        }
    }

    /// Whether a device of this key runs it.
    pub fn serves(self, key: DeviceKey) -> bool {
        match (self, key) {
            (Self::Host(_), DeviceKey::Host { tier, .. }) => self.is_within(tier),
            (Self::Cuda(build), DeviceKey::Cuda(class)) => build.archs.contains(&class.arch),
            _ => false,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(tier) => fmt::Display::fmt(tier, f),
            Self::Cuda(build) if build.archs.ends_with(&CudaArch::ALL[CudaArch::ALL.len() - build.archs.len()..]) => {
                write!(f, "{}+", build.archs[0])
            }
            Self::Cuda(build) => {
                let names: Vec<_> = build.archs.iter().map(|arch| arch.name()).collect();
                f.write_str(&names.join("/"))
            }
        }
    }
}

/// One implementation of a contract.
pub struct Variant {
    /// Name inside the contract.
    pub name: &'static str,
    /// One sentence: the mechanism.
    pub summary: &'static str,
    /// What it runs on.
    pub target: Target,
    /// Weight layout it reads.
    pub layout: &'static str,
    /// The arithmetic it keeps.
    pub order_class: OrderClass,
    /// Fewest and most rows it serves.
    pub rows: (u64, u64),
    /// Its source.
    pub source: Source,
}

impl Variant {
    /// sha256 of the source text; for CUDA text of the headers it includes and of the definitions too.
    pub fn source_sha256(&self) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.source.text.as_bytes());
        if let Target::Cuda(build) = self.target {
            for header in headers::included(self.source.text) {
                hash.update(format!("\n{} {}\n{}", header.name, header.text.len(), header.text));
            }
            for (name, value) in build.defines {
                hash.update(format!("\n{name}={value}"));
            }
        }
        Digest::from_bytes(&hash.finalize().into())
    }
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).field("target", &self.target).finish_non_exhaustive()
    }
}

/// A launch that the device refused or did not survive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(pub String);

/// A variant laid out for a problem on a device: ready to launch, outputs readable.
pub trait Prepared: Send {
    /// Runs once on the given copy of the rotating buffers (taken modulo their number), and waits for the end.
    ///
    /// # Errors
    /// [`LaunchError`] with what the device says.
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError>;

    /// Runs launches back to back, the first on the given copy and each next one on the next, and gives the time from the
    /// start of the first to the end of the last in nanoseconds.
    ///
    /// # Errors
    /// [`LaunchError`] with what the device says.
    fn timed(&mut self, pool: &Pool, copy: usize, launches: u32) -> Result<u64, LaunchError> {
        let start = std::time::Instant::now();
        for launch in 0..launches as usize {
            self.launch(pool, copy.wrapping_add(launch))?;
        }
        Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Outputs in the contract's layout.
    fn outputs(&self) -> TensorSet;

    /// Fills outputs with a pattern.
    fn poison(&mut self, pattern: u32);

    /// Whether the bytes around the outputs are untouched.
    fn guards_hold(&self) -> bool;

    /// Bytes of one copy of what rotates.
    fn copy_bytes(&self) -> usize;
}

/// Inputs could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// No such family.
    #[error("contract `{contract}` has no input family `{family}`; it has {known}")]
    Family {
        /// Contract.
        contract: &'static str,
        /// Family asked for.
        family: String,
        /// Families it has.
        known: String,
    },
    /// Real weights do not fit.
    #[error("contract `{contract}`: these weights do not fit `{problem}`: {why}")]
    Weights {
        /// Contract.
        contract: &'static str,
        /// Problem.
        problem: String,
        /// Why.
        why: String,
    },
}

/// A variant could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The variant does not serve the problem.
    #[error("variant `{contract}/{variant}` does not serve `{problem}`: {why}")]
    Unsupported {
        /// Contract.
        contract: &'static str,
        /// Variant.
        variant: String,
        /// Problem.
        problem: String,
        /// Why.
        why: String,
    },
    /// The device is none that the variant runs on.
    #[error("variant `{contract}/{variant}` needs {needs}, and this device is {has}")]
    Device {
        /// Contract.
        contract: &'static str,
        /// Variant.
        variant: String,
        /// What it needs.
        needs: String,
        /// What the device is.
        has: String,
    },
    /// The text of a variant does not compile.
    #[error("variant `{contract}/{variant}` does not compile: {why}")]
    Compile {
        /// Contract.
        contract: &'static str,
        /// Variant.
        variant: String,
        /// First line of what the compiler says.
        why: String,
    },
    /// The device refused a buffer or a module.
    #[error("variant `{contract}/{variant}`: {why}")]
    Refused {
        /// Contract.
        contract: &'static str,
        /// Variant.
        variant: String,
        /// What the device says.
        why: String,
    },
    /// An input tensor is missing or has the wrong size.
    #[error("contract `{contract}`: input tensor `{tensor}` {why}")]
    Input {
        /// Contract.
        contract: &'static str,
        /// Tensor.
        tensor: String,
        /// What is wrong.
        why: String,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
