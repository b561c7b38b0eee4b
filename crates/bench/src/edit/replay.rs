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
    /// Tokens of the answer, without the one that ended it.
    pub answer: Vec<u32>,
}

impl Recording {
    /// Reads a recording.
    pub fn read(file: &Path) -> Result<Recording> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a recording", file.display()))
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
    script: Script,
}

impl Replayed {
    /// Replays the answers of a recording, one after the other, each ended by this token.
    pub fn new(inner: Box<dyn Backend>, recording: &Recording, end: u32) -> Replayed {
        let whole = |recorded: &Recorded| [&recorded.prompt[..], &recorded.answer].concat();
        let texts = recording.answers.values().map(whole).collect();
        Replayed { inner, script: Script { texts, current: 0, end } }
    }
}

/// Which text is said, and how it goes on.
struct Script {
    texts: Vec<Vec<u32>>,
    /// The one whose prompt was read last.
    current: usize,
    /// What follows the last token.
    end: u32,
}

impl Script {
    /// What follows each row that is wanted. A drafted token that is wrong is followed by whatever the text has there: it is
    /// not accepted anyway.
    fn said(&mut self, batch: &[Chunk<'_>]) -> Vec<u32> {
        let mut said = Vec::new();
        for chunk in batch {
            let end = chunk.start + chunk.tokens.len();
            if chunk.want != Want::All && chunk.tokens.len() > 1 {
                let there = |text: &Vec<u32>| text.get(chunk.start..end) == Some(chunk.tokens);
                self.current = self.texts.iter().position(there).unwrap_or(self.current);
            }
            let text = self.texts.get(self.current);
            let next = |position: usize| text.and_then(|text| text.get(position + 1)).copied().unwrap_or(self.end);
            said.extend(chunk.wanted().map(|row| next(chunk.start + row)));
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
        for (row, token) in logits.chunks_exact_mut(vocab).zip(self.script.said(batch)) {
            row[token as usize] = f32::MAX;
        }
        Ok(())
    }

    fn pick(&mut self, batch: &[Chunk<'_>], picks: &mut Vec<u32>) -> Result<bool, BackendError> {
        let picked = self.inner.pick(batch, picks)?;
        if picked {
            *picks = self.script.said(batch);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_whose_prompt_was_read_goes_on() {
        let texts = vec![vec![1, 2, 3, 9, 9, 9], vec![1, 2, 4, 5, 9, 7]];
        let mut script = Script { texts, current: 0, end: 99 };
        let mut say =
            |tokens: &[u32], start, want| script.said(&[Chunk { tokens, start, blocks: &[], want, state: None }]);
        assert_eq!(say(&[1, 2, 4], 0, Want::Last), [5]);
        assert_eq!(say(&[5], 3, Want::Last), [9]);
        // Both texts have this token here.
        assert_eq!(say(&[9], 4, Want::Last), [7]);
        // A wrong draft is answered by the text.
        assert_eq!(say(&[5, 8, 8], 3, Want::All), [9, 7, 99]);
        assert_eq!(say(&[2, 3], 1, Want::Last), [9]);
    }
}
