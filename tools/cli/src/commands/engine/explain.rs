//! `explain`: the steps of a model, what was selected for each and why, and where the time of a step goes.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use memra_engine::cache::PageTable;
use memra_engine::plan::{Batch, Chunk, Op, Step, Wanted};
use memra_engine::runner::Runner;
use serde::Serialize;

use super::{Room, filler, load, model_file, open};
use crate::cli::ExplainArguments;
use crate::ui;

#[derive(Serialize)]
struct Explanation {
    model: String,
    program: String,
    threads: usize,
    rows: usize,
    depth: usize,
    steps_timed: u32,
    read_rate_bytes_per_s: u64,
    lines: Vec<Line>,
    /// Between the steps: buffers, positions, the loop.
    gaps_ns: u64,
    /// Sum of lines and gaps.
    sum_ns: u64,
    /// A whole step without timers inside, measured in turns with the timed ones.
    step_ns: u64,
    weight_bytes: usize,
    buffer_bytes: usize,
    cache_bytes_per_position: usize,
    passed_over: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    label: String,
    count: usize,
    contract: String,
    problem: String,
    variant: String,
    reason: String,
    promotion: Option<String>,
    bytes: u64,
    /// Mean over the middle half of the timed steps.
    mean_ns: u64,
    /// Bytes per second against the read rate of the same session.
    share_of_read_rate: f64,
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded or the step does not fit its context.
pub fn run(arguments: &ExplainArguments) -> anyhow::Result<u8> {
    let model = open(&model_file(arguments.model.model.as_deref())?)?;
    let rows = usize::from(arguments.rows);
    let positions = arguments.depth + rows;
    let mut chunked = arguments.model.clone();
    chunked.chunk = chunked.chunk.max(arguments.rows);
    let mut runner = load(&model, &chunked, &Room { wanted: 1, positions })?;
    let context = runner.config().context;
    ensure!(positions <= context, "{positions} positions are asked for, and the model's context is {context}");
    let table = runner.admit(positions).context("the cache has no room")?;
    let tokens = filler(positions, runner.config().vocab, 1);
    let mut first = 0;
    while first < arguments.depth {
        let end = (first + runner.plan().max_rows).min(arguments.depth);
        step(&mut runner, &table, first, &tokens[first..end], None);
        first = end;
    }
    let (times, whole) = measure(&mut runner, &table, arguments, &tokens[arguments.depth..]);
    runner.release(table);
    let rate = memra_kernels::backend::host::read_rate(runner.pool());
    let explanation = explain(&runner, arguments, rate, &times, &whole);
    if arguments.json {
        ui::print_json(&explanation)?;
    } else {
        explanation.print()?;
    }
    Ok(0)
}

fn step(runner: &mut Runner, table: &PageTable, first_position: usize, tokens: &[u32], times: Option<&mut Vec<u64>>) {
    let chunk = Chunk { pages: table.pages(), first_position, tokens, wanted: Wanted::Last };
    let batch = Batch { chunks: &[chunk] };
    match times {
        None => runner.step(&batch),
        Some(times) => runner.step_timed(&batch, times),
    }
}

/// Nanoseconds of one step: of each line of the plan, where it was timed inside, and of the whole.
struct Timed {
    steps: Vec<u64>,
    whole: u64,
}

/// Steps with timers inside and without, taking turns, so that both see the same machine.
fn measure(
    runner: &mut Runner,
    table: &PageTable,
    arguments: &ExplainArguments,
    tokens: &[u32],
) -> (Vec<Timed>, Vec<Timed>) {
    let (mut timed, mut whole) = (Vec::new(), Vec::new());
    for turn in 0..arguments.steps + 2 {
        let mut steps = Vec::new();
        let began = Instant::now();
        step(runner, table, arguments.depth, tokens, Some(&mut steps));
        let inside = began.elapsed().as_nanos() as u64;
        let began = Instant::now();
        step(runner, table, arguments.depth, tokens, None);
        let outside = began.elapsed().as_nanos() as u64;
        // The first turns warm the caches.
        if turn >= 2 {
            timed.push(Timed { steps, whole: inside });
            whole.push(Timed { steps: Vec::new(), whole: outside });
        }
    }
    (middle_half(timed), middle_half(whole))
}

/// The middle half by the time of the whole step. Means over the same steps add up, which medians do not.
fn middle_half(mut timed: Vec<Timed>) -> Vec<Timed> {
    timed.sort_by_key(|timed| timed.whole);
    let quarter = timed.len() / 4;
    let rest = timed.len() - quarter;
    timed.drain(rest..);
    timed.drain(..quarter);
    timed
}

fn mean(values: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = values.len() as u64;
    values.sum::<u64>() / count.max(1)
}

fn explain(runner: &Runner, arguments: &ExplainArguments, rate: u64, timed: &[Timed], whole: &[Timed]) -> Explanation {
    let plan = runner.plan();
    let mut lines: Vec<Line> = Vec::new();
    let mut passed_over: Vec<String> = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let ns = mean(timed.iter().map(|timed| timed.steps[index]));
        let line = line(runner, arguments, step, ns);
        for resolved in &step.resolved {
            for why in &resolved.selections.get(usize::from(arguments.rows)).passed_over {
                let text = format!("{}: {why}", resolved.contract);
                if !passed_over.contains(&text) {
                    passed_over.push(text);
                }
            }
        }
        let same = |other: &&mut Line| {
            (&other.label, &other.problem, &other.variant) == (&line.label, &line.problem, &line.variant)
        };
        match lines.iter_mut().find(same).filter(|_| !arguments.layers) {
            Some(other) => {
                other.count += 1;
                other.bytes += line.bytes;
                other.mean_ns += line.mean_ns;
            }
            None => lines.push(line),
        }
    }
    for line in &mut lines {
        line.share_of_read_rate = line.bytes as f64 * 1e9 / line.mean_ns.max(1) as f64 / rate as f64;
    }
    let gaps_ns = mean(timed.iter().map(|timed| timed.whole - timed.steps.iter().sum::<u64>()));
    let sum_ns = lines.iter().map(|line| line.mean_ns).sum::<u64>() + gaps_ns;
    Explanation {
        model: plan.config.name.clone(),
        program: plan.program.clone(),
        threads: runner.threads(),
        rows: usize::from(arguments.rows),
        depth: arguments.depth,
        steps_timed: arguments.steps,
        read_rate_bytes_per_s: rate,
        lines,
        gaps_ns,
        sum_ns,
        step_ns: mean(whole.iter().map(|whole| whole.whole)),
        weight_bytes: plan.weight_bytes(),
        buffer_bytes: runner.buffer_bytes(),
        cache_bytes_per_position: plan.config.kv_bytes_per_position(),
        passed_over,
    }
}

