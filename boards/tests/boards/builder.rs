//! Synthetic receipts: plausible slots, numbers that are set and not computed, ids that only have to differ.

use memra_boards::BoardInput;
use memra_contract::digest::Digest;
use memra_ledger::record::{
    Arm, ArmKind, Block, Body, CellBody, CellKey, CellPlan, CellResult, CorrectionBody, EndBody, ExternalBody,
    GateBody, GateFailure, Inputs, QuadObservation, Record, Rig, RigClass, SCHEMA, SessionBody, SessionPlan, Slots,
    Tool, Verdict, VerdictBody, VoidQuad, WarmUp, WeightSource,
};

/// A counter-based generator: the same seed gives the same numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// About normal, mean 0, standard deviation 1.
    fn noise(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
    }
}

pub(crate) fn digest(seed: u64) -> Digest {
    let mut random = Random(seed);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes());
    }
    Digest::from_bytes(&bytes)
}

/// What a cell measured.
#[derive(Clone)]
pub(crate) struct Measured {
    pub(crate) cell: &'static str,
    pub(crate) contract: &'static str,
    pub(crate) problem: &'static str,
    pub(crate) cache: &'static str,
    pub(crate) a: &'static str,
    pub(crate) b: &'static str,
    pub(crate) b_kind: ArmKind,
    pub(crate) b_class: &'static str,
    pub(crate) has_weights: bool,
    pub(crate) a_ps: u64,
    pub(crate) theta_ppm: i64,
    pub(crate) half_ppm: i64,
    pub(crate) replicates: u32,
    pub(crate) quads: u32,
    pub(crate) band_m: u32,
    pub(crate) void: Vec<u32>,
    pub(crate) verdict: Verdict,
    pub(crate) reasons: Vec<&'static str>,
    pub(crate) far_slot: bool,
    pub(crate) b_source: u64,
}

impl Measured {
    pub(crate) fn new(cell: &'static str, a: &'static str, b: &'static str, theta_ppm: i64) -> Self {
        let verdict = match theta_ppm {
            ..=-5_000 => Verdict::Faster,
            5_000.. => Verdict::Slower,
            _ => Verdict::Equivalent,
        };
        Self {
            cell,
            contract: "matvec",
            problem: "m=1,n=4096,k=4096",
            cache: "rotate",
            a,
            b,
            b_kind: ArmKind::Kernel,
            b_class: "dot8",
            has_weights: false,
            a_ps: 412_345_678,
            theta_ppm,
            half_ppm: 1_500,
            replicates: 5,
            quads: 12,
            band_m: 25,
            void: vec![],
            verdict,
            reasons: vec![],
            far_slot: false,
            b_source: 77,
        }
    }

    pub(crate) fn key(&self) -> CellKey {
        let weights = self.has_weights.then(|| WeightSource {
            file: "model-q8_0.gguf".to_owned(),
            tensor: "blk.0.attn_q.weight".to_owned(),
            tensor_sha256: digest(4),
        });
        CellKey {
            contract: self.contract.to_owned(),
            revision: 1,
            problem: self.problem.to_owned(),
            inputs: Inputs { generator: "counter/1".to_owned(), family: "normal".to_owned(), seed: 11, weights },
            device_key: "host-x86_64-avx2".to_owned(),
            cache: self.cache.to_owned(),
            host_mode: "pool".to_owned(),
            clock: "free".to_owned(),
            threads: 2,
        }
    }

    fn has_numbers(&self) -> bool {
        !matches!(self.verdict, Verdict::Void | Verdict::Incomparable)
    }

    fn result(&self, n: u32) -> CellResult {
        let some = |value: i64| self.has_numbers().then_some(value);
        let ratio = (self.theta_ppm as f64 / 1e6).exp();
        CellResult {
            n,
            median_a_ps: self.has_numbers().then_some(self.a_ps),
            median_b_ps: self.has_numbers().then_some((self.a_ps as f64 * ratio) as u64),
            theta_ppm: some(self.theta_ppm),
            lo_ppm: some(self.theta_ppm - self.half_ppm),
            hi_ppm: some(self.theta_ppm + self.half_ppm),
            delta_ppm: some(((ratio - 1.0) * 1e6).round() as i64),
            aa_theta_ppm: vec![1_200, -3_000],
            band_ppm: some(3_000),
            band_m: self.band_m,
            tau_ppm: some(5_000),
            mde_ppm: some(4_100),
            sign_p_ppm: self.has_numbers().then_some(490),
            verdict: self.verdict,
            is_provisional: self.band_m < 22,
            reasons: self.reasons.iter().map(|&reason| reason.to_owned()).collect(),
        }
    }

