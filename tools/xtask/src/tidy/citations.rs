//! Citations: the receipts that pages, tables and ledger entries rest on.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use crate::code::line_of;
use crate::tree::{Tree, extension, is_below};

/// Fewest digits of a record id in a citation.
const FEWEST_DIGITS: usize = 12;

/// The folder of all receipts.
const FOLDER: &str = "receipts/";

/// Finds citations of receipt files that are not tracked, and of records that they do not hold.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| cites(path)) {
        for citation in citations(text) {
            if let Some(what) = problem(tree, &citation) {
                let Citation { file, record, offset } = citation;
                findings.push(Finding::failure(path, line_of(text, offset), format!("{file}#{record} {what}")));
            }
        }
    }
    findings
}

/// `receipts/<rig>/<file>.jsonl#<record>` in a text.
#[derive(Debug, PartialEq, Eq)]
struct Citation<'a> {
    file: &'a str,
    record: &'a str,
    offset: usize,
}

/// Pages anywhere, and the data of rooms that cite. Sources and tests hold made-up citations.
fn cites(path: &str) -> bool {
    let is_data = ["ledger/", "boards/", "docs/", "harness/cells/", "kernels/defaults/"]
        .iter()
        .any(|folder| path.starts_with(folder));
    let is_made_up = is_below(path, "src") || is_below(path, "tests");
    match extension(path) {
        Some("md") => !is_made_up,
        Some("toml" | "json") => is_data && !is_made_up,
        _ => false,
    }
}

fn citations(text: &str) -> impl Iterator<Item = Citation<'_>> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    text.match_indices(FOLDER).filter_map(move |(offset, _)| {
        let tail = text.get(offset..)?;
        let path_end = tail.find(|character: char| !is_plain(character) && character != '/').unwrap_or(tail.len());
        let (file, rest) = tail.split_at_checked(path_end)?;
        let digits = rest.strip_prefix('#')?;
        let record =
            digits.get(..digits.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(digits.len()))?;
        (extension(file) == Some("jsonl")).then_some(Citation { file, record, offset })
    })
}

fn problem(tree: &Tree, citation: &Citation) -> Option<String> {
    let Citation { file, record, .. } = citation;
    let is_hex = record.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_hex || record.len() < FEWEST_DIGITS {
        return Some(format!("names no record: give at least {FEWEST_DIGITS} lower-case hexadecimal digits of its id"));
    }
    let Some(text) = tree.text(file) else {
        return Some("cites a file that git does not track: add the receipt file or remove the claim".to_owned());
    };
    let is_held = record_ids(text).range((*record).to_owned()..).next().is_some_and(|id| id.starts_with(record));
    (!is_held).then(|| "cites a record that the file does not hold: correct the id or remove the claim".to_owned())
}

/// The ids in a receipt file. Lines that are no records are for `memra-lab receipts verify` to name.
fn record_ids(text: &str) -> BTreeSet<String> {
    let id = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("id")?.as_str().map(str::to_owned);
    text.lines().filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    const RECEIPT: (&str, &str) = (
        "receipts/rig-a/2026-01-02-s-01234567.jsonl",
        "{\"id\":\"00112233445566778899\",\"seq\":0}\n{\"seq\":1,\"id\":\"ffeeddccbbaa99887766\"}\nbroken\n",
    );

    #[test]
    fn citations_of_held_records_pass() {
        let page = "# Page\n[`x`](receipts/rig-a/2026-01-02-s-01234567.jsonl#ffeeddccbbaa), \
                    receipts/rig-a/2026-01-02-s-01234567.jsonl#00112233445566778899.\n\
                    The form is receipts/<rig>/<file>.jsonl#<id>, and receipts/rig-a/x.jsonl is only a path.\n";
        assert_eq!(check(&Tree::of(&[RECEIPT, ("PERFORMANCE.md", page)])), []);
    }

    #[test]
    fn other_citations_fail_with_their_line() {
        for (record, what) in [
            ("rig-a/2026-01-02-s-01234567.jsonl#ffeeddccbbaa00", "does not hold"),
            ("rig-a/2026-01-02-s-01234567.jsonl#ffeeddccbba", "at least 12"),
            ("rig-a/2026-01-02-s-01234567.jsonl#FFEEDDCCBBAA", "lower-case"),
            ("rig-a/2026-01-02-s-01234567.jsonl#", "at least 12"),
            ("rig-b/2026-01-02-s-01234567.jsonl#ffeeddccbbaa", "does not track"),
        ] {
            let entry = format!("{{\n\"receipts\": [\"receipts/{record}\"]}}");
            for path in ["ledger/2026/a.json", "docs/a.md", "kernels/defaults/host.toml", "README.md"] {
                let findings = check(&Tree::of(&[RECEIPT, (path, &entry)]));
                assert_eq!(places(&findings), [format!("{path}:2")]);
                assert!(findings[0].what.contains(what), "{findings:?}");
            }
            for path in ["ledger/tests/a.json", "ledger/src/a.rs", "a.toml"] {
                assert_eq!(check(&Tree::of(&[RECEIPT, (path, &entry)])), [], "{path}");
            }
        }
    }
}
