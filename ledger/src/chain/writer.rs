//! Writing a receipt file: one line, one write, on the disk before the next.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::Path;

use memra_contract::digest::Digest;

use super::{LineError, PrivacyLint, ReadError, ReceiptFile, ReceiptName, compose, read_file};
use crate::index::{self, IndexEntry, IndexError};
use crate::record::{Body, CorrectionBody, EndBody, Record};

/// Largest size of a session's file in bytes, line ends included.
pub const MAX_SESSION_BYTES: u64 = 2_000_000;

/// Part of [`MAX_SESSION_BYTES`] that only end and correction records may use, so that a full session can be closed.
pub const RESERVED_BYTES: u64 = 16_000;

/// Appends records to one file.
///
/// The file is locked against other writers as long as this value lives.
#[derive(Debug)]
pub struct ReceiptWriter {
    root: std::path::PathBuf,
    name: String,
    rig_label: String,
    session: String,
    lint: PrivacyLint,
    file: File,
    bytes: u64,
    records: u64,
    last: Option<Digest>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No record yet.
    New,
    /// Opened by a session record.
    Open,
    /// Closed by an end record, or opened again: corrections only.
    Closed,
    /// A write failed; what stands in the file is not known.
    Broken,
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file could not be created, opened or written.
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
    /// The file exists already.
    #[error("{file}: exists already; a receipt is never written over")]
    Exists {
        /// Path below the root.
        file: String,
    },
    /// Another process writes to the file.
    #[error("{file}: another process is writing to it")]
    Locked {
        /// Path below the root.
        file: String,
    },
    /// The record does not belong there.
    #[error("{file}: {message}")]
    Order {
        /// Path below the root.
        file: String,
        /// What does not fit.
        message: String,
    },
    /// The record holds a private fact, or something that has no canonical text.
    #[error("{file}: {kind} record not written: {source}")]
    Refused {
        /// Path below the root.
        file: String,
        /// Kind of the record.
        kind: String,
        /// The field and what it holds.
        source: LineError,
    },
    /// The file would grow too large.
    #[error(
        "{file}: {kind} record of {line_bytes} bytes not written: the file holds {bytes} bytes and a session may hold \
         {limit} (the last {RESERVED_BYTES} of {MAX_SESSION_BYTES} are kept for its end); plan fewer quads, cells \
         or replicates"
    )]
    TooLarge {
        /// Path below the root.
        file: String,
        /// Kind of the record.
        kind: String,
        /// Size of the refused line.
        line_bytes: u64,
        /// Size of the file.
        bytes: u64,
        /// Largest size the record may bring the file to.
        limit: u64,
    },
    /// The file that should be corrected does not read.
    #[error("nothing appended")]
    Read(#[from] ReadError),
    /// The index could not be brought up to date; the records are written.
    #[error("{file}: written, but the index is not up to date")]
    Index {
        /// Path below the root.
        file: String,
        /// The cause.
        #[source]
        source: IndexError,
    },
}

