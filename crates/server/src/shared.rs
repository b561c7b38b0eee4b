//! What every request of a server can reach.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use crate::generation::tool_cache::ToolCache;
use crate::guard::{HostRules, Keys, Limits};
use crate::models::Models;
use crate::models::embeddings::Embedders;
use crate::responses::Live;
use crate::sessions::turn::Turns;
use crate::telemetry::metrics::Metrics;

/// The server's state.
pub struct Shared {
    /// The models.
    pub models: Models,
    /// The models that turn texts into vectors.
    pub embedders: Embedders,
    /// Stored responses.
    pub turns: Turns,
    /// Responses that run without a reader.
    pub live: Live,
    /// Lists of tools that were sent lately.
    pub tool_cache: ToolCache,
    /// Numbers for Prometheus.
    pub metrics: Arc<Metrics>,
    /// Every bound.
    pub limits: Limits,
    /// Who may come in; `None` lets everybody in.
    pub keys: Option<Keys>,
    /// When the server began.
    pub since: Instant,
    closing: watch::Sender<bool>,
}

impl Shared {
    /// A server's state before its first request.
    pub fn new(
        (models, embedders): (Models, Embedders),
        turns: Turns,
        metrics: Arc<Metrics>,
        limits: Limits,
        keys: Option<Keys>,
    ) -> Self {
        let (closing, _) = watch::channel(false);
        Self {
            models,
            embedders,
            turns,
            live: Live::default(),
            tool_cache: ToolCache::default(),
            metrics,
            limits,
            keys,
            since: Instant::now(),
            closing,
        }
    }

    /// Whether the server is on its way out.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Resolves when the server begins to close.
    pub async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// TokenHealing to close.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// How a connection came in: known to every request on it.
#[derive(Clone)]
pub struct Door {
    /// What `Host` and `Origin` must be.
    pub hosts: Arc<HostRules>,
    /// Where those who are refused are counted.
    pub metrics: Arc<Metrics>,
}
