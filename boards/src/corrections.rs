//! Which corrections hold, and what they say about a record.

use memra_contract::digest::Digest;
use std::collections::BTreeMap;

/// One correction record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Correction {
    /// Its own id.
    pub(crate) id: Digest,
    /// The record it corrects.
    pub(crate) corrects: Digest,
    /// What was wrong and what holds instead.
    pub(crate) text: String,
    /// Whether the corrected record may no longer be used.
    pub(crate) withdraws: bool,
    /// Where it stands: `<file>#<first 12 digits of its id>`.
    pub(crate) citation: String,
}

/// The corrections that hold, by the record they correct, each list in file order.
#[derive(Debug, Default)]
pub(crate) struct Corrections(BTreeMap<Digest, Vec<Correction>>);

impl Corrections {
    /// Keeps the corrections that no other one takes back. `all` is in (file, position) order.
    ///
    /// A correction that is withdrawn by one that holds does not hold; a ring of withdrawals, which hashes make
    /// impossible, holds whole.
    pub(crate) fn new(all: Vec<Correction>) -> Self {
        let index: BTreeMap<Digest, usize> = all.iter().enumerate().map(|(at, one)| (one.id.clone(), at)).collect();
        // For each correction: how many withdrawals of it are still open, and which corrections it would take back.
        let mut open = vec![0_usize; all.len()];
        let target: Vec<Option<usize>> =
            all.iter().map(|one| index.get(&one.corrects).copied().filter(|_| one.withdraws)).collect();
        for &at in target.iter().flatten() {
            open[at] += 1;
        }
        let mut holds = vec![true; all.len()];
        let mut ready: Vec<usize> = (0..all.len()).filter(|&at| open[at] == 0).collect();
        while let Some(at) = ready.pop() {
            if let Some(taken_back) = target[at] {
                holds[taken_back] &= !holds[at];
                open[taken_back] -= 1;
                if open[taken_back] == 0 {
                    ready.push(taken_back);
                }
            }
        }
        let mut by_record: BTreeMap<Digest, Vec<Correction>> = BTreeMap::new();
        for (one, holds) in all.into_iter().zip(holds) {
            if holds {
                by_record.entry(one.corrects.clone()).or_default().push(one);
            }
        }
        Self(by_record)
    }

    /// All corrections that hold of any of the records, in the order of `ids`.
    pub(crate) fn of<'a>(&'a self, ids: impl IntoIterator<Item = &'a Digest>) -> Vec<&'a Correction> {
        ids.into_iter().filter_map(|id| self.0.get(id)).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::from_bytes(&[n; 32])
    }

    fn correction(id: u8, corrects: u8, withdraws: bool) -> Correction {
        let id = digest(id);
        let citation = format!("f#{}", id.short());
        Correction { id, corrects: digest(corrects), text: String::new(), withdraws, citation }
    }

    fn held(all: &[Correction], of: u8) -> usize {
        Corrections::new(all.to_vec()).of([&digest(of)]).len()
    }

    #[test]
    fn a_correction_can_be_taken_back_and_that_too() {
        let mut all = vec![correction(10, 1, true)];
        assert_eq!(held(&all, 1), 1);
        all.push(correction(11, 10, true));
        assert_eq!(held(&all, 1), 0);
        all.push(correction(12, 11, true));
        assert_eq!(held(&all, 1), 1);
        // A remark on a correction leaves it standing.
        assert_eq!(held(&[correction(10, 1, true), correction(11, 10, false)], 1), 1);
    }

    #[test]
    fn order_of_files_does_not_matter() {
        let all = [correction(10, 1, true), correction(11, 10, true), correction(12, 11, true)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
            let shuffled: Vec<_> = order.iter().map(|&at: &usize| all[at].clone()).collect();
            assert_eq!(held(&shuffled, 1), 1);
            assert_eq!(held(&shuffled, 10), 0);
            assert_eq!(held(&shuffled, 11), 1);
        }
    }

    #[test]
    fn a_ring_holds_whole() {
        assert_eq!(held(&[correction(10, 11, true), correction(11, 10, true)], 10), 1);
    }
}
