//! `receipts`: verify the evidence, print its schema.

use std::path::Path;

use memra_ledger::promotion::{Receipts, verify_ledger};
use memra_ledger::verify::{Report, load_and_verify};
use serde::Serialize;

use crate::cli::{ReceiptsCommand, RootArguments};
use crate::{EXIT_INTEGRITY, checkout, facts, ui};

/// Runs a subcommand.
///
/// # Errors
/// When the root cannot be read at all.
pub fn run(command: &ReceiptsCommand) -> anyhow::Result<u8> {
    match command {
        ReceiptsCommand::Verify { root, json } => verify(root, *json),
        ReceiptsCommand::Enter { file, root } => {
            let root = checkout::evidence_root(root.root.as_deref())?;
            memra_ledger::index::enter_file(&root, file)?;
            ui::print(format_args!("entered {file}"))?;
            Ok(0)
        }
        ReceiptsCommand::Schema => {
            ui::print(memra_ledger::schema::receipt_schema_text().trim_end())?;
            Ok(0)
        }
    }
}

/// Verifies receipts, ledger and defaults below a root; hands the receipts on.
pub fn verify_all(root: &Path) -> (Receipts, Report) {
    let (evidence, report) = load_and_verify(root);
    let receipts = Receipts::new(evidence, &report);
    let variants = facts::variants();
    // A promoted variant's source is read from the repository, so that an edit is noticed before the next build.
    let sources = if root.join("kernels/src").is_dir() { Some(root.to_owned()) } else { checkout::checkout() };
    let read_source = |path: &str| match &sources {
        Some(folder) => std::fs::read(folder.join(path)).ok(),
        None => variants.iter().find(|facts| facts.source_path == path).and_then(|_| compiled_in(path)),
    };
    let problems = verify_ledger(root, &receipts, Some(&variants), &read_source);
    let report = report.merged(problems);
    (receipts, report)
}

fn compiled_in(path: &str) -> Option<Vec<u8>> {
    memra_kernels::ops::CONTRACTS
        .iter()
        .flat_map(|contract| contract.variants())
        .find(|variant| variant.source.path == path)
        .map(|variant| variant.source.text.as_bytes().to_vec())
}

#[derive(Serialize)]
struct Verified {
    files: u64,
    records: u64,
    cells: u64,
    verdicts: u64,
    problems: Vec<String>,
    notes: Vec<String>,
    is_sound: bool,
}

fn verify(root: &RootArguments, json: bool) -> anyhow::Result<u8> {
    let root = checkout::evidence_root(root.root.as_deref())?;
    let (_, report) = verify_all(&root);
    let code = if report.is_sound() { 0 } else { EXIT_INTEGRITY };
    if json {
        ui::print_json(&Verified {
            files: report.files,
            records: report.records,
            cells: report.cells,
            verdicts: report.verdicts,
            problems: report.problems.iter().map(ToString::to_string).collect(),
            notes: report.notes.clone(),
            is_sound: report.is_sound(),
        })?;
        return Ok(code);
    }
    for problem in &report.problems {
        ui::print(problem)?;
    }
    for note in &report.notes {
        ui::say(format_args!("note: {note}"));
    }
    let Report { files, records, cells, verdicts, .. } = report;
    ui::print(format_args!(
        "{files} files, {records} records, {cells} cells and {verdicts} verdicts recomputed: {}",
        match report.problems.len() {
            0 => "sound".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        }
    ))?;
    Ok(code)
}
