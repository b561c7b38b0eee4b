//! What a persistent step is made of: calls written down as phases (`phase.rs`).
//!
//! A phase has the parameter block that a kernel of a graph would get, so the two cannot drift apart. Only vectors that
//! one phase hands to another are replaced: each gets a twin (`kernels/ready_bits.cuh`), and a phase knows how often what it
//! reads was written.

use super::job::{JobBlock, Ring, StretchBlock};
use super::phase::*;
use super::{Kernels, KernelsOptions, SPLITS, products};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::pack;
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
pub(super) struct ReadyVector {
    values: Buffer<u32>,
    /// How often a launch has written it so far.
    writes: u32,
    /// The phase that wrote it last, counted from 1.
    written_by: u32,
    /// The vector of floats it stands for.
    plain: u64,
    len: usize,
    /// So that not all blocks read the same there are copies of it; see `kernels/ready_bits.cuh`.
    copies: u32,
    /// From one copy to the next.
    apart: u32,
}

/// Copies of what products leave.
const COPIES: usize = 4;

/// Who takes the calls of a step of single rows: [`Kernels`] launches them, a [`Recorder`] writes them down as the phases of a
/// persistent step. Both cut the work up from the same parameter blocks.
pub trait RowStep {
    /// See [`Kernels::embed`].
    fn embed(&mut self, call: &EmbedCall<'_>) -> Result<(), Error>;
    /// See [`Kernels::product`].
    fn product(&mut self, call: &ProductCall<'_>) -> Result<(), Error>;
    /// See [`Kernels::store_heads`].
    fn store_heads(&mut self, call: &StoreCall<'_>) -> Result<(), Error>;
    /// See [`Kernels::attention`].
    fn attention(&mut self, call: &AttentionCall<'_>) -> Result<(), Error>;
    /// See [`Kernels::delta`].
    fn delta(&mut self, call: &DeltaCall<'_>) -> Result<(), Error>;
    /// A row through the experts it visits, added to the residual.
    fn mixture(&mut self, call: &MixtureCall<'_>) -> Result<(), Error>;
    /// See [`Kernels::pick`].
    fn pick(&mut self, call: &PickCall<'_>) -> Result<(), Error>;
}

impl RowStep for &Kernels {
    fn embed(&mut self, call: &EmbedCall<'_>) -> Result<(), Error> {
        Kernels::embed(self, call)
    }

    fn product(&mut self, call: &ProductCall<'_>) -> Result<(), Error> {
        Kernels::product(self, call)
    }

    fn store_heads(&mut self, call: &StoreCall<'_>) -> Result<(), Error> {
        Kernels::store_heads(self, call)
    }

    fn attention(&mut self, call: &AttentionCall<'_>) -> Result<(), Error> {
        Kernels::attention(self, call)
    }

    fn delta(&mut self, call: &DeltaCall<'_>) -> Result<(), Error> {
        Kernels::delta(self, call)
    }

    fn mixture(&mut self, _: &MixtureCall<'_>) -> Result<(), Error> {
        Err(Error::Unsupported("a mixture of experts outside of a persistent step".to_owned()))
    }

    fn pick(&mut self, call: &PickCall<'_>) -> Result<(), Error> {
        Kernels::pick(self, call)
    }
}

impl RowStep for Recorder<'_> {
    fn embed(&mut self, call: &EmbedCall<'_>) -> Result<(), Error> {
        let (mut params, arguments) = self.kernels.embed_block(call);
        let output = self.write(&mut params.output, params.columns as usize)?;
        self.embed = params;
        self.add(EMBED, Mark::default(), output, &params, arguments);
        Ok(())
    }

    fn product(&mut self, call: &ProductCall<'_>) -> Result<(), Error> {
        assert_eq!(call.rows, 1, "a persistent step is for one row");
        let plan = self.kernels.product_plan(call, true)?;
        let (params, arguments) = self.kernels.product_block(call, &plan, 0);
        let kind = match call.then {
            Then::Store => STORE,
            Then::Add => ADD,
            Then::Gate(_) => GATE,
            Then::Logits(_) => LOGITS,
        };
        self.add_product(kind, plan.partial_bytes(), params, arguments)
    }

    fn store_heads(&mut self, _: &StoreCall<'_>) -> Result<(), Error> {
        Err(Error::Unsupported("a persistent step of several rows".to_owned()))
    }

    fn attention(&mut self, call: &AttentionCall<'_>) -> Result<(), Error> {
        let (params, arguments) = self.kernels.attention_block(call);
        self.add_attention(params, arguments)
    }

    fn delta(&mut self, call: &DeltaCall<'_>) -> Result<(), Error> {
        self.add_delta(call)
    }

    fn mixture(&mut self, call: &MixtureCall<'_>) -> Result<(), Error> {
        self.add_mixture(call)
    }

    fn pick(&mut self, call: &PickCall<'_>) -> Result<(), Error> {
        let (params, arguments) = self.kernels.pick_block(call);
        self.add(PICK, Mark::default(), Mark::default(), &params, arguments);
        Ok(())
    }
}

/// The phases of a persistent step so far.
pub struct Recorder<'k> {
    pub(super) kernels: &'k Kernels,
    pub(super) phases: Vec<Phase>,
    pub(super) held: Vec<Arc<dyn Keep>>,
    /// What the phases need, weights in flight apart: attention, or quantised input and then partial sums.
    pub(super) attention_bytes: usize,
    pub(super) input_bytes: usize,
    pub(super) partial_bytes: usize,
    /// The same after a norm, whose weights are used up then and leave their place to the sums.
    pub(super) normed_input_bytes: usize,
    pub(super) normed_partial_bytes: usize,
    /// Weights of a norm.
    pub(super) norm_bytes: usize,
    pub(super) vectors: HashMap<u64, ReadyVector>,
    /// Where attention leaves partial results.
    pub(super) partial: Option<Buffer<u64>>,
    /// Where the scores of experts stand.
    pub(super) scores: Option<Buffer<u64>>,
    pub(super) embed: EmbedBlock,
    pub(super) heads: HeadsBlock,
    pub(super) slots: DeltaSlotsBlock,
    /// Phases before the first that begins with a choice, or all.
    pub(super) known: u32,
    /// Whether two blocks share down's input.
    pub(super) pairs: bool,
}

impl<'k> Recorder<'k> {
    pub(super) fn new(kernels: &'k Kernels) -> Recorder<'k> {
        let options = &kernels.options;
        Recorder {
            kernels,
            phases: Vec::new(),
            held: Vec::new(),
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
            slots: DeltaSlotsBlock::default(),
            known: 0,
            pairs: options.pairs(),
        }
    }

    fn add_product(
        &mut self,
        kind: u32,
        partial_bytes: usize,
        mut params: ProductBlock,
        arguments: Arguments,
    ) -> Result<(), Error> {
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
            // Those of wider rows stay where they are.
            if params.supers as usize <= products::WARPS {
                self.norm_bytes = self.norm_bytes.max(params.supers as usize * pack::CHUNK_COLUMNS * 4);
            }
        }
        self.held.extend(arguments.held);
        self.push(kind, input, output, Work::Product(params), &());
        Ok(())
    }

    /// Super-blocks that are read past the row of a product, in whatever format.
    fn past(&self, params: &ProductBlock) -> usize {
        let (supers, ring) = (params.supers as usize, Ring::new(self.kernels.options.experts));
        let formats = params.segments.iter().filter(|s| s.blocks > 0).filter_map(|s| Format::from_file_id(s.format));
        formats.map(|f| supers.next_multiple_of(ring.width(pack::chunk_bytes(f))) - supers).max().unwrap_or(0)
    }

    fn add_attention(&mut self, mut params: AttentionBlock, arguments: Arguments) -> Result<(), Error> {
        let KernelsOptions { head, heads, .. } = self.kernels.options;
        let input = self.read(&mut params.heads.rows)?;
        let output = self.write_copies(&mut params.output, heads * head, self.kernels.options.attended_copies())?;
        if self.partial.is_none() {
            self.partial = Some(Buffer::zeroed(&self.kernels.device, heads * SPLITS * (head + 2))?);
        }
        params.partial = self.partial.as_ref().map_or(0, |partial| partial.all().address);
        self.heads = params.heads;
        self.held.extend(arguments.held);
        let cache = Work::Cache(params.heads.cache + params.heads.layer_offset);
        self.push(ATTENTION, input, output, cache, &params);
        Ok(())
    }

    /// A persistent step without a pick ends with its result as plain floats. A phase with a choice is told which is the next.
    pub(super) fn end(&mut self) {
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

    /// Whether every one of so many blocks reads the residual stream in every layer, as `kernels/ready_bits.cuh` asks.
    pub(super) fn keeps_up(&self, blocks: u32) -> bool {
        let mut gates = self.phases.iter().filter(|phase| phase.kind == GATE);
        gates.all(|phase| (0..blocks).all(|block| phase.on_block(block).0.tiles > 0))
    }

    /// Where input begins that two blocks share: behind that of gate, which one of them may still be at.
    pub(super) fn shared_begin(&self) -> usize {
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
    pub(super) fn on_block(&self, block: u32) -> Vec<(JobBlock, StretchBlock)> {
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
            let waits = u32::from(i > 0 && matches!(self.phases[i - 1].kind, ATTENTION | DELTA));
            let job = JobBlock { phase: i as u32, turn, input, apart: phase.output.apart, waits, begin, coming, ..job };
            (job, stretch)
        });
        numbered.collect()
    }

    /// Room for the scores of all experts of a layer, and of one that all tokens visit.
    pub(super) fn scores(&mut self) -> Result<u64, Error> {
        if self.scores.is_none() {
            self.scores = Some(Buffer::zeroed(&self.kernels.device, super::experts::COUNT_MAX + 1)?);
        }
        Ok(self.scores.as_ref().map_or(0, |scores| scores.all().address))
    }

    /// The twin of a vector that an earlier phase wrote.
    pub(super) fn read(&mut self, vector: &mut u64) -> Result<Mark, Error> {
        let found = self.vectors.get(vector);
        let found =
            found.ok_or_else(|| Error::Unsupported("a persistent that reads what it did not write".to_owned()))?;
        let mark = Mark { plain: found.plain, write: found.writes, ..Mark::default() };
        *vector = found.values.all().address;
        Ok(mark)
    }

    /// The twin of a vector that this phase writes.
    pub(super) fn write(&mut self, vector: &mut u64, len: usize) -> Result<Mark, Error> {
        self.write_copies(vector, len, COPIES)
    }

    /// The same with so many copies.
    pub(super) fn write_copies(&mut self, vector: &mut u64, len: usize, copies: usize) -> Result<Mark, Error> {
        let (plain, this) = (*vector, self.phases.len() as u32 + 1);
        if !self.vectors.contains_key(&plain) {
            let each = len.next_multiple_of(pack::CHUNK_COLUMNS);
            let values = Buffer::zeroed(&self.kernels.device, copies * each)?;
            let (copies, apart) = (copies as u32, each as u32);
            self.vectors.insert(plain, ReadyVector { values, writes: 0, written_by: 0, plain, len, copies, apart });
        }
        let found = self.vectors.get_mut(&plain).expect("it was just inserted where it was missing");
        assert_eq!(found.len, len, "a vector keeps its length");
        (found.writes, found.written_by) = (found.writes + 1, this);
        *vector = found.values.all().address;
        Ok(Mark { plain, write: found.writes, ..Mark::default() })
    }

    fn add<P>(&mut self, kind: u32, input: Mark, output: Mark, params: &P, arguments: Arguments) {
        self.held.extend(arguments.held);
        self.push(kind, input, output, Work::None, params);
    }

    pub(super) fn push<P>(&mut self, kind: u32, input: Mark, output: Mark, work: Work, params: &P) {
        let attending = self.kernels.options.attending() as u32;
        let ring = Ring::new(self.kernels.options.experts);
        let (params, dots) = (bytes_of(params), None);
        self.phases.push(Phase { kind, input, output, work, attending, ring, params, dots });
    }
}
