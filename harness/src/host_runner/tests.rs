//! Seats with fakes that record what they are asked to launch, and with child processes.

use std::sync::{Arc, Mutex};

use memra_contract::device::HostArch;
use memra_contract::{DeviceKey, IsaTier, Problem, TensorSet};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::contract::{LaunchError, PrepareError, Prepared, Variant};
use memra_kernels::{Contract, registry};

use super::*;
use crate::arm::KernelArm;
use crate::check::{CheckPlan, Checker};

/// Copies launched by each layout, in the order the layouts were made.
type Journal = Arc<Mutex<Vec<(usize, Vec<usize>)>>>;

/// The host, with a journal; breaks the outputs of layouts from the given one on.
struct Recording {
    journal: Journal,
    broken_from: usize,
}

struct RecordingPrepared {
    inner: Box<dyn Prepared>,
    journal: Journal,
    number: usize,
    is_broken: bool,
}

impl Prepared for RecordingPrepared {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        self.journal.lock().unwrap()[self.number].1.push(copy);
        assert!(copy < 1000, "no such copy");
        self.inner.launch(pool, copy)?;
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        if self.is_broken { TensorSet::default() } else { self.inner.outputs() }
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

impl Backend for Recording {
    fn name(&self) -> &'static str {
        "recording"
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
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let inner = contract.prepare_host(variant, problem, inputs, copies)?;
        let mut journal = self.journal.lock().unwrap();
        let number = journal.len();
        journal.push((copies, Vec::new()));
        let is_broken = number >= self.broken_from;
        Ok(Box::new(RecordingPrepared { inner, journal: Arc::clone(&self.journal), number, is_broken }))
    }
}

impl Recording {
    fn new(broken_from: usize) -> Self {
        Self { journal: Journal::default(), broken_from }
    }
}

fn case(contract: &str, problem: &str) -> Arc<JudgedCase> {
    let contract = registry::contract(contract).unwrap();
    Arc::new(JudgedCase::generated(contract, &problem.parse().unwrap(), "normal", 1).unwrap())
}

fn checker() -> Checker {
    Checker::new(CheckPlan { threads: vec![1], ..CheckPlan::default() }).unwrap()
}

fn kernel(case: &Arc<JudgedCase>, variant: &str) -> (ResolvedArm, Passed) {
    let contract = case.contract();
    let arm = KernelArm::explicit(contract, registry::variant(contract, variant).unwrap());
    let checked = checker().check_kernel(&HostBackend::detect(), &arm, &[Arc::clone(case)], 0);
    (ResolvedArm::Kernel(arm), checked.passed.unwrap())
}

fn setup<'a>(backend: &'a dyn Backend, case: &Arc<JudgedCase>, last_level_bytes: u64) -> HostSetup<'a> {
    HostSetup {
        backend,
        case: Arc::clone(case),
        cache: CacheMode::Rotate,
        threads: 2,
        last_level_bytes: Some(last_level_bytes),
        available_bytes: None,
        tensors: None,
        process: ProcessOptions::default(),
        card: None,
    }
}

#[test]
fn slots_rotate_on_over_copies_and_the_twin_makes_room() {
    let case = case("quantise", "m=1,k=64");
    let (arm, passed) = kernel(&case, "scalar");
    let backend = Recording::new(usize::MAX);
    // A copy is 64 floats: 256 bytes; three caches of 200 bytes need three.
    let setup = setup(&backend, &case, 200);
    let mut runner = HostRunner::new(setup, (arm.clone(), passed.clone()), (arm, passed)).unwrap();
    assert_eq!((runner.copies(), runner.rotated_bytes(), runner.threads()), (3, 768, 2));
    let journal = || backend.journal.lock().unwrap().clone();
    // A and its twin have all copies, B one up to its turn; first and last copies were shown to be right.
    assert_eq!(journal(), [(3, vec![0, 2]), (3, vec![0, 2]), (1, vec![0, 0])]);

    let mut last_end = 0;
    for (seat, launches) in [(Seat::A, 2), (Seat::Twin, 1), (Seat::A, 3), (Seat::B, 1)] {
        runner.prepare(seat).unwrap();
        let slot = runner.slot(seat, launches).unwrap();
        assert!(slot.start_ns >= last_end && slot.elapsed_ns > 0);
        last_end = slot.start_ns + slot.elapsed_ns;
    }
    assert!(runner.observe().at_ns >= last_end);
    let journal_of = |number: usize| journal()[number].1[2..].to_vec();
    assert_eq!(journal_of(0), [0, 1, 2, 3, 4]);
    assert_eq!(journal_of(1), [0]);

    runner.seat_challenger().unwrap();
    assert_eq!(journal()[3], (3, vec![0, 2]));
    let error = runner.slot(Seat::Twin, 1).unwrap_err();
    assert!(matches!(error, ArmError::Empty { .. }), "{error}");
    runner.slot(Seat::B, 2).unwrap();
    assert_eq!(journal_of(3), [0, 1]);
    assert!(runner.not_idle().is_empty());
}

