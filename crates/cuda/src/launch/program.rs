//! A whole step of one row as one kernel: calls are written down as a list that the kernel `token` works through.
//!
//! The list holds the parameter blocks that the kernels of a graph would get, so the two ways cannot drift apart. Only
//! vectors that one phase hands to another are replaced: each gets a tagged twin (`kernels/tagged.cuh`), and the list says
//! which phase wrote what a phase reads.

use super::{Kernels, KernelsOptions, Module, SPLITS, products};
use crate::arguments::*;
use crate::device::{Call, Function, Start};
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::{Device, pack};
use kernels::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// Shared memory for weights under way; the rest of a multiprocessor's is for everything else.
const RING_BYTES: usize = 160 << 10;
/// The kernel's fixed shared memory, which counts against the most it may ask for.
const FIXED_BYTES: usize = 4096;
/// Bytes of an entry of the list: its kind and where its inputs come from, then the parameter block.
const OP_BYTES: usize = 224;
/// Bytes of a `Stretch` in `kernels/ring.cuh`; there is one per entry.
const STRETCH_BYTES: usize = 32;
/// Widest row a norm may have: three super-blocks for each warp.
const NORM_COLUMNS_MAX: usize = 3 * products::WARPS * pack::CHUNK_COLUMNS;

/// Bytes of a pair of chunks, and how many of them each warp has under way.
pub(super) fn ring(formats: &[Format]) -> (usize, usize) {
    let pair = 2 * formats.iter().map(|&format| pack::chunk_bytes(format)).max().unwrap_or(16);
    (pair, RING_BYTES / (products::WARPS * pair))
}

/// The kernel.
pub(super) struct TokenKernel {
    function: Function,
    ring_bytes: usize,
}

impl TokenKernel {
    pub fn new(device: &Device, module: &Module, options: &KernelsOptions) -> Result<TokenKernel, Error> {
        let (pair, depth) = ring(&options.formats);
        let function = module.function_with("token", device.facts().shared_bytes - FIXED_BYTES)?;
        Ok(TokenKernel { function, ring_bytes: products::WARPS * pair * depth })
    }
}

/// A vector that phases hand on: value and tag of each element.
struct Tagged {
    values: Buffer<u64>,
    /// The phase that wrote it last, counted from 1.
    written_by: u32,
    /// The vector of floats it stands for.
    plain: u64,
    len: usize,
}

/// What was asked for so far.
pub(super) struct Script {
    device: Device,
    options: KernelsOptions,
    ops: Vec<u8>,
    kept: Vec<Arc<dyn Keep>>,
    shared_bytes: usize,
    vectors: HashMap<u64, Tagged>,
    ends_with_pick: bool,
}

impl Script {
    fn new(device: &Device, options: &KernelsOptions) -> Script {
        Script {
            device: device.clone(),
            options: options.clone(),
            ops: Vec::new(),
            kept: Vec::new(),
            shared_bytes: options.attention_bytes(),
            vectors: HashMap::new(),
            ends_with_pick: false,
        }
    }

    fn count(&self) -> usize {
        self.ops.len() / OP_BYTES
    }

    pub fn embed(&mut self, mut params: EmbedBlock, arguments: Arguments) -> Result<(), Error> {
        (params.output, _) = self.write(params.output, params.columns as usize)?;
        self.add(0, [0, 0], arguments, &params);
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
            "product_store" => 1,
            "product_add" => 2,
            "product_gate" => 3,
            _ => 4,
        };
        let (input, input_from) = self.read(params.input)?;
        params.input = input;
        let mut before_from = 0;
        if kind != 4 {
            (params.output, before_from) = self.write(params.output, params.output_stride as usize)?;
        }
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.add(kind, [input_from, before_from], arguments, &params);
        Ok(())
    }

    pub fn attention(&mut self, mut params: AttentionBlock, arguments: Arguments) -> Result<(), Error> {
        let KernelsOptions { head, heads, .. } = self.options;
        let (rows, input_from) = self.read(params.heads.rows)?;
        params.heads.rows = rows;
        (params.output, _) = self.write(params.output, heads * head)?;
        (params.partial, _) = self.write(params.partial, heads * SPLITS * (head + 2))?;
        self.add(5, [input_from, 0], arguments, &params);
        Ok(())
    }

    pub fn pick(&mut self, params: PickBlock, arguments: Arguments) -> Result<(), Error> {
        self.ends_with_pick = true;
        self.add(6, [0, 0], arguments, &params);
        Ok(())
    }

    /// A program without a pick ends with its result as plain floats.
    fn finish(&mut self) {
        if self.ends_with_pick {
            return;
        }
        let last = self.count() as u32;
        if let Some(vector) = self.vectors.values().find(|vector| vector.written_by == last) {
            let (input, output) = (vector.values.all().address, vector.plain);
            let params = PlainBlock { input, output, columns: vector.len as u32, padding: 0 };
            self.add(7, [last, 0], Arguments::default(), &params);
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
        let this = self.count() as u32 + 1;
        if !self.vectors.contains_key(&plain) {
            let values = Buffer::zeroed(&self.device, len.next_multiple_of(pack::CHUNK_COLUMNS))?;
            self.vectors.insert(plain, Tagged { values, written_by: 0, plain, len });
        }
        let vector = self.vectors.get_mut(&plain).expect("it was just inserted where it was missing");
        assert_eq!(vector.len, len, "a vector keeps its length");
        Ok((vector.values.all().address, std::mem::replace(&mut vector.written_by, this)))
    }

    fn add<P>(&mut self, kind: u32, from: [u32; 2], arguments: Arguments, params: &P) {
        // SAFETY: parameter blocks are `repr(C)` numbers without padding, so all of their bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<P>()) };
        let start = self.ops.len();
        for word in [kind, from[0], from[1], 0] {
            self.ops.extend_from_slice(&word.to_le_bytes());
        }
        self.ops.extend_from_slice(bytes);
        assert!(self.ops.len() <= start + OP_BYTES, "parameter blocks fit an entry");
        self.ops.resize(start + OP_BYTES, 0);
        self.kept.extend(arguments.kept);
    }
}

