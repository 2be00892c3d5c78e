//! What must hold of every cited verdict, whatever it is cited for.

use std::collections::BTreeSet;

use memra_contract::AxisValue;
use memra_contract::digest::Digest;
use memra_contract::problem::Problem;

use super::evidence::Receipts;
use super::{FamilyKey, MIN_REPLICATES, Refusal, RegistryFacts, Rule, VariantFacts};
use crate::chain::ReceiptFile;
use crate::entry::{CellEvidence, Citation, Effect, Regime};
use crate::record::{Arm, ArmKind, Body, CellBody, GateBody, OUT_OF_TREE, SessionBody, Verdict, VerdictBody};
use crate::rigs::RigRegistry;
use crate::verify::Found;

/// A verdict with everything it rests on.
#[derive(Debug, Clone)]
pub(super) struct Examined<'a> {
    /// The verdict.
    pub(super) citation: Citation,
    /// Session the verdict was made in.
    pub(super) session: &'a SessionBody,
    /// What it says.
    pub(super) verdict: &'a VerdictBody,
    /// The cell records of its replicates, void ones included.
    pub(super) replicates: Vec<&'a CellBody>,
}

impl Examined<'_> {
    /// The replicates that the verdict's numbers come from.
    pub(super) fn counted(&self) -> impl Iterator<Item = &CellBody> {
        self.replicates.iter().copied().filter(|cell| is_counted(cell))
    }

    /// Arm A of the first replicate; the others are the same but for their gates.
    pub(super) fn arm_a(&self) -> Option<&Arm> {
        self.replicates.first().map(|cell| &cell.a)
    }

    /// Arm B of the first replicate.
    pub(super) fn arm_b(&self) -> Option<&Arm> {
        self.replicates.first().map(|cell| &cell.b)
    }

    /// The verdict as it stands in a ledger entry.
    pub(super) fn cell_evidence(&self) -> CellEvidence {
        CellEvidence {
            cell: self.verdict.cell.clone(),
            problem: self.verdict.key.problem.clone(),
            against: self.verdict.a.clone(),
            record: self.citation.clone(),
            verdict: self.verdict.result.verdict,
            effect: Effect::of(&self.verdict.result, self.counted().count()),
        }
    }

    /// The value of the axis `m`, if the problem has one.
    pub(super) fn m(&self) -> Result<Option<u64>, Refusal> {
        let wrong = |why: String| Refusal::at(Rule::Range, &self.citation, why);
        let problem: Problem = self.verdict.key.problem.parse().map_err(|error| wrong(format!("{error}")))?;
        match problem.get("m") {
            None => Ok(None),
            Some(AxisValue::Size(m)) => Ok(Some(*m)),
            Some(AxisValue::Word(word)) => Err(wrong(format!("the axis m is `{word}`, not a size"))),
        }
    }
}

/// Citations that are examined together: each record once.
pub(super) fn examine_all<'a>(receipts: &'a Receipts, citations: &[Citation]) -> Result<Vec<Examined<'a>>, Refusal> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::with_capacity(citations.len());
    for citation in citations {
        let examined = examine(receipts, citation)?;
        if !seen.insert(examined.citation.clone()) {
            return Err(Refusal::at(Rule::Cited, citation, "is cited twice"));
        }
        all.push(examined);
    }
    Ok(all)
}

/// Receipts without any problem: one that has nothing to do with the cited files may be a losing file that was removed.
pub(super) fn check_sound(receipts: &Receipts) -> Result<(), Refusal> {
    match receipts.problems().first() {
        None => Ok(()),
        Some(problem) => Err(Refusal::new(Rule::Chain, format!("the receipts do not verify: {problem}"))),
    }
}

