//! `board`: regenerate boards, plots and pages from the receipts, or say what drifts.

use std::path::Path;

use anyhow::{Context as _, bail};
use memra_boards::{BoardInput, FoldOptions, LedgerKind, LedgerLine, Output};
use memra_ledger::entry::{EntryBody, read_all};
use memra_ledger::promotion::Receipts;
use serde::Serialize;

use crate::cli::{BoardCommand, RootArguments};
use crate::commands::receipts::verify_all;
use crate::{EXIT_ERROR, EXIT_INTEGRITY, checkout, ui};

/// Runs a subcommand.
///
/// # Errors
/// When the root cannot be read, or a file cannot be written.
pub fn run(command: &BoardCommand) -> anyhow::Result<u8> {
    match command {
        BoardCommand::Regenerate { check, allow_fewer_pairs, root, json } => {
            regenerate(root, *check, *allow_fewer_pairs, *json)
        }
    }
}

#[derive(Serialize)]
struct Regenerated {
    written: Vec<String>,
    unchanged: Vec<String>,
    removed: Vec<String>,
    drifts: Vec<String>,
}

fn regenerate(root: &RootArguments, check: bool, allow_fewer_pairs: bool, json: bool) -> anyhow::Result<u8> {
    let root = checkout::evidence_root(root.root.as_deref())?;
    let (receipts, report) = verify_all(&root);
    if let Some(problem) = report.problems.first() {
        ui::say(format_args!("error: the evidence does not verify, so no board is made from it: {problem}"));
        return Ok(EXIT_INTEGRITY);
    }
    let outputs = outputs(&root, &receipts)?;
    if !allow_fewer_pairs {
        keep_pairs(&root, &outputs)?;
    }
    let mut done = Regenerated { written: Vec::new(), unchanged: Vec::new(), removed: Vec::new(), drifts: Vec::new() };
    if check {
        done.drifts = memra_boards::check_outputs(&root, &outputs)?.iter().map(ToString::to_string).collect();
    } else {
        let report = memra_boards::write_outputs(&root, &outputs)?;
        (done.written, done.unchanged, done.removed) = (report.written, report.unchanged, report.removed);
    }
    if json {
        ui::print_json(&done)?;
    } else {
        for drift in &done.drifts {
            ui::print(drift)?;
        }
        for file in &done.written {
            ui::print(format_args!("wrote {file}"))?;
        }
        for file in &done.removed {
            ui::print(format_args!("removed {file}"))?;
        }
        match (check, done.drifts.len()) {
            (true, 0) => ui::print(format_args!("{} generated files agree with the receipts", outputs.len()))?,
            (true, n) => ui::print(format_args!("{n} generated files drift; run `memra-lab board regenerate`"))?,
            (false, _) => ui::print(format_args!("{} files were up to date", done.unchanged.len()))?,
        }
    }
    Ok(if done.drifts.is_empty() { 0 } else { EXIT_ERROR })
}

/// Regenerates the boards of a root whose receipts were just written.
///
/// # Errors
/// When the evidence does not verify, or a file cannot be written.
pub fn refresh(root: &Path) -> anyhow::Result<()> {
    let (receipts, report) = verify_all(root);
    if let Some(problem) = report.problems.first() {
        bail!("the evidence does not verify, so no board is made from it: {problem}");
    }
    let outputs = outputs(root, &receipts)?;
    keep_pairs(root, &outputs)?;
    memra_boards::write_outputs(root, &outputs)?;
    Ok(())
}

/// Refuses boards that say fewer checked pairs than those that stand below the root.
fn keep_pairs(root: &Path, outputs: &[Output]) -> anyhow::Result<()> {
    match memra_boards::fewer_pairs(root, outputs)?.first() {
        None => Ok(()),
        Some(fewer) => bail!(
            "{fewer}: the number only grows; if cases or variants were removed on purpose, say board regenerate --allow-fewer-pairs"
        ),
    }
}

fn outputs(root: &Path, receipts: &Receipts) -> anyhow::Result<Vec<Output>> {
    let is_tracked = checkout::is_tracked(root);
    let inputs: Vec<_> = receipts
        .files()
        .iter()
        .map(|file| BoardInput { file: file.name.clone(), records: file.records.clone() })
        .collect();
    let ledger: Vec<_> = read_all(root)?
        .into_iter()
        .map(|file| LedgerLine {
            id: file.entry.id.clone(),
            kind: match file.entry.body {
                EntryBody::Promotion(_) => LedgerKind::Promotion,
                EntryBody::Demotion(_) => LedgerKind::Demotion,
                EntryBody::Refutation(_) => LedgerKind::Refutation,
                EntryBody::Gap(_) => LedgerKind::OpenGap,
            },
            date: file.entry.date.clone(),
            title: file.entry.title.clone(),
            citations: file.entry.citations().iter().map(ToString::to_string).collect(),
        })
        .collect();
    let readme =
        if is_tracked { Some(std::fs::read_to_string(root.join("README.md")).context("README.md")?) } else { None };
    Ok(memra_boards::regenerate(&inputs, &ledger, readme.as_deref(), FoldOptions { allow_provisional: !is_tracked })?)
}
