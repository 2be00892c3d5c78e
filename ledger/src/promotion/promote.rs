//! Promotion: from cited verdicts to a ledger entry and a new defaults table.

use memra_contract::defaults::{DefaultRow, DefaultsTable, FamilyDefault};
use memra_contract::{ContractId, VariantId};

use super::evidence::Receipts;
use super::examine::{
    Examined, check_arm, check_family, check_replicates, check_rig, check_sound, check_together, examine_all,
};
use super::guard::check_guards;
use super::range::{check_cover, check_range, find_family, is_live, is_same_program, parts, place_row};
use super::{FamilyKey, Refusal, RegistryFacts, Rule, VariantFacts};
use crate::entry::{Citation, EntryBody, LedgerEntry, PromotionBody, Regime, SourceDigest};
use crate::record::{Body, Verdict};
use crate::rigs::RigRegistry;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromotionRequest {
    /// Verdict records that the promotion rests on, each FASTER.
    pub verdicts: Vec<Citation>,
    /// Verdict records of cells the variant must not lose.
    pub guards: Vec<Citation>,
    /// Smallest m to serve.
    pub m_min: u64,
    /// Largest m to serve.
    pub m_max: u64,
    /// Whether the promotion is for this machine only: its rig need not stand in the registry. All else is the same.
    pub is_local: bool,
    /// Whether a family of another layout, order class or revision may be dropped.
    pub may_replace_family: bool,
    /// Date of the entry, RFC 3339 date.
    pub date: String,
}

/// A promotion that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    /// The entry to write.
    pub entry: LedgerEntry,
    /// The table with the new row.
    pub table: DefaultsTable,
    /// What the reader should know: dropped rows, void rows, other verdicts on the same cells, provisional bands.
    pub notices: Vec<String>,
}

/// Holds a request to every [`Rule`] and makes the entry and the new table. Writes nothing.
///
/// # Errors
/// [`Refusal`] naming the first broken rule and the receipt that breaks it.
pub fn check_promotion(
    receipts: &Receipts,
    rigs: &RigRegistry,
    registry: &RegistryFacts<'_>,
    table: &DefaultsTable,
    request: &PromotionRequest,
) -> Result<Promotion, Refusal> {
    check_range(request.m_min, request.m_max)?;
    let all = examine_all(receipts, &request.verdicts)?;
    let Some(first) = all.first() else {
        return Err(Refusal::new(Rule::Cited, "no verdict is cited"));
    };
    for examined in &all {
        check_verdict(examined, Verdict::Faster)?;
        check_replicates(examined)?;
        check_rig(rigs, examined, !request.is_local)?;
    }
    check_together(&all, &table.device_key, true)?;
    let family = check_family(registry, &all)?;
    let mut promoted = None;
    for examined in &all {
        check_arm(registry, examined, examined.arm_a())?;
        promoted = Some(check_arm(registry, examined, examined.arm_b())?);
    }
    let Some(facts) = promoted else {
        return Err(Refusal::new(Rule::Cited, "no verdict is cited"));
    };
    let mut notices = Vec::new();
    let replaces = check_place(registry, &all, table, request, &family, facts, &mut notices)?;
    let guards = check_guard_citations(receipts, rigs, registry, table, request, &all, &mut notices)?;

    check_sound(receipts)?;
    for examined in &all {
        if examined.verdict.result.is_provisional {
            notices.push(format!("the band of cell `{}` is provisional", examined.verdict.cell));
        }
        notices.extend(other_verdicts(receipts, examined));
    }
    let body = PromotionBody {
        device_key: table.device_key.clone(),
        rig: first.session.rig.label.clone(),
        is_registered: first.session.rig.is_registered,
        contract: facts.contract.clone(),
        revision: facts.revision,
        format: family.format.clone(),
        class: family.class.clone(),
        layout: facts.layout.clone(),
        order_class: facts.order_class.clone(),
        m_min: request.m_min,
        m_max: request.m_max,
        variant: facts.variant.clone(),
        source: SourceDigest { path: facts.source_path.clone(), sha256: facts.source_sha256.clone() },
        replaces,
        regime: Regime::of(&first.verdict.key),
        cells: all.iter().map(Examined::cell_evidence).collect(),
        guards,
    };
    let title = format!(
        "{} serves {} {} {} for m = {}..{} on {}",
        body.variant, body.contract, body.format, body.class, body.m_min, body.m_max, body.device_key
    );
    let entry = LedgerEntry::new(&request.date, &title, EntryBody::Promotion(Box::new(body)))
        .map_err(|error| Refusal::new(Rule::Entry, error.to_string()))?;
    let row = DefaultRow {
        m_min: request.m_min,
        m_max: request.m_max,
        variant: VariantId::new(&*facts.variant).map_err(|error| Refusal::new(Rule::Entry, error.to_string()))?,
        source_sha256: facts.source_sha256.clone(),
        promotion: entry.id.clone(),
        receipts: all.iter().map(|examined| examined.citation.to_string()).collect(),
    };
    let table = place_row(table, family_default(facts, &family)?, row);
    Ok(Promotion { entry, table, notices })
}

