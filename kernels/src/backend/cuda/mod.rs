//! CUDA: text compiled at run time, launched through a thin layer over the driver.

pub mod driver;
pub mod nvrtc;
mod prepared;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use memra_contract::digest::Digest;
use memra_contract::{DeviceKey, Problem, TensorSet};

use super::host::check_target;
use super::{Backend, Facts};
use crate::contract::{Contract, CudaBuild, PrepareError, Prepared, Target, Variant};
use driver::{Driver, Module};
use nvrtc::Nvrtc;
use prepared::CudaPrepared;

/// A card and the compiler of its kernels.
#[derive(Debug)]
pub struct CudaBackend {
    driver: Arc<Driver>,
    nvrtc: Nvrtc,
    modules: Mutex<HashMap<Digest, Arc<Module>>>,
}

impl CudaBackend {
    /// A backend of a device and a compiler.
    pub fn new(driver: Arc<Driver>, nvrtc: Nvrtc) -> Self {
        Self { driver, nvrtc, modules: Mutex::default() }
    }

    /// The device.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The compiler.
    pub fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
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
        let compiled = self.nvrtc.compile(&variant.source, build, arch).map_err(|error| PrepareError::Compile {
            contract: contract.info().id,
            variant: variant.name.to_owned(),
            why: error.to_string(),
        })?;
        let module = self.driver.load(&compiled.cubin).map_err(|error| refused(contract, variant, &error))?;
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
        let form = contract.device_form(variant, problem, inputs)?;
        if let Some(why) = form.fault() {
            return Err(PrepareError::Refused { contract: contract.info().id, variant: variant.name.to_owned(), why });
        }
        let module = self.module(contract, variant, &build)?;
        let prepared = CudaPrepared::new(&self.driver, module, &form, copies);
        Ok(Box::new(prepared.map_err(|error| refused(contract, variant, &error))?))
    }
}
