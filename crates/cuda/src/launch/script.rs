//! What a program is made of: calls written down as phases, and each phase cut up for the blocks that work on it.
//!
//! A phase has the parameter block that a kernel of a graph would get, so the two ways cannot drift apart. Only vectors that
//! one phase hands to another are replaced: each gets a tagged twin (`kernels/tagged.cuh`), and a phase knows which one
//! wrote what it reads.

use super::{KernelsOptions, SPLITS};
use crate::arguments::*;
use crate::error::Error;
use crate::memory::{Buffer, Keep, Plain};
use crate::{Device, pack};
use kernels::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes that a warp fetches at once: four chunks of four bits, two of six or eight.
pub(super) const STAGE_BYTES: usize = 2304;
/// Bytes of parameters of a phase that is no product.
const OP_BYTES: usize = 208;

/// A vector that phases hand on: value and tag of each element.
pub(super) struct Tagged {
    values: Buffer<u64>,
    /// The phase that wrote it last, counted from 1.
    written_by: u32,
    /// The vector of floats it stands for.
    plain: u64,
    len: usize,
}

/// One phase.
pub(super) struct Phase {
    kind: u32,
    input_from: u32,
    before_from: u32,
    product: Option<ProductBlock>,
    /// Parameters where it is no product.
    pub params: Vec<u8>,
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
    /// What the phases need, weights under way apart.
    pub shared_bytes: usize,
    pub vectors: HashMap<u64, Tagged>,
    pub embed: EmbedBlock,
    pub heads: HeadsBlock,
}

impl Script {
    pub fn new(device: &Device, options: &KernelsOptions) -> Script {
        Script {
            device: device.clone(),
            options: options.clone(),
            phases: Vec::new(),
            kept: Vec::new(),
            shared_bytes: options.attention_bytes(),
            vectors: HashMap::new(),
            embed: EmbedBlock::default(),
            heads: HeadsBlock::default(),
        }
    }

    pub fn embed(&mut self, mut params: EmbedBlock, arguments: Arguments) -> Result<(), Error> {
        (params.output, _) = self.write(params.output, params.columns as usize)?;
        self.embed = params;
        self.add(EMBED, 0, &params, arguments);
        Ok(())
    }

    pub fn product(
        &mut self,
        name: &'static str,
        shared_bytes: usize,
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
        let (input, input_from) = self.read(params.input)?;
        params.input = input;
        let mut before_from = 0;
        if kind != LOGITS {
            (params.output, before_from) = self.write(params.output, params.output_stride as usize)?;
        }
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.kept.extend(arguments.kept);
        self.phases.push(Phase { kind, input_from, before_from, product: Some(params), params: vec![0; OP_BYTES] });
        Ok(())
    }

    pub fn attention(&mut self, mut params: AttentionBlock, arguments: Arguments) -> Result<(), Error> {
        let KernelsOptions { head, heads, .. } = self.options;
        let (rows, input_from) = self.read(params.heads.rows)?;
        params.heads.rows = rows;
        (params.output, _) = self.write(params.output, heads * head)?;
        (params.partial, _) = self.write(params.partial, heads * SPLITS * (head + 2))?;
        self.heads = params.heads;
        self.add(ATTENTION, input_from, &params, arguments);
        Ok(())
    }

    pub fn pick(&mut self, params: PickBlock, arguments: Arguments) -> Result<(), Error> {
        self.add(PICK, 0, &params, arguments);
        Ok(())
    }

    /// A program without a pick ends with its result as plain floats.
    pub fn finish(&mut self) {
        if self.phases.last().is_some_and(|phase| phase.kind == PICK) {
            return;
        }
        let last = self.phases.len() as u32;
        if let Some(vector) = self.vectors.values().find(|vector| vector.written_by == last) {
            let (input, output) = (vector.values.all().address, vector.plain);
            let params = PlainBlock { input, output, columns: vector.len as u32, padding: 0 };
            self.add(PLAIN, last, &params, Arguments::default());
        }
    }

    /// The twin of a vector that an earlier phase wrote, and which one.
    fn read(&mut self, plain: u64) -> Result<(u64, u32), Error> {
        let vector = self.vectors.get(&plain);
        let vector =
            vector.ok_or_else(|| Error::Unsupported("a program that reads what it did not write".to_owned()))?;
        Ok((vector.values.all().address, vector.written_by))
    }

    /// The twin of a vector that this phase writes, and the phase that wrote it before.
    fn write(&mut self, plain: u64, len: usize) -> Result<(u64, u32), Error> {
        let this = self.phases.len() as u32 + 1;
        if !self.vectors.contains_key(&plain) {
            let values = Buffer::zeroed(&self.device, len.next_multiple_of(pack::CHUNK_COLUMNS))?;
            self.vectors.insert(plain, Tagged { values, written_by: 0, plain, len });
        }
        let vector = self.vectors.get_mut(&plain).expect("it was just inserted where it was missing");
        assert_eq!(vector.len, len, "a vector keeps its length");
        Ok((vector.values.all().address, std::mem::replace(&mut vector.written_by, this)))
    }

