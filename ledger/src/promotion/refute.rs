//! Refutation: a mechanism that was tried and did not hold.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Receipts;
use super::examine::{Examined, check_rig, check_rig_of, check_sound, check_together, examine_all, resolve};
use super::promote::{check_verdict, verdict_name};
use super::{Refusal, Rule};
use crate::entry::{Citation, EntryBody, FailureClass, LedgerEntry, RefutationBody, Regime, VariantDigest};
use crate::record::{Body, GateBody, SessionBody, Verdict};
use crate::rigs::RigRegistry;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefutationRequest {
    /// Name of the mechanism, `[a-z][a-z0-9_]*`.
    pub mechanism: String,
    /// What was expected, in one sentence.
    pub hypothesis: String,
    /// How it failed.
    pub failure: FailureClass,
    /// The cited records: verdicts for `slower` and `no_effect_above`, failed gates for the other two.
    pub records: Vec<Citation>,
    /// What would make another try worthwhile.
    pub revisit_when: String,
    /// Date of the entry, RFC 3339 date.
    pub date: String,
}

/// Holds a request to the rules and makes the entry. Writes nothing.
///
/// - `slower`: every cited verdict is SLOWER;
/// - `no_effect_above`: every cited verdict is SLOWER or EQUIVALENT, and at least one is EQUIVALENT;
/// - `broke_bits`: every cited record is a failed gate, and at least one failure is not a launch that failed;
/// - `resource_limit`: every cited record is a gate that failed with a failed launch.
///
/// A verdict that is UNDECIDED refutes nothing. All records come from one rig class, and all verdicts share one regime.
/// Any number of replicates will do: the entry says how many, and what effect could have been seen.
///
/// # Errors
/// [`Refusal`] naming the first broken rule and the receipt that breaks it.
pub fn check_refutation(
    receipts: &Receipts,
    rigs: &RigRegistry,
    request: &RefutationRequest,
) -> Result<LedgerEntry, Refusal> {
    let needs_gates = matches!(request.failure, FailureClass::BrokeBits | FailureClass::ResourceLimit);
    let body = if needs_gates {
        refute_by_gates(receipts, rigs, request)?
    } else {
        refute_by_verdicts(receipts, rigs, request)?
    };
    check_sound(receipts)?;
    let title = format!("{} on {}: {}", body.mechanism, body.device_key, failure_name(body.failure));
    LedgerEntry::new(&request.date, &title, EntryBody::Refutation(Box::new(body)))
        .map_err(|error| Refusal::new(Rule::Entry, error.to_string()))
}

const fn failure_name(failure: FailureClass) -> &'static str {
    match failure {
        FailureClass::Slower => "slower",
        FailureClass::NoEffectAbove => "no effect above tau",
        FailureClass::BrokeBits => "broke bits",
        FailureClass::ResourceLimit => "resource limit",
    }
}

fn refute_by_verdicts(
    receipts: &Receipts,
    rigs: &RigRegistry,
    request: &RefutationRequest,
) -> Result<RefutationBody, Refusal> {
    let all = examine_all(receipts, &request.records)?;
    let Some(first) = all.first() else {
        return Err(Refusal::new(Rule::Cited, "no record is cited"));
    };
    let device_key = &first.verdict.key.device_key;
    for examined in &all {
        let verdict = examined.verdict.result.verdict;
        let allowed: &[Verdict] = match request.failure {
            FailureClass::NoEffectAbove => &[Verdict::Slower, Verdict::Equivalent],
            _ => &[Verdict::Slower],
        };
        if !allowed.contains(&verdict) {
            let allowed: Vec<&str> = allowed.iter().map(|verdict| verdict_name(*verdict)).collect();
            let why = format!("a verdict {} cannot refute; {} is needed", verdict_name(verdict), allowed.join(" or "));
            return Err(Refusal::at(Rule::Verdict, &examined.citation, why));
        }
        check_verdict(examined, verdict)?;
        if examined.counted().count() == 0 {
            return Err(Refusal::at(Rule::Replicates, &examined.citation, "the verdict has no replicates"));
        }
        check_rig(rigs, examined, false)?;
    }
    check_together(&all, device_key, true)?;
    let is_equivalent = |examined: &Examined<'_>| examined.verdict.result.verdict == Verdict::Equivalent;
    if request.failure == FailureClass::NoEffectAbove && !all.iter().any(is_equivalent) {
        return Err(Refusal::new(Rule::Verdict, "all cited verdicts are SLOWER: the failure is `slower`"));
    }
    let mut variants = BTreeSet::new();
    for examined in &all {
        let Some(arm) = examined.arm_b() else { continue };
        let Some(source_sha256) = arm.source_sha256.clone() else {
            let why = format!("arm B, `{}`, has no source", arm.variant);
            return Err(Refusal::at(Rule::Variant, &examined.citation, why));
        };
        let key = &examined.verdict.key;
        variants.insert(VariantDigest {
            contract: key.contract.clone(),
            revision: key.revision,
            variant: arm.variant.clone(),
            source_sha256,
        });
    }
    let mde_ppm = all.iter().map(|examined| examined.verdict.result.mde_ppm).max().flatten();
    Ok(RefutationBody {
        regime: Some(Regime::of(&first.verdict.key)),
        cells: all.iter().map(Examined::cell_evidence).collect(),
        variants: variants.into_iter().collect(),
        mde_ppm,
        ..empty_body(request, first.session)
    })
}

