//! Variants that are wrong in every way the check looks for, and right ones.

use std::sync::{Arc, Mutex};

use memra_contract::device::HostArch;
use memra_contract::{DeviceKey, IsaTier, Problem, Tensor, TensorSet};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::{HostBackend, Pool};
use memra_kernels::contract::{LaunchError, PrepareError, Prepared, Variant};
use memra_kernels::ops::CONTRACTS;
use memra_kernels::{Contract, registry};

use super::*;
use crate::arm::KernelArm;

const HIDDEN: usize = 1024;

/// What a fake variant does in a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Right,
    FirstHalf,
    SecondHalf,
    Zeros,
    /// Wrong in one bit of one element.
    LastBit,
    /// Wrong in one bit on the given launch and right on all others.
    Racy(usize),
    /// One element is this.
    Element(f32),
    /// Right but for bytes around the output.
    Spills,
    Panics,
    /// Reads another copy than the one it is given.
    OnlyCopy(usize),
    /// Wrong on this number of threads.
    NotOn(usize),
    /// An element too few.
    Short,
    Refuses,
    PanicsWhenPrepared,
}

/// Outputs of all fakes stand in one buffer, as they would in a harness that shares it.
type Shared = Arc<Mutex<Vec<f32>>>;

struct FakePrepared {
    act: Act,
    right: Vec<f32>,
    out: Shared,
    launches: usize,
}

impl Prepared for FakePrepared {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let mut out = self.out.lock().unwrap();
        let half = HIDDEN / 2;
        match self.act {
            Act::FirstHalf => out[..half].copy_from_slice(&self.right[..half]),
            Act::SecondHalf => out[half..].copy_from_slice(&self.right[half..]),
            Act::Zeros => out.fill(0.0),
            Act::Panics => {
                drop(out);
                panic!("reads past its input");
            }
            _ => out.copy_from_slice(&self.right),
        }
        if let Act::Element(value) = self.act {
            out[7] = value;
        }
        let is_wrong = match self.act {
            Act::LastBit => true,
            Act::Racy(launch) => self.launches == launch,
            Act::OnlyCopy(only) => copy != only,
            Act::NotOn(threads) => pool.threads() == threads,
            _ => false,
        };
        if is_wrong {
            out[9] = f32::from_bits(out[9].to_bits() ^ 1);
        }
        self.launches += 1;
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let out = self.out.lock().unwrap();
        let len = if self.act == Act::Short { HIDDEN - 1 } else { HIDDEN };
        TensorSet::new(vec![Tensor::f32("out", &[1, len], &out[..len])])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.lock().unwrap().fill(f32::from_bits(pattern));
    }

    fn guards_hold(&self) -> bool {
        self.act != Act::Spills
    }

    fn copy_bytes(&self) -> usize {
        HIDDEN * 4
    }
}

struct FakeBackend {
    act: Act,
    out: Shared,
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn device_key(&self) -> DeviceKey {
        DeviceKey::Host { arch: HostArch::Other, tier: IsaTier::Scalar }
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        _: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        match self.act {
            Act::Refuses => Err(PrepareError::Unsupported {
                contract: contract.info().id,
                variant: variant.name.to_owned(),
                problem: problem.to_string(),
                why: "not today".to_owned(),
            }),
            Act::PanicsWhenPrepared => panic!("no layout"),
            act => {
                let right = contract.ordered_outputs(problem, inputs).unwrap().get("out").unwrap().to_f32();
                Ok(Box::new(FakePrepared { act, right, out: Arc::clone(&self.out), launches: 0 }))
            }
        }
    }
}

struct Gate {
    checker: Checker,
    case: Arc<JudgedCase>,
    arm: KernelArm,
    out: Shared,
}

impl Gate {
    fn new(family: &str) -> Self {
        let contract = registry::contract("rms_norm").unwrap();
        let problem = Problem::new().with("m", 1).with("hidden", HIDDEN as u64);
        let case = Arc::new(JudgedCase::generated(contract, &problem, family, 1).unwrap());
        let arm = KernelArm::explicit(contract, registry::variant(contract, "scalar").unwrap());
        let checker = Checker::new(CheckPlan::default()).unwrap();
        Self { checker, case, arm, out: Arc::new(Mutex::new(vec![0.0; HIDDEN])) }
    }

    fn check(&self, act: Act) -> Checked {
        let backend = FakeBackend { act, out: Arc::clone(&self.out) };
        self.checker.check_kernel(&backend, &self.arm, &[Arc::clone(&self.case)], 0)
    }

