//! `bench`: prompt and generation rates by length and depth, in the table people know from `llama-bench`.

use memra_contract::BlockFormat;
use serde::Serialize;

use super::workload::{Prepared, Workload};
use super::{Room, load, model_file, open};
use crate::cli::{BenchArguments, BenchOutput};
use crate::ui;

#[derive(Serialize)]
struct Row {
    model: String,
    file: String,
    model_bytes: u64,
    parameters: u64,
    backend: &'static str,
    threads: usize,
    program: String,
    test: String,
    prompt: usize,
    generated: usize,
    depth: usize,
    samples_ns: Vec<u64>,
    tokens_per_s: f64,
    tokens_per_s_deviation: f64,
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded, or a length does not fit its context.
pub fn run(arguments: &BenchArguments) -> anyhow::Result<u8> {
    let file = model_file(arguments.model.model.as_deref())?;
    let model = open(&file)?;
    let mut workloads = Vec::new();
    for depth in &arguments.n_depth {
        let reads = arguments.n_prompt.iter().map(|prompt| (*prompt, 0));
        let writes = arguments.n_gen.iter().map(|generated| (0, *generated));
        for (prompt, generated) in reads.chain(writes).filter(|(prompt, generated)| prompt + generated > 0) {
            workloads.push(Workload { prompt, generated, depth: *depth });
        }
    }
    let positions = workloads.iter().map(|workload| workload.positions()).max().unwrap_or(0);
    anyhow::ensure!(positions > 0, "nothing to measure: every length is 0");
    let mut runner = load(&model, &arguments.model, &Room { wanted: 1, positions })?;
    let context = runner.config().context;
    anyhow::ensure!(positions <= context, "{positions} positions are asked for, and the model's context is {context}");
    if arguments.output == BenchOutput::Md {
        ui::print("| model | size | params | backend | threads | test | t/s |")?;
        ui::print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")?;
    }
    let mut rows = Vec::new();
    for workload in workloads {
        let prepared = Prepared::new(&mut runner, workload, 1)?;
        let (_, expected) = prepared.run(&mut runner);
        let mut samples = Vec::new();
        for _ in 0..arguments.repetitions {
            let (time, fold) = prepared.run(&mut runner);
            anyhow::ensure!(fold == expected, "two runs of the same workload gave different tokens");
            samples.push(time.as_nanos() as u64);
        }
        prepared.release(&mut runner);
        let row = row(&runner, &model, workload, samples);
        match arguments.output {
            BenchOutput::Md => ui::print(row.markdown())?,
            BenchOutput::Jsonl => ui::print(serde_json::to_string(&row)?)?,
            BenchOutput::Json => {}
        }
        rows.push(row);
    }
    if arguments.output == BenchOutput::Json {
        ui::print_json(&rows)?;
    }
    Ok(0)
}

fn row(
    runner: &memra_engine::runner::Runner,
    model: &memra_artifact::GgufModel,
    workload: Workload,
    samples_ns: Vec<u64>,
) -> Row {
    let Workload { prompt, generated, depth } = workload;
    let test = if prompt > 0 { format!("pp{prompt}") } else { format!("tg{generated}") };
    let test = if depth > 0 { format!("{test} @ d{depth}") } else { test };
    let rates: Vec<f64> = samples_ns.iter().map(|ns| (prompt + generated) as f64 * 1e9 / *ns as f64).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let squares: f64 = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum();
    Row {
        model: describe(model, runner),
        file: model.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        model_bytes: model.total_len(),
        parameters: model.tensors().map(|tensor| tensor.info().elems()).sum(),
        backend: "host",
        threads: runner.threads(),
        program: runner.plan().program.clone(),
        test,
        prompt,
        generated,
        depth,
        tokens_per_s: mean,
        tokens_per_s_deviation: (squares / (rates.len().max(2) - 1) as f64).sqrt(),
        samples_ns,
    }
}

/// Architecture and the format that most weights are stored in.
fn describe(model: &memra_artifact::GgufModel, runner: &memra_engine::runner::Runner) -> String {
    let bytes_of = |format: &BlockFormat| -> u64 {
        model.tensors().filter(|tensor| tensor.info().format() == *format).map(|tensor| tensor.info().byte_len()).sum()
    };
    let format = BlockFormat::ALL.iter().max_by_key(|format| bytes_of(format)).map_or("", |format| format.name);
    format!("{} {format}", runner.config().architecture)
}

impl Row {
    fn markdown(&self) -> String {
        format!(
            "| {} | {:.2} MiB | {:.2} M | {} | {} | {} | {:.2} ± {:.2} |",
            self.model,
            self.model_bytes as f64 / (1 << 20) as f64,
            self.parameters as f64 / 1e6,
            self.backend,
            self.threads,
            self.test,
            self.tokens_per_s,
            self.tokens_per_s_deviation
        )
    }
}
