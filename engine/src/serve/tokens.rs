//! `POST /tokenize` and `POST /detokenize`.

use serde_json::{Value, json};

use super::completion::ids;
use super::error::ApiError;
use super::fields::Fields;
use super::state::State;

/// Text to token ids. `content` and `prompt` are two names for the text.
pub(super) fn tokenize(state: &State, body: &Value) -> Result<Value, ApiError> {
    let fields = Fields::of_body(body)?;
    fields.refuse_unknown(&[&["model", "content", "prompt", "add_special", "parse_special", "with_pieces"]])?;
    let text = match (fields.text("content")?, fields.text("prompt")?) {
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => return Err(ApiError::field("content", "`content` is missing")),
        (Some(_), Some(_)) => {
            return Err(ApiError::field("prompt", "`content` and `prompt` are the same; give one of them"));
        }
    };
    let tokenizer = &state.model.tokenizer;
    let parses = fields.boolean("parse_special")?.unwrap_or(true);
    let adds = fields.boolean("add_special")?.unwrap_or(false);
    let tokens = if adds { tokenizer.encode_prompt(text, parses) } else { tokenizer.encode(text, parses) };
    let tokens = tokens.map_err(|error| ApiError::field("content", error.to_string()))?;
    let count = tokens.len();
    let tokens: Vec<Value> = if fields.boolean("with_pieces")?.unwrap_or(false) {
        // A piece that is not text on its own is given as its bytes.
        let piece = |id: u32| {
            let bytes = tokenizer.piece(id).unwrap_or_default();
            std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
        };
        tokens.into_iter().map(|id| json!({ "id": id, "piece": piece(id) })).collect()
    } else {
        tokens.into_iter().map(Value::from).collect()
    };
    let limit = state.model.engine.options().max_positions;
    Ok(json!({ "tokens": tokens, "count": count, "max_model_len": limit }))
}

/// Token ids to text, control tokens included.
pub(super) fn detokenize(state: &State, body: &Value) -> Result<Value, ApiError> {
    let fields = Fields::of_body(body)?;
    fields.refuse_unknown(&[&["model", "tokens"]])?;
    let list = fields.list("tokens")?.ok_or_else(|| ApiError::field("tokens", "`tokens` is missing"))?;
    let ids = ids(list, "tokens", "tokens")?;
    let tokenizer = &state.model.tokenizer;
    if let Some(unknown) = ids.iter().find(|id| tokenizer.piece(**id).is_none()) {
        let message =
            format!("`tokens` has {unknown}, which is not one of the vocabulary's {}", tokenizer.vocab_size());
        return Err(ApiError::field("tokens", message));
    }
    let text = tokenizer.decode(&ids, true);
    Ok(json!({ "content": text, "prompt": text }))
}
