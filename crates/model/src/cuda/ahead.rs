//! Picks on the card, one step ahead of the host.
//!
//! While the host looks at a token the card is already computing the step that follows if that token is fed next, which
//! is what nearly always happens. Such a step only starts when the block tables cover the next position of every
//! sequence, so once per block the host is waited for, and not where a sequence ends, since whoever asks next would wait for
//! it. A step that turns out not to be wanted is left to end: it wrote keys and values at a position that is not valid yet
//! in any block, and whoever gets that block writes it later in the same stream.

use super::decode::Decode;
use super::{DECODE_ROWS_MAX, Net};
use crate::backend::{BLOCK, Chunk, ModelInfo, Want};
use ::cuda::Error;

/// The step in flight, if any.
#[derive(Default)]
pub(super) struct Ahead {
    rows: Vec<Row>,
}

/// What a row of the step in flight computes.
struct Row {
    token: u32,
    position: usize,
    blocks: Vec<u32>,
    /// Of its recurrent state.
    slot: Option<u32>,
}

impl Ahead {
    /// The next step is another one.
    pub fn forget(&mut self) {
        self.rows.clear();
    }

    /// Gives the picks of a batch, every row of which is wanted, and starts the next step where it can.
    pub fn pick(
        &mut self,
        net: &Net,
        decode: &mut Decode,
        info: &ModelInfo,
        batch: &[Chunk<'_>],
        picks: &mut Vec<u32>,
    ) -> Result<(), Error> {
        match &net.states {
            Some(states) if self.is(batch) => states.advance(batch),
            _ if self.is(batch) => {}
            _ => decode.run(net, batch, true)?,
        }
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let mut wanted = [0; DECODE_ROWS_MAX];
        wanted.copy_from_slice(&decode.tickets_given);
        let apart = rows == batch.len();
        let covered = |chunk: &Chunk<'_>| chunk.start + 1 < (chunk.blocks.len() * BLOCK).min(info.context);
        let plain = |chunk: &Chunk<'_>| chunk.state.is_none_or(|state| state.saves.is_empty());
        let follows = |chunk: &Chunk<'_>| chunk.want != Want::Final && covered(chunk) && plain(chunk);
        let goes_on = apart && batch.iter().all(follows);
        if goes_on {
            decode.run_on(net, batch)?;
        }
        picks.clear();
        decode.collect(&wanted[..rows], picks)?;
        self.rows.clear();
        if goes_on {
            let row = |(chunk, &token): (&Chunk<'_>, &u32)| {
                let position = chunk.start + 1;
                let slot = chunk.state.map(|state| state.slot);
                Row { token, position, blocks: chunk.blocks[..=position / BLOCK].to_vec(), slot }
            };
            self.rows.extend(batch.iter().zip(picks.iter()).map(row));
        }
        Ok(())
    }

    /// Whether the step in flight is this one.
    fn is(&self, batch: &[Chunk<'_>]) -> bool {
        let same = |(chunk, row): (&Chunk<'_>, &Row)| {
            let state = chunk.state.map(|state| state.slot) == row.slot
                && chunk.state.is_none_or(|state| state.saves.is_empty());
            state && chunk.tokens == [row.token] && chunk.start == row.position && chunk.blocks.starts_with(&row.blocks)
        };
        !self.rows.is_empty() && batch.len() == self.rows.len() && batch.iter().zip(&self.rows).all(same)
    }
}
