//! Sizes of the tracked tree: a clone stays small.

use super::Finding;
use crate::tree::Tree;

const MOST_TREE_BYTES: u64 = 20 << 20;
const MOST_FILE_BYTES: u64 = 4 << 20;
const MOST_RECEIPT_BYTES: u64 = 2_000_000;
const MOST_RECEIPTS_BYTES: u64 = 8_000_000;

/// Finds files and folders that are too large to travel with the repository.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_receipt = |path: &str| path.starts_with("receipts/");
    for (path, file) in tree.files() {
        let limit = if is_receipt(path) { MOST_RECEIPT_BYTES } else { MOST_FILE_BYTES };
        if file.bytes > limit {
            let what = format!("has {} bytes, at most {limit}: keep it outside the repository", file.bytes);
            findings.push(Finding::failure(path, 1, what));
        }
    }
    findings.extend(sum(tree, "the tracked files", MOST_TREE_BYTES, |_| true));
    findings.extend(sum(tree, "the receipts", MOST_RECEIPTS_BYTES, is_receipt));
    findings
}

/// A failure at the largest of the selected files when together they exceed the limit.
fn sum(tree: &Tree, what: &str, limit: u64, is_selected: impl Fn(&str) -> bool) -> Option<Finding> {
    let sizes: Vec<(u64, &str)> =
        tree.files().filter(|(path, _)| is_selected(path)).map(|(path, file)| (file.bytes, path)).collect();
    let total = sizes.iter().fold(0_u64, |total, (bytes, _)| total.saturating_add(*bytes));
    let (_, largest) = sizes.into_iter().max()?;
    let what = || format!("{what} have {total} bytes together, at most {limit}; this file is the largest of them");
    (total > limit).then(|| Finding::failure(largest, 1, what()))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let tree = Tree::default()
            .with_size("a", 4 << 20)
            .with_size("b", 4 << 20)
            .with_size("c", 4 << 20)
            .with_size("receipts/r/a.jsonl", 2_000_000)
            .with_size("receipts/r/b.jsonl", 2_000_000)
            .with_size("receipts/r/c.jsonl", 2_000_000)
            .with_size("receipts/r/d.jsonl", 2_000_000);
        assert_eq!(check(&tree), []);
        let tree = tree.with_size("receipts/index.json", 1);
        assert_eq!(places(&check(&tree)), ["receipts/r/d.jsonl:1"]);
        let tree = tree.with_size("d", (4 << 20) + 1);
        assert_eq!(places(&check(&tree)), ["d:1", "d:1", "receipts/r/d.jsonl:1"]);
    }

    #[test]
    fn one_large_receipt_fails() {
        let tree = Tree::default().with_size("receipts/r/a.jsonl", 2_000_001);
        let findings = check(&tree);
        assert_eq!(places(&findings), ["receipts/r/a.jsonl:1"]);
        assert!(findings[0].what.starts_with("has 2000001 bytes, at most 2000000"), "{findings:?}");
    }
}
