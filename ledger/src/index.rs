//! The index of the receipt files of a root: `receipts/index.json`.
//!
//! It holds the number of records and the last id of every file, so that a file that was removed or cut is noticed. It
//! is generated; equal files give equal bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use memra_contract::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::chain::{ReadError, ReceiptFile, read_file};

/// Path of the index below the root.
pub const INDEX_PATH: &str = "receipts/index.json";

/// Schema name and version of the index.
pub const INDEX_SCHEMA: &str = "memra-lab.receipt-index/1.0.0";

/// Largest index that is read.
const MAX_INDEX_BYTES: u64 = 64_000_000;

/// The index: one entry a file, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Schema name and version.
    pub schema: String,
    /// The files.
    pub files: Vec<IndexEntry>,
}

/// What the index knows of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Path below the root, with `/` between folders.
    pub path: String,
    /// Identifier of the session.
    pub session: String,
    /// Number of records.
    pub records: u64,
    /// `id` of the last record.
    pub last_id: Digest,
}

/// Why the index could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file system said no.
    #[error("{file}: cannot {action}")]
    Io {
        /// Path below the root.
        file: String,
        /// What was tried.
        action: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not an index.
    #[error("{INDEX_PATH}: not an index: {message}")]
    Form {
        /// What is wrong.
        message: String,
    },
    /// A file without records has no place in the index.
    #[error("{file}: holds no record that could be indexed")]
    Empty {
        /// Path below the root.
        file: String,
    },
    /// A receipt file that should be indexed does not hold up.
    #[error("nothing indexed")]
    Read(#[from] ReadError),
}

impl Index {
    /// An index of these entries.
    pub fn new(entries: impl IntoIterator<Item = IndexEntry>) -> Self {
        let sorted: BTreeMap<String, IndexEntry> =
            entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        Self { schema: INDEX_SCHEMA.to_owned(), files: sorted.into_values().collect() }
    }

    /// The text of the index: indented JSON, one line a field, with a line end.
    ///
    /// # Errors
    ///
    /// [`IndexError::Form`] if a field has no JSON form, which none of these types does.
    pub fn text(&self) -> Result<String, IndexError> {
        let text =
            serde_json::to_string_pretty(self).map_err(|error| IndexError::Form { message: error.to_string() })?;
        Ok(text + "\n")
    }

    /// Parses the text of an index. Its spelling is not checked; compare with [`Index::text`] for that.
    ///
    /// # Errors
    ///
    /// [`IndexError::Form`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, IndexError> {
        let index: Self =
            serde_json::from_str(text).map_err(|error| IndexError::Form { message: error.to_string() })?;
        if index.schema != INDEX_SCHEMA {
            return Err(IndexError::Form { message: format!("schema `{}` is not `{INDEX_SCHEMA}`", index.schema) });
        }
        Ok(index)
    }
}

impl IndexEntry {
    /// The entry of a file; nothing for a file without records.
    pub fn of(file: &ReceiptFile) -> Option<Self> {
        let last = file.records.last()?;
        Some(Self {
            path: file.name.clone(),
            session: last.session.clone(),
            records: file.records.len() as u64,
            last_id: last.id.clone(),
        })
    }
}

