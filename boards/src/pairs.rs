//! Checked pairs of a variant and a case: the last full check of a rig, and that no board says fewer than before.

use crate::board::{BOARD_SCHEMA, CheckedPairs};
use crate::collect::{Collected, File, citation};
use crate::error::BoardError;
use crate::output::{Output, read};
use memra_ledger::record::GATES_ONLY;
use serde::Deserialize;
use std::path::Path;

/// The last finished session of a rig that checked variants and measured nothing, and was not withdrawn.
pub(crate) fn checked(collected: &Collected<'_>, label: &str) -> Option<CheckedPairs> {
    let is_full = |file: &&File<'_>| {
        let withdraws = || collected.corrections.of([&file.record.id]).iter().any(|one| one.withdraws);
        is_gates_only(file) && file.session.rig.label == label && file.is_finished && !withdraws()
    };
    let last = collected.files.iter().filter(is_full).max_by_key(|file| (file.started_ns, &file.record.session))?;
    let failed = last.gates.values().filter(|gate| !gate.is_passed).count();
    Some(CheckedPairs {
        pairs: last.gates.values().map(|gate| u64::from(gate.cases)).fold(0, u64::saturating_add),
        variants: last.gates.len() as u32,
        failed_variants: failed as u32,
        date: last.session.started_utc.get(..10).unwrap_or_default().to_owned(),
        receipt: citation(last.path, &last.record.id),
    })
}

/// Whether a session checks variants and has no cell.
pub(crate) fn is_gates_only(file: &File<'_>) -> bool {
    file.session.plan.stop == GATES_ONLY && file.session.plan.cells.is_empty()
}

/// A board that says fewer checked pairs than the one that stands below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FewerPairs {
    /// Path of the board relative to the evidence root.
    pub path: String,
    /// Pairs of the board that stands there.
    pub before: u64,
    /// Pairs of the new one; 0 where it has none.
    pub now: u64,
}

impl std::fmt::Display for FewerPairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, before, now } = self;
        write!(f, "{path} says {before} checked pairs of variant and case and would say {now}")
    }
}

/// The boards among the outputs that say fewer checked pairs than the ones below `root`.
///
/// # Errors
///
/// [`BoardError::Io`] with the path that could not be read.
pub fn fewer_pairs(root: &Path, outputs: &[Output]) -> Result<Vec<FewerPairs>, BoardError> {
    let mut fewer = Vec::new();
    for output in outputs {
        let Some(now) = pairs(&output.bytes) else { continue };
        let before = read(root, &output.path)?.and_then(|bytes| pairs(&bytes)).unwrap_or(0);
        if now < before {
            fewer.push(FewerPairs { path: output.path.clone(), before, now });
        }
    }
    Ok(fewer)
}

/// The pairs that the text of a board says, 0 where it says none; `None` where it is no board.
fn pairs(text: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        checked: Option<Pairs>,
    }
    #[derive(Deserialize)]
    struct Pairs {
        pairs: u64,
    }
    let head: Head = serde_json::from_slice(text).ok()?;
    (head.schema == BOARD_SCHEMA).then(|| head.checked.map_or(0, |checked| checked.pairs))
}
