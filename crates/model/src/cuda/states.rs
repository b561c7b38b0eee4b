//! Recurrent states of Gated DeltaNet layers: slots on the card, what each holds, and what a step does with them.
//!
//! A slot has two copies of every layer's state, that after an even and that after an odd number of tokens, so a step that
//! is thrown away (`ahead.rs`) has not touched the state it began with. Drafted rows are logged instead; where the next chunk
//! starts says how many of them are replayed (`delta_settle` in the crate `cuda`).

use super::DECODE_ROWS_MAX;
use crate::backend::{BackendError, Chunk, StateInfo, Want};
use crate::config::{Config, DeltaNetConfig, HeadOrder, OutputGate};
use crate::load::LoadError;
use ::cuda::{
    Buffer, DELTA_HEAD, DELTA_TAPS, DELTA_WRITES_MAX, DeltaRun, DeltaSettleCall, DeltaShape, DeltaStates, Device,
    Error, Kernels,
};
use std::cell::RefCell;
use std::ops::RangeInclusive;

/// Fewest and most slots of a model.
const SLOTS: RangeInclusive<usize> = 8..=64;
/// Most drafted tokens of a chunk, so that they fit a step with the one before them.
const DRAFTED_MAX: usize = DECODE_ROWS_MAX - 1;

/// The states of a model.
pub(super) struct States {
    pub shape: DeltaShape,
    layers: usize,
    slots: usize,
    states: Buffer<u8>,
    /// [`DRAFTED_MAX`] rows for each slot, by layers.
    log: Buffer<u8>,
    tracks: RefCell<Vec<Track>>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Track {
    /// The state after so many tokens,
    tokens: usize,
    /// and a log of so many more.
    logged: usize,
}

impl States {
    /// Room for states that together take about as much as keys and values do, `kv_bytes`.
    pub fn new(config: &Config, delta: DeltaNetConfig, kv_bytes: usize, device: &Device) -> Result<States, LoadError> {
        if (delta.head, delta.taps) != (DELTA_HEAD, DELTA_TAPS) || delta.gate != OutputGate::Silu {
            return Err(LoadError::NotOnCard("layers with recurrent state of this shape do not run on a card"));
        }
        let grouped = delta.order == HeadOrder::Grouped;
        let shape = DeltaShape { key_heads: delta.key_heads, value_heads: delta.value_heads, grouped };
        let layers = config.layers - config.attention_layers();
        let slots = (kv_bytes / (layers * shape.layer_bytes())).clamp(*SLOTS.start(), *SLOTS.end());
        Ok(States {
            shape,
            layers,
            slots,
            states: Buffer::zeroed(device, slots * layers * shape.layer_bytes())?,
            log: Buffer::zeroed(device, slots * layers * DRAFTED_MAX * shape.log_bytes())?,
            tracks: RefCell::new(vec![Track::default(); slots]),
        })
    }

    pub fn info(&self) -> StateInfo {
        StateInfo { slots: self.slots, bytes: self.bytes(), drafted_max: DRAFTED_MAX }
    }

    /// Bytes of a state that is saved: one copy.
    fn bytes(&self) -> usize {
        self.layers * (self.shape.copy_bytes() + self.shape.rows_bytes())
    }

    /// For kernels.
    pub fn view(&self) -> DeltaStates<'_> {
        let (states, log) = (self.states.all(), self.log.all());
        DeltaStates { states, layers: self.layers, log, log_rows: self.slots * DRAFTED_MAX }
    }

    /// Whether every chunk's slot holds what comes before it.
    pub fn check(&self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        for (chunk, state) in batch.iter().filter_map(|chunk| Some((chunk, chunk.state?))) {
            if chunk.start > 0 {
                self.reached(state.slot, chunk.start)?;
            }
            // Such a chunk may become several steps (`rows.rs`).
            let long = chunk.want == Want::All && chunk.tokens.len() > DECODE_ROWS_MAX;
            if long && !state.saves.is_empty() {
                let most = DECODE_ROWS_MAX;
                return Err(BackendError::BadBatch(format!(
                    "a state is to be saved among more than {most} wanted rows"
                )));
            }
            // Of those one is the chunk's own.
            if state.saves.len() >= DELTA_WRITES_MAX {
                let most = DELTA_WRITES_MAX - 1;
                return Err(BackendError::BadBatch(format!("a state is to be saved more than {most} times in a step")));
            }
        }
        Ok(())
    }

    fn reached(&self, slot: u32, position: usize) -> Result<Track, BackendError> {
        let track = self.tracks.borrow().get(slot as usize).copied();
        let held = track.filter(|track| (track.tokens..=track.tokens + track.logged).contains(&position));
        held.ok_or_else(|| BackendError::BadBatch(format!("state slot {slot} does not hold the state at {position}")))
    }

