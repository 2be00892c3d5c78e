//! Cells opened, checked and seated with the variants and backends there are.

use memra_contract::TensorSet;
use memra_contract::device::{CudaArch, CudaClass, HostArch};
use memra_contract::{BlockFormat, DeviceKey, IsaTier};
use memra_kernels::backend::Facts;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::backend::null::NullBackend;
use memra_kernels::contract::{PrepareError, Prepared, Variant};

use super::*;
use crate::cell::{BackendKind, CacheMode, FileTensor, cell};
use crate::observe::card::tests::FakeCard;
use crate::observe::{CardState, CardWatch};
use crate::runner::{Runner, Seat};

fn setup(backend: &dyn Backend) -> WorkshopSetup<'_> {
    WorkshopSetup {
        backend,
        tables: Tables::default(),
        commands: Commands::default(),
        plan: CheckPlan { threads: vec![1, 2], ..CheckPlan::default() },
        process: ProcessOptions::default(),
        cpus: 2,
        last_level_bytes: Some(1 << 16),
        available_bytes: Some(1 << 30),
        card: None,
        scratch: PathBuf::new(),
    }
}

fn spec() -> CellSpec {
    CellSpec {
        name: "tiny".to_owned(),
        title: "a tiny product".to_owned(),
        contract: "matmul".to_owned(),
        problem: "seg=q8_0:24,m=1,k=64".to_owned(),
        a: "baseline".to_owned(),
        b: "default".to_owned(),
        family: "normal".to_owned(),
        input_seed: 3,
        cache: CacheMode::Rotate,
        threads: 0,
        priority: 1,
        weights: None,
        workload: None,
        backend: BackendKind::Host,
    }
}

fn error(shop: &Workshop<'_>, spec: &CellSpec) -> String {
    shop.open(spec).map(|cell| cell.spec.name).unwrap_err().to_string()
}

#[test]
fn a_cell_is_opened_checked_and_seated() {
    let backend = HostBackend::detect();
    let shop = Workshop::new(setup(&backend)).unwrap();
    let cell = shop.open(&spec()).unwrap();
    assert_eq!((cell.threads, cell.a.name(), cell.b.name()), (2, "scalar_q8", "scalar_q8"));
    let key = shop.key(&cell, "free");
    assert_eq!(key.problem, "act=q8,epi=none,k=64,m=1,seg=q8_0:24");
    assert_eq!((key.cache.as_str(), key.host_mode.as_str(), key.threads), ("rotate", "pool", 2));
    assert_eq!((key.inputs.generator.as_str(), key.inputs.seed, &key.inputs.weights), ("counter/1", 3, &None));
    let [a, b] = [Side::A, Side::B].map(|side| shop.check(&cell, side, 2).unwrap());
    assert_eq!((a.gate.replicate, a.gate.problems.contains(&key.problem)), (2, true));
    assert!(a.gate.cases > 10, "the committed cases are judged too");
    assert_eq!((a.arm.chosen.as_str(), b.arm.chosen.as_str()), ("baseline", "baseline"));
    let mut runner = shop.seat(&cell, a.passed.unwrap(), b.passed.unwrap()).unwrap();
    // 24 rows of two blocks of 34 bytes are 1632 bytes; three caches of 65536 need 121 copies.
    assert_eq!((runner.copies(), runner.rotated_bytes()), (121, 121 * 1632));
    runner.prepare(Seat::A).unwrap();
    assert!(runner.slot(Seat::A, 130).unwrap().elapsed_ns > 0);
}

/// The host, with memory and a cache as a card has them.
struct Card(HostBackend);

impl Backend for Card {
    fn name(&self) -> &'static str {
        "card"
    }

    fn device_key(&self) -> DeviceKey {
        self.0.device_key()
    }

    fn facts(&self) -> Option<Facts> {
        Some(Facts { last_level_bytes: 1 << 12, available_bytes: Some(1 << 20), host_mode: "graph" })
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        self.0.prepare(contract, variant, problem, inputs, copies)
    }
}

#[test]
fn a_device_with_memory_of_its_own_is_asked_for_its_facts() {
    let backend = Card(HostBackend::detect());
    let sensor = FakeCard::new(vec![CardState { clock_khz: Some(1_980_000), ..CardState::default() }], Some(vec![]));
    let setup = WorkshopSetup { card: Some(CardWatch::new(sensor)), ..setup(&backend) };
    let shop = Workshop::new(setup).unwrap();
    let cell = shop.open(&CellSpec { threads: 64, ..spec() }).unwrap();
    let key = shop.key(&cell, "free");
    assert_eq!((key.host_mode.as_str(), key.threads), ("graph", 1));
    let [a, b] = [Side::A, Side::B].map(|side| shop.check(&cell, side, 0).unwrap().passed.unwrap());
    let mut runner = shop.seat(&cell, a, b).unwrap();
    // Three caches of 4096 bytes over copies of 1632.
    assert_eq!((runner.copies(), runner.threads()), (8, 1));
    let card = runner.observe().card.unwrap();
    assert_eq!((card.state.clock_khz, card.foreign_processes), (Some(1_980_000), Some(0)));
}

