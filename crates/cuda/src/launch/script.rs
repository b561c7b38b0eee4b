//! What a program is made of: calls written down as phases, and each phase cut up for the blocks that work on it.
//!
//! A phase has the parameter block that a kernel of a graph would get, so the two ways cannot drift apart. Only vectors that
//! one phase hands to another are replaced: each gets a twin (`kernels/handed.cuh`), and a phase knows how often what it
//! reads was written.

use super::job::{JobBlock, Ring, StretchBlock, Tiles, share, uneven_share};
use super::mixture::{Ends, Mixture};
use super::{KernelsOptions, SPLITS, products};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::{Device, pack};
use kernels::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a quantised super-block of input, with its facts.
pub(super) const INPUT_BYTES: usize = 256 + 8 * 16;
/// A part of a tile may have up to three super-blocks fewer than fit one; then a lane reads the facts of as many past the last.
pub(super) const INPUT_PADDING: usize = 3 * 8 * 16;
/// Bytes of parameters of a phase that is no product.
const OP_BYTES: usize = 208;

/// A vector that phases hand on: floats whose lowest bits say how often it was written.
pub(super) struct Handed {
    values: Buffer<u32>,
    /// How often a launch has written it so far.
    writes: u32,
    /// The phase that wrote it last, counted from 1.
    written_by: u32,
    /// The vector of floats it stands for.
    plain: u64,
    len: usize,
    /// So that not all blocks read the same there are copies of it; see `kernels/handed.cuh`.
    copies: u32,
    /// From one copy to the next.
    apart: u32,
}

/// Copies of what products leave.
const COPIES: usize = 4;

/// Which writing of which vector.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// The plain vector; 0 for none.
    plain: u64,
    /// Counted from 1 within a launch.
    write: u32,
    /// Writes of a whole launch, known when the script is finished.
    step: u32,
    copies: u32,
    /// From one copy to the next.
    apart: u32,
}

/// One phase.
pub(super) struct Phase {
    kind: u32,
    input: Mark,
    output: Mark,
    work: Work,
    /// Blocks that have attention at any position.
    attending: u32,
    ring: Ring,
    /// Parameters where it is no product.
    pub params: Vec<u8>,
}

/// What the work of a phase is cut up from.
pub(super) enum Work {
    /// Blocks cut it up themselves.
    None,
    /// The same, with keys and values from here on in every block of the cache.
    Cache(u64),
    Product(ProductBlock),
    Mixture(Mixture, Ends),
    /// The phase that begins with a choice; its parameters are complete when all phases are there.
    Experts(Mixture, Ends, MixtureBlock),
}

const EMBED: u32 = 0;
const STORE: u32 = 1;
const ADD: u32 = 2;
const GATE: u32 = 3;
const LOGITS: u32 = 4;
const ATTENTION: u32 = 5;
const PICK: u32 = 6;
const PLAIN: u32 = 7;

/// What was asked for so far.
pub(super) struct Script {
    device: Device,
    options: KernelsOptions,
    pub phases: Vec<Phase>,
    pub kept: Vec<Arc<dyn Keep>>,
    /// What the phases need, weights under way apart: attention, or quantised input and then partial sums.
    pub attention_bytes: usize,
    pub input_bytes: usize,
    pub partial_bytes: usize,
    /// The same after a norm, whose weights are used up then and leave their place to the sums.
    pub normed_partial_bytes: usize,
    /// Weights of a norm.
    pub norm_bytes: usize,
    pub vectors: HashMap<u64, Handed>,
    /// Where attention leaves partial results.
    pub partial: Option<Buffer<u64>>,
    /// Where the scores of experts stand.
    pub scores: Option<Buffer<u64>>,
    pub embed: EmbedBlock,
    pub heads: HeadsBlock,
    /// Phases before the first that begins with a choice, or all.
    pub known: u32,
}