/// The verdict is `needed`, and its own numbers say so.
pub(super) fn check_verdict(examined: &Examined<'_>, needed: Verdict) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::at(Rule::Verdict, &examined.citation, why));
    let result = &examined.verdict.result;
    if result.verdict != needed {
        return refuse(format!("the verdict is {}, {} is needed", verdict_name(result.verdict), verdict_name(needed)));
    }
    let (Some(lo), Some(hi), Some(tau)) = (result.lo_ppm, result.hi_ppm, result.tau_ppm) else {
        return refuse("the verdict has no interval or no tau".to_owned());
    };
    let holds = match needed {
        Verdict::Faster => hi < -tau,
        Verdict::Slower => lo > tau,
        Verdict::Equivalent => -tau < lo && hi < tau,
        _ => true,
    };
    if !holds || lo > hi || tau < 0 {
        return refuse(format!("the interval {lo}..{hi} ppm does not say {} at tau {tau}", verdict_name(needed)));
    }
    Ok(())
}

pub(super) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "FASTER",
        Verdict::Slower => "SLOWER",
        Verdict::Equivalent => "EQUIVALENT",
        Verdict::Undecided => "UNDECIDED",
        Verdict::Void => "VOID",
        Verdict::Incomparable => "INCOMPARABLE",
    }
}

fn family_default(facts: &VariantFacts, family: &FamilyKey) -> Result<FamilyDefault, Refusal> {
    Ok(FamilyDefault {
        contract: ContractId::new(&*facts.contract).map_err(|error| Refusal::new(Rule::Entry, error.to_string()))?,
        revision: facts.revision,
        format: family.format.clone(),
        class: family.class.clone(),
        layout: facts.layout.clone(),
        order_class: facts.order_class.clone(),
        rows: Vec::new(),
    })
}

/// Family, range and incumbents; returns the variants that lose (part of) their place.
fn check_place(
    registry: &RegistryFacts<'_>,
    all: &[Examined<'_>],
    table: &DefaultsTable,
    request: &PromotionRequest,
    family: &FamilyKey,
    facts: &VariantFacts,
    notices: &mut Vec<String>,
) -> Result<Vec<String>, Refusal> {
    let (m_min, m_max) = (request.m_min, request.m_max);
    let new = family_default(facts, family)?;
    let old = find_family(table, &new.contract, family);
    let mut serving: Vec<&DefaultRow> = Vec::new();
    let mut replaces: Vec<String> = Vec::new();
    if let Some(old) = old {
        let joins = is_same_program(old, &new);
        let rows: Vec<String> =
            old.rows.iter().map(|row| format!("m = {}..{} `{}`", row.m_min, row.m_max, row.variant)).collect();
        let replacing = format!(
            "the family has layout `{}`, order class `{}`, revision {}, the variant `{}`, `{}`, {}: the whole family is \
             replaced ({})",
            old.layout,
            old.order_class,
            old.revision,
            new.layout,
            new.order_class,
            new.revision,
            rows.join(", ")
        );
        if !joins && !request.may_replace_family {
            return Err(Refusal::new(Rule::Family, format!("{replacing}, which was not asked for")));
        }
        if !joins {
            notices.push(replacing);
        }
        for row in &old.rows {
            let is_inside = row.m_min <= m_max && m_min <= row.m_max;
            if !joins || is_inside {
                replaces.push(row.variant.to_string());
            }
            if old.revision == new.revision && is_live(registry, &facts.contract, facts.revision, row) {
                serving.push(row);
            } else if is_inside {
                notices.push(format!(
                    "the row m = {}..{} `{}` is void: the baseline serves there",
                    row.m_min, row.m_max, row.variant
                ));
            }
        }
    }
    replaces.sort();
    replaces.dedup();
    check_cover(registry, all, &parts(&serving, m_min, m_max), m_min, m_max)?;
    Ok(replaces)
}

fn check_guard_citations(
    receipts: &Receipts,
    rigs: &RigRegistry,
    registry: &RegistryFacts<'_>,
    table: &DefaultsTable,
    request: &PromotionRequest,
    all: &[Examined<'_>],
    notices: &mut Vec<String>,
) -> Result<Vec<crate::entry::GuardEvidence>, Refusal> {
    let guards = examine_all(receipts, &request.guards)?;
    let Some(first) = all.first() else { return Ok(Vec::new()) };
    for guard in &guards {
        if all.iter().any(|examined| examined.citation == guard.citation) {
            return Err(Refusal::at(Rule::Cited, &guard.citation, "is cited as verdict and as guard"));
        }
        check_rig(rigs, guard, !request.is_local)?;
        check_together(&[first.clone(), guard.clone()], &table.device_key, false)?;
    }
    check_guards(registry, &guards, first, notices)
}

/// A notice on other verdicts over the same cell and arms that are not FASTER.
fn other_verdicts(receipts: &Receipts, examined: &Examined<'_>) -> Option<String> {
    let mut others = Vec::new();
    for file in receipts.files() {
        for record in &file.records {
            let Body::Verdict(other) = &record.body else { continue };
            let is_of_cell =
                (&other.key, &other.a, &other.b) == (&examined.verdict.key, &examined.verdict.a, &examined.verdict.b);
            let is_itself = file.name == examined.citation.file() && examined.citation.is_of(&record.id);
            let is_withdrawn = receipts.withdrawal(&record.id).is_some();
            if is_of_cell && !is_itself && !is_withdrawn && other.result.verdict != Verdict::Faster {
                others.push(format!("{} {}#{}", verdict_name(other.result.verdict), file.name, record.id.short()));
            }
        }
    }
    let cell = &examined.verdict.cell;
    (!others.is_empty()).then(|| format!("other verdicts on cell `{cell}` and its arms: {}", others.join(", ")))
}

#[cfg(test)]
mod tests;
