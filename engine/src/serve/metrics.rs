//! What the server counts, beside what the engine counts.

use std::borrow::Cow;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::schedule::{EngineMetrics, PREFIX};

/// Labels of `http_requests`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    method: &'static str,
    handler: &'static str,
    status: u16,
}

/// Label of `requests_rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectLabel {
    reason: &'static str,
}

/// All metrics of a server.
pub(super) struct ServeMetrics {
    registry: Registry,
    http: Family<HttpLabels, Counter>,
    rejected: Family<RejectLabel, Counter>,
}

impl ServeMetrics {
    pub(super) fn new(model: &str, engine: &EngineMetrics) -> Self {
        let label = (Cow::Borrowed("model_name"), Cow::Owned(model.to_owned()));
        let mut registry = Registry::with_labels([label].into_iter());
        engine.register(&mut registry);
        let (http, rejected) = (Family::default(), Family::default());
        registry.register(
            format!("{PREFIX}http_requests"),
            "Requests by method, matched route and status",
            Family::clone(&http),
        );
        registry.register(
            format!("{PREFIX}requests_rejected"),
            "Requests for text that were not taken, by reason",
            Family::clone(&rejected),
        );
        Self { registry, http, rejected }
    }

    pub(super) fn count_http(&self, method: &'static str, handler: &'static str, status: u16) {
        self.http.get_or_create(&HttpLabels { method, handler, status }).inc();
    }

    pub(super) fn count_rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&RejectLabel { reason }).inc();
    }

    /// The text format that Prometheus reads.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // A string takes everything that is written to it.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}
