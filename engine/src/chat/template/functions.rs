//! Functions that chat templates expect besides Jinja's own.

use std::fmt::Write as _;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, FixedOffset};
use minijinja::{Error, ErrorKind, Value};

use super::error::Refusal;
use super::value::from_json;

/// `raise_exception(message)`: the template refuses the messages.
pub(super) fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()).with_source(Refusal(message.to_owned())))
}

/// `fromjson`: the value that a JSON text holds.
pub(super) fn fromjson(text: &str) -> Result<Value, Error> {
    let parsed: serde_json::Value = serde_json::from_str(text)
        .map_err(|cause| Error::new(ErrorKind::InvalidOperation, format!("fromjson: {cause}")))?;
    Ok(from_json(&parsed))
}

/// `strftime_now(format)`: `now` as its local date and time, in Python's format language.
pub(super) fn strftime(now: &DateTime<FixedOffset>, format: &str) -> Result<String, Error> {
    let wrong = || Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {format:?} is no date format"));
    if format.len() > 1024 {
        return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: a format of more than 1024 bytes"));
    }
    let micros = now.timestamp_subsec_micros();
    let mut out = String::new();
    let mut rest = format;
    // Python counts microseconds in %f, and knows no time zone in a local time.
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let directive = rest.get(at..).unwrap_or_default();
        let flag = usize::from(directive.get(1..2).is_some_and(|flag| matches!(flag, "-" | "_" | "0" | "^" | "#")));
        let length = directive.chars().take(2 + flag).map(char::len_utf8).sum();
        let (directive, after) = directive.split_at(length);
        rest = after;
        match directive {
            "%f" => write!(out, "{micros:06}").map_err(|_| wrong())?,
            "%z" | "%Z" => {}
            _ => {
                let items: Vec<Item<'_>> = StrftimeItems::new(directive).collect();
                if items.contains(&Item::Error) {
                    return Err(wrong());
                }
                write!(out, "{}", now.naive_local().format_with_items(items.into_iter())).map_err(|_| wrong())?;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_as_python_writes_it() {
        let now = DateTime::parse_from_rfc3339("2024-07-06T05:04:03.021+02:00").unwrap();
        let text = |format| strftime(&now, format).unwrap();
        assert_eq!(text("%d %b %Y"), "06 Jul 2024");
        assert_eq!(text("%Y-%m-%dT%H:%M:%S.%f%z %A %-d %j %p %%é"), "2024-07-06T05:04:03.021000 Saturday 6 188 AM %é");
        assert!(strftime(&now, "%Q").is_err());
        assert!(strftime(&now, "100%").is_err());
    }
}
