//! Ranges of m: what serves them so far, whether cited cells cover them, and how a row takes its place.

use memra_contract::ContractId;
use memra_contract::defaults::{DefaultRow, DefaultsTable, FamilyDefault};

use super::examine::Examined;
use super::{FamilyKey, Refusal, RegistryFacts, Rule};

/// Largest ratio of two neighbouring m among the cited cells of one promotion.
pub const MAX_M_RATIO: u64 = 8;

/// A part of a range that one row, or the baseline, serves so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Smallest m.
    pub(super) m_min: u64,
    /// Largest m.
    pub(super) m_max: u64,
    /// The variant of the row; `None` where the baseline serves.
    pub(super) variant: Option<String>,
}

impl Part {
    fn holds(&self, m: u64) -> bool {
        (self.m_min..=self.m_max).contains(&m)
    }
}

/// The range itself: not empty, and within what a defaults file can hold.
pub(super) fn check_range(m_min: u64, m_max: u64) -> Result<(), Refusal> {
    if m_min == 0 || m_min > m_max {
        return Err(Refusal::new(Rule::Range, format!("the range m = {m_min}..{m_max} is empty")));
    }
    if i64::try_from(m_max).is_err() {
        return Err(Refusal::new(Rule::Range, format!("m = {m_max} is larger than a defaults file can hold")));
    }
    Ok(())
}

/// The parts of `m_min..=m_max` by what serves them: rows whose variant is registered with the row's source, and the
/// baseline elsewhere. `rows` are those of the family at the revision that is promoted.
pub(super) fn parts(rows: &[&DefaultRow], m_min: u64, m_max: u64) -> Vec<Part> {
    let mut inside: Vec<&DefaultRow> =
        rows.iter().copied().filter(|row| row.m_min <= m_max && m_min <= row.m_max).collect();
    inside.sort_by_key(|row| row.m_min);
    let mut parts = Vec::new();
    // The smallest m that no part holds yet; none once the number line ends.
    let mut next = Some(m_min);
    for row in inside {
        let Some(start) = next else { break };
        let (low, high) = (row.m_min.max(start), row.m_max.min(m_max));
        if low > high {
            continue;
        }
        if start < low {
            parts.push(Part { m_min: start, m_max: low - 1, variant: None });
        }
        parts.push(Part { m_min: low, m_max: high, variant: Some(row.variant.to_string()) });
        next = high.checked_add(1);
    }
    if let Some(start) = next
        && start <= m_max
    {
        parts.push(Part { m_min: start, m_max, variant: None });
    }
    parts
}

/// Whether a row serves: its variant is registered with the row's source text.
pub(super) fn is_live(registry: &RegistryFacts<'_>, contract: &str, revision: u32, row: &DefaultRow) -> bool {
    registry
        .find(contract, revision, row.variant.as_str())
        .is_some_and(|facts| facts.source_sha256 == row.source_sha256)
}

