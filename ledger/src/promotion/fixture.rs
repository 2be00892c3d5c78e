//! Receipts made by hand for the tests of the rules.

use memra_contract::defaults::DefaultsTable;
use memra_contract::digest::Digest;

use super::{FamilyKey, PromotionRequest, Receipts, RegistryFacts, VariantFacts};
use crate::canonical::sha256;
use crate::chain::ReceiptFile;
use crate::entry::Citation;
use crate::record::{
    Arm, ArmKind, Body, CellBody, CellKey, CellPlan, CellResult, CorrectionBody, GateBody, GateFailure, Inputs, Record,
    RigClass, SessionBody, SessionPlan, Tool, Verdict, VerdictBody, WarmUp,
};
use crate::rigs::RigRegistry;
use crate::verify::{Evidence, Problem, Report};

pub(super) const KEY: &str = "host-x86_64-avx2";

/// One cell of a receipt file.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) problem: String,
    pub(super) a: &'static str,
    pub(super) b: &'static str,
    pub(super) verdict: Verdict,
    pub(super) thetas: Vec<i64>,
    pub(super) bounds: (i64, i64),
}

/// B is 10 % faster over five replicates.
pub(super) fn faster(m: u64, a: &'static str, b: &'static str) -> Cell {
    Cell {
        problem: format!("format=q8_0,m={m},n=64"),
        a,
        b,
        verdict: Verdict::Faster,
        thetas: vec![-100_100, -100_000, -99_900, -100_050, -99_950],
        bounds: (-100_200, -99_800),
    }
}

/// B and A differ by less than tau.
pub(super) fn equivalent(m: u64, a: &'static str, b: &'static str) -> Cell {
    Cell { verdict: Verdict::Equivalent, thetas: vec![100, -100, 50, -50, 0], bounds: (-200, 200), ..faster(m, a, b) }
}

/// B is 10 % slower.
pub(super) fn slower(m: u64, a: &'static str, b: &'static str) -> Cell {
    Cell {
        verdict: Verdict::Slower,
        thetas: vec![100_100, 100_000, 99_900, 100_050, 99_950],
        bounds: (99_800, 100_200),
        ..faster(m, a, b)
    }
}

/// The world of a test: receipts, rigs, registry and defaults.
pub(super) struct World {
    pub(super) files: Vec<ReceiptFile>,
    pub(super) problems: Vec<Problem>,
    pub(super) rigs: RigRegistry,
    pub(super) variants: Vec<VariantFacts>,
    pub(super) table: DefaultsTable,
}

pub(super) fn source(variant: &str) -> Vec<u8> {
    format!("source of {variant}").into_bytes()
}

fn facts(variant: &str, layout: &str, is_baseline: bool) -> VariantFacts {
    VariantFacts {
        contract: "matmul".to_owned(),
        revision: 1,
        variant: variant.to_owned(),
        layout: layout.to_owned(),
        order_class: "dot8".to_owned(),
        isa: "avx2".to_owned(),
        source_path: format!("kernels/src/ops/matmul/{variant}.rs"),
        source_sha256: sha256(&source(variant)),
        is_baseline,
    }
}

fn family_of(contract: &str, problem: &str) -> Option<FamilyKey> {
    let format = problem.split(',').find_map(|part| part.strip_prefix("format="))?;
    (contract == "matmul").then(|| FamilyKey { format: format.to_owned(), class: "any".to_owned() })
}

pub(super) fn class(cpus: u32) -> RigClass {
    RigClass {
        device_key: KEY.to_owned(),
        vendor: "v".to_owned(),
        family: 6,
        model: 1,
        stepping: 1,
        cpus,
        l2_bytes: None,
        last_level_bytes: None,
        is_virtual: false,
        power_limit_mw: None,
        driver: None,
    }
}

impl World {
    pub(super) fn new() -> Self {
        let rigs = "[[rig]]\nlabel = \"one\"\ntitle = \"t\"\nproduces = []\nowned = true\nretired = false\n[rig.class]\n\
                    device_key = \"host-x86_64-avx2\"\nvendor = \"v\"\nfamily = 6\nmodel = 1\nstepping = 1\ncpus = 2\n\
                    is_virtual = false\n";
        let table = format!("schema = \"memra-lab.defaults/1\"\ndevice_key = \"{KEY}\"");
        Self {
            files: Vec::new(),
            problems: Vec::new(),
            rigs: RigRegistry::parse("t", rigs).unwrap(),
            variants: vec![
                facts("scalar", "plain", true),
                facts("one_row", "plain", false),
                facts("four_rows", "plain", false),
                facts("packed", "packed", false),
            ],
            table: DefaultsTable::parse("t", &table).unwrap(),
        }
    }

