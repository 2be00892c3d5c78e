//! One replicate: one process that measures every cell of a suite, in an order of its own.
//!
//! The parent process hands a [`ReplicateSpec`] over, the child answers with [`ReplicateLine`]s, and the parent makes
//! records of them. A cell that cannot be measured is reported and the others go on.

mod cell;
mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use memra_contract::defaults::{DefaultsError, DefaultsTable};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::select::{Tables, shipped};
use memra_ledger::record::{CellBody, GateBody};
use memra_ledger::stats::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::arm::Commands;
use crate::cell::{BackendKind, CellSpec};
use crate::check::{CheckPlan, CheckPlanError};
use crate::engine_arm::ENGINE_RUNS;
use crate::observe::CardWatch;
use crate::open::{Workshop, WorkshopSetup};
use crate::process::ProcessOptions;
use crate::progress::{Event, Progress};
use crate::rig::{HostFacts, RigReadError};
use crate::trial::timer::{StoppedClock, monotonic_resolution_ns};
use crate::trial::{LONG_WARM_UP_SLOTS, LongPlan, WarmUpLimits};
use cell::Replicate;

/// The clock regime of every cell: the lab does not lock clocks.
pub const CLOCK: &str = "free";

/// Most quads of a block: a receipt has no room for more.
pub const MAX_QUADS: u32 = 65_536;

/// Most A/A blocks of a cell.
pub const MAX_AA_BLOCKS: u32 = 256;

/// What one replicate measures. JSON on the way to the child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicateSpec {
    /// The cells, in declared order. Names are unique.
    pub cells: Vec<CellSpec>,
    /// Replicate, from 0.
    pub replicate: u32,
    /// Seed of the session; the orders of cells and quads follow from it and the replicate.
    pub seed: u64,
    /// Quads of every block.
    pub quads: u32,
    /// A/A blocks of every cell.
    pub aa_blocks: u32,
    /// Smallest difference worth shipping, in parts per million.
    pub smallest_ppm: i64,
    /// Warm-up of every cell.
    pub warm_up: WarmUpLimits,
    /// Defaults promoted on this machine.
    pub local_defaults: Option<DefaultsTable>,
    /// Commands of process arms. They hold paths and never reach a record.
    pub commands: Commands,
    /// A folder for the tensors of process arms.
    pub scratch: PathBuf,
}

/// One line of a child's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReplicateLine {
    /// A check, passed or not.
    Gate {
        /// Number of the gate in this replicate, from 0: what cells refer to before there are record ids.
        local: u32,
        /// The record.
        gate: Box<GateBody>,
    },
    /// A cell whose arms were found, measured or not. Without A/B block it is VOID.
    Cell {
        /// The passed gate of A. `cell.a.gate` is `null` up to now.
        gate_a: Option<u32>,
        /// The passed gate of B. `cell.b.gate` is `null` up to now.
        gate_b: Option<u32>,
        /// The record.
        cell: Box<CellBody>,
    },
    /// Why a cell was not measured to its end: follows its `Cell`, or stands for it where the cell could not be opened.
    Failed {
        /// Name of the cell.
        cell: String,
        /// Why.
        reason: String,
    },
    /// The device can do nothing more in this process. Cells without a line are for another one.
    Lost,
    /// The replicate is complete. A child that ends without it was lost.
    Done,
}

