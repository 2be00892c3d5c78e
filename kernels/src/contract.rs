//! What a contract declares, what a variant is, and what a backend hands back: the types every room above shares.

use memra_contract::digest::Digest;
use memra_contract::{Cost, IsaTier, OrderClass, Problem, ProblemError, TensorSet, Tolerance};
use sha2::{Digest as _, Sha256};

use crate::backend::host::Pool;
use crate::case::CaseFile;
use crate::memory::MemoryError;

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

    /// Replaces generated weights by the bytes of a stored tensor.
    ///
    /// # Errors
    /// [`InputError`] when the contract has no weights, the size differs, or a scale is not finite.
    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError>;

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

    /// Outputs as the values that [`Contract::reference`] speaks of, in the same order.
    fn output_values(&self, outputs: &TensorSet) -> Vec<f64>;

    /// The registered variants, baseline first.
    fn variants(&self) -> &'static [&'static Variant];

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

/// One implementation of a contract.
pub struct Variant {
    /// Name inside the contract.
    pub name: &'static str,
    /// One sentence: the mechanism.
    pub summary: &'static str,
    /// Tier it needs.
    pub isa: IsaTier,
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
    /// sha256 of the source text.
    pub fn source_sha256(&self) -> Digest {
        Digest::from_bytes(&Sha256::digest(self.source.text.as_bytes()).into())
    }
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).field("isa", &self.isa).finish_non_exhaustive()
    }
}

/// A variant laid out for a problem on a device: ready to launch, outputs readable.
pub trait Prepared: Send {
    /// Runs once on the given copy of the rotating buffers (taken modulo their number).
    fn launch(&mut self, pool: &Pool, copy: usize);

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
    /// The device lacks an instruction set.
    #[error("variant `{contract}/{variant}` needs {needs}, and this device is {has}")]
    Isa {
        /// Contract.
        contract: &'static str,
        /// Variant.
        variant: String,
        /// Tier it needs.
        needs: IsaTier,
        /// Tier the device has.
        has: IsaTier,
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
