//! From the words of a cell to two checked arms in their seats.

#[cfg(test)]
mod tests;
mod workload;

pub use workload::OpenWorkload;

use std::path::PathBuf;
use std::sync::Arc;

use memra_contract::{Cost, Problem, ProblemError};
use memra_kernels::backend::Backend;
use memra_kernels::registry::{self, LookupError};
use memra_kernels::select::Tables;
use memra_kernels::{Contract, input};
use memra_ledger::record::{CellKey, Inputs, WeightSource};

use crate::arm::{self, ArmSpec, Commands, KernelArm, ResolveError, ResolvedArm};
use crate::cell::{BackendKind, CellError, CellSpec};
use crate::check::{
    CaseError, CaseId, CheckPlan, CheckPlanError, Checked, Checker, JudgeCache, JudgedCase, KnownVerdicts, Passed,
    PeerError, ProcessCheck,
};
use crate::host_runner::{HostRunner, HostSetup, SeatError};
use crate::observe::CardWatch;
use crate::process::{ProcessOptions, TensorFolder};
use crate::weights::{self, WeightsError};

/// What a replicate opens its cells with.
pub struct WorkshopSetup<'a> {
    /// The backend of kernel arms.
    pub backend: &'a dyn Backend,
    /// Tables that `default` is looked up in.
    pub tables: Tables,
    /// Commands of process arms.
    pub commands: Commands,
    /// How thoroughly arms are checked.
    pub plan: CheckPlan,
    /// Limits of process arms.
    pub process: ProcessOptions,
    /// CPUs this process may use; at least one.
    pub cpus: usize,
    /// Last-level cache in bytes, if the machine says. A backend with memory of its own says it itself.
    pub last_level_bytes: Option<u64>,
    /// Memory available in bytes, if the machine says. A backend with memory of its own says it itself.
    pub available_bytes: Option<u64>,
    /// The card that kernels run on, where it is one.
    pub card: Option<CardWatch>,
    /// A folder in which folders of tensors for process arms may be made.
    pub scratch: PathBuf,
}

/// Opens cells, checks their arms and seats them.
pub struct Workshop<'a> {
    setup: WorkshopSetup<'a>,
    checker: Checker,
    judged: JudgeCache,
    known: KnownVerdicts,
}

/// One of the two arms of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The incumbent.
    A,
    /// The challenger.
    B,
}

