//! Lengths of source files.

use super::Finding;
use crate::tree::{Tree, extension, is_code};

/// More lines than this fail.
const MOST_LINES: usize = 700;

/// More lines than this are noted.
const MANY_LINES: usize = 400;

/// Generated sources, which may have any length.
const GENERATED: [&str; 0] = [];

/// Finds sources and scripts that are too long to read in one go.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, &GENERATED)
}

fn check_with(tree: &Tree, generated: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Manifests and tables grow by rows, not by ideas.
    for (path, text) in tree.texts().filter(|(path, text)| is_code(path, text) && extension(path) != Some("toml")) {
        if generated.contains(&path) {
            continue;
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            let what = format!("has {lines} lines, at most {MOST_LINES}: split it by what it is about");
            findings.push(Finding::failure(path, MOST_LINES + 1, what));
        } else if lines > MANY_LINES {
            findings.push(Finding::note(path, MANY_LINES + 1, format!("has {lines} lines, more than {MANY_LINES}")));
        }
    }
    let missing = generated.iter().filter(|path| tree.text(path).is_none());
    findings.extend(
        missing
            .map(|path| Finding::failure(path, 1, "is listed as generated and is not there: remove it from the list")),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn long_files_fail_and_longish_ones_are_noted() {
        let lines = |count: usize| "x\n".repeat(count);
        let (some, many, most, more) = (lines(400), lines(401), lines(700), lines(701));
        let script = format!("#!/bin/sh\n{}", lines(700));
        let tree = Tree::of(&[
            ("a.rs", &some),
            ("b.cu", &many),
            ("c.py", &most),
            ("d.rs", &more),
            ("e.md", &more),
            ("f/cases.toml", &more),
            ("g", &script),
            ("h.cuh", &more),
            ("made.rs", &more),
        ]);
        let findings = check_with(&tree, &["made.rs", "gone.rs"]);
        let (notes, failures): (Vec<_>, Vec<_>) = findings.into_iter().partition(|finding| finding.is_note);
        assert_eq!(places(&notes), ["b.cu:401", "c.py:401"]);
        assert_eq!(places(&failures), ["d.rs:701", "g:701", "h.cuh:701", "gone.rs:1"]);
    }
}
