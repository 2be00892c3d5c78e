//! Answers without a server: what a command line uses.

use std::sync::Arc;

use memra_engine::chat::{Answer, Ending, Piece};
use memra_engine::schedule::{FinishReason, Request, Sampling};
use memra_engine::serve::ServeModel;
use serde_json::json;

use super::support::{Setup, TestServer, load, whole};

fn answer(model: &ServeModel, max_tokens: usize, ends: bool, stops: &[&str], sampling: Sampling) -> Answer {
    let end_tokens: Arc<[u32]> = if ends { model.tokenizer.end_of_generation().into() } else { Arc::new([]) };
    let prompt = model.tokenizer.encode_prompt("the other é 🙂", true).unwrap();
    let request = Request { prompt, max_tokens, sampling, end_tokens: end_tokens.clone() };
    let generation = model.engine.submit(request).unwrap();
    let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
    Answer::new(generation, model.tokenizer.clone(), end_tokens, stops).unwrap()
}

fn read(mut answer: Answer) -> (String, Ending) {
    let mut text = String::new();
    loop {
        match answer.next_blocking() {
            Piece::Text(more) => {
                assert!(!more.is_empty());
                text += &more;
            }
            Piece::Done(ending) => {
                assert_eq!(answer.next_blocking(), Piece::Done(ending.clone()));
                return (text, ending);
            }
            Piece::Failed(why) => panic!("{why}"),
        }
    }
}

fn seeded(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, seed, ..Sampling::default() }
}

#[test]
fn the_blocking_reader_and_the_server_read_the_same() {
    let (model, _folder) = load(&Setup::default());
    let (text, ending) = read(answer(&model, 40, false, &[], seeded(7)));
    assert_eq!((ending.reason, ending.completion_tokens, ending.stop), (FinishReason::Length, 40, None));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(async {
        let server = TestServer::start(Setup::default()).await;
        let body = json!({"prompt": "the other é 🙂", "max_tokens": 40, "seed": 7, "ignore_eos": true});
        let reply = server.post("/v1/completions", &body).await.json();
        server.ended().await;
        reply
    });
    assert_eq!(whole(&served, 0), text);
    assert_eq!(served["usage"]["prompt_tokens"], ending.prompt_tokens);
    model.engine.join();
}

#[test]
fn the_stop_string_that_was_found_is_told() {
    let (model, _folder) = load(&Setup::default());
    let only_a = Sampling { logit_bias: vec![(97, 100.0)], ..Sampling::default() };
    let (text, ending) = read(answer(&model, 400, true, &["xyz", "aaa", "aaaa"], only_a.clone()));
    assert_eq!(text, "");
    assert_eq!((ending.reason, ending.stop.as_deref(), ending.completion_tokens), (FinishReason::Stop, Some("aaa"), 3));
    // The stop string is complete with the last token that is allowed.
    let (_, ending) = read(answer(&model, 3, true, &["aaa"], only_a.clone()));
    assert_eq!((ending.reason, ending.completion_tokens), (FinishReason::Stop, 3));
    // One token too few: what was held is text.
    let (text, ending) = read(answer(&model, 2, true, &["aaa"], only_a));
    assert_eq!((text.as_str(), ending.reason, ending.completion_tokens), ("aa", FinishReason::Length, 2));
    model.engine.join();
}

#[test]
fn half_a_character_at_the_end_is_shown_as_unknown() {
    let (model, _folder) = load(&Setup::default());
    let half = Sampling { logit_bias: vec![(0xC3, 100.0)], ..Sampling::default() };
    assert_eq!(read(answer(&model, 1, true, &[], half.clone())).0, "\u{FFFD}");
    let (text, ending) = read(answer(&model, 1, true, &["\u{FFFD}"], half));
    assert_eq!((text.as_str(), ending.reason), ("", FinishReason::Stop));
    model.engine.join();
}

#[test]
fn a_cancelled_answer_ends() {
    let (model, _folder) = load(&Setup::default());
    let mut cancelled = answer(&model, 400, false, &[], seeded(1));
    assert!(matches!(cancelled.next_blocking(), Piece::Text(_)));
    cancelled.cancel();
    let (_, ending) = read(cancelled);
    assert!(ending.reason == FinishReason::Cancelled || ending.completion_tokens == 400);
    model.engine.join();
    assert_eq!(model.engine.status().pages_used, 0);
}

#[test]
fn a_stop_string_that_is_empty_is_refused() {
    let (model, _folder) = load(&Setup::default());
    let request = Request { prompt: vec![1], max_tokens: 1, sampling: Sampling::default(), end_tokens: Arc::new([]) };
    let generation = model.engine.submit(request).unwrap();
    assert!(Answer::new(generation, model.tokenizer.clone(), Arc::new([]), vec![String::new()]).is_err());
    model.engine.join();
}
