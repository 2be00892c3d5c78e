//! JSON values as values of the template language.

use minijinja::Value;

/// The value, with the keys of objects in their order.
pub(super) fn from_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => Value::from(signed),
            (None, Some(unsigned)) => Value::from(unsigned),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}
