//! `POST /v1/chat/completions`: messages to a prompt.

use chrono::Utc;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::Fields;
use super::job::Job;
use super::neutral;
use super::options::ServeModel;
use super::params::{self, Params};
use super::reply::Kind;
use super::state::State;
use crate::chat::{ChatTemplate, TemplateError, normalise_messages};

/// Fields of chat requests beside the common ones.
const NAMES: &[&str] = &["messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"];

/// Roles of messages. `developer` is another word for `system`.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Stands where the text to be continued goes, so that what a template puts after it can be cut off.
const MARK: &str = "CONTINUED7f3a9c51e0b24d86";

/// Reads, checks, renders and tokenises a request.
pub(super) fn prepare(state: &State, body: &Value) -> Result<Job, ApiError> {
    let model = &state.model;
    let fields = Fields::of_body(body)?;
    params::check_model(fields, model)?;
    neutral::check(fields, true)?;
    fields.refuse_unknown(&[params::NAMES, NAMES, &neutral::names()])?;
    let params = Params::read(fields, &state.options.defaults, model.config.vocab)?;
    let continues = fields.boolean("continue_final_message")?.unwrap_or(false);
    let adds_prompt = fields.boolean("add_generation_prompt")?;
    if continues && adds_prompt == Some(true) {
        let message = "`continue_final_message` and `add_generation_prompt` cannot both be true";
        return Err(ApiError::field("continue_final_message", message));
    }
    let extra = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    let messages = messages(fields)?;
    let Some(template) = &model.template else {
        return Err(ApiError::not_supported("this model has no chat template; use /v1/completions"));
    };
    let text = if continues {
        continued(template, messages, &extra)?
    } else {
        render(template, &messages, &extra, adds_prompt.unwrap_or(true))?
    };
    let prompt = tokenise(model, &text, "messages")?;
    Ok(Job { kind: Kind::Chat, params, prompts: vec![prompt] })
}

/// Token ids of a prompt; texts of control tokens become these tokens.
pub(super) fn tokenise(model: &ServeModel, text: &str, field: &str) -> Result<Vec<u32>, ApiError> {
    model.tokenizer.encode_prompt(text, true).map_err(|error| ApiError::field(field, error.to_string()))
}

/// The messages in the form that templates read.
fn messages(fields: Fields<'_>) -> Result<Value, ApiError> {
    let Some(messages) = fields.get("messages") else {
        return Err(ApiError::field("messages", "`messages` is missing"));
    };
    let mut messages = normalise_messages(messages).map_err(|error| ApiError::field("messages", error.to_string()))?;
    for (index, message) in messages.as_array_mut().into_iter().flatten().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if !ROLES.contains(&role) {
            let role: String = role.chars().take(64).collect();
            let message = format!("`messages[{index}].role` is \"{role}\"; known are {}", ROLES.join(", "));
            return Err(ApiError::field("messages", message));
        }
        if role == "developer"
            && let Some(role) = message.get_mut("role")
        {
            *role = Value::from("system");
        }
    }
    Ok(messages)
}

fn render(
    template: &ChatTemplate,
    messages: &Value,
    extra: &Map<String, Value>,
    adds_prompt: bool,
) -> Result<String, ApiError> {
    template.render(messages, None, extra, adds_prompt, Utc::now().fixed_offset()).map_err(|error| match error {
        TemplateError::Syntax { .. } | TemplateError::Broken { .. } => ApiError::not_supported(error.to_string()),
        _ => ApiError::field("messages", error.to_string()),
    })
}

/// A prompt that ends with the text of the last message, without what ends a turn.
fn continued(template: &ChatTemplate, mut messages: Value, extra: &Map<String, Value>) -> Result<String, ApiError> {
    let refuse = |why: &str| ApiError::field("continue_final_message", format!("`continue_final_message`: {why}"));
    let last = messages.as_array_mut().and_then(|list| list.last_mut()).and_then(Value::as_object_mut);
    let Some(last) = last.filter(|last| last.get("role").and_then(Value::as_str) == Some("assistant")) else {
        return Err(refuse("the last message is not the assistant's"));
    };
    let text = match last.insert("content".to_owned(), Value::from(MARK)) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let rendered = render(template, &messages, extra, false)?;
    match rendered.rfind(MARK).and_then(|at| rendered.get(..at)) {
        Some(before) => Ok(format!("{before}{text}")),
        None => Err(refuse("the chat template leaves the last message out")),
    }
}
