//! The one text of a JSON value, and the digest over it.
//!
//! Canonical text has the keys of every object sorted by their UTF-8 bytes, no white space, integers only, and strings
//! in raw UTF-8 with the shortest escapes: `\"`, `\\`, `\b`, `\t`, `\n`, `\f`, `\r`, and `\u00xx` in lower case for the
//! other characters below U+0020. Two programs that agree on a value agree on its bytes, and so on its digest.

use memra_contract::digest::Digest;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Why a value has no canonical text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The text is not JSON.
    #[error("column {column}: not JSON: {message}")]
    Syntax {
        /// Column, from 1.
        column: usize,
        /// What the parser says.
        message: String,
        /// Whether the text ends before the value does.
        is_cut: bool,
    },
    /// The text holds `NaN` or an infinity.
    #[error(
        "column {column}: `{token}` is not a finite number; records hold integers, and null where there is no value"
    )]
    NotFinite {
        /// Column, from 1.
        column: usize,
        /// The token found.
        token: String,
    },
    /// A number is no integer of 64 bits.
    #[error("{field}: {number} is not an integer; records hold integers only")]
    NotInteger {
        /// The field, from the top: `result.theta_ppm`, `a.about[2]`.
        field: String,
        /// The number.
        number: String,
    },
    /// A value that could not be turned into JSON.
    #[error("cannot be written as JSON: {0}")]
    NotJson(String),
}

/// Parses one JSON text.
///
/// # Errors
///
/// Refuses text that is not JSON, `NaN` and infinities, and every number that is not an integer of 64 bits, naming
/// the column or the field.
pub fn parse(text: &str) -> Result<Value, CanonicalError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        if let Some((column, token)) = find_not_finite(text) {
            return CanonicalError::NotFinite { column, token };
        }
        let column = error.column();
        // The parser's message ends in a position inside this text; the column stands in front already.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        CanonicalError::Syntax { column, message, is_cut: error.is_eof() }
    })?;
    check_integers(&value, &mut String::new())?;
    Ok(value)
}

/// The value of anything that can be serialised.
///
/// # Errors
///
/// Refuses numbers that are not integers. A float that is not finite has no JSON form and would become `null`, so types
/// given here must have no float field; a test holds the receipt's types to that.
pub fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, CanonicalError> {
    let value = serde_json::to_value(value).map_err(|error| CanonicalError::NotJson(error.to_string()))?;
    check_integers(&value, &mut String::new())?;
    Ok(value)
}

/// The canonical text of a value.
///
/// # Errors
///
/// [`CanonicalError::NotInteger`] names the field of a number that is not an integer of 64 bits.
pub fn text(value: &Value) -> Result<String, CanonicalError> {
    check_integers(value, &mut String::new())?;
    let mut out = String::new();
    write_value(value, &mut out);
    Ok(out)
}

/// The sha256 of the canonical text of a value.
///
/// # Errors
///
/// [`CanonicalError::NotInteger`] names the field of a number that is not an integer of 64 bits.
pub fn digest(value: &Value) -> Result<Digest, CanonicalError> {
    Ok(sha256(text(value)?.as_bytes()))
}

/// The id of a record: the sha256 of the canonical text of all fields but `id`.
///
/// It is taken over the value as it was parsed, so fields this program does not know are covered.
///
/// # Errors
///
/// [`CanonicalError::NotInteger`] names the field of a number that is not an integer of 64 bits.
pub fn record_id(record: &Value) -> Result<Digest, CanonicalError> {
    check_integers(record, &mut String::new())?;
    let mut out = String::new();
    match record {
        Value::Object(map) => write_object(map, Some("id"), &mut out),
        other => write_value(other, &mut out),
    }
    Ok(sha256(out.as_bytes()))
}

/// The sha256 of bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest::from_bytes(&Sha256::digest(bytes).into())
}

