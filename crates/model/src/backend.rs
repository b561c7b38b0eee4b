//! The one seam between the engine and whatever does the arithmetic.
//!
//! A backend runs one forward pass over a batch of sequences and owns the bytes of the KV cache. It knows nothing of
//! requests, sampling or scheduling: the engine decides which block of KV positions belongs to whom and hands the block
//! table down with every step. CPU and CUDA both implement this trait, so the engine never changes for a device.
//!
//! Invariant every backend keeps: the logits of a row depend only on the tokens of its own sequence up to that row,
//! never on how those tokens were cut into steps or on what else was in the batch, bit for bit. Drafting and the prefix
//! cache are exact because of it. The CUDA backend keeps it for what a sequence says, whatever is read beside it, and within
//! each of three classes of chunks: decoding and at most 32 rows of a prompt, 33 to 512 rows, and more (see `cuda`). Between
//! classes the last bits differ: a prompt that was read at once may be answered differently when only its end is new.

use kernels::shortlist::{Ask, Shortlist};
use std::ops::Range;

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
    /// Recurrent state, where the model has layers that carry one.
    pub states: Option<StateInfo>,
}

/// What a caller needs to know of a model's recurrent state. One state is that of one sequence after some position, over
/// all layers that have one; it stands in a slot, as keys and values stand in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateInfo {
    /// Number of slots. Their ids are `0..slots`.
    pub slots: usize,
    /// Bytes of one state.
    pub bytes: usize,
    /// Most drafted tokens in a chunk.
    pub drafted_max: usize,
}

/// How a chunk uses recurrent state.
#[derive(Clone, Copy, Debug)]
pub struct StateUse<'a> {
    /// The sequence's slot. It holds the state after the tokens before the chunk's first (anything when that is at position
    /// 0, where every sequence begins with nothing), or after some of them and a log of the others. After the step it
    /// holds the state after the chunk's tokens but the drafted ones, and a log of those.
    pub slot: u32,
    /// How many of the last tokens are drafted, fewer than all: the next chunk of the sequence may start at any of them, and
    /// what was logged from there on is forgotten then.
    pub drafted: usize,
    /// Copies to be made during the step, of the state after certain tokens.
    pub saves: &'a [StateSave],
}

/// A copy of a state to be made during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSave {
    /// After how many of the chunk's tokens: at least one, and none of them drafted.
    pub after: usize,
    /// The slot that gets it, which is nobody else's in this step.
    pub slot: u32,
}

/// What [`Backend::pick`] gives for a row whose logits are not numbers.
pub const NOT_A_NUMBER: u32 = u32::MAX;

/// Which rows of a chunk need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: a middle part of a prompt.
    Nothing,
    /// Only the last row: the usual case.
    Last,
    /// The same, and the sequence ends with what is picked from it: no step will follow.
    Final,
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
    /// The sequence's recurrent state: given exactly where the model has any.
    pub state: Option<StateUse<'a>>,
}

impl Chunk<'_> {
    /// Its rows that need logits, counted from its first.
    pub fn wanted(&self) -> Range<usize> {
        let rows = self.tokens.len();
        match self.want {
            Want::Nothing => rows..rows,
            Want::Last | Want::Final => rows - 1..rows,
            Want::All => 0..rows,
        }
    }
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

/// Checks a batch against the rules stated on [`Chunk`] and [`ModelInfo`].
pub(crate) fn check_batch(info: &ModelInfo, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
    let bad = |what: String| Err(BackendError::BadBatch(what));
    let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
    if rows > info.rows_max {
        return bad(format!("{rows} rows, at most {} fit in a step", info.rows_max));
    }
    for chunk in batch {
        let end = chunk.start + chunk.tokens.len();
        if chunk.tokens.is_empty() || end > info.context || end > chunk.blocks.len() * BLOCK {
            return bad(format!("positions {}..{end} with {} blocks", chunk.start, chunk.blocks.len()));
        }
        if let Some(token) = chunk.tokens.iter().find(|&&token| token as usize >= info.vocab) {
            return bad(format!("token {token} is outside the vocabulary of {}", info.vocab));
        }
        if let Some(block) = chunk.blocks.iter().find(|&&block| block as usize >= info.blocks) {
            return bad(format!("block {block} does not exist"));
        }
        check_state(info, chunk)?;
    }
    let slots = || batch.iter().filter_map(|chunk| chunk.state);
    let mut used: Vec<u32> = slots().flat_map(|s| s.saves.iter().map(|save| save.slot).chain([s.slot])).collect();
    used.sort_unstable();
    if let Some(pair) = used.windows(2).find(|pair| pair[0] == pair[1]) {
        return bad(format!("state slot {} is used twice in a step", pair[0]));
    }
    Ok(())
}