    pub(super) fn registry(&self) -> RegistryFacts<'_> {
        RegistryFacts { variants: &self.variants, family_of: &family_of }
    }

    pub(super) fn receipts(&self) -> Receipts {
        let report = Report { problems: self.problems.clone(), ..Report::default() };
        Receipts::new(Evidence::new(self.files.clone()), &report)
    }

    /// Adds a file that holds nothing but a correction.
    pub(super) fn withdraw(&mut self, id: &Digest) {
        self.files.push(file("receipts/one/corrections.jsonl", vec![correction(0, id)]));
    }

    /// Adds a receipt file of one cell and cites its verdict.
    pub(super) fn add(&mut self, cell: &Cell) -> Citation {
        self.add_edited(cell, |_| {})
    }

    /// The same, after `edit`.
    pub(super) fn add_edited(&mut self, cell: &Cell, edit: impl FnOnce(&mut ReceiptFile)) -> Citation {
        self.add_on(cell, 2, edit)
    }

    /// The same on a machine with `cpus` CPUs; 2 is the registered one.
    pub(super) fn add_on(&mut self, cell: &Cell, cpus: u32, edit: impl FnOnce(&mut ReceiptFile)) -> Citation {
        let number = self.files.len();
        let rig = self.rigs.describe(class(cpus), "6.1", 1 << 30).unwrap();
        let path = format!("receipts/{}/2026-01-02-s-{number:08x}.jsonl", rig.label);
        let mut file = receipt(&path, rig, cell);
        edit(&mut file);
        let citation = Citation::new(&path, &file.records.last().unwrap().id).unwrap();
        self.files.push(file);
        citation
    }
}

pub(super) fn request(verdicts: &[&Citation], m_min: u64, m_max: u64) -> PromotionRequest {
    PromotionRequest {
        verdicts: verdicts.iter().map(|citation| (*citation).clone()).collect(),
        guards: Vec::new(),
        m_min,
        m_max,
        is_local: false,
        may_replace_family: false,
        date: "2026-01-03".to_owned(),
    }
}

fn arm(variant: &str, layout: &str, gate: Digest) -> Arm {
    Arm {
        kind: ArmKind::Kernel,
        variant: variant.to_owned(),
        chosen: "explicit".to_owned(),
        layout: layout.to_owned(),
        order_class: Some("dot8".to_owned()),
        isa: "avx2".to_owned(),
        source: Some(format!("kernels/src/ops/matmul/{variant}.rs")),
        source_sha256: Some(sha256(&source(variant))),
        about: Vec::new(),
        gate: Some(gate),
    }
}

pub(super) fn gate(variant: &str, replicate: u32, failures: Vec<GateFailure>) -> GateBody {
    GateBody {
        replicate,
        contract: "matmul".to_owned(),
        revision: 1,
        variant: variant.to_owned(),
        source_sha256: Some(sha256(&source(variant))),
        rule: "bits".to_owned(),
        order_class: Some("dot8".to_owned()),
        problems: Vec::new(),
        cases: 1,
        threads: vec![1],
        repeats: 2,
        poison: vec![0],
        max_error_ppb: 0,
        allowed_error_ppb: 1,
        output_sha256: sha256(b"out"),
        is_passed: failures.is_empty(),
        failures,
    }
}

fn result(cell: &Cell, theta: i64, n: u32) -> CellResult {
    CellResult {
        n,
        median_a_ps: Some(1_000_000),
        median_b_ps: Some(900_000),
        theta_ppm: Some(theta),
        lo_ppm: Some(cell.bounds.0),
        hi_ppm: Some(cell.bounds.1),
        delta_ppm: Some(theta),
        aa_theta_ppm: Vec::new(),
        band_ppm: Some(1000),
        band_m: 30,
        tau_ppm: Some(5000),
        mde_ppm: Some(2000),
        sign_p_ppm: Some(60_000),
        verdict: cell.verdict,
        is_provisional: false,
        reasons: Vec::new(),
    }
}

