//! The generated index of the ledger.

use std::path::Path;

use serde_json::json;

use super::file::{pretty, write_whole};
use super::{EntryError, EntryFile, read_all};

/// Path of the index relative to the evidence root.
pub const INDEX_PATH: &str = "ledger/index.json";

/// Schema name of the index.
pub const INDEX_SCHEMA: &str = "memra-lab.ledger-index/1";

/// The index over `entries` as text: equal entries give equal bytes, in whatever order they come.
pub fn index_text(entries: &[EntryFile]) -> String {
    let mut sorted: Vec<&EntryFile> = entries.iter().collect();
    sorted.sort_by(|left, right| (&left.entry.date, &left.entry.id).cmp(&(&right.entry.date, &right.entry.id)));
    let rows: Vec<serde_json::Value> = sorted
        .into_iter()
        .map(|EntryFile { file, entry }| {
            json!({
                "date": entry.date,
                "file": file,
                "id": entry.id,
                "kind": entry.body.kind(),
                "title": entry.title,
            })
        })
        .collect();
    pretty(json!({ "entries": rows, "schema": INDEX_SCHEMA }))
}

/// Reads every entry below `root` and writes the index over them.
///
/// # Errors
/// [`EntryError`]: an entry is broken, or the file system refused.
pub fn write_index(root: &Path) -> Result<(), EntryError> {
    let text = index_text(&read_all(root)?);
    write_whole(&root.join(INDEX_PATH), text.as_bytes(), true)
        .map_err(|source| EntryError::Io { file: INDEX_PATH.to_owned(), source })
}
