//! What the control plane asks for, and what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

/// One answer to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Token ids of the prompt, at least one, each below the vocabulary's size.
    pub prompt: Vec<u32>,
    /// Most tokens of the answer; 0 only reads the prompt.
    pub max_tokens: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens that end the answer; the one that does is counted, and is the last event's business, not text.
    pub end_tokens: Arc<[u32]>,
}

/// How a token is drawn from its logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the most likely tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this share as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Seed of the noise: the same seed, prompt and parameters give the same answer.
    pub seed: u64,
    /// Logits of tokens seen before, prompt included, are divided by this where positive and multiplied where negative; 1 does
    /// nothing.
    pub repetition_penalty: f32,
    /// Taken off the logit of every token that stands in the answer.
    pub presence_penalty: f32,
    /// Taken off the logit of a token for every time it stands in the answer.
    pub frequency_penalty: f32,
    /// Added to logits.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An end token was drawn.
    Stop,
    /// It reached its most tokens.
    Length,
    /// Nobody wanted it any more.
    Cancelled,
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens that were drawn, an end token included.
    pub completion_tokens: usize,
    /// Where the time went.
    pub timings: Timings,
}

/// Where the time of a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// From submission to admission.
    pub queued: Duration,
    /// From admission to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// What happens to a request, in order: tokens, then one `Finished` or `Failed`.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A token of the answer.
    Token {
        /// Its id.
        id: u32,
        /// The largest number of sequences that shared a step with this token's row, itself included.
        batch: usize,
    },
    /// The answer is complete.
    Finished(Finish),
    /// The step failed; nothing more will come.
    Failed(String),
}

/// An answer being made. Dropping it cancels the request before the next step.
#[derive(Debug)]
pub struct Generation {
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) is_complete: Arc<AtomicBool>,
}

impl Generation {
    /// The next event; `None` after the last one, or where the engine is gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next event, for callers outside of an async runtime.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }

    /// Ends the request before the next step as complete: what was wanted of it is there. Its `Finished` still comes.
    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
        self.cancel();
    }

    /// Ends the request before the next step; its `Finished` still comes.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancel();
    }
}