    fn add<P>(&mut self, kind: u32, input_from: u32, params: &P, arguments: Arguments) {
        // SAFETY: parameter blocks are `repr(C)` numbers without padding, so all of their bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<P>()) };
        assert!(bytes.len() <= OP_BYTES, "parameter blocks fit an entry");
        let mut params = bytes.to_vec();
        params.resize(OP_BYTES, 0);
        self.kept.extend(arguments.kept);
        self.phases.push(Phase { kind, input_from, before_from: 0, product: None, params });
    }
}

impl Phase {
    /// What this phase is for one block.
    pub fn on_block(&self, block: u32) -> (JobBlock, StretchBlock) {
        let Phase { kind, input_from, before_from, .. } = *self;
        let mut job = JobBlock { kind, input_from, before_from, ..JobBlock::default() };
        let mut stretch = StretchBlock::default();
        let Some(p) = &self.product else { return (job, stretch) };
        let s = p.segments.iter().rev().find(|s| block >= s.first_block).unwrap_or(&p.segments[0]);
        let own = block - s.first_block;
        if own >= s.blocks {
            return (job, stretch);
        }
        let first = s.tiles * own / s.blocks;
        let tiles = s.tiles * (own + 1) / s.blocks - first;
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
        let (chunk, whole) = (pack::chunk_bytes(format) as u32, p.slices == 1);
        let skipped = u64::from(first * p.supers) * u64::from(chunk);
        let (run, matrix_runs) = if whole { (p.supers, tiles) } else { (tiles * p.supers, 1) };
        stretch = StretchBlock {
            weights: s.weights + skipped,
            second: if s.second == 0 { 0 } else { s.second + skipped },
            run,
            runs: (matrix_runs * if s.second == 0 { 1 } else { 2 }) as u16,
            matrix_runs: matrix_runs as u16,
            chunk: chunk as u16,
            stage: (STAGE_BYTES / chunk as usize * chunk as usize) as u16,
            whole: u32::from(whole),
        };
        (job, stretch)
    }
}

/// `Job` in `kernels/token_product.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct JobBlock {
    kind: u32,
    format: u32,
    input_from: u32,
    before_from: u32,
    input: u64,
    norm: u64,
    bias: u64,
    output: u64,
    candidates: u64,
    tiles: u32,
    rows: u32,
    place: u32,
    columns: u32,
    supers: u32,
    slices: u32,
    epsilon: f32,
    wide: u32,
    padding: [u32; 2],
}

/// `Stretch` in `kernels/ring.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct StretchBlock {
    weights: u64,
    second: u64,
    run: u32,
    runs: u16,
    matrix_runs: u16,
    chunk: u16,
    stage: u16,
    whole: u32,
}

// SAFETY: numbers without padding.
unsafe impl Plain for JobBlock {}
// SAFETY: numbers without padding.
unsafe impl Plain for StretchBlock {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gate and up of the 1.5B in 132 blocks, or its queries, keys and values.
    fn phase(slices: u32, segments: &[(Format, u32, u32, u64)]) -> Phase {
        let mut product = ProductBlock { columns: 1536, supers: 6, slices, rows: 1, ..ProductBlock::default() };
        product.segments = [SegmentBlock { first_block: u32::MAX, ..SegmentBlock::default() }; 3];
        let mut first_block = 0;
        for (segment, &(format, rows, blocks, second)) in product.segments.iter_mut().zip(segments) {
            let (weights, tiles) = (4096, rows.div_ceil(4));
            let format = format.file_id();
            *segment = SegmentBlock { weights, second, format, rows, tiles, first_block, blocks, ..*segment };
            first_block += blocks;
        }
        Phase { kind: STORE, input_from: 1, before_from: 0, product: Some(product), params: Vec::new() }
    }

    #[test]
    fn every_row_and_every_byte_is_one_blocks() {
        let attention = [(Format::Q4_K, 1536, 99, 0), (Format::Q4_K, 254, 15, 0), (Format::Q6_K, 256, 18, 0)];
        for (slices, segments) in
            [(6, &attention[..]), (6, &[(Format::Q4_K, 8960, 132, 1 << 30)]), (1, &attention[..1])]
        {
            let phase = phase(slices, segments);
            let parts: Vec<_> = (0..140).map(|block| phase.on_block(block)).collect();
            let mut rows = Vec::new();
            let mut bytes = vec![0; segments.len()];
            for (job, stretch) in parts.iter().filter(|(job, _)| job.tiles > 0) {
                rows.push(job.rows);
                let which = segments.iter().position(|s| s.0.file_id() == job.format).unwrap();
                bytes[which] += u32::from(stretch.runs) * stretch.run * u32::from(stretch.chunk);
                assert_eq!(u32::from(stretch.stage) % u32::from(stretch.chunk), 0);
                assert!(usize::from(stretch.stage) <= STAGE_BYTES);
            }
            assert_eq!(rows.iter().sum::<u32>(), segments.iter().map(|s| s.1).sum::<u32>());
            for format in [Format::Q4_K, Format::Q6_K] {
                let of = |s: &&(Format, u32, u32, u64)| s.0 == format;
                let all: u32 = segments.iter().filter(of).map(|s| s.1.div_ceil(4) * if s.3 == 0 { 1 } else { 2 }).sum();
                let found: u32 = segments.iter().zip(&bytes).filter(|(s, _)| of(s)).map(|(_, bytes)| bytes).sum();
                assert_eq!(found as usize, all as usize * pack::tile_bytes(format, 1536), "{format:?}");
            }
        }
    }
}
