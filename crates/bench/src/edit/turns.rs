//! Two engines on one model that take turns, a few tokens each: how two ways to decode are compared on a machine whose
//! speed changes from minute to minute.
//!
//! Both answer the same prompt at the same time, but only the one whose turn it is computes; the other waits at the door
//! of its next step. Turns go A B B A, so that a machine which gets slower or faster treats both alike. A turn is timed
//! from one door to the other, so all that an engine does between its steps counts: sampling, drafting, publishing.
//! Weights, threads and everything else are shared; each engine has one half of the KV blocks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::{Backend, BackendError, Chunk, ModelInfo};

/// Who goes in which turn.
const ORDER: [usize; 4] = [0, 1, 1, 0];

/// What one side did in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub tokens: usize,
    pub seconds: f64,
}

/// One step of a side.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Position of its first row: how far the sequence has come.
    pub position: usize,
    pub rows: usize,
    pub seconds: f64,
    /// What the engine did since its last step; unknown for the first step of a turn.
    pub host_seconds: Option<f64>,
}

/// All that was measured of one pair of answers.
#[derive(Default)]
pub struct Record {
    /// Neighbouring turns: the first side's, the second side's.
    pub pairs: Vec<[Slice; 2]>,
    pub steps: [Vec<Step>; 2],
}

/// The model and whose turn it is.
pub struct Turns {
    model: Mutex<Box<dyn Backend>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The first position behind the prompt: turns begin with it.
    begin: usize,
    slice_tokens: usize,
    /// Turns that are over.
    slices: Vec<Slice>,
    /// When and where the present turn began.
    opened: Option<(Instant, usize)>,
    /// When the last step of the present turn ended.
    returned: Option<Instant>,
    arrived: [bool; 2],
    /// Whether turns are taken at all.
    on: bool,
    steps: [Vec<Step>; 2],
}

/// The model as one of the two engines sees it.
struct Side {
    turns: Arc<Turns>,
    index: usize,
    info: ModelInfo,
}

impl Turns {
    /// Two views of a model.
    pub fn new(model: Box<dyn Backend>) -> (Arc<Self>, [Box<dyn Backend>; 2]) {
        let mut info = model.info().clone();
        info.blocks /= 2;
        let turns = Arc::new(Self { model: Mutex::new(model), state: Mutex::default(), changed: Condvar::new() });
        let side =
            |index| -> Box<dyn Backend> { Box::new(Side { turns: Arc::clone(&turns), index, info: info.clone() }) };
        let sides = [side(0), side(1)];
        (turns, sides)
    }

    /// Gets ready for two answers to a prompt of this length, in turns of at least `slice_tokens` tokens.
    pub fn begin(&self, prompt_tokens: usize, slice_tokens: usize) {
        *lock(&self.state) = State { begin: prompt_tokens, slice_tokens, on: true, ..State::default() };
    }

    /// One of the answers is there: the other may go on without turns, and nothing more is measured.
    pub fn end(&self) {
        lock(&self.state).on = false;
        self.changed.notify_all();
    }

    /// What was measured since [`Turns::begin`].
    pub fn take(&self) -> Record {
        let state = std::mem::take(&mut *lock(&self.state));
        let ordered = |(turn, pair): (usize, &[Slice])| match ORDER[2 * turn % ORDER.len()] {
            0 => [pair[0], pair[1]],
            _ => [pair[1], pair[0]],
        };
        let pairs = state.slices.chunks_exact(2).enumerate().map(ordered).collect();
        Record { pairs, steps: state.steps }
    }

    /// Whether a step at this position belongs to a turn.
    fn counts(&self, position: usize) -> bool {
        let state = lock(&self.state);
        state.on && position >= state.begin
    }

    /// Waits at the door of a step for the side's turn. Says what the engine did since the last step, if that is known.
    fn enter(&self, side: usize, position: usize) -> Option<f64> {
        let mut state = lock(&self.state);
        state.arrived[side] = true;
        if state.turn() == side
            && let Some((since, from)) = state.opened
            && position >= from + state.slice_tokens
        {
            let slice = Slice { tokens: position - from, seconds: since.elapsed().as_secs_f64() };
            state.slices.push(slice);
            (state.opened, state.returned) = (None, None);
        }
        self.changed.notify_all();
        while state.on && (state.arrived != [true; 2] || state.turn() != side) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.opened.get_or_insert_with(|| (Instant::now(), position));
        state.returned.map(|at| at.elapsed().as_secs_f64())
    }

    fn leave(&self, side: usize, step: Step) {
        let mut state = lock(&self.state);
        if state.on {
            state.returned = Some(Instant::now());
            state.steps[side].push(step);
        }
    }
}

impl State {
    fn turn(&self) -> usize {
        ORDER[self.slices.len() % ORDER.len()]
    }
}

impl Side {
    /// The block's number in the model that both share.
    fn block(&self, block: u32) -> u32 {
        block + (self.index * self.info.blocks) as u32
    }
}

impl Backend for Side {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        let tables: Vec<Vec<u32>> =
            batch.iter().map(|chunk| chunk.blocks.iter().map(|&block| self.block(block)).collect()).collect();
        let chunks = batch.iter().zip(&tables);
        let moved: Vec<Chunk<'_>> = chunks.map(|(chunk, blocks)| Chunk { blocks, ..*chunk }).collect();
        let position = batch.first().map(|chunk| chunk.start).filter(|&start| self.turns.counts(start));
        let host_seconds = position.and_then(|position| self.turns.enter(self.index, position));
        let begun = Instant::now();
        lock(&self.turns.model).forward(&moved, logits)?;
        if let Some(position) = position {
            let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
            let step = Step { position, rows, seconds: begun.elapsed().as_secs_f64(), host_seconds };
            self.turns.leave(self.index, step);
        }
        Ok(())
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        lock(&self.turns.model).copy_block(self.block(from), self.block(to))
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        lock(&self.turns.model).export_block(self.block(block), bytes)
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        lock(&self.turns.model).import_block(self.block(block), bytes)
    }
}

/// A panic elsewhere leaves nothing behind that could mislead: the answers are compared in the end.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
