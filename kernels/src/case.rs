//! Cases: named problems with input recipes, in `cases.toml` beside each contract.

use memra_contract::Problem;
use serde::Deserialize;

/// The cases of one contract.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// The cases in file order.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One problem under several input families.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Problem text.
    pub problem: String,
    /// Input families it is judged on.
    pub families: Vec<String>,
}

impl CaseFile {
    /// Reads a file that is compiled in.
    ///
    /// # Panics
    /// When the text is not a case file: the text is part of the program, and a test reads every one.
    pub fn compiled_in(text: &str) -> Self {
        match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => panic!("cases.toml: {error}"),
        }
    }
}

impl Case {
    /// The problem.
    ///
    /// # Errors
    /// [`memra_contract::ProblemError`] naming the part.
    pub fn problem(&self) -> Result<Problem, memra_contract::ProblemError> {
        self.problem.parse()
    }
}