    /// The reasons a variant fails for, in the order they were found.
    fn reasons(&self, act: Act) -> Vec<String> {
        let checked = self.check(act);
        assert_eq!(checked.gate.is_passed, checked.passed.is_some());
        assert_eq!(checked.gate.is_passed, checked.gate.failures.is_empty());
        checked.gate.failures.into_iter().map(|failure| failure.reason).collect()
    }
}

#[test]
fn a_right_variant_passes_and_the_proof_is_bound_to_it() {
    let gate = Gate::new("normal");
    let Checked { gate: record, passed, arm } = gate.check(Act::Right);
    assert!(record.is_passed && record.failures.is_empty());
    assert_eq!((record.cases, record.repeats, record.rule.as_str()), (1, 12, "bits"));
    assert_eq!((record.threads.as_slice(), record.poison.len()), ([1, 2, 3, 7].as_slice(), 2));
    assert_eq!(record.problems, ["eps=1e-5,hidden=1024,m=1"]);
    assert_eq!(record.source_sha256, arm.source_sha256);
    assert!(record.max_error_ppb > 0 && record.max_error_ppb <= record.allowed_error_ppb);
    let passed = passed.unwrap();
    assert_eq!((passed.arm(), passed.contract()), ("scalar", "rms_norm"));
    assert_eq!(passed.source_sha256(), Some(&gate.arm.source_sha256));
    let (outputs, copy_bytes) = passed.case(gate.case.id()).unwrap();
    assert_eq!((outputs, copy_bytes), (&outputs_digest(gate.case.ordered()), HIDDEN * 4));
    assert!(passed.case(&CaseId { seed: 2, ..gate.case.id().clone() }).is_none());
    // The digest is that of the outputs, not of the run.
    assert_eq!(gate.check(Act::Right).gate.output_sha256, record.output_sha256);
}

#[test]
fn half_writers_that_share_a_buffer_fail_alone_and_in_any_order() {
    let gate = Gate::new("normal");
    let orders = [
        vec![Act::FirstHalf],
        vec![Act::SecondHalf],
        vec![Act::FirstHalf, Act::SecondHalf],
        vec![Act::SecondHalf, Act::FirstHalf],
        vec![Act::Right, Act::FirstHalf, Act::SecondHalf, Act::Right],
        vec![Act::Right, Act::SecondHalf, Act::FirstHalf, Act::Right],
    ];
    for order in orders {
        for act in &order {
            let checked = gate.check(*act);
            assert_eq!(checked.gate.is_passed, *act == Act::Right, "{act:?} in {order:?}");
            if *act != Act::Right {
                let failure = &checked.gate.failures[0];
                let element = if *act == Act::FirstHalf { HIDDEN / 2 } else { 0 };
                let detail = format!("out[0, {element}] was not written: it holds the poison 7fc0dead");
                assert_eq!((failure.reason.as_str(), &failure.detail), ("poison", &detail));
                assert!(checked.gate.failures.iter().all(|failure| failure.reason != "repeat"));
            }
        }
    }
}

#[test]
fn zeros_fail_where_a_plain_tolerance_would_pass() {
    let gate = Gate::new("small");
    let right = gate.case.ordered().get("out").unwrap().to_f32();
    assert!(right.iter().all(|value| value.abs() < 1e-8), "the control: any absolute tolerance passes zeros");
    assert_eq!(gate.reasons(Act::Zeros), ["bits", "error"]);
    assert_eq!(Gate::new("normal").reasons(Act::Zeros), ["bits", "error"]);
}

#[test]
fn a_racy_variant_is_caught_on_whichever_run_it_slips() {
    let gate = Gate::new("normal");
    for launch in 0..12 {
        let reasons = gate.reasons(Act::Racy(launch));
        assert_eq!(reasons, ["bits", "repeat"], "launch {launch}");
    }
    // One that slips later than the check looks is not caught.
    assert_eq!(gate.reasons(Act::Racy(12)), Vec::<String>::new());
}

