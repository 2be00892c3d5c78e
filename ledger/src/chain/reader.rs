//! Reading a receipt file and holding every line to its digest and its place.

use std::io::Read as _;
use std::path::Path;

use memra_contract::digest::Digest;
use serde::Deserialize as _;
use serde_json::Value;

use crate::canonical::{self, CanonicalError};
use crate::record::{Body, CorrectionBody, EndBody, Record, SCHEMA, SessionBody};

/// Largest file that is read. A session writes far less; the bound keeps a stray file from filling the memory.
pub const MAX_READ_BYTES: u64 = 64_000_000;

/// The records of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptFile {
    /// Path below the root, with `/` between folders.
    pub name: String,
    /// The records, in the order of their lines: record `i` stands on line `i + 1`.
    pub records: Vec<Record>,
    /// The line each record was read from. Fields of a later minor version, which `records` cannot hold, stand here.
    pub texts: Vec<String>,
    /// A last line that was cut while it was written, and is no record.
    pub skipped_tail: Option<SkippedTail>,
}

/// A last line without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedTail {
    /// The line, from 1.
    pub line: u64,
    /// Bytes that were skipped.
    pub bytes: u64,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("{file}: cannot be read")]
    Io {
        /// Path below the root.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any session.
    #[error("{file}: holds more than the {MAX_READ_BYTES} bytes that are read of one file")]
    TooLarge {
        /// Path below the root.
        file: String,
    },
    /// A line is not what was written there.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// Path below the root.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
}

impl ReadError {
    /// The line the error is about, where it is about one.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Line { line, .. } => Some(*line),
            Self::Io { .. } | Self::TooLarge { .. } => None,
        }
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The bytes are not text.
    #[error("not UTF-8 text")]
    NotUtf8,
    /// The text is not JSON, or holds numbers that records cannot hold.
    #[error(transparent)]
    Json(CanonicalError),
    /// The value is no object, or an envelope field is missing or of another type.
    #[error("field `{field}` is missing or is not {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The line belongs to another kind of file.
    #[error("schema `{0}` is not a receipt's")]
    Schema(String),
    /// The line was written under rules this program does not know.
    #[error("schema `{0}` has a major version this program does not read; it reads `{SCHEMA}` and later minors of it")]
    Major(String),
    /// The content is not what the digest was taken over.
    #[error(
        "field `id` does not match the line: it says {found}, the other fields give {computed}; the line was edited"
    )]
    Id {
        /// What the line says.
        found: String,
        /// What its content gives.
        computed: String,
    },
    /// The line has its digest, but another spelling than the canonical one.
    #[error("the line is not in canonical form: keys sorted, no white space, nothing twice")]
    NotCanonical,
    /// The line is not in its place.
    #[error("field `seq` is {found}, expected {expected}: a line was removed, added or moved")]
    Seq {
        /// What the line says.
        found: u64,
        /// What its place asks for.
        expected: u64,
    },
    /// The line follows another line than the one it was written after.
    #[error("field `prev` is {found}, but the line before has id {expected}: a line was replaced, removed or moved")]
    Prev {
        /// What the line says.
        found: String,
        /// The id of the line before.
        expected: String,
    },
    /// The line belongs to another session.
    #[error("field `session` is {found}, but the file belongs to session {expected}")]
    Session {
        /// What the line says.
        found: String,
        /// What the first line says.
        expected: String,
    },
    /// The content does not have the form of its kind.
    #[error("not a record of kind `{kind}`: {message}")]
    Form {
        /// The kind the line names.
        kind: String,
        /// What does not fit.
        message: String,
    },
}

impl ReceiptFile {
    /// The record that opens the session.
    pub fn session(&self) -> Option<&SessionBody> {
        match &self.records.first()?.body {
            Body::Session(session) => Some(session),
            _ => None,
        }
    }

    /// The identifier of the session; nothing for a file without records.
    pub fn session_id(&self) -> Option<&str> {
        self.records.first().map(|record| record.session.as_str())
    }

    /// The record that closes the session; nothing where the session did not finish.
    pub fn end(&self) -> Option<&EndBody> {
        self.records.iter().rev().find_map(|record| match &record.body {
            Body::End(end) => Some(end),
            _ => None,
        })
    }

    /// The record with an id.
    pub fn find(&self, id: &Digest) -> Option<&Record> {
        self.records.iter().find(|record| record.id == *id)
    }

    /// The corrections, in the order they were made.
    pub fn corrections(&self) -> impl Iterator<Item = &CorrectionBody> {
        self.records.iter().filter_map(|record| match &record.body {
            Body::Correction(correction) => Some(correction),
            _ => None,
        })
    }

    /// Whether a correction in this file withdraws the record with an id.
    pub fn is_withdrawn(&self, id: &Digest) -> bool {
        self.corrections().any(|correction| correction.withdraws && correction.corrects == *id)
    }
}

/// Reads a file below a root. `name` is its path below the root, with `/` between folders; errors name it.
///
/// # Errors
///
/// [`ReadError`] names the file, and the line where one is wrong. A last line that was cut is no error: it is skipped
/// and told in [`ReceiptFile::skipped_tail`].
pub fn read_file(root: &Path, name: &str) -> Result<ReceiptFile, ReadError> {
    let io = |source| ReadError::Io { file: name.to_owned(), source };
    let file = std::fs::File::open(root.join(name)).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    read_bytes(name, &bytes)
}

