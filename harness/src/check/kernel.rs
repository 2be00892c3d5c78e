//! The check of a kernel arm.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use memra_contract::digest::Digest;
use memra_contract::{Problem, TensorSet};
use memra_kernels::Prepared;
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::Pool;
use memra_kernels::contract::LaunchError;
use memra_ledger::record::{GateBody, GateFailure};
use serde::{Deserialize, Serialize};

use super::case::{CaseId, Judged, JudgedCase};
use super::compare::{first_difference, first_row_difference, first_unwritten};
use super::failures::{Failures, Reason};
use super::passed::PassedCase;
use super::summary::LARGEST;
use super::{CheckPlan, Checked, Checker, Passed, Summary};
use crate::arm::KernelArm;

/// Copies of the rotating buffers that a check lays out: more than one, so that a kernel that reads the wrong copy is
/// found.
const COPIES: usize = 2;

/// What a check found on one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseVerdict {
    /// What did not hold.
    pub failures: Vec<GateFailure>,
    /// sha256 of the outputs of the first run.
    pub outputs: Option<Digest>,
    /// Largest error of any run, as a fraction of the scale, with the allowed one.
    pub worst: (f64, f64),
    /// Runs.
    pub runs: usize,
    /// Bytes of one copy of what rotates, where the case was run to its end.
    pub copy_bytes: Option<usize>,
}

impl CaseVerdict {
    /// A case that could not be launched, or whose process did not survive it.
    pub(super) fn not_launched(case: &str, why: &str) -> Self {
        let mut failures = Failures::default();
        failures.add(case, 0, Reason::Launch, why);
        Self { failures: failures.into_list(), outputs: None, worst: (0.0, 0.0), runs: 0, copy_bytes: None }
    }
}

