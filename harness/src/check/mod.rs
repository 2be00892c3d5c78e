//! The check: an arm against its contract, on cases, before anything of it is timed.
//!
//! A kernel arm must give the bits of its executable order class, stay within the contract's tolerance of the f64
//! reference, write every element, nothing around them and nothing that is not finite, and do so on every run and on any
//! number of threads. A process arm must stay within the tolerance the contract has for peers, and repeat itself.
//!
//! A kernel whose order class is a device's own has no bits to give: it must stay within the tolerance, repeat itself, and
//! give every row as it is alone and in any other place.
//!
//! Where a kernel can take its process with it, it is checked in a process of its own.
//!
//! What does not hold is data: it stands in the gate record. Only a check in which all of it held gives a [`Passed`].

mod case;
mod compare;
#[cfg(test)]
mod device_tests;
mod failures;
mod kernel;
mod passed;
mod process;
#[cfg(test)]
#[cfg(unix)]
mod process_tests;
mod summary;
#[cfg(test)]
mod tests;
mod worker;
#[cfg(test)]
mod worker_tests;

pub use case::{CaseError, CaseId, JudgeCache, JudgedCase, outputs_digest};
pub(crate) use failures::without_paths;
pub(crate) use kernel::caught;
pub use kernel::{CaseVerdict, KnownVerdicts};
pub use passed::Passed;
pub use process::{PeerError, ProcessCheck};
pub(crate) use summary::Summary;
pub use worker::{
    CaseRecipe, CheckWorker, FindContract, IsolatedCheck, Isolation, WorkAnswer, WorkRequest, WorkerEnd, WorkerError,
    WorkerProcess,
};

use memra_kernels::backend::Backend;
use memra_kernels::backend::host::Pool;
use memra_ledger::record::{self, GateBody};

/// How thoroughly a check looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckPlan {
    /// Numbers of threads every case runs on.
    pub threads: Vec<usize>,
    /// What outputs are filled with, in turn.
    pub poison: Vec<u32>,
    /// Runs of a case on each number of threads.
    pub repeats: usize,
    /// Operations of a launch from which on a case runs [`CheckPlan::repeats`] times over all numbers of threads together,
    /// and not on each.
    pub large_flops: u64,
    /// Seed of the committed cases.
    pub committed_seed: u64,
}

impl Default for CheckPlan {
    fn default() -> Self {
        Self {
            threads: vec![1, 2, 3, 7],
            // A quiet NaN that no kernel computes, and a small number that no case has.
            poison: vec![0x7fc0_dead, 0x0102_0304],
            repeats: 3,
            large_flops: 1 << 28,
            committed_seed: 42,
        }
    }
}

impl CheckPlan {
    /// The plan for a device: a card has no threads to vary, and runs each poison on each copy.
    pub fn for_backend(backend: &dyn Backend) -> Self {
        match backend.facts() {
            Some(_) => Self::for_card(),
            None => Self::default(),
        }
    }

    /// The plan for cards.
    pub fn for_card() -> Self {
        Self { threads: vec![1], repeats: 4, ..Self::default() }
    }
}

/// A plan that checks nothing, or threads that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CheckPlanError {
    /// Nothing would be checked.
    #[error("a check needs at least one {0}")]
    Empty(&'static str),
    /// The system starts no more threads.
    #[error("a pool of {threads} threads for the check: {source}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// The record of the check, passed or not.
    pub gate: GateBody,
    /// The arm as it stands in a cell record; its gate is filled in when the record has an id.
    pub arm: record::Arm,
    /// The proof, where everything held.
    pub passed: Option<Passed>,
}

/// Checks arms, with its own pools of threads.
#[derive(Debug)]
pub struct Checker {
    plan: CheckPlan,
    pools: Vec<Pool>,
}

impl Checker {
    /// A checker of a plan.
    ///
    /// # Errors
    /// [`CheckPlanError`] for a plan that checks nothing.
    pub fn new(plan: CheckPlan) -> Result<Self, CheckPlanError> {
        for (what, is_empty) in [
            ("number of threads", plan.threads.is_empty()),
            ("poison", plan.poison.is_empty()),
            ("run", plan.repeats == 0),
        ] {
            if is_empty {
                return Err(CheckPlanError::Empty(what));
            }
        }
        let start = |threads: &usize| {
            Pool::new(*threads).map_err(|source| CheckPlanError::Threads { threads: *threads, source })
        };
        let pools = plan.threads.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { plan, pools })
    }

    /// The plan.
    pub fn plan(&self) -> &CheckPlan {
        &self.plan
    }

    /// Runs of a case on each number of threads.
    fn runs_per_thread_count(&self, case: &JudgedCase) -> usize {
        let cost = case.contract().cost(case.problem());
        if cost.is_ok_and(|cost| cost.flops >= self.plan.large_flops) {
            self.plan.repeats.div_ceil(self.pools.len())
        } else {
            self.plan.repeats
        }
    }
}
