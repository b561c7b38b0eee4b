//! The limits of one engine. Every queue and batch has one; none is hidden.

use std::sync::Arc;

use crate::snapshot::SnapshotOptions;
use crate::token_bytes::TokenBytes;

/// How an engine shares one backend among sequences.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Most sequences stepped together; also bounded by the backend's rows per step. More wait in their priority class.
    pub running_max: usize,
    /// Most requests waiting in each priority class; more are answered `Overloaded`.
    pub queue_max: usize,
    /// Rows of one step while nothing decodes: larger is better for prompts.
    pub step_rows_idle: usize,
    /// Rows of one step while something decodes: smaller keeps tokens coming while a long prompt is read.
    pub step_rows_busy: usize,
    /// Rows of one step that background work may use while interactive work runs. 0 makes it wait.
    pub background_rows: usize,
    /// Most drafted tokens verified per sequence and step; 0 is plain decoding. How many are worth it is measured.
    pub draft_max: usize,
    /// Most tokens a reader may leave unread before its sequence ends with `SlowReader`.
    pub stream_tokens_max: usize,
    /// What tokens stand for, for stop strings. Without it requests with stop strings are refused.
    pub token_bytes: Arc<TokenBytes>,
    /// Source of the seeds of requests that name none.
    pub seed: u64,
    /// Keeps KV blocks on disk while nobody uses them. `None` keeps them in memory only.
    pub snapshots: Option<SnapshotOptions>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            running_max: 64,
            queue_max: 256,
            step_rows_idle: 2048,
            step_rows_busy: 64,
            background_rows: 0,
            draft_max: 64,
            stream_tokens_max: 8192,
            token_bytes: Arc::default(),
            seed: 0,
            snapshots: None,
        }
    }
}