fn line(runner: &Runner, arguments: &ExplainArguments, step: &Step, mean_ns: u64) -> Line {
    let rows = usize::from(arguments.rows);
    let config = runner.config();
    // What a step has to read: weights, and for attention the cache.
    let bytes = match &step.op {
        Op::Product { product, .. } => product.bytes() as u64,
        Op::NormQuantise { weight, .. } => size_of_val(weight.as_slice()) as u64,
        Op::Attention { .. } => {
            ((arguments.depth + rows) * config.kv_bytes_per_position() / config.layers.max(1)) as u64
        }
        _ => 0,
    };
    let texts = |f: &dyn Fn(&memra_engine::plan::Resolved) -> String| {
        step.resolved.iter().map(f).collect::<Vec<_>>().join(" + ")
    };
    Line {
        label: match step.label.split('.').collect::<Vec<_>>().as_slice() {
            ["blk", _, name] if !arguments.layers => format!("blk.*.{name}"),
            _ => step.label.clone(),
        },
        count: 1,
        contract: texts(&|resolved| resolved.contract.to_owned()),
        problem: texts(&|resolved| resolved.problem.clone()),
        variant: texts(&|resolved| resolved.selections.get(rows).variant.name.to_owned()),
        reason: texts(&|resolved| resolved.selections.get(rows).reason.text().to_owned()),
        promotion: step.resolved.iter().find_map(|resolved| resolved.selections.get(rows).promotion.clone()),
        bytes,
        mean_ns,
        share_of_read_rate: 0.0,
    }
}

impl Explanation {
    fn print(&self) -> anyhow::Result<()> {
        let mega = |bytes: usize| format!("{:.2} MB", bytes as f64 / 1e6);
        ui::print(format_args!(
            "{}, program {}, {} threads\n{} row(s) at depth {}, the middle half of {} steps; weights {}, activations {}, cache {} \
             bytes a position\n",
            self.model,
            self.program,
            self.threads,
            self.rows,
            self.depth,
            self.steps_timed,
            mega(self.weight_bytes),
            mega(self.buffer_bytes),
            self.cache_bytes_per_position
        ))?;
        let rows = self
            .lines
            .iter()
            .map(|line| {
                let has_bytes = line.bytes > 0;
                vec![
                    line.label.clone(),
                    format!("{}x", line.count),
                    format!("{}/{}", line.contract, line.variant),
                    match &line.promotion {
                        Some(promotion) => format!("{} {promotion}", line.reason),
                        None => line.reason.clone(),
                    },
                    if has_bytes { mega(line.bytes as usize) } else { String::new() },
                    format!("{:.1} us", line.mean_ns as f64 / 1e3),
                    format!("{:.1} %", line.mean_ns as f64 * 100.0 / self.sum_ns as f64),
                    if has_bytes { format!("{:.0} %", line.share_of_read_rate * 100.0) } else { String::new() },
                ]
            })
            .collect();
        let header = ["step", ">", "kernel", "why", ">bytes", ">time", ">of step", ">of read rate"];
        ui::print(ui::table(&header, rows))?;
        let off = (self.sum_ns as f64 / self.step_ns as f64 - 1.0) * 100.0;
        ui::print(format_args!(
            "\ngaps {:.1} us; steps and gaps {:.1} us, which is the timed step; the same step without timers, in turns with it, \
             {:.1} us ({off:+.1} %)\nread rate of this \
             session {:.2} GB/s, from memory: what is read faster comes from caches",
            self.gaps_ns as f64 / 1e3,
            self.sum_ns as f64 / 1e3,
            self.step_ns as f64 / 1e3,
            self.read_rate_bytes_per_s as f64 / 1e9
        ))?;
        for line in &self.passed_over {
            ui::print(format_args!("passed over: {line}"))?;
        }
        Ok(())
    }
}
