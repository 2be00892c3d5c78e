//! NVML: what a card says of itself. The library is loaded at run time, so that its absence is an answer.

use std::sync::Arc;

use memra_harness::observe::{CardSensor, CardState};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::{Bits, NvmlError};
use nvml_wrapper::{Device, Nvml};

/// A card as NVML sees it.
pub struct NvmlCard {
    nvml: Nvml,
    pci: Option<String>,
    ordinal: u32,
}

impl NvmlCard {
    /// Finds a card by its place on the bus, by its number where the place is not known.
    ///
    /// # Errors
    /// When there is no NVML, or it does not know the card.
    pub fn open(pci: Option<String>, ordinal: u32) -> Result<Arc<Self>, NvmlError> {
        let card = Self { nvml: Nvml::init()?, pci, ordinal };
        card.device()?;
        Ok(Arc::new(card))
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        match &self.pci {
            Some(pci) => self.nvml.device_by_pci_bus_id(pci.as_str()),
            None => self.nvml.device_by_index(self.ordinal),
        }
    }

    /// A fact of the card; nothing where it does not say.
    fn ask<'a, T>(&'a self, ask: impl FnOnce(&Device<'a>) -> Result<T, NvmlError>) -> Option<T> {
        ask(&self.device().ok()?).ok()
    }

    /// Power limit it has out of the box, in milliwatts.
    pub fn default_limit_mw(&self) -> Option<u32> {
        self.ask(Device::power_management_limit_default)
    }

    /// Power limit that holds, in milliwatts.
    pub fn enforced_limit_mw(&self) -> Option<u32> {
        self.ask(Device::enforced_power_limit)
    }

    /// Its identifier.
    pub fn uuid(&self) -> Option<String> {
        self.ask(Device::uuid)
    }

    /// The driver's version, for example `580.159.04`.
    pub fn driver(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }
}

impl CardSensor for NvmlCard {
    fn state(&self) -> CardState {
        CardState {
            clock_khz: self.ask(|device| device.clock_info(Clock::SM)).map(|mhz| u64::from(mhz) * 1000),
            clock_reasons: self
                .ask(|device| Ok(device.current_throttle_reasons_strict()))
                .and_then(|reasons| word(&reasons)),
            temperature_mc: self
                .ask(|device| device.temperature(TemperatureSensor::Gpu))
                .map(|degrees| u64::from(degrees) * 1000),
            power_mw: self.ask(Device::power_usage).map(u64::from),
        }
    }

    fn processes(&self) -> Option<Vec<u32>> {
        let processes = self.ask(Device::running_compute_processes)?;
        Some(processes.into_iter().map(|process| process.pid).collect())
    }
}

/// The word as the driver gives it, bits that have no name yet among it.
fn word(reasons: &Result<ThrottleReasons, NvmlError>) -> Option<u64> {
    match reasons {
        Ok(reasons) => Some(reasons.bits()),
        Err(NvmlError::IncorrectBits(Bits::U64(word))) => Some(*word),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_keeps_bits_without_a_name() {
        assert_eq!(word(&Ok(ThrottleReasons::SW_POWER_CAP)), Some(4));
        assert_eq!(word(&Ok(ThrottleReasons::GPU_IDLE)), Some(1));
        assert_eq!(word(&Err(NvmlError::IncorrectBits(Bits::U64(1 << 40)))), Some(1 << 40));
        assert_eq!(word(&Err(NvmlError::NotSupported)), None);
    }
}
