//! `engine-arm`: this engine as an arm of a workload cell, one JSON object a line.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use memra_engine::runner::Runner;
use serde::Deserialize;
use serde_json::{Value, json};

use super::workload::{Prepared, Workload};
use super::{Room, load, open};
use crate::cli::ModelArguments;

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request {
    Prepare { model: PathBuf, prompt: usize, generated: usize, depth: usize, threads: u16, seed: u64 },
    Wake,
    Sample,
    Idle,
    Peak,
    Stop,
}

/// Runs the command until its input ends.
///
/// # Errors
/// When stdout is gone.
pub fn run() -> anyhow::Result<u8> {
    let hello = json!({ "hello": { "name": format!("memra-lab {}", env!("CARGO_PKG_VERSION")), "about": [
        format!("profile {}", env!("MEMRA_BUILD_PROFILE")),
        format!("device {}", super::device(None)?),
    ] } });
    answer(&hello)?;
    let mut state = None;
    for line in std::io::stdin().lock().lines() {
        let request = match serde_json::from_str(&line?) {
            Ok(Request::Stop) => break,
            Ok(request) => request,
            Err(error) => {
                answer(&json!({ "error": error.to_string() }))?;
                continue;
            }
        };
        let reply = serve(&mut state, request).unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        answer(&reply)?;
    }
    Ok(0)
}

fn answer(value: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}

fn serve(state: &mut Option<(Runner, Prepared, Workload)>, request: Request) -> anyhow::Result<Value> {
    if let Request::Prepare { model, prompt, generated, depth, threads, seed } = request {
        *state = None;
        let workload = Workload { prompt, generated, depth };
        let arguments =
            ModelArguments { model: None, threads: Some(threads), tier: None, kernel: Vec::new(), chunk: 512 };
        let room = Room { wanted: 1, positions: workload.positions() };
        let mut runner = load(&open(&model)?, &arguments, &room)?;
        let prepared = Prepared::new(&mut runner, workload, seed)?;
        *state = Some((runner, prepared, workload));
        return Ok(json!({
            "ok": true, "prompt_tokens": prompt, "generated_tokens": generated, "depth_tokens": depth,
        }));
    }
    if let Request::Peak = request {
        return Ok(json!({ "peak_rss_bytes": peak_rss_bytes()? }));
    }
    let (runner, prepared, workload) = state.as_mut().context("nothing was prepared")?;
    Ok(match request {
        Request::Sample => {
            let (time, fold) = prepared.run(runner);
            json!({
                "elapsed_ns": time.as_nanos() as u64,
                "prompt_tokens": workload.prompt,
                "generated_tokens": workload.generated,
                "output_sha256": memra_ledger::canonical::sha256(&fold.to_le_bytes()),
            })
        }
        Request::Idle => {
            runner.park();
            json!({ "ok": true })
        }
        Request::Wake | Request::Prepare { .. } | Request::Peak | Request::Stop => json!({ "ok": true }),
    })
}

/// The most memory this process ever held, from the system.
fn peak_rss_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("the system does not say")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in the status")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM is no number")?;
    Ok(kilobytes * 1024)
}
