//! Holding all receipts of a root to what they say: chain, form, schedule, gates, and every number that is derived.

mod cell;
mod evidence;
mod file;
mod verdict;
mod workload;

pub use evidence::{Evidence, Found, LookupError, MIN_ID_DIGITS};

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::chain::{ReadError, ReceiptFile, SkippedTail};
use crate::index::{self, INDEX_PATH, Index, IndexEntry};
use crate::record::{Body, CellResult};

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path below the root, with `/` between folders.
    pub file: String,
    /// Line, from 1, where it is about one.
    pub line: Option<u64>,
    /// Field of the record, where it is about one.
    pub field: Option<String>,
    /// What does not hold.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// What a verification looked at and found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Receipt files.
    pub files: u64,
    /// Records that were read.
    pub records: u64,
    /// Cells whose result was computed again.
    pub cells: u64,
    /// Verdicts that were computed again.
    pub verdicts: u64,
    /// Everything that does not hold, by file and line.
    pub problems: Vec<Problem>,
    /// Facts that are worth saying and are no problem: no receipts at all, cut last lines, sessions without end.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether everything holds.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The findings of several verifications as one, for a root whose other files are verified elsewhere.
    #[must_use]
    pub fn merged(mut self, problems: impl IntoIterator<Item = Problem>) -> Self {
        self.problems.extend(problems);
        self.problems.sort();
        self
    }
}

/// Verifies all receipts below a root. A root without receipts is sound, and a note says that there were none.
pub fn verify_root(root: &Path) -> Report {
    load_and_verify(root).1
}

/// Verifies all receipts below a root and hands them out, for whatever cites them. Files that do not read are not among
/// the evidence; records that do not hold are, so whoever uses it looks at the report first.
pub fn load_and_verify(root: &Path) -> (Evidence, Report) {
    let mut report = Report::default();
    if !root.is_dir() {
        report.problems.push(Problem {
            file: root.display().to_string(),
            line: None,
            field: None,
            message: "not a folder".to_owned(),
        });
        return (Evidence::default(), report);
    }
    let (evidence, unread) = Evidence::load(root);
    report.files = (evidence.files().len() + unread.files.len()) as u64;
    report.problems.extend(unread.problems);
    for file in evidence.files() {
        check_file(file, &mut report);
    }
    check_sessions(&evidence, &mut report.problems);
    check_index(root, &evidence, &unread.files, &mut report.problems);
    if report.files == 0 {
        report.notes.push("there are no receipts below the root".to_owned());
    }
    report.problems.sort();
    (evidence, report)
}

/// Verifies one file that was read, apart from its place among others.
pub fn verify_file(file: &ReceiptFile) -> Report {
    let mut report = Report { files: 1, ..Report::default() };
    check_file(file, &mut report);
    report.problems.sort();
    report
}

fn check_file(receipt: &ReceiptFile, report: &mut Report) {
    report.records += receipt.records.len() as u64;
    if let Some(SkippedTail { line, bytes }) = receipt.skipped_tail {
        report.notes.push(format!("{}:{line}: a cut last line of {bytes} bytes was skipped", receipt.name));
    }
    if receipt.records.is_empty() {
        report.notes.push(format!("{}: holds no record", receipt.name));
    } else if receipt.end().is_none() {
        report.notes.push(format!("{}: the session did not end", receipt.name));
    }
    let mut checks = Checks { file: &receipt.name, line: None, problems: &mut report.problems };
    file::check(receipt, &mut checks);
    let Some(session) = receipt.session() else { return };
    for (index, record) in receipt.records.iter().enumerate() {
        checks.line = Some(index as u64 + 1);
        let earlier = receipt.records.get(..index).unwrap_or_default();
        match &record.body {
            Body::Cell(body) => {
                cell::check(body, session, earlier, &mut checks);
                report.cells += 1;
            }
            Body::Verdict(body) => {
                verdict::check(body, session, earlier, &mut checks);
                report.verdicts += 1;
            }
            _ => {}
        }
    }
}

/// Session identifiers are unique: a file that was copied under another name is a second witness to the same event.
fn check_sessions(evidence: &Evidence, problems: &mut Vec<Problem>) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for file in evidence.files() {
        let Some(session) = file.session_id() else { continue };
        if let Some(first) = seen.insert(session, &file.name) {
            problems.push(Problem {
                file: file.name.clone(),
                line: Some(1),
                field: Some("session".to_owned()),
                message: format!("{session} is the session of {first} too; a session has one file"),
            });
        }
    }
}

