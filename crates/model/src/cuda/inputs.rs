//! What a step is told: tokens, positions, and where each sequence's KV blocks are.
//!
//! One run of words on the card and its image in host memory. Between them copies go in stream order without waiting, so
//! the image may only be changed when the step before has given its result; every caller waits for that.

use crate::backend::Chunk;
use ::cuda::{Buffer, DELTA_RUN_WORDS, DeltaRun, Device, Error, Pinned, Slice};

/// Words: tokens, positions, sequences of the rows; what becomes of recurrent states; then the block tables.
pub(super) struct Inputs {
    words: Buffer<u32>,
    image: Pinned<u32>,
    rows: usize,
    sequences: usize,
    stride: usize,
}

impl Inputs {
    /// Room for `rows` rows of `sequences` sequences with `stride` blocks each.
    pub fn new(device: &Device, rows: usize, sequences: usize, stride: usize) -> Result<Inputs, Error> {
        let words = 3 * rows + sequences * (DELTA_RUN_WORDS + stride);
        let (words, image) = (Buffer::zeroed(device, words)?, Pinned::zeroed(device, words)?);
        Ok(Inputs { words, image, rows, sequences, stride })
    }

    /// Copies a batch over. The batch was checked against the limits this was made for.
    pub fn send(&mut self, batch: &[Chunk<'_>], runs: &[DeltaRun]) -> Result<(), Error> {
        assert!(batch.len() <= self.sequences, "sequences of a step were checked");
        let (rows, stride, tables) = (self.rows, self.stride, self.tables_at());
        let image = self.image.values();
        let mut row = 0;
        for (sequence, chunk) in batch.iter().enumerate() {
            for (i, &token) in chunk.tokens.iter().enumerate() {
                image[row] = token;
                image[rows + row] = (chunk.start + i) as u32;
                image[2 * rows + row] = sequence as u32;
                row += 1;
            }
            let used = chunk.blocks.len().min(stride);
            image[tables + sequence * stride..][..used].copy_from_slice(&chunk.blocks[..used]);
        }
        for (run, words) in runs.iter().zip(image[3 * rows..tables].chunks_exact_mut(DELTA_RUN_WORDS)) {
            words.copy_from_slice(&run.words());
        }
        self.image.send(0..3 * rows + runs.len() * DELTA_RUN_WORDS, &self.words, 0)?;
        for (sequence, chunk) in batch.iter().enumerate() {
            let (at, used) = (tables + sequence * stride, chunk.blocks.len().min(stride));
            self.image.send(at..at + used, &self.words, at)?;
        }
        Ok(())
    }

    pub fn tokens(&self) -> Slice<'_, u32> {
        self.words.part(0..self.rows)
    }
    pub fn positions(&self) -> Slice<'_, u32> {
        self.words.part(self.rows..2 * self.rows)
    }
    pub fn sequences(&self) -> Slice<'_, u32> {
        self.words.part(2 * self.rows..3 * self.rows)
    }
    pub fn runs(&self) -> Slice<'_, u32> {
        self.words.part(3 * self.rows..self.tables_at())
    }
    pub fn tables(&self) -> Slice<'_, u32> {
        self.words.part(self.tables_at()..self.words.len())
    }
    fn tables_at(&self) -> usize {
        3 * self.rows + self.sequences * DELTA_RUN_WORDS
    }
    /// The tokens of the first `rows` rows.
    pub fn first_tokens(&self, rows: usize) -> Slice<'_, u32> {
        self.words.part(0..rows)
    }
}