fn check_state(info: &ModelInfo, chunk: &Chunk<'_>) -> Result<(), BackendError> {
    let bad = |what: String| Err(BackendError::BadBatch(what));
    let (states, state) = match (info.states, chunk.state) {
        (None, None) => return Ok(()),
        (Some(states), Some(state)) => (states, state),
        (None, Some(_)) => return bad("a state slot is named, and the model has no recurrent state".to_owned()),
        (Some(_), None) => return bad("the model has recurrent state, and no slot is named".to_owned()),
    };
    if state.drafted >= chunk.tokens.len() || state.drafted > states.drafted_max {
        let (drafted, tokens, most) = (state.drafted, chunk.tokens.len(), states.drafted_max);
        return bad(format!("{drafted} of {tokens} tokens are drafted: fewer than all may be, and at most {most}"));
    }
    let certain = chunk.tokens.len() - state.drafted;
    if let Some(save) = state.saves.iter().find(|save| !(1..=certain).contains(&save.after)) {
        return bad(format!("a state is to be saved after {} of {certain} certain tokens", save.after));
    }
    let mut named = state.saves.iter().map(|save| save.slot).chain([state.slot]);
    match named.find(|&slot| slot as usize >= states.slots) {
        Some(slot) => bad(format!("state slot {slot} does not exist")),
        None => Ok(()),
    }
}

/// A model that can be stepped.
pub trait Backend: Send {
    /// Facts that do not change while the model is loaded.
    fn info(&self) -> &ModelInfo;

    /// Runs one step. Wanted rows are appended to `logits` (cleared first) in batch order, `info().vocab` values each.
    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Runs one step like [`Backend::forward`], but gives the most likely token of every wanted row (the first of equal
    /// ones; [`NOT_A_NUMBER`] where there is none) instead of its logits. Returns false, having done nothing, when the
    /// backend leaves picking to its caller, as the CPU does: there the logits are where they are needed anyway.
    ///
    /// A backend may use the time until the next call to compute the step that follows if every picked token is fed
    /// next. It writes KV at the following position of these sequences then, where their block tables cover it.
    fn pick(&mut self, _batch: &[Chunk<'_>], _picks: &mut Vec<u32>) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Runs one step like [`Backend::forward`], but gives a [`Shortlist`] of every wanted row instead of its logits, made as
    /// its entry of `asks` says. `mask` is called once for every wanted row while the step runs: it fills the given words
    /// (bit `t % 32` of word `t / 32` for token `t`) and returns true, or returns false where every token is allowed.
    /// Returns false, having done nothing, when the backend gives logits only, or not for this batch.
    fn shortlist(
        &mut self,
        _batch: &[Chunk<'_>],
        _asks: &[Ask],
        _mask: &mut dyn FnMut(usize, &mut [u32]) -> bool,
        _lists: &mut Vec<Shortlist>,
    ) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Gives a part of the logits of a wanted row of the step that [`Backend::shortlist`] ran last, minus infinity where
    /// its mask has no bit.
    fn part_of_row(&mut self, _row: usize, _part: Range<usize>) -> Result<Vec<f32>, BackendError> {
        Err(BackendError::BadBatch("no shortlist was made".to_owned()))
    }

    /// Copies the whole content of one block to another: how a sequence gets its own copy of a half-full block.
    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError>;

    /// Writes the content of a block to `bytes` (cleared first; `info().block_bytes` long), for a snapshot.
    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError>;

    /// Restores what [`Backend::export_block`] wrote.
    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies the state after `position` tokens from one slot to another. `from` holds that state, or one before it and a log
    /// that reaches it; with `to` the same slot what was logged up to there is applied and the rest forgotten.
    fn copy_state(&mut self, _from: u32, _to: u32, _position: usize) -> Result<(), BackendError> {
        Err(no_state())
    }

    /// Writes the state after `position` tokens to `bytes` (cleared first; [`StateInfo::bytes`] long), for a snapshot. Nothing
    /// may be logged in the slot: [`Backend::copy_state`] gives such a one.
    fn export_state(&self, _slot: u32, _position: usize, _bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        Err(no_state())
    }

    /// Restores what [`Backend::export_state`] wrote.
    fn import_state(&mut self, _slot: u32, _position: usize, _bytes: &[u8]) -> Result<(), BackendError> {
        Err(no_state())
    }
}

fn no_state() -> BackendError {
    BackendError::BadBatch("the model has no recurrent state".to_owned())
}
