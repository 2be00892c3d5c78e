//! The check of a kernel arm.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use memra_contract::TensorSet;
use memra_contract::digest::Digest;
use memra_kernels::Prepared;
use memra_kernels::backend::Backend;
use memra_kernels::contract::LaunchError;
use memra_ledger::record::GateBody;

use super::case::{Judged, JudgedCase};
use super::compare::first_difference;
use super::failures::{Failures, Reason};
use super::passed::PassedCase;
use super::{Checked, Checker, Passed, Summary};
use crate::arm::KernelArm;

/// Copies of the rotating buffers that a check lays out: more than one, so that a kernel that reads the wrong copy is
/// found.
const COPIES: usize = 2;

impl Checker {
    /// Judges a kernel arm on cases of its contract.
    ///
    /// Every case runs on every number of threads of the plan, each output filled with a poison before each launch, both
    /// copies of the rotating buffers in turn. A launch that panics is a failure of the case and ends it.
    pub fn check_kernel(
        &self,
        backend: &dyn Backend,
        arm: &KernelArm,
        cases: &[Arc<JudgedCase>],
        replicate: u32,
    ) -> Checked {
        let mut summary = Summary::default();
        let mut failures = Failures::default();
        let mut passed = Vec::with_capacity(cases.len());
        for case in cases {
            let mut run = CaseRun::new(case, &mut failures);
            passed.extend(self.run_case(backend, arm, &mut run));
            summary.add(case, run.first.as_ref(), run.worst, run.runs);
        }
        if cases.is_empty() {
            failures.add("none", 0, Reason::Launch, "there is no case to judge: the variant serves none");
        }
        let info = arm.contract.info();
        let gate = GateBody {
            replicate,
            contract: info.id.to_owned(),
            revision: info.revision,
            variant: arm.variant.name.to_owned(),
            source_sha256: Some(arm.source_sha256.clone()),
            rule: "bits".to_owned(),
            order_class: Some(arm.variant.order_class.id.to_owned()),
            problems: summary.problems(),
            cases: summary.cases(),
            threads: self.plan.threads.iter().map(|threads| u32::try_from(*threads).unwrap_or(u32::MAX)).collect(),
            repeats: summary.repeats(),
            poison: self.plan.poison.clone(),
            max_error_ppb: summary.max_error_ppb(),
            allowed_error_ppb: summary.allowed_error_ppb(),
            output_sha256: summary.digest(),
            is_passed: failures.is_empty(),
            failures: failures.into_list(),
        };
        let passed =
            gate.is_passed.then(|| Passed::new(info.id, arm.variant.name, Some(arm.source_sha256.clone()), passed));
        Checked { gate, arm: arm.record(), passed }
    }

    fn run_case(&self, backend: &dyn Backend, arm: &KernelArm, run: &mut CaseRun<'_>) -> Option<PassedCase> {
        let case = run.case;
        let prepare = || backend.prepare(arm.contract, arm.variant, case.problem(), case.inputs(), COPIES);
        let mut prepared = match caught(prepare) {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) => {
                run.failures.add(&run.label, 0, Reason::Launch, &error.to_string());
                return None;
            }
            Err(message) => {
                run.failures.add(&run.label, 0, Reason::Launch, &format!("preparing panicked: {message}"));
                return None;
            }
        };
        let runs = self.runs_per_thread_count(case);
        for pool in &self.pools {
            for _ in 0..runs {
                let poison = self.plan.poison[run.runs % self.plan.poison.len()];
                let copy = run.runs / self.plan.poison.len() % COPIES;
                let launched = caught(|| {
                    prepared.poison(poison);
                    prepared.launch(pool, copy)?;
                    Ok((prepared.guards_hold(), prepared.outputs()))
                });
                match launched {
                    Ok(Ok((guards_hold, outputs))) => run.judge(pool.threads(), poison, guards_hold, &outputs),
                    Ok(Err(error)) => {
                        let error: LaunchError = error;
                        run.failures.add(&run.label, pool.threads(), Reason::Launch, &error.to_string());
                        return None;
                    }
                    Err(message) => {
                        let detail = format!("the launch panicked: {message}");
                        run.failures.add(&run.label, pool.threads(), Reason::Launch, &detail);
                        return None;
                    }
                }
            }
        }
        let copy_bytes = Prepared::copy_bytes(&*prepared);
        run.first.clone().map(|outputs| PassedCase { id: case.id().clone(), outputs, copy_bytes })
    }
}

/// One case on its way through the runs.
struct CaseRun<'a> {
    case: &'a JudgedCase,
    label: String,
    failures: &'a mut Failures,
    runs: usize,
    /// Outputs of the first run.
    first: Option<Digest>,
    first_outputs: TensorSet,
    /// Outputs that were judged already.
    judged: BTreeSet<Digest>,
    /// Largest error of any run with the allowed one.
    worst: (f64, f64),
}

impl<'a> CaseRun<'a> {
    fn new(case: &'a JudgedCase, failures: &'a mut Failures) -> Self {
        Self {
            case,
            label: case.id().to_string(),
            failures,
            runs: 0,
            first: None,
            first_outputs: TensorSet::default(),
            judged: BTreeSet::new(),
            worst: (0.0, 0.0),
        }
    }

    fn judge(&mut self, threads: usize, poison: u32, guards_hold: bool, outputs: &TensorSet) {
        self.runs += 1;
        if !guards_hold {
            self.failures.add(&self.label, threads, Reason::Guard, "bytes around an output were written");
        }
        let difference = first_difference(outputs, self.case.ordered(), Some(poison));
        let judged: Judged = match &difference {
            None => self.case.ordered_judged().clone(),
            Some(difference) => {
                let reason = if difference.is_poison { Reason::Poison } else { Reason::Bits };
                self.failures.add(&self.label, threads, reason, &difference.detail);
                self.case.judge(outputs)
            }
        };
        if self.judged.insert(judged.digest.clone()) {
            if let Some(detail) = &judged.non_finite {
                self.failures.add(&self.label, threads, Reason::NonFinite, detail);
            }
            if let Some(detail) = &judged.error.failure {
                self.failures.add(&self.label, threads, Reason::Error, detail);
            }
            if self.worst.1 == 0.0 || judged.error.worst > self.worst.0 {
                self.worst = (judged.error.worst, judged.error.allowed);
            }
        }
        match &self.first {
            None => {
                self.first = Some(judged.digest);
                self.first_outputs = outputs.clone();
            }
            // What was left of two poisons differs too, but is no second answer.
            Some(first) if *first != judged.digest && difference.is_none_or(|difference| !difference.is_poison) => {
                let place = first_difference(outputs, &self.first_outputs, None).map(|difference| difference.detail);
                let detail = format!("run {} differs from run 1: {}", self.runs, place.unwrap_or_default());
                self.failures.add(&self.label, threads, Reason::Repeat, &detail);
            }
            Some(_) => {}
        }
    }
}

/// The result, or the message of the panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panic_message(payload.as_ref()))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