/// A file: session; per replicate two gates and a cell; the verdict.
fn receipt(path: &str, rig: crate::record::Rig, cell: &Cell) -> ReceiptFile {
    let id = |what: &str| sha256(format!("{path} {what}").as_bytes());
    let key = CellKey {
        contract: "matmul".to_owned(),
        revision: 1,
        problem: cell.problem.clone(),
        inputs: Inputs { generator: "counter/1".to_owned(), family: "unit".to_owned(), seed: 1, weights: None },
        device_key: rig.class.device_key.clone(),
        cache: "rotate".to_owned(),
        host_mode: "pool".to_owned(),
        clock: "free".to_owned(),
        threads: 2,
    };
    let layout = |variant: &str| if variant == "packed" { "packed" } else { "plain" };
    let mut bodies = vec![(id("session"), Body::Session(Box::new(session(rig, cell.thetas.len() as u32))))];
    for (replicate, theta) in cell.thetas.iter().enumerate() {
        let replicate = replicate as u32;
        let gates = [cell.a, cell.b].map(|variant| (id(&format!("gate {replicate} {variant}")), variant));
        for (gate_id, variant) in &gates {
            bodies.push((gate_id.clone(), Body::Gate(Box::new(gate(variant, replicate, Vec::new())))));
        }
        let [a, b] = gates.map(|(gate_id, variant)| arm(variant, layout(variant), gate_id));
        let body = CellBody {
            cell: "cell".to_owned(),
            replicate,
            key: key.clone(),
            a,
            b,
            plan: CellPlan {
                launches: 1,
                copies: 3,
                rotated_bytes: 1,
                seed: 1,
                timer_ns: 1,
                moved_bytes: 1,
                flops: 1,
                workload: None,
            },
            warm_up: WarmUp { slots: 1, elapsed_ns: 1, drift_ppm: 0, allowed_drift_ppm: 1, is_steady: true },
            aa: Vec::new(),
            ab: None,
            peaks: None,
            result: result(cell, *theta, 20),
        };
        bodies.push((id(&format!("cell {replicate}")), Body::Cell(Box::new(body))));
    }
    let mean = cell.thetas.iter().sum::<i64>() / cell.thetas.len().max(1) as i64;
    let verdict = VerdictBody {
        cell: "cell".to_owned(),
        key,
        a: cell.a.to_owned(),
        b: cell.b.to_owned(),
        replicates: (0..cell.thetas.len()).map(|replicate| id(&format!("cell {replicate}"))).collect(),
        interval: "t".to_owned(),
        result: result(cell, mean, cell.thetas.len() as u32),
    };
    bodies.push((id("verdict"), Body::Verdict(Box::new(verdict))));
    let records = bodies.into_iter().enumerate().map(|(seq, (id, body))| record(seq as u64, id, body)).collect();
    file(path, records)
}

pub(super) fn file(name: &str, records: Vec<Record>) -> ReceiptFile {
    ReceiptFile { name: name.to_owned(), records, texts: Vec::new(), skipped_tail: None }
}

/// A record that withdraws another one.
pub(super) fn correction(seq: u64, corrects: &Digest) -> Record {
    let body = CorrectionBody { corrects: corrects.clone(), text: "wrong weights".to_owned(), withdraws: true };
    record(seq, sha256(b"correction"), Body::Correction(body))
}

pub(super) fn record(seq: u64, id: Digest, body: Body) -> Record {
    Record { schema: crate::record::SCHEMA.to_owned(), seq, prev: None, session: "0".repeat(32), body, id }
}

fn session(rig: crate::record::Rig, replicates: u32) -> SessionBody {
    SessionBody {
        tool: Tool {
            version: "0".to_owned(),
            binary_sha256: None,
            profile: "release".to_owned(),
            commit: None,
            is_dirty: None,
            dirty_sha256: None,
            lock_sha256: None,
        },
        rig,
        clock: "free".to_owned(),
        threads: 2,
        plan: SessionPlan {
            stop: "fixed".to_owned(),
            quads: 20,
            aa_blocks: 1,
            replicates,
            seed: 1,
            smallest_ppm: 5000,
            cells: vec!["cell".to_owned()],
        },
        command: Vec::new(),
        started_utc: "2026-01-02T03:04:05Z".to_owned(),
    }
}

/// Every cell record of a file.
pub(super) fn cells(file: &mut ReceiptFile) -> impl Iterator<Item = &mut CellBody> {
    file.records.iter_mut().filter_map(|record| match &mut record.body {
        Body::Cell(cell) => Some(&mut **cell),
        _ => None,
    })
}

/// The verdict of a file.
pub(super) fn verdict(file: &mut ReceiptFile) -> &mut VerdictBody {
    match &mut file.records.last_mut().unwrap().body {
        Body::Verdict(verdict) => verdict,
        other => panic!("{other:?} is no verdict"),
    }
}

/// Every gate of a file.
pub(super) fn gates(file: &mut ReceiptFile) -> impl Iterator<Item = &mut GateBody> {
    file.records.iter_mut().filter_map(|record| match &mut record.body {
        Body::Gate(gate) => Some(&mut **gate),
        _ => None,
    })
}

/// Changes the key of a verdict and of its replicates alike.
pub(super) fn edit_key(file: &mut ReceiptFile, edit: impl Fn(&mut CellKey)) {
    cells(file).for_each(|cell| edit(&mut cell.key));
    edit(&mut verdict(file).key);
}
