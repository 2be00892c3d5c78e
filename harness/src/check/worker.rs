//! Checks in another process: what a kernel on a card breaks is that process and no more.
//!
//! The worker reads a [`WorkRequest`] a line and answers each with a [`WorkAnswer`]; a request is one variant on one case, so
//! that a crash costs one case. The parent starts another worker after a crash, after a fault that cost the device, and after
//! a silence.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use memra_contract::Problem;
use memra_kernels::Contract;
use memra_kernels::backend::Backend;
use memra_kernels::out_of_tree::ArmText;
use serde::{Deserialize, Serialize};

use super::case::{CaseId, JudgeCache, JudgedCase};
use super::kernel::CaseVerdict;
use super::{CheckPlan, Checked, Checker};
use crate::arm::KernelArm;
use crate::cell::FileTensor;
use crate::process::pipe::{LastWords, Said, read_lines};
use crate::weights;

/// Crashes of one variant after which its other cases are not tried: each costs a new process and its judges.
const MOST_CRASHES: usize = 3;

/// What a case is made from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRecipe {
    /// Problem in canonical text.
    pub problem: String,
    /// Input family.
    pub family: String,
    /// Seed.
    pub seed: u64,
    /// Weights from a file in the place of generated ones.
    pub weights: Option<(std::path::PathBuf, String)>,
}

impl CaseRecipe {
    /// A case with generated inputs.
    pub fn generated(problem: &Problem, family: &str, seed: u64) -> Self {
        Self { problem: problem.to_string(), family: family.to_owned(), seed, weights: None }
    }

    /// The same with weights from a file.
    #[must_use]
    pub fn with_weights(self, weights: FileTensor) -> Self {
        Self { weights: Some((weights.file, weights.tensor)), ..self }
    }

    /// Its name as far as the recipe tells it.
    fn id(&self) -> CaseId {
        CaseId { problem: self.problem.clone(), family: self.family.clone(), seed: self.seed, weights: None }
    }
}

/// One variant on one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkRequest {
    /// Contract.
    pub contract: String,
    /// Variant.
    pub variant: String,
    /// Case.
    pub case: CaseRecipe,
    /// Name and text of a file that is the variant, where it is none of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<(String, String)>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkAnswer {
    /// The case was judged.
    Judged {
        /// Its name.
        id: CaseId,
        /// What was found.
        verdict: Box<CaseVerdict>,
        /// Whether the device can do nothing more in the worker, which ends.
        is_lost: bool,
    },
    /// There is nothing to judge.
    Refused {
        /// Why.
        why: String,
    },
}

/// Finds a contract by name.
pub type FindContract = dyn Fn(&str) -> Result<&'static dyn Contract, String>;

/// The worker's side.
pub struct CheckWorker<'a> {
    backend: &'a dyn Backend,
    checker: Checker,
    find: &'a FindContract,
    judged: JudgeCache,
    others: BTreeMap<(String, CaseRecipe), Arc<JudgedCase>>,
    cpus: usize,
}

impl<'a> CheckWorker<'a> {
    /// A worker on a device that judges on so many CPUs.
    pub fn new(backend: &'a dyn Backend, checker: Checker, find: &'a FindContract, cpus: usize) -> Self {
        Self { backend, checker, find, judged: JudgeCache::default(), others: BTreeMap::new(), cpus }
    }

