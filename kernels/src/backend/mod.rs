//! Where variants run. The harness speaks to every backend through [`Backend`].

pub mod cuda;
pub mod host;
pub mod null;

use memra_contract::{DeviceKey, Problem, TensorSet};

use crate::contract::{Contract, PrepareError, Prepared, Variant};

/// A device that can prepare and launch variants.
pub trait Backend: Sync {
    /// Lower-case name, as it is given on the command line.
    fn name(&self) -> &'static str;

    /// The device key.
    fn device_key(&self) -> DeviceKey;

    /// Facts of a device with memory of its own; nothing for the host, whose facts are the machine's.
    fn facts(&self) -> Option<Facts> {
        None
    }

    /// Whether the device can do nothing more in this process, because of what a launch did.
    fn is_lost(&self) -> bool {
        false
    }

    /// Lays a variant out for a problem.
    ///
    /// # Errors
    /// [`PrepareError`] naming variant and problem.
    fn prepare(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError>;
}

/// What a trial must know of a device with memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its last-level cache in bytes.
    pub last_level_bytes: u64,
    /// Memory that is free, in bytes, if the device says.
    pub available_bytes: Option<u64>,
    /// How slots are launched, as it stands in cell keys.
    pub host_mode: &'static str,
}