/// Reads the text of a root's index; nothing where there is none.
///
/// # Errors
///
/// [`IndexError`] names the file.
pub fn read_text(root: &Path) -> Result<Option<String>, IndexError> {
    let io = |source| IndexError::Io { file: INDEX_PATH.to_owned(), action: "read the index", source };
    let file = match File::open(root.join(INDEX_PATH)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mut text = String::new();
    file.take(MAX_INDEX_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_INDEX_BYTES {
        return Err(IndexError::Form { message: format!("larger than {MAX_INDEX_BYTES} bytes") });
    }
    Ok(Some(text))
}

/// Reads a root's index; nothing where there is none.
///
/// # Errors
///
/// [`IndexError`] names the file.
pub fn load(root: &Path) -> Result<Option<Index>, IndexError> {
    read_text(root)?.map(|text| Index::parse(&text)).transpose()
}

/// Enters one file in a root's index, in place of what stood there under its path, and replaces the index as a whole.
///
/// # Errors
///
/// [`IndexError`] names the file; the old index stands in that case.
pub fn enter(root: &Path, entry: IndexEntry) -> Result<(), IndexError> {
    let _lock = lock(root)?;
    let known = load(root)?.map(|index| index.files).unwrap_or_default();
    save(root, &Index::new(known.into_iter().chain([entry])))
}

/// Checks one file and enters it, for a session that stopped before its end. `name` is its path below the root.
///
/// # Errors
///
/// [`IndexError::Read`] if the file does not hold up, [`IndexError::Empty`] if it has no record, else as [`enter`].
pub fn enter_file(root: &Path, name: &str) -> Result<IndexEntry, IndexError> {
    let file = read_file(root, name)?;
    let entry = IndexEntry::of(&file).ok_or_else(|| IndexError::Empty { file: name.to_owned() })?;
    enter(root, entry.clone())?;
    Ok(entry)
}

/// Builds a root's index anew from all its receipt files, which are checked, and replaces the old one.
///
/// Entries of files that are gone disappear: look at what changed before it is kept.
///
/// # Errors
///
/// [`IndexError`] names the file; the old index stands in that case.
pub fn rebuild(root: &Path) -> Result<Index, IndexError> {
    let _lock = lock(root)?;
    let mut entries = Vec::new();
    for name in receipt_files(root)? {
        entries.extend(IndexEntry::of(&read_file(root, &name)?));
    }
    let index = Index::new(entries);
    save(root, &index)?;
    Ok(index)
}

/// The paths of all receipt files below a root, sorted. A root without the folder `receipts` has none.
///
/// # Errors
///
/// [`IndexError::Io`] names the folder that cannot be read, [`IndexError::Form`] a name that is not UTF-8.
pub fn receipt_files(root: &Path) -> Result<Vec<String>, IndexError> {
    let mut files = Vec::new();
    let mut folders = vec!["receipts".to_owned()];
    while let Some(folder) = folders.pop() {
        let io = |source| IndexError::Io { file: folder.clone(), action: "read the folder", source };
        let entries = match std::fs::read_dir(root.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder == "receipts" => return Ok(files),
            Err(error) => return Err(io(error)),
        };
        for entry in entries {
            let entry = entry.map_err(io)?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(IndexError::Form { message: format!("{folder} holds a name that is not UTF-8") });
            };
            let path = format!("{folder}/{name}");
            let file_type = entry.file_type().map_err(io)?;
            if file_type.is_dir() {
                folders.push(path);
            } else if (file_type.is_file() || file_type.is_symlink())
                && Path::new(&name).extension().is_some_and(|extension| extension == "jsonl")
            {
                files.push(path);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Writes names of new files in a folder to the disk.
pub(crate) fn sync_folder(folder: Option<&Path>) -> std::io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = folder {
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn save(root: &Path, index: &Index) -> Result<(), IndexError> {
    let text = index.text()?;
    let path = root.join(INDEX_PATH);
    replace_file(&path, text.as_bytes()).map_err(|source| IndexError::Io {
        file: INDEX_PATH.to_owned(),
        action: "replace the index",
        source,
    })
}

fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".index-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o644));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_folder(Some(folder))
}

/// Holds off other processes that bring the same index up to date, as long as the value lives.
fn lock(root: &Path) -> Result<Option<File>, IndexError> {
    let folder = root.join("receipts");
    let io = |source| IndexError::Io { file: "receipts".to_owned(), action: "lock the folder", source };
    std::fs::create_dir_all(&folder).map_err(io)?;
    // Only on these systems can a folder be opened as a file.
    if !cfg!(unix) {
        return Ok(None);
    }
    let file = File::open(&folder).map_err(io)?;
    match file.lock() {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(io(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, records: u64) -> IndexEntry {
        IndexEntry {
            path: path.to_owned(),
            session: "0".repeat(32),
            records,
            last_id: Digest::from_bytes(&[records as u8; 32]),
        }
    }

    #[test]
    fn entries_are_sorted_replaced_and_written_byte_for_byte() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(load(root.path()).unwrap(), None);
        enter(root.path(), entry("receipts/b/x.jsonl", 1)).unwrap();
        enter(root.path(), entry("receipts/a/x.jsonl", 2)).unwrap();
        enter(root.path(), entry("receipts/b/x.jsonl", 3)).unwrap();
        let index = load(root.path()).unwrap().unwrap();
        let short: Vec<_> = index.files.iter().map(|file| (file.path.as_str(), file.records)).collect();
        assert_eq!(short, [("receipts/a/x.jsonl", 2), ("receipts/b/x.jsonl", 3)]);
        let text = read_text(root.path()).unwrap().unwrap();
        assert_eq!(text, index.text().unwrap());
        assert!(text.starts_with("{\n  \"schema\": \"memra-lab.receipt-index/1.0.0\",\n  \"files\": [\n    {\n"));
        let names: Vec<_> = std::fs::read_dir(root.path().join("receipts")).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays");
    }

    #[test]
    fn sessions_that_end_together_do_not_lose_each_other() {
        let root = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = root.path();
                scope.spawn(move || enter(path, entry(&format!("receipts/r/{number}.jsonl"), number)).unwrap());
            }
        });
        assert_eq!(load(root.path()).unwrap().unwrap().files.len(), 8);
    }

    #[test]
    fn other_files_are_refused() {
        for (text, message) in [
            ("", "EOF while parsing"),
            ("{\"schema\":\"x\",\"files\":[]}", "schema `x` is not"),
            ("{\"schema\":\"memra-lab.receipt-index/1.0.0\",\"files\":[{}]}", "missing field `path`"),
        ] {
            let error = Index::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("receipts/index.json: not an index: ") && error.contains(message), "{error}");
        }
    }

    #[test]
    fn receipt_files_are_found_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(receipt_files(root.path()).unwrap(), Vec::<String>::new());
        for name in ["receipts/b/2.jsonl", "receipts/b/1.jsonl", "receipts/a/c/3.jsonl", "receipts/readme.md"] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let files = receipt_files(root.path()).unwrap();
        assert_eq!(files, ["receipts/a/c/3.jsonl", "receipts/b/1.jsonl", "receipts/b/2.jsonl"]);
    }
}
