//! `rig`: what a machine gives at best.

use memra_contract::Problem;
use memra_ledger::record::{CellKey, VerdictBody};
use serde::Serialize;

use crate::cli::{BackendChoice, RigCommand, RunArguments};
use crate::commands::ab::{Raced, race};
use crate::ui;

/// The cells that are ceilings.
const CEILINGS: &str = "ceiling-*";

/// Runs a subcommand.
///
/// # Errors
/// Whatever keeps a session from being measured or recorded.
pub fn run(command: &RigCommand) -> anyhow::Result<u8> {
    let RigCommand::Measure { priority, quads, aa_blocks, root, json } = command;
    let arguments = RunArguments {
        cells: vec![CEILINGS.to_owned()],
        list: false,
        priority: *priority,
        contract: None,
        problem: None,
        arm: Vec::new(),
        workload: None,
        model: None,
        weights: None,
        tensor: None,
        family: None,
        backend: BackendChoice::Auto,
        cache: None,
        process: Vec::new(),
        threads: None,
        quads: *quads,
        aa_blocks: *aa_blocks,
        replicates: 1,
        attempts: 1,
        seed: None,
        smallest: 0.5,
        models: None,
        slug: Some("ceilings".to_owned()),
        root: root.clone(),
        json: *json,
    };
    let raced = race(&arguments)?;
    let ceilings: Vec<Ceiling> =
        raced.verdicts().filter_map(|(receipt, verdict)| ceiling(&raced, receipt, verdict)).collect();
    if *json {
        ui::print_json(&ceilings)?;
    } else {
        let rows = ceilings
            .iter()
            .map(|one| [&one.what, &one.figure, &one.variant, &one.cell, &one.receipt].map(Clone::clone).to_vec());
        ui::print(ui::table(&["ceiling", ">figure", "variant", "cell", "receipt"], rows.collect()))?;
        for (cell, reason) in raced.failed() {
            ui::print(format_args!("{cell}: not measured: {reason}"))?;
        }
    }
    Ok(raced.code())
}

/// A line of the table.
#[derive(Debug, Serialize)]
struct Ceiling {
    #[serde(rename = "ceiling")]
    what: String,
    figure: String,
    variant: String,
    cell: String,
    receipt: String,
}

/// The faster arm of a cell; `None` where neither has a median.
fn ceiling(raced: &Raced, receipt: String, verdict: &VerdictBody) -> Option<Ceiling> {
    let result = &verdict.result;
    let arms = [(result.median_a_ps, &verdict.a), (result.median_b_ps, &verdict.b)];
    let (ps, variant) = arms
        .into_iter()
        .filter_map(|(ps, variant)| Some((ps.filter(|ps| *ps > 0)?, variant)))
        .min_by_key(|(ps, _)| *ps)?;
    let plan = raced.plan(&verdict.cell)?;
    Some(Ceiling {
        what: what(&verdict.key),
        figure: figure(&verdict.key.contract, plan.moved_bytes, plan.flops, ps),
        variant: variant.clone(),
        cell: verdict.cell.clone(),
        receipt,
    })
}

/// What a cell is the ceiling of.
fn what(key: &CellKey) -> String {
    let problem: Option<Problem> = key.problem.parse().ok();
    let axis =
        |name| problem.as_ref().and_then(|problem| problem.get(name)).map_or_else(String::new, ToString::to_string);
    match key.contract.as_str() {
        "stream" => format!("{} of {} bytes", axis("op"), axis("bytes")),
        "empty" => format!("launch, {}, {} blocks", axis("mode"), axis("blocks")),
        "matrix_peak" => format!("matrix units, {}, {}", axis("type"), key.inputs.family),
        contract => format!("{contract} {}", key.problem),
    }
}

/// Operations, bytes or launches over a time.
fn figure(contract: &str, moved_bytes: u64, flops: u64, ps: u64) -> String {
    match contract {
        "empty" => ui::time(ps),
        "matrix_peak" => format!("{:.1} TFLOP/s", flops as f64 / ps as f64),
        _ => format!("{:.1} GB/s", moved_bytes as f64 * 1e3 / ps as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_ledger::record::Inputs;

    #[test]
    fn ceilings_say_what_they_are_of() {
        let key = |contract: &str, problem: &str| CellKey {
            contract: contract.to_owned(),
            revision: 1,
            problem: problem.to_owned(),
            inputs: Inputs { generator: "counter/1".to_owned(), family: "dense".to_owned(), seed: 1, weights: None },
            device_key: "cuda".to_owned(),
            cache: "rotate".to_owned(),
            host_mode: "graph".to_owned(),
            clock: "free".to_owned(),
            threads: 1,
        };
        assert_eq!(what(&key("stream", "bytes=16384,op=read,parts=1")), "read of 16384 bytes");
        assert_eq!(what(&key("empty", "blocks=132,mode=graph")), "launch, graph, 132 blocks");
        assert_eq!(what(&key("matrix_peak", "blocks=132,depth=9,type=bf16,warps=8")), "matrix units, bf16, dense");
    }

    #[test]
    fn figures_have_the_unit_of_their_ceiling() {
        assert_eq!(figure("stream", 4_000_000, 0, 1_000_000), "4000.0 GB/s");
        assert_eq!(figure("matrix_peak", 0, 900_000_000, 1_000_000), "900.0 TFLOP/s");
        assert_eq!(figure("empty", 4, 0, 1_500_000), ui::time(1_500_000));
    }
}
