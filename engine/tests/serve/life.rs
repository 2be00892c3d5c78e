//! A full queue, readers who leave, and the end of the server.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::{JSON, Response, Setup, TestServer, joined, whole};

const COMPLETION: &str = "/v1/completions";

/// An answer that takes long enough to look at it while it is made.
fn long(stream: bool) -> Vec<u8> {
    json!({"prompt": "Hi", "max_tokens": 16_000, "ignore_eos": true, "seed": 1, "stream": stream})
        .to_string()
        .into_bytes()
}

fn long_setup() -> Setup {
    let mut setup = Setup::default();
    setup.model.context = 16_384;
    setup.engine.max_positions = 16_384;
    setup.engine.max_sequences = 1;
    setup.engine.max_queue = 1;
    setup
}

async fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to be: {what}");
}

#[tokio::test]
async fn a_full_queue_is_told_with_a_time() {
    let server = TestServer::start(long_setup()).await;
    let first = server.open("POST", COMPLETION, JSON, &long(true)).await;
    wait("the first runs", || server.engine.status().running == 1).await;
    let second = server.open("POST", COMPLETION, JSON, &long(false)).await;
    wait("the second waits", || server.engine.status().waiting == 1).await;
    for stream in [true, false] {
        let response = server.send("POST", COMPLETION, JSON, &long(stream)).await;
        let error = response.error(429);
        assert_eq!(error["type"], "server_overloaded");
        assert!(response.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    let metrics = server.get("/metrics").await.body;
    assert!(
        metrics.contains("memra:requests_rejected_total{model_name=\"synthetic\",reason=\"queue_full\"} 2"),
        "{metrics}"
    );
    drop((first, second));
    server.wait_idle().await;
    // There is room again.
    let body = json!({"prompt": "Hi", "max_tokens": 1});
    assert_eq!(server.post(COMPLETION, &body).await.status, 200);
    server.ended().await;
}

#[tokio::test]
async fn a_reader_who_leaves_frees_the_engine() {
    let server = TestServer::start(long_setup()).await;
    for stream in [true, false] {
        let running = server.open("POST", COMPLETION, JSON, &long(stream)).await;
        wait("it runs", || server.engine.status().running == 1).await;
        if stream {
            running.read_until("data: ").await;
        }
        let waiting = server.open("POST", COMPLETION, JSON, &long(stream)).await;
        wait("another waits", || server.engine.status().waiting == 1).await;
        drop(waiting);
        wait("it waits no more", || server.engine.status().waiting == 0).await;
        drop(running);
        server.wait_idle().await;
    }
    server.ended().await;
}

#[tokio::test]
async fn a_reader_who_does_not_read_does_not_hold_the_others_up() {
    let mut setup = long_setup();
    setup.engine.max_sequences = 2;
    let server = TestServer::start(setup).await;
    let silent = server.open("POST", COMPLETION, JSON, &long(true)).await;
    wait("it runs", || server.engine.status().running == 1).await;
    let body = json!({"prompt": "Hi", "max_tokens": 5, "ignore_eos": true});
    assert_eq!(server.post(COMPLETION, &body).await.json()["usage"]["completion_tokens"], 5);
    drop(silent);
    server.wait_idle().await;
    server.ended().await;
}

#[tokio::test]
async fn draining_finishes_what_runs_and_takes_nothing_new() {
    let mut setup = long_setup();
    setup.engine.max_positions = 2048;
    setup.serve.drain_timeout = Duration::from_mins(10);
    let mut server = TestServer::start(setup).await;
    let body = json!({"prompt": "Hi", "max_tokens": 1000, "ignore_eos": true, "seed": 1, "stream": true}).to_string();
    let running = server.open("POST", COMPLETION, JSON, body.as_bytes()).await;
    let mut bytes = running.read_until("data: ").await;
    server.shut_down();
    wait("it drains", || server.engine.status().is_draining).await;
    for stream in [true, false] {
        let response = server.send("POST", COMPLETION, JSON, &long(stream)).await;
        let error = response.error(503);
        assert_eq!((&error["message"], &error["type"]), (&json!("Draining"), &json!("unavailable_error")));
        assert!(response.header("retry-after").is_some());
    }
    server.get("/health").await.error(503);
    running.read_to_end(&mut bytes).await;
    let (_, reasons) = joined(&Response::parse(&bytes).chunks(), 0);
    assert_eq!(reasons, ["length"]);
    let engine = server.engine.clone();
    server.ended().await;
    engine.join();
    assert!(!engine.status().is_alive);
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_ended_with_an_error() {
    let mut setup = long_setup();
    setup.serve.drain_timeout = Duration::from_millis(20);
    setup.engine.max_sequences = 2;
    let mut server = TestServer::start(setup).await;
    let streamed = server.open("POST", COMPLETION, JSON, &long(true)).await;
    let mut bytes = streamed.read_until("data: ").await;
    let whole = server.open("POST", COMPLETION, JSON, &long(false)).await;
    wait("both run", || server.engine.status().running == 2).await;
    server.shut_down();
    streamed.read_to_end(&mut bytes).await;
    let chunks = Response::parse(&bytes).chunks();
    assert_eq!(chunks.last().unwrap()["error"]["message"], "Draining");
    let mut bytes = Vec::new();
    whole.read_to_end(&mut bytes).await;
    Response::parse(&bytes).error(503);
    let engine = server.engine.clone();
    server.ended().await;
    engine.join();
}

#[tokio::test]
async fn an_engine_that_is_gone_is_told() {
    let server = TestServer::start(Setup::default()).await;
    server.engine.join();
    let body = json!({"prompt": "Hi"});
    let error = server.post(COMPLETION, &body).await.error(503);
    assert_eq!(error["type"], "unavailable_error");
    server.get("/health").await.error(503);
    server.ended().await;
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = TestServer::start(Setup::default()).await;
    let connection = server.connect().await;
    let body = json!({"prompt": "Hi", "max_tokens": 2, "temperature": 0, "ignore_eos": true}).to_string();
    let mut texts = Vec::new();
    for _ in 0..3 {
        let head = format!("POST {COMPLETION} HTTP/1.1\r\nhost: t\r\n{JSON}content-length: {}\r\n\r\n", body.len());
        connection.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let bytes = connection.read_until("}}}").await;
        let reply: Value = Response::parse(&bytes).json();
        texts.push(whole(&reply, 0));
    }
    assert!(texts.iter().all(|text| *text == texts[0]));
    server.ended().await;
}