/// Holds cited cells to the range rule of the module: ends, steps, and a beaten incumbent in every part.
pub(super) fn check_cover(
    registry: &RegistryFacts<'_>,
    all: &[Examined<'_>],
    parts: &[Part],
    m_min: u64,
    m_max: u64,
) -> Result<(), Refusal> {
    let mut cited: Vec<u64> = Vec::new();
    let mut without_m = None;
    for examined in all {
        let Some(m) = examined.m()? else {
            without_m = Some(examined);
            for part in parts {
                check_incumbent(registry, examined, part)?;
            }
            continue;
        };
        let Some(part) = parts.iter().find(|part| part.holds(m)) else {
            let why = format!("m = {m} lies outside the range m = {m_min}..{m_max}");
            return Err(Refusal::at(Rule::Range, &examined.citation, why));
        };
        check_incumbent(registry, examined, part)?;
        cited.push(m);
    }
    if let Some(examined) = without_m {
        if cited.is_empty() {
            return Ok(());
        }
        return Err(Refusal::at(Rule::Range, &examined.citation, "the problem has no axis m, another cited one has"));
    }
    cited.sort_unstable();
    for (end, found) in [(m_min, cited.first()), (m_max, cited.last())] {
        if found != Some(&end) {
            return Err(Refusal::new(Rule::Range, format!("no cited cell has m = {end}, an end of the range")));
        }
    }
    for step in cited.windows(2) {
        if let [low, high] = step
            && *high > low.saturating_mul(MAX_M_RATIO)
        {
            let why = format!(
                "no cited cell lies between m = {low} and m = {high}, which are more than {MAX_M_RATIO} times apart"
            );
            return Err(Refusal::new(Rule::Range, why));
        }
    }
    for part in parts {
        if !cited.iter().any(|m| part.holds(*m)) {
            let served = part.variant.as_deref().unwrap_or("the baseline");
            let why =
                format!("no cited cell lies in m = {}..{}, which `{served}` serves so far", part.m_min, part.m_max);
            return Err(Refusal::new(Rule::Range, why));
        }
    }
    Ok(())
}

fn check_incumbent(registry: &RegistryFacts<'_>, examined: &Examined<'_>, part: &Part) -> Result<(), Refusal> {
    let key = &examined.verdict.key;
    let a = &examined.verdict.a;
    let (m_min, m_max) = (part.m_min, part.m_max);
    let why = match &part.variant {
        Some(variant) if variant == a => return Ok(()),
        Some(variant) if *variant == examined.verdict.b => {
            format!("`{variant}` serves m = {m_min}..{m_max} already")
        }
        Some(variant) => format!("arm A is `{a}`, but `{variant}` serves m = {m_min}..{m_max}"),
        None if registry.find(&key.contract, key.revision, a).is_some_and(|facts| facts.is_baseline) => return Ok(()),
        None => {
            format!("arm A is `{a}`, but nothing valid is promoted for m = {m_min}..{m_max}: it must be the baseline")
        }
    };
    Err(Refusal::at(Rule::Incumbent, &examined.citation, why))
}

/// The table with `row` in the family `family`, whose layout, order class and revision the family takes.
///
/// Where the family stands in the table with the same layout, order class and revision, the ranges of its other rows are
/// cut back so that they do not overlap `row`; where it differs, its rows are dropped. The result is in the table's order.
pub fn place_row(table: &DefaultsTable, family: FamilyDefault, row: DefaultRow) -> DefaultsTable {
    let mut table = table.clone();
    let mut family = family;
    let old = table.families.iter().position(|other| other.is_for(&family.contract, &family.format, &family.class));
    let kept = match old.map(|position| table.families.remove(position)) {
        Some(old) if is_same_program(&old, &family) => cut(old.rows, row.m_min, row.m_max),
        _ => Vec::new(),
    };
    family.rows = kept;
    family.rows.push(row);
    family.rows.sort_by_key(|row| row.m_min);
    table.families.push(family);
    table.families.sort_by(|a, b| (&a.contract, &a.format, &a.class).cmp(&(&b.contract, &b.format, &b.class)));
    table
}

/// Whether rows may move from one family to the other.
pub(super) fn is_same_program(left: &FamilyDefault, right: &FamilyDefault) -> bool {
    (&left.layout, &left.order_class, left.revision) == (&right.layout, &right.order_class, right.revision)
}

/// Rows without the range `m_min..=m_max`.
pub(super) fn cut(rows: Vec<DefaultRow>, m_min: u64, m_max: u64) -> Vec<DefaultRow> {
    let mut kept = Vec::new();
    for row in rows {
        let below = (row.m_min, row.m_max.min(m_min.saturating_sub(1)));
        let above = (row.m_min.max(m_max.saturating_add(1)), row.m_max);
        let is_apart = row.m_max < m_min || m_max < row.m_min;
        if is_apart {
            kept.push(row);
            continue;
        }
        // Two ends of the number line that cannot be stepped over are inside the cut range, so nothing is left there.
        for (low, high) in [below, above] {
            let is_outside = high < m_min || low > m_max;
            if low <= high && is_outside {
                kept.push(DefaultRow { m_min: low, m_max: high, ..row.clone() });
            }
        }
    }
    kept
}

/// The family of a table for a contract and a key.
pub(super) fn find_family<'a>(
    table: &'a DefaultsTable,
    contract: &ContractId,
    key: &FamilyKey,
) -> Option<&'a FamilyDefault> {
    table.find(contract, &key.format, &key.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_contract::VariantId;
    use memra_contract::digest::Digest;
    use proptest::prelude::*;

    fn row(m_min: u64, m_max: u64, variant: &str) -> DefaultRow {
        DefaultRow {
            m_min,
            m_max,
            variant: VariantId::new(variant).unwrap(),
            source_sha256: Digest::from_bytes(&[1; 32]),
            promotion: "p-000000000000".to_owned(),
            receipts: Vec::new(),
        }
    }

    fn family(layout: &str, rows: Vec<DefaultRow>) -> FamilyDefault {
        FamilyDefault {
            contract: ContractId::new("matmul").unwrap(),
            revision: 1,
            format: "q8_0".to_owned(),
            class: "any".to_owned(),
            layout: layout.to_owned(),
            order_class: "o".to_owned(),
            rows,
        }
    }

    fn table(families: Vec<FamilyDefault>) -> DefaultsTable {
        let text = "schema = \"memra-lab.defaults/1\"\ndevice_key = \"host-x86_64-avx2\"";
        DefaultsTable { families, ..DefaultsTable::parse("t", text).unwrap() }
    }

    fn ranges(table: &DefaultsTable) -> Vec<(u64, u64, String)> {
        let rows = &table.families[0].rows;
        rows.iter().map(|row| (row.m_min, row.m_max, row.variant.to_string())).collect()
    }

    #[test]
    fn a_row_cuts_the_rows_under_it() {
        let old = table(vec![family("plain", vec![row(1, 4, "a"), row(5, 64, "b")])]);
        let new = place_row(&old, family("plain", Vec::new()), row(3, 8, "c"));
        let expected = [(1, 2, "a"), (3, 8, "c"), (9, 64, "b")].map(|(low, high, name)| (low, high, name.to_owned()));
        assert_eq!(ranges(&new), expected);
        let inner = place_row(&old, family("plain", Vec::new()), row(16, 16, "c"));
        assert_eq!(ranges(&inner).len(), 4);
        assert_eq!(DefaultsTable::parse("t", &new.to_toml().unwrap()).unwrap(), new);
    }

    #[test]
    fn another_layout_drops_the_rows_and_another_family_stays() {
        let other = FamilyDefault { format: "q4_0".to_owned(), ..family("plain", vec![row(1, 9, "z")]) };
        let old = table(vec![family("plain", vec![row(1, 4, "a")]), other.clone()]);
        let new = place_row(&old, family("packed", Vec::new()), row(2, 2, "c"));
        assert_eq!(new.families.len(), 2);
        assert_eq!(new.families[0], other);
        assert_eq!(new.families[1], family("packed", vec![row(2, 2, "c")]));
    }

    #[test]
    fn parts_name_the_baseline_where_no_row_is() {
        let (a, b) = (row(3, 4, "a"), row(8, 100, "b"));
        let found = parts(&[&b, &a], 1, 10);
        let part = |m_min, m_max, variant: Option<&str>| Part { m_min, m_max, variant: variant.map(str::to_owned) };
        let expected = [part(1, 2, None), part(3, 4, Some("a")), part(5, 7, None), part(8, 10, Some("b"))];
        assert_eq!(found, expected);
        assert_eq!(parts(&[], 2, 2), [part(2, 2, None)]);
        assert_eq!(parts(&[&row(1, u64::MAX, "a")], 1, u64::MAX), [part(1, u64::MAX, Some("a"))]);
    }

    fn bounds() -> impl Strategy<Value = (u64, u64)> {
        let end = prop_oneof![0_u64..40, Just(u64::MAX)];
        (end.clone(), end).prop_map(|(a, b)| (a.min(b), a.max(b)))
    }

    proptest! {
        #[test]
        fn placed_rows_serve_their_range_and_leave_the_others(ranges in prop::collection::vec(bounds(), 1..8)) {
            let mut now = table(Vec::new());
            let mut steps: Vec<(u64, u64, String)> = Vec::new();
            for (index, (low, high)) in ranges.into_iter().enumerate() {
                let name = format!("v{index}");
                now = place_row(&now, family("plain", Vec::new()), row(low, high, &name));
                steps.push((low, high, name));
            }
            let rows = &now.families[0].rows;
            for m in (0..45).chain([u64::MAX - 1, u64::MAX]) {
                let last = steps.iter().rev().find(|(low, high, _)| (*low..=*high).contains(&m));
                let serving: Vec<_> = rows.iter().filter(|row| (row.m_min..=row.m_max).contains(&m)).collect();
                prop_assert!(serving.len() <= 1, "{m} is served twice");
                prop_assert_eq!(serving.first().map(|row| row.variant.as_str()), last.map(|(_, _, name)| name.as_str()));
            }
        }

        #[test]
        fn parts_tile_the_range(rows in prop::collection::vec(bounds(), 0..6), (low, high) in bounds()) {
            let mut now = table(Vec::new());
            for (index, (low, high)) in rows.into_iter().enumerate() {
                now = place_row(&now, family("plain", Vec::new()), row(low, high, &format!("v{index}")));
            }
            let rows: Vec<&DefaultRow> = now.families.iter().flat_map(|family| &family.rows).collect();
            let parts = parts(&rows, low, high);
            prop_assert_eq!(parts.first().map(|part| part.m_min), Some(low));
            prop_assert_eq!(parts.last().map(|part| part.m_max), Some(high));
            for pair in parts.windows(2) {
                prop_assert_eq!(pair[0].m_max + 1, pair[1].m_min);
            }
        }
    }
}
