//! The executor: requests that share steps answer as if each were alone, for any number of threads; pages come back; a
//! request nobody wants any more ends; the queue has an end.

use std::sync::Arc;

use memra_artifact::GgufModel;
use memra_contract::DeviceKey;
use memra_contract::device::HostArch;
use memra_engine::runner::{Runner, RunnerOptions};
use memra_engine::schedule::{
    Engine, EngineOptions, Event, Finish, FinishReason, Generation, Request, Sampling, SubmitError,
};
use memra_engine::testing::SyntheticModel;
use memra_kernels::backend::host::this_tier;
use memra_kernels::input::Stream;
use memra_kernels::select::Tables;

const OPTIONS: EngineOptions = EngineOptions { max_sequences: 6, max_queue: 16, max_positions: 512, mixed_rows: 16 };

fn start(threads: usize, options: EngineOptions) -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    SyntheticModel::default().write(&path).expect("a model file");
    let options_of_runner = RunnerOptions {
        key: DeviceKey::Host { arch: HostArch::of_this_build(), tier: this_tier() },
        threads: Some(threads),
        max_rows: 48,
        max_wanted: 8,
        cache_positions: 2048,
    };
    let model = GgufModel::open(&path).expect("a readable file");
    let runner = Runner::load(&model, &Tables::default(), options_of_runner).expect("a synthetic model loads");
    (Engine::start(runner, options).expect("a thread"), folder)
}

fn request(place: u64, prompt: usize, max_tokens: usize, sampling: Sampling) -> Request {
    let stream = Stream::new(place, "prompt");
    let vocab = SyntheticModel::vocab() as u64;
    let prompt = (0..prompt as u64).map(|i| (stream.bits(i) % vocab) as u32).collect();
    Request { prompt, max_tokens, sampling, end_tokens: Arc::new([]) }
}

/// Tokens, the largest batch they shared a step with, and the end.
fn collect(mut generation: Generation) -> (Vec<u32>, usize, Option<Finish>) {
    let (mut tokens, mut largest) = (Vec::new(), 0);
    while let Some(event) = generation.next_blocking() {
        match event {
            Event::Token { id, batch } => {
                tokens.push(id);
                largest = largest.max(batch);
            }
            Event::Finished(finish) => return (tokens, largest, Some(finish)),
            Event::Failed(why) => panic!("{why}"),
        }
    }
    (tokens, largest, None)
}

/// Greedy, seeded and penalised requests with prompts of different lengths.
fn requests() -> Vec<Request> {
    let seeded = Sampling { temperature: 0.9, top_k: 40, top_p: 0.95, seed: 7, ..Sampling::default() };
    let penalised =
        Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, repetition_penalty: 1.1, ..seeded.clone() };
    vec![
        request(1, 100, 40, Sampling::default()),
        request(2, 3, 40, Sampling::default()),
        request(3, 70, 40, seeded.clone()),
        request(4, 1, 40, penalised),
        request(5, 33, 40, Sampling { temperature: 1.5, seed: 8, ..Sampling::default() }),
    ]
}

#[test]
fn together_is_as_alone_on_any_number_of_threads() {
    let mut expected: Option<Vec<Vec<u32>>> = None;
    for threads in [1, 2, 3] {
        let (engine, _folder) = start(threads, OPTIONS);
        let alone: Vec<Vec<u32>> = requests()
            .into_iter()
            .map(|request| {
                let (tokens, largest, finish) = collect(engine.submit(request).expect("room"));
                assert_eq!((tokens.len(), largest), (40, 1));
                assert_eq!(finish.map(|finish| finish.reason), Some(FinishReason::Length));
                tokens
            })
            .collect();
        assert_eq!(expected.get_or_insert_with(|| alone.clone()), &alone, "{threads} threads");
        // All at once: they enter at different depths, because prompts are read in chunks of what is left of a step.
        let generations: Vec<Generation> =
            requests().into_iter().map(|request| engine.submit(request).expect("room")).collect();
        let together: Vec<_> = generations.into_iter().map(collect).collect();
        let largest = together.iter().map(|(_, largest, _)| *largest).max();
        assert!(largest >= Some(4), "steps were shared: {largest:?}");
        for (place, ((tokens, _, _), alone)) in together.iter().zip(&alone).enumerate() {
            assert_eq!(tokens, alone, "request {place} on {threads} threads");
        }
        let status = engine.status();
        assert_eq!((status.running, status.waiting, status.pages_used), (0, 0, 0));
    }
}

