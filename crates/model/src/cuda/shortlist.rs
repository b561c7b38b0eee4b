//! Shortlists of the rows of a step, so that the host is not sent whole rows of logits.
//!
//! The masks of constraints are made by the caller while the step runs, and go to the card behind it.

use super::decode::Decode;
use super::{DECODE_ROWS_MAX, Net};
use crate::backend::Chunk;
use ::cuda::{Buffer, Error, Kernels, Pinned, SHORTLIST_HEAD, ShortlistCall};
use kernels::shortlist::{Ask, LIST_MAX, RUN, Shortlist};
use std::ops::Range;

/// Buffers of that; there are none for a vocabulary the kernels cannot do.
pub(super) struct ShortlistStep {
    masks: Buffer<u32>,
    masks_image: Pinned<u32>,
    asks: Buffer<f32>,
    asks_image: Pinned<f32>,
    maxima: Buffer<f32>,
    lists: Buffer<u32>,
    lists_image: Pinned<u32>,
    run: Pinned<f32>,
    /// Words of a mask and of a result.
    words: usize,
    stride: usize,
    /// Which rows of the last step have a mask.
    masked: [bool; DECODE_ROWS_MAX],
}

impl ShortlistStep {
    pub fn new(net: &Net) -> Result<Option<ShortlistStep>, Error> {
        let (device, vocab) = (&net.device, net.config.vocab);
        let Some(stride) = Kernels::shortlist_words(vocab) else { return Ok(None) };
        let words = vocab.div_ceil(32);
        Ok(Some(ShortlistStep {
            masks: Buffer::zeroed(device, DECODE_ROWS_MAX * words)?,
            masks_image: Pinned::zeroed(device, DECODE_ROWS_MAX * words)?,
            asks: Buffer::zeroed(device, DECODE_ROWS_MAX * 4)?,
            asks_image: Pinned::zeroed(device, DECODE_ROWS_MAX * 4)?,
            maxima: Buffer::zeroed(device, DECODE_ROWS_MAX * vocab.div_ceil(RUN))?,
            lists: Buffer::zeroed(device, DECODE_ROWS_MAX * stride)?,
            lists_image: Pinned::zeroed(device, DECODE_ROWS_MAX * stride)?,
            run: Pinned::zeroed(device, RUN)?,
            words,
            stride,
            masked: [false; DECODE_ROWS_MAX],
        }))
    }

    /// Runs a step all rows of which are wanted, and makes their shortlists.
    pub fn run(
        &mut self,
        net: &Net,
        decode: &mut Decode,
        batch: &[Chunk<'_>],
        asks: &[Ask],
        mask: &mut dyn FnMut(usize, &mut [u32]) -> bool,
        lists: &mut Vec<Shortlist>,
    ) -> Result<(), Error> {
        decode.run(net, batch, true)?;
        // The card is busy; copies of the step before ended with its results.
        let (rows, words, vocab) = (asks.len(), self.words, net.config.vocab);
        let images =
            self.masks_image.values().chunks_exact_mut(words).zip(self.asks_image.values().chunks_exact_mut(4));
        for (row, ((image, numbers), ask)) in images.zip(asks).enumerate() {
            self.masked[row] = mask(row, image);
            numbers.copy_from_slice(&[1.0 / ask.temperature, ask.floor, f32::from(u8::from(self.masked[row])), 0.0]);
        }
        self.asks_image.send(0..4 * rows, &self.asks, 0)?;
        for row in (0..rows).filter(|&row| self.masked[row]) {
            self.masks_image.send(row * words..(row + 1) * words, &self.masks, row * words)?;
        }
        let (logits, masks, asks) = (decode.logits(0..rows * vocab), self.masks.all(), self.asks.all());
        let (maxima, output) = (self.maxima.all(), self.lists.all());
        net.kernels.shortlist(&ShortlistCall { logits, rows, vocab, masks, asks, maxima, output })?;
        let results = self.lists_image.receive(self.lists.part(0..rows * self.stride))?;
        lists.resize_with(rows, Shortlist::default);
        for (words, list) in results.chunks_exact(self.stride).zip(lists) {
            read(words, vocab, list);
        }
        Ok(())
    }

    /// At most a run of the logits of a row of that step, minus infinity where its mask has no bit.
    pub fn part_of_row(
        &mut self,
        decode: &Decode,
        vocab: usize,
        row: usize,
        part: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        let mut values = self.run.receive(decode.logits(row * vocab + part.start..row * vocab + part.end))?.to_vec();
        if self.masked[row] {
            let mask = &self.masks_image.values()[row * self.words..];
            let forbidden = |id: usize| mask[id / 32] >> (id % 32) & 1 == 0;
            part.zip(&mut values).filter(|(id, _)| forbidden(*id)).for_each(|(_, value)| *value = f32::NEG_INFINITY);
        }
        Ok(values)
    }
}

/// Reads what the card wrote for one row.
fn read(words: &[u32], vocab: usize, list: &mut Shortlist) {
    let count = words[0] as usize;
    (list.complete, list.largest) = (words[1] != 0, f32::from_bits(words[2]));
    list.tokens.clear();
    if count > LIST_MAX {
        list.complete = false;
    } else {
        let (pairs, _) = words[SHORTLIST_HEAD..SHORTLIST_HEAD + 2 * count].as_chunks::<2>();
        list.tokens.extend(pairs.iter().map(|&[id, logit]| (id, f32::from_bits(logit))));
    }
    list.sort();
    let sums = &words[SHORTLIST_HEAD + 2 * LIST_MAX..][..vocab.div_ceil(RUN)];
    list.run_sums.clear();
    list.run_sums.extend(sums.iter().map(|&bits| f32::from_bits(bits)));
}