/// A list on the card, ready to be worked through any number of times.
pub struct Program {
    device: Device,
    ops: Buffer<u8>,
    count: usize,
    function: Function,
    /// Arrivals of blocks and launches, ever.
    counters: Buffer<u32>,
    stretches_offset: usize,
    ring_offset: usize,
    shared_bytes: usize,
    /// Clock readings, when the kernel was compiled to take them.
    times: Option<Buffer<u64>>,
    _kept: Vec<Arc<dyn Keep>>,
    _vectors: Vec<Tagged>,
}

/// Clock readings of a phase on one block.
pub const READINGS: usize = 6;

#[repr(C)]
struct TokenBlock {
    ops: u64,
    counters: u64,
    times: u64,
    count: u32,
    stretches_offset: u32,
    ring_offset: u32,
    padding: u32,
}

impl Kernels {
    /// Whether steps of one row of this width can be programs.
    pub fn has_programs(&self, columns: usize) -> bool {
        self.token.is_some() && columns <= NORM_COLUMNS_MAX
    }

    /// Writes down what `work` asks for, without doing it.
    pub fn program(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Program, Error> {
        let token = self.token.as_ref().ok_or_else(|| Error::Unsupported("a program".to_owned()))?;
        *self.script() = Some(Script::new(&self.device, &self.options));
        let worked = work();
        let script = self.script().take();
        worked?;
        let mut script = script.ok_or_else(|| Error::Unsupported("a program inside a program".to_owned()))?;
        script.finish();
        let count = script.count();
        let stretches_offset = script.shared_bytes.next_multiple_of(128);
        let ring_offset = (stretches_offset + count * STRETCH_BYTES).next_multiple_of(128);
        let shared_bytes = ring_offset + token.ring_bytes;
        if shared_bytes > self.device.facts().shared_bytes - FIXED_BYTES {
            return Err(Error::Unsupported("a program with rows this wide".to_owned()));
        }
        let readings = count * self.device.facts().multiprocessors as usize * READINGS;
        Ok(Program {
            times: self.options.times.then(|| Buffer::zeroed(&self.device, readings)).transpose()?,
            ops: Buffer::new(&self.device, &script.ops)?,
            count,
            device: self.device.clone(),
            function: token.function,
            counters: Buffer::zeroed(&self.device, 2)?,
            stretches_offset,
            ring_offset,
            shared_bytes,
            _kept: script.kept,
            _vectors: script.vectors.into_values().collect(),
        })
    }
}

impl Program {
    /// Clock readings of the last launch, `[phase][block][READINGS]`, when kernels were compiled to take them.
    pub fn times(&self) -> Result<Vec<u64>, Error> {
        let Some(times) = &self.times else { return Ok(Vec::new()) };
        let mut readings = vec![0; times.len()];
        times.read(0, &mut readings)?;
        Ok(readings)
    }

    /// Works through the list after everything asked for before.
    pub fn launch(&self) -> Result<(), Error> {
        let mut a = Arguments::default();
        let params = TokenBlock {
            ops: a.at(self.ops.all()),
            counters: a.at(self.counters.all()),
            times: self.times.as_ref().map_or(0, |times| a.at(times.all())),
            count: self.count as u32,
            stretches_offset: self.stretches_offset as u32,
            ring_offset: self.ring_offset as u32,
            padding: 0,
        };
        let call = Call {
            name: "token",
            function: &self.function,
            grid: (self.device.facts().multiprocessors, 1, 1),
            threads: (products::WARPS * 32) as u32,
            shared_bytes: self.shared_bytes,
            start: Start::Together,
        };
        self.device.launch(call, a, &params)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Memory it uses goes with it; nothing may be running on that.
        let _ = self.device.synchronize();
    }
}