/// A replicate that cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The plan breaks a rule.
    #[error("replicate {replicate}: {field}: {why}")]
    Spec {
        /// The replicate.
        replicate: u32,
        /// The field.
        field: &'static str,
        /// The rule it breaks.
        why: String,
    },
    /// The machine does not say what it is.
    #[error(transparent)]
    Rig(#[from] RigReadError),
    /// The clock cannot be used.
    #[error("the monotonic clock: {0}")]
    Clock(#[from] StoppedClock),
    /// The shipped defaults cannot be read.
    #[error(transparent)]
    Defaults(#[from] DefaultsError),
    /// No check can be made.
    #[error(transparent)]
    Check(#[from] CheckPlanError),
}

/// Measures all cells of a replicate on the host.
///
/// Every line is handed to `emit` as soon as it is known; the last is [`ReplicateLine::Done`], or [`ReplicateLine::Lost`]
/// where a launch has cost the device.
///
/// # Errors
///
/// [`SuiteError`] where nothing can be measured. What is wrong with one cell is a [`ReplicateLine::Failed`].
pub fn run_replicate(
    spec: &ReplicateSpec,
    emit: &mut dyn FnMut(ReplicateLine),
    progress: &dyn Progress,
) -> Result<(), SuiteError> {
    run_replicate_on(spec, &HostBackend::detect(), None, emit, progress)
}

/// Measures all cells of a replicate on a device, with what watches it where it is a card.
///
/// # Errors
///
/// As [`run_replicate`].
pub fn run_replicate_on(
    spec: &ReplicateSpec,
    backend: &dyn Backend,
    card: Option<CardWatch>,
    emit: &mut dyn FnMut(ReplicateLine),
    progress: &dyn Progress,
) -> Result<(), SuiteError> {
    spec.check()?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let facts = HostFacts::read(u32::try_from(cpus).unwrap_or(u32::MAX))?;
    let setup = WorkshopSetup {
        backend,
        tables: Tables { local: spec.local_defaults.clone(), shipped: shipped()?, forced: Vec::new() },
        commands: spec.commands.clone(),
        plan: CheckPlan::for_backend(backend),
        process: ProcessOptions::default(),
        cpus,
        last_level_bytes: facts.class.last_level_bytes,
        available_bytes: Some(facts.available_bytes),
        card,
        scratch: spec.scratch.clone(),
    };
    run_in(spec, setup, emit, progress)
}

/// Measures all cells of a replicate in a workshop of these tools.
///
/// # Errors
///
/// As [`run_replicate`].
pub fn run_in(
    spec: &ReplicateSpec,
    setup: WorkshopSetup<'_>,
    emit: &mut dyn FnMut(ReplicateLine),
    progress: &dyn Progress,
) -> Result<(), SuiteError> {
    spec.check()?;
    let timer_ns = monotonic_resolution_ns()?;
    let workshop = Workshop::new(setup)?;
    let mut replicate = Replicate::new(spec, &workshop, timer_ns, progress);
    for (place, cell) in spec.cell_order().into_iter().enumerate() {
        let event = Event::Cell { cell: cell.name.clone(), number: place + 1, of: spec.cells.len() };
        progress.event(&event);
        let ran = match &cell.workload {
            Some(_) => replicate.run_workload(cell, emit),
            None => replicate.run_cell(cell, emit),
        };
        if let Err(fault) = ran {
            emit(ReplicateLine::Failed { cell: cell.name.clone(), reason: fault.to_string() });
        }
        if workshop.is_lost() {
            emit(ReplicateLine::Lost);
            return Ok(());
        }
    }
    emit(ReplicateLine::Done);
    Ok(())
}

impl ReplicateSpec {
    /// Holds a plan to its rules.
    ///
    /// # Errors
    ///
    /// [`SuiteError::Spec`] naming the field.
    pub fn check(&self) -> Result<(), SuiteError> {
        let refuse = |field, why: String| Err(SuiteError::Spec { replicate: self.replicate, field, why });
        let mut names = BTreeSet::new();
        if let Some(twice) = self.cells.iter().find(|cell| !names.insert(cell.name.as_str())) {
            return refuse("cells", format!("`{}` stands twice", twice.name));
        }
        let Some(first) = self.cells.first() else { return refuse("cells", "there is none".to_owned()) };
        if let Some(other) = self.cells.iter().find(|cell| cell.backend != first.backend) {
            let (a, b) = (first.backend, other.backend);
            return refuse(
                "cells",
                format!("`{}` is for {a} and `{}` for {b}: a session has one", first.name, other.name),
            );
        }
        if !(1..=MAX_QUADS).contains(&self.quads) {
            return refuse("quads", format!("{} is not between 1 and {MAX_QUADS}", self.quads));
        }
        if self.aa_blocks > MAX_AA_BLOCKS {
            return refuse("aa_blocks", format!("{} is more than {MAX_AA_BLOCKS}", self.aa_blocks));
        }
        if self.smallest_ppm < 0 {
            return refuse("smallest_ppm", format!("{} is negative", self.smallest_ppm));
        }
        Ok(())
    }

    /// What the cells run on: the same for all.
    pub fn backend(&self) -> BackendKind {
        self.cells.first().map(|cell| cell.backend).unwrap_or_default()
    }

    /// What is left to another process when one ended early: the cells without a line. `heard` are those with one.
    ///
    /// Unless the device was lost behind a cell that said so, the next cell in order is the one that ended the process; it is
    /// given back by name and not tried again.
    pub fn after_a_crash(&self, heard: &BTreeSet<String>, is_lost: bool) -> (Option<String>, Self) {
        let left = || self.cell_order().into_iter().filter(|cell| !heard.contains(&cell.name));
        let culprit = if is_lost && !heard.is_empty() { None } else { left().next().map(|cell| cell.name.clone()) };
        let mut rest = self.clone();
        rest.cells.retain(|cell| !heard.contains(&cell.name) && Some(&cell.name) != culprit.as_ref());
        (culprit, rest)
    }

    /// The cells in the order this replicate measures them.
    fn cell_order(&self) -> Vec<&CellSpec> {
        let mut cells: Vec<&CellSpec> = self.cells.iter().collect();
        SplitMix64::new(derive_seed(self.seed, self.replicate, "cell order")).shuffle(&mut cells);
        cells
    }
}

/// The seed of one purpose in one replicate: every bit of it depends on all of `seed`, `replicate` and `purpose`. The quad
/// orders of a cell have its name as purpose.
pub fn derive_seed(seed: u64, replicate: u32, purpose: &str) -> u64 {
    let next = |state: u64| SplitMix64::new(state).next_u64();
    let start = next(next(seed) ^ u64::from(replicate));
    purpose.bytes().fold(start, |state, byte| next(state ^ u64::from(byte)))
}

/// Time that opening a cell, checking its arms and laying them out is taken to need.
pub const EXPECTED_PREPARATION: Duration = Duration::from_secs(5);

/// Time one cell with the given plan takes, roughly: for the announcement of a session and for its budget.
///
/// Slots are taken to last 1.5 ms on average and to follow each other without a pause, and everything before them to take
/// [`EXPECTED_PREPARATION`]; an arm much slower than the other, or a large problem, takes longer.
pub fn expected_time(quads: u32, aa_blocks: u32, warm_up: WarmUpLimits) -> Duration {
    let slots = (4 * u64::from(quads)).saturating_mul(u64::from(aa_blocks) + 1);
    let slots = Duration::from_micros(slots.saturating_mul(1_500));
    let warm = Duration::from_millis(warm_up.at_least_ms.saturating_add(warm_up.at_least_ms / 3));
    EXPECTED_PREPARATION.saturating_add(slots).saturating_add(warm)
}

/// Time a slot of a workload is taken to last, with what comes before it.
pub const EXPECTED_WORKLOAD_SLOT: Duration = Duration::from_secs(2);

/// Time one workload cell takes, roughly: every slot is taken to last [`EXPECTED_WORKLOAD_SLOT`], those of the checks and of
/// the warm-up among them.
pub fn expected_workload_time(quads: u32, aa_blocks: u32) -> Duration {
    let plan = LongPlan { quads, aa_blocks, seed: 0, warm_up_slots: LONG_WARM_UP_SLOTS };
    let [a, b] = plan.slots();
    let slots = a.saturating_add(b).saturating_add(2 * u64::from(ENGINE_RUNS));
    EXPECTED_WORKLOAD_SLOT.saturating_mul(u32::try_from(slots).unwrap_or(u32::MAX))
}

/// Time one cell takes, roughly: [`expected_time`], or [`expected_workload_time`].
pub fn expected_cell_time(spec: &ReplicateSpec, cell: &CellSpec) -> Duration {
    match cell.workload {
        Some(_) => expected_workload_time(spec.quads, spec.aa_blocks),
        None => expected_time(spec.quads, spec.aa_blocks, spec.warm_up),
    }
}

/// The same on a card, where a case is judged once, weights are laid out once, and committed cases are checked once.
pub const EXPECTED_CARD_PREPARATION: Duration = Duration::from_secs(1);

/// Seconds one replicate takes, roughly: [`expected_cell_time`] of every cell. On a card every cell but the first finds it
/// warm, and preparation takes [`EXPECTED_CARD_PREPARATION`].
pub fn expected_seconds(spec: &ReplicateSpec) -> u64 {
    let times = spec.cells.iter().enumerate().map(|(place, cell)| {
        if cell.backend != BackendKind::Cuda || cell.workload.is_some() || place == 0 {
            return expected_cell_time(spec, cell);
        }
        let warm = expected_time(spec.quads, spec.aa_blocks, spec.warm_up.on_warm_device());
        warm.saturating_sub(EXPECTED_PREPARATION).saturating_add(EXPECTED_CARD_PREPARATION)
    });
    times.fold(Duration::ZERO, Duration::saturating_add).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::cell;
    use std::path::Path;

    fn spec() -> ReplicateSpec {
        let cells = ["demo", "quantise-m1", "rms-norm-m1", "q8-576x576-m4", "f32-router-m8"];
        ReplicateSpec {
            cells: cells.iter().map(|name| cell(name).unwrap().spec(Path::new("models"))).collect(),
            replicate: 0,
            seed: 7,
            quads: 20,
            aa_blocks: 2,
            smallest_ppm: 5_000,
            warm_up: WarmUpLimits::default(),
            local_defaults: None,
            commands: Commands::default(),
            scratch: PathBuf::from("scratch"),
        }
    }

    #[test]
    fn plans_that_cannot_be_run_are_refused_by_field() {
        type Change = fn(&mut ReplicateSpec);
        let cases: [(Change, &str); 7] = [
            (|spec| spec.cells[2].backend = BackendKind::Cuda, "cells: `demo` is for host and `rms-norm-m1` for cuda"),
            (|spec| spec.cells.clear(), "cells: there is none"),
            (|spec| spec.cells.push(spec.cells[0].clone()), "cells: `demo` stands twice"),
            (|spec| spec.quads = 0, "quads: 0 is not between 1 and 65536"),
            (|spec| spec.quads = MAX_QUADS + 1, "quads: 65537 is not"),
            (|spec| spec.aa_blocks = 257, "aa_blocks: 257 is more than 256"),
            (|spec| spec.smallest_ppm = -1, "smallest_ppm: -1 is negative"),
        ];
        spec().check().unwrap();
        for (change, why) in cases {
            let mut changed = spec();
            change(&mut changed);
            let error = changed.check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("replicate 0: {why}")), "{error}");
        }
    }

    #[test]
    fn every_replicate_has_an_order_of_its_own_that_follows_from_the_seed() {
        let order = |seed, replicate| -> Vec<String> {
            let spec = ReplicateSpec { replicate, seed, ..spec() };
            spec.cell_order().into_iter().map(|cell| cell.name.clone()).collect()
        };
        assert_eq!(order(7, 3), order(7, 3));
        let orders: BTreeSet<Vec<String>> = (0..8).map(|replicate| order(7, replicate)).collect();
        assert!(orders.len() >= 7, "{orders:?}");
        assert_ne!(order(7, 0), order(8, 0));
    }

    #[test]
    fn a_crash_costs_one_cell_and_a_lost_device_none() {
        let spec = spec();
        let order: Vec<String> = spec.cell_order().into_iter().map(|cell| cell.name.clone()).collect();
        let names = |spec: &ReplicateSpec| spec.cells.iter().map(|cell| cell.name.clone()).collect::<BTreeSet<_>>();
        let heard = BTreeSet::from([order[0].clone()]);
        let (culprit, rest) = spec.after_a_crash(&heard, false);
        assert_eq!((culprit.as_ref(), rest.cells.len(), rest.replicate), (Some(&order[1]), 3, spec.replicate));
        assert_eq!(names(&rest), order[2..].iter().cloned().collect());
        let (culprit, rest) = spec.after_a_crash(&heard, true);
        assert_eq!((culprit, names(&rest)), (None, order[1..].iter().cloned().collect()));
        // A device that is lost before anything was said is no reason to try the same for ever.
        assert_eq!(spec.after_a_crash(&BTreeSet::new(), true).0.as_ref(), Some(&order[0]));
        let (culprit, rest) = spec.after_a_crash(&order.iter().cloned().collect(), false);
        assert_eq!((culprit, rest.cells.len()), (None, 0));
    }

    #[test]
    fn seeds_of_different_purposes_do_not_meet() {
        let mut seeds = BTreeSet::new();
        for seed in 0..10 {
            for replicate in 0..10 {
                for purpose in ["", "a", "b", "ab", "ba", "cell order"] {
                    assert!(seeds.insert(derive_seed(seed, replicate, purpose)));
                }
            }
        }
        // Receipts were written with these: the orders of a cell must never change.
        assert_eq!(derive_seed(0, 0, ""), 0xA706_DD2F_4D19_7E6F);
        assert_eq!(derive_seed(7, 2, "demo"), 0x7C24_1BD2_1BB4_A1FC);
    }

    #[test]
    fn plans_and_lines_survive_the_way_to_another_process() {
        let mut spec = spec();
        spec.commands.add("peer=/opt/peer --fast").unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ReplicateSpec>(&text).unwrap(), spec);
        assert!(serde_json::from_str::<ReplicateSpec>(&text.replacen("\"quads\"", "\"quad\"", 1)).is_err());
        let failed = ReplicateLine::Failed { cell: "demo".to_owned(), reason: "because".to_owned() };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(text, r#"{"line":"failed","cell":"demo","reason":"because"}"#);
        assert_eq!(serde_json::from_str::<ReplicateLine>(&text).unwrap(), failed);
        assert_eq!(serde_json::to_string(&ReplicateLine::Done).unwrap(), r#"{"line":"done"}"#);
    }

    #[test]
    fn more_quads_take_longer() {
        let limits = WarmUpLimits { at_least_ms: 3_000, give_up_ms: 10_000 };
        let expected = expected_time(20, 2, limits);
        assert_eq!(expected, EXPECTED_PREPARATION + Duration::from_millis(4_000 + 360));
        assert_eq!(expected_seconds(&ReplicateSpec { warm_up: limits, ..spec() }), 46);
        assert!(expected_time(u32::MAX, u32::MAX, limits) > expected);
        // On a card four of five cells take a second, a warm-up of 0.4 s and the blocks of 0.36 s.
        let mut card = ReplicateSpec { warm_up: limits, ..spec() };
        card.cells.iter_mut().for_each(|cell| cell.backend = BackendKind::Cuda);
        assert_eq!(expected_seconds(&card), (9_360 + 4 * 1_760) / 1_000);
        // 24 slots of A and its twin, 12 of A, 12 of B, 8 of warm-up, 4 of checks.
        assert_eq!(expected_workload_time(6, 1), Duration::from_mins(2));
        assert!(expected_workload_time(u32::MAX, u32::MAX) > Duration::from_secs(1 << 30));
    }
}
