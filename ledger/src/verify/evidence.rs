//! The receipts of a root, for whoever cites them.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Problem, error_text};
use crate::chain::{ReceiptFile, read_file};
use crate::index::{self, INDEX_PATH};
use crate::record::{CorrectionBody, Record, SessionBody};

/// Fewest digits of an id that name a record.
pub const MIN_ID_DIGITS: usize = 12;

/// All receipt files of a root that could be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    files: Vec<ReceiptFile>,
    places: BTreeMap<String, usize>,
}

/// What could not be read.
pub(super) struct Unread {
    pub(super) files: Vec<String>,
    pub(super) problems: Vec<Problem>,
}

/// A record that was looked up.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The file it stands in.
    pub file: &'a ReceiptFile,
    /// The session it belongs to.
    pub session: &'a SessionBody,
    /// The record.
    pub record: &'a Record,
    /// Line, from 1.
    pub line: u64,
    /// Whether a later correction withdraws it.
    pub is_withdrawn: bool,
}

/// A citation that leads to no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The text is no citation.
    #[error(
        "`{0}` is not a citation: receipts/<rig>/<file>.jsonl#<the first 12 or more digits of a record's id> is needed"
    )]
    Form(String),
    /// There is no such file.
    #[error("`{0}` is no receipt file below the root, or it does not read")]
    NoFile(String),
    /// The file holds no such record.
    #[error("{file} holds no record {id}")]
    NoRecord {
        /// The file.
        file: String,
        /// The digits given.
        id: String,
    },
    /// Two records of the file begin with these digits.
    #[error("{file} holds several records that begin with {id}")]
    Ambiguous {
        /// The file.
        file: String,
        /// The digits given.
        id: String,
    },
}

impl Evidence {
    /// Evidence of files that were read elsewhere.
    pub fn new(files: impl IntoIterator<Item = ReceiptFile>) -> Self {
        let mut evidence = Self { files: files.into_iter().collect(), places: BTreeMap::new() };
        evidence.files.sort_by(|left, right| left.name.cmp(&right.name));
        evidence.places = evidence.files.iter().enumerate().map(|(place, file)| (file.name.clone(), place)).collect();
        evidence
    }

    /// Reads all receipt files of a root.
    pub(super) fn load(root: &Path) -> (Self, Unread) {
        let mut unread = Unread { files: Vec::new(), problems: Vec::new() };
        let names = match index::receipt_files(root) {
            Ok(names) => names,
            Err(error) => {
                unread.problems.push(Problem {
                    file: INDEX_PATH.rsplit_once('/').map_or(INDEX_PATH, |(folder, _)| folder).to_owned(),
                    line: None,
                    field: None,
                    message: error_text(&error),
                });
                Vec::new()
            }
        };
        let mut files = Vec::new();
        for name in names {
            match read_file(root, &name) {
                Ok(file) => files.push(file),
                Err(error) => {
                    unread.problems.push(Problem::of_read_error(&error));
                    unread.files.push(name);
                }
            }
        }
        (Self::new(files), unread)
    }

    /// The files, sorted by path.
    pub fn files(&self) -> &[ReceiptFile] {
        &self.files
    }

    /// The file at a path below the root.
    pub fn file(&self, name: &str) -> Option<&ReceiptFile> {
        self.files.get(*self.places.get(name)?)
    }

    /// The record a citation `file#digits` names.
    ///
    /// # Errors
    ///
    /// [`LookupError`] says which part leads nowhere.
    pub fn find(&self, citation: &str) -> Result<Found<'_>, LookupError> {
        let (file, id) = citation.split_once('#').ok_or_else(|| LookupError::Form(citation.to_owned()))?;
        self.lookup(file, id)
    }

    /// The record of a file by its id or the first digits of it, at least [`MIN_ID_DIGITS`].
    ///
    /// # Errors
    ///
    /// As [`Evidence::find`].
    pub fn lookup(&self, file: &str, id: &str) -> Result<Found<'_>, LookupError> {
        let is_hex = id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !is_hex || !(MIN_ID_DIGITS..=64).contains(&id.len()) {
            return Err(LookupError::Form(format!("{file}#{id}")));
        }
        let receipt = self.file(file).ok_or_else(|| LookupError::NoFile(file.to_owned()))?;
        let named = || (file.to_owned(), id.to_owned());
        let mut matching = receipt.records.iter().enumerate().filter(|(_, record)| record.id.as_str().starts_with(id));
        let (Some((index, record)), Some(session)) = (matching.next(), receipt.session()) else {
            let (file, id) = named();
            return Err(LookupError::NoRecord { file, id });
        };
        if matching.next().is_some() {
            let (file, id) = named();
            return Err(LookupError::Ambiguous { file, id });
        }
        let is_withdrawn = receipt.is_withdrawn(&record.id);
        Ok(Found { file: receipt, session, record, line: index as u64 + 1, is_withdrawn })
    }

    /// The citation of a record: `file#` and the first 12 digits of its id.
    pub fn citation(file: &ReceiptFile, record: &Record) -> String {
        format!("{}#{}", file.name, record.id.short())
    }

    /// All corrections of a record, in the order they were made.
    pub fn corrections<'a>(file: &'a ReceiptFile, record: &Record) -> Vec<&'a CorrectionBody> {
        file.corrections().filter(|correction| correction.corrects == record.id).collect()
    }
}