impl Script {
    pub fn new(device: &Device, options: &KernelsOptions) -> Script {
        Script {
            device: device.clone(),
            options: options.clone(),
            phases: Vec::new(),
            kept: Vec::new(),
            attention_bytes: options.attention_bytes(),
            input_bytes: 0,
            partial_bytes: 0,
            normed_partial_bytes: 0,
            norm_bytes: 0,
            vectors: HashMap::new(),
            partial: None,
            scores: None,
            embed: EmbedBlock::default(),
            heads: HeadsBlock::default(),
            known: 0,
        }
    }

    pub fn embed(&mut self, mut params: EmbedBlock, arguments: Arguments) -> Result<(), Error> {
        let output = self.write(&mut params.output, params.columns as usize)?;
        self.embed = params;
        self.add(EMBED, Mark::default(), output, &params, arguments);
        Ok(())
    }

    pub fn product(
        &mut self,
        name: &'static str,
        partial_bytes: usize,
        mut params: ProductBlock,
        arguments: Arguments,
    ) -> Result<(), Error> {
        assert_eq!(params.rows, 1, "a program is for one row");
        let kind = match name {
            "product_store" => STORE,
            "product_add" => ADD,
            "product_gate" => GATE,
            _ => LOGITS,
        };
        let input = self.read(&mut params.input)?;
        let mut output = Mark::default();
        if kind != LOGITS {
            output = self.write(&mut params.output, params.output_stride as usize)?;
        }
        self.input_bytes = self.input_bytes.max(params.supers as usize * INPUT_BYTES + INPUT_PADDING);
        if params.norm == 0 {
            self.partial_bytes = self.partial_bytes.max(partial_bytes);
        } else {
            self.normed_partial_bytes = self.normed_partial_bytes.max(partial_bytes);
            self.norm_bytes = self.norm_bytes.max(params.supers as usize * pack::CHUNK_COLUMNS * 4);
        }
        self.kept.extend(arguments.kept);
        self.push(kind, input, output, Work::Product(params), &());
        Ok(())
    }

    pub fn attention(&mut self, mut params: AttentionBlock, arguments: Arguments) -> Result<(), Error> {
        let KernelsOptions { head, heads, .. } = self.options;
        let input = self.read(&mut params.heads.rows)?;
        let output = self.write_copies(&mut params.output, heads * head, self.options.attended_copies())?;
        if self.partial.is_none() {
            self.partial = Some(Buffer::zeroed(&self.device, heads * SPLITS * (head + 2))?);
        }
        params.partial = self.partial.as_ref().map_or(0, |partial| partial.all().address);
        self.heads = params.heads;
        self.kept.extend(arguments.kept);
        let cache = Work::Cache(params.heads.cache + params.heads.layer_offset);
        self.push(ATTENTION, input, output, cache, &params);
        Ok(())
    }

    pub fn pick(&mut self, params: PickBlock, arguments: Arguments) -> Result<(), Error> {
        self.add(PICK, Mark::default(), Mark::default(), &params, arguments);
        Ok(())
    }

    /// A program without a pick ends with its result as plain floats. A phase with a choice is told which is the next.
    pub fn finish(&mut self) {
        if self.phases.last().is_none_or(|phase| phase.kind != PICK) {
            let last = self.phases.len() as u32;
            if let Some(vector) = self.vectors.values().find(|vector| vector.written_by == last) {
                let (input, output) = (vector.values.all().address, vector.plain);
                let params = PlainBlock { input, output, columns: vector.len as u32, padding: 0 };
                self.add(PLAIN, Mark::default(), Mark::default(), &params, Arguments::default());
            }
        }
        for phase in &mut self.phases {
            for mark in [&mut phase.input, &mut phase.output] {
                if let Some(vector) = self.vectors.get(&mark.plain) {
                    (mark.step, mark.copies, mark.apart) = (vector.writes, vector.copies, vector.apart);
                }
            }
        }
        self.known = self.phases.len() as u32;
        for (i, phase) in self.phases.iter_mut().enumerate().rev() {
            if let Work::Experts(_, _, params) = &mut phase.work {
                params.known = std::mem::replace(&mut self.known, i as u32);
                phase.params = bytes_of(params);
            }
        }
    }