    /// Answers requests until there are no more, or the device is lost.
    ///
    /// # Errors
    /// When a line cannot be read or written, or is no request.
    pub fn serve(&mut self, input: impl BufRead, output: &mut impl Write) -> std::io::Result<()> {
        for line in input.lines() {
            let request: WorkRequest = serde_json::from_str(&line?)?;
            let answer = self.answer(&request);
            writeln!(output, "{}", serde_json::to_string(&answer)?)?;
            output.flush()?;
            if matches!(answer, WorkAnswer::Judged { is_lost: true, .. }) {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &WorkRequest) -> WorkAnswer {
        let judge = || -> Result<(KernelArm, Arc<JudgedCase>), String> {
            if let Some((name, text)) = &request.file {
                let text = ArmText { name: name.clone(), text: text.clone() };
                let arm = KernelArm::of_text(&text, self.backend.device_key()).map_err(|error| error.to_string())?;
                let case = self.case(&arm, &request.case)?;
                return Ok((arm, case));
            }
            let contract = (self.find)(&request.contract)?;
            let variant = contract.variants().iter().find(|variant| variant.name == request.variant);
            let variant = variant.ok_or_else(|| format!("no variant `{}/{}`", request.contract, request.variant))?;
            let arm = KernelArm::explicit(contract, variant);
            let case = self.case(&arm, &request.case)?;
            Ok((arm, case))
        };
        match judge() {
            Err(why) => WorkAnswer::Refused { why },
            Ok((arm, case)) => {
                if request.case.weights.is_some() {
                    self.others.insert((request.contract.clone(), request.case.clone()), Arc::clone(&case));
                }
                let verdict = Box::new(self.checker.judge_case(self.backend, &arm, &case));
                // A fault of a kernel shows as a failed launch; only then the device is asked.
                let is_lost = !verdict.failures.is_empty() && self.backend.is_lost();
                WorkAnswer::Judged { id: case.id().clone(), verdict, is_lost }
            }
        }
    }

    fn case(&self, arm: &KernelArm, recipe: &CaseRecipe) -> Result<Arc<JudgedCase>, String> {
        let contract = arm.contract;
        let (family, seed) = (recipe.family.as_str(), recipe.seed);
        let known = self.others.get(&(contract.info().id.to_owned(), recipe.clone()));
        if let Some(case) = known {
            return Ok(Arc::clone(case));
        }
        let problem: Problem = recipe.problem.parse().map_err(|error| format!("{error}"))?;
        let problem = contract.normalise(&problem).map_err(|error| error.to_string())?;
        if let Some((file, tensor)) = &recipe.weights {
            let tensor = weights::load_tensor(file, tensor).map_err(|error| error.to_string())?;
            let inputs = weights::inputs_with(contract, &problem, family, seed, &tensor);
            let inputs = inputs.map_err(|error| error.to_string())?;
            let digest = Some(tensor.sha256.clone());
            let case = JudgedCase::new(contract, &problem, family, seed, digest, inputs);
            return case.map(Arc::new).map_err(|error| error.to_string());
        }
        // The other cases of the variant are asked for next, and are judged side by side with this one.
        let serves = |problem: &Problem| contract.supports(arm.variant, problem).is_ok();
        let committed = self.judged.committed(contract, seed, self.cpus, &serves).map_err(|error| error.to_string())?;
        let text = problem.to_string();
        let known = committed.iter().find(|case| case.id().problem == text && case.id().family == family);
        if let Some(case) = known {
            return Ok(Arc::clone(case));
        }
        self.judged.generated(contract, &problem, family, seed).map_err(|error| error.to_string())
    }
}

/// The parent's end of a worker.
pub trait WorkerEnd {
    /// Has a case judged.
    ///
    /// # Errors
    /// Why there is no answer: the worker is gone then.
    fn ask(&mut self, request: &WorkRequest) -> Result<WorkAnswer, String>;
}

/// A check in another process cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The worker could not be started.
    #[error("the process of the check: {0}")]
    Start(#[from] std::io::Error),
    /// A case cannot be judged.
    #[error("`{contract}` {problem}: {why}")]
    Refused {
        /// Contract.
        contract: &'static str,
        /// Problem.
        problem: String,
        /// Why.
        why: String,
    },
}

/// Starts a worker.
pub type Isolation<'a> = dyn FnMut() -> std::io::Result<Box<dyn WorkerEnd>> + 'a;

/// Checks kernel arms in workers, one at a time.
pub struct IsolatedCheck<'a> {
    plan: CheckPlan,
    start: Box<Isolation<'a>>,
    worker: Option<Box<dyn WorkerEnd>>,
}

impl<'a> IsolatedCheck<'a> {
    /// A check by a plan, which the workers have too.
    pub fn new(plan: CheckPlan, start: Box<Isolation<'a>>) -> Self {
        Self { plan, start, worker: None }
    }