    /// What a step does with states, after what was logged before it is replayed. From here on slots hold what the step leaves.
    pub fn begin(&self, kernels: &Kernels, batch: &[Chunk<'_>]) -> Result<Vec<DeltaRun>, Error> {
        let mut first = 0;
        let mut runs = Vec::with_capacity(batch.len());
        for chunk in batch {
            let Some(state) = chunk.state else { continue };
            let track = self.tracks.borrow()[state.slot as usize];
            if chunk.start > track.tokens {
                self.settle(kernels, state.slot, state.slot, chunk.start)?;
            }
            let (count, certain) = (chunk.tokens.len(), chunk.tokens.len() - state.drafted);
            let mut run = DeltaRun {
                first,
                count,
                certain,
                read: state.slot,
                log: state.slot as usize * DRAFTED_MAX,
                ..DeltaRun::default()
            };
            let mut saves: Vec<(usize, u32)> = state.saves.iter().map(|save| (save.after, save.slot)).collect();
            saves.sort_unstable();
            saves.push((certain, state.slot));
            run.writes.iter_mut().zip(saves).for_each(|(write, save)| *write = Some(save));
            runs.push(run);
            first += count;
        }
        self.advance(batch);
        Ok(runs)
    }

    /// Slots hold what a step over this batch leaves.
    pub fn advance(&self, batch: &[Chunk<'_>]) {
        let mut tracks = self.tracks.borrow_mut();
        for (chunk, state) in batch.iter().filter_map(|chunk| Some((chunk, chunk.state?))) {
            for save in state.saves {
                tracks[save.slot as usize] = Track { tokens: chunk.start + save.after, logged: 0 };
            }
            let tokens = chunk.start + chunk.tokens.len() - state.drafted;
            tracks[state.slot as usize] = Track { tokens, logged: state.drafted };
        }
    }

    /// The state at a position that a slot reaches, in this slot or another.
    fn settle(&self, kernels: &Kernels, from: u32, to: u32, position: usize) -> Result<(), Error> {
        let track = self.tracks.borrow()[from as usize];
        kernels.delta_settle(&DeltaSettleCall {
            shape: self.shape,
            states: self.view(),
            from,
            to,
            first: from as usize * DRAFTED_MAX,
            kept: position - track.tokens,
            start: track.tokens,
        })?;
        self.tracks.borrow_mut()[to as usize] = Track { tokens: position, logged: 0 };
        Ok(())
    }

    /// Copies of states that a step of one row leaves, which that step does not make itself.
    pub fn save_after(&self, kernels: &Kernels, chunk: &Chunk<'_>) -> Result<(), Error> {
        let Some(state) = chunk.state else { return Ok(()) };
        state.saves.iter().try_for_each(|save| self.settle(kernels, state.slot, save.slot, chunk.start + 1))
    }

    pub fn copy(&self, kernels: &Kernels, from: u32, to: u32, position: usize) -> Result<(), BackendError> {
        self.reached(from, position)?;
        if to as usize >= self.slots {
            return Err(BackendError::BadBatch(format!("state slot {to} does not exist")));
        }
        self.settle(kernels, from, to, position).map_err(super::failed)
    }

    /// Where a saved state's parts stand: of every layer the copy after so many tokens, and the rows behind both.
    fn parts(&self, slot: u32, position: usize) -> impl Iterator<Item = (usize, usize)> {
        let (copy, rows, layer) = (self.shape.copy_bytes(), self.shape.rows_bytes(), self.shape.layer_bytes());
        let first = slot as usize * self.layers * layer;
        (0..self.layers).flat_map(move |i| {
            let at = first + i * layer;
            [(at + position % 2 * copy, copy), (at + 2 * copy, rows)]
        })
    }

    pub fn export(&self, slot: u32, position: usize, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        if self.reached(slot, position)? != (Track { tokens: position, logged: 0 }) {
            return Err(BackendError::BadBatch(format!("state slot {slot} holds drafted tokens")));
        }
        bytes.clear();
        bytes.resize(self.bytes(), 0);
        let mut rest = &mut bytes[..];
        for (at, len) in self.parts(slot, position) {
            let (part, others) = rest.split_at_mut(len);
            self.states.read(at, part).map_err(super::failed)?;
            rest = others;
        }
        Ok(())
    }

    pub fn import(&self, slot: u32, position: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let (found, wanted) = (bytes.len(), self.bytes());
        if slot as usize >= self.slots || found != wanted {
            return Err(BackendError::BadBatch(format!("{found} bytes for state slot {slot}, where {wanted} go")));
        }
        let mut rest = bytes;
        for (at, len) in self.parts(slot, position) {
            let (part, others) = rest.split_at(len);
            self.states.write(at, part).map_err(super::failed)?;
            rest = others;
        }
        self.tracks.borrow_mut()[slot as usize] = Track { tokens: position, logged: 0 };
        Ok(())
    }
}
