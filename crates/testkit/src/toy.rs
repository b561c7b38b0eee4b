//! A backend without a model, for testing whatever drives one.
//!
//! Its KV blocks hold, for each position, the token and a checksum of all tokens up to it. Every step reads the whole
//! history back through the block table and refuses the batch when a checksum does not fit. So a wrong block table, a
//! shared block that was written, or a block used after it was freed shows as an error, and not as odd text.
//!
//! Logits are pseudo-random functions of the history, so every output is reproducible from its prompt alone.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use model::shortlist::{Ask, Shortlist};
use model::{BLOCK, Backend, BackendError, Chunk, ModelInfo, StateInfo, Want};

/// Shape and tricks of a toy.
#[derive(Debug)]
pub struct ToyOptions {
    /// Number of token ids.
    pub vocab: usize,
    /// Longest sequence.
    pub context: usize,
    /// Number of KV blocks.
    pub blocks: usize,
    /// Most rows per step.
    pub rows_max: usize,
    /// How many last tokens the logits depend on; few make the output repeat itself, as drafters like it.
    pub memory: usize,
    /// Rows of this token give logits that are not numbers.
    pub nan_token: Option<u32>,
    /// A step that contains this token fails.
    pub fail_token: Option<u32>,
    /// A step that contains this token panics.
    pub panic_token: Option<u32>,
    /// Identity of its weights, as far as snapshots are concerned.
    pub fingerprint: u64,
    /// When given, it names the token that follows a history; the others stay possible, for masks to fall back on.
    pub speaker: Option<fn(&[u32]) -> u32>,
    /// When given, every step first takes one message; after the sender is dropped steps run freely.
    pub gate: Option<Receiver<()>>,
    /// When given, every step adds a line: start and number of rows of each chunk.
    pub log: Option<StepLog>,
    /// When given, every step adds what is wanted of each chunk.
    pub wants: Option<Arc<Mutex<Vec<Want>>>>,
    /// When given, the toy has recurrent state: so many slots, and so many drafted tokens at most.
    pub states: Option<(usize, usize)>,
    /// When given, the toy makes shortlists where it is asked to, and counts them here.
    pub shortlists: Option<Arc<AtomicUsize>>,
}

/// The logit of a token that a speaker names: above all others.
const SAID: f32 = 16.0;

/// Start and number of rows of each chunk, step by step.
pub type StepLog = Arc<Mutex<Vec<Vec<(usize, usize)>>>>;

impl Default for ToyOptions {
    fn default() -> Self {
        Self {
            vocab: 128,
            context: 1024,
            blocks: 256,
            rows_max: 512,
            memory: usize::MAX,
            nan_token: None,
            fail_token: None,
            panic_token: None,
            fingerprint: 0x70f,
            speaker: None,
            gate: None,
            log: None,
            wants: None,
            states: None,
            shortlists: None,
        }
    }
}

/// The toy. See the module.
#[derive(Debug)]
pub struct ToyBackend {
    info: ModelInfo,
    options: ToyOptions,
    cells: Vec<[Cell; BLOCK]>,
    slots: Vec<Slot>,
    /// Logits of the rows that shortlists were made of, masked.
    masked: Vec<f32>,
}

/// What a position holds: its token, and a checksum of the history up to and including it.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    token: u32,
    checksum: u64,
}

/// What a state slot holds: the checksum of the tokens before a position, and those after each logged token.
#[derive(Clone, Debug, Default)]
struct Slot {
    position: usize,
    checksum: u64,
    log: Vec<u64>,
}

impl Slot {
    /// The checksum after `position` tokens; what was logged after them is forgotten.
    fn at(&self, position: usize) -> Result<Slot, BackendError> {
        let missing = || BackendError::BadBatch(format!("a slot at {} does not reach {position}", self.position));
        match position.checked_sub(self.position).ok_or_else(missing)? {
            0 => Ok(Slot { position, checksum: self.checksum, log: Vec::new() }),
            n => {
                let checksum = *self.log.get(n - 1).ok_or_else(missing)?;
                Ok(Slot { position, checksum, log: Vec::new() })
            }
        }
    }
}

/// Bytes of a saved state.
const STATE_BYTES: usize = 16;

impl ToyBackend {
    /// A toy with empty blocks.
    pub fn new(options: ToyOptions) -> Self {
        let info = ModelInfo {
            vocab: options.vocab,
            context: options.context,
            blocks: options.blocks,
            block_bytes: BLOCK * 12,
            rows_max: options.rows_max,
            bytes_per_token: 1,
            fingerprint: options.fingerprint,
            states: options.states.map(|(slots, drafted_max)| StateInfo { slots, bytes: STATE_BYTES, drafted_max }),
        };
        let slots = vec![Slot::default(); options.states.map_or(0, |(slots, _)| slots)];
        Self { info, cells: vec![[Cell::default(); BLOCK]; options.blocks], slots, masked: Vec::new(), options }
    }

