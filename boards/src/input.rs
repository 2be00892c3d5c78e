//! What a fold is made from.

use crate::error::BoardError;
use memra_ledger::record::Record;

/// One receipt file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardInput {
    /// Path relative to the evidence root, with `/` between segments, for example `receipts/<rig>/<date>-<slug>.jsonl`.
    pub file: String,
    /// Its records in file order.
    pub records: Vec<Record>,
}

/// What a ledger record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LedgerKind {
    /// A candidate was made a default.
    Promotion,
    /// A default was taken back or marked stale.
    Demotion,
    /// A mechanism was shown not to pay.
    Refutation,
    /// Something known to be missing or behind.
    OpenGap,
}

/// One ledger record, as far as pages show it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerLine {
    /// Identifier: stem of `ledger/<year>/<id>.json`.
    pub id: String,
    /// What it is about.
    pub kind: LedgerKind,
    /// RFC 3339 date.
    pub date: String,
    /// One sentence.
    pub title: String,
    /// Receipts it rests on, `receipts/<rig>/<file>.jsonl#<first 12 digits of a record id>`.
    pub citations: Vec<String>,
}

/// What a fold may take in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoldOptions {
    /// Whether sessions of rigs that stand in no registry get boards. Only for evidence roots that are not tracked.
    pub allow_provisional: bool,
}

/// Refuses paths that leave the root or that a Markdown link cannot carry.
pub(crate) fn check_path(file: &str) -> Result<(), BoardError> {
    let is_plain = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+=@,-".contains(&byte))
    };
    if file.split('/').all(is_plain) { Ok(()) } else { Err(BoardError::Path(file.to_owned())) }
}

/// Whether a rig label can stand in a file name and in a link.
pub(crate) fn is_label(label: &str) -> bool {
    label.len() <= 64
        && label.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && label != RESERVED_LABEL
}

/// Stem of the file that holds figures from elsewhere.
pub(crate) const RESERVED_LABEL: &str = "external";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert!(check_path("receipts/rig-a/2026-01-02-suite-0a1b2c3d.jsonl").is_ok());
        for bad in ["", "/etc/x", "receipts//x", "receipts/../x", "./x", "a\\b", "a b", "a|b", "C:/x", "a/b/", "é"] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_file_names() {
        assert!(is_label("host-a.2_x") && is_label("provisional-0123abcd"));
        for bad in ["", ".hidden", "-x", "a/b", "a b", "external", &"x".repeat(65)] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
