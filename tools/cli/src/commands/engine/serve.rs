//! `serve`: a model over HTTP, until SIGTERM or an interrupt.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use memra_engine::chat::ChatTemplate;
use memra_engine::schedule::{Engine, EngineOptions};
use memra_engine::serve::{ServeModel, ServeOptions, serve};
use tokio::net::TcpListener;

use super::{Room, load, model_file, open};
use crate::cli::ServeArguments;
use crate::ui;

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded or the address is taken.
pub fn run(arguments: &ServeArguments) -> anyhow::Result<u8> {
    let file = model_file(arguments.file.as_deref().or(arguments.model.model.as_deref()))?;
    let model = open(&file)?;
    let context = memra_engine::arch::ModelConfig::read(&model)?.context;
    anyhow::ensure!(
        arguments.ctx_size <= context,
        "--ctx-size {}: the model was trained for {context} positions",
        arguments.ctx_size
    );
    let max_positions = if arguments.ctx_size == 0 { context } else { arguments.ctx_size };
    let parallel = usize::from(arguments.parallel);
    let positions = arguments.cache_positions.unwrap_or(max_positions.saturating_mul(parallel.min(4)));
    anyhow::ensure!(
        positions >= max_positions,
        "--cache-positions {positions}: a request of {max_positions} positions does not fit"
    );
    let runner = load(&model, &arguments.model, &Room { wanted: parallel, positions })?;
    let (config, program) = (runner.config().clone(), runner.plan().program.clone());
    let (threads, cache_bytes) = (runner.threads(), positions * config.kv_bytes_per_position());
    let engine = Arc::new(Engine::start(
        runner,
        EngineOptions {
            max_sequences: parallel,
            max_queue: arguments.max_queue,
            max_positions,
            mixed_rows: arguments.mixed_rows,
        },
    )?);
    let mut served = ServeModel::read(&model, engine.clone(), config, program.clone())?;
    drop(model);
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut names = arguments.alias.iter().cloned();
    served.name = names.next().unwrap_or(stem);
    served.aliases = names.collect();
    served.any_model = arguments.any_model;
    if let Some(file) = &arguments.chat_template_file {
        served.template = Some(template(file, &served)?);
    }
    let options =
        ServeOptions { drain_timeout: Duration::from_secs(arguments.drain_timeout), ..ServeOptions::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let address = format!("{}:{}", arguments.host, arguments.port);
        let listener = TcpListener::bind(&address).await.with_context(|| format!("address {address}"))?;
        ui::say(format_args!(
            "serving {} at http://{}/v1 on {threads} threads, program {program}; {parallel} sequences, a cache of \
             {positions} positions, at most {:.1} MB",
            served.name,
            listener.local_addr()?,
            cache_bytes as f64 / 1e6
        ));
        serve(listener, served, options, stopped()).await.context("the server")
    })?;
    engine.join();
    ui::say(format_args!("drained"));
    Ok(0)
}

fn template(file: &Path, served: &ServeModel) -> anyhow::Result<ChatTemplate> {
    let source = std::fs::read_to_string(file).with_context(|| format!("chat template {}", file.display()))?;
    ChatTemplate::with_tokenizer(&source, &served.tokenizer)
        .with_context(|| format!("chat template {}", file.display()))
}

/// Until an interrupt or SIGTERM.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            ui::say(format_args!("draining"));
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
    ui::say(format_args!("draining"));
}
