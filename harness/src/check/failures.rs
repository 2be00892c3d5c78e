//! Collecting what did not hold.

use std::collections::BTreeSet;

use memra_ledger::chain::PrivacyLint;
use memra_ledger::record::GateFailure;

/// Most failures a gate keeps: a variant that is wrong everywhere is told apart from one that is wrong in a place without
/// filling a receipt.
pub(super) const MOST: usize = 32;

/// Longest message that is kept, in characters.
const LONGEST: usize = 400;

/// What can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Bits differ from those of the order class.
    Bits,
    /// The error is more than the tolerance.
    Error,
    /// Runs of one case differ.
    Repeat,
    /// An element was not written.
    Poison,
    /// Bytes around an output were written.
    Guard,
    /// An output is infinite or no number.
    NonFinite,
    /// The launch panicked, was refused, or the process failed.
    Launch,
    /// A row is another one alone or in another place.
    Rows,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Bits => "bits",
            Self::Error => "error",
            Self::Repeat => "repeat",
            Self::Poison => "poison",
            Self::Guard => "guard",
            Self::NonFinite => "non_finite",
            Self::Launch => "launch",
            Self::Rows => "rows",
        }
    }
}

/// Failures in the order they were found, the first of each case and reason.
#[derive(Debug, Default)]
pub(super) struct Failures {
    list: Vec<GateFailure>,
    seen: BTreeSet<(String, Reason)>,
}

impl Failures {
    pub(super) fn add(&mut self, case: &str, threads: usize, reason: Reason, detail: &str) {
        if self.seen.insert((case.to_owned(), reason)) && self.list.len() < MOST {
            self.list.push(GateFailure {
                case: case.to_owned(),
                threads: u32::try_from(threads).unwrap_or(u32::MAX),
                reason: reason.text().to_owned(),
                detail: without_paths(detail),
            });
        }
    }

    /// Takes over what was found on one case.
    pub(super) fn extend(&mut self, of_case: impl IntoIterator<Item = GateFailure>) {
        let room = MOST.saturating_sub(self.list.len());
        self.list.extend(of_case.into_iter().take(room));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn into_list(self) -> Vec<GateFailure> {
        self.list
    }
}

/// A message as it may stand in a receipt: of bounded length, on one line, words that are absolute paths replaced.
pub(crate) fn without_paths(text: &str) -> String {
    let lint = PrivacyLint::default();
    let is_clean = |text: &str| lint.check(&serde_json::Value::String(text.to_owned())).is_ok();
    let words = text.split_whitespace().map(|word| if is_clean(word) { word } else { "(path)" });
    let line: String = words.collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect();
    if is_clean(&line) { line } else { "(a message with an absolute path)".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_and_reason_stand_once_and_the_list_is_bounded() {
        let mut failures = Failures::default();
        for threads in [1, 2] {
            failures.add("case", threads, Reason::Bits, "differs");
            failures.add("case", threads, Reason::Guard, "written");
        }
        for i in 0..100 {
            failures.add(&format!("case {i}"), 1, Reason::NonFinite, "nan");
        }
        let list = failures.into_list();
        assert_eq!(list.len(), MOST);
        let first: Vec<_> = list[..3].iter().map(|f| (f.threads, f.reason.as_str())).collect();
        assert_eq!(first, [(1, "bits"), (1, "guard"), (1, "non_finite")]);
    }

    #[test]
    fn paths_do_not_reach_a_receipt() {
        assert_eq!(without_paths("cannot open /home/x/y.bin:\n no such file"), "cannot open (path) no such file");
        assert_eq!(without_paths("at src/a.rs 1/2"), "at src/a.rs 1/2");
        assert_eq!(without_paths(&"x".repeat(1000)).len(), LONGEST);
    }
}
