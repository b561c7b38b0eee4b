//! A smaller model of the same vocabulary that proposes what the larger one may say.
//!
//! It serves one sequence at a time, the only one that decodes: several would share its time and gain nothing. Its KV
//! holds that sequence's tokens; another sequence takes it over and reads its own from the first difference on, a
//! bounded number of rows per step, and nothing is proposed until it has caught up.

use std::time::Instant;

use model::{BLOCK, Backend, Chunk, Want};

use super::Drafter;
use super::belief::{Belief, CLASSES};

/// Rows of the past that are read per step while it catches up.
const CATCH_UP_ROWS: usize = 64;
/// Steps between two trials of a draft model that does not pay, at first and at most.
const PATIENCE_MIN: usize = 64;
const PATIENCE_MAX: usize = 1024;
/// Tokens of a trial.
const TRIAL: usize = 3;

/// The engine's draft model.
pub(crate) struct DraftModel {
    backend: Box<dyn Backend>,
    blocks: Vec<u32>,
    /// Tokens whose KV it holds.
    held: Vec<u32>,
    logits: Vec<f32>,
    belief: Belief,
    /// Right proposals in a row.
    run: usize,
    /// Seconds of one step of one row; 0 before the first.
    seconds: f64,
    /// Steps since it last proposed something, and how many it waits for a trial.
    silent: usize,
    patience: usize,
}

impl DraftModel {
    pub fn new(backend: Box<dyn Backend>) -> Self {
        let info = backend.info();
        let blocks = (0..info.blocks.min(info.context.div_ceil(BLOCK)) as u32).collect();
        Self {
            backend,
            blocks,
            held: Vec::new(),
            logits: Vec::new(),
            belief: Belief::new([0.7; CLASSES]),
            run: 0,
            seconds: 0.0,
            silent: 0,
            patience: PATIENCE_MIN,
        }
    }

    /// How many tokens to propose although it is not expected to pay: now and then a few, rarer each time.
    pub fn trial(&mut self) -> usize {
        self.silent += 1;
        if self.silent < self.patience {
            return 0;
        }
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        TRIAL
    }

    /// Runs `tokens` after those it holds; the last row's logits are wanted when `want` says so.
    fn read(&mut self, tokens: &[u32], want: Want) -> bool {
        let begun = Instant::now();
        let chunk = Chunk { tokens, start: self.held.len(), blocks: &self.blocks, want, state: None };
        // A broken draft model only stops drafting; what it holds is then not to be trusted.
        let done = self.backend.forward(&[chunk], &mut self.logits).is_ok();
        if !done {
            self.held.clear();
            return false;
        }
        self.held.extend_from_slice(tokens);
        if tokens.len() == 1 {
            let seconds = begun.elapsed().as_secs_f64();
            self.seconds = if self.seconds == 0.0 { seconds } else { 0.9 * self.seconds + 0.1 * seconds };
        }
        true
    }

    /// Brings its KV to all but the last of `tokens`; false while there is more to read than a step may take.
    fn catch_up(&mut self, tokens: &[u32]) -> bool {
        let same = self.held.iter().zip(tokens).take_while(|(a, b)| a == b).count().min(tokens.len() - 1);
        self.held.truncate(same);
        let behind = &tokens[same..tokens.len() - 1];
        let rows = behind.len().min(CATCH_UP_ROWS);
        rows == 0 || (self.read(&behind[..rows], Want::Nothing) && rows == behind.len())
    }

    fn best(&self) -> Option<u32> {
        let best = self.logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(id, _)| id as u32)
    }
}

impl Drafter for DraftModel {
    fn chances(&mut self, tokens: &[u32], max: usize, chances: &mut Vec<f32>) {
        if tokens.len() + max <= self.blocks.len() * BLOCK {
            chances.extend((0..max).map(|ahead| self.belief.chance(self.run + ahead)));
        }
    }

    fn propose(&mut self, tokens: &[u32], max: usize, out: &mut Vec<u32>) {
        self.silent = 0;
        if !self.catch_up(tokens) {
            return;
        }
        let mut next = tokens[tokens.len() - 1];
        while out.len() < max && self.read(&[next], Want::Last) {
            let Some(best) = self.best() else { return };
            out.push(best);
            next = best;
        }
    }

    fn observe(&mut self, proposed: usize, accepted: usize) {
        for ahead in 0..accepted {
            self.belief.hear(self.run + ahead, true);
        }
        if accepted < proposed {
            self.belief.hear(self.run + accepted, false);
            self.run = 0;
        } else {
            self.run += accepted;
            self.patience = PATIENCE_MIN;
        }
    }

    fn seconds_per_token(&self) -> f64 {
        self.seconds
    }
}
