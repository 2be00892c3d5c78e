//! What a file must hold as a whole: its name, its session, its order of records, its gates and its end.

use std::collections::HashSet;

use super::Checks;
use super::cell::MAX_PLAN_QUADS;
use crate::canonical;
use crate::chain::{ReceiptFile, check_session};
use crate::record::{Body, GateBody, SessionBody};

pub(super) fn check(file: &ReceiptFile, checks: &mut Checks<'_>) {
    let Some(first) = file.records.first() else { return };
    checks.line = Some(1);
    if let Err(error) = check_session(&first.session) {
        checks.field("session", error.to_string());
    }
    match &first.body {
        Body::Session(session) => {
            check_name(file, &first.session, session, checks);
            check_session_body(session, checks);
        }
        _ => checks.field("kind", "the first record of a file must be that of the session"),
    }
    let mut ids = HashSet::new();
    let mut is_ended = false;
    for (index, record) in file.records.iter().enumerate() {
        checks.line = Some(index as u64 + 1);
        if is_ended && !matches!(record.body, Body::Correction(_)) {
            checks.field("kind", "only corrections follow the end of a session");
        }
        match &record.body {
            Body::Session(_) if index > 0 => checks.field("kind", "a file holds one session"),
            Body::Gate(gate) => check_gate(gate, checks),
            Body::Correction(correction) if !ids.contains(&correction.corrects) => {
                checks.field("corrects", format!("{} is no earlier record of this file", correction.corrects));
            }
            Body::End(end) => {
                is_ended = true;
                checks.equal("records", &end.records, &(index as u64), "the file holds before it");
            }
            _ => {}
        }
        if !ids.insert(&record.id) {
            checks.field("id", "stands twice in the file");
        }
    }
    checks.line = None;
}

/// The folder is the rig's, and the name ends in the first digits of the session.
fn check_name(file: &ReceiptFile, id: &str, session: &SessionBody, checks: &mut Checks<'_>) {
    let folder = format!("receipts/{}/", session.rig.label);
    if !file.name.starts_with(&folder) {
        checks.field("rig.label", format!("is `{}`, so the file must lie in {folder}", session.rig.label));
    }
    let ending = format!("-{}.jsonl", id.get(..8).unwrap_or(id));
    if !file.name.ends_with(&ending) {
        checks.field("session", format!("is {id}, so the name of the file must end in {ending}"));
    }
}

fn check_session_body(session: &SessionBody, checks: &mut Checks<'_>) {
    let fingerprint = canonical::to_value(&session.rig.class).and_then(|class| canonical::digest(&class));
    match fingerprint {
        Ok(computed) => {
            checks.equal("rig.fingerprint", &session.rig.fingerprint, &computed, "the class gives");
        }
        Err(error) => checks.field("rig.class", error.to_string()),
    }
    if session.plan.smallest_ppm < 0 {
        checks.field("plan.smallest_ppm", "is below 0");
    }
    if session.plan.quads as usize > MAX_PLAN_QUADS {
        checks.field("plan.quads", format!("is above {MAX_PLAN_QUADS}"));
    }
    if session.plan.replicates == 0 {
        checks.field("plan.replicates", "is 0");
    }
    let mut names = HashSet::new();
    for name in &session.plan.cells {
        if !names.insert(name) {
            checks.field("plan.cells", format!("names `{name}` twice"));
        }
    }
}

fn check_gate(gate: &GateBody, checks: &mut Checks<'_>) {
    if gate.is_passed != gate.failures.is_empty() {
        let failures = gate.failures.len();
        checks.field("is_passed", format!("is {} with {failures} failures", gate.is_passed));
    }
    if gate.is_passed && gate.cases == 0 {
        checks.field("cases", "is 0 in a passed gate");
    }
}
