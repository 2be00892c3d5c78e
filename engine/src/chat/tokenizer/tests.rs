//! A small vocabulary by hand: merges, special tokens, and every fault of the metadata named.

use std::sync::LazyLock;

use memra_artifact::{Array, GgufHeader, GgufWriter, StringArray, Value};
use proptest::prelude::*;

use super::*;

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// A vocabulary with a token for every byte (ids 0 to 255), a few merges and a few special tokens.
struct Made {
    pre: &'static str,
    tokens: Vec<(String, i32)>,
    merges: Vec<String>,
    more: Vec<(&'static str, Value)>,
}

impl Made {
    fn new(pre: &'static str) -> Self {
        let mut tokens: Vec<(String, i32)> =
            (0..=255).map(|byte| (alphabet::char_of_byte(byte).to_string(), 1)).collect();
        let merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "ã ģ", "Ċ Ċ"];
        for merge in merges {
            tokens.push((merge.replace(' ', ""), 1));
        }
        for (text, token_type) in
            [("<|begin|>", CONTROL), ("<|im_end|>", CONTROL), ("<tool>", USER_DEFINED), ("<|begin|><tool>", CONTROL)]
        {
            tokens.push((text.to_owned(), token_type));
        }
        Self { pre, tokens, merges: merges.map(str::to_owned).to_vec(), more: Vec::new() }
    }

    fn id(&self, text: &str) -> u32 {
        self.tokens.iter().position(|(token, _)| token == text).unwrap() as u32
    }

    fn with(mut self, key: &'static str, value: Value) -> Self {
        self.more.push((key, value));
        self
    }

    fn build(&self) -> Result<Tokenizer, TokenizerError> {
        let texts = |list: Vec<&str>| Value::Array(Array::String(StringArray::from_texts(list).unwrap()));
        let mut writer = GgufWriter::new();
        let mut entries = vec![
            ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
            ("tokenizer.ggml.pre", Value::String(self.pre.to_owned())),
            ("tokenizer.ggml.tokens", texts(self.tokens.iter().map(|(text, _)| text.as_str()).collect())),
            (
                "tokenizer.ggml.token_type",
                Value::Array(Array::I32(self.tokens.iter().map(|(_, token_type)| *token_type).collect())),
            ),
            ("tokenizer.ggml.merges", texts(self.merges.iter().map(String::as_str).collect())),
        ];
        entries.retain(|(key, _)| self.more.iter().all(|(other, _)| key != other));
        for (key, value) in entries.iter().chain(&self.more) {
            writer.set(key, value.clone()).unwrap();
        }
        let (bytes, length) = writer.header().unwrap();
        Tokenizer::from_gguf(GgufHeader::parse(&bytes, length, "made.gguf").unwrap().metadata())
    }
}

#[test]
fn text_becomes_merged_tokens() {
    let made = Made::new("smollm");
    let tokenizer = made.build().unwrap();
    let ids = [made.id("hello"), made.id("Ġhello"), u32::from(b'!')];
    assert_eq!(tokenizer.encode("hello hello!", false).unwrap(), ids);
    assert_eq!(tokenizer.decode(&ids, false), "hello hello!");
    assert_eq!(tokenizer.piece(made.id("Ġhello")), Some(&b" hello"[..]));
    assert_eq!(tokenizer.token_text(made.id("Ġhello")), Some("Ġhello"));
    assert_eq!(tokenizer.piece(made.id("ãģ")), Some(&b"\xE3\x81"[..]));
    assert_eq!(tokenizer.vocab_size(), made.tokens.len());
    assert_eq!(tokenizer.piece(made.tokens.len() as u32), None);
    assert_eq!(tokenizer.token_text(u32::MAX), None);
    assert!(tokenizer.missing_bytes().is_empty());
    assert!(tokenizer.encode("", true).unwrap().is_empty());
}

