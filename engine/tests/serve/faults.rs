//! What is wrong with a request is told by status, in the envelope.

use serde_json::{Value, json};

use super::support::{JSON, Setup, TestServer};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

#[tokio::test]
async fn routes_methods_and_media_types() {
    let server = TestServer::start(Setup::default()).await;
    assert_eq!(server.get("/").await.error(404)["type"], "not_found_error");
    server.post("/v1/embeddings", &json!({})).await.error(404);
    server.get("/v1/models/%FF").await.error(400);
    server.get("/v1/models/").await.error(404);
    assert_eq!(server.send("DELETE", "/v1/models/alias", "", b"").await.header("allow"), Some("GET,HEAD"));
    server.get(CHAT).await.error(405);
    server.post("/v1/models", &json!({})).await.error(405);
    let error = server.send("POST", CHAT, "", b"{}").await.error(415);
    assert_eq!(error["type"], "invalid_request_error");
    server.send("POST", CHAT, "content-type: text/plain\r\n", b"{}").await.error(415);
    server.send("POST", CHAT, &format!("{JSON}content-encoding: gzip\r\n"), b"{}").await.error(415);
    // Parameters of the type do not matter: this one is read, and is no request.
    server.send("POST", CHAT, "content-type: Application/JSON; charset=utf-8\r\n", b"{}").await.error(400);
    server.ended().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let mut setup = Setup::default();
    setup.serve.body_limit = 1000;
    let server = TestServer::start(setup).await;
    let body = json!({"prompt": "x".repeat(2000)}).to_string();
    server.send("POST", COMPLETION, JSON, body.as_bytes()).await.error(413);
    // Without a length in front.
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = format!(
        "POST {COMPLETION} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ntransfer-encoding: chunked\r\n{JSON}\r\n"
    );
    let response = server.raw(&format!("{head}{chunked}")).await;
    response.error(413);
    server.ended().await;
}

#[tokio::test]
async fn text_that_is_no_json_is_told_with_its_place() {
    let server = TestServer::start(Setup::default()).await;
    for body in
        [&b"{\n  \"prompt\": \n}"[..], b"", b"{\"prompt\": \"\xFF\"}", b"{\"a\":1}{", b"{\"temperature\":1e999}"]
    {
        let error = server.send("POST", COMPLETION, JSON, body).await.error(400);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("line") && message.contains("column"), "{message}");
    }
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    server.send("POST", COMPLETION, JSON, deep.as_bytes()).await.error(400);
    server.ended().await;
}

#[tokio::test]
async fn another_model_is_not_found() {
    let server = TestServer::start(Setup::default()).await;
    let ask = |model: Value| json!({"model": model, "prompt": "Hi", "max_tokens": 1});
    for known in [json!("synthetic"), json!("alias"), Value::Null] {
        assert_eq!(server.post(COMPLETION, &ask(known)).await.status, 200);
    }
    let error = server.post(COMPLETION, &ask(json!("gpt"))).await.error(404);
    assert_eq!((&error["code"], &error["param"]), (&json!("model_not_found"), &json!("model")));
    server.post(COMPLETION, &ask(json!(1))).await.error(400);
    server.ended().await;
}

#[tokio::test]
async fn too_long_for_the_context() {
    let server = TestServer::start(Setup::default()).await;
    let long = "x".repeat(600);
    for (path, body, prompt) in [
        (COMPLETION, json!({"prompt": long}), 600),
        (COMPLETION, json!({"prompt": "x", "max_tokens": 512}), 1),
        (COMPLETION, json!({"prompt": "x", "max_tokens": 2_000_000_000}), 1),
        (COMPLETION, json!({"prompt": ["x", long], "n": 2}), 600),
        (CHAT, json!({"messages": [{"role": "user", "content": long}]}), 0),
        (CHAT, json!({"messages": [{"role": "user", "content": long}], "stream": true, "n": 2}), 0),
    ] {
        let error = server.post(path, &body).await.error(400);
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("invalid_request_error"), &json!("context_length_exceeded"))
        );
        assert_eq!(error["n_ctx"], 512);
        let tokens = error["n_prompt_tokens"].as_u64().unwrap();
        assert!(if prompt == 0 { tokens > 512 } else { tokens == prompt }, "{error}");
        assert!(error["message"].as_str().unwrap().contains("context"));
    }
    server.wait_idle().await;
    server.ended().await;
}

#[tokio::test]
async fn messages_that_are_none() {
    let server = TestServer::start(Setup::default()).await;
    for messages in [
        Value::Null,
        json!("hi"),
        json!([]),
        json!(["hi"]),
        json!([{}]),
        json!([{"role": "user", "content": 1}]),
        json!([{"role": 1, "content": "x"}]),
        json!([{"role": "king", "content": "x"}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        json!({"role": "user"}),
    ] {
        let error = server.post(CHAT, &json!({"messages": messages})).await.error(400);
        assert_eq!(error["param"], "messages", "{error}");
    }
    // A message without content is one with nothing in it.
    let body = json!({"messages": [{"role": "user"}], "max_tokens": 1});
    assert_eq!(server.post(CHAT, &body).await.status, 200);
    let body = json!({"messages": [{"role": "user", "content": "x"}], "continue_final_message": true});
    assert_eq!(server.post(CHAT, &body).await.error(400)["param"], "continue_final_message");
    for prompt in
        [json!(""), json!([]), json!([[]]), json!([1, "a"]), json!(["a", 1]), json!([1.5]), json!([-1]), json!([99999])]
    {
        let error = server.post(COMPLETION, &json!({"prompt": prompt})).await.error(400);
        assert_eq!(error["param"], "prompt", "{error}");
    }
    server.ended().await;
}

#[tokio::test]
async fn a_template_that_refuses_is_the_callers_fault() {
    let mut setup = Setup::default();
    setup.model.chat_template = Some(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system message here') }}{% endif %}{{ messages[0].content }}"
            .to_owned(),
    );
    let server = TestServer::start(setup).await;
    let body = json!({"messages": [{"role": "system", "content": "x"}]});
    let error = server.post(CHAT, &body).await.error(400);
    assert!(error["message"].as_str().unwrap().contains("no system message here"), "{error}");
    server.ended().await;
}

#[tokio::test]
async fn a_model_without_a_template_does_not_chat() {
    let mut setup = Setup::default();
    setup.model.chat_template = None;
    let server = TestServer::start(setup).await;
    let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
    assert_eq!(server.post(CHAT, &body).await.error(501)["type"], "not_supported_error");
    assert_eq!(server.post(COMPLETION, &json!({"prompt": "x", "max_tokens": 1})).await.status, 200);
    server.ended().await;
}

#[tokio::test]
async fn request_ids_are_echoed_where_they_are_plain() {
    let server = TestServer::start(Setup::default()).await;
    for (sent, is_echoed) in [("abc-1_2.3:4", true), ("a b", false), ("<script>", false), (&*"x".repeat(129), false)] {
        let response = server.send("GET", "/health", &format!("X-Request-Id: {sent}\r\n"), b"").await;
        assert_eq!(response.header("x-request-id") == Some(sent), is_echoed, "{sent}");
    }
    let ids: Vec<_> = [server.get("/health").await, server.get("/nothing").await]
        .iter()
        .map(|response| response.header("x-request-id").unwrap().to_owned())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert!(server.get("/nothing").await.header("openai-processing-ms").unwrap().parse::<u64>().is_ok());
    server.ended().await;
}