#[test]
fn every_other_fault_has_its_reason() {
    let gate = Gate::new("normal");
    for (act, reasons) in [
        (Act::LastBit, vec!["bits"]),
        (Act::Element(f32::NAN), vec!["bits", "non_finite", "error"]),
        (Act::Element(f32::INFINITY), vec!["bits", "non_finite", "error"]),
        (Act::Element(1e9), vec!["bits", "error"]),
        (Act::Spills, vec!["guard"]),
        (Act::Panics, vec!["launch"]),
        (Act::OnlyCopy(0), vec!["bits", "repeat"]),
        (Act::OnlyCopy(1), vec!["bits", "repeat"]),
        (Act::NotOn(1), vec!["bits", "repeat"]),
        (Act::NotOn(7), vec!["bits", "repeat"]),
        (Act::Short, vec!["bits", "error"]),
        (Act::Refuses, vec!["launch"]),
        (Act::PanicsWhenPrepared, vec!["launch"]),
    ] {
        assert_eq!(gate.reasons(act), reasons, "{act:?}");
    }
    let detail = |act| gate.check(act).gate.failures[0].detail.clone();
    assert!(detail(Act::Panics).contains("reads past its input"));
    assert!(detail(Act::Refuses).contains("not today"));
    assert!(detail(Act::LastBit).starts_with("out[0, 9] is "), "{}", detail(Act::LastBit));
    assert_eq!(gate.check(Act::NotOn(3)).gate.failures[0].threads, 3);
}

#[test]
fn what_is_not_finite_is_refused_even_where_the_order_class_has_it() {
    let contract = registry::contract("rms_norm").unwrap();
    let problem = contract.normalise(&Problem::new().with("m", 1).with("hidden", HIDDEN as u64)).unwrap();
    let mut inputs = contract.inputs(&problem, "normal", 1).unwrap();
    let mut x = inputs.get("x").unwrap().to_f32();
    x[3] = f32::NAN;
    inputs.insert(Tensor::f32("x", &[1, HIDDEN], &x));
    let mut gate = Gate::new("normal");
    gate.case = Arc::new(JudgedCase::new(contract, &problem, "normal", 1, None, inputs).unwrap());
    assert_eq!(gate.reasons(Act::Right), ["non_finite", "error"]);
}

#[test]
fn nothing_to_judge_is_no_pass() {
    let gate = Gate::new("normal");
    let backend = FakeBackend { act: Act::Right, out: Arc::clone(&gate.out) };
    let checked = gate.checker.check_kernel(&backend, &gate.arm, &[], 0);
    assert!(!checked.gate.is_passed && checked.passed.is_none());
    assert!(checked.gate.failures[0].detail.contains("no case"));
    for (plan, what) in [
        (CheckPlan { threads: Vec::new(), ..CheckPlan::default() }, "number of threads"),
        (CheckPlan { poison: Vec::new(), ..CheckPlan::default() }, "poison"),
        (CheckPlan { repeats: 0, ..CheckPlan::default() }, "run"),
    ] {
        assert_eq!(Checker::new(plan).unwrap_err().to_string(), format!("a check needs at least one {what}"));
    }
}

#[test]
fn a_large_case_runs_as_often_over_all_thread_counts_together() {
    let mut gate = Gate::new("normal");
    gate.checker = Checker::new(CheckPlan { large_flops: 0, ..CheckPlan::default() }).unwrap();
    assert_eq!(gate.check(Act::Right).gate.repeats, 4);
    assert_eq!(gate.reasons(Act::NotOn(7)), ["bits", "repeat"]);
    let plan = CheckPlan { large_flops: 0, threads: vec![1, 2], ..CheckPlan::default() };
    gate.checker = Checker::new(plan).unwrap();
    assert_eq!(gate.check(Act::Right).gate.repeats, 4);
    let plan = CheckPlan { large_flops: 0, threads: vec![1], ..CheckPlan::default() };
    gate.checker = Checker::new(plan).unwrap();
    assert_eq!(gate.check(Act::Right).gate.repeats, 3);
}

#[test]
fn registered_variants_pass_on_their_committed_cases() {
    let backend = HostBackend::detect();
    let plan = CheckPlan { threads: vec![1, 3], repeats: 2, ..CheckPlan::default() };
    let checker = Checker::new(plan).unwrap();
    let cache = JudgeCache::default();
    for contract in CONTRACTS.iter().copied() {
        let all = cache.committed(contract, 42, 2, &|_| true).unwrap();
        for variant in contract.variants().iter().copied().filter(|variant| {
            let DeviceKey::Host { tier, .. } = backend.device_key() else { panic!("no host") };
            variant.target.is_within(tier)
        }) {
            let mut cases = all.clone();
            cases.retain(|case| contract.supports(variant, case.problem()).is_ok());
            let checked = checker.check_kernel(&backend, &KernelArm::explicit(contract, variant), &cases, 0);
            assert!(checked.passed.is_some(), "{}: {:?}", variant.name, checked.gate.failures);
            assert_eq!(checked.gate.cases as usize, cases.len());
        }
    }
}