#[test]
fn a_cell_of_a_card_is_refused_by_the_host() {
    let backend = HostBackend::detect();
    let shop = Workshop::new(setup(&backend)).unwrap();
    let text = error(&shop, &CellSpec { backend: BackendKind::Cuda, ..spec() });
    assert!(text.contains("for the backend cuda, and this is host"), "{text}");
}

#[test]
fn a_proof_of_the_committed_cases_alone_does_not_seat() {
    let backend = HostBackend::detect();
    let shop = Workshop::new(setup(&backend)).unwrap();
    let cell = shop.open(&spec()).unwrap();
    let ResolvedArm::Kernel(arm) = &cell.a else { panic!() };
    let checked = shop.check_committed(arm, 0).unwrap();
    let passed = checked.passed.unwrap();
    let error = shop.seat(&cell, passed.clone(), passed).unwrap_err().to_string();
    assert!(error.contains("did not judge"), "{error}");
}

#[test]
fn a_variant_that_computes_nothing_does_not_pass() {
    let backend = NullBackend::new(DeviceKey::Host { arch: HostArch::Other, tier: IsaTier::Scalar });
    let shop = Workshop::new(setup(&backend)).unwrap();
    let cell = shop.open(&spec()).unwrap();
    let checked = shop.check(&cell, Side::A, 0).unwrap();
    assert!(checked.passed.is_none() && checked.gate.failures.iter().any(|failure| failure.reason == "poison"));
}

const CARD: DeviceKey =
    DeviceKey::Cuda(CudaClass { arch: CudaArch::Sm90a, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 });

fn example(name: &str) -> String {
    format!("{}/../docs/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_file_is_an_arm_that_is_checked_on_the_cases_it_serves() {
    let backend = NullBackend::new(CARD);
    let shop = Workshop::new(setup(&backend)).unwrap();
    let file = CellSpec { b: example("q8_rows.cu"), backend: BackendKind::Cuda, ..spec() };
    file.check().unwrap();
    let cell = shop.open(&file).unwrap();
    assert_eq!((cell.a.name(), cell.b.name()), ("cuda_stored_q8_0", "q8_rows"));
    let checked = shop.check(&cell, Side::B, 0).unwrap();
    assert_eq!((checked.arm.chosen.as_str(), checked.arm.source.as_deref()), ("out-of-tree", Some("q8_rows.cu")));
    assert_eq!(checked.arm.layout.split(':').next(), Some("a row"));
    // Its own problem and those of one row that the contract commits; a device that computes nothing passes none.
    assert!(checked.gate.problems.contains(&cell.problem().to_string()) && checked.gate.problems.len() >= 4);
    assert!(checked.gate.problems.iter().all(|text| text.contains("m=1,seg=q8_0:")), "{:?}", checked.gate.problems);
    assert!(!checked.gate.is_passed && checked.passed.is_none());
    assert_eq!(checked.gate.variant, "q8_rows");
    let launches = backend.launches();
    assert!(launches > 0);
    // Whatever is wrong is said before anything is judged.
    for (broken, needle) in [
        (CellSpec { problem: "m=2,k=64,seg=q8_0:24".to_owned(), ..file.clone() }, "it serves 1 to 1 rows"),
        (CellSpec { b: example("quantise_warp.cu"), ..file.clone() }, "arm of `quantise`, and the cell is of `matmul`"),
        (CellSpec { b: "none.cu".to_owned(), ..file.clone() }, "arm b: none.cu: "),
    ] {
        let text = error(&shop, &broken);
        assert!(text.starts_with("cell `tiny`: arm b: ") && text.contains(needle), "{text}");
    }
    assert_eq!(backend.launches(), launches);
    let host = NullBackend::new(DeviceKey::Host { arch: HostArch::Other, tier: IsaTier::Scalar });
    let shop = Workshop::new(setup(&host)).unwrap();
    assert!(error(&shop, &file).contains("q8_rows.cu: it runs on a CUDA card"));
}

#[test]
fn cells_that_cannot_be_opened_say_why() {
    let backend = NullBackend::new(DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Scalar });
    let shop = Workshop::new(setup(&backend)).unwrap();
    let demo = cell("demo").unwrap().spec(&PathBuf::new());
    let text = error(&shop, &demo);
    let needle = if cfg!(target_arch = "x86_64") { "needs avx2, and this device is scalar" } else { "no variant" };
    assert!(text.starts_with("cell `demo`: arm b: ") && text.contains(needle), "{text}");
    for (broken, needle) in [
        (CellSpec { contract: "matmull".to_owned(), ..spec() }, "did you mean `matmul`"),
        (CellSpec { problem: "m=1".to_owned(), ..spec() }, "`k`"),
        (CellSpec { a: "scalr_q8".to_owned(), ..spec() }, "arm a: contract `matmul` has no variant `scalr_q8`"),
        (CellSpec { b: "process:peer".to_owned(), ..spec() }, "arm b: arm `process:peer` has no command"),
        (CellSpec { threads: 3, ..spec() }, "3 threads, and this process may use 2 CPUs"),
        (
            CellSpec {
                weights: Some(FileTensor { file: PathBuf::from("none.gguf"), tensor: "t".to_owned() }),
                ..spec()
            },
            "none.gguf",
        ),
    ] {
        let text = error(&shop, &broken);
        assert!(text.starts_with("cell `tiny`: ") && text.contains(needle), "{text}");
    }
}