    /// Judges a kernel arm on cases of its contract. What a crash leaves is a failure of its case, and the rest goes on.
    ///
    /// # Errors
    /// [`WorkerError`] when no worker starts or a case is none.
    pub fn check(&mut self, arm: &KernelArm, cases: &[CaseRecipe], replicate: u32) -> Result<Checked, WorkerError> {
        let (contract, variant) = (arm.contract.info().id, arm.variant.name);
        let mut verdicts = Vec::with_capacity(cases.len());
        let mut crashes = 0;
        for case in cases {
            let not_launched = |why: String| {
                let id = case.id();
                let verdict =
                    CaseVerdict::not_launched(&id.to_string(), &format!("{contract}/{variant} on {id}: {why}"));
                (id, verdict)
            };
            if crashes >= MOST_CRASHES {
                verdicts.push(not_launched(format!("not tried: the variant ended {crashes} processes")));
                continue;
            }
            let worker = match &mut self.worker {
                Some(worker) => worker,
                None => self.worker.insert((self.start)()?),
            };
            let file = arm.contract.arm_file().map(|file| (file.text().name.clone(), file.text().text.clone()));
            let request =
                WorkRequest { contract: contract.to_owned(), variant: variant.to_owned(), case: case.clone(), file };
            match worker.ask(&request) {
                Ok(WorkAnswer::Judged { id, verdict, is_lost }) => {
                    verdicts.push((id, *verdict));
                    if is_lost {
                        self.worker = None;
                        crashes += 1;
                    }
                }
                Ok(WorkAnswer::Refused { why }) => {
                    return Err(WorkerError::Refused { contract, problem: case.problem.clone(), why });
                }
                Err(why) => {
                    self.worker = None;
                    crashes += 1;
                    verdicts.push(not_launched(why));
                }
            }
        }
        Ok(self.plan.checked(arm, verdicts, replicate))
    }
}

/// A worker that is a child process.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Said>,
    words: LastWords,
    patience: Duration,
}

impl WorkerProcess {
    /// Starts a command that serves requests. An answer may take `patience`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(mut command: Command, patience: Duration) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let gone = || std::io::Error::other("a pipe is missing");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().ok_or_else(gone)?);
        let words = LastWords::listen(child.stderr.take().ok_or_else(gone)?)?;
        Ok(Self { child, stdin, answers: read_lines(stdout)?, words, patience })
    }

    fn ended(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = self.words.read();
        let words = if words.is_empty() { String::new() } else { format!("; its last words: {}", words.join(" | ")) };
        format!("the process ended with {status}{words}")
    }
}

impl WorkerEnd for WorkerProcess {
    fn ask(&mut self, request: &WorkRequest) -> Result<WorkAnswer, String> {
        let line = serde_json::to_string(request).map_err(|error| error.to_string())?;
        // What a child that is gone does not read is told by its silence.
        let _ = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match self.answers.recv_timeout(self.patience) {
            Ok(Said::Line(line)) => {
                serde_json::from_str(&line).map_err(|error| format!("`{line}` is no answer: {error}"))
            }
            Ok(Said::Unreadable(line)) => Err(format!("`{line}` is no answer")),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", self.patience.as_secs())),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // A worker ends at the end of its input; one that hangs in a kernel does not.
        self.stdin = None;
        let is_over = self.answers.recv_timeout(Duration::from_secs(2));
        if !matches!(is_over, Err(RecvTimeoutError::Disconnected)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
