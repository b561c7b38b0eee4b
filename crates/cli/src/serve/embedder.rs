//! A model of this machine that turns texts into vectors.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use kernels::Kernels;
use model::gguf::Gguf;
use model::{Encoder, EncoderConfig};
use server::Embedder;
use text::WordPiece;

/// An encoder and its words.
pub struct StoredEmbedder {
    words: WordPiece,
    config: EncoderConfig,
    encoder: Mutex<Encoder>,
}

impl StoredEmbedder {
    /// Loads a file.
    pub fn load(path: &Path, threads: usize) -> anyhow::Result<Self> {
        let loading = || format!("{} cannot be loaded", path.display());
        let words =
            WordPiece::from_metadata(&Gguf::open(path).with_context(loading)?.metadata).with_context(loading)?;
        let encoder = Encoder::load(path, Kernels::best()?, threads).with_context(loading)?;
        Ok(Self { words, config: encoder.config().clone(), encoder: Mutex::new(encoder) })
    }
}

impl Embedder for StoredEmbedder {
    fn dimensions(&self) -> usize {
        self.config.width
    }

    fn context(&self) -> usize {
        self.config.context
    }

    fn vocabulary(&self) -> usize {
        self.config.vocab
    }

    fn tokens(&self, text: &str, most: usize) -> Vec<u32> {
        self.words.encode(text, most)
    }

    fn cut(&self, tokens: Vec<u32>, most: usize) -> Vec<u32> {
        self.words.cut(tokens, most)
    }

    fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>, String> {
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        encoder.embed(tokens).ok_or_else(|| "the model does not take these tokens".to_owned())
    }
}
