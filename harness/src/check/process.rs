//! The check of a process arm.

use memra_contract::ProblemError;
use memra_ledger::record::GateBody;

use super::case::{JudgedCase, judge};
use super::compare::first_difference;
use super::failures::{Failures, Reason};
use super::passed::PassedCase;
use super::{Checked, Checker, Passed, Summary};
use crate::arm::ProcessArm;
use crate::process::{Hello, ProcessChild, ProcessError, ProcessOptions, TensorFolder};

/// What a process arm is checked with.
#[derive(Debug, Clone, Copy)]
pub struct ProcessCheck<'a> {
    /// The case.
    pub case: &'a JudgedCase,
    /// Its inputs as files.
    pub tensors: &'a TensorFolder,
    /// Threads the child runs on.
    pub threads: usize,
    /// Limits.
    pub options: &'a ProcessOptions,
}

/// A process arm cannot be judged on a case.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The contract has no reference that a peer could be held to.
    #[error("process arm `{arm}` cannot be checked: contract `{contract}` has no reference for a peer on `{problem}`")]
    NoReference {
        /// The arm.
        arm: String,
        /// The contract.
        contract: &'static str,
        /// The problem.
        problem: String,
    },
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}

impl Checker {
    /// Judges a process arm on a case: every output within the contract's tolerance for peers, finite, and the same on
    /// every run. The child is started for it and ends with it. A child that fails is a failure of the gate.
    ///
    /// # Errors
    /// [`PeerError`] where the contract has no reference for a peer.
    pub fn check_process(
        &self,
        arm: &ProcessArm,
        check: &ProcessCheck<'_>,
        replicate: u32,
    ) -> Result<Checked, PeerError> {
        let case = check.case;
        let info = case.contract().info();
        let Some((reference, tolerance)) = case.peer_reference()? else {
            let (arm, problem) = (arm.name.clone(), case.problem().to_string());
            return Err(PeerError::NoReference { arm, contract: info.id, problem });
        };
        let label = case.id().to_string();
        let mut failures = Failures::default();
        let mut hello = None;
        let mut runs: Vec<_> = Vec::new();
        let mut first = None;
        if let Err(error) = self.run_child(arm, check, &mut hello, |outputs| {
            let judged = judge(case.contract(), &outputs, &reference, &tolerance);
            for (reason, detail) in [(Reason::NonFinite, &judged.non_finite), (Reason::Error, &judged.error.failure)] {
                if let Some(detail) = detail {
                    failures.add(&label, check.threads, reason, detail);
                }
            }
            let difference = first.as_ref().and_then(|first| first_difference(&outputs, first, None));
            if let Some(difference) = difference {
                let detail = format!("run {} differs from run 1: {}", runs.len() + 1, difference.detail);
                failures.add(&label, check.threads, Reason::Repeat, &detail);
            }
            first.get_or_insert(outputs);
            runs.push(judged);
        }) {
            failures.add(&label, check.threads, Reason::Launch, &error.to_string());
        }
        let worst = runs.iter().map(|run| run.error.worst).fold(0.0, f64::max);
        let outputs = runs.first().map(|run| run.digest.clone());
        let mut summary = Summary::default();
        summary.add(case.id(), outputs.as_ref(), (worst, tolerance.max_scaled_error), runs.len());
        let record = arm.record(hello.as_ref());
        let gate = GateBody {
            replicate,
            contract: info.id.to_owned(),
            revision: info.revision,
            variant: record.variant.clone(),
            source_sha256: None,
            rule: "error".to_owned(),
            order_class: None,
            problems: summary.problems(),
            cases: summary.cases(),
            threads: vec![u32::try_from(check.threads).unwrap_or(u32::MAX)],
            repeats: summary.repeats(),
            poison: Vec::new(),
            max_error_ppb: summary.max_error_ppb(),
            allowed_error_ppb: summary.allowed_error_ppb(),
            output_sha256: summary.digest(),
            is_passed: failures.is_empty(),
            failures: failures.into_list(),
        };
        let passed = outputs.filter(|_| gate.is_passed).map(|outputs| {
            let judged = PassedCase { id: case.id().clone(), outputs, copy_bytes: case.inputs().total_bytes() };
            Passed::new(info.id, &arm.name, None, vec![judged])
        });
        Ok(Checked { gate, arm: record, passed })
    }

    fn run_child(
        &self,
        arm: &ProcessArm,
        check: &ProcessCheck<'_>,
        hello: &mut Option<Hello>,
        mut judge: impl FnMut(memra_contract::TensorSet),
    ) -> Result<(), ProcessError> {
        let mut child = ProcessChild::start(arm, check.options)?;
        *hello = Some(child.hello().clone());
        let (case, problem) = (check.case, check.case.problem().to_string());
        child.load(case.contract().info().id, &problem, check.tensors, check.threads, 1)?;
        for _ in 0..self.plan.repeats {
            judge(child.check(check.tensors, case.ordered())?);
        }
        Ok(())
    }
}