#[test]
fn control_tokens_are_parsed_only_when_asked_and_user_defined_ones_always() {
    let made = Made::new("gpt-2");
    let tokenizer = made.build().unwrap();
    let (begin, tool, both) = (made.id("<|begin|>"), made.id("<tool>"), made.id("<|begin|><tool>"));
    assert_eq!(tokenizer.encode("<|begin|>\n\n<tool>", true).unwrap(), [begin, made.id("ĊĊ"), tool]);
    assert_eq!(tokenizer.encode("<|begin|><tool>", true).unwrap(), [both]);
    let plain = tokenizer.encode("<|begin|><tool>", false).unwrap();
    assert_eq!(plain.last(), Some(&tool));
    assert!(plain.iter().all(|id| !tokenizer.is_control(*id)));
    assert_eq!(tokenizer.decode(&[begin, tool], false), "<tool>");
    assert_eq!(tokenizer.decode(&[begin, tool], true), "<|begin|><tool>");
    assert!(tokenizer.is_control(begin) && !tokenizer.is_control(tool));
}

#[test]
fn a_bos_is_added_once() {
    let made = Made::new("llama-bpe");
    let begin = made.id("<|begin|>");
    let tokenizer = made.with("tokenizer.ggml.bos_token_id", Value::U32(begin)).build().unwrap();
    assert!(tokenizer.adds_bos());
    assert_eq!(tokenizer.bos(), Some(begin));
    assert_eq!(tokenizer.encode_prompt("!", true).unwrap(), [begin, 33]);
    assert_eq!(tokenizer.encode_prompt("<|begin|>!", true).unwrap(), [begin, 33]);
    assert_eq!(tokenizer.encode("!", true).unwrap(), [33]);
    assert_eq!(tokenizer.encode_prompt("", true).unwrap(), [begin]);

    let silent = Made::new("llama-bpe").with("tokenizer.ggml.add_bos_token", Value::Bool(false)).build().unwrap();
    assert_eq!(silent.encode_prompt("!", true).unwrap(), [33]);
    assert_eq!(silent.bos(), None);
    let fault = Made::new("llama-bpe").build().unwrap_err();
    assert!(matches!(fault, TokenizerError::NoBos), "{fault}");
}

#[test]
fn ends_are_those_named_and_those_known() {
    let made = Made::new("smollm");
    let (begin, end) = (made.id("<|begin|>"), made.id("<|im_end|>"));
    let tokenizer = made.with("tokenizer.ggml.eos_token_id", Value::U32(begin)).build().unwrap();
    assert_eq!(tokenizer.end_of_generation(), [begin, end]);
    assert!(tokenizer.is_end_of_generation(end) && !tokenizer.is_end_of_generation(0));
    assert_eq!(tokenizer.eos(), Some(begin));

    let mut unmarked = Made::new("smollm");
    unmarked.tokens.push(("<reponame>".to_owned(), 1));
    let id = unmarked.id("<reponame>");
    let tokenizer = unmarked.build().unwrap();
    assert!(tokenizer.is_end_of_generation(id) && tokenizer.is_control(id));
}

#[test]
fn llama_takes_a_piece_that_is_a_token_whole() {
    // "Ġlo" is a token that no merge makes.
    let made = |pre| {
        let mut made = Made::new(pre);
        made.tokens.push(("Ġlo".to_owned(), 1));
        made.with("tokenizer.ggml.add_bos_token", Value::Bool(false))
    };
    let id = made("llama3").id("Ġlo");
    assert_eq!(made("llama3").build().unwrap().encode(" lo", false).unwrap(), [id]);
    assert_eq!(made("qwen2").build().unwrap().encode(" lo", false).unwrap(), [32, 108, 111]);
}

#[test]
fn qwen_composes_characters() {
    let bytes = |pre: &'static str| Made::new(pre).build().unwrap().encode("e\u{301}", false).unwrap();
    assert_eq!(bytes("qwen2"), [0xC3, 0xA9]);
    assert_eq!(bytes("qwen35"), [0xC3, 0xA9]);
    assert_eq!(bytes("smollm"), [0x65, 0xCC, 0x81]);
}