    /// The logits of the row that follows `history`: what any correct engine must arrive at.
    pub fn logits(options: &ToyOptions, history: &[u32], out: &mut Vec<f32>) {
        let recent = &history[history.len().saturating_sub(options.memory)..];
        let key = recent.iter().fold(1, |key, &token| mix(key ^ u64::from(token)));
        let said = options.speaker.map(|speaker| u64::from(speaker(history)));
        let broken = options.nan_token.is_some_and(|token| history.last() == Some(&token));
        out.extend((0..options.vocab as u64).map(|id| {
            let unit = (mix(key.wrapping_add(id.wrapping_mul(0x9e37_79b9))) >> 40) as f32 / (1u64 << 24) as f32;
            match said {
                _ if broken => f32::NAN,
                Some(said) if said == id => SAID,
                _ => unit * 8.0 - 4.0,
            }
        }));
    }

    /// Greedy continuation of `prompt`, by the definition.
    pub fn greedy(options: &ToyOptions, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let mut row = Vec::new();
            Self::logits(options, &tokens, &mut row);
            let best = (0..row.len()).fold(0, |best, id| if row[id] > row[best] { id } else { best });
            tokens.push(best as u32);
        }
        tokens.split_off(prompt.len())
    }

    fn check(&self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        let bad = |text: String| Err(BackendError::BadBatch(text));
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        if rows == 0 || rows > self.info.rows_max {
            return bad(format!("{rows} rows, 1 to {} allowed", self.info.rows_max));
        }
        self.check_states(batch)?;
        let mut written = Vec::new();
        for chunk in batch {
            let end = chunk.start + chunk.tokens.len();
            if chunk.tokens.is_empty() || end > self.info.context || end > chunk.blocks.len() * BLOCK {
                return bad(format!("positions {}..{end} do not fit", chunk.start));
            }
            if chunk.tokens.iter().any(|&token| token as usize >= self.info.vocab) {
                return bad("unknown token".into());
            }
            written.extend_from_slice(&chunk.blocks[chunk.start / BLOCK..end.div_ceil(BLOCK)]);
        }
        for block in &written {
            let tables = batch.iter().filter(|chunk| chunk.blocks.contains(block)).count();
            if tables != 1 {
                return bad(format!("block {block} is written and in {tables} tables"));
            }
        }
        Ok(())
    }

    fn check_states(&self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        let bad = |text: String| Err(BackendError::BadBatch(text));
        let mut named = Vec::new();
        for chunk in batch {
            if chunk.state.is_some() != self.info.states.is_some() {
                return bad("a state slot is named exactly where there is state".into());
            }
            let (Some(state), Some(info)) = (chunk.state, self.info.states) else { continue };
            let certain = chunk.tokens.len().saturating_sub(state.drafted);
            let saves = state.saves.iter().all(|save| (1..=certain).contains(&save.after));
            if certain == 0 || state.drafted > info.drafted_max || !saves {
                return bad(format!("{} drafted of {} tokens", state.drafted, chunk.tokens.len()));
            }
            named.extend(state.saves.iter().map(|save| save.slot).chain([state.slot]));
        }
        named.sort_unstable();
        let twice = named.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || named.last().is_some_and(|&slot| slot as usize >= self.slots.len()) {
            return bad(format!("state slots {named:?}"));
        }
        Ok(())
    }

    /// Reads positions `0..end` back, checking that they are one unbroken history.
    fn history(&self, blocks: &[u32], end: usize) -> Result<(Vec<u32>, u64), BackendError> {
        let mut checksum = 0;
        let mut tokens = Vec::with_capacity(end);
        for position in 0..end {
            let cell = self.cells[blocks[position / BLOCK] as usize][position % BLOCK];
            checksum = chain(checksum, cell.token);
            if cell.checksum != checksum {
                return Err(BackendError::BadBatch(format!("position {position} holds another history")));
            }
            tokens.push(cell.token);
        }
        Ok((tokens, checksum))
    }

    fn run_chunk(&mut self, chunk: &Chunk<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError> {
        let (mut tokens, mut checksum) = self.history(chunk.blocks, chunk.start)?;
        let mut slot = match chunk.state {
            Some(state) if chunk.start > 0 => self.slots[state.slot as usize].at(chunk.start)?,
            _ => Slot::default(),
        };
        if chunk.state.is_some() && slot.checksum != checksum {
            return Err(BackendError::BadBatch(format!("a state of another history at {}", chunk.start)));
        }
        for (index, &token) in chunk.tokens.iter().enumerate() {
            let position = chunk.start + index;
            checksum = chain(checksum, token);
            let block = chunk.blocks[position / BLOCK] as usize;
            self.cells[block][position % BLOCK] = Cell { token, checksum };
            tokens.push(token);
            if let Some(state) = chunk.state {
                match index + state.drafted < chunk.tokens.len() {
                    true => (slot.position, slot.checksum) = (position + 1, checksum),
                    false => slot.log.push(checksum),
                }
                for save in state.saves.iter().filter(|save| save.after == index + 1) {
                    self.slots[save.slot as usize] = slot.clone();
                }
            }
            if chunk.wanted().contains(&index) {
                Self::logits(&self.options, &tokens, logits);
            }
        }
        if let Some(state) = chunk.state {
            self.slots[state.slot as usize] = slot;
        }
        Ok(())
    }
}