    /// Whether every one of so many blocks reads the residual stream in every layer, as `kernels/handed.cuh` asks.
    pub fn keeps_up(&self, blocks: u32) -> bool {
        let mut gates = self.phases.iter().filter(|phase| phase.kind == GATE);
        gates.all(|phase| (0..blocks).all(|block| phase.on_block(block).0.tiles > 0))
    }

    /// What all phases are for one block. Norms come one after the other, in two rounds that take turns.
    pub fn on_block(&self, block: u32) -> Vec<(JobBlock, StretchBlock)> {
        let mut norms = 0;
        let numbered = self.phases.iter().enumerate().map(|(i, phase)| {
            let (job, stretch) = phase.on_block(block);
            let brought = job.norm != 0 && job.supers as usize <= products::WARPS;
            let turn = norms % 2;
            norms += u32::from(brought);
            let input = match job.input {
                0 => 0,
                first => first + 4 * u64::from(block % phase.input.copies.max(1) * phase.input.apart),
            };
            let waits = u32::from(i > 0 && self.phases[i - 1].kind == ATTENTION);
            (JobBlock { phase: i as u32, turn, input, apart: phase.output.apart, waits, ..job }, stretch)
        });
        numbered.collect()
    }

    /// Room for the scores of all experts of a layer.
    pub(super) fn scores(&mut self) -> Result<u64, Error> {
        if self.scores.is_none() {
            self.scores = Some(Buffer::zeroed(&self.device, super::experts::COUNT_MAX)?);
        }
        Ok(self.scores.as_ref().map_or(0, |scores| scores.all().address))
    }

    /// The twin of a vector that an earlier phase wrote.
    pub(super) fn read(&mut self, vector: &mut u64) -> Result<Mark, Error> {
        let found = self.vectors.get(vector);
        let found = found.ok_or_else(|| Error::Unsupported("a program that reads what it did not write".to_owned()))?;
        let mark = Mark { plain: found.plain, write: found.writes, ..Mark::default() };
        *vector = found.values.all().address;
        Ok(mark)
    }

    /// The twin of a vector that this phase writes.
    pub(super) fn write(&mut self, vector: &mut u64, len: usize) -> Result<Mark, Error> {
        self.write_copies(vector, len, COPIES)
    }

    /// The same with so many copies.
    fn write_copies(&mut self, vector: &mut u64, len: usize, copies: usize) -> Result<Mark, Error> {
        let (plain, this) = (*vector, self.phases.len() as u32 + 1);
        if !self.vectors.contains_key(&plain) {
            let each = len.next_multiple_of(pack::CHUNK_COLUMNS);
            let values = Buffer::zeroed(&self.device, copies * each)?;
            let (copies, apart) = (copies as u32, each as u32);
            self.vectors.insert(plain, Handed { values, writes: 0, written_by: 0, plain, len, copies, apart });
        }
        let found = self.vectors.get_mut(&plain).expect("it was just inserted where it was missing");
        assert_eq!(found.len, len, "a vector keeps its length");
        (found.writes, found.written_by) = (found.writes + 1, this);
        *vector = found.values.all().address;
        Ok(Mark { plain, write: found.writes, ..Mark::default() })
    }

    fn add<P>(&mut self, kind: u32, input: Mark, output: Mark, params: &P, arguments: Arguments) {
        self.kept.extend(arguments.kept);
        self.push(kind, input, output, Work::None, params);
    }

    pub(super) fn push<P>(&mut self, kind: u32, input: Mark, output: Mark, work: Work, params: &P) {
        let attending = self.options.attending() as u32;
        let ring = Ring::new(self.options.experts);
        self.phases.push(Phase { kind, input, output, work, attending, ring, params: bytes_of(params) });
    }
}

/// An entry of parameters.
fn bytes_of<P>(params: &P) -> Vec<u8> {
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
            place: s.output + row,
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
        (job, stretch)
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