/// Verdicts on committed cases that hold for the rest of a process: the same source text on the same inputs on one device.
#[derive(Debug, Default)]
pub struct KnownVerdicts(Mutex<BTreeMap<VerdictKey, CaseVerdict>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VerdictKey {
    contract: &'static str,
    variant: &'static str,
    source: Digest,
    case: CaseId,
}

impl CheckPlan {
    /// The check of a kernel arm, of what was found on each case.
    pub fn checked(&self, arm: &KernelArm, verdicts: Vec<(CaseId, CaseVerdict)>, replicate: u32) -> Checked {
        let mut summary = Summary::default();
        let mut failures = Failures::default();
        let mut passed = Vec::with_capacity(verdicts.len());
        if verdicts.is_empty() {
            failures.add("none", 0, Reason::Launch, "there is no case to judge: the variant serves none");
        }
        for (id, verdict) in verdicts {
            summary.add(&id, verdict.outputs.as_ref(), verdict.worst, verdict.runs);
            failures.extend(verdict.failures);
            if let (Some(outputs), Some(copy_bytes)) = (verdict.outputs, verdict.copy_bytes) {
                passed.push(PassedCase { id, outputs, copy_bytes });
            }
        }
        let info = arm.contract.info();
        let order_class = arm.variant.order_class;
        let gate = GateBody {
            replicate,
            contract: info.id.to_owned(),
            revision: info.revision,
            variant: arm.variant.name.to_owned(),
            source_sha256: Some(arm.source_sha256.clone()),
            rule: if order_class.is_device() { "rows" } else { "bits" }.to_owned(),
            order_class: Some(order_class.id.to_owned()),
            problems: summary.problems(),
            cases: summary.cases(),
            threads: self.threads.iter().map(|threads| u32::try_from(*threads).unwrap_or(u32::MAX)).collect(),
            repeats: summary.repeats(),
            poison: self.poison.clone(),
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
}

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
        let verdicts = cases.iter().map(|case| (case.id().clone(), self.judge_case(backend, arm, case))).collect();
        self.plan.checked(arm, verdicts, replicate)
    }

    /// Judges a kernel arm on committed cases and on others. The verdicts on committed ones are taken from `known` where
    /// the same source text was judged on them before with the same plan, and kept there; the others are judged anew.
    pub fn check_kernel_once(
        &self,
        backend: &dyn Backend,
        arm: &KernelArm,
        (committed, others): (&[Arc<JudgedCase>], &[Arc<JudgedCase>]),
        known: &KnownVerdicts,
        replicate: u32,
    ) -> Checked {
        let judge = |case: &Arc<JudgedCase>| (case.id().clone(), self.judge_case(backend, arm, case));
        let mut verdicts: Vec<_> = committed
            .iter()
            .map(|case| {
                let key = VerdictKey {
                    contract: arm.contract.info().id,
                    variant: arm.variant.name,
                    source: arm.source_sha256.clone(),
                    case: case.id().clone(),
                };
                // A poisoned lock only says that another check panicked; what stands in the map is whole.
                let lock = || known.0.lock().unwrap_or_else(PoisonError::into_inner);
                let found = lock().get(&key).cloned();
                let verdict = found.unwrap_or_else(|| {
                    let verdict = self.judge_case(backend, arm, case);
                    lock().insert(key, verdict.clone());
                    verdict
                });
                (case.id().clone(), verdict)
            })
            .collect();
        verdicts.extend(others.iter().map(judge));
        self.plan.checked(arm, verdicts, replicate)
    }

    /// Judges a kernel arm on one case.
    pub fn judge_case(&self, backend: &dyn Backend, arm: &KernelArm, case: &JudgedCase) -> CaseVerdict {
        let mut failures = Failures::default();
        let mut run = CaseRun::new(case, arm.variant.order_class.is_device(), &mut failures);
        let copy_bytes = self.run_case(backend, arm, &mut run);
        // An infinite error has no JSON.
        let worst = (run.worst.0.min(LARGEST), run.worst.1);
        let (outputs, runs) = (run.first.clone(), run.runs);
        CaseVerdict { failures: failures.into_list(), outputs, worst, runs, copy_bytes }
    }

    /// Runs a case to its end and gives the bytes of one copy of what rotates; nothing where a launch failed.
    fn run_case(&self, backend: &dyn Backend, arm: &KernelArm, run: &mut CaseRun<'_>) -> Option<usize> {
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
        drop(prepared);
        if let (true, Some(pool)) = (run.is_device, self.pools.first()) {
            let launch = Launch { backend, arm, pool, poison: self.plan.poison[0] };
            if let Err(why) = judge_rows(&launch, case, &run.first_outputs) {
                run.failures.add(&run.label, pool.threads(), why.0, &why.1);
            }
        }
        Some(copy_bytes)
    }
}

/// One case on its way through the runs.
struct CaseRun<'a> {
    case: &'a JudgedCase,
    /// Whether the order class is a device's own, so that there are no bits to compare with.
    is_device: bool,
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
    fn new(case: &'a JudgedCase, is_device: bool, failures: &'a mut Failures) -> Self {
        Self {
            case,
            is_device,
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
        let ordered = self.case.ordered();
        let difference = if self.is_device {
            first_unwritten(outputs, ordered, poison)
        } else {
            first_difference(outputs, ordered, Some(poison))
        };
        let judged: Judged = match &difference {
            None if self.is_device => self.case.judge(outputs),
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

/// What launches of other rows are made with.
struct Launch<'a> {
    backend: &'a dyn Backend,
    arm: &'a KernelArm,
    pool: &'a Pool,
    poison: u32,
}

impl Launch<'_> {
    /// Outputs of one launch; nothing where the variant does not serve the problem.
    fn outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<Option<TensorSet>, (Reason, String)> {
        let arm = self.arm;
        if arm.contract.supports(arm.variant, problem).is_err() {
            return Ok(None);
        }
        let failed = |why: String| (Reason::Launch, format!("{problem}: {why}"));
        let launched = caught(|| {
            let prepared = self.backend.prepare(arm.contract, arm.variant, problem, inputs, 1);
            let mut prepared = prepared.map_err(|error| error.to_string())?;
            prepared.poison(self.poison);
            prepared.launch(self.pool, 0).map_err(|error| error.to_string())?;
            Ok(prepared.outputs())
        });
        launched.map_err(|message| failed(format!("panicked: {message}")))?.map(Some).map_err(failed)
    }
}

/// Rows of a problem that are judged alone.
fn probed_rows(m: usize) -> Vec<usize> {
    if m <= 4 { (0..m).collect() } else { vec![0, 1, m / 2, m - 1] }
}

/// Holds rows of outputs to what they are alone, and to what they are half the rows further on. A contract whose rows do not
/// stand alone is not held to anything.
///
/// A variant that serves no single row gets as many of the same as it needs.
fn judge_rows(launch: &Launch<'_>, case: &JudgedCase, outputs: &TensorSet) -> Result<(), (Reason, String)> {
    let contract = launch.arm.contract;
    let m = outputs.iter().find_map(|tensor| tensor.shape.first().copied()).unwrap_or(0);
    let least = usize::try_from(launch.arm.variant.rows.0).unwrap_or(1).max(1);
    let hold = |rows: &[usize], place: &dyn Fn(usize) -> String| {
        let Some((problem, inputs)) = contract.picked_rows(case.problem(), case.inputs(), rows) else { return Ok(()) };
        let Some(picked) = launch.outputs(&problem, &inputs)? else { return Ok(()) };
        for (at, row) in rows.iter().enumerate() {
            if let Some(detail) = first_row_difference((&picked, at), (outputs, *row)) {
                return Err((Reason::Rows, format!("row {row} of {m} {}: {detail}", place(at))));
            }
        }
        Ok(())
    };
    for row in probed_rows(m) {
        hold(&vec![row; least], &|_| "differs when it is alone".to_owned())?;
    }
    let moved: Vec<usize> = (0..m).map(|at| (at + m.div_ceil(2)) % m).collect();
    if m > 1 { hold(&moved, &|at| format!("differs in the place of row {at}")) } else { Ok(()) }
}

/// The result, or the message of the panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panic_message(payload.as_ref()))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
