//! Values as JSON, written as Python's `json.dumps` writes them, so that prompts are the same to the byte.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Nesting beyond this is refused; JSON that was read has at most 128 levels.
const MOST_LEVELS: usize = 200;

struct Style {
    ascii: bool,
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
#[expect(clippy::needless_pass_by_value, reason = "the template library passes arguments by value")]
pub(super) fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > NAMES.len() {
        return Err(Error::new(ErrorKind::TooManyArguments, "tojson takes at most four arguments"));
    }
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = named.get(name)?;
        Ok(named.or_else(|| positional.get(index).cloned()).filter(|value| !value.is_none()))
    };
    let [ascii, indent, separators, sort_keys] = NAMES;
    let ascii = argument(0, ascii)?.is_some_and(|value| value.is_true());
    let indent = argument(1, indent)?.map(|value| indentation(&value)).transpose()?;
    let separators = argument(2, separators)?;
    let sort_keys = argument(3, sort_keys)?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;

    let (between_items, after_key) = match separators {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => separator_pair(&pair)?,
    };
    let mut out = String::new();
    write_value(&mut out, value, &Style { ascii, indent, between_items, after_key, sort_keys }, 0)?;
    Ok(out)
}

fn indentation(value: &Value) -> Result<String, Error> {
    const MOST_COLUMNS: i64 = 64;
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    // true counts as 1, as in Python.
    let columns = match bool::try_from(value.clone()) {
        Ok(flag) => Some(i64::from(flag)),
        Err(_) => value.as_i64(),
    };
    match columns {
        Some(columns) if columns <= MOST_COLUMNS => Ok(" ".repeat(usize::try_from(columns).unwrap_or(0))),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson cannot indent by {value}"))),
    }
}

fn separator_pair(value: &Value) -> Result<(String, String), Error> {
    let wrong = || Error::new(ErrorKind::InvalidOperation, format!("tojson separators are {value}, not two strings"));
    let parts: Vec<Value> = value.try_iter()?.take(3).collect();
    match parts.as_slice() {
        [items, keys] => match (items.as_str(), keys.as_str()) {
            (Some(items), Some(keys)) => Ok((items.to_owned(), keys.to_owned())),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn write_value(out: &mut String, value: &Value, style: &Style, level: usize) -> Result<(), Error> {
    if level > MOST_LEVELS {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson of more than {MOST_LEVELS} levels")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&float_text(f64::try_from(value.clone())?)),
        ValueKind::String => write_string(out, value.as_str().unwrap_or_default(), style.ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                if !empty {
                    out.push_str(&style.between_items);
                }
                empty = false;
                break_line(out, style, level + 1);
                write_value(out, &item, style, level + 1)?;
            }
            if !empty {
                break_line(out, style, level);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                entries.push((key_text(&key)?, item));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            out.push('{');
            let empty = entries.is_empty();
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push_str(&style.between_items);
                }
                break_line(out, style, level + 1);
                write_string(out, &key, style.ascii);
                out.push_str(&style.after_key);
                write_value(out, &item, style, level + 1)?;
            }
            if !empty {
                break_line(out, style, level);
            }
            out.push('}');
        }
        ValueKind::Undefined => {
            return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
        }
        other => return Err(Error::new(ErrorKind::BadSerialization, format!("tojson of a {other}"))),
    }
    Ok(())
}

fn break_line(out: &mut String, style: &Style, level: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..level {
            out.push_str(indent);
        }
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(float_text(f64::try_from(key.clone())?)),
        other => Err(Error::new(ErrorKind::NonKey, format!("tojson of a map with a {other} as key"))),
    }
}

/// The shortest text that reads back as `number`, in Python's notation.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific.as_str(), "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        format!("{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    }
}

fn write_string(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            _ if character < ' ' || ascii && !(' '..='~').contains(&character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (number, wanted) in cases {
            assert_eq!(float_text(number), wanted);
        }
    }

    #[test]
    fn strings_are_escaped_as_python_escapes_them() {
        let text = |ascii| {
            let mut out = String::new();
            write_string(&mut out, "a\"\\\n\u{1}\u{7f}é😀</b>", ascii);
            out
        };
        assert_eq!(text(false), "\"a\\\"\\\\\\n\\u0001\u{7f}é😀</b>\"");
        assert_eq!(text(true), "\"a\\\"\\\\\\n\\u0001\\u007f\\u00e9\\ud83d\\ude00</b>\"");
    }
}
