//! Workers that answer, refuse, crash and lose their device.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use memra_contract::device::{CudaArch, CudaClass};
use memra_contract::{DeviceKey, Problem, TensorSet};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::{HostBackend, Pool};
use memra_kernels::backend::null::NullBackend;
use memra_kernels::contract::{LaunchError, PrepareError, Prepared, Variant};
use memra_kernels::out_of_tree::ArmText;
use memra_kernels::{Contract, registry};

use super::worker::{CaseRecipe, CheckWorker, IsolatedCheck, WorkAnswer, WorkRequest, WorkerEnd};
use super::*;
use crate::arm::KernelArm;

/// The host as a device that one launch in so many breaks for good.
struct Fragile {
    host: HostBackend,
    breaks_on: Option<&'static str>,
    is_broken: Arc<Mutex<bool>>,
}

struct FragilePrepared {
    inner: Box<dyn Prepared>,
    breaks: bool,
    is_broken: Arc<Mutex<bool>>,
}

impl Prepared for FragilePrepared {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let mut is_broken = self.is_broken.lock().unwrap();
        *is_broken |= self.breaks;
        if *is_broken {
            return Err(LaunchError("illegal address".to_owned()));
        }
        self.inner.launch(pool, copy)
    }

    fn outputs(&self) -> TensorSet {
        self.inner.outputs()
    }

    fn poison(&mut self, pattern: u32) {
        self.inner.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.inner.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.inner.copy_bytes()
    }
}

impl Backend for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn device_key(&self) -> DeviceKey {
        self.host.device_key()
    }

    fn is_lost(&self) -> bool {
        *self.is_broken.lock().unwrap()
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let inner = self.host.prepare(contract, variant, problem, inputs, copies)?;
        let breaks = self.breaks_on.is_some_and(|text| problem.to_string().contains(text));
        Ok(Box::new(FragilePrepared { inner, breaks, is_broken: Arc::clone(&self.is_broken) }))
    }
}

fn fragile(breaks_on: Option<&'static str>) -> Fragile {
    Fragile { host: HostBackend::detect(), breaks_on, is_broken: Arc::default() }
}

fn plan() -> CheckPlan {
    CheckPlan { threads: vec![1], repeats: 4, ..CheckPlan::default() }
}

fn find(name: &str) -> Result<&'static dyn Contract, String> {
    registry::contract(name).map_err(|error| error.to_string())
}

fn arm() -> KernelArm {
    let contract = registry::contract("swiglu").unwrap();
    KernelArm::explicit(contract, registry::variant(contract, "scalar").unwrap())
}

fn recipes() -> Vec<CaseRecipe> {
    let contract = registry::contract("swiglu").unwrap();
    let mut recipes = Vec::new();
    for case in &contract.cases().cases {
        let problem = contract.normalise(&case.problem().unwrap()).unwrap();
        recipes.extend(case.families.iter().map(|family| CaseRecipe::generated(&problem, family, 42)));
    }
    recipes
}

/// A worker in this process: every line goes through the text it would be on the way to a child.
struct Here {
    breaks_on: Option<&'static str>,
    backend: Fragile,
}

