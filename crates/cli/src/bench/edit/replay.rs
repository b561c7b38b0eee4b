//! Recorded answers, for measuring drafting where there are no real weights.
//!
//! With random weights a model says nothing that a prediction could hit. So answers of a real model are recorded on a
//! machine that has it (`--record`), and elsewhere (`--replay`) every step is computed in full but what it picks is taken
//! from the recording. Drafter, gate and verification are the engine's own, and accept what they would accept of the real
//! model. A token decoded by itself costs more than it would: the card has begun the step after its own pick, not this one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use model::{Backend, BackendError, Chunk, ModelInfo, Want};
use serde::{Deserialize, Serialize};

/// Answers by the name of their case.
#[derive(Default, Deserialize, Serialize)]
pub struct Recording {
    /// The model that said them.
    pub model: String,
    /// Prompt and answer of each case.
    pub answers: BTreeMap<String, Recorded>,
}

/// One of them.
#[derive(Clone, Deserialize, Serialize)]
pub struct Recorded {
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Tokens of the answer, with the one that ended it.
    pub answer: Vec<u32>,
}

impl Recording {
    /// Reads a recording.
    pub fn read(file: &Path) -> Result<Recording> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no recording", file.display()))
    }

    /// Writes it.
    pub fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
    }
}

/// A model that computes and says what was recorded.
pub struct Replayed {
    inner: Box<dyn Backend>,
    recorded: Vec<Vec<u32>>,
}

impl Replayed {
    /// Replays all answers of a recording; which one is told by the prompt.
    pub fn new(inner: Box<dyn Backend>, recording: &Recording) -> Replayed {
        let whole = |recorded: &Recorded| [&recorded.prompt[..], &recorded.answer].concat();
        Replayed { inner, recorded: recording.answers.values().map(whole).collect() }
    }

    /// What follows the row of each chunk that is wanted. A text is told from another by the tokens at their places, and a
    /// drafted token that is wrong is followed by whatever the text has there: it is not accepted anyway.
    fn said(&self, batch: &[Chunk<'_>]) -> Vec<u32> {
        let mut said = Vec::new();
        for chunk in batch {
            let end = chunk.start + chunk.tokens.len();
            let alike = |text: &&Vec<u32>| {
                let there = text.get(chunk.start..end.min(text.len())).unwrap_or_default();
                there.iter().zip(chunk.tokens).filter(|(a, b)| a == b).count()
            };
            let text = self.recorded.iter().max_by_key(alike);
            let next = |position: usize| text.and_then(|text| text.get(position + 1)).copied().unwrap_or(0);
            match chunk.want {
                Want::Nothing => {}
                Want::Last => said.push(next(end - 1)),
                Want::All => said.extend((chunk.start..end).map(next)),
            }
        }
        said
    }
}

impl Backend for Replayed {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.inner.forward(batch, logits)?;
        let vocab = self.inner.info().vocab;
        for (row, token) in logits.chunks_exact_mut(vocab).zip(self.said(batch)) {
            row[token as usize] = f32::MAX;
        }
        Ok(())
    }

    fn pick(&mut self, batch: &[Chunk<'_>], picks: &mut Vec<u32>) -> Result<bool, BackendError> {
        let picked = self.inner.pick(batch, picks)?;
        if picked {
            *picks = self.said(batch);
        }
        Ok(picked)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        self.inner.copy_block(from, to)
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        self.inner.export_block(block, bytes)
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.import_block(block, bytes)
    }
}
