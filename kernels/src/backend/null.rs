//! A backend that computes nothing: for planning, launch counts and errors where there is no device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memra_contract::{DeviceKey, Problem, Tensor, TensorSet};

use super::Backend;
use super::host::Pool;
use crate::contract::{Contract, LaunchError, PrepareError, Prepared, Target, Variant};
use crate::form::{DeviceForm, OutputForm};

/// Prepares like the host with a given key, refuses what the host refuses, and launches nothing.
#[derive(Debug, Clone)]
pub struct NullBackend {
    key: DeviceKey,
    launches: Arc<AtomicU64>,
}

impl NullBackend {
    /// A backend that pretends to be a device of this key.
    pub fn new(key: DeviceKey) -> Self {
        Self { key, launches: Arc::default() }
    }

    /// Launches asked for so far.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }
}

struct NullPrepared {
    outputs: Box<dyn Prepared>,
    launches: Arc<AtomicU64>,
}

impl Prepared for NullPrepared {
    fn launch(&mut self, _: &Pool, _: usize) -> Result<(), LaunchError> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        self.outputs.outputs()
    }

    fn poison(&mut self, pattern: u32) {
        self.outputs.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.outputs.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.outputs.copy_bytes()
    }
}

/// A form that no device holds: its outputs are what they are filled with.
struct Planned {
    form: DeviceForm,
    outputs: Vec<Vec<u8>>,
}

impl Planned {
    fn new(contract: &dyn Contract, variant: &Variant, form: DeviceForm) -> Result<Self, PrepareError> {
        if let Some(why) = form.fault() {
            return Err(PrepareError::Refused { contract: contract.info().id, variant: variant.name.to_owned(), why });
        }
        let outputs = form.outputs.iter().map(|output| vec![0; output.bytes()]).collect();
        Ok(Self { form, outputs })
    }
}

impl Prepared for Planned {
    fn launch(&mut self, _: &Pool, _: usize) -> Result<(), LaunchError> {
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let tensor = |(output, bytes): (&OutputForm, &Vec<u8>)| Tensor {
            name: output.name.clone(),
            dtype: output.dtype,
            shape: output.shape.clone(),
            bytes: bytes.clone(),
        };
        TensorSet::new(self.form.outputs.iter().zip(&self.outputs).map(tensor).collect())
    }

    fn poison(&mut self, pattern: u32) {
        let pattern = pattern.to_le_bytes();
        for bytes in &mut self.outputs {
            bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, pattern)| *byte = *pattern);
        }
    }

    fn guards_hold(&self) -> bool {
        true
    }

    fn copy_bytes(&self) -> usize {
        self.form.copy_bytes()
    }
}

impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }

    fn device_key(&self) -> DeviceKey {
        self.key
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        super::host::check_target(contract, variant, self.key)?;
        let outputs: Box<dyn Prepared> = match variant.target {
            Target::Host(_) => contract.prepare_host(variant, problem, inputs, copies)?,
            Target::Cuda(_) => {
                Box::new(Planned::new(contract, variant, contract.device_form(variant, problem, inputs)?)?)
            }
        };
        Ok(Box::new(NullPrepared { outputs, launches: Arc::clone(&self.launches) }))
    }
}
