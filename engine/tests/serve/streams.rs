//! Streams: framing, and that they say what the whole answer says.

use serde_json::{Value, json};

use super::support::{Setup, TestServer, joined, whole};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

fn chat(extra: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "the other é 🙂"}], "max_tokens": 40});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn completion(extra: &Value) -> Value {
    let mut body = json!({"prompt": "the other é 🙂", "max_tokens": 40});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn both(server: &TestServer, path: &str, mut body: Value) -> (Vec<Value>, Value) {
    let reply = server.post(path, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    body["stream"] = json!(true);
    (server.post(path, &body).await.chunks(), reply.json())
}

#[tokio::test]
async fn chunks_come_in_the_order_of_the_interface() {
    let server = TestServer::start(Setup::default()).await;
    let body = chat(&json!({
        "stream": true, "stream_options": {"include_usage": true}, "temperature": 0, "ignore_eos": true, "max_tokens": 5,
    }));
    let response = server.post(CHAT, &body).await;
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    let chunks = response.chunks();
    for key in ["id", "created", "model", "system_fingerprint", "object"] {
        assert!(chunks.iter().all(|chunk| chunk[key] == chunks[0][key] && !chunk[key].is_null()), "{key}");
    }
    assert_eq!(chunks[0]["object"], "chat.completion.chunk");
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 5);
    assert_eq!(usage["usage"]["prompt_tokens_details"], json!({"cached_tokens": 0}));
    assert!(chunks.iter().all(|chunk| chunk.as_object().unwrap()["usage"].is_null()));
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"][0]["delta"], &last["choices"][0]["finish_reason"]), (&json!({}), &json!("length")));
    for chunk in &rest[1..] {
        let choice = chunk["choices"][0].as_object().unwrap();
        assert!(choice["finish_reason"].is_null());
        assert_eq!(choice["delta"].as_object().unwrap().keys().collect::<Vec<_>>(), ["content"]);
        assert_ne!(choice["delta"]["content"], "");
    }
    server.ended().await;
}

#[tokio::test]
async fn a_stream_without_usage_has_no_such_key() {
    let server = TestServer::start(Setup::default()).await;
    let chunks = server.post(COMPLETION, &completion(&json!({"stream": true, "max_tokens": 3}))).await.chunks();
    assert!(chunks.iter().all(|chunk| !chunk.as_object().unwrap().contains_key("usage")));
    assert!(chunks.iter().all(|chunk| chunk["object"] == "text_completion" && chunk["choices"][0]["text"].is_string()));
    server.ended().await;
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let server = TestServer::start(Setup::default()).await;
    for extra in [
        json!({"temperature": 0}),
        json!({"temperature": 0, "ignore_eos": true}),
        json!({"seed": 1, "ignore_eos": true}),
        json!({"seed": 2, "top_p": 0.9, "min_p": 0.01, "top_k": 50}),
        json!({"seed": 3, "temperature": 1.5, "presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2}),
        json!({"seed": 4, "max_tokens": 1, "ignore_eos": true}),
        json!({"seed": 4, "max_tokens": 0}),
    ] {
        for (path, body) in [(CHAT, chat(&extra)), (COMPLETION, completion(&extra))] {
            let (chunks, reply) = both(&server, path, body).await;
            let (text, reasons) = joined(&chunks, 0);
            assert_eq!(text, whole(&reply, 0), "{path} {extra}");
            assert_eq!(reasons, [reply["choices"][0]["finish_reason"].as_str().unwrap()]);
        }
    }
    server.ended().await;
}

/// Random bytes of a random model: characters of several bytes come in several tokens, and stray bytes come often.
#[tokio::test]
async fn characters_are_never_cut() {
    let server = TestServer::start(Setup::default()).await;
    // Only these tokens: the bytes of "é", "б" and "🙂" in ids of bytes.
    let bytes = [0xC3, 0xA9, 0xD0, 0xB1, 0xF0, 0x9F, 0x99, 0x82];
    let bias: serde_json::Map<String, Value> = bytes.iter().map(|byte| (byte.to_string(), json!(100))).collect();
    let mut whole_characters = 0;
    for seed in 0..6 {
        let extra = json!({"seed": seed, "max_tokens": 100, "logit_bias": bias, "temperature": 2});
        let (chunks, reply) = both(&server, COMPLETION, completion(&extra)).await;
        let text = joined(&chunks, 0).0;
        assert_eq!(text, whole(&reply, 0));
        whole_characters += text.chars().filter(|character| "éб🙂".contains(*character)).count();
        // A character arrives in one piece, so a part of one is never shown as unknown and then mended.
        for chunk in &chunks {
            assert!(
                !chunk["choices"][0]["text"].as_str().unwrap().contains("\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}")
            );
        }
    }
    assert!(whole_characters > 0);
    server.ended().await;
}

/// Every stretch of an answer as a stop string: none of it is ever shown, and all before it is.
#[tokio::test]
async fn stop_strings_never_leak() {
    let server = TestServer::start(Setup::default()).await;
    let free = json!({"seed": 11, "ignore_eos": true, "max_tokens": 60});
    let (_, reply) = both(&server, COMPLETION, completion(&free)).await;
    let text = whole(&reply, 0);
    let characters: Vec<char> = text.chars().collect();
    assert!(characters.len() > 20, "{text:?}");
    let free_tokens = reply["usage"]["completion_tokens"].as_u64().unwrap();
    for (from, len) in [(0, 1), (0, 5), (3, 1), (4, 2), (5, 3), (7, 6), (9, 9), (15, 4), (characters.len() - 3, 3)] {
        let stop: String = characters[from..from + len].iter().collect();
        let before = text.find(&stop).unwrap();
        for stops in [json!(stop), json!([stop]), json!(["never in the text", stop, format!("{stop}and more")])] {
            let mut extra = free.clone();
            extra["stop"] = stops;
            let (chunks, reply) = both(&server, COMPLETION, completion(&extra)).await;
            assert_eq!(whole(&reply, 0), text[..before], "{stop:?}");
            assert_eq!(joined(&chunks, 0), (text[..before].to_owned(), vec!["stop".to_owned()]));
            let tokens = reply["usage"]["completion_tokens"].as_u64().unwrap();
            assert!(tokens >= 1 && tokens <= free_tokens);
        }
    }
    // One that is only begun at the end is text after all.
    let last: String = characters[characters.len() - 2..].iter().collect();
    let mut extra = free;
    extra["stop"] = json!(format!("{last}\u{1F600}"));
    let (chunks, reply) = both(&server, COMPLETION, completion(&extra)).await;
    assert_eq!((whole(&reply, 0), joined(&chunks, 0).0), (text.clone(), text));
    server.ended().await;
}

/// Tokens are counted to the one that completes the stop string, whatever was drawn after it.
#[tokio::test]
async fn a_stop_string_counts_the_tokens_up_to_it() {
    let server = TestServer::start(Setup::default()).await;
    // Only the token of "a" can be drawn.
    let extra = json!({"temperature": 0, "logit_bias": {"97": 100}, "max_tokens": 40});
    for (stop, tokens) in [("a", 1), ("aa", 2), ("aaaaa", 5)] {
        let mut extra = extra.clone();
        extra["stop"] = json!(stop);
        let (chunks, reply) = both(&server, COMPLETION, completion(&extra)).await;
        assert_eq!((whole(&reply, 0).as_str(), &reply["usage"]["completion_tokens"]), ("", &json!(tokens)));
        assert_eq!(joined(&chunks, 0), (String::new(), vec!["stop".to_owned()]));
    }
    server.ended().await;
}

#[tokio::test]
async fn every_choice_starts_and_finishes_once() {
    let server = TestServer::start(Setup::default()).await;
    let extra = json!({"seed": 5, "n": 3, "ignore_eos": true, "max_tokens": 9});
    let (chunks, reply) = both(&server, CHAT, chat(&extra)).await;
    for index in 0..3 {
        let (text, reasons) = joined(&chunks, index as u64);
        assert_eq!((text, reasons), (whole(&reply, index), vec!["length".to_owned()]));
        let choices = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == index);
        let roles = choices.filter(|choice| choice["delta"]["role"] == "assistant").count();
        assert_eq!(roles, 1);
    }
    let extra = json!({"seed": 5, "n": 2, "ignore_eos": true, "prompt": ["one", "two"], "max_tokens": 9});
    let (chunks, reply) = both(&server, COMPLETION, completion(&extra)).await;
    for index in 0..4 {
        assert_eq!(joined(&chunks, index as u64).0, whole(&reply, index));
    }
    server.ended().await;
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive() {
    let mut setup = Setup::default();
    setup.serve.keep_alive = Some(std::time::Duration::ZERO);
    let server = TestServer::start(setup).await;
    let response = server
        .post(COMPLETION, &completion(&json!({"stream": true, "seed": 1, "max_tokens": 400, "ignore_eos": true})))
        .await;
    assert!(response.body.split("\n\n").any(|frame| frame == ": ping"), "{}", response.body);
    assert!(!response.chunks().is_empty());
    server.ended().await;
}

/// The same request alone and among others.
#[tokio::test]
async fn neighbours_change_nothing() {
    let server = TestServer::start(Setup::default()).await;
    let body = completion(&json!({"temperature": 0, "ignore_eos": true}));
    let alone = whole(&server.post(COMPLETION, &body).await.json(), 0);
    let others = completion(&json!({"seed": 9, "ignore_eos": true, "n": 5}));
    let (first, second, _) =
        tokio::join!(server.post(COMPLETION, &body), server.post(COMPLETION, &body), server.post(COMPLETION, &others));
    assert_eq!([whole(&first.json(), 0), whole(&second.json(), 0)], [alone.clone(), alone]);
    server.ended().await;
}