impl Backend for ToyBackend {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        if let Some(gate) = &self.options.gate {
            // An error means that the sender is gone: steps run freely from then on.
            let _ = gate.recv();
        }
        if let Some(log) = &self.options.log {
            let line = batch.iter().map(|chunk| (chunk.start, chunk.tokens.len())).collect();
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        if let Some(wants) = &self.options.wants {
            wants.lock().unwrap_or_else(PoisonError::into_inner).extend(batch.iter().map(|chunk| chunk.want));
        }
        logits.clear();
        let fed = |token: Option<u32>| token.is_some_and(|t| batch.iter().any(|chunk| chunk.tokens.contains(&t)));
        assert!(!fed(self.options.panic_token), "told to panic");
        if fed(self.options.fail_token) {
            return Err(BackendError::Device("told to fail".into()));
        }
        self.check(batch)?;
        batch.iter().try_for_each(|chunk| self.run_chunk(chunk, logits))
    }

    fn shortlist(
        &mut self,
        batch: &[Chunk<'_>],
        asks: &[Ask],
        mask: &mut dyn FnMut(usize, &mut [u32]) -> bool,
        lists: &mut Vec<Shortlist>,
    ) -> Result<bool, BackendError> {
        let Some(made) = self.options.shortlists.clone() else { return Ok(false) };
        let (mut logits, vocab) = (Vec::new(), self.info.vocab);
        self.forward(batch, &mut logits)?;
        lists.resize_with(asks.len(), Shortlist::default);
        let mut words = vec![0; vocab.div_ceil(32)];
        for (row, (logits, list)) in logits.chunks_exact_mut(vocab).zip(lists).enumerate() {
            let masked = mask(row, &mut words);
            list.fill(logits, masked.then_some(&words), asks[row]);
            let forbidden = |id: &usize| masked && words[id / 32] >> (id % 32) & 1 == 0;
            (0..vocab).filter(forbidden).for_each(|id| logits[id] = f32::NEG_INFINITY);
        }
        made.fetch_add(asks.len(), Ordering::Relaxed);
        self.masked = logits;
        Ok(true)
    }

    fn part_of_row(&mut self, row: usize, part: Range<usize>) -> Result<Vec<f32>, BackendError> {
        Ok(self.masked[row * self.info.vocab..][part].to_vec())
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        self.cells[to as usize] = self.cells[from as usize];
        Ok(())
    }

    fn copy_state(&mut self, from: u32, to: u32, position: usize) -> Result<(), BackendError> {
        self.slots[to as usize] = self.slots[from as usize].at(position)?;
        Ok(())
    }

    fn export_state(&self, slot: u32, position: usize, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        let Slot { position: held, checksum, log } = &self.slots[slot as usize];
        if *held != position || !log.is_empty() {
            return Err(BackendError::BadBatch(format!("slot {slot} is at {held} with {} logged", log.len())));
        }
        bytes.clear();
        bytes.extend((position as u64).to_le_bytes().into_iter().chain(checksum.to_le_bytes()));
        Ok(())
    }

    fn import_state(&mut self, slot: u32, position: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let words = bytes.as_chunks::<8>().0;
        match *words {
            [held, checksum] if u64::from_le_bytes(held) == position as u64 => {
                let checksum = u64::from_le_bytes(checksum);
                self.slots[slot as usize] = Slot { position, checksum, log: Vec::new() };
                Ok(())
            }
            _ => Err(BackendError::BadBatch(format!("{} bytes for a state at {position}", bytes.len()))),
        }
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        bytes.clear();
        for cell in &self.cells[block as usize] {
            bytes.extend_from_slice(&cell.token.to_le_bytes());
            bytes.extend_from_slice(&cell.checksum.to_le_bytes());
        }
        Ok(())
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        if bytes.len() != self.info.block_bytes {
            return Err(BackendError::BadBatch(format!("{} bytes for a block", bytes.len())));
        }
        for (cell, bytes) in self.cells[block as usize].iter_mut().zip(bytes.chunks_exact(12)) {
            let (token, checksum) = bytes.split_at(4);
            cell.token = token.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            cell.checksum = checksum.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        }
        Ok(())
    }
}

fn chain(checksum: u64, token: u32) -> u64 {
    mix(checksum.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ u64::from(token))
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
