//! Citations: which record of which receipt file a ledger entry rests on.

use std::fmt;
use std::str::FromStr;

use memra_contract::digest::Digest;
use serde::{Deserialize, Serialize};

/// Fewest digits of a record id that a citation may carry.
pub const MIN_RECORD_DIGITS: usize = 12;

/// A record of a receipt file, as `receipts/<rig>/<file>.jsonl#<record id or its first 12 or more digits>`.
///
/// The path is relative to the evidence root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Citation {
    file: String,
    record: String,
}

/// Text that is no citation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a citation: {why}")]
pub struct CitationError {
    /// The text that was refused.
    pub text: String,
    /// The broken rule.
    pub why: &'static str,
}

impl Citation {
    /// Cites a record by the first digits of its id.
    ///
    /// # Errors
    /// [`CitationError`] when `file` is not a receipt path relative to the root.
    pub fn new(file: &str, record: &Digest) -> Result<Self, CitationError> {
        format!("{file}#{}", record.short()).parse()
    }

    /// Path of the receipt file relative to the evidence root.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The rig folder of the receipt file.
    pub fn rig(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    /// The digits of the record id that were given.
    pub fn record(&self) -> &str {
        &self.record
    }

    /// Whether the citation can mean the record `id`.
    pub fn is_of(&self, id: &Digest) -> bool {
        id.as_str().starts_with(&self.record)
    }
}

fn is_plain_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

impl FromStr for Citation {
    type Err = CitationError;
    fn from_str(text: &str) -> Result<Self, CitationError> {
        let refuse = |why| CitationError { text: text.to_owned(), why };
        let (file, record) = text.split_once('#').ok_or_else(|| refuse("`#` and a record id are missing"))?;
        let parts: Vec<&str> = file.split('/').collect();
        let [top, rig, name] = parts.as_slice() else {
            return Err(refuse("the file is not of the form receipts/<rig>/<file>.jsonl"));
        };
        if *top != "receipts" || !is_plain_name(rig) || !is_plain_name(name) {
            return Err(refuse("the file is not of the form receipts/<rig>/<file>.jsonl"));
        }
        if name.strip_suffix(".jsonl").is_none_or(str::is_empty) {
            return Err(refuse("a receipt file ends in .jsonl"));
        }
        let is_hex = record.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !is_hex || !(MIN_RECORD_DIGITS..=64).contains(&record.len()) {
            return Err(refuse("a record id has 12 to 64 lower-case hexadecimal digits"));
        }
        Ok(Self { file: file.to_owned(), record: record.to_owned() })
    }
}

impl TryFrom<String> for Citation {
    type Error = CitationError;
    fn try_from(text: String) -> Result<Self, CitationError> {
        text.parse()
    }
}

impl From<Citation> for String {
    fn from(citation: Citation) -> Self {
        citation.to_string()
    }
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.file, self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_round_trip() {
        let id = Digest::from_bytes(&[0xab; 32]);
        let file = "receipts/some-rig/2026-01-02-a-0123abcd.jsonl";
        let short = Citation::new(file, &id).unwrap();
        assert_eq!(short.record(), "abababababab");
        let whole: Citation = format!("{file}#{id}").parse().unwrap();
        for citation in [&whole, &short] {
            assert_eq!(citation.to_string().parse().as_ref(), Ok(citation));
            assert!(citation.is_of(&id));
            assert!(!citation.is_of(&Digest::from_bytes(&[0xcd; 32])));
            assert_eq!(citation.rig(), "some-rig");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let digits = "0123456789ab";
        for (text, why) in [
            (format!("receipts/r/f.jsonl{digits}"), "`#`"),
            (format!("receipts/f.jsonl#{digits}"), "of the form"),
            (format!("receipts/../f.jsonl#{digits}"), "of the form"),
            (format!("/receipts/r/f.jsonl#{digits}"), "of the form"),
            (format!("records/r/f.jsonl#{digits}"), "of the form"),
            (format!("receipts/r/a b.jsonl#{digits}"), "of the form"),
            (format!("receipts/r/f.json#{digits}"), "ends in .jsonl"),
            (format!("receipts/r/.jsonl#{digits}"), "of the form"),
            ("receipts/r/f.jsonl#0123456789a".to_owned(), "12 to 64"),
            ("receipts/r/f.jsonl#0123456789AB".to_owned(), "12 to 64"),
            (format!("receipts/r/f.jsonl#{}", "a".repeat(65)), "12 to 64"),
        ] {
            let error = text.parse::<Citation>().unwrap_err().to_string();
            assert!(error.contains(&text) && error.contains(why), "{error}");
        }
    }
}
