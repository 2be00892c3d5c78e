//! Checks that the ledger and the defaults below a root are whole and agree with each other, with the receipts and with
//! the source text they name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use memra_contract::defaults::{DefaultRow, DefaultsTable, FamilyDefault};

use super::evidence::Receipts;
use super::examine::effect_of;
use super::{VariantFacts, find_variant};
use crate::canonical::sha256;
use crate::entry::{
    CellEvidence, Citation, DemotionReason, EntryBody, EntryError, EntryFile, INDEX_PATH, PromotionBody, index_text,
    scan,
};
use crate::record::Body;
use crate::verify::{Found, Problem};

/// Folders below an evidence root that may hold defaults tables: of the checkout, and of a user's data folder.
pub const DEFAULTS_FOLDERS: [&str; 2] = ["kernels/defaults", "defaults"];

/// Checks every entry below `root`, every defaults table in [`DEFAULTS_FOLDERS`], and the index.
///
/// - Entries: the id is that of the content; every citation means a record; verdicts say what the entry says.
/// - Defaults: every row names a promotion, agrees with it in every field, cites the same records, none of them withdrawn
///   or from a file with problems; a promotion that was demoted as slower has no row; a promotion without a row was
///   demoted or another one took its range.
/// - Source: what a row serves has the digest its promotion says, by `read_source` (bytes of a file by its path relative
///   to the repository; of device text only that there is such a file) and, where `variants` are given, by the registry. Entries whose variant no row serves any more
///   are history: their source may have changed or gone.
///
/// The problems come sorted by file; none means that all holds. What is wrong with the receipts themselves is not
/// repeated here.
pub fn verify_ledger(
    root: &Path,
    receipts: &Receipts,
    variants: Option<&[VariantFacts]>,
    read_source: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut entries = Vec::new();
    let mut is_whole = true;
    match scan(root) {
        Ok(found) => {
            for entry in found {
                match entry {
                    Ok(entry) => entries.push(entry),
                    Err(error) => {
                        is_whole = false;
                        problems.push(of_entry_error(&error));
                    }
                }
            }
        }
        Err(error) => {
            is_whole = false;
            problems.push(of_entry_error(&error));
        }
    }
    for entry in &entries {
        check_citations(entry, receipts, &mut problems);
    }
    let tables = read_tables(root, &mut problems);
    let ledger = Ledger::new(&entries);
    let mut served: BTreeSet<&str> = BTreeSet::new();
    for (file, table) in &tables {
        for family in &table.families {
            for row in &family.rows {
                served.insert(&row.promotion);
                check_row(&Placed { file, table, family, row }, &ledger, receipts, variants, &mut problems);
            }
        }
    }
    check_standing(&entries, &served, &ledger, &mut problems);
    for id in &served {
        if let Some((_, promotion)) = ledger.promotions.get(id) {
            check_source(id, promotion, read_source, &mut problems);
        }
    }
    // An index cannot be compared while an entry is broken; the broken entry is reported above.
    if is_whole {
        check_index(root, &entries, &mut problems);
    }
    problems.sort();
    problems.dedup();
    problems
}

/// Promotions and demotions by id of the promotion.
struct Ledger<'a> {
    promotions: BTreeMap<&'a str, (&'a EntryFile, &'a PromotionBody)>,
    demoted: BTreeMap<&'a str, DemotionReason>,
}

impl<'a> Ledger<'a> {
    fn new(entries: &'a [EntryFile]) -> Self {
        let mut ledger = Self { promotions: BTreeMap::new(), demoted: BTreeMap::new() };
        for file in entries {
            match &file.entry.body {
                EntryBody::Promotion(body) => {
                    ledger.promotions.insert(&file.entry.id, (file, body));
                }
                EntryBody::Demotion(body) => {
                    let reason = ledger.demoted.entry(&body.promotion).or_insert(body.reason);
                    if body.reason == DemotionReason::Slower {
                        *reason = DemotionReason::Slower;
                    }
                }
                EntryBody::Refutation(_) | EntryBody::Gap(_) => {}
            }
        }
        ledger
    }
}

/// A row and where it stands.
struct Placed<'a> {
    file: &'a str,
    table: &'a DefaultsTable,
    family: &'a FamilyDefault,
    row: &'a DefaultRow,
}

