//! The thread that owns the model: it admits, composes steps, runs them, draws tokens.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use memra_kernels::ops::sample::{RowParams, SampleScratch, SampleVariant};
use memra_kernels::ops::{argmax, sample};
use tokio::sync::mpsc;

use super::engine::{EngineOptions, Shared};
use super::metrics::{EngineMetrics, FinishLabel};
use super::request::{Event, Finish, FinishReason, Request, Timings};
use super::sequence::Sequence;
use crate::plan::{Batch, Chunk, Wanted};
use crate::runner::Runner;

pub(super) enum Command {
    Submit(Box<Pending>),
    /// Look at the shared flags.
    Wake,
}

/// A request that waits for its pages.
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) is_complete: Arc<AtomicBool>,
    pub(super) submitted: Instant,
}

pub(super) struct Executor {
    runner: Runner,
    options: EngineOptions,
    inbox: Receiver<Command>,
    queue: VecDeque<Pending>,
    running: Vec<Sequence>,
    shared: Arc<Shared>,
    metrics: Arc<EngineMetrics>,
    sampler: &'static SampleVariant,
    scratch: SampleScratch,
    is_connected: bool,
}

/// Rows of one sequence in a step.
struct Share {
    /// Place in `running`.
    place: usize,
    /// Rows.
    rows: usize,
    /// Whether a token is drawn after its last row.
    draws: bool,
}

/// Says that the executor is gone, however it ended.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Release);
    }
}

impl Executor {
    pub(super) fn new(
        runner: Runner,
        options: EngineOptions,
        inbox: Receiver<Command>,
        shared: Arc<Shared>,
        metrics: Arc<EngineMetrics>,
    ) -> Self {
        Self {
            sampler: runner.sampler(),
            runner,
            options,
            inbox,
            queue: VecDeque::new(),
            running: Vec::new(),
            shared,
            metrics,
            scratch: SampleScratch::default(),
            is_connected: true,
        }
    }

    pub(super) fn run(mut self) {
        let _gone = Gone(self.shared.clone());
        loop {
            self.listen();
            self.drop_cancelled();
            self.admit();
            self.publish();
            if self.running.is_empty() {
                let is_over = !self.is_connected || self.shared.is_draining.load(Ordering::Acquire);
                if is_over && self.queue.is_empty() {
                    return;
                }
                continue;
            }
            self.step();
        }
    }

