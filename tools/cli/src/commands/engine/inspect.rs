//! `model inspect`: what a model file holds.

use std::collections::BTreeMap;

use memra_artifact::GgufModel;
use memra_engine::arch::ModelConfig;
use serde_json::{Value, json};

use super::{model_file, open};
use crate::cli::ModelCommand;
use crate::ui;

/// Runs the command. A file that this engine cannot run is inspected all the same, and the reason is said.
///
/// # Errors
/// When the file is no GGUF file.
pub fn run(command: &ModelCommand) -> anyhow::Result<u8> {
    let ModelCommand::Inspect { model, tensors, json } = command;
    let model = open(&model_file(model.as_deref())?)?;
    let config = ModelConfig::read(&model);
    if *json {
        ui::print_json(&describe(&model, &config, *tensors))?;
        return Ok(0);
    }
    print(&model, &config)?;
    if *tensors {
        let rows = model
            .tensors()
            .map(|tensor| {
                let info = tensor.info();
                vec![
                    info.name().to_owned(),
                    info.format().to_string(),
                    format!("{:?}", info.dims()),
                    info.byte_len().to_string(),
                ]
            })
            .collect();
        ui::print("")?;
        ui::print(ui::table(&["tensor", "format", "shape", ">bytes"], rows))?;
    }
    Ok(0)
}

type Config = Result<ModelConfig, memra_engine::LoadError>;

/// Tensors and bytes by format.
fn formats(model: &GgufModel) -> BTreeMap<&'static str, (u64, u64)> {
    let mut formats = BTreeMap::new();
    for tensor in model.tensors() {
        let entry = formats.entry(tensor.info().format().name).or_insert((0, 0));
        *entry = (entry.0 + 1, entry.1 + tensor.info().byte_len());
    }
    formats
}

fn text(model: &GgufModel, key: &str) -> Option<String> {
    model.metadata().optional_str(key).ok().flatten().map(str::to_owned)
}

fn describe(model: &GgufModel, config: &Config, tensors: bool) -> Value {
    let list: Vec<Value> = model
        .tensors()
        .map(|tensor| {
            let info = tensor.info();
            json!({ "name": info.name(), "format": info.format().name, "shape": info.dims(), "bytes": info.byte_len() })
        })
        .collect();
    json!({
        "file": model.path().file_name().map(|name| name.to_string_lossy()),
        "shards": model.shards().len(),
        "bytes": model.total_len(),
        "architecture": text(model, "general.architecture"),
        "name": text(model, "general.name"),
        "tensors": model.len(),
        "formats": formats(model).into_iter().map(|(format, (tensors, bytes))| json!({
            "format": format, "tensors": tensors, "bytes": bytes })).collect::<Vec<_>>(),
        "parameters": model.tensors().map(|tensor| tensor.info().elems()).sum::<u64>(),
        "tokenizer": { "model": text(model, "tokenizer.ggml.model"), "pre": text(model, "tokenizer.ggml.pre") },
        "has_chat_template": text(model, "tokenizer.chat_template").is_some(),
        "config": config.as_ref().ok().map(|config| json!({
            "layers": config.layers, "hidden": config.hidden, "ffn": config.ffn, "heads": config.heads,
            "kv_heads": config.kv_heads, "head_dim": config.head_dim, "vocab": config.vocab,
            "context": config.context, "is_tied": config.is_tied, "rope_base": config.rope.base,
            "cache_bytes_per_position": config.kv_bytes_per_position(),
        })),
        "not_supported": config.as_ref().err().map(ToString::to_string),
        "tensor_list": tensors.then_some(list),
    })
}

fn print(model: &GgufModel, config: &Config) -> anyhow::Result<()> {
    let mut rows = vec![
        ("file", model.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()),
        ("name", text(model, "general.name").unwrap_or_default()),
        ("architecture", text(model, "general.architecture").unwrap_or_default()),
        ("size", format!("{:.2} MB in {} tensors", model.total_len() as f64 / 1e6, model.len())),
        ("parameters", format!("{:.2} M", model.tensors().map(|t| t.info().elems()).sum::<u64>() as f64 / 1e6)),
    ];
    for (format, (tensors, bytes)) in formats(model) {
        rows.push(("", format!("{format}: {tensors} tensors, {:.2} MB", bytes as f64 / 1e6)));
    }
    match config {
        Ok(config) => rows.extend([
            ("layers", format!("{} of width {}, network {}", config.layers, config.hidden, config.ffn)),
            (
                "attention",
                format!(
                    "{} query heads over {} key and value heads of {}",
                    config.heads, config.kv_heads, config.head_dim
                ),
            ),
            ("rope", format!("base {}, {} elements a head", config.rope.base, config.rope.n_rot)),
            ("vocabulary", format!("{}{}", config.vocab, if config.is_tied { ", head tied to it" } else { "" })),
            (
                "context",
                format!("{} positions, {} bytes of cache each", config.context, config.kv_bytes_per_position()),
            ),
        ]),
        Err(error) => rows.push(("not supported", error.to_string())),
    }
    rows.push((
        "tokenizer",
        format!(
            "{} {}",
            text(model, "tokenizer.ggml.model").unwrap_or_default(),
            text(model, "tokenizer.ggml.pre").unwrap_or_default()
        ),
    ));
    let has_template = text(model, "tokenizer.chat_template").is_some();
    rows.push(("chat template", if has_template { "yes" } else { "none" }.to_owned()));
    ui::print(ui::table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()))
}
