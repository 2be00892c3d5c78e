//! Ledger entries: promotions, demotions, refutations and open gaps, one JSON file each.
//!
//! An entry lies at `ledger/<year>/<id>.json` below the evidence root. Its id is made of its own digest, so that an edited
//! entry no longer has the name it is filed under. Entries are never changed: a demotion follows a promotion, it does not
//! edit it.

mod body;
mod citation;
mod file;
mod index;

pub use body::{
    CellEvidence, DemotionBody, DemotionReason, Effect, EntryBody, FailureClass, GapBody, GuardEvidence, PromotionBody,
    RefutationBody, Regime, SourceDigest, VariantDigest,
};
pub use citation::{Citation, CitationError, MIN_RECORD_DIGITS};
pub use file::{EntryError, EntryFile, MAX_ENTRY_BYTES, read_all, read_entry, scan, write_entry};
pub use index::{INDEX_PATH, INDEX_SCHEMA, index_text, write_index};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of every entry this crate reads and writes.
pub const SCHEMA: &str = "memra-lab.ledger/1";

/// One file of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// [`SCHEMA`].
    pub schema: String,
    /// Letter of the kind, a dash and the first 12 digits of the sha256 of the canonical JSON of all other fields.
    pub id: String,
    /// When the entry was made, RFC 3339 date.
    pub date: String,
    /// What the entry says, in one line.
    pub title: String,
    /// Kind and body.
    #[serde(flatten)]
    pub body: EntryBody,
}

impl LedgerEntry {
    /// Makes an entry and its id.
    ///
    /// # Errors
    /// [`EntryError::Field`] naming the field that breaks a rule.
    pub fn new(date: &str, title: &str, body: EntryBody) -> Result<Self, EntryError> {
        let mut entry =
            Self { schema: SCHEMA.to_owned(), id: String::new(), date: date.to_owned(), title: title.to_owned(), body };
        entry.validate()?;
        entry.id = file::id_of(&entry)?;
        Ok(entry)
    }

    /// Path of the entry's file relative to the evidence root.
    pub fn path(&self) -> String {
        let year = self.date.get(..4).unwrap_or_default();
        format!("ledger/{year}/{}.json", self.id)
    }

    /// Every record the entry rests on, in the order they stand in it.
    pub fn citations(&self) -> Vec<&Citation> {
        self.body.citations()
    }

    fn validate(&self) -> Result<(), EntryError> {
        let refuse = |field: &str, why: String| Err(EntryError::Field { field: field.to_owned(), why });
        let is_date = chrono::NaiveDate::parse_from_str(&self.date, "%Y-%m-%d")
            .is_ok_and(|date| date.format("%Y-%m-%d").to_string() == self.date && self.date.len() == 10);
        if !is_date {
            return refuse("date", format!("`{}` is not a date of the form YYYY-MM-DD", self.date));
        }
        body::one_line("title", &self.title)?;
        self.body.validate()
    }
}

#[cfg(test)]
mod tests;
