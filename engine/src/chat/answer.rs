//! An answer being made, as text.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Detokeniser, StopError, StopMatcher, Tokenizer};
use crate::schedule::{Event, Finish, FinishReason, Generation, Timings};

/// What comes of an answer, in order: texts, then `Done` or `Failed`, which is repeated from then on.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// Text that is no part of a stop string, whatever follows; never empty.
    Text(String),
    /// The answer is complete.
    Done(Ending),
    /// The engine failed or is gone; nothing more will come.
    Failed(String),
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Why: an end token or a stop string, the most tokens, or nobody wanted it any more.
    pub reason: FinishReason,
    /// The stop string, where one was found.
    pub stop: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer: an end token is counted, and so is the one that completed a stop string, but none after it.
    pub completion_tokens: usize,
    /// Where the time went.
    pub timings: Timings,
}

/// A [`Generation`] turned into text.
///
/// Characters that are not complete and text that may be the start of a stop string are held until it is known. Tokens
/// that end the answer and other control tokens give no text. Where a stop string is found the generation is cancelled.
/// Dropping an answer cancels it as well.
#[derive(Debug)]
pub struct Answer {
    generation: Generation,
    tokenizer: Arc<Tokenizer>,
    detokeniser: Detokeniser,
    matcher: StopMatcher,
    stops: Vec<String>,
    end_tokens: Arc<[u32]>,
    tokens: usize,
    /// The stop string that was found.
    stop: Option<String>,
    /// What is returned from now on.
    last: Option<Piece>,
}

impl Answer {
    /// The text of a generation. `end_tokens` are those of its request; `stops` are stop strings, none is fine.
    ///
    /// # Errors
    /// A stop string cannot be used.
    pub fn new(
        generation: Generation,
        tokenizer: Arc<Tokenizer>,
        end_tokens: Arc<[u32]>,
        stops: Vec<String>,
    ) -> Result<Self, StopError> {
        let matcher = StopMatcher::new(&stops)?;
        let detokeniser = Detokeniser::new();
        Ok(Self { generation, tokenizer, detokeniser, matcher, stops, end_tokens, tokens: 0, stop: None, last: None })
    }

    /// The next piece. Nothing is lost where the future is dropped before it is ready.
    pub async fn next(&mut self) -> Piece {
        loop {
            if let Some(last) = &self.last {
                return last.clone();
            }
            let event = self.generation.next().await;
            if let Some(piece) = self.take(event) {
                return piece;
            }
        }
    }

    /// The next piece, for callers that wait for several answers at once.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        pin!(self.next()).poll(context)
    }

    /// The next piece, for callers outside of an async runtime.
    pub fn next_blocking(&mut self) -> Piece {
        loop {
            if let Some(last) = &self.last {
                return last.clone();
            }
            let event = self.generation.next_blocking();
            if let Some(piece) = self.take(event) {
                return piece;
            }
        }
    }

    /// Ends the answer before the next step; its `Done` still comes.
    pub fn cancel(&self) {
        self.generation.cancel();
    }

    /// Takes one event; what it gives, if anything.
    fn take(&mut self, event: Option<Event>) -> Option<Piece> {
        match event {
            // Tokens that were drawn before the engine saw that the answer is over.
            Some(Event::Token { .. }) if self.stop.is_some() => None,
            Some(Event::Token { id, .. }) => {
                self.tokens += 1;
                if self.end_tokens.contains(&id) || self.tokenizer.is_control(id) {
                    return None;
                }
                let text = self.detokeniser.push(self.tokenizer.piece(id).unwrap_or_default());
                let text = self.release(&text);
                if self.stop.is_some() {
                    self.generation.complete();
                }
                (!text.is_empty()).then_some(Piece::Text(text))
            }
            Some(Event::Finished(finish)) => Some(self.finish(&finish)),
            Some(Event::Failed(why)) => Some(self.fail(why)),
            None => Some(self.fail("the engine has stopped".to_owned())),
        }
    }

    fn release(&mut self, text: &str) -> String {
        let delta = self.matcher.push(text);
        if let Some(which) = delta.stop {
            self.stop = Some(self.stops.get(which).cloned().unwrap_or_default());
        }
        delta.text
    }

    fn finish(&mut self, finish: &Finish) -> Piece {
        let mut text = String::new();
        if self.stop.is_none() {
            // The rest of a character that never became complete.
            let rest = self.detokeniser.finish();
            text = self.release(&rest);
            if self.stop.is_none() {
                text.push_str(&self.matcher.finish());
            }
        }
        let ending = Ending {
            reason: if self.stop.is_some() { FinishReason::Stop } else { finish.reason },
            stop: self.stop.clone(),
            prompt_tokens: finish.prompt_tokens,
            completion_tokens: self.tokens,
            timings: finish.timings,
        };
        let done = self.last.insert(Piece::Done(ending));
        if text.is_empty() { done.clone() } else { Piece::Text(text) }
    }

    fn fail(&mut self, why: String) -> Piece {
        self.last.insert(Piece::Failed(why)).clone()
    }
}