    fn block(&self, random: &mut Random, launches: u32) -> Block {
        let order: String = (0..self.quads).map(|_| if random.next() & 1 == 0 { 'A' } else { 'B' }).collect();
        let mut slots = Slots { gap_ns: vec![], elapsed_ns: vec![] };
        let base = self.a_ps as f64 / 1000.0 * f64::from(launches);
        let shift = 1.0 + 0.0015 * random.noise();
        for (quad, start) in order.chars().enumerate() {
            for position in 0..4 {
                let is_b = (start == 'B') ^ (position == 1 || position == 2);
                let effect = if is_b { (self.theta_ppm as f64 / 1e6).exp() } else { 1.0 };
                let stolen = if self.void.contains(&(quad as u32)) { 1.02 } else { 1.0 };
                let far = if self.far_slot && quad == 3 && position == 1 { 3.0 } else { 1.0 };
                let elapsed = base * effect * shift * stolen * far * (1.0 + 0.003 * random.noise());
                slots.gap_ns.push(20_000 + random.next() % 3_000);
                slots.elapsed_ns.push(elapsed as u64);
            }
        }
        let observation = QuadObservation { steal_ppm: Some(0), foreign_ppm: Some(120), ..QuadObservation::default() };
        let void = self.void.iter().map(|&quad| VoidQuad { quad, reason: "steal".to_owned(), blamed: None }).collect();
        Block { order, slots, observed: vec![observation; self.quads as usize], void }
    }
}

fn arm(kind: ArmKind, variant: &str, class: &str, source: u64, gate: &Digest) -> Arm {
    let is_kernel = kind == ArmKind::Kernel;
    Arm {
        kind,
        variant: variant.to_owned(),
        chosen: "explicit".to_owned(),
        layout: if is_kernel { "rows".to_owned() } else { String::new() },
        order_class: is_kernel.then(|| class.to_owned()),
        isa: if is_kernel { "avx2".to_owned() } else { String::new() },
        source: is_kernel.then(|| format!("kernels/src/ops/matvec/{variant}.rs")),
        source_sha256: is_kernel.then(|| digest(source)),
        about: if is_kernel { vec![] } else { vec!["peer 1.2".to_owned(), "threads 2".to_owned()] },
        gate: Some(gate.clone()),
    }
}

/// A receipt file that is being written.
pub(crate) struct Receipt {
    pub(crate) session: String,
    pub(crate) records: Vec<Record>,
    rig: String,
    started: String,
    seed: u64,
}

impl Receipt {
    /// Opens a session on a registered rig.
    pub(crate) fn open(rig: &str, started: &str, seed: u64) -> Self {
        Self::open_as(rig, true, started, seed)
    }

    pub(crate) fn open_as(rig: &str, is_registered: bool, started: &str, seed: u64) -> Self {
        let session = digest(seed).as_str()[..32].to_owned();
        let mut receipt = Self { session, records: vec![], rig: rig.to_owned(), started: started.to_owned(), seed };
        let class = RigClass {
            device_key: "host-x86_64-avx2".to_owned(),
            vendor: "GenuineIntel".to_owned(),
            family: 6,
            model: 143,
            stepping: 8,
            cpus: 2,
            l2_bytes: Some(2 << 20),
            last_level_bytes: Some(105 << 20),
            is_virtual: true,
            power_limit_mw: None,
            driver: None,
        };
        let tool = Tool {
            version: "0.1.0".to_owned(),
            binary_sha256: Some(digest(1)),
            profile: "ci".to_owned(),
            commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            is_dirty: Some(false),
            dirty_sha256: None,
            lock_sha256: Some(digest(2)),
        };
        let plan = SessionPlan {
            stop: "fixed".to_owned(),
            quads: 12,
            aa_blocks: 5,
            replicates: 5,
            seed: 7,
            smallest_ppm: 5_000,
            cells: vec![],
        };
        let fingerprint = digest(rig.bytes().map(u64::from).sum());
        receipt.push(Body::Session(Box::new(SessionBody {
            tool,
            rig: Rig {
                label: rig.to_owned(),
                is_registered,
                fingerprint,
                class,
                os_release: "6.1.0".to_owned(),
                memory_bytes: 16 << 30,
            },
            clock: "free".to_owned(),
            threads: 2,
            plan,
            command: vec!["ab".to_owned(), "run".to_owned()],
            started_utc: started.to_owned(),
        })));
        receipt
    }

    pub(crate) fn push(&mut self, body: Body) -> Digest {
        let seq = self.records.len() as u64;
        let id = digest(self.seed.wrapping_mul(1_000_003).wrapping_add(seq + 1));
        let prev = self.records.last().map(|record| record.id.clone());
        let session = self.session.clone();
        self.records.push(Record { schema: SCHEMA.to_owned(), seq, prev, session, body, id: id.clone() });
        id
    }