fn check_citations(entry: &EntryFile, receipts: &Receipts, problems: &mut Vec<Problem>) {
    for citation in entry.entry.citations() {
        if let Err(error) = receipts.find(citation) {
            problems.push(problem(&entry.file, format!("cites {citation}: {error}")));
        }
    }
    for cell in entry.entry.body.cells() {
        if let Ok(cited) = receipts.find(&cell.record)
            && let Some(why) = disagreement(cell, &cited)
        {
            problems.push(problem(&entry.file, format!("cites {}: {why}", cell.record)));
        }
    }
}

/// What differs between a verdict record and what an entry says of it.
fn disagreement(cell: &CellEvidence, cited: &Found<'_>) -> Option<String> {
    let Body::Verdict(verdict) = &cited.record.body else {
        return Some("the record is not a verdict".to_owned());
    };
    let differences = [
        ("the cell", verdict.cell == cell.cell),
        ("the problem", verdict.key.problem == cell.problem),
        ("arm A", verdict.a == cell.against),
        ("the verdict", verdict.result.verdict == cell.verdict),
        ("the effect", effect_of(cited.file, verdict) == cell.effect),
    ];
    let what = differences.iter().find(|(_, is_same)| !is_same).map(|(what, _)| what)?;
    Some(format!("{what} is not what the entry says"))
}

/// The tables below a root by their file; what cannot be read becomes a problem.
fn read_tables(root: &Path, problems: &mut Vec<Problem>) -> Vec<(String, DefaultsTable)> {
    let mut tables = Vec::new();
    for folder in DEFAULTS_FOLDERS {
        let names = match toml_names(&root.join(folder)) {
            Ok(names) => names,
            Err(error) => {
                problems.push(problem(folder, error.to_string()));
                continue;
            }
        };
        for name in names {
            let file = format!("{folder}/{name}");
            let mut refuse = |why: String| problems.push(problem(&file, why));
            let text = match std::fs::read_to_string(root.join(&file)) {
                Ok(text) => text,
                Err(error) => {
                    refuse(error.to_string());
                    continue;
                }
            };
            match DefaultsTable::parse(&name, &text) {
                Ok(table) if format!("{}.toml", table.device_key) == name => tables.push((file, table)),
                Ok(table) => refuse(format!("holds the defaults of {}", table.device_key)),
                Err(error) => refuse(error.to_string()),
            }
        }
    }
    tables
}

fn toml_names(folder: &Path) -> io::Result<Vec<String>> {
    let listing = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing?,
    };
    let mut names = Vec::new();
    for item in listing {
        let name = item?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|end| end == "toml") && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn check_row(
    at: &Placed<'_>,
    ledger: &Ledger<'_>,
    receipts: &Receipts,
    variants: Option<&[VariantFacts]>,
    problems: &mut Vec<Problem>,
) {
    let Placed { file, table, family, row } = at;
    let name = format!(
        "{} {} {} m = {}..{} `{}`",
        family.contract, family.format, family.class, row.m_min, row.m_max, row.variant
    );
    let mut refuse = |why: String| {
        problems.push(Problem { field: Some(name.clone()), ..problem(file, why) });
    };
    let id = &row.promotion;
    let Some((_, body)) = ledger.promotions.get(id.as_str()) else {
        return refuse(format!("rests on the promotion {id}, which the ledger does not have"));
    };
    if ledger.demoted.get(id.as_str()) == Some(&DemotionReason::Slower) {
        refuse(format!("rests on the promotion {id}, which was demoted"));
    }
    let same = [
        ("device key", table.device_key == body.device_key),
        ("contract", family.contract.as_str() == body.contract),
        ("revision", family.revision == body.revision),
        ("format", family.format == body.format),
        ("class", family.class == body.class),
        ("layout", family.layout == body.layout),
        ("order class", family.order_class == body.order_class),
        ("variant", row.variant.as_str() == body.variant),
        ("source digest", row.source_sha256 == body.source.sha256),
        ("range", body.m_min <= row.m_min && row.m_max <= body.m_max),
        ("list of receipts", is_same_receipts(&row.receipts, &body.cells)),
    ];
    for (what, _) in same.iter().filter(|(_, is_same)| !is_same) {
        refuse(format!("the {what} is not that of the promotion {id}"));
    }
    if let Some(variants) = variants {
        match find_variant(variants, family.contract.as_str(), family.revision, row.variant.as_str()) {
            None => refuse("the registry has no such variant".to_owned()),
            Some(facts) => {
                let same = [
                    ("layout", facts.layout == family.layout),
                    ("order class", facts.order_class == family.order_class),
                    ("source digest", facts.source_sha256 == row.source_sha256),
                    ("source path", facts.source_path == body.source.path),
                ];
                for (what, _) in same.iter().filter(|(_, is_same)| !is_same) {
                    refuse(format!("the {what} is not that of the registry (promotion {id})"));
                }
            }
        }
    }
    for text in &row.receipts {
        let citation = match text.parse::<Citation>() {
            Ok(citation) => citation,
            Err(error) => {
                refuse(error.to_string());
                continue;
            }
        };
        match receipts.find(&citation) {
            Err(error) => refuse(format!("cites {citation}: {error}")),
            Ok(cited) => {
                if let Some(problem) = receipts.problem_of(citation.file()) {
                    refuse(format!("cites {citation}: the file does not verify: {problem}"));
                }
                if let Some(text) = receipts.withdrawal(&cited.record.id) {
                    refuse(format!("cites {citation}, which is withdrawn: {text}"));
                }
            }
        }
    }
}

