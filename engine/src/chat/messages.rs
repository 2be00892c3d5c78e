//! Messages as callers send them, to messages as templates read them.

use serde_json::{Map, Value};

/// A list of messages that is not one; names the message and the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// There are no messages.
    #[error("messages is empty")]
    Empty,
    /// A field is missing.
    #[error("{field} is missing")]
    Missing {
        /// The field, such as `messages[2].role`.
        field: String,
    },
    /// A field holds something of another type.
    #[error("{field} is {found}, not {wanted}")]
    Type {
        /// The field, such as `messages[2].content`.
        field: String,
        /// What is there.
        found: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
    /// A part of a content is of a kind that is not known.
    #[error("{field} is \"{found}\"; known is \"text\"")]
    Part {
        /// The field, such as `messages[2].content[0].type`.
        field: String,
        /// The kind.
        found: String,
    },
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn text<'a>(object: &'a Map<String, Value>, path: &str, key: &str) -> Result<&'a str, MessageError> {
    let field = || format!("{path}.{key}");
    match object.get(key) {
        None => Err(MessageError::Missing { field: field() }),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(MessageError::Type { field: field(), found: kind(other), wanted: "a string" }),
    }
}

/// Checks `messages` and brings every content into one form: a string.
///
/// `messages` is an array of at least one object, each with a `role` that is a string. A `content` may be a string; null
/// or missing, which is the empty string; or an array of parts `{"type": "text", "text": ...}`, whose texts are joined
/// without anything between them. Other fields (`tool_calls`, `name`, `tool_call_id`, `reasoning_content` ...) stay as
/// they are, but for those that are null, which are left out: templates ask whether they are there.
///
/// # Errors
///
/// The first thing that is not so, with the index of the message and the field.
pub fn normalise_messages(messages: &Value) -> Result<Value, MessageError> {
    let Value::Array(list) = messages else {
        let field = "messages".to_owned();
        return Err(MessageError::Type { field, found: kind(messages), wanted: "an array" });
    };
    if list.is_empty() {
        return Err(MessageError::Empty);
    }
    let normalised: Result<Vec<Value>, MessageError> =
        list.iter().enumerate().map(|(index, message)| normalise(message, &format!("messages[{index}]"))).collect();
    normalised.map(Value::Array)
}

fn normalise(message: &Value, path: &str) -> Result<Value, MessageError> {
    let Value::Object(message) = message else {
        let field = path.to_owned();
        return Err(MessageError::Type { field, found: kind(message), wanted: "an object" });
    };
    text(message, path, "role")?;
    let field = format!("{path}.content");
    let content = match message.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let mut joined = String::new();
            for (index, part) in parts.iter().enumerate() {
                joined.push_str(part_text(part, &format!("{field}[{index}]"))?);
            }
            joined
        }
        Some(other) => {
            let wanted = "a string, null or an array of parts";
            return Err(MessageError::Type { field, found: kind(other), wanted });
        }
    };
    let mut message = message.clone();
    message.retain(|_, value| !value.is_null());
    message.insert("content".to_owned(), Value::String(content));
    Ok(Value::Object(message))
}

fn part_text<'a>(part: &'a Value, path: &str) -> Result<&'a str, MessageError> {
    let Value::Object(part) = part else {
        return Err(MessageError::Type { field: path.to_owned(), found: kind(part), wanted: "an object" });
    };
    match text(part, path, "type")? {
        "text" => text(part, path, "text"),
        other => Err(MessageError::Part { field: format!("{path}.type"), found: other.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_content_becomes_a_string_and_the_rest_stays() {
        let calls = json!([{"function": {"name": "f", "arguments": "{}"}}]);
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": calls},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
            {"role": "assistant", "tool_calls": null},
        ]);
        assert_eq!(
            normalise_messages(&messages).unwrap(),
            json!([
                {"role": "user", "content": "ab"},
                {"role": "assistant", "content": "", "tool_calls": calls},
                {"role": "tool", "content": "42", "tool_call_id": "1"},
                {"role": "assistant", "content": ""},
            ])
        );
    }

    #[test]
    fn a_fault_names_message_and_field() {
        let fault = |messages: Value| normalise_messages(&messages).unwrap_err().to_string();
        assert_eq!(fault(json!({"role": "user"})), "messages is an object, not an array");
        assert_eq!(fault(json!([])), "messages is empty");
        assert_eq!(fault(json!(["hi"])), "messages[0] is a string, not an object");
        let first = json!({"role": "user", "content": "x"});
        assert_eq!(fault(json!([first, {"content": "x"}])), "messages[1].role is missing");
        assert_eq!(fault(json!([first, {"role": 1}])), "messages[1].role is a number, not a string");
        assert_eq!(
            fault(json!([first, {"role": "user", "content": 7}])),
            "messages[1].content is a number, not a string, null or an array of parts"
        );
        assert_eq!(
            fault(json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])),
            "messages[0].content[0].type is \"image_url\"; known is \"text\""
        );
        assert_eq!(
            fault(json!([{"role": "user", "content": [{"type": "text"}]}])),
            "messages[0].content[0].text is missing"
        );
        assert_eq!(
            fault(json!([{"role": "user", "content": [1]}])),
            "messages[0].content[0] is a number, not an object"
        );
    }
}
