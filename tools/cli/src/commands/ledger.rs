//! `ledger`: list what was decided and what was refuted; write refutations and open gaps.

use memra_ledger::entry::{EntryBody, FailureClass, GapBody, LedgerEntry, read_all, write_entry, write_index};
use memra_ledger::promotion::{Receipts, RefutationRequest, check_refutation};
use memra_ledger::rigs::RigRegistry;
use serde_json::json;

use crate::cli::{Failure, LedgerCommand, RootArguments};
use crate::commands::promote::citations;
use crate::{checkout, ui};

/// Runs a subcommand.
///
/// # Errors
/// The refusal, naming the rule and the receipt; or when a file cannot be read or written.
pub fn run(command: &LedgerCommand) -> anyhow::Result<u8> {
    match command {
        LedgerCommand::List { root, json } => list(root, *json),
        LedgerCommand::Refute { records, mechanism, hypothesis, failure, revisit_when, root } => {
            let request = RefutationRequest {
                mechanism: mechanism.clone(),
                hypothesis: hypothesis.clone(),
                failure: match failure {
                    Failure::Slower => FailureClass::Slower,
                    Failure::NoEffect => FailureClass::NoEffectAbove,
                    Failure::BrokeBits => FailureClass::BrokeBits,
                    Failure::ResourceLimit => FailureClass::ResourceLimit,
                },
                records: citations(records)?,
                revisit_when: revisit_when.clone(),
                date: super::today(),
            };
            let folder = checkout::evidence_root(root.root.as_deref())?;
            write(root, &check_refutation(&Receipts::load(&folder), &RigRegistry::builtin()?, &request)?)
        }
        LedgerCommand::Gap { what, evidence, next, root } => {
            let body = GapBody { what: what.clone(), evidence: citations(evidence)?, next: next.clone() };
            write(root, &LedgerEntry::new(&super::today(), what, EntryBody::Gap(body))?)
        }
    }
}

fn write(root: &RootArguments, entry: &LedgerEntry) -> anyhow::Result<u8> {
    let root = checkout::evidence_root(root.root.as_deref())?;
    let file = write_entry(&root, entry, &super::privacy())?;
    write_index(&root)?;
    ui::print(format_args!("wrote {file}: {}", entry.title))?;
    Ok(0)
}

fn list(root: &RootArguments, json: bool) -> anyhow::Result<u8> {
    let entries = read_all(&checkout::evidence_root(root.root.as_deref())?)?;
    if json {
        ui::print_json(
            &entries.iter().map(|file| json!({"file": file.file, "entry": file.entry})).collect::<Vec<_>>(),
        )?;
        return Ok(0);
    }
    if entries.is_empty() {
        ui::print("the ledger is empty")?;
        return Ok(0);
    }
    let rows = entries
        .iter()
        .map(|file| {
            let kind = match file.entry.body {
                EntryBody::Promotion(_) => "promotion",
                EntryBody::Demotion(_) => "demotion",
                EntryBody::Refutation(_) => "refutation",
                EntryBody::Gap(_) => "open gap",
            };
            vec![file.entry.date.clone(), kind.to_owned(), file.entry.id.clone(), file.entry.title.clone()]
        })
        .collect();
    ui::print(ui::table(&["date", "kind", "id", "title"], rows))?;
    Ok(0)
}
