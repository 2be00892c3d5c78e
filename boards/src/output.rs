//! All generated files, written or compared.

use crate::board::{BOARD_SCHEMA, Boards, EXTERNAL_SCHEMA};
use crate::error::BoardError;
use crate::fold::fold;
use crate::input::{BoardInput, FoldOptions, LedgerLine, RESERVED_LABEL};
use crate::page::{performance_md, readme_table, replace_region};
use crate::plot::{forest_plot, slots_plot};
use memra_ledger::record::{Body, CellBody};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

const BOARDS: &str = "boards";
const PLOTS: &str = "boards/plots";

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Path relative to the evidence root, with `/` between segments.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A file that is not what the receipts say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Path relative to the evidence root.
    pub path: String,
    /// What is wrong with it.
    pub kind: DriftKind,
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriftKind {
    /// It is not there.
    Missing,
    /// No receipt asks for it.
    Stale,
    /// It differs.
    Differs {
        /// First line that differs, from 1.
        line: usize,
        /// The line the receipts give, cut to 160 characters; empty where the text ends before it.
        expected: String,
        /// The line that stands there, cut likewise.
        found: String,
    },
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        match &self.kind {
            DriftKind::Missing => write!(f, "{path} is missing"),
            DriftKind::Stale => write!(f, "{path} belongs to no receipt"),
            DriftKind::Differs { line, expected, found } => {
                write!(f, "{path} differs from line {line}\n  expected: {expected}\n  found:    {found}")
            }
        }
    }
}

/// What a write did, as paths relative to the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Files that changed or are new.
    pub written: Vec<String>,
    /// Files that already held the right bytes.
    pub unchanged: Vec<String>,
    /// Generated files that belong to no receipt any more and were removed.
    pub removed: Vec<String>,
}

/// Makes all generated files from receipts and ledger: a board and plots for each rig, figures from elsewhere,
/// `PERFORMANCE.md`, and `README.md` where its present text is given. Sorted by path.
///
/// # Errors
///
/// Those of [`fold()`], of the plots and of [`replace_region`].
pub fn regenerate(
    inputs: &[BoardInput],
    ledger: &[LedgerLine],
    readme: Option<&str>,
    options: FoldOptions,
) -> Result<Vec<Output>, BoardError> {
    let boards = fold(inputs, options)?;
    let mut outputs = board_files(&boards, inputs)?;
    outputs.push(Output { path: "PERFORMANCE.md".to_owned(), bytes: performance_md(&boards, ledger).into_bytes() });
    if let Some(readme) = readme {
        let text = replace_region(readme, &readme_table(&boards))?;
        outputs.push(Output { path: "README.md".to_owned(), bytes: text.into_bytes() });
    }
    outputs.sort_by(|a, b| a.path.cmp(&b.path));
    let mut before: Option<&str> = None;
    for output in &outputs {
        if before.replace(&output.path) == Some(output.path.as_str()) {
            return Err(BoardError::SameOutput(output.path.clone()));
        }
    }
    Ok(outputs)
}

fn board_files(boards: &Boards, inputs: &[BoardInput]) -> Result<Vec<Output>, BoardError> {
    let mut cells: BTreeMap<&str, &CellBody> = BTreeMap::new();
    for record in inputs.iter().flat_map(|input| &input.records) {
        if let Body::Cell(cell) = &record.body {
            cells.insert(record.id.as_str(), cell);
        }
    }
    let mut outputs = Vec::new();
    for board in &boards.rigs {
        outputs.push(Output { path: board.path(), bytes: board.to_json()? });
        if let Some(plot) = forest_plot(board)? {
            outputs.push(Output { path: board.forest_path(), bytes: plot.into_bytes() });
        }
        for row in board.current() {
            if let Some(path) = &row.plot {
                let mut of_row: Vec<&CellBody> =
                    row.replicates.iter().filter_map(|id| cells.get(id.as_str()).copied()).collect();
                of_row.sort_by_key(|cell| cell.replicate);
                outputs.push(Output { path: path.clone(), bytes: slots_plot(row, &of_row)?.into_bytes() });
            }
        }
    }
    if !boards.external.figures.is_empty() {
        let path = format!("{BOARDS}/{RESERVED_LABEL}.json");
        outputs.push(Output { path, bytes: boards.external.to_json()? });
    }
    Ok(outputs)
}

/// Writes the outputs below `root`, each through a temporary file in its folder, and removes boards and plots that
/// [`regenerate`] made before and no receipt asks for any more. Files that already hold the right bytes are not touched.
///
/// # Errors
///
/// [`BoardError::Io`] with the path. Files written before the error stay: each is whole.
pub fn write_outputs(root: &Path, outputs: &[Output]) -> Result<WriteReport, BoardError> {
    let mut report = WriteReport::default();
    for output in outputs {
        crate::input::check_path(&output.path)?;
        if read(root, &output.path)?.as_ref() == Some(&output.bytes) {
            report.unchanged.push(output.path.clone());
        } else {
            write(&root.join(&output.path), &output.bytes).map_err(|source| io("write", &output.path, source))?;
            report.written.push(output.path.clone());
        }
    }
    for path in stale(root, outputs)? {
        std::fs::remove_file(root.join(&path)).map_err(|source| io("remove", &path, source))?;
        report.removed.push(path);
    }
    Ok(report)
}

