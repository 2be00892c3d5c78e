//! Receipts to boards.

use crate::board::{BOARD_SCHEMA, Board, BoardRow, Boards, ExternalFigures, ExternalRow, RowStatus, is_decided};
use crate::collect::{Collected, Entry, File, citation, collect, entries};
use crate::error::BoardError;
use crate::frame::{Standing, arrange};
use crate::input::{BoardInput, FoldOptions};
use crate::pairs::{checked, is_gates_only};
use crate::row::{corrections_of, row};
use crate::share::Ceilings;
use std::collections::BTreeMap;

/// Folds receipts into one board a rig.
///
/// The latest verdict on a cell key and pair of arms, by start and identifier of its session, is the current row; earlier
/// ones stay as `superseded`. A verdict that a correction withdraws, or that rests on a withdrawn record, is never
/// current. The result depends on neither the order of `inputs` nor the number of threads.
///
/// # Errors
///
/// Inputs that cannot be receipts: a path that leaves the root, a file or record given twice, a record before its
/// session, a rig label on two machines, a verdict that cites a cell record its file does not hold, holds twice or that
/// is on another cell, a decided verdict without its numbers.
pub fn fold(inputs: &[BoardInput], options: FoldOptions) -> Result<Boards, BoardError> {
    let collected = collect(inputs, options)?;
    let entries = entries(&collected.files)?;
    let corrections: Vec<_> = entries.iter().map(|entry| corrections_of(entry, &collected.corrections)).collect();
    let is_withdrawn: Vec<bool> = corrections.iter().map(|list| list.iter().any(|one| one.withdraws)).collect();
    let arranged = arrange(&entries, &is_withdrawn)?;
    let ceilings = Ceilings::of(&entries, &is_withdrawn);

    let mut rows: BTreeMap<&str, Vec<BoardRow>> = BTreeMap::new();
    for (at, standing) in &arranged {
        let (at, label) = (*at, entries[*at].file.session.rig.label.as_str());
        let mut made = row(&entries[at], &corrections[at]);
        made.share = ceilings.share(&entries[at]);
        match standing {
            Standing::Current => {
                made.plot = plot_path(label, &entries[at]);
                made.caveats.extend(replaced_binding(&made, at, &arranged, &entries));
            }
            Standing::Superseded(current) => {
                let by = &entries[*current];
                made.status = RowStatus::Superseded;
                made.superseded_by = Some(citation(by.file.path, &by.record.id));
                made.caveats.extend(other_sources(&entries[at], by));
            }
            Standing::Withdrawn => made.status = RowStatus::Withdrawn,
        }
        rows.entry(label).or_default().push(made);
    }
    let rigs = collected
        .rigs
        .iter()
        .map(|(label, rig)| Board {
            schema: BOARD_SCHEMA.to_owned(),
            rig: rig.clone(),
            checked: checked(&collected, label),
            rows: rows.remove(label).unwrap_or_default(),
            notes: notes(collected.files.iter().filter(|file| file.session.rig.label == *label)),
        })
        .collect();
    Ok(Boards { rigs, external: external(&collected) })
}

/// The path of a current row's plot of slots, where it has slots.
fn plot_path(label: &str, entry: &Entry<'_>) -> Option<String> {
    let has_slots =
        entry.replicates.iter().any(|cell| cell.ab.as_ref().is_some_and(|ab| !ab.slots.elapsed_ns.is_empty()));
    has_slots.then(|| format!("boards/plots/{label}.slots-{}.svg", entry.record.id.short()))
}

/// Says so where a current row weighs less than the one it replaced.
fn replaced_binding(
    current: &BoardRow,
    at: usize,
    arranged: &[(usize, Standing)],
    entries: &[Entry<'_>],
) -> Option<String> {
    if current.status == RowStatus::Binding && is_decided(current.verdict) {
        return None;
    }
    let earlier = arranged.iter().filter(|(_, standing)| *standing == Standing::Superseded(at));
    let binding = earlier
        .map(|(other, _)| &entries[*other])
        .find(|entry| row(entry, &[]).status == RowStatus::Binding && is_decided(entry.verdict.result.verdict))?;
    Some(format!("replaces a binding result ({})", citation(binding.file.path, &binding.record.id)))
}

/// Says which arms of a superseded entry ran another source than the current one's.
fn other_sources(entry: &Entry<'_>, current: &Entry<'_>) -> Vec<String> {
    let (Some(old), Some(new)) = (entry.replicates.first(), current.replicates.first()) else { return Vec::new() };
    [("A", &old.a, &new.a), ("B", &old.b, &new.b)]
        .into_iter()
        .filter(|(_, old, new)| old.source_sha256 != new.source_sha256)
        .map(|(name, _, _)| format!("the source of {name} was another one than the current row's"))
        .collect()
}

/// Failed checks and sessions that gave no verdict, in file order.
fn notes<'a>(files: impl Iterator<Item = &'a File<'a>>) -> Vec<String> {
    let mut notes = Vec::new();
    for file in files {
        // The same arm fails in every replicate: the first one is listed and the rest is counted.
        let mut failed: BTreeMap<_, (String, u32)> = BTreeMap::new();
        let mut gates: Vec<_> = file.gates.iter().filter(|(_, gate)| !gate.is_passed).collect();
        gates.sort_by_key(|(id, gate)| (gate.replicate, *id));
        for (id, gate) in gates {
            let key = (&gate.contract, gate.revision, &gate.variant, &gate.source_sha256);
            let (_, count) = failed.entry(key).or_insert_with(|| {
                let first = gate.failures.first().map_or_else(String::new, |failure| {
                    format!(
                        ": {} in {} on {} threads: {}",
                        failure.reason, failure.case, failure.threads, failure.detail
                    )
                });
                let (contract, variant) = (&gate.contract, &gate.variant);
                (format!("{variant} failed the check of {contract}{first} ({})", citation(file.path, id)), 0)
            });
            *count += 1;
        }
        notes.extend(failed.into_values().map(|(text, count)| match count {
            1 => text,
            _ => format!("{text}, and {} more of the same arm", count - 1),
        }));
        if file.verdicts.is_empty() && !(is_gates_only(file) && file.is_finished) {
            let end = if file.is_finished { "ended" } else { "was cut short" };
            notes.push(format!("a session {end} without a verdict ({})", citation(file.path, &file.record.id)));
        }
    }
    notes
}

fn external(collected: &Collected<'_>) -> ExternalFigures {
    let mut figures: Vec<ExternalRow> = collected
        .externals
        .iter()
        .map(|external| {
            let corrections = collected.corrections.of([&external.record.id]);
            let is_withdrawn = corrections.iter().any(|one| one.withdraws);
            let body = external.body;
            ExternalRow {
                status: if is_withdrawn { RowStatus::Withdrawn } else { RowStatus::External },
                title: body.title.clone(),
                source: body.source.clone(),
                date: body.date.clone(),
                value_milli: body.value_milli,
                unit: body.unit.clone(),
                caveats: corrections
                    .iter()
                    .map(|one| {
                        let word = if one.withdraws { "withdrawn" } else { "corrected" };
                        format!("{word}: {} ({})", one.text, one.citation)
                    })
                    .collect(),
                receipt: citation(external.path, &external.record.id),
            }
        })
        .collect();
    figures.sort_by(|a, b| (&a.title, &a.date, &a.receipt).cmp(&(&b.title, &b.date, &b.receipt)));
    ExternalFigures { figures, ..ExternalFigures::default() }
}