fn is_same_receipts(receipts: &[String], cells: &[CellEvidence]) -> bool {
    let cited: BTreeSet<String> = cells.iter().map(|cell| cell.record.to_string()).collect();
    receipts.iter().cloned().collect::<BTreeSet<_>>() == cited
}

/// Every promotion has a row, was demoted, or gave its place to another one; every demotion names a promotion.
fn check_standing(entries: &[EntryFile], served: &BTreeSet<&str>, ledger: &Ledger<'_>, problems: &mut Vec<Problem>) {
    for EntryFile { file, entry } in entries {
        let why = match &entry.body {
            EntryBody::Demotion(body) if !ledger.promotions.contains_key(body.promotion.as_str()) => {
                format!("demotes {}, which the ledger does not have", body.promotion)
            }
            EntryBody::Promotion(body) => {
                let is_demoted = ledger.demoted.get(entry.id.as_str()) == Some(&DemotionReason::Slower);
                let is_followed = ledger.promotions.values().any(|(other, next)| {
                    other.entry.id != entry.id && other.entry.date >= entry.date && takes_place_of(next, body)
                });
                if served.contains(entry.id.as_str()) || is_demoted || is_followed {
                    continue;
                }
                "no row of the defaults rests on this promotion, and nothing in the ledger says why".to_owned()
            }
            _ => continue,
        };
        problems.push(problem(file, why));
    }
}

/// Whether a promotion can have taken rows from another one: same family, and an overlap or another program.
fn takes_place_of(next: &PromotionBody, before: &PromotionBody) -> bool {
    let is_same_family = (&next.device_key, &next.contract, &next.format, &next.class)
        == (&before.device_key, &before.contract, &before.format, &before.class);
    let is_same_program =
        (&next.layout, &next.order_class, next.revision) == (&before.layout, &before.order_class, before.revision);
    let overlaps = next.m_min <= before.m_max && before.m_min <= next.m_max;
    is_same_family && (overlaps || !is_same_program)
}

fn check_source(
    id: &str,
    promotion: &PromotionBody,
    read_source: &dyn Fn(&str) -> Option<Vec<u8>>,
    problems: &mut Vec<Problem>,
) {
    let (path, promoted) = (&promotion.source.path, &promotion.source.sha256);
    // The digest of a device text covers headers and definitions too, which only the registry knows; it was held against it.
    let is_device_text = Path::new(path).extension().is_some_and(|extension| extension == "cu");
    let message = match read_source(path).map(|bytes| if is_device_text { promoted.clone() } else { sha256(&bytes) }) {
        None => format!("missing, but the promotion {id} promoted it with sha256 {promoted}"),
        Some(found) if found != *promoted => format!(
            "sha256 is {found}, but the promotion {id} promoted {promoted}; promote the new text or demote the variant"
        ),
        Some(_) => return,
    };
    problems.push(problem(path, message));
}

fn problem(file: &str, message: String) -> Problem {
    Problem { file: file.to_owned(), line: None, field: None, message }
}

fn of_entry_error(error: &EntryError) -> Problem {
    let text = error.to_string();
    let file = error.file().unwrap_or("ledger");
    problem(file, text.strip_prefix(&format!("{file}: ")).unwrap_or(&text).to_owned())
}

fn check_index(root: &Path, entries: &[EntryFile], problems: &mut Vec<Problem>) {
    let why = match std::fs::read_to_string(root.join(INDEX_PATH)) {
        Ok(text) if text == index_text(entries) => return,
        Ok(_) => "is not the index of the entries; an entry was added, removed or renamed without it".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && entries.is_empty() => return,
        Err(error) => error.to_string(),
    };
    problems.push(problem(INDEX_PATH, why));
}

#[cfg(test)]
mod tests;