impl ReceiptWriter {
    /// Creates the file of a session below `root`, with its folder.
    ///
    /// # Errors
    ///
    /// [`WriteError::Exists`] if there is such a file, [`WriteError::Io`] if it cannot be created.
    pub fn create(root: &Path, name: &ReceiptName, lint: PrivacyLint) -> Result<Self, WriteError> {
        let relative = name.relative_path();
        let path = root.join(&relative);
        let io = |action: &'static str| {
            let file = relative.clone();
            move |source| WriteError::Io { file, action, source }
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io("create its folder"))?;
        }
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(|source| {
            if source.kind() == std::io::ErrorKind::AlreadyExists {
                WriteError::Exists { file: relative.clone() }
            } else {
                io("create the file")(source)
            }
        })?;
        lock(&file, &relative)?;
        index::sync_folder(path.parent()).map_err(io("write its folder"))?;
        Ok(Self {
            root: root.to_owned(),
            rig_label: name.rig_label().to_owned(),
            session: name.session().to_owned(),
            name: relative,
            lint,
            file,
            bytes: 0,
            records: 0,
            last: None,
            state: State::New,
        })
    }

    /// Opens a written file for corrections. The whole file is checked first.
    fn open(root: &Path, name: &str, lint: PrivacyLint) -> Result<(Self, ReceiptFile), WriteError> {
        let io = |action: &'static str| move |source| WriteError::Io { file: name.to_owned(), action, source };
        let file = OpenOptions::new().append(true).open(root.join(name)).map_err(io("open the file"))?;
        lock(&file, name)?;
        let receipt = read_file(root, name)?;
        let order = |message: &str| WriteError::Order { file: name.to_owned(), message: message.to_owned() };
        if receipt.skipped_tail.is_some() {
            return Err(order("its last line is cut; nothing can be appended after it"));
        }
        let (Some(session), Some(last)) = (receipt.session(), receipt.records.last()) else {
            return Err(order("it holds no session that could be corrected"));
        };
        let bytes = file.metadata().map_err(io("read the size of the file"))?.len();
        let writer = Self {
            root: root.to_owned(),
            name: name.to_owned(),
            rig_label: session.rig.label.clone(),
            session: last.session.clone(),
            lint,
            file,
            bytes,
            records: receipt.records.len() as u64,
            last: Some(last.id.clone()),
            state: State::Closed,
        };
        Ok((writer, receipt))
    }

    /// Path of the file below the root, with `/` between folders.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends one record and returns it as written. It is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// [`WriteError`] says why; the file is as before unless the system failed in the middle of the write, after which
    /// this writer refuses everything.
    pub fn append(&mut self, body: Body) -> Result<Record, WriteError> {
        self.check_order(&body)?;
        let kind = kind_of(&body);
        let next = match (&body, self.state) {
            (Body::End(_), _) | (_, State::Closed) => State::Closed,
            _ => State::Open,
        };
        let (record, line) = compose(&self.session, self.records, self.last.as_ref(), body, &self.lint)
            .map_err(|source| WriteError::Refused { file: self.name.clone(), kind: kind.to_owned(), source })?;
        let limit = MAX_SESSION_BYTES - if next == State::Closed { 0 } else { RESERVED_BYTES };
        let line_bytes = line.len() as u64;
        if self.bytes + line_bytes > limit {
            let (file, kind) = (self.name.clone(), kind.to_owned());
            return Err(WriteError::TooLarge { file, kind, line_bytes, bytes: self.bytes, limit });
        }
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            self.state = State::Broken;
            return Err(WriteError::Io { file: self.name.clone(), action: "write a record", source });
        }
        self.bytes += line_bytes;
        self.records += 1;
        self.last = Some(record.id.clone());
        self.state = next;
        Ok(record)
    }

    /// Closes the session with its end record and enters the file in the index of the root.
    ///
    /// # Errors
    ///
    /// As [`ReceiptWriter::append`], and [`WriteError::Index`] if only the index failed.
    pub fn finish(mut self, ended_utc: String, exit_code: u8) -> Result<Record, WriteError> {
        let end = EndBody { records: self.records, ended_utc, exit_code };
        let record = self.append(Body::End(end))?;
        self.enter_in_index(&record)?;
        Ok(record)
    }

    fn enter_in_index(&self, last: &Record) -> Result<(), WriteError> {
        let entry = IndexEntry {
            path: self.name.clone(),
            session: self.session.clone(),
            records: self.records,
            last_id: last.id.clone(),
        };
        index::enter(&self.root, entry).map_err(|source| WriteError::Index { file: self.name.clone(), source })
    }

    fn check_order(&self, body: &Body) -> Result<(), WriteError> {
        let message = match (self.state, body) {
            (State::New, Body::Session(session)) if session.rig.label != self.rig_label => {
                format!("field `rig.label` is `{}`, but the file lies under `{}`", session.rig.label, self.rig_label)
            }
            (State::New, Body::Session(_)) | (State::Closed, Body::Correction(_)) => return Ok(()),
            (State::New, _) => "the first record must be that of the session".to_owned(),
            (State::Open, Body::Session(_)) => "a file holds one session".to_owned(),
            (State::Open, Body::End(end)) if end.records != self.records => {
                format!("field `records` of the end is {}, but the file holds {}", end.records, self.records)
            }
            (State::Open, _) => return Ok(()),
            (State::Closed, _) => "only corrections follow the end of a session".to_owned(),
            (State::Broken, _) => "a write failed before; the file cannot be continued".to_owned(),
        };
        Err(WriteError::Order { file: self.name.clone(), message })
    }
}

/// Appends a correction to a written file, which is checked first, and brings the index up to date.
///
/// # Errors
///
/// [`WriteError::Read`] if the file does not hold up, [`WriteError::Order`] if it does not hold the record that is
/// corrected, else as [`ReceiptWriter::append`].
pub fn append_correction(
    root: &Path,
    name: &str,
    lint: PrivacyLint,
    correction: CorrectionBody,
) -> Result<Record, WriteError> {
    let (mut writer, receipt) = ReceiptWriter::open(root, name, lint)?;
    if receipt.find(&correction.corrects).is_none() {
        let message = format!("it holds no record {}", correction.corrects);
        return Err(WriteError::Order { file: name.to_owned(), message });
    }
    let record = writer.append(Body::Correction(correction))?;
    writer.enter_in_index(&record)?;
    Ok(record)
}

fn lock(file: &File, name: &str) -> Result<(), WriteError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(WriteError::Locked { file: name.to_owned() }),
        // Some file systems have no locks; there the caller's own care has to do.
        Err(TryLockError::Error(source)) if source.kind() == std::io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(source)) => {
            Err(WriteError::Io { file: name.to_owned(), action: "lock the file", source })
        }
    }
}

fn kind_of(body: &Body) -> &'static str {
    match body {
        Body::Session(_) => "session",
        Body::Gate(_) => "gate",
        Body::Cell(_) => "cell",
        Body::Verdict(_) => "verdict",
        Body::Correction(_) => "correction",
        Body::External(_) => "external",
        Body::End(_) => "end",
    }
}