/// Finds a record and holds it to [`Rule::Exists`], [`Rule::Chain`] and [`Rule::Withdrawn`].
pub(super) fn resolve<'a>(receipts: &'a Receipts, citation: &Citation) -> Result<Found<'a>, Refusal> {
    let found = receipts.find(citation).map_err(|error| Refusal::at(Rule::Exists, citation, error.to_string()))?;
    if let Some(problem) = receipts.problem_of(citation.file()) {
        return Err(Refusal::at(Rule::Chain, citation, format!("the file does not verify: {problem}")));
    }
    let session = found.file.records.first().map(|record| &record.id);
    for id in session.into_iter().chain([&found.record.id]) {
        if let Some(text) = receipts.withdrawal(id) {
            return Err(Refusal::at(Rule::Withdrawn, citation, format!("record {} is withdrawn: {text}", id.short())));
        }
    }
    Ok(found)
}

/// A cited verdict with its replicates, all of which exist, are not withdrawn and are of the cell and arms it names.
pub(super) fn examine<'a>(receipts: &'a Receipts, citation: &Citation) -> Result<Examined<'a>, Refusal> {
    let found = resolve(receipts, citation)?;
    let refuse = |rule, why: String| Refusal::at(rule, citation, why);
    let Body::Verdict(verdict) = &found.record.body else {
        return Err(refuse(Rule::Exists, "the record is not a verdict".to_owned()));
    };
    let citation = Citation::new(&found.file.name, &found.record.id)
        .map_err(|error| Refusal::at(Rule::Exists, citation, error.to_string()))?;

    let mut replicates: Vec<&CellBody> = Vec::new();
    for id in &verdict.replicates {
        let short = id.short();
        let Some(Body::Cell(cell)) = found.file.find(id).map(|record| &record.body) else {
            return Err(refuse(Rule::Replicates, format!("replicate {short} is no cell record of the file")));
        };
        if let Some(text) = receipts.withdrawal(id) {
            return Err(refuse(Rule::Withdrawn, format!("replicate {short} is withdrawn: {text}")));
        }
        if !is_replicate_of(cell, verdict) {
            return Err(refuse(Rule::Replicates, format!("replicate {short} is of another cell or other arms")));
        }
        if replicates.iter().any(|other| other.replicate == cell.replicate) {
            return Err(refuse(Rule::Replicates, format!("replicate {} is counted twice", cell.replicate)));
        }
        if let Some(first) = replicates.first()
            && !(is_same_arm(&first.a, &cell.a) && is_same_arm(&first.b, &cell.b))
        {
            return Err(refuse(Rule::Replicates, format!("the arms of replicate {short} differ from the first's")));
        }
        replicates.push(cell);
    }
    let left_out = found.file.records.iter().find(|record| match &record.body {
        Body::Cell(cell) => is_replicate_of(cell, verdict) && !verdict.replicates.contains(&record.id),
        _ => false,
    });
    if let Some(record) = left_out {
        return Err(refuse(Rule::Replicates, format!("the verdict leaves out the replicate {}", record.id.short())));
    }
    for cell in &replicates {
        for arm in [&cell.a, &cell.b] {
            check_gate(receipts, &found, cell, arm).map_err(|why| refuse(Rule::Gate, why))?;
        }
    }
    Ok(Examined { citation, session: found.session, verdict, replicates })
}

/// Whether a replicate counts in the verdict over all of them; a void one is named in it and has no estimate.
fn is_counted(cell: &CellBody) -> bool {
    cell.result.verdict != Verdict::Void
}

/// The effect a verdict of a file gives.
pub(super) fn effect_of(file: &ReceiptFile, verdict: &VerdictBody) -> Effect {
    let is_counted_cell = |id: &&Digest| match file.find(id).map(|record| &record.body) {
        Some(Body::Cell(cell)) => is_counted(cell),
        _ => false,
    };
    Effect::of(&verdict.result, verdict.replicates.iter().filter(is_counted_cell).count())
}

fn is_replicate_of(cell: &CellBody, verdict: &VerdictBody) -> bool {
    cell.cell == verdict.cell && cell.key == verdict.key && cell.a.variant == verdict.a && cell.b.variant == verdict.b
}

fn is_same_arm(left: &Arm, right: &Arm) -> bool {
    Arm { gate: None, ..left.clone() } == Arm { gate: None, ..right.clone() }
}