/// Compares the outputs with what stands below `root`, without writing. Empty when nothing drifted.
///
/// # Errors
///
/// [`BoardError::Io`] with the path that could not be read.
pub fn check_outputs(root: &Path, outputs: &[Output]) -> Result<Vec<Drift>, BoardError> {
    let mut drifts = Vec::new();
    for output in outputs {
        match read(root, &output.path)? {
            None => drifts.push(Drift { path: output.path.clone(), kind: DriftKind::Missing }),
            Some(found) if found != output.bytes => {
                drifts.push(Drift { path: output.path.clone(), kind: first_difference(&output.bytes, &found) });
            }
            Some(_) => {}
        }
    }
    drifts.extend(stale(root, outputs)?.into_iter().map(|path| Drift { path, kind: DriftKind::Stale }));
    Ok(drifts)
}

fn first_difference(expected: &[u8], found: &[u8]) -> DriftKind {
    let mut expected = expected.split_inclusive(|&byte| byte == b'\n');
    let mut found = found.split_inclusive(|&byte| byte == b'\n');
    let mut line = 1;
    loop {
        let (want, have) = (expected.next(), found.next());
        if want != have || want.is_none() {
            return DriftKind::Differs { line, expected: shown(want), found: shown(have) };
        }
        line += 1;
    }
}

/// A line for people. Its end is shown, so that a lost newline is seen.
fn shown(line: Option<&[u8]>) -> String {
    const LIMIT: usize = 160;
    let text = String::from_utf8_lossy(line.unwrap_or_default());
    let escaped: String = text
        .trim_end_matches('\n')
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .take(LIMIT)
        .collect();
    match line {
        Some(line) if !line.ends_with(b"\n") => format!("{escaped} (no newline)"),
        _ => escaped,
    }
}

/// Boards and plots below `root` that are not among the outputs, sorted.
fn stale(root: &Path, outputs: &[Output]) -> Result<Vec<String>, BoardError> {
    let wanted: BTreeSet<&str> = outputs.iter().map(|output| output.path.as_str()).collect();
    let mut stale = Vec::new();
    for (folder, ending) in [(BOARDS, ".json"), (PLOTS, ".svg")] {
        for name in names(root, folder)? {
            let path = format!("{folder}/{name}");
            if name.ends_with(ending) && !wanted.contains(path.as_str()) && (ending == ".svg" || is_ours(root, &path)?)
            {
                stale.push(path);
            }
        }
    }
    stale.sort();
    Ok(stale)
}

/// Whether a JSON file is one that [`regenerate`] wrote: the folder also holds the package's own files.
fn is_ours(root: &Path, path: &str) -> Result<bool, BoardError> {
    let text = read(root, path)?.unwrap_or_default();
    let head = String::from_utf8_lossy(text.get(..text.len().min(200)).unwrap_or_default()).into_owned();
    Ok([BOARD_SCHEMA, EXTERNAL_SCHEMA].iter().any(|schema| {
        let name = schema.split_once('/').map_or(*schema, |(name, _)| name);
        head.contains(&format!("\"schema\": \"{name}/"))
    }))
}

/// Names of the plain files in a folder; none where there is no folder.
fn names(root: &Path, folder: &str) -> Result<Vec<String>, BoardError> {
    let entries = match std::fs::read_dir(root.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io("list", folder, source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| io("list", folder, source))?;
        let kind = entry.file_type().map_err(|source| io("list", folder, source))?;
        if kind.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

pub(crate) fn read(root: &Path, path: &str) -> Result<Option<Vec<u8>>, BoardError> {
    match std::fs::read(root.join(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io("read", path, source)),
    }
}

/// Writes through a temporary file in the same folder that replaces the old one whole.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".board-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    publish_permissions(file.as_file())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Temporary files are private; a page is for everyone to read.
#[cfg(unix)]
fn publish_permissions(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn publish_permissions(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

fn io(action: &'static str, path: &str, source: std::io::Error) -> BoardError {
    BoardError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        let differs = |a: &str, b: &str| first_difference(a.as_bytes(), b.as_bytes());
        let want = |line, expected: &str, found: &str| DriftKind::Differs {
            line,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        assert_eq!(differs("a\nb1\nc\n", "a\nb2\nc\n"), want(2, "b1", "b2"));
        assert_eq!(differs("a\nb\n", "a\n"), want(2, "b", ""));
        assert_eq!(differs("a\n", "a"), want(1, "a", "a (no newline)"));
        assert_eq!(differs("a\n", "a\r\n"), want(1, "a", "a\\r"));
    }
}
