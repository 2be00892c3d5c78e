//! The ids of nasty texts, against two other tokenizers.
//!
//! `data/tokenizer.jsonl` is made by `tools/tokenizer-goldens.py`, which describes it. The vocabulary is that of
//! `models/smollm2.gguf`, which `tools/fetch-model.sh smollm2` fetches.

use std::env;
use std::io::Write as _;
use std::path::Path;

use memra_artifact::{GgufHeader, GgufModel, GgufWriter, Metadata, Value};
use memra_engine::chat::{Detokeniser, Tokenizer};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

const GOLDENS: &str = include_str!("data/tokenizer.jsonl");

/// The model, or `None` with a line that says what is left out. With `MEMRA_REQUIRE_MODELS=1` it must be there.
fn model(test: &str) -> Option<GgufModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/smollm2.gguf");
    if path.exists() {
        return Some(GgufModel::open(&path).expect("the model opens"));
    }
    let advice = "models/smollm2.gguf is not there; run tools/fetch-model.sh smollm2";
    assert!(env::var("MEMRA_REQUIRE_MODELS").as_deref() != Ok("1"), "{advice}");
    // Written past the capture of test output, so that it is seen.
    let _ = writeln!(std::io::stderr(), "left out: {test}: {advice}");
    None
}

/// A tokenizer of the same vocabulary with another pre-tokeniser.
fn with_pre(metadata: &Metadata, pre: &str) -> Tokenizer {
    let mut writer = GgufWriter::new();
    for entry in metadata.iter().filter(|entry| entry.key().starts_with("tokenizer.")) {
        let value = match entry.key() {
            "tokenizer.ggml.pre" => Value::String(pre.to_owned()),
            _ => entry.value().clone(),
        };
        writer.set(entry.key(), value).expect("a key of the file");
    }
    let (bytes, length) = writer.header().expect("a header");
    let header = GgufHeader::parse(&bytes, length, pre).expect("a header that was just written");
    Tokenizer::from_gguf(header.metadata()).expect("a tokenizer")
}

fn ids(value: &Json) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

fn digest(plain: &[u32], special: &[u32]) -> String {
    let mut hash = Sha256::new();
    for id in plain.iter().chain(&[u32::MAX]).chain(special) {
        hash.update(id.to_le_bytes());
    }
    let start = hash.finalize().iter().take(6).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    format!("{start:012x}")
}

#[test]
fn tokenizer_matches_the_oracles() {
    let Some(model) = model("tokenizer_matches_the_oracles") else { return };
    let mut lines = GOLDENS.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let header = lines.next().unwrap();
    let pre = header["pre"].as_str().unwrap();
    let main = with_pre(model.metadata(), pre);
    let further: Vec<(&str, Tokenizer)> = header["further_pre"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pre| (pre.as_str().unwrap(), with_pre(model.metadata(), pre.as_str().unwrap())))
        .collect();
    assert_eq!(main.end_of_generation(), ids(&header["end_of_generation"]));

    let (mut texts, mut faults) = (0, Vec::new());
    for row in lines {
        texts += 1;
        let text = row["t"].as_str().unwrap();
        let plain = main.encode(text, false).unwrap();
        let special = main.encode(text, true).unwrap();
        // Where the two differ, Hugging Face's ids are the ones.
        let wanted_plain = ids(row.get("p").unwrap_or(&row["h"]));
        let wanted_special = match (row.get("s"), row.get("sh")) {
            (Some(both), _) => ids(both),
            (None, Some(hugging_face)) => ids(hugging_face),
            (None, None) => wanted_plain.clone(),
        };
        for (found, wanted, how) in [(plain, wanted_plain, "without"), (special, wanted_special, "with")] {
            if found != wanted {
                faults.push(format!("{pre}, {how} special tokens, {text:?}: {found:?}, not {wanted:?}"));
            }
        }
        for ((pre, tokenizer), wanted) in further.iter().zip(row["v"].as_array().unwrap()) {
            let found = digest(&tokenizer.encode(text, false).unwrap(), &tokenizer.encode(text, true).unwrap());
            let wanted = wanted.as_array().map_or(wanted, |differing| &differing[0]);
            if wanted.as_str() != Some(found.as_str()) {
                faults.push(format!("{pre}, {text:?}: another digest"));
            }
        }
    }
    assert_eq!(header["texts"].as_u64(), Some(texts));
    assert!(texts >= 2000);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_text_decodes_to_itself_but_for_bytes_that_have_no_token() {
    let Some(model) = model("a_text_decodes_to_itself_but_for_bytes_that_have_no_token") else { return };
    let tokenizer = Tokenizer::from_gguf(model.metadata()).unwrap();
    for line in GOLDENS.lines().skip(1) {
        let row: Json = serde_json::from_str(line).unwrap();
        let text = row["t"].as_str().unwrap();
        let kept: Vec<u8> = text.bytes().filter(|byte| !tokenizer.missing_bytes().contains(byte)).collect();
        let mut stream = Detokeniser::new();
        let mut decoded = String::new();
        for id in tokenizer.encode(text, true).unwrap() {
            decoded += &stream.push(tokenizer.piece(id).unwrap());
        }
        decoded += &stream.finish();
        // Without a byte that has no token, two bytes may stand together that did not before; they stay as they are.
        assert_eq!(decoded, String::from_utf8_lossy(&kept), "{text:?}");
    }
}
