//! Reading and writing the files of the ledger.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde_json::Value;

use super::{LedgerEntry, SCHEMA};
use crate::canonical::{self, CanonicalError};
use crate::chain::{PrivacyError, PrivacyLint};

/// Largest entry file that is read, in bytes.
pub const MAX_ENTRY_BYTES: u64 = 1 << 20;

/// Why an entry could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// A field breaks a rule.
    #[error("ledger entry: field `{field}`: {why}")]
    Field {
        /// The field.
        field: String,
        /// The broken rule.
        why: String,
    },
    /// The entry has no canonical text.
    #[error("ledger entry: {0}")]
    Canonical(#[from] CanonicalError),
    /// The entry holds a private fact.
    #[error("ledger entry: {0}")]
    Private(#[from] PrivacyError),
    /// The file system refused.
    #[error("{file}: {source}")]
    Io {
        /// Path relative to the evidence root.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than an entry can be.
    #[error("{file}: larger than {MAX_ENTRY_BYTES} bytes")]
    TooLarge {
        /// Path relative to the evidence root.
        file: String,
    },
    /// The file is no JSON with integers, or no ledger entry.
    #[error("{file}: {why}")]
    Text {
        /// Path relative to the evidence root.
        file: String,
        /// What does not fit.
        why: String,
    },
    /// Another schema.
    #[error("{file}: schema `{found}` is not `{SCHEMA}`")]
    Schema {
        /// Path relative to the evidence root.
        file: String,
        /// The schema in the file.
        found: String,
    },
    /// The content does not have the digest the id is made of.
    #[error("{file}: states the id `{stated}`, but its content has the id `{computed}`")]
    IdMismatch {
        /// Path relative to the evidence root.
        file: String,
        /// The id in the file.
        stated: String,
        /// The id of what stands in it.
        computed: String,
    },
    /// The bytes are not the ones that the writer gives for the same content.
    #[error("{file}: not in the form the ledger writes (keys sorted, two spaces a level, one newline at the end)")]
    Form {
        /// Path relative to the evidence root.
        file: String,
    },
    /// The entry lies under another name or year.
    #[error("{file}: the entry belongs at {expected}")]
    Place {
        /// Path relative to the evidence root.
        file: String,
        /// Where it belongs.
        expected: String,
    },
    /// A file that is no entry lies among the entries.
    #[error("{file}: not a ledger entry")]
    Stray {
        /// Path relative to the evidence root.
        file: String,
    },
}

impl EntryError {
    /// The file the error is about, relative to the evidence root; nothing for an entry that has no file yet.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Field { .. } | Self::Canonical(_) | Self::Private(_) => None,
            Self::Io { file, .. }
            | Self::TooLarge { file }
            | Self::Text { file, .. }
            | Self::Schema { file, .. }
            | Self::IdMismatch { file, .. }
            | Self::Form { file }
            | Self::Place { file, .. }
            | Self::Stray { file } => Some(file),
        }
    }
}

/// An entry and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFile {
    /// Path relative to the evidence root.
    pub file: String,
    /// What stands in it.
    pub entry: LedgerEntry,
}

/// The id an entry must have: its letter and the first digits of the digest of everything but the id.
pub(super) fn id_of(entry: &LedgerEntry) -> Result<String, EntryError> {
    Ok(id_of_value(entry.body.letter(), &canonical::to_value(entry)?)?)
}

fn id_of_value(letter: char, value: &Value) -> Result<String, CanonicalError> {
    Ok(format!("{letter}-{}", canonical::record_id(value)?.short()))
}

/// A value as the ledger writes it: keys sorted, two spaces a level, one newline at the end.
pub(super) fn pretty(mut value: Value) -> String {
    value.sort_all_objects();
    format!("{value:#}\n")
}

/// Writes a new entry below `root` and returns its path relative to it. Nothing that exists is replaced, and the file
/// appears whole or not at all.
///
/// # Errors
/// [`EntryError`]: the entry breaks a rule or holds a private fact, its id is not its own, the file exists, or the file
/// system refused.
pub fn write_entry(root: &Path, entry: &LedgerEntry, lint: &PrivacyLint) -> Result<String, EntryError> {
    entry.validate()?;
    let file = entry.path();
    let computed = id_of(entry)?;
    if computed != entry.id {
        return Err(EntryError::IdMismatch { file, stated: entry.id.clone(), computed });
    }
    let value = canonical::to_value(entry)?;
    lint.check(&value)?;
    let text = pretty(value);
    if text.len() as u64 > MAX_ENTRY_BYTES {
        return Err(EntryError::TooLarge { file });
    }
    write_whole(&root.join(&file), text.as_bytes(), false)
        .map_err(|source| EntryError::Io { file: file.clone(), source })?;
    Ok(file)
}