    pub(crate) fn gate(&mut self, variant: &str, source: Option<u64>, is_passed: bool) -> Digest {
        let failure = GateFailure {
            case: "m=1,n=8,k=256 normal".to_owned(),
            threads: 2,
            reason: "bits".to_owned(),
            detail: "element 3: 0x3f800001, expected 0x3f800000".to_owned(),
        };
        self.push(Body::Gate(Box::new(GateBody {
            replicate: 0,
            contract: "matvec".to_owned(),
            revision: 1,
            variant: variant.to_owned(),
            source_sha256: source.map(digest),
            rule: "bits".to_owned(),
            order_class: Some("dot8".to_owned()),
            problems: vec!["m=1,n=8,k=256".to_owned()],
            cases: 12,
            threads: vec![1, 2],
            repeats: 2,
            poison: vec![255],
            max_error_ppb: 3,
            allowed_error_ppb: 9,
            output_sha256: digest(5),
            is_passed,
            failures: if is_passed { vec![] } else { vec![failure] },
        })))
    }

    /// Gates, cells and verdict of one measurement; returns the verdict's id.
    pub(crate) fn measure(&mut self, what: &Measured) -> Digest {
        let gate_a = self.gate(what.a, Some(3), true);
        let b_source = (what.b_kind == ArmKind::Kernel).then_some(what.b_source);
        let gate_b = self.gate(what.b, b_source, true);
        let mut random = Random(self.seed ^ what.theta_ppm.unsigned_abs());
        let launches = (2_000_000_000 / what.a_ps).max(1) as u32;
        let counted = what.quads - what.void.len() as u32;
        let replicates: Vec<Digest> = (0..what.replicates)
            .map(|replicate| {
                let ab = what.block(&mut random, launches);
                let body = CellBody {
                    cell: what.cell.to_owned(),
                    replicate,
                    key: what.key(),
                    a: arm(ArmKind::Kernel, what.a, "dot8", 3, &gate_a),
                    b: arm(what.b_kind, what.b, what.b_class, what.b_source, &gate_b),
                    plan: CellPlan {
                        launches,
                        copies: 12,
                        rotated_bytes: 200 << 20,
                        seed: 7,
                        timer_ns: 30,
                        moved_bytes: 17_858_560,
                        flops: 33_554_432,
                        workload: None,
                    },
                    warm_up: WarmUp {
                        slots: 40,
                        elapsed_ns: 2_000_000_000,
                        drift_ppm: 300,
                        allowed_drift_ppm: 1_500,
                        is_steady: true,
                    },
                    aa: vec![],
                    ab: Some(ab),
                    peaks: None,
                    result: what.result(counted),
                };
                self.push(Body::Cell(Box::new(body)))
            })
            .collect();
        let n = if what.replicates > 1 { what.replicates } else { counted };
        self.push(Body::Verdict(Box::new(VerdictBody {
            cell: what.cell.to_owned(),
            key: what.key(),
            a: what.a.to_owned(),
            b: what.b.to_owned(),
            replicates,
            interval: if what.replicates > 1 { "t" } else { "signed-rank" }.to_owned(),
            result: what.result(n),
        })))
    }

    pub(crate) fn correct(&mut self, corrects: &Digest, text: &str, withdraws: bool) -> Digest {
        self.push(Body::Correction(CorrectionBody { corrects: corrects.clone(), text: text.to_owned(), withdraws }))
    }

    pub(crate) fn external(&mut self, title: &str, value_milli: i64) -> Digest {
        self.push(Body::External(ExternalBody {
            title: title.to_owned(),
            source: "vendor's page, table 3".to_owned(),
            date: "2026-03-01".to_owned(),
            value_milli,
            unit: "tok/s".to_owned(),
        }))
    }

    /// The file, left as a session that was cut short leaves it.
    pub(crate) fn cut_short(self) -> BoardInput {
        let date = self.started.get(..10).unwrap_or("none").to_owned();
        let file = format!("receipts/{}/{date}-suite-{}.jsonl", self.rig, &self.session[..8]);
        BoardInput { file, records: self.records }
    }

    /// The closed file.
    pub(crate) fn close(mut self) -> BoardInput {
        let records = self.records.len() as u64;
        let ended_utc = "2026-12-31T00:00:00Z".to_owned();
        self.push(Body::End(EndBody { records, ended_utc, exit_code: 0 }));
        self.cut_short()
    }
}

/// A file of records without a session.
pub(crate) fn without_session(file: &str, seed: u64, fill: impl FnOnce(&mut Receipt)) -> BoardInput {
    let mut receipt = Receipt {
        session: digest(seed).as_str()[..32].to_owned(),
        records: vec![],
        rig: String::new(),
        started: String::new(),
        seed,
    };
    fill(&mut receipt);
    BoardInput { file: file.to_owned(), records: receipt.records }
}
