//! The proof of a passed check, without which no trial starts.

use memra_contract::digest::Digest;

use super::case::CaseId;

/// An arm passed its check. Only the check makes one; a runner asks for one of each arm, and looks up what the arm's
/// outputs were on the case it is about to time.
#[derive(Debug, Clone)]
pub struct Passed {
    contract: &'static str,
    arm: String,
    source_sha256: Option<Digest>,
    cases: Vec<PassedCase>,
}

/// One judged case.
#[derive(Debug, Clone)]
pub(super) struct PassedCase {
    pub(super) id: CaseId,
    pub(super) outputs: Digest,
    pub(super) copy_bytes: usize,
}

impl Passed {
    pub(super) fn new(
        contract: &'static str,
        arm: &str,
        source_sha256: Option<Digest>,
        cases: Vec<PassedCase>,
    ) -> Self {
        Self { contract, arm: arm.to_owned(), source_sha256, cases }
    }

    /// Name of the variant, or of the process as the user calls it.
    pub fn arm(&self) -> &str {
        &self.arm
    }

    /// The contract it was judged against.
    pub fn contract(&self) -> &'static str {
        self.contract
    }

    /// sha256 of the source text that was judged; nothing for a process.
    pub fn source_sha256(&self) -> Option<&Digest> {
        self.source_sha256.as_ref()
    }

    /// sha256 of the outputs on a case, and the bytes of one copy of what rotates; nothing where the case was not judged.
    pub(crate) fn case(&self, id: &CaseId) -> Option<(&Digest, usize)> {
        self.cases.iter().find(|case| case.id == *id).map(|case| (&case.outputs, case.copy_bytes))
    }
}