impl Side {
    /// `a` or `b`, the name of the field of a cell.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// A cell with everything its words stand for on this machine.
#[derive(Debug)]
pub struct OpenCell {
    /// Its words.
    pub spec: CellSpec,
    /// The incumbent.
    pub a: ResolvedArm,
    /// The challenger.
    pub b: ResolvedArm,
    /// Threads both arms run on.
    pub threads: usize,
    /// Least work of a launch.
    pub cost: Cost,
    /// Weights from a file.
    pub weights: Option<WeightSource>,
    case: Arc<JudgedCase>,
    tensors: Option<Arc<TensorFolder>>,
}

/// A cell that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cell `{cell}`: {fault}")]
pub struct OpenError {
    /// The cell.
    pub cell: String,
    /// What is wrong.
    pub fault: Box<OpenFault>,
}

/// What can be wrong with a cell.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// Its words break a rule.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// No such contract.
    #[error(transparent)]
    Contract(#[from] LookupError),
    /// No such problem.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// An arm stands for nothing here.
    #[error("arm {side}: {source}")]
    Arm {
        /// `a` or `b`.
        side: &'static str,
        /// Why.
        source: ResolveError,
    },
    /// Weights cannot be had.
    #[error(transparent)]
    Weights(#[from] Box<WeightsError>),
    /// The case cannot be judged.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// More threads than CPUs: the scheduler would be measured.
    #[error("{threads} threads, and this process may use {cpus} CPUs")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// CPUs there are.
        cpus: usize,
    },
    /// A cell of another kind of device.
    #[error("it is for the backend {asked}, and this is {here}")]
    Backend {
        /// What the cell asks for.
        asked: &'static str,
        /// What there is.
        here: &'static str,
    },
    /// A cell of a contract, or none.
    #[error("it is no workload")]
    NoWorkload,
    /// The model file of a workload cannot be read.
    #[error("model file {}: {source}", file.display())]
    Model {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Tensors for a process arm could not be written.
    #[error("tensors for process arms: {0}")]
    Files(std::io::Error),
}

/// An arm that cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The committed cases cannot be judged.
    #[error(transparent)]
    Case(#[from] Box<CaseError>),
    /// A process arm without a reference.
    #[error(transparent)]
    Peer(#[from] Box<PeerError>),
    /// The tensors of a process arm are not there.
    #[error("process arm `{0}` was not opened with the cell")]
    NoTensors(String),
}

impl<'a> Workshop<'a> {
    /// A workshop.
    ///
    /// # Errors
    /// [`CheckPlanError`] for a plan that checks nothing.
    pub fn new(setup: WorkshopSetup<'a>) -> Result<Self, CheckPlanError> {
        let checker = Checker::new(setup.plan.clone())?;
        Ok(Self { setup, checker, judged: JudgeCache::default(), known: KnownVerdicts::default() })
    }

    /// Finds what the words of a cell stand for, makes its inputs and runs the judges on them.
    ///
    /// # Errors
    /// [`OpenError`] naming the cell and the cause. Arms are looked up first, so that a cell that cannot run here says so at
    /// once.
    pub fn open(&self, spec: &CellSpec) -> Result<OpenCell, OpenError> {
        self.open_cell(spec).map_err(|fault| OpenError { cell: spec.name.clone(), fault: Box::new(fault) })
    }

    fn open_cell(&self, spec: &CellSpec) -> Result<OpenCell, OpenFault> {
        spec.check()?;
        let (asked, here) = (spec.backend.name(), self.setup.backend.name());
        if BackendKind::ALL.iter().any(|kind| kind.name() == here) && asked != here {
            return Err(OpenFault::Backend { asked, here });
        }
        let contract = registry::contract(&spec.contract)?;
        let problem = contract.normalise(&spec.problem.parse()?)?;
        let a = self.resolve(Side::A, &spec.a, contract, &problem)?;
        let b = self.resolve(Side::B, &spec.b, contract, &problem)?;
        let threads = self.threads(spec)?;
        let (family, seed) = (spec.family.as_str(), spec.input_seed);
        let (case, weights) = match &spec.weights {
            None => (self.judged.generated(contract, &problem, family, seed)?, None),
            Some(weights) => {
                let tensor = weights::load_tensor(&weights.file, &weights.tensor).map_err(Box::new)?;
                let inputs = weights::inputs_with(contract, &problem, family, seed, &tensor).map_err(Box::new)?;
                let digest = Some(tensor.sha256.clone());
                let weights = digest.clone();
                let id = CaseId { problem: problem.to_string(), family: family.to_owned(), seed, weights };
                let make = || JudgedCase::new(contract, &problem, family, seed, digest, inputs);
                (self.judged.recent(contract, &id, make)?, Some(tensor.source()))
            }
        };
        let is_process = |arm: &ResolvedArm| matches!(arm, ResolvedArm::Process(_));
        let tensors = if is_process(&a) || is_process(&b) {
            let folder = TensorFolder::write(&self.setup.scratch, case.inputs()).map_err(OpenFault::Files)?;
            Some(Arc::new(folder))
        } else {
            None
        };
        let cost = contract.cost(&problem)?;
        Ok(OpenCell { spec: spec.clone(), a, b, threads, cost, weights, case, tensors })
    }

    /// Threads of a cell; 0 stands for all CPUs. On a card it is the one that launches.
    fn threads(&self, spec: &CellSpec) -> Result<usize, OpenFault> {
        if self.setup.backend.facts().is_some() {
            return Ok(1);
        }
        let (cpus, asked) = (self.setup.cpus, spec.threads as usize);
        if asked > cpus {
            return Err(OpenFault::Threads { threads: asked, cpus });
        }
        Ok(if asked == 0 { cpus.max(1) } else { asked })
    }

    /// The device of the backend, as it stands in keys.
    pub fn device_key(&self) -> String {
        self.setup.backend.device_key().to_string()
    }

    /// Whether kernels run on a card, with memory and a clock of its own.
    pub fn is_card(&self) -> bool {
        self.setup.backend.facts().is_some()
    }

    /// Whether the device can do nothing more in this process.
    pub fn is_lost(&self) -> bool {
        self.setup.backend.is_lost()
    }

    fn resolve(
        &self,
        side: Side,
        text: &str,
        contract: &'static dyn Contract,
        problem: &Problem,
    ) -> Result<ResolvedArm, OpenFault> {
        let key = self.setup.backend.device_key();
        let (tables, commands) = (&self.setup.tables, &self.setup.commands);
        let resolved = text
            .parse::<ArmSpec>()
            .map_err(ResolveError::from)
            .and_then(|spec| arm::resolve(&spec, contract, problem, key, tables, commands));
        resolved.map_err(|source| OpenFault::Arm { side: side.name(), source })
    }

    /// Checks an arm of a cell: a kernel on the committed cases it serves and on the cell's own, a process on the cell's.
    ///
    /// A workshop judges a kernel once on a committed case and anew on the case of each cell; every gate says all of it.
    ///
    /// # Errors
    /// [`CheckError`] when there is nothing to judge by. A failed check is no error: it stands in the gate.
    pub fn check(&self, cell: &OpenCell, side: Side, replicate: u32) -> Result<Checked, CheckError> {
        match cell.arm(side) {
            ResolvedArm::Kernel(arm) => {
                let mut committed = self.committed(arm)?;
                committed.retain(|case| case.id() != cell.case.id());
                let cases = (&*committed, &[Arc::clone(&cell.case)][..]);
                Ok(self.checker.check_kernel_once(self.setup.backend, arm, cases, &self.known, replicate))
            }
            ResolvedArm::Process(arm) => {
                let Some(tensors) = &cell.tensors else { return Err(CheckError::NoTensors(arm.name.clone())) };
                let (case, options) = (&*cell.case, &self.setup.process);
                let check = ProcessCheck { case, tensors, threads: cell.threads, options };
                Ok(self.checker.check_process(arm, &check, replicate).map_err(Box::new)?)
            }
        }
    }

    /// Checks a variant on the committed cases it serves.
    ///
    /// # Errors
    /// [`CheckError`] when a committed case cannot be judged.
    pub fn check_committed(&self, arm: &KernelArm, replicate: u32) -> Result<Checked, CheckError> {
        Ok(self.checker.check_kernel(self.setup.backend, arm, &self.committed(arm)?, replicate))
    }

    fn committed(&self, arm: &KernelArm) -> Result<Vec<Arc<JudgedCase>>, Box<CaseError>> {
        let seed = self.setup.plan.committed_seed;
        let serves = |problem: &Problem| arm.contract.supports(arm.variant, problem).is_ok();
        self.judged.committed(arm.contract, seed, self.setup.cpus, &serves).map_err(Box::new)
    }

    /// Seats two checked arms of a cell.
    ///
    /// # Errors
    /// [`SeatError`] when a proof is of something else, the copies do not fit, or an arm cannot be laid out.
    pub fn seat(&self, cell: &OpenCell, a: Passed, b: Passed) -> Result<HostRunner<'a>, SeatError> {
        let facts = self.setup.backend.facts();
        let setup = HostSetup {
            backend: self.setup.backend,
            case: Arc::clone(&cell.case),
            cache: cell.spec.cache,
            threads: cell.threads,
            last_level_bytes: facts.map_or(self.setup.last_level_bytes, |facts| Some(facts.last_level_bytes)),
            available_bytes: facts.map_or(self.setup.available_bytes, |facts| facts.available_bytes),
            tensors: cell.tensors.clone(),
            process: self.setup.process.clone(),
            card: self.setup.card.clone(),
        };
        HostRunner::new(setup, (cell.a.clone(), a), (cell.b.clone(), b))
    }

    /// What must be equal before results of a cell may be compared, under a clock regime.
    pub fn key(&self, cell: &OpenCell, clock: &str) -> CellKey {
        let info = cell.case.contract().info();
        let has_process = cell.tensors.is_some();
        let own_mode = self.setup.backend.facts().map_or("pool", |facts| facts.host_mode);
        CellKey {
            contract: info.id.to_owned(),
            revision: info.revision,
            problem: cell.case.problem().to_string(),
            inputs: Inputs {
                generator: input::GENERATOR.to_owned(),
                family: cell.spec.family.clone(),
                seed: cell.spec.input_seed,
                weights: cell.weights.clone(),
            },
            device_key: self.device_key(),
            cache: cell.spec.cache.name().to_owned(),
            host_mode: if has_process { "process" } else { own_mode }.to_owned(),
            clock: clock.to_owned(),
            threads: u32::try_from(cell.threads).unwrap_or(u32::MAX),
        }
    }
}

impl OpenCell {
    /// An arm.
    pub fn arm(&self, side: Side) -> &ResolvedArm {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// The problem, normalised.
    pub fn problem(&self) -> &Problem {
        self.case.problem()
    }
}
