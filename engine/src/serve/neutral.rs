//! Fields of the OpenAI interface, and of its common extensions, that this server does not act on.
//!
//! Those that could change an answer are refused unless their value asks for nothing. Those that cannot are checked for
//! their type and left alone.

use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;

/// The type of a field, with the value that asks for nothing.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Bool(bool),
    Number(f64),
    Text(&'static [&'static str]),
    List(&'static [&'static str]),
    Object,
    /// An object whose `type` is `text`.
    Format,
    /// A string or an object; nothing but one of these strings asks for nothing.
    Choice(&'static [&'static str]),
}

/// Fields that could change an answer.
const REFUSED: &[(&str, Kind)] = &[
    ("logprobs", Kind::Bool(false)),
    ("top_logprobs", Kind::Number(0.0)),
    ("prompt_logprobs", Kind::Number(f64::NAN)),
    ("tools", Kind::List(&[])),
    ("tool_choice", Kind::Choice(&["none", "auto"])),
    ("functions", Kind::List(&[])),
    ("function_call", Kind::Choice(&["none", "auto"])),
    ("response_format", Kind::Format),
    ("structured_outputs", Kind::Object),
    ("json_schema", Kind::Object),
    ("grammar", Kind::Text(&[""])),
    ("guided_json", Kind::Object),
    ("guided_regex", Kind::Text(&[""])),
    ("guided_grammar", Kind::Text(&[""])),
    ("guided_choice", Kind::List(&[])),
    ("modalities", Kind::List(&["text"])),
    ("audio", Kind::Object),
    ("prediction", Kind::Object),
    ("web_search_options", Kind::Object),
    ("reasoning_effort", Kind::Text(&[])),
    ("verbosity", Kind::Text(&["medium"])),
    ("best_of", Kind::Number(1.0)),
    ("suffix", Kind::Text(&[""])),
    ("echo", Kind::Bool(false)),
    ("min_tokens", Kind::Number(0.0)),
    ("length_penalty", Kind::Number(1.0)),
    ("use_beam_search", Kind::Bool(false)),
    ("stop_token_ids", Kind::List(&[])),
    ("bad_words", Kind::List(&[])),
    ("allowed_token_ids", Kind::List(&[])),
    ("include_stop_str_in_output", Kind::Bool(false)),
    ("skip_special_tokens", Kind::Bool(true)),
    ("truncate_prompt_tokens", Kind::Number(f64::NAN)),
    ("return_token_ids", Kind::Bool(false)),
    ("priority", Kind::Number(0.0)),
    ("typical_p", Kind::Number(1.0)),
    ("tfs_z", Kind::Number(1.0)),
    ("mirostat", Kind::Number(0.0)),
    ("dynatemp_range", Kind::Number(0.0)),
    ("xtc_probability", Kind::Number(0.0)),
    ("dry_multiplier", Kind::Number(0.0)),
    ("documents", Kind::List(&[])),
    ("chat_template", Kind::Text(&[])),
];

/// Fields that cannot change an answer.
const IRRELEVANT: &[(&str, Kind)] = &[
    ("user", Kind::Text(&[])),
    ("store", Kind::Bool(false)),
    ("metadata", Kind::Object),
    ("parallel_tool_calls", Kind::Bool(false)),
    ("service_tier", Kind::Text(&[])),
    ("safety_identifier", Kind::Text(&[])),
    ("prompt_cache_key", Kind::Text(&[])),
    ("prompt_cache_retention", Kind::Text(&[])),
    ("cache_prompt", Kind::Bool(false)),
    ("request_id", Kind::Text(&[])),
    ("timings_per_token", Kind::Bool(false)),
];

impl Kind {
    fn has_type(self, value: &Value) -> bool {
        match self {
            Self::Bool(_) => value.is_boolean(),
            Self::Number(_) => value.is_number(),
            Self::Text(_) => value.is_string(),
            Self::List(_) => value.is_array(),
            Self::Object | Self::Format => value.is_object(),
            Self::Choice(_) => value.is_string() || value.is_object(),
        }
    }

    const fn wanted(self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Object | Self::Format => "an object",
            Self::Choice(_) => "a string or an object",
        }
    }

    /// Whether a value asks for nothing.
    fn is_neutral(self, value: &Value) -> bool {
        let is_one_of = |texts: &[&str], value: &Value| value.as_str().is_some_and(|text| texts.contains(&text));
        match self {
            Self::Bool(neutral) => value.as_bool() == Some(neutral),
            Self::Number(neutral) => value.as_f64() == Some(neutral),
            Self::Text(texts) | Self::Choice(texts) => is_one_of(texts, value),
            Self::List(texts) => value.as_array().is_some_and(|list| list.iter().all(|value| is_one_of(texts, value))),
            Self::Object => false,
            Self::Format => value.get("type").is_some_and(|format| is_one_of(&["text"], format)),
        }
    }
}

/// Checks every field of this file that a request has. `tools` may stand beside a `tool_choice` of `none`: then they are
/// not for this answer.
pub(super) fn check(fields: Fields<'_>, is_chat: bool) -> Result<(), ApiError> {
    let has_no_choice = fields.get("tool_choice").and_then(Value::as_str) == Some("none");
    for (name, kind) in REFUSED.iter().chain(IRRELEVANT) {
        let Some(value) = fields.get(name) else { continue };
        // The older interface counts the log-probabilities that it wants; 0 is one of the chosen token.
        let kind = if *name == "logprobs" && !is_chat { Kind::Number(f64::NAN) } else { *kind };
        if !kind.has_type(value) {
            let found = super::fields::kind(value);
            return Err(ApiError::field(name, format!("`{name}` is {found}, not {}", kind.wanted())));
        }
        let is_left_alone =
            IRRELEVANT.iter().any(|(irrelevant, _)| irrelevant == name) || has_no_choice && *name == "tools";
        if !is_left_alone && !kind.is_neutral(value) {
            return Err(ApiError::unsupported(name));
        }
    }
    Ok(())
}

/// Names of fields that are refused where they ask for something.
pub(super) fn refused() -> Vec<&'static str> {
    REFUSED.iter().map(|(name, _)| *name).collect()
}

/// Names of all fields of this file.
pub(super) fn names() -> Vec<&'static str> {
    REFUSED.iter().chain(IRRELEVANT).map(|(name, _)| *name).collect()
}