/// Reads the bytes of a file; see [`read_file`].
///
/// # Errors
///
/// As [`read_file`].
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<ReceiptFile, ReadError> {
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(ReadError::TooLarge { file: name.to_owned() });
    }
    let mut file = ReceiptFile { name: name.to_owned(), records: Vec::new(), texts: Vec::new(), skipped_tail: None };
    let mut rest = bytes;
    while !rest.is_empty() {
        let number = file.records.len() as u64 + 1;
        let tail = SkippedTail { line: number, bytes: rest.len() as u64 };
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            file.skipped_tail = Some(tail);
            break;
        };
        let (line, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        match read_line(line, file.records.last()) {
            Ok((record, text)) => {
                file.records.push(record);
                file.texts.push(text.to_owned());
            }
            Err(LineFault::Json(CanonicalError::Syntax { is_cut: true, .. }))
                if rest.is_empty() && !line.is_empty() =>
            {
                file.skipped_tail = Some(tail);
            }
            Err(fault) => return Err(ReadError::Line { file: name.to_owned(), line: number, fault }),
        }
    }
    Ok(file)
}

fn read_line<'a>(line: &'a [u8], before: Option<&Record>) -> Result<(Record, &'a str), LineFault> {
    let text = std::str::from_utf8(line).map_err(|_| LineFault::NotUtf8)?;
    let value = canonical::parse(text).map_err(LineFault::Json)?;
    let string = |field: &'static str| {
        value.get(field).and_then(Value::as_str).ok_or(LineFault::Field { field, expected: "a string" })
    };
    check_schema(string("schema")?)?;
    let id = string("id")?;
    let computed = canonical::record_id(&value).map_err(LineFault::Json)?;
    if id != computed.as_str() {
        return Err(LineFault::Id { found: id.to_owned(), computed: computed.to_string() });
    }
    if canonical::text(&value).map_err(LineFault::Json)? != text {
        return Err(LineFault::NotCanonical);
    }
    let seq = value
        .get("seq")
        .and_then(Value::as_u64)
        .ok_or(LineFault::Field { field: "seq", expected: "a whole number" })?;
    let expected = before.map_or(0, |record| record.seq + 1);
    if seq != expected {
        return Err(LineFault::Seq { found: seq, expected });
    }
    let expected = before.map_or("null", |record| record.id.as_str());
    let found = match value.get("prev") {
        Some(Value::Null) => "null",
        Some(Value::String(prev)) => prev,
        _ => return Err(LineFault::Field { field: "prev", expected: "a string or null" }),
    };
    if found != expected {
        return Err(LineFault::Prev { found: found.to_owned(), expected: expected.to_owned() });
    }
    let session = string("session")?;
    if let Some(first) = before
        && first.session != session
    {
        return Err(LineFault::Session { found: session.to_owned(), expected: first.session.clone() });
    }
    let kind = string("kind")?;
    let record = Record::deserialize(&value)
        .map_err(|error| LineFault::Form { kind: kind.to_owned(), message: error.to_string() })?;
    Ok((record, text))
}

/// Accepts every minor version of the major this crate writes.
fn check_schema(schema: &str) -> Result<(), LineFault> {
    let foreign = || LineFault::Schema(schema.to_owned());
    let (own_name, own_version) = SCHEMA.split_once('/').ok_or_else(foreign)?;
    let (name, version) = schema.split_once('/').ok_or_else(foreign)?;
    let parts: Vec<&str> = version.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if name != own_name || parts.len() != 3 || !parts.iter().all(is_number) {
        return Err(foreign());
    }
    if parts.first().copied() != own_version.split('.').next() {
        return Err(LineFault::Major(schema.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_minor_of_the_major_is_read() {
        for schema in [SCHEMA, "memra-lab.receipt/1.9.0", "memra-lab.receipt/1.0.12"] {
            assert_eq!(check_schema(schema), Ok(()));
        }
        for schema in ["memra-lab.receipt/2.0.0", "memra-lab.receipt/10.0.0", "memra-lab.receipt/0.1.0"] {
            assert_eq!(check_schema(schema), Err(LineFault::Major(schema.to_owned())));
        }
        for schema in ["", "memra-lab.receipt", "memra-lab.receipt/1", "memra-lab.receipt/1.x.0", "other/1.0.0"] {
            assert_eq!(check_schema(schema), Err(LineFault::Schema(schema.to_owned())));
        }
    }

    #[test]
    fn an_empty_file_has_no_records() {
        let file = read_bytes("f", b"").unwrap();
        assert!(file.records.is_empty() && file.skipped_tail.is_none() && file.session().is_none());
    }

    #[test]
    fn bytes_that_are_no_record_are_named_by_line() {
        for (bytes, message) in [
            (&b"\n"[..], "f:1: column 0: not JSON: EOF while parsing a value"),
            (b"[]\n", "f:1: field `schema` is missing or is not a string"),
            (b"{\"schema\":1}\n", "f:1: field `schema` is missing or is not a string"),
            (b"{\"schema\":\"memra-lab.receipt/2.0.0\"}\n", "f:1: schema `memra-lab.receipt/2.0.0` has a major"),
            (b"\xff\n", "f:1: not UTF-8 text"),
            (b"{\"a\":NaN}\n", "f:1: column 6: `NaN` is not a finite number"),
            (b"{\"a\":0.5}\n", "f:1: a: 0.5 is not an integer"),
        ] {
            let error = read_bytes("f", bytes).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
            assert_eq!(error.line(), Some(1));
        }
    }

    #[test]
    fn a_file_larger_than_any_session_is_refused() {
        let error = read_bytes("f", &vec![0; MAX_READ_BYTES as usize + 1]).unwrap_err();
        assert_eq!(error.to_string(), "f: holds more than the 64000000 bytes that are read of one file");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_file(Path::new("no-such-root"), "receipts/a.jsonl").unwrap_err();
        assert_eq!(error.to_string(), "receipts/a.jsonl: cannot be read");
        assert_eq!(error.line(), None);
    }
}
