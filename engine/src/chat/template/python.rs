//! Filters, tests and methods that the template library has otherwise than Python's Jinja.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// The test `iterable`: false for none, which the library lets pass.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The filter `escape`, with the entities that Python's markupsafe writes.
pub(super) fn escape(value: &Value) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(character),
        }
    }
    out
}

/// The filter `indent(width=4, first=false, blank=false)`: lines after the first, but no empty ones, are indented; line
/// ends of every kind become line feeds.
#[expect(clippy::needless_pass_by_value, reason = "the template library passes arguments by value")]
pub(super) fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    named: minijinja::value::Kwargs,
) -> Result<String, Error> {
    const MOST_COLUMNS: usize = 64;
    let width = match width {
        None => named.get("width")?,
        given => given,
    };
    let first = first.map_or_else(|| named.get("first"), |first| Ok(Some(first)))?.unwrap_or(false);
    let blank = blank.map_or_else(|| named.get("blank"), |blank| Ok(Some(blank)))?.unwrap_or(false);
    named.assert_all_used()?;
    let indentation = match width {
        None => " ".repeat(4),
        Some(width) => match (width.as_str(), width.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(columns)) if columns <= MOST_COLUMNS => " ".repeat(columns),
            _ => return Err(Error::new(ErrorKind::InvalidOperation, format!("indent by {width}"))),
        },
    };
    let mut out = if first { indentation.clone() } else { String::new() };
    for (index, line) in lines(text).into_iter().enumerate() {
        if index > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&indentation);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

/// The lines of a text; one more, empty, where it ends with a line end. As Python's `splitlines` of the text with a line
/// feed after it.
fn lines(text: &str) -> Vec<&str> {
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let (line, after) = rest.split_at(at);
        lines.push(line);
        let end = after.chars().next().map_or(0, char::len_utf8);
        rest = after.strip_prefix("\r\n").or_else(|| after.get(end..)).unwrap_or_default();
    }
    lines.push(rest);
    lines
}

/// Python's methods: those of the library, but `title` as Python has it.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.kind(), name) {
        (ValueKind::String, "title") if args.is_empty() => Ok(Value::from(title(value.as_str().unwrap_or_default()))),
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// The first letter of each run of letters in upper case, the others in lower case.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        let letter = character.is_lowercase() || character.is_uppercase();
        if inside {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        inside = letter;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_lines_are_those_of_python() {
        assert_eq!(title("<|im_end|> they're 3rd ÉCOLE"), "<|Im_End|> They'Re 3Rd École");
        assert_eq!(lines("a\r\nb\n\rc\u{2028}"), ["a", "b", "", "c", ""]);
        assert_eq!(lines(""), [""]);
    }
}