fn refute_by_gates(
    receipts: &Receipts,
    rigs: &RigRegistry,
    request: &RefutationRequest,
) -> Result<RefutationBody, Refusal> {
    let mut gates: BTreeMap<Citation, &GateBody> = BTreeMap::new();
    let mut first: Option<&SessionBody> = None;
    for citation in &request.records {
        let refuse = |rule, why: &str| Refusal::at(rule, citation, why);
        let found = resolve(receipts, citation)?;
        let session = found.session;
        let Body::Gate(gate) = &found.record.body else {
            return Err(refuse(Rule::Exists, "the record is not a gate"));
        };
        if gate.is_passed {
            return Err(refuse(Rule::Gate, "the gate passed, which refutes nothing"));
        }
        let is_launch = |reason: &str| reason == "launch";
        let fits = match request.failure {
            FailureClass::ResourceLimit => gate.failures.iter().any(|failure| is_launch(&failure.reason)),
            _ => gate.failures.iter().any(|failure| !is_launch(&failure.reason)),
        };
        if !fits {
            let why = format!("no failure of the gate is of the class `{}`", failure_name(request.failure));
            return Err(refuse(Rule::Gate, &why));
        }
        let class = &first.get_or_insert(session).rig.class;
        if session.rig.class != *class {
            return Err(refuse(Rule::SameRig, "measured on another rig than the first cited record"));
        }
        check_rig_of(rigs, citation, session, false)?;
        let whole = Citation::new(&found.file.name, &found.record.id)
            .map_err(|error| Refusal::at(Rule::Exists, citation, error.to_string()))?;
        if gates.insert(whole, gate).is_some() {
            return Err(refuse(Rule::Cited, "is cited twice"));
        }
    }
    let Some(session) = first else {
        return Err(Refusal::new(Rule::Cited, "no record is cited"));
    };
    let mut variants = BTreeSet::new();
    for (citation, gate) in &gates {
        let Some(source_sha256) = gate.source_sha256.clone() else {
            let why = format!("`{}` has no source", gate.variant);
            return Err(Refusal::at(Rule::Variant, citation, why));
        };
        variants.insert(VariantDigest {
            contract: gate.contract.clone(),
            revision: gate.revision,
            variant: gate.variant.clone(),
            source_sha256,
        });
    }
    Ok(RefutationBody {
        gates: gates.into_keys().collect(),
        variants: variants.into_iter().collect(),
        ..empty_body(request, session)
    })
}

fn empty_body(request: &RefutationRequest, session: &SessionBody) -> RefutationBody {
    RefutationBody {
        mechanism: request.mechanism.clone(),
        hypothesis: request.hypothesis.clone(),
        failure: request.failure,
        device_key: session.rig.class.device_key.clone(),
        rig: session.rig.label.clone(),
        regime: None,
        cells: Vec::new(),
        gates: Vec::new(),
        variants: Vec::new(),
        mde_ppm: None,
        revisit_when: request.revisit_when.clone(),
    }
}

#[cfg(test)]
mod tests;
