//! The host: a first-class device and the embedded default.

mod isa;
mod partition;
mod pool;
mod read_rate;

pub use isa::this_tier;
pub use partition::{Lent, Part, Partition};
pub use pool::Pool;
pub use read_rate::read_rate;

use memra_contract::device::HostArch;
use memra_contract::{DeviceKey, Problem, TensorSet};

use super::Backend;
use crate::contract::{Contract, PrepareError, Prepared, Variant};

/// The CPU this program runs on.
#[derive(Debug, Clone, Copy)]
pub struct HostBackend {
    key: DeviceKey,
}

impl HostBackend {
    /// Looks at the CPU.
    pub fn detect() -> Self {
        Self { key: DeviceKey::Host { arch: HostArch::of_this_build(), tier: this_tier() } }
    }
}

/// Refuses a variant that a device does not run.
pub(crate) fn check_target(contract: &dyn Contract, variant: &Variant, key: DeviceKey) -> Result<(), PrepareError> {
    if variant.target.serves(key) {
        return Ok(());
    }
    let has = match key {
        DeviceKey::Host { tier, .. } => tier.name(),
        DeviceKey::Cuda(class) => class.arch.name(),
    };
    Err(PrepareError::Device {
        contract: contract.info().id,
        variant: variant.name.to_owned(),
        needs: variant.target.to_string(),
        has: has.to_owned(),
    })
}

impl Backend for HostBackend {
    fn name(&self) -> &'static str {
        "host"
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
        check_target(contract, variant, self.key)?;
        contract.prepare_host(variant, problem, inputs, copies)
    }
}
