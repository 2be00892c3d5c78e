//! The handle of the executor.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc;

use super::executor::{Command, Executor, Pending};
use super::metrics::EngineMetrics;
use super::request::{Generation, Request};
use crate::cache::pages_for;
use crate::runner::Runner;

/// How requests share the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Most sequences that run at a time.
    pub max_sequences: usize,
    /// Most requests that wait.
    pub max_queue: usize,
    /// Most positions of one request, prompt and answer together.
    pub max_positions: usize,
    /// Most prompt rows of a step in which other sequences decode: what bounds their wait.
    pub mixed_rows: usize,
}

/// A request that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too many requests wait.
    #[error("{waiting} requests are waiting, and the queue holds {limit}")]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// Most that may.
        limit: usize,
    },
    /// It can never fit.
    #[error(
        "the prompt has {prompt} tokens and {max_tokens} may be generated, and the context holds {limit} positions"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens asked for.
        max_tokens: usize,
        /// Positions of a request.
        limit: usize,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token that the vocabulary does not have.
    #[error("token {token} at place {place} of the prompt is not one of the vocabulary's {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Where it stands.
        place: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The engine finishes what it has and takes no more.
    #[error("the engine is draining")]
    Draining,
    /// The executor is gone.
    #[error("the engine has stopped")]
    Stopped,
}

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineStatus {
    /// Requests that wait.
    pub waiting: usize,
    /// Sequences that run.
    pub running: usize,
    /// Pages that sequences hold.
    pub pages_used: usize,
    /// Pages there are.
    pub pages_total: usize,
    /// Whether new requests are refused.
    pub is_draining: bool,
    /// Whether the executor runs.
    pub is_alive: bool,
}

/// What the handle and the executor both see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Requests that were sent and not yet admitted or dropped.
    pub(super) waiting: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) pages_used: AtomicUsize,
    pub(super) is_draining: AtomicBool,
    pub(super) is_gone: AtomicBool,
}

/// The executor thread, seen from the control plane.
pub struct Engine {
    commands: SyncSender<Command>,
    shared: Arc<Shared>,
    metrics: Arc<EngineMetrics>,
    options: EngineOptions,
    vocab: usize,
    pages_total: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Gives a model to an executor thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(runner: Runner, options: EngineOptions) -> std::io::Result<Self> {
        let metrics = Arc::new(EngineMetrics::new());
        let shared = Arc::new(Shared::default());
        let pages_total = runner.pages().total();
        let options = EngineOptions {
            max_positions: options.max_positions.min(pages_total * memra_kernels::ops::attention::PAGE),
            max_sequences: options.max_sequences.min(runner.plan().max_wanted).min(runner.plan().max_rows),
            ..options
        };
        // Every request that can be waiting, and a wake.
        let (commands, inbox) = sync_channel(options.max_queue.max(options.max_sequences) + 2);
        let vocab = runner.config().vocab;
        let executor = Executor::new(runner, options, inbox, shared.clone(), metrics.clone());
        let thread = std::thread::Builder::new().name("executor".to_owned()).spawn(move || executor.run())?;
        Ok(Self { commands, shared, metrics, options, vocab, pages_total, thread: Mutex::new(Some(thread)) })
    }

    /// How requests share the device, after it was fitted to the model.
    pub const fn options(&self) -> EngineOptions {
        self.options
    }

    /// Counters and histograms.
    pub fn metrics(&self) -> &Arc<EngineMetrics> {
        &self.metrics
    }

    /// Whether a request can be taken, without taking it. Room in the queue is not looked at.
    ///
    /// # Errors
    /// [`SubmitError`] with the reason.
    pub fn check(&self, request: &Request) -> Result<(), SubmitError> {
        if request.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        let vocab = self.vocab;
        if let Some((place, token)) = request.prompt.iter().enumerate().find(|(_, token)| **token as usize >= vocab) {
            return Err(SubmitError::Token { token: *token, place, vocab });
        }
        let (prompt, max_tokens, limit) = (request.prompt.len(), request.max_tokens, self.options.max_positions);
        if prompt.saturating_add(max_tokens) > limit {
            return Err(SubmitError::TooLong { prompt, max_tokens, limit });
        }
        debug_assert!(pages_for(limit) <= self.pages_total);
        Ok(())
    }

    /// Puts a request in the queue.
    ///
    /// # Errors
    /// [`SubmitError`] when it cannot be served, now or ever.
    pub fn submit(&self, request: Request) -> Result<Generation, SubmitError> {
        self.check(&request)?;
        if self.shared.is_draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        let limit = self.options.max_queue;
        let full = |waiting| SubmitError::QueueFull { waiting, limit };
        let mut waiting = self.shared.waiting.load(Ordering::Acquire);
        loop {
            // A free place in the batch is no queue: with `max_queue` 0 a request still runs at once.
            let free = self.options.max_sequences.saturating_sub(self.shared.running.load(Ordering::Acquire));
            if waiting >= limit.max(free) {
                return Err(full(waiting));
            }
            match self.shared.waiting.compare_exchange(waiting, waiting + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => waiting = now,
            }
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let is_complete = Arc::new(AtomicBool::new(false));
        // Every token and the last event fit, so the executor never waits for a slow reader.
        let (sender, events) = mpsc::channel(request.max_tokens + 2);
        let pending = Pending {
            request,
            events: sender,
            cancelled: cancelled.clone(),
            is_complete: is_complete.clone(),
            submitted: Instant::now(),
        };
        match self.commands.try_send(Command::Submit(Box::new(pending))) {
            Ok(()) => Ok(Generation { events, cancelled, is_complete }),
            Err(error) => {
                let waiting = self.shared.waiting.fetch_sub(1, Ordering::AcqRel) - 1;
                Err(match error {
                    TrySendError::Full(_) => full(waiting),
                    TrySendError::Disconnected(_) => SubmitError::Stopped,
                })
            }
        }
    }

    /// What is going on.
    pub fn status(&self) -> EngineStatus {
        EngineStatus {
            waiting: self.shared.waiting.load(Ordering::Acquire),
            running: self.shared.running.load(Ordering::Acquire),
            pages_used: self.shared.pages_used.load(Ordering::Acquire),
            pages_total: self.pages_total,
            is_draining: self.shared.is_draining.load(Ordering::Acquire),
            is_alive: !self.shared.is_gone.load(Ordering::Acquire),
        }
    }

    /// Takes no more requests; what is running and waiting is finished. Does not wait.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Release);
        // A full inbox wakes the executor as well.
        let _ = self.commands.try_send(Command::Wake);
    }

    /// Drains, waits for the last answer and ends the executor.
    pub fn join(&self) {
        self.drain();
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            // A panic of the executor was reported to the requests it had.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.drain();
    }
}
