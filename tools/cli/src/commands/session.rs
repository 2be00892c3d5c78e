//! What every recorded session says of itself.

use std::time::SystemTime;

use memra_harness::rig::HostFacts;
use memra_ledger::record::Rig;
use memra_ledger::rigs::RigRegistry;

use crate::cuda::Card;
use crate::{facts, ui};

/// The machine of a session: a card, or the CPUs where there is none. Says so where it is not registered.
///
/// # Errors
/// When the machine does not say what it is.
pub(super) fn rig(card: Option<&Card>) -> anyhow::Result<Rig> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let host = HostFacts::read(u32::try_from(cpus)?)?;
    let (class, memory_bytes) = match card {
        None => (host.class, host.memory_bytes),
        Some(card) => (card.facts.rig_class(), card.memory_bytes),
    };
    let rig = RigRegistry::builtin()?.describe(class, &host.os_release, memory_bytes)?;
    if !rig.is_registered {
        ui::say(format_args!(
            "note: this rig is not registered; it stands as {} and stays off tracked boards",
            rig.label
        ));
    }
    Ok(rig)
}

/// A seed from the clock.
pub(super) fn seed_of_now() -> u64 {
    let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    (nanoseconds & 0xFFFF_FFFF) as u64
}

/// 32 hexadecimal digits that no other session has.
pub(super) fn session_id(seed: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    let digest = facts::sha256(format!("{now} {seed} {}", std::process::id()).as_bytes());
    digest.as_str()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_ids_of_their_own() {
        let (a, b) = (session_id(1), session_id(1));
        assert!(a.len() == 32 && a != b);
    }
}
