//! Chat templates, against Python's Jinja.
//!
//! `data/templates.json` is made by `tools/template-goldens.py`, which describes it.

use chrono::{DateTime, FixedOffset};
use memra_engine::chat::{ChatTemplate, TemplateError};
use serde_json::{Map, Value};

const GOLDENS: &str = include_str!("data/templates.json");

fn render(template: &ChatTemplate, given: &Value, now: DateTime<FixedOffset>) -> Result<String, TemplateError> {
    let none = Map::new();
    template.render(
        &given["messages"],
        given.get("tools"),
        given.get("extra").and_then(Value::as_object).unwrap_or(&none),
        given["add_generation_prompt"].as_bool().unwrap_or(false),
        now,
    )
}

#[test]
fn templates_render_as_in_python() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    let now = DateTime::parse_from_rfc3339(goldens["now"].as_str().unwrap()).unwrap();
    let templates: Map<String, Value> = goldens["templates"].as_object().unwrap().clone();
    let cases = goldens["cases"].as_array().unwrap();
    let conversations = goldens["conversations"].as_object().unwrap();
    assert!(cases.len() >= 150 && cases.len() == templates.len() * conversations.len());

    let mut faults = Vec::new();
    for (name, source) in &templates {
        let template = ChatTemplate::new(source.as_str().unwrap(), "<bos>", "<eos>").unwrap();
        for case in cases.iter().filter(|case| case["template"] == name.as_str()) {
            let conversation = case["conversation"].as_str().unwrap();
            let found = render(&template, &conversations[conversation], now);
            let right = match (&found, case["text"].as_str(), case["refused"].as_str()) {
                (Ok(text), Some(wanted), _) => text == wanted,
                (Err(TemplateError::Refused { message }), _, Some(wanted)) => message == wanted,
                (Err(TemplateError::Refused { .. } | TemplateError::TooMuch { .. }), _, _) => false,
                (Err(_), None, None) => true,
                _ => false,
            };
            if !right {
                let wanted =
                    ["text", "refused", "fails"].map(|key| &case[key]).into_iter().find(|value| !value.is_null());
                let found = found.map_err(|error| error.to_string());
                faults.push(format!("{name}, {conversation}:\n  found  {found:?}\n  wanted {wanted:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