/// Calls `visit` with every string of a value and the path of its field; keys of objects come with the path of the
/// object they stand in.
///
/// # Errors
///
/// The first error `visit` gives.
pub(crate) fn visit_strings<E>(
    value: &Value,
    field: &mut String,
    visit: &mut impl FnMut(&str, &str) -> Result<(), E>,
) -> Result<(), E> {
    match value {
        Value::String(text) => visit(field, text),
        Value::Array(items) => within_items(items, field, |item, field| visit_strings(item, field, visit)),
        Value::Object(map) => {
            for key in map.keys() {
                visit(field, key)?;
            }
            within_map(map, field, |item, field| visit_strings(item, field, visit))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_integers(value: &Value, field: &mut String) -> Result<(), CanonicalError> {
    match value {
        Value::Number(number) if number.is_f64() => {
            let field = if field.is_empty() { "the value".to_owned() } else { field.clone() };
            Err(CanonicalError::NotInteger { field, number: number.to_string() })
        }
        Value::Array(items) => within_items(items, field, check_integers),
        Value::Object(map) => within_map(map, field, check_integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn within_items<E>(
    items: &[Value],
    field: &mut String,
    mut visit: impl FnMut(&Value, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    use std::fmt::Write as _;
    let length = field.len();
    for (index, item) in items.iter().enumerate() {
        // Numbers in long arrays are the common case and hold nothing to name.
        if matches!(item, Value::Number(number) if !number.is_f64()) {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(field, "[{index}]");
        visit(item, field)?;
        field.truncate(length);
    }
    Ok(())
}

fn within_map<E>(
    map: &Map<String, Value>,
    field: &mut String,
    mut visit: impl FnMut(&Value, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    let length = field.len();
    for (key, item) in map {
        if length > 0 {
            field.push('.');
        }
        field.push_str(key);
        visit(item, field)?;
        field.truncate(length);
    }
    Ok(())
}

fn write_value(value: &Value, out: &mut String) {
    use std::fmt::Write as _;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{number}");
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => write_object(map, None, out),
    }
}

fn write_object(map: &Map<String, Value>, skip: Option<&str>, out: &mut String) {
    let mut fields: Vec<(&String, &Value)> = map.iter().filter(|(key, _)| Some(key.as_str()) != skip).collect();
    fields.sort_unstable_by(|left, right| left.0.cmp(right.0));
    out.push('{');
    for (index, (key, item)) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write_value(item, out);
    }
    out.push('}');
}

fn write_string(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Finds a bare word outside strings that other programs write for numbers that are not finite.
fn find_not_finite(text: &str) -> Option<(usize, String)> {
    let mut is_in_string = false;
    let mut is_escaped = false;
    let mut start = None;
    // A closing space ends the last word.
    for (index, byte) in text.bytes().chain([b' ']).enumerate() {
        if is_in_string {
            (is_in_string, is_escaped) = (is_escaped || byte != b'"', !is_escaped && byte == b'\\');
            continue;
        }
        if byte.is_ascii_alphabetic() || byte == b'-' {
            start = start.or(Some(index));
            continue;
        }
        if let Some(first) = start.take() {
            let word = text.get(first..index).unwrap_or_default();
            let bare = word.trim_start_matches('-').to_ascii_lowercase();
            if matches!(bare.as_str(), "nan" | "inf" | "infinity") {
                return Some((first + 1, word.to_owned()));
            }
        }
        is_in_string = byte == b'"';
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_at_every_level_and_nothing_is_added() {
        let value = parse(" { \"b\" : [ 1 , {\"z\":null,\"a\":true} ], \"a\":\"x\\u00e9\\n\\u0001\\/\" } ").unwrap();
        assert_eq!(text(&value).unwrap(), "{\"a\":\"x\u{e9}\\n\\u0001/\",\"b\":[1,{\"a\":true,\"z\":null}]}");
    }

    #[test]
    fn the_digest_of_a_known_text() {
        // sha256 of `{}`.
        let expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(digest(&json!({})).unwrap().as_str(), expected);
        assert_eq!(record_id(&json!({"id": "anything"})).unwrap().as_str(), expected);
    }

    #[test]
    fn an_id_covers_fields_nobody_knows_but_only_the_top_id_is_left_out() {
        let base = record_id(&json!({"a": 1, "inner": {"id": 1}})).unwrap();
        assert_ne!(base, record_id(&json!({"a": 1, "inner": {"id": 2}})).unwrap());
        assert_ne!(base, record_id(&json!({"a": 1, "inner": {"id": 1}, "later": 0})).unwrap());
        assert_eq!(base, record_id(&json!({"id": "f", "inner": {"id": 1}, "a": 1})).unwrap());
    }

    #[test]
    fn numbers_that_are_not_integers_are_refused_and_named() {
        for number in ["0.5", "1.0", "1e3", "-0", "18446744073709551616", "-9223372036854775809"] {
            let error = parse(&format!("{{\"result\":{{\"lo\":[1,{number}]}}}}")).unwrap_err();
            assert!(matches!(&error, CanonicalError::NotInteger { field, .. } if field == "result.lo[1]"), "{error}");
        }
        assert!(text(&json!({"a": 0.5})).unwrap_err().to_string().starts_with("a: 0.5 is not an integer"));
        assert!(record_id(&json!({"a": 0.5})).is_err());
        assert!(to_value(&0.5_f64).unwrap_err().to_string().starts_with("the value: 0.5"));
        for number in ["18446744073709551615", "-9223372036854775808", "0", "-1"] {
            assert_eq!(text(&parse(number).unwrap()).unwrap(), number);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_and_named() {
        for token in ["NaN", "-NaN", "Infinity", "-Infinity", "nan", "inf"] {
            let error = parse(&format!("{{\"s\":\"a \\\"NaN\\\\\",\"x\":{token}}}")).unwrap_err();
            let expected = CanonicalError::NotFinite { column: 22, token: token.to_owned() };
            assert_eq!(error, expected);
        }
        assert!(parse("{\"s\":\"NaN\"}").is_ok());
        assert!(matches!(parse("{\"s\":nul}"), Err(CanonicalError::Syntax { is_cut: false, .. })));
        assert!(matches!(parse("NaN"), Err(CanonicalError::NotFinite { column: 1, .. })));
    }

    #[test]
    fn a_cut_text_is_told_from_a_wrong_one() {
        assert!(matches!(parse("{\"a\":[1,"), Err(CanonicalError::Syntax { is_cut: true, .. })));
        assert!(matches!(parse("{\"a\":]}"), Err(CanonicalError::Syntax { is_cut: false, column: 6, .. })));
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_text_comes_back_and_stays(value in value()) {
            let first = text(&value).unwrap();
            let back = parse(&first).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(text(&back).unwrap(), first);
        }

        #[test]
        fn strings_are_escaped_as_the_parser_reads_them(string: String) {
            let mut out = String::new();
            write_string(&string, &mut out);
            prop_assert_eq!(&out, &serde_json::to_string(&string).unwrap());
        }
    }
}
