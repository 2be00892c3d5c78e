//! `ab compare`: whether two recorded cells may be compared at all.
//!
//! The answer is never a ratio. Cells that differ in anything of their key, or come from two rigs, are INCOMPARABLE; equal
//! cells of two sessions are too, since nothing interleaved them. Only replicates of one session belong together, and their
//! verdict stands in the session.

use std::path::Path;

use anyhow::{Context as _, bail};
use memra_harness::outcome;
use memra_ledger::chain::{ReceiptFile, read_file};
use memra_ledger::record::{Body, CellBody, SessionBody};
use serde_json::json;

use crate::{checkout, ui};

struct Recorded {
    citation: String,
    session_id: String,
    session: SessionBody,
    cell: CellBody,
}

/// Runs the command.
///
/// # Errors
/// When a citation does not lead to a cell.
pub(super) fn run(a: &str, b: &str, root: Option<&Path>, json: bool) -> anyhow::Result<u8> {
    let root = checkout::evidence_root(root)?;
    let (a, b) = (recorded(&root, a)?, recorded(&root, b)?);
    let reasons = reasons(&a, &b);
    let code = if reasons.is_empty() { outcome::PASSED } else { outcome::INCOMPARABLE };
    let verdict = if reasons.is_empty() { "SAME SESSION" } else { "INCOMPARABLE" };
    if json {
        ui::print_json(&json!({"a": a.citation, "b": b.citation, "verdict": verdict, "reasons": reasons}))?;
        return Ok(code);
    }
    ui::print(verdict)?;
    for reason in &reasons {
        ui::print(format_args!("  {reason}"))?;
    }
    if reasons.is_empty() {
        ui::print("  replicates of one cell in one session: the session's verdict judges them together")?;
    }
    Ok(code)
}

fn recorded(root: &Path, citation: &str) -> anyhow::Result<Recorded> {
    let Some((file, id)) = citation.split_once('#') else {
        bail!("`{citation}` is not of the form FILE#RECORD");
    };
    let receipt: ReceiptFile = read_file(root, file).with_context(|| format!("`{citation}`"))?;
    let (Some(session), Some(session_id)) = (receipt.session(), receipt.session_id()) else {
        bail!("`{citation}`: the file has no session");
    };
    let mut found = receipt.records.iter().filter(|record| record.id.as_str().starts_with(id));
    let (Some(record), None) = (found.next(), found.next()) else {
        bail!("`{citation}`: no single record begins with `{id}`");
    };
    let cell = match &record.body {
        Body::Cell(cell) => cell.as_ref().clone(),
        Body::Verdict(verdict) => {
            let first = verdict.replicates.first().and_then(|id| receipt.find(id));
            match first.map(|record| &record.body) {
                Some(Body::Cell(cell)) => cell.as_ref().clone(),
                _ => bail!("`{citation}`: the verdict cites no cell of its file"),
            }
        }
        _ => bail!("`{citation}` is neither a cell nor a verdict"),
    };
    Ok(Recorded { citation: citation.to_owned(), session_id: session_id.to_owned(), session: session.clone(), cell })
}

fn reasons(a: &Recorded, b: &Recorded) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut differ = |what: &str, a: &dyn std::fmt::Display, b: &dyn std::fmt::Display| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            reasons.push(format!("{what} differs: {a}, {b}"));
        }
    };
    let (ka, kb) = (&a.cell.key, &b.cell.key);
    differ("rig", &a.session.rig.label, &b.session.rig.label);
    differ("rig class", &a.session.rig.fingerprint.short(), &b.session.rig.fingerprint.short());
    differ("device key", &ka.device_key, &kb.device_key);
    differ("contract", &ka.contract, &kb.contract);
    differ("revision", &ka.revision, &kb.revision);
    differ("problem", &ka.problem, &kb.problem);
    differ("input family", &ka.inputs.family, &kb.inputs.family);
    differ("input seed", &ka.inputs.seed, &kb.inputs.seed);
    let weights = |cell: &CellBody| {
        cell.key.inputs.weights.as_ref().map_or_else(
            || "generated".to_owned(),
            |weights| {
                let of = if weights.tensor.is_empty() { String::new() } else { format!("{} of ", weights.tensor) };
                format!("{of}{} ({})", weights.file, weights.tensor_sha256.short())
            },
        )
    };
    differ("weights", &weights(&a.cell), &weights(&b.cell));
    differ("cache mode", &ka.cache, &kb.cache);
    differ("host mode", &ka.host_mode, &kb.host_mode);
    differ("clock regime", &ka.clock, &kb.clock);
    differ("threads", &ka.threads, &kb.threads);
    if a.session_id != b.session_id {
        reasons
            .push("they come from two sessions, and only slots that were interleaved in one are compared".to_owned());
    }
    reasons
}
