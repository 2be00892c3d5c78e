//! What a reply looks like, and that it does what was asked.

use serde_json::{Value, json};

use super::support::{Setup, TestServer, whole};

/// Replaces what differs from run to run.
fn settled(mut reply: Value) -> Value {
    for key in ["id", "created", "system_fingerprint"] {
        if let Some(value) = reply.get_mut(key) {
            *value = json!(format!("[{key}]"));
        }
    }
    reply
}

fn usage(reply: &Value) -> (u64, u64) {
    let usage = &reply["usage"];
    assert_eq!(
        usage["total_tokens"].as_u64().unwrap(),
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap()
    );
    (usage["prompt_tokens"].as_u64().unwrap(), usage["completion_tokens"].as_u64().unwrap())
}

#[tokio::test]
async fn a_chat_reply_has_the_shape_of_the_interface() {
    let server = TestServer::start(Setup::default()).await;
    let body = json!({
        "model": "synthetic", "messages": [{"role": "user", "content": "Say the words."}],
        "max_tokens": 0, "temperature": 0,
    });
    let response = server.post("/v1/chat/completions", &body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let reply = response.json();
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(reply["system_fingerprint"].as_str().unwrap().starts_with("fp_"));
    insta::assert_json_snapshot!(settled(reply), @r#"
    {
      "id": "[id]",
      "object": "chat.completion",
      "created": "[created]",
      "model": "synthetic",
      "system_fingerprint": "[system_fingerprint]",
      "choices": [
        {
          "index": 0,
          "message": {
            "role": "assistant",
            "content": "",
            "refusal": null
          },
          "logprobs": null,
          "finish_reason": "length"
        }
      ],
      "usage": {
        "prompt_tokens": 23,
        "completion_tokens": 0,
        "total_tokens": 23,
        "prompt_tokens_details": {
          "cached_tokens": 0
        }
      }
    }
    "#);
    server.ended().await;
}

#[tokio::test]
async fn a_completion_has_the_shape_of_the_interface() {
    let server = TestServer::start(Setup::default()).await;
    let body = json!({"prompt": "the other", "max_tokens": 0});
    let reply = server.post("/v1/completions", &body).await.json();
    insta::assert_json_snapshot!(settled(reply), @r#"
    {
      "id": "[id]",
      "object": "text_completion",
      "created": "[created]",
      "model": "synthetic",
      "system_fingerprint": "[system_fingerprint]",
      "choices": [
        {
          "index": 0,
          "text": "",
          "logprobs": null,
          "finish_reason": "length"
        }
      ],
      "usage": {
        "prompt_tokens": 6,
        "completion_tokens": 0,
        "total_tokens": 6,
        "prompt_tokens_details": {
          "cached_tokens": 0
        }
      }
    }
    "#);
    server.ended().await;
}

#[tokio::test]
async fn max_tokens_is_exact() {
    let server = TestServer::start(Setup::default()).await;
    for tokens in [0, 1, 2, 7] {
        for (path, mut body) in [
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Hi"}]})),
            ("/v1/completions", json!({"prompt": "Hi"})),
        ] {
            body["max_completion_tokens"] = json!(tokens);
            body["ignore_eos"] = json!(true);
            let reply = server.post(path, &body).await.json();
            assert_eq!(usage(&reply).1, tokens, "{reply}");
            assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
            if tokens == 0 {
                assert_eq!(whole(&reply, 0), "");
            }
        }
    }
    // A completion that does not say has 16; a chat has the rest of the context.
    let reply = server.post("/v1/completions", &json!({"prompt": "Hi", "ignore_eos": true})).await.json();
    assert_eq!(usage(&reply).1, 16);
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": true});
    let (prompt, completion) = usage(&server.post("/v1/chat/completions", &body).await.json());
    assert_eq!(prompt + completion, 512);
    server.ended().await;
}

#[tokio::test]
async fn an_end_token_ends_the_answer_and_is_no_text() {
    let server = TestServer::start(Setup::default()).await;
    let end = memra_engine::testing::SyntheticModel::end_token();
    let body = json!({"prompt": "Hi", "max_tokens": 9, "logit_bias": {end.to_string(): 100}});
    let reply = server.post("/v1/completions", &body).await.json();
    assert_eq!((whole(&reply, 0).as_str(), usage(&reply).1), ("", 1));
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    // Where it does not end the answer it is still no text.
    let body = json!({"prompt": "Hi", "max_tokens": 9, "logit_bias": {end.to_string(): 100}, "ignore_eos": true});
    let reply = server.post("/v1/completions", &body).await.json();
    assert_eq!((whole(&reply, 0).as_str(), usage(&reply).1), ("", 9));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    server.ended().await;
}

#[tokio::test]
async fn the_same_seed_gives_the_same_text_and_choices_differ() {
    let server = TestServer::start(Setup::default()).await;
    let ask = |seed: Value, n: u64| {
        let body = json!({"prompt": "the", "max_tokens": 24, "seed": seed, "n": n, "ignore_eos": true});
        let server = &server;
        async move { server.post("/v1/completions", &body).await.json() }
    };
    let three = ask(json!(-5), 3).await;
    assert_eq!(usage(&three), (usage(&ask(json!(-5), 1).await).0, 3 * 24));
    for (index, seed) in [(0, -5), (1, -4), (2, -3)] {
        assert_eq!(three["choices"][index]["index"], index);
        assert_eq!(whole(&three, index), whole(&ask(json!(seed), 1).await, 0));
    }
    assert_ne!(whole(&three, 0), whole(&three, 1));
    // Without a seed every request has its own.
    assert_ne!(whole(&ask(Value::Null, 1).await, 0), whole(&ask(Value::Null, 1).await, 0));
    server.ended().await;
}

#[tokio::test]
async fn greedy_choices_are_equal() {
    let server = TestServer::start(Setup::default()).await;
    let body = json!({"prompt": "the", "max_tokens": 12, "temperature": 0, "n": 2, "ignore_eos": true});
    let reply = server.post("/v1/completions", &body).await.json();
    assert_eq!(whole(&reply, 0), whole(&reply, 1));
    server.ended().await;
}

#[tokio::test]
async fn prompts_come_in_four_forms() {
    let server = TestServer::start(Setup::default()).await;
    let ask = |prompt: Value| {
        let body = json!({"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true});
        let server = &server;
        async move { server.post("/v1/completions", &body).await.json() }
    };
    let ids = |text: &str| {
        let (server, text) = (&server, text.to_owned());
        async move { server.post("/tokenize", &json!({"content": text})).await.json()["tokens"].clone() }
    };
    let (first, second) = ("the other", "é 🙂 <|im_start|>user");
    let (first_ids, second_ids) = (ids(first).await, ids(second).await);
    let texts = [whole(&ask(json!(first)).await, 0), whole(&ask(json!(second)).await, 0)];
    assert_ne!(texts[0], texts[1]);
    assert_eq!(whole(&ask(first_ids.clone()).await, 0), texts[0]);
    for list in [json!([first, second]), json!([first_ids, second_ids]), json!([first, second_ids])] {
        let reply = ask(list).await;
        assert_eq!([whole(&reply, 0), whole(&reply, 1)], texts);
        let tokens = first_ids.as_array().unwrap().len() + second_ids.as_array().unwrap().len();
        assert_eq!(usage(&reply), (tokens as u64, 24));
    }
    server.ended().await;
}

#[tokio::test]
async fn chat_is_the_template_and_a_completion() {
    let server = TestServer::start(Setup::default()).await;
    let ask = |path: &'static str, mut body: Value| {
        body["max_tokens"] = json!(12);
        body["temperature"] = json!(0);
        let server = &server;
        async move {
            let reply = server.post(path, &body).await.json();
            (whole(&reply, 0), reply["usage"].clone())
        }
    };
    let chat = |body| ask("/v1/chat/completions", body);
    let completion = |prompt: &str| ask("/v1/completions", json!({"prompt": prompt}));
    let system = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n";
    for role in ["system", "developer"] {
        let messages = json!([
            {"role": role, "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]);
        let prompt = format!("{system}<|im_start|>assistant\n");
        assert_eq!(chat(json!({"messages": messages})).await, completion(&prompt).await);
        assert_eq!(chat(json!({"messages": messages, "add_generation_prompt": false})).await, completion(system).await);
    }
    let messages = json!([{"role": "user", "content": "ab"}, {"role": "assistant", "content": "It is "}]);
    let prompt = "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nIt is ";
    assert_eq!(chat(json!({"messages": messages, "continue_final_message": true})).await, completion(prompt).await);
    server.ended().await;
}

#[tokio::test]
async fn tokens_come_back_as_text() {
    let server = TestServer::start(Setup::default()).await;
    for text in ["", "the other", "é 🙂\n\t\"", "<|im_end|>"] {
        let reply = server.post("/tokenize", &json!({"content": text})).await.json();
        assert_eq!(reply["count"], reply["tokens"].as_array().unwrap().len());
        assert_eq!(server.post("/tokenize", &json!({"prompt": text})).await.json(), reply);
        let back = server.post("/detokenize", &json!({"tokens": reply["tokens"]})).await.json();
        assert_eq!(back["content"], text);
    }
    let special = server.post("/tokenize", &json!({"content": "<|im_end|>", "parse_special": false})).await.json();
    assert!(special["count"].as_u64().unwrap() > 1);
    let pieces = server.post("/tokenize", &json!({"content": "the é", "with_pieces": true})).await.json();
    assert!(pieces["tokens"].as_array().unwrap().iter().all(|token| token["id"].is_number()));
    server.post("/detokenize", &json!({"tokens": [1_000_000]})).await.error(400);
    server.post("/detokenize", &json!({"tokens": [-1]})).await.error(400);
    server.post("/tokenize", &json!({})).await.error(400);
    server.ended().await;
}

#[tokio::test]
async fn models_and_facts_are_told() {
    let server = TestServer::start(Setup::default()).await;
    let models = server.get("/v1/models").await.json();
    assert_eq!(models["object"], "list");
    let ids: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["synthetic", "alias"]);
    assert_eq!(server.get("/v1/models/alias").await.json()["object"], "model");
    assert_eq!(server.get("/v1/models/no/such").await.error(404)["code"], "model_not_found");
    assert_eq!(server.get("/health").await.json(), json!({"status": "ok"}));
    assert!(server.get("/version").await.json()["version"].is_string());
    let props = server.get("/props").await.json();
    assert_eq!((&props["n_ctx"], &props["default_generation_settings"]["temperature"]), (&json!(512), &json!(1.0)));
    assert!(props["not_supported"].as_array().unwrap().contains(&json!("logprobs")));
    server.ended().await;
}

#[tokio::test]
async fn what_happened_is_counted() {
    let server = TestServer::start(Setup::default()).await;
    let body = json!({"prompt": "Hi", "max_tokens": 3, "ignore_eos": true});
    server.post("/v1/completions", &body).await;
    server.post("/v1/completions", &json!({"prompt": 1})).await;
    server.get("/no/such/route").await;
    let response = server.get("/metrics").await;
    assert!(response.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        "memra:generation_tokens_total{model_name=\"synthetic\"} 3",
        "memra:prompt_tokens_total{model_name=\"synthetic\"} 2",
        "memra:num_requests_running{model_name=\"synthetic\"} 0",
        "memra:request_success_total{model_name=\"synthetic\",finished_reason=\"length\"} 1",
        "memra:requests_rejected_total{model_name=\"synthetic\",reason=\"invalid\"} 1",
        "memra:http_requests_total{model_name=\"synthetic\",method=\"POST\",handler=\"/v1/completions\",status=\"200\"} 1",
        "memra:http_requests_total{model_name=\"synthetic\",method=\"GET\",handler=\"unmatched\",status=\"404\"} 1",
        "# EOF",
    ] {
        assert!(response.body.lines().any(|found| found == line), "{line}\n{}", response.body);
    }
    server.ended().await;
}
