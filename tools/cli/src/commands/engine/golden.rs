//! `gen --check`: the engine against itself, bit by bit, and against an oracle's greedy answers.

use std::path::Path;

use anyhow::{Context as _, ensure};
use memra_artifact::GgufModel;
use memra_engine::exactness::{self, Finding};
use memra_engine::plan::{Batch, Chunk, Wanted};
use memra_engine::runner::Runner;
use serde::{Deserialize, Serialize};

use super::{Room, load};
use crate::cli::GenArguments;
use crate::ui;

/// Exit code of a check that failed.
const EXIT_GATE: u8 = 14;
/// Most tokens of an answer that is compared bit by bit.
const ANSWER: usize = 32;
/// Standard deviations that an agreement may lie below what another right implementation reaches.
const DEVIATIONS: f64 = 2.0;
/// How much wider a gap may be overcome than another right implementation overcomes.
const WIDER: f32 = 2.0;

/// Greedy answers of an oracle, as `tools/greedy-goldens.py` writes them.
#[derive(Debug, Deserialize)]
struct Golden {
    llama_cpp: serde_json::Value,
    model: GoldenModel,
    llama_cpp_in_one_batch: Noise,
    dequantised_model: Noise,
    prompts: Vec<GoldenPrompt>,
}

/// How far another right implementation agrees with the golden. Quantising activations to eight bits turns any difference in
/// rounding into other quants, so that even the oracle does not agree with itself when it reads the same tokens in one batch.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Noise {
    tokens: usize,
    agreeing: usize,
    widest_gap_overcome: f32,
}

#[derive(Debug, Deserialize)]
struct GoldenModel {
    sha256: String,
}

#[derive(Debug, Deserialize)]
struct GoldenPrompt {
    name: String,
    prompt_ids: Vec<u32>,
    generated: Vec<u32>,
    gap: Vec<f32>,
}

#[derive(Serialize)]
struct Report {
    program: String,
    threads: usize,
    exactness: Vec<Finding>,
    agreement: Option<Agreement>,
    passed: usize,
    failed: usize,
}

#[derive(Serialize, Default)]
struct Agreement {
    oracle: serde_json::Value,
    prompts: usize,
    tokens: usize,
    agreeing: usize,
    /// Fewest that must agree.
    needed: usize,
    /// Widest lead of the oracle's choice that may be overcome, in nats.
    widest_gap_allowed: f32,
    disagreements: Vec<Disagreement>,
}

#[derive(Serialize)]
struct Disagreement {
    prompt: String,
    place: usize,
    oracle: u32,
    ours: u32,
    oracle_gap: f32,
}

/// Runs the checks.
///
/// # Errors
/// When the golden file is of another model, or does not fit.
pub(super) fn check(model: &GgufModel, arguments: &GenArguments, tokens: &[u32]) -> anyhow::Result<u8> {
    let golden = arguments.golden.as_deref().map(|file| read(model, file)).transpose()?;
    let answer = arguments.max_tokens.clamp(1, ANSWER);
    let half = &tokens[..tokens.len().div_ceil(2)];
    let prompts = [tokens, half, &tokens[..1]];
    let longest = golden.iter().flat_map(|golden| &golden.prompts).map(|p| p.prompt_ids.len() + p.generated.len());
    let longest = longest.max().unwrap_or(0);
    let positions = (3 * (tokens.len() + answer).next_multiple_of(64)).max(longest);
    let mut runner = load(model, &arguments.model, &Room { wanted: 64, positions })?;
    let (_, findings) = exactness::check(&mut runner, &prompts, answer)?;
    let agreement = golden.map(|golden| agree(&mut runner, golden)).transpose()?;
    let mut report = Report {
        program: runner.plan().program.clone(),
        threads: runner.threads(),
        passed: findings.iter().filter(|finding| finding.is_equal()).count(),
        failed: findings.iter().filter(|finding| !finding.is_equal()).count(),
        exactness: findings,
        agreement,
    };
    if let Some(agreement) = &report.agreement {
        if agreement.holds() {
            report.passed += 1;
        } else {
            report.failed += 1;
        }
    }
    if arguments.json {
        ui::print_json(&report)?;
    } else {
        report.print()?;
    }
    Ok(if report.failed == 0 { 0 } else { EXIT_GATE })
}

fn read(model: &GgufModel, file: &Path) -> anyhow::Result<Golden> {
    let text = std::fs::read_to_string(file).with_context(|| format!("golden {}", file.display()))?;
    let golden: Golden = serde_json::from_str(&text).with_context(|| format!("golden {}", file.display()))?;
    let bytes = std::fs::read(model.path()).with_context(|| format!("model {}", model.path().display()))?;
    let digest = memra_ledger::canonical::sha256(&bytes).to_string();
    ensure!(
        golden.model.sha256 == digest,
        "golden {} was made for the model {}, and {} is {digest}",
        file.display(),
        golden.model.sha256,
        model.path().display()
    );
    for prompt in &golden.prompts {
        ensure!(
            !prompt.prompt_ids.is_empty() && prompt.gap.len() == prompt.generated.len(),
            "golden {}: prompt `{}` is not complete",
            file.display(),
            prompt.name
        );
    }
    Ok(golden)
}

