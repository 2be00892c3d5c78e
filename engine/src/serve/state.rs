//! What all requests share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use super::error::ApiError;
use super::metrics::ServeMetrics;
use super::options::{ServeModel, ServeOptions};

/// The server's state.
pub(super) struct State {
    pub(super) model: ServeModel,
    pub(super) options: ServeOptions,
    pub(super) metrics: ServeMetrics,
    /// Seconds since 1970 at which the model was taken on.
    pub(super) created: u64,
    is_draining: AtomicBool,
    stopping: watch::Sender<bool>,
    in_flight: AtomicUsize,
    left: Notify,
    /// Milliseconds a request takes, averaged over the last few; 0 before the first.
    typical: AtomicU64,
    random: RandomState,
    counter: AtomicU64,
}

/// A request that is being answered, to the last byte of its answer.
pub(super) struct InFlight(Arc<State>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_waiters();
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl State {
    pub(super) fn new(model: ServeModel, options: ServeOptions) -> Self {
        Self {
            metrics: ServeMetrics::new(&model.name, model.engine.metrics()),
            model,
            options,
            created: now(),
            is_draining: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
            in_flight: AtomicUsize::new(0),
            left: Notify::new(),
            typical: AtomicU64::new(0),
            random: RandomState::new(),
            counter: AtomicU64::new(0),
        }
    }

    /// 64 bits that nobody can foresee: a keyed hash, whose key the system gave, of a counter.
    pub(super) fn fresh(&self) -> u64 {
        self.random.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }

    /// What `system_fingerprint` tells.
    pub(super) fn fingerprint(&self) -> String {
        format!("fp_{}", self.model.program)
    }

    /// Takes no more requests.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.model.engine.drain();
    }

    /// Whether requests for text are taken.
    ///
    /// # Errors
    /// 503 with the reason.
    pub(super) fn check_open(&self) -> Result<(), ApiError> {
        let status = self.model.engine.status();
        if self.is_draining.load(Ordering::Acquire) || status.is_draining {
            return Err(ApiError::draining());
        }
        if status.is_alive { Ok(()) } else { Err(ApiError::stopped()) }
    }

    /// Ends what still runs.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Ready once [`Self::stop`] was called.
    pub(super) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as `self`.
        let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
    }

    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlight(self.clone())
    }

    /// Ready once no request is being answered.
    pub(super) async fn idle(&self) {
        loop {
            let left = self.left.notified();
            if self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }

    /// Notes how long a request took, for estimates.
    pub(super) fn took(&self, time: Duration) {
        let millis = (time.as_millis() as u64).max(1);
        let mix = |typical| Some(if typical == 0 { millis } else { (typical * 7 + millis) / 8 });
        let _ = self.typical.fetch_update(Ordering::AcqRel, Ordering::Acquire, mix);
    }

    /// Seconds after which the queue may have room: what waits ahead, served as many at a time as run together.
    pub(super) fn retry_after(&self) -> u64 {
        let status = self.model.engine.status();
        let rounds = (status.waiting / self.model.engine.options().max_sequences.max(1) + 1) as u64;
        let millis = rounds.saturating_mul(self.typical.load(Ordering::Acquire));
        millis.div_ceil(1000).clamp(1, 60)
    }
}