#[test]
fn a_byte_without_a_token_is_left_out_and_named() {
    let mut made = Made::new("smollm");
    made.tokens[usize::from(b'q')].0 = "unused".to_owned();
    let tokenizer = made.build().unwrap();
    assert_eq!(tokenizer.missing_bytes(), b"q");
    assert_eq!(tokenizer.encode("aqb", false).unwrap(), [97, 98]);
}

#[test]
fn what_is_wrong_with_a_vocabulary_is_named() {
    let fault = |made: Made| made.build().unwrap_err().to_string();
    let plain = || Made::new("smollm");
    assert_eq!(
        fault(plain().with("tokenizer.ggml.model", Value::String("llama".to_owned()))),
        "metadata \"tokenizer.ggml.model\" is \"llama\"; known are gpt2"
    );
    assert!(
        fault(Made::new("default")).starts_with("metadata \"tokenizer.ggml.pre\" is \"default\"; known are gpt-2,")
    );
    assert_eq!(
        fault(plain().with("tokenizer.ggml.eos_token_id", Value::U32(9999))),
        "metadata \"tokenizer.ggml.eos_token_id\" is token 9999, but there are 267 tokens"
    );
    assert_eq!(
        fault(plain().with("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1, 1])))),
        "metadata \"tokenizer.ggml.token_type\" holds 2 values for 267 tokens"
    );
    assert_eq!(
        fault(plain().with("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![7; 267])))),
        "metadata \"tokenizer.ggml.token_type\": token 0 has type 7; types are 1 to 6"
    );
    let none = Value::Array(Array::String(StringArray::from_texts([""; 0]).unwrap()));
    assert!(fault(plain().with("tokenizer.ggml.tokens", none)).contains("holds 0 tokens"));
    let merges = |text: &str| {
        let mut made = plain();
        made.merges = vec!["h e".to_owned(), text.to_owned()];
        fault(made)
    };
    for text in ["", "x", "x ", " x"] {
        assert_eq!(
            merges(text),
            format!("metadata \"tokenizer.ggml.merges\": merge 1 is {text:?}, not two parts with a space between them")
        );
    }
    assert_eq!(
        merges("x yz"),
        "metadata \"tokenizer.ggml.merges\": merge 1 (\"x yz\") needs \"yz\", which is no token of text"
    );
    // Without this check the library would run past its buffer.
    let long = "x".repeat(500);
    assert!(merges(&format!("{long} {long}")).contains("which is no token of text"));
    assert!(merges("< |begin|>").contains("needs \"|begin|>\""));
}

#[test]
fn a_missing_key_is_named() {
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.model", Value::String("gpt2".to_owned())).unwrap();
    let (bytes, length) = writer.header().unwrap();
    let header = GgufHeader::parse(&bytes, length, "made.gguf").unwrap();
    assert_eq!(
        Tokenizer::from_gguf(header.metadata()).unwrap_err().to_string(),
        "made.gguf: metadata key \"tokenizer.ggml.pre\" is missing"
    );
}

fn texts() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "hello",
        "<|begin|>",
        "<tool>",
        "<|",
        "1",
        "٣",
        "é",
        "e\u{301}",
        "漢",
        "😀",
        "\u{feff}",
        "\u{a0}",
        "\0",
    ]);
    prop_oneof![
        any::<String>(),
        prop::collection::vec(bits, 0..12).prop_map(|bits| bits.concat()),
        prop::collection::vec(any::<char>(), 0..40).prop_map(|chars| chars.into_iter().collect()),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_itself(text in texts()) {
        static MADE: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
            ["gpt-2", "smollm", "llama-bpe"]
                .map(|pre| Made::new(pre).with("tokenizer.ggml.add_bos_token", Value::Bool(false)).build().unwrap())
                .into()
        });
        for made in MADE.iter() {
            let ids = made.encode(&text, false).unwrap();
            prop_assert_eq!(&made.decode(&ids, true), &text);
            prop_assert!(ids.iter().all(|id| !made.is_control(*id)));
            let ids = made.encode(&text, true).unwrap();
            prop_assert_eq!(&made.decode(&ids, true), &text);
        }
    }
}
