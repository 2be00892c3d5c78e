//! CUDA: text compiled at run time, launched through a thin layer over the driver.

pub mod bundle;
mod cache;
pub mod cubins;
pub mod driver;
mod files;
mod forms;
pub mod key;
pub mod nvrtc;
mod prepared;
pub mod resources;
#[cfg(test)]
mod scratch;
pub mod toolkit;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use memra_contract::digest::Digest;
use memra_contract::{DeviceKey, Problem, TensorSet};

use super::host::check_target;
use super::{Backend, Facts};
use crate::contract::{Contract, CudaBuild, PrepareError, Prepared, Target, Variant};
use cubins::Cubins;
use driver::{Driver, Module};
use forms::Forms;
use prepared::CudaPrepared;

/// A card and where the machine code of its kernels comes from.
#[derive(Debug)]
pub struct CudaBackend {
    driver: Arc<Driver>,
    cubins: Cubins,
    modules: Mutex<HashMap<Digest, Arc<Module>>>,
    faults: Mutex<Vec<String>>,
    forms: Forms,
}

impl CudaBackend {
    /// A backend of a device and of sources of machine code.
    pub fn new(driver: Arc<Driver>, cubins: Cubins) -> Self {
        Self { driver, cubins, modules: Mutex::default(), faults: Mutex::default(), forms: Forms::default() }
    }

    /// The device.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Where machine code comes from.
    pub fn cubins(&self) -> &Cubins {
        &self.cubins
    }

    /// What was wrong with bundles and the cache since this was asked last, as sentences for people.
    pub fn take_faults(&self) -> Vec<String> {
        std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn module(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        build: &CudaBuild,
    ) -> Result<Arc<Module>, PrepareError> {
        let key = variant.source_sha256();
        // A poisoned lock only says that a compilation panicked; what stands in the map is whole.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let arch = self.driver.facts().class.arch;
        let cubin =
            self.cubins.get(contract.info().id, variant, build, arch).map_err(|error| PrepareError::Compile {
                contract: contract.info().id,
                variant: variant.name.to_owned(),
                why: error.reason(),
            })?;
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).extend(cubin.faults);
        let module = self.driver.load(&cubin.bytes).map_err(|error| refused(contract, variant, &error))?;
        let module = Arc::new(module);
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

fn refused(contract: &dyn Contract, variant: &Variant, error: &driver::DriverError) -> PrepareError {
    PrepareError::Refused { contract: contract.info().id, variant: variant.name.to_owned(), why: error.to_string() }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_key(&self) -> DeviceKey {
        self.driver.key()
    }

    fn facts(&self) -> Option<Facts> {
        Some(Facts {
            last_level_bytes: self.driver.facts().l2_bytes,
            available_bytes: self.driver.free_bytes().ok(),
            host_mode: "graph",
        })
    }

    /// A fault inside a kernel stays with the context: every later call reports it.
    fn is_lost(&self) -> bool {
        self.driver.synchronise().is_err()
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        check_target(contract, variant, self.driver.key())?;
        let Target::Cuda(build) = variant.target else {
            return contract.prepare_host(variant, problem, inputs, copies);
        };
        let form = self.forms.get(contract, variant, problem, inputs)?;
        if let Some(why) = form.fault() {
            return Err(PrepareError::Refused { contract: contract.info().id, variant: variant.name.to_owned(), why });
        }
        let module = self.module(contract, variant, &build)?;
        let prepared = CudaPrepared::new(&self.driver, module, &form, copies);
        Ok(Box::new(prepared.map_err(|error| refused(contract, variant, &error))?))
    }
}
