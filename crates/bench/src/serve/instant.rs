//! An engine that answers at once, so that what is left is the server's own cost.
//!
//! It says one word of the vocabulary again and again, at a given rate or as fast as it is asked, and notes when.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Engine, EngineOptions};
use model::gguf::Gguf;
use model::{BLOCK, Backend, BackendError, Chunk, ModelInfo};
use server::{Loader, ModelCard, ModelParts};
use text::{ChatTemplate, Special, Tokenizer};

/// Longest sequence it serves.
const CONTEXT: usize = 65_536;

/// What it says: one token in the vocabularies in use, and always as long.
pub const WORD: &str = " the";

/// When each token was produced.
pub type Produced = Arc<Mutex<Vec<Instant>>>;

/// Offers one model that answers at once, with the vocabulary of a real one.
pub struct InstantLoader {
    path: std::path::PathBuf,
    pace: Option<Duration>,
    produced: Produced,
}

impl InstantLoader {
    /// `pace` is the time between two tokens; none is no waiting.
    pub fn new(vocabulary: &str, pace: Option<Duration>) -> Result<(Self, Produced)> {
        let path = load::fetch::ensure(vocabulary, false)?;
        let produced = Produced::default();
        Ok((Self { path, pace, produced: Arc::clone(&produced) }, produced))
    }

    fn load_model(&self) -> Result<ModelParts> {
        let gguf = Gguf::open(&self.path)?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf)?);
        let word = *tokenizer.encode(WORD, Special::Plain).first().context("the vocabulary has no words")?;
        let info = ModelInfo {
            vocab: tokenizer.vocabulary().len(),
            context: CONTEXT,
            blocks: 4 * CONTEXT / BLOCK,
            block_bytes: 1,
            rows_max: 4096,
            bytes_per_token: 0,
            fingerprint: 1,
            states: None,
        };
        let produced = Arc::clone(&self.produced);
        let backend = InstantBackend { info, word, pace: self.pace, next: Instant::now(), produced };
        Ok(ModelParts {
            // Its tokens come one by one, at the rate asked for: nothing is drafted.
            engine: Engine::start(Box::new(backend), EngineOptions { draft_max: 0, ..EngineOptions::default() })?,
            template: ChatTemplate::new(tokenizer.vocabulary()),
            tokenizer,
            served_model: "instant".to_owned(),
            fingerprint: 1,
            quantisation: "none".to_owned(),
            context: CONTEXT,
            after_tools: None,
        })
    }
}

impl Loader for InstantLoader {
    fn cards(&self) -> Vec<ModelCard> {
        let description = "answers at once".to_owned();
        vec![ModelCard {
            name: "instant".to_owned(),
            aliases: Vec::new(),
            description,
            context: CONTEXT,
            file: Default::default(),
        }]
    }

    fn load(&self, _name: &str) -> Result<ModelParts, String> {
        self.load_model().map_err(|error| format!("{error:#}"))
    }
}

struct InstantBackend {
    info: ModelInfo,
    word: u32,
    pace: Option<Duration>,
    next: Instant,
    produced: Produced,
}

impl Backend for InstantBackend {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        logits.clear();
        for _ in batch.iter().flat_map(Chunk::wanted) {
            let start = logits.len();
            logits.resize(start + self.info.vocab, 0.0);
            logits[start + self.word as usize] = 1.0;
        }
        if let Some(pace) = self.pace {
            // Never faster than the pace; after a delay it does not run to catch up more than one step.
            let now = Instant::now();
            std::thread::sleep(self.next.saturating_duration_since(now));
            self.next = (self.next + pace).max(now);
            self.produced.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        }
        Ok(())
    }

    fn copy_block(&mut self, _from: u32, _to: u32) -> Result<(), BackendError> {
        Ok(())
    }

    fn export_block(&self, _block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        bytes.clear();
        bytes.push(0);
        Ok(())
    }

    fn import_block(&mut self, _block: u32, _bytes: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }
}
