//! What a session says at its end.

use std::path::Path;

use memra_contract::digest::Digest;
use memra_ledger::record::{CellBody, CellPlan, SessionBody, Verdict, VerdictBody, WorkloadPlan};
use serde::Serialize;
use serde_json::json;

use crate::ui;

/// A cell that could not be raced, and why.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Failed {
    /// Name of the cell.
    pub(super) cell: String,
    /// Why.
    pub(super) reason: String,
}

/// A finished session.
pub(super) struct Report {
    /// Receipt file below the root.
    pub(super) file: String,
    /// Its first record.
    pub(super) session: SessionBody,
    /// Cells of all replicates.
    pub(super) cells: Vec<(Digest, CellBody)>,
    /// Verdicts with the ids of their records.
    pub(super) verdicts: Vec<(Digest, VerdictBody)>,
    /// Cells without a result.
    pub(super) failed: Vec<Failed>,
    /// Exit code.
    pub(super) code: u8,
}

/// Prints it.
///
/// # Errors
/// The system's error when stdout is gone.
pub(super) fn print(report: &Report, root: &Path, json: bool) -> anyhow::Result<()> {
    if json { print_json(report) } else { print_text(report, root) }
}

fn citation(report: &Report, id: &Digest) -> String {
    format!("{}#{}", report.file, id.short())
}

fn print_json(report: &Report) -> anyhow::Result<()> {
    let cells: Vec<_> = report.verdicts.iter().map(|(id, verdict)| cell_json(report, id, verdict)).collect();
    let mut object = json!({
        "cells": cells,
        "exit_code": report.code,
        "failed": report.failed,
        "file": report.file,
        "rig": report.session.rig.label,
    });
    // A session of one cell says its result at the top, so that a script needs no loop.
    if let ([cell], Some(object)) = (cells.as_slice(), object.as_object_mut())
        && let Some(cell) = cell.as_object()
    {
        object.extend(cell.clone());
    }
    ui::print_json(&object)
}

fn cell_json(report: &Report, id: &Digest, verdict: &VerdictBody) -> serde_json::Value {
    let result = &verdict.result;
    let arm = |pick: fn(&CellBody) -> &memra_ledger::record::Arm| {
        report.cells.iter().find(|(_, cell)| cell.cell == verdict.cell).map(|(_, cell)| pick(cell))
    };
    let fraction = |ppm: Option<i64>| ppm.map(|ppm| ppm as f64 / 1e6);
    let first = report.cells.iter().find(|(_, cell)| cell.cell == verdict.cell).map(|(_, cell)| cell);
    let tokens = first.and_then(|cell| cell.plan.workload.as_ref()).map(WorkloadPlan::timed_tokens);
    let peaks = first.and_then(|cell| cell.peaks.as_ref());
    json!({
        "arms": {"a": arm(|cell| &cell.a), "b": arm(|cell| &cell.b)},
        "band": fraction(result.band_ppm),
        "band_m": result.band_m,
        "cell": verdict.cell,
        "delta": fraction(result.delta_ppm),
        "interval": {"lo": fraction(result.lo_ppm), "hi": fraction(result.hi_ppm), "method": verdict.interval},
        "is_provisional": result.is_provisional,
        "mde": fraction(result.mde_ppm),
        "medians_ns": {
            "a": result.median_a_ps.map(|ps| ps as f64 / 1e3),
            "b": result.median_b_ps.map(|ps| ps as f64 / 1e3),
        },
        "peaks": peaks,
        "tokens": tokens,
        "n": result.n,
        "problem": verdict.key.problem,
        "reasons": result.reasons,
        "receipt": citation(report, id),
        "replicates": verdict.replicates.len(),
        "tau": fraction(result.tau_ppm),
        "verdict": result.verdict,
    })
}

fn print_text(report: &Report, root: &Path) -> anyhow::Result<()> {
    for (id, verdict) in &report.verdicts {
        print_verdict(report, id, verdict)?;
    }
    for failed in &report.failed {
        ui::print(format_args!("{}: not raced: {}\n", failed.cell, failed.reason))?;
    }
    ui::print(format_args!("receipt  {}", root.join(&report.file).display()))?;
    if cfg!(feature = "boards") {
        ui::print(format_args!("board    {}", root.join("PERFORMANCE.md").display()))?;
    }
    Ok(())
}

fn print_verdict(report: &Report, id: &Digest, verdict: &VerdictBody) -> anyhow::Result<()> {
    let result = &verdict.result;
    ui::print(format_args!("{}: {} {}", verdict.cell, verdict.key.contract, verdict.key.problem))?;
    let chosen = |is_a: bool| {
        let cell = report.cells.iter().find(|(_, cell)| cell.cell == verdict.cell).map(|(_, cell)| cell);
        cell.map(|cell| if is_a { &cell.a } else { &cell.b }).map_or("", |arm| arm.chosen.as_str())
    };
    let first = report.cells.iter().find(|(_, cell)| cell.cell == verdict.cell).map(|(_, cell)| cell);
    for (seat, name, median, is_a) in
        [("A", &verdict.a, result.median_a_ps, true), ("B", &verdict.b, result.median_b_ps, false)]
    {
        let median = median.filter(|ps| *ps > 0);
        let rate = match (first, median) {
            (Some(cell), Some(ps)) => rate(&cell.plan, ps),
            _ => String::new(),
        };
        let time = median.map_or_else(|| "no median".to_owned(), ui::time);
        ui::print(format_args!("  {seat}  {name:<26} {time:>12} {rate}  {}", chosen(is_a)))?;
    }
    let of = match verdict.replicates.len() {
        1 => format!("{} quads, 1 replicate", result.n),
        n => format!("{} of {n} replicates", result.n),
    };
    let percent = |ppm: Option<i64>| ppm.map_or_else(|| "none".to_owned(), ui::percent);
    ui::print(format_args!(
        "  {}  {} [{}, {}]  {of}",
        verdict_text(result.verdict),
        percent(result.delta_ppm),
        percent(result.lo_ppm.map(ui::effect)),
        percent(result.hi_ppm.map(ui::effect)),
    ))?;
    ui::print(format_args!(
        "  band {} of {} A/A blocks{}, tau {}, minimum detectable {}",
        percent(result.band_ppm),
        result.band_m,
        if result.is_provisional { " (provisional)" } else { "" },
        percent(result.tau_ppm),
        percent(result.mde_ppm)
    ))?;
    for reason in &result.reasons {
        ui::print(format_args!("  {reason}"))?;
    }
    ui::print(format_args!("  {}\n", citation(report, id)))
}

/// Tokens of a workload, or bytes of a launch, over a time.
fn rate(plan: &CellPlan, ps: u64) -> String {
    match &plan.workload {
        Some(workload) => format!("{:8.2} tok/s", workload.timed_tokens() as f64 * 1e12 / ps as f64),
        None => format!("{:8.2} GB/s", plan.moved_bytes as f64 * 1e3 / ps as f64),
    }
}

fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "FASTER",
        Verdict::Slower => "SLOWER",
        Verdict::Equivalent => "EQUIVALENT",
        Verdict::Undecided => "UNDECIDED",
        Verdict::Void => "VOID",
        Verdict::Incomparable => "INCOMPARABLE",
    }
}