#[test]
fn a_proof_of_something_else_seats_nobody() {
    let quantise = case("quantise", "m=1,k=64");
    let other_case = case("quantise", "m=2,k=64");
    let norm = case("rms_norm", "m=1,hidden=64");
    let backend = HostBackend::detect();
    let good = kernel(&quantise, "scalar");
    let refuse = |a: (ResolvedArm, Passed), needle: &str| {
        let error = HostRunner::new(setup(&backend, &quantise, 200), a, good.clone()).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    };
    // The same variant on another case, another contract, another source text.
    refuse(kernel(&other_case, "scalar"), "the check did not judge k=64,m=1 normal seed 1");
    refuse((good.0.clone(), kernel(&norm, "scalar").1), "the check was of `scalar` against `rms_norm`");
    let ResolvedArm::Kernel(mut arm) = good.0.clone() else { panic!() };
    arm.source_sha256 = memra_contract::digest::Digest::from_bytes(&[0; 32]);
    refuse((ResolvedArm::Kernel(arm), good.1.clone()), "another source text");
}

#[test]
fn what_is_laid_out_must_give_what_the_check_saw() {
    let case = case("quantise", "m=1,k=64");
    let good = kernel(&case, "scalar");
    for (broken_from, layouts) in [(0, 1), (1, 2), (2, 3)] {
        let backend = Recording::new(broken_from);
        let error = HostRunner::new(setup(&backend, &case, 200), good.clone(), good.clone()).unwrap_err().to_string();
        assert!(error.contains("copy 0 gives other outputs than the check saw"), "{error}");
        assert_eq!(backend.journal.lock().unwrap().len(), layouts);
    }
    let backend = Recording::new(3);
    let mut runner = HostRunner::new(setup(&backend, &case, 200), good.clone(), good.clone()).unwrap();
    assert!(runner.seat_challenger().is_err());
    assert!(matches!(runner.slot(Seat::B, 1), Err(ArmError::Empty { .. })));
}

#[test]
fn copies_that_do_not_fit_and_panics_are_errors() {
    let case = case("quantise", "m=1,k=64");
    let good = kernel(&case, "scalar");
    let backend = HostBackend::detect();
    let tight = HostSetup { available_bytes: Some(1000), ..setup(&backend, &case, 200) };
    let error = HostRunner::new(tight, good.clone(), good.clone()).unwrap_err().to_string();
    assert!(error.contains("more than half"), "{error}");
    let unknown = HostSetup { last_level_bytes: None, ..setup(&backend, &case, 200) };
    assert!(matches!(HostRunner::new(unknown, good.clone(), good.clone()), Err(SeatError::Rotation(_))));

    let backend = Recording::new(usize::MAX);
    let mut runner = HostRunner::new(setup(&backend, &case, 200), good.clone(), good).unwrap();
    let error = runner.slot(Seat::A, 2000).unwrap_err().to_string();
    assert_eq!(error, "arm `scalar` failed to launch: panicked: no such copy");
    // The other seats go on.
    runner.slot(Seat::B, 1).unwrap();
}

#[test]
fn idle_time_has_a_limit() {
    assert!(!is_busy(0, 0) && !is_busy(20_000, 1_000_000));
    assert!(is_busy(20_001, 1_000_000) && is_busy(1, 0) && is_busy(u64::MAX, 1));
}

#[cfg(unix)]
mod processes {
    use super::*;
    use crate::check::ProcessCheck;
    use crate::process::tests::{Fake, patient};

