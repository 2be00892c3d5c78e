//! A backend that computes nothing: for planning, launch counts and errors where there is no device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memra_contract::{DeviceKey, Problem, TensorSet};

use super::Backend;
use super::host::Pool;
use crate::contract::{Contract, PrepareError, Prepared, Variant};

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
    fn launch(&mut self, _: &Pool, _: usize) {
        self.launches.fetch_add(1, Ordering::Relaxed);
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
        super::host::check_tier(contract, variant, self.key)?;
        let outputs = contract.prepare_host(variant, problem, inputs, copies)?;
        Ok(Box::new(NullPrepared { outputs, launches: Arc::clone(&self.launches) }))
    }
}
