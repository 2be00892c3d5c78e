//! From the words of a workload cell to two engines and the model they run.

use std::path::PathBuf;

use memra_ledger::record::{CellKey, Inputs, WeightSource};

use super::{OpenError, OpenFault, Side, Workshop};
use crate::arm::ProcessArm;
use crate::cell::CellSpec;
use crate::engine_arm::{CONTRACT, EngineTask, REVISION, Workload, engine_options, model_source, resolve_engine};
use crate::process::ProcessOptions;

/// What makes the tokens of a workload: each engine, by the seed of the cell.
const GENERATOR: &str = "engine";

/// Host mode of workload cells.
const HOST_MODE: &str = "engine";

/// A workload cell with everything its words stand for on this machine.
#[derive(Debug)]
pub struct OpenWorkload {
    /// Its words.
    pub spec: CellSpec,
    /// The incumbent.
    pub a: ProcessArm,
    /// The challenger.
    pub b: ProcessArm,
    /// Threads both arms run on.
    pub threads: usize,
    /// The model file by name and content.
    pub source: WeightSource,
    /// Numbers of tokens.
    pub workload: Workload,
    model: PathBuf,
    options: ProcessOptions,
}

impl Workshop<'_> {
    /// Finds what the words of a workload cell stand for, and reads the model file for its digest.
    ///
    /// # Errors
    /// [`OpenError`] naming the cell and the cause. Arms are looked up first.
    pub fn open_workload(&self, spec: &CellSpec) -> Result<OpenWorkload, OpenError> {
        self.open_engines(spec).map_err(|fault| OpenError { cell: spec.name.clone(), fault: Box::new(fault) })
    }

    fn open_engines(&self, spec: &CellSpec) -> Result<OpenWorkload, OpenFault> {
        spec.check()?;
        let workload = spec.workload.as_ref().ok_or(OpenFault::NoWorkload)?;
        let engine = |side: Side, text: &str| {
            resolve_engine(text, &self.setup.commands).map_err(|source| OpenFault::Arm { side: side.name(), source })
        };
        let (a, b) = (engine(Side::A, &spec.a)?, engine(Side::B, &spec.b)?);
        let threads = self.threads(spec)?;
        let unreadable = |source| OpenFault::Model { file: workload.model.clone(), source };
        // A child has a working folder of its own choosing.
        let model = workload.model.canonicalize().map_err(unreadable)?;
        let source = model_source(&workload.model).map_err(unreadable)?;
        let (workload, options) = (workload.workload, engine_options(&self.setup.process));
        Ok(OpenWorkload { spec: spec.clone(), a, b, threads, source, workload, model, options })
    }
}

impl OpenWorkload {
    /// An arm.
    pub fn arm(&self, side: Side) -> &ProcessArm {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// What both engines have to run.
    pub fn task(&self) -> EngineTask<'_> {
        let (workload, threads, seed) = (self.workload, self.threads, self.spec.input_seed);
        EngineTask { workload, model: &self.model, threads, seed, options: &self.options }
    }

    /// What must be equal before results of the cell may be compared, on a device under a clock regime.
    pub fn key(&self, device_key: &str, clock: &str) -> CellKey {
        CellKey {
            contract: CONTRACT.to_owned(),
            revision: REVISION,
            problem: self.workload.to_string(),
            inputs: Inputs {
                generator: GENERATOR.to_owned(),
                family: self.spec.family.clone(),
                seed: self.spec.input_seed,
                weights: Some(self.source.clone()),
            },
            device_key: device_key.to_owned(),
            cache: self.spec.cache.name().to_owned(),
            host_mode: HOST_MODE.to_owned(),
            clock: clock.to_owned(),
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
        }
    }
}