/// The index knows every file as it is, and no other.
fn check_index(root: &Path, evidence: &Evidence, unread: &[String], problems: &mut Vec<Problem>) {
    let mut report = |file: &str, field: Option<&str>, message: String| {
        problems.push(Problem { file: file.to_owned(), line: None, field: field.map(str::to_owned), message });
    };
    let index = match index::read_text(root) {
        Ok(None) => Index::new([]),
        Ok(Some(text)) => match Index::parse(&text) {
            Ok(index) => {
                let canonical = Index::new(index.files.iter().cloned()).text();
                if canonical.is_ok_and(|canonical| canonical != text) {
                    report(INDEX_PATH, None, "not as it is generated: sorted, each file once".to_owned());
                }
                index
            }
            Err(error) => return report(INDEX_PATH, None, error_text(&error)),
        },
        Err(error) => return report(INDEX_PATH, None, error_text(&error)),
    };
    let known: BTreeMap<&str, &IndexEntry> = index.files.iter().map(|entry| (entry.path.as_str(), entry)).collect();
    for file in evidence.files() {
        let Some(entry) = known.get(file.name.as_str()) else {
            // A session that stopped before its first record left a file that says nothing.
            if !file.records.is_empty() {
                report(&file.name, None, format!("not in {INDEX_PATH}"));
            }
            continue;
        };
        let records = file.records.len() as u64;
        if entry.records != records {
            let message = format!("{INDEX_PATH} says {}, the file holds {records}", entry.records);
            report(&file.name, Some("records"), message);
        }
        let last = file.records.last().map_or("none", |record| record.id.as_str());
        if entry.last_id.as_str() != last {
            let message = format!("{INDEX_PATH} says {}, the file ends in {last}", entry.last_id);
            report(&file.name, Some("last_id"), message);
        }
        if file.session_id().is_some_and(|session| session != entry.session) {
            report(&file.name, Some("session"), format!("{INDEX_PATH} says {}", entry.session));
        }
    }
    for path in known.keys() {
        if evidence.file(path).is_none() && !unread.iter().any(|name| name == path) {
            report(path, None, format!("in {INDEX_PATH}, but there is no such file: it was removed or renamed"));
        }
    }
}

/// The text of an error and its causes.
pub(crate) fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Where problems of one file are gathered.
struct Checks<'a> {
    file: &'a str,
    line: Option<u64>,
    problems: &'a mut Vec<Problem>,
}

impl Checks<'_> {
    /// Reports a field of the current line.
    fn field(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line: self.line,
            field: Some(field.into()),
            message: message.into(),
        });
    }

    /// Reports a field that is not what it must be.
    fn equal<T: PartialEq + fmt::Display + ?Sized>(&mut self, field: &str, found: &T, expected: &T, what: &str) {
        if found != expected {
            self.field(field, format!("is {found}, {what} {expected}"));
        }
    }

    /// Reports the fields in which a recorded result differs from the one its evidence gives.
    fn result(&mut self, recorded: &CellResult, computed: &CellResult) {
        if recorded == computed {
            return;
        }
        let fields = |result| serde_json::to_value(result).unwrap_or_default();
        let (recorded, computed) = (fields(recorded), fields(computed));
        let before = self.problems.len();
        for (field, value) in computed.as_object().into_iter().flatten() {
            let found = recorded.get(field).unwrap_or(&serde_json::Value::Null);
            if found != value {
                self.field(format!("result.{field}"), format!("is {found}, recomputed {value}"));
            }
        }
        if self.problems.len() == before {
            self.field("result", "differs from what its evidence gives");
        }
    }
}

impl Problem {
    fn of_read_error(error: &ReadError) -> Self {
        let (file, message) = match error {
            ReadError::Line { file, fault, .. } => (file.clone(), fault.to_string()),
            ReadError::Io { file, .. } | ReadError::TooLarge { file } => {
                let text = error_text(error);
                let message = text.strip_prefix(&format!("{file}: ")).unwrap_or(&text).to_owned();
                (file.clone(), message)
            }
        };
        Self { file, line: error.line(), field: None, message }
    }
}