/// The gate an arm of a replicate points at: passed, of this arm, in this replicate.
fn check_gate(receipts: &Receipts, found: &Found<'_>, cell: &CellBody, arm: &Arm) -> Result<(), String> {
    let name = &arm.variant;
    let Some(id) = &arm.gate else {
        return Err(format!("`{name}` has no passed gate in replicate {}", cell.replicate));
    };
    let Some(Body::Gate(gate)) = found.file.find(id).map(|record| &record.body) else {
        return Err(format!("the gate {} of `{name}` is no gate record of the file", id.short()));
    };
    if let Some(text) = receipts.withdrawal(id) {
        return Err(format!("the gate {} of `{name}` is withdrawn: {text}", id.short()));
    }
    let GateBody { replicate, contract, revision, variant, source_sha256, is_passed, .. } = &**gate;
    let is_of_arm = (contract, revision) == (&cell.key.contract, &cell.key.revision)
        && (variant, source_sha256) == (&arm.variant, &arm.source_sha256)
        && *replicate == cell.replicate;
    if !is_of_arm {
        return Err(format!("the gate {} is not of `{name}` in replicate {}", id.short(), cell.replicate));
    }
    if *is_passed { Ok(()) } else { Err(format!("`{name}` failed the gate {}", id.short())) }
}

/// At least [`MIN_REPLICATES`] replicates that count, with a t interval.
pub(super) fn check_replicates(examined: &Examined<'_>) -> Result<(), Refusal> {
    let Examined { citation, verdict, .. } = examined;
    let counted = examined.counted().count();
    if counted < MIN_REPLICATES {
        let void = examined.replicates.len() - counted;
        let why = format!("{counted} replicates that count and {void} void ones, {MIN_REPLICATES} are needed");
        return Err(Refusal::at(Rule::Replicates, citation, why));
    }
    if verdict.interval != "t" {
        let why = format!("the interval is `{}`, not `t` over the replicates' estimates", verdict.interval);
        return Err(Refusal::at(Rule::Replicates, citation, why));
    }
    Ok(())
}

/// An arm that is a kernel, with the registry's facts on it; the source text is the registered one.
pub(super) fn check_arm<'a>(
    registry: &RegistryFacts<'a>,
    examined: &Examined<'_>,
    arm: Option<&Arm>,
) -> Result<&'a VariantFacts, Refusal> {
    let refuse = |rule, why: String| Refusal::at(rule, &examined.citation, why);
    let key = &examined.verdict.key;
    let Some(arm) = arm else {
        return Err(refuse(Rule::Replicates, "the verdict has no replicates".to_owned()));
    };
    let name = &arm.variant;
    if arm.kind != ArmKind::Kernel {
        return Err(refuse(Rule::Variant, format!("`{name}` is a process, not a variant")));
    }
    if arm.chosen == OUT_OF_TREE {
        return Err(refuse(Rule::Variant, format!("out-of-tree arms are not promotable, and `{name}` is one")));
    }
    let Some(facts) = registry.find(&key.contract, key.revision, name) else {
        let why = format!("the registry has no variant `{name}` of {} revision {}", key.contract, key.revision);
        return Err(refuse(Rule::Variant, why));
    };
    let order_class = arm.order_class.as_deref().unwrap_or("none");
    for (what, measured, registered) in [
        ("layout", arm.layout.as_str(), facts.layout.as_str()),
        ("order class", order_class, facts.order_class.as_str()),
        ("instruction-set tier", arm.isa.as_str(), facts.isa.as_str()),
    ] {
        if measured != registered {
            let why = format!("`{name}` was measured with {what} `{measured}`, the registry says `{registered}`");
            return Err(refuse(Rule::Variant, why));
        }
    }
    if arm.source_sha256.as_ref() != Some(&facts.source_sha256) {
        let measured = arm.source_sha256.as_ref().map_or("no digest", |digest| digest.as_str());
        let why = format!("`{name}` was measured with source {measured}, the registry has {}", facts.source_sha256);
        return Err(refuse(Rule::Source, why));
    }
    Ok(facts)
}