#[test]
fn weights_of_a_file_are_part_of_the_cell() {
    let backend = HostBackend::detect();
    let shop = Workshop::new(setup(&backend)).unwrap();
    let generated = shop.open(&spec()).unwrap();
    let bytes = generated.case.inputs().get("weight0").unwrap().bytes.clone();
    let mut writer = memra_artifact::GgufWriter::new();
    writer.declare("head.weight", &[64, 24], BlockFormat::Q8_0).unwrap();
    let mut body = writer.begin(Vec::new()).unwrap();
    body.tensor("head.weight", &bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    std::fs::write(&file, body.finish().unwrap()).unwrap();
    let weights = Some(FileTensor { file, tensor: "head.weight".to_owned() });
    let cell = shop.open(&CellSpec { weights: weights.clone(), ..spec() }).unwrap();
    let source = shop.key(&cell, "free").inputs.weights.unwrap();
    assert_eq!((source.file.as_str(), source.tensor.as_str()), ("tiny.gguf", "head.weight"));
    assert_eq!(cell.case.ordered(), generated.case.ordered());
    // The same numbers from another source are another case.
    let passed = shop.check(&generated, Side::A, 0).unwrap().passed.unwrap();
    assert!(shop.seat(&cell, passed.clone(), passed).is_err());
    let narrow = CellSpec { weights, problem: "m=1,k=64,seg=q8_0:23".to_owned(), ..spec() };
    let text = error(&shop, &narrow);
    assert!(text.contains("is q8_0 [64, 24]") && text.contains("needs q8_0 [64, 23]"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_process_arm_is_checked_and_seated_beside_a_kernel() {
    use crate::process::tests::{Fake, patient};
    let backend = HostBackend::detect();
    let scratch = tempfile::tempdir().unwrap();
    let answer = scratch.path().join("answer.bin");
    let mut setup = WorkshopSetup { process: patient(), scratch: scratch.path().to_owned(), ..setup(&backend) };
    setup.commands.insert("peer", Fake::new(&answer).arm("peer").command).unwrap();
    let shop = Workshop::new(setup).unwrap();
    let spec = CellSpec { b: "process:peer".to_owned(), problem: "m=1,k=64,seg=f32:5".to_owned(), ..spec() };
    let cell = shop.open(&spec).unwrap();
    std::fs::write(&answer, &cell.case.ordered().get("out").unwrap().bytes).unwrap();
    assert_eq!(shop.key(&cell, "free").host_mode, "process");
    let [a, b] = [Side::A, Side::B].map(|side| shop.check(&cell, side, 0).unwrap());
    assert_eq!((b.gate.rule.as_str(), b.arm.variant.as_str()), ("error", "fake 1"));
    let mut runner = shop.seat(&cell, a.passed.unwrap(), b.passed.unwrap()).unwrap();
    runner.prepare(Seat::B).unwrap();
    assert_eq!(runner.slot(Seat::B, 5).unwrap().elapsed_ns, 1000);
    let q8 = CellSpec { problem: "m=1,k=64,seg=q8_0:5".to_owned(), ..spec };
    let refused = shop.check(&shop.open(&q8).unwrap(), Side::B, 0).unwrap_err().to_string();
    assert!(refused.contains("no reference for a peer"), "{refused}");
}