    struct Bench {
        case: Arc<JudgedCase>,
        tensors: Arc<TensorFolder>,
        scratch: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let case = case("matmul", "m=1,k=32,seg=f32:2");
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("answer.bin"), &case.ordered().get("out").unwrap().bytes).unwrap();
        let tensors = Arc::new(TensorFolder::write(scratch.path(), case.inputs()).unwrap());
        Bench { case, tensors, scratch }
    }

    impl Bench {
        fn fake(&self) -> Fake {
            Fake::new(&self.scratch.path().join("answer.bin"))
        }

        fn process(&self, fake: &Fake) -> (ResolvedArm, Passed) {
            let (arm, options) = (fake.arm("peer"), patient());
            let check = ProcessCheck { case: &self.case, tensors: &self.tensors, threads: 1, options: &options };
            let checked = checker().check_process(&arm, &check, 0).unwrap();
            (ResolvedArm::Process(arm), checked.passed.unwrap())
        }

        fn setup<'a>(&self, backend: &'a dyn Backend) -> HostSetup<'a> {
            HostSetup {
                tensors: Some(Arc::clone(&self.tensors)),
                process: patient(),
                ..setup(backend, &self.case, 200)
            }
        }
    }

    #[test]
    fn a_process_sits_in_any_seat() {
        let bench = bench();
        let backend = HostBackend::detect();
        for is_incumbent in [false, true] {
            let (process, kernel) = (bench.process(&bench.fake()), kernel(&bench.case, "scalar_f32"));
            let (a, b) = if is_incumbent { (process, kernel) } else { (kernel, process) };
            let mut runner = HostRunner::new(bench.setup(&backend), a, b).unwrap();
            for seat in [Seat::A, Seat::Twin, Seat::B] {
                runner.prepare(seat).unwrap();
                let slot = runner.slot(seat, 3).unwrap();
                let is_process = (seat == Seat::B) != is_incumbent;
                assert_eq!(slot.elapsed_ns == 1000, is_process, "{seat:?}");
            }
            runner.seat_challenger().unwrap();
            runner.prepare(Seat::B).unwrap();
            runner.slot(Seat::B, 1).unwrap();
            if cfg!(target_os = "linux") {
                assert!(runner.observe().own_ticks.is_some(), "a child that ended is still counted");
            }
        }
    }

    #[test]
    fn a_process_that_changes_its_answer_or_ends_is_an_error() {
        let bench = bench();
        let backend = HostBackend::detect();
        let good = bench.process(&bench.fake());
        let kernel = kernel(&bench.case, "scalar_f32");
        let exits = bench.fake().on("sample", "exit 7").arm("peer");
        let dying = (ResolvedArm::Process(exits), good.1.clone());
        let mut runner = HostRunner::new(bench.setup(&backend), kernel.clone(), dying).unwrap();
        let error = runner.slot(Seat::B, 1).unwrap_err().to_string();
        assert!(error.contains("`peer`") && error.contains("exit status: 7"), "{error}");
        assert!(runner.prepare(Seat::A).is_err(), "a dead process is not idle");
        std::fs::write(bench.scratch.path().join("answer.bin"), [0; 8]).unwrap();
        let error = HostRunner::new(bench.setup(&backend), kernel, good).unwrap_err().to_string();
        assert!(error.contains("gives other outputs than the check saw"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_works_in_the_slot_of_another_is_blamed() {
        let bench = bench();
        let backend = HostBackend::detect();
        let kernel = kernel(&bench.case, "scalar_f32");
        let good = bench.process(&bench.fake());
        let idle = bench.fake().on("idle", r#"echo '{"ok":true}'; while :; do :; done"#).arm("peer");
        let busy = (ResolvedArm::Process(idle), good.1);
        // It never reads again: it is killed at the end, without waiting.
        let process = ProcessOptions { stop: std::time::Duration::from_millis(1), ..patient() };
        let setup = HostSetup { process, cache: CacheMode::Hot, ..bench.setup(&backend) };
        let mut runner = HostRunner::new(setup, kernel, busy).unwrap();
        let is_blamed = (0..1000).any(|_| {
            runner.slot(Seat::A, 2000).unwrap();
            runner.not_idle() == [Seat::B]
        });
        assert!(is_blamed, "its work was not seen");
        assert!(runner.not_idle().is_empty());
    }
}
