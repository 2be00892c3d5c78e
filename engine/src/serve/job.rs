//! Requests for text: prepared, admitted, answered.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use super::error::ApiError;
use super::params::Params;
use super::reply::{Choice, Content, Head, Kind, Message, Reply, Usage, Used};
use super::state::{InFlight, State};
use crate::chat::{Answer, Ending, Piece};
use crate::schedule::{Request, Sampling};

/// A request that was understood: prompts are token ids.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) params: Params,
    /// At least one.
    pub(super) prompts: Vec<Vec<u32>>,
}

/// A request that the engine took.
pub(super) struct Running {
    pub(super) head: Head,
    pub(super) kind: Kind,
    pub(super) includes_usage: bool,
    pub(super) answers: Answers,
    pub(super) usage: Usage,
    since: Instant,
    state: Arc<State>,
    _in_flight: InFlight,
}

/// Answers that are made at the same time, in order of their choices.
pub(super) struct Answers {
    list: Vec<Option<Answer>>,
    /// The one that is asked first: they take turns.
    first: usize,
}

/// Tokens of a completion where the request does not say.
const COMPLETION_TOKENS: usize = 16;

impl Job {
    /// Puts everything in the queue, or nothing.
    pub(super) fn admit(self, state: &Arc<State>) -> Result<Running, ApiError> {
        let engine = &state.model.engine;
        let options = engine.options();
        let (field, answers) = (self.kind.prompt_field(), self.params.answers);
        let most = options.max_queue.max(options.max_sequences);
        let choices = self.prompts.len().saturating_mul(answers);
        if choices > most {
            let message = format!("the request asks for {choices} answers at a time; at most {most} are possible");
            return Err(ApiError::field(if answers > 1 { "n" } else { field }, message));
        }
        let end_tokens: Arc<[u32]> =
            if self.params.ignores_end { Arc::new([]) } else { state.model.tokenizer.end_of_generation().into() };
        let since = Instant::now();
        let usage = Usage::of_prompts(self.prompts.iter().map(Vec::len).sum());
        let mut list = Vec::with_capacity(choices);
        for prompt in self.prompts {
            let max_tokens = match (self.params.max_tokens, self.kind) {
                (Some(tokens), _) => tokens,
                (None, Kind::Completion) => COMPLETION_TOKENS,
                (None, Kind::Chat) if prompt.len() >= options.max_positions => 1,
                (None, Kind::Chat) => options.max_positions - prompt.len(),
            };
            let seed = self.params.seed.unwrap_or_else(|| state.fresh());
            for answer in 0..answers {
                let sampling = Sampling { seed: seed.wrapping_add(answer as u64), ..self.params.sampling.clone() };
                let request = Request { prompt: prompt.clone(), max_tokens, sampling, end_tokens: end_tokens.clone() };
                let generation =
                    engine.submit(request).map_err(|error| ApiError::submit(&error, state.retry_after(), field))?;
                let stops = self.params.stops.clone();
                let answer = Answer::new(generation, state.model.tokenizer.clone(), end_tokens.clone(), stops);
                list.push(Some(answer.map_err(|error| ApiError::field("stop", error.to_string()))?));
            }
        }
        Ok(Running {
            head: Head::new(state, self.kind, self.params.is_stream),
            kind: self.kind,
            includes_usage: self.params.includes_usage,
            answers: Answers { list, first: 0 },
            usage,
            since,
            state: state.clone(),
            _in_flight: state.enter(),
        })
    }
}

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The next piece of any answer with the number of its choice; `None` once all are done. Nothing is lost where the
    /// future is dropped before it is ready.
    pub(super) async fn next(&mut self) -> Option<(usize, Piece)> {
        poll_fn(|context| {
            let (len, mut is_over) = (self.list.len(), true);
            for turn in 0..len {
                let index = (self.first + turn) % len;
                let Some(slot) = self.list.get_mut(index) else { continue };
                let Some(answer) = slot else { continue };
                is_over = false;
                if let Poll::Ready(piece) = answer.poll_next(context) {
                    if !matches!(piece, Piece::Text(_)) {
                        *slot = None;
                    }
                    self.first = index + 1;
                    return Poll::Ready(Some((index, piece)));
                }
            }
            if is_over { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

impl Running {
    /// Notes the end of an answer.
    pub(super) fn ended(&mut self, ending: &Ending) {
        self.usage += ending;
        if self.answers.list.iter().all(Option::is_none) {
            self.state.took(self.since.elapsed());
        }
    }

    /// Waits for all answers and makes one reply of them.
    pub(super) async fn whole(mut self) -> Result<String, ApiError> {
        let mut texts: Vec<(String, Option<&'static str>)> = vec![Default::default(); self.answers.len()];
        let state = self.state.clone();
        let mut stopped = std::pin::pin!(state.stopped());
        loop {
            let next = tokio::select! {
                next = self.answers.next() => next,
                () = &mut stopped => return Err(ApiError::draining()),
            };
            let Some((index, piece)) = next else { break };
            let Some((text, reason)) = texts.get_mut(index) else { continue };
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::Done(ending) => {
                    *reason = Some(ending.reason.text());
                    self.ended(&ending);
                }
                Piece::Failed(why) => return Err(ApiError::server(why)),
            }
        }
        let content = |text| match self.kind {
            Kind::Chat => Content::Message(Message { role: "assistant", content: text, refusal: None }),
            Kind::Completion => Content::Text(text),
        };
        let choices = texts
            .iter()
            .enumerate()
            .map(|(index, (text, reason))| Choice {
                index,
                content: content(text),
                logprobs: None,
                finish_reason: *reason,
            })
            .collect();
        let reply = Reply { head: &self.head, choices, usage: Used::Now(self.usage) };
        serde_json::to_string(&reply).map_err(|error| ApiError::server(error.to_string()))
    }
}
