//! The table of rows in which engines run a model.

use super::text::{NONE, cite, code, difference, memory, regime, tokens_per_second};
use crate::board::{BoardRow, verdict_name};
use std::fmt::Write as _;

/// Current rows of engines, decided or not, in tokens per second. Nothing where there is none.
pub(super) fn workloads(page: &mut String, rows: &[&BoardRow]) {
    let engines: Vec<_> = rows.iter().filter_map(|row| Some((row, row.workload.as_ref()?))).collect();
    if engines.is_empty() {
        return;
    }
    page.push_str(
        "\n### Engines\n\nThe current rows in which engines run a model. A slot is one run of the workload: a prompt that is \
         processed, or tokens that are generated, with *depth* tokens in the cache before. Its time is the engine's own, \
         without loading the model and without filling the depth; tokens/s are timed tokens over the median time. Memory is \
         the largest resident size of the process that did the work.\n\n",
    );
    page.push_str(
        "| cell | model | prompt | generated | depth | A | B | A, tokens/s | B, tokens/s | difference of B in time | verdict | A, memory | B, memory | regime | receipt |\n",
    );
    page.push_str(
        "| --- | --- | ---: | ---: | ---: | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- | --- |\n",
    );
    for (row, workload) in engines {
        let model = row.key.inputs.weights.as_ref().map_or_else(|| NONE.to_owned(), |model| code(&model.file));
        let _ = writeln!(
            page,
            "| {} | {model} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            code(&row.cell),
            workload.prompt_tokens,
            workload.generated_tokens,
            workload.depth_tokens,
            code(&row.a.name),
            code(&row.b.name),
            tokens_per_second(workload.a_milli_tokens_per_s),
            tokens_per_second(workload.b_milli_tokens_per_s),
            difference(row),
            verdict_name(row.verdict),
            memory(workload.a_peak_bytes),
            memory(workload.b_peak_bytes),
            regime(row),
            cite(&row.receipt),
        );
    }
}