/// The rig a verdict comes from, as [`check_rig_of`].
pub(super) fn check_rig(rigs: &RigRegistry, examined: &Examined<'_>, needs_registered: bool) -> Result<(), Refusal> {
    check_rig_of(rigs, &examined.citation, examined.session, needs_registered)
}

/// The rig of a session: its fingerprint and folder are its own, and it stands in the registry where that is needed.
pub(super) fn check_rig_of(
    rigs: &RigRegistry,
    citation: &Citation,
    session: &SessionBody,
    needs_registered: bool,
) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::at(Rule::Rig, citation, why));
    let rig = &session.rig;
    let resolved = rigs.resolve(&rig.class).map_err(|error| Refusal::at(Rule::Rig, citation, error.to_string()))?;
    if rig.fingerprint != resolved.fingerprint {
        return refuse(format!("the fingerprint of rig `{}` is not that of its class", rig.label));
    }
    if citation.rig() != rig.label {
        return refuse(format!("the session names the rig `{}`", rig.label));
    }
    if needs_registered && !(rig.is_registered && resolved.is_registered && rig.label == resolved.label) {
        let why =
            format!("the rig `{}` does not stand in the registry; register its class and measure again", rig.label);
        return refuse(why);
    }
    Ok(())
}

/// What cited verdicts must have in common: rig class, device key, and, where `needs_regime`, the regime.
pub(super) fn check_together(all: &[Examined<'_>], device_key: &str, needs_regime: bool) -> Result<(), Refusal> {
    let Some(first) = all.first() else {
        return Err(Refusal::new(Rule::Cited, "no verdict is cited"));
    };
    for examined in all {
        let refuse = |rule, why: String| Err(Refusal::at(rule, &examined.citation, why));
        let key = &examined.verdict.key;
        let class = &examined.session.rig.class;
        if *class != first.session.rig.class {
            let (this, other) = (&examined.session.rig.label, &first.session.rig.label);
            return refuse(Rule::SameRig, format!("measured on rig `{this}`, the first cited record on rig `{other}`"));
        }
        if key.device_key != device_key || class.device_key != device_key {
            return refuse(Rule::DeviceKey, format!("measured on {}, the table is for {device_key}", key.device_key));
        }
        let (this, other) = (Regime::of(key), Regime::of(&first.verdict.key));
        if needs_regime && this != other {
            return refuse(Rule::Regime, format!("measured with {this}; the first cited record with {other}"));
        }
    }
    Ok(())
}

/// The family that all problems belong to, of one variant of one contract.
pub(super) fn check_family(registry: &RegistryFacts<'_>, all: &[Examined<'_>]) -> Result<FamilyKey, Refusal> {
    let mut family: Option<FamilyKey> = None;
    for examined in all {
        let key = &examined.verdict.key;
        if let Some(first) = all.first() {
            let (a, b) = (&first.verdict, &examined.verdict);
            if (&a.key.contract, a.key.revision, &a.b) != (&key.contract, key.revision, &b.b) {
                let why = format!(
                    "judges `{}` of {} revision {}, the first cited record `{}` of {} revision {}",
                    b.b, key.contract, key.revision, a.b, a.key.contract, a.key.revision
                );
                return Err(Refusal::at(Rule::SameVariant, &examined.citation, why));
            }
        }
        let Some(found) = (registry.family_of)(&key.contract, &key.problem) else {
            let why = format!("the problem {} belongs to no family of {}", key.problem, key.contract);
            return Err(Refusal::at(Rule::Family, &examined.citation, why));
        };
        match &family {
            Some(first) if *first != found => {
                let why = format!(
                    "the problem {} belongs to {} {}, the first cited one to {} {}",
                    key.problem, found.format, found.class, first.format, first.class
                );
                return Err(Refusal::at(Rule::Family, &examined.citation, why));
            }
            _ => family = Some(found),
        }
    }
    family.ok_or_else(|| Refusal::new(Rule::Cited, "no verdict is cited"))
}
