//! Reading the fields of a request. Every fault names the field; `null` is as good as absent.

use serde_json::{Map, Value};

use super::error::ApiError;

/// The fields of a request, or of an object inside of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What stands before the names of the fields, such as `stream_options.`.
    path: &'static str,
}

/// Numbers that a field may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) least: f32,
    pub(super) most: f32,
    /// Whether `least` itself is not allowed.
    pub(super) is_open: bool,
}

impl Bounds {
    pub(super) const fn closed(least: f32, most: f32) -> Self {
        Self { least, most, is_open: false }
    }

    pub(super) const fn above(least: f32, most: f32) -> Self {
        Self { least, most, is_open: true }
    }

    fn holds(self, value: f32) -> bool {
        value <= self.most && if self.is_open { value > self.least } else { value >= self.least }
    }

    fn text(self) -> String {
        let Self { least, most, .. } = self;
        if self.is_open { format!("more than {least} and at most {most}") } else { format!("from {least} to {most}") }
    }
}

/// The type of a value, as it is told to a caller.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>, path: &'static str) -> Self {
        Self { map, path }
    }

    /// The fields of a body, which must be an object.
    pub(super) fn of_body(body: &'a Value) -> Result<Self, ApiError> {
        match body {
            Value::Object(map) => Ok(Self::new(map, "")),
            other => Err(ApiError::invalid(format!("the body is {}, not an object", kind(other)))),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    fn wrong(&self, name: &str, value: &Value, wanted: &str) -> ApiError {
        let field = format!("{}{name}", self.path);
        let found = match value {
            Value::Number(number) => number.to_string(),
            other => kind(other).to_owned(),
        };
        ApiError::field(&field, format!("`{field}` is {found}, not {wanted}"))
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(name, other, "a boolean")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, other, "a string")),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, other, "an object")),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, other, "an array")),
        }
    }

    /// A whole number, written without a fraction.
    pub(super) fn integer(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_i64().filter(|value| (least..=most).contains(value)) {
            Some(value) => Ok(Some(value)),
            None if (least, most) == (i64::MIN, i64::MAX) => {
                Err(self.wrong(name, value, "a whole number of 64 bits with a sign"))
            }
            None => Err(self.wrong(name, value, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// A number that is in its bounds as it is used, which is as f32.
    pub(super) fn number(&self, name: &str, bounds: Bounds) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().map(|value| value as f32).filter(|value| bounds.holds(*value)) {
            Some(value) => Ok(Some(value)),
            None => Err(self.wrong(name, value, &format!("a number {}", bounds.text()))),
        }
    }

    /// A string or an array of them; each non-empty.
    pub(super) fn texts(&self, name: &str, most: usize) -> Result<Vec<String>, ApiError> {
        let list = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(value @ Value::String(_)) => std::slice::from_ref(value),
            Some(Value::Array(list)) => list.as_slice(),
            Some(other) => return Err(self.wrong(name, other, "a string or an array of strings")),
        };
        let field = format!("{}{name}", self.path);
        if list.len() > most {
            let message = format!("`{field}` holds {} strings; at most {most} are allowed", list.len());
            return Err(ApiError::field(&field, message));
        }
        let text = |(index, value): (usize, &Value)| match value {
            Value::String(text) if text.is_empty() => {
                Err(ApiError::field(&field, format!("`{field}` holds an empty string at place {index}")))
            }
            Value::String(text) => Ok(text.clone()),
            other => {
                Err(ApiError::field(&field, format!("`{field}` holds {} at place {index}, not a string", kind(other))))
            }
        };
        list.iter().enumerate().map(text).collect()
    }

    /// Refuses a field that is not among `known`: a misspelt one would be dropped in silence.
    pub(super) fn refuse_unknown(&self, known: &[&[&str]]) -> Result<(), ApiError> {
        let known = || known.iter().flat_map(|list| list.iter().copied());
        let Some(unknown) = self.names().find(|name| known().all(|known| known != *name)) else { return Ok(()) };
        let field = format!("{}{}", self.path, unknown.chars().take(64).collect::<String>());
        let nearest = known()
            .map(|name| (strsim::jaro_winkler(name, unknown), name))
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let hint = nearest.map(|(_, name)| format!("; the nearest one is `{name}`")).unwrap_or_default();
        Err(ApiError::field(&field, format!("`{field}` is no field of this request{hint}")))
    }
}