/// The oracle's own tokens are read, and after each the most likely next one is compared with its choice.
fn agree(runner: &mut Runner, golden: Golden) -> anyhow::Result<Agreement> {
    let tokens: usize = golden.prompts.iter().map(|prompt| prompt.generated.len()).sum();
    let noises = [golden.llama_cpp_in_one_batch, golden.dequantised_model];
    let mut agreement = Agreement {
        oracle: golden.llama_cpp,
        needed: noises.iter().map(|noise| noise.needed(tokens)).min().unwrap_or(tokens),
        widest_gap_allowed: noises.iter().map(|noise| noise.widest_gap_overcome * WIDER).fold(0.0, f32::max),
        ..Agreement::default()
    };
    let (vocab, context) = (runner.config().vocab, runner.config().context);
    for prompt in golden.prompts {
        let read = prompt.prompt_ids.len();
        let tokens = [prompt.prompt_ids, prompt.generated.clone()].concat();
        ensure!(tokens.len() <= context, "prompt `{}` is longer than the model's context", prompt.name);
        ensure!(tokens.iter().all(|token| (*token as usize) < vocab), "prompt `{}` has foreign tokens", prompt.name);
        let table = runner.admit(tokens.len()).context("the cache has no room")?;
        let mut chosen = Vec::new();
        let mut first = 0;
        while first < tokens.len() - 1 {
            let end = (first + runner.plan().max_wanted.min(runner.plan().max_rows)).min(tokens.len() - 1);
            let chunk =
                Chunk { pages: table.pages(), first_position: first, tokens: &tokens[first..end], wanted: Wanted::All };
            runner.step(&Batch { chunks: &[chunk] });
            chosen.extend((first..end).map(|row| runner.best(row - first)));
            first = end;
        }
        runner.release(table);
        agreement.prompts += 1;
        for (place, (oracle, gap)) in prompt.generated.iter().zip(&prompt.gap).enumerate() {
            let ours = chosen[read + place - 1];
            agreement.tokens += 1;
            if ours == *oracle {
                agreement.agreeing += 1;
            } else {
                agreement.disagreements.push(Disagreement {
                    prompt: prompt.name.clone(),
                    place,
                    oracle: *oracle,
                    ours,
                    oracle_gap: *gap,
                });
            }
        }
    }
    Ok(agreement)
}

impl Noise {
    /// Of so many tokens the fewest that must agree: as many as this implementation's, less [`DEVIATIONS`] standard deviations
    /// of the difference of two such counts.
    fn needed(self, tokens: usize) -> usize {
        let share = self.agreeing as f64 / self.tokens.max(1) as f64;
        let deviation = (2.0 * tokens as f64 * share * (1.0 - share)).sqrt();
        (tokens as f64 * share - DEVIATIONS * deviation).floor().max(0.0) as usize
    }
}

impl Agreement {
    fn share(&self) -> f64 {
        self.agreeing as f64 / self.tokens.max(1) as f64
    }

    fn holds(&self) -> bool {
        let is_close = |d: &Disagreement| d.oracle_gap <= self.widest_gap_allowed;
        self.tokens > 0 && self.agreeing >= self.needed && self.disagreements.iter().all(is_close)
    }
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        ui::print(format_args!("program {}, {} threads", self.program, self.threads))?;
        for finding in &self.exactness {
            let batch =
                if finding.batch > 1 { format!(", {} sequences in a step", finding.batch) } else { String::new() };
            ui::print(match finding.differs_at {
                None => format!("passed  {}: {} rows of logits, equal bits{batch}", finding.what, finding.rows),
                Some(row) => format!("FAILED  {}: row {row} differs{batch}", finding.what),
            })?;
        }
        if let Some(agreement) = &self.agreement {
            ui::print(format_args!(
                "{}  most likely token: {} of {} agree with the oracle over {} prompts ({:.2} %); {} are needed, and no lead \
                 over {:.3} nat may be overcome",
                if agreement.holds() { "passed" } else { "FAILED" },
                agreement.agreeing,
                agreement.tokens,
                agreement.prompts,
                agreement.share() * 100.0,
                agreement.needed,
                agreement.widest_gap_allowed
            ))?;
            for d in &agreement.disagreements {
                ui::print(format_args!(
                    "        {} token {}: the oracle took {} over the next by {:.4} nat, this engine {}",
                    d.prompt, d.place, d.oracle, d.oracle_gap, d.ours
                ))?;
            }
        }
        ui::print(format_args!("{} passed, {} failed", self.passed, self.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_follows_from_the_noise() {
        let noise = Noise { tokens: 1000, agreeing: 970, widest_gap_overcome: 0.3 };
        assert_eq!(noise.needed(1000), 954);
        assert_eq!(Noise { agreeing: 1000, ..noise }.needed(500), 500);
        let holds = |agreeing, oracle_gap| {
            let disagreement = Disagreement { prompt: String::new(), place: 0, oracle: 1, ours: 2, oracle_gap };
            let (needed, disagreements) = (954, vec![disagreement]);
            Agreement {
                tokens: 1000,
                agreeing,
                needed,
                widest_gap_allowed: 0.45,
                disagreements,
                ..Agreement::default()
            }
            .holds()
        };
        assert!(holds(954, 0.45) && !holds(953, 0.1) && !holds(999, 0.46));
        assert!(!Agreement::default().holds(), "nothing compared is nothing shown");
    }
}
