//! Every field with every wrong type, wrong values, and fields that are not supported.

use serde_json::{Map, Value, json};

use super::support::{Setup, TestServer};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

/// Fields of both routes with the JSON types that they take.
const FIELDS: &[(&str, &[&str])] = &[
    ("model", &["string"]),
    ("max_tokens", &["number"]),
    ("max_completion_tokens", &["number"]),
    ("temperature", &["number"]),
    ("top_p", &["number"]),
    ("top_k", &["number"]),
    ("min_p", &["number"]),
    ("seed", &["number"]),
    ("stop", &["string", "array"]),
    ("stream", &["boolean"]),
    ("stream_options", &["object"]),
    ("presence_penalty", &["number"]),
    ("frequency_penalty", &["number"]),
    ("repetition_penalty", &["number"]),
    ("repeat_penalty", &["number"]),
    ("logit_bias", &["object"]),
    ("ignore_eos", &["boolean"]),
    ("n", &["number"]),
    ("user", &["string"]),
    ("store", &["boolean"]),
    ("metadata", &["object"]),
    ("parallel_tool_calls", &["boolean"]),
    ("tools", &["array"]),
    ("tool_choice", &["string", "object"]),
    ("response_format", &["object"]),
    ("top_logprobs", &["number"]),
    ("echo", &["boolean"]),
    ("suffix", &["string"]),
    ("best_of", &["number"]),
    ("min_tokens", &["number"]),
    ("stop_token_ids", &["array"]),
];

const CHAT_FIELDS: &[(&str, &[&str])] = &[
    ("messages", &["array"]),
    ("add_generation_prompt", &["boolean"]),
    ("continue_final_message", &["boolean"]),
    ("chat_template_kwargs", &["object"]),
    ("logprobs", &["boolean"]),
];

const COMPLETION_FIELDS: &[(&str, &[&str])] = &[("prompt", &["string", "array"]), ("logprobs", &["number"])];

fn chat() -> Map<String, Value> {
    json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).as_object().unwrap().clone()
}

fn completion() -> Map<String, Value> {
    json!({"prompt": "Hi", "max_tokens": 1}).as_object().unwrap().clone()
}

fn with(mut body: Map<String, Value>, field: &str, value: Value) -> Value {
    body.insert(field.to_owned(), value);
    Value::Object(body)
}

#[tokio::test]
async fn a_wrong_type_is_a_fault_that_names_the_field() {
    let server = TestServer::start(Setup::default()).await;
    let wrong = [
        ("boolean", json!(true)),
        ("number", json!(7.25)),
        ("string", json!("7")),
        ("array", json!([[{}]])),
        ("object", json!({"no_such_key": [1]})),
    ];
    for (path, body, more) in [(CHAT, chat(), CHAT_FIELDS), (COMPLETION, completion(), COMPLETION_FIELDS)] {
        for (field, types) in FIELDS.iter().chain(more) {
            for (kind, value) in wrong.iter().filter(|(kind, _)| !types.contains(kind)) {
                let response = server.post(path, &with(body.clone(), field, value.clone())).await;
                let error = response.error(400);
                assert_eq!(error["param"], *field, "{kind} in {field}: {error}");
            }
            // The right type with a value that may be wrong: any answer but a fault of the server.
            for (_, value) in wrong.iter().filter(|(kind, _)| types.contains(kind)) {
                let response = server.post(path, &with(body.clone(), field, value.clone())).await;
                assert!([200, 400, 404, 501].contains(&response.status), "{field} {value}: {}", response.body);
            }
            // `null` is as good as absent, but where the field is needed.
            let status = server.post(path, &with(body.clone(), field, Value::Null)).await.status;
            assert_eq!(status, if ["messages", "prompt"].contains(field) { 400 } else { 200 }, "{field}");
        }
        for value in wrong.iter().map(|(_, value)| value).filter(|value| !value.is_object()) {
            server.post(path, value).await.error(400);
        }
    }
    server.ended().await;
}