#[test]
fn a_request_that_is_dropped_or_completed_ends_and_gives_its_pages_back() {
    let (engine, _folder) = start(2, OPTIONS);
    let long = || request(1, 5, 500, Sampling::default());
    let mut dropped = engine.submit(long()).expect("room");
    assert!(matches!(dropped.next_blocking(), Some(Event::Token { .. })));
    drop(dropped);
    let mut completed = engine.submit(long()).expect("room");
    assert!(matches!(completed.next_blocking(), Some(Event::Token { .. })));
    completed.complete();
    let (tokens, _, finish) = collect(completed);
    let finish = finish.expect("an end");
    assert_eq!(finish.reason, FinishReason::Stop);
    assert!(tokens.len() + 1 == finish.completion_tokens && finish.completion_tokens < 500);
    let cancelled = engine.submit(long()).expect("room");
    cancelled.cancel();
    assert_eq!(collect(cancelled).2.map(|finish| finish.reason), Some(FinishReason::Cancelled));
    // The one that was dropped has nobody to tell; a further answer comes after it was noticed.
    let (tokens, _, _) = collect(engine.submit(request(2, 4, 3, Sampling::default())).expect("room"));
    assert_eq!(tokens.len(), 3);
    assert_eq!(engine.status().pages_used, 0);
    let text = {
        let mut registry = prometheus_client::registry::Registry::default();
        engine.metrics().register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        text
    };
    assert!(text.contains("request_success_total{finished_reason=\"stop\"} 1"), "{text}");
    assert!(text.contains("request_success_total{finished_reason=\"abort\"} 2"), "{text}");
}

#[test]
fn what_cannot_be_served_is_refused_with_its_numbers() {
    let (engine, _folder) = start(1, EngineOptions { max_sequences: 1, max_queue: 2, ..OPTIONS });
    let refuse = |request| engine.submit(request).map(|_| ()).expect_err("a refusal");
    let empty = Request { prompt: Vec::new(), ..request(1, 1, 1, Sampling::default()) };
    assert_eq!(refuse(empty), SubmitError::EmptyPrompt);
    let long = refuse(request(1, 500, 13, Sampling::default()));
    assert_eq!(long, SubmitError::TooLong { prompt: 500, max_tokens: 13, limit: 512 });
    let foreign = Request { prompt: vec![1, 1 << 20], ..request(1, 1, 1, Sampling::default()) };
    assert!(refuse(foreign).to_string().contains("token 1048576 at place 1"));
    let held: Vec<Generation> =
        (0..64).map_while(|place| engine.submit(request(place, 20, 400, Sampling::default())).ok()).collect();
    assert!((2..=4).contains(&held.len()), "{}", held.len());
    let full = refuse(request(9, 1, 1, Sampling::default()));
    assert!(matches!(full, SubmitError::QueueFull { limit: 2, .. }), "{full}");
    drop(held);
    engine.join();
    assert_eq!(refuse(request(9, 1, 1, Sampling::default())), SubmitError::Draining);
    assert!(!engine.status().is_alive);
}

#[test]
fn nothing_to_generate_reads_the_prompt() {
    let (engine, _folder) = start(1, OPTIONS);
    let (tokens, _, finish) = collect(engine.submit(request(1, 100, 0, Sampling::default())).expect("room"));
    let finish = finish.expect("an end");
    assert_eq!((tokens.len(), finish.completion_tokens, finish.prompt_tokens), (0, 0, 100));
    assert_eq!(finish.reason, FinishReason::Length);
}
