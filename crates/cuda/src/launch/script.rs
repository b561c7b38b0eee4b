//! What a program is made of: calls written down as phases (`phase.rs`).
//!
//! A phase has the parameter block that a kernel of a graph would get, so the two ways cannot drift apart. Only vectors that
//! one phase hands to another are replaced: each gets a twin (`kernels/handed.cuh`), and a phase knows how often what it
//! reads was written.

use super::job::{JobBlock, Ring, StretchBlock};
use super::phase::*;
use super::{KernelsOptions, SPLITS, products};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::{Device, pack};
use kernels::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a quantised super-block of input, and of its facts.
const QUANTS_BYTES: usize = 256;
const FACTS_BYTES: usize = 8 * 16;

/// Of a row in shared memory, quants and then facts. A part of a tile may have fewer super-blocks than fit one, and a lane reads as many as
/// do: so many `past` the last.
pub(super) fn input_bytes(supers: usize, past: usize) -> usize {
    let all = supers + past;
    (supers * QUANTS_BYTES + all * FACTS_BYTES).max(all * QUANTS_BYTES)
}

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
    pub normed_input_bytes: usize,
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
    /// Whether two blocks share down's input.
    pub pairs: bool,
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
            normed_input_bytes: 0,
            normed_partial_bytes: 0,
            norm_bytes: 0,
            vectors: HashMap::new(),
            partial: None,
            scores: None,
            embed: EmbedBlock::default(),
            heads: HeadsBlock::default(),
            known: 0,
            pairs: options.pairs(),
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
        let input_bytes = input_bytes(params.supers as usize, self.past(&params));
        self.input_bytes = self.input_bytes.max(input_bytes);
        if params.norm == 0 {
            self.partial_bytes = self.partial_bytes.max(partial_bytes);
        } else {
            self.normed_input_bytes = self.normed_input_bytes.max(input_bytes);
            self.normed_partial_bytes = self.normed_partial_bytes.max(partial_bytes);
            self.norm_bytes = self.norm_bytes.max(params.supers as usize * pack::CHUNK_COLUMNS * 4);
        }
        self.kept.extend(arguments.kept);
        self.push(kind, input, output, Work::Product(params), &());
        Ok(())
    }

    /// Super-blocks that are read past the row of a product, in whatever format.
    fn past(&self, params: &ProductBlock) -> usize {
        let (supers, ring) = (params.supers as usize, Ring::new(self.options.experts));
        let formats = params.segments.iter().filter(|s| s.blocks > 0).filter_map(|s| Format::from_file_id(s.format));
        formats.map(|f| supers.next_multiple_of(ring.width(pack::chunk_bytes(f))) - supers).max().unwrap_or(0)
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

    /// Where input begins that two blocks share: behind that of gate, which one of them may still be at.
    pub fn shared_begin(&self) -> usize {
        if self.pairs { self.normed_input_bytes } else { 0 }
    }

    /// How many bytes of its input in a phase a block gets from the other of its pair: it has every other super-block itself.
    fn coming(&self, i: usize, block: u32, job: &JobBlock) -> u32 {
        let after_gate = i > 0 && self.phases[i - 1].kind == GATE;
        let shares = self.pairs && after_gate && job.tiles > 0 && job.supers > 1;
        if !shares || self.phases[i].on_block(block ^ 1).0.tiles == 0 {
            return 0;
        }
        (job.supers + block % 2) / 2 * (QUANTS_BYTES + FACTS_BYTES) as u32
    }

    /// What all phases are for one block. Norms come one after the other, in two rounds that take turns, as does what blocks share.
    pub fn on_block(&self, block: u32) -> Vec<(JobBlock, StretchBlock)> {
        let (mut norms, mut shared) = (0, 0);
        let numbered = self.phases.iter().enumerate().map(|(i, phase)| {
            let (job, stretch) = phase.on_block(block);
            let brought = job.norm != 0 && job.supers as usize <= products::WARPS;
            let coming = self.coming(i, block, &job);
            let (turn, begin) = if coming > 0 { (shared % 2, self.shared_begin() as u32) } else { (norms % 2, 0) };
            (norms, shared) = (norms + u32::from(brought), shared + u32::from(coming > 0));
            let input = match job.input {
                0 => 0,
                first => first + 4 * u64::from(block % phase.input.copies.max(1) * phase.input.apart),
            };
            let waits = u32::from(i > 0 && self.phases[i - 1].kind == ATTENTION);
            let job = JobBlock { phase: i as u32, turn, input, apart: phase.output.apart, waits, begin, coming, ..job };
            (job, stretch)
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