#[tokio::test]
async fn a_value_out_of_its_range_is_told_with_the_range() {
    let server = TestServer::start(Setup::default()).await;
    for (field, values, range) in [
        ("temperature", json!([-0.1, 100.5]), "from 0 to 100"),
        ("top_p", json!([0, 1.01, -1, 1e-300]), "more than 0 and at most 1"),
        ("min_p", json!([-0.5, 1.5]), "from 0 to 1"),
        ("top_k", json!([-2, 1.5, 3_000_000_000_u64]), "from -1 to 2147483647"),
        ("presence_penalty", json!([-2.5, 3]), "from -2 to 2"),
        ("frequency_penalty", json!([-2.5, 3]), "from -2 to 2"),
        ("repetition_penalty", json!([0, -1, 1e-300]), "more than 0 and at most 100"),
        ("max_tokens", json!([-1, 1.5, 1e30]), "from 0 to 2147483647"),
        ("n", json!([0, -1, 129]), "from 1 to 128"),
        ("seed", json!([1.5, 1e30]), "a whole number of 64 bits with a sign"),
        ("stop", json!([[""], ["a", ""], vec!["x"; 17]]), "`stop`"),
        (
            "logit_bias",
            json!([{"x": 1}, {"-1": 1}, {"99999": 1}, {"1": 101}, {"1": "1"}, {"1": 1, "01": 1}]),
            "`logit_bias`",
        ),
    ] {
        for value in values.as_array().unwrap() {
            let error = server.post(COMPLETION, &with(completion(), field, value.clone())).await.error(400);
            assert_eq!(error["param"], field);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(range), "{message}");
        }
    }
    for body in [
        json!({"prompt": "Hi", "max_tokens": 1, "max_completion_tokens": 2}),
        json!({"prompt": "Hi", "repetition_penalty": 1.1, "repeat_penalty": 1.2}),
        json!({"prompt": "Hi", "stream_options": {"include_usage": true}}),
        json!({"prompt": "Hi", "stream": true, "stream_options": {"include_usages": true}}),
        json!({"prompt": "Hi", "n": 17}),
    ] {
        server.post(COMPLETION, &body).await.error(400);
    }
    server.ended().await;
}

#[tokio::test]
async fn what_is_not_supported_is_named_and_what_asks_for_nothing_is_taken() {
    let server = TestServer::start(Setup::default()).await;
    for (field, value) in [
        ("logprobs", json!(true)),
        ("top_logprobs", json!(2)),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_object"})),
        ("response_format", json!({})),
        ("reasoning_effort", json!("low")),
        ("min_tokens", json!(3)),
        ("modalities", json!(["text", "audio"])),
    ] {
        let response = server.post(CHAT, &with(chat(), field, value)).await;
        assert_eq!(response.header("x-should-retry"), Some("false"));
        let error = response.error(501);
        assert_eq!((&error["type"], &error["param"]), (&json!("not_supported_error"), &json!(field)));
        assert!(error["message"].as_str().unwrap().contains(field));
    }
    for (field, value) in [("logprobs", json!(0)), ("echo", json!(true)), ("suffix", json!("x")), ("best_of", json!(2))]
    {
        let error = server.post(COMPLETION, &with(completion(), field, value)).await.error(501);
        assert_eq!(error["param"], field);
    }
    let body = json!({
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "logprobs": false, "top_logprobs": 0,
        "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none",
        "response_format": {"type": "text"}, "modalities": ["text"], "user": "me", "store": true, "metadata": {"a": "b"},
        "parallel_tool_calls": true, "service_tier": "auto", "top_k": -1, "stop": null, "cache_prompt": true,
    });
    let response = server.post(CHAT, &body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    server.ended().await;
}

#[tokio::test]
async fn a_field_that_nobody_knows_is_refused() {
    let server = TestServer::start(Setup::default()).await;
    let error = server.post(COMPLETION, &with(completion(), "temprature", json!(1))).await.error(400);
    assert_eq!(error["message"], "`temprature` is no field of this request; the nearest one is `temperature`");
    let error = server.post(CHAT, &with(chat(), "prompt", json!("x"))).await.error(400);
    assert_eq!(error["param"], "prompt");
    server.post(CHAT, &with(chat(), &"x".repeat(10_000), json!(1))).await.error(400);
    server.ended().await;
}
