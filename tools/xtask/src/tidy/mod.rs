//! The rules of the tree. Each is a pure function from the tracked files to what is wrong with them.

mod citations;
mod edges;
mod environment;
mod headers;
mod layout;
mod links;
mod sizes;
mod unsafety;
mod weight;
mod words;

use std::io::{self, Write};

use crate::tree::Tree;

/// A rule by its name.
pub(crate) type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

/// All rules, in the order in which they report.
pub(crate) const RULES: [Rule; 11] = [
    ("edges", edges::check),
    ("sizes", sizes::check),
    ("unsafe", unsafety::check),
    ("citations", citations::check),
    ("weight", weight::check),
    ("environment", environment::check),
    ("words", words::check),
    ("headers", headers::check),
    ("defaults", layout::check_defaults),
    ("layout", layout::check_folders),
    ("links", links::check),
];

/// What a rule has to say about a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    /// A note asks for attention and fails nothing.
    is_note: bool,
    /// What is wrong and what to do about it.
    what: String,
}

impl Finding {
    fn failure(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, is_note: false, what: what.into() }
    }

    fn note(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { is_note: true, ..Self::failure(path, line, what) }
    }
}

/// Applies the rules, prints every finding and a summary, and returns the number of failures.
///
/// # Errors
///
/// When `out` cannot be written.
pub(crate) fn report(tree: &Tree, rules: &[Rule], out: &mut impl Write) -> io::Result<usize> {
    let mut failures = 0;
    for (rule, check) in rules {
        for Finding { path, line, is_note, what } in check(tree) {
            failures += usize::from(!is_note);
            let kind = if is_note { "note: " } else { "" };
            writeln!(out, "{path}:{line}: {rule}: {kind}{what}")?;
        }
    }
    if tree.untracked > 0 {
        writeln!(out, "note: {} files are not tracked by git and were not looked at", tree.untracked)?;
    }
    let plural = if failures == 1 { "" } else { "s" };
    writeln!(out, "tidy: {} files, {} rules, {failures} failure{plural}", tree.len(), rules.len())?;
    Ok(failures)
}

/// The failures of a rule on a made-up tree as `path:line`.
#[cfg(test)]
fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each(_: &Tree) -> Vec<Finding> {
        vec![Finding::failure("a.rs", 3, "mend it"), Finding::note("b.rs", 1, "look at it")]
    }

    #[test]
    fn everything_is_printed_and_only_failures_count() {
        let mut tree = Tree::of(&[("a.rs", ""), ("b.rs", "")]);
        let mut out = Vec::new();
        assert_eq!(report(&tree, &[("x", one_of_each), ("y", one_of_each)], &mut out).unwrap(), 2);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "a.rs:3: x: mend it\nb.rs:1: x: note: look at it\na.rs:3: y: mend it\nb.rs:1: y: note: look at it\n\
             tidy: 2 files, 2 rules, 2 failures\n"
        );

        tree.untracked = 4;
        let mut out = Vec::new();
        assert_eq!(report(&tree, &[], &mut out).unwrap(), 0);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "note: 4 files are not tracked by git and were not looked at\ntidy: 2 files, 0 rules, 0 failures\n"
        );
    }

    #[test]
    fn every_rule_accepts_an_empty_tree() {
        for (rule, check) in RULES {
            assert_eq!(check(&Tree::default()), [], "{rule}");
        }
    }
}
