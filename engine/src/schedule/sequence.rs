//! One running sequence.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;

use super::request::{Event, Finish, FinishReason, Request, Sampling, Timings};
use crate::cache::PageTable;

/// A sequence that holds pages.
pub(super) struct Sequence {
    pub(super) request: Request,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Whether the one who cancels has what was wanted.
    pub(super) is_complete: Arc<AtomicBool>,
    /// Taken when the sequence ends.
    pub(super) pages: Option<PageTable>,
    /// Prompt, then answer.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: usize,
    /// How often each token stands in the answer, where a penalty asks for it.
    answered: HashMap<u32, u32>,
    submitted: Instant,
    admitted: Instant,
    first_token: Option<Instant>,
    last_token: Instant,
}

impl Sequence {
    pub(super) fn new(
        request: Request,
        events: mpsc::Sender<Event>,
        cancelled: Arc<AtomicBool>,
        is_complete: Arc<AtomicBool>,
        pages: PageTable,
        submitted: Instant,
    ) -> Self {
        let admitted = Instant::now();
        let mut tokens = Vec::with_capacity(request.prompt.len() + request.max_tokens);
        tokens.extend_from_slice(&request.prompt);
        Self {
            request,
            events,
            cancelled,
            is_complete,
            pages: Some(pages),
            tokens,
            computed: 0,
            answered: HashMap::new(),
            submitted,
            admitted,
            first_token: None,
            last_token: admitted,
        }
    }

    /// Page numbers in order of positions.
    pub(super) fn pages(&self) -> &[u32] {
        self.pages.as_ref().map_or(&[], PageTable::pages)
    }

    /// Tokens of the answer.
    pub(super) fn answered(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Whether the prompt is not yet read to its last token.
    pub(super) fn is_reading(&self) -> bool {
        self.computed < self.request.prompt.len()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.events.is_closed()
    }

    /// Whether the most likely token of unchanged logits is the next one.
    pub(super) fn is_plain_greedy(&self) -> bool {
        self.request.sampling.temperature == 0.0 && !self.changes_logits()
    }

    /// Whether logits are changed before a token is drawn.
    pub(super) fn changes_logits(&self) -> bool {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, logit_bias, .. } =
            &self.request.sampling;
        *repetition_penalty != 1.0 || *presence_penalty != 0.0 || *frequency_penalty != 0.0 || !logit_bias.is_empty()
    }

    /// Penalties, then biases. Every token is changed once, so the order of tokens does not matter.
    pub(super) fn change_logits(&self, logits: &mut [f32]) {
        let sampling = &self.request.sampling;
        if sampling.repetition_penalty != 1.0 {
            let mut seen = self.tokens.clone();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                let logit = &mut logits[token as usize];
                *logit = if *logit > 0.0 {
                    *logit / sampling.repetition_penalty
                } else {
                    *logit * sampling.repetition_penalty
                };
            }
        }
        if sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0 {
            for (token, count) in &self.answered {
                logits[*token as usize] -= sampling.presence_penalty + sampling.frequency_penalty * *count as f32;
            }
        }
        for (token, bias) in &sampling.logit_bias {
            logits[*token as usize] += bias;
        }
    }

    /// Takes a token that was drawn; the reason where the answer ends with it. Returns seconds since the token before, where
    /// there was one.
    pub(super) fn push(&mut self, token: u32, batch: usize) -> (Option<FinishReason>, Option<f64>) {
        let now = Instant::now();
        let since = self.first_token.map(|_| (now - self.last_token).as_secs_f64());
        self.first_token.get_or_insert(now);
        self.last_token = now;
        self.tokens.push(token);
        let sampling = &self.request.sampling;
        if sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0 {
            *self.answered.entry(token).or_default() += 1;
        }
        // The channel has room for every token; where nobody listens the sequence is cancelled before the next step.
        let _ = self.events.try_send(Event::Token { id: token, batch });
        let reason = if self.request.end_tokens.contains(&token) {
            Some(FinishReason::Stop)
        } else if self.answered() >= self.request.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        };
        (reason, since)
    }

    pub(super) fn timings(&self) -> Timings {
        let prefill_end = self.first_token.unwrap_or_else(Instant::now);
        Timings {
            queued: self.admitted - self.submitted,
            prefill: prefill_end - self.admitted,
            decode: self.last_token.saturating_duration_since(prefill_end),
        }
    }

    /// Seconds from submission to the first token.
    pub(super) fn time_to_first_token(&self) -> f64 {
        self.first_token.map_or(0.0, |first| (first - self.submitted).as_secs_f64())
    }

    /// Seconds since submission.
    pub(super) fn age(&self) -> f64 {
        self.submitted.elapsed().as_secs_f64()
    }

    pub(super) fn finish(&self, reason: FinishReason) {
        let finish = Finish {
            reason,
            prompt_tokens: self.request.prompt.len(),
            completion_tokens: self.answered(),
            timings: self.timings(),
        };
        let _ = self.events.try_send(Event::Finished(finish));
    }

    pub(super) fn fail(&self, why: &str) {
        let _ = self.events.try_send(Event::Failed(why.to_owned()));
    }
}
