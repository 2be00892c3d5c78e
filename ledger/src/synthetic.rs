//! Synthetic sessions of known effect, for tests and benchmarks of this room and of those that read receipts.
//!
//! A session follows from its seed alone: slots are a base time, the effect of the cell, and noise. Nothing of it is a
//! measurement, and its rig label says so.

use std::path::Path;

use memra_contract::digest::Digest;

use crate::canonical::{self, sha256};
use crate::chain::{self, LineError, NameError, PrivacyLint, ReceiptName, ReceiptWriter, WriteError};
use crate::judge::{block_orders, judge_cell, order_text, verdict_body};
use crate::record::{
    Arm, ArmKind, Block, Body, CellBody, CellKey, CellPlan, EndBody, GateBody, GateFailure, Inputs, QuadObservation,
    Record, Rig, RigClass, SessionBody, SessionPlan, Slots, Tool, VoidQuad, WarmUp,
};
use crate::stats::{self, QuadOrder, SplitMix64};

/// A session to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synthetic {
    /// Seed of session identifier, orders and noise.
    pub seed: u64,
    /// Rig label.
    pub rig_label: String,
    /// Day of the session, YYYY-MM-DD.
    pub date: String,
    /// Middle part of the file name.
    pub slug: String,
    /// Replicates.
    pub replicates: u32,
    /// Quads of a block.
    pub quads: u32,
    /// A/A blocks of a replicate.
    pub aa_blocks: u32,
    /// Smallest difference worth shipping, in parts per million.
    pub smallest_ppm: i64,
    /// The cells.
    pub cells: Vec<SyntheticCell>,
}

/// A cell to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticCell {
    /// Name of the cell.
    pub name: String,
    /// Contract id.
    pub contract: String,
    /// Variant of arm A.
    pub a: String,
    /// Variant of arm B.
    pub b: String,
    /// True ln(B/A), in parts per million.
    pub theta_ppm: i64,
    /// Standard deviation of the noise of a slot, in parts per million.
    pub noise_ppm: i64,
    /// Elapsed time of a slot of A without noise, in nanoseconds.
    pub slot_ns: u64,
    /// Void quads of the A/B block.
    pub void: Vec<VoidQuad>,
    /// Whether arm B passes its gate.
    pub is_gate_passed: bool,
    /// Whether the warm-up becomes steady.
    pub is_steady: bool,
}

/// Why a session could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// The label, date or slug.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The writer.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl SyntheticCell {
    /// A cell whose arms are equally fast up to noise.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            contract: "rms_norm".to_owned(),
            a: "rows".to_owned(),
            b: "rows_wide".to_owned(),
            theta_ppm: 0,
            noise_ppm: 2_000,
            slot_ns: 1_200_000,
            void: Vec::new(),
            is_gate_passed: true,
            is_steady: true,
        }
    }

    /// The cell with another true effect, in parts per million.
    #[must_use]
    pub fn with_theta(mut self, theta_ppm: i64) -> Self {
        self.theta_ppm = theta_ppm;
        self
    }

    /// The cell with one more void quad of the A/B block, blamed on no arm.
    #[must_use]
    pub fn with_void_quad(mut self, quad: u32, reason: &str) -> Self {
        self.void.push(VoidQuad { quad, reason: reason.to_owned(), blamed: None });
        self
    }
}

