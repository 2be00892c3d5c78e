//! `POST /v1/completions`: prompts as they are.

use serde_json::Value;

use super::chat::tokenise;
use super::error::ApiError;
use super::fields::{Fields, kind};
use super::job::Job;
use super::neutral;
use super::options::ServeModel;
use super::params::{self, Params};
use super::reply::Kind;
use super::state::State;

/// Reads, checks and tokenises a request.
pub(super) fn prepare(state: &State, body: &Value) -> Result<Job, ApiError> {
    let model = &state.model;
    let fields = Fields::of_body(body)?;
    params::check_model(fields, model)?;
    neutral::check(fields, false)?;
    fields.refuse_unknown(&[params::NAMES, &["prompt"], &neutral::names()])?;
    let params = Params::read(fields, &state.options.defaults, model.config.vocab)?;
    Ok(Job { kind: Kind::Completion, params, prompts: prompts(model, fields)? })
}

/// A string, token ids, or a list of either.
fn prompts(model: &ServeModel, fields: Fields<'_>) -> Result<Vec<Vec<u32>>, ApiError> {
    const WANTED: &str = "a string, an array of strings, an array of token ids or an array of arrays of token ids";
    let refuse = |message: String| ApiError::field("prompt", message);
    let list = match fields.get("prompt") {
        None => return Err(refuse("`prompt` is missing".to_owned())),
        Some(Value::String(text)) => return Ok(vec![tokenise(model, text, "prompt")?]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(refuse(format!("`prompt` is {}, not {WANTED}", kind(other)))),
    };
    match list.first() {
        None => Err(refuse("`prompt` is an empty array".to_owned())),
        Some(Value::Number(_)) => Ok(vec![ids(list, "prompt", "prompt")?]),
        Some(_) => list
            .iter()
            .enumerate()
            .map(|(index, prompt)| match prompt {
                Value::String(text) => tokenise(model, text, "prompt"),
                Value::Array(list) => ids(list, "prompt", &format!("prompt[{index}]")),
                other => Err(refuse(format!("`prompt[{index}]` is {}; a prompt is {WANTED}", kind(other)))),
            })
            .collect(),
    }
}

/// Token ids; whether the vocabulary has them is checked later. `path` says where they stand in the request.
pub(super) fn ids(list: &[Value], field: &str, path: &str) -> Result<Vec<u32>, ApiError> {
    list.iter()
        .enumerate()
        .map(|(index, id)| {
            id.as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| ApiError::field(field, format!("`{path}[{index}]` is {}, not a token id", kind(id))))
        })
        .collect()
}
