//! `gen`: one answer on the terminal, or the engine checked on a prompt.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use memra_artifact::GgufModel;
use memra_engine::chat::{Answer, Ending, Piece, Tokenizer};
use memra_engine::schedule::{Engine, EngineOptions, Request, Sampling};
use memra_engine::serve::chat_template;
use serde_json::{Map, json};

use super::{Room, golden, load, model_file, open};
use crate::cli::{GenArguments, SamplingArguments};
use crate::ui;

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded, has no chat template where one is needed, or the prompt does not fit.
pub fn run(arguments: &GenArguments) -> anyhow::Result<u8> {
    let file = model_file(arguments.model.model.as_deref())?;
    let model = open(&file)?;
    let tokenizer = Tokenizer::from_gguf(model.metadata()).with_context(|| format!("model {}", file.display()))?;
    let mut prompt = arguments.prompt.clone();
    if prompt == "-" {
        prompt.clear();
        std::io::stdin().read_to_string(&mut prompt).context("the prompt on stdin")?;
    }
    let text = if arguments.raw { prompt } else { render(&model, &tokenizer, arguments.system.as_deref(), &prompt)? };
    let tokens = tokenizer.encode_prompt(&text, !arguments.raw)?;
    ensure!(!tokens.is_empty(), "the prompt is empty");
    if arguments.check {
        return golden::check(&model, arguments, &tokens);
    }
    let began = Instant::now();
    let positions = tokens.len().saturating_add(arguments.max_tokens);
    let runner = load(&model, &arguments.model, &Room { wanted: 1, positions: positions.min(1 << 22) })?;
    let context = runner.config().context;
    ensure!(
        positions <= context,
        "the prompt has {} tokens and {} may be generated, and the model's context is {context}: say fewer with \
         --max-tokens",
        tokens.len(),
        arguments.max_tokens
    );
    let facts = Facts { loading: began.elapsed(), threads: runner.threads(), program: runner.plan().program.clone() };
    let engine = Engine::start(
        runner,
        EngineOptions { max_sequences: 1, max_queue: 1, max_positions: positions, mixed_rows: 1 },
    )?;
    let sampling = sampling(&arguments.sampling)?;
    let end_tokens: Arc<[u32]> = if arguments.ignore_eos { Arc::new([]) } else { tokenizer.end_of_generation().into() };
    let request = Request {
        prompt: tokens,
        max_tokens: arguments.max_tokens,
        sampling: sampling.clone(),
        end_tokens: end_tokens.clone(),
    };
    let generation = engine.submit(request)?;
    let mut answer = Answer::new(generation, Arc::new(tokenizer), end_tokens, arguments.stop.clone())?;
    let (text, ending) = stream(&mut answer, !arguments.json)?;
    engine.join();
    if arguments.json {
        ui::print_json(&json!({
            "text": text,
            "finish_reason": ending.reason.text(),
            "stop": ending.stop,
            "prompt_tokens": ending.prompt_tokens,
            "completion_tokens": ending.completion_tokens,
            "seed": (sampling.temperature > 0.0).then_some(sampling.seed),
            "program": facts.program,
            "threads": facts.threads,
            "load_ms": facts.loading.as_secs_f64() * 1e3,
            "prefill_ms": ending.timings.prefill.as_secs_f64() * 1e3,
            "decode_ms": ending.timings.decode.as_secs_f64() * 1e3,
            "prompt_tokens_per_s": rate(ending.prompt_tokens, ending.timings.prefill),
            "generated_tokens_per_s": rate(ending.completion_tokens.saturating_sub(1), ending.timings.decode),
        }))?;
    } else {
        summary(&ending, &facts, &sampling);
    }
    Ok(0)
}

struct Facts {
    loading: Duration,
    threads: usize,
    program: String,
}

/// Prints pieces as they come; returns the whole text.
fn stream(answer: &mut Answer, is_shown: bool) -> anyhow::Result<(String, Ending)> {
    let mut text = String::new();
    loop {
        match answer.next_blocking() {
            Piece::Text(piece) => {
                if is_shown {
                    let mut out = anstream::stdout().lock();
                    write!(out, "{}", printable(&piece))?;
                    out.flush()?;
                }
                text.push_str(&piece);
            }
            Piece::Done(ending) => {
                if is_shown {
                    ui::print("")?;
                }
                return Ok((text, ending));
            }
            Piece::Failed(why) => bail!("{why}"),
        }
    }
}

/// Control characters of a model's text do not reach the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

fn summary(ending: &Ending, facts: &Facts, sampling: &Sampling) {
    let per_second = |tokens, time| rate(tokens, time).map_or(String::new(), |rate| format!(", {rate:.1} tokens/s"));
    ui::say(format_args!(
        "\nloaded in {:.0} ms; {} prompt tokens in {:.1} ms{}; {} tokens{}; {} threads; {}{}",
        facts.loading.as_secs_f64() * 1e3,
        ending.prompt_tokens,
        ending.timings.prefill.as_secs_f64() * 1e3,
        per_second(ending.prompt_tokens, ending.timings.prefill),
        ending.completion_tokens,
        per_second(ending.completion_tokens.saturating_sub(1), ending.timings.decode),
        facts.threads,
        match (&ending.stop, ending.reason.text()) {
            (Some(stop), _) => format!("stopped at {stop:?}"),
            (None, "length") => "stopped at the most tokens".to_owned(),
            (None, _) => "complete".to_owned(),
        },
        if sampling.temperature > 0.0 { format!("; seed {}", sampling.seed) } else { String::new() }
    ));
}

/// The chat template over a system and a user message.
fn render(model: &GgufModel, tokenizer: &Tokenizer, system: Option<&str>, user: &str) -> anyhow::Result<String> {
    let template = chat_template(model.metadata(), tokenizer).map_err(|why| anyhow::anyhow!("chat template: {why}"))?;
    let Some(template) = template else {
        bail!("{} has no chat template: continue a text with --raw", model.path().display());
    };
    let mut messages = Vec::new();
    messages.extend(system.map(|system| json!({ "role": "system", "content": system })));
    messages.push(json!({ "role": "user", "content": user }));
    let now = chrono::Local::now().fixed_offset();
    Ok(template.render(&json!(messages), None, &Map::new(), true, now)?)
}

fn sampling(arguments: &SamplingArguments) -> anyhow::Result<Sampling> {
    let in_range = |name: &str, value: f32, range: std::ops::RangeInclusive<f32>| {
        ensure!(
            range.contains(&value),
            "--{name} {value}: a number from {} to {} is needed",
            range.start(),
            range.end()
        );
        Ok(value)
    };
    let seed = arguments.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
    });
    Ok(Sampling {
        temperature: in_range("temperature", arguments.temperature, 0.0..=100.0)?,
        top_k: arguments.top_k,
        top_p: in_range("top-p", arguments.top_p, f32::MIN_POSITIVE..=1.0)?,
        min_p: in_range("min-p", arguments.min_p, 0.0..=1.0)?,
        seed,
        repetition_penalty: in_range("repetition-penalty", arguments.repetition_penalty, 0.01..=100.0)?,
        presence_penalty: in_range("presence-penalty", arguments.presence_penalty, -100.0..=100.0)?,
        frequency_penalty: in_range("frequency-penalty", arguments.frequency_penalty, -100.0..=100.0)?,
        logit_bias: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_a_model_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\tc\nd\u{7}é"), "a[31mb\tc\ndé");
    }
}
