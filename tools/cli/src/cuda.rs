//! The card: opened with its power limit, the compiler of its kernels, and what watches it.

use std::sync::Arc;

use anyhow::Context as _;
use memra_harness::observe::{CardSensor as _, CardWatch};
use memra_harness::rig::CardFacts;
use memra_kernels::backend::cuda::CudaBackend;
use memra_kernels::backend::cuda::driver::{self, Driver, DriverError};

use crate::nvml::NvmlCard;
use crate::{toolkit, ui};

/// The card that is measured.
pub const ORDINAL: u32 = 0;

/// What a card is, without having it open.
#[derive(Debug, Clone)]
pub struct Card {
    /// Product name; for people.
    pub name: String,
    /// What makes it a rig.
    pub facts: CardFacts,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// What tells it from other cards of the machine, for its lock.
    pub lock: String,
    /// Why it is not observed, where it is not.
    pub unobserved: Option<String>,
}

/// A card that is open.
pub struct OpenCuda {
    /// Where kernels run.
    pub backend: CudaBackend,
    /// What watches it between quads.
    pub watch: CardWatch,
}

struct Opened {
    driver: Arc<Driver>,
    nvml: Result<Arc<NvmlCard>, String>,
    /// Processes that had the card before.
    before: Option<Vec<u32>>,
}

fn open(ordinal: u32) -> Result<Opened, DriverError> {
    let pci = driver::pci_bus_id(ordinal)?;
    let nvml = NvmlCard::open(Some(pci), ordinal).or_else(|_| NvmlCard::open(None, ordinal));
    let nvml = nvml.map_err(|error| error.to_string());
    let known = nvml.as_ref().ok();
    let before = known.and_then(|card| card.processes());
    let watts = known.and_then(|card| card.default_limit_mw()).map_or(0, |milliwatts| milliwatts / 1000);
    Ok(Opened { driver: Driver::probe(ordinal, watts)?, nvml, before })
}

/// Looks at a card and closes it again.
///
/// # Errors
/// When there is no driver or no such card.
pub fn look(ordinal: u32) -> Result<Card, DriverError> {
    let Opened { driver, nvml, .. } = open(ordinal)?;
    let facts = driver.facts();
    let known = nvml.as_ref().ok();
    let uuid = known.and_then(|card| card.uuid());
    Ok(Card {
        name: facts.name.clone(),
        facts: CardFacts {
            class: facts.class,
            l2_bytes: facts.l2_bytes,
            power_limit_mw: known.and_then(|card| card.enforced_limit_mw()).map(u64::from),
            driver: known.and_then(|card| card.driver()),
        },
        memory_bytes: facts.memory_bytes,
        lock: format!("cuda:{}", uuid.unwrap_or_else(|| ordinal.to_string())),
        unobserved: nvml.err(),
    })
}

/// Opens a card with the compiler of its kernels. Where NVML is missing it says so once, and the card is not observed.
///
/// # Errors
/// When there is no driver, no such card or no compiler.
pub fn open_cuda(ordinal: u32) -> anyhow::Result<OpenCuda> {
    let Opened { driver, nvml, before } = open(ordinal)?;
    let watch = match nvml {
        Ok(card) => CardWatch::new(card).recognising_itself(before.as_deref()),
        Err(why) => {
            ui::say(format_args!(
                "NVML does not answer ({why}): the clock, the temperature and other users of the card are not observed"
            ));
            CardWatch::blind()
        }
    };
    let (cubins, faults) = toolkit::cubins()?;
    for fault in faults {
        ui::say(format_args!("{fault}"));
    }
    Ok(OpenCuda { backend: CudaBackend::new(driver, cubins), watch })
}

/// Looks at the card that a cell or a check is for.
///
/// # Errors
/// When there is none; `what` is named.
pub fn needed(what: &str) -> anyhow::Result<Card> {
    let card = look(ORDINAL).with_context(|| format!("{what} needs an NVIDIA card"))?;
    if let Some(why) = &card.unobserved {
        ui::say(format_args!("NVML does not answer ({why}): the power limit and the driver of the card are not known"));
    }
    Ok(card)
}