    /// Takes what has come; waits where there is nothing to do.
    fn listen(&mut self) {
        let is_idle = self.running.is_empty() && self.queue.is_empty();
        if is_idle && self.is_connected && !self.shared.is_draining.load(Ordering::Acquire) {
            self.runner.park();
            match self.inbox.recv() {
                Ok(command) => self.take(command),
                Err(_) => self.is_connected = false,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_connected = false;
                    return;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(pending) => self.queue.push_back(*pending),
            Command::Wake => {}
        }
    }

    fn drop_cancelled(&mut self) {
        let before = self.queue.len();
        let metrics = &self.metrics;
        self.queue.retain(|pending| {
            let is_wanted = !pending.cancelled.load(Ordering::Acquire) && !pending.events.is_closed();
            if !is_wanted {
                let finish = Finish {
                    reason: FinishReason::Cancelled,
                    prompt_tokens: pending.request.prompt.len(),
                    completion_tokens: 0,
                    timings: Timings { queued: pending.submitted.elapsed(), ..Timings::default() },
                };
                let _ = pending.events.try_send(Event::Finished(finish));
                metrics.finished.get_or_create(&FinishLabel { finished_reason: FinishReason::Cancelled }).inc();
            }
            is_wanted
        });
        self.shared.waiting.fetch_sub(before - self.queue.len(), Ordering::AcqRel);
        let mut place = 0;
        while place < self.running.len() {
            if self.running[place].is_cancelled() {
                let is_complete = self.running[place].is_complete.load(Ordering::Acquire);
                self.end(place, if is_complete { FinishReason::Stop } else { FinishReason::Cancelled });
            } else {
                place += 1;
            }
        }
    }

    /// First come, first served: a request that does not fit yet is not overtaken.
    fn admit(&mut self) {
        while self.running.len() < self.options.max_sequences {
            let Some(pending) = self.queue.front() else { return };
            let positions = pending.request.prompt.len() + pending.request.max_tokens;
            let Some(pages) = self.runner.admit(positions) else { return };
            let Some(pending) = self.queue.pop_front() else { return };
            self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            self.shared.running.fetch_add(1, Ordering::AcqRel);
            let Pending { request, events, cancelled, is_complete, submitted } = pending;
            self.metrics.queue_time.observe(submitted.elapsed().as_secs_f64());
            self.running.push(Sequence::new(request, events, cancelled, is_complete, pages, submitted));
        }
    }

    fn publish(&self) {
        let (total, free) = (self.runner.pages().total(), self.runner.pages().free());
        self.shared.pages_used.store(total - free, Ordering::Release);
        self.metrics.running.set(self.running.len() as i64);
        self.metrics.waiting.set(self.queue.len() as i64);
        self.metrics.cache_usage.set((total - free) as f64 / total.max(1) as f64);
    }

    /// Decode rows of every sequence that has read its prompt, then prompt rows in order of admission.
    fn compose(&self) -> Vec<Share> {
        let mut shares = Vec::with_capacity(self.running.len());
        for (place, sequence) in self.running.iter().enumerate() {
            if !sequence.is_reading() {
                shares.push(Share { place, rows: 1, draws: true });
            }
        }
        let most = self.runner.plan().max_rows;
        let mut room = most - shares.len();
        if !shares.is_empty() {
            room = room.min(self.options.mixed_rows.max(1));
        }
        for (place, sequence) in self.running.iter().enumerate() {
            if room == 0 {
                break;
            }
            if sequence.is_reading() {
                let left = sequence.request.prompt.len() - sequence.computed;
                let rows = left.min(room);
                shares.push(Share { place, rows, draws: rows == left && sequence.request.max_tokens > 0 });
                room -= rows;
            }
        }
        shares
    }

    fn step(&mut self) {
        let shares = self.compose();
        let chunks: Vec<Chunk<'_>> = shares
            .iter()
            .map(|share| {
                let sequence = &self.running[share.place];
                Chunk {
                    pages: sequence.pages(),
                    first_position: sequence.computed,
                    tokens: &sequence.tokens[sequence.computed..][..share.rows],
                    wanted: if share.draws { Wanted::Last } else { Wanted::None },
                }
            })
            .collect();
        let runner = &mut self.runner;
        let ran = catch_unwind(AssertUnwindSafe(|| runner.step(&Batch { chunks: &chunks })));
        drop(chunks);
        self.metrics.steps.inc();
        self.metrics.batch_size.observe(shares.len() as f64);
        let drawn = ran.and_then(|()| catch_unwind(AssertUnwindSafe(|| self.draw(&shares))));
        match drawn {
            Ok(tokens) => self.deliver(&shares, &tokens),
            Err(_) => self.fail(&shares),
        }
    }

    /// One token for every share that draws, in order.
    fn draw(&mut self, shares: &[Share]) -> Vec<u32> {
        let vocab = self.runner.config().vocab;
        let drawing: Vec<&Share> = shares.iter().filter(|share| share.draws).collect();
        let mut tokens = Vec::with_capacity(drawing.len());
        for (wanted, share) in drawing.iter().enumerate() {
            let sequence = &self.running[share.place];
            if sequence.is_plain_greedy() {
                tokens.push(self.runner.best(wanted));
                continue;
            }
            if sequence.changes_logits() {
                sequence.change_logits(self.runner.logits_mut(wanted));
            }
            let mut drawn = [0_u32];
            let sampling = &sequence.request.sampling;
            let logits = self.runner.logits(wanted);
            if sampling.temperature == 0.0 {
                argmax::run(self.runner.pool(), self.runner.argmax(), 1, vocab, logits, &mut drawn);
            } else {
                let params = RowParams {
                    temperature: sampling.temperature,
                    top_k: sampling.top_k,
                    top_p: sampling.top_p,
                    min_p: sampling.min_p,
                    seed: sampling.seed,
                    position: sequence.tokens.len() as u64,
                };
                let scratch = &mut self.scratch;
                sample::run(self.runner.pool(), self.sampler, 1, vocab, logits, &[params], scratch, &mut drawn);
            }
            tokens.push(drawn[0]);
        }
        tokens
    }

    fn deliver(&mut self, shares: &[Share], tokens: &[u32]) {
        let mut tokens = tokens.iter();
        let mut ended = Vec::new();
        for share in shares {
            let sequence = &mut self.running[share.place];
            let was_reading = sequence.is_reading();
            sequence.computed += share.rows;
            if was_reading {
                self.metrics.prompt_tokens.inc_by(share.rows as u64);
            }
            if share.draws {
                let Some(token) = tokens.next() else { continue };
                let (reason, since) = sequence.push(*token, shares.len());
                self.metrics.generation_tokens.inc();
                match since {
                    None => {
                        self.metrics.time_to_first_token.observe(sequence.time_to_first_token());
                        self.metrics.prefill_time.observe(sequence.timings().prefill.as_secs_f64());
                    }
                    Some(seconds) => self.metrics.inter_token_latency.observe(seconds),
                }
                ended.extend(reason.map(|reason| (share.place, reason)));
            } else if !sequence.is_reading() {
                // Nothing was to be generated.
                ended.push((share.place, FinishReason::Length));
            }
        }
        ended.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        for (place, reason) in ended {
            self.end(place, reason);
        }
    }

    fn end(&mut self, place: usize, reason: FinishReason) {
        let sequence = self.running.remove(place);
        self.metrics.finished.get_or_create(&FinishLabel { finished_reason: reason }).inc();
        self.metrics.e2e_latency.observe(sequence.age());
        self.metrics.decode_time.observe(sequence.timings().decode.as_secs_f64());
        self.metrics.request_prompt_tokens.observe(sequence.request.prompt.len() as f64);
        self.metrics.request_generation_tokens.observe(sequence.answered() as f64);
        self.retire(sequence, |sequence| sequence.finish(reason));
    }

    /// Gives the pages back before the last event, so that whoever sees it sees them free.
    fn retire(&mut self, mut sequence: Sequence, tell: impl FnOnce(&Sequence)) {
        if let Some(pages) = sequence.pages.take() {
            self.runner.release(pages);
        }
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
        self.publish();
        tell(&sequence);
    }

    /// A step panicked: its requests fail, and the executor goes on with the others.
    fn fail(&mut self, shares: &[Share]) {
        let mut places: Vec<usize> = shares.iter().map(|share| share.place).collect();
        places.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
        for place in places {
            let sequence = self.running.remove(place);
            self.metrics.failed.inc();
            self.retire(sequence, |sequence| sequence.fail("a step of the engine failed"));
        }
    }
}
