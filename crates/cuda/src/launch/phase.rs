//! One phase of a persistent step, and what it is for each block.

use super::delta::Dots;
use super::job::{JobBlock, Ring, StretchBlock, Tiles, share, uneven_share};
use super::mixture::{Ends, Mixture};
use crate::blocks::*;
use crate::pack;
use kernels::Format;

/// Bytes of parameters of a phase that is no product.
const OP_BYTES: usize = 208;

/// Which writing of which vector.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// The plain vector; 0 for none.
    pub plain: u64,
    /// Counted from 1 within a launch.
    pub write: u32,
    /// Writes of a whole launch, known when the recording is finished.
    pub step: u32,
    pub copies: u32,
    /// From one copy to the next.
    pub apart: u32,
}

/// One phase.
pub(super) struct Phase {
    pub kind: u32,
    pub input: Mark,
    pub output: Mark,
    pub work: Work,
    /// Blocks that have attention at any position.
    pub attending: u32,
    pub ring: Ring,
    /// Parameters where it is no product.
    pub params: Vec<u8>,
    /// What its normalised input is multiplied with besides.
    pub dots: Option<Dots>,
}

/// What the work of a phase is cut up from.
pub(super) enum Work {
    /// Blocks cut it up themselves.
    None,
    /// The same, with keys and values from here on in every block of the cache.
    Cache(u64),
    /// The same, with a layer's state from here on in every slot.
    State {
        start: u64,
        input: u64,
    },
    Product(ProductBlock),
    Mixture(Mixture, Ends),
    /// The phase that begins with a choice; its parameters are complete when all phases are there.
    Experts(Mixture, Ends, MixtureBlock),
}

pub(super) const EMBED: u32 = 0;
pub(super) const STORE: u32 = 1;
pub(super) const ADD: u32 = 2;
pub(super) const GATE: u32 = 3;
pub(super) const LOGITS: u32 = 4;
pub(super) const ATTENTION: u32 = 5;
pub(super) const PICK: u32 = 6;
pub(super) const PLAIN: u32 = 7;
pub(super) const DELTA: u32 = 11;

/// An entry of parameters.
pub(super) fn bytes_of<P>(params: &P) -> Vec<u8> {
    // SAFETY: parameter blocks are `repr(C)` numbers without padding, so all of their bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<P>()) };
    assert!(bytes.len() <= OP_BYTES, "parameter blocks fit an entry");
    let mut entry = bytes.to_vec();
    entry.resize(OP_BYTES, 0);
    entry
}

impl Phase {
    /// What this phase is for one block.
    pub fn on_block(&self, block: u32) -> (JobBlock, StretchBlock) {
        let mut job = JobBlock {
            kind: self.kind,
            input_mark: self.input.write % 4,
            input_step: self.input.step % 4,
            output_mark: self.output.write % 4,
            output_step: self.output.step % 4,
            ..JobBlock::default()
        };
        let mut stretch = StretchBlock::default();
        let p = match &self.work {
            Work::None => return (job, stretch),
            // Two sides and no parts.
            Work::Cache(start) => return (job, StretchBlock { weights: *start, tiles: 2, ..stretch }),
            Work::State { start, input } => {
                return (
                    JobBlock { input: *input, ..job },
                    StretchBlock { weights: *start, tiles: 1, chunk: 1, ..stretch },
                );
            }
            Work::Product(product) => product,
            Work::Mixture(mixture, ends) | Work::Experts(mixture, ends, _) => {
                return mixture.on_block(block, job, *ends);
            }
        };
        let s = p.segments.iter().rev().find(|s| block >= s.first_block).unwrap_or(&p.segments[0]);
        let Some(own) = block.checked_sub(s.first_block).filter(|&own| own < s.blocks) else { return (job, stretch) };
        let Tiles { first, count: tiles } = match self.kind {
            ADD => uneven_share(s.tiles, s.blocks, own, self.attending, 0),
            GATE => uneven_share(s.tiles, s.blocks, own, self.attending, 1),
            _ => share(s.tiles, own, s.blocks),
        };
        if tiles == 0 {
            return (job, stretch);
        }
        let row = first * pack::TILE_ROWS as u32;
        let format = Format::from_file_id(s.format).expect("it came from a format");
        job = JobBlock {
            format: s.format,
            input: p.input,
            norm: p.norm,
            bias: if s.bias == 0 { 0 } else { s.bias + 4 * u64::from(row) },
            output: p.output,
            candidates: p.candidates,
            tiles,
            rows: (tiles * pack::TILE_ROWS as u32).min(s.rows - row),
            first_row: s.output + row,
            columns: p.columns,
            supers: p.supers,
            slices: p.slices,
            epsilon: p.epsilon,
            wide: u32::from(format.block_elements() == pack::CHUNK_COLUMNS),
            ..job
        };
        let chunk = pack::chunk_bytes(format);
        let skipped = u64::from(first * p.supers) * chunk as u64;
        // Tiles that are added up as a whole (`Plan::is_whole`) are one warp's each.
        let whole = p.slices == 1 && p.supers > 1;
        let width = (!whole).then(|| self.ring.width(chunk));
        stretch = StretchBlock {
            weights: s.weights + skipped,
            second: if s.second == 0 { 0 } else { s.second + skipped },
            tiles: (tiles * if s.second == 0 { 1 } else { 2 }) as u16,
            matrix_tiles: tiles as u16,
            ..StretchBlock::default()
        };
        stretch.deal(p.supers as usize, width, chunk);
        job.stages = stretch.stages(self.ring);
        job.whole = u32::from(whole);
        if let Some((row, output)) = self.dots.and_then(|dots| dots.of(block)) {
            (job.dots, job.slot) = (row, output);
        }
        (job, stretch)
    }
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
