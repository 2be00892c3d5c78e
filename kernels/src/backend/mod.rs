//! Where variants run. The harness speaks to every backend through [`Backend`].

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