impl Synthetic {
    /// One replicate of one cell with 12 quads and 2 A/A blocks.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            rig_label: "synthetic".to_owned(),
            date: "2024-01-02".to_owned(),
            slug: "session".to_owned(),
            replicates: 1,
            quads: 12,
            aa_blocks: 2,
            smallest_ppm: 5_000,
            cells: vec![SyntheticCell::named("rms_norm-4096")],
        }
    }

    /// Identifier of the session.
    pub fn session(&self) -> String {
        let mut random = SplitMix64::new(self.seed);
        format!("{:016x}{:016x}", random.next_u64(), random.next_u64())
    }

    /// Name of the session's file.
    ///
    /// # Errors
    ///
    /// [`NameError`] names the part that does not have its form.
    pub fn name(&self) -> Result<ReceiptName, NameError> {
        ReceiptName::new(&self.rig_label, &self.date, &self.slug, &self.session())
    }

    /// Writes the session below a root, index included, and returns the path of its file below the root.
    ///
    /// # Errors
    ///
    /// [`SyntheticError`] says what the writer refused.
    pub fn write(&self, root: &Path) -> Result<String, SyntheticError> {
        let mut writer = ReceiptWriter::create(root, &self.name()?, PrivacyLint::default())?;
        self.emit(&mut |body| writer.append(body))?;
        let name = writer.name().to_owned();
        writer.finish(ENDED_UTC.to_owned(), 0)?;
        Ok(name)
    }

    /// The bytes of the session's file, without writing it.
    ///
    /// # Errors
    ///
    /// [`LineError`] names the field that may not be written.
    pub fn text(&self) -> Result<String, LineError> {
        let (session, lint) = (self.session(), PrivacyLint::default());
        let mut text = String::new();
        let mut last: Option<Record> = None;
        let mut append = |body: Body| -> Result<Record, LineError> {
            let seq = last.as_ref().map_or(0, |record| record.seq + 1);
            let prev = last.as_ref().map(|record| record.id.clone());
            let (record, line) = chain::compose(&session, seq, prev.as_ref(), body, &lint)?;
            text.push_str(&line);
            last = Some(record.clone());
            Ok(record)
        };
        let records = self.emit(&mut append)?;
        append(Body::End(EndBody { records, ended_utc: ENDED_UTC.to_owned(), exit_code: 0 }))?;
        Ok(text)
    }

    /// Hands the session's bodies, all but the end, to `append`, and returns their number.
    ///
    /// # Errors
    ///
    /// The first error `append` gives.
    pub fn emit<E>(&self, append: &mut impl FnMut(Body) -> Result<Record, E>) -> Result<u64, E> {
        let mut count = 1;
        append(Body::Session(Box::new(self.session_body())))?;
        let mut cells: Vec<Vec<(Digest, CellBody)>> = vec![Vec::new(); self.cells.len()];
        for replicate in 0..self.replicates {
            for (index, (cell, records)) in self.cells.iter().zip(&mut cells).enumerate() {
                let a = append(Body::Gate(Box::new(gate(cell, &cell.a, replicate, true))))?;
                let b = append(Body::Gate(Box::new(gate(cell, &cell.b, replicate, cell.is_gate_passed))))?;
                let body = self.cell_body(cell, index as u64, replicate, a.id, b.id);
                let record = append(Body::Cell(Box::new(body.clone())))?;
                records.push((record.id, body));
                count += 3;
            }
        }
        for records in &cells {
            let cited: Vec<(&Digest, &CellBody)> = records.iter().map(|(id, body)| (id, body)).collect();
            if let Some(body) = verdict_body(&cited, self.smallest_ppm) {
                append(Body::Verdict(Box::new(body)))?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn session_body(&self) -> SessionBody {
        let class = RigClass {
            device_key: DEVICE_KEY.to_owned(),
            vendor: "Synthetic".to_owned(),
            family: 6,
            model: 85,
            stepping: 7,
            cpus: 2,
            l2_bytes: Some(1 << 20),
            last_level_bytes: Some(32 << 20),
            is_virtual: true,
            power_limit_mw: None,
            driver: None,
        };
        // A class of integers and strings always has a digest.
        let fingerprint = canonical::to_value(&class)
            .and_then(|class| canonical::digest(&class))
            .unwrap_or_else(|error| sha256(error.to_string().as_bytes()));
        SessionBody {
            tool: Tool {
                version: "0.1.0".to_owned(),
                binary_sha256: Some(sha256(b"binary")),
                profile: "ci".to_owned(),
                commit: None,
                is_dirty: None,
                dirty_sha256: None,
                lock_sha256: None,
            },
            rig: Rig {
                label: self.rig_label.clone(),
                is_registered: false,
                fingerprint,
                class,
                os_release: "6.1.0".to_owned(),
                memory_bytes: 8 << 30,
            },
            clock: CLOCK.to_owned(),
            threads: THREADS,
            plan: SessionPlan {
                stop: "fixed".to_owned(),
                quads: self.quads,
                aa_blocks: self.aa_blocks,
                replicates: self.replicates,
                seed: self.seed,
                smallest_ppm: self.smallest_ppm,
                cells: self.cells.iter().map(|cell| cell.name.clone()).collect(),
            },
            command: vec!["ab".to_owned(), "run".to_owned()],
            started_utc: STARTED_UTC.to_owned(),
        }
    }

    fn cell_body(&self, cell: &SyntheticCell, index: u64, replicate: u32, a: Digest, b: Digest) -> CellBody {
        let mut random = SplitMix64::new(self.seed ^ index.wrapping_mul(0xA5A5_0001) ^ u64::from(replicate) << 40);
        let plan = CellPlan {
            launches: 24,
            copies: 3,
            rotated_bytes: 96 << 20,
            seed: random.next_u64(),
            timer_ns: 30,
            moved_bytes: 1 << 20,
            flops: 1 << 21,
            workload: None,
        };
        let warm_up = WarmUp {
            slots: 40,
            elapsed_ns: 2_000_000_000,
            drift_ppm: if cell.is_steady { -120 } else { 9_000 },
            allowed_drift_ppm: 1_000,
            is_steady: cell.is_steady,
        };
        let is_timed = cell.is_gate_passed && cell.is_steady;
        let aa_blocks = if is_timed { self.aa_blocks } else { 0 };
        let aa: Vec<Block> = (0..aa_blocks).map(|block| self.block(cell, plan.seed, block + 1, &mut random)).collect();
        let ab = is_timed.then(|| self.block(cell, plan.seed, 0, &mut random));
        let result = judge_cell(&aa, ab.as_ref(), &plan, &warm_up, self.smallest_ppm);
        CellBody {
            cell: cell.name.clone(),
            replicate,
            key: CellKey {
                contract: cell.contract.clone(),
                revision: 1,
                problem: "rows=1 hidden=4096".to_owned(),
                inputs: Inputs {
                    generator: "counter/1".to_owned(),
                    family: "uniform".to_owned(),
                    seed: self.seed,
                    weights: None,
                },
                device_key: DEVICE_KEY.to_owned(),
                cache: "rotate".to_owned(),
                host_mode: "pool".to_owned(),
                clock: CLOCK.to_owned(),
                threads: THREADS,
            },
            a: arm(&cell.a, "default", Some(a)),
            b: arm(&cell.b, "explicit", cell.is_gate_passed.then_some(b)),
            plan,
            warm_up,
            aa,
            ab,
            peaks: None,
            result,
        }
    }

    /// Block 0 is A against B with the cell's voids; every other one is A against itself.
    fn block(&self, cell: &SyntheticCell, cell_seed: u64, number: u32, random: &mut SplitMix64) -> Block {
        let orders: Vec<QuadOrder> = block_orders(cell_seed, number, self.quads as usize).unwrap_or_default();
        let theta = if number == 0 { stats::from_ppm(cell.theta_ppm) } else { 0.0 };
        let mut elapsed_ns = Vec::new();
        for arm in orders.iter().flat_map(|order| order.arms()) {
            let effect = if arm == stats::ArmLabel::B { theta } else { 0.0 };
            let noise = stats::from_ppm(cell.noise_ppm) * bell(random);
            elapsed_ns.push(libm::round(cell.slot_ns as f64 * libm::exp(effect + noise)) as u64);
        }
        let observed = QuadObservation { steal_ppm: Some(0), foreign_ppm: Some(150), ..QuadObservation::default() };
        Block {
            order: order_text(&orders),
            slots: Slots { gap_ns: elapsed_ns.iter().map(|_| 900 + random.next_u64() % 200).collect(), elapsed_ns },
            observed: vec![observed; orders.len()],
            void: if number == 0 { cell.void.clone() } else { Vec::new() },
        }
    }
}

const DEVICE_KEY: &str = "host-x86_64-avx2";
const CLOCK: &str = "free";
const THREADS: u32 = 2;
const STARTED_UTC: &str = "2024-01-02T03:04:05Z";
const ENDED_UTC: &str = "2024-01-02T03:14:05Z";

/// A draw of mean 0 and variance 1: twelve uniform ones, added.
fn bell(random: &mut SplitMix64) -> f64 {
    let unit = |draw: u64| (draw >> 11) as f64 / (1_u64 << 53) as f64;
    (0..12).map(|_| unit(random.next_u64())).sum::<f64>() - 6.0
}

fn source_digest(variant: &str) -> Digest {
    sha256(format!("source of {variant}").as_bytes())
}

fn arm(variant: &str, chosen: &str, gate: Option<Digest>) -> Arm {
    Arm {
        kind: ArmKind::Kernel,
        variant: variant.to_owned(),
        chosen: chosen.to_owned(),
        layout: "rows".to_owned(),
        order_class: Some("chains8".to_owned()),
        isa: "avx2".to_owned(),
        source: Some(format!("kernels/src/ops/rms_norm/{variant}.rs")),
        source_sha256: Some(source_digest(variant)),
        about: Vec::new(),
        gate,
    }
}

fn gate(cell: &SyntheticCell, variant: &str, replicate: u32, is_passed: bool) -> GateBody {
    let failure = GateFailure {
        case: "rows=1 hidden=4096 uniform".to_owned(),
        threads: 1,
        reason: "bits".to_owned(),
        detail: "element 17 differs".to_owned(),
    };
    GateBody {
        replicate,
        contract: cell.contract.clone(),
        revision: 1,
        variant: variant.to_owned(),
        source_sha256: Some(source_digest(variant)),
        rule: "bits".to_owned(),
        order_class: Some("chains8".to_owned()),
        problems: vec!["rows=1 hidden=4096".to_owned()],
        cases: 6,
        threads: vec![1, 2],
        repeats: 3,
        poison: vec![0x7fc0_0000, 0xffff_ffff],
        max_error_ppb: 12,
        allowed_error_ppb: 60,
        output_sha256: sha256(b"output"),
        is_passed,
        failures: if is_passed { Vec::new() } else { vec![failure] },
    }
}
