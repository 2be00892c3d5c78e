//! What the executor counts. Names are those that dashboards know from vLLM, under a prefix of our own.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::AtomicU64;

use super::request::FinishReason;

/// Prefix of every name.
pub const PREFIX: &str = "memra:";

/// Upper bounds of times, in seconds.
const SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds of numbers of tokens.
const TOKENS: [f64; 14] =
    [1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 131_072.0];

/// Label of `request_success`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FinishLabel {
    /// Why the answer ended.
    pub finished_reason: FinishReason,
}

impl EncodeLabelValue for FinishReason {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        use std::fmt::Write as _;
        encoder.write_str(self.text())
    }
}

impl FinishReason {
    /// Lower-case word.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "abort",
        }
    }
}

/// Counters, gauges and histograms of one executor.
#[derive(Debug)]
pub struct EngineMetrics {
    /// Sequences that run.
    pub running: Gauge,
    /// Requests that wait.
    pub waiting: Gauge,
    /// Share of the cache's pages that sequences hold, 0 to 1.
    pub cache_usage: Gauge<f64, AtomicU64>,
    /// Prompt tokens read.
    pub prompt_tokens: Counter,
    /// Tokens drawn.
    pub generation_tokens: Counter,
    /// Requests that ended, by reason.
    pub finished: Family<FinishLabel, Counter>,
    /// Requests that failed in a step.
    pub failed: Counter,
    /// Steps of the executor.
    pub steps: Counter,
    /// From submission to the first token, seconds.
    pub time_to_first_token: Histogram,
    /// Between two tokens of an answer, seconds.
    pub inter_token_latency: Histogram,
    /// From submission to the end, seconds.
    pub e2e_latency: Histogram,
    /// From submission to admission, seconds.
    pub queue_time: Histogram,
    /// From admission to the first token, seconds.
    pub prefill_time: Histogram,
    /// From the first token to the last, seconds.
    pub decode_time: Histogram,
    /// Prompt tokens of a request.
    pub request_prompt_tokens: Histogram,
    /// Tokens drawn for a request.
    pub request_generation_tokens: Histogram,
    /// Sequences that shared a step.
    pub batch_size: Histogram,
}

impl EngineMetrics {
    pub(super) fn new() -> Self {
        let seconds = || Histogram::new(SECONDS);
        let tokens = || Histogram::new(TOKENS);
        Self {
            running: Gauge::default(),
            waiting: Gauge::default(),
            cache_usage: Gauge::default(),
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            finished: Family::default(),
            failed: Counter::default(),
            steps: Counter::default(),
            time_to_first_token: seconds(),
            inter_token_latency: seconds(),
            e2e_latency: seconds(),
            queue_time: seconds(),
            prefill_time: seconds(),
            decode_time: seconds(),
            request_prompt_tokens: tokens(),
            request_generation_tokens: tokens(),
            batch_size: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
        }
    }

    /// Puts everything into a registry, whose labels (the model's name) are the caller's affair.
    pub fn register(&self, registry: &mut Registry) {
        add(registry, "num_requests_running", "Sequences that run", &self.running);
        add(registry, "num_requests_waiting", "Requests that wait", &self.waiting);
        add(registry, "kv_cache_usage_perc", "Share of the cache's pages in use, 0 to 1", &self.cache_usage);
        add(registry, "prompt_tokens", "Prompt tokens read", &self.prompt_tokens);
        add(registry, "generation_tokens", "Tokens drawn", &self.generation_tokens);
        add(registry, "request_success", "Requests that ended, by reason", &self.finished);
        add(registry, "request_failure", "Requests that failed in a step", &self.failed);
        add(registry, "engine_steps", "Steps of the executor", &self.steps);
        add(registry, "time_to_first_token_seconds", "Submission to first token", &self.time_to_first_token);
        add(registry, "inter_token_latency_seconds", "Between two tokens", &self.inter_token_latency);
        add(registry, "e2e_request_latency_seconds", "Submission to end", &self.e2e_latency);
        add(registry, "request_queue_time_seconds", "Submission to admission", &self.queue_time);
        add(registry, "request_prefill_time_seconds", "Admission to first token", &self.prefill_time);
        add(registry, "request_decode_time_seconds", "First token to last", &self.decode_time);
        add(registry, "request_prompt_tokens", "Prompt tokens of a request", &self.request_prompt_tokens);
        add(registry, "request_generation_tokens", "Tokens drawn for a request", &self.request_generation_tokens);
        add(registry, "step_batch_size", "Sequences that shared a step", &self.batch_size);
    }
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: &M) {
    registry.register(format!("{PREFIX}{name}"), help, metric.clone());
}
