//! The receipts that ledger entries cite, with what their verification found.

use std::collections::BTreeMap;
use std::path::Path;

use memra_contract::digest::Digest;

use crate::chain::ReceiptFile;
use crate::entry::Citation;
use crate::verify::{Evidence, Found, LookupError, Problem, Report, load_and_verify};

/// The receipts of a root, and the problems that were found in them.
#[derive(Debug, Clone, Default)]
pub struct Receipts {
    evidence: Evidence,
    problems: Vec<Problem>,
    /// Text of the correction that withdraws a record, from whichever file it stands in.
    withdrawn: BTreeMap<Digest, String>,
}

impl Receipts {
    /// Receipts that were verified elsewhere.
    pub fn new(evidence: Evidence, report: &Report) -> Self {
        let corrections = evidence.files().iter().flat_map(ReceiptFile::corrections);
        let withdrawn = corrections
            .filter(|correction| correction.withdraws)
            .map(|correction| (correction.corrects.clone(), correction.text.clone()))
            .collect();
        Self { evidence, problems: report.problems.clone(), withdrawn }
    }

    /// Reads and verifies all receipts of a root.
    pub fn load(root: &Path) -> Self {
        let (evidence, report) = load_and_verify(root);
        Self::new(evidence, &report)
    }

    /// The files, sorted by path.
    pub fn files(&self) -> &[ReceiptFile] {
        self.evidence.files()
    }

    /// Everything that verification found, by file and line.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The first problem of a file.
    pub fn problem_of(&self, file: &str) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.file == file)
    }

    /// The record that a citation means.
    ///
    /// # Errors
    /// [`LookupError`] when there is no such record, or more than one.
    pub fn find(&self, citation: &Citation) -> Result<Found<'_>, LookupError> {
        self.evidence.lookup(citation.file(), citation.record())
    }

    /// The text of the correction that withdraws the record `id`.
    pub fn withdrawal(&self, id: &Digest) -> Option<&str> {
        self.withdrawn.get(id).map(String::as_str)
    }
}
