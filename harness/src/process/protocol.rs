//! Lines of the protocol as types.

use std::path::Path;

use memra_ledger::chain::PrivacyLint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Hello, ProcessFault};

/// Longest name a child may give itself, in characters.
const MAX_NAME: usize = 64;
/// Most lines it may say of itself.
const MAX_ABOUT: usize = 16;
/// Longest of them, in characters.
const MAX_ABOUT_LINE: usize = 200;
/// Characters of a foreign line that an error shows.
const SHOWN: usize = 200;

/// A request.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Request<'a> {
    Load { contract: &'a str, problem: &'a str, threads: usize, copies: usize, tensors: &'a [TensorEntry] },
    Check { out: &'a Path },
    Wake,
    Sample { launches: u32 },
    Idle,
    Stop,
}

/// A tensor in a file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) dtype: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) path: std::path::PathBuf,
}

/// An output in a file of the folder that was named.
#[derive(Debug, Deserialize)]
pub(super) struct OutputEntry {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) file: String,
}

/// A line that is an object and reports no error.
pub(super) fn parse(line: &str) -> Result<Value, ProcessFault> {
    let value: Value = serde_json::from_str(line).map_err(|_| ProcessFault::Garbage(shown(line)))?;
    if !value.is_object() {
        return Err(ProcessFault::Garbage(shown(line)));
    }
    match value.get("error") {
        None => Ok(value),
        Some(Value::String(text)) => Err(ProcessFault::Reported(shown(text))),
        Some(other) => Err(ProcessFault::Reported(shown(&other.to_string()))),
    }
}

/// The start of a line, for an error.
pub(super) fn shown(line: &str) -> String {
    let mut text: String = line.chars().take(SHOWN).collect();
    if line.chars().nth(SHOWN).is_some() {
        text.push_str("...");
    }
    text
}

/// An answer that lacks something.
pub(crate) fn refuse(answer: &Value, needed: &'static str) -> ProcessFault {
    ProcessFault::Answer { line: shown(&answer.to_string()), needed }
}

/// `{"ok":true}`.
pub(crate) fn ok(answer: &Value) -> Result<(), ProcessFault> {
    if answer.get("ok") == Some(&Value::Bool(true)) { Ok(()) } else { Err(refuse(answer, "{\"ok\":true}")) }
}

/// The outputs of a check.
pub(super) fn outputs(answer: &Value) -> Result<Vec<OutputEntry>, ProcessFault> {
    ok(answer)?;
    let outputs = answer.get("outputs").map(Vec::<OutputEntry>::deserialize);
    match outputs {
        Some(Ok(outputs)) => Ok(outputs),
        _ => Err(refuse(answer, "a list `outputs` of objects with name, dtype and file")),
    }
}

/// The time of a sample.
pub(crate) fn elapsed_ns(answer: &Value) -> Result<u64, ProcessFault> {
    let elapsed = answer.get("elapsed_ns").and_then(Value::as_u64);
    elapsed.filter(|elapsed| *elapsed > 0).ok_or_else(|| refuse(answer, "`elapsed_ns`, a whole number above 0,"))
}

/// The hello, held to what may stand in a receipt.
pub(super) fn hello(answer: &Value) -> Result<Hello, ProcessFault> {
    let hello = answer.get("hello").map(Hello::deserialize);
    let Some(Ok(hello)) = hello else {
        return Err(refuse(answer, "{\"hello\":{\"name\":...,\"about\":[...]}}"));
    };
    let is_line = |text: &str, most: usize| text.chars().count() <= most && !text.chars().any(char::is_control);
    if hello.name.trim().is_empty() || !is_line(&hello.name, MAX_NAME) {
        return Err(ProcessFault::Hello(format!("a name has 1 to {MAX_NAME} characters on one line")));
    }
    if hello.about.len() > MAX_ABOUT || !hello.about.iter().all(|line| is_line(line, MAX_ABOUT_LINE)) {
        return Err(ProcessFault::Hello(format!(
            "`about` has at most {MAX_ABOUT} lines of {MAX_ABOUT_LINE} characters"
        )));
    }
    let said = serde_json::json!({ "name": hello.name, "about": hello.about });
    PrivacyLint::default().check(&said).map_err(|error| ProcessFault::Hello(error.to_string()))?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_have_the_documented_form() {
        let tensors = [TensorEntry {
            name: "x".to_owned(),
            dtype: "f32",
            shape: vec![1, 2],
            path: Path::new("0.bin").to_owned(),
        }];
        let load = Request::Load { contract: "c", problem: "m=1", threads: 2, copies: 3, tensors: &tensors };
        for (request, text) in [
            (
                load,
                concat!(
                    r#"{"op":"load","contract":"c","problem":"m=1","threads":2,"copies":3,"#,
                    r#""tensors":[{"name":"x","dtype":"f32","shape":[1,2],"path":"0.bin"}]}"#
                ),
            ),
            (Request::Check { out: Path::new("d") }, r#"{"op":"check","out":"d"}"#),
            (Request::Sample { launches: 5 }, r#"{"op":"sample","launches":5}"#),
            (Request::Wake, r#"{"op":"wake"}"#),
            (Request::Idle, r#"{"op":"idle"}"#),
            (Request::Stop, r#"{"op":"stop"}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
        }
    }

    #[test]
    fn answers_are_read_and_others_refused() {
        assert!(ok(&parse(r#"{"ok":true}"#).unwrap()).is_ok());
        assert!(ok(&json!({"ok":false})).is_err() && ok(&json!({})).is_err());
        assert_eq!(elapsed_ns(&json!({"elapsed_ns":7})).unwrap(), 7);
        for bad in [json!({"elapsed_ns":0}), json!({"elapsed_ns":-1}), json!({"elapsed_ns":1.5}), json!({})] {
            assert!(elapsed_ns(&bad).is_err(), "{bad}");
        }
        let answer = json!({"ok":true,"outputs":[{"name":"out","dtype":"f32","file":"o"}]});
        assert_eq!(outputs(&answer).unwrap()[0].file, "o");
        for bad in [json!({"ok":true}), json!({"ok":true,"outputs":[{"name":"out"}]}), json!({"outputs":[]})] {
            assert!(outputs(&bad).is_err(), "{bad}");
        }
        for garbage in ["", "hello", "7", "[1]", "{"] {
            assert!(matches!(parse(garbage), Err(ProcessFault::Garbage(_))), "{garbage}");
        }
        assert!(matches!(parse(r#"{"error":"no memory"}"#), Err(ProcessFault::Reported(text)) if text == "no memory"));
    }

    #[test]
    fn a_hello_must_be_fit_for_a_receipt() {
        let good = hello(&json!({"hello":{"name":"peer 1","about":["built with -O3"]}})).unwrap();
        assert_eq!((good.name.as_str(), good.about.len()), ("peer 1", 1));
        assert!(hello(&json!({"hello":{"name":"peer"}})).unwrap().about.is_empty());
        for bad in [
            json!({"ok":true}),
            json!({"hello":{"about":[]}}),
            json!({"hello":{"name":" "}}),
            json!({"hello":{"name":"a\nb"}}),
            json!({"hello":{"name":"x".repeat(65)}}),
            json!({"hello":{"name":"peer","about":["built in /opt/peer"]}}),
            json!({"hello":{"name":"peer","about":vec!["x"; 17]}}),
            json!({"hello":{"name":"peer","about":["x".repeat(201)]}}),
        ] {
            assert!(hello(&bad).is_err(), "{bad}");
        }
    }
}
