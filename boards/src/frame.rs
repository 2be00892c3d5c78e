//! Groups verdicts by cell and arms, and orders them, on typed columns.
//!
//! The full key ends in the record id, so the order is total: neither the order of files nor the number of threads can
//! show in the result. No float enters a column.

use crate::collect::Entry;
use crate::error::BoardError;
use memra_ledger::record::{CellKey, WeightSource};
use polars::prelude::{Column, DataFrame, GroupsIndicator, IdxSize, PlSmallStr, SortMultipleOptions};

/// What makes two verdicts rows of one cell and one pair of arms.
const GROUP: [&str; 18] = [
    "rig",
    "contract",
    "revision",
    "problem",
    "generator",
    "family",
    "seed",
    "is_synthetic",
    "weights_file",
    "tensor",
    "tensor_sha256",
    "device_key",
    "cache",
    "host_mode",
    "clock",
    "threads",
    "a",
    "b",
];
/// What orders the verdicts of one group, oldest first.
const AGE: [&str; 4] = ["started_ns", "session", "seq", "id"];

/// Where a verdict stands in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The latest that was not withdrawn.
    Current,
    /// An earlier one; the index of the current entry.
    Superseded(usize),
    /// Taken back.
    Withdrawn,
}

/// Orders the entries by rig, cell key and arms, and inside a group the current one first, then the superseded and the
/// withdrawn ones, newest first. Returns each entry's index with its standing.
pub(crate) fn arrange(entries: &[Entry<'_>], is_withdrawn: &[bool]) -> Result<Vec<(usize, Standing)>, BoardError> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let by_key = sort(&keys(entries, is_withdrawn)?, &[&GROUP[..], &AGE[..]].concat(), &[])?;
    let index = by_key.column("entry")?.u32()?.clone();
    let withdrawn = by_key.column("is_withdrawn")?.u32()?.clone();
    let mut standing = vec![Standing::Withdrawn; entries.len()];
    let mut rank = vec![2_u32; entries.len()];
    let grouped = by_key.group_by_stable(GROUP)?;
    for group in grouped.get_groups().iter() {
        let members: Vec<usize> = match group {
            GroupsIndicator::Idx((_, members)) => members.iter().map(|&at| at as usize).collect(),
            GroupsIndicator::Slice([first, length]) => (first as usize..(first + length) as usize).collect(),
        };
        let live: Vec<usize> = members
            .into_iter()
            .filter(|&at| withdrawn.get(at) == Some(0))
            .filter_map(|at| index.get(at).map(|entry| entry as usize))
            .collect();
        let Some((&current, earlier)) = live.split_last() else { continue };
        for &entry in earlier {
            (standing[entry], rank[entry]) = (Standing::Superseded(current), 1);
        }
        (standing[current], rank[current]) = (Standing::Current, 0);
    }
    let ranks: Vec<u32> = index.iter().map(|entry| entry.map_or(2, |entry| rank[entry as usize])).collect();
    let mut ranked = by_key;
    ranked.with_column(Column::new("rank".into(), ranks))?;
    let ordered = sort(&ranked, &[&GROUP[..], &["rank"], &AGE[..]].concat(), &AGE)?;
    let order = ordered.column("entry")?.u32()?;
    Ok(order.iter().flatten().map(|entry| (entry as usize, standing[entry as usize])).collect())
}

/// Sorts by the named columns in that order, those in `descending` from large to small.
fn sort(frame: &DataFrame, by: &[&str], descending: &[&str]) -> Result<DataFrame, BoardError> {
    let directions: Vec<bool> = by.iter().map(|name| descending.contains(name)).collect();
    let options = SortMultipleOptions::default().with_order_descending_multi(directions).with_maintain_order(true);
    Ok(frame.sort(by.iter().copied(), options)?)
}

fn keys(entries: &[Entry<'_>], is_withdrawn: &[bool]) -> Result<DataFrame, BoardError> {
    let key = |pick: fn(&CellKey) -> &str| -> Vec<&str> { entries.iter().map(|e| pick(&e.verdict.key)).collect() };
    let number = |pick: fn(&CellKey) -> u32| -> Vec<u32> { entries.iter().map(|e| pick(&e.verdict.key)).collect() };
    let weights = |pick: fn(&WeightSource) -> &str| -> Vec<&str> {
        entries.iter().map(|e| e.verdict.key.inputs.weights.as_ref().map_or("", pick)).collect()
    };
    let seeds: Vec<u64> = entries.iter().map(|e| e.verdict.key.inputs.seed).collect();
    let started: Vec<i64> = entries.iter().map(|e| e.file.started_ns).collect();
    let positions: Vec<u64> = entries.iter().map(|e| e.record.seq).collect();
    let withdrawn: Vec<u32> = is_withdrawn.iter().map(|&withdrawn| u32::from(withdrawn)).collect();
    let index: Vec<u32> = (0..entries.len() as IdxSize).collect();
    let columns = vec![
        texts("rig", &entries.iter().map(|e| e.file.session.rig.label.as_str()).collect::<Vec<_>>()),
        texts("contract", &key(|k| &k.contract)),
        Column::new("revision".into(), number(|k| k.revision)),
        texts("problem", &key(|k| &k.problem)),
        texts("generator", &key(|k| &k.inputs.generator)),
        texts("family", &key(|k| &k.inputs.family)),
        Column::new("seed".into(), seeds),
        Column::new("is_synthetic".into(), number(|k| u32::from(k.inputs.weights.is_none()))),
        texts("weights_file", &weights(|w| &w.file)),
        texts("tensor", &weights(|w| &w.tensor)),
        texts("tensor_sha256", &weights(|w| w.tensor_sha256.as_str())),
        texts("device_key", &key(|k| &k.device_key)),
        texts("cache", &key(|k| &k.cache)),
        texts("host_mode", &key(|k| &k.host_mode)),
        texts("clock", &key(|k| &k.clock)),
        Column::new("threads".into(), number(|k| k.threads)),
        texts("a", &entries.iter().map(|e| e.verdict.a.as_str()).collect::<Vec<_>>()),
        texts("b", &entries.iter().map(|e| e.verdict.b.as_str()).collect::<Vec<_>>()),
        Column::new("started_ns".into(), started),
        texts("session", &entries.iter().map(|e| e.record.session.as_str()).collect::<Vec<_>>()),
        Column::new("seq".into(), positions),
        texts("id", &entries.iter().map(|e| e.record.id.as_str()).collect::<Vec<_>>()),
        Column::new("is_withdrawn".into(), withdrawn),
        Column::new("entry".into(), index),
    ];
    Ok(DataFrame::new(entries.len(), columns)?)
}

fn texts(name: &'static str, values: &[&str]) -> Column {
    Column::new(PlSmallStr::from_static(name), values)
}
