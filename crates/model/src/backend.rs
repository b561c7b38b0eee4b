//! The one seam between the engine and whatever does the arithmetic.
//!
//! A backend runs one forward pass over a batch of sequences and owns the bytes of the KV cache. It knows nothing of
//! requests, sampling or scheduling: the engine decides which block of KV positions belongs to whom and hands the block
//! table down with every step. CPU and CUDA both implement this trait, so the engine never changes for a device.
//!
//! Invariant every backend keeps: the logits of a row depend only on the tokens of its own sequence up to that row,
//! never on how those tokens were cut into steps or on what else was in the batch, bit for bit. Drafting and the prefix
//! cache are exact because of it.

/// Number of KV positions in one block. A block is the unit of sharing, eviction and snapshots.
pub const BLOCK: usize = kernels::kv::BLOCK;

/// What a caller needs to know about a loaded model to schedule for it.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// Number of token ids; each row of logits has this many entries.
    pub vocab: usize,
    /// Longest sequence the model can serve, in tokens.
    pub context: usize,
    /// Number of KV blocks the backend has room for. Block ids are `0..blocks`.
    pub blocks: usize,
    /// Bytes of one KV block over all layers, both keys and values.
    pub block_bytes: usize,
    /// Largest number of token rows one call of [`Backend::forward`] accepts.
    pub rows_max: usize,
    /// Bytes of weights read per decoded token: what sets the speed limit.
    pub bytes_per_token: usize,
    /// Stable identity of the weights and of everything that shapes the KV bytes.
    pub fingerprint: u64,
}

/// Which rows of a chunk need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: a middle part of a prompt.
    Nothing,
    /// Only the last row: the usual case.
    Last,
    /// Every row: verification of drafted tokens, or scoring.
    All,
}

/// One sequence's share of a step: `tokens` at positions `start..start + tokens.len()`.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// Position of the first new token; all positions before it are already in the KV blocks.
    pub start: usize,
    /// Block table: position `p` lives in block `blocks[p / BLOCK]` at offset `p % BLOCK`. Covers every position up to
    /// and including the last new token. A block that another sequence also references is never written: the engine
    /// only shares full blocks.
    pub blocks: &'a [u32],
    /// Which rows need logits.
    pub want: Want,
}

/// Why a step could not be done. The KV content of the sequences in the step is then undefined past `start`.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The batch breaks a rule stated on [`Chunk`] or [`ModelInfo`]; nothing was computed.
    #[error("bad batch: {0}")]
    BadBatch(String),
    /// The device refused or failed.
    #[error("device: {0}")]
    Device(String),
}

/// A model that can be stepped.
pub trait Backend: Send {
    /// Facts that do not change while the model is loaded.
    fn info(&self) -> &ModelInfo;

    /// Runs one step. Wanted rows are appended to `logits` (cleared first) in batch order, `info().vocab` values each.
    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Copies the whole content of one block to another: how a sequence gets its own copy of a half-full block.
    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError>;

    /// Writes the content of a block to `bytes` (cleared first; `info().block_bytes` long), for a snapshot.
    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError>;

    /// Restores what [`Backend::export_block`] wrote.
    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError>;
}