/// Writes a file so that it appears whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8], may_replace: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".memra-");
    #[cfg(unix)]
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    #[cfg(unix)]
    builder.permissions(permissions);
    let mut temporary = builder.tempfile_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    let written = if may_replace { temporary.persist(path) } else { temporary.persist_noclobber(path) };
    written.map(|_| ()).map_err(|error| error.error)
}

/// Reads one entry; `file` is its path relative to `root`.
///
/// # Errors
/// [`EntryError`] naming the file: unreadable, of another schema, edited, or not where it belongs.
pub fn read_entry(root: &Path, file: &str) -> Result<EntryFile, EntryError> {
    let io_error = |source| EntryError::Io { file: file.to_owned(), source };
    let wrong = |why: String| EntryError::Text { file: file.to_owned(), why };
    let mut bytes = Vec::new();
    let opened = fs::File::open(root.join(file)).map_err(io_error)?;
    opened.take(MAX_ENTRY_BYTES + 1).read_to_end(&mut bytes).map_err(io_error)?;
    if bytes.len() as u64 > MAX_ENTRY_BYTES {
        return Err(EntryError::TooLarge { file: file.to_owned() });
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8".to_owned()))?;
    let value = canonical::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let stated = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if stated("schema") != SCHEMA {
        return Err(EntryError::Schema { file: file.to_owned(), found: stated("schema") });
    }
    let letter = stated("kind").chars().next().unwrap_or('?');
    let computed = id_of_value(letter, &value).map_err(|error| wrong(error.to_string()))?;
    if computed != stated("id") {
        return Err(EntryError::IdMismatch { file: file.to_owned(), stated: stated("id"), computed });
    }
    let entry: LedgerEntry = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    entry.validate().map_err(|error| wrong(error.to_string()))?;
    if entry.path() != file {
        return Err(EntryError::Place { file: file.to_owned(), expected: entry.path() });
    }
    if pretty(canonical::to_value(&entry)?) != text {
        return Err(EntryError::Form { file: file.to_owned() });
    }
    Ok(EntryFile { file: file.to_owned(), entry })
}

/// Reads every entry below `root`, the broken ones as their errors, in the order of their paths.
///
/// Entries lie in folders named by a year of four digits; anything else in `ledger/` is not looked at. Hidden files are
/// passed over: a writer that was stopped leaves one.
///
/// # Errors
/// [`EntryError::Io`] when a folder cannot be listed. A root without a ledger has no entries.
pub fn scan(root: &Path) -> Result<Vec<Result<EntryFile, EntryError>>, EntryError> {
    let mut found = Vec::new();
    for year in names(root, "ledger")? {
        let is_year = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit());
        let folder = format!("ledger/{year}");
        if !is_year || !root.join(&folder).is_dir() {
            continue;
        }
        for name in names(root, &folder)? {
            let file = format!("{folder}/{name}");
            if name.starts_with('.') {
                continue;
            }
            let is_entry = Path::new(&name).extension().is_some_and(|end| end == "json") && root.join(&file).is_file();
            found.push(if is_entry { read_entry(root, &file) } else { Err(EntryError::Stray { file }) });
        }
    }
    Ok(found)
}

/// Reads every entry below `root`, in the order of date and id.
///
/// # Errors
/// The first [`EntryError`], by path.
pub fn read_all(root: &Path) -> Result<Vec<EntryFile>, EntryError> {
    let mut entries = scan(root)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    entries.sort_by(|left, right| (&left.entry.date, &left.entry.id).cmp(&(&right.entry.date, &right.entry.id)));
    Ok(entries)
}

/// The sorted names in a folder; none where the folder does not exist.
fn names(root: &Path, folder: &str) -> Result<Vec<String>, EntryError> {
    let io_error = |source| EntryError::Io { file: folder.to_owned(), source };
    let listing = match fs::read_dir(root.join(folder)) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(error)),
    };
    let mut names = Vec::new();
    for item in listing {
        names.push(item.map_err(io_error)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
