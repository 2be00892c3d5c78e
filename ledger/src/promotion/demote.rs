//! Demotion: a promoted variant loses its place, or is flagged as stale.

use memra_contract::ContractId;
use memra_contract::defaults::DefaultsTable;

use super::evidence::Receipts;
use super::examine::{Examined, check_arm, check_replicates, check_rig, check_sound, check_together, examine_all};
use super::promote::check_verdict;
use super::{FamilyKey, Refusal, RegistryFacts, Rule};
use crate::entry::{Citation, DemotionBody, DemotionReason, EntryBody, LedgerEntry, Regime};
use crate::record::Verdict;
use crate::rigs::RigRegistry;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemotionRequest {
    /// Verdict records with the promoted variant as arm B, each SLOWER; empty for a stale default.
    pub verdicts: Vec<Citation>,
    /// Why.
    pub reason: DemotionReason,
    /// The reason in words.
    pub detail: String,
    /// Whether the promotion is local: its rig need not stand in the registry.
    pub is_local: bool,
    /// Date of the entry, RFC 3339 date.
    pub date: String,
}

/// A demotion that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demotion {
    /// The entry to write.
    pub entry: LedgerEntry,
    /// The table: without the rows of the promotion when slower, unchanged when stale.
    pub table: DefaultsTable,
}

/// Holds a request against the promotion `promoted` to the rules and makes the entry and the new table. Writes nothing.
///
/// When slower, each cited verdict is SLOWER over enough replicates, from the promotion's rig class of the table's device
/// key, with the promoted variant and source as arm B, on a problem of the family whose m lies in a row of the
/// promotion. All rows of the promotion leave the table.
///
/// # Errors
/// [`Refusal`] naming the first broken rule and the receipt that breaks it.
pub fn check_demotion(
    receipts: &Receipts,
    rigs: &RigRegistry,
    registry: &RegistryFacts<'_>,
    table: &DefaultsTable,
    promoted: &LedgerEntry,
    request: &DemotionRequest,
) -> Result<Demotion, Refusal> {
    let entry_error = |error: &dyn std::fmt::Display| Refusal::new(Rule::Entry, error.to_string());
    let EntryBody::Promotion(promotion) = &promoted.body else {
        return Err(entry_error(&format!("{} is no promotion", promoted.id)));
    };
    let contract = ContractId::new(&*promotion.contract).map_err(|error| entry_error(&error))?;
    let family = table.find(&contract, &promotion.format, &promotion.class);
    let rows: Vec<(u64, u64)> = family
        .map(|family| &family.rows[..])
        .unwrap_or_default()
        .iter()
        .filter(|row| row.promotion == promoted.id)
        .map(|row| (row.m_min, row.m_max))
        .collect();
    let bounds = (rows.iter().map(|row| row.0).min(), rows.iter().map(|row| row.1).max());
    let (Some(m_min), Some(m_max)) = bounds else {
        return Err(Refusal::new(Rule::Range, format!("no row of the table rests on {}", promoted.id)));
    };
    let all = examine_all(receipts, &request.verdicts)?;
    check_sound(receipts)?;
    let mut regime = None;
    if request.reason == DemotionReason::Slower {
        for examined in &all {
            check_verdict(examined, Verdict::Slower)?;
            check_replicates(examined)?;
            check_rig(rigs, examined, !request.is_local)?;
        }
        check_together(&all, &table.device_key, true)?;
        for examined in &all {
            check_lost(registry, examined, promotion, &rows)?;
        }
        regime = all.first().map(|examined| Regime::of(&examined.verdict.key));
    } else if !all.is_empty() {
        return Err(Refusal::new(Rule::Cited, "a stale default is demoted without verdicts"));
    }
    let body = DemotionBody {
        promotion: promoted.id.clone(),
        device_key: table.device_key.clone(),
        contract: promotion.contract.clone(),
        revision: promotion.revision,
        format: promotion.format.clone(),
        class: promotion.class.clone(),
        m_min,
        m_max,
        variant: promotion.variant.clone(),
        source: promotion.source.clone(),
        reason: request.reason,
        detail: request.detail.clone(),
        regime,
        cells: all.iter().map(Examined::cell_evidence).collect(),
    };
    let what = match request.reason {
        DemotionReason::Slower => "no longer serves",
        DemotionReason::Stale => "is stale for",
    };
    let title =
        format!("{} {what} {} {} {} on {}", body.variant, body.contract, body.format, body.class, body.device_key);
    let entry = LedgerEntry::new(&request.date, &title, EntryBody::Demotion(Box::new(body)))
        .map_err(|error| entry_error(&error))?;
    let mut table = table.clone();
    if request.reason == DemotionReason::Slower {
        for family in &mut table.families {
            family.rows.retain(|row| row.promotion != promoted.id);
        }
        table.families.retain(|family| !family.rows.is_empty());
    }
    Ok(Demotion { entry, table })
}

/// A verdict that the promoted variant lost on a problem it serves.
fn check_lost(
    registry: &RegistryFacts<'_>,
    examined: &Examined<'_>,
    promotion: &crate::entry::PromotionBody,
    rows: &[(u64, u64)],
) -> Result<(), Refusal> {
    let refuse = |rule, why: String| Err(Refusal::at(rule, &examined.citation, why));
    let key = &examined.verdict.key;
    let found = (&examined.verdict.b, &key.contract, key.revision);
    if found != (&promotion.variant, &promotion.contract, promotion.revision) {
        return refuse(Rule::SameVariant, format!("judges `{}` of {}, not the promoted variant", found.0, found.1));
    }
    check_arm(registry, examined, examined.arm_a())?;
    let facts = check_arm(registry, examined, examined.arm_b())?;
    if facts.source_sha256 != promotion.source.sha256 {
        let why = format!("source {} was judged, {} was promoted", facts.source_sha256, promotion.source.sha256);
        return refuse(Rule::Source, why);
    }
    let family = (registry.family_of)(&key.contract, &key.problem);
    let promoted = FamilyKey { format: promotion.format.clone(), class: promotion.class.clone() };
    if family != Some(promoted) {
        return refuse(Rule::Family, format!("the problem {} is not of the promoted family", key.problem));
    }
    if let Some(m) = examined.m()?
        && !rows.iter().any(|(low, high)| (*low..=*high).contains(&m))
    {
        return refuse(Rule::Range, format!("m = {m} is not served by the promotion"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