impl WorkerEnd for Here {
    fn ask(&mut self, request: &WorkRequest) -> Result<WorkAnswer, String> {
        assert!(!self.backend.is_lost(), "a worker that lost its device is not asked again");
        if self.breaks_on.is_some_and(|text| request.case.problem.contains(text)) {
            return Err("the process ended with signal: 11".to_owned());
        }
        let mut worker = CheckWorker::new(&self.backend, Checker::new(plan()).unwrap(), &find, 2);
        let line = format!("{}\n", serde_json::to_string(request).unwrap());
        let mut out = Vec::new();
        worker.serve(line.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        Ok(serde_json::from_slice(&out).unwrap())
    }
}

/// Checks with workers whose process or device breaks on a problem; how many were started.
fn isolated(cases: &[CaseRecipe], process: Option<&'static str>, device: Option<&'static str>) -> (Checked, usize) {
    let mut started = 0;
    let checked = {
        let start = || -> std::io::Result<Box<dyn WorkerEnd>> {
            started += 1;
            Ok(Box::new(Here { breaks_on: process, backend: fragile(device) }))
        };
        IsolatedCheck::new(plan(), Box::new(start)).check(&arm(), cases, 3).unwrap()
    };
    (checked, started)
}

#[test]
fn a_check_in_a_worker_is_the_check_here() {
    let cases = recipes();
    let (checked, started) = isolated(&cases, None, None);
    let cache = JudgeCache::default();
    let judged = cache.committed(arm().contract, 42, 2, &|_| true).unwrap();
    let here = Checker::new(plan()).unwrap().check_kernel(&fragile(None), &arm(), &judged, 3);
    assert_eq!((checked.gate, started), (here.gate, 1));
    let (a, b) = (checked.passed.unwrap(), here.passed.unwrap());
    assert_eq!(a.case(judged[0].id()), b.case(judged[0].id()));
}

#[test]
fn a_crash_costs_its_case_and_the_rest_goes_on() {
    let cases = recipes();
    let last = cases.last().unwrap().problem.clone();
    let broken = cases.iter().filter(|case| case.problem == last).count().min(3);
    let last: &'static str = Box::leak(last.into_boxed_str());
    for (process, device, detail) in [(Some(last), None, "signal: 11"), (None, Some(last), "illegal address")] {
        let (checked, started) = isolated(&cases, process, device);
        let gate = checked.gate;
        assert!(!gate.is_passed && checked.passed.is_none());
        assert_eq!((gate.cases as usize, gate.replicate), (cases.len(), 3));
        assert!(gate.failures.len() >= broken, "{:?}", gate.failures);
        for failure in &gate.failures {
            assert_eq!(failure.reason, "launch");
            assert!(failure.case.starts_with(last), "{failure:?}");
        }
        assert!(gate.failures[0].detail.contains(detail), "{:?}", gate.failures);
        assert!(started >= broken, "{started}");
    }
    let (checked, _) = isolated(&cases, Some(last), None);
    let wanted = format!("swiglu/scalar on {last}");
    assert!(checked.gate.failures[0].detail.contains(&wanted), "{:?}", checked.gate.failures);
}

/// A worker whose device computes nothing.
struct Planning(NullBackend);

impl WorkerEnd for Planning {
    fn ask(&mut self, request: &WorkRequest) -> Result<WorkAnswer, String> {
        let mut worker = CheckWorker::new(&self.0, Checker::new(plan()).unwrap(), &find, 2);
        let line = format!("{}\n", serde_json::to_string(request).unwrap());
        let mut out = Vec::new();
        worker.serve(line.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        Ok(serde_json::from_slice(&out).unwrap())
    }
}

#[test]
fn a_file_reaches_the_worker_as_text() {
    let class = CudaClass { arch: CudaArch::Sm90a, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 };
    let backend = NullBackend::new(DeviceKey::Cuda(class));
    let text = ArmText {
        name: "quantise_warp.cu".to_owned(),
        text: include_str!("../../../docs/examples/quantise_warp.cu").to_owned(),
    };
    let arm = KernelArm::of_text(&text, backend.device_key()).unwrap();
    assert_eq!(arm.chosen, "out-of-tree");
    let problem = arm.contract.normalise(&"m=2,k=64".parse().unwrap()).unwrap();
    let cases = [CaseRecipe::generated(&problem, "normal", 42)];
    let start = || -> std::io::Result<Box<dyn WorkerEnd>> { Ok(Box::new(Planning(backend.clone()))) };
    let gate = IsolatedCheck::new(plan(), Box::new(start)).check(&arm, &cases, 0).unwrap().gate;
    assert_eq!((gate.variant.as_str(), gate.source_sha256), ("quantise_warp", Some(arm.variant.source_sha256())));
    assert!(gate.failures.iter().any(|failure| failure.reason == "poison"), "{:?}", gate.failures);
    assert!(backend.launches() > 0);
    let mut wrong = WorkRequest {
        contract: "quantise".to_owned(),
        variant: "quantise_warp".to_owned(),
        case: cases[0].clone(),
        file: Some((text.name.clone(), "int a;".to_owned())),
    };
    let Ok(WorkAnswer::Refused { why }) = Planning(backend.clone()).ask(&wrong) else { panic!() };
    assert!(why.contains("quantise_warp.cu, line 1"), "{why}");
    wrong.file = None;
    let Ok(WorkAnswer::Refused { why }) = Planning(backend).ask(&wrong) else { panic!() };
    assert!(why.contains("no variant `quantise/quantise_warp`"), "{why}");
}

#[test]
fn a_variant_that_always_crashes_is_given_up() {
    let cases = recipes();
    let (checked, started) = isolated(&cases, Some("m="), None);
    assert_eq!((started, checked.gate.failures.len()), (3, cases.len().min(32)));
    let last = &checked.gate.failures.last().unwrap().detail;
    assert!(last.contains("not tried: the variant ended 3 processes"), "{last}");
}

#[test]
fn cases_that_are_none_are_refused() {
    let start =
        || -> std::io::Result<Box<dyn WorkerEnd>> { Ok(Box::new(Here { breaks_on: None, backend: fragile(None) })) };
    let mut check = IsolatedCheck::new(plan(), Box::new(start));
    let case = CaseRecipe { problem: "m=1".to_owned(), ..recipes()[0].clone() };
    let error = check.check(&arm(), &[case], 0).unwrap_err().to_string();
    assert!(error.starts_with("`swiglu` m=1: "), "{error}");
    let mut check = IsolatedCheck::new(plan(), Box::new(|| Err(std::io::Error::other("no program"))));
    let error = check.check(&arm(), &recipes()[..1], 0).unwrap_err().to_string();
    assert!(error.contains("no program"), "{error}");
    let answers = VecDeque::from([WorkAnswer::Refused { why: "because".to_owned() }]);
    let text = serde_json::to_string(&answers[0]).unwrap();
    assert_eq!(text, r#"{"line":"refused","why":"because"}"#);
}

#[cfg(unix)]
#[test]
fn a_child_is_asked_line_by_line_and_its_death_has_a_reason() {
    use super::worker::WorkerProcess;
    use std::process::Command;
    use std::time::Duration;
    let shell = |script: &str, patience| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        WorkerProcess::start(command, Duration::from_millis(patience)).unwrap()
    };
    let request = WorkRequest {
        contract: "swiglu".to_owned(),
        variant: "scalar".to_owned(),
        case: recipes()[0].clone(),
        file: None,
    };
    let refused = r#"read line; echo '{"line":"refused","why":"no"}'"#;
    let answer = shell(refused, 20_000).ask(&request);
    assert_eq!(answer, Ok(WorkAnswer::Refused { why: "no".to_owned() }));
    let why = shell("read line; echo trap >&2; kill -SEGV $$", 20_000).ask(&request).unwrap_err();
    assert!(why.contains("signal: 11") && why.contains("trap"), "{why}");
    let why = shell("exit 7", 20_000).ask(&request).unwrap_err();
    assert!(why.contains("exit status: 7"), "{why}");
    let why = shell("read line; echo hello", 20_000).ask(&request).unwrap_err();
    assert!(why.contains("`hello` is no answer"), "{why}");
    let why = shell("read line; exec sleep 60", 50).ask(&request).unwrap_err();
    assert!(why.contains("no answer within"), "{why}");
}
